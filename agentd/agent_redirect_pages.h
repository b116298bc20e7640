/* agent_redirect_pages.h - pages of the admin socket about traffic: what `agentctl redirect` asks.
 *
 *   /redirect                                   every pod's mode, state and counters
 *   /redirect/explain?pod=UID&to=ADDR:PORT      the decision, by the rules as they are; a dial with
 *       [&uid=N&gid=N&protocol=udp|tcp]         uid and gid, or an arrival
 *       [&from=ADDR]
 *   /redirect/trace[?pod=UID]                   one line of JSON for each decision, without an end
 */
#pragma once
#include "worker/admin/admin.h"

struct pod_registry;
struct link;
struct redirect_pages;

/* What is asked and not answered yet ends with redirect_pages_free(), before the admin server. */
struct redirect_pages *redirect_pages_new(
    struct loop *l, struct link *p, struct pod_registry *pods, struct admin *a);
void redirect_pages_free(struct redirect_pages **p);
