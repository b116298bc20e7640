/* csi_rig.c - see csi_rig.h. */
#include "csi_rig.h"
#include "common/mem.h"
#include "csi/v1/csi.pb-c.h"
#include "tests/unit/worker/token_rig.h"
#include <string.h>

char *csi_rig_tokens(const char *audience, const char *token)
{
	return mem_printf(
	    "{\"%s\":{\"token\":\"%s\",\"expirationTimestamp\":\"2026-11-21T11:20:24Z\"},"
	    "\"other\":{\"token\":\"x\"}}",
	    audience, token);
}

void csi_ask_say(struct csi_ask *a, const char *key, const char *value)
{
	if (value)
		json_object_set_new(a->context, key, json_string(value));
	else
		json_object_del(a->context, key);
}

void csi_ask_token(struct csi_ask *a, const char *sa, int64_t expires)
{
	auto_free char *token = rig_token(RIG_UID, "demo", sa, expires);
	auto_free char *tokens = csi_rig_tokens("istio-ca", token);

	json_object_set_new(a->secrets, RIG_TOKENS, json_string(tokens));
}

void csi_ask_init(struct csi_ask *a)
{
	*a = (struct csi_ask){.volume_id = "csi-1234", .target_path = RIG_TARGET};
	a->context = json_object();
	a->secrets = json_object();
	csi_ask_say(a, RIG_KEY "pod.uid", RIG_UID);
	csi_ask_say(a, RIG_KEY "pod.name", "web-0");
	csi_ask_say(a, RIG_KEY "pod.namespace", "demo");
	csi_ask_say(a, RIG_KEY "serviceAccount.name", "web");
	csi_ask_say(a, RIG_KEY "ephemeral", "true");
	csi_ask_token(a, "web", 1900000000);
}

void csi_ask_clear(struct csi_ask *a)
{
	json_decref(a->context);
	json_decref(a->secrets);
}

/* The entries of both maps have the same shape. */
static void *entries_of(const json_t *map, size_t *n)
{
	Csi__V1__NodePublishVolumeRequest__VolumeContextEntry *all, **list;
	const char *key;
	json_t *value;

	*n = json_object_size(map);
	list = mem_zalloc((*n + 1) * (sizeof(*list) + sizeof(*all)));
	all = (void *)(list + *n + 1);
	*n = 0;
	json_object_foreach ((json_t *)map, key, value) {
		csi__v1__node_publish_volume_request__volume_context_entry__init(&all[*n]);
		all[*n].key = (char *)key;
		all[*n].value = (char *)json_string_value(value);
		list[*n] = &all[*n];
		++*n;
	}
	return list;
}

uint8_t *csi_ask_pack(const struct csi_ask *a, size_t *size)
{
	Csi__V1__NodePublishVolumeRequest q = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
	Csi__V1__VolumeCapability capability = CSI__V1__VOLUME_CAPABILITY__INIT;
	Csi__V1__VolumeCapability__MountVolume mount =
	    CSI__V1__VOLUME_CAPABILITY__MOUNT_VOLUME__INIT;
	Csi__V1__VolumeCapability__BlockVolume block =
	    CSI__V1__VOLUME_CAPABILITY__BLOCK_VOLUME__INIT;
	uint8_t *out;

	if (a->volume_id)
		q.volume_id = (char *)a->volume_id;
	if (a->target_path)
		q.target_path = (char *)a->target_path;
	capability.access_type_case = a->block ? CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK
					       : CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	if (a->block)
		capability.block = &block;
	else
		capability.mount = &mount;
	q.volume_capability = a->no_capability ? NULL : &capability;
	q.readonly = !a->writable;
	auto_free void *context = entries_of(a->context, &q.n_volume_context);
	auto_free void *secrets = entries_of(a->secrets, &q.n_secrets);
	q.volume_context = context;
	q.secrets = secrets;
	*size = csi__v1__node_publish_volume_request__get_packed_size(&q);
	out = mem_zalloc(*size + 1);
	csi__v1__node_publish_volume_request__pack(&q, out);
	return out;
}

uint8_t *csi_ask_pack_unpublish(const struct csi_ask *a, size_t *size)
{
	Csi__V1__NodeUnpublishVolumeRequest q = CSI__V1__NODE_UNPUBLISH_VOLUME_REQUEST__INIT;
	uint8_t *out;

	if (a->volume_id)
		q.volume_id = (char *)a->volume_id;
	if (a->target_path)
		q.target_path = (char *)a->target_path;
	*size = csi__v1__node_unpublish_volume_request__get_packed_size(&q);
	out = mem_zalloc(*size + 1);
	csi__v1__node_unpublish_volume_request__pack(&q, out);
	return out;
}
