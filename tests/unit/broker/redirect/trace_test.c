/* trace_test.c - a trace that cannot be had leaves nothing behind.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/redirect/trace.h"
#include "common/mem.h"
#include "tests/unit/broker/bpf.h"
#include <sys/epoll.h>
#include <sys/resource.h>

static const struct uuid all = {{0}};

enum { FILES_MAX = 256 };

/* Descriptors are had by nobody any more. */
static int use_up(int fd, int used[FILES_MAX])
{
	int n = 0;

	while (n < FILES_MAX && (used[n] = dup(fd)) >= 0)
		n++;
	assert_int_equal(errno, EMFILE);
	return n;
}

/* There is one for the ring, and none for the pipe: the ring is let go. */
static void test_without_a_pipe_the_ring_is_let_go(void **state)
{
	struct place *p = *state;
	auto_close int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct redirect_traces *t = redirect_traces_new(epoll, p->r);
	struct rlimit was, few;
	int used[FILES_MAX], n;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = (struct rlimit){FILES_MAX / 2, was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	n = use_up(epoll, used);
	close(used[n - 1]);
	assert_int_equal(redirect_traces_add(t, &all, &p->e), -1);
	used[n - 1] = dup(epoll);
	assert_true(used[n - 1] >= 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	while (n--)
		close(used[n]);
	auto_close int reader = redirect_traces_add(t, &all, &p->e);
	assert_true(reader >= 0);
	redirect_traces_free(&t);
}

#define BPF_TEST(f) cmocka_unit_test_setup_teardown(f, place_begin, place_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    BPF_TEST(test_without_a_pipe_the_ring_is_let_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
