/* rundir_test.c - one broker at a time, also while one takes the place of another.
 * LINK: tests/unit/broker/rig.c */
#include "broker/base/rundir.h"
#include "common/err.h"
#include "tests/unit/broker/rig.h"

struct both {
	char run[32];
	struct broker_fdstore *kept, *next;
	struct broker_rundir a, b;
};

static int setup(void **state)
{
	static struct both t;
	struct err e = {0};

	strcpy(t.run, "/tmp/brXXXXXX");
	assert_non_null(mkdtemp(t.run));
	t.kept = broker_fdstore_new();
	t.next = broker_fdstore_new();
	t.b.lock = -1;
	if (broker_rundir_open(&t.a, t.run, t.kept, &e))
		fail_msg("%s", e.msg);
	*state = &t;
	return 0;
}

static int teardown(void **state)
{
	struct both *t = *state;

	broker_rundir_close(&t->a);
	broker_rundir_close(&t->b);
	broker_fdstore_free(&t->kept);
	broker_fdstore_free(&t->next);
	rig_shell("rm -rf %s", t->run);
	return 0;
}

static void refused(struct both *t, int code, const char *text)
{
	struct err e = {0};

	assert_int_equal(broker_rundir_open(&t->b, t->run, t->next, &e), -1);
	assert_int_equal(e.code, code);
	if (!strstr(e.msg, text))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, text);
}

static void give(void *ctx, const char *name, int fd)
{
	struct both *t = ctx;

	assert_string_equal(name, BROKER_RUNDIR_LOCK); /* nothing else is kept here */
	broker_fdstore_found(t->next, name, dup(fd));
}

static void test_a_second_one_is_told_what_it_may_do(void **state)
{
	char text[64];

	snprintf(text, sizeof(text), "(pid %d) holds", (int)getpid());
	refused(*state, EBUSY, text);
	refused(*state, EBUSY, "stop it first, or take its place with --take-over");
}

/* The open file holds it, not the process: at no time it is free. */
static void test_who_is_given_the_lock_has_it(void **state)
{
	struct both *t = *state;
	struct err e = {0};
	struct broker_rundir third;

	broker_fdstore_each(t->kept, BROKER_FDSTORE, give, t);
	assert_int_equal(broker_rundir_open(&t->b, t->run, t->next, &e), 0);
	broker_rundir_close(&t->a);
	struct broker_fdstore *none = broker_fdstore_new();
	assert_int_equal(broker_rundir_open(&third, t->run, none, &e), -1);
	assert_int_equal(e.code, EBUSY);
	broker_fdstore_free(&none);
	broker_rundir_close(&t->b);
	assert_int_equal(broker_rundir_open(&t->b, t->run, t->next, &e), 0);
}

/* It opens nothing, and stops nobody: /dev/null, and a file of the same file system. */
static void test_a_lock_of_something_else_is_none(void **state)
{
	struct both *t = *state;
	struct err e = {0};
	char path[64];

	broker_fdstore_found(t->next, BROKER_RUNDIR_LOCK, open("/dev/null", O_RDWR));
	refused(t, EBUSY, "holds");
	rig_shell("cp %s/lock %s/other", t->run, t->run);
	snprintf(path, sizeof(path), "%s/other", t->run);
	broker_fdstore_found(t->next, BROKER_RUNDIR_LOCK, open(path, O_RDWR));
	refused(t, EBUSY, "holds");
	/* The upgrade of one whose file was replaced. */
	broker_fdstore_each(t->kept, BROKER_FDSTORE, give, t);
	rig_shell("mv %s/other %s/lock", t->run, t->run);
	assert_int_equal(broker_rundir_open(&t->b, t->run, t->next, &e), 0);
}

/* --- by a whole broker --- */

static void refuse_run(struct rig *r, const char *why)
{
	struct err e = {0};

	assert_null(rig_broker(r, &e));
	if (!strstr(e.msg, why))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, why);
}

static void test_a_second_broker_is_refused(void **state)
{
	struct rig *r = *state;
	struct err e = {0};
	char text[32];

	rig_add(r);
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	assert_null(rig_broker(r, &e));
	assert_int_equal(e.code, EBUSY);
	snprintf(text, sizeof(text), "pid %d", (int)getpid());
	assert_non_null(strstr(e.msg, text));
	assert_true(rig_reaches(rig_mount(r, "socket"), l)); /* the first one is not disturbed */
	close(l);
}

static void test_a_run_directory_of_others_is_refused(void **state)
{
	struct rig *r = *state;

	rig_stop(r);
	assert_int_equal(chmod(r->run, 0777), 0);
	refuse_run(r, "written by others");
	assert_int_equal(chmod(r->run, 0755) | chown(r->run, 12345, 0), 0);
	refuse_run(r, "written by others");
	assert_int_equal(chown(r->run, 0, 0), 0);
	assert_int_equal(chmod(rig_at(r, "run/pods"), 0770), 0);
	refuse_run(r, "written by others");
	umount2(rig_at(r, "run/state"), MNT_DETACH);
	rig_shell("cd %s && mv run real && ln -s real run", r->top);
	refuse_run(r, "not a directory");
	rig_shell("cd %s && rm run && touch run", r->top);
	refuse_run(r, "not a directory");
	rig_shell("cd %s && rm run", r->top);
	r->o.run = "/nonexistent/run";
	refuse_run(r, "mkdir /nonexistent/run");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		test_a_second_one_is_told_what_it_may_do, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_who_is_given_the_lock_has_it, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_a_lock_of_something_else_is_none, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_a_second_broker_is_refused, rig_setup, rig_teardown),
	    cmocka_unit_test_setup_teardown(
		test_a_run_directory_of_others_is_refused, rig_setup, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
