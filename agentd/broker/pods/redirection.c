/* redirection.c - see redirection.h: steps between states, and nothing else. */
#include "redirection.h"
#include "common/mem.h"
#include <stdlib.h>
#include <string.h>

/* A bug of ours, which would redirect a pod in another way than was asked for. */
static void must(bool legal)
{
	if (!legal)
		abort();
}

/* --- rules --- */

void pod_redirection_ask(struct pod_redirection *r, struct redirect_rules *rules, uint32_t id)
{
	must(rules && id);
	free(r->asked);
	r->asked = rules;
	r->rules = POD_RULES_ASKED;
	r->answer = POD_ANSWER_OWED;
	r->id = id;
	r->noted = r->inbound != POD_INBOUND_UNKNOWN;
}

void pod_redirection_written(struct pod_redirection *r)
{
	must(r->rules != POD_RULES_NONE);
	free(take(r->asked));
	r->rules = POD_RULES_WRITTEN;
}

/* --- the worker's question --- */

bool pod_redirection_answer(struct pod_redirection *r)
{
	if (r->answer != POD_ANSWER_OWED && r->answer != POD_ANSWER_READY)
		return false;
	r->answer = POD_ANSWER_READY;
	return true;
}

void pod_redirection_told(struct pod_redirection *r)
{
	must(r->answer == POD_ANSWER_READY);
	r->answer = POD_ANSWER_GIVEN;
	r->id = 0;
}

void pod_redirection_detach(struct pod_redirection *r)
{
	r->answer = POD_ANSWER_NOBODY;
	r->id = 0;
	r->noted = false;
}

/* --- arrivals --- */

static bool is_live(enum pod_inbound i)
{
	return i == POD_INBOUND_LIVE || i == POD_INBOUND_TWICE || i == POD_INBOUND_UNSEEN ||
	       i == POD_INBOUND_DEAF;
}

bool pod_redirection_is_live(const struct pod_redirection *r)
{
	return is_live(r->inbound);
}

bool pod_redirection_may_turn(enum pod_inbound from, enum pod_inbound to)
{
	switch (to) {
	case POD_INBOUND_UNKNOWN:
		return from != POD_INBOUND_UNKNOWN;
	case POD_INBOUND_LIVE:
		return from != POD_INBOUND_LIVE;
	case POD_INBOUND_TWICE:
	case POD_INBOUND_UNSEEN:
	case POD_INBOUND_DEAF:
		return from != to && is_live(from);
	case POD_INBOUND_REFUSED:
		return true; /* for another reason than before */
	}
	return false;
}

void pod_redirection_inbound(struct pod_redirection *r, enum pod_inbound to, const struct err *why)
{
	const bool reason = to != POD_INBOUND_UNKNOWN && to != POD_INBOUND_LIVE;

	must(r->rules != POD_RULES_NONE && pod_redirection_may_turn(r->inbound, to));
	must(reason == (why && why->code));
	r->inbound = to;
	if (reason)
		r->inbound_why = *why;
	else
		r->inbound_why.code = 0;
	r->noted = r->answer != POD_ANSWER_NOBODY;
}

void pod_redirection_note(struct pod_redirection *r)
{
	r->noted = r->answer != POD_ANSWER_NOBODY;
}

void pod_redirection_moved(struct pod_redirection *r)
{
	if (r->inbound == POD_INBOUND_LIVE)
		r->inbound = POD_INBOUND_UNKNOWN;
	else if (pod_redirection_is_live(r))
		r->inbound = POD_INBOUND_REFUSED; /* for the same reason */
}

/* --- the end --- */

void pod_redirection_end(struct pod_redirection *r)
{
	cgroup_await_end(&r->await);
	netns_watch_close(&r->view);
	free(r->asked);
	memset(r, 0, sizeof(*r));
}
