/* http_later_test.c - answers that come later, whole or in parts, over the real loop and sockets.
 */
#include "base/http/http.h"

#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/loop.h"
#include "common/err.h"

static struct loop *l;
static struct http_server *server;
static struct http_later *later;
static struct http_get *get;
static struct sockaddr_un at;
static socklen_t at_len;
static int gone, ended, status;
static char parts[4096], rest[4096];

static void on_gone(void *ctx)
{
	assert_ptr_equal(ctx, &server);
	assert_null(later);
	gone++;
	loop_stop(l);
}

static void on_request(void *ctx, struct http_request *r)
{
	http_defer(r, &later, on_gone, ctx);
	loop_stop(l);
}

static int setup(void **state)
{
	struct err e;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	gone = ended = status = 0;
	parts[0] = rest[0] = '\0';
	at = (struct sockaddr_un){.sun_family = AF_UNIX};
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(fd, 4), 0);
	at_len = sizeof(at);
	getsockname(fd, (struct sockaddr *)&at, &at_len);
	l = loop_new(&e);
	server = http_server_new(l, fd, on_request, &server);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	http_get_cancel(&get);
	http_server_free(&server);
	loop_free(&l);
	return 0;
}

static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&at, at_len), 0);
	return fd;
}

static void on_done(void *ctx, int s, struct evbuffer *body)
{
	(void)ctx;
	ended++;
	status = s;
	if (body)
		rest[evbuffer_remove(body, rest, sizeof(rest) - 1)] = '\0';
	loop_stop(l);
}

static void on_part(void *ctx, struct evbuffer *in)
{
	size_t n = strlen(parts);

	(void)ctx;
	parts[n + (size_t)evbuffer_remove(in, parts + n, sizeof(parts) - 1 - n)] = '\0';
	loop_stop(l);
}

/* Asked; the server has it. */
static void ask(bool follow)
{
	http_get(l, &get, (struct http_ask){.fd = dial(), .method = "GET", .target = "/x"}, on_done,
	    NULL);
	if (follow)
		http_follow(get, on_part);
	loop_run(l);
	assert_non_null(later);
}

static struct evbuffer *text(const char *s)
{
	struct evbuffer *b = evbuffer_new();

	evbuffer_add(b, s, strlen(s));
	return b;
}

static bool send_text(const char *s)
{
	struct evbuffer *b = text(s);
	bool sent = http_later_send(later, b);

	assert_int_equal(evbuffer_get_length(b), 0);
	evbuffer_free(b);
	return sent;
}

static void test_reply(void **state)
{
	struct evbuffer *body = text("late");

	(void)state;
	ask(false);
	http_later_reply(&later, 202, "text/plain", body);
	evbuffer_free(body);
	assert_null(later);
	loop_run(l);
	assert_int_equal(status, 202);
	assert_string_equal(rest, "late");
	assert_int_equal(gone, 0);
}

static void test_parts(void **state)
{
	(void)state;
	ask(true);
	http_later_begin(later, 200, "text/plain");
	assert_true(send_text("one "));
	loop_run(l);
	assert_string_equal(parts, "one ");
	assert_true(send_text("two"));
	loop_run(l);
	assert_string_equal(parts, "one two");
	http_later_end(&later);
	assert_null(later);
	loop_run(l);
	assert_int_equal(ended, 1);
	assert_int_equal(status, 200);
	assert_int_equal(gone, 0);
}

/* A refusal is no stream: it comes whole. */
static void test_refused_stream(void **state)
{
	struct evbuffer *body = text("no such pod");

	(void)state;
	ask(true);
	http_later_reply(&later, 404, "text/plain", body);
	evbuffer_free(body);
	loop_run(l);
	assert_int_equal(status, 404);
	assert_string_equal(rest, "no such pod");
	assert_string_equal(parts, "");
}

static void test_no_answer(void **state)
{
	(void)state;
	ask(false);
	http_later_end(&later);
	assert_null(later);
	loop_run(l);
	assert_int_equal(ended, 1);
	assert_int_equal(status, 0);
	http_later_end(&later); /* an empty slot */
}

static void test_peer_goes_before_the_answer(void **state)
{
	(void)state;
	ask(false);
	http_get_cancel(&get);
	loop_run(l);
	assert_int_equal(gone, 1);
	assert_null(later);
}

static void test_peer_goes_in_the_stream(void **state)
{
	(void)state;
	ask(true);
	http_later_begin(later, 200, "text/plain");
	assert_true(send_text("one"));
	loop_run(l);
	http_get_cancel(&get);
	loop_run(l);
	assert_int_equal(gone, 1);
	assert_null(later);
}

/* What a peer does not read is dropped, within a bound; it gets the parts that were taken whole. */
static void test_peer_that_does_not_read(void **state)
{
	static char block[16 * 1024];
	int fd = dial(), sent = 0;

	(void)state;
	assert_int_equal(write(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27), 27);
	loop_run(l);
	http_later_begin(later, 200, "text/plain");
	memset(block, 'x', sizeof(block) - 1);
	while (send_text(block))
		assert_true(++sent < 1000);
	assert_true(sent >= 16);
	assert_non_null(later);
	close(fd);
	loop_run(l);
	assert_int_equal(gone, 1);
}

/* What the peer sends meanwhile is not collected. */
static void test_peer_that_talks(void **state)
{
	static const char noise[64 * 1024];
	int fd = dial();

	(void)state;
	assert_int_equal(write(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27), 27);
	loop_run(l);
	http_later_begin(later, 200, "text/plain");
	assert_true(send_text("one"));
	assert_int_equal(send(fd, noise, sizeof(noise), MSG_DONTWAIT), sizeof(noise));
	close(fd);
	loop_run(l);
	assert_int_equal(gone, 1);
}

static void test_server_goes_first(void **state)
{
	(void)state;
	ask(false);
	http_server_free(&server);
	assert_null(later);
	assert_int_equal(gone, 0);
	loop_run(l);
	assert_int_equal(status, 0);
}

#define LATER_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {LATER_TEST(test_reply), LATER_TEST(test_parts),
	    LATER_TEST(test_refused_stream), LATER_TEST(test_no_answer),
	    LATER_TEST(test_peer_goes_before_the_answer), LATER_TEST(test_peer_goes_in_the_stream),
	    LATER_TEST(test_peer_that_does_not_read), LATER_TEST(test_peer_that_talks),
	    LATER_TEST(test_server_goes_first)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
