/* csi_volume_internal.h - private to worker/kubelet/csi_volume*.c. */
#pragma once
#include "base/back_off.h"
#include "common/err.h"
#include "common/log.h"
#include "csi_refused.h"
#include "csi_volume.h"
#include <uthash.h>

enum csi_volume_state {
	STARTING,
	STORING,
	MOUNTING,
	PUBLISHED,
	UNPUBLISHING,
	UNKNOWN, /* it could not be unmounted: who knows how much of it */
};

struct csi_volume {
	struct csi_volumes *all;
	struct csi_target target;
	char volume_id[CSI_ID_SIZE]; /* "": not known */
	enum csi_volume_state state;
	bool mounted;  /* or it may be */
	bool late;     /* the certificate did not come in time */
	bool writable; /* published by an agentd that took it without readOnly: true */
	bool unkept;   /* there is a newer token than what is being kept */
	struct csi_waiting publishing, unpublishing;
	struct loop_timer soon, certificate, abandoned;
	struct link_call *keeping, *mounting;
	struct back_off keep_again;
	struct err why_unkept;     /* the next worker will not know it; code 0: it will */
	int64_t since_ms, last_ms; /* uptime: first and last publish; 0: none in our life */
	struct err problem;        /* of the last publish */
	UT_hash_handle hh;
};

struct csi_volumes {
	struct csi_volumes_options o;
	struct pod_source source;
	struct csi_volume *volumes; /* by pod */
	struct csi_refusals refused;
	struct loop_timer silence;
	bool silent;
	struct log_budget log;
	struct {
		struct metric *volumes, *forgotten, *seconds, *alarm;
	} metrics;
};

struct csi_volume *csi_volume_find(const struct csi_volumes *all, const struct uuid *pod);
struct pod *csi_volume_pod(const struct csi_volume *v); /* NULL: not known yet */
/* The kubelet published something: it is not silent. */
void csi_volumes_heard(struct csi_volumes *all);
