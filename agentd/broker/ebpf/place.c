/* place.c - up from a cgroup, and who is met on the way.
 *
 * start: up to where the mount begins -> a program hangs there while we dial -> the cgroups it saw
 * us in, from the host's root on -> at which level the mount begins is the place of its id among
 * them.  A cgroup of our own is not made for it: where we may not write to the tree, it works, too.
 */
#include "place.h"
#include "common/log.h"
#include "common/mem.h"
#include "level.skel.h"
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

LOG_SCOPE("broker");

/* The ids of the cgroup and of those above it, as far as they are mounted: that many; 0: it is
 * none.
 */
static int look_up(int cgroup, uint64_t ids[REDIRECT_TREE_DEPTH])
{
	auto_close int at = fcntl(cgroup, F_DUPFD_CLOEXEC, 0);
	struct statfs fs;
	struct stat st;
	int n = 0;

	while (n < REDIRECT_TREE_DEPTH && at >= 0 && !fstatfs(at, &fs) && !fstat(at, &st) &&
	       fs.f_type == CGROUP2_SUPER_MAGIC && (!n || ids[n - 1] != st.st_ino)) {
		ids[n++] = st.st_ino;
		int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		mem_closep(&at);
		at = up;
	}
	return n;
}

static int index_of(const uint64_t *ids, int n, uint64_t id)
{
	int i = 0;

	while (i < n && ids[i] != id)
		i++;
	return i < n ? i : -1;
}

/* --- where the programs hang --- */

static int open_path(const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_sys(e, "cgroup %s", path) : fd;
}

/* --- its level --- */

/* A connect of UDP sends nothing.  Closed, the link would go when the kernel likes. */
static int dial(struct level_bpf *bpf, int cgroup, struct err *e)
{
	const struct sockaddr_in to = {
	    .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof(bpf->bss->cookie);

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_COOKIE, &bpf->bss->cookie, &size))
		return err_sys(e, "a socket to measure the cgroup's level with");
	auto_close int link = bpf_link_create(
	    bpf_program__fd(bpf->progs.level_measure), cgroup, BPF_CGROUP_INET4_CONNECT, NULL);
	if (link < 0)
		return err_sys(e, "attach the program that measures the cgroup's level");
	(void)connect(fd, (const struct sockaddr *)&to, sizeof(to));
	bpf_link_detach(link);
	return 0;
}

/* All zero: no program at that cgroup sees us. */
static int measure(int cgroup, uint64_t own[REDIRECT_TREE_DEPTH], struct err *e)
{
	struct level_bpf *bpf = level_bpf__open_and_load();
	int rc;

	if (!bpf)
		return err_sys(e, "the kernel refuses the program that measures a cgroup's level");
	rc = dial(bpf, cgroup, e);
	memcpy(own, bpf->bss->ids, sizeof(bpf->bss->ids));
	level_bpf__destroy(bpf);
	return rc;
}

static int open_up(int cgroup, int levels)
{
	int at = fcntl(cgroup, F_DUPFD_CLOEXEC, 0);

	for (; at >= 0 && levels > 0; levels--) {
		int up = openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = up;
	}
	return at;
}

/* Where what is mounted begins is above us, too, or we cannot tell. */
static int find_level(struct redirect_top *t, struct err *e)
{
	uint64_t ids[REDIRECT_TREE_DEPTH];
	int depth = look_up(t->fd, ids) - 1, begin;

	if (depth < 0)
		return err_set(e, EINVAL, "%s is no cgroup v2: mend --cgroup-root", t->path);
	auto_close int root = open_up(t->fd, depth);
	if (root < 0)
		return err_sys(e, "the parents of cgroup %s", t->path);
	if (measure(root, t->own, e))
		return -1;
	begin = index_of(t->own, REDIRECT_TREE_DEPTH, ids[depth]);
	if (begin < 0)
		return err_set(e, EXDEV,
		    "cgroup %s: its level cannot be measured, because agentd is outside the "
		    "mounted tree: mount the node's whole cgroup v2 and name it with --cgroup-root",
		    t->path);
	t->level = begin + depth;
	if (begin)
		log_info(NULL,
		    "the mounted cgroup v2 begins at level %d of the host's tree, as in a "
		    "container; %s is at level %d",
		    begin, t->path, t->level);
	return 0;
}

/* --- the top --- */

int ebpf_place_open(struct redirect_top *t, const char *path, struct err *e)
{
	t->path = mem_strdup(path);
	t->fd = open_path(path, e);
	return t->fd < 0 ? -1 : find_level(t, e);
}

void ebpf_place_close(struct redirect_top *t)
{
	mem_closep(&t->fd);
	free(take(t->path));
}

int ebpf_place_climb(struct redirect_top *t, uint64_t id, struct err *e)
{
	uint64_t ids[REDIRECT_TREE_DEPTH];
	int above = look_up(t->fd, ids), n = index_of(ids, above, id);

	if (n < 0)
		return 0;
	t->level -= n;
	for (; n > 0; n--)
		*strrchr(t->path, '/') = '\0';
	mem_closep(&t->fd);
	t->fd = open_path(t->path, e);
	return t->fd < 0 ? -1 : 0;
}

/* The programs were loaded for one level. */
static int check_level(
    const struct redirect_top *was, const struct redirect_top *now, struct err *e)
{
	if (now->level == was->level)
		return 0;
	return err_set(e, EXDEV, "cgroup %s was at level %d and is at %d: restart agentd",
	    now->path, was->level, now->level);
}

int ebpf_place_follow(struct redirect_top *t, struct err *e)
{
	struct redirect_top now = {.fd = -1};
	struct stat was, st;

	if (fstat(t->fd, &was) || stat(t->path, &st) || was.st_ino == st.st_ino)
		return 0;
	if (ebpf_place_open(&now, t->path, e) || check_level(t, &now, e)) {
		ebpf_place_close(&now);
		return -1;
	}
	ebpf_place_close(t);
	*t = now;
	log_warn(NULL, "cgroup %s was made again: the eBPF programs move to the new one", t->path);
	return 1;
}

int ebpf_place_level(const struct redirect_top *t, int cgroup)
{
	uint64_t ids[REDIRECT_TREE_DEPTH];
	int n = look_up(cgroup, ids), top = look_up(t->fd, ids);

	return n && top ? t->level + n - top : -1;
}

/* --- a pod's --- */

int ebpf_place_check(
    const struct redirect_top *t, int cgroup, uint64_t above[REDIRECT_DEPTH], struct err *e)
{
	uint64_t ids[REDIRECT_TREE_DEPTH];
	int n = look_up(cgroup, ids), below;
	struct stat top;

	if (!n || fstat(t->fd, &top))
		return err_set(e, EINVAL, "the pod's cgroup is not in the node's tree");
	below = index_of(ids, n, top.st_ino);
	if (below <= 0)
		return err_set(e, EINVAL,
		    "the pod's cgroup is not below that of all pods (--redirect-cgroup)");
	if (below > REDIRECT_DEPTH)
		return err_set(e, EINVAL,
		    "the pod's cgroup is more than %d levels below that of all pods "
		    "(--redirect-cgroup)",
		    REDIRECT_DEPTH);
	if (t->level + below >= REDIRECT_TREE_DEPTH)
		return err_set(e, EINVAL,
		    "the pod's cgroup is more than %d levels below the host's root",
		    REDIRECT_TREE_DEPTH - 1);
	if (index_of(t->own, REDIRECT_TREE_DEPTH, ids[0]) >= 0)
		return err_set(e, EPERM, "agentd itself is in that cgroup");
	memset(above, 0, REDIRECT_DEPTH * sizeof(*above));
	memcpy(above, ids, (size_t)below * sizeof(*above));
	return 0;
}
