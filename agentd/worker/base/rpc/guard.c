/* guard.c - see guard.h.
 *
 * grpc calls recvmsg(); the linker gives it ours, for a program's own symbols come before those of
 * libc, whether grpc is a library of its own or inside the executable (grpc has no public place to
 * look at bytes before it does, and a relay would copy all and double the fds) -> the kernel's
 * answer -> not a guarded connection: as it is -> the frames' headers are followed through it, each
 * frame takes its cost from the bucket -> it is empty: the whole read is thrown away, the socket
 * shut down, the answer is 0, now and later.
 *
 * The costs follow from the work of grpc: a stream is 12 KB and a turn of the loop, header bytes
 * may be references to 4 KB each (HPACK), content is bounded by windows.
 */
#include "guard.h"
#include "common/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PREFACE_SIZE = 24, HEAD_SIZE = 9 };
enum { DATA = 0, HEADERS = 1, WINDOW_UPDATE = 8, CONTINUATION = 9 };
enum {
	REQUEST_COST = 200,
	LEAST = 50, /* requests: what a connection needs to begin */
	READ_COST = 1,
	CALL_COST = 100,
	FRAME_COST = REQUEST_COST / RPC_GUARD_FRAMES,
	HEADER_BYTES = 16, /* that cost 1 */
	SMALL_DATA = 1024,
	DATA_BYTES = 4096,
};

struct rpc_guard {
	int64_t per_second, burst, left; /* in costs */
	int64_t filled_us;
	unsigned floods;
};

struct connection {
	struct rpc_guard *guard; /* NULL: this fd is not guarded */
	ino_t inode;
	uint32_t skip; /* bytes until the next frame's header, in the beginning the preface */
	uint8_t head[HEAD_SIZE];
	unsigned nhead;
	bool seen, over;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct connection *connections; /* by fd */
static int nconnections;

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* --- what it costs --- */

static void fill(struct rpc_guard *g)
{
	int64_t now = now_us(), more = (now - g->filled_us) * g->per_second / 1000000;

	if (more == 0)
		return;
	g->left += more;
	g->filled_us = now;
	if (g->left > g->burst)
		g->left = g->burst;
}

static int64_t cost(uint32_t size, unsigned type)
{
	switch (type) {
	case DATA:
		return size < SMALL_DATA ? FRAME_COST : 1 + size / DATA_BYTES;
	case HEADERS:
	case CONTINUATION:
		return CALL_COST + size / HEADER_BYTES;
	case WINDOW_UPDATE:
		return 1;
	default:
		return FRAME_COST + size / HEADER_BYTES;
	}
}

static void follow(struct connection *c, const uint8_t *bytes, size_t n)
{
	while (n > 0) {
		if (c->skip) {
			size_t skipped = c->skip < n ? c->skip : n;

			c->skip -= (uint32_t)skipped;
			bytes += skipped;
			n -= skipped;
			continue;
		}
		c->head[c->nhead++] = *bytes++;
		n--;
		if (c->nhead < HEAD_SIZE)
			continue;
		c->nhead = 0;
		c->skip = (uint32_t)c->head[0] << 16 | (uint32_t)c->head[1] << 8 | c->head[2];
		c->guard->left -= cost(c->skip, c->head[3]);
	}
}

static bool pay(struct connection *c, const struct msghdr *msg, size_t n)
{
	if (c->over)
		return false;
	c->seen = true;
	fill(c->guard);
	c->guard->left -= READ_COST;
	for (size_t i = 0; i < msg->msg_iovlen && n > 0 && c->guard->left >= 0; i++) {
		size_t part = msg->msg_iov[i].iov_len < n ? msg->msg_iov[i].iov_len : n;

		follow(c, msg->msg_iov[i].iov_base, part);
		n -= part;
	}
	if (c->guard->left >= 0)
		return true;
	c->guard->left = 0;
	c->guard->floods++;
	c->over = true;
	return false;
}

/* --- which connection --- */

/* grpc closes a connection when its peer goes; then the number may be anything's. */
static struct connection *find(int fd)
{
	struct connection *c = fd >= 0 && fd < nconnections ? &connections[fd] : NULL;
	struct stat st;

	if (!c || !c->guard)
		return NULL;
	if (!fstat(fd, &st) && st.st_ino == c->inode)
		return c;
	c->guard = NULL;
	return NULL;
}

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	ssize_t n = syscall(SYS_recvmsg, fd, msg, flags);
	bool ends = false;

	if (n <= 0)
		return n;
	pthread_mutex_lock(&lock);
	struct connection *c = find(fd);

	if (c)
		ends = !pay(c, msg, (size_t)n);
	pthread_mutex_unlock(&lock);
	if (!ends)
		return n;
	shutdown(fd, SHUT_RDWR);
	return 0;
}

/* --- the server's side --- */

struct rpc_guard *rpc_guard_new(int64_t per_second, int64_t burst)
{
	struct rpc_guard *g = mem_zalloc(sizeof(*g));

	if (per_second && per_second < LEAST)
		per_second = LEAST;
	if (burst < LEAST)
		burst = LEAST;
	*g = (struct rpc_guard){.per_second = per_second * REQUEST_COST,
	    .burst = burst * REQUEST_COST,
	    .left = burst * REQUEST_COST,
	    .filled_us = now_us()};
	return g;
}

void rpc_guard_free(struct rpc_guard **guard)
{
	struct rpc_guard *g = take(*guard);

	pthread_mutex_lock(&lock);
	for (int i = 0; g && i < nconnections; i++)
		if (connections[i].guard == g)
			connections[i].guard = NULL;
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
	if (!g->per_second)
		return;
	pthread_mutex_lock(&lock);
	make_room(fd);
	connections[fd] = (struct connection){.guard = g, .inode = inode, .skip = PREFACE_SIZE};
	pthread_mutex_unlock(&lock);
}

unsigned rpc_guard_floods(struct rpc_guard *g)
{
	pthread_mutex_lock(&lock);
	unsigned n = g->floods;

	g->floods = 0;
	pthread_mutex_unlock(&lock);
	return n;
}

bool rpc_guard_sees(const struct rpc_guard *g, int fd)
{
	pthread_mutex_lock(&lock);
	bool seen = !g->per_second || fd < 0 || fd >= nconnections || connections[fd].guard != g ||
		    connections[fd].seen;
	pthread_mutex_unlock(&lock);
	return seen;
}
