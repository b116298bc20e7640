/* manifest_fuzz.c - any bytes as a manifest, and what its owner declares as Envoy's node.
 *
 * Whatever was accepted: the identity in the metadata is the manifest's, under one spelling only,
 * and the control plane is one of the node's.
 * LINK: tests/fuzz/node_rig.c
 */
#include "node_rig.h"
#include "tests/unit/mesh/node_context.h"
#include "worker/pods/manifest_dir.h"
#include <stdint.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* istiod matches names without regard to case: another spelling would overwrite ours. */
static void check_one_spelling(json_t *metadata, const char *key, const char *value)
{
	const char *k, *own = json_string_value(json_object_get(metadata, key));
	json_t *v;

	must(own && !strcmp(own, value));
	json_object_foreach (metadata, k, v)
		must(!strcmp(k, key) || strcasecmp(k, key) != 0);
}

static void check_node(const struct pod_spec *p, struct node *n)
{
	static const char *const ips[] = {"10.0.0.7", "fd00::7"};
	const struct node_settings *s = node_settings(n);
	json_t *metadata;
	size_t len;
	char *text;

	node_set_addresses(n, ips, 2);
	metadata = json_object_get(node_json(n), "metadata");
	must(s->plane < 2 && s->ttl_s >= 3600 && s->ttl_s <= 86400);
	must(s->ratio >= 0.2 && s->ratio <= 0.8 && s->jitter >= 0 && s->jitter <= 0.1);
	check_one_spelling(metadata, "NAMESPACE", p->ns);
	check_one_spelling(metadata, "SERVICE_ACCOUNT", p->sa);
	check_one_spelling(metadata, "NAME", p->name);
	check_one_spelling(metadata, "INSTANCE_IPS", "10.0.0.7,fd00::7");
	check_one_spelling(metadata, "CLUSTER_ID", node_context.planes[s->plane].cluster_id);
	text = bootstrap_render(n, &len);
	must(strlen(text) == len);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pod_spec p;
	struct err e;
	struct node *n;

	if (manifest_parse(
		&p, "6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11.yaml", (const char *)data, size, &e))
		return 0;
	p.env = p.env ? p.env : json_object();
	p.labels = p.labels ? p.labels : json_object();
	p.annotations = p.annotations ? p.annotations : json_object();
	if ((n = node_new(&p, &node_context, &e)))
		check_node(&p, n);
	else
		must(*e.msg);
	node_free(&n);
	manifest_clear(&p);
	return 0;
}
