/* upgrade_table.c - written once, read by the agentd that this process becomes next. */
#include "upgrade_table.h"
#include "broker/base/io.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct writing {
	FILE *to;
	uint32_t count;
};

static void write_entry(void *ctx, const char *name, int fd)
{
	struct writing *t = ctx;
	struct upgrade_table_entry one = {.fd = fd};

	snprintf(one.name, sizeof(one.name), "%s", name);
	fwrite(&one, sizeof(one), 1, t->to);
	t->count++;
}

static int write_to(int memfd, struct broker_fdstore *k, struct err *e)
{
	struct upgrade_table_head head = {.magic = UPGRADE_TABLE_MAGIC,
	    .version = UPGRADE_TABLE_VERSION,
	    .entry_size = sizeof(struct upgrade_table_entry)};
	int copy = fcntl(memfd, F_DUPFD_CLOEXEC, 0);
	struct writing t = {.to = copy < 0 ? NULL : fdopen(copy, "w")};

	if (!t.to) {
		mem_closep(&copy);
		return err_sys(e, "table of descriptors");
	}
	fwrite(&head, sizeof(head), 1, t.to);
	broker_fdstore_each(k, BROKER_FDSTORE, write_entry, &t);
	head.count = t.count;
	rewind(t.to);
	fwrite(&head, sizeof(head), 1, t.to);
	int failed = ferror(t.to);
	return fclose(t.to) || failed ? err_sys(e, "table of descriptors") : 0;
}

int upgrade_table_write(struct broker_fdstore *k, struct err *e)
{
	auto_close int fd = memfd_create("agentd-kept", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return err_sys(e, "memfd");
	if (write_to(fd, k, e) || broker_io_seal(fd, e))
		return -1;
	return take_fd(fd);
}

/* --- reading --- */

static int read_head(int memfd, struct upgrade_table_head *h, struct err *e)
{
	struct stat st;

	if (fstat(memfd, &st))
		return err_sys(e, "table of descriptors");
	if (pread(memfd, h, sizeof(*h), 0) != sizeof(*h) ||
	    memcmp(h->magic, UPGRADE_TABLE_MAGIC, sizeof(h->magic)) != 0)
		return err_set(e, EINVAL, "this is no table of descriptors");
	if (h->version != UPGRADE_TABLE_VERSION)
		return err_set(e, EPROTO,
		    "the table of descriptors has version %u, this agentd reads version %d",
		    h->version, UPGRADE_TABLE_VERSION);
	if (h->entry_size != sizeof(struct upgrade_table_entry) || h->count > UPGRADE_TABLE_MAX ||
	    st.st_size != (off_t)(sizeof(*h) + (size_t)h->count * h->entry_size))
		return err_set(e, EINVAL, "the table of descriptors is damaged");
	return 0;
}

static bool read_entry(int memfd, unsigned i, struct upgrade_table_entry *out)
{
	off_t at = (off_t)(sizeof(struct upgrade_table_head) + i * sizeof(*out));

	return pread(memfd, out, sizeof(*out), at) == sizeof(*out) &&
	       memchr(out->name, '\0', sizeof(out->name));
}

/* They came through an execution, so close-on-exec is off; on again, it tells a number that is
 * there twice and would be closed twice.  The table is no entry either: it is closed by itself. */
static bool is_new_fd(int memfd, int fd)
{
	return fd > STDERR_FILENO && fd != memfd && fcntl(fd, F_GETFD) == 0 &&
	       !fcntl(fd, F_SETFD, FD_CLOEXEC);
}

int upgrade_table_check(int memfd, struct err *e)
{
	struct upgrade_table_head h = {.count = 0};
	struct upgrade_table_entry one;

	if (read_head(memfd, &h, e))
		return -1;
	for (unsigned i = 0; i < h.count; i++)
		if (!read_entry(memfd, i, &one) || !is_new_fd(memfd, one.fd))
			return err_set(
			    e, EINVAL, "the table of descriptors is damaged at entry %u", i);
	return 0;
}

int upgrade_table_read(int memfd, struct broker_fdstore *k, struct err *e)
{
	struct upgrade_table_head h = {.count = 0};
	struct upgrade_table_entry one;

	if (upgrade_table_check(memfd, e) || read_head(memfd, &h, e))
		return -1;
	for (unsigned i = 0; i < h.count && read_entry(memfd, i, &one); i++)
		broker_fdstore_found(k, one.name, one.fd);
	return 0;
}
