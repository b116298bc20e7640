/* dial.c - one request, one socket (dial.h). */
#include "dial.h"
#include "link_internal.h"

void link_dial(struct link *p, struct link_call **slot, const struct uuid *pod,
    struct link_socket what, link_listening done, void *ctx)
{
	const struct link_request req = {.op = LINK_DIAL,
	    .kind = (uint16_t)what.kind,
	    .arg = (uint32_t)what.family | (uint32_t)what.port << LINK_DIAL_PORT_SHIFT,
	    .uid = *pod};
	struct link_call *c = link_call_new(p, slot, &req, ctx);

	c->listening = done;
	link_call_send(c, -1);
}
