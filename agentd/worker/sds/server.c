/* server.c - see server.h.
 *
 * incoming -> request: names are noted, an ACK or NACK is counted -> answer -> set_cert: an answer
 * on every stream.
 *
 * An answer is one response with each secret that is subscribed to, that exists, and whose version
 * differs from the last one sent on this stream.  No other rule decides what is sent.  If the
 * client asks again, the sent versions are forgotten.  A version that the client refused is not
 * sent again on that stream: the last one that was ACKed takes its place until there is another.  A
 * changed certificate is another version, and a missing one has none.  Nothing is added to a queued
 * response; `writable` looks again, which merges all changes since.
 *
 * Files that changed have another version, too: a timer looks, while any are subscribed to.
 *
 * A delta client that comes back with initial_resource_versions gets only what it lacks.  A renewal
 * does not push ROOTCA when the root is the same (versions: pack.h).
 *
 * The packed response is wiped when it is handed to rpc, which wipes its own copy when it is
 * written.
 */
#include "server.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "files.h"
#include "names.h"
#include "pack.h"
#include "rpc/server.h"
#include "worker/ads/discovery.h"
#include "worker/crypto/cert.h"
#include "worker/crypto/revocation.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("sds");

enum {
	NAMES_MAX = 64,
	VERBS_MAX = 3 * NAMES_MAX,
	NONCE_SIZE = 24,
	UNANSWERED_MS = 60 * 1000,
	LOOK_MS = 2000,
	LOOKS_MAX = 256
};

#define SERVICE "/envoy.service.secret.v3.SecretDiscoveryService/"

struct subscription {
	struct sds_name name;
	char sent[SDS_VERSION_SIZE];    /* what this stream was sent last; "": must be sent */
	unsigned response;              /* with which of the stream's responses */
	char refused[SDS_VERSION_SIZE]; /* what Envoy did not take; "": nothing */
	bool listed;                    /* in the request that is being read */
	uint64_t looked;                /* of files: what they were at the last look */
	struct subscription *next;
};

struct method {
	const char *name;
	enum discovery_flavour flavour;
	bool unary;
};
static const struct method methods[] = {
    {"StreamSecrets", DISCOVERY_SOTW, false},
    {"DeltaSecrets", DISCOVERY_DELTA, false},
    {"FetchSecrets", DISCOVERY_SOTW, true},
};

struct sds_stream {
	struct sds_server *server;
	struct rpc_stream *call;
	const struct method *method;
	struct subscription *subscriptions;
	unsigned count;
	unsigned verbs;         /* names in the request that is being read */
	bool greeted;           /* the first request, with the node, was there */
	unsigned serial;        /* among the server's streams */
	unsigned sent, settled; /* responses; the last one that was ACKed or NACKed, from 1 */
	int64_t sent_ms;        /* uptime: of the last one */
	bool refused;           /* the last settled one was NACKed */
	struct sds_stream *prev, *next;
};

/* What a secret was when Envoy took it. */
struct taken {
	struct sds_material material;
	struct cert *cert;
	char *roots;
	struct revocation *crl;
};

struct sds_server {
	struct loop *loop;
	const char *directories; /* NULL: no files are followed */
	struct loop_timer look;
	char *subject;
	struct cert *cert;      /* our reference */
	struct revocation *crl; /* the same */
	struct taken taken[2];  /* the certificate, ROOTCA */
	struct sds_material material;
	char *why_not;
	struct sds_stream *streams;
	unsigned opened;
	uint64_t pushes, acks, nacks;
	char last_nack[DISCOVERY_WHY_SIZE], last_refusal[ERR_MSG_SIZE];
	struct log_budget log;
};

/* --- answers --- */

static const char *version_in(
    const struct sds_server *server, const struct sds_material *m, const struct subscription *s)
{
	return sds_pack_version(m, &s->name, loop_now_ms(server->loop) / 1000);
}

/* Did Envoy refuse, on this stream, what is the newest? */
static bool is_refused(const struct sds_server *server, const struct subscription *s)
{
	return *s->refused && !strcmp(s->refused, version_in(server, &server->material, s));
}

static const struct taken *taken_of(const struct sds_server *server, const struct subscription *s)
{
	return &server->taken[s->name.kind == SDS_ROOT];
}

static const struct sds_material *material_of(
    const struct sds_server *server, const struct subscription *s)
{
	const struct taken *t = taken_of(server, s);

	return is_refused(server, s) && t->cert ? &t->material : &server->material;
}

static const char *version_of(const struct sds_server *server, const struct subscription *s)
{
	return version_in(server, material_of(server, s), s);
}

static void stream_free(struct sds_stream *st);

static void send_answer(struct sds_stream *st, const struct sds_item *items, size_t n)
{
	struct sds_server *server = st->server;
	char nonce[NONCE_SIZE];
	const struct sds_response response = {st->method->flavour, nonce, items, n};
	struct sds_packed packed;

	server->pushes++;
	st->sent_ms = loop_uptime_ms(server->loop);
	snprintf(nonce, sizeof(nonce), "%u.%u", st->serial, ++st->sent);
	packed = sds_pack(&response);
	rpc_send(st->call, packed.bytes, packed.len);
	sds_pack_wipe(&packed);
	if (st->method->unary) {
		rpc_close(&st->call, RPC_OK, "");
		stream_free(st);
	}
}

/* Sends what is due, unless a response is still under way; may end a unary `st`. */
static void answer(struct sds_stream *st)
{
	const struct sds_server *server = st->server;
	struct sds_item due[NAMES_MAX];
	struct subscription *s;
	size_t n = 0;

	if (!st->greeted || rpc_queued(st->call) > 0)
		return;
	LL_FOREACH (st->subscriptions, s)
		if (st->method->unary && !*version_of(server, s))
			return; /* one answer, with all of them */
	LL_FOREACH (st->subscriptions, s) {
		const char *version = version_of(server, s);

		if (!*version || strcmp(version, s->sent) == 0)
			continue;
		snprintf(s->sent, sizeof(s->sent), "%s", version);
		s->response = st->sent + 1;
		due[n++] = (struct sds_item){&s->name, version, material_of(server, s)};
	}
	if (n > 0 || st->method->unary)
		send_answer(st, due, n);
}

/* --- files --- */

/* Named anew when they are at rest: a key is written after its certificate.  What is not to be
 * seen leaves all as it is. */
static bool has_changed(struct sds_server *server, struct subscription *s)
{
	const uint64_t now = sds_files_look(server->directories, &s->name), before = s->looked;

	if (!now)
		return false;
	s->looked = now;
	if (now != before || now == s->name.seen)
		return false;
	sds_names_see(&s->name, now);
	return true;
}

static void on_look(void *ctx)
{
	struct sds_server *server = ctx;
	struct sds_stream *st, *next;
	unsigned looks = 0;

	DL_FOREACH_SAFE (server->streams, st, next) {
		bool changed = false;
		struct subscription *s;

		LL_FOREACH (st->subscriptions, s)
			if (sds_names_is_file(&s->name) && looks++ < LOOKS_MAX)
				changed |= has_changed(server, s);
		if (changed)
			answer(st);
	}
	if (looks)
		loop_timer_in(server->loop, &server->look, LOOK_MS, on_look, server);
}

static void begin_to_follow(struct sds_server *server, struct subscription *s)
{
	if (!server->directories || !sds_names_is_file(&s->name))
		return;
	s->looked = sds_files_look(server->directories, &s->name);
	sds_names_see(&s->name, s->looked);
	loop_timer_in(server->loop, &server->look, LOOK_MS, on_look, server);
}

/* --- requests --- */

/* `at`: where the list points to it. */
static void drop_subscription(struct sds_stream *st, struct subscription **at)
{
	struct subscription *s = *at;

	*at = s->next;
	st->count--;
	sds_names_clear(&s->name);
	free(s);
}

/* Where the list points to it, or its end. */
static struct subscription **find(struct sds_stream *st, const char *name)
{
	struct subscription **at = &st->subscriptions;

	while (*at && strcmp((*at)->name.text, name) != 0)
		at = &(*at)->next;
	return at;
}

static int subscribe(struct sds_stream *st, const char *name, struct err *e)
{
	struct subscription **at = find(st, name);

	if (!*at) {
		if (st->count == NAMES_MAX)
			return err_set(
			    e, ERR_INVALID, "more than %d secret names in one stream", NAMES_MAX);
		*at = mem_zalloc(sizeof(**at));
		st->count++;
		if (sds_names_read(&(*at)->name, name, e))
			return -1;
		begin_to_follow(st->server, *at);
	}
	(*at)->listed = true;
	if (st->method->flavour == DISCOVERY_DELTA)
		(*at)->sent[0] = '\0'; /* asked for again: the client may have dropped it */
	return 0;
}

static int on_name(void *ctx, const struct discovery_name *n, struct err *e)
{
	struct sds_stream *st = ctx;
	struct subscription **at;

	if (++st->verbs > VERBS_MAX)
		return err_set(e, ERR_INVALID, "more than %d names in one request", VERBS_MAX);
	if (n->verb == DISCOVERY_SUBSCRIBE)
		return subscribe(st, n->name, e);
	at = find(st, n->name);
	if (!*at)
		return 0;
	if (n->verb == DISCOVERY_UNSUBSCRIBE)
		drop_subscription(st, at);
	else if (!st->sent && strlen(n->version) < sizeof((*at)->sent))
		memcpy((*at)->sent, n->version, strlen(n->version) + 1);
	return 0;
}

/* Which of the stream's responses has this nonce; 0: none of them. */
static unsigned response_of(const struct sds_stream *st, const char *nonce)
{
	char *end;
	unsigned long serial = strtoul(nonce, &end, 10), n;

	if (*end != '.' || serial != st->serial)
		return 0;
	n = strtoul(end + 1, &end, 10);
	return !*end && n <= st->sent ? (unsigned)n : 0;
}

static void taken_clear(struct taken *t)
{
	cert_unref(&t->cert);
	revocation_unref(&t->crl);
	free(t->roots);
	*t = (struct taken){.roots = NULL};
}

/* Envoy took the newest: it may be wanted again. */
static void take_newest(const struct sds_server *server, struct taken *t)
{
	const struct sds_material *m = &server->material;
	struct taken now = {.material = *m,
	    .cert = cert_ref(server->cert),
	    .roots = mem_strdup(m->roots),
	    .crl = server->crl ? revocation_ref(server->crl) : NULL};

	now.material.roots = now.roots;
	taken_clear(t);
	*t = now;
}

/* Its secrets are those that the stream was sent with it. */
static void note_answer(struct sds_stream *st, unsigned response, bool nack)
{
	struct sds_server *server = st->server;
	struct subscription *s;

	LL_FOREACH (st->subscriptions, s) {
		if (sds_names_is_file(&s->name) || s->response != response || !*s->sent)
			continue;
		if (nack)
			memcpy(s->refused, s->sent, sizeof(s->refused));
		else if (!strcmp(s->sent, version_in(server, &server->material, s)))
			take_newest(server, (struct taken *)taken_of(server, s));
	}
}

static void settle(struct sds_stream *st, unsigned response, const struct discovery_request *q)
{
	struct sds_server *server = st->server;

	if (response <= st->settled)
		return;                             /* a nonce comes again when the names change */
	server->acks += response - st->settled - 1; /* Envoy may answer the last one only */
	st->settled = response;
	note_answer(st, response, q->nack);
	st->refused = q->nack;
	if (!q->nack) {
		server->acks++;
		return;
	}
	server->nacks++;
	if (strcmp(server->last_nack, q->nack_why) != 0)
		log_warn_limited(
		    &server->log, server->subject, "Envoy refused a secret: %s", q->nack_why);
	snprintf(server->last_nack, sizeof(server->last_nack), "%s",
	    *q->nack_why ? q->nack_why : "no reason given");
}

/* State of the world: the names are the whole set. */
static int take_names_sotw(
    struct sds_stream *st, const struct discovery_request *q, struct pbwire msg, struct err *e)
{
	bool anew = !q->nonce[0] || !st->sent; /* an old nonce on a new stream is fine */
	struct subscription *s, **at = &st->subscriptions;

	LL_FOREACH (st->subscriptions, s) {
		s->listed = false;
		if (anew)
			s->sent[0] = '\0';
	}
	if (discovery_each_name(DISCOVERY_SOTW, msg, on_name, st, e))
		return -1;
	while (*at)
		if ((*at)->listed)
			at = &(*at)->next;
		else
			drop_subscription(st, at);
	return 0;
}

static int take_request(struct sds_stream *st, struct pbwire msg, struct err *e)
{
	enum discovery_flavour flavour = st->method->flavour;
	struct discovery_request q;
	unsigned response;

	if (discovery_read_request(&q, flavour, msg, e))
		return -1;
	if (!st->greeted && !q.has_node_id)
		return err_set(e, ERR_INVALID, "missing node information");
	if (q.type_url[0] && strcmp(q.type_url, TYPE_SECRET) != 0)
		return err_set(e, ERR_INVALID, "only secrets are served here");
	st->greeted = true;
	st->verbs = 0;
	response = response_of(st, q.nonce);
	settle(st, response, &q);
	if (flavour == DISCOVERY_DELTA)
		return discovery_each_name(flavour, msg, on_name, st, e);
	if (q.nonce[0] && response != st->sent)
		return 0; /* stale: the client has not seen our last response yet */
	return take_names_sotw(st, &q, msg, e);
}

/* --- streams --- */

static void stream_free(struct sds_stream *st)
{
	while (st->subscriptions)
		drop_subscription(st, &st->subscriptions);
	DL_DELETE(st->server->streams, st);
	free(st);
}

static void refuse(struct sds_stream *st, const char *why)
{
	struct sds_server *server = st->server;

	if (strcmp(server->last_refusal, why) != 0)
		log_warn_limited(
		    &server->log, server->subject, "%s refused: %s", st->method->name, why);
	snprintf(server->last_refusal, sizeof(server->last_refusal), "%s", why);
	rpc_close(&st->call, RPC_INVALID_ARGUMENT, why);
	stream_free(st);
}

static void on_message(void *ctx, struct rpc_stream *call, struct rpc_msg *m)
{
	struct sds_stream *st = ctx;
	struct err e;

	(void)call;
	if (take_request(st, discovery_reader(m), &e))
		refuse(st, e.msg);
	else
		answer(st);
}

static void on_writable(void *ctx, struct rpc_stream *call)
{
	(void)call;
	answer(ctx);
}

static void on_half_closed(void *ctx, struct rpc_stream *call)
{
	struct sds_stream *st = ctx;

	(void)call;
	if (st->method->unary && st->greeted)
		return; /* it waits for its answer */
	if (st->method->unary) {
		refuse(st, "no request");
		return;
	}
	rpc_close(&st->call, RPC_OK, "");
	stream_free(st);
}

static void on_closed(void *ctx, int status, const char *why)
{
	(void)status;
	(void)why;
	stream_free(ctx);
}

bool sds_server_incoming(struct sds_server *server, struct rpc_stream *call, const char *method)
{
	static const struct rpc_events events = {
	    on_message, on_writable, on_half_closed, on_closed, NULL};
	struct sds_stream *st;

	if (strncmp(method, SERVICE, strlen(SERVICE)) != 0)
		return false;
	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
		if (strcmp(method + strlen(SERVICE), methods[i].name) != 0)
			continue;
		st = mem_zalloc(sizeof(*st));
		st->server = server;
		st->method = &methods[i];
		st->serial = ++server->opened;
		DL_APPEND(server->streams, st);
		rpc_accept(call, &st->call, &events, st);
		return true;
	}
	return false;
}

/* --- the server --- */

struct sds_server *sds_server_new(struct loop *l, const char *subject)
{
	struct sds_server *s = mem_zalloc(sizeof(*s));

	s->loop = l;
	s->subject = mem_strdup(subject);
	return s;
}

void sds_server_free(struct sds_server **server)
{
	struct sds_server *s = take(*server);
	struct sds_stream *st, *next;

	if (!s)
		return;
	DL_FOREACH_SAFE (s->streams, st, next) {
		rpc_close(&st->call, RPC_UNAVAILABLE, "the pod is being removed");
		stream_free(st);
	}
	loop_timer_stop(&s->look);
	taken_clear(&s->taken[0]);
	taken_clear(&s->taken[1]);
	cert_unref(&s->cert);
	revocation_unref(&s->crl);
	free(s->why_not);
	free(s->subject);
	free(s);
}

void sds_server_follow(struct sds_server *s, const char *directories)
{
	s->directories = directories && *directories ? directories : NULL;
}

static void push(struct sds_server *s)
{
	struct sds_stream *st, *next;

	sds_pack_hash(&s->material);
	DL_FOREACH_SAFE (s->streams, st, next)
		answer(st);
}

void sds_server_set_trust(struct sds_server *s, const char *roots, struct revocation *crl)
{
	struct revocation *old = s->crl;

	s->crl = crl ? revocation_ref(crl) : NULL;
	s->material.roots = roots;
	s->material.crl = crl ? revocation_pem(crl) : NULL;
	push(s);
	revocation_unref(&old);
}

void sds_server_set_cert(struct sds_server *s, struct cert *c, const char *why_not)
{
	struct cert *old = s->cert;

	s->material.cert = s->cert = c ? cert_ref(c) : NULL;
	cert_unref(&old);
	free(s->why_not);
	s->why_not = mem_strdup(why_not && *why_not ? why_not : NULL);
	push(s);
}

static json_t *dump_names(const struct sds_stream *st)
{
	json_t *names = json_array();
	const struct subscription *s;

	LL_FOREACH (st->subscriptions, s)
		json_array_append_new(
		    names, json_pack("{s:s, s:s}", "name", s->name.text, "version", s->sent));
	return names;
}

/* Each secret has a stream of its own: an ACK of one does not make up for a NACK of another. */
static const struct sds_stream *first_refused(const struct sds_server *s)
{
	const struct sds_stream *st;

	DL_FOREACH (s->streams, st)
		if (st->refused)
			return st;
	return NULL;
}

enum served sds_server_served(const struct sds_server *s, struct err *why)
{
	const struct sds_stream *st;

	if (first_refused(s)) {
		err_set(
		    why, ERR_INVALID, "its Envoy refused the last secrets: agentctl xds shows why");
		return SERVED_NO;
	}
	DL_FOREACH (s->streams, st) {
		const int64_t ms = loop_uptime_ms(s->loop) - st->sent_ms;

		if (st->settled == st->sent || ms < UNANSWERED_MS)
			continue;
		err_set(why, ERR_UNAVAILABLE,
		    "its Envoy has not answered the last secrets for %lld s",
		    (long long)(ms / 1000));
		return SERVED_NO;
	}
	return SERVED_YES;
}

unsigned sds_server_streams(const struct sds_server *s)
{
	struct sds_stream *st;
	unsigned n;

	DL_COUNT(s->streams, st, n);
	return n;
}

/* "": Envoy has the newest. */
static char *refusal_of(const struct sds_server *server)
{
	const struct sds_stream *st;
	const struct subscription *s;
	bool refused = first_refused(server);

	DL_FOREACH (server->streams, st)
		LL_FOREACH (st->subscriptions, s)
			refused |= is_refused(server, s);
	if (!refused)
		return mem_strdup("");
	return mem_printf("Envoy refused a secret: %s; %s", server->last_nack,
	    first_refused(server)
		? "until it takes one it refuses each listener and cluster that names it"
		: "it has the one before");
}

json_t *sds_server_dump(const struct sds_server *s)
{
	json_t *streams = json_array();
	auto_free char *refusal = refusal_of(s);
	const struct sds_stream *st;

	DL_FOREACH (s->streams, st)
		json_array_append_new(streams,
		    json_pack("{s:s, s:o}", "method", st->method->name, "names", dump_names(st)));
	return json_pack("{s:o, s:I, s:I, s:I, s:b, s:s, s:s, s:s, s:s}", "streams", streams,
	    "pushes", (json_int_t)s->pushes, "acks", (json_int_t)s->acks, "nacks",
	    (json_int_t)s->nacks, "refused", *refusal != 0, "refusal", refusal, "last_nack",
	    s->last_nack, "last_refusal", s->last_refusal, "why_not", s->why_not ? s->why_not : "");
}
