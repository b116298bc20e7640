/* csi_kept_fuzz.c - a kept pod, and the kubelet's vol_data.json, that are anything.
 *
 * What is accepted is written again, and read again it is the same.
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/identity.h"
#include "worker/kubelet/volumes.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

static void check_same(const struct csi_publish *a, const struct csi_publish *b)
{
	must(uuid_equal(&a->target.pod, &b->target.pod));
	must(!strcmp(a->target.volume, b->target.volume) && !strcmp(a->volume_id, b->volume_id));
	must(!strcmp(a->spec.ns, b->spec.ns) && !strcmp(a->spec.name, b->spec.name));
	must(!strcmp(a->spec.sa, b->spec.sa) && !strcmp(a->token, b->token));
	must(json_equal(a->spec.env, b->spec.env));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char id[CSI_ID_SIZE], volume[64];
	struct csi_publish p, again;
	struct err e = {0};
	size_t len;

	if (kubelet_vol_data_read(id, volume, (const char *)data, size, &e) > 0)
		must(identity_valid_ns(volume));
	if (csi_kept_read(&p, (const char *)data, size, &e)) {
		must(*e.msg && !p.token && !p.spec.env);
		return 0;
	}
	auto_free char *text = csi_kept_write(&p, &len);
	must(!csi_kept_read(&again, text, len, &e));
	check_same(&p, &again);
	csi_publish_clear(&p);
	csi_publish_clear(&again);
	return 0;
}
