/* accept_test.c - real sockets on the virtual clock.
 * LINK: tests/fake/loop.c
 */
#include "base/accept.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/fake/loop.h"

enum { MANY = 40 };

static struct loop *l;
static struct accept *a;
static struct sockaddr_un name;
static socklen_t name_len;
static int listener, kept;
static int accepted[MANY], naccepted;
static bool free_inside;

static void on_accepted(void *ctx, int fd)
{
	assert_ptr_equal(ctx, &naccepted);
	accepted[naccepted++] = fd;
	if (free_inside)
		accept_free(&a);
}

static int setup(void **state)
{
	(void)state;
	naccepted = 0;
	free_inside = false;
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	name = (struct sockaddr_un){.sun_family = AF_UNIX}; /* the kernel picks an abstract name */
	name_len = sizeof(sa_family_t);
	if (bind(listener, (struct sockaddr *)&name, name_len) < 0 || listen(listener, MANY) < 0)
		return -1;
	name_len = sizeof(name);
	getsockname(listener, (struct sockaddr *)&name, &name_len);
	kept = dup(listener);
	l = fake_loop();
	a = accept_new(l, listener, on_accepted, &naccepted);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	accept_free(&a);
	for (int i = 0; i < naccepted; i++)
		close(accepted[i]);
	close(kept);
	fake_loop_end(&l); /* aborts if a watch or timer was left */
	return 0;
}

static int connect_one(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&name, name_len), 0);
	return fd;
}

/* grpc-core.md 1: a blocking fd hangs grpc for good. */
static void test_accepted_fds_are_fit_for_grpc(void **state)
{
	int client = connect_one();

	(void)state;
	assert_int_equal(naccepted, 0);
	fake_loop_advance(l, 0);
	assert_int_equal(naccepted, 1);
	assert_true(fcntl(accepted[0], F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(accepted[0], F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(listener, F_GETFL) & O_NONBLOCK);
	close(client);
}

static void test_many_at_once(void **state)
{
	int clients[MANY];

	(void)state;
	for (int i = 0; i < MANY; i++)
		clients[i] = connect_one();
	fake_loop_advance(l, 0);
	assert_int_equal(naccepted, MANY);
	for (int i = 0; i < MANY; i++)
		close(clients[i]);
}

static void test_free_inside_the_callback(void **state)
{
	int first = connect_one();
	int second = connect_one();

	(void)state;
	free_inside = true;
	fake_loop_advance(l, 1000);
	assert_int_equal(naccepted, 1);
	assert_null(a);
	assert_int_equal(fcntl(listener, F_GETFD), -1);
	/* The kept copy still listens: nobody is refused meanwhile. */
	close(connect_one());
	close(first);
	close(second);
}

/* Takes all fds but none: accept4() fails with EMFILE. */
static void no_more_fds(rlim_t *before)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	*before = limit.rlim_cur;
	limit.rlim_cur = 3;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void fds_again(rlim_t before)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = before;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void test_pause_without_fds(void **state)
{
	int client = connect_one();
	rlim_t before;

	(void)state;
	no_more_fds(&before);
	fake_loop_advance(l, 250); /* would not come to rest, were there no pause */
	fds_again(before);
	assert_int_equal(naccepted, 0);
	fake_loop_advance(l, 49);
	assert_int_equal(naccepted, 0); /* the third pause ends at 300 ms */
	fake_loop_advance(l, 1);
	assert_int_equal(naccepted, 1);
	close(client);
}

/* Whoever floods is let in later; nobody is refused. */
static void test_a_pause_that_is_asked_for(void **state)
{
	int first = connect_one(), second = connect_one();

	(void)state;
	accept_pause(a);
	fake_loop_advance(l, 50);
	accept_pause(a);
	fake_loop_advance(l, 99);
	assert_int_equal(naccepted, 0);
	fake_loop_advance(l, 1);
	assert_int_equal(naccepted, 2);
	accept_pause(a); /* and an end during it, by the teardown */
	close(first);
	close(second);
}

static struct loop_fd thief_watch;
static int stolen = -1;

static void on_stealing(void *ctx)
{
	(void)ctx;
	stolen = accept(kept, NULL, NULL);
	loop_fd_stop(&thief_watch);
}

/* While two workers share a listener, one finds the other was faster: no reason to pause. */
static void test_somebody_else_was_faster(void **state)
{
	int first = connect_one();

	(void)state;
	loop_fd_watch(l, &thief_watch, kept, LOOP_READ, on_stealing, NULL);
	accept_free(&a);
	a = accept_new(
	    l, dup(kept), on_accepted, &naccepted); /* its turn comes after the thief's */
	fake_loop_advance(l, 0);
	assert_int_not_equal(stolen, -1);
	assert_int_equal(naccepted, 0);
	int second = connect_one();
	fake_loop_advance(l, 0);
	assert_int_equal(naccepted, 1);
	close(stolen);
	close(first);
	close(second);
}

/* The worker shares the listener's file description: a shut down one must not become a busy loop.
 */
static void test_shut_down_listener_does_not_spin(void **state)
{
	(void)state;
	shutdown(kept, SHUT_RDWR);
	fake_loop_advance(l, 10000);
	assert_int_equal(naccepted, 0);
}

static void test_free_during_a_pause(void **state)
{
	int client = connect_one();
	rlim_t before;

	(void)state;
	no_more_fds(&before);
	fake_loop_advance(l, 0);
	fds_again(before);
	accept_free(&a);
	fake_loop_advance(l, 1000);
	assert_int_equal(naccepted, 0);
	close(client);
}

int main(void)
{
#define ACCEPT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    ACCEPT_TEST(test_accepted_fds_are_fit_for_grpc),
	    ACCEPT_TEST(test_many_at_once),
	    ACCEPT_TEST(test_free_inside_the_callback),
	    ACCEPT_TEST(test_pause_without_fds),
	    ACCEPT_TEST(test_a_pause_that_is_asked_for),
	    ACCEPT_TEST(test_somebody_else_was_faster),
	    ACCEPT_TEST(test_shut_down_listener_does_not_spin),
	    ACCEPT_TEST(test_free_during_a_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
