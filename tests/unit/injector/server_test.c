/* server_test.c - a real TLS client and a server in a process of its own: what it answers, which
 * limits hold, how its certificate changes, how it ends.
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "injector/connections.h"
#include "injector/server.h"
#include <arpa/inet.h>
#include <event2/buffer.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { STOP_MS = 5000, ANSWER_MAX = 1 << 20 };

/* --- certificates --- */

struct pem {
	char *chain, *key;
	long serial;
};

static char *text_of(BIO *bio)
{
	char *data;
	long n = BIO_get_mem_data(bio, &data);
	char *out = mem_zalloc((size_t)n + 1);

	memcpy(out, data, (size_t)n);
	BIO_free(bio);
	return out;
}

static struct pem make_pair(long from_s, long to_s)
{
	static long serial;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = X509_new();
	BIO *chain = BIO_new(BIO_s_mem()), *secret = BIO_new(BIO_s_mem());
	struct pem p = {.serial = ++serial};

	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), serial);
	X509_gmtime_adj(X509_getm_notBefore(cert), from_s);
	X509_gmtime_adj(X509_getm_notAfter(cert), to_s);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
	    (const unsigned char *)"injector", -1, -1, 0);
	X509_set_issuer_name(cert, X509_get_subject_name(cert));
	X509_set_pubkey(cert, key);
	X509_sign(cert, key, EVP_sha256());
	PEM_write_bio_X509(chain, cert);
	PEM_write_bio_PrivateKey(secret, key, NULL, NULL, 0, NULL, NULL);
	X509_free(cert);
	EVP_PKEY_free(key);
	p.chain = text_of(chain);
	p.key = text_of(secret);
	return p;
}

static void free_pair(struct pem *p)
{
	free(p->chain);
	free(p->key);
}

/* --- the server, in a process of its own --- */

struct child {
	struct loop *loop;
	struct server *server;
	struct loop_fd orders;
	int fd;
	struct pem pairs[3];
};

static struct {
	pid_t pid;
	int port, orders;
	int gate[2]; /* a body that begins with "wait" does so for a byte of it */
	struct connections_limits limits;
	struct pem first, second, stale;
} s;

static void *on_begin(void *ctx)
{
	(void)ctx;
	return mem_zalloc(1);
}

static void on_end(void *ctx, void *held)
{
	(void)ctx;
	free(held); /* each: leaks are looked for */
}

static int on_body(void *held, const char *body, size_t len, struct evbuffer *out)
{
	char byte;

	(void)held;
	if (!strncmp(body, "wait", 4) && read(s.gate[0], &byte, 1) != 1)
		abort();
	if (body[len] || !strcmp(body, "refuse")) {
		evbuffer_add_printf(out, "a \"reason\"");
		return 400;
	}
	for (unsigned i = 0; i < (strcmp(body, "much") ? 0 : 64); i++)
		evbuffer_add_printf(out, "%01024d", 0);
	evbuffer_add_printf(out, "{\"len\":%zu}", len);
	return 200;
}

static void on_stopped(void *ctx)
{
	struct child *c = ctx;

	loop_stop(c->loop);
}

/* 0..2, x: that pair; r, u: ready or not; s: the end; q: at once.  Answered by one byte, 'y' or
 * 'n'. */
static void on_order(void *ctx)
{
	struct child *c = ctx;
	struct err e;
	char order = 's', answer = 'y';

	if (read(c->fd, &order, 1) != 1)
		_exit(1);
	if (order >= '0' && order <= '2')
		answer = server_certificate_set(c->server, c->pairs[order - '0'].chain,
			     c->pairs[order == '2' ? 1 : order - '0'].key, &e)
			     ? 'n'
			     : 'y';
	else if (order == 'x')
		answer = server_certificate_set(c->server, c->pairs[2].chain, c->pairs[2].key, &e)
			     ? 'n'
			     : 'y';
	else if (order == 's')
		server_stop(c->server, STOP_MS, on_stopped, c);
	else if (order == 'q')
		loop_stop(c->loop);
	else
		server_ready_set(c->server, order == 'r' ? NULL : "the moon is wrong");
	if (write(c->fd, &answer, 1) != 1)
		_exit(1);
}

static void run_child(int listen_fd, int orders)
{
	struct child c = {.fd = orders, .pairs = {s.first, s.second, s.stale}};
	struct err e;

	c.loop = loop_new(&e);
	c.server = server_new(c.loop, listen_fd, &s.limits,
	    &(struct server_handler){on_begin, on_body, on_end, NULL});
	loop_fd_watch(c.loop, &c.orders, orders, LOOP_READ, on_order, &c);
	loop_run(c.loop);
	loop_fd_stop(&c.orders);
	server_free(&c.server);
	loop_free(&c.loop);
	metrics_clear();
	free_pair(&s.first);
	free_pair(&s.second);
	free_pair(&s.stale);
	exit(0);
}

static char order(char what)
{
	char answer = 0;

	assert_int_equal(write(s.orders, &what, 1), 1);
	assert_int_equal(read(s.orders, &answer, 1), 1);
	return answer;
}

static void start(const struct connections_limits *limits)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), pair[2];

	assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
	assert_int_equal(listen(fd, 64), 0);
	getsockname(fd, (struct sockaddr *)&a, &len);
	s.port = ntohs(a.sin_port);
	s.limits = *limits;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(pipe(s.gate), 0);
	s.pid = fork();
	if (!s.pid) {
		close(pair[0]);
		run_child(fd, pair[1]);
	}
	close(fd);
	close(pair[1]);
	s.orders = pair[0];
}

static void start_ready(const struct connections_limits *limits)
{
	start(limits);
	assert_int_equal(order('0'), 'y');
	order('r');
}

static int setup(void **state)
{
	(void)state;
	s.first = make_pair(-3600, 3600);
	s.second = make_pair(-3600, 3600);
	s.stale = make_pair(-3600, -60);
	return 0;
}

/* Bodies that wait. */
static void let_go_on(unsigned n)
{
	while (n--)
		assert_int_equal(write(s.gate[1], "x", 1), 1);
}

/* Its end is orderly: leaks are looked for there, too. */
static void assert_ends(void)
{
	int status;

	assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
	s.pid = 0;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int teardown(void **state)
{
	(void)state;
	if (s.pid) {
		let_go_on(8);
		order('q');
		assert_ends();
	}
	close(s.orders);
	close(s.gate[0]);
	close(s.gate[1]);
	free_pair(&s.first);
	free_pair(&s.second);
	free_pair(&s.stale);
	return 0;
}

/* --- a client --- */

struct client {
	int fd;
	SSL *ssl;
	char answer[ANSWER_MAX];
};

static int dial(const char *from)
{
	const struct timeval patience = {20, 0};
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s.port)}, own;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	own = (struct sockaddr_in){.sin_family = AF_INET};
	inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
	inet_pton(AF_INET, from, &own.sin_addr);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static bool shake(struct client *c, int version)
{
	SSL_CTX *tls = SSL_CTX_new(TLS_client_method());

	SSL_CTX_set_security_level(tls, 0);
	SSL_CTX_set_min_proto_version(tls, TLS1_VERSION);
	SSL_CTX_set_max_proto_version(tls, version);
	c->ssl = SSL_new(tls);
	SSL_CTX_free(tls);
	SSL_set_fd(c->ssl, c->fd);
	return SSL_connect(c->ssl) == 1;
}

static struct client *client_from(const char *from)
{
	struct client *c = mem_zalloc(sizeof(*c));

	c->fd = dial(from);
	assert_true(shake(c, TLS1_3_VERSION));
	return c;
}

static struct client *client(void)
{
	return client_from("127.0.0.1");
}

static void client_free(struct client *c)
{
	SSL_free(c->ssl);
	close(c->fd);
	free(c);
}

static bool say(struct client *c, const char *text)
{
	return SSL_write(c->ssl, text, (int)strlen(text)) > 0;
}

/* The status; 0: the connection ended. */
static int hear(struct client *c)
{
	size_t n = 0, want = 0;

	memset(c->answer, 0, 64);
	while (n < sizeof(c->answer) - 1 && (!want || n < want)) {
		int got = SSL_read(c->ssl, c->answer + n, (int)(sizeof(c->answer) - 1 - n));
		char *end, *length;

		if (got <= 0)
			return 0;
		c->answer[n += (size_t)got] = '\0';
		end = strstr(c->answer, "\r\n\r\n");
		length = strstr(c->answer, "Content-Length: ");
		if (end && length)
			want = (size_t)(end + 4 - c->answer) +
			       strtoul(length + strlen("Content-Length: "), NULL, 10);
	}
	return atoi(c->answer + strlen("HTTP/1.1 "));
}

#define JSON "Content-Type: application/json\r\n"

static int post_as(struct client *c, const char *path, const char *headers, const char *body)
{
	auto_free char *text =
	    mem_printf("POST %s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %zu\r\n\r\n%s", path,
		headers, strlen(body), body);

	return say(c, text) ? hear(c) : 0;
}

static int post(struct client *c, const char *body)
{
	return post_as(c, "/inject?timeout=5s", JSON, body);
}

static int get(struct client *c, const char *path)
{
	auto_free char *text = mem_printf("GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path);

	return say(c, text) ? hear(c) : 0;
}

static bool has(const struct client *c, const char *what)
{
	return strstr(c->answer, what);
}

static bool is_closed(struct client *c)
{
	char byte;

	return SSL_read(c->ssl, &byte, 1) <= 0;
}

static long serial_of(struct client *c)
{
	X509 *cert = SSL_get1_peer_certificate(c->ssl);
	long serial = ASN1_INTEGER_get(X509_get0_serialNumber(cert));

	X509_free(cert);
	return serial;
}

/* --- what is answered --- */

static void a_connection_serves_many(void **state)
{
	struct client *c;

	(void)state;
	start_ready(&connections_usual);
	c = client();
	assert_int_equal(post(c, "{}"), 200);
	assert_true(has(c, "\r\n\r\n{\"len\":2}") && has(c, "application/json"));
	assert_int_equal(post(c, "refuse"), 400);
	assert_true(has(c, "\"message\":\"a \\\"reason\\\"\"") && has(c, "\"kind\":\"Status\""));
	assert_int_equal(post(c, "much"), 200);
	assert_int_equal(get(c, "/healthz"), 200);
	assert_int_equal(get(c, "/readyz"), 200);
	assert_int_equal(get(c, "/metrics"), 200);
	assert_true(has(c, "\nagentd_injector_connections 1\n"));
	assert_true(has(c, "\nagentd_injector_ready 1\n"));
	assert_false(has(c, "Connection: close"));
	/* two at once */
	assert_true(say(c, "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\nGET /readyz HTTP/1.1\r\nHost: "
			   "h\r\n\r\n"));
	assert_int_equal(hear(c), 200);
	assert_int_equal(
	    has(c, "HTTP/1.1 200 OK") && strstr(c->answer + 1, "HTTP/1.1 200 OK") ? 200 : hear(c),
	    200);
	client_free(c);
}

static void of_head_the_length_is_answered_alone(void **state)
{
	struct client *c;
	size_t n = 0;
	int got;

	(void)state;
	start_ready(&connections_usual);
	c = client();
	assert_true(say(c, "HEAD /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
	while ((got = SSL_read(c->ssl, c->answer + n, 1000)) > 0)
		n += (size_t)got;
	assert_true(has(c, "HTTP/1.1 200 OK\r\n") && has(c, "Content-Length: 3\r\n"));
	assert_string_equal(strstr(c->answer, "\r\n\r\n"), "\r\n\r\n");
	client_free(c);
}

static void what_is_no_request_of_an_api_server(void **state)
{
	struct client *c;

	(void)state;
	start_ready(&connections_usual);
	c = client();
	assert_int_equal(post_as(c, "/inject", "Content-Type: text/plain\r\n", "{}"), 415);
	assert_int_equal(post_as(c, "/inject", "", "{}"), 415);
	assert_int_equal(post(c, ""), 400);
	assert_int_equal(get(c, "/inject"), 405);
	assert_true(has(c, "Allow: POST"));
	assert_int_equal(post_as(c, "/metrics", JSON, "{}"), 405);
	assert_int_equal(post_as(c, "/injector", JSON, "{}"), 404);
	assert_int_equal(post_as(c, "/%69nject", JSON, "{}"), 404);
	assert_int_equal(post_as(c, "//inject", JSON, "{}"), 404);
	client_free(c);
	c = client();
	assert_true(say(c, "DELETE /inject HTTP/1.1\r\nHost: h\r\n\r\n"));
	assert_int_equal(hear(c), 501);
	client_free(c);
}

static void what_is_not_ready_says_so_and_may_be_asked_again(void **state)
{
	struct client *c;

	(void)state;
	start(&connections_usual);
	c = mem_zalloc(sizeof(*c));
	c->fd = dial("127.0.0.1");
	assert_false(shake(c, TLS1_3_VERSION)); /* no certificate yet */
	client_free(c);
	order('0');
	c = client();
	assert_int_equal(post(c, "{}"), 503);
	assert_true(has(c, "\r\nRetry-After: 1\r\n") && has(c, "it is starting"));
	assert_int_equal(get(c, "/readyz"), 503);
	assert_int_equal(get(c, "/healthz"), 200);
	order('r');
	assert_int_equal(post(c, "{}"), 200);
	order('u');
	assert_int_equal(post(c, "{}"), 503);
	assert_true(has(c, "\"message\":\"the moon is wrong\""));
	assert_int_equal(get(c, "/metrics"), 200);
	assert_true(has(c, "\nagentd_injector_ready 0\n"));
	client_free(c);
}

static void old_tls_is_refused(void **state)
{
	static const int versions[] = {
	    TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION};

	(void)state;
	start_ready(&connections_usual);
	for (unsigned i = 0; i < 4; i++) {
		struct client *c = mem_zalloc(sizeof(*c));

		c->fd = dial("127.0.0.1");
		assert_int_equal(shake(c, versions[i]), versions[i] >= TLS1_2_VERSION);
		client_free(c);
	}
}

/* --- limits --- */

static void a_body_has_a_limit(void **state)
{
	auto_free char *most = mem_zalloc(SERVER_BODY_MAX + 1), *head = NULL, *long_path = NULL;
	struct client *c;

	(void)state;
	memset(most, 'x', SERVER_BODY_MAX);
	start_ready(&connections_usual);
	c = client();
	assert_int_equal(post(c, most), 200);
	assert_true(has(c, "{\"len\":2097152}"));
	head = mem_printf("POST /inject HTTP/1.1\r\nHost: h\r\n" JSON "Content-Length: %d\r\n\r\nx",
	    SERVER_BODY_MAX + 1);
	assert_true(say(c, head));
	assert_int_equal(hear(c), 413);
	client_free(c);
	c = client();
	most[SERVER_HEADERS_MAX] = '\0';
	long_path = mem_printf("GET /%s HTTP/1.1\r\n", most);
	say(c, long_path);
	assert_true(hear(c) != 200);
	client_free(c);
}

/* curl sends large bodies so; an API server does not. */
static void a_body_in_pieces_is_one(void **state)
{
	static const char head[] =
	    "POST /inject HTTP/1.1\r\nHost: h\r\n" JSON "Transfer-Encoding: chunked\r\n\r\n";
	struct client *c;

	(void)state;
	start_ready(&connections_usual);
	c = client();
	assert_true(say(c, head) && say(c, "1\r\n{\r\n") && say(c, "1\r\n}\r\n0\r\n\r\n"));
	assert_int_equal(hear(c), 200);
	assert_true(has(c, "{\"len\":2}"));
	assert_true(say(c, "POST /inject HTTP/1.1\r\nHost: h\r\n" JSON
			   "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"));
	assert_true(SSL_read(c->ssl, c->answer, 20) > 0 && has(c, "HTTP/1.1 100"));
	assert_true(say(c, "{}"));
	while (!has(c, "{\"len\":2}"))
		assert_true(hear(c) != 0);
	assert_true(say(c, head));
	say(c, "fffffff\r\n");
	assert_true(hear(c) != 200);
	client_free(c);
}

static const struct connections_limits quick = {.connections = 100,
    .bytes = 32 << 20,
    .handshake_ms = 3000, /* more than a machine stands still */
    .request_ms = 3000,
    .answer_ms = 3000,
    .idle_ms = 60 * 1000};

/* A byte now and then is no progress: each step as a whole has its time. */
static void each_step_has_its_time(void **state)
{
	struct client *idle, *slow;
	char byte;
	int fd, sent = 0;

	(void)state;
	start_ready(&quick);
	idle = client();
	fd = dial("127.0.0.1");
	assert_int_equal(read(fd, &byte, 1), 0);
	close(fd);
	slow = client();
	assert_true(say(slow, "POST /inject HTTP/1.1\r\nX: "));
	while (say(slow, "x")) {
		const struct timespec pause = {0, 1000 * 1000};

		nanosleep(&pause, NULL); /* the attack, not a wait */
		if (++sent > 20000)
			fail_msg("a slow client was served for ever");
	}
	client_free(slow);
	/* one that asks nothing stays, though it was there first */
	assert_int_equal(post(idle, "{}"), 200);
	assert_int_equal(get(idle, "/metrics"), 200);
	assert_true(has(idle, "{reason=\"slow_handshake\"} 1\n"));
	assert_true(has(idle, "{reason=\"slow_request\"} 1\n"));
	client_free(idle);
}

static void a_peer_that_does_not_read_goes(void **state)
{
	struct client *c, *other;
	int small = 4096, n = 0;

	(void)state;
	start_ready(&quick);
	c = client();
	setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	while (n++ < 2000 &&
	       say(c, "POST /inject HTTP/1.1\r\nHost: h\r\n" JSON "Content-Length: 4\r\n\r\nmuch"))
		;
	other = client();
	do
		assert_int_equal(get(other, "/metrics"), 200);
	while (!has(other, "{reason=\"slow_reader\"} 1\n"));
	client_free(other);
	client_free(c);
}

static void an_idle_connection_has_its_time_too(void **state)
{
	struct connections_limits limits = quick;
	struct client *c;

	(void)state;
	limits.idle_ms = 3000;
	start_ready(&limits);
	c = client();
	assert_int_equal(post(c, "{}"), 200);
	assert_true(is_closed(c));
	client_free(c);
	/* API servers close theirs after 90 s: ours must be there longer */
	assert_true(connections_usual.idle_ms >= 120 * 1000);
}

/* A stranger that opens as many as it likes takes them from itself. */
static void one_connection_too_many_ends_one_of_who_has_the_most(void **state)
{
	struct connections_limits limits = connections_usual;
	struct client *api, *strangers[12];

	(void)state;
	limits.connections = 8;
	start_ready(&limits);
	api = client();
	assert_int_equal(post(api, "{}"), 200);
	for (unsigned i = 0; i < 12; i++)
		strangers[i] = client_from("127.0.0.2");
	assert_int_equal(post(api, "{}"), 200);
	assert_int_equal(get(api, "/metrics"), 200);
	assert_true(has(api, "\nagentd_injector_connections 8\n"));
	assert_true(has(api, "{reason=\"connections\"} 5\n"));
	for (unsigned i = 0; i < 12; i++) {
		if (i < 5)
			assert_true(is_closed(strangers[i])); /* the oldest */
		else
			assert_int_equal(post(strangers[i], "{}"), 200);
	}
	for (unsigned i = 0; i < 12; i++)
		client_free(strangers[i]);
	client_free(api);
}

static void bytes_that_wait_are_bound_together(void **state)
{
	struct connections_limits limits = connections_usual;
	auto_free char *half = mem_zalloc(60001);
	struct client *large, *small;
	int n = 0;

	(void)state;
	memset(half, 'x', 60000);
	limits.bytes = 100 * 1000;
	start_ready(&limits);
	large = client();
	small = client();
	assert_true(say(
	    large, "POST /inject HTTP/1.1\r\nHost: h\r\n" JSON "Content-Length: 90000\r\n\r\n"));
	assert_true(say(large, half));
	half[50000] = '\0';
	/* which of them is read first is the server's matter */
	do {
		assert_int_equal(post(small, half), 200);
		assert_int_equal(get(small, "/metrics"), 200);
	} while (!has(small, "{reason=\"bytes\"} 1\n") && n++ < 5000);
	assert_true(n < 5000);
	assert_true(is_closed(large));
	/* nothing of it is counted any more */
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(post(small, half), 200);
	assert_int_equal(get(small, "/metrics"), 200);
	assert_true(has(small, "{reason=\"bytes\"} 1\n"));
	client_free(large);
	client_free(small);
}

/* Many small parts of a stranger's requests, and a large one of an API server. */
static void bytes_are_shared_by_address(void **state)
{
	static const char head[] =
	    "POST /inject HTTP/1.1\r\nHost: h\r\n" JSON "Content-Length: 60000\r\n\r\n";
	struct connections_limits limits = connections_usual;
	auto_free char *part = mem_zalloc(40001);
	struct client *api, *other, *strangers[10];

	(void)state;
	limits.bytes = 150 * 1000;
	start_ready(&limits);
	api = client();
	other = client();
	memset(part, 'x', 40000);
	assert_true(say(api, head) && say(api, part));
	part[20000] = '\0';
	for (unsigned i = 0; i < 10; i++) {
		strangers[i] = client_from("127.0.0.2");
		assert_true(say(strangers[i], head) && say(strangers[i], part));
		assert_int_equal(get(other, "/metrics"), 200); /* it is being read */
	}
	assert_true(say(api, part)); /* the rest */
	assert_int_equal(hear(api), 200);
	assert_true(has(api, "{\"len\":60000}"));
	do
		assert_int_equal(get(other, "/metrics"), 200);
	while (has(other, "{reason=\"bytes\"} 0\n"));
	for (unsigned i = 0; i < 10; i++)
		client_free(strangers[i]);
	client_free(api);
	client_free(other);
}

/* What is not read by those that asked is memory, too. */
static void answers_that_wait_are_counted(void **state)
{
	struct connections_limits limits = connections_usual;
	struct client *api, *strangers[20];
	int small = 4096, n = 0;

	(void)state;
	limits.bytes = 200 * 1000;
	start_ready(&limits);
	api = client();
	for (unsigned i = 0; i < 20; i++) {
		strangers[i] = client_from("127.0.0.2");
		setsockopt(strangers[i]->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
		for (unsigned k = 0; k < 40; k++)
			say(strangers[i], "POST /inject HTTP/1.1\r\nHost: h\r\n" JSON
					  "Content-Length: 4\r\n\r\nmuch");
	}
	do
		assert_int_equal(get(api, "/metrics"), 200);
	while (has(api, "{reason=\"bytes\"} 0\n") && n++ < 5000);
	assert_true(n < 5000);
	assert_int_equal(post(api, "much"), 200);
	for (unsigned i = 0; i < 20; i++)
		client_free(strangers[i]);
	/* A loop that stops at once frees no connection that is about to end: some turns more. */
	for (n = 0; n < 20 || !has(api, "agentd_injector_connections 1\n"); n++) {
		assert_int_equal(get(api, "/metrics"), 200);
		assert_true(n < 5000);
	}
	client_free(api);
}

/* --- what takes long --- */

static void ask_long(struct client *c)
{
	enum { LONG = SERVER_AT_ONCE_MAX + 1 };
	auto_free char *body = mem_zalloc(LONG + 1);
	auto_free char *head = mem_printf(
	    "POST /inject HTTP/1.1\r\nHost: h\r\n" JSON "Content-Length: %d\r\n\r\n", LONG);

	memset(body, 'x', LONG);
	memcpy(body, "wait", 4);
	assert_true(say(c, head) && say(c, body));
}

static void ordinary_ones_are_answered_beside_a_long_one(void **state)
{
	struct client *large, *small;

	(void)state;
	start_ready(&connections_usual);
	large = client();
	small = client();
	ask_long(large);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(post(small, "{}"), 200);
	let_go_on(1);
	assert_int_equal(hear(large), 200);
	assert_true(has(large, "{\"len\":16385}"));
	assert_int_equal(post(large, "refuse"), 400); /* the connection serves on */
	client_free(large);
	client_free(small);
}

static void wait_for_waiting(struct client *c, unsigned n)
{
	auto_free char *line = mem_printf("\nagentd_injector_waiting_reviews %u\n", n);

	for (unsigned i = 0; i < 5000; i++) {
		assert_int_equal(get(c, "/metrics"), 200);
		if (has(c, line))
			return;
	}
	fail();
}

/* An API server waits for one of each stranger's, however many they have. */
static void long_ones_are_answered_by_turns_of_their_peers(void **state)
{
	struct client *api, *other, *strangers[6];

	(void)state;
	start_ready(&connections_usual);
	other = client();
	for (unsigned i = 0; i < 6; i++) {
		strangers[i] = client_from(i < 3 ? "127.0.0.2" : "127.0.0.3");
		ask_long(strangers[i]);
	}
	wait_for_waiting(other, 5);
	api = client();
	ask_long(api);
	wait_for_waiting(other, 6);
	let_go_on(3);
	assert_int_equal(hear(api), 200);
	let_go_on(4);
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(hear(strangers[i]), 200);
		client_free(strangers[i]);
	}
	client_free(api);
	client_free(other);
}

/* One that runs, and one that waits for its turn. */
static void clients_of_long_ones_may_go(void **state)
{
	struct connections_limits limits = connections_usual;
	struct client *slow[2], *gone[2], *after;

	(void)state;
	limits.request_ms = 500;
	start_ready(&limits);
	for (unsigned i = 0; i < 2; i++) {
		slow[i] = client();
		ask_long(slow[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		assert_true(is_closed(slow[i])); /* its time is over */
		client_free(slow[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		gone[i] = client();
		ask_long(gone[i]);
		client_free(gone[i]);
	}
	let_go_on(8);
	after = client();
	ask_long(after);
	assert_int_equal(hear(after), 200);
	client_free(after);
}

static void the_end_waits_for_what_runs(void **state)
{
	struct client *one = NULL, *two = NULL;

	(void)state;
	start_ready(&connections_usual);
	one = client();
	ask_long(one);
	two = client();
	ask_long(two);
	assert_int_equal(order('q'), 'y');
	let_go_on(1);
	assert_ends();
	client_free(one);
	client_free(two);
}

/* --- the certificate --- */

static void a_new_certificate_is_for_new_connections(void **state)
{
	struct client *old, *new;

	(void)state;
	start_ready(&connections_usual);
	old = client();
	assert_int_equal(serial_of(old), s.first.serial);
	assert_int_equal(order('1'), 'y');
	new = client();
	assert_int_equal(serial_of(new), s.second.serial);
	assert_int_equal(post(old, "{}"), 200);
	assert_int_equal(post(new, "{}"), 200);
	client_free(old);
	client_free(new);
}

static void a_wrong_pair_changes_nothing(void **state)
{
	struct client *c;

	(void)state;
	start_ready(&connections_usual);
	assert_int_equal(order('2'), 'n'); /* another one's key */
	assert_int_equal(order('x'), 'n'); /* expired */
	c = client();
	assert_int_equal(serial_of(c), s.first.serial);
	assert_int_equal(post(c, "{}"), 200);
	client_free(c);
}

static void an_expired_certificate_is_not_ready(void **state)
{
	struct client *c;
	int status;

	(void)state;
	free_pair(&s.second);
	s.second = make_pair(-3600, 8); /* time enough to take it */
	start_ready(&connections_usual);
	c = client();
	assert_int_equal(order('1'), 'y');
	while ((status = get(c, "/readyz")) == 200)
		usleep(10 * 1000);
	assert_int_equal(status, 503);
	assert_true(has(c, "its certificate has expired"));
	assert_int_equal(order('0'), 'y');
	assert_int_equal(get(c, "/readyz"), 200);
	client_free(c);
}

/* --- the end --- */

static void the_end_leaves_nobody_without_an_answer(void **state)
{
	struct client *idle, *used, *new, *under_way;

	(void)state;
	start_ready(&connections_usual);
	idle = client();
	used = client();
	under_way = client();
	assert_int_equal(post(used, "{}"), 200);
	order('s');
	new = client(); /* the endpoint goes later than we know */
	assert_int_equal(get(new, "/readyz"), 503);
	assert_true(has(new, "it is ending") && has(new, "Connection: close"));
	assert_true(is_closed(new));
	assert_int_equal(post(used, "{}"), 200);
	assert_true(has(used, "Connection: close"));
	assert_true(say(
	    under_way, "POST /inject HTTP/1.1\r\nHost: h\r\n" JSON "Content-Length: 2\r\n\r\n{"));
	assert_true(is_closed(idle)); /* at the end of the time, with nothing under way */
	assert_true(say(under_way, "}"));
	assert_int_equal(hear(under_way), 200);
	assert_ends();
	client_free(idle);
	client_free(used);
	client_free(new);
	client_free(under_way);
}

#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    ROW(a_connection_serves_many),
	    ROW(of_head_the_length_is_answered_alone),
	    ROW(what_is_no_request_of_an_api_server),
	    ROW(what_is_not_ready_says_so_and_may_be_asked_again),
	    ROW(old_tls_is_refused),
	    ROW(a_body_has_a_limit),
	    ROW(a_body_in_pieces_is_one),
	    ROW(each_step_has_its_time),
	    ROW(a_peer_that_does_not_read_goes),
	    ROW(an_idle_connection_has_its_time_too),
	    ROW(one_connection_too_many_ends_one_of_who_has_the_most),
	    ROW(bytes_that_wait_are_bound_together),
	    ROW(bytes_are_shared_by_address),
	    ROW(answers_that_wait_are_counted),
	    ROW(ordinary_ones_are_answered_beside_a_long_one),
	    ROW(long_ones_are_answered_by_turns_of_their_peers),
	    ROW(clients_of_long_ones_may_go),
	    ROW(the_end_waits_for_what_runs),
	    ROW(a_new_certificate_is_for_new_connections),
	    ROW(a_wrong_pair_changes_nothing),
	    ROW(an_expired_certificate_is_not_ready),
	    ROW(the_end_leaves_nobody_without_an_answer),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
