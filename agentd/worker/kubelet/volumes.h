/* volumes.h - after a restart: finds the volumes that are there and their pods, without the
 * kubelet.
 *
 * From what an earlier worker kept of its pods, and from what the kubelet's directory and the
 * mounts show.  Nothing of it is waited for or asked of the kubelet (decisions.md 10).
 */
#pragma once
#include "base/loop.h"
#include "csi_volume.h"

struct kubelet_volumes;

/* `done` runs when all was adopted; the caller has csi_volumes_synced() to say. */
struct kubelet_volumes *kubelet_volumes_restore(
    struct link *p, struct csi_volumes *volumes, loop_cb done, void *ctx);
void kubelet_volumes_free(struct kubelet_volumes **k); /* also inside `done` */

/* vol_data.json (fuzzed): 1: a volume of ours, 0: another driver's, -1: not a volume's file. */
int kubelet_vol_data_read(
    char volume_id[CSI_ID_SIZE], char volume[64], const char *text, size_t size, struct err *e);
