/* identity.h - a pod's certificate with its key, on disk for after a reboot. */
#pragma once
#include "link.h"

/* Read by LINK_FOLLOW_KEPT; `text` is copied.  A refusal with EAGAIN: there are many at once. */
void link_identity_put(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *text, link_done done, void *ctx);
