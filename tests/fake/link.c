/* link.c - stands in for agentd/worker/link/link.c: remembers what was asked, answers when
 * told.
 *
 * A call waits in a list -> the test answers it -> it leaves the list, its slot is emptied, then
 * `done` runs (R3).  Follows stay until link_unfollow().  Writes and removals are recorded.
 */
#include "link.h"
#include "common/err.h"
#include "common/mem.h"
#include "worker/link/calls.h"
#include "worker/link/ready.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <utlist.h>

#include <cmocka.h>

#include "link_calls.h"

struct entry { /* of the state */
	enum link_state kind;
	uint8_t id[LINK_STATE_ID_SIZE];
	char *data;
	size_t size;
	struct entry *prev, *next;
};

struct link_follow {
	struct link *p;
	enum link_followed what;
	struct uuid pod;
	unsigned plane;
	link_changed changed;
	void *ctx;
	struct link_follow *prev, *next;
};

struct record { /* a write, or a removal when data is NULL */
	struct uuid pod;
	enum link_file file;
	char *data;
	size_t size;
	struct record *prev, *next;
};

struct pod_watch {
	struct uuid pod;
	link_pod_noted noted;
	void *ctx;
	struct pod_watch *prev, *next;
};

struct relisten {
	struct uuid pod;
	link_relisten again;
	void *ctx;
	struct relisten *prev, *next;
};

static struct link *last;
static const char *fail_next;
static int next_listeners[LINK_NODE_LISTENER_END] = {-1, -1};

struct link *fake_link(void)
{
	struct link *p = mem_zalloc(sizeof *p);

	memset(p->listeners, 0xff, sizeof p->listeners);
	return p;
}

struct link *fake_link_last(void)
{
	return last;
}

void fake_link_fail_new(const char *why)
{
	fail_next = why;
}

void fake_link_node_listener(enum link_node_listener kind, int fd)
{
	next_listeners[kind] = fd;
}

struct link *link_new(struct loop *l, int fd, void (*lost)(void *ctx), void *ctx, struct err *e)
{
	(void)l;
	if (fd >= 0)
		close(fd);
	if (fail_next) {
		err_set(e, EPROTO, "%s", take(fail_next));
		return NULL;
	}
	struct link *p = last = fake_link();
	p->lost = lost;
	p->lost_ctx = ctx;
	memcpy(p->listeners, next_listeners, sizeof p->listeners);
	memset(next_listeners, 0xff, sizeof next_listeners);
	return p;
}

static void entry_free(struct entry *e)
{
	if (!e)
		return;
	explicit_bzero(e->data, e->size); /* it may have held a key */
	free(e->data);
	free(e);
}

void link_free(struct link **pp)
{
	if (!*pp)
		return;
	struct link *p = take(*pp);
	assert_int_equal(fake_link_live(p), 0); /* who frees it has ended everything before */
	struct record *r, *tmp;
	DL_FOREACH_SAFE (p->records, r, tmp) {
		free(r->data);
		free(r);
	}
	fake_link_forget(p);
	for (int i = 0; i < LINK_NODE_LISTENER_END; i++)
		if (p->listeners[i] >= 0)
			close(p->listeners[i]);
	if (last == p)
		last = NULL;
	free(p);
}

int link_take_listener(struct link *p, enum link_node_listener kind)
{
	return take_fd(p->listeners[kind]);
}

void fake_link_lose(struct link *p)
{
	assert_non_null(p->lost);
	p->lost(p->lost_ctx);
}

/* --- calls --- */

static void answer_writes(struct link *p, const struct uuid *pod);

struct link_call *fake_link_call(
    struct link *p, struct link_call **slot, enum link_op op, const struct uuid *pod, void *ctx)
{
	struct link_call *c = mem_zalloc(sizeof *c);

	assert_null(*slot); /* one call at a time in a slot */
	c->p = p;
	c->op = op;
	c->pod = *pod;
	c->ctx = ctx;
	c->slot = slot;
	*slot = c;
	DL_APPEND(p->calls, c);
	return c;
}

void link_pod_add(
    struct link *p, struct link_call **slot, const struct uuid *pod, link_added done, void *ctx)
{
	fake_link_call(p, slot, LINK_POD_ADD, pod, ctx)->added = done;
}

void link_listen(struct link *p, struct link_call **slot, const struct uuid *pod,
    enum link_listener kind, link_listening done, void *ctx)
{
	struct link_call *c = fake_link_call(p, slot, LINK_LISTEN, pod, ctx);

	c->kind = kind;
	c->listening = done;
}

void link_dial(struct link *p, struct link_call **slot, const struct uuid *pod,
    struct link_socket what, link_listening done, void *ctx)
{
	struct link_call *c = fake_link_call(p, slot, LINK_DIAL, pod, ctx);

	c->kind = (enum link_listener)what.kind;
	c->family = what.family;
	c->port = what.port;
	c->listening = done;
}

void link_peer_of(struct link *p, struct link_call **slot, const struct uuid *pod, int fd,
    link_peer_known done, void *ctx)
{
	assert_true(fd >= 0);
	fake_link_call(p, slot, LINK_PEER_OF, pod, ctx)->peer_known = done;
}

static void call_drop(struct link_call *c)
{
	DL_DELETE(c->p->calls, c);
	*c->slot = NULL;
}

void link_call_cancel(struct link_call **c)
{
	if (!*c)
		return;
	struct link_call *was = *c;
	call_drop(was);
	entry_free(was->entry);
	free(was);
}

static bool pod_matches(const struct uuid *have, const struct uuid *wanted)
{
	return !wanted || uuid_equal(have, wanted);
}

struct link_call *fake_link_answer(
    struct link *p, enum link_op op, const struct uuid *pod, int kind)
{
	struct link_call *c;

	DL_FOREACH (p->calls, c) {
		if (c->op == op && pod_matches(&c->pod, pod) &&
		    (kind < 0 || (int)c->kind == kind)) {
			call_drop(c);
			return c;
		}
	}
	fail_msg("nobody waits for operation %d", op);
	return NULL;
}

const struct err *fake_link_refusal(struct err *e, const char *why)
{
	if (!why)
		return NULL;
	err_set(e, EPERM, "%s", why);
	return e;
}

int fake_link_waiting(const struct link *p, enum link_op op)
{
	const struct link_call *c;
	int n = 0;

	DL_FOREACH (p->calls, c)
		n += c->op == op;
	return n;
}

void fake_link_added(struct link *p, const struct uuid *pod, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_POD_ADD, pod, -1);
	struct err e;

	fake_link_refusal(&e, why);
	if (p->refusal)
		e.code = p->refusal;
	c->added(c->ctx, why ? &e : NULL, 0);
}

void fake_link_refuse_with(struct link *p, int code)
{
	p->refusal = code;
}

void link_pod_holds(struct link *p, struct link_call **slot, const struct uuid *pod, int64_t bytes,
    link_done done, void *ctx)
{
	(void)bytes;
	fake_link_call(p, slot, LINK_HOLDS, pod, ctx)->done = done;
}

int fake_link_listener(void)
{
	const struct sockaddr_un any = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(bind(fd, (const struct sockaddr *)&any, sizeof(any.sun_family)), 0);
	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

void fake_link_listening(
    struct link *p, const struct uuid *pod, enum link_listener kind, int fd, const char *why)
{
	answer_writes(p, pod);
	auto_free struct link_call *c = fake_link_answer(p, LINK_LISTEN, pod, kind);
	struct err e;

	c->listening(c->ctx, fake_link_refusal(&e, why), why ? -1 : fd);
}

int fake_link_dials(const struct link *p, enum link_dial kind)
{
	const struct link_call *c;
	int family = 0;

	DL_FOREACH (p->calls, c)
		if (c->op == LINK_DIAL && c->kind == (enum link_listener)kind && !family)
			family = c->family;
	return family;
}

unsigned fake_link_dials_port(const struct link *p)
{
	const struct link_call *c = NULL;

	DL_FOREACH (p->calls, c)
		if (c->op == LINK_DIAL && c->kind == (enum link_listener)LINK_DIAL_LOOPBACK)
			return c->port;
	return 0;
}

void fake_link_dialled(struct link *p, enum link_dial kind, int fd, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_DIAL, NULL, (int)kind);
	struct err e;

	c->listening(c->ctx, fake_link_refusal(&e, why), why ? -1 : fd);
}

void link_on_ping(struct link *p, link_pinged pinged, void *ctx)
{
	p->pinged = pinged;
	p->ping_ctx = ctx;
}

void link_pong(struct link *p, uint32_t number)
{
	p->pong = number;
}

uint32_t fake_link_ping(struct link *p, const struct link_packet *g)
{
	p->pong = 0;
	p->pinged(p->ping_ctx, g);
	return p->pong;
}

void link_require_attestation(struct link *p)
{
	p->attests = true;
}

bool fake_link_attests(const struct link *p)
{
	return p->attests;
}

void fake_link_stranger(struct link *p, const struct uuid *pod, int code, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_PEER_OF, pod, -1);
	struct err e;

	err_set(&e, code, "%s", why);
	c->peer_known(c->ctx, &e, NULL);
}

void fake_link_peer(
    struct link *p, const struct uuid *pod, const struct link_peer *n, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_PEER_OF, pod, -1);
	struct link_peer known = n ? *n : (struct link_peer){.cookie = 0};
	struct err e;

	if (!known.unknown)
		known.unknown = "";
	c->peer_known(c->ctx, fake_link_refusal(&e, why), why ? NULL : &known);
}

/* --- state --- */

static const struct uuid nobody;

void link_state_list(
    struct link *p, struct link_call **slot, enum link_state kind, link_kept_found found, void *ctx)
{
	struct link_call *c = fake_link_call(p, slot, LINK_STATE_LIST, &nobody, ctx);

	c->kind = (enum link_listener)kind;
	c->kept_found = found;
}

static struct entry *entry_new(const struct link_kept *k)
{
	struct entry *e = mem_zalloc(sizeof *e);

	assert_true(k->size <= LINK_FILE_SIZE_MAX);
	e->kind = k->kind;
	memcpy(e->id, k->id, sizeof e->id);
	e->data = mem_dup(k->data, k->size);
	e->size = k->size;
	return e;
}

void link_state_put(
    struct link *p, struct link_call **slot, const struct link_kept *k, link_done done, void *ctx)
{
	if (k->kind == LINK_STATE_SERVED && !p->asks_served) {
		link_state_del(p, k->kind, k->id);
		fake_link_keep(p, k);
		return;
	}
	struct link_call *c = fake_link_call(p, slot, LINK_STATE_PUT, &nobody, ctx);

	c->done = done;
	c->entry = entry_new(k);
}

void fake_link_ask_served(struct link *p)
{
	p->asks_served = true;
}

void link_state_del(struct link *p, enum link_state kind, const uint8_t *id)
{
	struct entry *e, *tmp;

	DL_FOREACH_SAFE (p->state, e, tmp) {
		if (e->kind != kind || memcmp(e->id, id, sizeof e->id) != 0)
			continue;
		DL_DELETE(p->state, e);
		entry_free(e);
	}
}

void fake_link_put(struct link *p, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_STATE_PUT, NULL, -1);
	struct err e;

	if (why) {
		entry_free(c->entry);
	} else {
		link_state_del(p, c->entry->kind, c->entry->id);
		DL_APPEND(p->state, c->entry);
	}
	c->done(c->ctx, fake_link_refusal(&e, why));
}

void fake_link_keep(struct link *p, const struct link_kept *k)
{
	struct entry *e = entry_new(k);

	DL_APPEND(p->state, e);
}

int fake_link_kept(const struct link *p, enum link_state kind)
{
	const struct entry *e;
	int n = 0;

	DL_FOREACH (p->state, e)
		n += e->kind == kind;
	return n;
}

struct link_kept fake_link_kept_at(const struct link *p, enum link_state kind, int at)
{
	const struct entry *e;

	DL_FOREACH (p->state, e)
		if (e->kind == kind && at-- == 0)
			break;
	assert_non_null(e);
	return (struct link_kept){.kind = e->kind, .id = e->id, .data = e->data, .size = e->size};
}

/* What is found may be deleted by the callback, which may cancel the list too. */
void fake_link_listed(struct link *p, enum link_state kind, const char *why)
{
	struct link_call *c;
	struct entry *e, *tmp, *all = NULL;
	struct err refused;

	DL_FOREACH (p->calls, c)
		if (c->op == LINK_STATE_LIST && (int)c->kind == (int)kind)
			break;
	if (!c)
		fail_msg("nobody lists the state of kind %d", kind);
	DL_FOREACH (p->state, e) {
		struct link_kept k = {.kind = kind, .id = e->id, .data = e->data, .size = e->size};
		struct entry *copy = e->kind == kind ? entry_new(&k) : NULL;
		if (copy)
			DL_APPEND(all, copy);
	}
	DL_FOREACH_SAFE (all, e, tmp) {
		DL_DELETE(all, e);
		c->kept_found(
		    c->ctx, &(struct link_kept){
				.kind = kind, .id = e->id, .data = e->data, .size = e->size});
		entry_free(e);
	}
	call_drop(c);
	c->kept_found(c->ctx, &(struct link_kept){.e = fake_link_refusal(&refused, why)});
	free(c);
}

void fake_link_forget(struct link *p)
{
	while (p->state) {
		struct entry *e = p->state;
		DL_DELETE(p->state, e);
		entry_free(e);
	}
}

/* --- what nobody waits for --- */

static struct record *record(struct link *p, const struct uuid *pod)
{
	struct record *r = mem_zalloc(sizeof *r);

	r->pod = *pod;
	DL_APPEND(p->records, r);
	return r;
}

void link_pod_remove(struct link *p, const struct uuid *pod)
{
	record(p, pod);
}

void link_write(struct link *p, struct link_call **slot, const struct uuid *pod,
    const struct link_written *w, link_done done, void *ctx)
{
	struct link_call *c = fake_link_call(p, slot, LINK_WRITE, pod, ctx);
	struct record *r = record(p, pod);

	c->kind = (enum link_listener)w->file;
	c->done = done;
	assert_true(w->size <= LINK_FILE_SIZE_MAX);
	r->file = w->file;
	r->data = mem_zalloc(w->size + 1);
	r->size = w->size;
	if (w->size)
		memcpy(r->data, w->data, w->size);
}

void link_identity_put(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *text, link_done done, void *ctx)
{
	struct link_call *c = fake_link_call(p, slot, LINK_IDENTITY_PUT, pod, ctx);

	c->done = done;
	snprintf(p->identity, sizeof(p->identity), "%s", text);
}

const char *fake_link_identity(const struct link *p)
{
	return p->identity;
}

void fake_link_identity_done(struct link *p, const struct uuid *pod, int code, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_IDENTITY_PUT, pod, -1);
	struct err e;

	if (why)
		err_set(&e, code, "%s", why);
	c->done(c->ctx, why ? &e : NULL);
}

void fake_link_wrote(struct link *p, const struct uuid *pod, enum link_file file, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_WRITE, pod, (int)file);
	struct err e;

	c->done(c->ctx, fake_link_refusal(&e, why));
}

static const struct link_call *find_write(const struct link *p, const struct uuid *pod)
{
	const struct link_call *c;

	DL_FOREACH (p->calls, c)
		if (c->op == LINK_WRITE && pod_matches(&c->pod, pod))
			return c;
	return NULL;
}

/* Those that were asked for before: the broker answers in order. */
static void answer_writes(struct link *p, const struct uuid *pod)
{
	const struct link_call *c;

	while ((c = find_write(p, pod)))
		fake_link_wrote(p, pod, (enum link_file)c->kind, NULL);
}

int fake_link_removals(const struct link *p, const struct uuid *pod)
{
	const struct record *r;
	int n = 0;

	DL_FOREACH (p->records, r)
		n += !r->data && pod_matches(&r->pod, pod);
	return n;
}

int fake_link_writes(const struct link *p, const struct uuid *pod, enum link_file file)
{
	const struct record *r;
	int n = 0;

	DL_FOREACH (p->records, r)
		n += r->data && r->file == file && pod_matches(&r->pod, pod);
	return n;
}

const char *fake_link_written(
    const struct link *p, const struct uuid *pod, enum link_file file, size_t *size)
{
	const struct record *r, *found = NULL;

	DL_FOREACH (p->records, r)
		if (r->data && r->file == file && pod_matches(&r->pod, pod))
			found = r;
	if (size)
		*size = found ? found->size : 0;
	return found ? found->data : NULL;
}

/* --- what the broker asks --- */

void link_ready(struct link *p)
{
	p->ready++;
}

void link_served(struct link *p, unsigned lost, const char *why)
{
	p->served++;
	p->lost_pods = lost;
	snprintf(p->lost_why, sizeof(p->lost_why), "%s", why);
}

unsigned fake_link_lost(const struct link *p, const char **why)
{
	*why = p->lost_why;
	return p->served ? p->lost_pods : UINT32_MAX;
}

int fake_link_ready(const struct link *p)
{
	return p->ready;
}

void link_log(struct link *p)
{
	p->logs++;
}

int fake_link_logs(const struct link *p)
{
	return p->logs;
}

void link_on_relisten(struct link *p, const struct uuid *pod, link_relisten again, void *ctx)
{
	struct relisten *r, *tmp;

	DL_FOREACH_SAFE (p->relistens, r, tmp) {
		if (!uuid_equal(&r->pod, pod))
			continue;
		DL_DELETE(p->relistens, r);
		free(r);
	}
	if (!again)
		return;
	r = mem_zalloc(sizeof *r);
	r->pod = *pod;
	r->again = again;
	r->ctx = ctx;
	DL_APPEND(p->relistens, r);
}

void fake_link_relisten(struct link *p, const struct uuid *pod, enum link_listener kind, int fd)
{
	struct relisten *r;

	DL_FOREACH (p->relistens, r)
		if (pod_matches(&r->pod, pod))
			return r->again(r->ctx, kind, fd);
	fail_msg("nobody would listen anew");
}

void link_on_pod(struct link *p, const struct uuid *pod, link_pod_noted noted, void *ctx)
{
	struct pod_watch *w, *tmp;

	DL_FOREACH_SAFE (p->pods, w, tmp) {
		if (!uuid_equal(&w->pod, pod))
			continue;
		DL_DELETE(p->pods, w);
		free(w);
	}
	if (!noted)
		return;
	w = mem_zalloc(sizeof *w);
	w->pod = *pod;
	w->noted = noted;
	w->ctx = ctx;
	DL_APPEND(p->pods, w);
}

void fake_link_note_pod(struct link *p, const struct uuid *pod, const struct link_pod_note *n)
{
	struct pod_watch *w;

	DL_FOREACH (p->pods, w)
		if (pod_matches(&w->pod, pod))
			return w->noted(w->ctx, n);
	fail_msg("nobody hears of the pod's directory");
}

unsigned link_insists(struct link *p, struct err *why)
{
	(void)p;
	(void)why;
	return 0;
}

/* --- follows --- */

static bool is_of_pod(enum link_followed what)
{
	return what != LINK_FOLLOW_ROOT && what != LINK_FOLLOW_CRL && what != LINK_FOLLOW_MANIFESTS;
}

struct link_follow *link_follow(struct link *p, enum link_followed what, const struct uuid *pod,
    unsigned plane, link_changed changed, void *ctx)
{
	struct link_follow *f = mem_zalloc(sizeof *f);

	assert_true(pod || !is_of_pod(what));
	f->p = p;
	f->what = what;
	if (pod)
		f->pod = *pod;
	f->plane = plane;
	f->changed = changed;
	f->ctx = ctx;
	DL_APPEND(p->follows, f);
	return f;
}

void link_unfollow(struct link_follow **f)
{
	if (!*f)
		return;
	struct link_follow *was = take(*f);
	DL_DELETE(was->p->follows, was);
	free(was);
}

static struct link_follow *follow_find(
    const struct link *p, enum link_followed what, const struct uuid *pod, unsigned plane)
{
	struct link_follow *f;

	DL_FOREACH (p->follows, f)
		if (f->what == what && (!is_of_pod(what) || pod_matches(&f->pod, pod)) &&
		    ((what != LINK_FOLLOW_ROOT && what != LINK_FOLLOW_CRL) || f->plane == plane))
			return f;
	return NULL;
}

bool fake_link_follows(
    const struct link *p, enum link_followed what, const struct uuid *pod, unsigned plane)
{
	return follow_find(p, what, pod, plane);
}

void fake_link_push(struct link *p, enum link_followed what, const struct uuid *pod, unsigned plane,
    const struct link_content *c)
{
	struct link_follow *f = follow_find(p, what, pod, plane);

	if (!f)
		fail_msg("nobody follows %d", what);
	f->changed(f->ctx, c); /* may end the follow (R5) */
}

static void push_text(struct link *p, enum link_followed what, const struct uuid *pod,
    unsigned plane, const struct link_content *named)
{
	struct link_content c = *named;
	struct err e;

	if (!c.data) {
		err_set(&e, ENOENT, "No such file or directory");
		c.e = &e;
	} else {
		c.size = strlen(c.data);
	}
	fake_link_push(p, what, pod, plane, &c);
}

void fake_link_root(struct link *p, unsigned plane, const char *pem)
{
	push_text(
	    p, LINK_FOLLOW_ROOT, NULL, plane, &(struct link_content){.name = "", .data = pem});
}

void fake_link_crl(struct link *p, unsigned plane, const char *pem)
{
	push_text(p, LINK_FOLLOW_CRL, NULL, plane, &(struct link_content){.name = "", .data = pem});
}

void fake_link_token(struct link *p, const struct uuid *pod, const char *jwt)
{
	push_text(p, LINK_FOLLOW_TOKEN, pod, 0, &(struct link_content){.name = "", .data = jwt});
}

void fake_link_manifest(struct link *p, const char *name, const char *yaml)
{
	push_text(
	    p, LINK_FOLLOW_MANIFESTS, NULL, 0, &(struct link_content){.name = name, .data = yaml});
}

void fake_link_running(struct link *p, const char *name, const char *yaml)
{
	push_text(p, LINK_FOLLOW_MANIFESTS, NULL, 0,
	    &(struct link_content){.name = name, .data = yaml, .running = LINK_RUNNING});
}

void fake_link_synced(struct link *p)
{
	struct link_content c = {.name = "", .synced = true};

	fake_link_push(p, LINK_FOLLOW_MANIFESTS, NULL, 0, &c);
}

int fake_link_live(const struct link *p)
{
	const struct link_call *c;
	const struct link_follow *f;
	const struct relisten *r;
	const struct pod_watch *w;
	int n = 0;

	DL_FOREACH (p->pods, w)
		n++;
	DL_FOREACH (p->relistens, r)
		n++;
	DL_FOREACH (p->calls, c)
		n++;
	DL_FOREACH (p->follows, f)
		n++;
	return n;
}
