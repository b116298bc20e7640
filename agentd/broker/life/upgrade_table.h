/* upgrade_table.h - the kept descriptors, written down for the next process with this pid.
 *
 * A sealed memfd: a head, then one entry of fixed size for each descriptor, its name and its
 * number. Written and read by brokers of different releases, so it is checked like any input.
 */
#pragma once
#include "broker/base/fdstore.h"
#include "common/err.h"
#include <stdint.h>

#define UPGRADE_TABLE_MAGIC "agentd:kept"
enum { UPGRADE_TABLE_VERSION = 1, UPGRADE_TABLE_MAX = 1 << 20 /* entries */ };

struct upgrade_table_head {
	char magic[12];
	uint32_t version; /* another one is not read: start without */
	uint32_t entry_size, count;
};
struct upgrade_table_entry {
	char name[BROKER_FDSTORE_NAME]; /* NUL-terminated */
	int32_t fd;
};

/* A memfd with all that `k` keeps; -1: `e` says why. */
int upgrade_table_write(struct broker_fdstore *k, struct err *e);
/* Whether a broker of this release could read it and the descriptors came with it.  Once only: it
 * makes them close-on-exec. */
int upgrade_table_check(int memfd, struct err *e);
/* Its descriptors become found ones of `k`: all of them or, with -1, none. */
int upgrade_table_read(int memfd, struct broker_fdstore *k, struct err *e);
