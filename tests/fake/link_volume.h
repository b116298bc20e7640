/* link_volume.h - a broker that knows the kubelet and mounts volumes when the test says so:
 * the third part of fake/priv.h.  Waiting calls (LINK_CALLER, LINK_PUBLISH, LINK_UNPUBLISH,
 * LINK_VOLUMES) count in fake_link_waiting().
 */
#pragma once
#include "link.h"
#include "worker/link/volume.h"

void fake_link_csi_note(
    bool registered, unsigned restored); /* the broker says it by itself; nobody listens: fails */

/* Answers, each to the oldest; why NULL: yes. */
void fake_link_called(struct link *p, int code, const char *why);
/* `volume` NULL: any.  Another volume than that of the oldest call of the pod fails the test. */
void fake_link_published(
    struct link *p, const struct uuid *pod, const char *volume, int code, const char *why);
void fake_link_unpublished(
    struct link *p, const struct uuid *pod, const char *volume, int code, const char *why);
/* Tells these volumes and ends the list, unless the callback cancels it. */
void fake_link_volumes(
    struct link *p, const struct link_volume *volumes, size_t n, const char *why);
