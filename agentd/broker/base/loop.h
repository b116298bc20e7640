/* loop.h - the broker's poll loop: epoll, one event at a time.
 *
 * Watched for EPOLLRDHUP only, a listener does not wake us for its connections.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct broker_watch {
	int fd;
	void (*ready)(void *ctx, uint32_t events);
	void *ctx;
};

int broker_loop_new(void); /* the epoll fd, or -1 with errno */
/* `w` stays where it is until broker_watch_end(). */
int broker_watch_start(int epoll, struct broker_watch *w, uint32_t events);
void broker_watch_want(int epoll, struct broker_watch *w, uint32_t events);
/* Before the fd is closed: the worker may still hold the same open file description, and then
 * closing would not end the watch. */
void broker_watch_end(int epoll, struct broker_watch *w);
/* Waits for one event and handles it.  -1: for ever. */
void broker_loop_turn(int epoll, int timeout_ms);

/* inotify_add_watch(2).  It fails when the node's watches are used up.  This is logged once, since
 * a change that nobody notices leaves no other trace. */
int broker_notices_add(int inotify, const char *path, uint32_t events);

/* Due once after it was set, on the monotonic clock.  Embed it; it stays where it is while open. */
struct broker_timer {
	struct broker_watch watch;
	int epoll;
	void (*due)(void *ctx);
	void *ctx;
	bool set;
};

int broker_timer_open(struct broker_timer *t, int epoll, void (*due)(void *ctx), void *ctx);
void broker_timer_set(struct broker_timer *t, int64_t ms); /* -1: not any more */
bool broker_timer_is_set(const struct broker_timer *t);
void broker_timer_close(struct broker_timer *t); /* one that was zeroed, but for fd -1: nothing */
