/* review.h - AdmissionReview v1: an API server's question about a pod, and the answer
 * (injection.md 1).  Pure.
 *
 * All of the question is hostile, for anybody who reaches the port can ask.  What is no such
 * question gets an HTTP status and one line of text.  A question about anything but the creation of
 * a pod is answered with "allowed" and a warning: it says that the webhook's rules are wrong.  A
 * dry run is answered as any other, for there are no side effects.
 */
#pragma once
#include <stddef.h>

struct inject_config;

enum review_result {
	REVIEW_INJECTED,
	REVIEW_SKIPPED,
	REVIEW_REFUSED,
	REVIEW_MALFORMED,
	REVIEW_RESULTS
};
extern const char *const review_words[REVIEW_RESULTS]; /* "injected" */

struct review {
	enum review_result result;
	int status;        /* HTTP: 200, 400 or 413 */
	char *text;        /* JSON, or a line of ASCII without its end; the caller frees it */
	size_t patch_size; /* of the JSON patch, 0: there is none */
	char pod[160];     /* "demo/web-": printable; "" of a malformed one */
	char why[256];     /* the rule, or what is wrong */
};

/* The most that Kubernetes takes in the annotations of an object. */
enum { REVIEW_ANNOTATIONS_MAX = 256 << 10 };

void review_answer(struct review *out, const struct inject_config *c, const char *body, size_t len);
