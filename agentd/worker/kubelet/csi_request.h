/* csi_request.h - what the kubelet asks for a volume, read from the wire and checked.
 *
 * The kubelet is root and talks to us alone, but much of what it passes on was written by the pod's
 * owner: every byte is hostile (security-rules.md 3, 5).  Identity comes from the kubelet's own
 * keys and from the target path, which must agree; what else is called csi.storage.k8s.io/... is
 * ignored, and the rest is the pod's environment, for mesh/node to judge.  No error quotes
 * a value.
 */
#pragma once
#include "worker/pods/pod.h"
#include <stddef.h>
#include <sys/uio.h>

#define CSI_DRIVER_NAME "agentd.node.mesh"

enum { CSI_REQUEST_MAX = 1 << 20, CSI_ID_SIZE = 129 /* CSI's own limit, and the NUL */ };

/* .../pods/<uid>/volumes/kubernetes.io~csi/<volume>/mount */
struct csi_target {
	struct uuid pod;
	char volume[64]; /* a DNS label */
};

struct csi_publish {
	char volume_id[CSI_ID_SIZE];
	struct csi_target target;
	bool readonly;        /* no container's mount of it can be writable (kubelet-csi.md 3b) */
	struct pod_spec spec; /* identity, env, labels, annotations */
	char *token;          /* secret; for istio-ca, not looked at; NULL: none came */
};

/* -1: ERR_INVALID, and `out` holds nothing. */
int csi_publish_read(struct csi_publish *out, const struct iovec *iov, size_t n, struct err *e);
void csi_publish_clear(struct csi_publish *p); /* wipes */
/* 0 if its token is the pod's and may be used now; else ERR_PRECONDITION (there is none),
 * ERR_INVALID or ERR_DENIED. */
int csi_token_check(const struct csi_publish *p, int64_t now_s, struct err *e);

/* The pod's environment as the source of labels and annotations, too: ISTIO_METAJSON_LABELS and
 * ISTIO_METAJSON_ANNOTATIONS, if they can be read. */
void csi_spec_declare(struct pod_spec *spec);
void csi_spec_clear(struct pod_spec *spec);

struct csi_unpublish {
	char volume_id[CSI_ID_SIZE];
	bool ours; /* the path is one that the kubelet would give; else there is nothing to do */
	struct csi_target target;
};
int csi_unpublish_read(struct csi_unpublish *out, const struct iovec *iov, size_t n, struct err *e);

/* RegistrationStatus: 0, or -1 with what the kubelet says. */
int csi_registration_read(const struct iovec *iov, size_t n, struct err *e);
