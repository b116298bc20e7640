/* apart.h - closing what a stranger made (security-rules.md G5).
 *
 * close(2) may sleep for as long as its maker likes: a TCP socket with SO_LINGER and unsent bytes,
 * a file of FUSE, a unix socket in whose queue such a descriptor lies.  So a child closes it, which
 * shares our table of descriptors.  It has a second; then a signal ends its sleep, and the kernel
 * finishes the rest alone.  Only a file whose server never answers holds it longer.
 */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

/* Takes `fd`; -1: nothing.  Memory is closed at once.  False: too many are being closed; who sends
 * them is to be stopped. */
bool apart_close(int fd);
/* The same of a listening unix socket, of which holders of a copy may live on: a child is needed
 * only if somebody waits in its backlog. */
void apart_close_listener(int fd);
/* From Linux 6.16 on nobody can send descriptors to connections of this listening unix socket
 * (EPERM): who accepts one need not close what came with its bytes. */
void apart_refuse_descriptors(int listener);
/* Half of what can be closed at once: read nothing more of a stranger until a child has ended. */
bool apart_is_busy(void);
/* True: the child was one of these.  To be called for each child that was waited for. */
bool apart_reaped(pid_t pid);
