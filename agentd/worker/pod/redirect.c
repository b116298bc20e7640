/* redirect.c
 *
 * directory: eBPF is asked for -> the broker accepts -> the pod's cgroup is there -> in force, and
 * the pod's row of counters is known.  A refusal is asked again, ever more rarely.  Another mode:
 * the broker is asked to let go of the pod, which costs nothing when it never had it; it refuses
 * where the node's ceiling keeps it captured.  Later the broker looks into the pod's network
 * namespace -> that is told.  Redirection stays when the services stop: a restart is not its end.
 * The counters' map is asked for once, with the first pod.
 */
#include "redirect.h"
#include "base/back_off.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "mesh/traffic.h"
#include "rows.h"
#include "worker/link/redirect.h"
#include "worker/pods/pod.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <utlist.h>

LOG_SCOPE("redirect");

enum { NAMES_SIZE = 200 };
enum { COUNTERS_SIZE = REDIRECT_PODS_MAX * sizeof(struct redirect_counters) };

struct pod_redirects {
	struct link *link;
	struct link_call *asking;
	const struct redirect_counters *counters; /* rows; NULL: not (yet) mapped */
	struct metric *repaired;
	struct pod_redirect *pods;
};

struct pod_redirect {
	struct pod_context *context;
	struct link_call *setting;
	enum redirect_mode mode;
	bool strict, in_force, inbound;
	bool left;      /* in force for no process of the pod */
	bool open;      /* a strict one, to be reached and to dial without its Envoy */
	unsigned index; /* 0: not known */
	struct redirect_counters baseline;
	json_t *probe_ports;
	struct redirect_rules
	    *rules;            /* until they are in force; NULL: they are, or never will be */
	struct back_off again; /* a refusal's reason may go */
	struct err why;        /* code 0: none */
	char *above;           /* what the ceiling does not allow any more; NULL: nothing */
	struct pod_redirect *prev, *next;
};

/* --- what all share --- */

static void tell(const struct pod_redirect *r)
{
	pod_tell_redirected(r->context);
	pod_tell_progress(r->context);
}

/* The broker looked into the pod's network namespace: all is well, or there is a problem. */
static void note(struct pod_redirect *r, const struct err *e, unsigned bits)
{
	const bool was_well = r->in_force && !r->why.code, inbound = bits & LINK_REDIRECT_INBOUND;

	r->inbound = bits & (LINK_REDIRECT_INBOUND | LINK_REDIRECT_STEERED);
	r->left = bits & LINK_REDIRECT_LEFT;
	r->open = r->left && r->strict;
	r->why = e ? *e : (struct err){.code = 0};
	if (e)
		log_error(r->context->pod->spec.label, "traffic is %s: %s",
		    inbound ? "redirected, but" : "not redirected", e->msg);
	if (was_well != !e)
		tell(r);
	pod_tell_netns(r->context, inbound);
}

static void on_noted(void *ctx, const struct uuid *pod, const struct err *e, unsigned n)
{
	struct pod_redirects *a = ctx;
	struct pod_redirect *r = NULL;

	if (!pod) {
		metric_set(a->repaired, "", n);
		return;
	}
	DL_FOREACH (a->pods, r) {
		if (r->mode != REDIRECT_MODE_EBPF || !r->in_force ||
		    !uuid_equal(&r->context->pod->spec.uid, pod))
			continue;
		note(r, e, n);
		return;
	}
}

static void on_counters(void *ctx, const struct err *e, int received)
{
	struct pod_redirects *a = ctx;
	auto_close int fd = received;
	void *at;

	if (e) {
		log_warn(NULL, "cannot read the counters of redirection: %s", e->msg);
		return;
	}
	at = mmap(NULL, COUNTERS_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		log_warn(NULL, "cannot read the counters of redirection: %m");
	else
		a->counters = at;
}

struct pod_redirects *pod_redirects_new(struct link *p)
{
	struct pod_redirects *a = mem_zalloc(sizeof(*a));

	a->link = p;
	a->repaired = metric_counter("agentd_redirect_repaired_total",
	    "eBPF links, pins and map entries that another program removed or changed.");
	link_on_redirect(p, on_noted, a);
	return a;
}

void pod_redirects_free(struct pod_redirects **ap)
{
	struct pod_redirects *a = take(*ap);

	if (!a)
		return;
	link_on_redirect(a->link, NULL, NULL);
	link_call_cancel(&a->asking);
	if (a->counters)
		munmap((void *)a->counters, COUNTERS_SIZE);
	free(a);
}

char *pod_redirects_above(const struct pod_redirects *a)
{
	const struct pod_redirect *r = NULL;
	unsigned n = 0;
	char names[NAMES_SIZE] = "";
	size_t at = 0;

	DL_FOREACH (a->pods, r) {
		if (!r->above)
			continue;
		n++;
		if (at < sizeof(names))
			at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s",
			    at ? ", " : "", r->context->pod->spec.label);
	}
	if (!n)
		return NULL;
	return mem_printf("%u pod%s above the ceiling of this node (--redirect-allow), until "
			  "restarted: %s%s",
	    n, n == 1 ? "" : "s", names, at < sizeof(names) ? "" : "...");
}

/* --- one pod --- */

static void ask(void *ctx);

static void on_set(void *ctx, const struct err *e, const struct link_redirection *is)
{
	struct pod_redirect *r = ctx;
	const struct err before = r->why;
	const char *label = r->context->pod->spec.label;
	struct pod_redirects *a = r->context->shared->redirect;

	r->in_force = !e;
	r->left = false;
	r->open = e && r->strict && !is->closed;
	r->why = e ? *e : (struct err){.code = 0};
	r->index = e || is->index > REDIRECT_PODS_MAX ? 0 : is->index;
	free(r->above);
	r->above = !e && is->above && *is->above ? mem_strdup(is->above) : NULL;
	if (r->above)
		log_warn(
		    label, "its traffic goes by rules from before the ceiling sank: %s", r->above);
	if (!e && is->baseline)
		r->baseline = *is->baseline;
	if (e) {
		if (strcmp(before.msg, e->msg) != 0)
			log_error(label, "traffic is not redirected: %s", e->msg);
		back_off_start(r->context->shared->loop, &r->again, ask, r);
	} else {
		free(take(r->rules));
		log_info(label, "traffic is redirected by eBPF");
		if (!a->counters && !a->asking)
			link_redirect_counters(a->link, &a->asking, on_counters, a);
	}
	tell(r);
}

static void ask(void *ctx)
{
	struct pod_redirect *r = ctx;
	const struct pod_context *c = r->context;

	link_redirect_set(c->shared->link, &r->setting, &c->pod->spec.uid, r->rules, on_set, r);
}

static void on_let_go(void *ctx, const struct err *e)
{
	struct pod_redirect *r = ctx;

	if (!e)
		return;
	log_error(r->context->pod->spec.label, "traffic stays redirected: %s", e->msg);
	r->in_force = true;
	r->why = *e;
	tell(r);
}

static void on_directory(void *s)
{
	struct pod_redirect *r = s;
	const struct pod_context *c = r->context;

	if (r->mode == REDIRECT_MODE_EBPF)
		ask(r);
	else
		link_redirect_del(c->shared->link, &r->setting, &c->pod->spec.uid, on_let_go, r);
}

static json_t *probe_ports_of(const struct redirect_rules *rules)
{
	json_t *out = json_array();

	for (uint32_t i = 0; i < rules->nrows; i++)
		if (rules->rows[i].kind == REDIRECT_PORT_PROBE)
			json_array_append_new(out, json_integer(rules->rows[i].number));
	return out;
}

static int start(void *s, struct err *e)
{
	struct pod_redirect *r = s;
	struct pod_context *c = r->context;
	const struct redirect_plan *plan = c->plan;

	(void)e;
	r->mode = plan->mode;
	r->strict = plan->rules.strict;
	r->probe_ports = probe_ports_of(&plan->rules);
	DL_APPEND(c->shared->redirect->pods, r);
	if (plan->mode == REDIRECT_MODE_EBPF) {
		err_set(&r->why, ERR_UNAVAILABLE, "redirection waits for the pod's cgroup");
		r->rules = mem_dup(&plan->rules, sizeof(plan->rules));
	}
	c->redirect = r;
	return 0;
}

static void stop(void *s)
{
	struct pod_redirect *r = s;

	link_call_cancel(&r->setting);
	back_off_stop(&r->again);
	free(take(r->rules));
	free(take(r->above));
	json_decref(take(r->probe_ports));
	DL_DELETE(r->context->shared->redirect->pods, r);
}

/* --- looking at it --- */

const struct err *pod_redirect_state(const struct pod_redirect *r)
{
	return r->why.code ? &r->why : NULL;
}

bool pod_redirect_holds(const struct pod_redirect *r)
{
	return r->strict && !r->in_force;
}

/* Whose traffic is not redirected (yet) may start, unless it is strict. */
static enum pod_progress progress(void *s, const struct err **why)
{
	const struct pod_redirect *r = s;

	*why = pod_redirect_state(r);
	if (!*why)
		return POD_FINE;
	return pod_redirect_holds(r) ? POD_HELD : POD_DEGRADED;
}

static uint64_t count_of(const struct pod_redirect *r, unsigned verdict)
{
	const struct redirect_counters *rows = r->context->shared->redirect->counters;

	if (!r->index || !rows)
		return 0;
	return __atomic_load_n(&rows[r->index - 1].n[verdict], __ATOMIC_RELAXED) -
	       r->baseline.n[verdict];
}

static const char *fate(unsigned v)
{
	if (traffic_verdict_redirects(v))
		return "redirected";
	return traffic_verdict_drops(v) ? "dropped" : "passed";
}

static void add_to(json_t *o, const char *key, uint64_t n)
{
	json_int_t was = json_integer_value(json_object_get(o, key));

	json_object_set_new(o, key, json_integer(was + (json_int_t)n));
}

/* So that nobody overlooks it. */
static char *problem_of(const struct pod_redirect *r)
{
	return mem_printf("%s%s", r->open ? "strict, OPEN: " : "", r->why.code ? r->why.msg : "");
}

/* mode, policy, probe_ports, above (what the ceiling does not allow any more), in_force (the
 * rules), inbound (redirected, too), open (though strict), accelerate (asked for), accelerated (its
 * new connections to its Envoy), between (those to other Envoys of the node, too), why_not,
 * redirected, passed, dropped, counters{rule: n} without those that are 0 */
static json_t *dump_redirect(const struct pod_redirect *r)
{
	auto_free char *problem = problem_of(r);
	json_t *o = json_pack("{s:s, s:s, s:b, s:b, s:b, s:s, s:i, s:i, s:i}", "mode",
	    traffic_mode_name(r->mode), "policy", r->strict ? "strict" : "permissive", "in_force",
	    r->in_force && !r->left, "inbound", r->inbound, "open", r->open, "why_not", problem,
	    "redirected", 0, "passed", 0, "dropped", 0);
	json_t *counters = json_object();

	json_object_set(o, "probe_ports", r->probe_ports);
	if (r->above)
		json_object_set_new(o, "above", json_string(r->above));
	for (unsigned v = 0; v < REDIRECT_VERDICTS; v++) {
		if (!count_of(r, v))
			continue;
		add_to(counters, traffic_verdict_name(v), count_of(r, v));
		add_to(o, fate(v), count_of(r, v));
	}
	json_object_set_new(o, "counters", counters);
	return o;
}

static void dump(void *s, json_t *o)
{
	json_object_set_new(o, "redirect", dump_redirect(s));
}

static void show(void *s, json_t *o, const char *name)
{
	json_t *all = dump_redirect(s);

	(void)name;
	json_object_update(o, all);
	json_decref(all);
}

static void measure(void *s, const char *labels)
{
	const struct pod_redirect *r = s;
	struct metric *open = metric_gauge("agentd_redirect_open",
	    "1: the strict pod can be reached, and can dial, without its Envoy: agentctl redirect "
	    "says why.");
	struct metric *connections = metric_counter("agentd_redirect_connections_total",
	    "Connections of a pod, by what the eBPF programs decided and by which rule.");

	if (r->mode == REDIRECT_MODE_EBPF && r->strict)
		metric_set(open, labels, r->open);
	for (unsigned v = 0; v < REDIRECT_VERDICTS; v++) {
		auto_free char *text = NULL;

		/* What is dropped begins at 0: increase() sees the first one. */
		if (!count_of(r, v) && !(traffic_verdict_drops(v) && r->mode == REDIRECT_MODE_EBPF))
			continue;
		text = mem_printf(
		    "%s,verdict=\"%s\",rule=\"%s\"", labels, fate(v), traffic_verdict_word(v));
		metric_set(connections, text, (double)count_of(r, v));
	}
}

static unsigned count_problem(void *s)
{
	const struct pod_redirect *r = s;

	return r->why.code != 0;
}

const struct pod_service pod_redirect_service = {
    .name = "redirect",
    .size = sizeof(struct pod_redirect),
    .start = start,
    .stop = stop,
    .progress = progress,
    .directory = on_directory,
    .dump = dump,
    .page = "redirect",
    .show = show,
    .measure = measure,
    .gauge = "agentd_redirect_problems",
    .gauge_help = "Pods whose traffic does not go as asked: agentctl redirect says why.",
    .count = count_problem,
};
