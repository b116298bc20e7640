/* tmpfs.c - look at the directory -> a tmpfs of root is mounted there: use it
 *                  -> nothing is: make a file system, then put it there.
 *
 * A handle of the directory is looked at, so nothing can take its place after the check.  Its
 * parent may be a tmpfs, too: STATX_ATTR_MOUNT_ROOT tells the two apart.  The file system is
 * complete, with its mode and its size, before anybody can see it.
 */
#include "tmpfs.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#ifndef STATX_MNT_ID
#define STATX_MNT_ID 0x1000
#endif

bool broker_tmpfs_swap_is_on(void)
{
	char line[256];
	int lines = 0;
	FILE *f = fopen("/proc/swaps", "re");

	while (f && fgets(line, sizeof(line), f))
		lines++;
	if (f)
		fclose(f);
	return lines > 1; /* the first one is the head */
}

/* Does the mount's line in mountinfo have the option? */
static bool is_noswap(uint64_t mount_id)
{
	char *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	while (f && !found && getline(&line, &room, f) > 0) {
		const char *super = strstr(line, " - ");
		found = strtoull(line, NULL, 10) == mount_id && super && strstr(super, "noswap");
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

static int set(int fs, const char *key, unsigned long long n)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", n);
	return fsconfig(fs, FSCONFIG_SET_STRING, key, text, 0);
}

/* What others have made there is labelled for containers, by an administrator. */
static void take_label(int fs, const char *path)
{
	char label[256] = "";

	if (path && lgetxattr(path, "security.selinux", label, sizeof(label) - 1) > 0)
		fsconfig(fs, FSCONFIG_SET_STRING, "rootcontext", label, 0);
}

/* A file system that is nowhere yet; -1. */
static int make(const struct broker_tmpfs_spec *s, bool *noswap, struct err *e)
{
	auto_close int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int mount;

	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "source", s->source, 0) ||
	    set(fs, "size", s->kib * 1024ULL) || (s->inodes && set(fs, "nr_inodes", s->inodes)) ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0))
		return err_sys(e, "make a tmpfs");
	*noswap = !fsconfig(fs, FSCONFIG_SET_FLAG, "noswap", NULL, 0);
	take_label(fs, s->path);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return err_sys(e, "make a tmpfs");
	mount =
	    fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	return mount < 0 ? err_sys(e, "make a tmpfs") : mount;
}

static int mount_on(const struct broker_tmpfs_spec *s, bool *noswap, struct err *e)
{
	auto_close int mount = make(s, noswap, e);

	if (mount < 0)
		return -1;
	if (s->path && move_mount(mount, "", AT_FDCWD, s->path, MOVE_MOUNT_F_EMPTY_PATH))
		return err_sys(e, "mount a tmpfs on %s", s->path);
	return 0;
}

int broker_tmpfs_mount(const struct broker_tmpfs_spec *s, struct err *e)
{
	bool noswap;

	return mount_on(s, &noswap, e);
}

bool broker_tmpfs_is_on(const char *path)
{
	auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct statx st;
	struct statfs fs;

	return dir >= 0 && !statx(dir, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) &&
	       st.stx_attributes & STATX_ATTR_MOUNT_ROOT && !fstatfs(dir, &fs) &&
	       fs.f_type == TMPFS_MAGIC;
}

/* --- the state's --- */

static int check_owner(const char *path, const struct statx *st, struct err *e)
{
	if (st->stx_uid == 0 && !(st->stx_mode & (S_IRWXG | S_IRWXO)))
		return 0;
	return err_set(e, EPERM,
	    "%s belongs to uid %u and has mode %04o; it must be root's alone (chown root, chmod "
	    "0700)",
	    path, (unsigned)st->stx_uid, st->stx_mode & 07777u);
}

/* What is there; DENIED: a directory without a mount of its own. */
static void look(const char *path, struct broker_tmpfs *t)
{
	auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct statx st;
	struct statfs fs;

	t->is = BROKER_TMPFS_WRONG;
	if (dir < 0 || statx(dir, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) ||
	    fstatfs(dir, &fs)) {
		t->is = errno == ENOENT ? BROKER_TMPFS_DENIED : BROKER_TMPFS_WRONG;
		err_sys(&t->why, "%s", path);
	} else if (check_owner(path, &st, &t->why)) {
		return;
	} else if (!(st.stx_attributes & STATX_ATTR_MOUNT_ROOT)) {
		t->is = BROKER_TMPFS_DENIED;
	} else if (fs.f_type != TMPFS_MAGIC) {
		err_set(&t->why, EINVAL,
		    "the mount on %s is no tmpfs: private keys could reach a disk (umount it)",
		    path);
	} else {
		t->is = BROKER_TMPFS_FOUND;
		t->noswap = is_noswap(st.stx_mnt_id);
	}
}

static void mount_it(const char *path, struct broker_tmpfs *t)
{
	const struct broker_tmpfs_spec s = {path, "agentd", BROKER_TMPFS_MIB << 10, 0};

	if (!mount_on(&s, &t->noswap, &t->why))
		t->is = BROKER_TMPFS_MOUNTED;
}

void broker_tmpfs_open(const char *path, struct broker_tmpfs *t)
{
	*t = (struct broker_tmpfs){.is = BROKER_TMPFS_WRONG};
	if (mkdir(path, S_IRWXU) && errno != EEXIST) {
		err_sys(&t->why, "mkdir %s", path);
		return;
	}
	look(path, t);
	if (t->is == BROKER_TMPFS_DENIED)
		mount_it(path, t);
}

void broker_tmpfs_look(const char *path, struct broker_tmpfs *t)
{
	*t = (struct broker_tmpfs){.is = BROKER_TMPFS_WRONG};
	look(path, t);
	if (t->is == BROKER_TMPFS_DENIED)
		mount_it(NULL, t);
}
