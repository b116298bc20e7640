/* csi_server.h - unary methods on one socket: a call comes, is answered or waits, and ends.
 *
 * A call belongs to whoever handles it until it is answered or refused, which ends it; or until the
 * kubelet gives it up.
 */
#pragma once
#include "base/loop.h"
#include "rpc/server.h"

struct csi_call;
struct csi_server;
struct err;
struct loop;

typedef void (*csi_handler)(void *ctx, struct csi_call *c, const struct rpc_msg *m);
struct csi_method {
	const char *path; /* "/package.Service/Method" */
	csi_handler handle;
};
/* The methods end with a NULL path; any other call gets UNIMPLEMENTED. */
struct csi_server *csi_server_new(
    struct loop *l, struct rpc *r, const struct csi_method *methods, void *ctx);
void csi_server_free(struct csi_server **s); /* calls end without a word */
struct rpc_server *csi_server_rpc(struct csi_server *s);

void csi_answer(struct csi_call *c, const void *message, size_t size);
/* `kubectl describe pod` shows `why`. */
void csi_refuse(struct csi_call *c, enum rpc_status status, const char *why);
enum rpc_status csi_status_of(const struct err *e);

/* Calls that wait for the same work. */
struct csi_waiting {
	struct csi_call *calls;
	const char *(*why)(void *ctx); /* what they wait for now */
	void *ctx;
};
/* In `w` until it ends; after `ms` it is refused as UNAVAILABLE. */
void csi_wait(struct csi_waiting *w, struct csi_call *c, int64_t ms);
void csi_answer_all(struct csi_waiting *w); /* with an empty message */
void csi_refuse_all(struct csi_waiting *w, enum rpc_status status, const char *why);
unsigned csi_waiting_count(const struct csi_waiting *w);
