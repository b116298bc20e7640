/* upgrade_test.c - which file, how it is tried, and that a failure changes nothing.
 * LINK: tests/unit/broker/rig.c */
#include "broker/life/upgrade.h"
#include "broker/life/upgrade_table.h"
#include "common/err.h"
#include "tests/unit/broker/rig.h"

struct node {
	char top[32];
	struct upgrade u;
	struct broker_fdstore *kept;
	int fd;
	char *argv[3];
};

static const char *at(const struct node *n, const char *name)
{
	static char path[2][64];
	static unsigned turn;
	char *out = path[turn++ % 2];

	snprintf(out, sizeof(path[0]), "%s/%s", n->top, name);
	return out;
}

static void install(const struct node *n, const char *name, const char *from)
{
	rig_shell("cp --remove-destination %s %s && chmod 755 %s", from, at(n, name), at(n, name));
}

static int setup(void **state)
{
	static struct node n;

	memset(&n, 0, sizeof(n));
	strcpy(n.top, "/tmp/buXXXXXX");
	assert_non_null(mkdtemp(n.top));
	n.argv[0] = "agentd";
	n.argv[1] = "--run";
	upgrade_open(&n.u, n.argv);
	assert_non_null(strstr(n.u.path, "upgrade_test"));
	strcpy(n.u.path, at(&n, "agentd"));
	install(&n, "agentd", "/bin/true");
	install(&n, "agentd-worker", "/bin/true");
	n.kept = broker_fdstore_new();
	n.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	broker_fdstore_put(n.kept, "lock", n.fd);
	*state = &n;
	return 0;
}

static int teardown(void **state)
{
	struct node *n = *state;

	upgrade_close(&n->u);
	broker_fdstore_free(&n->kept);
	close(n->fd);
	unsetenv("AGENTD_KEPT");
	rig_shell("rm -rf %s", n->top);
	return 0;
}

static int tried(struct node *n, struct err *e)
{
	int status;

	if (upgrade_try(&n->u, n->kept, e))
		return -1;
	assert_int_equal(waitpid(n->u.trial, &status, 0), n->u.trial);
	int rc = upgrade_tried(&n->u, status, e);
	assert_int_equal(n->u.trial, 0);
	return rc;
}

static void refused(struct node *n, const char *text)
{
	struct err e = {0};

	assert_int_equal(tried(n, &e), -1);
	if (!strstr(e.msg, text))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, text);
	assert_int_equal(n->u.exe, -1);
	assert_int_equal(fcntl(n->fd, F_GETFD), FD_CLOEXEC);
	assert_null(getenv("AGENTD_KEPT"));
	assert_int_equal(chmod(n->top, 0755), 0);
	install(n, "agentd", "/bin/true");
	install(n, "agentd-worker", "/bin/true");
}

/* security-rules.md 7 */
static void test_files_that_are_not_roots_alone_are_not_tried(void **state)
{
	static const char *const names[] = {"agentd", "agentd-worker"};
	struct node *n = *state;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(chmod(at(n, names[i]), 0757), 0);
		refused(n, "can be written by others");
		assert_int_equal(chmod(at(n, names[i]), 0775), 0);
		refused(n, "can be written by others");
		assert_int_equal(chown(at(n, names[i]), 1338, 0), 0);
		refused(n, "can be written by others");
		assert_int_equal(chmod(at(n, names[i]), 0644), 0);
		refused(n, "is no executable file");
		assert_int_equal(unlink(at(n, names[i])), 0);
		refused(n, "No such file");
		rig_shell("ln -sf /bin/true %s", at(n, names[i]));
		refused(n, "is no executable file");
	}
	assert_int_equal(chmod(n->top, 01777), 0);
	refused(n, "can be written by others");
}

static void test_a_trial_that_fails_is_the_end_of_it(void **state)
{
	struct node *n = *state;

	install(n, "agentd", "/bin/false");
	refused(n, "failed its trial: exit code 1");
	install(n, "agentd", "/etc/hostname");
	refused(n, "failed its trial: exit code 127");
}

/* Whatever it prints: the first line, printable; the log and agentctl have it. */
static void test_a_trial_says_why(void **state)
{
	static const struct {
		const char *script, *said;
	} rows[] = {{"echo no such key; echo more; exit 1", "trial: exit code 1: no such key"},
	    {"printf 'no\\001 newline'; exit 3", "trial: exit code 3: no? newline"},
	    {"head -c 1000000 /dev/zero | tr '\\0' x; kill -9 $$",
		"trial: signal 9 (killed: by someone, or by the kernel for memory): xxxxxxxx"},
	    {"echo fine >&2; exit 1", "trial: exit code 1"}};
	struct node *n = *state;
	char *argv[] = {"sh", "-c", NULL, NULL};

	n->u.argv = argv;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		argv[2] = (char *)rows[i].script;
		install(n, "agentd", "/bin/sh");
		refused(n, rows[i].said);
		assert_int_equal(n->u.said, -1);
	}
}

static void test_a_trial_that_does_not_stop_talking(void **state)
{
	struct node *n = *state;
	char *argv[] = {"sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; exit 1", NULL};
	struct err e = {0};
	struct stat st;
	int status;

	n->u.argv = argv;
	install(n, "agentd", "/bin/sh");
	assert_int_equal(upgrade_try(&n->u, n->kept, &e), 0);
	assert_int_equal(waitpid(n->u.trial, &status, 0), n->u.trial);
	assert_int_equal(fstat(n->u.said, &st), 0);
	assert_int_equal(st.st_size, 1 << 16);
	assert_int_equal(upgrade_tried(&n->u, status, &e), -1);
	assert_non_null(strstr(e.msg, "exit code 1: xxxx"));
}

/* The shell shows what it was given: our arguments, and the lock and the table, open. */
static void test_a_trial_has_all_that_is_kept(void **state)
{
	struct node *n = *state;
	struct err e = {0};
	char script[256];

	snprintf(script, sizeof(script),
	    "test -e /proc/self/fd/%d && test \"$(head -c 11 /proc/self/fd/$AGENTD_KEPT)\" = "
	    "agentd:kept && test -z \"$NOTIFY_SOCKET\" && test \"$0\" = --check-state",
	    n->fd);
	char *argv[] = {"sh", "-c", script, NULL};
	n->u.argv = argv;
	install(n, "agentd", "/bin/sh");
	setenv("NOTIFY_SOCKET", "/nonexistent", 1);
	if (tried(n, &e))
		fail_msg("%s", e.msg);
	unsetenv("NOTIFY_SOCKET");
	assert_true(n->u.exe >= 0);
	assert_int_equal(upgrade_try(&n->u, n->kept, &e), -1); /* one at a time */
	assert_int_equal(e.code, EALREADY);
	upgrade_drop(&n->u);
}

/* It was tried, and cannot be executed all the same: nothing has changed. */
static void test_an_execution_that_fails_changes_nothing(void **state)
{
	struct node *n = *state;
	struct err e = {0};

	install(n, "agentd", "/etc/hostname"); /* no program */
	n->u.exe = open(n->u.path, O_PATH | O_CLOEXEC);
	int next = dup(n->u.exe);
	close(next);
	assert_int_equal(upgrade_exec(&n->u, n->kept, &e), -1);
	assert_non_null(strstr(e.msg, "cannot be executed: Exec format error"));
	assert_int_equal(n->u.exe, -1);
	assert_int_equal(fcntl(n->fd, F_GETFD), FD_CLOEXEC);
	assert_null(getenv("AGENTD_KEPT"));
	int again = dup(n->fd);
	assert_true(again <= next); /* the table is closed, and so is the file */
	close(again);
}

/* --- in the next one --- */

/* In a child: what it does may close everything. */
static int receive(int table, int held)
{
	struct broker_fdstore *k = broker_fdstore_new();
	char number[16];

	snprintf(number, sizeof(number), "%d", table);
	setenv("AGENTD_KEPT", number, 1);
	upgrade_receive(k);
	if (getenv("AGENTD_KEPT") || fcntl(table, F_GETFD) >= 0)
		return 1;
	int fd = broker_fdstore_take(k, "lock");
	if (fd < 0)
		return fcntl(held, F_GETFD) < 0 ? 2 : 3;
	return fd == held && fcntl(fd, F_GETFD) == FD_CLOEXEC ? 0 : 4;
}

static int received(unsigned version)
{
	struct {
		struct upgrade_table_head head;
		struct upgrade_table_entry entry;
	} image = {
	    {UPGRADE_TABLE_MAGIC, version, sizeof(struct upgrade_table_entry), 1}, {"lock", -1}};
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int held = open("/dev/null", O_RDONLY);
		image.entry.fd = held;
		_exit(receive(rig_memfd(&image, sizeof(image), RIG_SEALS), held));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void test_a_table_is_received_or_all_is_closed(void **state)
{
	(void)state;
	assert_int_equal(received(UPGRADE_TABLE_VERSION), 0);
	assert_int_equal(received(UPGRADE_TABLE_VERSION + 1), 2);
	assert_int_equal(received(UPGRADE_TABLE_VERSION - 1), 2);
}

static void test_numbers_that_are_none_are_ignored(void **state)
{
	static const char *const bad[] = {"", "x", "2", "-1", "99999999999", "3x"};
	struct node *n = *state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("AGENTD_KEPT", bad[i], 1);
		upgrade_receive(n->kept);
		assert_null(getenv("AGENTD_KEPT"));
		assert_int_equal(fcntl(n->fd, F_GETFD), FD_CLOEXEC);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		test_files_that_are_not_roots_alone_are_not_tried, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_a_trial_that_fails_is_the_end_of_it, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_a_trial_says_why, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_a_trial_that_does_not_stop_talking, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_a_trial_has_all_that_is_kept, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_an_execution_that_fails_changes_nothing, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_a_table_is_received_or_all_is_closed, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_numbers_that_are_none_are_ignored, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
