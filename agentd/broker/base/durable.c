/* durable.c - directory -> a temporary file beside -> its bytes on disk -> renamed -> the name on
 * disk.
 *
 * Whatever fails, or whenever we die, the name is that of the old content or of the new one in
 * full. What a death left beside goes with the next write.
 */
#include "durable.h"
#include "common/err.h"
#include "common/mem.h"
#include "io.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* Each directory of the path that is not there. */
static int make_directories(const char *path, struct err *e)
{
	char part[PATH_MAX];

	for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		int n = slash ? (int)(slash - path) : (int)strlen(path);

		snprintf(part, sizeof(part), "%.*s", n, path);
		if (mkdir(part, S_IRWXU) && errno != EEXIST && errno != EROFS)
			return err_sys(e, "mkdir %s", part);
		if (!slash)
			return 0;
	}
}

static int open_directory(const char *path, struct err *e)
{
	struct stat st;

	if (make_directories(path, e))
		return -1;
	auto_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || fstat(dir, &st))
		return err_sys(e, "%s", path);
	if (st.st_uid != 0 || st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(
		    e, EPERM, "%s is not root's alone to write (chown root, chmod 700)", path);
	if (flock(dir, LOCK_EX)) /* a writer of a broker before us may still be at it */
		return err_sys(e, "lock %s", path);
	return take_fd(dir);
}

/* An agentd that was upgraded in place has the system calls that the one before had, too. */
static int to_disk(int fd, const char *what, struct err *e)
{
	if (!fsync(fd))
		return 0;
	if (errno == EPERM)
		return err_set(
		    e, EPERM, "fsync: forbidden since an upgrade in place (restart agentd)");
	return err_sys(e, "fsync %s", what);
}

static int write_temporary(int dir, const char *name, int memfd, struct err *e)
{
	struct broker_copy copy;

	if (unlinkat(dir, name, 0) && errno != ENOENT)
		return err_sys(e, "unlink %s", name);
	auto_close int fd = openat(
	    dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0)
		return err_sys(e, "create %s", name);
	if (broker_io_copy(memfd, fd, LINK_FILE_SIZE_MAX, &copy, e) || to_disk(fd, name, e))
		return -1;
	if (close(take_fd(fd)))
		return err_sys(e, "close %s", name);
	return 0;
}

int broker_durable_write(const struct broker_place *at, int memfd, struct err *e)
{
	char temporary[NAME_MAX + 1];
	auto_close int dir = open_directory(at->dir, e);

	if (dir < 0)
		return -1;
	snprintf(temporary, sizeof(temporary), ".%s.new", at->name);
	if (write_temporary(dir, temporary, memfd, e)) {
		unlinkat(dir, temporary, 0);
		return err_wrap(e, "%s", at->dir);
	}
	if (renameat(dir, temporary, dir, at->name)) {
		err_sys(e, "%s/%s", at->dir, at->name);
		unlinkat(dir, temporary, 0);
		return -1;
	}
	return to_disk(dir, at->dir, e);
}
