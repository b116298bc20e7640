/* store.c - the same few acts on a directory and on a list of memfds.
 *
 * open -> what is there is counted -> put: is there room? -> written beside, renamed over
 *      -> get, walk, del.
 * A directory is root's and on a tmpfs of its own, so it is not synced; a name that is not one of
 * ours (a temporary one that a death has left) goes at open.
 */
#include "store.h"
#include "common/err.h"
#include "common/mem.h"
#include "fdstore.h"
#include "file.h"
#include "io.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <utlist.h>

struct broker_held {
	int fd;
	struct broker_held *prev, *next;
	char name[BROKER_STORE_NAME];
};

static void path_of(const struct broker_store *s, const char *name, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/%s", s->dir, name);
}

static size_t size_of_fd(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (size_t)st.st_size;
}

static void count(struct broker_store *s, size_t size)
{
	s->budget->n++;
	s->budget->bytes += size;
}

/* Somebody else may have written or deleted a file meanwhile: the count is then about right. */
static void uncount(struct broker_store *s, size_t size)
{
	s->budget->n -= s->budget->n > 0;
	s->budget->bytes -= size < s->budget->bytes ? size : s->budget->bytes;
}

/* --- in memory --- */

static struct broker_held *find(const struct broker_store *s, const char *name)
{
	struct broker_held *h;

	DL_FOREACH (s->held, h)
		if (!strcmp(h->name, name))
			return h;
	return NULL;
}

static void kept_name(const struct broker_store *s, const char *name, char out[BROKER_FDSTORE_NAME])
{
	snprintf(out, BROKER_FDSTORE_NAME, "%s.%s", s->kind, name);
}

/* Takes over `fd`. */
static void hold(struct broker_store *s, const char *name, int fd)
{
	struct broker_held *h = mem_zalloc(sizeof(*h));
	char kept[BROKER_FDSTORE_NAME];

	snprintf(h->name, sizeof(h->name), "%s", name);
	h->fd = fd;
	DL_APPEND(s->held, h);
	count(s, size_of_fd(fd));
	kept_name(s, name, kept);
	broker_fdstore_put(s->kept, kept, fd);
}

static void let_go(struct broker_store *s, struct broker_held *h)
{
	char kept[BROKER_FDSTORE_NAME];

	kept_name(s, h->name, kept);
	broker_fdstore_drop(s->kept, kept);
	uncount(s, size_of_fd(h->fd));
	DL_DELETE(s->held, h);
	close(h->fd);
	free(h);
}

static void on_found(void *ctx, const char *kept, int fd)
{
	struct broker_store *s = ctx;
	size_t n = strlen(s->kind);
	char name[BROKER_STORE_NAME];
	struct err e;

	(void)fd;
	if (strncmp(kept, s->kind, n) != 0 || kept[n] != '.' ||
	    strlen(kept + n + 1) >= BROKER_STORE_NAME)
		return;
	snprintf(name, sizeof(name), "%s", kept + n + 1); /* `kept` goes when it is taken */
	auto_close int mine = broker_fdstore_take(s->kept, kept);
	if (!broker_file_check_memfd(mine, &e))
		hold(s, name, take_fd(mine));
}

/* --- files --- */

/* Ours are of hexadecimal digits, uids too. */
static bool is_name(const char *name)
{
	size_t n = strlen(name);

	return n && n < BROKER_STORE_NAME && strspn(name, "0123456789abcdef-") == n;
}

static void count_files(struct broker_store *s, DIR *d)
{
	const struct dirent *entry;
	struct stat st;

	while ((entry = readdir(d))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (!is_name(entry->d_name))
			unlinkat(dirfd(d), entry->d_name, 0);
		else if (!fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
			count(s, (size_t)st.st_size);
	}
}

static int open_directory(struct broker_store *s, const char *parent, struct err *e)
{
	DIR *d;

	if (asprintf(&s->dir, "%s/%s", parent, s->kind) < 0)
		abort();
	if (mkdir(s->dir, S_IRWXU) && errno != EEXIST)
		return err_sys(e, "mkdir %s", s->dir);
	if (!(d = opendir(s->dir)))
		return err_sys(e, "%s", s->dir);
	count_files(s, d);
	closedir(d);
	return 0;
}

/* --- what others call --- */

int broker_store_open(struct broker_store *s, const char *parent, struct broker_fdstore *kept,
    struct broker_budget *budget, struct err *e)
{
	s->kept = kept;
	s->budget = budget;
	if (parent)
		return open_directory(s, parent, e);
	broker_fdstore_each(kept, BROKER_FOUND, on_found, s);
	return 0;
}

/* Not dropped from the list of kept ones: the next broker is to find them. */
void broker_store_close(struct broker_store *s)
{
	broker_store_walk_end(s);
	while (s->held) {
		struct broker_held *h = s->held;
		DL_DELETE(s->held, h);
		close(h->fd);
		free(h);
	}
	free(s->dir);
	s->dir = NULL;
}

/* What there is of the name; -1: nothing. */
static ssize_t size_now(const struct broker_store *s, const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	if (!s->dir) {
		const struct broker_held *h = find(s, name);
		return h ? (ssize_t)size_of_fd(h->fd) : -1;
	}
	path_of(s, name, path);
	return lstat(path, &st) ? -1 : (ssize_t)st.st_size;
}

static int check_room(const struct broker_store *s, ssize_t before, size_t after, struct err *e)
{
	const struct broker_budget *b = s->budget;

	if (before < 0 && b->n >= b->max)
		return err_set(e, ENOSPC, "there are %u entries of state already", b->n);
	if (b->bytes - (before > 0 ? (size_t)before : 0) + after > b->bytes_max)
		return err_set(e, ENOSPC, "there are %zu MiB of state already", b->bytes_max >> 20);
	return 0;
}

/* The worker's own could hold pages behind its end. */
static int copy_of(int memfd, struct err *e)
{
	auto_close int own = memfd_create("agentd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct broker_copy done;

	if (own < 0)
		return err_sys(e, "memfd_create");
	if (broker_io_copy(memfd, own, LINK_FILE_SIZE_MAX, &done, e) || broker_io_seal(own, e))
		return -1;
	return take_fd(own);
}

int broker_store_put(struct broker_store *s, const char *name, int memfd, struct err *e)
{
	char path[PATH_MAX];
	ssize_t before = size_now(s, name);
	size_t size = size_of_fd(memfd);

	if (broker_file_check_memfd(memfd, e) || check_room(s, before, size, e))
		return -1;
	if (!s->dir) {
		auto_close int own = copy_of(memfd, e);
		if (own < 0)
			return -1;
		if (before >= 0)
			let_go(s, find(s, name));
		hold(s, name, take_fd(own));
		return 0;
	}
	path_of(s, name, path);
	if (broker_file_write(path, NULL, S_IRUSR | S_IWUSR, memfd, e))
		return -1;
	if (before >= 0)
		uncount(s, (size_t)before);
	count(s, size);
	return 0;
}

int broker_store_get(struct broker_store *s, const char *name, struct err *e)
{
	struct broker_content c;

	if (!s->dir) {
		const struct broker_held *h = find(s, name);
		int fd = h ? fcntl(h->fd, F_DUPFD_CLOEXEC, 0) : -1;
		if (!h)
			return err_set(e, ENOENT, "%s is not there", name);
		return fd < 0 ? err_sys(e, "%s", name) : fd;
	}
	broker_file_read(&(struct broker_place){.dir = s->dir, .name = name}, &c);
	if (c.fd < 0)
		*e = c.why;
	return c.fd;
}

int broker_store_del(struct broker_store *s, const char *name, struct err *e)
{
	char path[PATH_MAX];
	ssize_t before = size_now(s, name);

	if (before < 0)
		return 0;
	if (!s->dir) {
		let_go(s, find(s, name));
		return 0;
	}
	path_of(s, name, path);
	if (unlink(path) && errno != ENOENT)
		return err_sys(e, "unlink %s", path);
	uncount(s, (size_t)before);
	return 0;
}

/* --- a walk --- */

int broker_store_walk(struct broker_store *s, struct err *e)
{
	broker_store_walk_end(s);
	s->next = s->held;
	if (s->dir && !(s->files = opendir(s->dir)))
		return err_sys(e, "%s", s->dir);
	return 0;
}

bool broker_store_walk_on(struct broker_store *s, char name[BROKER_STORE_NAME])
{
	const struct dirent *entry;

	if (s->next) {
		memcpy(name, s->next->name, BROKER_STORE_NAME);
		s->next = s->next->next;
		return true;
	}
	while (s->files && (entry = readdir(s->files))) {
		if (!is_name(entry->d_name))
			continue;
		snprintf(name, BROKER_STORE_NAME, "%s", entry->d_name);
		return true;
	}
	return false;
}

void broker_store_walk_end(struct broker_store *s)
{
	if (s->files)
		closedir(s->files);
	s->files = NULL;
	s->next = NULL;
}
