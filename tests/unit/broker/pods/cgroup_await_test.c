/* cgroup_await_test.c - directories that are made late, in pieces, anew, or never.
 *
 * Ordinary ones: a cgroup's are told of in the same way (redirect/traffic_test.c).
 * LINK: tests/unit/broker/rig.c */
#include "broker/pods/cgroup_await.h"
#include "common/err.h"
#include "tests/unit/broker/rig.h"

struct world {
	char dir[32];
	int epoll, top, told, last;
	struct cgroup_awaits all;
	struct cgroup_await a, b;
	struct err e;
};

static int setup(void **state)
{
	static struct world e;

	memset(&e, 0, sizeof(e));
	strcpy(e.dir, "/tmp/baXXXXXX");
	assert_non_null(mkdtemp(e.dir));
	e.epoll = broker_loop_new();
	e.top = open(e.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	e.last = -1;
	assert_int_equal(cgroup_awaits_open(&e.all, e.epoll, e.top, &e.e), 0);
	*state = &e;
	return 0;
}

static int teardown(void **state)
{
	struct world *e = *state;

	cgroup_await_end(&e->a);
	cgroup_await_end(&e->b);
	cgroup_awaits_close(&e->all);
	cgroup_awaits_close(&e->all); /* twice is once */
	if (e->last >= 0)
		close(e->last);
	close(e->top);
	close(e->epoll);
	rig_shell("rm -rf %s", e->dir);
	return 0;
}

static void on_there(void *ctx, int dir)
{
	struct world *e = ctx;

	e->told++;
	if (e->last >= 0)
		close(e->last);
	e->last = dir;
}

/* Several as "a/b:c/d". */
static int start(struct world *e, struct cgroup_await *a, const char *path)
{
	char paths[256] = "";

	snprintf(paths, sizeof(paths) - 1, "%s", path);
	for (char *c = paths; *c; c++)
		if (*c == ':')
			*c = '\0';
	*a = (struct cgroup_await){.all = &e->all, .there = on_there, .ctx = e};
	return cgroup_await_start(a, paths, &e->e);
}

__attribute__((format(printf, 2, 3))) static void run(struct world *e, const char *fmt, ...)
{
	char command[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	rig_shell("cd %s && %s", e->dir, command);
	for (int i = 0; i < 16; i++)
		broker_loop_turn(e->epoll, 0);
}

static void expect_is(struct world *e, int dir, const char *path)
{
	struct stat a, b;
	char full[128];

	snprintf(full, sizeof(full), "%s/%s", e->dir, path);
	assert_int_equal(fstat(dir, &a), 0);
	assert_int_equal(stat(full, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
}

static void test_one_that_is_there(void **state)
{
	struct world *e = *state;

	run(e, "mkdir -p a/b");
	int dir = start(e, &e->a, "a/b");
	assert_true(dir >= 0);
	expect_is(e, dir, "a/b");
	close(dir);
	run(e, "mkdir a/b/c a/d"); /* nobody's matter */
	assert_int_equal(e->told, 0);
}

static void test_one_that_is_made_in_pieces(void **state)
{
	struct world *e = *state;

	assert_int_equal(start(e, &e->a, "a/b/c"), -1);
	assert_int_equal(e->e.code, EINPROGRESS);
	run(e, "mkdir a");
	run(e, "mkdir a/b");
	run(e, "mkdir a/b/x");
	assert_int_equal(e->told, 0);
	run(e, "mkdir a/b/c");
	assert_int_equal(e->told, 1);
	expect_is(e, e->last, "a/b/c");
}

/* Between a notice and our look much may have happened. */
static void test_one_that_is_made_at_once(void **state)
{
	struct world *e = *state;

	start(e, &e->a, "a/b/c");
	run(e, "mkdir -p a/b/c");
	assert_int_equal(e->told, 1);
}

static void test_one_that_is_moved_into_place(void **state)
{
	struct world *e = *state;

	start(e, &e->a, "a/b");
	run(e, "mkdir -p x/b && mv x a");
	assert_int_equal(e->told, 1);
}

/* A service that is restarted; its slice, too. */
static void test_one_that_comes_back_is_another_one(void **state)
{
	struct world *e = *state;

	run(e, "mkdir -p a/b");
	close(start(e, &e->a, "a/b"));
	run(e, "mv a/b old && mkdir a/b");
	assert_int_equal(e->told, 1);
	expect_is(e, e->last, "a/b");
	run(e, "mv a older");
	assert_int_equal(e->told, 1);
	run(e, "mkdir -p a/b");
	assert_int_equal(e->told, 2);
	expect_is(e, e->last, "a/b");
}

static void test_everybody_gets_his_own(void **state)
{
	struct world *e = *state;

	start(e, &e->a, "a/one");
	start(e, &e->b, "a/two");
	run(e, "mkdir -p a/two");
	assert_int_equal(e->told, 1);
	expect_is(e, e->last, "a/two");
	cgroup_await_end(&e->a);
	run(e, "mkdir a/one");
	assert_int_equal(e->told, 1);
}

/* As many as it likes: one instance of inotify, and no descriptor each. */
static void test_many_wait(void **state)
{
	struct world *e = *state;
	enum { MANY = 1000 };
	struct cgroup_await *many = calloc(MANY, sizeof(*many));
	char path[32];
	int before = dup(0);

	close(before);
	for (int i = 0; i < MANY; i++) {
		snprintf(path, sizeof(path), "pods/%d-x", i);
		assert_int_equal(start(e, &many[i], path), -1);
	}
	int after = dup(0);
	assert_int_equal(before, after);
	close(after);
	run(e, "mkdir -p pods/77-x");
	assert_int_equal(e->told, 1);
	for (int i = 0; i < MANY; i++)
		cgroup_await_end(&many[i]);
	free(many);
}

/* Quality of service: the folders may come with their first pod. */
static void test_one_of_several_places(void **state)
{
	struct world *e = *state;

	assert_int_equal(start(e, &e->a, "top/pod1:top/burst/pod1:top/best/pod1"), -1);
	run(e, "mkdir -p top/burst/pod2 top/best");
	assert_int_equal(e->told, 0);
	run(e, "mkdir top/best/pod1");
	assert_int_equal(e->told, 1);
	expect_is(e, e->last, "top/best/pod1");
	run(e, "mv top/best/pod1 old && mkdir top/pod1");
	assert_int_equal(e->told, 2);
	expect_is(e, e->last, "top/pod1");
	int dir = cgroup_await_open(&e->a);
	expect_is(e, dir, "top/pod1");
	close(dir);
	run(e, "mv top older && mkdir -p top/burst/pod1");
	assert_int_equal(e->told, 3);
	expect_is(e, e->last, "top/burst/pod1");
	assert_int_equal(start(e, &e->b, "top/pod1:top/burst/pod1") >= 0, 1);
}

static void test_no_way_leads_out(void **state)
{
	struct world *e = *state;

	run(e, "mkdir real && ln -s real link && ln -s / root");
	assert_int_equal(start(e, &e->a, "link"), -1);
	cgroup_await_end(&e->a);
	assert_int_equal(start(e, &e->a, "../"), -1);
	cgroup_await_end(&e->a);
	assert_int_equal(start(e, &e->a, "root/tmp"), -1);
	cgroup_await_end(&e->a);
	assert_int_equal(start(e, &e->a, "file/x"), -1);
	run(e, "touch file");
	assert_int_equal(e->told, 0);
}

static void on_there_end(void *ctx, int dir)
{
	struct world *e = ctx;

	on_there(ctx, dir);
	cgroup_await_end(&e->a);
}

static void test_it_may_be_ended_when_it_is_told(void **state)
{
	struct world *e = *state;

	start(e, &e->a, "a");
	start(e, &e->b, "a");
	e->a.there = on_there_end;
	run(e, "mkdir a");
	assert_int_equal(e->told, 2);
	run(e, "mv a b && mkdir a");
	assert_int_equal(e->told, 3);
}

/* In a user namespace of its own, which has a limit of its own. */
static void wait_without_watches(int out)
{
	struct world e = {.dir = "/tmp"};

	dup2(out, STDERR_FILENO);
	if (unshare(CLONE_NEWUSER))
		_exit(1);
	rig_file("/proc/sys/user/max_inotify_watches", "0");
	e.top = open(e.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	e.epoll = broker_loop_new();
	if (cgroup_awaits_open(&e.all, e.epoll, e.top, &e.e))
		_exit(2);
	for (int i = 0; i < 2; i++) {
		start(&e, &e.a, "not/there");
		cgroup_await_end(&e.a);
	}
	_exit(e.e.code == EINPROGRESS ? 0 : 3);
}

static void test_no_watch_is_left(void **state)
{
	static const char sysctl[] = "fs.inotify.max_user_watches";
	char said[4096] = "";
	int out[2], status;
	const char *first;

	(void)state;
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0)
		wait_without_watches(out[1]);
	close(out[1]);
	for (ssize_t n, at = 0; (n = read(out[0], said + at, sizeof(said) - 1 - (size_t)at)) > 0;
	     at += n)
		;
	close(out[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	first = strstr(said, sysctl);
	assert_non_null(first);
	assert_null(strstr(first + 1, sysctl)); /* once */
}

#define AWAIT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    AWAIT_TEST(test_one_that_is_there),
	    AWAIT_TEST(test_one_that_is_made_in_pieces),
	    AWAIT_TEST(test_one_that_is_made_at_once),
	    AWAIT_TEST(test_one_that_is_moved_into_place),
	    AWAIT_TEST(test_one_that_comes_back_is_another_one),
	    AWAIT_TEST(test_everybody_gets_his_own),
	    AWAIT_TEST(test_many_wait),
	    AWAIT_TEST(test_one_of_several_places),
	    AWAIT_TEST(test_no_way_leads_out),
	    AWAIT_TEST(test_it_may_be_ended_when_it_is_told),
	    AWAIT_TEST(test_no_watch_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
