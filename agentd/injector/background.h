/* background.h - reviews that may take long, on the loop's other thread, by turns of their peers.
 *
 * On the loop a large pod would hold up all ordinary ones for as long as it takes; on a thread the
 * kernel shares the CPU between both.  One job runs at a time; then the peer's other jobs go behind
 * those of all others.  So a new peer waits for one job of each, however many they have.
 */
#pragma once
#include "base/loop.h"
#include <netinet/in.h>
#include <stdbool.h>

struct background;

/* Embed it zeroed; it stays until `done` or background_drop(). */
struct background_job {
	struct in6_addr peer;
	loop_cb run;  /* on the thread; no lock protects what it shares with the loop */
	loop_cb done; /* on the loop, never inside background_add() */
	void *ctx;
	struct background_job *prev, *next; /* background.c's own */
};

/* The thread starts with it: before the cage is closed, which lets none start later. */
struct background *background_new(struct loop *l);
/* Waits for a `run` that is under way; no `done` comes any more. */
void background_free(struct background **b);

void background_add(struct background *b, struct background_job *job);
/* True: it is out.  False: it runs, and `done` comes. */
bool background_drop(struct background *b, struct background_job *job);
