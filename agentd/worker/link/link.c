/* link.c - the worker's end of the pair: requests out, answers and followed files in.
 *
 * link_new() blocks for the greeting and the node's listeners, which the broker wrote before this
 * process existed.  From then on a request is one packet (queued only while the socket is full); it
 * leaves a `call` behind, which the answer of the same id finds.  An answer that finds none was
 * cancelled: its fd is closed and that is all.  Files arrive at any time under the id of their
 * LINK_FOLLOW.  One packet is taken for each turn of the loop, so nothing here is touched after a
 * callback ran: it may cancel, end a follow or free us.  EOF: `lost`, once, and silence.
 */
#include "link.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include "link_internal.h"
#include "memfd.h"
#include "worker/base/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <uthash.h>
#include <utlist.h>

LOG_SCOPE("link");

struct link_follow {
	struct link *p;
	uint32_t id;
	link_changed changed;
	void *ctx;
	UT_hash_handle hh;
};

struct relisten {
	struct uuid pod;
	link_relisten again;
	void *ctx;
	UT_hash_handle hh;
};

/* A request that found the socket full. */
struct queued {
	struct link_request req;
	int fd;
	struct queued *prev, *next;
};

struct link {
	struct loop *loop;
	int fd;
	struct loop_fd readable, writable;
	struct queued *queue;
	struct link_call *calls;     /* by id */
	struct link_follow *follows; /* by id */
	struct relisten *relistens;  /* by pod */
	link_redirect_noted redirect_noted;
	void *redirect_ctx;
	link_csi_noted csi_noted;
	void *csi_ctx;
	uint32_t last_id;
	enum link_attest attest;
	int listeners[LINK_NODE_LISTENER_END];
	void (*lost)(void *ctx);
	void *lost_ctx;
};

/* --- packets --- */

enum received { RECEIVED, NOTHING, GONE, BROKEN };

/* RECEIVED: its fd (or -1) is in `fd`.  BROKEN: `e` says why. */
static enum received receive(int sock, struct link_packet *in, int *fd, struct err *e)
{
	struct fdpass_got got;
	int rc = fdpass_receive(sock, in, sizeof(*in), 0, &got);

	*fd = got.fd;
	if (rc && errno == EAGAIN)
		return NOTHING;
	if (rc && errno == ECONNRESET)
		return GONE;
	if (rc) {
		err_sys(e, "read from the broker");
		return BROKEN;
	}
	if (got.size == sizeof(*in) && got.nfds <= 1 && !got.cut && !got.lost) {
		in->name[sizeof(in->name) - 1] = in->why[sizeof(in->why) - 1] = '\0';
		return RECEIVED;
	}
	mem_closep(fd);
	*fd = -1;
	if (got.size == 0)
		return GONE;
	err_set(e, EPROTO, "a packet of %zd bytes instead of %zu, with %u fds%s", got.size,
	    sizeof(*in), got.nfds, got.lost ? ", and none was left for another one" : "");
	return BROKEN;
}

static int send_request(const struct link *p, const struct link_request *req, int fd)
{
	return fdpass_send(p->fd, req, sizeof(*req), fd);
}

static void queued_drop(struct link *p, struct queued *q)
{
	DL_DELETE(p->queue, q);
	mem_closep(&q->fd);
	free(q);
}

static void on_writable(void *ctx)
{
	struct link *p = ctx;

	while (p->queue) {
		if (send_request(p, &p->queue->req, p->queue->fd) && errno == EAGAIN)
			return;
		queued_drop(
		    p, p->queue); /* sent; or the broker is gone, which on_readable() tells */
	}
	loop_fd_stop(&p->writable);
}

/* -1: neither sent nor queued. */
static int transmit(struct link *p, const struct link_request *req, int fd)
{
	int copy = -1;

	if (!p->queue && !(send_request(p, req, fd) && errno == EAGAIN))
		return 0;
	if (fd >= 0 && (copy = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
		return -1; /* without it the request would be one that breaks the protocol */
	struct queued *q = mem_zalloc(sizeof(*q));
	q->req = *req;
	q->fd = copy;
	if (!p->queue)
		loop_fd_watch(p->loop, &p->writable, p->fd, LOOP_WRITE, on_writable, p);
	DL_APPEND(p->queue, q);
	return 0;
}

/* --- requests --- */

/* Ids are used once in 2^32 requests; 0 is nobody's, and a follow keeps its own as long as it
 * lives. */
static uint32_t next_id(struct link *p)
{
	struct link_follow *f;

	do {
		if (!++p->last_id)
			p->last_id = 1;
		HASH_FIND(hh, p->follows, &p->last_id, sizeof(p->last_id), f);
	} while (f);
	return p->last_id;
}

struct link_call *link_call_new(
    struct link *p, struct link_call **slot, enum link_op op, const struct uuid *pod, void *ctx)
{
	struct link_call *c = mem_zalloc(sizeof(*c));

	c->p = p;
	c->op = op;
	c->id = next_id(p);
	c->pod = *pod;
	c->ctx = ctx;
	c->slot = slot;
	if (slot)
		*slot = c;
	HASH_ADD(hh, p->calls, id, sizeof(c->id), c);
	return c;
}

static void call_send(struct link_call *c, int kind, int fd)
{
	struct link_request req = {
	    .id = c->id, .op = (uint16_t)c->op, .kind = (uint16_t)kind, .uid = c->pod};

	if (c->op == LINK_PEER_OF)
		req.arg = c->p->attest;
	link_call_transmit(c, &req, fd);
}

void link_call_drop(struct link_call *c)
{
	HASH_DEL(c->p->calls, c);
	loop_timer_stop(&c->soon);
	if (c->slot)
		*c->slot = NULL;
	free(c);
}

void link_call_cancel(struct link_call **c)
{
	if (*c)
		link_call_drop(*c);
}

void link_pod_add(
    struct link *p, struct link_call **slot, const struct uuid *pod, link_done done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, LINK_POD_ADD, pod, ctx);

	c->done = done;
	call_send(c, 0, -1);
}

void link_pod_remove(struct link *p, const struct uuid *pod)
{
	call_send(link_call_new(p, NULL, LINK_POD_REMOVE, pod, NULL), 0, -1);
}

void link_listen(struct link *p, struct link_call **slot, const struct uuid *pod,
    enum link_listener kind, link_listening done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, LINK_LISTEN, pod, ctx);

	c->listening = done;
	call_send(c, kind, -1);
}

void link_peer_of(struct link *p, struct link_call **slot, const struct uuid *pod, int fd,
    link_peer_known done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, LINK_PEER_OF, pod, ctx);

	c->peer_known = done;
	call_send(c, 0, fd);
}

void link_require_attestation(struct link *p)
{
	p->attest = LINK_ATTEST_REQUIRE;
}

void link_write(
    struct link *p, const struct uuid *pod, enum link_file file, const void *data, size_t size)
{
	char uid[UUID_TEXT_SIZE];
	struct err e;
	auto_close int fd = -1;

	uuid_format(pod, uid);
	if (size > LINK_FILE_SIZE_MAX) {
		log_error(uid, "a file of %zu bytes for the pod: 1 MiB at most", size);
		return;
	}
	if ((fd = link_memfd_sealed(data, size, &e)) < 0) {
		log_error(uid, "a file for the pod: %s", e.msg);
		return;
	}
	call_send(link_call_new(p, NULL, LINK_WRITE, pod, NULL), file, fd);
}

struct link_follow *link_follow(struct link *p, enum link_followed what, const struct uuid *pod,
    unsigned plane, link_changed changed, void *ctx)
{
	struct link_follow *f = mem_zalloc(sizeof(*f));
	struct link_request req = {.op = LINK_FOLLOW, .kind = (uint16_t)what, .arg = plane};

	f->p = p;
	f->id = req.id = next_id(p);
	f->changed = changed;
	f->ctx = ctx;
	if (pod)
		req.uid = *pod;
	HASH_ADD(hh, p->follows, id, sizeof(f->id), f);
	transmit(p, &req, -1);
	return f;
}

static void follow_drop(struct link_follow *f)
{
	HASH_DEL(f->p->follows, f);
	free(f);
}

void link_unfollow(struct link_follow **f)
{
	if (!*f)
		return;
	struct link_follow *was = take(*f);
	static const struct uuid nobody;
	struct link_call *c = link_call_new(was->p, NULL, LINK_UNFOLLOW, &nobody, NULL);
	struct link_request req = {.id = c->id, .op = LINK_UNFOLLOW, .arg = was->id};

	transmit(was->p, &req, -1);
	follow_drop(was);
}

/* --- what the broker asks --- */

void link_ready(struct link *p)
{
	static const struct uuid nobody;

	call_send(link_call_new(p, NULL, LINK_READY, &nobody, NULL), 0, -1);
}

/* That it is answered from here, by a turn of the loop, is what the broker wants to know. */
static void answer_ping(struct link *p, const struct link_packet *in)
{
	struct link_request pong = {.id = next_id(p), .op = LINK_PONG, .arg = in->arg};

	transmit(p, &pong, -1);
}

static void relisten_drop(struct link *p, struct relisten *r)
{
	HASH_DEL(p->relistens, r); /* NOLINT(clang-analyzer-*): uthash */
	free(r);
}

void link_on_relisten(struct link *p, const struct uuid *pod, link_relisten again, void *ctx)
{
	struct relisten *r;

	HASH_FIND(hh, p->relistens, pod, sizeof(*pod), r);
	if (r)
		relisten_drop(p, r);
	if (!again)
		return;
	r = mem_zalloc(sizeof(*r));
	r->pod = *pod;
	r->again = again;
	r->ctx = ctx;
	HASH_ADD(hh, p->relistens, pod, sizeof(r->pod), r);
}

static void take_listener(struct link *p, const struct link_packet *in, int fd)
{
	struct relisten *r;

	HASH_FIND(hh, p->relistens, &in->uid, sizeof(in->uid), r);
	if (!r || fd < 0 || in->kind >= LINK_LISTENER_END)
		mem_closep(&fd);
	else
		r->again(r->ctx, (enum link_listener)in->kind, fd);
}

/* --- answers --- */

static void answer_peer(
    const struct link_call *c, const struct link_packet *in, const struct err *e)
{
	struct link_peer n = {.cookie = in->netns_cookie,
	    .cgroup_id = in->cgroup_id,
	    .unknown = in->cgroup_id ? "" : in->why,
	    .naddresses = in->naddresses > LINK_ADDRESSES_MAX ? LINK_ADDRESSES_MAX : in->naddresses,
	    .addresses = in->addresses};

	c->peer_known(c->ctx, e, e ? NULL : &n);
}

static void log_failure(const struct link_call *c, const struct err *e)
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(&c->pod, uid);
	log_warn(uid, "the broker refused to %s: %s",
	    c->op == LINK_WRITE        ? "write the pod's file"
	    : c->op == LINK_POD_REMOVE ? "remove the pod's directory"
	    : c->op == LINK_STATE_DEL  ? "forget what was kept"
	    : c->op == LINK_READY      ? "be told that all is ready"
	    : c->op == LINK_LOG        ? "log as the worker does"
				       : "end a follow",
	    e->msg);
}

/* Answers that carry a socket, a map or a pipe. */
static bool has_fd(const struct link_call *c)
{
	return c && (c->op == LINK_LISTEN || c->op == LINK_REDIRECT_COUNTERS ||
			c->op == LINK_REDIRECT_TRACE || c->op == LINK_DIAL);
}

/* Answers that say yes or no. */
static bool has_done(const struct link_call *c)
{
	return c->op == LINK_POD_ADD || c->op == LINK_STATE_PUT || c->op == LINK_CALLER ||
	       c->op == LINK_PUBLISH || c->op == LINK_UNPUBLISH;
}

static void call_answer(
    struct link_call *c, const struct link_packet *in, const struct err *e, int fd)
{
	struct link_call was = *c;

	if (was.op == LINK_REDIRECT_SET && !e)
		return;    /* accepted; LINK_REDIRECTED is the answer */
	link_call_drop(c); /* R3, and the callback may start the next one in the same slot */
	if (has_fd(&was)) {
		was.listening(was.ctx, e, fd);
		return;
	}
	mem_closep(&fd);
	if (was.op == LINK_PEER_OF)
		answer_peer(&was, in, e);
	else if (has_done(&was))
		was.done(was.ctx, e);
	else if (was.op == LINK_REDIRECT_EXPLAIN)
		was.explained(was.ctx, e, in->arg);
	else if (was.op == LINK_REDIRECT_SET)
		was.redirected(was.ctx, e, 0, NULL);
	else if (was.op == LINK_STATE_LIST)
		was.kept_found(was.ctx, &(struct link_kept){.e = e});
	else if (was.op == LINK_VOLUMES)
		was.volume_found(was.ctx, &(struct link_volume){.e = e});
	else if (e)
		log_failure(&was, e);
}

static void on_unsent(void *ctx)
{
	struct link_call *c = ctx;
	static const struct link_packet nothing;
	struct err e;

	err_set(&e, EMFILE, "it cannot be sent: too many open files");
	call_answer(c, &nothing, &e, -1);
}

/* R2: told by a turn of the loop. */
void link_call_unsent(struct link_call *c)
{
	loop_timer_in(c->p->loop, &c->soon, 0, on_unsent, c);
}

void link_call_transmit(struct link_call *c, const struct link_request *req, int fd)
{
	if (transmit(c->p, req, fd))
		link_call_unsent(c);
}

static void take_reply(struct link *p, const struct link_packet *in, int fd)
{
	struct link_call *c;
	struct link_follow *f;
	struct err refusal;
	const struct err *e = NULL;

	HASH_FIND(hh, p->calls, &in->id, sizeof(in->id), c);
	HASH_FIND(hh, p->follows, &in->id, sizeof(in->id), f);
	if (in->code) {
		err_set(&refusal, in->code, "%s", in->why);
		e = &refusal;
	} else if (has_fd(c) && fd < 0) {
		err_set(&refusal, EPROTO, "the broker's answer lacks its descriptor");
		e = &refusal;
	}
	if (e || !has_fd(c)) { /* also a late answer's: cancelled */
		mem_closep(&fd);
		fd = -1;
	}
	if (c)
		call_answer(c, in, e, fd);
	else if (f && e) /* it cannot be followed at all */
		f->changed(f->ctx, &(struct link_content){.name = "", .e = e});
}

void link_on_redirect(struct link *p, link_redirect_noted noted, void *ctx)
{
	p->redirect_noted = noted;
	p->redirect_ctx = ctx;
}

void link_on_csi(struct link *p, link_csi_noted noted, void *ctx)
{
	p->csi_noted = noted;
	p->csi_ctx = ctx;
}

static void take_note(const struct link *p, const struct link_packet *in)
{
	static const struct uuid nobody;
	bool of_pod = !uuid_equal(&in->uid, &nobody);
	struct err e;

	if (in->code)
		err_set(&e, in->code, "%s", in->why);
	if (p->redirect_noted)
		p->redirect_noted(
		    p->redirect_ctx, of_pod ? &in->uid : NULL, in->code ? &e : NULL, in->arg);
}

/* --- followed files --- */

static void take_file(struct link *p, const struct link_packet *in, int received)
{
	auto_close int fd = received;
	struct link_content content = {.name = in->name};
	struct link_follow *f;
	char *data = NULL;
	struct err e;

	HASH_FIND(hh, p->follows, &in->id, sizeof(in->id), f);
	if (!f)
		return; /* ended while this was under way */
	if (in->state == LINK_FILE_CONTENT)
		content.data = data = link_memfd_read(fd, &content.size, &e);
	else if (in->state == LINK_FILE_SYNCED)
		content.synced = true;
	else
		err_set(&e, in->state == LINK_FILE_REMOVED ? ENOENT : EACCES, "%s", in->why);
	if (!content.data && !content.synced)
		content.e = &e;
	f->changed(f->ctx, &content);
	if (data)
		explicit_bzero(data, content.size); /* it may have been a token */
	free(data);
}

static void go_silent(struct link *p)
{
	loop_fd_stop(&p->readable);
	loop_fd_stop(&p->writable);
	while (p->queue)
		queued_drop(p, p->queue);
}

static void on_readable(void *ctx)
{
	struct link *p = ctx;
	struct link_packet in;
	struct link_call *c;
	struct err e = {0};
	int fd;
	enum received got = receive(p->fd, &in, &fd, &e);

	if (got == NOTHING)
		return;
	if (got != RECEIVED) {
		if (got == BROKEN)
			log_error(NULL, "%s", e.msg);
		go_silent(p);
		p->lost(p->lost_ctx);
	} else if (in.what == LINK_REPLY) {
		take_reply(p, &in, fd);
	} else if (in.what == LINK_FILE) {
		take_file(p, &in, fd);
	} else if (in.what == LINK_LISTENER) {
		take_listener(p, &in, fd);
	} else if (in.what == LINK_STATE) {
		HASH_FIND(hh, p->calls, &in.id, sizeof(in.id), c);
		link_state_take(c, &in, fd);
	} else if (in.what == LINK_VOLUME) {
		HASH_FIND(hh, p->calls, &in.id, sizeof(in.id), c);
		link_volume_take(c, &in, fd);
	} else if (in.what == LINK_REDIRECTED) {
		HASH_FIND(hh, p->calls, &in.id, sizeof(in.id), c);
		link_redirect_take(c, &in, fd);
	} else {
		mem_closep(&fd);
		if (in.what == LINK_PING)
			answer_ping(p, &in);
		else if (in.what == LINK_REDIRECT_NOTE)
			take_note(p, &in);
		else if (in.what == LINK_CSI_NOTE && p->csi_noted)
			p->csi_noted(p->csi_ctx, in.arg);
	}
}

/* --- life --- */

/* Blocks: the socket is not yet non-blocking. */
static int receive_greeting(struct link *p, struct link_packet *in, int *fd, struct err *e)
{
	enum received got = receive(p->fd, in, fd, e);

	if (got == GONE)
		return err_set(e, ERR_UNAVAILABLE, "the broker went away");
	return got == RECEIVED ? 0 : -1;
}

static int receive_listener(struct link *p, struct err *e)
{
	struct link_packet in;
	int fd;

	if (receive_greeting(p, &in, &fd, e))
		return -1;
	if (in.what != LINK_NODE_LISTENER || in.kind >= LINK_NODE_LISTENER_END || fd < 0 ||
	    p->listeners[in.kind] >= 0) {
		mem_closep(&fd);
		return err_set(e, EPROTO, "the broker sent something else than a listener");
	}
	p->listeners[in.kind] = fd;
	return 0;
}

static int receive_hello(struct link *p, struct err *e)
{
	struct link_packet in;
	int fd;

	if (receive_greeting(p, &in, &fd, e))
		return -1;
	mem_closep(&fd);
	if (in.what != LINK_HELLO || in.arg != LINK_VERSION)
		return err_set(e, EPROTO,
		    "broker and worker are not of one release (protocol %u here, %u there)",
		    LINK_VERSION, in.arg);
	for (int i = 0; i < in.kind; i++)
		if (receive_listener(p, e))
			return -1;
	return 0;
}

struct link *link_new(struct loop *l, int fd, void (*lost)(void *ctx), void *ctx, struct err *e)
{
	struct link *p = mem_zalloc(sizeof(*p));

	p->loop = l;
	p->fd = fd;
	p->lost = lost;
	p->lost_ctx = ctx;
	for (int i = 0; i < LINK_NODE_LISTENER_END; i++)
		p->listeners[i] = -1;
	if (receive_hello(p, e) || (fcntl(fd, F_SETFL, O_NONBLOCK) && err_sys(e, "fcntl"))) {
		err_wrap(e, "greeting of the broker");
		link_free(&p);
		return NULL;
	}
	loop_fd_watch(l, &p->readable, fd, LOOP_READ, on_readable, p);
	return p;
}

/* Callers' slots are emptied.  Follows should have been ended: their owners hold pointers to them.
 */
void link_free(struct link **pp)
{
	struct link_call *c, *ctmp;
	struct link_follow *f, *ftmp;
	struct relisten *r, *rtmp;

	if (!*pp)
		return;
	struct link *p = take(*pp);
	go_silent(p);
	HASH_ITER (hh, p->calls, c, ctmp)
		link_call_drop(c);
	HASH_ITER (hh, p->follows, f, ftmp)
		follow_drop(f);
	HASH_ITER (hh, p->relistens, r, rtmp)
		relisten_drop(p, r);
	for (int i = 0; i < LINK_NODE_LISTENER_END; i++)
		mem_closep(&p->listeners[i]);
	close(p->fd);
	free(p);
}

int link_take_listener(struct link *p, enum link_node_listener kind)
{
	return take_fd(p->listeners[kind]);
}
