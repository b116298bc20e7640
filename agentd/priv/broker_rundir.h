/* broker_rundir.h - <run>: whose it is, and that only one broker uses it. */
#pragma once
#include "broker_log.h"

struct broker_rundir {
	int lock; /* held as long as the broker lives; -1: not open */
};

/* Makes <run> and <run>/pods, or adopts those of a dead broker. */
int broker_rundir_open(struct broker_rundir *d, const char *run, struct broker_why *w);
void broker_rundir_close(struct broker_rundir *d);
