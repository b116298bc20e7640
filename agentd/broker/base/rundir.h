/* rundir.h - <run>: its owner, and the lock that admits only one broker. */
#pragma once
#include "common/err.h"
#include "fdstore.h"
#include <stdbool.h>

/* The kept name of the lock. */
#define BROKER_RUNDIR_LOCK "lock"

struct broker_rundir {
	struct broker_fdstore *kept;
	int lock;       /* held as long as the broker lives; -1: not open */
	bool inherited; /* from an agentd that handed over, here or beside us */
};

/* Makes <run> and <run>/pods, or adopts those of a dead broker.  A lock among the descriptors that
 * `k` found is ours already.  EBUSY: another one holds it. */
int broker_rundir_open(
    struct broker_rundir *d, const char *run, struct broker_fdstore *k, struct err *e);
void broker_rundir_close(struct broker_rundir *d);
/* Names us in the lock file, for the message of the next agentd that is refused. */
int broker_rundir_sign(int lock, struct err *e);
