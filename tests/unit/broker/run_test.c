/* run_test.c - the whole of agentd: start, credentials of the worker, how it ends.
 *
 * The test copies itself as `agentd` and `agentd-worker` into a directory: called by the first name
 * it is the broker, by the second a small worker that does what its --node-name says.
 * LINK: tests/unit/broker/rig.c */
#include "broker/life/upgrade_table.h"
#include "broker/run.h"
#include "common/mem.h"
#include "common/version.h"
#include "rig.h"
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* LeakSanitizer cannot run in the forked brokers that are killed, nor in a worker without ptrace.
 */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

/* --- the worker --- */

static void print_status(const char *key)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			fputs(line, stdout);
	if (f)
		fclose(f);
}

static void print_fds(void)
{
	char name[32], target[256];

	for (int fd = 0; fd < 1024; fd++) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(name, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = '\0';
		printf("fd %d %s\n", fd, fd > 2 ? target : "");
	}
}

static void print_self(int argc, char **argv)
{
	static const char *const keys[] = {"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:",
	    "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "SigBlk:", "SigIgn:"};
	struct rlimit core;
	int death = 0;
	char config[64] = "";

	print_fds();
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		print_status(keys[i]);
	getrlimit(RLIMIT_CORE, &core);
	prctl(PR_GET_PDEATHSIG, &death);
	printf("core %lu %lu\ndeath %d\nsession %d\n", core.rlim_cur, core.rlim_max, death,
	    getsid(0) == getpid());
	for (int i = 0; i < argc; i++)
		printf("arg %s\n", argv[i]);
	for (char **e = environ; *e; e++)
		printf("env %s\n", *e);
	if (read(LINK_CONFIG_FD, config, sizeof(config) - 1) >= 0)
		printf("config %s\n", config);
}

static void speak(struct link_packet *p)
{
	struct link_request add = {.id = 5, .op = LINK_POD_ADD, .uid = rig_pod};

	if (recv(LINK_FD, p, sizeof(*p), 0) != sizeof(*p) || p->what != LINK_HELLO ||
	    recv(LINK_FD, p, sizeof(*p), 0) != sizeof(*p) || p->what != LINK_NODE_LISTENER ||
	    send(LINK_FD, &add, sizeof(add), 0) != sizeof(add) ||
	    recv(LINK_FD, p, sizeof(*p), 0) != sizeof(*p))
		_exit(99);
	printf("reply %u %d\n", p->id, p->code);
	fflush(stdout);
}

/* One request of the worker; the reply's fd, or -1. */
static int act_ask(enum link_op op, int fd)
{
	static struct rig r = {.fd = LINK_FD};
	struct link_packet p;
	int got;

	rig_request(&r, (struct rig_ask){.op = op, .pod = &rig_pod, .fd = fd});
	do
		if (!rig_receive(&r, 0, &p, &got))
			_exit(98);
	while (p.what != LINK_REPLY);
	printf("%d code %d cookie %d %s\n", op, p.code, p.netns_cookie != 0, p.why);
	fflush(stdout);
	return got;
}

/* Every row of the table, asked of a broker with its few capabilities. */
static void act_rows(void)
{
	int memfd = rig_memfd("{}", 2, RIG_SEALS), l, a;

	act_ask(LINK_POD_ADD, 0);
	l = act_ask(LINK_LISTEN, 0);
	struct pollfd p = {.fd = l, .events = POLLIN};
	poll(&p, 1, 60 * 1000);
	a = accept4(l, NULL, NULL, 0);
	act_ask(LINK_PEER_OF, a);
	act_ask(LINK_WRITE, memfd);
	act_ask(LINK_FOLLOW, 0);
	act_ask(LINK_POD_REMOVE, 0);
}

/* As agentd.yaml has it. */
static int act_json(void)
{
	static struct rig r = {.fd = LINK_FD};
	struct link_packet p;
	int fd;

	rig_request(&r, (struct rig_ask){.op = LINK_LOG, .kind = LINK_LOG_JSON, .arg = 2});
	do
		if (!rig_receive(&r, 0, &p, &fd))
			return 98;
	while (p.what != LINK_REPLY);
	return p.code ? 97 : 3;
}

static void on_term(int s)
{
	(void)s;
	_exit(0);
}

static int worker(int argc, char **argv)
{
	struct link_packet p;
	const char *act = "";

	for (int i = 1; i < argc; i++)
		if (!strncmp(argv[i], "--node-name=", 12))
			act = argv[i] + 12;
	if (!strcmp(act, "self"))
		print_self(argc, argv);
	else if (!strcmp(act, "rows"))
		act_rows();
	else if (!strcmp(act, "json"))
		return act_json();
	else if (!strcmp(act, "check"))
		return strcmp(argv[argc - 1], "--check") != 0;
	else if (!strcmp(act, "trial"))
		return strcmp(argv[argc - 1], "--check-state") != 0 ||
		       recv(LINK_FD, &p, sizeof(p), MSG_DONTWAIT) >= 0;
	else if (!strncmp(act, "exit", 4))
		return atoi(act + 4);
	else if (!strncmp(act, "signal", 6))
		raise(atoi(act + 6));
	else if (!strcmp(act, "garbage")) {
		if (send(LINK_FD, "?", 1, 0) == 1)
			poll(NULL, 0, -1);
	} else if (!strcmp(act, "leave")) {
		close(LINK_FD); /* and end in order a moment later */
		poll(NULL, 0, 50);
		return 7;
	} else if (!strcmp(act, "stay") || !strcmp(act, "die")) {
		signal(SIGTERM, !strcmp(act, "stay") ? on_term : SIG_DFL);
		speak(&p);
		poll(NULL, 0, -1);
	}
	return 0;
}

/* --- running it --- */

struct node {
	char top[32];
	pid_t pid;
	int out, err;
	rlim_t files; /* of the next one; 0: as many as we */
};

static void copy_self(const char *to)
{
	rig_shell("cp /proc/%d/exe %s", (int)getpid(), to);
}

static int setup(void **state)
{
	static struct node n;

	rig_own_mounts();
	strcpy(n.top, "/tmp/bmXXXXXX");
	assert_non_null(mkdtemp(n.top));
	char path[64];
	snprintf(path, sizeof(path), "%s/agentd", n.top);
	copy_self(path);
	snprintf(path, sizeof(path), "%s/agentd-worker", n.top);
	copy_self(path);
	*state = &n;
	return 0;
}

static int teardown(void **state)
{
	struct node *n = *state;
	char path[64];

	snprintf(path, sizeof(path), "%s/run/state", n->top);
	umount2(path, MNT_DETACH);
	rig_shell("rm -rf %s", n->top);
	return 0;
}

/* Starts <top>/agentd --run <top>/run and the flags, a NULL-terminated list. */
static void start(struct node *n, const char **flags)
{
	char exe[64], run[64];
	const char *argv[24] = {"agentd", "--run", run};
	int out[2], err[2], argc = 3;

	snprintf(exe, sizeof(exe), "%s/agentd", n->top);
	snprintf(run, sizeof(run), "%s/run", n->top);
	while (*flags)
		argv[argc++] = *flags++;
	assert_int_equal(pipe2(out, O_CLOEXEC) | pipe2(err, O_CLOEXEC), 0);
	n->pid = fork();
	assert_true(n->pid >= 0);
	if (n->pid == 0) {
		if (n->files)
			setrlimit(RLIMIT_NOFILE, &(struct rlimit){n->files, n->files});
		dup2(out[1], STDOUT_FILENO);
		dup2(err[1], STDERR_FILENO);
		execv(exe, (char **)argv);
		_exit(126);
	}
	close(out[1]);
	close(err[1]);
	n->out = out[0];
	n->err = err[0];
}
#define START(n, ...) start(n, (const char *[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static char *slurp(int fd)
{
	static char texts[4][16384];
	static unsigned turn;
	char *text = texts[turn++ % 4];
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, text + len, sizeof(texts[0]) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	close(fd);
	return text;
}

struct result {
	int status;
	const char *out, *err;
};

static struct result finish(struct node *n)
{
	struct result r = {.out = slurp(n->out), .err = slurp(n->err)};

	assert_int_equal(waitpid(n->pid, &r.status, 0), n->pid);
	return r;
}

static void expect_exit(const struct result *r, int code, const char *said)
{
	if (!WIFEXITED(r->status) || WEXITSTATUS(r->status) != code)
		fail_msg(
		    "status %#x instead of exit code %d: %s", (unsigned)r->status, code, r->err);
	if (!strstr(r->err, said))
		fail_msg("\"%s\" lacks \"%s\"", r->err, said);
}

static void expect_line(const char *text, const char *line)
{
	char wanted[128];

	snprintf(wanted, sizeof(wanted), "\n%s\n", line);
	if (!strstr(text, wanted))
		fail_msg("no line \"%s\" in: %s", line, text);
}

/* 32 and 33 are glibc's own: who started us may ignore them, and no program can change that. */
static void expect_nothing_ignored(const char *text)
{
	const char *line = strstr(text, "\nSigIgn:\t");

	assert_non_null(line);
	assert_int_equal(strtoull(line + strlen("\nSigIgn:\t"), NULL, 16) & ~(3ULL << 31), 0);
}

/* Until the worker of --node-name=stay has had its first answer. */
static void wait_until_served(struct node *n)
{
	char text[64];
	ssize_t len = read(n->out, text, sizeof(text) - 1);

	assert_true(len > 0);
	text[len] = '\0';
	assert_string_equal(text, "reply 5 0\n");
}

/* --- tests --- */

/* process-split.md 1.4: nothing is left that could be given up. */
static void test_the_worker_has_nothing_but_its_fds(void **state)
{
	struct node *n = *state;
	char config[64];

	snprintf(config, sizeof(config), "%s/c.yaml", n->top);
	rig_file(config, "settings");
	assert_int_equal(chmod(config, 0600) | chmod(n->top, 0700), 0);
	setenv("SECRET", "of root", 1);
	setenv("TZ", "UTC", 1);
	assert_int_equal(setgroups(1, (const gid_t[]){4242}), 0);
	int inherited = dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 40); /* not close-on-exec */
	START(
	    n, "--config", config, "--worker-user=4711", "--node-name=self", "--ip-family", "flag");
	struct result r = finish(n);
	close(inherited);
	assert_int_equal(setgroups(0, NULL), 0);
	expect_exit(&r, 0, "exit code 0");
	const char *fd3 = strstr(r.out, "\nfd 3 socket:");
	assert_non_null(fd3);
	const char *fd4 = strstr(fd3, "\nfd 4 /");
	assert_non_null(fd4);
	assert_null(strstr(fd4 + 1, "\nfd ")); /* no other */
	expect_line(r.out, "Uid:\t4711\t4711\t4711\t4711");
	expect_line(r.out, "Gid:\t4711\t4711\t4711\t4711");
	expect_line(r.out, "Groups:\t ");
	expect_line(r.out, "CapInh:\t0000000000000000");
	expect_line(r.out, "CapPrm:\t0000000000000000");
	expect_line(r.out, "CapEff:\t0000000000000000");
	expect_line(r.out, "CapBnd:\t0000000000000000");
	expect_line(r.out, "CapAmb:\t0000000000000000");
	expect_line(r.out, "NoNewPrivs:\t1");
	expect_line(r.out, "SigBlk:\t0000000000000000");
	expect_nothing_ignored(r.out);
	expect_line(r.out, "core 0 0");
	expect_line(r.out, "death 9");
	expect_line(r.out, "session 1");
	expect_line(r.out, "arg agentd-worker\narg --node-name=self\narg --ip-family\narg flag");
	expect_line(r.out, "env TZ=UTC");
	assert_null(strstr(r.out, "SECRET"));
	expect_line(r.out, "config settings"); /* which its user could not open */
	unsetenv("SECRET");
}

static void test_it_ends_with_the_workers_status(void **state)
{
	struct node *n = *state;
	static const struct {
		const char *act, *said;
		int code;
	} cases[] = {
	    {"--node-name=exit0", "level=info scope=broker msg=\"the worker ended: exit code 0\"",
		0},
	    {"--node-name=exit3", "level=error scope=broker msg=\"the worker ended: exit code 3\"",
		3},
	    {"--node-name=signal6", "signal 6 (aborted: a failed assertion, or out of memory)",
		134},
	    {"--node-name=signal9", "signal 9 (killed: by someone, or by the kernel for memory)",
		137},
	    {"--node-name=signal31", "signal 31 (a forbidden system call)", 159},
	    {"--node-name=garbage", "broke the protocol and is killed: a request of 1 bytes", 137},
	    {"--node-name=leave", "exit code 7", 7}, /* has time to end in order */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		START(n, cases[i].act);
		struct result r = finish(n);
		expect_exit(&r, cases[i].code, cases[i].said);
	}
}

static void stop_with(struct node *n, const char *act, int signal)
{
	START(n, act);
	wait_until_served(n);
	assert_int_equal(kill(n->pid, signal), 0);
	struct result r = finish(n);
	expect_exit(&r, 0, signal == SIGTERM ? "Terminated: ending" : "Interrupt: ending");
}

static void test_a_signal_ends_both_in_order(void **state)
{
	struct node *n = *state;
	char path[64];

	stop_with(n, "--node-name=stay", SIGTERM);
	stop_with(n, "--node-name=stay", SIGINT);
	stop_with(n, "--node-name=die", SIGTERM); /* before it has a handler */
	snprintf(path, sizeof(path), "%s/run/admin.sock", n->top);
	assert_int_equal(access(path, F_OK), 0); /* the next broker renames over it */
}

/* process-split.md 6: uid 0 with seven capabilities, for good. */
static void test_the_broker_keeps_few_capabilities(void **state)
{
	static const char *const sets[] = {"CapPrm", "CapEff", "CapBnd"};
	struct node *n = *state;
	char cmd[128];

	START(n, "--node-name=stay");
	wait_until_served(n);
	for (int i = 0; i < 3; i++) {
		snprintf(cmd, sizeof(cmd), "grep -q '^%s:.00000000002011e4$' /proc/%d/status",
		    sets[i], (int)n->pid);
		rig_shell("%s", cmd);
	}
	assert_int_equal(kill(n->pid, SIGTERM), 0); /* which it may still pass on to its worker */
	struct result r = finish(n);
	expect_exit(&r, 0, "exit code 0");
}

static void test_every_row_works_with_them(void **state)
{
	struct node *n = *state;
	char path[100], line[64];

	START(n, "--node-name=rows", "--root-file=0=/nonexistent");
	snprintf(path, sizeof(path), "%s/run/pods/%s/mount/socket", n->top, rig_pod_text);
	pid_t peer = fork();
	if (peer == 0) {
		if (unshare(CLONE_NEWNET))
			_exit(1);
		while (rig_connect(path) < 0)
			poll(NULL, 0, 2);
		_exit(0);
	}
	struct result r = finish(n);
	waitpid(peer, NULL, 0);
	expect_exit(&r, 0, "exit code 0");
	static const enum link_op ops[] = {
	    LINK_POD_ADD, LINK_LISTEN, LINK_PEER_OF, LINK_WRITE, LINK_FOLLOW, LINK_POD_REMOVE};
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		snprintf(
		    line, sizeof(line), "%d code 0 cookie %d ", ops[i], ops[i] == LINK_PEER_OF);
		if (!strstr(r.out, line))
			fail_msg("no \"%s\" in %s", line, r.out);
	}
}

/* PDEATHSIG: no worker outlives its broker; its pipe end is closed by its death. */
static void test_a_killed_broker_takes_the_worker_along(void **state)
{
	struct node *n = *state;

	START(n, "--node-name=stay");
	wait_until_served(n);
	assert_int_equal(kill(n->pid, SIGKILL), 0);
	struct result r = finish(n); /* returns when both have closed stdout */
	assert_true(WIFSIGNALED(r.status));
	START(n, "--node-name=stay"); /* and the run directory is free again */
	wait_until_served(n);
	assert_int_equal(kill(n->pid, SIGTERM), 0);
	r = finish(n);
	expect_exit(&r, 0, "exit code 0");
}

static void test_a_second_broker_says_who_is_there(void **state)
{
	struct node *n = *state, second = *n;
	char text[64];

	START(n, "--node-name=stay");
	wait_until_served(n);
	START(&second, "--node-name=stay");
	struct result r = finish(&second);
	snprintf(text, sizeof(text), "another agentd (pid %d) holds", (int)n->pid);
	expect_exit(&r, 1, text);
	assert_int_equal(kill(n->pid, SIGTERM), 0);
	r = finish(n);
	expect_exit(&r, 0, "");
}

static void test_what_keeps_it_from_starting(void **state)
{
	struct node *n = *state;
	struct result r;

	START(n, "--config", "/nonexistent.yaml");
	r = finish(n);
	expect_exit(&r, 2, "/nonexistent.yaml: No such file");
	START(n, "--worker-user=root");
	r = finish(n);
	expect_exit(&r, 2, "must not be root");
	START(n, "--redirect", "--redirect-allow=everything");
	r = finish(n);
	expect_exit(&r, 2, "--redirect-allow takes");
	START(n, "--connect");
	r = finish(n);
	expect_exit(&r, 2, "--connect belongs to --check");
	START(n, "--max-pods=none");
	r = finish(n);
	expect_exit(&r, 2, "--max-pods needs a number");
	START(n, "--kubelet-rot=/k");
	r = finish(n);
	expect_exit(&r, 2, "--kubelet-rot: no such flag; nearest: --kubelet-root");
	rig_shell("chmod 644 %s/agentd-worker", n->top);
	START(n, "--node-name=exit0");
	r = finish(n);
	expect_exit(&r, 1, "everybody may execute");
	rig_shell("rm %s/agentd-worker", n->top);
	START(n, "--node-name=exit0");
	r = finish(n);
	expect_exit(&r, 1, "agentd-worker: No such file");
}

static void expect_json(const char *log, bool json)
{
	assert_true(*log);
	for (const char *line = log; *line; line = strchr(line, '\n') + 1)
		if (strncmp(line, json ? "{\"time\":" : "time=", json ? 8 : 5) != 0)
			fail_msg("%s", line);
}

/* By a flag from the first line on, whatever it is about; else as the worker says, if it does. */
static void test_the_log_is_as_it_was_told(void **state)
{
	struct node *n = *state;
	struct result r;

	START(n, "--max-pods=none", "--log-json");
	r = finish(n);
	expect_exit(&r, 2, "");
	expect_json(r.err, true);
	START(n, "--log-json", "--node-name=exit3");
	r = finish(n);
	expect_exit(&r, 3, "exit code 3");
	expect_json(r.err, true);
	START(n, "--node-name=json");
	r = finish(n);
	expect_exit(&r, 3, "run directory");
	expect_json(r.err, true);
	START(n, "--node-name=exit3");
	r = finish(n);
	expect_exit(&r, 3, "run directory");
	expect_json(r.err, false);
	START(n, "--log-level=error", "--node-name=exit3");
	r = finish(n);
	expect_exit(&r, 3, "level=error");
	assert_null(strstr(r.err, "level=info"));
	START(n, "--log-level=loud");
	r = finish(n);
	expect_exit(&r, 2, "unknown log level");
}

static void test_only_root_may_start_it(void **state)
{
	struct node *n = *state;
	int status;

	assert_int_equal(chmod(n->top, 0755), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (setgid(4711) || setuid(4711))
			_exit(100);
		_exit(broker_run(1, (char *[]){"agentd", NULL}));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 1 << 8);
}

static void test_help_and_version_need_nothing(void **state)
{
	struct node *n = *state;
	struct result r;
	char own[100];

	START(n, "--help");
	r = finish(n);
	expect_exit(&r, 0, "");
	assert_non_null(strstr(r.out, "--root-file INDEX=FILE"));
	START(n, "--version");
	r = finish(n);
	expect_exit(&r, 0, "");
	snprintf(own, sizeof(own), "agentd %s\n", version_text);
	assert_string_equal(r.out, own);
}

static void test_check_says_what_to_do(void **state)
{
	struct node *n = *state;
	char root[64], pods[64];
	struct result r;

	snprintf(root, sizeof(root), "0=%s/root.pem", n->top);
	snprintf(pods, sizeof(pods), "%s/pods.d", n->top);
	rig_file(root + 2, "pem");
	rig_shell("mkdir %s", pods);
	START(n, "--check", "--node-name=check", "--root-file", root, "--manifests", pods);
	r = finish(n);
	expect_exit(&r, 0, "");
	assert_non_null(strstr(r.out, "its configuration is right"));
	assert_null(strstr(r.out, "PROBLEM"));
	assert_int_equal(chmod(pods, 0777), 0);
	START(n, "--check", "--node-name=exit2", "--root-file=1=/nonexistent", "--manifests", pods);
	r = finish(n);
	expect_exit(&r, 1, "");
	assert_non_null(strstr(r.out, "/nonexistent is not there"));
	assert_non_null(strstr(r.out, "its check failed (exit code 2)"));
	assert_non_null(strstr(r.out, "can be written by others than root"));
	snprintf(root, sizeof(root), "%s/run", n->top);
	assert_int_equal(access(root, F_OK), -1); /* it changes nothing */
}

static struct result trial(struct node *n, const char *act)
{
	struct upgrade_table_head none = {
	    UPGRADE_TABLE_MAGIC, UPGRADE_TABLE_VERSION, sizeof(struct upgrade_table_entry), 0};
	auto_close int image = rig_memfd(&none, sizeof(none), RIG_SEALS);
	int table = dup(image); /* not close-on-exec */
	char name[64], number[16];

	snprintf(name, sizeof(name), "--node-name=%s", act);
	snprintf(number, sizeof(number), "%d", table);
	setenv("AGENTD_KEPT", number, 1);
	START(n, "--check-state", "--redirect", "--root-file=0=/nonexistent", name);
	unsetenv("AGENTD_KEPT");
	close(table);
	return finish(n);
}

/* What belongs to the program, and nothing else; the reason is on stdout. */
static void test_what_a_trial_proves(void **state)
{
	enum { TOO_FEW = 20 }; /* for the eBPF programs */
	struct node *n = *state;
	struct result r = trial(n, "trial");

	expect_exit(&r, 0, "");
	assert_string_equal(r.out, "");
	r = trial(n, "exit2");
	expect_exit(&r, 1, "");
	assert_string_equal(r.out, "agentd-worker: its check failed (exit code 2)\n");
	n->files = TOO_FEW;
	r = trial(n, "trial");
	n->files = 0;
	expect_exit(&r, 1, "");
	assert_string_equal(r.out, "the kernel refuses an eBPF program: Too many open files\n");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(test_the_worker_has_nothing_but_its_fds),
	    T(test_it_ends_with_the_workers_status),
	    T(test_a_signal_ends_both_in_order),
	    T(test_the_broker_keeps_few_capabilities),
	    T(test_every_row_works_with_them),
	    T(test_a_killed_broker_takes_the_worker_along),
	    T(test_a_second_broker_says_who_is_there),
	    T(test_what_keeps_it_from_starting),
	    T(test_the_log_is_as_it_was_told),
	    T(test_only_root_may_start_it),
	    T(test_help_and_version_need_nothing),
	    T(test_check_says_what_to_do),
	    T(test_what_a_trial_proves),
	};

	if (!strcmp(argv[0], "agentd"))
		return broker_run(argc, argv);
	if (!strcmp(argv[0], "agentd-worker"))
		return worker(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
