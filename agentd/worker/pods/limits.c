/* limits.c - see limits.h.
 *
 * A request takes one from the bucket, which may so become empty -> reading stops, a timer runs to
 * the moment when a tenth of a second's worth is there again -> `refilled`.  A call that comes
 * meanwhile is refused and counted.  The fiftieth in a row is a FLOOD: streams that are opened and
 * reset at once cost us, not their client (grpc core 1.51 has no limit of its own for them; each
 * waits here with 12 KB), so the pod's connections have to go, and a whole burst has to be paid for
 * before it is heard again.
 *
 * An fd's number says how many are open, for the kernel gives the lowest that is free: no need to
 * count.
 */
#include "limits.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/mem.h"
#include "rpc/share.h"

#include <stdlib.h>
#include <sys/resource.h>

static const struct {
	const char *name, *unit;
} rows[LIMIT_END] = {
    [LIMIT_CONNECTIONS] = {"connections", ""},
    [LIMIT_STREAMS] = {"streams", ""},
    [LIMIT_MESSAGE] = {"message", "bytes"},
    [LIMIT_MEMORY] = {"memory", "bytes"},
    [LIMIT_NODE_MEMORY] = {"node_memory", "bytes"},
    [LIMIT_HEADERS] = {"headers", "bytes"},
    [LIMIT_QUEUED] = {"queued", "bytes"},
    [LIMIT_REQUESTS] = {"requests", "per second"},
    [LIMIT_NODE_REQUESTS] = {"node_requests", "per second"},
    [LIMIT_BURST] = {"requests_burst", ""},
    [LIMIT_FRAMES] = {"frames", "per second"},
    [LIMIT_SILENT] = {"silent_connection", "seconds"},
    [LIMIT_FDS] = {"node_fds", "percent"},
};

enum { FLOOD_CALLS = 50 };

/* Requests of its share: who it is has to be found out (attest.h), and grpc sets much up. */
enum { CONNECTION_COST = 4 };

struct limits {
	struct loop *loop;
	struct limits_values values;
	void (*refilled)(void *ctx);
	void *ctx;
	int64_t left_m; /* in the bucket: thousandths of a request */
	int64_t filled_ms;
	struct share share;
	int64_t refused; /* since the bucket was last refilled */
	struct loop_timer refill;
	uint64_t hits[LIMIT_END];
	struct metric *metric;
};

static void count(const struct limits *l, enum limit what, unsigned n)
{
	char label[64];

	metric_labels(label, sizeof(label), "limit", rows[what].name, NULL);
	metric_add(l->metric, label, n);
}

struct limits *limits_new(
    struct loop *l, const struct limits_values *v, void (*refilled)(void *ctx), void *ctx)
{
	struct limits *lim = mem_zalloc(sizeof(*lim));

	*lim = (struct limits){.loop = l,
	    .values = *v,
	    .refilled = refilled,
	    .ctx = ctx,
	    .left_m = v->of[LIMIT_BURST] * 1000,
	    .filled_ms = loop_uptime_ms(l),
	    .metric = metric_counter(
		"agentd_limit_hits_total", "Times that a pod reached one of its limits.")};
	for (unsigned i = 0; i < LIMIT_END; i++)
		count(lim, (enum limit)i, 0);
	return lim;
}

void limits_free(struct limits **l)
{
	struct limits *lim = take(*l);

	if (!lim)
		return;
	loop_timer_stop(&lim->refill);
	free(lim);
}

int64_t limits_value(const struct limits *l, enum limit what)
{
	return l->values.of[what];
}

void limits_hit(struct limits *l, enum limit what)
{
	l->hits[what]++;
	count(l, what, 1);
}

bool limits_admit(struct limits *l, enum limit what, int64_t in_use)
{
	if (in_use < l->values.of[what])
		return true;
	limits_hit(l, what);
	return false;
}

bool limits_admit_fd(struct limits *l, int fd)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur == RLIM_INFINITY ||
	    (rlim_t)fd < most.rlim_cur / 100 * (rlim_t)l->values.of[LIMIT_FDS])
		return true;
	limits_hit(l, LIMIT_FDS);
	return false;
}

/* --- the bucket --- */

static void fill(struct limits *l)
{
	int64_t now = loop_uptime_ms(l->loop), full = l->values.of[LIMIT_BURST] * 1000;

	/* Thousandths per millisecond are ones per second. */
	l->left_m += (now - l->filled_ms) * l->values.of[LIMIT_REQUESTS];
	l->filled_ms = now;
	if (l->left_m > full)
		l->left_m = full;
}

static void wait_for_room(struct limits *l);

static void on_refill(void *ctx)
{
	struct limits *l = ctx;

	fill(l);
	if (l->left_m < 1000) {
		wait_for_room(l);
		return;
	}
	l->refused = 0;
	l->refilled(l->ctx);
}

static void wait_for_room(struct limits *l)
{
	int64_t wanted_m = l->values.of[LIMIT_REQUESTS] * 100;
	int64_t ms;

	if (wanted_m < 1000)
		wanted_m = 1000;
	ms = (wanted_m - l->left_m) / l->values.of[LIMIT_REQUESTS] + 1;
	loop_timer_in(l->loop, &l->refill, ms, on_refill, l);
}

/* One of the pod's own; without one of the node's the bucket counts as empty. */
static void take_one(struct limits *l, int64_t of_share)
{
	fill(l);
	l->left_m -= 1000;
	if (share_pay(&l->share, of_share * SHARE_REQUEST, l->filled_ms))
		return;
	limits_hit(l, LIMIT_NODE_REQUESTS);
	if (l->left_m > 0)
		l->left_m = 0;
}

static enum limits_verdict request(struct limits *l, int64_t of_share)
{
	take_one(l, of_share);
	if (l->left_m >= 1000)
		return LIMITS_FINE;
	if (!l->refill.armed) {
		limits_hit(l, LIMIT_REQUESTS);
		wait_for_room(l);
	}
	return LIMITS_WAIT;
}

enum limits_verdict limits_request(struct limits *l)
{
	return request(l, 1);
}

static enum limits_verdict attempt(struct limits *l, int64_t of_share)
{
	if (!l->refill.armed) {
		request(l, of_share);
		return LIMITS_FINE;
	}
	limits_hit(l, LIMIT_BURST);
	if (++l->refused < FLOOD_CALLS)
		return LIMITS_WAIT;
	l->refused = 0;
	l->left_m = -l->values.of[LIMIT_BURST] * 1000;
	wait_for_room(l);
	return LIMITS_FLOOD;
}

enum limits_verdict limits_attempt(struct limits *l)
{
	return attempt(l, 1);
}

enum limits_verdict limits_connect(struct limits *l)
{
	return attempt(l, CONNECTION_COST);
}

json_t *limits_dump(const struct limits *l, const int64_t *in_use)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < LIMIT_END; i++) {
		json_t *o =
		    json_pack("{s:s, s:s, s:I, s:I}", "name", rows[i].name, "unit", rows[i].unit,
			"limit", (json_int_t)l->values.of[i], "hits", (json_int_t)l->hits[i]);

		if (in_use[i] >= 0)
			json_object_set_new(o, "in_use", json_integer(in_use[i]));
		json_array_append_new(all, o);
	}
	return all;
}
