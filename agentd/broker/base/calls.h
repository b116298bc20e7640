/* calls.h - the system calls of the broker, and of the worker that it starts.
 *
 * systemd/agentd.service has the same list (tests/unit/broker/base/calls_test.c compares), so that
 * a container's broker is as bounded as a unit's.  A call that is not on it gets EPERM, one that
 * this release cannot know ENOSYS: nobody is killed.  A filter stays over an execution.  So after
 * an upgrade in place the next release has the calls of both lists, until agentd is started again.
 */
#pragma once
#include <stddef.h>

struct err;

struct broker_call {
	const char *name;
	int nr; /* negative: this architecture has none of that name */
};
/* Returns how many. */
size_t broker_calls_list(const struct broker_call **out);

/* no_new_privs and the filter, for this process and all that it starts.  No second filter is laid
 * over one that refuses the same: systemd's, or that of the agentd before an upgrade.
 * ERR_UNAVAILABLE: the kernel has no filters. */
int broker_calls_bound(struct err *e);
