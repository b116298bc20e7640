/* served.h - what a pod gets now.
 *
 * Ready (pod.h) is another question: whether its containers may start.  A pod is served when istiod
 * answers on its stream, its certificate is valid and can be renewed, and its Envoy has accepted
 * the last push and the last secrets.  This is never kept: it is computed whenever it is asked for.
 * A reason holds no text of an Envoy: that may quote a plugin's secret.
 */
#pragma once

/* The gravest last. */
enum served {
	SERVED_YES,
	SERVED_UNASKED, /* no Envoy asks, or it has only just begun to */
	SERVED_HELD,    /* what it has goes on, nothing newer comes: there is a reason */
	SERVED_NO,      /* refused, or without a certificate: there is a reason */
};

/* So long nothing is said of what has begun and met no error yet: a pod starts, a stream moves. */
enum { SERVED_BEGINS_MS = 10 * 1000 };

const char *served_word(enum served s); /* "yes", "unasked", "held", "no" */
