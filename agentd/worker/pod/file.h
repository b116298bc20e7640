/* file.h - one file of the pod's directory, asked for until it is written.
 *
 * The broker answers each write.  A refusal is logged once for each reason, told as the pod's
 * problem, and the write is repeated after 0.5 s, doubling to 8 s, with the content of then.
 */
#pragma once
#include "base/back_off.h"
#include "border/protocol.h"
#include "common/err.h"
#include "pod_services.h"

/* Embed it with the first group, zeroed else; pod_file_stop() before its memory goes. */
struct pod_file {
	struct pod_context *context;
	enum link_file file;
	const char *name; /* "its bootstrap": as people are told */
	/* What is to be in it now; the caller's to free. */
	char *(*content)(void *ctx, size_t *size);
	void *ctx;

	struct link_call *writing;
	struct back_off again;
	bool asked;     /* it is to be there */
	bool written;   /* it was, once: with this or an earlier content */
	struct err why; /* it is not as it should be; code 0: it is, or nothing is known */
};

/* Its content changed, or somebody removed it. */
void pod_file_write(struct pod_file *f);
void pod_file_lost(struct pod_file *f); /* written again, if it is to be there */
void pod_file_stop(struct pod_file *f);
/* A pod without the file does not start; one with an old content may. */
enum pod_progress pod_file_progress(const struct pod_file *f, const struct err **why);
