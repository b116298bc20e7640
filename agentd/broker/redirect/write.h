/* write.h - one pod's rules, from the asking into the maps. */
#pragma once
#include "border/rules.h"
#include "common/err.h"
#include <stdint.h>

struct broker_pod;
struct redirect_traffic;

struct redirect_asked {
	struct redirect_rules *rules; /* checked; taken */
	uint32_t id;                  /* of the worker's question */
	struct err above; /* what the ceiling does not allow any more; code 0: nothing */
};
/* Written now, or when its cgroup is there; the pod's answer is ready then.  -1: it has no cgroup
 * that could be awaited, and nothing is asked for. */
int redirect_write_ask(struct redirect_traffic *t, struct broker_pod *pod,
    const struct redirect_asked *a, struct err *e);
/* What stood in its way may be gone. */
void redirect_write_again(struct broker_pod *pod);
