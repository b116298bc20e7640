/* redirect.h - requests to the root broker about pods' traffic: part of link.h.
 */
#pragma once
#include "link.h"

struct redirect_counters;
struct redirect_names_told;
struct redirect_question;
struct redirect_rules;
struct link_redirection {
	bool closed;       /* with an error: the broker keeps the pod closed */
	unsigned index;    /* without: - 1 is the pod's row of the counters */
	const char *above; /* what of it the ceiling does not allow any more; "": all is allowed */
	const struct redirect_counters *baseline; /* its first values; NULL: zeroes */
};
/* `is`: valid during the callback. */
typedef void (*link_redirected)(void *ctx, const struct err *e, const struct link_redirection *is);
/* Traffic of `pod` goes by these rules: `done` runs when they are in force, which may be long after
 * (its cgroup does not exist yet), or with the reason why they are not. */
void link_redirect_set(struct link *p, struct link_call **slot, const struct uuid *pod,
    const struct redirect_rules *rules, link_redirected done, void *ctx);
/* It goes its own ways.  Refused: it stays redirected, and `done` says why. */
void link_redirect_del(
    struct link *p, struct link_call **slot, const struct uuid *pod, link_done done, void *ctx);
/* The names that istiod told all pods of the node, for when nobody answers their DNS. */
void link_redirect_names(struct link *p, struct link_call **slot,
    const struct redirect_names_told *names, link_done done, void *ctx);
/* It is strict, and nobody can ask for its rules: nothing goes in or out.  A refusal is logged. */
void link_redirect_shut(struct link *p, const struct uuid *pod);
typedef void (*link_explained)(void *ctx, const struct err *e, unsigned verdict);
void link_redirect_explain(struct link *p, struct link_call **slot, const struct uuid *pod,
    const struct redirect_question *q, link_explained done, void *ctx);
/* The pipe of struct link_trace, not blocking; closing it ends the trace.  `pod` NULL: all pods. */
void link_redirect_trace(struct link *p, struct link_call **slot, const struct uuid *pod,
    link_listening done, void *ctx);
/* Notes that the broker sends unasked, to one listener (NULL: no more).  `pod` NULL: `n` counts the
 * things that it has put back so far.  Else `n` is link_redirect_note, and `e` what is wrong. */
typedef void (*link_redirect_noted)(
    void *ctx, const struct uuid *pod, const struct err *e, unsigned n);
void link_on_redirect(struct link *p, link_redirect_noted noted, void *ctx);
/* All counters, rows of struct redirect_counters, to be mapped (PROT_READ); the callback owns fd.
 */
void link_redirect_counters(
    struct link *p, struct link_call **slot, link_listening done, void *ctx);
