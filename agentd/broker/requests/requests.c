/* requests.c - one worker, its requests, its files.
 *
 * attach -> HELLO and the node's listeners are in the socket before the worker exists -> each turn:
 * requests (16 at most, and only while an answer would fit), then marked files (likewise).  What
 * cannot be sent is not made: requests stay in the socket, changes stay marks.  So a worker that
 * never reads costs nothing, and nothing is ever lost or queued (process-split.md 4,
 * back-pressure). A packet that no worker of ours would send ends it.
 */
#include "requests.h"
#include "broker/base/fdstore.h"
#include "broker/base/io.h"
#include "broker/base/rundir.h"
#include "broker/base/state.h"
#include "broker/kubelet/volume.h"
#include "broker/kubelet/volume_list.h"
#include "broker/netns/pod_sockets.h"
#include "broker/pods/kubelet_caller.h"
#include "broker/pods/pods.h"
#include "broker/redirect/requests.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include "follow.h"
#include "node.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

LOG_SCOPE("broker");

enum {
	PER_TURN = 16,
	/* Listeners that a worker may shut down before it is taken for an attacker. */
	RENEWED_MAX = 32,
	RENEWED_SECONDS = 60
};

struct broker {
	const struct broker_options *options;
	int epoll;
	struct broker_rundir rundir;
	struct netns_home home;
	struct broker_fdstore *kept;
	struct requests_node *node;
	struct volume_list volumes;
	struct pods *pods;
	struct follows *follows;
	struct broker_states *states;
	struct redirect_requests *traffic;
	struct pod_sockets *dns;
	struct broker_watch worker;
	bool attached, ready; /* the worker */
	enum broker_state state;
	struct broker_events ev;
	void *ctx;
	unsigned renewed; /* listeners, since `renewed_since` */
	time_t renewed_since;
};

/* One request while it is answered. */
struct request {
	const struct link_request *r;
	struct broker_pod *pod;
	int fd; /* the worker's */
	struct link_packet *reply;
	int reply_fd; /* the broker's */
	int given_fd; /* the same, but ours no longer */
	struct err *why;
};

static void broke(struct broker *b, const char *why)
{
	log_error(NULL, "the worker broke the protocol and is killed: %s", why);
	b->state = LIFE_WORKER_BROKE;
}

/* --- the table --- */

static int do_pod_add(struct broker *b, struct request *q)
{
	return pods_add(b->pods, &q->r->uid, q->why);
}

/* Also of a pod that only an earlier worker added: it may have died before it kept it. */
static int do_pod_remove(struct broker *b, struct request *q)
{
	if (kubelet_volume_is_published(b->options, &q->r->uid))
		return err_set(
		    q->why, EBUSY, "its volume is mounted: it has to be unpublished first");
	follows_remove_pod(b->follows, &q->r->uid);
	pod_sockets_end(b->dns, &q->r->uid);
	redirect_requests_remove(b->traffic, &q->r->uid);
	return pods_remove(b->pods, &q->r->uid, q->why);
}

static int do_listen(struct broker *b, struct request *q)
{
	q->reply_fd = pod_sockets_is_kind(q->r->kind)
			  ? pod_sockets_listen(b->dns, &q->r->uid, q->r->kind, q->why)
			  : broker_pod_listen(b->pods, q->pod, q->r->kind, q->why);
	return q->reply_fd < 0 ? -1 : 0;
}

static int do_peer_of(struct broker *b, struct request *q)
{
	if (broker_pod_peer(q->pod, q->fd, q->r->arg == LINK_ATTEST_REQUIRE, q->reply, q->why))
		return -1;
	redirect_requests_live(b->traffic, &q->r->uid, broker_pod_netns_fd(q->pod));
	return 0;
}

static int do_write(struct broker *b, struct request *q)
{
	(void)b;
	return broker_pod_write(q->pod, q->r->kind, q->fd, q->why);
}

static int do_follow(struct broker *b, struct request *q)
{
	if (q->r->kind == LINK_FOLLOW_TOKEN && !pods_find(b->pods, &q->r->uid, q->why))
		return -1;
	return follows_add(b->follows, q->r, q->why);
}

/* POD_REMOVE may have ended it before: not an error. */
static int do_unfollow(struct broker *b, struct request *q)
{
	follows_remove(b->follows, q->r->arg);
	return 0;
}

static int do_state_put(struct broker *b, struct request *q)
{
	return broker_state_put(b->states, q->r, q->fd, q->why);
}

static int do_state_del(struct broker *b, struct request *q)
{
	return broker_state_del(b->states, q->r, q->why);
}

/* Its reply comes after the entries. */
static int do_state_list(struct broker *b, struct request *q)
{
	return broker_state_list(b->states, q->r, q->why);
}

/* The worker asks for its DNS proxy's sockets again when it knows what is in force. */
static int do_redirect_set(struct broker *b, struct request *q)
{
	pod_sockets_end(b->dns, &q->r->uid);
	return redirect_requests_set(b->traffic, q->r, q->fd, q->why);
}

static int do_redirect_del(struct broker *b, struct request *q)
{
	pod_sockets_end(b->dns, &q->r->uid);
	redirect_requests_remove(b->traffic, &q->r->uid);
	return 0;
}

static int do_redirect_counters(struct broker *b, struct request *q)
{
	q->reply_fd = redirect_requests_counters(b->traffic, q->why);
	return q->reply_fd < 0 ? -1 : 0;
}

static int do_redirect_explain(struct broker *b, struct request *q)
{
	return redirect_requests_explain(b->traffic, q->r, q->fd, q->reply, q->why);
}

static int do_redirect_trace(struct broker *b, struct request *q)
{
	q->given_fd = redirect_requests_trace(b->traffic, q->r, q->why);
	return q->given_fd < 0 ? -1 : 0;
}

static int do_caller(struct broker *b, struct request *q)
{
	(void)b;
	return kubelet_caller_check(q->fd, q->why);
}

static int do_publish(struct broker *b, struct request *q)
{
	return kubelet_volume_publish(b->options, q->r, q->why);
}

static int do_unpublish(struct broker *b, struct request *q)
{
	return kubelet_volume_unpublish(b->options, q->r, q->why);
}

/* Its reply comes after the volumes. */
static int do_volumes(struct broker *b, struct request *q)
{
	return volume_list_list(&b->volumes, q->r, q->why);
}

static int do_dial(struct broker *b, struct request *q)
{
	q->given_fd = broker_pod_dial(b->pods, q->pod, q->r, q->why);
	return q->given_fd < 0 ? -1 : 0;
}

/* What nobody claimed goes now: the worker has added all there is. */
static int do_ready(struct broker *b, struct request *q)
{
	size_t n;

	(void)q;
	if (b->ready) {
		broke(b, "it was ready twice");
		return 0;
	}
	b->ready = true;
	pods_sweep(b->pods);
	pod_sockets_sweep(b->dns);
	redirect_requests_sweep(b->traffic);
	if ((n = broker_fdstore_sweep(b->kept)))
		log_info(NULL, "%zu kept descriptors belong to no pod: closed", n);
	if (b->ev.ready)
		b->ev.ready(b->ctx);
	return 0;
}

static int do_pong(struct broker *b, struct request *q)
{
	if (b->ev.pong)
		b->ev.pong(b->ctx, q->r->arg);
	return 0;
}

/* Errors are said at any level: they are what a worker that was taken over cannot hide. */
static int do_log(struct broker *b, struct request *q)
{
	(void)b;
	if (q->r->kind >= LINK_LOG_END || q->r->arg > LOG_DEBUG)
		return err_set(
		    q->why, EINVAL, "no log has format %u and level %u", q->r->kind, q->r->arg);
	log_init(q->r->kind == LINK_LOG_JSON);
	log_set_level((enum log_level)q->r->arg);
	log_release();
	return 0;
}

static const struct {
	int (*act)(struct broker *b, struct request *q);
	int nfds;
	bool of_pod; /* which must have been added */
} table[LINK_OP_END] = {
    [LINK_POD_ADD] = {do_pod_add, 0, false},
    [LINK_POD_REMOVE] = {do_pod_remove, 0, false},
    [LINK_LISTEN] = {do_listen, 0, true},
    [LINK_PEER_OF] = {do_peer_of, 1, true},
    [LINK_WRITE] = {do_write, 1, true},
    [LINK_FOLLOW] = {do_follow, 0, false},
    [LINK_UNFOLLOW] = {do_unfollow, 0, false},
    [LINK_READY] = {do_ready, 0, false},
    [LINK_PONG] = {do_pong, 0, false},
    [LINK_STATE_PUT] = {do_state_put, 1, false},
    [LINK_STATE_DEL] = {do_state_del, 0, false},
    [LINK_STATE_LIST] = {do_state_list, 0, false},
    [LINK_REDIRECT_SET] = {do_redirect_set, 1, true},
    [LINK_REDIRECT_DEL] = {do_redirect_del, 0, true},
    [LINK_REDIRECT_COUNTERS] = {do_redirect_counters, 0, false},
    [LINK_REDIRECT_EXPLAIN] = {do_redirect_explain, 1, true},
    [LINK_REDIRECT_TRACE] = {do_redirect_trace, 0, false},
    [LINK_CALLER] = {do_caller, 1, false},
    [LINK_PUBLISH] = {do_publish, 0, true},
    [LINK_UNPUBLISH] = {do_unpublish, 0, false},
    [LINK_VOLUMES] = {do_volumes, 0, false},
    [LINK_DIAL] = {do_dial, 0, true},
    [LINK_LOG] = {do_log, 0, false},
};

/* --- requests --- */

static int check_shape(const struct broker_request *in, struct err *e)
{
	if (in->r.op >= LINK_OP_END || !table[in->r.op].act)
		return err_set(e, EPROTO, "there is no operation %u", in->r.op);
	if (in->nfds != table[in->r.op].nfds && !(in->lost_fd && table[in->r.op].nfds))
		return err_set(e, EPROTO, "operation %u with %d fds", in->r.op, in->nfds);
	if (in->r.id == 0)
		return err_set(e, EPROTO, "a request without an id");
	return 0;
}

static void send_packet(struct broker *b, const struct link_packet *p, int fd)
{
	if (!fdpass_send(b->worker.fd, p, sizeof(*p), fd))
		return;
	if (errno != EPIPE && errno != ECONNRESET) /* its end is read, after what it said last */
		broke(b, strerror(errno));
}

/* Nothing else is answered before a list has ended. */
static bool is_listing(const struct broker *b)
{
	return broker_state_listing(b->states) || volume_list_listing(&b->volumes);
}

static void answer(struct broker *b, const struct broker_request *in)
{
	struct link_packet reply = {.id = in->r.id, .what = LINK_REPLY};
	struct err why = {.code = 0};
	struct request q = {.r = &in->r,
	    .fd = in->fd,
	    .reply = &reply,
	    .reply_fd = -1,
	    .given_fd = -1,
	    .why = &why};
	int rc = 0;

	if (in->lost_fd)
		rc = err_set(&why, EMFILE, "the broker is out of file descriptors");
	else if (table[in->r.op].of_pod && !(q.pod = pods_find(b->pods, &in->r.uid, &why)))
		rc = -1;
	if (rc || table[in->r.op].act(b, &q)) {
		reply = (struct link_packet){
		    .id = in->r.id, .what = LINK_REPLY, .code = why.code ? why.code : EIO};
		snprintf(reply.why, sizeof(reply.why), "%s", why.msg);
		q.reply_fd = -1;
	}
	if (b->state == BROKER_SERVING && !is_listing(b))
		send_packet(b, &reply, q.given_fd >= 0 ? q.given_fd : q.reply_fd);
	mem_closep(&q.given_fd);
}

static bool push_listed(struct broker *b)
{
	struct link_packet p;
	int fd;

	if (broker_state_listing(b->states))
		broker_state_next(b->states, &p, &fd);
	else
		volume_list_next(&b->volumes, &p, &fd);
	send_packet(b, &p, fd);
	mem_closep(&fd);
	return b->state == BROKER_SERVING;
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
		b->state = LIFE_WORKER_LEFT;
		return false;
	}
	if (got == BROKER_GOT_GARBAGE || check_shape(&in, &why))
		broke(b, why.msg);
	else
		answer(b, &in);
	mem_closep(&in.fd);
	return b->state == BROKER_SERVING;
}

static bool is_pending(const struct broker *b)
{
	return pods_pending(b->pods) || redirect_requests_pending(b->traffic) ||
	       follows_pending(b->follows) || requests_node_pending(b->node);
}

/* One packet that nobody asked for now. */
static bool push(struct broker *b)
{
	struct link_packet p;
	int fd;

	if (!is_pending(b))
		return false;
	if (pods_pending(b->pods)) {
		pods_next(b->pods, &p, &fd);
		send_packet(b, &p, fd);
		return b->state == BROKER_SERVING;
	}
	if (requests_node_pending(b->node)) {
		requests_node_next(b->node, &p);
		send_packet(b, &p, -1);
		return b->state == BROKER_SERVING;
	}
	if (redirect_requests_next(b->traffic, &p, &fd)) {
		if (p.what == LINK_REDIRECT_NOTE && !p.arg)
			pod_sockets_end(b->dns, &p.uid); /* not live: nobody serves it */
		send_packet(b, &p, fd);
		mem_closep(&fd);
		return b->state == BROKER_SERVING;
	}
	if (follows_next(b->follows, &p, &fd))
		send_packet(b, &p, fd);
	mem_closep(&fd);
	return b->state == BROKER_SERVING;
}

static void want(struct broker *b)
{
	if (b->state != BROKER_SERVING || !b->attached)
		return;
	if (!broker_io_writable(b->worker.fd))
		broker_watch_want(b->epoll, &b->worker, EPOLLOUT);
	else if (is_pending(b) || is_listing(b))
		broker_watch_want(b->epoll, &b->worker, EPOLLIN | EPOLLOUT);
	else
		broker_watch_want(b->epoll, &b->worker, EPOLLIN);
}

static void on_worker(void *ctx, uint32_t events)
{
	struct broker *b = ctx;

	(void)events;
	for (int i = 0; i < PER_TURN && broker_io_writable(b->worker.fd); i++)
		if (!(is_listing(b) ? push_listed(b) : take_request(b)))
			break;
	for (int i = 0; i < PER_TURN && b->state == BROKER_SERVING; i++)
		if (!broker_io_writable(b->worker.fd) || !push(b))
			break;
	want(b);
}

static void on_changed(void *ctx)
{
	want(ctx);
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
		broke(b, "it keeps shutting sockets down");
	want(b);
}

static void on_node_broke(void *ctx, const char *why)
{
	struct broker *b = ctx;

	if (b->attached && b->state == BROKER_SERVING)
		broke(b, why);
}

static void on_csi_renewed(void *ctx)
{
	struct broker *b = ctx;

	if (!b->attached || b->state != BROKER_SERVING)
		return;
	log_warn(NULL,
	    "the worker's csi.sock is dead: another worker takes its place, with the new one");
	b->state = LIFE_WORKER_BROKE;
}

/* --- life --- */

int broker_epoll(const struct broker *b)
{
	return b->epoll;
}

static int on_netns_asked(void *ctx, const struct uuid *pod, uint64_t cgroup)
{
	struct broker *b = ctx;
	struct err e;
	const struct broker_pod *known = pods_find(b->pods, pod, &e);

	return known ? broker_pod_netns_in(known, cgroup) : -1;
}

static void on_emptied(void *ctx, const struct uuid *pod)
{
	struct broker *b = ctx;

	if (b->dns)
		pod_sockets_end(b->dns, pod);
	if (b->traffic)
		redirect_requests_emptied(b->traffic, pod);
}

static bool on_gone_asked(void *ctx, const struct uuid *pod)
{
	return redirect_requests_gone(((struct broker *)ctx)->traffic, pod);
}

static void on_of_host(void *ctx, const struct uuid *pod)
{
	redirect_requests_of_host(((struct broker *)ctx)->traffic, pod);
}

static int on_dns_place(void *ctx, const struct uuid *pod, uint16_t *port, struct err *e)
{
	return redirect_requests_dns_place(((struct broker *)ctx)->traffic, pod, port, e);
}

static int on_dns_mark(void *ctx, const struct uuid *pod, int socket, bool answered, struct err *e)
{
	return redirect_requests_dns_mark(
	    ((struct broker *)ctx)->traffic, pod, socket, answered, e);
}

static int start(struct broker *b, struct err *e)
{
	if ((b->epoll = broker_loop_new()) < 0)
		return err_sys(e, "epoll");
	if (broker_rundir_open(&b->rundir, b->options->run, b->kept, e) ||
	    netns_home_open(&b->home, b->kept, e))
		return -1;
	if (!(b->node =
		    requests_node_new(&(struct requests_node_rig){b->epoll, b->options, b->kept,
					  &b->home, on_node_broke, on_csi_renewed, on_changed, b},
			e)))
		return -1;
	if (!(b->states = broker_state_new(b->options, b->kept, e)))
		return -1;
	b->pods = pods_new(&(struct pods_rig){b->epoll, b->options, &b->home, b->kept, b->states,
	    on_renewed, on_gone_asked, on_emptied, on_of_host, b});
	b->follows = follows_new(b->epoll, b->options, on_changed, b, e);
	b->traffic =
	    b->follows ? redirect_requests_new(&(struct redirect_requests_rig){b->epoll, b->options,
						   &b->home, on_changed, on_netns_asked, b},
			     e)
		       : NULL;
	b->dns = pod_sockets_new(
	    &(struct pod_sockets_rig){b->epoll, &b->home, on_dns_place, on_dns_mark, b});
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
	close(b->worker.fd);
	end_lists(b);
	pod_sockets_detach(b->dns);
	redirect_requests_detach(b->traffic);
	b->attached = false;
}

/* What a dead worker asked for before it died is done: a certificate it wanted kept is not signed
 * again. */
static void hear_last_words(struct broker *b)
{
	if (!b->attached)
		return;
	end_lists(b);
	while (b->state == BROKER_SERVING && !is_listing(b) && take_request(b))
		;
}

void broker_detach(struct broker *b)
{
	hear_last_words(b);
	hang_up(b);
	follows_clear(b->follows);
	pods_generation(b->pods);
	b->ready = false;
	b->renewed = 0;
}

void broker_observe(struct broker *b, const struct broker_events *ev, void *ctx)
{
	b->ev = *ev;
	b->ctx = ctx;
}

void broker_free(struct broker **b)
{
	if (!*b)
		return;
	hang_up(*b);
	pod_sockets_free(&(*b)->dns);
	redirect_requests_free(&(*b)->traffic);
	follows_free(&(*b)->follows);
	pods_free(&(*b)->pods);
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
	b->worker = (struct broker_watch){.fd = fd, .ready = on_worker, .ctx = b};
	b->state = BROKER_SERVING;
	if (requests_node_greet(b->node, fd, e)) {
		close(fd);
		return -1;
	}
	if (broker_watch_start(b->epoll, &b->worker, EPOLLIN)) {
		close(fd);
		return err_sys(e, "serve the worker");
	}
	b->attached = true;
	want(b); /* something may be there to be told */
	return 0;
}

void broker_ping(struct broker *b, uint32_t ping)
{
	struct link_packet p = {.what = LINK_PING, .arg = ping};

	if (b->attached && b->state == BROKER_SERVING && broker_io_writable(b->worker.fd))
		send_packet(b, &p, -1);
}

enum broker_state broker_turn(struct broker *b, int timeout_ms)
{
	/* Nothing more is taken from a worker that left or broke the rules. */
	if (b->state != BROKER_SERVING)
		hang_up(b);
	broker_loop_turn(b->epoll, timeout_ms);
	return b->state;
}
