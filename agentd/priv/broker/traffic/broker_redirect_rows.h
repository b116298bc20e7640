/* broker_redirect_rows.h - a pod's ports and address ranges in the maps: of its rules, and of what
 * was seen in its network namespace. */
#pragma once
#include "broker_redirect_pod.h"

/* `p->rules` are there.  What is new is written; what is not any more stays until the sweep. */
int redirect_rows_put(
    const struct broker_redirect *r, const struct redirect_pod_state *p, struct broker_why *w);
void redirect_rows_sweep(const struct broker_redirect *r, const struct redirect_pod_state *p);
/* Of all pods in one walk, and of those nobody knows. */
void redirect_rows_sweep_all(const struct broker_redirect *r);
/* How many were written or deleted so far, by everybody: what is there already is not written. */
unsigned redirect_rows_changed(void);
/* All of an index. */
void redirect_rows_clear(const struct broker_redirect *r, uint32_t index);
/* All of every index that no pod of the table has. */
void redirect_rows_clear_strangers(const struct broker_redirect *r);
