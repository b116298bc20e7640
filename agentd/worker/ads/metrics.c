/* metrics.c - see metrics.h. */
#include "metrics.h"
#include "base/metrics.h"
#include "common/mem.h"
#include "rpc/rpc.h"
#include "worker/istiod/stream_end.h"
#include "worker/pods/pod.h"
#include <stdbool.h>

static void begin_end(const struct ads_metrics *m, struct metric *ends, const char *type)
{
	auto_free char *labels = mem_printf("%s,type=\"%s\"", m->labels, type);

	metric_add(ends, labels, 0);
}

static void count_refusal(const struct ads_metrics *m, const char *code, unsigned n)
{
	char labels[64];

	metric_add(m->refusals, metric_labels(labels, sizeof(labels), "code", code, NULL), n);
}

/* increase() is to see the first one. */
static void begin_at_0(const struct ads_metrics *m)
{
	for (int status = RPC_CANCELLED; status <= RPC_UNAUTHENTICATED; status++)
		count_refusal(m, rpc_status_name(status), 0);
	count_refusal(m, "not_sent", 0);
	count_refusal(m, "other", 0);
	metric_add(m->requests, m->labels, 0);
	metric_add(m->responses, m->labels, 0);
	metric_add(m->failures, m->labels, 0);
	metric_add(m->unread_ends, m->labels, 0);
	metric_add(m->held_pushes, m->labels, 0);
	begin_end(m, m->istiod_ends, "cancelled");
	begin_end(m, m->istiod_ends, "error");
	begin_end(m, m->envoy_ends, "cancelled");
	begin_end(m, m->envoy_ends, "error");
}

void ads_metrics_init(struct ads_metrics *m, const struct pod *p)
{
	metric_labels(
	    m->labels, sizeof(m->labels), "pod", p->spec.name, "namespace", p->spec.ns, NULL);
	m->pushes = metric_histogram(
	    "agentd_push_seconds", "Time from a control plane's push to Envoy's ACK or NACK.");
	m->refusals = metric_counter("agentd_xds_refused_streams_total",
	    "Streams that ended before istiod's first answer: by gRPC status, not_sent or other.");
	m->requests = metric_counter(
	    "istio_agent_xds_proxy_requests", "Envoy's requests that were forwarded to istiod.");
	m->responses =
	    metric_counter("istio_agent_xds_proxy_responses", "Responses received from istiod.");
	m->failures = metric_counter("istio_agent_istiod_connection_failures",
	    "Streams to istiod that could not be opened.");
	m->istiod_ends = metric_counter(
	    "istio_agent_istiod_connection_terminations", "Streams that istiod ended.");
	m->envoy_ends = metric_counter(
	    "istio_agent_envoy_connection_terminations", "Streams that Envoy ended.");
	m->unread_ends = metric_counter("agentd_xds_unread_streams_total",
	    "Streams that agentd ended because Envoy did not read.");
	m->held_pushes = metric_counter("agentd_xds_empty_pushes_held_total",
	    "First responses of a stream that would have removed much and were held back.");
	begin_at_0(m);
}

void ads_metrics_answered(const struct ads_metrics *m, int64_t ms)
{
	if (ms >= 0)
		metric_observe(m->pushes, "", (double)ms / 1000);
}

void ads_metrics_count(const struct ads_metrics *m, struct metric *one)
{
	metric_add(one, m->labels, 1);
}

/* istiod may say any number. */
void ads_metrics_refused(const struct ads_metrics *m, int status)
{
	const bool known = status > RPC_OK && status <= RPC_UNAUTHENTICATED;

	count_refusal(m, known ? rpc_status_name(status) : status ? "other" : "not_sent", 1);
}

void ads_metrics_count_end(
    const struct ads_metrics *m, struct metric *ends, int status, const char *why)
{
	auto_free char *labels =
	    mem_printf("%s,type=\"%s\"", m->labels, stream_end_kind(status, why));

	metric_add(ends, labels, 1);
}
