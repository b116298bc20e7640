/* metrics.h - the counters of a pod's ADS streams: pilot-agent's names, and ours
 * (istio-agent.md 1.8).
 */
#pragma once
#include <stdint.h>

struct metric;
struct pod;

enum { XDS_LABELS_SIZE = 1024 };

struct ads_metrics {                      /* embed it */
	struct metric *pushes, *refusals; /* of all pods */
	struct metric *requests, *responses, *failures, *istiod_ends, *envoy_ends, *unread_ends,
	    *held_pushes;
	char labels[XDS_LABELS_SIZE]; /* of this pod */
};

void ads_metrics_init(struct ads_metrics *m, const struct pod *p);
/* Envoy has answered a push that came so long ago; -1: none. */
void ads_metrics_answered(const struct ads_metrics *m, int64_t ms);
void ads_metrics_count(const struct ads_metrics *m, struct metric *one);
/* A stream ended so before its first answer; RPC_OK: it was not sent. */
void ads_metrics_refused(const struct ads_metrics *m, int status);
/* istiod_ends or envoy_ends, by how the stream ended. */
void ads_metrics_count_end(
    const struct ads_metrics *m, struct metric *ends, int status, const char *why);
