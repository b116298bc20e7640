/* granted.h - rules that a pod was given, under a ceiling that sank since (security-rules.md G10).
 *
 * They are kept as long as the pod is, beyond this broker and not beyond a reboot; those that any
 * ceiling allows are not.
 */
#pragma once
#include "border/rules.h"
#include "ceiling.h"

struct broker_states;

/* redirect_check().  1: the ceiling does not allow them (`e`: what), but the pod was given just
 * these. */
int redirect_granted_check(struct broker_states *s, const struct uuid *pod,
    const struct redirect_rules *rules, const struct redirect_ceiling *c, struct err *e);
/* They were allowed.  A failure is logged: should the ceiling sink, the pod will be refused. */
void redirect_granted_keep(
    struct broker_states *s, const struct uuid *pod, const struct redirect_rules *rules);
void redirect_granted_forget(struct broker_states *s, const struct uuid *pod);
