/* ways.c - a path, part by part: a link -> its directory is watched, then it is read, and what it
 * says is gone on with.  So a link that changes meanwhile is either read as it is now, or makes an
 * event.
 */
#include "ways.h"
#include "broker/base/loop.h"
#include "common/mem.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

enum {
	/* IN_MASK_ADD: a follow may watch the same directory for more. */
	WATCHED = IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_MASK_ADD
};

/* Adds the link `name` in the directory `dir`; what it says comes before `rest`. */
static int follow_link(struct ways *w, int inotify, char *dir, const char *name, char *rest)
{
	char link[2 * PATH_MAX], to[PATH_MAX], whole[2 * PATH_MAX];
	int wd = w->n < WAYS_MAX ? broker_notices_add(inotify, *dir ? dir : "/", WATCHED) : -1;
	ssize_t n;

	if (wd < 0)
		return -1;
	w->at[w->n++] = (struct way){wd, mem_strdup(name)};
	(void)snprintf(link, sizeof(link), "%s/%s", dir, name);
	n = readlink(link, to, sizeof(to) - 1);
	if (n < 0)
		return -1;
	to[n] = '\0';
	if (snprintf(whole, sizeof(whole), "%s/%s", to, rest) >= PATH_MAX)
		return -1;
	memcpy(rest, whole, strlen(whole) + 1);
	if (*to == '/')
		*dir = '\0';
	return 0;
}

/* One part further; `dir` has no link in it. */
static int step(struct ways *w, int inotify, char *dir, const char *name, char *rest)
{
	const size_t n = strlen(dir);
	struct stat st;

	if (!*name || !strcmp(name, "."))
		return 0;
	if (!strcmp(name, "..")) {
		char *slash = strrchr(dir, '/');

		dir[slash ? slash - dir : 0] = '\0';
		return 0;
	}
	if (n + strlen(name) + 2 > PATH_MAX)
		return -1;
	(void)snprintf(dir + n, PATH_MAX - n, "/%s", name);
	if (lstat(dir, &st))
		return -1;
	if (!S_ISLNK(st.st_mode))
		return 0;
	dir[n] = '\0';
	return follow_link(w, inotify, dir, name, rest);
}

void ways_watch(struct ways *w, int inotify, const char *path)
{
	char dir[PATH_MAX] = "", rest[PATH_MAX], name[NAME_MAX + 1];

	ways_clear(w);
	if (*path != '/' || strlen(path) >= sizeof(rest))
		return;
	memcpy(rest, path, strlen(path) + 1);
	while (*rest) {
		size_t n = strcspn(rest, "/");

		if (n > NAME_MAX)
			return;
		memcpy(name, rest, n);
		name[n] = '\0';
		n += rest[n] == '/';
		memmove(rest, rest + n, strlen(rest + n) + 1);
		if (step(w, inotify, dir, name, rest))
			return;
	}
}

bool ways_has(const struct ways *w, int wd)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->at[i].wd == wd)
			return true;
	return false;
}

bool ways_lead_through(const struct ways *w, int wd, const char *name)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->at[i].wd == wd && !strcmp(w->at[i].name, name))
			return true;
	return false;
}

void ways_clear(struct ways *w)
{
	while (w->n)
		free(w->at[--w->n].name);
}
