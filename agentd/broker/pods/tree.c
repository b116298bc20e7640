/* tree.c - a directory is made -> a tmpfs is mounted on it -> the pod goes: unmounted; or, of a
 * plain one, entries are removed through descriptors, a bounded number in a call.
 *
 * Directories are not walked down: those that one of them holds move up to the top, where they are
 * removed in their turn, so their depth costs neither memory nor descriptors.
 */
#include "tree.h"
#include "broker/base/tmpfs.h"
#include "broker/kubelet/pod_source.h"
#include "broker/kubelet/volume.h"
#include "common/err.h"
#include "common/mem.h"
#include "pod.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Each file at its largest, and one of them twice while it is replaced. */
enum { TREE_KIB = (LINK_FILE_END + 1) * (LINK_FILE_SIZE_MAX >> 10) };
/* Two directories, the mark of a late one, and twice each file and socket; the rest is room. */
enum { TREE_INODES = 64 };

/* Of a removal in one call, so that the loop turns. */
enum { STEPS_MAX = 10000, STACKED_MAX = 16 };

/* --- begin --- */

static bool is_of_kubelet(const struct broker_pod *pod)
{
	const struct broker_options *o = pod->rig->options;

	return o->kubelet_root && !pod_source_is_manifest(o, &pod->uid);
}

/* What an earlier agentd made: the pod has this one. */
static bool is_plain(const struct broker_pod *pod)
{
	char mount[POD_PATH_SIZE];
	struct stat st;

	pod_path_in(pod, "", mount);
	return !broker_tmpfs_is_on(pod->dir) && !lstat(mount, &st);
}

int pod_tree_mount(const struct broker_pod *pod, struct err *e)
{
	char name[KUBELET_VOLUME_SOURCE_SIZE];
	const struct broker_tmpfs_spec s = {pod->dir, name, TREE_KIB, TREE_INODES};

	if (!is_of_kubelet(pod) || is_plain(pod) || broker_tmpfs_is_on(pod->dir))
		return 0;
	kubelet_volume_source(&pod->uid, name);
	return broker_tmpfs_mount(&s, e) ? -1 : 1;
}

bool pod_tree_may_be_written(const struct broker_pod *pod)
{
	return is_of_kubelet(pod) && is_plain(pod);
}

/* --- end --- */

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

struct removal {
	int top;
	unsigned steps; /* taken */
	unsigned moved; /* names given */
};

static bool may_go_on(struct removal *r)
{
	errno = EAGAIN;
	return r->steps++ < STEPS_MAX;
}

/* Away, or up under a name that is free there; the pod may have taken some. */
static int take_out(struct removal *r, int from, const char *name)
{
	char up[16];
	int rc = may_go_on(r) ? unlinkat(from, name, 0) : -1;

	if (rc && errno == EISDIR)
		errno = EEXIST;
	while (rc && errno == EEXIST && may_go_on(r)) {
		snprintf(up, sizeof(up), ".%u", r->moved++);
		rc = renameat2(from, name, r->top, up, RENAME_NOREPLACE);
	}
	return rc;
}

static DIR *open_directory(int at, const char *name)
{
	auto_close int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (d)
		take_fd(fd);
	return d;
}

static int take_all_out(struct removal *r, const char *name)
{
	DIR *d = open_directory(r->top, name);
	const struct dirent *entry;
	int rc = d ? 0 : -1, code;

	while (!rc && (entry = readdir(d)))
		if (!is_dots(entry->d_name))
			rc = take_out(r, dirfd(d), entry->d_name);
	code = errno;
	if (d)
		closedir(d);
	errno = code;
	return rc;
}

static int remove_entry(struct removal *r, const char *name)
{
	if (!may_go_on(r))
		return -1;
	if (!unlinkat(r->top, name, 0) ||
	    (errno == EISDIR && !unlinkat(r->top, name, AT_REMOVEDIR)))
		return 0;
	if (errno != ENOTEMPTY || take_all_out(r, name))
		return -1;
	return unlinkat(r->top, name, AT_REMOVEDIR);
}

/* What moves up meanwhile may be seen or not. */
static int empty(struct removal *r, DIR *d)
{
	const struct dirent *entry;
	int n;

	do {
		n = 0;
		rewinddir(d);
		while ((entry = readdir(d))) {
			if (is_dots(entry->d_name))
				continue;
			if (remove_entry(r, entry->d_name))
				return -1;
			n++;
		}
	} while (n);
	return 0;
}

static int remove_plain(const char *dir, struct err *e)
{
	DIR *d = open_directory(AT_FDCWD, dir);
	int rc;

	if (!d)
		return errno == ENOENT ? 0 : err_sys(e, "open %s", dir);
	struct removal r = {.top = dirfd(d)};
	rc = empty(&r, d) ? err_sys(e, "remove what is in %s", dir) : 0;
	closedir(d);
	return rc;
}

/* More than one: of a bug. */
static int unmount(const char *dir, struct err *e)
{
	for (int i = 0; i < STACKED_MAX && broker_tmpfs_is_on(dir); i++)
		if (umount2(dir, MNT_DETACH | UMOUNT_NOFOLLOW))
			return err_sys(e, "umount %s", dir);
	return 0;
}

int pod_tree_remove(const char *dir, struct err *e)
{
	if (unmount(dir, e) || remove_plain(dir, e))
		return -1;
	return rmdir(dir) && errno != ENOENT ? err_sys(e, "rmdir %s", dir) : 0;
}
