/* mount.c - copy -> read-only -> attach; detach.
 *
 * A copy that is made read-only only after it was attached stays writable in every peer of the
 * place it was attached at (measured, kubelet-csi.md 3f).  So it is made so while it is nowhere;
 * on a kernel that cannot, it is made so at a place of ours, and copied once more from there, for a
 * copy has the flags of what it is a copy of.
 */
#include "mount.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

LOG_SCOPE("broker");

enum { SELF_SIZE = 32 };

static void path_of(int fd, char out[SELF_SIZE])
{
	snprintf(out, SELF_SIZE, "/proc/self/fd/%d", fd);
}

/* --- copy --- */

static int copy_mount(int source, struct err *e)
{
	int fd = open_tree(source, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

	return fd < 0 ? err_sys(e, "open_tree") : fd;
}

/* Private: what is mounted where the original is has no business in a pod. */
int kubelet_mount_copy(int source, const char *staging, struct err *e)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
					      MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
	    .propagation = MS_PRIVATE};
	auto_close int copy = copy_mount(source, e);

	if (copy < 0)
		return -1;
	if (!mount_setattr(copy, "", AT_EMPTY_PATH, &attr, sizeof(attr)))
		return take_fd(copy);
	if (errno == ENOSYS)
		return kubelet_mount_copy_by_remount(source, staging, e);
	return err_sys(e, "mount_setattr");
}

int kubelet_mount_copy_by_remount(int source, const char *staging, struct err *e)
{
	const unsigned long flags =
	    MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
	char from[SELF_SIZE];
	int copy = -1;

	path_of(source, from);
	if (mkdir(staging, S_IRWXU) && errno != EEXIST)
		return err_sys(e, "mkdir %s", staging);
	while (!umount2(staging, MNT_DETACH | UMOUNT_NOFOLLOW))
		; /* of one who died here */
	if (mount(from, staging, NULL, MS_BIND, NULL))
		return err_sys(e, "mount on %s", staging);
	auto_close int at = open(staging, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (at < 0 || mount(NULL, staging, NULL, MS_PRIVATE, NULL) ||
	    mount(NULL, staging, NULL, flags, NULL))
		err_sys(e, "read-only on %s", staging);
	else
		copy = copy_mount(at, e);
	if (umount2(staging, MNT_DETACH | UMOUNT_NOFOLLOW))
		log_error(NULL, "umount %s: %m", staging);
	return copy;
}

/* --- attach, detach --- */

int kubelet_mount_attach(int copy, int at, struct err *e)
{
	if (move_mount(copy, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		return err_sys(e, "move_mount");
	return 0;
}

/* By a link that leads to this very mount, whatever was put on top of it meanwhile. */
int kubelet_mount_detach(int mounted, struct err *e)
{
	char path[SELF_SIZE];

	path_of(mounted, path);
	return umount2(path, MNT_DETACH) ? err_sys(e, "umount") : 0;
}

/* --- look --- */

/* By what the kernel knows of the descriptor: a stat(2) asks the file system, whose server may
 * never answer.  0: it cannot be known, which no mount is. */
static uint64_t mount_of(int fd)
{
	char path[SELF_SIZE + sizeof("info")], line[64];
	uint64_t id = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	FILE *f = fopen(path, "re");
	while (f && !id && fgets(line, sizeof(line), f))
		if (!strncmp(line, "mnt_id:", 7))
			id = strtoull(line + 7, NULL, 10);
	if (f)
		fclose(f);
	return id;
}

bool kubelet_mount_begins(int above, int at)
{
	return mount_of(above) != mount_of(at);
}

/* What is known already is enough. */
static bool look_at(int fd, struct statx *x)
{
	return !statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_INO, x);
}

bool kubelet_mount_shows(int at, int dir)
{
	struct statx a, b;

	return look_at(at, &a) && look_at(dir, &b) && a.stx_dev_major == b.stx_dev_major &&
	       a.stx_dev_minor == b.stx_dev_minor && a.stx_ino == b.stx_ino;
}

bool kubelet_mount_is_of(int at, int dir)
{
	struct statx a, b;

	return look_at(at, &a) && look_at(dir, &b) && a.stx_dev_major == b.stx_dev_major &&
	       a.stx_dev_minor == b.stx_dev_minor;
}

bool kubelet_mount_same(int a, int b)
{
	return mount_of(a) == mount_of(b) && kubelet_mount_shows(a, b);
}

/* Its line of mountinfo, the caller's; NULL: it cannot be found. */
static char *line_of(int fd)
{
	const uint64_t id = mount_of(fd);
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (f && id && !found && getline(&line, &room, f) > 0)
		found = strtoull(line, NULL, 10) == id;
	if (f)
		fclose(f);
	if (found)
		return line;
	free(line);
	return NULL;
}

/* "<id> <parent> <major:minor> <root> <point> <options> <shared:N ...> - <type> <source>
 * <options>", in which a blank of a name is written as \040 */
static bool root_in(const char *line, char out[PATH_MAX])
{
	return sscanf(line, "%*s %*s %*s %4095s", out) == 1;
}

static bool source_in(const char *line, char out[PATH_MAX])
{
	const char *end = strstr(line, " - ");

	return end && sscanf(end, " - %*s %4095s", out) == 1;
}

static bool says_shared(const char *line)
{
	const char *end = strstr(line, " - "), *word = strstr(line, " shared:");

	return end && word && word < end;
}

bool kubelet_mount_root(int mounted, char out[PATH_MAX])
{
	auto_free char *line = line_of(mounted);

	return line && root_in(line, out);
}

bool kubelet_mount_source(int mounted, char out[PATH_MAX])
{
	auto_free char *line = line_of(mounted);

	return line && source_in(line, out);
}

static bool is_shared(int dir)
{
	auto_free char *line = line_of(dir);

	return line && says_shared(line);
}

bool kubelet_mount_is_seen(const char *dir)
{
	auto_close int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat own, nodes;

	return is_shared(fd) || (!stat("/proc/self/ns/mnt", &own) &&
				    !stat("/proc/1/ns/mnt", &nodes) && own.st_ino == nodes.st_ino);
}
