/* listener.h - a listening unix socket at a path, of which the broker keeps a copy.
 *
 * It is bound to a temporary name and renamed into place, so the path always leads to a listener
 * and clients in a loop see neither ENOENT nor a refusal while it is replaced.  It has its mode
 * before it has a name, and only root can write where its first name is: a pod that can write at
 * `path` cannot lead us elsewhere (security-rules.md G2).
 */
#pragma once
#include "common/err.h"
#include "fdstore.h"
#include "loop.h"
#include <stdbool.h>
#include <sys/types.h>

enum { BROKER_PATH_SIZE = 108 }; /* sun_path */

/* Its description; it stays where it is while the listener is open. */
struct broker_listener_spec {
	int epoll;
	struct broker_fdstore *kept;
	char path[BROKER_PATH_SIZE];
	/* The temporary one, of the same file system; "": ".<name>.new" beside it. */
	char first[BROKER_PATH_SIZE];
	bool once; /* a pod may write at `path`: when it is shut down it is not made again */
	mode_t mode;
	char name[BROKER_FDSTORE_NAME]; /* among the kept descriptors */
	/* It was shut down and made again (fd -1: that failed); the worker's copy is dead. */
	void (*renewed)(void *ctx, int fd);
	void *ctx;
};

/* Embed it zeroed; it stays where it is while it is open. */
struct broker_listener {
	const struct broker_listener_spec *spec;
	struct broker_watch watch;
	/* of the file that leads to it */
	dev_t dev;
	ino_t ino;
};

/* Names a unix socket; what an earlier broker left under the name goes. */
int broker_listener_bind(int fd, const char *path, mode_t mode, struct err *e);

/* The kept socket if it still listens and its file is still there, else the one an earlier broker
 * left under the name, if it is such a listener, else a new one.  It stays the listener's.  -1: `e`
 * says why. */
int broker_listener_open(
    struct broker_listener *l, const struct broker_listener_spec *spec, struct err *e);
/* Does its path still lead to it?  Not open: no. */
bool broker_listener_is_there(const struct broker_listener *l);
/* Does a connection wait to be accepted?  Not open: no. */
bool broker_listener_is_awaited(const struct broker_listener *l);
void broker_listener_close(struct broker_listener *l); /* the file stays, the name is dropped */
/* At this broker's end: the socket is closed here, but holders of a copy keep it. */
void broker_listener_release(struct broker_listener *l);
