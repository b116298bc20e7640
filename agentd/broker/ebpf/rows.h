/* rows.h - a pod's ports and address ranges in the maps: from its rules and its network
 * namespace. */
#pragma once
#include "common/err.h"
#include "table.h"

/* `p->rules` are there.  New rows are written; outdated ones stay until the sweep. */
int ebpf_rows_put(const struct redirect *r, struct redirect_pod_state *p, struct err *e);
/* Of what was written for this pod, by us or an earlier broker. */
void ebpf_rows_sweep(const struct redirect *r, struct redirect_pod_state *p);
void ebpf_rows_clear(const struct redirect *r, struct redirect_pod_state *p);
/* How many were written or deleted so far, for all pods; a row that is there already is not
 * written. */
unsigned ebpf_rows_changed(void);

/* Two walks through all rows.  A row of no pod in the table goes.  _adopt() lists the others as
 * written for their pods; _sweep_all() deletes those that somebody else added. */
void ebpf_rows_adopt(const struct redirect *r);
void ebpf_rows_sweep_all(const struct redirect *r);
