/* check.h - the worker's part of agentd --check: settings, roots, a first call of grpc in the cage;
 * with --connect each control plane, as far as its certificate.
 *
 * Rows look like those of broker/check.c.  The broker has sent what there is of root files:
 * LINK_FILE packets, `id` the index of the control plane, then the end.
 */
#pragma once
struct config;

/* In the cage.  Blocks, for 25 s at most.  0: fine; 1: a row says PROBLEM. */
int worker_check(const struct config *c, int broker_fd);
