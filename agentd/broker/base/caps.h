/* caps.h - capabilities: giving up those that are not needed. */
#pragma once
#include "common/err.h"
#include <linux/capability.h>
#include <stdint.h>

/* Those that the broker's own acts need (process-split.md 6); a feature that needs more adds it
 * here. */
#define BROKER_CAPS                                                                                \
	(1ull << CAP_DAC_READ_SEARCH | 1ull << CAP_KILL | 1ull << CAP_SETGID |                     \
	    1ull << CAP_SETUID | 1ull << CAP_SETPCAP | 1ull << CAP_NET_ADMIN |                     \
	    1ull << CAP_SYS_ADMIN)
/* With --redirect (kernels.md 4). */
#define BROKER_CAPS_REDIRECT (1ull << CAP_BPF | 1ull << CAP_PERFMON)

/* No program executed later can have more than `keep`. */
int broker_caps_bound(uint64_t keep, struct err *e);
/* This process has no more than `keep`. */
int broker_caps_set(uint64_t keep, struct err *e);
