/* broker_upgrade_table_fuzz.c - any bytes as the table of descriptors: read as a whole or not at
 * all. */
#include "broker/life/upgrade_table.h"
#include "common/err.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FIRST = 100, LAST = 131 }; /* open, and the table's to name; the fuzzer's own are not */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void prepare(void)
{
	int null = open("/dev/null", O_RDWR);

	for (int fd = FIRST; fd <= LAST; fd++)
		if (fcntl(fd, F_SETFD, 0))
			dup2(null, fd);
	close(null);
}

static void count(void *ctx, const char *name, int fd)
{
	(void)name;
	*(int *)ctx += 1;
	if (fcntl(fd, F_GETFD) != FD_CLOEXEC)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct upgrade_table_entry *e;
	struct err w = {0};
	int table, found = 0;

	int said = dup(STDERR_FILENO); /* of names that are none there is a line each */
	prepare();
	dup2(FIRST, STDERR_FILENO);
	/* Only numbers of ours, so that what is closed is not libFuzzer's. */
	uint8_t *copy = malloc(size + 1);
	for (size_t i = 0; i < size; i++)
		copy[i] = data[i];
	for (size_t at = sizeof(struct upgrade_table_head); at + sizeof(*e) <= size;
	     at += sizeof(*e)) {
		e = (void *)(copy + at);
		if (e->fd > STDERR_FILENO && e->fd < FIRST)
			e->fd += FIRST;
	}
	table = memfd_create("table", MFD_CLOEXEC);
	if (write(table, copy, size) != (ssize_t)size)
		abort();
	struct broker_fdstore *k = broker_fdstore_new();
	int refused = upgrade_table_read(table, k, &w);
	broker_fdstore_each(k, BROKER_FOUND, count, &found);
	if (refused && found)
		abort();
	broker_fdstore_free(&k);
	close(table);
	free(copy);
	dup2(said, STDERR_FILENO);
	close(said);
	return 0;
}
