/* upgrade_table_test.c - a table comes back as it was, or not at all.
 * LINK: tests/unit/broker/rig.c */
#include "broker/life/upgrade_table.h"
#include "common/err.h"
#include "tests/unit/broker/rig.h"

static int some_fd(void)
{
	int fd = open("/dev/null", O_RDONLY); /* as after an execution */

	assert_true(fd > STDERR_FILENO);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void test_what_is_kept_is_found_again(void **state)
{
	struct broker_fdstore *k = broker_fdstore_new(), *next = broker_fdstore_new();
	struct err e = {0};
	int one = some_fd(), two = some_fd();

	(void)state;
	broker_fdstore_put(k, "01020300-0000-0000-0000-000000000000.sds", one);
	broker_fdstore_put(k, "lock", two);
	broker_fdstore_found(k, "stale", some_fd()); /* found only: not handed on */
	int table = upgrade_table_write(k, &e);
	assert_true(table >= 0);
	assert_int_equal(fcntl(table, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(table, F_GET_SEALS) & RIG_SEALS, RIG_SEALS);
	assert_int_equal(upgrade_table_read(table, next, &e), 0);
	assert_int_equal(
	    broker_fdstore_take(next, "01020300-0000-0000-0000-000000000000.sds"), one);
	assert_int_equal(broker_fdstore_take(next, "lock"), two);
	assert_int_equal(broker_fdstore_take(next, "stale"), -1);
	assert_int_equal(broker_fdstore_sweep(next), 0);
	broker_fdstore_free(&k);
	broker_fdstore_free(&next);
	close(table);
	close(one);
	close(two);
}

static void test_an_empty_table_is_one(void **state)
{
	struct broker_fdstore *k = broker_fdstore_new();
	struct err e = {0};

	(void)state;
	int table = upgrade_table_write(k, &e);
	assert_int_equal(upgrade_table_read(table, k, &e), 0);
	broker_fdstore_free(&k);
	close(table);
}

struct image {
	struct upgrade_table_head head;
	struct upgrade_table_entry entries[2];
};

/* As after an execution, whatever a check before did to them. */
static struct image good(int one, int two)
{
	fcntl(one, F_SETFD, 0);
	fcntl(two, F_SETFD, 0);
	return (struct image){.head = {UPGRADE_TABLE_MAGIC, UPGRADE_TABLE_VERSION,
				  sizeof(struct upgrade_table_entry), 2},
	    .entries = {{"one", one}, {"two", two}}};
}

/* Refused as a whole, whatever comes first: nothing is found, nothing is closed. */
static void refused(const void *bytes, size_t size, const char *text)
{
	struct broker_fdstore *k = broker_fdstore_new();
	struct err e = {0};
	int table = rig_memfd(bytes, size, RIG_SEALS);

	assert_int_equal(upgrade_table_read(table, k, &e), -1);
	if (!strstr(e.msg, text))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, text);
	assert_int_equal(broker_fdstore_take(k, "one"), -1);
	broker_fdstore_free(&k);
	close(table);
}

static void test_a_damaged_one_is_refused_as_a_whole(void **state)
{
	int one = some_fd(), two = some_fd(), shut = some_fd();
	struct image i = good(one, two);

	(void)state;
	close(shut);
	refused("", 0, "is no table");
	refused(&i, sizeof(i.head) - 1, "is no table");
	refused(&i, sizeof(i) - 1, "is damaged");
	refused(&i, sizeof(i.head), "is damaged");
	i.head.magic[3]++;
	refused(&i, sizeof(i), "is no table");
	i = good(one, two);
	i.head.entry_size--;
	refused(&i, sizeof(i), "is damaged");
	i = good(one, two);
	i.head.count = 0xffffffff;
	refused(&i, sizeof(i), "is damaged");
	i = good(one, one);
	refused(&i, sizeof(i), "damaged at entry 1");
	i = good(two, shut);
	refused(&i, sizeof(i), "damaged at entry 1");
	i = good(-1, two);
	refused(&i, sizeof(i), "damaged at entry 0");
	i = good(STDERR_FILENO, two);
	refused(&i, sizeof(i), "damaged at entry 0");
	i = good(one, two);
	memset(i.entries[1].name, 'x', sizeof(i.entries[1].name));
	refused(&i, sizeof(i), "damaged at entry 1");
	i = good(one, two); /* not from an execution: not the ones that are meant */
	assert_int_equal(fcntl(one, F_SETFD, FD_CLOEXEC), 0);
	refused(&i, sizeof(i), "damaged at entry 0");
	assert_true(is_open(one) && is_open(two));
	close(one);
	close(two);
}

static void test_another_version_is_not_guessed_at(void **state)
{
	int one = some_fd(), two = some_fd();

	(void)state;
	for (int by = -1; by <= 1; by += 2) {
		struct image i = good(one, two);
		i.head.version += (uint32_t)by;
		i.head.entry_size += 8; /* whatever it may mean */
		refused(&i, sizeof(i), "this agentd reads version 1");
	}
	struct image i = good(one, two);
	struct broker_fdstore *k = broker_fdstore_new();
	struct err e = {0};
	int table = rig_memfd(&i, sizeof(i), RIG_SEALS);
	assert_int_equal(upgrade_table_read(table, k, &e), 0);
	assert_int_equal(broker_fdstore_sweep(k), 2);
	while (wait(NULL) > 0) /* children that close them */
		;
	assert_false(is_open(one) || is_open(two));
	broker_fdstore_free(&k);
	close(table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_what_is_kept_is_found_again),
	    cmocka_unit_test(test_an_empty_table_is_one),
	    cmocka_unit_test(test_a_damaged_one_is_refused_as_a_whole),
	    cmocka_unit_test(test_another_version_is_not_guessed_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
