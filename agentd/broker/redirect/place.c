/* place.c - up from a cgroup, and who is met on the way. */
#include "place.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

LOG_SCOPE("broker");

enum { ROOT_ID = 1 }; /* of the host's own root; that of a cgroup namespace has another one */

/* How many levels below the root of cgroup v2 the directory is, and the ids of the cgroups on the
 * way up, its own first; -1: it is not the host's tree, or too deep. */
static int look_up(int cgroup, uint64_t ids[REDIRECT_TREE_DEPTH])
{
	auto_close int at = fcntl(cgroup, F_DUPFD_CLOEXEC, 0);
	struct stat st;

	for (int n = 0; n < REDIRECT_TREE_DEPTH; n++) {
		if (at < 0 || fstat(at, &st))
			return -1;
		ids[n] = st.st_ino;
		if (ids[n] == ROOT_ID)
			return n;
		int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		mem_closep(&at);
		at = up;
	}
	return -1;
}

static bool is_among(const uint64_t *ids, int n, uint64_t id)
{
	for (int i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

/* --- where the programs hang --- */

static int open_path(const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? err_sys(e, "cgroup %s", path) : fd;
}

/* Where this process is: never a pod's. */
static void find_own(struct redirect_top *t, const char *root)
{
	char line[512], path[PATH_MAX + sizeof(line)] = "";
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "0::", 3)) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(path, sizeof(path), "%s%s", root, line + 3);
		}
	if (f)
		fclose(f);
	auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	memset(t->own, 0, sizeof(t->own));
	if (dir >= 0)
		look_up(dir, t->own);
}

int redirect_place_open(struct redirect_top *t, const char *root, const char *path, struct err *e)
{
	uint64_t ids[REDIRECT_TREE_DEPTH];

	t->path = mem_strdup(path);
	t->fd = open_path(path, e);
	if (t->fd < 0)
		return -1;
	t->level = look_up(t->fd, ids);
	if (t->level < 0)
		return err_set(e, EINVAL,
		    "cgroup %s is not in the host's cgroup v2 tree: mount that (not the one of a "
		    "cgroup namespace) and name it with --cgroup-root",
		    path);
	find_own(t, root);
	return 0;
}

void redirect_place_close(struct redirect_top *t)
{
	mem_closep(&t->fd);
	free(take(t->path));
}

int redirect_place_climb(struct redirect_top *t, uint64_t id, struct err *e)
{
	uint64_t ids[REDIRECT_TREE_DEPTH];
	int n = 0;

	look_up(t->fd, ids);
	while (n <= t->level && ids[n] != id)
		n++;
	if (!id || n > t->level)
		return 0;
	t->level -= n;
	for (; n > 0; n--)
		*strrchr(t->path, '/') = '\0';
	mem_closep(&t->fd);
	t->fd = open_path(t->path, e);
	return t->fd < 0 ? -1 : 0;
}

int redirect_place_follow(struct redirect_top *t, struct err *e)
{
	struct stat was, now;
	int fd;

	if (fstat(t->fd, &was) || stat(t->path, &now) || was.st_ino == now.st_ino)
		return 0;
	fd = open_path(t->path, e);
	if (fd < 0)
		return -1;
	close(t->fd);
	t->fd = fd;
	log_warn(NULL, "cgroup %s was made anew: the eBPF programs go there", t->path);
	return 1;
}

/* --- a pod's --- */

int redirect_place_check(
    const struct redirect_top *t, int cgroup, uint64_t above[REDIRECT_DEPTH], struct err *e)
{
	uint64_t ids[REDIRECT_TREE_DEPTH];
	int level = look_up(cgroup, ids), below = level - t->level;
	struct stat top;

	if (level < 0 || fstat(t->fd, &top))
		return err_set(e, EINVAL, "the pod's cgroup is not of the node's tree");
	if (below <= 0 || ids[below] != top.st_ino)
		return err_set(e, EINVAL,
		    "the pod's cgroup is not below that of all pods (--redirect-cgroup)");
	if (below > REDIRECT_DEPTH)
		return err_set(e, EINVAL,
		    "the pod's cgroup is more than %d levels below that of all pods "
		    "(--redirect-cgroup)",
		    REDIRECT_DEPTH);
	if (is_among(t->own, REDIRECT_TREE_DEPTH, ids[0]))
		return err_set(e, EPERM, "agentd itself is in that cgroup");
	memset(above, 0, REDIRECT_DEPTH * sizeof(*above));
	memcpy(above, ids, (size_t)below * sizeof(*above));
	return 0;
}
