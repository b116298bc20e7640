/* volumes.c
 *
 * list what was kept -> each checked, what is damaged is deleted, what a newer release wrote is
 * left alone -> list the volumes that the kubelet has -> ours that was kept: the pod is adopted;
 * mounted, and nothing was kept: the kubelet's next publish will tell -> the record of a pod
 * without any volume is deleted: it went while no worker ran -> done.
 */
#include "volumes.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "mesh/identity.h"
#include "worker/link/volume.h"
#include <errno.h>
#include <string.h>
#include <uthash.h>

LOG_SCOPE("csi");

struct ads_said {
	struct csi_publish pod;
	UT_hash_handle hh; /* by pod.target.pod */
};

struct kubelet_volumes {
	struct link *link;
	struct csi_volumes *volumes;
	struct ads_said *kept;
	struct link_call *listing;
	unsigned adopted;
	loop_cb done;
	void *ctx;
};

static void forget(struct kubelet_volumes *k, struct ads_said *x)
{
	/* The analyzer does not see that uthash frees its table with the last element only. */
	HASH_DEL(k->kept, x); /* NOLINT(clang-analyzer-unix.Malloc) */
	csi_publish_clear(&x->pod);
	free(x);
}

static void delete (struct kubelet_volumes *k, const struct uuid *pod)
{
	uint8_t id[CSI_KEPT_ID_SIZE];

	csi_kept_id(pod, id);
	link_state_del(k->link, LINK_STATE_POD, id);
}

/* --- what was kept --- */

static int check_name(const struct csi_publish *p, const uint8_t *name, struct err *e)
{
	uint8_t id[CSI_KEPT_ID_SIZE];

	csi_kept_id(&p->target.pod, id);
	if (!memcmp(id, name, sizeof(id)))
		return 0;
	return err_set(e, ERR_INVALID, "damaged: it has the name of another one");
}

static void take_kept(struct kubelet_volumes *k, const struct link_kept *in)
{
	struct ads_said *x = mem_zalloc(sizeof(*x));
	struct err e;
	bool strange;

	if (!csi_kept_read(&x->pod, in->data, in->size, &e)) {
		if (!check_name(&x->pod, in->id, &e)) {
			HASH_ADD(hh, k->kept, pod.target.pod, sizeof(x->pod.target.pod), x);
			return;
		}
		csi_publish_clear(&x->pod);
	}
	free(x);
	strange = e.code == EPROTONOSUPPORT;
	log_warn(NULL, "kept pod %02x%02x%02x%02x.. is ignored%s: %s", in->id[0], in->id[1],
	    in->id[2], in->id[3], strange ? " and left alone" : "", e.msg);
	if (!strange)
		link_state_del(k->link, LINK_STATE_POD, in->id);
}

/* --- what is there --- */

int kubelet_vol_data_read(
    char volume_id[CSI_ID_SIZE], char volume[64], const char *text, size_t size, struct err *e)
{
	json_t *o = json_loadb(text, size, 0, NULL);
	const char *driver = json_string_value(json_object_get(o, "driverName"));
	const char *id = json_string_value(json_object_get(o, "volumeHandle"));
	const char *name = json_string_value(json_object_get(o, "specVolID"));
	int rc = 1;

	if (!driver) {
		rc = err_set(e, ERR_INVALID, "vol_data.json names no driver");
	} else if (strcmp(driver, CSI_DRIVER_NAME) != 0) {
		rc = 0;
	} else if (!id || strlen(id) >= CSI_ID_SIZE || !name || !identity_valid_ns(name)) {
		rc = err_set(e, ERR_INVALID, "vol_data.json names no volume");
	} else {
		memcpy(volume_id, id, strlen(id) + 1);
		memcpy(volume, name, strlen(name) + 1);
	}
	json_decref(o);
	return rc;
}

/* Mounted by us it is ours whatever the kubelet's file says, which it writes just before. */
static bool is_ours(const struct link_volume *v)
{
	char id[CSI_ID_SIZE], name[64];
	struct err e;

	if (v->mounted)
		return true;
	return v->vol_data && kubelet_vol_data_read(id, name, v->vol_data, v->size, &e) == 1 &&
	       !strcmp(name, v->name);
}

static void adopt(
    struct kubelet_volumes *k, const struct csi_target *t, struct ads_said *x, bool mounted)
{
	struct err e;

	if (csi_volumes_adopt(k->volumes, t, x ? &x->pod : NULL, mounted, &e)) {
		log_error(
		    x ? x->pod.spec.name : NULL, "volume %s not adopted: %s", t->volume, e.msg);
		return;
	}
	k->adopted++;
	if (!x)
		log_warn(NULL,
		    "volume %s is mounted, but agentd kept nothing about its pod: it waits for the "
		    "kubelet's next publish",
		    t->volume);
}

static void take_volume(struct kubelet_volumes *k, const struct link_volume *v)
{
	struct csi_target t = {.pod = v->pod};
	struct ads_said *x;

	if (strlen(v->name) >= sizeof(t.volume) || !is_ours(v))
		return;
	memcpy(t.volume, v->name, strlen(v->name));
	HASH_FIND(hh, k->kept, &v->pod, sizeof(v->pod), x);
	if (x && strcmp(x->pod.target.volume, t.volume) != 0)
		x = NULL; /* of another volume of the pod */
	if (x)
		x->pod.spec.redirected = v->redirected;
	if (x || v->mounted)
		adopt(k, &t, x, v->mounted);
	if (x)
		forget(k, x);
}

/* When it is not known what is there, all that was kept counts as if it were; but for the mount,
 * which the next publish makes, or finds. */
static void take_rest(struct kubelet_volumes *k, bool known)
{
	struct ads_said *x, *next;

	HASH_ITER (hh, k->kept, x, next) {
		if (known)
			delete (k, &x->pod.target.pod);
		else
			adopt(k, &x->pod.target, x, false);
		forget(k, x);
	}
}

static void on_volume(void *ctx, const struct link_volume *v)
{
	struct kubelet_volumes *k = ctx;

	if (v->name) {
		take_volume(k, v);
		return;
	}
	if (v->e)
		log_error(NULL, "the kubelet's volumes cannot be listed: %s", v->e->msg);
	take_rest(k, !v->e);
	if (k->adopted)
		log_info(NULL, "%u volume%s adopted", k->adopted, k->adopted == 1 ? "" : "s");
	k->done(k->ctx);
}

static void on_kept(void *ctx, const struct link_kept *in)
{
	struct kubelet_volumes *k = ctx;

	if (in->data) {
		take_kept(k, in);
		return;
	}
	if (in->e)
		log_warn(NULL, "kept pods cannot be read: %s", in->e->msg);
	link_volume_list(k->link, &k->listing, on_volume, k);
}

struct kubelet_volumes *kubelet_volumes_restore(
    struct link *p, struct csi_volumes *volumes, loop_cb done, void *ctx)
{
	struct kubelet_volumes *k = mem_zalloc(sizeof(*k));

	k->link = p;
	k->volumes = volumes;
	k->done = done;
	k->ctx = ctx;
	link_state_list(p, &k->listing, LINK_STATE_POD, on_kept, k);
	return k;
}

void kubelet_volumes_free(struct kubelet_volumes **volumes)
{
	struct kubelet_volumes *k = take(*volumes);
	struct ads_said *x, *next;

	if (!k)
		return;
	link_call_cancel(&k->listing);
	HASH_ITER (hh, k->kept, x, next)
		forget(k, x);
	free(k);
}
