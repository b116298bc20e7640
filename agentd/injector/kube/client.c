/* client.c - token and ca.crt are read -> connection -> question -> answer, or why there is none.
 *
 * evhttp speaks, a bufferevent of OpenSSL carries it.  `done` runs from a timer, when evhttp has
 * let go of the connection: only then may it be freed.
 */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/dns.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "objects.h"

enum { FILE_MAX = 64 << 10, HEADERS_MAX = 64 << 10, TIMEOUT_S = 8, WHY_SIZE = 256 };
enum { STATUS_LEAST = 200, STATUS_MOST = 999 };

struct kube_client {
	struct loop *loop;
	char *host, *dir, *ns;
	uint16_t port;
	struct evdns_base *dns; /* NULL: the host is an address */
	struct evhttp_connection *connection;
	char *token; /* of this connection; a secret */
	struct loop_timer answered;
	int status;
	char *body;
	size_t len;
	int64_t date_s;
	char why[WHY_SIZE];
	kube_done done;
	void *ctx;
};

/* --- files --- */

/* A secret, cut at its last newlines. */
static char *read_file(const struct kube_client *c, const char *name, struct err *e)
{
	auto_free char *path = mem_printf("%s/%s", c->dir, name);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	auto_free char *text = mem_zalloc(FILE_MAX);
	ssize_t n = fd < 0 ? -1 : read(fd, text, FILE_MAX);
	char *out;

	if (n < 0) {
		err_sys(e, "%s", path);
		return NULL;
	}
	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	if (n == 0 || n == FILE_MAX || memchr(text, '\0', (size_t)n)) {
		err_set(e, ERR_INVALID, "%s: it is empty, or no text of at most 64 KiB", path);
		return NULL;
	}
	out = secret_new(text, (size_t)n);
	explicit_bzero(text, FILE_MAX);
	return out;
}

/* A header's value: what is to be written into it must not end it. */
static char *read_token(const struct kube_client *c, struct err *e)
{
	char *token = read_file(c, "token", e);

	if (token && token[strcspn(token, "\r\n")]) {
		secret_free(take(token));
		err_set(e, ERR_INVALID, "%s/token: it has more than one line", c->dir);
	}
	return token;
}

/* --- the connection --- */

static bool is_address(const char *host)
{
	unsigned char address[sizeof(struct in6_addr)];

	return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

static int take_roots(SSL_CTX *ctx, const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509 *cert;
	int n = 0;

	while (bio && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL) {
		n += X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), cert) == 1;
		X509_free(cert);
	}
	BIO_free(bio);
	return n;
}

static SSL *make_ssl(const struct kube_client *c, const char *roots)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *ssl = NULL;
	X509_VERIFY_PARAM *param;

	if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION))
		abort();
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	if (take_roots(ctx, roots) > 0 && !(ssl = SSL_new(ctx)))
		abort();
	if (ssl) {
		param = SSL_get0_param(ssl);
		if (!(is_address(c->host) ? X509_VERIFY_PARAM_set1_ip_asc(param, c->host)
					  : X509_VERIFY_PARAM_set1_host(param, c->host, 0) &&
						SSL_set_tlsext_host_name(ssl, c->host)))
			abort();
	}
	SSL_CTX_free(ctx);
	ERR_clear_error();
	return ssl;
}

static int dial(struct kube_client *c, struct err *e)
{
	char *token = read_token(c, e), *roots = token ? read_file(c, "ca.crt", e) : NULL;
	SSL *ssl = roots ? make_ssl(c, roots) : NULL;
	struct bufferevent *bev;

	secret_free(roots);
	if (!ssl) {
		secret_free(token);
		return roots ? err_set(e, ERR_INVALID, "%s/ca.crt: no certificate", c->dir) : -1;
	}
	bev = bufferevent_openssl_socket_new(
	    loop_base(c->loop), -1, ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
	bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
	c->connection = evhttp_connection_base_bufferevent_new(
	    loop_base(c->loop), c->dns, bev, c->host, c->port);
	evhttp_connection_set_timeout(c->connection, TIMEOUT_S);
	evhttp_connection_set_max_body_size(c->connection, KUBE_OBJECT_MAX);
	evhttp_connection_set_max_headers_size(c->connection, HEADERS_MAX);
	secret_free(c->token);
	c->token = token;
	return 0;
}

void kube_hang_up(struct kube_client *c)
{
	if (c->connection)
		evhttp_connection_free(take(c->connection));
	secret_free(take(c->token));
}

/* --- the answer --- */

static void on_answered(void *ctx)
{
	struct kube_client *c = ctx;
	auto_free char *body = take(c->body);
	struct kube_answer a = {c->status, body ? body : "", c->len, c->date_s, c->why};

	if (!c->status)
		kube_hang_up(c);
	c->done(c->ctx, &a);
	mem_wipe_free(take(body));
}

static void answer_later(struct kube_client *c)
{
	loop_timer_in(c->loop, &c->answered, 0, on_answered, c);
}

/* What the API server itself says of a refusal. */
static void say_status(struct kube_client *c)
{
	json_t *status = json_loadb(c->body, c->len, 0, NULL);
	const char *message = json_string_value(json_object_get(status, "message"));
	char shown[160];

	if (c->status == 401)
		message = "it does not take the pod's token";
	err_printable(shown, sizeof(shown), message ? message : "no reason",
	    message ? (unsigned)strlen(message) : 9);
	snprintf(c->why, sizeof(c->why), "the API server says %d: %s", c->status, shown);
	json_decref(status);
}

static void take_answer(struct kube_client *c, struct evhttp_request *r)
{
	struct evbuffer *in = evhttp_request_get_input_buffer(r);
	const char *date = evhttp_find_header(evhttp_request_get_input_headers(r), "Date");
	struct tm tm = {0};

	c->status = evhttp_request_get_response_code(r);
	c->len = evbuffer_get_length(in);
	c->body = mem_zalloc(c->len + 1);
	evbuffer_remove(in, c->body, c->len);
	c->date_s = date && strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm) ? timegm(&tm) : 0;
	if (c->status != 200)
		say_status(c);
}

static void say_failure(struct kube_client *c)
{
	struct bufferevent *bev = evhttp_connection_get_bufferevent(c->connection);
	SSL *ssl = bev ? bufferevent_openssl_get_ssl(bev) : NULL;
	long verified = ssl ? SSL_get_verify_result(ssl) : X509_V_OK;
	int code = errno;
	const char *why = "no whole answer of at most 4 MiB within 8 s";

	if (verified != X509_V_OK)
		why = X509_verify_cert_error_string(verified);
	else if (code && code != EAGAIN && code != EINPROGRESS && code != ETIMEDOUT)
		why = strerror(code);
	snprintf(
	    c->why, sizeof(c->why), "the API server at %s, port %u: %s", c->host, c->port, why);
	ERR_clear_error();
}

/* evhttp reports an answer that broke off with a request of status 0, or with none; for it any
 * other number is a status. */
static void on_answer(struct evhttp_request *r, void *ctx)
{
	struct kube_client *c = ctx;
	int status = r ? evhttp_request_get_response_code(r) : 0;

	if (status >= STATUS_LEAST && status <= STATUS_MOST)
		take_answer(c, r);
	else
		say_failure(c);
	answer_later(c);
}

/* --- the question --- */

static enum evhttp_cmd_type command_of(const char *method)
{
	if (strcmp(method, "PUT") == 0)
		return EVHTTP_REQ_PUT;
	return strcmp(method, "PATCH") == 0 ? EVHTTP_REQ_PATCH : EVHTTP_REQ_GET;
}

/* evhttp gives a PATCH no length of its own. */
static void add_body(struct evhttp_request *r, const char *body)
{
	char length[24];

	snprintf(length, sizeof(length), "%zu", strlen(body));
	evhttp_add_header(evhttp_request_get_output_headers(r), "Content-Length", length);
	evbuffer_add(evhttp_request_get_output_buffer(r), body, strlen(body));
}

static void add_headers(const struct kube_client *c, struct evhttp_request *r, bool patch)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(r);
	auto_free char *host =
	    mem_printf(strchr(c->host, ':') ? "[%s]:%u" : "%s:%u", c->host, (unsigned)c->port);
	char *bearer = mem_printf("Bearer %s", c->token);

	evhttp_add_header(headers, "Host", host);
	evhttp_add_header(headers, "Authorization", bearer);
	evhttp_add_header(headers, "Accept", "application/json");
	evhttp_add_header(headers, "User-Agent", "agentd-injector");
	evhttp_add_header(
	    headers, "Content-Type", patch ? "application/json-patch+json" : "application/json");
	mem_wipe_free(bearer);
}

void kube_ask(struct kube_client *c, const struct kube_ask *ask, kube_done done, void *ctx)
{
	struct evhttp_request *r;
	struct err e;

	c->done = done;
	c->ctx = ctx;
	c->status = 0;
	c->len = 0;
	c->date_s = 0;
	*c->why = '\0';
	if (!c->connection && dial(c, &e)) {
		snprintf(c->why, sizeof(c->why), "%s", e.msg);
		answer_later(c);
		return;
	}
	r = evhttp_request_new(on_answer, c);
	add_headers(c, r, strcmp(ask->method, "PATCH") == 0);
	if (ask->body)
		add_body(r, ask->body);
	errno = 0;
	if (evhttp_make_request(c->connection, r, command_of(ask->method), ask->path)) {
		say_failure(c);
		answer_later(c);
	}
}

/* --- its life --- */

static int read_port(const char *text, uint16_t *port)
{
	char *end;
	long n = text ? strtol(text, &end, 10) : 0;

	if (!text || *end || n < 1 || n > UINT16_MAX)
		return -1;
	*port = (uint16_t)n;
	return 0;
}

/* A name is asked for without waiting, of the servers of resolv.conf. */
static int find_server(struct kube_client *c, struct err *e)
{
	const char *host = getenv("KUBERNETES_SERVICE_HOST");

	if (!host || !*host || read_port(getenv("KUBERNETES_SERVICE_PORT"), &c->port))
		return err_set(e, ERR_INVALID,
		    "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not say where the API "
		    "server is: is this a pod?");
	c->host = mem_strdup(host);
	if (is_address(host))
		return 0;
	c->dns = evdns_base_new(loop_base(c->loop),
	    EVDNS_BASE_INITIALIZE_NAMESERVERS | EVDNS_BASE_DISABLE_WHEN_INACTIVE);
	return c->dns ? 0
		      : err_set(e, ERR_UNAVAILABLE,
			    "KUBERNETES_SERVICE_HOST is a name (%.64s), and /etc/resolv.conf has "
			    "no server for it",
			    host);
}

struct kube_client *kube_client_new(struct loop *l, const char *dir, struct err *e)
{
	struct kube_client *c = mem_zalloc(sizeof(*c));

	c->loop = l;
	c->dir = mem_strdup(dir);
	if (find_server(c, e) || !(c->ns = read_file(c, "namespace", e)))
		kube_client_free(&c);
	return c;
}

void kube_client_free(struct kube_client **client)
{
	struct kube_client *c = take(*client);

	if (!c)
		return;
	loop_timer_stop(&c->answered);
	kube_hang_up(c);
	if (c->dns)
		evdns_base_free(c->dns, 0);
	mem_wipe_free(c->body);
	free(c->host);
	free(c->dir);
	secret_free(c->ns);
	free(c);
}

const char *kube_namespace(const struct kube_client *c)
{
	return c->ns;
}
