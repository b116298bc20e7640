/* guard.c - see guard.h.
 *
 * grpc calls recvmsg(); the linker gives it ours, for a program's own symbols come before those of
 * libc, whether grpc is a library of its own or inside the executable (grpc has no public place to
 * look at bytes before it does, and a relay would copy all and double the fds) -> the kernel's
 * answer -> not a guarded connection: as it is -> its frames are followed, each takes its cost from
 * the bucket and is charged to its stream -> a rule is broken: the whole read is thrown away, the
 * socket shut down, the answer is 0, now and later.  sendmsg() is ours, too: by a reset or the end
 * of an answer a stream is over, and what was charged to it is given back.  So is epoll_ctl(): a
 * connection that had its portion is read again when the others were.
 */
#include "guard.h"
#include "budget.h"
#include "common/mem.h"
#include "frames.h"
#include "portion.h"
#include "sink.h"
#include "toll.h"
#include "wait.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What grpc 1.51 takes for each (grpc-core.md 1), measured again with one-byte fields. */
enum {
	CONNECTION_BYTES = 16 << 10,
	STREAM_BYTES = 32 << 10, /* before it is announced; then 12 KiB are left */
	FIELD_BYTES = 256,
	HEADER_BYTE_BYTES = 2,
};

struct rpc_guard {
	struct rpc_budget_account account; /* first: the budget's worst is its guard */
	struct rpc_guard_options options;
	struct rpc_toll toll;
	int64_t left_behind; /* of `account`: by streams that their client reset, or left */
	int64_t pushed;      /* on its way to the client: no part of the budget */
	unsigned broken[RPC_RULE_END];
	unsigned level; /* of `held` that was told: doublings of the share */
	bool news;
};

struct stream { /* that is open */
	uint32_t id;
	int64_t charged;
};

struct connection {
	struct rpc_guard *guard; /* NULL: this fd is not guarded */
	ino_t inode;
	struct rpc_frames in, out;
	struct rpc_block block;
	struct rpc_portion portion;
	struct stream *streams;
	unsigned nstreams, room;
	unsigned leaving;       /* of them, that a write under way may end */
	uint32_t last;          /* stream that was opened */
	unsigned unheard, left; /* calls that the server has not heard of; were reset before */
	int64_t charged, taken; /* to all streams; of it handed over by calls that live */
	int64_t held;           /* so much of it the guard knows */
	bool seen, over, sinks; /* sinks: descriptors may come along it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct connection *connections; /* by fd */
static int nconnections;
static int tell_fd = -1;
static bool any_news;

const char *rpc_rule_text(enum rpc_rule r)
{
	static const char *const texts[RPC_RULE_END] = {
	    [RPC_RULE_FRAMES] = "a flood of frames",
	    [RPC_RULE_SHARE] = ("pods ask for more than the node has for them, this one for more "
				"than its share"),
	    [RPC_RULE_BLOCK_SIZE] = "a header block that is too large",
	    [RPC_RULE_BLOCK_FIELDS] = "a header block of too many fields",
	    [RPC_RULE_BLOCK_SHAPE] = "a header block that no client sends",
	    [RPC_RULE_STREAMS] = "more streams than a connection may have",
	    [RPC_RULE_MEMORY] = "the memory for all pods is used up, and this pod holds most",
	    [RPC_RULE_RIGHTS] = "file descriptors, which no client sends",
	};

	return texts[r];
}

/* --- what it holds --- */

static void tell(struct rpc_guard *g)
{
	if (!g->news && tell_fd >= 0)
		rpc_wait_tell(tell_fd);
	g->news = any_news = true;
}

static int64_t held_by(const struct rpc_guard *g)
{
	return g->account.held + g->pushed;
}

static void tell_level(struct rpc_guard *g)
{
	int64_t held = held_by(g), share = rpc_budget_share();
	unsigned level = 0;

	if (!share)
		return;
	for (int64_t at = share; held > at && level < 32; at *= 2)
		level++;
	if (level <= g->level && (g->level == 0 || held >= share / 2))
		return;
	g->level = level;
	tell(g);
}

/* The guard knows what the connection holds now. */
static void settle(struct connection *c)
{
	int64_t streams = c->charged > c->taken ? c->charged - c->taken : 0;
	int64_t held = c->over ? 0 : CONNECTION_BYTES + streams;

	rpc_budget_charge(&c->guard->account, held - c->held);
	c->held = held;
	tell_level(c->guard);
}

/* Calls that are over before anybody heard of them stay in grpc's queue. */
static void leave_behind(struct connection *c, unsigned n)
{
	struct rpc_guard *g = c->guard;

	if (n > c->unheard - c->left)
		n = c->unheard - c->left;
	if (n == 0)
		return;
	if (!g->left_behind)
		tell(g);
	c->left += n;
	g->left_behind += (int64_t)n * STREAM_BYTES;
	rpc_toll_resets(&g->toll, n);
	rpc_budget_charge(&g->account, (int64_t)n * STREAM_BYTES);
}

/* grpc lets go of it. */
static void retire(struct connection *c)
{
	if (!c->over)
		leave_behind(c, c->unheard);
	c->over = true;
	settle(c);
}

static void forget(struct connection *c)
{
	if (!c->guard)
		return;
	retire(c);
	free(c->streams);
	*c = (struct connection){.guard = NULL};
}

static struct stream *find_stream(struct connection *c, uint32_t id)
{
	for (unsigned i = c->nstreams; i-- > 0;)
		if (c->streams[i].id == id)
			return &c->streams[i];
	return NULL;
}

static bool open_stream(struct connection *c, uint32_t id)
{
	unsigned most = c->guard->options.streams;

	if (id % 2 == 0 || id <= c->last)
		return true; /* its trailers, or grpc ignores it */
	if (most && c->nstreams >= most + c->leaving)
		return false;
	if (c->nstreams == c->room) {
		c->room = c->room ? 2 * c->room : 4;
		c->streams = mem_realloc(c->streams, c->room * sizeof(*c->streams));
	}
	c->last = id;
	c->unheard++;
	c->streams[c->nstreams++] = (struct stream){.id = id};
	return true;
}

static bool close_stream(struct connection *c, uint32_t id)
{
	struct stream *s = find_stream(c, id);

	if (!s)
		return false;
	c->charged -= s->charged;
	*s = c->streams[--c->nstreams];
	return true;
}

static void charge_stream(struct connection *c, uint32_t id, int64_t bytes)
{
	struct stream *s = find_stream(c, id);

	if (!s)
		return;
	s->charged += bytes;
	c->charged += bytes;
}

/* --- the rules: each returns the one that is broken, RPC_RULE_END: none --- */

static enum rpc_rule on_frame(struct connection *c)
{
	const struct rpc_frame *f = &c->in.frame;
	uint32_t most = c->guard->options.block_size;

	rpc_toll_frame(&c->guard->toll, f);
	if (!rpc_block_frame(&c->block, f))
		return RPC_RULE_BLOCK_SHAPE;
	if (c->block.stream && most && c->block.bytes + f->size > most)
		return RPC_RULE_BLOCK_SIZE;
	if (f->type == RPC_FRAME_HEADERS) {
		if (!open_stream(c, f->stream))
			return RPC_RULE_STREAMS;
		charge_stream(c, f->stream, STREAM_BYTES);
	} else if (f->type == RPC_FRAME_DATA) {
		charge_stream(c, f->stream, f->size);
	} else if (f->type == RPC_FRAME_RST_STREAM) {
		if (close_stream(c, f->stream))
			leave_behind(c, 1);
	}
	return RPC_RULE_END;
}

static enum rpc_rule on_block_bytes(struct connection *c, const uint8_t *bytes, size_t n)
{
	uint32_t before = c->block.fields, stream = c->block.stream;

	if (!rpc_block_bytes(&c->block, bytes, n))
		return RPC_RULE_BLOCK_SHAPE;
	uint32_t fields = c->block.fields - before;

	if (c->guard->options.block_size && c->block.fields > RPC_GUARD_FIELDS)
		return RPC_RULE_BLOCK_FIELDS;
	rpc_toll_fields(&c->guard->toll, fields);
	charge_stream(c, stream, (int64_t)n * HEADER_BYTE_BYTES + (int64_t)fields * FIELD_BYTES);
	if (c->in.left == 0 && !rpc_block_frame_end(&c->block, &c->in.frame))
		return RPC_RULE_BLOCK_SHAPE;
	return RPC_RULE_END;
}

static enum rpc_rule follow(struct connection *c, const uint8_t *bytes, size_t n)
{
	enum rpc_rule broken = RPC_RULE_END;
	const uint8_t *piece;
	size_t size;

	while (broken == RPC_RULE_END && rpc_frames_next(&c->in, &bytes, &n, &piece, &size)) {
		if (!piece)
			broken = on_frame(c);
		if (broken == RPC_RULE_END && c->block.stream && (piece || c->in.left == 0))
			broken = on_block_bytes(c, piece, size);
	}
	return broken;
}

static enum rpc_rule pay(struct connection *c, const struct msghdr *msg, size_t n)
{
	static const enum rpc_rule unpaid[] = {[RPC_TOLL_PAID] = RPC_RULE_END,
	    [RPC_TOLL_EMPTY] = RPC_RULE_FRAMES,
	    [RPC_TOLL_BEYOND_SHARE] = RPC_RULE_SHARE};
	enum rpc_rule broken = RPC_RULE_END;

	c->seen = true;
	rpc_toll_read(&c->guard->toll);
	for (size_t i = 0; i < msg->msg_iovlen && n > 0; i++) {
		size_t part = msg->msg_iov[i].iov_len < n ? msg->msg_iov[i].iov_len : n;

		if (broken == RPC_RULE_END && rpc_toll_is_paid(&c->guard->toll))
			broken = follow(c, msg->msg_iov[i].iov_base, part);
		n -= part;
	}
	enum rpc_toll_end end = rpc_toll_end(&c->guard->toll);

	return broken == RPC_RULE_END ? unpaid[end] : broken;
}

static void follow_out(struct connection *c, const struct msghdr *msg, size_t n)
{
	const uint8_t *piece;
	size_t size;

	for (size_t i = 0; i < msg->msg_iovlen && n > 0; i++) {
		size_t part = msg->msg_iov[i].iov_len < n ? msg->msg_iov[i].iov_len : n;
		const uint8_t *bytes = msg->msg_iov[i].iov_base;

		n -= part;
		while (rpc_frames_next(&c->out, &bytes, &part, &piece, &size)) {
			const struct rpc_frame *f = &c->out.frame;

			if (!piece &&
			    (f->type == RPC_FRAME_RST_STREAM ||
				(f->type <= RPC_FRAME_HEADERS && f->flags & RPC_FLAG_END_STREAM)))
				close_stream(c, f->stream);
		}
	}
	settle(c);
}

/* --- which connection --- */

/* grpc closes a connection when its peer goes; then the number may be anything's. */
static bool is_still(int fd, const struct connection *c)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_ino == c->inode;
}

static struct connection *find(int fd)
{
	struct connection *c = fd >= 0 && fd < nconnections ? &connections[fd] : NULL;

	if (!c || !c->guard)
		return NULL;
	if (is_still(fd, c))
		return c;
	forget(c);
	return NULL;
}

static void end_connection(struct connection *c, enum rpc_rule why)
{
	c->guard->broken[why]++;
	retire(c);
	tell(c->guard);
}

/* Looked at and shut down is the copy: another thread may close the number, and open it anew. */
static void cut(int fd, struct connection *c)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy >= 0 && is_still(copy, c)) {
		end_connection(c, RPC_RULE_MEMORY);
		shutdown(copy, SHUT_RDWR);
		sink_close(copy);
	} else {
		forget(c);
		syscall(SYS_close, copy); /* not ours, or -1 */
	}
}

/* Its connections, and time: the next one has to wait until a whole burst is paid for. */
static void cut_all(struct rpc_guard *g)
{
	for (int fd = 0; fd < nconnections; fd++)
		if (connections[fd].guard == g && !connections[fd].over)
			cut(fd, &connections[fd]);
	rpc_budget_empty(&g->account);
	rpc_toll_fine(&g->toll);
	tell(g);
}

static void keep_to_budget(void)
{
	struct rpc_budget_account *worst = rpc_budget_worst();

	if (!worst)
		return;
	for (int fd = 0; fd < nconnections; fd++)
		find(fd); /* what grpc has closed holds nothing */
	while ((worst = rpc_budget_worst()))
		cut_all((struct rpc_guard *)worst);
}

/* False: it has to end. */
static bool judge(int fd, const struct msghdr *msg, ssize_t n, int why)
{
	struct connection *c = find(fd);

	if (!c)
		return true;
	rpc_portion_read(&c->portion, n);
	if (n < 0 && (why == EAGAIN || why == EINTR))
		return true;
	if (n < 0 && why == EBADMSG && !c->over)
		end_connection(c, RPC_RULE_RIGHTS);
	if (n < 0 && why == EBADMSG)
		return false;
	if (n <= 0) {
		retire(c);
		return true;
	}
	if (c->over)
		return false;
	enum rpc_rule broken = pay(c, msg, (size_t)n);

	if (broken == RPC_RULE_END) {
		settle(c);
		keep_to_budget();
		return !c->over;
	}
	end_connection(c, broken);
	return false;
}

/* It had its portion, and comes again.  Another descriptor with this number did not. */
static bool has_to_wait(int fd)
{
	return rpc_portion_is_over(&connections[fd].portion) && find(fd) &&
	       rpc_portion_next(&connections[fd].portion, fd);
}

/* sinks: may descriptors come along it? */
static bool may_read(int fd, bool *sinks)
{
	pthread_mutex_lock(&lock);
	bool known = fd >= 0 && fd < nconnections;
	bool waits = known && has_to_wait(fd);

	*sinks = known && connections[fd].sinks;
	pthread_mutex_unlock(&lock);
	return !waits;
}

/* grpc's own; what it closes is forgotten at once. */
__attribute__((visibility("default"))) int close(int fd)
{
	bool is = false;

	pthread_mutex_lock(&lock);
	if (fd >= 0 && fd < nconnections) {
		is = connections[fd].sinks && is_still(fd, &connections[fd]);
		forget(&connections[fd]);
		connections[fd].sinks = false;
	}
	pthread_mutex_unlock(&lock);
	if (!is)
		return (int)syscall(SYS_close, fd);
	sink_close(fd);
	return 0;
}

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	bool looks = false;

	if (!(flags & (MSG_ERRQUEUE | MSG_PEEK)) && !may_read(fd, &looks)) {
		errno = EAGAIN;
		return -1;
	}
	ssize_t n = looks ? sink_recvmsg(fd, msg, flags) : syscall(SYS_recvmsg, fd, msg, flags);
	int why = errno;

	if (n == 0 && flags & MSG_ERRQUEUE)
		return 0; /* grpc asked for errors, and there are none: no end of file */
	pthread_mutex_lock(&lock);
	bool goes_on = judge(fd, msg, n, why);
	pthread_mutex_unlock(&lock);
	if (!goes_on)
		shutdown(fd, SHUT_RDWR);
	errno = why;
	return goes_on ? n : 0;
}

static void leave(int fd, bool begins)
{
	if (fd >= 0 && fd < nconnections)
		connections[fd].leaving = begins ? connections[fd].nstreams : 0;
}

/* The client may hear of an end, and open another stream, before end_write() does. */
static void begin_write(int fd)
{
	pthread_mutex_lock(&lock);
	leave(fd, true);
	pthread_mutex_unlock(&lock);
}

/* Nothing leaves by a write that failed. */
static void end_write(int fd, const struct msghdr *msg, ssize_t n)
{
	pthread_mutex_lock(&lock);
	struct connection *c = n > 0 ? find(fd) : NULL;

	if (c && !c->over)
		follow_out(c, msg, (size_t)n);
	leave(fd, false);
	pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	begin_write(fd);
	ssize_t n = syscall(SYS_sendmsg, fd, msg, flags);
	int why = errno;

	end_write(fd, msg, n);
	errno = why;
	return n;
}

__attribute__((visibility("default"))) int epoll_ctl(
    int epoll, int op, int fd, struct epoll_event *event)
{
	int failed = (int)syscall(SYS_epoll_ctl, epoll, op, fd, event);

	if (!failed && op == EPOLL_CTL_ADD) {
		rpc_wait_added(epoll, fd, event);
		pthread_mutex_lock(&lock);
		struct connection *c = find(fd);

		if (c)
			rpc_portion_polled(&c->portion, epoll, event);
		pthread_mutex_unlock(&lock);
	}
	return failed;
}

/* --- the server's side --- */

struct rpc_guard *rpc_guard_new(const struct rpc_guard_options *o)
{
	struct rpc_guard *g = mem_zalloc(sizeof(*g));

	g->options = *o;
	rpc_toll_set(&g->toll, o->per_second, o->burst, o->message_size);
	pthread_mutex_lock(&lock);
	rpc_budget_join(&g->account);
	pthread_mutex_unlock(&lock);
	return g;
}

void rpc_guard_free(struct rpc_guard **guard)
{
	struct rpc_guard *g = take(*guard);

	if (!g)
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < nconnections; i++)
		if (connections[i].guard == g) {
			const struct connection was = connections[i];
			forget(&connections[i]); /* and grpc may close it later */
			connections[i] =
			    (struct connection){.inode = was.inode, .sinks = was.sinks};
		}
	rpc_budget_leave(&g->account);
	pthread_mutex_unlock(&lock);
	free(g);
}

static void make_room(int fd)
{
	int n = nconnections ? nconnections : 64;

	while (n <= fd)
		n *= 2;
	if (n == nconnections)
		return;
	connections = mem_realloc(connections, (size_t)n * sizeof(*connections));
	while (nconnections < n)
		connections[nconnections++] = (struct connection){.guard = NULL};
}

void rpc_guard_add(struct rpc_guard *g, int fd, ino_t inode)
{
	if (!g->toll.per_second)
		return;
	pthread_mutex_lock(&lock);
	make_room(fd);
	forget(&connections[fd]);
	connections[fd] = (struct connection){
	    .guard = g, .inode = inode, .in.left = RPC_FRAMES_PREFACE, .sinks = sink_is_needed(fd)};
	settle(&connections[fd]);
	pthread_mutex_unlock(&lock);
}

void rpc_guard_took(struct rpc_guard *g, int fd, ino_t inode, int64_t bytes)
{
	pthread_mutex_lock(&lock);
	struct connection *c = fd >= 0 && fd < nconnections ? &connections[fd] : NULL;

	if (c && c->guard == g && c->inode == inode) {
		c->taken += bytes;
		settle(c);
	}
	pthread_mutex_unlock(&lock);
}

void rpc_guard_heard(struct rpc_guard *g, int fd, ino_t inode)
{
	pthread_mutex_lock(&lock);
	struct connection *c = fd >= 0 && fd < nconnections ? &connections[fd] : NULL;

	if (c && c->guard == g && c->inode == inode && c->unheard > 0) {
		c->unheard--;
		if (c->left > c->unheard)
			c->left = c->unheard;
	}
	pthread_mutex_unlock(&lock);
}

void rpc_guard_charge(struct rpc_guard *g, int64_t more)
{
	if (!g->toll.per_second)
		return;
	pthread_mutex_lock(&lock);
	rpc_budget_charge(&g->account, more);
	tell_level(g);
	keep_to_budget();
	pthread_mutex_unlock(&lock);
}

void rpc_guard_push(struct rpc_guard *g, int64_t more)
{
	if (!g->toll.per_second)
		return;
	pthread_mutex_lock(&lock);
	g->pushed += more;
	tell_level(g);
	pthread_mutex_unlock(&lock);
}

void rpc_guard_calm(struct rpc_guard *g)
{
	pthread_mutex_lock(&lock);
	rpc_budget_charge(&g->account, -g->left_behind);
	g->left_behind = 0;
	tell_level(g);
	pthread_mutex_unlock(&lock);
}

bool rpc_guard_news(struct rpc_guard *g, struct rpc_guard_news *n)
{
	pthread_mutex_lock(&lock);
	bool news = g->news;

	n->held = held_by(g);
	n->left_behind = g->left_behind > 0;
	for (unsigned i = 0; i < RPC_RULE_END; i++) {
		n->broken[i] = g->broken[i];
		g->broken[i] = 0;
	}
	g->news = false;
	pthread_mutex_unlock(&lock);
	return news;
}

int64_t rpc_guard_held(struct rpc_guard *g)
{
	pthread_mutex_lock(&lock);
	for (int fd = 0; fd < nconnections; fd++)
		if (connections[fd].guard == g)
			find(fd);
	int64_t held = held_by(g);

	pthread_mutex_unlock(&lock);
	return held;
}

void rpc_guard_tell(int eventfd)
{
	pthread_mutex_lock(&lock);
	tell_fd = eventfd;
	pthread_mutex_unlock(&lock);
}

bool rpc_guard_has_news(void)
{
	pthread_mutex_lock(&lock);
	bool news = any_news;

	any_news = false;
	pthread_mutex_unlock(&lock);
	return news;
}

void rpc_guard_budget(int64_t share, int64_t all)
{
	pthread_mutex_lock(&lock);
	rpc_budget_set(share, all);
	pthread_mutex_unlock(&lock);
}

bool rpc_guard_sees(const struct rpc_guard *g, int fd)
{
	pthread_mutex_lock(&lock);
	bool seen = !g->toll.per_second || fd < 0 || fd >= nconnections ||
		    connections[fd].guard != g ||
		    (connections[fd].seen && connections[fd].portion.polled);
	pthread_mutex_unlock(&lock);
	return seen;
}
