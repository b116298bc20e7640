/* volume.c - publish: open both ends -> what is mounted there? -> copy, attach -> look
 * again.
 *
 * The names of the kubelet's directory are root's.  An attacker who can write there by a hole of
 * another component must not lead our mount elsewhere.  So after the mount was attached to the
 * opened directory, the whole path is opened again.  If that does not lead to the mount, the mount
 * goes.
 * unpublish: as often as a mount of ours is on top it goes -> the directory it was on goes.
 */
#include "volume.h"
#include "broker/base/file.h"
#include "common/err.h"
#include "common/mem.h"
#include "mount.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	TARGET_MODE = 0750, /* as the kubelet makes its own */
	STACKED_MAX = 1024,
	PATH_FLAGS = O_PATH | O_DIRECTORY | O_CLOEXEC
};

static const char target[] = "mount", plugin[] = "volumes/kubernetes.io~csi",
		  data[] = "vol_data.json", driver[] = "\"agentd.node.mesh\"";

/* What is on a directory. */
enum mounted {
	NOTHING,
	OURS,
	OURS_OF_BEFORE, /* the pod's directory, but it was made again since */
	FOREIGN
};

/* --- ways --- */

static int open_beneath(int dir, const char *path, uint64_t flags)
{
	struct open_how how = {.flags = flags,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};

	return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

/* <kubelet-root>/pods/<uid>/volumes/kubernetes.io~csi[/<volume>]; -1 with errno.  The root itself
 * is the command line's, and may be a link. */
static int open_volume(
    const struct broker_options *o, const struct uuid *pod, const char *volume, uint64_t flags)
{
	auto_close int root = open(o->kubelet_root, PATH_FLAGS);
	char uid[UUID_TEXT_SIZE], path[PATH_MAX];

	uuid_format(pod, uid);
	snprintf(path, sizeof(path), "pods/%s/%s/%s", uid, plugin, volume);
	return root < 0 ? -1 : open_beneath(root, path, flags);
}

static int open_source(const struct broker_options *o, const struct uuid *pod)
{
	auto_close int run = open(o->run, PATH_FLAGS);
	char uid[UUID_TEXT_SIZE], path[64];

	uuid_format(pod, uid);
	snprintf(path, sizeof(path), "pods/%s/mount", uid);
	return run < 0 ? -1 : open_beneath(run, path, PATH_FLAGS);
}

/* A name in an API object: a DNS label. */
static bool is_label(const char *s)
{
	size_t n = strnlen(s, LINK_VOLUME_SIZE);

	return n && n < LINK_VOLUME_SIZE &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n && *s != '-' &&
	       s[n - 1] != '-';
}

static int check(const struct broker_options *o, const struct link_request *r, struct err *e)
{
	if (!o->kubelet_root)
		return err_set(e, EOPNOTSUPP, "agentd runs without --kubelet-root");
	if (!is_label(r->volume))
		return err_set(e, EINVAL, "the volume's name is no DNS label");
	return 0;
}

/* --- whose is it? --- */

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

void kubelet_volume_source(const struct uuid *pod, char out[KUBELET_VOLUME_SOURCE_SIZE])
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(pod, uid);
	snprintf(out, KUBELET_VOLUME_SOURCE_SIZE, "agentd:%s", uid);
}

/* The directory of this pod in <run>, as the mount was made of it: it may be gone by now. */
static bool was_of_pod(const struct broker_options *o, const struct uuid *pod, int at)
{
	char uid[UUID_TEXT_SIZE], root[PATH_MAX], source[PATH_MAX], own[80], gone[96];
	auto_close int run = open(o->run, PATH_FLAGS);

	kubelet_volume_source(pod, own);
	if (kubelet_mount_source(at, source) && !strcmp(source, own))
		return true;
	if (run < 0 || !kubelet_mount_is_of(at, run) || !kubelet_mount_root(at, root))
		return false;
	uuid_format(pod, uid);
	snprintf(own, sizeof(own), "/pods/%s/mount", uid);
	snprintf(gone, sizeof(gone), "%s//deleted", own);
	return ends_with(root, own) || ends_with(root, gone);
}

static enum mounted what_is_on(
    const struct broker_options *o, const struct uuid *pod, int volume, int at)
{
	auto_close int source = open_source(o, pod);

	if (!kubelet_mount_begins(volume, at))
		return NOTHING;
	if (source >= 0 && kubelet_mount_shows(at, source))
		return OURS;
	return was_of_pod(o, pod, at) ? OURS_OF_BEFORE : FOREIGN;
}

/* The kubelet's own file, which it writes before it calls a driver; the caller's `c->fd`. */
static void read_data(int volume, struct broker_content *c)
{
	char dir[32];

	snprintf(dir, sizeof(dir), "/proc/self/fd/%d", volume);
	broker_file_read(&(struct broker_place){.dir = dir, .name = data}, c);
}

static bool names_another(const char *text)
{
	return strstr(text, "\"driverName\"") && strchr(text, '}') && !strstr(text, driver);
}

/* What another driver has mounted is not even opened: behind it may be a server, or a process of
 * the pod's owner (FUSE), that never answers.  A file that the kubelet has emptied to write it anew
 * names no driver: it may be of ours. */
static bool is_of_another(int volume)
{
	struct broker_content c;
	char text[4096] = "";

	read_data(volume, &c);
	if (c.fd < 0)
		return false;
	if (pread(c.fd, text, sizeof(text) - 1, 0) < 0)
		*text = '\0';
	close(c.fd);
	return names_another(text);
}

static int foreign(struct err *e)
{
	return err_set(e, EBUSY, "a mount on the volume is not agentd's");
}

/* --- unpublish --- */

/* All mounts of ours that are on top: one, but for those of a bug.  The directory that is left, or
 * -1: there is none (ENOENT), or it cannot be done. */
static int uncover(
    const struct broker_options *o, const struct uuid *pod, int volume, struct err *e)
{
	for (int i = 0; i < STACKED_MAX; i++) {
		auto_close int at = open_beneath(volume, target, PATH_FLAGS);
		if (at < 0)
			return err_sys(e, "the volume's directory");
		switch (what_is_on(o, pod, volume, at)) {
		case NOTHING:
			return take_fd(at);
		case FOREIGN:
			return foreign(e);
		case OURS:
		case OURS_OF_BEFORE:
			if (kubelet_mount_detach(at, e))
				return -1;
		}
	}
	return err_set(e, EBUSY, "more than %d mounts are on the volume", STACKED_MAX);
}

int kubelet_volume_unpublish(
    const struct broker_options *o, const struct link_request *r, struct err *e)
{
	if (check(o, r, e))
		return -1;
	auto_close int volume = open_volume(o, &r->uid, r->volume, PATH_FLAGS);
	if (volume < 0)
		return errno == ENOENT ? 0 : err_sys(e, "the kubelet's directory");
	if (is_of_another(volume))
		return foreign(e);
	auto_close int at = uncover(o, &r->uid, volume, e);
	if (at < 0)
		return e->code == ENOENT ? 0 : -1;
	if (unlinkat(volume, target, AT_REMOVEDIR) && errno != ENOENT)
		return err_sys(e, "rmdir of the volume's directory");
	return 0;
}

/* --- publish --- */

/* Does the whole path lead to it? */
static bool is_found(const struct broker_options *o, const struct link_request *r, int mounted)
{
	auto_close int volume = open_volume(o, &r->uid, r->volume, PATH_FLAGS);
	auto_close int at = volume < 0 ? -1 : open_beneath(volume, target, PATH_FLAGS);

	return at >= 0 && kubelet_mount_same(at, mounted);
}

static int mount_on(
    const struct broker_options *o, const struct link_request *r, int at, struct err *e)
{
	char staging[PATH_MAX];
	struct err ignored;
	auto_close int source = open_source(o, &r->uid);

	if (source < 0)
		return err_sys(e, "the pod's directory");
	snprintf(staging, sizeof(staging), "%s/staging", o->run);
	auto_close int copy = kubelet_mount_copy(source, staging, e);
	if (copy < 0 || kubelet_mount_attach(copy, at, e))
		return -1;
	if (is_found(o, r, copy))
		return 0;
	kubelet_mount_detach(copy, &ignored);
	return err_set(e, EAGAIN, "the volume's directory was replaced meanwhile");
}

int kubelet_volume_publish(
    const struct broker_options *o, const struct link_request *r, struct err *e)
{
	if (check(o, r, e))
		return -1;
	auto_close int volume = open_volume(o, &r->uid, r->volume, PATH_FLAGS);
	if (volume < 0)
		return err_sys(e, "the kubelet's directory of the volume");
	if (is_of_another(volume))
		return foreign(e);
	if (mkdirat(volume, target, TARGET_MODE) && errno != EEXIST)
		return err_sys(e, "mkdir for the volume");
	auto_close int top = open_beneath(volume, target, PATH_FLAGS);
	if (top < 0)
		return err_sys(e, "the volume's directory");
	if (what_is_on(o, &r->uid, volume, top) == OURS)
		return 0;
	auto_close int at = uncover(o, &r->uid, volume, e);
	return at < 0 ? -1 : mount_on(o, r, at, e);
}

/* --- what is there --- */

bool kubelet_volume_next(const struct broker_options *o, const struct uuid *pod, DIR **dir,
    char volume[LINK_VOLUME_SIZE])
{
	const struct dirent *entry;

	if (!*dir) {
		int fd = open_volume(o, pod, "", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return false;
		if (!(*dir = fdopendir(fd))) {
			close(fd);
			return false;
		}
	}
	while ((entry = readdir(*dir))) {
		if (!is_label(entry->d_name))
			continue;
		snprintf(volume, LINK_VOLUME_SIZE, "%s", entry->d_name);
		return true;
	}
	closedir(*dir);
	*dir = NULL;
	return false;
}

static bool is_published(const struct broker_options *o, const struct uuid *pod, const char *name)
{
	auto_close int volume = open_volume(o, pod, name, PATH_FLAGS);
	if (volume < 0 || is_of_another(volume))
		return false;
	auto_close int at = open_beneath(volume, target, PATH_FLAGS);
	enum mounted m = at < 0 ? NOTHING : what_is_on(o, pod, volume, at);

	return m == OURS || m == OURS_OF_BEFORE;
}

bool kubelet_volume_is_published(const struct broker_options *o, const struct uuid *pod)
{
	char name[LINK_VOLUME_SIZE];
	DIR *dir = NULL;
	bool found = false;

	while (!found && o->kubelet_root && kubelet_volume_next(o, pod, &dir, name))
		found = is_published(o, pod, name);
	if (dir)
		closedir(dir);
	return found;
}

bool kubelet_volume_is_there(const struct broker_options *o, const struct uuid *pod)
{
	char name[LINK_VOLUME_SIZE];
	DIR *dir = NULL;

	errno = 0;
	if (kubelet_volume_next(o, pod, &dir, name)) {
		closedir(dir);
		return true;
	}
	return errno && errno != ENOENT;
}

/* "<path>/vol_data.json is ...": the path is one of our own descriptors. */
static void tell_data(int volume, struct link_packet *p, int *fd)
{
	struct broker_content c;
	const char *text;

	read_data(volume, &c);
	*fd = c.fd;
	if (c.fd >= 0)
		return;
	text = strstr(c.why.msg, data);
	p->code = c.why.code;
	snprintf(p->why, sizeof(p->why), "%s", text ? text : c.why.msg);
}

bool kubelet_volume_tell(
    const struct broker_options *o, const struct uuid *pod, struct link_packet *p, int *fd)
{
	auto_close int volume = open_volume(o, pod, p->name, PATH_FLAGS);

	*fd = -1;
	if (volume < 0)
		return false;
	p->uid = *pod;
	p->state =
	    LINK_VOLUME_DIRECTORY | (is_published(o, pod, p->name) ? LINK_VOLUME_MOUNTED : 0);
	tell_data(volume, p, fd);
	return true;
}
