/* lanes.h - how many connections of the node are accelerated, and how much goes which way: the
 * programs' own counts, in memory that is mapped read-only.
 *
 * They outlive both processes, and begin at a reboot or with the first pod after an uninstall.
 */
#pragma once
#include <jansson.h>

struct link;
struct pod_lanes;

struct pod_lanes *pod_lanes_new(struct link *l);
void pod_lanes_free(struct pod_lanes **l);

/* A pod is accelerated.  Asks for them, unless they are there, or asked for. */
void pod_lanes_ask(struct pod_lanes *l);

/* {loopback, between}, each {connections, given, passed}: given are bytes from socket to socket,
 * passed the other bytes of these connections.  NULL: they were not asked for, or not given. */
json_t *pod_lanes_show(const struct pod_lanes *l);
void pod_lanes_measure(const struct pod_lanes *l);
