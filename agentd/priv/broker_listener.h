/* broker_listener.h - a listening unix socket at a path, of which the broker keeps a copy.
 *
 * It is bound to a temporary name and renamed into place, so the path always leads to a listener
 * and clients in a loop see neither ENOENT nor a refusal while it is replaced.
 */
#pragma once
#include "broker_log.h"
#include "broker_loop.h"
#include <sys/types.h>

enum { BROKER_PATH_SIZE = 108 }; /* sun_path */

/* Embed it zeroed; it stays where it is while it is open. */
struct broker_listener {
	struct broker_watch watch;
	int epoll;
	mode_t mode;
	char path[BROKER_PATH_SIZE];
};

/* The kept socket if there is one and it still listens, else a new one.  -1: `w` says why. */
int broker_listener_open(
    struct broker_listener *l, int epoll, const char *path, mode_t mode, struct broker_why *w);
void broker_listener_close(struct broker_listener *l); /* the file stays */
