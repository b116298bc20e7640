/* tls_rig.h - a server that is plain grpc core, with TLS and a queue of its own, which a timer of
 * the loop empties (a process has one thread in grpc, wait.h); a folder for its certificate, which
 * the openssl command makes. */
#pragma once
#include "base/loop.h"

#include <grpc/grpc.h>

#define NAME "istiod.istio-system.svc" /* the server's, in its certificate */

/* The folder, for one group of tests. */
void tls_rig_folder(void);
int tls_rig_remove_folder(void);
/* In the folder; must succeed. */
void tls_rig_run(const char *command);
/* "folder/name", and such a PEM file's text; the caller's. */
char *tls_rig_path(const char *name);
char *tls_rig_read(const char *name);

struct tls_rig {
	grpc_server *grpc;
	grpc_completion_queue *cq;
	int port;
	struct loop *loop;
	struct loop_timer timer;
	void (*on_event)(void *ctx, const grpc_event *ev);
	void *ctx;
};

void tls_rig_listen(struct tls_rig *r, const char *cert_pem, const char *key_pem);
/* As long as the loop turns; the first call was requested before. */
void tls_rig_serve(
    struct tls_rig *r, struct loop *l, void (*on_event)(void *, const grpc_event *), void *ctx);
/* Ends all calls. */
void tls_rig_stop(struct tls_rig *r);
/* After the owner released its calls. */
void tls_rig_free(struct tls_rig *r);
