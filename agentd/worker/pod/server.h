/* server.h - one pod's grpc server, and how much the pod may ask of it (limits.h).
 *
 * Each connection, call and message passes here.  A call that is let in is offered to the services
 * of the pod.
 */
#pragma once

struct limits;
struct pod_server;
struct rpc_server;

struct limits *pod_server_limits(const struct pod_server *s);
struct rpc_server *pod_server_rpc(const struct pod_server *s); /* from the directory on */
/* uds_events.admit: one more connection?  NULL: yes; else why not. */
const char *pod_server_admit(struct pod_server *s, int fd, unsigned connections);
