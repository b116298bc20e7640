/* priv_dial.h - sockets in a pod's network namespace: priv.h's third part. */
#pragma once
#include "priv.h"

/* Not connected, not blocking; the callback owns it.  At most 50 a second and pod (EAGAIN);
 * ENOTCONN: nobody has connected from there yet. */
void priv_dial(struct priv *p, struct priv_call **slot, const struct uuid *pod, enum priv_dial kind,
    int family, priv_listening done, void *ctx);
