/* state.h - the state kept for the next worker and the next broker (security-rules.md 7).
 *
 *   <run>/state/            a tmpfs of its own, root only
 *   <run>/state/cert/<hex>  the worker's certificates, as it wrote them
 *   <run>/state/spec/<hex>  the worker's pods, with their tokens, as it wrote them
 *   <run>/state/names/<hex> name tables, and which pod has which, as the worker wrote them
 *   <run>/state/served/<hex> what serves each of the worker's pods, as it wrote that
 *   <run>/state/pod/<uid>   the broker's own: which network namespace a pod has
 *   <run>/state/rules/<uid> and the rules of its traffic, if a lower ceiling would refuse them
 *
 * An entry for memory only (LINK_STATE_CERT_IN_MEMORY) is a sealed memfd among the kept
 * descriptors.  It outlives the worker and an upgrade, not the last broker; systemd never gets one.
 * Where no tmpfs can be mounted all entries are kept so, and a log line says it.
 *
 * At most 1 MiB in one entry, 24 MiB of names, 40 MiB of all else.  No failure lasts: an entry that
 * cannot be written is refused, the old one stays, and the next try may succeed.
 */
#pragma once
#include "border/protocol.h"
#include "common/err.h"
#include "options.h"

struct broker_fdstore;
struct broker_states;

/* NULL: <run>/state could be read by others than root. */
struct broker_states *broker_state_new(
    const struct broker_options *o, struct broker_fdstore *kept, struct err *e);
void broker_state_free(struct broker_states **s); /* all that is kept stays */
/* Would it open?  Nothing is changed. */
int broker_state_check(const struct broker_options *o, struct err *e);

/* The worker's requests. `memfd` stays the caller's. */
int broker_state_put(
    struct broker_states *s, const struct link_request *r, int memfd, struct err *e);
int broker_state_del(struct broker_states *s, const struct link_request *r, struct err *e);

/* A list is told entry by entry, each when the worker has room for a packet; meanwhile no other
 * request should be taken, so that answers come in order. */
int broker_state_list(struct broker_states *s, const struct link_request *r, struct err *e);
bool broker_state_listing(const struct broker_states *s);
/* The next LINK_STATE with its `fd` (the caller's), or the LINK_REPLY that ends the list. */
void broker_state_next(struct broker_states *s, struct link_packet *p, int *fd);
void broker_state_list_end(struct broker_states *s); /* nobody is there to be told */

/* Does this kept descriptor hold private keys or tokens?  Then it is for our own successors only.
 */
bool broker_state_is_key(const char *kept_name);

/* The namespace that was learned as the pod's, and the cgroup whose emptying is noticed (0: none).
 * One of another boot counts as none. */
struct broker_state_netns {
	uint64_t cookie, cgroup_id;
};
int broker_state_netns_put(struct broker_states *s, const struct uuid *pod,
    const struct broker_state_netns *n, struct err *e);
bool broker_state_netns_get(
    struct broker_states *s, const struct uuid *pod, struct broker_state_netns *out);
int broker_state_netns_del(struct broker_states *s, const struct uuid *pod, struct err *e);

/* As a sealed memfd; broker/redirect/granted.h reads and writes it. */
int broker_state_rules_put(
    struct broker_states *s, const struct uuid *pod, int memfd, struct err *e);
int broker_state_rules_get(struct broker_states *s, const struct uuid *pod, struct err *e);
int broker_state_rules_del(struct broker_states *s, const struct uuid *pod, struct err *e);
