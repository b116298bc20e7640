/* link_fuzz.c - a broker that says anything: the worker's end of the pair against any packets with
 * any fds.
 *
 * First byte: a proper greeting, or (odd) up to three packets of the input and the end.  Then a
 * program of records: the worker asks, cancels, follows; the broker answers, well or badly.  A
 * packet reaches the one whom its id names, or nobody; a callback finds what link.h promises; at
 * the end no fd is left over.
 *
 * LINK: tests/fake/loop.c
 */
#include "common/err.h"
#include "tests/fake/loop.h"
#include "worker/link/link.h"
#include "worker/link/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { RECORDS_MAX = 64, NFDS = 8, FDS_MAX = 4, SLOTS = 4, GREETINGS_MAX = 3 };

static int given[NFDS]; /* what a broker might send along */

struct input {
	const uint8_t *data;
	size_t size;
};

/* One call or follow of the worker. */
struct asked {
	struct session *s;
	struct link_call *call;
	struct link_follow *follow;
	enum link_op op; /* 0: nothing under way */
	uint32_t id;
};

struct session {
	struct link *p;
	struct loop *l;
	int sock; /* the broker's end */
	struct asked slots[2 * SLOTS];
	const struct asked *told; /* by the last packet */
	struct link_call *writing;
	int told_times, lost;
};

static void must(bool held)
{
	if (!held)
		abort();
}

static uint8_t next(struct input *in)
{
	if (!in->size)
		return 0;
	in->size--;
	return *in->data++;
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 128; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int memory(size_t size, int flags)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (ftruncate(fd, (off_t)size) || fcntl(fd, F_ADD_SEALS, flags))
		abort();
	return fd;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
	int pair[2];

	(void)argc;
	(void)argv;
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	given[0] = memory(10, seals);
	given[1] = pair[0];
	given[2] = memory(0, seals);
	given[3] = memory(LINK_FILE_SIZE_MAX + 1, seals);
	given[4] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	given[5] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	given[6] = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
	given[7] = memory(10, 0);
	return 0;
}

/* --- what the worker is told ---------------------------------------------------------------------
 */

static void tell(struct asked *a)
{
	must(a->op && !a->s->lost);
	a->s->told = a;
	a->s->told_times++;
}

static void call_told(struct asked *a, enum link_op op, const struct err *e)
{
	tell(a);
	must(a->op == op && a->call == NULL); /* R3 */
	must(!e || (e->code && memchr(e->msg, 0, sizeof(e->msg))));
	a->op = 0;
}

static void on_added(void *ctx, const struct err *e, unsigned wait_s)
{
	must(!e || wait_s == 0);
	call_told(ctx, LINK_POD_ADD, e);
}

static void on_listening(void *ctx, const struct err *e, int fd)
{
	call_told(ctx, LINK_LISTEN, e);
	must((fd >= 0) == !e);
	must(e || !close(fd));
}

static void on_netns(void *ctx, const struct err *e, const struct link_peer *n)
{
	call_told(ctx, LINK_PEER_OF, e);
	must((n != NULL) == !e);
	must(e || n->naddresses <= LINK_ADDRESSES_MAX);
}

static void on_changed(void *ctx, const struct link_content *c)
{
	tell(ctx);
	must(strnlen(c->name, LINK_NAME_SIZE) < LINK_NAME_SIZE);
	must((c->data != NULL) + (c->e != NULL) + c->synced == 1);
	must(!c->e || (c->e->code && memchr(c->e->msg, 0, sizeof(c->e->msg))));
	must(!c->data || (c->size <= LINK_FILE_SIZE_MAX && !c->data[c->size]));
}

static void on_volume_done(void *ctx, const struct err *e)
{
	call_told(ctx, LINK_PUBLISH, e);
}

static void on_volume(void *ctx, const struct link_volume *v)
{
	struct asked *a = ctx;

	if (!v->name)
		return call_told(a, LINK_VOLUMES, v->e);
	tell(a);
	must(strnlen(v->name, LINK_NAME_SIZE) < LINK_NAME_SIZE);
	must((v->vol_data != NULL) == !v->e);
	must(!v->vol_data || (v->size <= LINK_FILE_SIZE_MAX && !v->vol_data[v->size]));
}

static void on_lost(void *ctx)
{
	struct session *s = ctx;

	s->lost++;
}

/* --- what the worker does ------------------------------------------------------------------------
 */

/* The id of the request that the worker just sent. */
static uint32_t heard(struct session *s)
{
	struct link_request q = {0};

	while (recv(s->sock, &q, sizeof(q), MSG_DONTWAIT) > 0)
		;
	return q.id;
}

static void call(struct session *s, struct asked *a, uint8_t op)
{
	static const struct uuid pod;

	if (a->op)
		return link_call_cancel(&a->call), (void)(a->op = 0);
	a->op = (const enum link_op[]){
	    LINK_POD_ADD, LINK_LISTEN, LINK_PEER_OF, LINK_VOLUMES, LINK_PUBLISH}[op % 5];
	if (a->op == LINK_VOLUMES)
		link_volume_list(s->p, &a->call, on_volume, a);
	else if (a->op == LINK_PUBLISH)
		link_publish(s->p, &a->call, &pod, "mesh", on_volume_done, a);
	else if (a->op == LINK_POD_ADD)
		link_pod_add(s->p, &a->call, &pod, on_added, a);
	else if (a->op == LINK_LISTEN)
		link_listen(s->p, &a->call, &pod, LINK_LISTEN_XDS, on_listening, a);
	else
		link_peer_of(s->p, &a->call, &pod, given[1], on_netns, a);
	a->id = heard(s);
}

static void follow(struct session *s, struct asked *a, uint8_t what)
{
	if (a->op) {
		a->op = 0;
		return link_unfollow(&a->follow);
	}
	a->op = LINK_FOLLOW;
	a->follow = link_follow(s->p, what % LINK_FOLLOWED_END, NULL, 0, on_changed, a);
	a->id = heard(s);
}

static void on_written(void *ctx, const struct err *e)
{
	struct session *s = ctx;

	must(!s->writing && (!e || e->code)); /* R3 */
}

static void write_file(struct session *s, const struct uuid *pod)
{
	link_call_cancel(&s->writing);
	link_write(
	    s->p, &s->writing, pod, &(struct link_written){LINK_FILE_ROOT, "x", 1}, on_written, s);
}

static void act(struct session *s, struct input *in)
{
	static const struct uuid pod;
	uint8_t what = next(in), which = next(in) % SLOTS;

	if (what % 8 == 0)
		link_pod_remove(s->p, &pod);
	else if (what % 8 == 1)
		write_file(s, &pod);
	else if (what % 8 < 5)
		call(s, &s->slots[which], what / 8);
	else
		follow(s, &s->slots[SLOTS + which], what / 8);
	heard(s);
}

/* --- what the broker says ------------------------------------------------------------------------
 */

static void send_bytes(struct session *s, const void *bytes, size_t size, unsigned nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = (void *)bytes, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	unsigned n = nfds % (FDS_MAX + 1), first = nfds / (FDS_MAX + 1);
	int fds[FDS_MAX];

	for (unsigned i = 0; i < n; i++)
		fds[i] = given[(first + i) % NFDS];
	if (n) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	must(sendmsg(s->sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EPIPE);
}

static struct link_packet read_packet(struct session *s, struct input *in)
{
	struct link_packet p;
	uint8_t id = next(in);

	memset(&p, next(in), sizeof(p));
	p.id = id < 0xf0 ? s->slots[id % (2 * SLOTS)].id : id;
	p.what = next(in) % 7;
	if (p.what == 6)
		p.what = LINK_VOLUME;
	p.kind = next(in) % 4;
	p.arg = next(in) % 3;
	p.code = (int8_t)next(in);
	p.state = next(in) % 5;
	p.naddresses = next(in) * 3u;
	return p;
}

static struct asked *find(struct session *s, uint32_t id)
{
	for (int i = 0; i < 2 * SLOTS; i++)
		if (s->slots[i].op && s->slots[i].id && s->slots[i].id == id)
			return &s->slots[i];
	return NULL;
}

/* Whom this packet is for. */
static const struct asked *meant(struct session *s, const struct link_packet *p)
{
	struct asked *a = find(s, p->id);

	if (!a || (p->what != LINK_REPLY && p->what != LINK_FILE && p->what != LINK_VOLUME))
		return NULL;
	if (p->what == LINK_VOLUME)
		return a->op == LINK_VOLUMES ? a : NULL;
	if (p->what == LINK_FILE)
		return a->op == LINK_FOLLOW ? a : NULL;
	return a->op != LINK_FOLLOW || p->code ? a : NULL; /* a follow that works gets no reply */
}

static void say_packet(struct session *s, struct input *in)
{
	struct link_packet p = read_packet(s, in);
	const struct asked *a = meant(s, &p);
	uint8_t fds = next(in);

	s->told = NULL;
	s->told_times = 0;
	send_bytes(s, &p, sizeof(p), fds);
	fake_loop_advance(s->l, 0);
	if (fds % (FDS_MAX + 1) > 1)
		must(s->lost == 1 && !s->told); /* no packet has two */
	else if (!s->lost)
		must(s->told == a && s->told_times == (a != NULL));
	if (a && a->op == LINK_FOLLOW && p.what == LINK_REPLY)
		find(s, p.id)->id = 0; /* refused: it hears nothing any more */
}

static void say_garbage(struct session *s, struct input *in)
{
	char bytes[sizeof(struct link_packet) + 8] = {0};
	size_t size = (next(in) * 4u) % sizeof(bytes);

	if (size == sizeof(struct link_packet))
		size++;
	bytes[4] = (char)next(in);
	send_bytes(s, bytes, size, next(in));
	fake_loop_advance(s->l, 0);
	must(s->lost == 1);
}

/* --- a session -----------------------------------------------------------------------------------
 */

static void greet(struct session *s, struct input *in, bool properly)
{
	struct link_packet hello = {.what = LINK_HELLO, .arg = LINK_VERSION, .kind = 1},
			   listener = {.what = LINK_NODE_LISTENER, .kind = LINK_NODE_ADMIN};

	if (properly) {
		send_bytes(s, &hello, sizeof(hello), 0);
		send_bytes(s, &listener, sizeof(listener), 1 + (FDS_MAX + 1));
		return;
	}
	for (int i = next(in) % (GREETINGS_MAX + 1); i > 0; i--) {
		struct link_packet p = read_packet(s, in);
		uint8_t cut = next(in);

		send_bytes(s, &p, cut < 0xf0 ? sizeof(p) : cut, next(in));
	}
	shutdown(s->sock, SHUT_WR); /* it would wait for more */
}

static void play(struct session *s, struct input *in)
{
	for (int i = 0; i < RECORDS_MAX && in->size && !s->lost; i++) {
		uint8_t what = next(in);

		if (what < 100)
			act(s, in);
		else if (what < 240)
			say_packet(s, in);
		else
			say_garbage(s, in);
	}
	shutdown(s->sock, SHUT_WR);
	fake_loop_advance(s->l, 0);
	must(s->lost == 1);
	s->told_times = 0;
	for (int i = SLOTS; i < 2 * SLOTS; i++)
		link_unfollow(&s->slots[i].follow);
	link_free(&s->p);
	must(s->told_times == 0);
	for (int i = 0; i < SLOTS; i++)
		must(s->slots[i].call == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct session s = {.l = fake_loop()};
	struct err e = {0};
	int before = count_fds(), pair[2];
	bool properly = !(next(&in) & 1);

	for (int i = 0; i < 2 * SLOTS; i++)
		s.slots[i].s = &s;
	must(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
	s.sock = pair[1];
	greet(&s, &in, properly);
	s.p = link_new(s.l, pair[0], on_lost, &s, &e);
	must(s.p || (!properly && e.code && *e.msg));
	if (s.p) {
		int fd = link_take_listener(s.p, LINK_NODE_ADMIN);

		must((fd >= 0 && !close(fd)) || !properly);
		play(&s, &in);
	}
	close(s.sock);
	fake_loop_end(&s.l);
	must(count_fds() == before);
	return 0;
}
