/* explain.h - a decision of the programs before it falls. */
#pragma once
#include "common/err.h"
#include "common/uuid.h"

struct redirect;
struct redirect_question;

/* What the programs would decide now, by the maps as they are: redirect_verdict, or -1 (ENOENT: it
 * is not redirected; EINVAL: no arrival of this pod's; EAGAIN: nothing decides it, and `e` says why
 * not).  An arrival from the pod itself is a dial of it (`inbound` is set so). */
int redirect_explain(
    struct redirect *r, const struct uuid *pod, struct redirect_question *q, struct err *e);
