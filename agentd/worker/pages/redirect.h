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
struct pages_redirect;

/* What is asked and not answered yet ends with pages_redirect_free(), before the admin server. */
struct pages_redirect *pages_redirect_new(
    struct loop *l, struct link *p, struct pod_registry *pods, struct admin *a);
void pages_redirect_free(struct pages_redirect **p);
