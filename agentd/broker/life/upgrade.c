/* upgrade.c - SIGUSR2 -> open and look -> trial by a child -> the worker ends -> execveat().
 *
 * The listening sockets stay open all the time and clients wait in their backlogs.  Descriptors
 * cross by their numbers: close-on-exec is taken off them at the last moment and put back if the
 * execution fails (process-split.md 7.13).  An executable that would die at once would take
 * everything with it, hence the trial, of the very file that is executed later
 * (process-split.md 7.14).  What it prints goes into a memfd that cannot grow: a pipe would have to
 * be read meanwhile.
 */
#include "upgrade.h"
#include "broker/base/state.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "upgrade_table.h"
#include "worker.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

LOG_SCOPE("broker");

#define TABLE_VARIABLE "AGENTD_KEPT" /* the number of its fd */
enum { EXEC_FAILED = 127, REASON_SIZE = 200, SAID_MAX = 1 << 16 };

/* A file that was replaced since is shown as "... (deleted)"; its successor has the name. */
void upgrade_open(struct upgrade *u, char **argv)
{
	static const char gone[] = " (deleted)";
	ssize_t n = readlink("/proc/self/exe", u->path, sizeof(u->path) - 1);

	u->argv = argv;
	u->exe = u->said = -1;
	u->trial = 0;
	u->path[n > 0 ? n : 0] = '\0';
	size_t end = strlen(u->path) - (sizeof(gone) - 1);
	if (strlen(u->path) > sizeof(gone) && !strcmp(u->path + end, gone) && access(u->path, F_OK))
		u->path[end] = '\0';
	/* Executed through an fd we would be called by its number. */
	prctl(PR_SET_NAME, "agentd");
}

/* --- which file --- */

static int open_safe(int dir, const char *name, struct err *e)
{
	auto_close int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return err_sys(e, "%s", name);
	if (!S_ISREG(st.st_mode) || !(st.st_mode & S_IXUSR))
		return err_set(e, EACCES, "%s is no executable file", name);
	if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(e, EPERM,
		    "%s can be written by others than root: chown root, chmod go-w", name);
	return take_fd(fd);
}

static int open_next(const struct upgrade *u, struct err *e)
{
	const char *slash = strrchr(u->path, '/');
	char dir[PATH_MAX];
	struct stat st;

	if (!slash)
		return err_set(e, ENOENT, "/proc/self/exe could not be read at the start");
	snprintf(dir, sizeof(dir), "%.*s/", (int)(slash - u->path), u->path);
	auto_close int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0 || fstat(at, &st))
		return err_sys(e, "%s", dir);
	if (st.st_uid != 0 || (st.st_mode & S_IWOTH))
		return err_set(e, EPERM, "%s can be written by others than root", dir);
	auto_close int worker = open_safe(at, "agentd-worker", e);
	return worker < 0 ? -1 : open_safe(at, slash + 1, e);
}

/* --- what goes with it --- */

static void keep_open(void *ctx, const char *name, int fd)
{
	(void)name;
	fcntl(fd, F_SETFD, ctx ? FD_CLOEXEC : 0);
}

static void set_close_on_exec(struct broker_fdstore *k, int table, bool on)
{
	keep_open(on ? k : NULL, NULL, table);
	broker_fdstore_each(k, BROKER_FDSTORE, keep_open, on ? k : NULL);
}

static void execute(struct upgrade *u, char **argv, struct broker_fdstore *k, int table)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", table);
	setenv(TABLE_VARIABLE, number, 1);
	set_close_on_exec(k, table, false);
	syscall(SYS_execveat, u->exe, "", argv, environ, AT_EMPTY_PATH);
	int saved = errno;
	set_close_on_exec(k, table, true);
	unsetenv(TABLE_VARIABLE);
	errno = saved;
}

int upgrade_exec(struct upgrade *u, struct broker_fdstore *k, struct err *e)
{
	auto_close int table = upgrade_table_write(k, e);

	if (table >= 0) {
		log_release();
		execute(u, u->argv, k, table);
		err_sys(e, "%s cannot be executed", u->path);
	}
	upgrade_drop(u);
	return -1;
}

void upgrade_drop(struct upgrade *u)
{
	mem_closep(&u->exe);
	mem_closep(&u->said);
}

void upgrade_close(struct upgrade *u)
{
	if (u->trial)
		kill(u->trial, SIGKILL);
	upgrade_drop(u);
}

/* --- the trial --- */

/* What is between us and systemd is no business of a trial. */
static void run_trial(struct upgrade *u, struct broker_fdstore *k, int table, pid_t broker)
{
	static const char *const ours[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
	size_t n = 0;
	sigset_t none;

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		unsetenv(ours[i]);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	while (u->argv[n])
		n++;
	char **argv = mem_zalloc((n + 3) * sizeof(char *));
	memcpy(argv, u->argv, n * sizeof(char *));
	argv[n] = (char[]){"--check-state"};
	if (log_is_json())
		argv[n + 1] = (char[]){"--log-json"};
	dup2(u->said, STDOUT_FILENO); /* stderr is the log */
	/* It has a copy of the lock: it must not outlive us. */
	if (!prctl(PR_SET_PDEATHSIG, SIGKILL) && getppid() == broker)
		execute(u, argv, k, table);
	log_error(NULL, "%s cannot be tried: %m", u->path);
	_exit(EXEC_FAILED);
}

static int open_said(void)
{
	auto_close int fd = memfd_create("agentd-trial", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, SAID_MAX) || fcntl(fd, F_ADD_SEALS, F_SEAL_GROW))
		return -1;
	return take_fd(fd);
}

int upgrade_try(struct upgrade *u, struct broker_fdstore *k, struct err *e)
{
	pid_t broker = getpid();

	if (u->trial || u->exe >= 0)
		return err_set(e, EALREADY, "an upgrade is under way");
	auto_close int exe = open_next(u, e);
	auto_close int table = exe < 0 ? -1 : upgrade_table_write(k, e);
	if (table < 0)
		return -1;
	u->exe = take_fd(exe);
	u->said = open_said();
	u->trial = u->said < 0 ? -1 : fork();
	if (u->trial == 0)
		run_trial(u, k, table, broker);
	if (u->trial < 0) {
		err_sys(e, "a trial");
		u->trial = 0;
		upgrade_drop(u);
		return -1;
	}
	return 0;
}

/* Its first line; "": it said nothing. */
static void read_reason(const struct upgrade *u, char out[REASON_SIZE])
{
	char text[REASON_SIZE];
	ssize_t n = pread(u->said, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	err_printable(out, REASON_SIZE, text, (unsigned)strcspn(text, "\n"));
}

int upgrade_tried(struct upgrade *u, int wait_status, struct err *e)
{
	char how[BROKER_ENDED_SIZE], why[REASON_SIZE];

	u->trial = 0;
	read_reason(u, why);
	mem_closep(&u->said);
	if (wait_status == 0)
		return 0;
	upgrade_drop(u);
	life_worker_ended(wait_status, how);
	return err_set(
	    e, ECANCELED, "%s failed its trial: %s%s%s", u->path, how, *why ? ": " : "", why);
}

/* --- in the next one --- */

/* The fd of the table; -1: we were started, not executed. */
static int table_fd(void)
{
	const char *text = getenv(TABLE_VARIABLE);
	char *end;
	long n = text ? strtol(text, &end, 10) : -1;

	n = text && (*end || n <= STDERR_FILENO || n > INT_MAX) ? -1 : n;
	unsetenv(TABLE_VARIABLE);
	return (int)n;
}

/* Descriptors that nobody has a name for, the lock among them, must not stay open. */
void upgrade_receive(struct broker_fdstore *k)
{
	int table = table_fd();
	struct err e;

	if (table < 0)
		return;
	if (upgrade_table_read(table, k, &e)) {
		log_warn(NULL, "nothing is taken over from the previous agentd: %s", e.msg);
		close_range(STDERR_FILENO + 1, ~0U, 0);
		return;
	}
	close(table);
}

int upgrade_check(const struct broker_options *o, struct err *e)
{
	int table = table_fd();

	if (table < 0)
		return err_set(e, EINVAL, "--check-state is for agentd itself");
	if (upgrade_table_check(table, e) || broker_state_check(o, e))
		return -1;
	return life_worker_check(o, e) ? err_wrap(e, "agentd-worker") : 0;
}
