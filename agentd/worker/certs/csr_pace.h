/* csr_pace.h - at most so many CSRs per second, the urgent ones first.
 *
 * A bucket of 2 x per_second turns that fills by per_second; a caller that finds it empty waits in
 * one of two lines.  Monotonic: a clock that is set, or a suspend, fills nothing.  A full bucket
 * costs no timer.
 */
#pragma once
#include "base/loop.h"

struct csr_pace;

/* Embed it zeroed; cancel it before its memory goes. */
struct csr_pace_turn {
	struct csr_pace *pace; /* NULL: not waiting */
	bool urgent;
	loop_cb go;
	void *ctx;
	struct csr_pace_turn *prev, *next;
};

struct csr_pace *csr_pace_new(struct loop *l, unsigned per_second); /* 1 to 1000 */
void csr_pace_free(struct csr_pace **p);                            /* all turns must be gone */
/* `go` runs soon, never inside the caller; then the turn is used up and free for the next. */
void csr_pace_take(struct csr_pace *p, struct csr_pace_turn *t, bool urgent, loop_cb go, void *ctx);
void csr_pace_cancel(struct csr_pace_turn *t); /* also if it does not wait */
