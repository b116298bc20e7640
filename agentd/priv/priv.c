/* priv.c - the worker's end of the pair: requests out, answers and followed files in.
 *
 * priv_new() blocks for the greeting and the node's listeners, which the broker wrote before this
 * process existed.  From then on a request is one packet (queued only while the socket is full); it
 * leaves a `call` behind, which the answer of the same id finds.  An answer that finds none was
 * cancelled: its fd is closed and that is all.  Files arrive at any time under the id of their
 * PRIV_FOLLOW.  One packet is taken for each turn of the loop, so nothing here is touched after a
 * callback ran: it may cancel, end a follow or free us.  EOF: `lost`, once, and silence.
 */
#include "priv.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include "priv_internal.h"
#include "priv_memfd.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <uthash.h>
#include <utlist.h>

LOG_SCOPE("priv");

struct priv_follow {
	struct priv *p;
	uint32_t id;
	priv_changed changed;
	void *ctx;
	UT_hash_handle hh;
};

struct relisten {
	struct uuid pod;
	priv_relisten again;
	void *ctx;
	UT_hash_handle hh;
};

/* A request that found the socket full. */
struct queued {
	struct priv_request req;
	int fd;
	struct queued *prev, *next;
};

struct priv {
	struct loop *loop;
	int fd;
	struct loop_fd readable, writable;
	struct queued *queue;
	struct priv_call *calls;     /* by id */
	struct priv_follow *follows; /* by id */
	struct relisten *relistens;  /* by pod */
	priv_redirect_noted redirect_noted;
	void *redirect_ctx;
	priv_csi_noted csi_noted;
	void *csi_ctx;
	uint32_t last_id;
	enum priv_attest attest;
	int listeners[PRIV_NODE_LISTENER_END];
	void (*lost)(void *ctx);
	void *lost_ctx;
};

/* --- packets --- */

enum received { RECEIVED, NOTHING, GONE, BROKEN };

/* RECEIVED: its fd (or -1) is in `fd`.  BROKEN: `e` says why. */
static enum received receive(int sock, struct priv_packet *in, int *fd, struct err *e)
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

static int send_request(const struct priv *p, const struct priv_request *req, int fd)
{
	return fdpass_send(p->fd, req, sizeof(*req), fd);
}

static void queued_drop(struct priv *p, struct queued *q)
{
	DL_DELETE(p->queue, q);
	mem_closep(&q->fd);
	free(q);
}

static void on_writable(void *ctx)
{
	struct priv *p = ctx;

	while (p->queue) {
		if (send_request(p, &p->queue->req, p->queue->fd) && errno == EAGAIN)
			return;
		queued_drop(
		    p, p->queue); /* sent; or the broker is gone, which on_readable() tells */
	}
	loop_fd_stop(&p->writable);
}

/* -1: neither sent nor queued. */
static int transmit(struct priv *p, const struct priv_request *req, int fd)
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
static uint32_t next_id(struct priv *p)
{
	struct priv_follow *f;

	do {
		if (!++p->last_id)
			p->last_id = 1;
		HASH_FIND(hh, p->follows, &p->last_id, sizeof(p->last_id), f);
	} while (f);
	return p->last_id;
}

struct priv_call *priv_call_new(
    struct priv *p, struct priv_call **slot, enum priv_op op, const struct uuid *pod, void *ctx)
{
	struct priv_call *c = mem_zalloc(sizeof(*c));

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

static void call_send(struct priv_call *c, int kind, int fd)
{
	struct priv_request req = {
	    .id = c->id, .op = (uint16_t)c->op, .kind = (uint16_t)kind, .uid = c->pod};

	if (c->op == PRIV_PEER_OF)
		req.arg = c->p->attest;
	priv_call_transmit(c, &req, fd);
}

void priv_call_drop(struct priv_call *c)
{
	HASH_DEL(c->p->calls, c);
	loop_timer_stop(&c->soon);
	if (c->slot)
		*c->slot = NULL;
	free(c);
}

void priv_call_cancel(struct priv_call **c)
{
	if (*c)
		priv_call_drop(*c);
}

void priv_pod_add(
    struct priv *p, struct priv_call **slot, const struct uuid *pod, priv_done done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_POD_ADD, pod, ctx);

	c->done = done;
	call_send(c, 0, -1);
}

void priv_pod_remove(struct priv *p, const struct uuid *pod)
{
	call_send(priv_call_new(p, NULL, PRIV_POD_REMOVE, pod, NULL), 0, -1);
}

void priv_listen(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    enum priv_listener kind, priv_listening done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_LISTEN, pod, ctx);

	c->listening = done;
	call_send(c, kind, -1);
}

void priv_peer_of(struct priv *p, struct priv_call **slot, const struct uuid *pod, int fd,
    priv_peer_known done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_PEER_OF, pod, ctx);

	c->peer_known = done;
	call_send(c, 0, fd);
}

void priv_require_attestation(struct priv *p)
{
	p->attest = PRIV_ATTEST_REQUIRE;
}

void priv_write(
    struct priv *p, const struct uuid *pod, enum priv_file file, const void *data, size_t size)
{
	char uid[UUID_TEXT_SIZE];
	struct err e;
	auto_close int fd = -1;

	uuid_format(pod, uid);
	if (size > PRIV_FILE_SIZE_MAX) {
		log_error(uid, "a file of %zu bytes for the pod: 1 MiB at most", size);
		return;
	}
	if ((fd = priv_memfd_sealed(data, size, &e)) < 0) {
		log_error(uid, "a file for the pod: %s", e.msg);
		return;
	}
	call_send(priv_call_new(p, NULL, PRIV_WRITE, pod, NULL), file, fd);
}

struct priv_follow *priv_follow(struct priv *p, enum priv_followed what, const struct uuid *pod,
    unsigned plane, priv_changed changed, void *ctx)
{
	struct priv_follow *f = mem_zalloc(sizeof(*f));
	struct priv_request req = {.op = PRIV_FOLLOW, .kind = (uint16_t)what, .arg = plane};

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

static void follow_drop(struct priv_follow *f)
{
	HASH_DEL(f->p->follows, f);
	free(f);
}

void priv_unfollow(struct priv_follow **f)
{
	if (!*f)
		return;
	struct priv_follow *was = take(*f);
	static const struct uuid nobody;
	struct priv_call *c = priv_call_new(was->p, NULL, PRIV_UNFOLLOW, &nobody, NULL);
	struct priv_request req = {.id = c->id, .op = PRIV_UNFOLLOW, .arg = was->id};

	transmit(was->p, &req, -1);
	follow_drop(was);
}

/* --- what the broker asks --- */

void priv_ready(struct priv *p)
{
	static const struct uuid nobody;

	call_send(priv_call_new(p, NULL, PRIV_READY, &nobody, NULL), 0, -1);
}

/* That it is answered from here, by a turn of the loop, is what the broker wants to know. */
static void answer_ping(struct priv *p, const struct priv_packet *in)
{
	struct priv_request pong = {.id = next_id(p), .op = PRIV_PONG, .arg = in->arg};

	transmit(p, &pong, -1);
}

static void relisten_drop(struct priv *p, struct relisten *r)
{
	HASH_DEL(p->relistens, r); /* NOLINT(clang-analyzer-*): uthash */
	free(r);
}

void priv_on_relisten(struct priv *p, const struct uuid *pod, priv_relisten again, void *ctx)
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

static void take_listener(struct priv *p, const struct priv_packet *in, int fd)
{
	struct relisten *r;

	HASH_FIND(hh, p->relistens, &in->uid, sizeof(in->uid), r);
	if (!r || fd < 0 || in->kind >= PRIV_LISTENER_END)
		mem_closep(&fd);
	else
		r->again(r->ctx, (enum priv_listener)in->kind, fd);
}

/* --- answers --- */

static void answer_peer(
    const struct priv_call *c, const struct priv_packet *in, const struct err *e)
{
	struct priv_peer n = {.cookie = in->netns_cookie,
	    .cgroup_id = in->cgroup_id,
	    .unknown = in->cgroup_id ? "" : in->why,
	    .naddresses = in->naddresses > PRIV_ADDRESSES_MAX ? PRIV_ADDRESSES_MAX : in->naddresses,
	    .addresses = in->addresses};

	c->peer_known(c->ctx, e, e ? NULL : &n);
}

static void log_failure(const struct priv_call *c, const struct err *e)
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(&c->pod, uid);
	log_warn(uid, "the broker refused to %s: %s",
	    c->op == PRIV_WRITE        ? "write the pod's file"
	    : c->op == PRIV_POD_REMOVE ? "remove the pod's directory"
	    : c->op == PRIV_STATE_DEL  ? "forget what was kept"
	    : c->op == PRIV_READY      ? "be told that all is ready"
				       : "end a follow",
	    e->msg);
}

/* Answers that carry a socket, a map or a pipe. */
static bool has_fd(const struct priv_call *c)
{
	return c && (c->op == PRIV_LISTEN || c->op == PRIV_REDIRECT_COUNTERS ||
			c->op == PRIV_REDIRECT_TRACE || c->op == PRIV_DIAL);
}

/* Answers that say yes or no. */
static bool has_done(const struct priv_call *c)
{
	return c->op == PRIV_POD_ADD || c->op == PRIV_STATE_PUT || c->op == PRIV_CALLER ||
	       c->op == PRIV_PUBLISH || c->op == PRIV_UNPUBLISH;
}

static void call_answer(
    struct priv_call *c, const struct priv_packet *in, const struct err *e, int fd)
{
	struct priv_call was = *c;

	if (was.op == PRIV_REDIRECT_SET && !e)
		return;    /* accepted; PRIV_REDIRECTED is the answer */
	priv_call_drop(c); /* R3, and the callback may start the next one in the same slot */
	if (has_fd(&was)) {
		was.listening(was.ctx, e, fd);
		return;
	}
	mem_closep(&fd);
	if (was.op == PRIV_PEER_OF)
		answer_peer(&was, in, e);
	else if (has_done(&was))
		was.done(was.ctx, e);
	else if (was.op == PRIV_REDIRECT_EXPLAIN)
		was.explained(was.ctx, e, in->arg);
	else if (was.op == PRIV_REDIRECT_SET)
		was.redirected(was.ctx, e, 0, NULL);
	else if (was.op == PRIV_STATE_LIST)
		was.kept_found(was.ctx, &(struct priv_kept){.e = e});
	else if (was.op == PRIV_VOLUMES)
		was.volume_found(was.ctx, &(struct priv_volume){.e = e});
	else if (e)
		log_failure(&was, e);
}

static void on_unsent(void *ctx)
{
	struct priv_call *c = ctx;
	static const struct priv_packet nothing;
	struct err e;

	err_set(&e, EMFILE, "it cannot be sent: too many open files");
	call_answer(c, &nothing, &e, -1);
}

/* R2: told by a turn of the loop. */
void priv_call_unsent(struct priv_call *c)
{
	loop_timer_in(c->p->loop, &c->soon, 0, on_unsent, c);
}

void priv_call_transmit(struct priv_call *c, const struct priv_request *req, int fd)
{
	if (transmit(c->p, req, fd))
		priv_call_unsent(c);
}

static void take_reply(struct priv *p, const struct priv_packet *in, int fd)
{
	struct priv_call *c;
	struct priv_follow *f;
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
		f->changed(f->ctx, &(struct priv_content){.name = "", .e = e});
}

void priv_on_redirect(struct priv *p, priv_redirect_noted noted, void *ctx)
{
	p->redirect_noted = noted;
	p->redirect_ctx = ctx;
}

void priv_on_csi(struct priv *p, priv_csi_noted noted, void *ctx)
{
	p->csi_noted = noted;
	p->csi_ctx = ctx;
}

static void take_note(const struct priv *p, const struct priv_packet *in)
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

static void take_file(struct priv *p, const struct priv_packet *in, int received)
{
	auto_close int fd = received;
	struct priv_content content = {.name = in->name};
	struct priv_follow *f;
	char *data = NULL;
	struct err e;

	HASH_FIND(hh, p->follows, &in->id, sizeof(in->id), f);
	if (!f)
		return; /* ended while this was under way */
	if (in->state == PRIV_FILE_CONTENT)
		content.data = data = priv_memfd_read(fd, &content.size, &e);
	else if (in->state == PRIV_FILE_SYNCED)
		content.synced = true;
	else
		err_set(&e, in->state == PRIV_FILE_REMOVED ? ENOENT : EACCES, "%s", in->why);
	if (!content.data && !content.synced)
		content.e = &e;
	f->changed(f->ctx, &content);
	if (data)
		explicit_bzero(data, content.size); /* it may have been a token */
	free(data);
}

static void go_silent(struct priv *p)
{
	loop_fd_stop(&p->readable);
	loop_fd_stop(&p->writable);
	while (p->queue)
		queued_drop(p, p->queue);
}

static void on_readable(void *ctx)
{
	struct priv *p = ctx;
	struct priv_packet in;
	struct priv_call *c;
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
	} else if (in.what == PRIV_REPLY) {
		take_reply(p, &in, fd);
	} else if (in.what == PRIV_FILE) {
		take_file(p, &in, fd);
	} else if (in.what == PRIV_LISTENER) {
		take_listener(p, &in, fd);
	} else if (in.what == PRIV_STATE) {
		HASH_FIND(hh, p->calls, &in.id, sizeof(in.id), c);
		priv_state_take(c, &in, fd);
	} else if (in.what == PRIV_VOLUME) {
		HASH_FIND(hh, p->calls, &in.id, sizeof(in.id), c);
		priv_volume_take(c, &in, fd);
	} else if (in.what == PRIV_REDIRECTED) {
		HASH_FIND(hh, p->calls, &in.id, sizeof(in.id), c);
		priv_redirect_take(c, &in, fd);
	} else {
		mem_closep(&fd);
		if (in.what == PRIV_PING)
			answer_ping(p, &in);
		else if (in.what == PRIV_REDIRECT_NOTE)
			take_note(p, &in);
		else if (in.what == PRIV_CSI_NOTE && p->csi_noted)
			p->csi_noted(p->csi_ctx, in.arg);
	}
}

/* --- life --- */

/* Blocks: the socket is not yet non-blocking. */
static int receive_greeting(struct priv *p, struct priv_packet *in, int *fd, struct err *e)
{
	enum received got = receive(p->fd, in, fd, e);

	if (got == GONE)
		return err_set(e, ERR_UNAVAILABLE, "the broker went away");
	return got == RECEIVED ? 0 : -1;
}

static int receive_listener(struct priv *p, struct err *e)
{
	struct priv_packet in;
	int fd;

	if (receive_greeting(p, &in, &fd, e))
		return -1;
	if (in.what != PRIV_NODE_LISTENER || in.kind >= PRIV_NODE_LISTENER_END || fd < 0 ||
	    p->listeners[in.kind] >= 0) {
		mem_closep(&fd);
		return err_set(e, EPROTO, "the broker sent something else than a listener");
	}
	p->listeners[in.kind] = fd;
	return 0;
}

static int receive_hello(struct priv *p, struct err *e)
{
	struct priv_packet in;
	int fd;

	if (receive_greeting(p, &in, &fd, e))
		return -1;
	mem_closep(&fd);
	if (in.what != PRIV_HELLO || in.arg != PRIV_VERSION)
		return err_set(e, EPROTO,
		    "broker and worker are not of one release (protocol %u here, %u there)",
		    PRIV_VERSION, in.arg);
	for (int i = 0; i < in.kind; i++)
		if (receive_listener(p, e))
			return -1;
	return 0;
}

struct priv *priv_new(struct loop *l, int fd, void (*lost)(void *ctx), void *ctx, struct err *e)
{
	struct priv *p = mem_zalloc(sizeof(*p));

	p->loop = l;
	p->fd = fd;
	p->lost = lost;
	p->lost_ctx = ctx;
	for (int i = 0; i < PRIV_NODE_LISTENER_END; i++)
		p->listeners[i] = -1;
	if (receive_hello(p, e) || (fcntl(fd, F_SETFL, O_NONBLOCK) && err_sys(e, "fcntl"))) {
		err_wrap(e, "greeting of the broker");
		priv_free(&p);
		return NULL;
	}
	loop_fd_watch(l, &p->readable, fd, LOOP_READ, on_readable, p);
	return p;
}

/* Callers' slots are emptied.  Follows should have been ended: their owners hold pointers to them.
 */
void priv_free(struct priv **pp)
{
	struct priv_call *c, *ctmp;
	struct priv_follow *f, *ftmp;
	struct relisten *r, *rtmp;

	if (!*pp)
		return;
	struct priv *p = take(*pp);
	go_silent(p);
	HASH_ITER (hh, p->calls, c, ctmp)
		priv_call_drop(c);
	HASH_ITER (hh, p->follows, f, ftmp)
		follow_drop(f);
	HASH_ITER (hh, p->relistens, r, rtmp)
		relisten_drop(p, r);
	for (int i = 0; i < PRIV_NODE_LISTENER_END; i++)
		mem_closep(&p->listeners[i]);
	close(p->fd);
	free(p);
}

int priv_take_listener(struct priv *p, enum priv_node_listener kind)
{
	return take_fd(p->listeners[kind]);
}
