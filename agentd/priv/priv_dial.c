/* priv_dial.c - one request, one socket (priv_dial.h). */
#include "priv_dial.h"
#include "priv_internal.h"

void priv_dial(struct priv *p, struct priv_call **slot, const struct uuid *pod, enum priv_dial kind,
    int family, priv_listening done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_DIAL, pod, ctx);
	const struct priv_request req = {.id = c->id,
	    .op = PRIV_DIAL,
	    .kind = (uint16_t)kind,
	    .arg = (uint32_t)family,
	    .uid = *pod};

	c->listening = done;
	priv_call_transmit(c, &req, -1);
}
