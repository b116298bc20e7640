/* csi_socket.h - who may talk to the CSI driver: the node's kubelet and nobody else.
 *
 * The broker says who it is (security-rules.md 5); until then nothing is read.
 */
#pragma once
#include <jansson.h>

struct csi_socket;
struct loop;
struct link;
struct rpc_server;

/* Takes the listening fd. */
struct csi_socket *csi_socket_new(
    struct loop *l, struct link *p, int listen_fd, struct rpc_server *to);
void csi_socket_stop(struct csi_socket *s); /* connections wait for the next worker */
void csi_socket_free(struct csi_socket **s);
json_t *csi_socket_dump(const struct csi_socket *s); /* accepted, refused, last_refusal */
