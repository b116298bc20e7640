/* loop.h - the one event loop: everything else runs inside its callbacks, on one thread.
 *
 * The contract of every asynchronous call, x_start(&slot, ..., done, ctx) and x_cancel(&slot):
 *  R1 exactly one of "`done` ran once" or "x_cancel returned".
 *  R2 `done` never runs inside x_start.
 *  R3 when `done` runs the caller's slot is already NULL.
 *  R4 cancel takes `**`, sets NULL, accepts NULL.
 *  R5 a subscription may be ended inside its own callback.
 *  R6 a callback returns within about 5 ms; longer CPU work goes to loop_work().
 * A destructor cancels all its object started: after `_free` no callback arrives.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;
struct event;
struct event_base;
struct loop;
struct loop_work;

typedef void (*loop_cb)(void *ctx);

struct loop *loop_new(struct err *e);
void loop_run(struct loop *l); /* returns after loop_stop() */
void loop_stop(struct loop *l);
void loop_free(struct loop **l);

/* Only base/ needs the raw libevent object. */
struct event_base *loop_base(struct loop *l);

int64_t loop_now_ms(const struct loop *l); /* wall clock, Unix milliseconds */
/* Monotonic clock: the same in all processes since the node's start; stands still in a suspend. */
int64_t loop_uptime_ms(const struct loop *l);

/* Run `cb` soon, never inside the caller.  The only call that any thread may make. */
void loop_post(struct loop *l, loop_cb cb, void *ctx);

/* Embed it zeroed; stop it before its memory goes.  Setting an armed timer moves it; one-shot. */
struct loop_timer {
	struct loop *loop;
	loop_cb fired;
	void *ctx;
	int64_t due;         /* loop.c's own: Unix ms of a wall timer */
	struct event *event; /* loop.c's own: libevent timer of a relative one */
	struct loop_timer *prev, *next;
	bool armed;
};

/* On the wall clock: right after a suspend or a step of the clock it fires if its time has come. */
void loop_timer_at(struct loop *l, struct loop_timer *t, int64_t unix_ms, loop_cb fired, void *ctx);
/* After a duration on the monotonic clock, whatever the wall clock does: back-off, timeouts. */
void loop_timer_in(struct loop *l, struct loop_timer *t, int64_t ms, loop_cb fired, void *ctx);
void loop_timer_stop(struct loop_timer *t);

/* Embed it zeroed.  `set` runs once after the wall clock was set by more than a second, or the
 * machine slept: what was over by that clock may not be. */
struct loop_clock {
	struct loop *loop;
	loop_cb set;
	void *ctx;
	unsigned told; /* loop.c's own: of which step */
	struct loop_clock *prev, *next;
};
void loop_clock_watch(struct loop *l, struct loop_clock *c, loop_cb set, void *ctx);
void loop_clock_stop(struct loop_clock *c);

/* Embed it zeroed.  Level-triggered; `ready` runs as long as the fd stays so. */
struct loop_fd {
	struct loop *loop;
	struct event *event;
	loop_cb ready;
	void *ctx;
};
enum loop_fd_for { LOOP_READ, LOOP_WRITE };
void loop_fd_watch(
    struct loop *l, struct loop_fd *w, int fd, enum loop_fd_for what, loop_cb ready, void *ctx);
void loop_fd_stop(struct loop_fd *w); /* before the fd is closed */

/* Run `job` on the one worker thread, then `done` on the loop; for CPU work only (RSA keys). */
void loop_work(struct loop *l, struct loop_work **slot, loop_cb job, loop_cb done, void *ctx);
void loop_work_cancel(struct loop_work **w); /* waits for a `job` that already runs */

/* The longest callback of the last minute or two, in milliseconds: several may ask. */
int64_t loop_stall_ms(struct loop *l);
