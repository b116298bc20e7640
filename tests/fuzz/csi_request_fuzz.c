/* csi_request_fuzz.c - any bytes as what the kubelet asks.
 *
 * Whatever was accepted: pod and volume are names that a path cannot be made of, the identity is
 * the target's, and the environment has none of the kubelet's keys.
 */
#include "common/err.h"
#include "mesh/identity.h"
#include "worker/kubelet/csi_request.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

static void check_spec(const struct pod_spec *p)
{
	const char *key;
	json_t *value;

	must(identity_valid_ns(p->ns) && identity_valid_sa(p->name) && identity_valid_sa(p->sa));
	must(json_object_size(p->env) <= 256 + 16);
	json_object_foreach (p->env, key, value)
		must(json_is_string(value) && strncmp(key, "csi.storage.k8s.io/", 19) != 0);
	must(!p->labels || json_is_object(p->labels));
	must(!p->annotations || json_is_object(p->annotations));
}

static void try_publish(const struct iovec *iov, size_t n)
{
	struct csi_publish p;
	struct err e = {0};

	if (csi_publish_read(&p, iov, n, &e)) {
		must(e.code == ERR_INVALID && *e.msg && !p.token && !p.spec.env);
		return;
	}
	must(*p.volume_id && identity_valid_ns(p.target.volume));
	must(uuid_equal(&p.target.pod, &p.spec.uid));
	check_spec(&p.spec);
	if (csi_token_check(&p, 1700000000, &e))
		must(*e.msg);
	csi_publish_clear(&p);
}

static void try_unpublish(const struct iovec *iov, size_t n)
{
	struct csi_unpublish u;
	struct err e = {0};

	if (csi_unpublish_read(&u, iov, n, &e))
		must(e.code == ERR_INVALID && *e.msg);
	else
		must(*u.volume_id && (!u.ours || identity_valid_ns(u.target.volume)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct iovec iov[] = {
	    {(void *)data, size / 2}, {(void *)(data + size / 2), size - size / 2}};
	struct err e = {0};

	try_publish(iov, 2);
	try_unpublish(iov, 2);
	if (csi_registration_read(iov, 2, &e))
		must(*e.msg);
	return 0;
}
