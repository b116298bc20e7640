/* worker.c - fork, give everything away, exec.
 *
 * The order is that of process-split.md 1.4: signals, the two fds, close the rest, bounding set, no
 * core, groups and ids, no_new_privs, then the parent-death signal (a change of credentials clears
 * it), then exec with a named environment.  The executable was opened by root beforehand and is run
 * through its fd: the worker's user need not reach the directory it lies in.
 */
#include "worker.h"
#include "broker/base/caps.h"
#include "broker/base/file.h"
#include "broker/base/io.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

LOG_SCOPE("broker");

enum { FIRST_FREE_FD = LINK_CONFIG_FD + 1, EXEC_FAILED = 127 };

/* All the worker gets to see of our environment. */
static const char *const environment[] = {
    "PATH",              /* for symbolizers of sanitizer builds */
    "TZ",                /* times people read */
    "JOURNAL_STREAM",    /* common/log.h writes priorities then */
    "GRPC_DNS_RESOLVER", /* "native" where c-ares cannot resolve */
    "ASAN_OPTIONS",
    "LSAN_OPTIONS",
    "TSAN_OPTIONS",
    "UBSAN_OPTIONS",
};
enum { NENVIRONMENT = sizeof(environment) / sizeof(environment[0]) };

static int open_beside_us(const char *name, struct err *e)
{
	char path[PATH_MAX + 32];
	struct stat st;
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

	if (n <= 0)
		return err_sys(e, "/proc/self/exe");
	path[n] = '\0';
	snprintf(strrchr(path, '/') + 1, 32, "%s", name);
	auto_close int fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return err_sys(e, "%s", path);
	if (!S_ISREG(st.st_mode) || !(st.st_mode & S_IXOTH))
		return err_set(e, EACCES, "%s must be a file that everybody may execute", path);
	return take_fd(fd);
}

/* A copy: the death of a worker must not change the configuration. */
static int open_config(const struct broker_options *o, struct err *e)
{
	auto_close int copy = memfd_create("agentd.yaml", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	auto_close int file = open(o->config, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct broker_copy done;

	if (copy < 0)
		return err_sys(e, "memfd");
	if (file < 0 && (errno != ENOENT || o->config_named)) {
		err_sys(e, "%s", o->config);
		e->code = ERR_INVALID;
		return -1;
	}
	if (file >= 0 && broker_io_copy(file, copy, LINK_FILE_SIZE_MAX, &done, e)) {
		struct err why = *e;
		return err_set(e, ERR_INVALID, "%s %s", o->config, why.msg);
	}
	return broker_io_seal(copy, e) ? -1 : take_fd(copy);
}

int life_worker_open(struct life_worker *wk, const struct broker_options *o, struct err *e)
{
	wk->exe = wk->config = -1;
	if (broker_options_user(o, &wk->user, e) ||
	    (wk->exe = open_beside_us("agentd-worker", e)) < 0 ||
	    (wk->config = open_config(o, e)) < 0) {
		life_worker_close(wk);
		return -1;
	}
	return 0;
}

void life_worker_close(struct life_worker *wk)
{
	mem_closep(&wk->exe);
	mem_closep(&wk->config);
}

/* --- in the child --- */

static void die(const char *what)
{
	log_error(NULL, "the worker cannot be started: %s: %m", what);
	_exit(EXEC_FAILED);
}

static void reset_signals(void)
{
	sigset_t none;

	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL); /* what cannot be set need not be */
	sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL))
		die("sigprocmask");
}

/* Moved out of the way first: the sources may be 3 or 4 themselves. */
static int place_fds(const struct life_worker *wk, int sock)
{
	enum { ASIDE = 16 };
	int s = fcntl(sock, F_DUPFD_CLOEXEC, ASIDE);
	int c = fcntl(wk->config, F_DUPFD_CLOEXEC, ASIDE);
	int exe = fcntl(wk->exe, F_DUPFD_CLOEXEC, ASIDE);

	if (s < 0 || c < 0 || exe < 0 || dup2(s, LINK_FD) < 0 || dup2(c, LINK_CONFIG_FD) < 0 ||
	    dup3(exe, FIRST_FREE_FD, O_CLOEXEC) < 0 || close_range(FIRST_FREE_FD + 1, ~0U, 0))
		die("fds");
	return FIRST_FREE_FD;
}

static void drop_privileges(const struct broker_user *user)
{
	const struct rlimit no_core = {0, 0};
	struct err e;

	if (broker_caps_bound(0, &e))
		die(e.msg);
	if (setrlimit(RLIMIT_CORE, &no_core))
		die("RLIMIT_CORE");
	if (setgroups(0, NULL) || setresgid(user->gid, user->gid, user->gid) ||
	    setresuid(user->uid, user->uid, user->uid))
		die("credentials");
	if (broker_caps_set(0, &e))
		die(e.msg);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		die("no_new_privs");
}

static void fill_environment(char *out[NENVIRONMENT + 1])
{
	int n = 0;

	for (int i = 0; i < NENVIRONMENT; i++) {
		const char *value = getenv(environment[i]);
		if (value && asprintf(&out[n], "%s=%s", environment[i], value) >= 0)
			n++;
	}
	out[n] = NULL;
}

static void run_worker(
    const struct life_worker *wk, const struct broker_options *o, int sock, pid_t broker)
{
	char *env[NENVIRONMENT + 1];

	fill_environment(env);
	reset_signals();
	setsid(); /* no terminal to push characters into, and no SIGINT of the broker's own */
	int exe = place_fds(wk, sock);
	if (!o->no_privsep)
		drop_privileges(&wk->user);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		die("parent-death signal");
	if (getppid() != broker)
		_exit(EXEC_FAILED); /* it died before the signal was set */
	syscall(SYS_execveat, exe, "", o->worker_argv, env, AT_EMPTY_PATH);
	die("exec");
}

/* --- in the broker --- */

pid_t life_worker_start(const struct life_worker *wk, const struct broker_options *o, int sock,
    const char *extra, struct err *e)
{
	static char no_privsep[] = "--no-privsep";
	char **end = o->worker_argv + o->worker_argc; /* has room, and for a flag that was ours */
	pid_t broker = getpid(), pid;

	if (o->no_privsep)
		*end++ = no_privsep;
	if (extra)
		*end++ = (char *)extra;
	*end = NULL;
	pid = lseek(wk->config, 0, SEEK_SET) ? -1 : fork(); /* the last one has read it */
	if (pid < 0)
		return err_sys(e, "fork");
	if (pid == 0)
		run_worker(wk, o, sock, broker);
	return pid;
}

static const char *meaning(int signal)
{
	switch (signal) {
	case SIGABRT:
		return "aborted: a failed assertion, or out of memory";
	case SIGKILL:
		return "killed: by someone, or by the kernel for memory";
	case SIGSYS:
		return "a forbidden system call";
	default:
		return strsignal(signal);
	}
}

void life_worker_ended(int wait_status, char out[BROKER_ENDED_SIZE])
{
	if (WIFSIGNALED(wait_status))
		snprintf(out, BROKER_ENDED_SIZE, "signal %d (%s)", WTERMSIG(wait_status),
		    meaning(WTERMSIG(wait_status)));
	else
		snprintf(out, BROKER_ENDED_SIZE, "exit code %d", WEXITSTATUS(wait_status));
}

int life_worker_exit_code(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static void tell_files(const char *const *files, enum link_followed kind, int sock)
{
	for (unsigned i = 0; i < LINK_PLANES_MAX; i++) {
		struct link_packet p = {.what = LINK_FILE, .kind = kind, .id = i};
		struct broker_content c;

		if (!files[i])
			continue;
		broker_file_read_path(files[i], &c);
		p.state = c.state;
		(void)fdpass_send(sock, &p, sizeof(p), c.fd);
		mem_closep(&c.fd);
	}
}

/* All that it will be told waits for it: the roots and lists that there are, by their numbers. */
static void tell_all(const struct broker_options *o, int sock)
{
	tell_files(o->root_files, LINK_FOLLOW_ROOT, sock);
	tell_files(o->crl_files, LINK_FOLLOW_CRL, sock);
	(void)shutdown(sock, SHUT_WR);
}

static const char *check_of(const struct broker_options *o)
{
	if (o->mode == BROKER_CHECK_STATE)
		return "--check-state";
	return o->connect ? "--connect" : "--check";
}

int life_worker_check(const struct broker_options *o, struct err *e)
{
	struct life_worker wk;
	char how[BROKER_ENDED_SIZE];
	int pair[2], status;

	if (life_worker_open(&wk, o, e))
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		life_worker_close(&wk);
		return err_sys(e, "socketpair");
	}
	if (o->mode != BROKER_CHECK_STATE)
		tell_all(o, pair[0]);
	pid_t pid = life_worker_start(&wk, o, pair[1], check_of(o), e);
	life_worker_close(&wk);
	close(pair[1]);
	int rc = pid < 0 ? -1 : 0;
	if (rc == 0 && waitpid(pid, &status, 0) != pid) {
		rc = err_sys(e, "wait for the worker's check");
	} else if (rc == 0 && status) {
		life_worker_ended(status, how);
		rc = err_set(e, EINVAL, "its check failed (%s)", how);
	}
	close(pair[0]);
	return rc;
}
