/* lingering.h - a descriptor whose close(2) lasts for an hour, and its way into a unix stream. */
#pragma once
#include <sys/socket.h>

/* Bytes that nobody takes, and SO_LINGER.  `*peer` is the end that does not read. */
int lingering_new(int *peer);
/* Along `sock`, with the one byte 'x'.  -1 with errno. */
ssize_t lingering_send(int sock, int fd);
/* A new one, which is nowhere else from then on. */
void lingering_give(int sock, int *peer);
