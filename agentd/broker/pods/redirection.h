/* redirection.h - how far the redirection of one pod's traffic is: three states, and their steps.
 *
 * broker/redirect/ takes the steps, for it has the programs; the state is here, for the
 * pod owns it.  A step that is not in this table is a bug of ours and ends the broker.
 *
 *   rules    NONE -> ASKED -> WRITTEN -> ASKED ...     any -> NONE
 *            WRITTEN -> WRITTEN: a cgroup came back under the name.
 *            Not NONE -> WRITTEN: rules that the ceiling has not seen are never written.
 *            ASKED keeps the rules written earlier in force: a refusal opens nothing.
 *   inbound  UNKNOWN -> LIVE <-> each of TWICE, UNSEEN, DEAF <-> the others     any -> UNKNOWN
 *            any -> REFUSED -> LIVE
 *            Not UNKNOWN or REFUSED -> TWICE: where others redirect already, we do not begin.
 *            Nor -> UNSEEN or DEAF: nothing was to be seen or heard yet.
 *   answer   NOBODY, any -> OWED -> READY -> GIVEN     any -> NOBODY
 *            Not NOBODY -> READY: the next worker may use the same number for another question.
 *            Not GIVEN -> READY: an answer is given once, however often a cgroup comes back.
 */
#pragma once
#include "border/rules.h"
#include "broker/netns/watch.h"
#include "cgroup_await.h"
#include "common/err.h"

struct broker_pod;
struct redirect_traffic;

enum pod_rules {
	POD_RULES_NONE,    /* not asked for */
	POD_RULES_ASKED,   /* checked, not written: the cgroup is awaited, or writing failed */
	POD_RULES_WRITTEN, /* and with the programs */
};

/* Arrivals; a dial needs no more than rules. */
enum pod_inbound {
	POD_INBOUND_UNKNOWN, /* its network namespace is not known, or not any more */
	POD_INBOUND_LIVE,    /* they go to its Envoy */
	POD_INBOUND_TWICE,   /* so they do, but somebody else redirects them, too */
	POD_INBOUND_UNSEEN,  /* so they would, but of its own dials the programs see none */
	POD_INBOUND_DEAF,    /* so they did, but its Envoy does not listen any more */
	POD_INBOUND_REFUSED, /* they could not be: `inbound_why` */
};

/* The answer to the running worker's last question. */
enum pod_answer {
	POD_ANSWER_NOBODY, /* no question of this worker */
	POD_ANSWER_OWED,   /* not known yet */
	POD_ANSWER_READY,  /* to be told */
	POD_ANSWER_GIVEN,
};

/* Embed it zeroed: nothing was asked for.  Stays where it is until _end(). */
struct pod_redirection {
	enum pod_rules rules;
	enum pod_inbound inbound;
	enum pod_answer answer;
	bool noted;                   /* the worker is to be told of `inbound` */
	unsigned note;                /* link_redirect_note, as it was told last */
	uint32_t id;                  /* of the question; OWED and READY only */
	struct redirect_rules *asked; /* ours; ASKED only */
	struct err why;               /* the answer; code 0: written */
	struct err above;            /* what the ceiling does not allow any more; code 0: nothing */
	struct err inbound_why;      /* TWICE, UNSEEN, DEAF, REFUSED; else code 0 */
	struct cgroup_await await;   /* its cgroup, each that has its name */
	struct netns_watch view;     /* its network namespace, when that is known */
	struct redirect_traffic *by; /* who takes the steps; NONE: NULL */
	/* Nobody is in its cgroup any more.  A callback, since the notice comes to the pod. */
	void (*emptied)(struct broker_pod *pod);
};

/* The steps.  _ask() takes `rules`, which were checked. */
void pod_redirection_ask(struct pod_redirection *r, struct redirect_rules *rules, uint32_t id);
void pod_redirection_written(struct pod_redirection *r);
/* `why` is the answer.  False: no worker asked, or it has the answer. */
bool pod_redirection_answer(struct pod_redirection *r);
void pod_redirection_told(struct pod_redirection *r);
/* TWICE, UNSEEN, DEAF, REFUSED: `why` with its code; else NULL.  The worker is to be told, if it
 * asked.
 */
void pod_redirection_inbound(struct pod_redirection *r, enum pod_inbound to, const struct err *why);
/* Something else of what it is told changed. */
void pod_redirection_note(struct pod_redirection *r);
/* Seen in another namespace: not live there, which is said with what comes next. */
void pod_redirection_moved(struct pod_redirection *r);
void pod_redirection_detach(struct pod_redirection *r); /* the worker is gone */
void pod_redirection_end(struct pod_redirection *r);    /* as if it was never asked for */

bool pod_redirection_is_live(const struct pod_redirection *r); /* or TWICE, UNSEEN, DEAF */
bool pod_redirection_may_turn(enum pod_inbound from, enum pod_inbound to);
