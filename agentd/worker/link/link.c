/* link.c - the worker's end of the pair: requests out, answers and followed files in.
 *
 * link_new() blocks for the greeting and the node's listeners, which the broker wrote before this
 * process existed.  From then on a request is one packet (queued only while the socket is full); it
 * leaves a `call` behind, which the answer of the same id finds (answers.c).  An answer that finds
 * none was cancelled: its fd is closed and that is all.  Nothing here is touched after a callback
 * ran: it may cancel, end a follow or free us, and `freed` says so to whoever reads the next
 * packet. EOF: `lost`, once, and silence.
 */
#include "link.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include "link_internal.h"
#include "memfd.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <uthash.h>
#include <utlist.h>

LOG_SCOPE("link");

enum { PER_TURN = 32 }; /* packets */

struct relisten {
	struct uuid pod;
	link_relisten again;
	void *ctx;
	UT_hash_handle hh;
};

struct pod_watch {
	struct uuid pod;
	link_pod_noted noted;
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
	struct link_call *calls;    /* by id */
	struct relisten *relistens; /* by pod */
	struct pod_watch *pods;     /* the same */
	struct link_insistence insistence;
	link_redirect_noted redirect_noted;
	void *redirect_ctx;
	link_csi_noted csi_noted;
	void *csi_ctx;
	bool reading, freed;          /* both: the memory goes when the packet is taken */
	struct link_packet csi_note;  /* the last one; `what` 0: none yet */
	struct loop_timer csi_is_due; /* it came before anybody listened */
	uint32_t last_id;
	enum link_attest attest;
	int listeners[LINK_NODE_LISTENER_END];
	void (*lost)(void *ctx);
	void *lost_ctx;
	link_pinged pinged; /* NULL: nobody watches */
	void *ping_ctx;
};

/* --- packets --- */

enum received { RECEIVED, NOTHING, GONE, BROKEN };

/* RECEIVED: its fd (or -1) is in `fd`.  BROKEN: `e` says why. */
static enum received receive(int sock, struct link_packet *in, int *fd, struct err *e)
{
	struct fdpass_got got;
	int rc = fdpass_receive(sock, in, sizeof(*in), 0, &got);

	*fd = fdpass_first(&got);
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
	    sizeof(*in), got.nfds, got.lost ? ", and no descriptor was free for another one" : "");
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

/* Ids are used once in 2^32 requests; 0 is nobody's, and a call keeps its own as long as it lives.
 */
static uint32_t next_id(struct link *p)
{
	struct link_call *c;

	do {
		if (!++p->last_id)
			p->last_id = 1;
		HASH_FIND(hh, p->calls, &p->last_id, sizeof(p->last_id), c);
	} while (c);
	return p->last_id;
}

struct link_call *link_call_new(
    struct link *p, struct link_call **slot, const struct link_request *req, void *ctx)
{
	struct link_call *c = mem_zalloc(sizeof(*c));

	c->p = p;
	c->req = *req;
	c->req.id = next_id(p);
	c->ctx = ctx;
	c->slot = slot;
	if (slot)
		*slot = c;
	HASH_ADD(hh, p->calls, req.id, sizeof(c->req.id), c);
	return c;
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

void link_ask(struct link *p, struct link_call **slot, const struct link_request *req, int fd,
    link_done done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, req, ctx);

	c->done = done;
	link_call_send(c, fd);
}

/* --- pods come and go --- */

void link_pod_add(
    struct link *p, struct link_call **slot, const struct uuid *pod, link_added done, void *ctx)
{
	link_insist_no_more(p, &(struct link_request){.op = LINK_POD_REMOVE, .uid = *pod});
	struct link_call *c =
	    link_call_new(p, slot, &(struct link_request){.op = LINK_POD_ADD, .uid = *pod}, ctx);

	c->added = done;
	link_call_send(c, -1);
}

void link_pod_holds(struct link *p, struct link_call **slot, const struct uuid *pod, int64_t bytes,
    link_done done, void *ctx)
{
	const struct link_request q = {
	    .op = LINK_HOLDS, .uid = *pod, .arg = (uint32_t)(bytes >> 10)};

	link_ask(p, slot, &q, -1, done, ctx);
}

void link_pod_remove(struct link *p, const struct uuid *pod)
{
	link_insist(p, &(struct link_request){.op = LINK_POD_REMOVE, .uid = *pod});
}

void link_listen(struct link *p, struct link_call **slot, const struct uuid *pod,
    enum link_listener kind, link_listening done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot,
	    &(struct link_request){.op = LINK_LISTEN, .kind = (uint16_t)kind, .uid = *pod}, ctx);

	c->listening = done;
	link_call_send(c, -1);
}

void link_peer_of(struct link *p, struct link_call **slot, const struct uuid *pod, int fd,
    link_peer_known done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot,
	    &(struct link_request){.op = LINK_PEER_OF, .arg = p->attest, .uid = *pod}, ctx);

	c->peer_known = done;
	link_call_send(c, fd);
}

void link_require_attestation(struct link *p)
{
	p->attest = LINK_ATTEST_REQUIRE;
}

void link_write(struct link *p, struct link_call **slot, const struct uuid *pod,
    const struct link_written *w, link_done done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot,
	    &(struct link_request){.op = LINK_WRITE, .kind = (uint16_t)w->file, .uid = *pod}, ctx);

	c->done = done;
	link_call_send_bytes(c, w->data, w->size);
}

/* --- what the broker says unasked --- */

void link_on_ping(struct link *p, link_pinged pinged, void *ctx)
{
	p->pinged = pinged;
	p->ping_ctx = ctx;
}

void link_pong(struct link *p, uint32_t number)
{
	const struct link_request q = {.id = next_id(p), .op = LINK_PONG, .arg = number};

	(void)transmit(p, &q, -1); /* no descriptor: it cannot fail */
}

static void take_ping(struct link *p, struct link_heard *h)
{
	if (p->pinged)
		p->pinged(p->ping_ctx, h->in);
	else
		link_pong(p, h->in->arg);
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

static void take_listener(struct link *p, struct link_heard *h)
{
	struct relisten *r;

	HASH_FIND(hh, p->relistens, &h->in->uid, sizeof(h->in->uid), r);
	if (r && h->fd >= 0 && h->in->kind < LINK_LISTENER_END)
		r->again(r->ctx, (enum link_listener)h->in->kind, take_fd(h->fd));
}

static void pod_watch_drop(struct link *p, struct pod_watch *w)
{
	HASH_DEL(p->pods, w); /* NOLINT(clang-analyzer-*): uthash */
	free(w);
}

void link_on_pod(struct link *p, const struct uuid *pod, link_pod_noted noted, void *ctx)
{
	struct pod_watch *w;

	HASH_FIND(hh, p->pods, pod, sizeof(*pod), w);
	if (w)
		pod_watch_drop(p, w);
	if (!noted)
		return;
	w = mem_zalloc(sizeof(*w));
	w->pod = *pod;
	w->noted = noted;
	w->ctx = ctx;
	HASH_ADD(hh, p->pods, pod, sizeof(w->pod), w);
}

static void take_pod_note(struct link *p, struct link_heard *h)
{
	struct pod_watch *w;
	struct err e;

	HASH_FIND(hh, p->pods, &h->in->uid, sizeof(h->in->uid), w);
	if (h->in->code)
		err_set(&e, h->in->code, "%s", h->in->why);
	if (w)
		w->noted(w->ctx, &(struct link_pod_note){.lost = h->in->arg,
				     .restored = h->in->state,
				     .why = h->in->code ? &e : NULL});
}

void link_on_redirect(struct link *p, link_redirect_noted noted, void *ctx)
{
	p->redirect_noted = noted;
	p->redirect_ctx = ctx;
}

static void tell_csi(void *ctx)
{
	const struct link *p = ctx;

	p->csi_noted(p->csi_ctx, p->csi_note.kind, p->csi_note.arg);
}

void link_on_csi(struct link *p, link_csi_noted noted, void *ctx)
{
	p->csi_noted = noted;
	p->csi_ctx = ctx;
	loop_timer_stop(&p->csi_is_due);
	if (noted && p->csi_note.what)
		loop_timer_in(p->loop, &p->csi_is_due, 0, tell_csi, p);
}

static void take_redirect_note(struct link *p, struct link_heard *h)
{
	static const struct uuid nobody;
	bool of_pod = !uuid_equal(&h->in->uid, &nobody);
	struct err e;

	if (h->in->code)
		err_set(&e, h->in->code, "%s", h->in->why);
	if (p->redirect_noted)
		p->redirect_noted(p->redirect_ctx, of_pod ? &h->in->uid : NULL,
		    h->in->code ? &e : NULL, h->in->arg);
}

static void take_csi_note(struct link *p, struct link_heard *h)
{
	p->csi_note = *h->in;
	if (p->csi_noted)
		tell_csi(p);
}

/* --- answers --- */

static void call_answer(struct link_call *c, struct link_heard *h)
{
	struct link_call was = *c;

	if (ops_row(was.req.op)->answer == LINK_LATER && !h->e)
		return;
	link_call_drop(c); /* R3, and the callback may start the next one in the same slot */
	link_answers[was.req.op](&was, h);
}

static void on_unsent(void *ctx)
{
	static const struct link_packet nothing;
	struct err e;

	err_set(&e, EMFILE, "it cannot be sent: too many open files");
	call_answer(ctx, &(struct link_heard){.in = &nothing, .e = &e, .fd = -1});
}

/* R2: told by a turn of the loop. */
void link_call_send(struct link_call *c, int fd)
{
	if (transmit(c->p, &c->req, fd))
		loop_timer_in(c->p->loop, &c->soon, 0, on_unsent, c);
}

/* Without a descriptor for them it is told like one that could not be sent. */
void link_call_send_bytes(struct link_call *c, const void *bytes, size_t size)
{
	struct err e;
	auto_close int fd = link_memfd_sealed(bytes, size, &e);

	if (fd >= 0)
		link_call_send(c, fd);
	else
		loop_timer_in(c->p->loop, &c->soon, 0, on_unsent, c);
}

/* An answer without a call was cancelled. */
static void take_reply(struct link *p, struct link_heard *h)
{
	struct link_heard reply = *h;
	struct link_call *c;
	struct err e = {0};

	HASH_FIND(hh, p->calls, &h->in->id, sizeof(h->in->id), c);
	if (!c)
		return;
	if (h->in->code)
		err_set(&e, h->in->code, "%s", h->in->why);
	else if (ops_row(c->req.op)->answer == LINK_GIVEN && h->fd < 0)
		err_set(&e, EPROTO, "the broker's answer lacks its descriptor");
	reply.e = e.code ? &e : NULL;
	call_answer(c, &reply);
	h->fd = reply.fd;
}

/* --- packets in --- */

/* Each kind comes under the id of a call, or to us.  A descriptor that nobody takes is closed. */
static const struct {
	enum link_op op; /* of the call that hears it */
	void (*of_link)(struct link *p, struct link_heard *h);
} kinds[LINK_WHAT_END] = {
    [LINK_REPLY] = {.of_link = take_reply},
    [LINK_FILE] = {.op = LINK_FOLLOW},
    [LINK_PING] = {.of_link = take_ping},
    [LINK_LISTENER] = {.of_link = take_listener},
    [LINK_REDIRECTED] = {.op = LINK_REDIRECT_SET},
    [LINK_REDIRECT_NOTE] = {.of_link = take_redirect_note},
    [LINK_STATE] = {.op = LINK_STATE_LIST},
    [LINK_VOLUME] = {.op = LINK_VOLUMES},
    [LINK_CSI_NOTE] = {.of_link = take_csi_note},
    [LINK_POD_NOTE] = {.of_link = take_pod_note},
};

/* Nobody waits for it any more, or it is not for us: ignored. */
static void take_packet(struct link *p, const struct link_packet *in, int fd)
{
	struct link_heard h = {.in = in, .fd = fd};
	struct link_call *c;

	HASH_FIND(hh, p->calls, &in->id, sizeof(in->id), c);
	if (in->what < LINK_WHAT_END && kinds[in->what].of_link)
		kinds[in->what].of_link(p, &h);
	else if (in->what < LINK_WHAT_END && c && c->heard && c->req.op == kinds[in->what].op)
		c->heard(c, &h);
	mem_closep(&h.fd);
}

static void go_silent(struct link *p)
{
	loop_fd_stop(&p->readable);
	loop_fd_stop(&p->writable);
	while (p->queue)
		queued_drop(p, p->queue);
}

/* False: there is none now. */
static bool read_one(struct link *p)
{
	struct link_packet in;
	struct err e = {0};
	int fd;
	enum received got = receive(p->fd, &in, &fd, &e);

	if (got == RECEIVED) {
		take_packet(p, &in, fd);
		return true;
	}
	if (got == NOTHING)
		return false;
	if (got == BROKEN)
		log_error(NULL, "%s", e.msg);
	go_silent(p);
	p->lost(p->lost_ctx);
	return false;
}

/* All that is there: behind pods' work a turn is long, and a ping must not wait for as many turns
 * as there are packets before it.  A callback may free the link. */
static void on_readable(void *ctx)
{
	struct link *p = ctx;

	p->reading = true;
	for (int i = 0; i < PER_TURN && read_one(p) && !p->freed; i++)
		;
	p->reading = false;
	if (p->freed)
		free(p);
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
		return err_set(e, EPROTO, "the broker did not send a listener");
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
		    "broker and worker are of different releases (protocol %u here, %u there)",
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
	p->insistence = (struct link_insistence){.loop = l, .link = p};
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
	struct relisten *r, *rtmp;
	struct pod_watch *w, *wtmp;

	if (!*pp)
		return;
	struct link *p = take(*pp);
	go_silent(p);
	loop_timer_stop(&p->csi_is_due);
	link_insistence_end(&p->insistence);
	HASH_ITER (hh, p->calls, c, ctmp)
		link_call_drop(c);
	HASH_ITER (hh, p->relistens, r, rtmp)
		relisten_drop(p, r);
	HASH_ITER (hh, p->pods, w, wtmp)
		pod_watch_drop(p, w);
	for (int i = 0; i < LINK_NODE_LISTENER_END; i++)
		mem_closep(&p->listeners[i]);
	close(p->fd);
	p->freed = true;
	if (!p->reading)
		free(p);
}

struct link_insistence *link_insistence(struct link *p)
{
	return &p->insistence;
}

int link_take_listener(struct link *p, enum link_node_listener kind)
{
	return take_fd(p->listeners[kind]);
}
