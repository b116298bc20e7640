/* sds_server.c - see sds_server.h.
 *
 * incoming -> request: names are noted, an ACK or NACK is counted -> answer: whatever is subscribed
 * to, is there, and is another version than the one this stream was sent last, goes out in one
 * response -> set_cert: the same for every stream.  Nothing else decides what is sent: "the client
 * asks anew" is forgetting what was sent, "the certificate changed" is another version, "there is
 * none yet" is no version.  While a response is still queued nothing is added to it; `writable`
 * looks again, which merges all that happened meanwhile.
 *
 * A version tells its content, also to the next agentd: the serial of the leaf, a hash of roots and
 * revocation list, a word for files.  So a delta client that comes back with
 * initial_resource_versions is sent only what it has not, and a renewal does not push ROOTCA when
 * the root is the same.
 *
 * File names: Envoy 1.40 watches the directory of each file for renames (a Kubernetes ..data swap
 * and rename-over are followed, files may appear later; measured), so watched_directory is left
 * out.  A file rewritten in place is not noticed, nor is a directory that did not exist at first.
 *
 * Copies of the private key made here are wiped when the response is handed to rpc, which wipes its
 * own when it is written.
 */
#include "server.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "envoy/extensions/transport_sockets/tls/v3/secret.pb-c.h"
#include "envoy/service/discovery/v3/discovery.pb-c.h"
#include "worker/ads/discovery.h"
#include "worker/base/loop.h"
#include "worker/base/rpc/server.h"
#include "worker/crypto/cert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("sds");

enum { NAMES_MAX = 64, VERBS_MAX = 3 * NAMES_MAX, NONCE_SIZE = 24, NAME_SHOWN = 80 };
enum { VERSION_SIZE = sizeof(((struct x509_leaf *)NULL)->serial) };

#define SERVICE "/envoy.service.secret.v3.SecretDiscoveryService/"
#define FILE_CERT "file-cert:"
#define FILE_ROOT "file-root:"
#define FILE_ROOT_SYSTEM FILE_ROOT "system"

/* Short names for what protobuf-c makes of Envoy's packages. */
#define pb_source Envoy__Config__Core__V3__DataSource
#define pb_pair Envoy__Extensions__TransportSockets__Tls__V3__TlsCertificate
#define pb_roots Envoy__Extensions__TransportSockets__Tls__V3__CertificateValidationContext
#define pb_secret Envoy__Extensions__TransportSockets__Tls__V3__Secret
#define pb_sotw Envoy__Service__Discovery__V3__DiscoveryResponse
#define pb_delta Envoy__Service__Discovery__V3__DeltaDiscoveryResponse
#define pb_resource Envoy__Service__Discovery__V3__Resource

enum secret_kind { SECRET_CERT, SECRET_ROOT, SECRET_FILE_CERT, SECRET_FILE_ROOT };

struct subscription {
	char *name;
	enum secret_kind kind;
	char *path, *key_path;   /* of files; key_path points into path's memory */
	char sent[VERSION_SIZE]; /* what this stream was sent last; "": must be sent */
	bool listed;             /* in the request that is being read */
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
	char nonce[NONCE_SIZE]; /* of the last response; "": none yet */
	bool settled;           /* it was ACKed or NACKed */
	struct sds_stream *prev, *next;
};

struct sds_server {
	const struct loop *loop;
	char *subject;
	struct cert *cert;
	const char *roots, *crl; /* borrowed; NULL: the certificate's own; none */
	char root_version[VERSION_SIZE];
	char *why_not;
	struct sds_stream *streams;
	uint64_t pushes, acks, nacks;
	bool refused; /* Envoy's last word was a NACK */
	char last_nack[DISCOVERY_WHY_SIZE], last_refusal[ERR_MSG_SIZE];
	struct log_budget log;
};

/* --- names --- */

/* G2: never opened here, but Envoy shall not be led out of where the name says. */
static bool path_ok(const char *p)
{
	if (p[0] != '/' || strchr(p, '~'))
		return false;
	for (const char *s = p; (s = strstr(s, "/..")); s += 3)
		if (s[3] == '/' || s[3] == '\0')
			return false;
	return true;
}

/* Where the roots of the operating system are, first existing wins (istio-agent.md 2.3).  Looked
 * for in agentd's own file system, which on bare metal is Envoy's too; an image is as ours. */
static const char *system_roots(void)
{
	static const char *const known[] = {"/etc/ssl/certs/ca-certificates.crt",
	    "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem",
	    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem",
	    "/usr/local/etc/ssl/cert.pem", "/etc/ssl/certs/ca-certificates"};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (access(known[i], R_OK) == 0)
			return known[i];
	return known[0];
}

static int bad_name(struct err *e, const char *name, const char *what)
{
	char shown[NAME_SHOWN];

	err_printable(shown, sizeof(shown), name, (unsigned)strlen(name));
	return err_set(e, ERR_INVALID, "secret name \"%s\": %s", shown, what);
}

static int read_file_cert(struct subscription *s, struct err *e)
{
	s->kind = SECRET_FILE_CERT;
	s->path = mem_strdup(s->name + strlen(FILE_CERT));
	s->key_path = strchr(s->path, '~');
	if (!s->key_path)
		return bad_name(e, s->name, "wants two paths with one ~ between");
	*s->key_path++ = '\0';
	if (!path_ok(s->path) || !path_ok(s->key_path))
		return bad_name(e, s->name, "wants two absolute paths without .. or ~ inside");
	return 0;
}

static int read_file_root(struct subscription *s, struct err *e)
{
	s->kind = SECRET_FILE_ROOT;
	if (strcmp(s->name, FILE_ROOT_SYSTEM) == 0) {
		s->path = mem_strdup(system_roots());
		return 0;
	}
	s->path = mem_strdup(s->name + strlen(FILE_ROOT));
	if (!path_ok(s->path))
		return bad_name(e, s->name, "wants an absolute path without .. or ~ inside");
	return 0;
}

static int read_name(struct subscription *s, struct err *e)
{
	if (strncmp(s->name, FILE_CERT, strlen(FILE_CERT)) == 0)
		return read_file_cert(s, e);
	if (strncmp(s->name, FILE_ROOT, strlen(FILE_ROOT)) == 0)
		return read_file_root(s, e);
	if (s->name[0] == '\0')
		return bad_name(e, s->name, "is empty");
	if (strstr(s->name, "://"))
		return bad_name(e, s->name, "is the control plane's to serve, not this socket's");
	s->kind = strcmp(s->name, "ROOTCA") == 0 ? SECRET_ROOT : SECRET_CERT;
	return 0;
}

/* "": there is none (yet). */
static const char *version_of(const struct sds_server *server, const struct subscription *s)
{
	bool expired;

	if (s->kind == SECRET_FILE_CERT || s->kind == SECRET_FILE_ROOT)
		return "file"; /* one answer is enough, Envoy watches the files */
	if (!server->cert)
		return "";
	if (s->kind == SECRET_ROOT)
		return server->root_version;
	/* We are told of its end, but a request may come first when the machine wakes up. */
	expired = loop_now_ms(server->loop) / 1000 >= server->cert->leaf.not_after;
	return expired ? "" : server->cert->leaf.serial;
}

/* --- answers --- */

static pb_source file_source(const char *path)
{
	pb_source d = ENVOY__CONFIG__CORE__V3__DATA_SOURCE__INIT;

	d.specifier_case = ENVOY__CONFIG__CORE__V3__DATA_SOURCE__SPECIFIER_FILENAME;
	d.filename = (char *)path;
	return d;
}

static pb_source inline_source(const char *pem)
{
	pb_source d = ENVOY__CONFIG__CORE__V3__DATA_SOURCE__INIT;

	d.specifier_case = ENVOY__CONFIG__CORE__V3__DATA_SOURCE__SPECIFIER_INLINE_BYTES;
	d.inline_bytes = (ProtobufCBinaryData){.len = strlen(pem), .data = (uint8_t *)pem};
	return d;
}

static ProtobufCBinaryData pack(const ProtobufCMessage *m)
{
	ProtobufCBinaryData out = {.len = protobuf_c_message_get_packed_size(m)};

	out.data = mem_zalloc(out.len + 1);
	protobuf_c_message_pack(m, out.data);
	return out;
}

static void wipe(ProtobufCBinaryData *packed)
{
	explicit_bzero(packed->data, packed->len);
	free(packed->data);
}

static const char *roots_of(const struct sds_server *server)
{
	return server->roots ? server->roots : server->cert->root_pem;
}

static ProtobufCBinaryData pack_secret(
    const struct sds_server *server, const struct subscription *s)
{
	pb_secret secret = ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__SECRET__INIT;
	pb_pair pair = ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__TLS_CERTIFICATE__INIT;
	pb_roots roots =
	    ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__CERTIFICATE_VALIDATION_CONTEXT__INIT;
	bool file = s->kind == SECRET_FILE_CERT || s->kind == SECRET_FILE_ROOT;
	pb_source first, key, crl;

	secret.name = s->name;
	if (s->kind == SECRET_ROOT || s->kind == SECRET_FILE_ROOT) {
		first = file ? file_source(s->path) : inline_source(roots_of(server));
		roots.trusted_ca = &first;
		if (!file && server->crl) {
			crl = inline_source(server->crl);
			roots.crl = &crl;
		}
		secret.type_case =
		    ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__SECRET__TYPE_VALIDATION_CONTEXT;
		secret.validation_context = &roots;
	} else {
		first = file ? file_source(s->path) : inline_source(server->cert->chain_pem);
		key = file ? file_source(s->key_path) : inline_source(server->cert->key_pem);
		pair.certificate_chain = &first;
		pair.private_key = &key;
		secret.type_case =
		    ENVOY__EXTENSIONS__TRANSPORT_SOCKETS__TLS__V3__SECRET__TYPE_TLS_CERTIFICATE;
		secret.tls_certificate = &pair;
	}
	return pack(&secret.base);
}

/* One response being put together. */
struct answer {
	size_t n;
	Google__Protobuf__Any any[NAMES_MAX], *anys[NAMES_MAX];
	pb_resource resource[NAMES_MAX], *resources[NAMES_MAX];
};

static void add_secret(struct answer *a, const struct sds_server *server, struct subscription *s)
{
	const char *version = version_of(server, s);
	Google__Protobuf__Any *any = a->anys[a->n] = &a->any[a->n];
	pb_resource *r = a->resources[a->n] = &a->resource[a->n];

	google__protobuf__any__init(any);
	any->type_url = TYPE_SECRET;
	any->value = pack_secret(server, s);
	envoy__service__discovery__v3__resource__init(r);
	r->name = s->name;
	r->version = (char *)version;
	r->resource = any;
	snprintf(s->sent, sizeof(s->sent), "%s", version);
	a->n++;
}

static ProtobufCBinaryData pack_answer(struct answer *a, const struct sds_stream *st)
{
	pb_sotw sotw = ENVOY__SERVICE__DISCOVERY__V3__DISCOVERY_RESPONSE__INIT;
	pb_delta delta = ENVOY__SERVICE__DISCOVERY__V3__DELTA_DISCOVERY_RESPONSE__INIT;

	/* SotW has one version for all resources; Envoy has one stream per name. */
	sotw.version_info = delta.system_version_info = a->n > 0 ? a->resource[0].version : "";
	sotw.type_url = delta.type_url = TYPE_SECRET;
	sotw.nonce = delta.nonce = (char *)st->nonce;
	sotw.n_resources = delta.n_resources = a->n;
	sotw.resources = a->anys;
	delta.resources = a->resources;
	return pack(st->method->flavour == DISCOVERY_SOTW ? &sotw.base : &delta.base);
}

static void stream_free(struct sds_stream *st);

static void send_answer(struct sds_stream *st, struct answer *a)
{
	struct sds_server *server = st->server;
	ProtobufCBinaryData packed;

	snprintf(st->nonce, sizeof(st->nonce), "%" PRIu64, ++server->pushes);
	st->settled = false;
	packed = pack_answer(a, st);
	rpc_send(st->call, packed.data, packed.len);
	wipe(&packed);
	if (st->method->unary) {
		rpc_close(&st->call, RPC_OK, "");
		stream_free(st);
	}
}

/* Sends what is due, unless a response is still under way; may end a unary `st`. */
static void answer(struct sds_stream *st)
{
	const struct sds_server *server = st->server;
	auto_free struct answer *a = NULL;
	struct subscription *s, *due[NAMES_MAX];
	size_t n = 0;

	if (!st->greeted || rpc_queued(st->call) > 0)
		return;
	LL_FOREACH (st->subscriptions, s) {
		const char *version = version_of(server, s);

		if (st->method->unary && !*version)
			return; /* one answer, with all of them */
		if (*version && strcmp(version, s->sent) != 0)
			due[n++] = s;
	}
	if (n == 0 && !st->method->unary)
		return;
	a = mem_zalloc(sizeof(*a));
	for (size_t i = 0; i < n; i++)
		add_secret(a, server, due[i]);
	send_answer(st, a);
	for (size_t i = 0; i < a->n; i++)
		wipe(&a->any[i].value);
}

/* --- requests --- */

/* `at`: where the list points to it. */
static void drop_subscription(struct sds_stream *st, struct subscription **at)
{
	struct subscription *s = *at;

	*at = s->next;
	st->count--;
	free(s->name);
	free(s->path);
	free(s);
}

/* Where the list points to it, or its end. */
static struct subscription **find(struct sds_stream *st, const char *name)
{
	struct subscription **at = &st->subscriptions;

	while (*at && strcmp((*at)->name, name) != 0)
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
		(*at)->name = mem_strdup(name);
		st->count++;
		if (read_name(*at, e))
			return -1;
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
	else if (!st->nonce[0] && strlen(n->version) < sizeof((*at)->sent))
		memcpy((*at)->sent, n->version, strlen(n->version) + 1);
	return 0;
}

static void settle(struct sds_stream *st, const struct discovery_request *q)
{
	struct sds_server *server = st->server;

	if (st->settled)
		return; /* a nonce comes again when the names change */
	st->settled = true;
	server->refused = q->nack;
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
	bool anew = !q->nonce[0] || !st->nonce[0]; /* an old nonce on a new stream is fine */
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
	bool current;

	if (discovery_read_request(&q, flavour, msg, e))
		return -1;
	if (!st->greeted && !q.has_node_id)
		return err_set(e, ERR_INVALID, "missing node information");
	if (q.type_url[0] && strcmp(q.type_url, TYPE_SECRET) != 0)
		return err_set(e, ERR_INVALID, "only secrets are served here");
	st->greeted = true;
	st->verbs = 0;
	current = q.nonce[0] && strcmp(q.nonce, st->nonce) == 0;
	if (current)
		settle(st, &q);
	if (flavour == DISCOVERY_DELTA)
		return discovery_each_name(flavour, msg, on_name, st, e);
	if (q.nonce[0] && st->nonce[0] && !current)
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
	    on_message, on_writable, on_half_closed, on_closed};
	struct sds_stream *st;

	if (strncmp(method, SERVICE, strlen(SERVICE)) != 0)
		return false;
	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
		if (strcmp(method + strlen(SERVICE), methods[i].name) != 0)
			continue;
		st = mem_zalloc(sizeof(*st));
		st->server = server;
		st->method = &methods[i];
		DL_APPEND(server->streams, st);
		rpc_accept(call, &st->call, &events, st);
		return true;
	}
	return false;
}

/* --- the server --- */

struct sds_server *sds_server_new(const struct loop *l, const char *subject)
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
		rpc_close(&st->call, RPC_UNAVAILABLE, "the pod is going");
		stream_free(st);
	}
	cert_unref(&s->cert);
	free(s->why_not);
	free(s->subject);
	free(s);
}

/* FNV-1a: tells contents apart, protects nothing. */
static uint64_t hash(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (uint8_t)*text) * 0x100000001b3;
	return h;
}

static void push(struct sds_server *s)
{
	struct sds_stream *st, *next;
	uint64_t h = 0xcbf29ce484222325;

	if (s->cert) {
		h = hash(h, roots_of(s));
		h = hash(h, s->crl ? s->crl : "");
		snprintf(s->root_version, sizeof(s->root_version), "%016" PRIx64, h);
	}
	DL_FOREACH_SAFE (s->streams, st, next)
		answer(st);
}

void sds_server_set_trust(struct sds_server *s, const char *roots, const char *crl)
{
	s->roots = roots;
	s->crl = crl;
	push(s);
}

void sds_server_set_cert(struct sds_server *s, struct cert *c, const char *why_not)
{
	struct cert *old = s->cert;

	s->cert = c ? cert_ref(c) : NULL;
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
		    names, json_pack("{s:s, s:s}", "name", s->name, "version", s->sent));
	return names;
}

unsigned sds_server_streams(const struct sds_server *s)
{
	struct sds_stream *st;
	unsigned n;

	DL_COUNT(s->streams, st, n);
	return n;
}

json_t *sds_server_dump(const struct sds_server *s)
{
	json_t *streams = json_array();
	const struct sds_stream *st;

	DL_FOREACH (s->streams, st)
		json_array_append_new(streams,
		    json_pack("{s:s, s:o}", "method", st->method->name, "names", dump_names(st)));
	return json_pack("{s:o, s:I, s:I, s:I, s:b, s:s, s:s, s:s}", "streams", streams, "pushes",
	    (json_int_t)s->pushes, "acks", (json_int_t)s->acks, "nacks", (json_int_t)s->nacks,
	    "refused", s->refused, "last_nack", s->last_nack, "last_refusal", s->last_refusal,
	    "why_not", s->why_not ? s->why_not : "");
}
