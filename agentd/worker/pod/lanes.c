/* lanes.c - asked for -> mapped -> rows are added up when somebody looks. */
#include "lanes.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "ebpf/accelerate.h"
#include "worker/base/metrics.h"
#include "worker/link/redirect.h"
#include <sys/mman.h>

LOG_SCOPE("redirect");

enum { ROWS_SIZE = ACCELERATE_ROWS * sizeof(struct accelerate_row) };

struct pod_lanes {
	struct link *link;
	struct link_call *asking;
	const struct accelerate_row *rows; /* NULL: not (yet) mapped */
};

struct pod_lanes *pod_lanes_new(struct link *link)
{
	struct pod_lanes *l = mem_zalloc(sizeof(*l));

	l->link = link;
	return l;
}

void pod_lanes_free(struct pod_lanes **lp)
{
	struct pod_lanes *l = take(*lp);

	if (!l)
		return;
	link_call_cancel(&l->asking);
	if (l->rows)
		munmap((void *)l->rows, ROWS_SIZE);
	free(l);
}

static void on_given(void *ctx, const struct err *e, int received)
{
	struct pod_lanes *l = ctx;
	auto_close int fd = received;
	void *at;

	if (e) {
		log_warn(NULL, "cannot read the counts of accelerated connections: %s", e->msg);
		return;
	}
	at = mmap(NULL, ROWS_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		log_warn(NULL, "cannot read the counts of accelerated connections: %m");
	else
		l->rows = at;
}

void pod_lanes_ask(struct pod_lanes *l)
{
	if (!l->rows && !l->asking)
		link_redirect_lanes(l->link, &l->asking, on_given, l);
}

/* --- looking at them --- */

static void add(struct accelerate_counts *sum, const struct accelerate_counts *row)
{
	sum->lanes += __atomic_load_n(&row->lanes, __ATOMIC_RELAXED);
	sum->given += __atomic_load_n(&row->given, __ATOMIC_RELAXED);
	sum->passed += __atomic_load_n(&row->passed, __ATOMIC_RELAXED);
}

static struct accelerate_row sum_of(const struct pod_lanes *l)
{
	struct accelerate_row sum = {0};

	for (size_t i = 0; i < ACCELERATE_ROWS; i++) {
		add(&sum.loopback, &l->rows[i].loopback);
		add(&sum.between, &l->rows[i].between);
	}
	return sum;
}

static json_t *show(const struct accelerate_counts *c)
{
	return json_pack("{s:I, s:I, s:I}", "connections", (json_int_t)c->lanes, "given",
	    (json_int_t)c->given, "passed", (json_int_t)c->passed);
}

json_t *pod_lanes_show(const struct pod_lanes *l)
{
	struct accelerate_row sum;

	if (!l->rows)
		return NULL;
	sum = sum_of(l);
	return json_pack(
	    "{s:o, s:o}", "loopback", show(&sum.loopback), "between", show(&sum.between));
}

static void measure(const struct accelerate_counts *c, const char *between)
{
	struct metric *connections = metric_counter("agentd_redirect_accelerated_connections_total",
	    "Connections of the node whose two ends were joined, by what is between them.");
	struct metric *bytes = metric_counter("agentd_redirect_accelerated_bytes_total",
	    "Bytes of accelerated connections that could have gone from socket to socket, by "
	    "where they went.");
	char labels[100];

	metric_set(
	    connections, metric_labels(labels, sizeof(labels), "between", between, NULL), c->lanes);
	metric_set(bytes,
	    metric_labels(labels, sizeof(labels), "between", between, "way", "socket", NULL),
	    (double)c->given);
	metric_set(bytes,
	    metric_labels(labels, sizeof(labels), "between", between, "way", "tcp", NULL),
	    (double)c->passed);
}

void pod_lanes_measure(const struct pod_lanes *l)
{
	struct accelerate_row sum;

	if (!l->rows)
		return;
	sum = sum_of(l);
	measure(&sum.loopback, "app_and_envoy");
	measure(&sum.between, "envoys");
}
