/* loop.c - how each kind of event gets to its callback.
 *
 * fds and relative timers: libevent calls us, we measure and pass on.
 * Wall timers: one list sorted by due time and one timerfd on CLOCK_REALTIME, armed at the head.
 * The kernel wakes us when that time comes and also when the clock is set or the machine resumes
 * (TFD_TIMER_CANCEL_ON_SET); either way the head is compared with the clock again, so no
 * certificate sleeps past its end (threats-and-faults.md 0.5).
 * Who wants to hear of such a step is told one after the other, each in a round of its own.
 * Posts and finished work come from other threads: they append to a list under the lock, and write
 * the eventfd only if that list was empty, so a burst is one wake-up.
 * Work: one thread, started by the first job; loop_free() joins it.
 *
 * Nothing is periodic: an idle loop with no timer due sleeps in epoll_wait for ever.
 */
#include "loop.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <utlist.h>

#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

LOG_SCOPE("loop");

struct post {
	loop_cb cb;
	void *ctx;
	struct post *prev, *next;
};

enum work_state { WORK_QUEUED, WORK_RUNNING, WORK_FINISHED };

struct loop_work {
	struct loop *loop;
	struct loop_work **slot;
	loop_cb job, done;
	void *ctx;
	enum work_state state; /* under the lock */
	struct loop_work *prev, *next;
};

struct loop {
	struct event_base *base;
	bool stopped;
	/* The longest callback since then, and of the minute before. */
	int64_t stall_since_ns, stall_ns, stall_before_ns;

	struct loop_timer *wall; /* sorted by due time */
	int wall_fd;
	int64_t wall_armed; /* what the timerfd is set to, 0 for nothing */
	struct event *wall_event;
	int64_t wall_offset_ms; /* of the wall clock to the monotonic one, when it was looked at */
	struct loop_clock *clocks;
	unsigned steps; /* of the wall clock */

	int wake_fd;
	struct event *wake_event;
	pthread_mutex_t lock; /* guards all below */
	struct post *posts;
	struct loop_work *jobs, *finished;
	pthread_cond_t jobs_changed;
	pthread_t worker;
	bool has_worker, quit;
};

static void on_wall(evutil_socket_t fd, short what, void *ctx);
static void on_wake(evutil_socket_t fd, short what, void *ctx);

/* ---- life ---- */

static void *on_alloc(size_t size)
{
	return mem_realloc(NULL, size);
}

static void on_libevent_log(int severity, const char *msg)
{
	if (severity >= EVENT_LOG_WARN)
		log_warn(NULL, "libevent: %s", msg);
	else
		log_debug(NULL, "libevent: %s", msg);
}

static struct event_base *make_base(void)
{
	struct event_config *config = event_config_new();

	/* One thread only, so no locks; EVENT_* variables of the environment are not for us. Timers
	 * stay on the coarse monotonic clock (4 ms): a precise one costs a system call per round.
	 */
	event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
	struct event_base *base = event_base_new_with_config(config);
	event_config_free(config);
	return base;
}

/* An event that libevent does not accept is a bug of ours (a closed fd, a regular file). */
static struct event *start_event(struct event *ev, const struct timeval *after)
{
	if (event_add(ev, after) < 0) {
		log_error(NULL, "cannot watch fd %d", (int)event_get_fd(ev));
		abort();
	}
	return ev;
}

struct loop *loop_new(struct err *e)
{
	event_set_mem_functions(on_alloc, mem_realloc, free); /* exhaustion aborts there too */
	event_set_log_callback(on_libevent_log);
	signal(SIGPIPE, SIG_IGN);

	auto_close int wall_fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	auto_close int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct event_base *base = make_base();
	if (wall_fd < 0 || wake_fd < 0 || !base) {
		if (base)
			event_base_free(base);
		err_sys(e, "event loop");
		return NULL;
	}

	struct loop *l = mem_zalloc(sizeof(*l));
	l->base = base;
	l->wall_fd = take_fd(wall_fd);
	l->wake_fd = take_fd(wake_fd);
	l->wall_offset_ms = loop_now_ms(l) - loop_uptime_ms(l);
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->jobs_changed, NULL);
	l->wall_event = event_new(base, l->wall_fd, EV_READ | EV_PERSIST, on_wall, l);
	l->wake_event = event_new(base, l->wake_fd, EV_READ | EV_PERSIST, on_wake, l);
	start_event(l->wall_event, NULL);
	start_event(l->wake_event, NULL);
	return l;
}

void loop_run(struct loop *l)
{
	if (!l->stopped)
		event_base_dispatch(l->base);
	l->stopped = false;
}

void loop_stop(struct loop *l)
{
	/* libevent forgets a break that comes before the run, we do not. */
	l->stopped = true;
	event_base_loopbreak(l->base);
}

static void stop_worker(struct loop *l)
{
	if (!l->has_worker)
		return;
	pthread_mutex_lock(&l->lock);
	l->quit = true;
	pthread_cond_broadcast(&l->jobs_changed);
	pthread_mutex_unlock(&l->lock);
	pthread_join(l->worker, NULL);
}

static void free_works(struct loop_work *list)
{
	struct loop_work *w, *next;

	DL_FOREACH_SAFE (list, w, next) {
		*w->slot = NULL;
		free(w);
	}
}

void loop_free(struct loop **loop)
{
	struct loop *l = take(*loop);
	struct post *p, *next;

	if (!l)
		return;
	stop_worker(l);
	DL_FOREACH_SAFE (l->posts, p, next)
		free(p);
	free_works(l->jobs);
	free_works(l->finished);
	event_free(l->wall_event);
	event_free(l->wake_event);
	event_base_free(l->base);
	close(l->wall_fd);
	close(l->wake_fd);
	pthread_cond_destroy(&l->jobs_changed);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

struct event_base *loop_base(struct loop *l)
{
	return l->base;
}

/* ---- the clock and the stall gauge ---- */

#define MINUTE_NS (INT64_C(60) * 1000000000)

static int64_t clock_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t loop_now_ms(const struct loop *l)
{
	(void)l; /* the clock of a fake loop is its own */
	return clock_ns(CLOCK_REALTIME) / 1000000;
}

int64_t loop_uptime_ms(const struct loop *l)
{
	(void)l;
	return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

static void begin_minute(struct loop *l, int64_t now_ns)
{
	const int64_t age = now_ns - l->stall_since_ns;

	if (age < MINUTE_NS)
		return;
	l->stall_before_ns = age < 2 * MINUTE_NS ? l->stall_ns : 0;
	l->stall_ns = 0;
	l->stall_since_ns = now_ns;
}

static void dispatch(struct loop *l, loop_cb cb, void *ctx)
{
	int64_t start = clock_ns(CLOCK_MONOTONIC);

	cb(ctx);
	int64_t now = clock_ns(CLOCK_MONOTONIC);
	begin_minute(l, now);
	if (now - start > l->stall_ns)
		l->stall_ns = now - start;
}

int64_t loop_stall_ms(struct loop *l)
{
	begin_minute(l, clock_ns(CLOCK_MONOTONIC));
	return (l->stall_ns > l->stall_before_ns ? l->stall_ns : l->stall_before_ns) / 1000000;
}

/* ---- timers ---- */

static int by_due(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->due > b->due ? 1 : -1; /* never 0: the new one goes behind its equals */
}

enum { STEP_MS = 1000 };
/* Beyond what a clock can be set to: for its steps alone. */
static const int64_t never_ms = INT64_C(9000000000000);

static void arm_wall(struct loop *l)
{
	int64_t due = l->wall ? l->wall->due : l->clocks ? never_ms : 0;
	struct itimerspec at = {0};

	if (due == l->wall_armed)
		return;
	l->wall_armed = due;
	at.it_value.tv_sec = due / 1000;
	at.it_value.tv_nsec = due % 1000 * 1000000;
	/* ECANCELED says that the clock was set since; the timer is armed all the same. */
	if (timerfd_settime(
		l->wall_fd, due ? TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET : 0, &at, NULL) < 0 &&
	    errno != ECANCELED) {
		log_error(NULL, "timerfd_settime: %m");
		abort();
	}
}

static void look_at_clock(struct loop *l)
{
	const int64_t offset = loop_now_ms(l) - loop_uptime_ms(l);

	if (llabs(offset - l->wall_offset_ms) > STEP_MS)
		l->steps++;
	l->wall_offset_ms = offset;
}

static void tell_clocks(struct loop *l)
{
	for (struct loop_clock *c = l->clocks; c;) {
		if (c->told == l->steps) {
			c = c->next;
			continue;
		}
		c->told = l->steps;
		dispatch(l, c->set, c->ctx);
		c = l->clocks; /* any of them may be gone */
	}
}

static void on_wall(evutil_socket_t fd, short what, void *ctx)
{
	struct loop *l = ctx;
	struct loop_timer *t = l->wall;
	uint64_t expirations;

	(void)what;
	/* Expired, or cancelled by a clock step: what counts is the list and the clock. */
	if (read(fd, &expirations, sizeof(expirations)) < 0 && errno == EAGAIN)
		return;
	l->wall_armed = 0;
	look_at_clock(l);
	bool due = t && t->due <= loop_now_ms(l);
	if (due)
		loop_timer_stop(t);
	/* Only one for each round, so that many timers due together do not starve the fds; for the
	 * next of them the timerfd is armed in the past and fires at once. */
	arm_wall(l);
	if (due)
		dispatch(l, t->fired, t->ctx);
	tell_clocks(l);
}

void loop_clock_watch(struct loop *l, struct loop_clock *c, loop_cb set, void *ctx)
{
	*c = (struct loop_clock){.loop = l, .set = set, .ctx = ctx, .told = l->steps};
	DL_APPEND(l->clocks, c);
	arm_wall(l);
}

void loop_clock_stop(struct loop_clock *c)
{
	struct loop *l = take(c->loop);

	if (!l)
		return;
	DL_DELETE(l->clocks, c);
	arm_wall(l);
}

static void on_relative(evutil_socket_t fd, short what, void *ctx)
{
	struct loop_timer *t = ctx;

	(void)fd, (void)what;
	loop_timer_stop(t);
	dispatch(t->loop, t->fired, t->ctx);
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
	t->due = unix_ms > 0 ? unix_ms : 1; /* 0 disarms a timerfd */
	DL_INSERT_INORDER(l->wall, t, by_due);
	arm_wall(l);
}

void loop_timer_in(struct loop *l, struct loop_timer *t, int64_t ms, loop_cb fired, void *ctx)
{
	if (ms < 0)
		ms = 0;
	struct timeval after = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	set_timer(l, t, fired, ctx);
	t->event = start_event(evtimer_new(l->base, on_relative, t), &after);
}

void loop_timer_stop(struct loop_timer *t)
{
	if (!t->armed)
		return;
	t->armed = false;
	if (t->event) {
		event_free(take(t->event));
		return;
	}
	DL_DELETE(t->loop->wall, t);
	arm_wall(t->loop);
}

/* ---- fds ---- */

static void on_fd(evutil_socket_t fd, short what, void *ctx)
{
	struct loop_fd *w = ctx;

	(void)fd, (void)what;
	dispatch(w->loop, w->ready, w->ctx);
}

void loop_fd_watch(
    struct loop *l, struct loop_fd *w, int fd, enum loop_fd_for what, loop_cb ready, void *ctx)
{
	short events = (short)((what == LOOP_READ ? EV_READ : EV_WRITE) | EV_PERSIST);

	loop_fd_stop(w);
	w->loop = l;
	w->ready = ready;
	w->ctx = ctx;
	w->event = start_event(event_new(l->base, fd, events, on_fd, w), NULL);
}

void loop_fd_stop(struct loop_fd *w)
{
	if (w->event)
		event_free(take(w->event));
}

/* ---- posts and work ---- */

static void wake(struct loop *l)
{
	if (eventfd_write(l->wake_fd, 1) < 0)
		abort(); /* the counter cannot be full: the loop resets it */
}

void loop_post(struct loop *l, loop_cb cb, void *ctx)
{
	struct post *p = mem_zalloc(sizeof(*p));

	p->cb = cb;
	p->ctx = ctx;
	pthread_mutex_lock(&l->lock);
	bool first = !l->posts;
	DL_APPEND(l->posts, p);
	pthread_mutex_unlock(&l->lock);
	if (first)
		wake(l);
}

static void run_posts(struct loop *l)
{
	struct post *p, *next;

	pthread_mutex_lock(&l->lock);
	struct post *batch = take(l->posts);
	pthread_mutex_unlock(&l->lock);
	/* What these post themselves waits for the next round: fds and timers get their turn. */
	DL_FOREACH_SAFE (batch, p, next) {
		dispatch(l, p->cb, p->ctx);
		free(p);
	}
}

static struct loop_work *pop(struct loop_work **list)
{
	struct loop_work *w = *list;

	if (w)
		DL_DELETE(*list, w);
	return w;
}

static void deliver_finished(struct loop *l)
{
	/* One at a time: a `done` may cancel the next. */
	for (;;) {
		pthread_mutex_lock(&l->lock);
		auto_free struct loop_work *w = pop(&l->finished);
		pthread_mutex_unlock(&l->lock);
		if (!w)
			return;
		*w->slot = NULL;
		dispatch(l, w->done, w->ctx);
	}
}

static void on_wake(evutil_socket_t fd, short what, void *ctx)
{
	struct loop *l = ctx;
	eventfd_t ignored;

	(void)what;
	/* Reset before the lists are taken: an append to an empty list afterwards writes again. */
	eventfd_read(fd, &ignored);
	run_posts(l);
	deliver_finished(l);
}

static void *work_on_jobs(void *ctx)
{
	struct loop *l = ctx;

	pthread_mutex_lock(&l->lock);
	for (;;) {
		while (!l->quit && !l->jobs)
			pthread_cond_wait(&l->jobs_changed, &l->lock);
		if (l->quit)
			break;
		struct loop_work *w = pop(&l->jobs);
		w->state = WORK_RUNNING;
		pthread_mutex_unlock(&l->lock);
		w->job(w->ctx);
		pthread_mutex_lock(&l->lock);
		w->state = WORK_FINISHED;
		if (!l->finished)
			wake(l);
		DL_APPEND(l->finished, w);
		pthread_cond_broadcast(&l->jobs_changed);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static void start_worker(struct loop *l)
{
	sigset_t all, before;

	/* Signals are for the loop's thread (it reads them from a signalfd). */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&l->worker, NULL, work_on_jobs, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc != 0) {
		log_error(NULL, "cannot start the worker thread: error %d", rc);
		abort();
	}
	l->has_worker = true;
}

void loop_work(struct loop *l, struct loop_work **slot, loop_cb job, loop_cb done, void *ctx)
{
	struct loop_work *w = mem_zalloc(sizeof(*w));

	*w = (struct loop_work){.loop = l, .slot = slot, .job = job, .done = done, .ctx = ctx};
	*slot = w;
	if (!l->has_worker)
		start_worker(l);
	pthread_mutex_lock(&l->lock);
	DL_APPEND(l->jobs, w);
	pthread_cond_broadcast(&l->jobs_changed);
	pthread_mutex_unlock(&l->lock);
}

void loop_work_cancel(struct loop_work **work)
{
	auto_free struct loop_work *w = take(*work);

	if (!w)
		return;
	struct loop *l = w->loop;
	pthread_mutex_lock(&l->lock);
	while (w->state == WORK_RUNNING)
		pthread_cond_wait(&l->jobs_changed, &l->lock);
	if (w->state == WORK_QUEUED)
		DL_DELETE(l->jobs, w);
	else
		DL_DELETE(l->finished, w);
	pthread_mutex_unlock(&l->lock);
}
