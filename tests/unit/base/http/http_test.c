/* http_test.c - the real loop and real sockets; ten seconds without progress take none.
 * LINK: tests/fake/clock.c tests/unit/base/loop_rig.c */
#include "base/http/http.h"
#include "tests/unit/base/loop_rig.h"

#include <event2/buffer.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/loop.h"
#include "common/err.h"
#include "tests/fake/clock.h"

static struct loop *l;
static int rounds;

int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
	rounds++;
	return (int)syscall(SYS_epoll_wait, epfd, events, max, timeout);
}

/* ---- the server and a client made of bytes ---- */

static struct http_server *server;
static int listener;
static struct sockaddr_storage address;
static socklen_t address_len;

static char seen[1024]; /* "METHOD path" of each request the handler got */
static const char *query_key;
static char query_value[64];
static uid_t peer_uid;
static bool silent;

static void handle(void *ctx, struct http_request *req)
{
	assert_ptr_equal(ctx, &server);
	size_t n = strlen(seen);
	snprintf(seen + n, sizeof(seen) - n, "%s %s;", http_method(req), http_path(req));
	peer_uid = http_peer_uid(req);
	if (query_key) {
		const char *value = http_query(req, query_key);
		snprintf(query_value, sizeof(query_value), "%s", value ? value : "(null)");
	}
	if (silent)
		return;
	struct evbuffer *body = evbuffer_new();
	evbuffer_add_printf(body, "hello from %s", http_path(req));
	http_reply(req, strcmp(http_path(req), "/none") ? 200 : 404, "text/plain", body);
	evbuffer_free(body);
}

static void listen_on(int domain)
{
	address = (struct sockaddr_storage){.ss_family = (sa_family_t)domain};
	address_len = domain == AF_UNIX ? sizeof(sa_family_t) : sizeof(struct sockaddr_in);
	if (domain == AF_INET)
		((struct sockaddr_in *)&address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, address_len), 0);
	assert_int_equal(listen(listener, 16), 0);
	address_len = sizeof(address);
	getsockname(listener, (struct sockaddr *)&address, &address_len);
	server = http_server_new(l, listener, handle, &server);
}

static int setup(void **state)
{
	struct err e;

	(void)state;
	seen[0] = '\0';
	query_key = NULL;
	silent = false;
	l = loop_new(&e);
	listen_on(AF_UNIX);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	http_server_free(&server);
	loop_free(&l);
	return 0;
}

static int connect_one(void)
{
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, address_len), 0);
	return fd;
}

static char answer[4096];
static size_t answer_len;
static int client = -1;
static struct loop_fd client_readable;

static void on_answer(void *ctx)
{
	ssize_t n =
	    recv(client, answer + answer_len, sizeof(answer) - 1 - answer_len, MSG_DONTWAIT);

	(void)ctx;
	if (n > 0)
		answer[answer_len += (size_t)n] = '\0';
	else
		loop_stop(l);
}

/* Run until the server closes the client's connection. */
static const char *await_end(void)
{
	answer_len = 0;
	answer[0] = '\0';
	loop_fd_watch(l, &client_readable, client, LOOP_READ, on_answer, NULL);
	loop_run(l);
	loop_fd_stop(&client_readable);
	close(client);
	return answer;
}

static const char *ask_bytes(const char *request, size_t len)
{
	client = connect_one();
	fcntl(client, F_SETFL, O_NONBLOCK);
	for (size_t sent = 0; sent < len;) {
		ssize_t n = send(client, request + sent, len - sent, MSG_NOSIGNAL);
		if (n > 0)
			sent += (size_t)n;
		else
			run_ms(l, 1);
	}
	return await_end();
}

static const char *ask(const char *request)
{
	return ask_bytes(request, strlen(request));
}

#define CLOSE "Host: x\r\nConnection: close\r\n"

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* ---- server tests ---- */

static void test_request_and_answer(void **state)
{
	(void)state;
	assert_true(begins(ask("GET /pods HTTP/1.1\r\n" CLOSE "\r\n"), "HTTP/1.1 200 OK\r\n"));
	assert_string_equal(seen, "GET /pods;");
	assert_non_null(strstr(answer, "Content-Type: text/plain\r\n"));
	assert_non_null(strstr(answer, "Content-Length: 16\r\n"));
	assert_non_null(strstr(answer, "\r\n\r\nhello from /pods"));
	assert_int_equal(peer_uid, geteuid());
	assert_true(begins(
	    ask("POST /none HTTP/1.1\r\nContent-Length: 2\r\n" CLOSE "\r\nhi"), "HTTP/1.1 404 "));
	assert_string_equal(seen, "GET /pods;POST /none;");
}

/* security-rules.md 9: paths are matched on raw bytes; who decodes, can be tricked. */
static void test_path_is_raw(void **state)
{
	(void)state;
	ask("GET /a%2Fb/../%2e%2e//c?d=/e HTTP/1.1\r\n" CLOSE "\r\n");
	assert_string_equal(seen, "GET /a%2Fb/../%2e%2e//c;");
	seen[0] = '\0';
	ask("GET /x? HTTP/1.1\r\n" CLOSE "\r\n");
	assert_string_equal(seen, "GET /x;");
}

static const char *query(const char *target, const char *key)
{
	char request[256];

	query_key = key;
	strcpy(query_value, "(no request)");
	snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\n" CLOSE "\r\n", target);
	ask(request);
	return query_value;
}

static void test_query(void **state)
{
	(void)state;
	assert_string_equal(query("/l?level=sds%3Adebug%2Cx&b=2", "level"), "sds:debug,x");
	assert_string_equal(query("/l?level=a+b&b=2", "b"), "2");
	assert_string_equal(query("/l?level=", "level"), "");
	assert_string_equal(query("/l", "level"), "(null)");
	assert_string_equal(query("/l?", "level"), "(null)");
	assert_string_equal(query("/l?other=1", "level"), "(null)");
	assert_string_equal(query("/l?level", "level"), "(null)");
	assert_string_equal(query("/l?level=a%00b", "level"), "(null)"); /* would be cut to "a" */
}

static void test_silent_handler_is_a_500(void **state)
{
	(void)state;
	silent = true;
	assert_true(begins(ask("GET / HTTP/1.1\r\n" CLOSE "\r\n"), "HTTP/1.1 500 "));
}

static void test_methods(void **state)
{
	static const char *const others[] = {"HEAD", "OPTIONS", "TRACE", "PATCH", "BREW"};
	char byte;

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		char request[128];
		snprintf(request, sizeof(request), "%s / HTTP/1.1\r\n" CLOSE "\r\n", others[i]);
		if (begins(ask(request), "HTTP/1.1 2"))
			fail_msg("%s: %s", others[i], answer);
	}
	/* evhttp keeps the connection of a CONNECT until its time is up. */
	client = connect_one();
	assert_true(dprintf(client, "CONNECT / HTTP/1.1\r\n" CLOSE "\r\n") > 0);
	for (int ms = 0; ms < 30000 && recv(client, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0; ms++)
		run_ms(l, 1); /* it is answered at once */
	fake_clock_pass_ms(11 * 1000);
	assert_true(begins(await_end(), "HTTP/1.1 501 "));
	assert_string_equal(seen, "");
	ask("PUT / HTTP/1.1\r\nContent-Length: 0\r\n" CLOSE "\r\n");
	ask("DELETE / HTTP/1.1\r\n" CLOSE "\r\n");
	assert_string_equal(seen, "PUT /;DELETE /;");
}

static void test_malformed_requests_never_reach_the_handler(void **state)
{
	static const char *const bad[] = {
	    "\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/2.0\r\n" CLOSE "\r\n",
	    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nno colon here\r\n" CLOSE "\r\n",
	    "POST / HTTP/1.1\r\nContent-Length: -1\r\n" CLOSE "\r\n",
	    "POST / HTTP/1.1\r\nContent-Length: 1x\r\n" CLOSE "\r\nab",
	    "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n" CLOSE "\r\n",
	    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" CLOSE "\r\nzz\r\n",
	    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", /* somebody speaks TLS */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		client = connect_one();
		send(client, bad[i], strlen(bad[i]), MSG_NOSIGNAL);
		shutdown(client, SHUT_WR);
		await_end();
		if (*seen || begins(answer, "HTTP/1.1 2"))
			fail_msg("case %zu: %s%s", i, seen, answer);
	}
}

static const char *post_of(size_t body)
{
	char head[128];
	size_t n = (size_t)snprintf(
	    head, sizeof(head), "POST / HTTP/1.1\r\nContent-Length: %zu\r\n" CLOSE "\r\n", body);
	char *request = malloc(n + body);

	memcpy(request, head, n);
	memset(request + n, 'x', body);
	ask_bytes(request, n + body);
	free(request);
	return answer;
}

static void test_limits(void **state)
{
	char request[12000];

	(void)state;
	assert_true(begins(post_of(64 * 1024), "HTTP/1.1 200 "));
	seen[0] = '\0';
	/* The announcement is enough to be refused. */
	assert_true(begins(
	    ask("POST / HTTP/1.1\r\nContent-Length: 65537\r\n" CLOSE "\r\n"), "HTTP/1.1 413 "));
	memset(request, 'a', sizeof(request));
	memcpy(request, "GET / HTTP/1.1\r\nX: ", 19);
	strcpy(request + 11000, "\r\n" CLOSE "\r\n");
	ask(request);
	assert_false(begins(answer, "HTTP/1.1 2"));
	assert_string_equal(seen, "");
}

/* 10 s without progress: a client that begins a request and stops. */
static void test_slow_client_is_dropped(void **state)
{
	(void)state;
	client = connect_one();
	send(client, "GET / HT", 8, 0);
	run_ms(l, 5);
	fake_clock_pass_ms(5 * 1000);
	run_ms(l, 5);
	assert_int_equal(recv(client, answer, 1, MSG_DONTWAIT), -1); /* still open */
	fake_clock_pass_ms(6 * 1000);
	await_end();
	assert_string_equal(seen, "");
}

static void test_two_requests_on_one_connection(void **state)
{
	(void)state;
	ask("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\n" CLOSE "\r\n");
	assert_string_equal(seen, "GET /1;GET /2;");
	assert_non_null(strstr(answer, "hello from /1"));
	assert_non_null(strstr(answer, "hello from /2"));
}

static void test_free_with_open_connections(void **state)
{
	int idle = connect_one();

	(void)state;
	client = connect_one();
	send(client, "GET / HT", 8, 0);
	run_ms(l, 5);
	http_server_free(&server);
	assert_null(server);
	await_end();
	close(idle);
}

static void test_tcp(void **state)
{
	int on = 0;
	socklen_t len = sizeof(on);

	(void)state;
	http_server_free(&server);
	listen_on(AF_INET);
	assert_true(begins(ask("GET /t HTTP/1.1\r\n" CLOSE "\r\n"), "HTTP/1.1 200 "));
	assert_int_equal(peer_uid, (uid_t)-1); /* nobody, and never root */
	getsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, &len);
	assert_int_equal(on, 1); /* accepted sockets inherit it */
}

static void test_pause_without_fds(void **state)
{
	struct rlimit limit;
	rlim_t before;

	(void)state;
	client = connect_one();
	assert_true(dprintf(client, "GET /late HTTP/1.1\r\n" CLOSE "\r\n") > 0);
	getrlimit(RLIMIT_NOFILE, &limit);
	before = limit.rlim_cur;
	limit.rlim_cur = 3;
	setrlimit(RLIMIT_NOFILE, &limit);
	rounds = 0;
	run_ms(l, 50);
	assert_in_range(rounds, 1, 10); /* a spinning listener makes thousands */
	limit.rlim_cur = before;
	setrlimit(RLIMIT_NOFILE, &limit);
	fake_clock_pass_ms(1000);
	assert_true(begins(await_end(), "HTTP/1.1 200 "));
}

/* ---- the client of http.h ---- */

static struct http_get *get;
static int dones, status;
static size_t sent_bytes;
static char body[256];
static size_t body_len;

static void on_done(void *ctx, int code, struct evbuffer *bytes)
{
	assert_ptr_equal(ctx, &dones);
	assert_null(get); /* R3 */
	dones++;
	status = code;
	body_len = bytes ? evbuffer_get_length(bytes) : 0;
	memset(body, 0, sizeof(body));
	if (bytes)
		evbuffer_copyout(bytes, body, sizeof(body) - 1);
	else
		assert_int_equal(code, 0);
	loop_stop(l);
}

static void start(int fd, const char *method, const char *target)
{
	dones = 0;
	status = -1;
	http_get(l, &get, (struct http_ask){.fd = fd, .method = method, .target = target}, on_done,
	    &dones);
	assert_int_equal(dones, 0); /* R2 */
	assert_non_null(get);
}

static void test_get_from_our_server(void **state)
{
	(void)state;
	start(connect_one(), "GET", "/pods?x=1");
	loop_run(l);
	assert_int_equal(status, 200);
	assert_string_equal(body, "hello from /pods");
	start(connect_one(), "POST", "/none");
	loop_run(l);
	assert_int_equal(status, 404);
	assert_string_equal(seen, "GET /pods;POST /none;");
}

/* The whole answer, then the end; in pieces of `step` bytes. */
static int got(const char *bytes, size_t len, size_t step)
{
	int pair[2];
	char request[256] = "";

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	start(pair[0], "GET", "/x");
	run_ms(l, 0);
	assert_true(recv(pair[1], request, sizeof(request) - 1, MSG_DONTWAIT) > 0);
	assert_string_equal(
	    request, "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
	sent_bytes = 0;
	for (size_t i = 0; i < len && !dones; sent_bytes = i) {
		size_t n = len - i < step ? len - i : step;
		ssize_t sent = send(pair[1], bytes + i, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		i += sent > 0 ? (size_t)sent : 0;
		run_ms(l, 0);
	}
	close(pair[1]);
	if (!dones)
		loop_run(l);
	assert_int_equal(dones, 1);
	run_ms(l, 0);                                  /* libevent closes a round later */
	assert_int_equal(fcntl(pair[0], F_GETFD), -1); /* the fd was ours to close */
	return status;
}

static void check_answer(const char *bytes, int wanted, const char *wanted_body)
{
	for (size_t step = 1; step < 64; step = step * 3 + 1) {
		if (got(bytes, strlen(bytes), step) != wanted)
			fail_msg("status %d, not %d, for %s", status, wanted, bytes);
		assert_string_equal(body, wanted_body);
	}
}

static void test_answers(void **state)
{
	(void)state;
	check_answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc");
	check_answer("HTTP/1.0 503 Busy\r\nA: b\r\n\r\nuntil the end", 503, "until the end");
	check_answer("HTTP/1.1 200\ncontent-length:2 \n\nab", 200, "ab");
	check_answer("HTTP/1.1 204 Nothing\r\n\r\n", 204, "");
	check_answer("HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n", 304, "");
	check_answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx", 200, "x");
	check_answer("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc", 200, "a");
	check_answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", 200, "");
}

static void test_what_is_no_answer(void **state)
{
	static const char *const bad[] = {
	    "",
	    "HTTP/1.1 200 OK\r\n",
	    "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
	    "HTTP/2 200 OK\r\n\r\n",
	    "HTTP/1.1 20 OK\r\n\r\n",
	    "HTTP/1.1 2000 OK\r\n\r\n",
	    "HTTP/1.1 099 OK\r\n\r\n",
	    "HTTP/1.1\r\n\r\n",
	    "SSH-2.0-x\r\n\r\n",
	    "HTTP/1.1 101 Switching\r\n\r\n",
	    "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
	    "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
	    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
	    "HTTP/1.1 200 OK\r\nContent-Length: 1 2\r\n\r\nab",
	    "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nab",
	    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
	    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check_answer(bad[i], 0, "");
	assert_int_equal(got("HTTP/1.1 200 OK\r\nA: \0b\r\n\r\n", 27, 100), 0);
}

/* A head or body without end costs bounded memory. */
static void test_endless_answers(void **state)
{
	static char big[17 * 1024 * 1024];
	int n;

	(void)state;
	memset(big, 'a', sizeof(big));
	assert_int_equal(got(big, 20000, 1000), 0); /* no line at all */
	assert_true(sent_bytes < 10000);
	n = sprintf(big, "HTTP/1.1 200 OK\r\nA: ");
	big[n] = 'a';
	assert_int_equal(got(big, 20000, 1000), 0);
	assert_true(sent_bytes < 10000);
	for (n = 17; n < 20000; n += 4)
		memcpy(big + n, "A:\r\n", 4);
	assert_int_equal(got(big, 20000, 1000), 0);
	assert_true(sent_bytes < 10000);
	strcpy(big + 9017, "\r\n"); /* over the limit, and whole in one read */
	assert_int_equal(got(big, 9019, 9019), 0);
	n = sprintf(big, "HTTP/1.1 200 OK\r\n\r\n");
	big[n] = 'a';
	assert_int_equal(got(big, sizeof(big), 100000), 0);
	assert_int_equal(got(big, (size_t)n + 16 * 1024 * 1024, 100000), 200);
	assert_int_equal(body_len, 16 * 1024 * 1024);
}

static void test_silent_peer(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	start(pair[0], "GET", "/x");
	run_ms(l, 1);
	fake_clock_pass_ms(4 * 1000);
	run_ms(l, 1);
	assert_int_equal(dones, 0);
	fake_clock_pass_ms(5 * 1000);
	loop_run(l);
	assert_int_equal(status, 0);
	close(pair[1]);
}

/* R1, R4. */
static void test_cancel(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	start(pair[0], "GET", "/x");
	send(pair[1], "HTTP/1.1 200 OK\r\n\r\n", 19, 0);
	http_get_cancel(&get);
	assert_null(get);
	http_get_cancel(&get);
	run_ms(l, 2);
	assert_int_equal(dones, 0);
	close(pair[1]);
}

/* Nothing a caller passes can become a second header or request. */
static void test_unsendable(void **state)
{
	static const char *const bad[] = {"", "x", "/a b", "/a\r\nX: y", "/\x7f", "/\xc3\xa9"};
	char c;

	(void)state;
	for (size_t i = 0; i <= sizeof(bad) / sizeof(*bad); i++) {
		bool last = i == sizeof(bad) / sizeof(*bad);
		int pair[2];
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		start(pair[0], last ? "GET /\r\n" : "GET", last ? "/" : bad[i]);
		loop_run(l);
		assert_int_equal(status, 0);
		run_ms(l, 0);
		assert_int_equal(recv(pair[1], &c, 1, MSG_DONTWAIT), 0); /* closed, nothing sent */
		close(pair[1]);
	}
}

int main(void)
{
#define HTTP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    HTTP_TEST(test_request_and_answer),
	    HTTP_TEST(test_path_is_raw),
	    HTTP_TEST(test_query),
	    HTTP_TEST(test_silent_handler_is_a_500),
	    HTTP_TEST(test_methods),
	    HTTP_TEST(test_malformed_requests_never_reach_the_handler),
	    HTTP_TEST(test_limits),
	    HTTP_TEST(test_slow_client_is_dropped),
	    HTTP_TEST(test_two_requests_on_one_connection),
	    HTTP_TEST(test_free_with_open_connections),
	    HTTP_TEST(test_tcp),
	    HTTP_TEST(test_pause_without_fds),
	    HTTP_TEST(test_get_from_our_server),
	    HTTP_TEST(test_answers),
	    HTTP_TEST(test_what_is_no_answer),
	    HTTP_TEST(test_endless_answers),
	    HTTP_TEST(test_silent_peer),
	    HTTP_TEST(test_cancel),
	    HTTP_TEST(test_unsendable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
