/* pod_services.c - walks the table: start downwards, events downwards, stop upwards.
 *
 * It knows no service.  Only rows that have started hear events, and only they are stopped.
 */
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "rows.h"
#include "worker/pods/pod.h"
#include <string.h>

LOG_SCOPE("pod");

struct pod_services {
	struct pod_context context; /* the first: the rows have this address */
	size_t started;             /* rows */
	void *of[];                 /* each row's own struct */
};

/* Each started row that has the function, and what belongs to it. */
#define EACH(s, row, function)                                                                     \
	for (size_t row = 0; row < (s)->started; row++)                                            \
		if (pod_rows[row]->function)

#define TELL(s, event, ...)                                                                        \
	do {                                                                                       \
		EACH(s, row_, event)                                                               \
		pod_rows[row_]->event((s)->of[row_], ##__VA_ARGS__);                               \
	} while (0)

static struct pod_services *services_of(struct pod_context *c)
{
	return (struct pod_services *)c;
}

/* --- life --- */

static size_t count_rows(void)
{
	size_t n = 0;

	while (pod_rows[n])
		n++;
	return n;
}

static int start_rows(struct pod_services *s, struct err *e)
{
	for (; pod_rows[s->started]; s->started++) {
		const struct pod_service *row = pod_rows[s->started];
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

struct pod_services *pod_services_start(const struct agent_shared *a, struct pod *p,
    struct node *node, const struct redirect_plan *plan)
{
	struct pod_services *s = mem_zalloc(sizeof(*s) + count_rows() * sizeof(*s->of));
	struct err e;

	s->context = (struct pod_context){.shared = a,
	    .plane = &a->planes[node_settings(node)->plane],
	    .pod = p,
	    .node = node,
	    .plan = plan};
	if (start_rows(s, &e)) {
		log_error(p->label, "pod refused: %s", e.msg);
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
		const struct pod_service *row = pod_rows[--s->started];

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

/* --- questions --- */

bool pod_ask_call(struct pod_context *c, struct rpc_stream *st, const char *method)
{
	struct pod_services *s = services_of(c);

	EACH(s, i, call)
	if (pod_rows[i]->call(s->of[i], st, method))
		return true;
	return false;
}

void pod_ask_uses(struct pod_context *c, int64_t in_use[LIMIT_END])
{
	TELL(services_of(c), uses, in_use);
}

void pod_services_dump(struct pod_services *s, json_t *o)
{
	TELL(s, dump, o);
}

void pod_services_show(struct pod_services *s, const char *page, json_t *o, const char *name)
{
	EACH(s, i, page)
	if (!strcmp(pod_rows[i]->page, page))
		pod_rows[i]->show(s->of[i], o, name);
}

void pod_services_measure(struct pod_services *s, const char *labels)
{
	TELL(s, measure, labels);
}

unsigned pod_services_count(struct pod_services *s, size_t row)
{
	return pod_rows[row]->count(s->of[row]);
}
