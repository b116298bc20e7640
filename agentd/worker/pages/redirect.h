/* redirect.h - questions about traffic that the broker answers: what `agentctl redirect` asks
 * besides /redirect.
 *
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

/* pages_redirect_free() ends open questions; call it before admin_free(). */
struct pages_redirect *pages_redirect_new(
    struct loop *l, struct link *p, struct pod_registry *pods, struct admin *a);
void pages_redirect_free(struct pages_redirect **p);
