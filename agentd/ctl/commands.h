/* commands.h - every command of agentctl, in the order of its help; each is defined in a file. */
#pragma once
#include "command.h"

#define CTL_COMMANDS(X)                                                                            \
	X(status)                                                                                  \
	X(alive)                                                                                   \
	X(ready)                                                                                   \
	X(pods)                                                                                    \
	X(certs)                                                                                   \
	X(xds)                                                                                     \
	X(bootstrap)                                                                               \
	X(config_dump)                                                                             \
	X(redirect)                                                                                \
	X(redirect_explain)                                                                        \
	X(redirect_trace)                                                                          \
	X(dns)                                                                                     \
	X(manifest)                                                                                \
	X(log)                                                                                     \
	X(bug_report)                                                                              \
	X(completion)                                                                              \
	X(inject)                                                                                  \
	X(uninject)                                                                                \
	X(preflight)                                                                               \
	X(version)

#define CTL_DECLARE(name) extern const struct ctl_command ctl_##name;
CTL_COMMANDS(CTL_DECLARE)
#undef CTL_DECLARE
