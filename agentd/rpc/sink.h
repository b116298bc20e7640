/* sink.h - closing a connection along which a pod may have sent descriptors (security-rules.md G5).
 *
 * Until Linux 6.15 anybody may send descriptors along a unix stream, and whoever closes that
 * stream, or reads by them, closes them.  A TCP socket with SO_LINGER then holds its thread for as
 * long as its maker likes.  From 6.16 on the broker's listeners refuse descriptors
 * (SO_PASSRIGHTS), and nothing here is needed.
 */
#pragma once
#include <stdbool.h>
#include <sys/socket.h>

/* May descriptors come along this connection? */
bool sink_is_needed(int fd);
/* As recvmsg(2) without room for descriptors, of at most 16 parts.  -1, EBADMSG: there is one among
 * the bytes; nothing was read, and the connection is to be closed. */
ssize_t sink_recvmsg(int fd, struct msghdr *msg, int flags);
/* Takes the unix stream `fd` and closes it: at once if no descriptor can be in it; else it is shut
 * down, and a thread closes it, in which a wait lasts a millisecond.  Any thread. */
void sink_close(int fd);
