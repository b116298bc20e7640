/* disk_test.c - a child writes, a child reads, and one that is killed is no answer.
 * LINK: tests/unit/broker/rig.c */
#include "broker/base/disk.h"
#include "tests/unit/broker/rig.h"
#include <poll.h>

static char top[32];
static const struct broker_place place = {.dir = top, .name = "x"};

static int setup(void **state)
{
	(void)state;
	strcpy(top, "/tmp/bdXXXXXX");
	return mkdtemp(top) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	rig_shell("rm -rf %s", top);
	return 0;
}

static void await(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int status;

	assert_int_equal(poll(&p, 1, -1), 1);
	assert_true(waitpid(-1, &status, 0) > 0);
	assert_int_equal(status, 0);
}

static void test_what_was_written_is_read(void **state)
{
	int memfd = rig_memfd("text", 4, RIG_SEALS), fd;
	struct broker_content c;
	char got[8] = "";
	struct err e;

	(void)state;
	fd = disk_write(&place, memfd, &e);
	await(fd);
	assert_int_equal(read(fd, &e, sizeof(e)), sizeof(e));
	assert_int_equal(e.code, 0);
	close(fd);
	fd = disk_read(&place, &e);
	await(fd);
	disk_take(fd, &c);
	assert_int_equal(c.state, LINK_FILE_CONTENT);
	assert_int_equal(pread(c.fd, got, sizeof(got), 0), 4);
	assert_string_equal(got, "text");
	close(c.fd);
	close(fd);
	close(memfd);
}

static void test_a_failure_is_said(void **state)
{
	int memfd = rig_memfd("text", 4, RIG_SEALS), fd;
	struct broker_content c;
	struct err e;

	(void)state;
	rig_shell("mkdir %s/x", top);
	fd = disk_write(&place, memfd, &e);
	await(fd);
	assert_int_equal(read(fd, &e, sizeof(e)), sizeof(e));
	assert_int_equal(e.code, EISDIR);
	close(fd);
	fd = disk_read(&place, &e);
	await(fd);
	disk_take(fd, &c);
	assert_int_equal(c.state, LINK_FILE_REFUSED);
	assert_non_null(strstr(c.why.msg, "not a regular file"));
	close(fd);
	close(memfd);
}

static void test_a_child_that_was_killed_is_no_answer(void **state)
{
	struct broker_content c = {.state = LINK_FILE_CONTENT};
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	close(ends[1]);
	disk_take(ends[0], &c);
	assert_int_equal(c.state, LINK_FILE_REFUSED);
	assert_int_equal(c.fd, -1);
	assert_non_null(strstr(c.why.msg, "killed"));
	close(ends[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(test_what_was_written_is_read),
	    T(test_a_failure_is_said),
	    T(test_a_child_that_was_killed_is_no_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
