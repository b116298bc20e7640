/* loop.h - base/loop.h on a virtual clock: nothing happens until the test lets time
 * pass.
 *
 * Watched fds are real and polled (without waiting) whenever something may run; jobs of loop_work()
 * run on the test's own thread.  Whatever does not come to rest aborts.
 */
#pragma once
#include "base/loop.h"

struct loop *fake_loop(void); /* a fresh one, at 1700000000000 ms; loop_new() makes the same */

/* Let `ms` pass: runs, in order of time, everything that becomes due, posts and work included.
 * 0: what is due now. */
void fake_loop_advance(struct loop *l, int64_t ms);
/* The wall clock is set, or the machine slept: wall time moves, monotonic time does not.  Runs what
 * is due then. */
void fake_loop_wall_step(struct loop *l, int64_t ms);
/* While held the worker thread is busy: jobs of loop_work() wait. */
void fake_loop_hold_work(struct loop *l, bool held);
/* Armed timers + watches + work + posts: 0 after a destructor that cleans up. */
int fake_loop_live(struct loop *l);
/* Aborts if a timer, a watch or work is left: somebody's destructor forgot it. */
void fake_loop_end(struct loop **l);
