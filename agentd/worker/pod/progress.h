/* progress.h - how far a service of a pod is: words of pod_services.h. */
#pragma once

/* How far a service is with what the pod needs to start, the gravest last. */
enum pod_progress {
	POD_FINE,     /* also: nothing is to be done (yet) */
	POD_BEGINS,   /* nothing can be said of the pod before this is known */
	POD_DEGRADED, /* not served in full, and there is a reason: it may start all the same */
	POD_HELD,     /* it must not start, and there is a reason */
};

/* What a pod has of a service now, with which it goes on (served.h), the gravest last. */
enum pod_has {
	POD_ASKS_NOT, /* the service gives nothing that could be lost */
	POD_HAS,      /* also: held for a reason that is nobody's at this node */
	POD_AWAY,     /* the pod's Envoy, or the pod, is not there to have it */
	POD_WAITS,    /* it will be known soon; `why` may say what it waits for */
	POD_LACKS,    /* and there is a reason */
};
