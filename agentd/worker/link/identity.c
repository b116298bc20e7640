/* identity.c - see identity.h. */
#include "identity.h"
#include "common/err.h"
#include "common/mem.h"
#include "link_internal.h"
#include "memfd.h"
#include <string.h>

void link_identity_put(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *text, link_done done, void *ctx)
{
	struct link_call *c = link_call_new(
	    p, slot, &(struct link_request){.op = LINK_IDENTITY_PUT, .uid = *pod}, ctx);
	struct err e;
	auto_close int fd = link_memfd_sealed(text, strlen(text), &e);

	c->done = done;
	if (fd >= 0)
		link_call_send(c, fd);
	else
		link_call_unsent(c);
}
