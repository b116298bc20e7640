/* mend.h - what somebody removed of a pod's directory is put back; what could not be kept of the
 * pod is kept later.
 *
 * The two directories, the sockets that a worker serves and the record of the network namespace are
 * made again here.  Files are the worker's: it is told which are gone, and writes them.  What does
 * not succeed is told, too, and tried again by the next look, which is soon (broker/base/audit.h).
 */
#pragma once
#include "border/protocol.h"
#include "common/err.h"
#include <stdbool.h>

struct broker_pod;
struct pods_rig;

/* Embed it zeroed. */
struct pod_mending {
	unsigned written; /* bits, 1 << link_file: the worker that runs wrote them */
	unsigned lost;    /* of these: gone, and it is to be told */
	struct err why;   /* what could not be put back or kept; code 0: all is there */
	bool noted;       /* it is to be told: something was put back, `lost`, `why` */
};

/* Makes the pod's directories, if they are not there, and has them watched; how many it made, or
 * -1. */
int pod_mend_directories(const struct broker_pod *pod, struct err *e);
/* Looks at all of it; adds to `restored` what was gone.  False: not all is as it should be. */
bool pod_mend(struct broker_pod *pod, unsigned *restored);
void pod_mend_told(struct broker_pod *pod, struct link_packet *p);
