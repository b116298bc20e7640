/* sockmap.h - does this kernel pass bytes from socket to socket as it should?
 *
 * Not by its number: distributions mend old kernels.  Two sockets of ours are joined, and what went
 * wrong somewhere is tried (docs/contract/ebpf-redirect.md 12).
 */
#pragma once
#include "common/err.h"
#include "ebpf/accelerate.h"
#include <stdbool.h>

/* -1: `e` names the first thing that is wrong.  `blind`: an app need not be told by ioctl(FIONREAD)
 * how much waits for it.  (From some 6.18 and 7.0 on the kernel says 0, and nginx waits for ever.)
 */
int redirect_sockmap_try(bool blind, struct err *e);
/* Where fields of a socket are.  -1: the kernel does not tell. */
int redirect_sockmap_fields(struct accelerate_fields *out, struct err *e);
