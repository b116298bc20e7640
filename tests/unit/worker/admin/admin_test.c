/* admin_test.c - the real loop and the real server on a unix socket of a temporary directory; the
 * clients run on the same loop.  The peer must be root, so without root the tests are skipped.
 */
#include "worker/admin/admin.h"

#include <event2/buffer.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/http/http.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

LOG_SCOPE("admin_test");

static struct loop *l;
static struct admin *admin;
static char dir[32];
static struct sockaddr_un address;

static int status; /* of the last answer; -1: none came */
static char *body;

static int setup(void **state)
{
	struct err e;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	strcpy(dir, "/tmp/admin_test.XXXXXX");
	assert_non_null(mkdtemp(dir));
	address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/admin.sock", dir);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	/* Wider than the broker makes it: here only the server's own check stands. */
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(chmod(address.sun_path, 0666), 0);
	assert_int_equal(listen(fd, 16), 0);
	l = loop_new(&e);
	assert_non_null(l);
	admin = admin_new(l, fd);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	admin_free(&admin);
	loop_free(&l);
	metrics_clear();
	free(take(body));
	unlink(address.sun_path);
	rmdir(dir);
	return 0;
}

/* ---- one request ---- */

static int connect_admin(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void on_answer(void *ctx, int code, struct evbuffer *answer)
{
	size_t n = answer ? evbuffer_get_length(answer) : 0;

	assert_ptr_equal(ctx, &status);
	status = code;
	body = mem_zalloc(n + 1);
	if (n)
		evbuffer_remove(answer, body, n);
	loop_stop(l);
}

static int request_on(int fd, const char *method, const char *target)
{
	struct http_get *get = NULL;

	free(take(body));
	status = -1;
	http_get(l, &get, (struct http_ask){.fd = fd, .method = method, .target = target},
	    on_answer, &status);
	loop_run(l);
	return status;
}

static int request(const char *method, const char *target)
{
	if (geteuid() != 0)
		skip();
	return request_on(connect_admin(), method, target);
}

/* ---- pages ---- */

static int dumps;

static void serve_hostile(void *ctx, struct http_request *req)
{
	dumps++;
	admin_reply_json(req, json_pack("{s:s, s:i}", "said", ctx, "n", 7));
}

static void serve_nothing(void *ctx, struct http_request *req)
{
	(void)ctx;
	admin_reply_json(req, NULL); /* what json_pack() makes of a string that is not UTF-8 */
}

static void a_page_is_json_whatever_is_in_it(void **state)
{
	static char text[] = "quote \" slash \\ newline \n escape \x1b[2J umlaut \xc3\xbc";
	json_error_t error;
	json_t *v;

	(void)state;
	admin_serve(admin, "/one", serve_hostile, text);
	assert_int_equal(request("GET", "/one"), 200);
	v = json_loads(body, 0, &error);
	assert_non_null(v);
	assert_string_equal(json_string_value(json_object_get(v, "said")), text);
	assert_int_equal(json_integer_value(json_object_get(v, "n")), 7);
	assert_null(strchr(body, '\x1b'));
	json_decref(v);
}

static void each_page_has_its_own_context(void **state)
{
	(void)state;
	admin_serve(admin, "/one", serve_hostile, "first");
	admin_serve(admin, "/two", serve_hostile, "second");
	assert_int_equal(request("GET", "/two?x=1"), 200);
	assert_non_null(strstr(body, "second"));
	assert_int_equal(request("GET", "/one"), 200);
	assert_non_null(strstr(body, "first"));
}

/* The path is compared byte for byte: no second spelling of a page. */
static void an_unknown_path_is_404(void **state)
{
	static const char *const others[] = {
	    "/", "/onE", "/one/", "//one", "/%6fne", "/on", "/onee", "/healthz/"};

	(void)state;
	admin_serve(admin, "/one", serve_hostile, "x");
	dumps = 0;
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		assert_int_equal(request("GET", others[i]), 404);
		assert_string_equal(body, "no such page\n");
	}
	assert_int_equal(dumps, 0);
}

static void a_page_can_only_be_read(void **state)
{
	static const char *const pages[] = {"/one", "/healthz", "/metrics", "/none"};
	static const char *const methods[] = {"POST", "PUT", "DELETE"};

	(void)state;
	admin_serve(admin, "/one", serve_hostile, "x");
	dumps = 0;
	for (size_t i = 0; i < 4; i++)
		for (size_t m = 0; m < 3; m++)
			assert_int_equal(request(methods[m], pages[i]), 405);
	assert_int_equal(dumps, 0);
}

static void a_page_that_cannot_be_said_is_500(void **state)
{
	(void)state;
	admin_serve(admin, "/none", serve_nothing, NULL);
	assert_int_equal(request("GET", "/none"), 500);
	assert_string_equal(body, "agentd cannot write this as JSON\n");
	assert_int_equal(request("GET", "/healthz"), 200);
}

static void healthz_is_ok(void **state)
{
	(void)state;
	assert_int_equal(request("GET", "/healthz"), 200);
	assert_string_equal(body, "ok\n");
}

/* ---- metrics ---- */

static struct metric *gauge;
static int measured;

static void on_before_metrics(void *ctx)
{
	assert_ptr_equal(ctx, &gauge);
	metric_set(gauge, "", ++measured);
}

static void gauges_are_measured_before_the_page_is_made(void **state)
{
	(void)state;
	measured = 0;
	gauge = metric_gauge("agentd_test", "A test.");
	admin_before_metrics(admin, on_before_metrics, &gauge);
	for (int i = 1; i <= 2; i++) {
		auto_free char *line = mem_printf("\nagentd_test %d\n", i);

		assert_int_equal(request("GET", "/metrics"), 200);
		assert_int_equal(measured, i);
		assert_non_null(strstr(body, line));
		assert_memory_equal(body, "# HELP agentd_test", 18);
	}
	assert_int_equal(request("GET", "/healthz"), 200);
	assert_int_equal(request("POST", "/metrics"), 405);
	assert_int_equal(measured, 2);
}

static void metrics_without_a_hook_or_a_sample_are_an_empty_page(void **state)
{
	(void)state;
	assert_int_equal(request("GET", "/metrics"), 200);
	assert_string_equal(body, "");
}

/* Much more than a socket takes at once. */
static void a_long_metrics_page_arrives_whole(void **state)
{
	enum { SAMPLES = 30000 };
	struct metric *m = metric_counter("agentd_test_total", "A test.");
	size_t lines = 0;

	(void)state;
	for (int i = 0; i < SAMPLES; i++) {
		auto_free char *pod = mem_printf("a-pod-with-a-rather-long-name-%06d", i);
		char labels[100];

		metric_add(m, metric_labels(labels, sizeof(labels), "pod", pod, NULL), 1);
	}
	assert_int_equal(request("GET", "/metrics"), 200);
	for (const char *p = body; (p = strchr(p, '\n')); p++)
		lines++;
	assert_int_equal(lines, SAMPLES + 2);
	assert_non_null(strstr(body, "name-029999\"} 1\n"));
}

/* ---- levels ---- */

static const char *level(void)
{
	return log_scope_.level == LOG_DEBUG ? "debug" : log_scope_.level == LOG_INFO ? "info" : "";
}

static int reset_levels(void **state)
{
	struct err e;

	assert_int_equal(log_set_levels("default:info", &e), 0);
	return teardown(state);
}

static void levels_are_shown(void **state)
{
	json_t *v;

	(void)state;
	assert_int_equal(request("GET", "/logging"), 200);
	v = json_loads(body, 0, NULL);
	assert_non_null(v);
	assert_string_equal(json_string_value(json_object_get(v, "admin")), "info");
	assert_string_equal(json_string_value(json_object_get(v, "admin_test")), "info");
	json_decref(v);
}

static void a_level_is_changed_by_a_post_and_shown(void **state)
{
	json_t *v;

	(void)state;
	assert_int_equal(request("POST", "/logging?level=admin_test:debug"), 200);
	assert_string_equal(level(), "debug");
	v = json_loads(body, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(v, "admin_test")), "debug");
	assert_string_equal(json_string_value(json_object_get(v, "admin")), "info");
	json_decref(v);
}

static void count(void *ctx)
{
	++*(int *)ctx;
}

static void who_wants_to_know_is_told(void **state)
{
	int told = 0;

	(void)state;
	admin_on_levels(admin, count, &told);
	assert_int_equal(request("POST", "/logging?level=nobody:debug"), 400);
	assert_int_equal(request("GET", "/logging"), 200);
	assert_int_equal(told, 0);
	assert_int_equal(request("POST", "/logging?level=debug"), 200);
	assert_int_equal(told, 1);
}

static void other_methods_change_no_level(void **state)
{
	static const char *const methods[] = {"GET", "PUT", "DELETE"};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(request(methods[i], "/logging?level=debug"), 405);
		assert_string_equal(level(), "info");
	}
	assert_int_equal(request("DELETE", "/logging"), 405);
}

static void a_level_that_is_none_is_refused_and_named(void **state)
{
	(void)state;
	assert_int_equal(request("POST", "/logging?level=admin_test:loud"), 400);
	assert_non_null(strstr(body, "\"loud\""));
	assert_int_equal(request("POST", "/logging?level=nobody:debug"), 400);
	assert_non_null(strstr(body, "\"nobody\""));
	/* All or nothing. */
	assert_int_equal(request("POST", "/logging?level=admin_test:debug,nobody:debug"), 400);
	/* An escape sequence does not come back. */
	assert_int_equal(request("POST", "/logging?level=%1b%5b2J:debug"), 400);
	assert_null(strchr(body, '\x1b'));
	assert_string_equal(level(), "info");
}

static void a_post_without_a_level_changes_nothing(void **state)
{
	static const char *const targets[] = {
	    "/logging", "/logging?", "/logging?lvl=debug", "/logging?level=debug%00x"};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(request("POST", targets[i]), 400);
		assert_string_equal(level(), "info");
	}
}

/* ---- who may ---- */

static int connect_as_nobody(void)
{
	int fd;

	if (geteuid() != 0)
		skip();
	assert_int_equal(seteuid(65534), 0); /* the kernel notes the peer when it connects */
	fd = connect_admin();
	assert_int_equal(seteuid(0), 0);
	return fd;
}

/* Root of a pod that was given the path; its user namespace is the node's. */
static int connect_from_elsewhere(void)
{
	int home, fd;

	if (geteuid() != 0)
		skip();
	home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	fd = connect_admin();
	assert_int_equal(setns(home, CLONE_NEWNET), 0);
	close(home);
	return fd;
}

static void only_the_nodes_own_network_is_answered(void **state)
{
	(void)state;
	admin_serve(admin, "/one", serve_hostile, "x");
	dumps = 0;
	assert_int_equal(request_on(connect_from_elsewhere(), "GET", "/one"), 403);
	assert_non_null(strstr(body, "in agentd's own network namespace"));
	assert_int_equal(request_on(connect_from_elsewhere(), "POST", "/logging?level=debug"), 403);
	assert_string_equal(level(), "info");
	assert_int_equal(dumps, 0);
	assert_int_equal(request("GET", "/one"), 200);
}

static void only_root_is_answered(void **state)
{
	static const char *const targets[] = {"/one", "/healthz", "/metrics", "/logging", "/none"};

	(void)state;
	admin_serve(admin, "/one", serve_hostile, "x");
	dumps = measured = 0;
	gauge = metric_gauge("agentd_test", "A test.");
	admin_before_metrics(admin, on_before_metrics, &gauge);
	for (size_t i = 0; i < 5; i++) {
		assert_int_equal(request_on(connect_as_nobody(), "GET", targets[i]), 403);
		assert_string_equal(body, "only root may use this socket\n");
	}
	assert_int_equal(request_on(connect_as_nobody(), "POST", "/logging?level=debug"), 403);
	assert_string_equal(level(), "info");
	assert_int_equal(dumps + measured, 0);
}

/* ---- limits ---- */

static int raw_fd;
static struct loop_fd raw_watch;
static char raw_answer[4096];
static size_t raw_len;

static void on_raw(void *ctx)
{
	ssize_t n =
	    recv(raw_fd, raw_answer + raw_len, sizeof(raw_answer) - 1 - raw_len, MSG_DONTWAIT);

	(void)ctx;
	if (n > 0) {
		raw_len += (size_t)n;
		return;
	}
	raw_answer[raw_len] = '\0';
	loop_stop(l);
}

/* Send `bytes`, read until the server closes. */
static void exchange(const char *bytes)
{
	if (geteuid() != 0)
		skip();
	raw_fd = connect_admin();
	raw_len = 0;
	assert_int_equal(send(raw_fd, bytes, strlen(bytes), MSG_NOSIGNAL), strlen(bytes));
	loop_fd_watch(l, &raw_watch, raw_fd, LOOP_READ, on_raw, NULL);
	loop_run(l);
	loop_fd_stop(&raw_watch);
	close(raw_fd);
}

static void a_request_over_the_limits_is_refused(void **state)
{
	auto_free char *target = mem_zalloc(9000);

	(void)state;
	exchange(
	    "POST /logging?level=debug HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
	assert_memory_equal(raw_answer, "HTTP/1.1 413 ", 13);
	memset(target, 'a', 8999);
	memcpy(target, "/logging?level=debug&x=", 23);
	assert_int_not_equal(request("POST", target), 200);
	assert_string_equal(level(), "info");
	assert_int_equal(request("GET", "/healthz"), 200);
}

static void what_is_no_request_is_refused(void **state)
{
	static const char *const texts[] = {
	    "\x16\x03\x01\x02\r\n\r\n", "GET\r\n\r\n", "BREW /healthz HTTP/1.1\r\n\r\n"};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		exchange(texts[i]);
		assert_null(strstr(raw_answer, " 200 "));
	}
	assert_int_equal(request("GET", "/healthz"), 200);
}

static void an_open_connection_ends_with_the_server(void **state)
{
	char c;
	int fd = connect_admin();

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(send(fd, "GET /heal", 9, 0), 9);
	request("GET", "/healthz"); /* by now it is accepted */
	admin_free(&admin);
	admin_free(&admin);
	assert_null(admin);
	assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), 0);
	close(fd);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, reset_levels)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    test(a_page_is_json_whatever_is_in_it),
	    test(each_page_has_its_own_context),
	    test(an_unknown_path_is_404),
	    test(a_page_can_only_be_read),
	    test(a_page_that_cannot_be_said_is_500),
	    test(healthz_is_ok),
	    test(gauges_are_measured_before_the_page_is_made),
	    test(metrics_without_a_hook_or_a_sample_are_an_empty_page),
	    test(a_long_metrics_page_arrives_whole),
	    test(levels_are_shown),
	    test(a_level_is_changed_by_a_post_and_shown),
	    test(who_wants_to_know_is_told),
	    test(other_methods_change_no_level),
	    test(a_level_that_is_none_is_refused_and_named),
	    test(a_post_without_a_level_changes_nothing),
	    test(only_root_is_answered),
	    test(only_the_nodes_own_network_is_answered),
	    test(a_request_over_the_limits_is_refused),
	    test(what_is_no_request_is_refused),
	    test(an_open_connection_ends_with_the_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
