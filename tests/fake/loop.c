/* loop.c - all of base/loop.h, deterministic.
 *
 * An advance repeats: run posts, then one finished work, then each ready fd, until all is quiet;
 * then move the clocks to the next timer within the span and fire it.  Of two timers due together
 * the one set first fires first.
 */
#include "loop.h"

#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "common/mem.h"

enum { QUIET_LIMIT = 100000, WATCH_MAX = 256 };

struct post {
	loop_cb cb;
	void *ctx;
	struct post *next;
};

struct watch {
	struct loop_fd *user;
	int fd;
	short events;
	struct watch *next;
};

struct loop_work {
	struct loop *loop;
	struct loop_work **slot;
	loop_cb job, done;
	void *ctx;
	bool finished;
	struct loop_work *next;
};

struct loop {
	int64_t wall_ms, mono_ms;
	struct loop_timer *wall, *relative; /* each sorted by due, on its own clock */
	struct loop_clock *clocks;
	unsigned steps;
	struct post *posts;
	struct watch *watches;
	struct loop_work *works;
	struct event_base *base; /* only for modules that need libevent itself: base/http/http */
	bool stopped, held;
};

static void give_up(const char *why)
{
	fprintf(stderr, "fake loop: %s\n", why);
	abort();
}

/* ---- life ---- */

struct loop *fake_loop(void)
{
	struct loop *l = mem_zalloc(sizeof(*l));

	l->wall_ms = 1700000000000;
	return l;
}

struct loop *loop_new(struct err *e)
{
	(void)e; /* never fails */
	return fake_loop();
}

static int count(struct loop *l, bool with_posts)
{
	struct loop_timer *t;
	struct post *p;
	struct watch *w;
	struct loop_work *k;
	struct loop_clock *c;
	int n = 0, clocks;
	int posts = 0;

	DL_FOREACH (l->wall, t)
		n++;
	DL_FOREACH (l->relative, t)
		n++;
	DL_COUNT(l->clocks, c, clocks);
	LL_FOREACH (l->watches, w)
		n++;
	LL_FOREACH (l->works, k)
		n++;
	LL_FOREACH (l->posts, p)
		posts++;
	n += clocks;
	return with_posts ? n + posts : n;
}

int fake_loop_live(struct loop *l)
{
	return count(l, true);
}

void loop_free(struct loop **loop)
{
	struct loop *l = take(*loop);
	struct post *p, *next_post;
	struct watch *w, *next_watch;
	struct loop_work *k, *next_work;

	if (!l)
		return;
	LL_FOREACH_SAFE (l->posts, p, next_post)
		free(p);
	LL_FOREACH_SAFE (l->watches, w, next_watch)
		free(w);
	LL_FOREACH_SAFE (l->works, k, next_work)
		free(k);
	if (l->base)
		event_base_free(l->base);
	free(l);
}

void fake_loop_end(struct loop **loop)
{
	if (*loop && count(*loop, false) > 0)
		give_up("timers, watches or work are left at the end");
	loop_free(loop);
}

struct event_base *loop_base(struct loop *l)
{
	if (!l->base)
		l->base = event_base_new();
	return l->base;
}

int64_t loop_now_ms(const struct loop *l)
{
	return l->wall_ms;
}

int64_t loop_uptime_ms(const struct loop *l)
{
	return l->mono_ms;
}

int64_t loop_stall_ms(struct loop *l)
{
	(void)l;
	return 0; /* callbacks take no time here */
}

/* ---- timers ---- */

static int by_due(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->due > b->due ? 1 : -1; /* never 0: the new one goes behind its equals */
}

static void set_timer(struct loop *l, struct loop_timer *t, loop_cb fired, void *ctx)
{
	loop_timer_stop(t);
	t->loop = l;
	t->fired = fired;
	t->ctx = ctx;
	t->armed = true;
}

void loop_timer_at(struct loop *l, struct loop_timer *t, int64_t unix_ms, loop_cb fired, void *ctx)
{
	set_timer(l, t, fired, ctx);
	t->due = unix_ms;
	DL_INSERT_INORDER(l->wall, t, by_due);
}

void loop_timer_in(struct loop *l, struct loop_timer *t, int64_t ms, loop_cb fired, void *ctx)
{
	set_timer(l, t, fired, ctx);
	t->due = l->mono_ms + (ms > 0 ? ms : 0);
	DL_INSERT_INORDER(l->relative, t, by_due);
}

static bool is_in(const struct loop_timer *list, const struct loop_timer *t)
{
	const struct loop_timer *i;

	DL_FOREACH (list, i)
		if (i == t)
			return true;
	return false;
}

void loop_timer_stop(struct loop_timer *t)
{
	if (!t->armed)
		return;
	t->armed = false;
	struct loop *l = t->loop;
	if (is_in(l->wall, t))
		DL_DELETE(l->wall, t);
	else if (is_in(l->relative, t))
		DL_DELETE(l->relative, t);
	else
		give_up("an armed timer was overwritten");
}

/* The next timer, and how long until it is due (0 if it already is). */
static struct loop_timer *next_timer(struct loop *l, int64_t *in_ms)
{
	int64_t wall = l->wall ? l->wall->due - l->wall_ms : INT64_MAX;
	int64_t relative = l->relative ? l->relative->due - l->mono_ms : INT64_MAX;
	bool pick_wall = wall <= relative;
	int64_t ms = pick_wall ? wall : relative;

	*in_ms = ms > 0 ? ms : 0;
	return pick_wall ? l->wall : l->relative;
}

static void fire(struct loop_timer *t)
{
	loop_timer_stop(t);
	t->fired(t->ctx);
}

/* ---- fds ---- */

void loop_fd_watch(
    struct loop *l, struct loop_fd *w, int fd, enum loop_fd_for what, loop_cb ready, void *ctx)
{
	struct watch *node = mem_zalloc(sizeof(*node));

	loop_fd_stop(w);
	*w = (struct loop_fd){.loop = l, .event = (struct event *)node, .ready = ready, .ctx = ctx};
	node->user = w;
	node->fd = fd;
	node->events = what == LOOP_READ ? POLLIN : POLLOUT;
	LL_APPEND(l->watches, node);
}

void loop_fd_stop(struct loop_fd *w)
{
	struct watch *node = (struct watch *)w->event;

	if (!node)
		return;
	LL_DELETE(w->loop->watches, node);
	w->event = NULL;
	free(node);
}

static bool still_watched(const struct loop *l, const struct watch *node)
{
	const struct watch *w;

	LL_FOREACH (l->watches, w)
		if (w == node)
			return true;
	return false;
}

static bool run_fds(struct loop *l)
{
	struct watch *nodes[WATCH_MAX];
	struct pollfd fds[WATCH_MAX];
	struct watch *w;
	nfds_t n = 0;
	bool any = false;

	LL_FOREACH (l->watches, w) {
		if (n == WATCH_MAX)
			give_up("too many watches");
		nodes[n] = w;
		fds[n++] = (struct pollfd){.fd = w->fd, .events = w->events};
	}
	if (n == 0 || poll(fds, n, 0) <= 0)
		return false;
	for (nfds_t i = 0; i < n; i++) {
		if (fds[i].revents & POLLNVAL)
			give_up("a watched fd was closed");
		if (!fds[i].revents || !still_watched(l, nodes[i]))
			continue;
		struct loop_fd *user = nodes[i]->user;
		user->ready(user->ctx);
		any = true;
	}
	return any;
}

/* ---- posts and work ---- */

void loop_post(struct loop *l, loop_cb cb, void *ctx)
{
	struct post *p = mem_zalloc(sizeof(*p));

	p->cb = cb;
	p->ctx = ctx;
	LL_APPEND(l->posts, p);
}

static bool run_post(struct loop *l)
{
	auto_free struct post *p = l->posts;

	if (!p)
		return false;
	LL_DELETE(l->posts, p);
	p->cb(p->ctx);
	return true;
}

void loop_work(struct loop *l, struct loop_work **slot, loop_cb job, loop_cb done, void *ctx)
{
	struct loop_work *w = mem_zalloc(sizeof(*w));

	*w = (struct loop_work){.loop = l, .slot = slot, .job = job, .done = done, .ctx = ctx};
	*slot = w;
	LL_APPEND(l->works, w);
}

void loop_work_cancel(struct loop_work **work)
{
	auto_free struct loop_work *w = take(*work);

	if (w)
		LL_DELETE(w->loop->works, w);
}

void fake_loop_hold_work(struct loop *l, bool held)
{
	l->held = held;
}

static bool run_work(struct loop *l)
{
	auto_free struct loop_work *w = l->held ? NULL : l->works;

	if (!w)
		return false;
	w->job(w->ctx);
	LL_DELETE(l->works, w);
	*w->slot = NULL;
	w->done(w->ctx);
	return true;
}

/* ---- time passes ---- */

static void run_libevent(struct loop *l)
{
	if (!l->base)
		return;
	/* An accept, then the bytes, then the answer: each needs a round. */
	for (int i = 0; i < 8; i++)
		event_base_loop(l->base, EVLOOP_NONBLOCK);
}

static void settle(struct loop *l)
{
	int rounds = 0;

	do {
		run_libevent(l);
		while (!l->stopped && (run_post(l) || run_work(l) || run_fds(l)))
			if (++rounds > QUIET_LIMIT)
				give_up("it does not come to rest (an fd that stays ready?)");
		run_libevent(l);
	} while (!l->stopped && l->posts);
}

void fake_loop_advance(struct loop *l, int64_t ms)
{
	int64_t end = l->mono_ms + ms;
	int fired = 0;

	l->stopped = false;
	settle(l);
	while (!l->stopped) {
		int64_t in_ms;
		struct loop_timer *t = next_timer(l, &in_ms);
		if (!t || in_ms > end - l->mono_ms)
			break;
		l->mono_ms += in_ms;
		l->wall_ms += in_ms;
		fire(t);
		settle(l);
		if (in_ms > 0)
			fired = 0;
		if (++fired > QUIET_LIMIT)
			give_up("a timer is set again and again without time passing");
	}
	if (l->stopped)
		return;
	l->wall_ms += end - l->mono_ms;
	l->mono_ms = end;
}

static struct loop_clock *untold(struct loop *l)
{
	struct loop_clock *c = l->clocks;

	while (c && c->told == l->steps)
		c = c->next;
	return c;
}

void fake_loop_wall_step(struct loop *l, int64_t ms)
{
	l->wall_ms += ms;
	l->steps++;
	fake_loop_advance(l, 0);
	for (struct loop_clock *c; (c = untold(l)); c->set(c->ctx))
		c->told = l->steps;
	fake_loop_advance(l, 0);
}

void loop_clock_watch(struct loop *l, struct loop_clock *c, loop_cb set, void *ctx)
{
	*c = (struct loop_clock){.loop = l, .set = set, .ctx = ctx, .told = l->steps};
	DL_APPEND(l->clocks, c);
}

void loop_clock_stop(struct loop_clock *c)
{
	struct loop *l = take(c->loop);

	if (l)
		DL_DELETE(l->clocks, c);
}

/* For code that runs the loop itself: time jumps from timer to timer until loop_stop(). */
void loop_run(struct loop *l)
{
	while (!l->stopped) {
		int64_t in_ms;
		fake_loop_advance(l, 0);
		if (l->stopped)
			break;
		if (!next_timer(l, &in_ms))
			give_up("loop_run() would wait for ever");
		fake_loop_advance(l, in_ms);
	}
	l->stopped = false;
}

void loop_stop(struct loop *l)
{
	l->stopped = true;
}
