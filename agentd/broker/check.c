/* check.c - one line for each thing; a line that is no "ok" says what to do.
 *
 * "note" is something agentd lives without; "PROBLEM" is not, and makes the exit status 1.  The
 * worker itself is run last, as the user it will have, to check its configuration.
 */
#include "check.h"
#include "broker/base/file.h"
#include "broker/base/tmpfs.h"
#include "broker/kubelet/mount.h"
#include "broker/life/worker.h"
#include "broker/netns/metrics_listener.h"
#include "broker/pods/cgroup.h"
#include "broker/pods/peer.h"
#include "broker/redirect/ceiling.h"
#include "broker/redirect/redirect.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif
#ifndef TMPFS_MAGIC
#define TMPFS_MAGIC 0x01021994
#endif
#ifndef BPF_FS_MAGIC
#define BPF_FS_MAGIC 0xcafe4a11
#endif

enum { LANDLOCK_ABI_PORTS = 4 };
enum outcome { OK, NOTE, PROBLEM };

struct table {
	const struct broker_options *o;
	int problems;
};

static void row(struct table *t, enum outcome outcome, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void row(struct table *t, enum outcome outcome, const char *what, const char *fmt, ...)
{
	static const char *const words[] = {"ok", "note", "PROBLEM"};
	va_list ap;

	printf("%-8s %-22s ", words[outcome], what);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	t->problems += outcome == PROBLEM;
}

/* --- the kernel --- */

static void check_kernel(struct table *t)
{
	struct utsname u;
	uint64_t cookie;
	socklen_t len = sizeof(cookie);
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!uname(&u))
		row(t, OK, "kernel", "%s %s", u.release, u.machine);
	if (!getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len))
		row(t, OK, "SO_NETNS_COOKIE", "a connection shows its pod's network namespace");
	else
		row(t, NOTE, "SO_NETNS_COOKIE",
		    "missing (Linux 5.14): the broker looks at each connection, and a restarted "
		    "one learns the pods' network namespaces again");
}

static void check_peers(struct table *t)
{
	switch (pod_peer_best_way()) {
	case POD_PEER_BY_INFO:
		row(t, OK, "PIDFD_GET_INFO", "a connection shows its cgroup");
		break;
	case POD_PEER_BY_PIDFD:
		row(t, NOTE, "PIDFD_GET_INFO",
		    "missing (Linux 6.13): each peer is looked for in its pod's cgroup.procs");
		break;
	case POD_PEER_BY_PID:
		row(t, NOTE, "SO_PEERPIDFD",
		    "missing (Linux 6.5): each peer is looked for in its pod's cgroup.procs, and "
		    "refused until it is 300 ms old");
	}
}

/* The worker runs without them all the same, and says so. */
static void check_cage(struct table *t)
{
	uint32_t kill = SECCOMP_RET_KILL_PROCESS;
	long abi =
	    syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION);

	if (!syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &kill))
		row(t, OK, "seccomp", "broker and worker have their lists of system calls");
	else
		row(t, NOTE, "seccomp",
		    "missing: a broker or worker taken over could make any system call");
	if (abi >= LANDLOCK_ABI_PORTS)
		row(t, OK, "Landlock", "level %ld: files and ports of the worker", abi);
	else if (abi > 0)
		row(t, NOTE, "Landlock", "level %ld: files, but no ports (Linux 6.7)", abi);
	else
		row(t, NOTE, "Landlock",
		    "missing (CONFIG_SECURITY_LANDLOCK, and \"landlock\" in lsm= of the kernel's "
		    "command line): the worker can read what everybody can read");
}

/* --- the node --- */

/* Without it no pod's processes can be told from others. */
static void check_kubepods(struct table *t, const char *root)
{
	static const char what[] = "the kubelet's cgroup";
	static const char nil[] = "00000000-0000-0000-0000-000000000000";
	auto_close int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const char *named = t->o->kubepods;
	char path[PATH_MAX], usual[KUBEPODS_SIZE];

	kubepods_find(t->o, dir, nil, usual);
	if (kubepods_tree(t->o, dir, path))
		row(t, OK, what, "%s", path);
	else if (!named && *usual)
		row(t, OK, what, "one of several of the usual names");
	else if ((named || t->o->kubelet_root) && kubepods_look(dir, path))
		row(t, PROBLEM, what,
		    "%s: agentd does not look there; name it (--kubepods, the chart's value "
		    "kubepods)",
		    path);
	else if (named)
		row(t, NOTE, what, "%s is not there; it will be noticed when it appears", named);
	else if (t->o->kubelet_root)
		row(t, NOTE, what,
		    "kubepods or kubepods.slice is not there; it will be noticed when it appears");
}

static void check_cgroup(struct table *t)
{
	char path[PATH_MAX] = "";
	struct statfs fs;

	if (pod_cgroup_root(t->o, path)) {
		row(t, t->o->redirect ? PROBLEM : NOTE, "cgroup v2",
		    "not mounted: redirection needs it (mount -t cgroup2 none /sys/fs/cgroup)");
		return;
	}
	if (!statfs(path, &fs) && fs.f_type == CGROUP2_SUPER_MAGIC)
		row(t, OK, "cgroup v2", "%s", path);
	else
		row(t, PROBLEM, "cgroup v2", "%s is no cgroup2 file system: mend --cgroup-root",
		    path);
	check_kubepods(t, path);
}

static void check_file_systems(struct table *t)
{
	struct statfs fs;
	const char *run = t->o->run;
	char parent[PATH_MAX];

	snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(run, '/') - run), run);
	if (statfs(run, &fs) && statfs(*parent ? parent : "/", &fs))
		row(t, PROBLEM, "run directory", "%s: make the directory above it", run);
	else if (fs.f_type == TMPFS_MAGIC)
		row(t, OK, "run directory", "%s, on a tmpfs", run);
	else
		row(t, NOTE, "run directory",
		    "%s is not on a tmpfs: its files will outlive a reboot", run);
}

/* Where nobody asked for it, nothing of it is a problem. */
static void check_redirect(struct table *t)
{
	const enum outcome wrong = t->o->redirect ? PROBLEM : NOTE;
	struct redirect_can can = {.interfaces = false};
	char cgroup[POD_CGROUP_TOP_SIZE];
	struct redirect_ceiling ceiling = {.worker_uid = 0};
	struct err e;
	struct statfs fs;
	int level;

	if (redirect_ceiling_read(t->o->redirect_allow, &ceiling, &e))
		row(t, wrong, "--redirect-allow", "%s", e.msg);
	if (t->o->redirect && !pod_cgroup_top(t->o, cgroup)) {
		if (access(cgroup, F_OK))
			row(t, PROBLEM, "cgroup of all pods", "%s: %s: mend --redirect-cgroup",
			    cgroup, strerror(errno));
		else if ((level = redirect_level(cgroup, &e)) < 0)
			row(t, PROBLEM, "cgroup of all pods", "%s", e.msg);
		else
			row(t, OK, "cgroup of all pods", "%s, at level %d of the host's tree",
			    cgroup, level);
	}
	if (statfs(t->o->bpffs, &fs))
		row(t, wrong, "bpffs", "%s: %s", t->o->bpffs, strerror(errno));
	else if (fs.f_type == (__typeof__(fs.f_type))BPF_FS_MAGIC)
		row(t, OK, "bpffs", "%s", t->o->bpffs);
	else
		row(t, OK, "bpffs", "will be mounted on %s", t->o->bpffs);
	if (redirect_try(&can, &e)) {
		row(t, wrong, "eBPF redirection", "%s", e.msg);
		return;
	}
	row(t, OK, "eBPF redirection", "all programs load%s",
	    t->o->redirect ? "" : "; asked for by --redirect");
	if (!can.interfaces)
		row(t, NOTE, "excluded interfaces",
		    "need Linux 5.17: a pod that excludes one from redirection is refused");
	if (!can.late)
		row(t, NOTE, "an earlier Envoy",
		    "Linux 7.3 and newer need CONFIG_DEBUG_INFO_BTF: restart an Envoy that "
		    "listened before its pod's redirection began");
}

static void check_state(struct table *t)
{
	char path[PATH_MAX];
	struct broker_tmpfs fs;

	snprintf(path, sizeof(path), "%s/state", t->o->run);
	broker_tmpfs_look(path, &fs);
	const char *swap = fs.noswap ? ", never swapped out" : "";
	if (fs.is == BROKER_TMPFS_FOUND)
		row(t, OK, "state", "%s, a tmpfs of its own%s", path, swap);
	else if (fs.is == BROKER_TMPFS_MOUNTED)
		row(t, OK, "state", "a tmpfs of %d MiB%s will be mounted on %s", BROKER_TMPFS_MIB,
		    swap, path);
	else if (fs.is == BROKER_TMPFS_DENIED)
		row(t, NOTE, "state",
		    "%s: the state stays in memory, and each service account needs a new "
		    "certificate after agentd's end (mount -t tmpfs -o size=%dM,mode=0700 tmpfs "
		    "%s)",
		    fs.why.msg, BROKER_TMPFS_MIB, path);
	else
		row(t, PROBLEM, "state", "%s", fs.why.msg);
}

static void check_swap(struct table *t)
{
	if (broker_tmpfs_swap_is_on())
		row(t, NOTE, "swap", "on: private keys may reach the disk; swapoff, or encrypt it");
	else
		row(t, OK, "swap", "off");
}

static void check_manifests(struct table *t)
{
	struct stat st;
	const char *dir = t->o->manifests;

	if (!dir)
		row(t, OK, "manifests", "none: pods come from the kubelet (--manifests)");
	else if (stat(dir, &st))
		row(t, NOTE, "manifests", "%s: %s; it will be noticed when it appears (mkdir -p)",
		    dir, strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		row(t, PROBLEM, "manifests", "%s is not a directory: mend --manifests", dir);
	else if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)))
		row(t, PROBLEM, "manifests",
		    "%s can be written by others than root: chown root, chmod go-w", dir);
	else
		row(t, OK, "manifests", "%s", dir);
}

/* What the kubelet does not see is no volume: it looks from the node's own namespace of mounts.
 * What the next container does not find is no directory of a pod's. */
static void check_propagation(struct table *t, const char *what, const char *dir, const char *else_)
{
	if (kubelet_mount_is_seen(dir))
		row(t, OK, what, "the node sees mounts below %s", dir);
	else
		row(t, PROBLEM, what,
		    "%s is not shared with the node: %s (mountPropagation: Bidirectional; not "
		    "below systemd's ProtectSystem=)",
		    dir, else_);
}

/* The first ones have fixed inodes (include/linux/proc_ns.h). */
static void check_namespaces(struct table *t)
{
	static const struct {
		const char *path, *what, *flag;
		ino_t first;
	} of[] = {{"/proc/self/ns/pid", "pid namespace", "hostPID", 0xEFFFFFFC},
	    {"/proc/self/ns/cgroup", "cgroup namespace", "privileged", 0xEFFFFFFB}};
	struct stat st;

	for (unsigned i = 0; i < sizeof(of) / sizeof(*of); i++)
		if (!stat(of[i].path, &st) && st.st_ino == of[i].first)
			row(t, OK, of[i].what, "the machine's own: the kubelet is told from pods");
		else
			row(t, NOTE, of[i].what,
			    "not the machine's own: a kubelet outside of it is refused (%s)",
			    of[i].flag);
}

static void check_registry(struct table *t)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/plugins_registry", t->o->kubelet_root);
	if (stat(path, &st))
		row(t, NOTE, "kubelet's registry",
		    "%s: %s; it will be noticed when it appears (does the kubelet run?)", path,
		    strerror(errno));
	else if (!S_ISDIR(st.st_mode))
		row(t, PROBLEM, "kubelet's registry", "%s is not a directory", path);
	else
		row(t, OK, "kubelet's registry", "%s", path);
}

static void check_kubelet(struct table *t)
{
	char pods[PATH_MAX];
	struct stat st;

	if (!t->o->kubelet_root)
		return;
	snprintf(pods, sizeof(pods), "%s/pods", t->o->kubelet_root);
	if (stat(pods, &st) || !S_ISDIR(st.st_mode)) {
		row(t, PROBLEM, "kubelet", "%s is no directory: mend --kubelet-root, or mount it",
		    pods);
	} else {
		row(t, OK, "kubelet", "%s", t->o->kubelet_root);
		check_propagation(
		    t, "mount propagation", pods, "the kubelet would not see mounts below it");
		check_propagation(t, "pods' directories", t->o->run,
		    "the next container would not find mounts below it");
	}
	check_registry(t);
	check_namespaces(t);
}

/* Whose it is cannot be seen: --check is often asked beside an agentd that runs. */
static void check_metrics(struct table *t)
{
	const char *at = t->o->metrics;
	struct err e;

	if (!at)
		return;
	if (!metrics_listener_try(at, &e))
		row(t, OK, "metrics", "http://%s/metrics, for anybody", at);
	else if (e.code == EADDRINUSE)
		row(t, NOTE, "metrics",
		    "%s: another listener has it: agentd itself if it runs, else mend --metrics",
		    at);
	else
		row(t, PROBLEM, "metrics", "%s", e.msg);
}

static void check_plane_files(struct table *t, const char *const *files, const char *kind)
{
	for (unsigned i = 0; i < LINK_PLANES_MAX; i++) {
		const char *file = files[i];
		struct broker_content c;
		char what[32];
		if (!file)
			continue;
		snprintf(what, sizeof(what), "%s file %u", kind, i);
		broker_file_read_path(file, &c);
		mem_closep(&c.fd);
		if (c.state == LINK_FILE_CONTENT)
			row(t, OK, what, "%s", file);
		else
			row(t, PROBLEM, what, "%s", c.why.msg);
	}
}

/* --- the worker --- */

static void check_user(struct table *t)
{
	struct broker_user user;
	struct err e;

	if (broker_options_user(t->o, &user, &e))
		row(t, PROBLEM, "worker's user", "%s", e.msg);
	else if (user.known)
		row(t, OK, "worker's user", "%s (uid %u)", t->o->worker_user, (unsigned)user.uid);
	else
		row(t, NOTE, "worker's user",
		    "there is no %s: the worker runs as uid %u (useradd -r %s)", t->o->worker_user,
		    (unsigned)user.uid, t->o->worker_user);
}

static void check_worker(struct table *t)
{
	struct err e;

	fflush(stdout);
	if (life_worker_check(t->o, &e))
		row(t, PROBLEM, "worker", "%s", e.msg);
	else
		row(t, OK, "worker", "starts, and its configuration is right%s",
		    t->o->connect ? "" : "; --connect asks the control planes, too");
}

int broker_check(const struct broker_options *o)
{
	struct table t = {.o = o};

	check_kernel(&t);
	check_peers(&t);
	check_cage(&t);
	check_cgroup(&t);
	check_file_systems(&t);
	check_redirect(&t);
	check_state(&t);
	check_swap(&t);
	check_manifests(&t);
	check_kubelet(&t);
	check_metrics(&t);
	check_plane_files(&t, o->root_files, "root");
	check_plane_files(&t, o->crl_files, "CRL");
	check_user(&t);
	check_worker(&t);
	return t.problems ? 1 : 0;
}
