/* pod_services.c - walks the table: downwards to start and to tell, upwards to stop.
 *
 * It knows no service.  Only rows that have started hear events, and only they are stopped.
 */
#include "pod_services.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/pods/pod.h"
#include <string.h>

LOG_SCOPE("pod");

struct pod_services {
	struct pod_context context; /* the first: the rows have this address */
	const struct pod_service *const *rows;
	size_t started;    /* rows */
	unsigned measured; /* bits: rows that had a problem when somebody scraped */
	void *of[];        /* each row's own struct */
};

/* Calls this function of each started row that has it. */
#define TELL(s, function, ...)                                                                     \
	do {                                                                                       \
		for (size_t row = 0; row < (s)->started; row++)                                    \
			if ((s)->rows[row]->function)                                              \
				(s)->rows[row]->function((s)->of[row], ##__VA_ARGS__);             \
	} while (0)

static struct pod_services *services_of(struct pod_context *c)
{
	return (struct pod_services *)c;
}

/* --- life --- */

static size_t count_rows(const struct pod_service *const *rows)
{
	size_t n = 0;

	while (rows[n])
		n++;
	return n;
}

static int start_rows(struct pod_services *s, struct err *e)
{
	for (; s->rows[s->started]; s->started++) {
		const struct pod_service *row = s->rows[s->started];
		struct pod_context **its = mem_zalloc(row->size);

		*its = &s->context;
		s->of[s->started] = its;
		if (row->start && row->start(its, e)) {
			free(its);
			return err_wrap(e, "%s", row->name);
		}
	}
	return 0;
}

struct pod_services *pod_services_start(const struct agent_shared *a,
    const struct pod_service *const *rows, struct pod *p, struct node *node,
    const struct redirect_plan *plan)
{
	struct pod_services *s = mem_zalloc(sizeof(*s) + count_rows(rows) * sizeof(*s->of));
	struct err e;

	s->rows = rows;
	s->context = (struct pod_context){.shared = a,
	    .plane = &a->planes[node_settings(node)->plane],
	    .pod = p,
	    .node = node,
	    .plan = plan};
	if (start_rows(s, &e)) {
		log_error(p->spec.label, "pod refused: %s", e.msg);
		pod_services_stop(&s);
		pod_set_ready(p, &e);
		return NULL;
	}
	s->context.plan = NULL;
	return s;
}

void pod_services_stop_accepting(struct pod_services *s)
{
	TELL(s, stop_accepting);
}

void pod_services_stop(struct pod_services **services)
{
	struct pod_services *s = take(*services);

	if (!s)
		return;
	while (s->started > 0) {
		const struct pod_service *row = s->rows[--s->started];

		if (row->stop)
			row->stop(s->of[s->started]);
		free(s->of[s->started]);
	}
	node_free(&s->context.node);
	free(s);
}

/* --- events --- */

void pod_tell_directory(struct pod_context *c)
{
	TELL(services_of(c), directory);
}

void pod_tell_lost(struct pod_context *c, unsigned files)
{
	TELL(services_of(c), lost, files);
}

void pod_tell_redirected(struct pod_context *c)
{
	TELL(services_of(c), redirected);
}

void pod_tell_netns(struct pod_context *c, bool known)
{
	TELL(services_of(c), netns, known);
}

void pod_tell_addresses(struct pod_context *c, const char *const *ips, size_t n)
{
	TELL(services_of(c), addresses, ips, n);
}

void pod_services_token_changed(struct pod_services *s)
{
	TELL(s, token_given);
}

void pod_tell_token(struct pod_context *c, bool expired)
{
	TELL(services_of(c), token, expired);
}

void pod_tell_trust(struct pod_context *c)
{
	TELL(services_of(c), trust);
}

void pod_services_trust_changed(struct pod_services *s)
{
	pod_tell_trust(&s->context);
}

void pod_tell_certificate(struct pod_context *c, struct cert *cert, const char *why_not)
{
	TELL(services_of(c), certificate, cert, why_not);
}

/* --- is it ready? --- */

static enum pod_progress progress_of(
    const struct pod_services *s, size_t row, const struct err **why)
{
	*why = NULL;
	return s->rows[row]->progress ? s->rows[row]->progress(s->of[row], why) : POD_FINE;
}

void pod_tell_progress(struct pod_context *c)
{
	const struct pod_services *s = services_of(c);
	const struct err *first[POD_HELD + 1] = {NULL}, *why;

	for (size_t row = 0; row < s->started; row++) {
		enum pod_progress p = progress_of(s, row, &why);

		if (p == POD_BEGINS)
			return;
		if (!first[p])
			first[p] = why;
	}
	if (first[POD_DEGRADED] && !first[POD_HELD])
		pod_set_degraded(c->pod, first[POD_DEGRADED]);
	else
		pod_set_ready(c->pod, first[POD_HELD]);
}

/* --- is it served? --- */

static enum served served_of(const struct pod_services *s, size_t row, struct err *why)
{
	return s->rows[row]->served ? s->rows[row]->served(s->of[row], why) : SERVED_YES;
}

enum served pod_services_served(const struct pod *p, struct err *why)
{
	const struct pod_services *s = p->services;
	enum served worst = SERVED_YES;
	struct err its = {0};

	if (!s) {
		*why = p->state;
		return SERVED_NO;
	}
	for (size_t row = 0; row < s->started; row++) {
		const enum served one = served_of(s, row, &its);

		if (one <= worst)
			continue;
		worst = one;
		*why = its;
	}
	return worst;
}

/* Of this row, which keeps the pod from being served in full. */
static bool has_problem(const struct pod_services *s, size_t row, struct err *why)
{
	const struct err *kept;

	if (progress_of(s, row, &kept) < POD_DEGRADED)
		return served_of(s, row, why) >= SERVED_HELD;
	*why = *kept;
	return true;
}

/* Of a pod that waits for itself (its cgroup, say), nobody else has taken anything. */
static enum pod_has of_progress(enum pod_progress p, const struct err *why)
{
	if (p == POD_FINE)
		return POD_HAS;
	if (p == POD_BEGINS)
		return POD_WAITS;
	return why->code == ERR_UNAVAILABLE ? POD_AWAY : POD_LACKS;
}

enum pod_has pod_services_has(const struct pod_services *s, size_t row, const char **why)
{
	const struct pod_service *r = s->rows[row];
	const struct err *e;

	*why = "";
	if (row >= s->started || (!r->has && !r->progress))
		return POD_ASKS_NOT;
	const enum pod_progress p = progress_of(s, row, &e);
	const enum pod_has has = of_progress(p, e);
	if (has != POD_HAS || !r->has) {
		*why = e ? e->msg : "";
		return has;
	}
	return r->has(s->of[row], why);
}

/* --- questions --- */

bool pod_ask_call(struct pod_context *c, struct rpc_stream *st, const char *method)
{
	struct pod_services *s = services_of(c);

	for (size_t i = 0; i < s->started; i++)
		if (s->rows[i]->call && s->rows[i]->call(s->of[i], st, method))
			return true;
	return false;
}

void pod_ask_uses(struct pod_context *c, int64_t in_use[LIMIT_END])
{
	TELL(services_of(c), uses, in_use);
}

static json_t *dump_problems(const struct pod_services *s)
{
	json_t *all = json_object();
	struct err why;

	for (size_t row = 0; row < s->started; row++)
		if (has_problem(s, row, &why))
			json_object_set_new(all, s->rows[row]->name, json_string(why.msg));
	return all;
}

bool pod_services_trouble(const struct pod_services *s, struct err *why)
{
	for (size_t i = 0; i < s->started; i++)
		if (s->rows[i]->troubles && s->rows[i]->troubles(s->of[i], why))
			return true;
	return false;
}

/* problems{service: why}, and what the rows say */
void pod_services_dump(struct pod_services *s, json_t *o)
{
	json_object_set_new(o, "problems", dump_problems(s));
	TELL(s, dump, o);
}

void pod_services_show(struct pod_services *s, const char *page, json_t *o, const char *name)
{
	for (size_t i = 0; i < s->started; i++)
		if (s->rows[i]->page && !strcmp(s->rows[i]->page, page))
			s->rows[i]->show(s->of[i], o, name);
}

/* A service that never had a problem has no line. */
static void measure_problem(struct pod_services *s, size_t row, const char *labels)
{
	struct metric *m = metric_gauge("agentd_pod_problem",
	    "1: the service of agentd keeps the pod from being served in full.");
	struct err why;
	bool has = has_problem(s, row, &why);
	auto_free char *text = NULL;

	if (!has && !(s->measured & 1U << row))
		return;
	s->measured |= 1U << row;
	text = mem_printf("%s,service=\"%s\"", labels, s->rows[row]->name);
	metric_set(m, text, has);
}

void pod_services_measure(struct pod_services *s, const char *labels)
{
	for (size_t row = 0; row < s->started; row++)
		measure_problem(s, row, labels);
	TELL(s, measure, labels);
}

unsigned pod_services_count(struct pod_services *s, size_t row)
{
	return s->rows[row]->count(s->of[row]);
}
