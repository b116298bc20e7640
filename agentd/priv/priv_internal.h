/* priv_internal.h - a request under way: what priv.c shows the files beside it. */
#pragma once
#include "base/loop.h"
#include "priv_redirect.h"
#include "priv_volume.h"
#include <uthash.h>

struct priv_call {
	struct priv *p;
	struct priv_call **slot; /* NULL: nobody waits */
	uint32_t id;
	enum priv_op op;
	struct uuid pod;
	union {
		priv_done done;
		priv_listening listening;
		priv_peer_known peer_known;
		priv_kept_found kept_found;
		priv_volume_found volume_found;
		priv_redirected redirected;
		priv_explained explained;
	};
	void *ctx;
	struct loop_timer soon; /* it could not be sent */
	UT_hash_handle hh;
};

struct priv_call *priv_call_new(
    struct priv *p, struct priv_call **slot, enum priv_op op, const struct uuid *pod, void *ctx);
void priv_call_drop(struct priv_call *c);
/* `fd` (or -1) stays the caller's.  If it cannot be sent now nor kept for later, the call is
 * answered with EMFILE. */
void priv_call_transmit(struct priv_call *c, const struct priv_request *req, int fd);
void priv_call_unsent(struct priv_call *c); /* there was nothing to send it with: the same answer */

/* A PRIV_REDIRECTED packet; `c` NULL: nobody waits for it any more. */
void priv_redirect_take(struct priv_call *c, const struct priv_packet *in, int fd);

/* A PRIV_STATE packet; `c` NULL: nobody waits for it any more.  Takes `fd`. */
void priv_state_take(struct priv_call *c, const struct priv_packet *in, int fd);

/* A PRIV_VOLUME packet; `c` NULL: nobody waits for it any more.  Takes `fd`. */
void priv_volume_take(struct priv_call *c, const struct priv_packet *in, int fd);
