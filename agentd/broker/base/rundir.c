/* rundir.c - made or adopted, locked, never removed.
 *
 * <run> is 0711, so that a path below it can be mounted and looked up; its content is root's:
 * admin.sock 0600, pods/ 0700.  The lock is the kernel's: it goes when its holder does, however it
 * died.  The pid in the file is for the message only.
 */
#include "rundir.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

LOG_SCOPE("broker");

static int make(const char *path, mode_t mode, struct err *e)
{
	struct stat st;
	int made = broker_file_directory(path, mode, e);

	if (made)
		return made < 0 ? -1 : 0;
	if (lstat(path, &st))
		return err_sys(e, "%s", path);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ENOTDIR, "%s is not a directory", path);
	if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(e, EPERM,
		    "%s can be written by others than root (chown root, chmod go-w)", path);
	return 0;
}

static void read_holder(int fd, char *out, size_t size)
{
	ssize_t n = pread(fd, out, size - 1, 0);

	out[n > 0 ? n : 0] = '\0';
	out[strspn(out, "0123456789")] = '\0';
}

/* A lock belongs to the open file, so whoever has that from an earlier broker has it without a gap;
 * to take it again says whether it is so.  If somebody has replaced the file meanwhile, what counts
 * is who locks the one that is there: to end here would cost all that is kept. */
static int open_lock(struct broker_rundir *d, const char *path, struct err *e)
{
	struct stat here, there;
	auto_close int given = broker_fdstore_take(d->kept, BROKER_RUNDIR_LOCK);
	auto_close int fd =
	    open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);

	if (fd < 0 || fstat(fd, &here))
		return err_sys(e, "open %s", path);
	if (given < 0)
		return take_fd(fd);
	d->inherited =
	    !fstat(given, &there) && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
	if (d->inherited)
		return take_fd(given);
	log_warn(NULL, "the lock that was handed over is not %s", path);
	return take_fd(fd);
}

static int take_lock(struct broker_rundir *d, const char *path, struct err *e)
{
	char pid[16];
	auto_close int fd = open_lock(d, path, e);

	if (fd < 0)
		return -1;
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return err_sys(e, "lock %s", path);
		read_holder(fd, pid, sizeof(pid));
		return err_set(e, EBUSY,
		    "another agentd (pid %s) holds %s; stop it first, or take its place with "
		    "--take-over",
		    *pid ? pid : "unknown", path);
	}
	d->lock = take_fd(fd);
	broker_fdstore_put(d->kept, BROKER_RUNDIR_LOCK, d->lock);
	return broker_rundir_sign(d->lock, e);
}

int broker_rundir_sign(int lock, struct err *e)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(lock, 0) || pwrite(lock, pid, strlen(pid), 0) < 0)
		return err_sys(e, "write the lock file");
	return 0;
}

int broker_rundir_open(
    struct broker_rundir *d, const char *run, struct broker_fdstore *k, struct err *e)
{
	char path[PATH_MAX];

	d->lock = -1;
	d->kept = k;
	if (make(run, 0711, e))
		return -1;
	snprintf(path, sizeof(path), "%s/lock", run);
	if (take_lock(d, path, e))
		return -1;
	snprintf(path, sizeof(path), "%s/pods", run);
	return make(path, 0700, e);
}

void broker_rundir_close(struct broker_rundir *d)
{
	if (d->lock >= 0)
		broker_fdstore_drop(d->kept, BROKER_RUNDIR_LOCK);
	mem_closep(&d->lock);
}
