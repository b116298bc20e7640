/* check.h - a pod's rules against its ceiling (security-rules.md 3, 6). */
#pragma once
#include "border/rules.h"
#include "ceiling.h"
#include "common/err.h"

/* -1: EINVAL the programs would not expect them, EPERM the ceiling is lower. */
int redirect_check(
    const struct redirect_rules *rules, const struct redirect_ceiling *c, struct err *e);
