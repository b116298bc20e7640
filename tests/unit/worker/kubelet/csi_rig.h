/* csi_rig.h - requests as the kubelet makes them, which a test changes field by field.
 *
 * Packed by protobuf-c from proto/csi, so that reader and writer are not of one hand.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RIG_UID "6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11"
#define RIG_TARGET "/var/lib/kubelet/pods/" RIG_UID "/volumes/kubernetes.io~csi/mesh/mount"
#define RIG_KEY "csi.storage.k8s.io/"
#define RIG_TOKENS RIG_KEY "serviceAccount.tokens"

struct csi_ask {
	const char *volume_id, *target_path; /* NULL: left out */
	bool no_capability, block, writable;
	json_t *context, *secrets; /* objects of strings */
};

/* A good one of the pod demo/web-0, service account web, with a token until 1900000000. */
void csi_ask_init(struct csi_ask *a);
void csi_ask_clear(struct csi_ask *a);
/* NULL: the key goes. */
void csi_ask_say(struct csi_ask *a, const char *key, const char *value);
uint8_t *csi_ask_pack(const struct csi_ask *a, size_t *size);           /* the caller frees it */
uint8_t *csi_ask_pack_unpublish(const struct csi_ask *a, size_t *size); /* the same */

/* The JSON around a token (token_rig.h); the caller frees it. */
char *csi_rig_tokens(const char *audience, const char *token);
/* Another one for the pod, in `secrets`. */
void csi_ask_token(struct csi_ask *a, const char *sa, int64_t expires);
