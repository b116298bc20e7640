/* csi_kept.h - what is kept of a published pod beyond the worker: state LINK_STATE_POD.
 *
 *   {"version": 1, "uid", "namespace", "name", "service_account", "volume", "volume_id",
 *    "env": {}, "token"}
 *
 * Our own text may be wrong too: a reader checks it as it checks the kubelet's words.
 */
#pragma once
#include "csi_request.h"

enum { CSI_KEPT_ID_SIZE = 32 };

/* The caller wipes it: mem_wipe_free(). */
char *csi_kept_write(const struct csi_publish *p, size_t *size);
/* EPROTONOSUPPORT: a newer release wrote it, and may want it back; else: damaged.  On success free
 * `out` with csi_publish_clear(). */
int csi_kept_read(struct csi_publish *out, const char *text, size_t size, struct err *e);
/* The name of an entry. */
void csi_kept_id(const struct uuid *pod, uint8_t id[CSI_KEPT_ID_SIZE]);
