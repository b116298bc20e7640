/* faults.c - LD_PRELOAD for the broker: calls that change a file system fail as the file $FAULTS
 * says.
 *
 * Its lines: "CALL ERRNO PART", where PART is a part of the path.  CALL is create (an open that may
 * make a file), write, mkdir, chmod, rename, bind, unlink, rmdir, mount, or any.  The file is read
 * at each call, so a fault begins and ends at once.  Each call that failed so is a line of
 * $FAULTS.seen: "CALL ERRNO PATH".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* Not libc's own: that is what is replaced here. */
static size_t slurp(const char *path, char *out, size_t size)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	long n = fd < 0 ? 0 : syscall(SYS_read, fd, out, size - 1);

	out[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		syscall(SYS_close, fd);
	return n > 0 ? (size_t)n : 0;
}

static void note(const char *call, int code, const char *path)
{
	char text[PATH_MAX + 64], name[PATH_MAX];
	int n = snprintf(text, sizeof(text), "%s %d %s\n", call, code, path), fd;

	snprintf(name, sizeof(name), "%s.seen", getenv("FAULTS"));
	fd = (int)syscall(
	    SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	syscall(SYS_write, fd, text, (size_t)n);
	syscall(SYS_close, fd);
}

/* Must it fail?  errno is set then. */
static int fails(const char *call, const char *path)
{
	const char *file = getenv("FAULTS");
	char text[4096], what[32], part[512], *line, *rest;
	int before = errno, code;

	if (!file || !path || !slurp(file, text, sizeof(text)))
		return 0;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (sscanf(line, "%31s %d %511s", what, &code, part) == 3 &&
		    (!strcmp(what, "any") || !strcmp(what, call)) && strstr(path, part)) {
			note(call, code, path);
			errno = code;
			return 1;
		}
	errno = before;
	return 0;
}

static int fd_fails(const char *call, int fd)
{
	char name[64], path[PATH_MAX];
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = syscall(SYS_readlink, name, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	return fails(call, path);
}

static int at_fails(const char *call, int dir, const char *path)
{
	return path && *path != '/' && dir != AT_FDCWD ? fd_fails(call, dir) : fails(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE_OF(flags, mode)                                                                       \
	va_list ap;                                                                                \
	va_start(ap, flags);                                                                       \
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;                      \
	va_end(ap)

int open(const char *path, int flags, ...)
{
	MODE_OF(flags, mode);
	return flags & O_CREAT && fails("create", path) ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	MODE_OF(flags, mode);
	return flags & O_CREAT && fails("create", path) ? -1 : REAL(open64)(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	MODE_OF(flags, mode);
	return flags & O_CREAT && at_fails("create", dir, path)
		   ? -1
		   : REAL(openat)(dir, path, flags, mode);
}

ssize_t write(int fd, const void *bytes, size_t size)
{
	return fd_fails("write", fd) ? -1 : REAL(write)(fd, bytes, size);
}

int mkdir(const char *path, mode_t mode)
{
	return fails("mkdir", path) ? -1 : REAL(mkdir)(path, mode);
}

int mkdirat(int dir, const char *path, mode_t mode)
{
	return at_fails("mkdir", dir, path) ? -1 : REAL(mkdirat)(dir, path, mode);
}

int chmod(const char *path, mode_t mode)
{
	return fails("chmod", path) ? -1 : REAL(chmod)(path, mode);
}

int fchmod(int fd, mode_t mode)
{
	return fd_fails("chmod", fd) ? -1 : REAL(fchmod)(fd, mode);
}

int rename(const char *from, const char *to)
{
	return fails("rename", to) ? -1 : REAL(rename)(from, to);
}

int bind(int fd, const struct sockaddr *a, socklen_t size)
{
	const char *path = a->sa_family == AF_UNIX
			       ? ((const struct sockaddr_un *)(const void *)a)->sun_path
			       : NULL;

	return path && *path && fails("bind", path) ? -1 : REAL(bind)(fd, a, size);
}

int move_mount(int from, const char *path, int to, const char *at, unsigned flags)
{
	return at_fails("mount", to, at) ? -1 : REAL(move_mount)(from, path, to, at, flags);
}

int unlink(const char *path)
{
	return fails("unlink", path) ? -1 : REAL(unlink)(path);
}

int unlinkat(int dir, const char *path, int flags)
{
	return at_fails(flags & AT_REMOVEDIR ? "rmdir" : "unlink", dir, path)
		   ? -1
		   : REAL(unlinkat)(dir, path, flags);
}

int rmdir(const char *path)
{
	return fails("rmdir", path) ? -1 : REAL(rmdir)(path);
}
