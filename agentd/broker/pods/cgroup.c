/* cgroup.c - one open cgroup.events for each pod whose cgroup can be found.
 *
 * open -> the file beside the manifest is read, or the kubelet's tree looked at; the cgroup opened
 * below the cgroup root -> watch: it must be populated: the pod is running -> the kernel says that
 * cgroup.events changed (EPOLLPRI)
 * -> it is read again -> not populated, or the cgroup is gone: emptied, and nothing more is
 * watched. The open file is of that very cgroup: one that is made later under the same name is
 * another.
 */
#include "cgroup.h"
#include "broker/base/file.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

enum { NAME_SIZE = 256 };

/* Fields of a line of mountinfo: ... 5th the mount point, after " - " the type. */
static bool find_mount(char out[PATH_MAX])
{
	char line[8192];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *type = strstr(line, " - ");
		found = type && !strncmp(type, " - cgroup2 ", 11) &&
			sscanf(line, "%*s %*s %*s %*s %4095s", out) == 1;
	}
	if (f)
		fclose(f);
	return found;
}

static bool is_cgroup2(const char *path)
{
	struct statfs fs;

	return *path && !statfs(path, &fs) && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* The list of mounts is long, and this is asked for each connection: where it was, it stays. */
int pod_cgroup_root(const struct broker_options *o, char out[PATH_MAX])
{
	static char known[PATH_MAX];

	if (!o->cgroup_root && !is_cgroup2(known) && !find_mount(known))
		return -1;
	snprintf(out, PATH_MAX, "%s", o->cgroup_root ? o->cgroup_root : known);
	return 0;
}

/* Strict: what is odd is more likely a mistake than a name. */
static bool is_name(const char *s)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_.@:-/";

	return *s && *s != '/' && !s[strspn(s, allowed)] && !strstr(s, "..");
}

/* A list of one. */
static int read_name(
    const struct broker_options *o, const char *uid, char out[KUBEPODS_SIZE], struct err *e)
{
	const struct broker_place at = {.dir = o->manifests, .sub = uid, .name = "cgroup"};
	char text[NAME_SIZE];
	size_t n;

	if (!o->manifests)
		return err_set(e, ENOENT, "there are no manifests");
	if (broker_file_line(&at, text, sizeof(text), e))
		return -1;
	if (!is_name(text))
		return err_set(e, EINVAL, "%s/cgroup is no path below the cgroup root", uid);
	n = strlen(text);
	memcpy(out, text, n + 1);
	out[n + 1] = '\0';
	return 0;
}

static int open_root(const struct broker_options *o, struct err *e)
{
	char root[PATH_MAX];
	int fd;

	if (pod_cgroup_root(o, root))
		return err_set(e, EINVAL, "cgroup v2 is not mounted");
	fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "%s", root) : fd;
}

int pod_cgroup_top(const struct broker_options *o, char out[POD_CGROUP_TOP_SIZE])
{
	char root[PATH_MAX], below[PATH_MAX] = "";

	if (pod_cgroup_root(o, root))
		return -1;
	auto_close int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (o->redirect_cgroup)
		snprintf(below, sizeof(below), "%s", o->redirect_cgroup);
	else if (!o->manifests && !kubepods_tree(o, dir, below))
		*below = '\0';
	snprintf(out, POD_CGROUP_TOP_SIZE, "%s%s%s", root, *below ? "/" : "", below);
	return 0;
}

static int find_paths(const struct broker_options *o, int root, const char *uid,
    char out[KUBEPODS_SIZE], struct err *e)
{
	*out = '\0';
	if (!read_name(o, uid, out, e))
		return 0;
	if (e->code != ENOENT)
		return -1;
	kubepods_find(o, root, uid, out);
	if (*out)
		return 0;
	if (!o->manifests)
		return err_set(e, ENOENT,
		    "there is no kubepods tree: name the kubelet's cgroup of all pods "
		    "(--kubepods, the chart's value kubepods; agentd --check looks for it)");
	return err_set(e, ENOENT,
	    "no <uid>/cgroup beside the manifest names the pod's cgroup, and there is no kubepods "
	    "tree (--kubepods)");
}

int pod_cgroup_paths(
    const struct broker_options *o, const char *uid, char out[KUBEPODS_SIZE], struct err *e)
{
	auto_close int root = open_root(o, e);

	return root < 0 ? -1 : find_paths(o, root, uid, out, e);
}

/* Its directory, to which nobody can lead elsewhere; -1. */
static int open_below(int root, const char *name, struct err *e)
{
	struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
	struct statfs fs;

	auto_close int fd = (int)syscall(SYS_openat2, root, name, &how, sizeof(how));
	if (fd < 0)
		return err_set(e, errno == ENOENT ? ENODEV : EINVAL, "cgroup %.80s: %s", name,
		    strerror(errno));
	if (fstatfs(fd, &fs) || fs.f_type != CGROUP2_SUPER_MAGIC)
		return err_set(e, EINVAL, "%.80s is no cgroup v2", name);
	return take_fd(fd);
}

int pod_cgroup_open(const struct broker_options *o, const char *uid, struct err *e)
{
	char paths[KUBEPODS_SIZE] = "";
	auto_close int root = open_root(o, e);
	int fd = -1;

	if (root < 0 || find_paths(o, root, uid, paths, e))
		return -1;
	e->code = ENODEV;
	for (const char *p = paths; *p && fd < 0 && e->code == ENODEV; p += strlen(p) + 1)
		fd = open_below(root, p, e);
	return fd;
}

/* From the top down, and never by a link. */
static int make_path(int root, const char *name, struct err *e)
{
	auto_close int dir = fcntl(root, F_DUPFD_CLOEXEC, 0);
	char part[NAME_SIZE];

	for (size_t n; *name; name += n + (name[n] == '/')) {
		n = strcspn(name, "/");
		snprintf(part, sizeof(part), "%.*s", (int)n, name);
		if (mkdirat(dir, part, 0755) && errno != EEXIST)
			return err_sys(e, "make the cgroup %.80s", part);
		int below = open_below(dir, part, e);
		mem_closep(&dir);
		dir = below;
		if (dir < 0)
			return -1;
	}
	return take_fd(dir);
}

int pod_cgroup_make(const struct broker_options *o, const char *uid, struct err *e)
{
	char path[KUBEPODS_SIZE] = "";
	auto_close int root = open_root(o, e);

	if (root < 0)
		return -1;
	if (!read_name(o, uid, path, e))
		return make_path(root, path, e);
	return e->code == ENOENT ? pod_cgroup_open(o, uid, e) : -1;
}

/* kubepods, kubepods.slice, kubepods-burstable.slice; kubelet-kubepods.slice and those in it. */
bool pod_cgroup_is_pods(const char *path)
{
	static const char name[] = "kubepods", infix[] = "-kubepods", slice[] = ".slice";
	char part[NAME_MAX + 1];
	size_t n;

	for (; *path; path += n) {
		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (!strncmp(path, name, strlen(name)))
			return true;
		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		if (n > strlen(slice) && n < sizeof(part) && strstr(part, infix) &&
		    !strcmp(part + n - strlen(slice), slice))
			return true;
	}
	return false;
}

/* 1, 0, or -1 when it cannot be read.  Reading also arms the next notice. */
static int is_populated(int events)
{
	char text[256];
	ssize_t n = pread(events, text, sizeof(text) - 1, 0);

	if (n < 0)
		return errno == ENODEV ? 0 : -1; /* the cgroup was removed */
	text[n] = '\0';
	if (strstr(text, "populated 1"))
		return 1;
	return strstr(text, "populated 0") ? 0 : -1;
}

bool pod_cgroup_is_populated(int dir)
{
	auto_close int fd = openat(dir, "cgroup.events", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && is_populated(fd) == 1;
}

static void stop(struct pod_cgroup *c)
{
	if (c->state == POD_CGROUP_WATCHED) {
		broker_watch_end(c->epoll, &c->watch);
		close(c->watch.fd);
	}
	c->state = POD_CGROUP_UNKNOWN;
}

static void empty(struct pod_cgroup *c)
{
	stop(c);
	c->state = POD_CGROUP_EMPTIED;
	c->on_emptied(c->ctx);
}

static void on_notice(void *ctx, uint32_t events)
{
	struct pod_cgroup *c = ctx;
	int populated = is_populated(c->watch.fd);

	(void)events;
	if (populated == 0)
		empty(c);
	else if (populated < 0)
		stop(c);
}

int pod_cgroup_watch(struct pod_cgroup *c, int dir, struct err *e)
{
	struct stat st;

	pod_cgroup_end(c);
	auto_close int fd = openat(dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(dir, &st))
		return err_sys(e, "cgroup.events");
	/* An empty one would let anybody in at once. */
	if (is_populated(fd) != 1)
		return err_set(e, EINVAL, "the cgroup is empty: it is not that of the running pod");
	c->watch = (struct broker_watch){.fd = fd, .ready = on_notice, .ctx = c};
	if (broker_watch_start(c->epoll, &c->watch, EPOLLPRI))
		return err_sys(e, "watch cgroup.events");
	c->id = st.st_ino;
	c->state = POD_CGROUP_WATCHED;
	(void)take_fd(fd);
	return 0;
}

/* Ids are not given again.  Emptied is only what was seen to be: with no descriptor left nobody may
 * come from another namespace. */
void pod_cgroup_resume(struct pod_cgroup *c, int dir, uint64_t id)
{
	struct err e = {.code = ENODEV};
	int rc = dir < 0 ? -1 : pod_cgroup_watch(c, dir, &e);

	if (rc == 0 ? c->id != id : e.code == EINVAL || e.code == ENODEV || e.code == ENOENT)
		empty(c);
}

/* The notice may still be on its way. */
bool pod_cgroup_emptied(struct pod_cgroup *c)
{
	if (c->state == POD_CGROUP_WATCHED)
		on_notice(c, 0);
	return c->state == POD_CGROUP_EMPTIED;
}

void pod_cgroup_end(struct pod_cgroup *c)
{
	stop(c);
}
