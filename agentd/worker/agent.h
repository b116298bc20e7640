/* agent.h - the wiring: the only file that knows all modules.
 *
 * Services are told, they never ask.  Each event and the modules that it passes:
 *   pod appears     pod -> directory, token, sockets, server, bootstrap, certificate -> ready
 *   netns learned   uds -> node addresses, bootstrap
 *   certificate     cert_cache -> sds_server
 *   root changed    cert_cache -> root-cert.pem of the pod
 *   CRL changed     crl -> sds_server
 *   trust anchors   xds_proxy -> pcds -> sds_server, root-cert.pem of the pod
 *   call            rpc_server -> sds_server | xds_proxy
 *   pod goes        the exact reverse of its appearance
 */
#pragma once
#include <stdbool.h>

struct agent;
struct config;
struct err;
struct loop;

struct agent *agent_new(struct loop *l, const struct config *c, int broker_fd, struct err *e);
bool agent_broker_lost(const struct agent *a); /* the loop was stopped for that */
/* Connections wait in the backlogs from now on. */
void agent_stop_accepting(struct agent *a);
void agent_free(struct agent **a);
