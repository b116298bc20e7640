/* broker.c - one worker, its requests, our packets to it.
 *
 * attach -> HELLO and the node's listeners are in the socket before the worker exists -> each turn:
 * requests (16 at most, and only while an answer would fit), then marked files (likewise).  A
 * packet that cannot be sent is not made: requests stay in the socket, changes stay marks.  So a
 * worker that never reads costs nothing, and nothing is ever lost or queued (process-split.md 4,
 * back-pressure). A packet that no worker of ours would send ends it.
 */
#include "broker.h"
#include "broker/base/apart.h"
#include "broker/base/fdstore.h"
#include "broker/base/io.h"
#include "broker/base/state.h"
#include "broker/pods/pods.h"
#include "broker/redirect/traffic.h"
#include "broker_internal.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include "follow.h"
#include "node.h"
#include "requests.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

LOG_SCOPE("broker");

enum {
	PER_TURN = 16,
	/* Listeners that a worker may shut down before it is taken for an attacker. */
	RENEWED_MAX = 32,
	RENEWED_SECONDS = 60
};

void broker_broke(struct broker *b, const char *why)
{
	log_error(NULL, "the worker broke the protocol and is killed: %s", why);
	b->state = BROKER_WORKER_BROKE;
}

static void send_packet(struct broker *b, const struct link_packet *p, int fd)
{
	if (!fdpass_send(b->worker.fd, p, sizeof(*p), fd))
		return;
	if (errno != EPIPE && errno != ECONNRESET) /* its end is read, after what it said last */
		broker_broke(b, strerror(errno));
}

/* --- what the worker is told unasked --- */

static bool ping_is_pending(const struct broker *b)
{
	return b->pings;
}

static uint32_t resident_kib(void)
{
	char text[64] = "";
	auto_close int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	unsigned long pages = 0;

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 || !strchr(text, ' '))
		return 0;
	pages = strtoul(strchr(text, ' '), NULL, 10);
	return (uint32_t)(pages * ((unsigned long)sysconf(_SC_PAGESIZE) / 1024));
}

/* It is the same one that is written and read. */
static void say_disk(const struct broker *b, struct link_packet *p)
{
	long writes = requests_identity_waits_s(b->identities);
	long reads = requests_kept_waits_s(b->certificates);

	if (writes || reads)
		snprintf(p->why, sizeof(p->why), "the disk of %s has not answered for %ld s",
		    b->options->identity_dir, writes > reads ? writes : reads);
}

static bool next_ping(struct broker *b, struct link_packet *p, int *fd)
{
	const char *problem = b->ev.problem ? b->ev.problem(b->ctx) : NULL;
	const uint64_t unsaid = log_unsaid();

	*fd = -1;
	*p = (struct link_packet){.what = LINK_PING,
	    .arg = b->ping,
	    .id = resident_kib(),
	    .kind = (uint16_t)(b->earlier < UINT16_MAX ? b->earlier : UINT16_MAX),
	    .state = (uint32_t)log_dropped()};
	if (unsaid)
		snprintf(p->why, sizeof(p->why),
		    "nobody reads the log: %llu lines of the broker were dropped",
		    (unsigned long long)unsaid);
	else if (problem)
		snprintf(p->why, sizeof(p->why), "%s", problem);
	else
		say_disk(b, p);
	b->pings = false;
	return true;
}

static bool pods_are_pending(const struct broker *b)
{
	return pods_pending(b->pods);
}

static bool next_of_pods(struct broker *b, struct link_packet *p, int *fd)
{
	pods_next(b->pods, p, fd);
	return true;
}

static bool node_is_pending(const struct broker *b)
{
	return requests_node_pending(b->node);
}

static bool next_of_node(struct broker *b, struct link_packet *p, int *fd)
{
	*fd = -1;
	requests_node_next(b->node, p);
	return true;
}

static bool traffic_is_pending(const struct broker *b)
{
	return redirect_traffic_pending(b->traffic);
}

static bool next_of_traffic(struct broker *b, struct link_packet *p, int *fd)
{
	return redirect_traffic_next(b->traffic, p, fd);
}

static bool identities_are_pending(const struct broker *b)
{
	return requests_identity_pending(b->identities);
}

static bool next_of_identities(struct broker *b, struct link_packet *p, int *fd)
{
	*fd = -1;
	requests_identity_next(b->identities, p);
	return true;
}

static bool certificates_are_pending(const struct broker *b)
{
	return requests_kept_pending(b->certificates);
}

static bool next_of_certificates(struct broker *b, struct link_packet *p, int *fd)
{
	requests_kept_next(b->certificates, p, fd);
	return true;
}

static bool follows_are_pending(const struct broker *b)
{
	return follows_pending(b->follows);
}

static bool next_of_follows(struct broker *b, struct link_packet *p, int *fd)
{
	return follows_next(b->follows, p, fd);
}

static bool states_are_listed(const struct broker *b)
{
	return broker_state_listing(b->states);
}

static bool next_of_states(struct broker *b, struct link_packet *p, int *fd)
{
	broker_state_next(b->states, p, fd);
	return true;
}

static bool volumes_are_listed(const struct broker *b)
{
	return volume_list_listing(&b->volumes);
}

static bool next_of_volumes(struct broker *b, struct link_packet *p, int *fd)
{
	volume_list_next(&b->volumes, p, fd);
	if (p->what == LINK_VOLUME && redirect_traffic_is_redirected(b->traffic, &p->uid))
		p->state |= LINK_VOLUME_REDIRECTED;
	return true;
}

struct source {
	bool (*pending)(const struct broker *b);
	/* False: nothing after all. */
	bool (*next)(struct broker *b, struct link_packet *p, int *fd);
	bool lends; /* the descriptor is not ours to close */
};
/* In the order in which they are heard.  The last row is empty. */
static const struct source news[] = {
    {ping_is_pending, next_ping, false},
    {pods_are_pending, next_of_pods, true},
    {node_is_pending, next_of_node, false},
    {traffic_is_pending, next_of_traffic, false},
    {identities_are_pending, next_of_identities, false},
    {certificates_are_pending, next_of_certificates, false},
    {follows_are_pending, next_of_follows, false},
    {NULL, NULL, false},
};
/* Nothing else is answered before a list has ended. */
static const struct source lists[] = {
    {states_are_listed, next_of_states, false},
    {volumes_are_listed, next_of_volumes, false},
    {NULL, NULL, false},
};

static bool is_pending(const struct broker *b, const struct source *s)
{
	for (; s->pending; s++)
		if (s->pending(b))
			return true;
	return false;
}

/* One packet at most.  False: nothing is pending, or nobody hears it any more. */
static bool push(struct broker *b, const struct source *s)
{
	bool was_pending = false;

	for (bool sent = false; s->pending && !sent; s++) {
		struct link_packet p;
		int fd = -1;
		if (!s->pending(b))
			continue;
		was_pending = true;
		if ((sent = s->next(b, &p, &fd)))
			send_packet(b, &p, fd);
		if (!s->lends)
			mem_closep(&fd);
	}
	return was_pending && b->state == BROKER_SERVING;
}

/* --- what it asks --- */

void broker_reply(struct broker *b, const struct link_packet *reply, int fd)
{
	if (b->state == BROKER_SERVING)
		send_packet(b, reply, fd);
}

/* False: there is none. */
static bool take_request(struct broker *b)
{
	struct broker_request in;
	struct err why;
	enum broker_got got = broker_io_receive(b->worker.fd, &in, &why);

	if (got == BROKER_GOT_NOTHING)
		return false;
	if (got == BROKER_GOT_EOF) {
		b->state = BROKER_WORKER_LEFT;
		return false;
	}
	if (got == BROKER_GOT_GARBAGE || requests_check(&in, &why)) {
		broker_broke(b, why.msg);
	} else {
		if (b->ev.heard)
			b->ev.heard(b->ctx);
		requests_answer(b, &in);
	}
	if ((!apart_close(in.fd) || in.hoards) && b->state == BROKER_SERVING)
		broker_broke(b, "it sends more descriptors than can be closed");
	return b->state == BROKER_SERVING;
}

/* --- one turn --- */

static void want(struct broker *b)
{
	if (b->state != BROKER_SERVING || !b->attached)
		return;
	const uint32_t in = apart_is_busy() ? 0 : EPOLLIN;

	if (!broker_io_writable(b->worker.fd))
		broker_watch_want(b->epoll, &b->worker, EPOLLOUT);
	else if (is_pending(b, news) || is_pending(b, lists))
		broker_watch_want(b->epoll, &b->worker, in | EPOLLOUT);
	else
		broker_watch_want(b->epoll, &b->worker, in);
}

void broker_reaped(struct broker *b)
{
	want(b);
}

/* What is left of a worker that has gone is bounded, and read at once. */
static bool may_read(uint32_t events)
{
	return !apart_is_busy() || events & EPOLLHUP;
}

static void on_worker(void *ctx, uint32_t events)
{
	struct broker *b = ctx;

	for (int i = 0; i < PER_TURN && broker_io_writable(b->worker.fd); i++)
		if (!(is_pending(b, lists) ? push(b, lists) : may_read(events) && take_request(b)))
			break;
	for (int i = 0; i < PER_TURN && b->state == BROKER_SERVING; i++)
		if (!broker_io_writable(b->worker.fd) || !push(b, news))
			break;
	want(b);
}

static void on_changed(void *ctx)
{
	want(ctx);
}

static bool on_awaited(void *ctx, const struct uuid *pod)
{
	const struct broker *b = ctx;

	return pods_is_awaited(b->pods, pod);
}

static unsigned on_running(void *ctx, const struct uuid *pod)
{
	const struct broker *b = ctx;

	if (!pods_is_there(b->pods, pod))
		return 0;
	return redirect_traffic_is_redirected(b->traffic, pod)
		   ? LINK_RUNNING | LINK_RUNNING_REDIRECTED
		   : LINK_RUNNING;
}

static void on_written(void *ctx, const struct uuid *pod)
{
	struct broker *b = ctx;

	requests_kept_written(b->certificates, pod);
}

/* Only the worker can do that, and no worker of ours does. */
static void on_renewed(void *ctx)
{
	struct broker *b = ctx;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec - b->renewed_since > RENEWED_SECONDS) {
		b->renewed_since = now.tv_sec;
		b->renewed = 0;
	}
	if (++b->renewed > RENEWED_MAX && b->state == BROKER_SERVING)
		broker_broke(b, "it keeps shutting sockets down");
	want(b);
}

static void on_node_broke(void *ctx, const char *why)
{
	struct broker *b = ctx;

	if (b->attached && b->state == BROKER_SERVING)
		broker_broke(b, why);
}

static void on_csi_renewed(void *ctx)
{
	struct broker *b = ctx;

	if (!b->attached || b->state != BROKER_SERVING)
		return;
	log_warn(NULL, "the worker's csi.sock is dead: another worker starts, with a new csi.sock");
	b->state = BROKER_WORKER_OUTDATED;
}

/* --- life --- */

int broker_epoll(const struct broker *b)
{
	return b->epoll;
}

static int start(struct broker *b, struct err *e)
{
	if ((b->epoll = broker_loop_new()) < 0)
		return err_sys(e, "epoll");
	if (broker_rundir_open(&b->rundir, b->options->run, b->kept, e) ||
	    netns_home_open(&b->home, b->kept, e))
		return -1;
	if (!(b->node = requests_node_new(
		  &(struct requests_node_rig){b->epoll, b->options, b->kept, &b->home,
		      b->rundir.inherited, on_node_broke, on_csi_renewed, on_changed, b},
		  e)))
		return -1;
	if (!(b->states = broker_state_new(b->options, b->kept, e)))
		return -1;
	b->pods = pods_new(&(struct pods_rig){.epoll = b->epoll,
			       .options = b->options,
			       .home = &b->home,
			       .kept = b->kept,
			       .states = b->states,
			       .renewed = on_renewed,
			       .changed = on_changed,
			       .ctx = b},
	    e);
	if (!b->pods)
		return -1;
	b->certificates = requests_kept_new(b->epoll, b->options, on_changed, b);
	if (!b->certificates)
		return err_sys(e, "timerfd");
	b->identities = requests_identity_new(
	    b->epoll, b->options, &(struct requests_identity_events){on_changed, on_written}, b);
	b->follows = follows_new(b->epoll, b->options,
	    &(struct follows_events){on_changed, on_awaited, on_running}, b, e);
	b->traffic = b->follows
			 ? redirect_traffic_new(&(struct redirect_traffic_rig){b->epoll, b->options,
						    &b->home, b->pods, on_changed, b},
			       e)
			 : NULL;
	return b->traffic ? 0 : -1;
}

struct broker *broker_new(
    const struct broker_options *o, struct broker_fdstore *kept, struct err *e)
{
	struct broker *b = mem_zalloc(sizeof(*b));

	b->options = b->volumes.options = o;
	b->kept = kept;
	b->epoll = b->home.fd = b->home.init_fd = b->rundir.lock = -1;
	if (start(b, e))
		broker_free(&b);
	return b;
}

static void end_lists(struct broker *b)
{
	broker_state_list_end(b->states);
	volume_list_end(&b->volumes);
}

static void hang_up(struct broker *b)
{
	if (!b->attached)
		return;
	broker_watch_end(b->epoll, &b->worker);
	shutdown(b->worker.fd, SHUT_RDWR); /* heard at once, whenever what it sent is closed */
	(void)apart_close(b->worker.fd);
	end_lists(b);
	requests_identity_detach(b->identities);
	pods_detach(b->pods);
	redirect_traffic_detach(b->traffic);
	b->attached = false;
}

/* What a dead worker asked for before it died is done: a certificate it wanted kept is not signed
 * again. */
static void hear_last_words(struct broker *b)
{
	if (!b->attached)
		return;
	end_lists(b);
	while (b->state == BROKER_SERVING && !is_pending(b, lists) && take_request(b))
		;
}

bool broker_blame(struct broker *b)
{
	hear_last_words(b);
	return pods_blame(b->pods) > 0;
}

void broker_detach(struct broker *b)
{
	hear_last_words(b);
	hang_up(b);
	follows_clear(b->follows);
	requests_kept_clear(b->certificates);
	b->ready = b->served = false;
	b->renewed = 0;
}

void broker_hold_back(struct broker *b, bool hold)
{
	b->holds_back = hold;
	if (!hold && b->ready)
		requests_sweep(b);
}

void broker_observe(struct broker *b, const struct broker_events *ev, void *ctx)
{
	b->ev = *ev;
	b->ctx = ctx;
}

void broker_leave(struct broker *b)
{
	pods_leave(b->pods);
}

void broker_free(struct broker **b)
{
	if (!*b)
		return;
	hang_up(*b);
	pods_free(&(*b)->pods);
	redirect_traffic_free(&(*b)->traffic);
	follows_free(&(*b)->follows);
	requests_identity_free(&(*b)->identities);
	requests_kept_free(&(*b)->certificates);
	broker_state_free(&(*b)->states);
	requests_node_free(&(*b)->node);
	netns_home_close(&(*b)->home);
	broker_rundir_close(&(*b)->rundir);
	mem_closep(&(*b)->epoll);
	free(*b);
	*b = NULL;
}

int broker_attach(struct broker *b, int fd, struct err *e)
{
	broker_detach(b);
	pods_hold_nothing(b->pods);
	b->worker = (struct broker_watch){.fd = fd, .ready = on_worker, .ctx = b};
	b->state = BROKER_SERVING;
	b->pings = false;
	if (requests_node_greet(b->node, fd, e)) {
		close(fd);
		return -1;
	}
	if (broker_watch_start(b->epoll, &b->worker, EPOLLIN)) {
		close(fd);
		return err_sys(e, "serve the worker");
	}
	b->attached = true;
	b->earlier = b->attachments++;
	want(b); /* something may be there to be told */
	return 0;
}

void broker_ping(struct broker *b, uint32_t ping)
{
	if (!b->attached)
		return;
	b->pings = true;
	b->ping = ping;
	want(b);
}

enum broker_turned broker_turn(struct broker *b, int timeout_ms)
{
	/* Nothing more is taken from a worker that left or broke the rules. */
	if (b->state != BROKER_SERVING)
		hang_up(b);
	broker_loop_turn(b->epoll, timeout_ms);
	return b->state;
}
