/* rows.h - a pod's ports and address ranges in the maps: of its rules, and of what
 * was seen in its network namespace. */
#pragma once
#include "common/err.h"
#include "table.h"

/* `p->rules` are there.  What is new is written; what is not any more stays until the sweep. */
int redirect_rows_put(const struct redirect *r, struct redirect_pod_state *p, struct err *e);
/* Of what was written for this pod, by us or an earlier broker. */
void redirect_rows_sweep(const struct redirect *r, struct redirect_pod_state *p);
void redirect_rows_clear(const struct redirect *r, struct redirect_pod_state *p);
/* How many were written or deleted so far, by everybody: what is there already is not written. */
unsigned redirect_rows_changed(void);

/* Two walks through all there is.  Whatever no pod of the table has goes: each is told what an
 * earlier broker wrote for it; or whatever somebody else added goes. */
void redirect_rows_adopt(const struct redirect *r);
void redirect_rows_sweep_all(const struct redirect *r);
