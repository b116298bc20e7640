/* lanes.h - a connection that may be accelerated, both of its ends in hand, and what an app and an
 * Envoy do to it.
 *
 * For a process that is root in some place (world.h); it becomes whoever each call needs.
 */
#pragma once
#include "ebpf/accelerate.h"
#include "world.h"

enum { OUT = 15001, IN = 15006, APP_PORT = 8081, BULK = 4 << 20 };

struct pair {
	int app, envoy;
};

extern uint64_t lanes_read; /* bytes that were read, and were those that were written */

void lanes_move_to(const struct place *p); /* for good */
void lanes_become(uid_t uid);              /* and may become another */
int lanes_listen(uid_t uid, uint16_t port);

/* An app and its Envoy: the app dials, or `inbound` Envoy does. */
struct pair lanes_join(int listener, bool inbound);
/* An Envoy dials the peer's; `back`: the one that accepted is the pair's app. */
struct pair lanes_join_between(int listener, bool back);
void lanes_part(const struct pair *p);

/* What was wrong, or NULL. */
const char *lanes_word(const struct pair *p);
const char *lanes_words(const struct pair *p);
const char *lanes_half_closed(const struct pair *p);
const char *lanes_reset(const struct pair *p); /* closes the app's end */
const char *lanes_stuck(const struct pair *p); /* a reader that reads late */
const char *lanes_edges(const struct pair *p); /* BULK bytes, by ends that are told once */

/* What the programs counted; and the check that nothing is left of connections that ended. */
struct accelerate_row lanes_counted(const struct world *w);
void lanes_nothing_stays(const struct world *w);

void check_ktls(const struct world *w); /* ktls.c */
