/* link_internal.h - a request under way, and those that are repeated, shared by the link's files.
 */
#pragma once
#include "base/loop.h"
#include "redirect.h"
#include "volume.h"
#include <uthash.h>

/* One packet of the broker's. */
struct link_heard {
	const struct link_packet *in;
	const struct err *e; /* of a reply: NULL, or why not */
	int fd;              /* or -1; closed unless it is taken */
};

struct link_call {
	struct link *p;
	struct link_call **slot; /* NULL: nobody waits */
	struct link_request req; /* with the id of the call */
	union {                  /* NULL `done`: a refusal is logged */
		link_done done;
		link_added added;
		link_listening listening;
		link_peer_known peer_known;
		link_kept_found kept_found;
		link_volume_found volume_found;
		link_redirected redirected;
		link_explained explained;
		link_changed changed;
	};
	void *ctx;
	/* A packet with the id of the call that is not its reply; NULL: there is none. */
	void (*heard)(struct link_call *c, const struct link_heard *h);
	struct loop_timer soon; /* it could not be sent */
	UT_hash_handle hh;
};

/* `req` needs no id. */
struct link_call *link_call_new(
    struct link *p, struct link_call **slot, const struct link_request *req, void *ctx);
void link_call_drop(struct link_call *c);
/* `fd` (or -1) stays the caller's.  If it cannot be sent now nor kept for later, the call is
 * answered with EMFILE. */
void link_call_send(struct link_call *c, int fd);
void link_call_send_bytes(struct link_call *c, const void *bytes, size_t size); /* sealed */

/* Takes the answer of an operation.  `was` is a copy of the call, which is gone. */
typedef void (*link_answer_taker)(const struct link_call *was, struct link_heard *h);
extern const link_answer_taker link_answers[LINK_OP_END];

/* insist.c: asked until it is done.  The same request again changes nothing; _no_more(): something
 * takes its place. */
void link_insist(struct link *p, const struct link_request *req);
void link_insist_no_more(struct link *p, const struct link_request *req);
struct link_insistence {
	struct loop *loop;
	struct link *link;
	struct link_insisted *list;
};
struct link_insistence *link_insistence(struct link *p);
void link_insistence_end(struct link_insistence *all);
