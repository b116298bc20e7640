/* world.c - see world.h. */
#include "world.h"

const struct link_packet hello = {.what = LINK_HELLO, .arg = LINK_VERSION, .kind = 1};
const struct link_packet admin = {.what = LINK_NODE_LISTENER, .kind = LINK_NODE_ADMIN};

void say(struct world *w, struct link_packet p, int fd)
{
	assert_int_equal(fdpass_send(w->peer, &p, sizeof(p), fd), 0);
}

void turn(struct world *w)
{
	fake_loop_advance(w->l, 0);
}

struct link_request heard(struct world *w, enum link_op op, int *fd)
{
	struct broker_request in;
	struct err why;

	assert_int_equal(broker_io_receive(w->peer, &in, &why), BROKER_GOT_REQUEST);
	assert_int_equal(in.r.op, op);
	assert_int_equal(in.nfds, fd != NULL);
	assert_int_equal(in.nfds, ops_row(op)->nfds);
	if (fd)
		*fd = in.fd;
	return in.r;
}

void on_lost(void *ctx)
{
	struct world *w = ctx;

	w->lost++;
}

int probe_new(struct probe *p)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	p->read_end = ends[0];
	return ends[1];
}

bool probe_is_closed(struct probe *p)
{
	char byte;
	bool closed = read(p->read_end, &byte, 1) == 0;

	close(p->read_end);
	return closed;
}

void send_probe(struct world *w, struct link_packet p, struct probe *probe)
{
	int fd = probe_new(probe);

	say(w, p, fd);
	close(fd);
}

void connect_peer(struct world *w, int *theirs)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	w->peer = pair[0];
	*theirs = pair[1];
}

int setup(void **state)
{
	static struct world w;
	struct err e = {0};
	int fd;

	memset(&w, 0, sizeof(w));
	w.fd = -1;
	w.l = fake_loop();
	connect_peer(&w, &fd);
	say(&w, hello, -1);
	say(&w, admin, 0);
	w.p = link_new(w.l, fd, on_lost, &w, &e);
	if (!w.p)
		fail_msg("%s", e.msg);
	*state = &w;
	return 0;
}

int teardown(void **state)
{
	struct world *w = *state;

	link_unfollow(&w->follow);
	link_free(&w->p);
	assert_null(w->slot);
	assert_int_equal(fake_loop_live(w->l), 0);
	fake_loop_end(&w->l);
	close(w->peer);
	return 0;
}

void note(struct world *w, const struct err *e)
{
	assert_null(w->slot); /* R3 */
	w->done++;
	w->failed = e;
	if (e)
		w->e = *e;
}

void on_added(void *ctx, const struct err *e, unsigned wait_s)
{
	struct world *w = ctx;

	w->wait_s = wait_s;
	on_done(ctx, e);
}

void on_done(void *ctx, const struct err *e)
{
	struct world *w = ctx;

	note(w, e);
	if (w->again) { /* the slot is free for the next */
		w->again = false;
		link_pod_add(w->p, &w->slot, &rig_other, on_added, w);
	}
}

void on_listening(void *ctx, const struct err *e, int fd)
{
	struct world *w = ctx;

	note(w, e);
	w->fd = fd;
}

void on_netns(void *ctx, const struct err *e, const struct link_peer *n)
{
	struct world *w = ctx;

	note(w, e);
	assert_int_equal(e == NULL, n != NULL);
	if (!n)
		return;
	w->cookie = n->cookie;
	w->cgroup_id = n->cgroup_id;
	snprintf(w->unknown, sizeof(w->unknown), "%s", n->unknown);
	w->naddresses = n->naddresses;
	w->first_byte = n->naddresses ? n->addresses[0].bytes[0] : 0;
}

void on_changed(void *ctx, const struct link_content *c)
{
	struct world *w = ctx;

	w->changed++;
	w->synced = c->synced;
	w->gone = !c->data && !c->synced;
	assert_int_equal(w->gone, c->e != NULL);
	if (c->e)
		w->e = *c->e;
	snprintf(w->name, sizeof(w->name), "%s", c->name);
	w->size = c->size;
	w->data[0] = '\0';
	if (c->data) {
		assert_int_equal(c->data[c->size], '\0');
		snprintf(w->data, sizeof(w->data), "%s", c->data);
	}
}

void on_changed_end(void *ctx, const struct link_content *c)
{
	struct world *w = ctx;

	on_changed(ctx, c);
	link_unfollow(&w->follow); /* R5 */
}

void on_changed_free(void *ctx, const struct link_content *c)
{
	struct world *w = ctx;

	on_changed(ctx, c);
	link_unfollow(&w->follow);
	link_free(&w->p);
}
