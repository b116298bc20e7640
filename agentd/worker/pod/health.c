/* health.c - a machine whose ProxyConfig has a readinessProbe: istiod hears how it is.
 *
 * directory -> after the delay, and each period: Envoy and through it the app are asked -> a state
 * that changed is told to istiod, now and on each new stream (worker/ads/relay.h), and logged.
 * A pod without a probe has no timer.
 */
#include "worker/health/health.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/log.h"
#include "rows.h"
#include "worker/ads/xds_proxy.h"
#include "worker/health/ask.h"
#include "worker/pods/pod.h"

LOG_SCOPE("health");

struct pod_health {
	struct pod_context *context;
	struct health health;
	struct health_ask *ask;
	struct loop_timer next;
	uint64_t asked, failed;
};

static const struct probe_asked *probe_of(const struct pod_health *h)
{
	return &node_settings(h->context->node)->probe;
}

static int64_t now_ms(const struct pod_health *h)
{
	return loop_uptime_ms(h->context->shared->loop);
}

static void on_due(void *ctx);

static void wait_for_next(struct pod_health *h)
{
	int64_t left = h->health.due_ms - now_ms(h);

	loop_timer_in(h->context->shared->loop, &h->next, left > 0 ? left : 0, on_due, h);
}

static void tell(const struct pod_health *h)
{
	const char *why = h->health.state == HEALTH_UNHEALTHY ? h->health.why : NULL;

	if (why)
		log_warn(h->context->pod->spec.label, "unhealthy: %s", why);
	else
		log_info(h->context->pod->spec.label, "healthy");
	xds_proxy_health(h->context->ads, why);
}

static void on_answered(void *ctx, const char *why)
{
	struct pod_health *h = ctx;

	h->failed += why != NULL;
	if (health_result(&h->health, why))
		tell(h);
	wait_for_next(h);
}

static void on_due(void *ctx)
{
	struct pod_health *h = ctx;
	const struct pod_context *c = h->context;
	const struct probe_asked *p = probe_of(h);
	const struct health_ask_options o = {.loop = c->shared->loop,
	    .link = c->shared->link,
	    .pod = &c->pod->spec.uid,
	    .ipv6 = node_is_ipv6(c->node),
	    .port = (uint16_t)node_settings(c->node)->agent_port,
	    .route = PROBE_ASKED_ROUTE,
	    .headers = p->headers,
	    .timeout_s = p->timeout_s};

	h->asked++;
	health_asked(&h->health, now_ms(h));
	health_ask(&h->ask, &o, on_answered, h);
}

static void on_directory(void *s)
{
	struct pod_health *h = s;
	const struct probe_asked *p = probe_of(h);
	const struct health_rules rules = {p->delay_s, p->period_s, p->successes, p->failures};

	if (!p->given)
		return;
	health_begin(&h->health, &rules, now_ms(h));
	wait_for_next(h);
}

static void stop(void *s)
{
	struct pod_health *h = s;

	health_ask_cancel(&h->ask);
	loop_timer_stop(&h->next);
}

/* health{state, why, asked, failed} */
static void dump(void *s, json_t *o)
{
	const struct pod_health *h = s;

	if (probe_of(h)->given)
		json_object_set_new(o, "health",
		    json_pack("{s:s, s:s, s:I, s:I}", "state", health_state_name(h->health.state),
			"why", h->health.why, "asked", (json_int_t)h->asked, "failed",
			(json_int_t)h->failed));
}

static void measure(void *s, const char *labels)
{
	const struct pod_health *h = s;

	if (h->health.state != HEALTH_UNKNOWN)
		metric_set(metric_gauge("agentd_workload_healthy",
			       "What istiod was told of a machine's app: 1 healthy, 0 not."),
		    labels, h->health.state == HEALTH_HEALTHY);
}

const struct pod_service pod_health_service = {
    .name = "health",
    .size = sizeof(struct pod_health),
    .stop = stop,
    .directory = on_directory,
    .dump = dump,
    .measure = measure,
};
