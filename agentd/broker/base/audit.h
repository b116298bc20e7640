/* audit.h - when to check that redirection is still as we left it: soon after a change in a
 * directory of pins, and every minute.
 *
 * The minute is for changes without a notice: a link detached, its program replaced, an entry of a
 * map changed (threats-and-faults.md T26).  It is the broker's only regular timer, so there is one
 * only while traffic is redirected.
 */
#pragma once
#include "common/err.h"
#include "loop.h"

/* Embed it zeroed; stays where it is while it is open. */
struct broker_audit {
	struct broker_watch watch; /* inotify; ready NULL: not open */
	struct broker_timer timer;
	int epoll;
	bool (*due)(void *ctx); /* looks; false: something is unsettled, look again soon */
	void *ctx;
};

/* `epoll`, `due` and `ctx` are set. */
int broker_audit_open(struct broker_audit *a, struct err *e);
/* Entries that come and go in `path` count.  A path given several times counts once. */
void broker_audit_directory(struct broker_audit *a, const char *path);
void broker_audit_close(struct broker_audit *a);
