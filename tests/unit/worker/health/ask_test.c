/* ask_test.c - one question to Envoy and through it to the app: each answer, and each way of having
 * none.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/fake/link_redirect.c tests/fake/link_volume.c
 */
#include "base/http/http.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "worker/health/ask.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

struct http_get {
	struct http_get **slot;
	http_done done;
	void *ctx;
};

static const struct uuid pod = {{7}};
static struct loop *loop;
static struct link *link_;
static struct health_ask *asking;
static struct http_get get;
static struct {
	char target[80], headers[80];
	unsigned sent, cancelled, answers;
	char why[200];
} seen;

/* --- in place of the neighbours --- */

void http_get(
    struct loop *l, struct http_get **slot, struct http_ask ask, http_done done, void *ctx)
{
	assert_ptr_equal(l, loop);
	assert_null(*slot);
	assert_string_equal(ask.method, "GET");
	assert_true(ask.status_only);
	snprintf(seen.target, sizeof(seen.target), "%s", ask.target);
	snprintf(seen.headers, sizeof(seen.headers), "%s", ask.headers ? ask.headers : "");
	seen.sent++;
	get = (struct http_get){slot, done, ctx};
	*slot = &get;
}

void http_get_cancel(struct http_get **g)
{
	seen.cancelled += *g != NULL;
	*g = NULL;
}

static void on_answered(void *ctx, const char *why)
{
	assert_ptr_equal(ctx, &seen);
	assert_null(asking); /* another one may begin here */
	seen.answers++;
	snprintf(seen.why, sizeof(seen.why), "%s", why ? why : "well");
}

/* --- steps --- */

static int setup(void **state)
{
	struct health_ask_options o = {
	    .pod = &pod, .port = 15020, .route = "/app", .headers = "X: y\r\n", .timeout_s = 3};

	(void)state;
	memset(&seen, 0, sizeof(seen));
	o.loop = loop = fake_loop();
	o.link = link_ = fake_link();
	health_ask(&asking, &o, on_answered, &seen);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	health_ask_cancel(&asking);
	assert_int_equal(fake_loop_live(loop), 0);
	link_free(&link_);
	fake_loop_end(&loop);
	return 0;
}

static void dialled(void)
{
	assert_int_equal(fake_link_dials(link_, LINK_DIAL_LOOPBACK), AF_INET);
	assert_int_equal(fake_link_dials_port(link_), 15020);
	fake_link_dialled(link_, LINK_DIAL_LOOPBACK, 9, NULL);
}

static void status(int code)
{
	assert_ptr_equal(*get.slot, &get);
	*get.slot = NULL;
	get.done(get.ctx, code, NULL);
}

static void said(const char *why)
{
	assert_int_equal(seen.answers, 1);
	assert_string_equal(seen.why, why);
	assert_int_equal(fake_link_dials(link_, LINK_DIAL_LOOPBACK), 0);
}

static void envoy_is_ready(void)
{
	dialled();
	assert_string_equal(seen.target, "/healthz/ready");
	assert_string_equal(seen.headers, "");
	status(200);
	dialled(); /* another connection */
}

/* --- the tests --- */

static void test_both_are_well(void **state)
{
	(void)state;
	envoy_is_ready();
	assert_string_equal(seen.target, "/app");
	assert_string_equal(seen.headers, "X: y\r\n");
	status(200);
	said("well");
}

static void test_the_app_is_not_asked_before_envoy_is_ready(void **state)
{
	(void)state;
	dialled();
	status(503);
	said("Envoy is not ready: status 503");
	assert_int_equal(seen.sent, 1);
}

static void test_what_the_app_answers(void **state)
{
	static const struct {
		int status;
		const char *why;
	} rows[] = {
	    {500, "the app answers with status 500"},
	    {302, "the app answers with status 302"},
	    {204, "the app answers with status 204"}, /* Envoy's script says 200 for 200 to 399 */
	    {404, "the app, or an Envoy that began before this probe, answers with status 404"},
	    {400, "the app, or an Envoy that began before this probe, answers with status 400"},
	    {0, "Envoy gives no answer on its status port 15020"},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		envoy_is_ready();
		status(rows[i].status);
		said(rows[i].why);
		teardown(state);
		setup(state);
	}
}

static void test_nobody_listens(void **state)
{
	(void)state;
	fake_link_dialled(link_, LINK_DIAL_LOOPBACK, -1, "Connection refused");
	assert_int_equal(seen.answers, 1);
	assert_non_null(strstr(seen.why, "Connection refused"));
	assert_int_equal(seen.sent, 0);
}

/* Each of the two has its time, the socket included. */
static void test_silence(void **state)
{
	(void)state;
	fake_loop_advance(loop, 2999);
	assert_int_equal(seen.answers, 0);
	fake_loop_advance(loop, 1);
	said("Envoy did not answer within 3 s");
	teardown(state);
	setup(state);
	fake_loop_advance(loop, 2000);
	envoy_is_ready();
	fake_loop_advance(loop, 2999);
	assert_int_equal(seen.answers, 0);
	fake_loop_advance(loop, 1);
	said("the app did not answer within 3 s");
	assert_int_equal(seen.cancelled, 1);
}

static void test_it_is_called_off(void **state)
{
	(void)state;
	health_ask_cancel(&asking);
	assert_int_equal(fake_link_dials(link_, LINK_DIAL_LOOPBACK), 0);
	teardown(state);
	setup(state);
	dialled();
	health_ask_cancel(&asking);
	assert_int_equal(seen.cancelled, 1);
	fake_loop_advance(loop, 10000);
	assert_int_equal(seen.answers, 0);
	health_ask_cancel(&asking); /* nothing there */
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(both_are_well),
	    TEST(the_app_is_not_asked_before_envoy_is_ready),
	    TEST(what_the_app_answers),
	    TEST(nobody_listens),
	    TEST(silence),
	    TEST(it_is_called_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
