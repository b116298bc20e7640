/* agent.h - the wiring of what all pods share; a pod's own is worker/pod/rows.h.
 *
 * Services are told, they never ask.  Each event and the modules that it passes:
 *   pod appears     pod -> pod_services, row by row (worker/pod/rows.h) -> ready
 *   CRL changed     crl -> pod_services of every pod -> the event `trust`
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
