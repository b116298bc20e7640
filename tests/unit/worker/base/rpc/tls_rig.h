/* tls_rig.h - a server that is plain grpc core, with TLS, a queue and a thread of its own; a folder
 * for its certificate, which the openssl command makes. */
#pragma once
#include <grpc/grpc.h>
#include <pthread.h>

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
	pthread_t thread;
	void (*on_event)(void *ctx, const grpc_event *ev); /* on the thread */
	void *ctx;
};

void tls_rig_listen(struct tls_rig *r, const char *cert_pem, const char *key_pem);
/* Begins the thread; the first call was requested before. */
void tls_rig_serve(struct tls_rig *r, void (*on_event)(void *, const grpc_event *), void *ctx);
/* Ends all calls and the thread. */
void tls_rig_stop(struct tls_rig *r);
/* After the owner released its calls. */
void tls_rig_free(struct tls_rig *r);
