/* fdstore_test.c - what is kept, what was found, and what systemd hears of it.
 * LINK: tests/fake/apart.c */
#include "broker/base/fdstore.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char heard[1024]; /* what the sink and each() were told, in order */

static void hear(const char *what, const char *name)
{
	size_t n = strlen(heard);

	snprintf(heard + n, sizeof(heard) - n, "%s%s ", what, name);
}

static void on_put(void *ctx, const char *name, int fd)
{
	(void)ctx;
	assert_true(fd >= 0);
	hear("+", name);
}

static void on_drop(void *ctx, const char *name)
{
	(void)ctx;
	hear("-", name);
}

static const struct broker_fdstore_sink sink = {on_put, on_drop, NULL};

static void expect_heard(const char *text)
{
	assert_string_equal(heard, text);
	heard[0] = '\0';
}

static int some_fd(void)
{
	int fd = open("/dev/null", O_RDONLY); /* not close-on-exec */

	assert_true(fd >= 0);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void test_the_fd_of_a_put_stays_its_makers(void **state)
{
	struct broker_fdstore *k = broker_fdstore_new();
	int fd = some_fd();

	(void)state;
	broker_fdstore_put(k, "a.sds", fd);
	assert_int_equal(broker_fdstore_take(k, "a.sds"), -1); /* kept is not found */
	assert_int_equal(broker_fdstore_sweep(k), 0);
	broker_fdstore_drop(k, "a.sds");
	broker_fdstore_drop(k, "a.sds");
	assert_true(is_open(fd));
	broker_fdstore_put(k, "a.sds", fd);
	broker_fdstore_free(&k);
	assert_null(k);
	broker_fdstore_free(&k);
	assert_true(is_open(fd));
	close(fd);
}

static void test_a_found_one_is_taken_once(void **state)
{
	struct broker_fdstore *k = broker_fdstore_new();
	int fd = some_fd();

	(void)state;
	broker_fdstore_found(k, "admin", fd);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(broker_fdstore_take(k, "other"), -1);
	assert_int_equal(broker_fdstore_take(k, "admin"), fd);
	assert_int_equal(broker_fdstore_take(k, "admin"), -1);
	broker_fdstore_free(&k);
	assert_true(is_open(fd));
	close(fd);
}

static void test_what_nobody_took_is_swept(void **state)
{
	struct broker_fdstore *k = broker_fdstore_new();
	int gone = some_fd(), refused = some_fd(), made = some_fd(), late = some_fd();

	(void)state;
	broker_fdstore_mirror(k, &sink);
	broker_fdstore_found(k, "dead.sds", gone);
	broker_fdstore_found(k, "pod.sds", refused);
	broker_fdstore_put(k, "pod.sds", made); /* its maker did not even ask */
	expect_heard("+pod.sds ");
	assert_int_equal(broker_fdstore_sweep(k), 2);
	expect_heard("-dead.sds "); /* and never the one that is kept now */
	assert_false(is_open(gone) || is_open(refused));
	assert_true(is_open(made));
	assert_int_equal(broker_fdstore_sweep(k), 0);
	broker_fdstore_found(k, "late", late);
	broker_fdstore_free(&k);
	assert_false(is_open(late));
	close(made);
}

static void test_names_that_are_none_are_refused(void **state)
{
	struct broker_fdstore *k = broker_fdstore_new();
	char name[BROKER_FDSTORE_NAME + 1];

	(void)state;
	memset(name, 'x', sizeof(name));
	name[BROKER_FDSTORE_NAME] = '\0'; /* one too long */
	const char *const bad[] = {"", "a:b", "a b", "a\nb", "\xc3\xa4", name};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int fd = some_fd();
		broker_fdstore_found(k, bad[i], fd);
		assert_false(is_open(fd));
		assert_int_equal(broker_fdstore_take(k, bad[i]), -1);
	}
	int first = some_fd(), second = some_fd();
	broker_fdstore_found(k, name + 1, first); /* the longest */
	broker_fdstore_found(k, name + 1, second);
	assert_false(is_open(second));
	assert_int_equal(broker_fdstore_take(k, name + 1), first);
	broker_fdstore_found(k, "closed", first);
	close(first);
	broker_fdstore_found(k, "no fd at all", -1);
	broker_fdstore_found(k, "nofd", -1);
	assert_int_equal(broker_fdstore_take(k, "nofd"), -1);
	assert_int_equal(broker_fdstore_take(k, "closed"), first);
	broker_fdstore_free(&k);
}

/* FDSTORE would hold both of one name; so the old one goes first. */
static void test_a_sink_hears_of_everything(void **state)
{
	struct broker_fdstore *k = broker_fdstore_new();
	int fd = some_fd(), other = some_fd();

	(void)state;
	broker_fdstore_put(k, "a", fd);
	expect_heard("");
	broker_fdstore_mirror(k, &sink);
	expect_heard("+a ");
	broker_fdstore_put(k, "a", other);
	expect_heard("-a +a ");
	broker_fdstore_found(k, "b", some_fd());
	expect_heard("");
	close(broker_fdstore_take(k, "b"));
	broker_fdstore_drop(k, "b"); /* its taker did not want it: the sink still has it */
	expect_heard("-b ");
	broker_fdstore_drop(k, "a");
	expect_heard("-a ");
	broker_fdstore_free(&k);
	expect_heard("");
	close(fd);
	close(other);
}

static void take_it(void *ctx, const char *name, int fd)
{
	int taken = broker_fdstore_take(ctx, name);

	assert_int_equal(taken, fd);
	hear("", "taken");
	close(fd);
}

static void drop_it(void *ctx, const char *name, int fd)
{
	(void)fd;
	broker_fdstore_drop(ctx, name);
}

static void test_each_may_end_the_one_it_is_told_of(void **state)
{
	struct broker_fdstore *k = broker_fdstore_new();
	int fd = some_fd();

	(void)state;
	for (int i = 0; i < 100; i++) {
		char name[8];
		snprintf(name, sizeof(name), "%d", i);
		broker_fdstore_put(k, name, fd);
	}
	broker_fdstore_found(k, "a", some_fd());
	broker_fdstore_found(k, "b", some_fd());
	broker_fdstore_each(k, BROKER_FOUND, take_it, k);
	expect_heard("taken taken ");
	broker_fdstore_each(k, BROKER_FOUND, take_it, k);
	expect_heard("");
	broker_fdstore_each(k, BROKER_FDSTORE, drop_it, k);
	broker_fdstore_each(k, BROKER_FDSTORE, on_put, NULL);
	expect_heard("");
	broker_fdstore_free(&k);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_fd_of_a_put_stays_its_makers),
	    cmocka_unit_test(test_a_found_one_is_taken_once),
	    cmocka_unit_test(test_what_nobody_took_is_swept),
	    cmocka_unit_test(test_names_that_are_none_are_refused),
	    cmocka_unit_test(test_a_sink_hears_of_everything),
	    cmocka_unit_test(test_each_may_end_the_one_it_is_told_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
