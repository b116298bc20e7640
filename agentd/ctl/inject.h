/* inject.h - what the commands that inject have in common: -f FILE, and what they are told. */
#pragma once
#include "command.h"

struct err;
struct inject_config;

/* Of --config, or --values and --mesh, and --native; NULL: refused, and the error names the file.
 */
struct inject_config *ctl_inject_config(const struct ctl *c, struct err *e);
/* 0, or CTL_USAGE: it was said. */
int ctl_inject_check_usage(const struct ctl *c, const struct ctl_command *command);
