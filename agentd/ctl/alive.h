/* alive.h - what one agentd says of itself, at the socket of its --alive.
 *
 * Its broker answers, whatever its worker does: not within 5 seconds, and it is not alive.
 */
#pragma once
#include "command.h"

enum ctl_alive_is {
	CTL_ALIVE_UNASKED, /* without --of */
	CTL_ALIVE_STARTING,
	CTL_ALIVE_READY,
	CTL_ALIVE_NOT,
	CTL_ALIVE_OVER, /* another agentd has the pods */
};
struct ctl_alive {
	enum ctl_alive_is is;
	char why[4096]; /* printable lines */
};
/* The exit status; but for CTL_OK the reason is on stderr. */
int ctl_alive_ask(const struct ctl *c, struct ctl_alive *out);
