/* link_internal.h - a request under way: what link.c shows the files beside it. */
#pragma once
#include "redirect.h"
#include "volume.h"
#include "worker/base/loop.h"
#include <uthash.h>

struct link_call {
	struct link *p;
	struct link_call **slot; /* NULL: nobody waits */
	uint32_t id;
	enum link_op op;
	struct uuid pod;
	union {
		link_done done;
		link_listening listening;
		link_peer_known peer_known;
		link_kept_found kept_found;
		link_volume_found volume_found;
		link_redirected redirected;
		link_explained explained;
	};
	void *ctx;
	struct loop_timer soon; /* it could not be sent */
	UT_hash_handle hh;
};

struct link_call *link_call_new(
    struct link *p, struct link_call **slot, enum link_op op, const struct uuid *pod, void *ctx);
void link_call_drop(struct link_call *c);
/* `fd` (or -1) stays the caller's.  If it cannot be sent now nor kept for later, the call is
 * answered with EMFILE. */
void link_call_transmit(struct link_call *c, const struct link_request *req, int fd);
void link_call_unsent(struct link_call *c); /* there was nothing to send it with: the same answer */

/* A LINK_REDIRECTED packet; `c` NULL: nobody waits for it any more. */
void link_redirect_take(struct link_call *c, const struct link_packet *in, int fd);

/* A LINK_STATE packet; `c` NULL: nobody waits for it any more.  Takes `fd`. */
void link_state_take(struct link_call *c, const struct link_packet *in, int fd);

/* A LINK_VOLUME packet; `c` NULL: nobody waits for it any more.  Takes `fd`. */
void link_volume_take(struct link_call *c, const struct link_packet *in, int fd);
