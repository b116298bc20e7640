/* file.c - reading what root wrote, writing what a pod may see.
 *
 * A file is first opened as a path only, so that neither a FIFO nor a device sees an open(); what
 * it is and whose is checked on that handle; only then it is opened for reading through it.  In a
 * volume of Kubernetes each name is a link through `..data`, a link that is swapped to a new
 * directory at each update: there, and only there, one directory is passed (security-rules.md 6).
 */
#include "file.h"
#include "common/err.h"
#include "common/mem.h"
#include "io.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { DIRECTORY = O_PATH | O_DIRECTORY | O_CLOEXEC };

/* The directory that `..data` leads to, if it is a link to a directory beside it; -1: none. */
static int open_data(int dir)
{
	char target[NAME_MAX + 1];
	ssize_t n = readlinkat(dir, "..data", target, sizeof(target) - 1);

	if (n <= 0)
		return -1;
	target[n] = '\0';
	if (strchr(target, '/') || !strcmp(target, ".") || !strcmp(target, ".."))
		return -1;
	return openat(dir, target, DIRECTORY | O_NOFOLLOW);
}

/* A handle of the file itself, whatever it is; -1 with errno. */
static int find_file(const struct broker_place *at)
{
	auto_close int top = open(at->dir, DIRECTORY);
	auto_close int sub =
	    top >= 0 && at->sub ? openat(top, at->sub, DIRECTORY | O_NOFOLLOW) : -1;
	int dir = at->sub ? sub : top;

	if (dir < 0)
		return -1;
	auto_close int data = open_data(dir);
	if (data >= 0) {
		int fd = openat(data, at->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0 || errno != ENOENT)
			return fd;
	}
	return openat(dir, at->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

static int check_file(const struct stat *st, bool secret, struct err *e)
{
	if (S_ISLNK(st->st_mode))
		return err_set(e, ELOOP, "is a symbolic link");
	if (!S_ISREG(st->st_mode))
		return err_set(e, EINVAL, "is not a regular file");
	if (st->st_uid != 0)
		return err_set(
		    e, EPERM, "belongs to uid %u; it must be root's", (unsigned)st->st_uid);
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return err_set(e, EPERM, "is writable by others than root (chmod go-w)");
	if (secret && st->st_mode & (S_IRWXG | S_IRWXO))
		return err_set(e, EPERM,
		    "is a key that others than root can read (chmod 600, and make a new one)");
	if (st->st_size > LINK_FILE_SIZE_MAX)
		return err_set(e, EFBIG, "is larger than %d KiB", LINK_FILE_SIZE_MAX / 1024);
	return 0;
}

/* A sealed copy. */
static int copy_file(int handle, uint64_t *digest, struct err *e)
{
	char self[32];
	struct broker_copy copy;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", handle);
	auto_close int from = open(self, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (from < 0)
		return err_sys(e, "cannot be opened");
	auto_close int to = memfd_create("agentd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (to < 0)
		return err_sys(e, "memfd_create");
	if (broker_io_copy(from, to, LINK_FILE_SIZE_MAX, &copy, e) || broker_io_seal(to, e))
		return -1;
	*digest = copy.digest ^ copy.size;
	return take_fd(to);
}

static uint64_t digest_of_text(const char *s)
{
	uint64_t h = 5381;

	while (*s)
		h = h * 33 + (uint8_t)*s++;
	return h;
}

/* "<path> <why>": what was seen, with the name a person can look for. */
static void name_it(const struct broker_place *at, struct err *e)
{
	char reason[LINK_WHY_SIZE];

	snprintf(reason, sizeof(reason), "%s", e->msg);
	err_set(e, e->code, "%s/%s%s%s %s", at->dir, at->sub ? at->sub : "", at->sub ? "/" : "",
	    at->name, reason);
}

void broker_file_read(const struct broker_place *at, struct broker_content *out)
{
	struct stat st;
	auto_close int handle = find_file(at);

	*out = (struct broker_content){.state = LINK_FILE_REFUSED, .fd = -1};
	if (handle < 0 && errno == ENOENT) {
		out->state = LINK_FILE_REMOVED;
		err_set(&out->why, ENOENT, "is not there");
	} else if (handle < 0 || fstat(handle, &st)) {
		err_sys(&out->why, "cannot be opened");
	} else if (!check_file(&st, at->secret, &out->why)) {
		out->fd = copy_file(handle, &out->digest, &out->why);
		out->state = out->fd >= 0 ? LINK_FILE_CONTENT : LINK_FILE_REFUSED;
	}
	if (out->state != LINK_FILE_CONTENT) {
		name_it(at, &out->why);
		out->digest = digest_of_text(out->why.msg);
	}
	out->digest = out->digest * 31 + out->state;
}

void broker_file_read_path(const char *path, struct broker_content *out)
{
	const char *slash = strrchr(path, '/'); /* it is absolute */
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%.*s/", (int)(slash - path), path);
	broker_file_read(&(struct broker_place){.dir = dir, .name = slash + 1}, out);
}

int broker_file_line(const struct broker_place *at, char *out, size_t size, struct err *e)
{
	struct broker_content content;
	ssize_t n;

	broker_file_read(at, &content);
	auto_close int fd = content.fd;
	if (content.state != LINK_FILE_CONTENT)
		return err_set(
		    e, content.state == LINK_FILE_REMOVED ? ENOENT : EINVAL, "%s", content.why.msg);
	n = pread(fd, out, size, 0);
	if (n > 0 && out[n - 1] == '\n')
		n--;
	if (n <= 0 || n == (ssize_t)size || memchr(out, '\n', (size_t)n) ||
	    memchr(out, '\0', (size_t)n)) {
		err_set(&content.why, EINVAL, "is not one line of fewer than %zu bytes", size);
		name_it(at, &content.why);
		return err_set(e, EINVAL, "%s", content.why.msg);
	}
	out[n] = '\0';
	return 0;
}

int broker_file_directory(const char *path, mode_t mode, struct err *e)
{
	mode_t umask_was = umask(0);
	int rc = mkdir(path, mode);

	umask(umask_was); /* leaves errno */
	if (!rc)
		return 1;
	return errno == EEXIST ? 0 : err_sys(e, "mkdir %s", path);
}

/* What the worker hands over must not change under our hands, nor be something else than memory. */
int broker_file_check_memfd(int memfd, struct err *e)
{
	const int wanted = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	int seals = fcntl(memfd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || fstat(memfd, &st) || !S_ISREG(st.st_mode))
		return err_set(e, EINVAL, "the descriptor is no memfd");
	if ((seals & wanted) != wanted)
		return err_set(e, EINVAL, "the memfd is not sealed");
	if (st.st_size > LINK_FILE_SIZE_MAX)
		return err_set(
		    e, EFBIG, "the content is larger than %d KiB", LINK_FILE_SIZE_MAX / 1024);
	return 0;
}

/* Not synced: the directory is on a tmpfs, and a lost file is written again at the next start. */
int broker_file_write(const char *path, const char *first, mode_t mode, int memfd, struct err *e)
{
	char beside[PATH_MAX];
	const char *slash = strrchr(path, '/');
	struct broker_copy copy;

	if (broker_file_check_memfd(memfd, e))
		return -1;
	snprintf(beside, sizeof(beside), "%.*s/.%s.new", (int)(slash - path), path, slash + 1);
	if (!first)
		first = beside;
	if (unlink(first) && errno != ENOENT)
		return err_sys(e, "unlink %s", first);
	auto_close int fd =
	    open(first, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0)
		return err_sys(e, "create %s", first);
	if (broker_io_copy(memfd, fd, LINK_FILE_SIZE_MAX, &copy, e)) {
		unlink(first);
		return -1;
	}
	if (fchmod(fd, mode) || rename(first, path)) {
		err_sys(e, "rename to %s", path);
		unlink(first);
		return -1;
	}
	return 0;
}
