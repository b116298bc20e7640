/* ca_client.c
 *
 * ca_sign -> request packed -> the pace allows one more -> a turn at istiod -> stream opened with
 * the pod's token -> request, half-close -> answer (bounded, ca_answer.c) -> status -> done. A
 * status of the list in 4.3 -> a short wait -> the pace, a new turn, up to five streams in all.
 * Whatever else goes wrong is the caller's to tell and to repeat: a refused token does not get
 * better by being sent again at once.
 */
#include "ca_client.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "ca_answer.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "csr_pace.h"
#include "istio/v1/auth/ca.pb-c.h"
#include "rpc/rpc.h"
#include "worker/istiod/istiod.h"

enum { ATTEMPTS_MAX = 5, FIRST_WAIT_MS = 100, DEADLINE_MS = 10 * 1000 };

#define METHOD "/istio.v1.auth.IstioCertificateService/CreateCertificate"
#define CSR_LABEL "request_type=\"csr\"" /* as pilot-agent's (istio-agent.md 1.8) */

struct ca_client {
	struct loop *loop;
	struct istiod *istiod;
	struct csr_pace *pace;
	struct metric *requests, *failed, *retries, *latency, *results, *seconds;
};

struct ca_sign {
	struct ca_client *client;
	struct ca_sign **slot;
	ca_signed done;
	void *ctx;
	struct uuid pod;
	char *token; /* secret */
	uint8_t *request;
	size_t request_size;
	int64_t begun_ms;
	unsigned attempts;
	bool urgent;
	struct csr_pace_turn paced;
	struct istiod_turn *turn;
	struct rpc_stream *stream;
	struct loop_timer again;
	struct ca_answer answer;
	struct err bad; /* what was wrong with the answer; code 0: nothing */
};

static void count_result(const struct ca_client *c, const char *result, unsigned n)
{
	char labels[64];

	metric_labels(labels, sizeof(labels), "result", result, NULL);
	metric_add(c->results, labels, n);
}

/* All results that there are: increase() is to see the first one. */
static void count_none(const struct ca_client *c)
{
	metric_add(c->requests, CSR_LABEL, 0);
	metric_add(c->failed, CSR_LABEL, 0);
	metric_add(c->retries, CSR_LABEL, 0);
	metric_add(c->latency, CSR_LABEL, 0);
	for (int status = RPC_OK; status <= RPC_UNAUTHENTICATED; status++)
		count_result(c, rpc_status_name(status), 0);
	count_result(c, "not_sent", 0);
	count_result(c, "malformed", 0);
	metric_add(c->seconds, "", 0);
}

struct ca_client *ca_client_new(struct loop *l, struct istiod *i, unsigned per_second)
{
	struct ca_client *c = mem_zalloc(sizeof(*c));

	c->loop = l;
	c->istiod = i;
	c->pace = csr_pace_new(l, per_second);
	c->requests = metric_counter(
	    "istio_agent_num_outgoing_requests", "Certificates requested (one per CSR).");
	c->failed = metric_counter(
	    "istio_agent_num_failed_outgoing_requests", "CSRs that failed after all attempts.");
	c->retries = metric_counter(
	    "istio_agent_num_outgoing_retries", "Retries after a transport failure.");
	c->latency = metric_counter(
	    "istio_agent_outgoing_latency", "Total duration of all CSRs in milliseconds.");
	c->results = metric_counter(
	    "agentd_csr_requests_total", "CSRs by result: a gRPC status, not_sent or malformed.");
	c->seconds = metric_histogram("agentd_csr_seconds",
	    "Time from the request for a certificate to its end, with retries.");
	count_none(c);
	return c;
}

void ca_client_free(struct ca_client **client)
{
	struct ca_client *c = take(*client);

	if (!c)
		return;
	csr_pace_free(&c->pace);
	free(c);
}

static void sign_free(struct ca_sign *s)
{
	loop_timer_stop(&s->again);
	csr_pace_cancel(&s->paced);
	istiod_turn_cancel(&s->turn);
	rpc_close(&s->stream, RPC_CANCELLED, "");
	ca_answer_clear(&s->answer);
	secret_free(s->token);
	free(s->request);
	free(s);
}

static void measure(const struct ca_sign *s, bool failed, const char *result)
{
	const struct ca_client *c = s->client;
	int64_t took_ms = loop_now_ms(c->loop) - s->begun_ms;

	count_result(c, result, 1);
	if (failed)
		metric_add(c->failed, CSR_LABEL, 1);
	if (took_ms < 0) /* the wall clock was set back meanwhile */
		took_ms = 0;
	metric_add(c->latency, CSR_LABEL, (double)took_ms);
	metric_observe(c->seconds, "", (double)took_ms / 1000);
}

/* `why` NULL: the answer is good. */
static void finish(struct ca_sign *s, const struct err *why, const char *result)
{
	const char *const *chain = (const char *const *)s->answer.chain;

	*s->slot = NULL;
	measure(s, why != NULL, result);
	s->done(s->ctx, why, why ? NULL : chain, why ? 0 : s->answer.n);
	sign_free(s);
}

static bool worth_repeating(int status)
{
	switch (status) {
	case RPC_CANCELLED:
	case RPC_DEADLINE_EXCEEDED:
	case RPC_RESOURCE_EXHAUSTED:
	case RPC_ABORTED:
	case RPC_INTERNAL:
	case RPC_UNAVAILABLE:
		return true;
	default:
		return false;
	}
}

static int error_code(int status)
{
	switch (status) {
	case RPC_UNAUTHENTICATED:
	case RPC_PERMISSION_DENIED:
		return ERR_DENIED;
	case RPC_INVALID_ARGUMENT:
		return ERR_INVALID;
	default:
		return ERR_UNAVAILABLE;
	}
}

static void on_turn(void *ctx, struct rpc_channel *channel);

static void on_paced(void *ctx)
{
	struct ca_sign *s = ctx;

	istiod_csr_turn(s->client->istiod, &s->turn, &s->pod, on_turn, s);
}

static void on_again(void *ctx)
{
	struct ca_sign *s = ctx;

	csr_pace_take(s->client->pace, &s->paced, s->urgent, on_paced, s);
}

static void repeat(struct ca_sign *s)
{
	unsigned wait_ms = FIRST_WAIT_MS << (s->attempts - 1);

	metric_add(s->client->retries, CSR_LABEL, 1);
	ca_answer_clear(&s->answer);
	s->bad = (struct err){0};
	wait_ms += arc4random_uniform(wait_ms / 5 + 1) - wait_ms / 10; /* +-10 % */
	loop_timer_in(s->client->loop, &s->again, wait_ms, on_again, s);
}

static void on_message(void *ctx, struct rpc_stream *stream, struct rpc_msg *m)
{
	struct ca_sign *s = ctx;
	const struct iovec *iov;
	size_t n;

	(void)stream;
	if (s->answer.n) {
		err_set(&s->bad, ERR_PROTOCOL, "more than one answer");
		return;
	}
	iov = rpc_msg_iov(m, &n);
	ca_answer_read(&s->answer, iov, n, &s->bad);
}

static void finish_answered(struct ca_sign *s)
{
	if (!s->answer.n && !s->bad.code)
		err_set(&s->bad, ERR_PROTOCOL, "no answer");
	if (!s->bad.code)
		return finish(s, NULL, rpc_status_name(RPC_OK));
	err_wrap(&s->bad, "%s", istiod_options(s->client->istiod)->name);
	finish(s, &s->bad, "malformed");
}

static void on_closed(void *ctx, int status, const char *why)
{
	struct ca_sign *s = ctx;
	struct err e;

	if (status == RPC_OK)
		return finish_answered(s);
	if (worth_repeating(status) && s->attempts < ATTEMPTS_MAX)
		return repeat(s);
	err_set(&e, error_code(status), "%s: %s: %s", istiod_options(s->client->istiod)->name,
	    rpc_status_name(status), why);
	finish(s, &e, rpc_status_name(status));
}

static void on_turn(void *ctx, struct rpc_channel *channel)
{
	static const struct rpc_events events = {.message = on_message, .closed = on_closed};
	struct ca_sign *s = ctx;
	struct err e;

	s->attempts++;
	if (istiod_open(s->client->istiod, channel, &s->stream,
		&(struct istiod_stream){METHOD, s->token, DEADLINE_MS, &events, s, false}, &e))
		return finish(s, &e, "not_sent");
	rpc_send(s->stream, s->request, s->request_size);
	rpc_half_close(s->stream);
}

/* CertSigner is sent also when it is empty, as pilot-agent does (istio-agent.md 4.1). */
static uint8_t *pack_request(const struct ca_request *r, size_t *size)
{
	Google__Protobuf__Value signer = GOOGLE__PROTOBUF__VALUE__INIT;
	Google__Protobuf__Struct__FieldsEntry entry = GOOGLE__PROTOBUF__STRUCT__FIELDS_ENTRY__INIT;
	Google__Protobuf__Struct__FieldsEntry *entries[] = {&entry};
	Google__Protobuf__Struct metadata = GOOGLE__PROTOBUF__STRUCT__INIT;
	Istio__V1__Auth__IstioCertificateRequest q =
	    ISTIO__V1__AUTH__ISTIO_CERTIFICATE_REQUEST__INIT;
	uint8_t *bytes;

	signer.kind_case = GOOGLE__PROTOBUF__VALUE__KIND_STRING_VALUE;
	signer.string_value = (char *)r->cert_signer;
	entry.key = (char *)"CertSigner";
	entry.value = &signer;
	metadata.n_fields = 1;
	metadata.fields = entries;
	q.csr = (char *)r->csr_pem;
	q.validity_duration = r->ttl_s;
	q.metadata = &metadata;
	*size = istio__v1__auth__istio_certificate_request__get_packed_size(&q);
	bytes = mem_zalloc(*size);
	istio__v1__auth__istio_certificate_request__pack(&q, bytes);
	return bytes;
}

void ca_sign(struct ca_client *c, struct ca_sign **slot, const struct ca_request *r, ca_signed done,
    void *ctx)
{
	struct ca_sign *s = mem_zalloc(sizeof(*s));

	s->client = c;
	s->slot = slot;
	s->done = done;
	s->ctx = ctx;
	s->pod = r->pod;
	s->urgent = r->urgent;
	s->token = secret_dup(r->token);
	s->request = pack_request(r, &s->request_size);
	s->begun_ms = loop_now_ms(c->loop);
	*slot = s;
	metric_add(c->requests, CSR_LABEL, 1);
	csr_pace_take(c->pace, &s->paced, s->urgent, on_paced, s);
}

void ca_sign_cancel(struct ca_sign **slot)
{
	struct ca_sign *s = take(*slot);

	if (s)
		sign_free(s);
}
