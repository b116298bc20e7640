/* world.c - begin: mounts -> the cgroups -> two namespaces, each held by a child -> the veths.
 */
#include "world.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const pod_ip[2] = {"10.88.0.1", "fd88::1"}, *const peer_ip[2] = {
							    "10.88.0.2", "fd88::2"};
const char pod_other_ip[] = "10.89.0.1";
const char *const pod_node_ip[2] = {"10.91.0.1", "fd91::1"};
const char host_ip[] = "10.90.0.1", host_peer_ip[] = "10.90.0.2";

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

static const struct world *the_world;
static pid_t owner;

void broken(const char *what)
{
	fprintf(stderr, "checks: %s: %s\n", what, strerror(errno));
	exit(2);
}

static void must(int rc, const char *what)
{
	if (rc < 0)
		broken(what);
}

/* --- going there --- */

static void go(const struct place *p, struct who who)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	must(setns(p->netns, CLONE_NEWNET), "setns");
	if (p->cgroup >= 0) {
		int procs = openat(p->cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
		must((int)write(procs, "0", 1), "cgroup.procs");
		close(procs);
	}
	must(setgroups(0, NULL), "setgroups");
	must(setresgid(who.gid, who.gid, who.gid), "setresgid");
	must(setresuid(who.uid, who.uid, who.uid), "setresuid");
}

int visit(const struct place *p, struct who who, place_act f, void *ctx, void *out, size_t size)
{
	int end[2], status;
	pid_t child;
	ssize_t n;

	must(pipe2(end, O_CLOEXEC), "pipe");
	fflush(NULL);
	child = fork();
	must(child, "fork");
	if (child == 0) {
		go(p, who);
		f(ctx, out);
		_exit(write(end[1], out, size) == (ssize_t)size ? 0 : 1);
	}
	close(end[1]);
	n = read(end[0], out, size);
	close(end[0]);
	waitpid(child, &status, 0);
	return n == (ssize_t)size && status == 0 ? 0 : -1;
}

pid_t settle(const struct place *p, struct who who, void (*f)(void *ctx, int ready), void *ctx)
{
	int end[2];
	pid_t child;
	char c;

	must(pipe2(end, O_CLOEXEC), "pipe");
	fflush(NULL);
	child = fork();
	must(child, "fork");
	if (child == 0) {
		close(end[0]);
		go(p, who);
		f(ctx, end[1]);
		_exit(1);
	}
	close(end[1]);
	if (read(end[0], &c, 1) != 1)
		broken("a child did not start");
	close(end[0]);
	return child;
}

void evict(pid_t *child)
{
	if (*child <= 0)
		return;
	kill(*child, SIGKILL);
	waitpid(*child, NULL, 0);
	*child = 0;
}

/* --- the world --- */

static void hold(void *ctx, int ready)
{
	(void)ctx;
	must(unshare(CLONE_NEWNET), "unshare");
	must((int)write(ready, ".", 1), "ready");
	for (;;)
		pause();
}

static void make_netns(struct place *p)
{
	const struct place here = {
	    .netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), .cgroup = -1};
	char path[TEXT];

	p->holder = settle(&here, (struct who){0, 0}, hold, NULL);
	snprintf(path, sizeof(path), "/proc/%d/ns/net", p->holder);
	p->netns = open(path, O_RDONLY | O_CLOEXEC);
	must(p->netns, path);
	close(here.netns);
}

static void run_shell(void *ctx, void *out)
{
	*(int *)out = system(ctx); // NOLINT(cert-env33-c): a fixed text
}

static void shell(const struct place *p, char *command)
{
	const struct place place = {.netns = p->netns, .cgroup = -1};
	int status;

	if (visit(&place, (struct who){0, 0}, run_shell, command, &status, sizeof(status)) ||
	    status) {
		errno = ECHILD;
		broken(command);
	}
}

static int make_cgroup(const char *parent, const char *name)
{
	char path[2 * TEXT + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", parent, name);
	must(mkdir(path, 0755), path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(fd, path);
	return fd;
}

static void make_mounts(struct world *w)
{
	snprintf(w->dir, sizeof(w->dir), "/tmp/agentd-checks.%d", getpid());
	snprintf(w->bpffs, sizeof(w->bpffs), "%.40s/bpf", w->dir);
	snprintf(w->cgroups, sizeof(w->cgroups), "%.40s/cgroup", w->dir);
	snprintf(w->cgroup, sizeof(w->cgroup), "%.40s/cgroup/agentd-checks.%d", w->dir,
	    getpid() % 100000);
	must(unshare(CLONE_NEWNS), "unshare");
	must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount private");
	must(mkdir(w->dir, 0700), w->dir);
	must(mount("tmpfs", w->dir, "tmpfs", 0, NULL), "mount tmpfs");
	must(mkdir(w->bpffs, 0700), w->bpffs);
	must(mkdir(w->cgroups, 0700), w->cgroups);
	must(mount("bpf", w->bpffs, "bpf", 0, "mode=0700"), "mount bpffs");
	must(mount("cgroup2", w->cgroups, "cgroup2", 0, NULL), "mount cgroup2");
}

static void wire(struct world *w)
{
	char command[512];

	snprintf(command, sizeof(command),
	    "/bin/ip link set lo up; /bin/ip addr add ::6/128 dev lo nodad; "
	    "/bin/ip link add eth0 type veth peer name eth0 netns %d && "
	    "/bin/ip link add eth1 type veth peer name eth1 netns %d && "
	    "/bin/ip addr add %s/24 dev eth0 && /bin/ip addr add %s/64 dev eth0 nodad && "
	    "/bin/ip addr add %s/24 dev eth1 && /bin/ip link set eth0 up && /bin/ip link set eth1 "
	    "up",
	    w->peer.holder, w->peer.holder, pod_ip[0], pod_ip[1], pod_other_ip);
	shell(&w->pod, command);
	snprintf(command, sizeof(command),
	    "/bin/ip link set lo up; "
	    "/bin/ip addr add %s/24 dev eth0 && /bin/ip addr add %s/64 dev eth0 nodad && "
	    "/bin/ip addr add 10.88.0.3/24 dev eth0 && /bin/ip addr add 10.89.0.2/24 dev eth1 && "
	    "/bin/ip link set eth0 up && /bin/ip link set eth1 up",
	    peer_ip[0], peer_ip[1]);
	shell(&w->peer, command);
	snprintf(command, sizeof(command),
	    "/bin/ip link set lo up; /bin/ip link add node0 type veth peer name eth2 netns %d && "
	    "/bin/ip addr add %s/24 dev node0 && /bin/ip link set node0 up",
	    w->peer.holder, host_ip);
	shell(&w->host, command);
	snprintf(command, sizeof(command),
	    "/bin/ip addr add %s/24 dev eth2 && /bin/ip link set eth2 up", host_peer_ip);
	shell(&w->peer, command);
	snprintf(command, sizeof(command),
	    "/bin/ip link add node1 type veth peer name eth3 netns %d && "
	    "/bin/ip addr add 10.91.0.2/24 dev node1 && /bin/ip addr add fd91::2/64 dev node1 "
	    "nodad "
	    "&& /bin/ip link set node1 up",
	    w->pod.holder);
	shell(&w->host, command);
	snprintf(command, sizeof(command),
	    "/bin/ip addr add %s/24 dev eth3 && /bin/ip addr add %s/64 dev eth3 nodad && "
	    "/bin/ip link set eth3 up",
	    pod_node_ip[0], pod_node_ip[1]);
	shell(&w->pod, command);
}

/* So that a check can see what is charged to them; where the node lets it. */
static void count_memory(const char *cgroup)
{
	char path[2 * TEXT];
	int fd;

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", cgroup);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	(void)!write(fd, "+memory", 7);
	close(fd);
}

/* The node's own namespace is one of ours, unless the kernel tells its cookie to nobody: then it
 * has to be the first one, and that is a VM's. */
static void be_the_node(struct world *w)
{
	uint64_t cookie;
	socklen_t len = sizeof(cookie);
	int fd;

	must(unshare(CLONE_NEWNET), "unshare");
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len)) {
		int first = open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC);
		must(setns(first, CLONE_NEWNET), "setns");
		close(first);
	}
	close(fd);
	w->host.netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	must(w->host.netns, "/proc/self/ns/net");
}

/* Whoever is left in a cgroup of ours is ours. */
static void empty(const char *cgroup)
{
	char path[3 * TEXT];
	FILE *f;
	char line[32];

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		kill((pid_t)strtol(line, NULL, 10), SIGKILL);
	if (f)
		fclose(f);
}

static const char *const cgroups[] = {"pod", "peer", "kubelet", "kubepods"};
enum { NCGROUPS = sizeof(cgroups) / sizeof(cgroups[0]) };

static void world_end(void)
{
	const struct world *w = the_world;
	char path[2 * TEXT];

	if (getpid() != owner)
		return;
	for (int i = 0; i < NCGROUPS; i++) {
		snprintf(path, sizeof(path), "%s/%s", w->cgroup, cgroups[i]);
		empty(path);
		/* It is empty a moment after its last process. */
		for (int tries = 0; rmdir(path) && errno == EBUSY && tries < 100; tries++)
			usleep(10000);
	}
	rmdir(w->cgroup);
	umount2(w->dir, MNT_DETACH);
	rmdir(w->dir);
}

void world_begin(struct world *w)
{
	the_world = w;
	owner = getpid();
	atexit(world_end);
	signal(SIGPIPE, SIG_IGN);
	make_mounts(w);
	be_the_node(w);
	must(mkdir(w->cgroup, 0755), w->cgroup);
	count_memory(w->cgroup);
	w->pod.cgroup = make_cgroup(w->cgroup, "pod");
	w->peer.cgroup = make_cgroup(w->cgroup, "peer");
	make_netns(&w->pod);
	make_netns(&w->peer);
	w->stranger = (struct place){.netns = w->pod.netns, .cgroup = -1};
	w->host.cgroup = w->pod.cgroup;
	w->kubelet = (struct place){w->host.netns, make_cgroup(w->cgroup, "kubelet"), 0};
	w->unmeshed = (struct place){w->host.netns, make_cgroup(w->cgroup, "kubepods"), 0};
	snprintf(w->trees, sizeof(w->trees) - 1, "%s/kubepods", w->cgroup);
	wire(w);
}
