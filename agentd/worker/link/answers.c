/* answers.c - the answer of each operation (border/ops.h), turned into the callback of its call.
 *
 * The call is gone when its answer is taken: the callback may start the next one, or free the link.
 */
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "link_internal.h"

LOG_SCOPE("link");

/* Nobody waits. */
static void log_refusal(const struct link_call *was, const struct err *e)
{
	const struct link_op_row *row = ops_row(was->req.op);
	char uid[UUID_TEXT_SIZE];

	uuid_format(&was->req.uid, uid);
	log_warn(row->whose == LINK_NO_POD ? NULL : uid, "the broker refused to %s: %s",
	    row->refused, e->msg);
}

static void take_done(const struct link_call *was, struct link_heard *h)
{
	if (was->done)
		was->done(was->ctx, h->e);
	else if (h->e)
		log_refusal(was, h->e);
}

static void take_added(const struct link_call *was, struct link_heard *h)
{
	was->added(was->ctx, h->e, h->e ? 0 : h->in->arg);
}

static void take_descriptor(const struct link_call *was, struct link_heard *h)
{
	was->listening(was->ctx, h->e, h->e ? -1 : take_fd(h->fd));
}

static void take_peer(const struct link_call *was, struct link_heard *h)
{
	struct link_peer n = {.cookie = h->in->netns_cookie,
	    .cgroup_id = h->in->cgroup_id,
	    .unknown = h->in->cgroup_id ? "" : h->in->why,
	    .naddresses =
		h->in->naddresses > LINK_ADDRESSES_MAX ? LINK_ADDRESSES_MAX : h->in->naddresses,
	    .addresses = h->in->addresses};

	was->peer_known(was->ctx, h->e, h->e ? NULL : &n);
}

/* It cannot be followed at all. */
static void take_no_follow(const struct link_call *was, struct link_heard *h)
{
	was->changed(was->ctx, &(struct link_content){.name = "", .e = h->e});
}

static void take_end_of_state(const struct link_call *was, struct link_heard *h)
{
	was->kept_found(was->ctx, &(struct link_kept){.e = h->e});
}

static void take_no_redirection(const struct link_call *was, struct link_heard *h)
{
	was->redirected(was->ctx, h->e, &(struct link_redirection){.closed = h->in->arg});
}

static void take_verdict(const struct link_call *was, struct link_heard *h)
{
	was->explained(was->ctx, h->e, h->in->arg);
}

static void take_end_of_volumes(const struct link_call *was, struct link_heard *h)
{
	was->volume_found(was->ctx, &(struct link_volume){.e = h->e});
}

const link_answer_taker link_answers[LINK_OP_END] = {
    [LINK_POD_ADD] = take_added,
    [LINK_POD_REMOVE] = take_done,
    [LINK_LISTEN] = take_descriptor,
    [LINK_PEER_OF] = take_peer,
    [LINK_WRITE] = take_done,
    [LINK_FOLLOW] = take_no_follow,
    [LINK_UNFOLLOW] = take_done,
    [LINK_READY] = take_done,
    [LINK_STATE_PUT] = take_done,
    [LINK_SERVED] = take_done,
    [LINK_STATE_DEL] = take_done,
    [LINK_STATE_LIST] = take_end_of_state,
    [LINK_REDIRECT_SET] = take_no_redirection,
    [LINK_REDIRECT_DEL] = take_done,
    [LINK_REDIRECT_COUNTERS] = take_descriptor,
    [LINK_REDIRECT_EXPLAIN] = take_verdict,
    [LINK_REDIRECT_TRACE] = take_descriptor,
    [LINK_DIAL] = take_descriptor,
    [LINK_CALLER] = take_done,
    [LINK_PUBLISH] = take_done,
    [LINK_UNPUBLISH] = take_done,
    [LINK_VOLUMES] = take_end_of_volumes,
    [LINK_CSI_REGISTERED] = take_done,
    [LINK_LOG] = take_done,
    [LINK_HOLDS] = take_done,
    [LINK_REDIRECT_NAMES] = take_done,
    [LINK_REDIRECT_SHUT] = take_done,
    [LINK_IDENTITY_PUT] = take_done,
};
