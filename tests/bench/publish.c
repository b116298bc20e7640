/* publish.c - calls of the kubelet, each on a connection of its own.
 *
 *   publish SOCKET METHOD PARALLEL < MESSAGES   MESSAGES: for each its size (4 bytes, big endian)
 * and its bytes; PARALLEL of them at a time
 *
 * The result is a line of JSON; times are microseconds from before the connect to the end of the
 * answer.  An answer without a message is an error, and counted as failed.
 */
#include "common/mem.h"
#include "h2.h"
#include "times.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { CALLS_MAX = 100000, MESSAGE_MAX = 1 << 20, PARALLEL_MAX = 256, GRPC_HEAD = 5 };

struct call {
	uint8_t *bytes; /* with gRPC's own head */
	size_t len;
	int64_t took;
	bool answered, closed;
};

static struct call calls[CALLS_MAX];
static size_t ncalls;
static atomic_size_t next;
static const char *target, *method;

static void on_data(void *ctx, const uint8_t *bytes, size_t len)
{
	(void)bytes;
	((struct call *)ctx)->answered |= len > 0;
}

static void on_closed(void *ctx)
{
	((struct call *)ctx)->closed = true;
}

static void make(struct call *c)
{
	static const struct h2_events events = {on_data, on_closed};
	int64_t start = now_ns(CLOCK_MONOTONIC);
	struct h2 *h = h2_connect(target);

	if (!h)
		die("cannot connect");
	h2_send(h2_open(h, method, &events, c), c->bytes, c->len, true);
	while (!c->closed && h2_turn(h))
		;
	c->took = now_ns(CLOCK_MONOTONIC) - start;
	h2_free(&h);
}

static void *work(void *unused)
{
	size_t i;

	while ((i = atomic_fetch_add(&next, 1)) < ncalls)
		make(&calls[i]);
	return unused;
}

static bool read_call(struct call *c)
{
	uint8_t head[4];

	if (fread(head, 1, sizeof(head), stdin) != sizeof(head))
		return false;
	size_t n = (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3];

	if (n > MESSAGE_MAX)
		die("a message is too large");
	c->len = n + GRPC_HEAD;
	c->bytes = mem_zalloc(c->len);
	memcpy(c->bytes + 1, head, sizeof(head));
	if (fread(c->bytes + GRPC_HEAD, 1, n, stdin) != n)
		die("a message is cut short");
	return true;
}

int main(int argc, char **argv)
{
	pthread_t threads[PARALLEL_MAX];
	struct times times = {0};
	size_t parallel = argc == 4 ? strtoul(argv[3], NULL, 10) : 0, failed = 0;

	if (!parallel || parallel > PARALLEL_MAX)
		die("usage is in the head of publish.c");
	target = argv[1];
	method = argv[2];
	while (ncalls < CALLS_MAX && read_call(&calls[ncalls]))
		ncalls++;
	double began = (double)now_ns(CLOCK_REALTIME) / 1e9;
	int64_t start = now_ns(CLOCK_MONOTONIC);

	for (size_t i = 0; i < parallel; i++)
		if (pthread_create(&threads[i], NULL, work, NULL))
			die("pthread_create");
	for (size_t i = 0; i < parallel; i++)
		pthread_join(threads[i], NULL);
	double seconds = (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e9;

	for (size_t i = 0; i < ncalls; i++) {
		failed += !calls[i].answered;
		times_note(&times, calls[i].took);
	}
	times_print(&times, seconds);
	printf(", \"failed\": %zu, \"began\": %.6f}\n", failed, began);
	return 0;
}
