/* redirect_place.c - up from the pod's cgroup, and who is met on the way. */
#include "place.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

enum { ROOT_ID = 1 }; /* of the host's own root; that of a cgroup namespace has another one */

int redirect_place_above(int cgroup, uint64_t ids[REDIRECT_TREE_DEPTH])
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

/* NULL: they have nothing to do with each other. */
static const char *relation(
    const struct redirect_pod_state *p, const struct redirect_pod_state *other)
{
	if (other == p)
		return NULL;
	if (other->cgroup == p->above[0])
		return "the cgroup is that of pod";
	if (is_among(p->above, REDIRECT_DEPTH, other->cgroup))
		return "the cgroup lies in that of pod";
	if (is_among(other->above, REDIRECT_DEPTH, p->above[0]))
		return "in the cgroup lies that of pod";
	return NULL;
}

static int check_neighbours(
    const struct redirect *r, const struct redirect_pod_state *p, struct err *e)
{
	const struct redirect_pod_state *other = NULL;
	char name[UUID_TEXT_SIZE];
	const char *how;

	DL_FOREACH (r->pods, other) {
		how = relation(p, other);
		if (!how)
			continue;
		uuid_format(&other->uid, name);
		return err_set(e, EEXIST, "%s %s", how, name);
	}
	return 0;
}

int redirect_place_check(
    const struct redirect *r, struct redirect_pod_state *p, int cgroup, struct err *e)
{
	uint64_t ids[REDIRECT_TREE_DEPTH];
	int level = redirect_place_above(cgroup, ids), below = level - r->level;
	struct stat top;

	if (level < 0 || fstat(r->cgroup, &top))
		return err_set(e, EINVAL, "the pod's cgroup is not of the node's tree");
	if (below <= 0 || ids[below] != top.st_ino)
		return err_set(e, EINVAL,
		    "the pod's cgroup is not below that of all pods (--redirect-cgroup)");
	if (below > REDIRECT_DEPTH)
		return err_set(e, EINVAL,
		    "the pod's cgroup is more than %d levels below that of all pods "
		    "(--redirect-cgroup)",
		    REDIRECT_DEPTH);
	if (is_among(r->own, REDIRECT_TREE_DEPTH, ids[0]))
		return err_set(e, EPERM, "agentd itself is in that cgroup");
	memset(p->above, 0, sizeof(p->above));
	memcpy(p->above, ids, (size_t)below * sizeof(ids[0]));
	return check_neighbours(r, p, e);
}

void redirect_place_own(struct redirect *r)
{
	char line[512], path[PATH_MAX + sizeof(line)] = "";
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "0::", 3)) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(path, sizeof(path), "%s%s", r->at.root, line + 3);
		}
	if (f)
		fclose(f);
	auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	memset(r->own, 0, sizeof(r->own));
	if (dir >= 0)
		redirect_place_above(dir, r->own);
}
