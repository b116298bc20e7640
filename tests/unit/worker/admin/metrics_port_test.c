/* metrics_port_test.c - the real server over TCP and its two pages; on a clock that stands still.
 * LINK: tests/fake/clock.c */
#include "worker/admin/metrics_port.h"

#include <event2/buffer.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/http/http.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "tests/fake/clock.h"

static struct loop *l;
static struct metrics_port *port;
static struct sockaddr_in address;
static struct metric *scrapes, *many;
static unsigned nscrapes;
static const char *why_not;

static int status; /* of the last answer */
static char *body;

static void on_before(void *ctx)
{
	assert_ptr_equal(ctx, &port);
	metric_set(scrapes, "", ++nscrapes);
}

static const char *on_health(void *ctx)
{
	assert_ptr_equal(ctx, &port);
	return why_not;
}

static int setup(void **state)
{
	socklen_t size = sizeof(address);
	struct err e;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	address =
	    (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 16), 0);
	getsockname(fd, (struct sockaddr *)&address, &size);
	l = loop_new(&e);
	nscrapes = 0;
	why_not = NULL;
	scrapes = metric_gauge("test_scrapes", "Of this test.");
	many = metric_gauge("test_many", "A page that fits into no socket.");
	port = metrics_port_new(
	    l, fd, &(struct metrics_port_rig){.before = on_before, .why_not = on_health, &port});
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	metrics_port_free(&port);
	loop_free(&l);
	metrics_clear();
	free(take(body));
	return 0;
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void on_answer(void *ctx, int code, struct evbuffer *answer)
{
	size_t n = answer ? evbuffer_get_length(answer) : 0;

	(void)ctx;
	status = code;
	free(body);
	body = mem_zalloc(n + 1);
	if (n)
		evbuffer_remove(answer, body, n);
	loop_stop(l);
}

static int ask(const char *method, const char *target)
{
	struct http_get *get = NULL;

	http_get(l, &get, (struct http_ask){.fd = dial(), .method = method, .target = target},
	    on_answer, NULL);
	loop_run(l);
	return status;
}

static void test_a_page_is_made_once_a_second(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ask("GET", "/metrics"), 200);
		assert_string_equal(body, "# HELP test_scrapes Of this test.\n"
					  "# TYPE test_scrapes gauge\ntest_scrapes 1\n");
	}
	fake_clock_pass_ms(1000);
	assert_int_equal(ask("GET", "/metrics?name=x"), 200);
	assert_non_null(strstr(body, "\ntest_scrapes 2\n"));
	assert_int_equal(nscrapes, 2);
}

/* What many are still reading is there once, and as it was. */
static void test_a_slow_reader_has_its_page(void **state)
{
	char labels[64], *got = mem_zalloc(64 << 20);
	size_t n = 0;
	ssize_t rc;
	int fds[4];

	(void)state;
	for (int i = 0; i < 200000; i++)
		metric_set(many,
		    metric_labels(
			labels, sizeof(labels), "n", (snprintf(got, 32, "%d", i), got), NULL),
		    i);
	for (int i = 0; i < 4; i++) {
		fds[i] = dial();
		assert_int_equal(send(fds[i], "GET /metrics HTTP/1.1\r\n\r\n", 25, 0), 25);
		fcntl(fds[i], F_SETFL, O_NONBLOCK);
	}
	for (int i = 0; i < 4; i++)
		while (recv(fds[i], got, 1, MSG_PEEK) != 1)
			ask("GET", "/healthz"); /* a turn of the loop */
	assert_int_equal(nscrapes, 1);
	fake_clock_pass_ms(1000);
	assert_int_equal(ask("GET", "/healthz"), 200);
	metrics_drop("n=");
	assert_int_equal(ask("GET", "/metrics"), 200); /* another page took its place */
	assert_null(strstr(body, "test_many"));
	while ((rc = recv(fds[2], got + n, (64 << 20) - n - 1, 0)) != 0) {
		if (rc > 0)
			n += (size_t)rc;
		else
			ask("GET", "/healthz");
	}
	assert_non_null(memmem(got, n, "test_many{n=\"199999\"} 199999\n", 29));
	for (int i = 0; i < 4; i++)
		close(fds[i]);
	free(got);
}

static void test_health_has_a_reason(void **state)
{
	(void)state;
	why_not = "starting: some previous pods";
	assert_int_equal(ask("GET", "/healthz"), 503);
	assert_string_equal(body, "starting: some previous pods\n");
	assert_int_equal(ask("GET", "/metrics"), 200);
	why_not = NULL;
	assert_int_equal(ask("GET", "/healthz"), 200);
	assert_string_equal(body, "ok\n");
}

/* Nothing of the admin socket, however it is written. */
static void test_nothing_else_is_there(void **state)
{
	static const char *const others[] = {"/", "/status", "/pods", "/certs", "/xds", "/version",
	    "/logging", "/logging?level=debug", "/redirect", "/dns", "/healthz/", "/healthz/ready",
	    "/metrics/", "/metrics/..", "/./metrics", "//metrics", "/%6detrics", "/metrics%3F",
	    "/METRICS", "/metrics#x", "/stats/prometheus", "/quitquitquit"};

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (ask("GET", others[i]) != 404)
			fail_msg("%s: %d", others[i], status);
	for (const char *const *m = (const char *[]){"POST", "PUT", "DELETE", NULL}; *m; m++) {
		assert_int_equal(ask(*m, "/logging?level=debug"), 405);
		assert_int_equal(ask(*m, "/metrics"), 405);
	}
	assert_int_equal(nscrapes, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(test_a_page_is_made_once_a_second),
	    T(test_a_slow_reader_has_its_page),
	    T(test_health_has_a_reason),
	    T(test_nothing_else_is_there),
	};

	fake_clock_stop();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
