/* broker_pods.h - the pods the worker may act for, and what the broker keeps of each.
 *
 *   <run>/pods/<uid>/        root only
 *   <run>/pods/<uid>/mount/  what the pod sees: socket, XDS, envoy-rev.json, root-cert.pem
 *
 * A directory is made once and adopted ever after: it is mounted into a pod that may live longer
 * than several brokers.
 */
#pragma once
#include "broker_listener.h"
#include "broker_netns.h"
#include "broker_options.h"

struct broker_pod;
struct broker_pods;

struct broker_pods *broker_pods_new(
    int epoll, const struct broker_options *o, const struct broker_netns_home *home);
void broker_pods_free(struct broker_pods **ps); /* directories and sockets' files stay */

int broker_pods_add(struct broker_pods *ps, const struct uuid *uid, struct broker_why *w);
struct broker_pod *broker_pods_find(
    const struct broker_pods *ps, const struct uuid *uid, struct broker_why *w);
/* Its directory goes too, unless something is in it that is not ours. */
int broker_pods_remove(struct broker_pods *ps, struct broker_pod *pod, struct broker_why *w);

/* A listening socket; it stays the broker's. */
int broker_pod_listen(
    struct broker_pods *ps, struct broker_pod *pod, unsigned kind, struct broker_why *w);
int broker_pod_write(struct broker_pod *pod, unsigned kind, int memfd, struct broker_why *w);
/* Learns the pod's network namespace or compares with the one it has; fills in `out`.  Another one
 * is learned when the pod's cgroup has been empty since (broker_cgroup.h). */
int broker_pod_netns(struct broker_pods *ps, struct broker_pod *pod, int conn,
    struct priv_packet *out, struct broker_why *w);
int broker_pod_netns_fd(const struct broker_pod *pod); /* the pod's; -1: not learned */
