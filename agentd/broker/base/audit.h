/* audit.h - when to check that all is still as we left it: soon after a change in a directory of
 * ours, and every minute.
 *
 * The minute is for changes without a notice: a link detached, its program replaced, an entry of a
 * map changed (threats-and-faults.md T26), a file moved away.  It is the broker's only regular
 * timer.
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
	int64_t again_max_ms;   /* soon is after a second, doubling to this; 0: always a second */
	uint32_t events;        /* of inotify, which count; 0: all that comes and goes */
	int64_t again_ms;       /* its own */
	bool quiet;             /* likewise: nobody had changed anything when we began to */
	void *ctx;
};

/* `epoll`, `due` and `ctx` are set. */
int broker_audit_open(struct broker_audit *a, struct err *e);
void broker_audit_soon(struct broker_audit *a); /* as after a notice */
/* Entries that come and go in `path` count.  A path given several times counts once. */
void broker_audit_directory(struct broker_audit *a, const char *path);
/* Our own changes between the two are no reason to look.  A stranger's at the same time is found
 * within a minute. */
void broker_audit_own_begins(struct broker_audit *a);
void broker_audit_own_ends(struct broker_audit *a);
void broker_audit_close(struct broker_audit *a);
