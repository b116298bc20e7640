/* public_test.c - the real loop and real connections over TCP; ten seconds take none.
 * LINK: tests/fake/clock.c tests/unit/open_fds.c tests/unit/base/loop_rig.c */
#include "base/http/public.h"
#include "tests/unit/base/loop_rig.h"
#include "tests/unit/open_fds.h"

#include <event2/buffer.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/loop.h"
#include "common/err.h"
#include "tests/fake/clock.h"

enum { LARGE = 32 << 20, TURNS_MAX = 10000 };

static struct loop *l;
static struct http_public *server;
static int listener; /* a copy, as the broker has one */
static struct sockaddr_in address;
static char seen[1024]; /* paths that were asked for */
static int fds_before;

static void make(void *ctx, const char *path, struct page *page)
{
	assert_ptr_equal(ctx, &server);
	assert_int_equal(page->status, 404);
	strncat(seen, path, sizeof(seen) - strlen(seen) - 2);
	strcat(seen, ";");
	if (!strcmp(path, "/none"))
		return;
	page->status = strcmp(path, "/ill") ? 200 : 503;
	evbuffer_add_printf(page->body, "this is %s\n", path);
	if (!strcmp(path, "/large")) {
		char *x = calloc(1, LARGE);
		evbuffer_add(page->body, x, LARGE);
		free(x);
	}
}

static int setup(void **state)
{
	socklen_t size = sizeof(address);
	struct err e;

	(void)state;
	*seen = '\0';
	l = loop_new(&e);
	address =
	    (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 256), 0);
	getsockname(listener, (struct sockaddr *)&address, &size);
	server = http_public_new(l, dup(listener), make, &server);
	fds_before = open_fds();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	http_public_free(&server);
	loop_free(&l);
	close(listener);
	return 0;
}

/* --- a client --- */

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static void say(int fd, const char *bytes, size_t n)
{
	assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
}

static struct client {
	int fd, error; /* of the last recv; 0: the end */
	struct loop_fd readable;
	size_t got;
	char answer[4096];
} client;

static void on_answer(void *ctx)
{
	struct client *c = ctx;
	ssize_t n = recv(c->fd, c->answer + c->got, sizeof(c->answer) - 1 - c->got, 0);

	if (n > 0) {
		c->got += (size_t)n;
		return;
	}
	c->error = n ? errno : 0;
	loop_stop(l);
}

/* What comes until the server ends the connection. */
static const char *hear(int fd)
{
	client = (struct client){.fd = fd, .error = -1};
	loop_fd_watch(l, &client.readable, fd, LOOP_READ, on_answer, &client);
	loop_run(l);
	loop_fd_stop(&client.readable);
	close(fd);
	return client.answer;
}

static const char *ask_bytes(const char *bytes, size_t n)
{
	int fd = dial();

	say(fd, bytes, n);
	return hear(fd);
}

static const char *ask(const char *text)
{
	return ask_bytes(text, strlen(text));
}

static bool begins(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* Nothing of it is left; the peer's end may take some turns. */
static void expect_no_connection(void)
{
	for (int turns = 0; turns < TURNS_MAX && open_fds() != fds_before; turns++)
		run_ms(l, 1);
	assert_int_equal(open_fds(), fds_before);
}

/* --- requests --- */

static void test_request_and_answer(void **state)
{
	(void)state;
	assert_string_equal(ask("GET /page HTTP/1.1\r\nHost: x\r\nX: y\r\n\r\n"),
	    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n"
	    "Connection: close\r\n\r\nthis is /page\n");
	assert_string_equal(ask("GET /none HTTP/1.0\r\n\r\n"),
	    "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n"
	    "Connection: close\r\n\r\nNot Found\n");
	assert_true(
	    begins(ask("GET /ill HTTP/1.1\r\n\r\n"), "HTTP/1.1 503 Service Unavailable\r\n"));
	assert_string_equal(seen, "/page;/none;/ill;");
	expect_no_connection();
}

/* security-rules.md 9: who decodes, can be tricked. */
static void test_path_is_raw(void **state)
{
	(void)state;
	ask("GET /a%2Fb/../%2e//c?d=/e?f HTTP/1.1\r\n\r\n");
	ask("GET /x? HTTP/1.1\r\n\r\n");
	ask("GET http://host/x HTTP/1.1\r\n\r\n");
	assert_string_equal(seen, "/a%2Fb/../%2e//c;/x;http://host/x;");
}

static void test_byte_by_byte(void **state)
{
	static const char text[] = "GET /page HTTP/1.1\r\nHost: \rx\r\n\r\n";
	int fd = dial();

	(void)state;
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		assert_string_equal(seen, "");
		say(fd, text + i, 1);
		run_ms(l, 0);
	}
	assert_true(begins(hear(fd), "HTTP/1.1 200 "));
}

static void test_what_is_no_get_is_refused(void **state)
{
	static const struct {
		const char *text, *answer;
	} rows[] = {{"POST /page HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed\r\n"},
	    {"PUT /page HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
	    {"get /page HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
	    {" /page HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
	    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n"},
	    {"GET /page\r\n\r\n", "HTTP/1.1 400 "}, {"GET /page \r\n\r\n", "HTTP/1.1 400 "},
	    {"GET  /page HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
	    {"GET /page HTTP/1.1 \r\n\r\n", "HTTP/1.1 400 "},
	    {"GET /page HTTP/1.10\r\n\r\n", "HTTP/1.1 400 "},
	    {"GET /page x HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "}, {"\r\n\r\n", "HTTP/1.1 400 "},
	    {"\r\nGET /page HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
	    {"\x16\x03\x01\x02\xfc\xff\r\n\r\n", "HTTP/1.1 400 "}};
	static const char nul[] = "GET /page\0x HTTP/1.1\r\n\r\n";

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!begins(ask(rows[i].text), rows[i].answer))
			fail_msg("%s: %s", rows[i].text, client.answer);
	assert_non_null(strstr(ask(rows[0].text), "\r\nAllow: GET, HEAD\r\n"));
	assert_true(begins(ask_bytes(nul, sizeof(nul) - 1), "HTTP/1.1 400 "));
	assert_string_equal(seen, "");
	expect_no_connection();
}

/* As a GET is answered, without its body. */
static void test_the_head_alone(void **state)
{
	char *get, *end;

	(void)state;
	get = strdup(ask("GET /page HTTP/1.1\r\n\r\n"));
	end = strstr(get, "\r\n\r\n");
	assert_non_null(end);
	assert_true(strlen(end) > 4);
	end[4] = '\0';
	assert_string_equal(ask("HEAD /page HTTP/1.1\r\n\r\n"), get);
	assert_true(begins(ask("HEAD /none HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 "));
	assert_true(begins(ask("HEAD /page HTTP/2.0\r\n\r\n"), "HTTP/1.1 400 "));
	assert_string_equal(seen, "/page;/page;/none;");
	free(get);
	expect_no_connection();
}

static void test_head_has_a_limit(void **state)
{
	static char text[PAGE_REQUEST_MAX + 1];

	(void)state;
	memset(text, 'x', sizeof(text));
	memcpy(text, "GET /page HTTP/1.1\r\nX: ", 23);
	assert_true(begins(
	    ask_bytes(text, PAGE_REQUEST_MAX), "HTTP/1.1 431 Request Header Fields Too Large\r\n"));
	assert_string_equal(seen, "");
	memcpy(text + PAGE_REQUEST_MAX - 4, "\r\n\r\n", 4);
	assert_true(begins(ask_bytes(text, PAGE_REQUEST_MAX), "HTTP/1.1 200 "));
}

/* A body, or a second request: no answer, but no reset either. */
static void test_what_comes_behind_is_read_and_forgotten(void **state)
{
	enum { BODY = 300 * 1024 };
	char *text = calloc(1, BODY);
	size_t n = (size_t)sprintf(text, "GET /page HTTP/1.1\r\nContent-Length: %d\r\n\r\n", BODY);
	int fd = dial();

	(void)state;
	memcpy(text + n, "GET /other HTTP/1.1\r\n\r\n", 23);
	for (size_t sent = 0; sent < BODY;) {
		ssize_t rc = send(fd, text + sent, BODY - sent, MSG_NOSIGNAL);
		if (rc > 0)
			sent += (size_t)rc;
		else
			run_ms(l, 1);
	}
	free(text);
	assert_true(begins(hear(fd), "HTTP/1.1 200 "));
	assert_null(strstr(client.answer + 1, "HTTP/1.1"));
	assert_int_equal(client.error, 0);
	assert_string_equal(seen, "/page;");
	expect_no_connection();
}

static void test_what_comes_behind_has_a_limit(void **state)
{
	static const char bytes[64 * 1024];
	int fd = dial();
	size_t sent = 0;
	int error = 0;

	(void)state;
	say(fd, "GET /page HTTP/1.1\r\n\r\n", 22);
	while (sent < 64 * (size_t)PAGE_BEHIND_MAX && (!error || error == EAGAIN)) {
		ssize_t n = send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		error = n < 0 ? errno : 0;
		sent += n < 0 ? 0 : (size_t)n;
		run_ms(l, 1);
	}
	assert_true(error == ECONNRESET || error == EPIPE);
	assert_true(sent > PAGE_BEHIND_MAX);
	close(fd);
	expect_no_connection();
}

/* `nc -N`, and who thinks better of it. */
static void test_the_peer_may_end_first(void **state)
{
	int fd = dial();

	(void)state;
	say(fd, "GET /page HTTP/1.0\r\n\r\n", 22);
	shutdown(fd, SHUT_WR);
	assert_true(begins(hear(fd), "HTTP/1.1 200 "));
	fd = dial();
	say(fd, "GET /half", 9);
	shutdown(fd, SHUT_WR);
	assert_string_equal(hear(fd), "");
	fd = dial();
	say(fd, "GET /large HTTP/1.0\r\n\r\n", 23);
	run_ms(l, 2);
	close(fd); /* a reset: the answer is in it */
	expect_no_connection();
}

/* --- limits --- */

static bool is_open(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

static void test_the_oldest_goes_for_the_next(void **state)
{
	int idle[PAGE_CONNECTIONS_MAX];

	(void)state;
	for (int i = 0; i < PAGE_CONNECTIONS_MAX; i++) {
		idle[i] = dial();
		run_ms(l, 0);
	}
	run_ms(l, 2);
	assert_true(is_open(idle[0]));
	assert_true(begins(ask("GET /page HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 "));
	assert_false(is_open(idle[0]));
	for (int i = 1; i < PAGE_CONNECTIONS_MAX; i++)
		assert_true(is_open(idle[i]));
	for (int i = 0; i < PAGE_CONNECTIONS_MAX; i++)
		close(idle[i]);
	expect_no_connection();
}

static void test_a_hundred_idle_ones_stop_nobody(void **state)
{
	int idle[100];

	(void)state;
	for (int i = 0; i < 100; i++)
		idle[i] = dial();
	assert_true(begins(ask("GET /page HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 "));
	for (int i = 0; i < 100; i++)
		close(idle[i]);
	expect_no_connection();
}

static void test_silence_has_its_end(void **state)
{
	int fd = dial();

	(void)state;
	run_ms(l, 1);
	fake_clock_pass_ms(PAGE_SECONDS_MAX / 2 * 1000);
	run_ms(l, 1);
	assert_true(is_open(fd));
	fake_clock_pass_ms(PAGE_SECONDS_MAX / 2 * 1000);
	assert_string_equal(hear(fd), "");
	expect_no_connection();
}

/* A byte now and then is no progress. */
static void test_a_trickle_has_the_same_end(void **state)
{
	int fd = dial();

	(void)state;
	for (int i = 0; i < PAGE_SECONDS_MAX; i++) {
		assert_true(
		    is_open(fd) || i > PAGE_SECONDS_MAX / 2); /* the real clock goes on, too */
		say(fd, "G", 1);
		run_ms(l, 1);
		fake_clock_pass_ms(1000);
	}
	assert_string_equal(hear(fd), "");
}

static void test_who_does_not_read_has_the_same_end(void **state)
{
	int fd = dial();
	char bytes[65536];
	ssize_t n;
	size_t got = 0;

	(void)state;
	say(fd, "GET /large HTTP/1.1\r\n\r\n", 23);
	while (recv(fd, bytes, 1, MSG_PEEK) < 0)
		run_ms(l, 1); /* until it is being answered */
	fake_clock_pass_ms(PAGE_SECONDS_MAX * 1000);
	run_ms(l, 2);
	fcntl(fd, F_SETFL, 0);
	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		got += (size_t)n;
	assert_true(got > 0 && got < LARGE);
	close(fd);
	expect_no_connection();
}

/* Answered, and told so: but he does not close. */
static void test_who_does_not_close_has_the_same_end(void **state)
{
	int fd = dial();

	(void)state;
	say(fd, "GET /page HTTP/1.1\r\n\r\n", 22);
	run_ms(l, 2);
	assert_int_equal(open_fds(), fds_before + 2);
	fake_clock_pass_ms(PAGE_SECONDS_MAX * 1000);
	run_ms(l, 2);
	assert_int_equal(open_fds(), fds_before + 1);
	close(fd);
}

/* --- its end --- */

static void test_stopped_it_answers_who_is_there(void **state)
{
	int there = dial(), late;

	(void)state;
	run_ms(l, 2);
	http_public_stop_accepting(server);
	late = dial();
	say(late, "GET /late HTTP/1.1\r\n\r\n", 22);
	say(there, "GET /there HTTP/1.1\r\n\r\n", 23);
	assert_true(begins(hear(there), "HTTP/1.1 200 "));
	assert_string_equal(seen, "/there;");
	http_public_free(&server);
	server = http_public_new(l, dup(listener), make, &server); /* the next worker's */
	assert_true(begins(hear(late), "HTTP/1.1 200 "));
}

static void test_freed_with_connections_in_all_states(void **state)
{
	int fds[3] = {dial(), dial(), dial()};

	(void)state;
	say(fds[1], "GET /large HTTP/1.1\r\n\r\n", 23);
	say(fds[2], "GET /page HTTP/1.1\r\n\r\n", 22);
	run_ms(l, 5);
	http_public_free(&server);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	assert_int_equal(open_fds(), fds_before - 1); /* the listener, too */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(test_request_and_answer),
	    T(test_path_is_raw),
	    T(test_byte_by_byte),
	    T(test_what_is_no_get_is_refused),
	    T(test_the_head_alone),
	    T(test_head_has_a_limit),
	    T(test_what_comes_behind_is_read_and_forgotten),
	    T(test_what_comes_behind_has_a_limit),
	    T(test_the_peer_may_end_first),
	    T(test_the_oldest_goes_for_the_next),
	    T(test_a_hundred_idle_ones_stop_nobody),
	    T(test_silence_has_its_end),
	    T(test_a_trickle_has_the_same_end),
	    T(test_who_does_not_read_has_the_same_end),
	    T(test_who_does_not_close_has_the_same_end),
	    T(test_stopped_it_answers_who_is_there),
	    T(test_freed_with_connections_in_all_states),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
