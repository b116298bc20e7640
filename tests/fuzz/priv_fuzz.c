/* priv_fuzz.c - a broker that says anything: the worker's end of the pair against any packets with
 * any fds.
 *
 * First byte: a proper greeting, or (odd) up to three packets of the input and the end.  Then a
 * program of records: the worker asks, cancels, follows; the broker answers, well or badly.  A
 * packet reaches the one whom its id names, or nobody; a callback finds what priv.h promises; at
 * the end no fd is left over.
 *
 * LINK: tests/fake/loop.c
 */
#include "common/err.h"
#include "priv/priv.h"
#include "priv/priv_volume.h"
#include "tests/fake/loop.h"

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
	struct priv_call *call;
	struct priv_follow *follow;
	enum priv_op op; /* 0: nothing under way */
	uint32_t id;
};

struct session {
	struct priv *p;
	struct loop *l;
	int sock; /* the broker's end */
	struct asked slots[2 * SLOTS];
	const struct asked *told; /* by the last packet */
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
	given[3] = memory(PRIV_FILE_SIZE_MAX + 1, seals);
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

static void call_told(struct asked *a, enum priv_op op, const struct err *e)
{
	tell(a);
	must(a->op == op && a->call == NULL); /* R3 */
	must(!e || (e->code && memchr(e->msg, 0, sizeof(e->msg))));
	a->op = 0;
}

static void on_done(void *ctx, const struct err *e)
{
	call_told(ctx, PRIV_POD_ADD, e);
}

static void on_listening(void *ctx, const struct err *e, int fd)
{
	call_told(ctx, PRIV_LISTEN, e);
	must((fd >= 0) == !e);
	must(e || !close(fd));
}

static void on_netns(void *ctx, const struct err *e, const struct priv_peer *n)
{
	call_told(ctx, PRIV_PEER_OF, e);
	must((n != NULL) == !e);
	must(e || n->naddresses <= PRIV_ADDRESSES_MAX);
}

static void on_changed(void *ctx, const struct priv_content *c)
{
	tell(ctx);
	must(strnlen(c->name, PRIV_NAME_SIZE) < PRIV_NAME_SIZE);
	must((c->data != NULL) + (c->e != NULL) + c->synced == 1);
	must(!c->e || (c->e->code && memchr(c->e->msg, 0, sizeof(c->e->msg))));
	must(!c->data || (c->size <= PRIV_FILE_SIZE_MAX && !c->data[c->size]));
}

static void on_volume_done(void *ctx, const struct err *e)
{
	call_told(ctx, PRIV_PUBLISH, e);
}

static void on_volume(void *ctx, const struct priv_volume *v)
{
	struct asked *a = ctx;

	if (!v->name)
		return call_told(a, PRIV_VOLUMES, v->e);
	tell(a);
	must(strnlen(v->name, PRIV_NAME_SIZE) < PRIV_NAME_SIZE);
	must((v->vol_data != NULL) == !v->e);
	must(!v->vol_data || (v->size <= PRIV_FILE_SIZE_MAX && !v->vol_data[v->size]));
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
	struct priv_request q = {0};

	while (recv(s->sock, &q, sizeof(q), MSG_DONTWAIT) > 0)
		;
	return q.id;
}

static void call(struct session *s, struct asked *a, uint8_t op)
{
	static const struct uuid pod;

	if (a->op)
		return priv_call_cancel(&a->call), (void)(a->op = 0);
	a->op = (const enum priv_op[]){
	    PRIV_POD_ADD, PRIV_LISTEN, PRIV_PEER_OF, PRIV_VOLUMES, PRIV_PUBLISH}[op % 5];
	if (a->op == PRIV_VOLUMES)
		priv_volume_list(s->p, &a->call, on_volume, a);
	else if (a->op == PRIV_PUBLISH)
		priv_publish(s->p, &a->call, &pod, "mesh", on_volume_done, a);
	else if (a->op == PRIV_POD_ADD)
		priv_pod_add(s->p, &a->call, &pod, on_done, a);
	else if (a->op == PRIV_LISTEN)
		priv_listen(s->p, &a->call, &pod, PRIV_LISTEN_XDS, on_listening, a);
	else
		priv_peer_of(s->p, &a->call, &pod, given[1], on_netns, a);
	a->id = heard(s);
}

static void follow(struct session *s, struct asked *a, uint8_t what)
{
	if (a->op) {
		a->op = 0;
		return priv_unfollow(&a->follow);
	}
	a->op = PRIV_FOLLOW;
	a->follow = priv_follow(s->p, what % PRIV_FOLLOWED_END, NULL, 0, on_changed, a);
	a->id = heard(s);
}

static void act(struct session *s, struct input *in)
{
	static const struct uuid pod;
	uint8_t what = next(in), which = next(in) % SLOTS;

	if (what % 8 == 0)
		priv_pod_remove(s->p, &pod);
	else if (what % 8 == 1)
		priv_write(s->p, &pod, PRIV_FILE_ROOT, "x", 1);
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

static struct priv_packet read_packet(struct session *s, struct input *in)
{
	struct priv_packet p;
	uint8_t id = next(in);

	memset(&p, next(in), sizeof(p));
	p.id = id < 0xf0 ? s->slots[id % (2 * SLOTS)].id : id;
	p.what = next(in) % 7;
	if (p.what == 6)
		p.what = PRIV_VOLUME;
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
		if (s->slots[i].op && s->slots[i].id == id)
			return &s->slots[i];
	return NULL;
}

/* Whom this packet is for. */
static const struct asked *meant(struct session *s, const struct priv_packet *p)
{
	struct asked *a = find(s, p->id);

	if (!a || (p->what != PRIV_REPLY && p->what != PRIV_FILE && p->what != PRIV_VOLUME))
		return NULL;
	if (p->what == PRIV_VOLUME)
		return a->op == PRIV_VOLUMES ? a : NULL;
	if (p->what == PRIV_FILE)
		return a->op == PRIV_FOLLOW ? a : NULL;
	return a->op != PRIV_FOLLOW || p->code ? a : NULL; /* a follow that works gets no reply */
}

static void say_packet(struct session *s, struct input *in)
{
	struct priv_packet p = read_packet(s, in);
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
}

static void say_garbage(struct session *s, struct input *in)
{
	char bytes[sizeof(struct priv_packet) + 8] = {0};
	size_t size = (next(in) * 4u) % sizeof(bytes);

	if (size == sizeof(struct priv_packet))
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
	struct priv_packet hello = {.what = PRIV_HELLO, .arg = PRIV_VERSION, .kind = 1},
			   listener = {.what = PRIV_NODE_LISTENER, .kind = PRIV_NODE_ADMIN};

	if (properly) {
		send_bytes(s, &hello, sizeof(hello), 0);
		send_bytes(s, &listener, sizeof(listener), 1 + (FDS_MAX + 1));
		return;
	}
	for (int i = next(in) % (GREETINGS_MAX + 1); i > 0; i--) {
		struct priv_packet p = read_packet(s, in);
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
		priv_unfollow(&s->slots[i].follow);
	priv_free(&s->p);
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
	s.p = priv_new(s.l, pair[0], on_lost, &s, &e);
	must(s.p || (!properly && e.code && *e.msg));
	if (s.p) {
		int fd = priv_take_listener(s.p, PRIV_NODE_ADMIN);

		must((fd >= 0 && !close(fd)) || !properly);
		play(&s, &in);
	}
	close(s.sock);
	fake_loop_end(&s.l);
	must(count_fds() == before);
	return 0;
}
