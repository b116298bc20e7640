/* fdpass.h - one packet, and at most one fd with it; libc only, both processes use it. */
#pragma once
#include <stddef.h>

/* Send `size` bytes as one packet, with `fd` unless it is -1 (it stays the caller's).  Never waits:
 * -1 with errno, EAGAIN when the socket is full.  No SIGPIPE. */
int fdpass_send(int sock, const void *packet, size_t size, int fd);
