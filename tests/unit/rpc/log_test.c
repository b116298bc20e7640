/* log_test.c - what becomes of grpc's own log lines: secrets stay out, floods are cut.
 * LINK: tests/unit/rpc/rpc_rig.c tests/fake/clock.c */
#include "rpc_rig.h"

#include "common/log.h"
#include "rpc/rpc_internal.h"
#include "tests/fake/clock.h"

#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <stdio.h>
#include <sys/mman.h>

static int capture_fd, stderr_fd;

static void capture_begin(void)
{
	fflush(stderr);
	stderr_fd = dup(2);
	capture_fd = memfd_create("stderr", MFD_CLOEXEC);
	dup2(capture_fd, 2);
}

/* All that was logged since; valid until the next call. */
static const char *capture_end(void)
{
	static char text[64 << 10];

	fflush(stderr);
	dup2(stderr_fd, 2);
	close(stderr_fd);
	ssize_t n = pread(capture_fd, text, sizeof(text) - 1, 0);

	assert_true(n >= 0);
	text[n] = '\0';
	close(capture_fd);
	return text;
}

static int begin(void **state)
{
	(void)state;
	rpc_log_init();
	return 0;
}

static void test_errors_become_warnings(void **state)
{
	(void)state;
	const char *log;

	capture_begin();
	gpr_log(
	    "/build/src/core/some_file.cc", 12, GPR_LOG_SEVERITY_ERROR, "it did %s", "not work");
	gpr_log("x.cc", 13, GPR_LOG_SEVERITY_INFO, "chatter");
	log = capture_end();
	assert_non_null(strstr(log, "level=warn"));
	assert_non_null(strstr(log, "scope=grpc"));
	assert_non_null(strstr(log, "some_file.cc:12: it did not work"));
	assert_null(strstr(log, "/build/"));
	assert_null(strstr(log, "chatter"));
}

/* An illegal value given to core itself, as if our check before it were missing: core tells it to
 * its log in full (grpc-core.md 4), ours does not get it, neither as text nor as hex. */
static void test_core_does_not_get_a_token_into_the_log(void **state)
{
	(void)state;
	struct err e;
	struct loop *l = loop_new(&e);
	struct rpc *r = rpc_new(l);
	grpc_channel_credentials *plain = grpc_insecure_credentials_create();
	grpc_channel *c = grpc_channel_create("unix:/nonexistent", plain, NULL);
	grpc_call *call = grpc_channel_create_call(c, NULL, GRPC_PROPAGATE_DEFAULTS, r->cq,
	    grpc_slice_from_static_string("/x/Y"), NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	grpc_metadata m = {.key = grpc_slice_from_static_string("authorization"),
	    .value = grpc_slice_from_static_string("Bearer top-secret-token\n")};
	grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA,
	    .data.send_initial_metadata = {.count = 1, .metadata = &m}};
	const char *log;

	capture_begin();
	grpc_call_error got = grpc_call_start_batch(call, &op, 1, &op, NULL);

	log = capture_end();
	assert_int_equal(got, GRPC_CALL_ERROR_INVALID_METADATA);
	assert_non_null(strstr(log, "not shown"));
	assert_null(strcasestr(log, "top-secret"));
	assert_null(strcasestr(log, "74 6f 70")); /* "top" */
	assert_null(strcasestr(log, "746f70"));
	grpc_call_unref(call);
	grpc_channel_destroy(c);
	grpc_channel_credentials_release(plain);
	rpc_free(&r);
	loop_free(&l);
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

/* A peer decides how often grpc complains about it. */
static void test_floods_are_cut(void **state)
{
	(void)state;

	fake_clock_stop();
	for (unsigned second = 0; second < 2; second++) {
		fake_clock_pass_ms(1000);
		capture_begin();
		for (unsigned i = 0; i < 1000; i++)
			gpr_log("x.cc", 1, GPR_LOG_SEVERITY_ERROR, "garbage from a peer");
		assert_int_equal(count(capture_end(), "garbage"), 5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_errors_become_warnings),
	    cmocka_unit_test(test_core_does_not_get_a_token_into_the_log),
	    cmocka_unit_test(test_floods_are_cut),
	};

	return cmocka_run_group_tests(tests, begin, NULL);
}
