/* ca_client_test.c - what goes to istiod, what is repeated, what is told.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/istiod.c tests/fake/secrets.c tests/unit/worker/metrics_rig.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "istio/v1/auth/ca.pb-c.h"
#include "tests/fake/istiod.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "tests/fake/secrets.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/certs/ca_client.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct {
	struct loop *loop;
	struct rpc *rpc;
	struct istiod *istiod;
	struct ca_client *ca;
	struct ca_sign *sign;
	unsigned done;
	int code; /* of the error; 0: a chain */
	char why[ERR_MSG_SIZE], leaf[64], last[64];
	size_t n;
} w;

static const char token[] =
    "SECRETe30.e30.c2ln-token-that-is-longer-than-the-first-buffer-of-stdio-"
    "0123456789012345678901234567890123456789";

static int setup(void **state)
{
	static const struct istiod_options plane = {.name = "istiod",
	    .address = "istiod.test:15012",
	    .root = "SYSTEM",
	    .server_name = "istiod.test",
	    .trust_domain = "td",
	    .cluster_id = "Kubernetes",
	    .mesh_id = "",
	    .connections = 1};

	(void)state;
	memset(&w, 0, sizeof(w));
	w.loop = fake_loop();
	w.rpc = rpc_new(w.loop);
	w.istiod = istiod_new(w.loop, w.rpc, NULL, &plane, 0);
	w.ca = ca_client_new(w.loop, w.istiod, 10);
	secrets_watch();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ca_sign_cancel(&w.sign);
	ca_client_free(&w.ca);
	istiod_free(&w.istiod);
	assert_int_equal(fake_rpc_live(w.rpc), 0);
	rpc_free(&w.rpc);
	fake_loop_advance(w.loop, 0); /* the fake's own pump */
	assert_int_equal(fake_loop_live(w.loop), 0);
	fake_loop_end(&w.loop);
	metrics_clear();
	assert_int_equal(secrets_freed(), 0);
	return 0;
}

static void on_signed(void *ctx, const struct err *e, const char *const *chain, size_t n)
{
	assert_ptr_equal(ctx, &w);
	assert_null(w.sign); /* R3 */
	w.done++;
	w.n = n;
	w.code = e ? e->code : 0;
	strcpy(w.why, e ? e->msg : "");
	assert_true((e == NULL) == (chain != NULL));
	if (chain) {
		strcpy(w.leaf, chain[0]);
		strcpy(w.last, chain[n - 1]);
	}
}

static struct uuid pod_a = {.bytes = "a"};

static void sign(void)
{
	/* Whatever it is given may go when it returns. */
	char csr[] = "CSR", jwt[sizeof(token)], signer[] = "signer";
	struct ca_request r = {
	    .csr_pem = csr, .token = jwt, .cert_signer = signer, .ttl_s = 86400, .pod = pod_a};

	strcpy(jwt, token);
	ca_sign(w.ca, &w.sign, &r, on_signed, &w);
	memset(csr, 'x', sizeof(csr) - 1);
	memset(jwt, 'x', sizeof(jwt) - 1);
	memset(signer, 'x', sizeof(signer) - 1);
}

static void later(int64_t ms)
{
	fake_loop_advance(w.loop, ms);
}

static struct rpc_stream *stream(unsigned i)
{
	struct rpc_stream *s = fake_rpc_stream(w.rpc, i);

	assert_non_null(s);
	return s;
}

static unsigned opened(void)
{
	return fake_rpc_opened(w.rpc);
}

static void push_chain(struct rpc_stream *s, char **chain, size_t n)
{
	Istio__V1__Auth__IstioCertificateResponse r =
	    ISTIO__V1__AUTH__ISTIO_CERTIFICATE_RESPONSE__INIT;

	r.cert_chain = chain;
	r.n_cert_chain = n;
	size_t size = istio__v1__auth__istio_certificate_response__get_packed_size(&r);
	auto_free uint8_t *bytes = mem_zalloc(size);
	istio__v1__auth__istio_certificate_response__pack(&r, bytes);
	fake_rpc_push(s, bytes, size);
}

static void push_answer(struct rpc_stream *s)
{
	char *chain[] = {(char *)"LEAF", (char *)"BETWEEN", (char *)"ROOTS"};

	push_chain(s, chain, 3);
}

/* --- what is sent --- */

static void the_request_is_pilot_agents(void **state)
{
	Istio__V1__Auth__IstioCertificateRequest *q;
	const void *bytes;
	size_t size;

	(void)state;
	fake_istiod_hold(w.istiod, true);
	sign();
	later(0);
	assert_int_equal(opened(), 0); /* it takes a turn */
	assert_memory_equal(fake_istiod_first_pod(w.istiod), &pod_a, sizeof(pod_a));
	fake_istiod_hold(w.istiod, false);
	later(0);
	struct rpc_stream *s = stream(0);
	assert_string_equal(
	    fake_rpc_how(s)->method, "/istio.v1.auth.IstioCertificateService/CreateCertificate");
	assert_int_equal(fake_rpc_how(s)->deadline_ms, 10000);
	assert_string_equal(fake_istiod_token(w.istiod), token);
	assert_int_equal(fake_rpc_sent(s), 1);
	assert_true(fake_rpc_half_closed(s));
	bytes = fake_rpc_sent_bytes(s, 0, &size);
	q = istio__v1__auth__istio_certificate_request__unpack(NULL, size, bytes);
	assert_non_null(q);
	assert_string_equal(q->csr, "CSR");
	assert_int_equal(q->validity_duration, 86400);
	assert_int_equal(q->metadata->n_fields, 1);
	assert_string_equal(q->metadata->fields[0]->key, "CertSigner");
	assert_string_equal(q->metadata->fields[0]->value->string_value, "signer");
	istio__v1__auth__istio_certificate_request__free_unpacked(q, NULL);
}

/* The same as bytes, from the definition: field 4 of {1: {1: "CertSigner", 2: {3: ""}}}. */
static void an_empty_signer_is_sent(void **state)
{
	static const char expected[] = "\x0a\x03"
				       "CSR\x18\x3c\x22\x12\x0a\x10\x0a\x0a"
				       "CertSigner\x12\x02\x1a\x00";
	struct ca_request r = {"CSR", token, "", 60, pod_a, false};
	const void *bytes;
	size_t size;

	(void)state;
	ca_sign(w.ca, &w.sign, &r, on_signed, &w);
	later(0);
	bytes = fake_rpc_sent_bytes(stream(0), 0, &size);
	assert_int_equal(size, sizeof(expected) - 1);
	assert_memory_equal(bytes, expected, size);
}

static void it_waits_for_its_turn(void **state)
{
	(void)state;
	fake_istiod_hold(w.istiod, true);
	sign();
	later(3600 * 1000);
	assert_int_equal(opened() + w.done, 0);
	fake_istiod_hold(w.istiod, false);
	later(0);
	assert_int_equal(opened(), 1);
}

/* --- answers --- */

static void a_chain_is_handed_on(void **state)
{
	(void)state;
	sign();
	later(40);
	push_answer(stream(0));
	later(0);
	assert_int_equal(w.done, 0); /* not before the status is known */
	fake_rpc_end(stream(0), RPC_OK, "");
	later(0);
	assert_int_equal(w.done, 1);
	assert_int_equal(w.n, 3);
	assert_string_equal(w.leaf, "LEAF");
	assert_string_equal(w.last, "ROOTS");
	assert_metric("istio_agent_num_outgoing_requests{request_type=\"csr\"} 1\n");
	assert_metric("istio_agent_outgoing_latency{request_type=\"csr\"} 40\n");
	assert_metric("agentd_csr_requests_total{result=\"OK\"} 1\n");
}

static void a_chain_with_a_bad_status_is_none(void **state)
{
	(void)state;
	sign();
	later(0);
	push_answer(stream(0));
	fake_rpc_end(stream(0), RPC_UNKNOWN, "changed my mind");
	later(0);
	assert_string_equal(w.why, "istiod: UNKNOWN: changed my mind");
	assert_int_equal(w.n, 0);
}

static void only_one_answer(void **state)
{
	(void)state;
	sign();
	later(0);
	push_answer(stream(0));
	push_answer(stream(0));
	push_answer(stream(0));
	fake_rpc_end(stream(0), RPC_OK, "");
	later(0);
	assert_string_equal(w.why, "istiod: more than one answer");
	assert_int_equal(w.n, 0);
	assert_int_equal(w.code, ERR_PROTOCOL);
}

static void answers_that_are_none(void **state)
{
	static char big[256 * 1024];
	char *chain[65];

	(void)state;
	for (int i = 0; i < 65; i++)
		chain[i] = (char *)"CERT";
	struct {
		size_t n;
		const char *first, *why;
	} bad[] = {
	    {0, NULL, "istiod: invalid empty certificate chain"},
	    {1, NULL, "istiod: invalid empty certificate chain"},
	    {65, NULL, "istiod: certificate chain of more than 64 elements"},
	    {2, "\xff", "istiod: certificate chain is not text"},
	    {2, big, "istiod: certificate chain of 262153 bytes, more than 262144"},
	};
	memset(big, 'x', sizeof(big) - 1);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		chain[0] = bad[i].first ? (char *)bad[i].first : (char *)"CERT";
		sign();
		later(0);
		push_chain(stream(i), chain, bad[i].n);
		fake_rpc_end(stream(i), RPC_OK, "");
		later(3600 * 1000);
		assert_int_equal(w.done, i + 1);
		assert_string_equal(w.why, bad[i].why);
	}
	assert_int_equal(opened(), 5); /* what istiod answers wrongly it is not asked again */
	assert_metric("agentd_csr_requests_total{result=\"malformed\"} 5\n");
	assert_metric("istio_agent_num_failed_outgoing_requests{request_type=\"csr\"} 5\n");
}

/* Bytes that no honest encoder makes: a wrong wire type, a cut field, a NUL, an unknown field. */
static void malformed_answers(void **state)
{
	static const struct {
		const char *bytes, *why;
		size_t size;
	} bad[] = {
	    {"\x08\x01\x08\x01", "istiod: malformed certificate chain", 4},
	    {"\x0a\x05"
	     "abc",
		"istiod: malformed answer", 5},
	    {"\x0a\x03"
	     "a\0b\x0a\x01"
	     "c",
		"istiod: certificate chain is not text", 8},
	    {"", "istiod: invalid empty certificate chain", 0},
	};
	static const char good[] = "\x12\x01x\x0a\x01y\x98\x06\x01\x0a\x01z";

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		sign();
		later(0);
		fake_rpc_push(stream(i), bad[i].bytes, bad[i].size);
		fake_rpc_end(stream(i), RPC_OK, "");
		later(0);
		assert_string_equal(w.why, bad[i].why);
	}
	sign();
	later(0);
	fake_rpc_push(stream(4), good, sizeof(good) - 1);
	fake_rpc_end(stream(4), RPC_OK, "");
	later(0);
	assert_int_equal(w.n, 2);
	assert_string_equal(w.leaf, "y");
	assert_string_equal(w.last, "z");
}

static void a_status_without_an_answer(void **state)
{
	(void)state;
	sign();
	later(0);
	fake_rpc_end(stream(0), RPC_OK, "");
	later(0);
	assert_string_equal(w.why, "istiod: no answer");
}

/* --- repeating --- */

static void transport_failures_are_repeated_four_times(void **state)
{
	static const int codes[] = {RPC_CANCELLED, RPC_DEADLINE_EXCEEDED, RPC_RESOURCE_EXHAUSTED,
	    RPC_ABORTED, RPC_INTERNAL, RPC_UNAVAILABLE};

	(void)state;
	for (unsigned c = 0; c < 6; c++) {
		sign();
		later(0);
		for (unsigned i = 0; i < 4; i++) {
			int64_t waited = 0;

			fake_rpc_end(stream(c * 5 + i), codes[c], "try again");
			later(0);
			for (; opened() == c * 5 + i + 1; waited++)
				later(1);
			assert_in_range(waited, (100 << i) * 9 / 10, (100 << i) * 11 / 10);
		}
		assert_int_equal(w.done, c);
		assert_int_equal(fake_rpc_sent(stream(c * 5 + 4)), 1);
		fake_rpc_end(stream(c * 5 + 4), codes[c], "the last word");
		later(3600 * 1000);
		assert_int_equal(w.done, c + 1);
		assert_int_equal(opened(), c * 5 + 5);
		assert_int_equal(w.code, ERR_UNAVAILABLE);
	}
	assert_string_equal(w.why, "istiod: UNAVAILABLE: the last word");
	assert_metric("istio_agent_num_outgoing_requests{request_type=\"csr\"} 6\n");
	assert_metric("istio_agent_num_outgoing_retries{request_type=\"csr\"} 24\n");
	assert_metric("istio_agent_num_failed_outgoing_requests{request_type=\"csr\"} 6\n");
	assert_metric("agentd_csr_requests_total{result=\"UNAVAILABLE\"} 1\n");
}

/* They must not all come back in the same millisecond. */
static void pauses_are_spread(void **state)
{
	int64_t least = INT64_MAX, most = 0;

	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		int64_t waited = 0;

		sign();
		later(0);
		fake_rpc_end(stream(i * 2), RPC_UNAVAILABLE, "");
		later(0);
		for (; opened() == i * 2 + 1; waited++)
			later(1);
		least = waited < least ? waited : least;
		most = waited > most ? waited : most;
		ca_sign_cancel(&w.sign);
		later(1000); /* the pace */
	}
	assert_in_range(least, 90, 97);
	assert_in_range(most, 103, 110);
}

static void other_failures_are_not_repeated(void **state)
{
	static const struct {
		int status, code;
		const char *why;
	} bad[] = {
	    {RPC_UNAUTHENTICATED, ERR_DENIED, "istiod: UNAUTHENTICATED: no"},
	    {RPC_PERMISSION_DENIED, ERR_DENIED, "istiod: PERMISSION_DENIED: no"},
	    {RPC_INVALID_ARGUMENT, ERR_INVALID, "istiod: INVALID_ARGUMENT: no"},
	    {RPC_UNKNOWN, ERR_UNAVAILABLE, "istiod: UNKNOWN: no"},
	    {RPC_UNIMPLEMENTED, ERR_UNAVAILABLE, "istiod: UNIMPLEMENTED: no"},
	    {RPC_FAILED_PRECONDITION, ERR_UNAVAILABLE, "istiod: FAILED_PRECONDITION: no"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		sign();
		later(0);
		fake_rpc_end(stream(i), bad[i].status, "no");
		later(3600 * 1000);
		assert_int_equal(w.done, i + 1);
		assert_int_equal(opened(), i + 1);
		assert_int_equal(w.code, bad[i].code);
		assert_string_equal(w.why, bad[i].why);
	}
}

/* What came before the failure does not count for the next attempt. */
static void each_attempt_starts_anew(void **state)
{
	(void)state;
	sign();
	later(0);
	push_answer(stream(0));
	fake_rpc_end(stream(0), RPC_UNAVAILABLE, "");
	later(200);
	fake_rpc_push(stream(1), "\x08", 1); /* malformed */
	fake_rpc_end(stream(1), RPC_INTERNAL, "");
	later(300);
	push_answer(stream(2));
	fake_rpc_end(stream(2), RPC_OK, "");
	later(0);
	assert_int_equal(w.done, 1);
	assert_string_equal(w.why, "");
	assert_int_equal(w.n, 3);
}

/* An istiod that never answers: five deadlines of 10 s, then the reason. */
static void silence_ends(void **state)
{
	(void)state;
	sign();
	later(49 * 1000);
	assert_int_equal(w.done, 0);
	later(3 * 1000);
	assert_int_equal(w.done, 1);
	assert_string_equal(w.why, "istiod: DEADLINE_EXCEEDED: Deadline Exceeded");
}

/* Another turn each time: a restarted istiod is asked at its pace, on the channel of then. */
static void each_attempt_takes_a_turn(void **state)
{
	(void)state;
	sign();
	later(0);
	fake_istiod_hold(w.istiod, true);
	fake_rpc_end(stream(0), RPC_UNAVAILABLE, "");
	later(3600 * 1000);
	assert_int_equal(opened(), 1);
	assert_int_equal(fake_istiod_waiting(w.istiod), 1);
	fake_istiod_hold(w.istiod, false);
	later(0);
	assert_int_equal(opened(), 2);
}

static void a_token_that_cannot_be_sent_is_told(void **state)
{
	struct ca_request r = {"CSR", "SECRET\x01", "", 60, pod_a, false};

	(void)state;
	ca_sign(w.ca, &w.sign, &r, on_signed, &w);
	assert_int_equal(w.done, 0);
	later(3600 * 1000);
	assert_int_equal(w.done, 1);
	assert_int_equal(opened(), 0);
	assert_null(strstr(w.why, "SECRET"));
	assert_metric("agentd_csr_requests_total{result=\"not_sent\"} 1\n");
}

/* --- ending --- */

/* R1 at every stage; the teardown looks for what is left. */
static void cancel_at_every_stage(void **state)
{
	(void)state;
	for (unsigned stage = 0; stage < 7; stage++) {
		teardown(NULL);
		setup(NULL);
		if (stage == 1)
			fake_istiod_hold(w.istiod, true);
		sign();
		if (stage > 0)
			later(0);
		if (stage == 3)
			push_answer(stream(0));
		if (stage == 4) {
			push_answer(stream(0));
			later(0);
		}
		if (stage == 5) {
			fake_rpc_end(stream(0), RPC_UNAVAILABLE, "");
			later(0); /* the pause runs */
		}
		if (stage == 6) {
			fake_rpc_end(stream(0), RPC_UNAVAILABLE, "");
			later(200); /* the second stream is open */
		}
		ca_sign_cancel(&w.sign);
		assert_null(w.sign);
		assert_int_equal(fake_rpc_live(w.rpc), 0);
		assert_int_equal(fake_istiod_waiting(w.istiod), 0);
		later(1000); /* the fake's own pump, the pace's refill */
		assert_int_equal(fake_loop_live(w.loop), 0);
		later(3600 * 1000);
		assert_int_equal(w.done, 0);
	}
	ca_sign_cancel(&w.sign); /* NULL is fine */
}

static void on_ignored(void *ctx, const struct err *e, const char *const *chain, size_t n)
{
	(void)ctx, (void)e, (void)chain, (void)n;
}

/* 10 per second of 20 at most at once, repetitions included; the one that is urgent is not the
 * last, though it came last. */
static void attempts_are_paced(void **state)
{
	struct ca_sign *signs[60] = {0};
	struct ca_request r = {
	    .csr_pem = "CSR", .token = "other", .cert_signer = "", .ttl_s = 86400, .pod = pod_a};

	(void)state;
	for (unsigned i = 0; i < 60; i++) {
		r.urgent = i == 59;
		r.token = r.urgent ? "pressing" : "other";
		ca_sign(w.ca, &signs[i], &r, on_ignored, NULL);
	}
	later(0);
	assert_int_equal(opened(), 20);
	assert_string_equal(fake_rpc_header(stream(0), "authorization"), "Bearer pressing");
	fake_rpc_end(stream(1), RPC_UNAVAILABLE, "no");
	for (unsigned second = 1; second <= 4; second++) {
		later(1000);
		assert_int_equal(opened(), 20 + 10 * second);
	}
	later(200);
	assert_int_equal(opened(), 61);
	for (unsigned i = 0; i < 60; i++)
		ca_sign_cancel(&signs[i]);
}

static void on_signed_again(void *ctx, const struct err *e, const char *const *chain, size_t n)
{
	on_signed(ctx, e, chain, n);
	sign();
}

static void may_ask_again_inside_done(void **state)
{
	struct ca_request r = {"CSR", token, "", 60, pod_a, false};

	(void)state;
	ca_sign(w.ca, &w.sign, &r, on_signed_again, &w);
	later(0);
	push_answer(stream(0));
	fake_rpc_end(stream(0), RPC_OK, "");
	later(0);
	assert_int_equal(w.done, 1);
	assert_non_null(w.sign);
	assert_int_equal(opened(), 2);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(the_request_is_pilot_agents),
	    TEST(an_empty_signer_is_sent),
	    TEST(it_waits_for_its_turn),
	    TEST(a_chain_is_handed_on),
	    TEST(a_chain_with_a_bad_status_is_none),
	    TEST(only_one_answer),
	    TEST(answers_that_are_none),
	    TEST(malformed_answers),
	    TEST(a_status_without_an_answer),
	    TEST(transport_failures_are_repeated_four_times),
	    TEST(pauses_are_spread),
	    TEST(other_failures_are_not_repeated),
	    TEST(each_attempt_starts_anew),
	    TEST(silence_ends),
	    TEST(each_attempt_takes_a_turn),
	    TEST(a_token_that_cannot_be_sent_is_told),
	    TEST(cancel_at_every_stage),
	    TEST(attempts_are_paced),
	    TEST(may_ask_again_inside_done),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
