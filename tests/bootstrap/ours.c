/* ours.c - our bootstraps for pods on stdin, one JSON object a line: {env, labels, annotations,
 * ips}.
 *
 * stdout: for each a line, the bootstrap, or {"refused": why}.
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/node.h"
#include "mesh/pod.h"
#include "worker/envoy/bootstrap.h"
#include <stdio.h>
#include <stdlib.h>

static const struct node_plane plane = {.address = "istiod.istio-system.svc:15012",
    .server_name = "istiod.istio-system.svc",
    .trust_domain = "",
    .cluster_id = "",
    .mesh_id = ""};
static const struct node_context context = {
    .planes = &plane,
    .nplanes = 1,
    .node_name = "",
    .istio_namespace = "istio-system",
    .cluster_domain = "cluster.local",
    .version = "",
    .ttl_min_s = 3600,
    .ttl_max_s = 86400,
};

static json_t *map_of(const json_t *pod, const char *key)
{
	json_t *map = json_object_get(pod, key);

	return map ? json_incref(map) : json_object();
}

static void set_addresses(struct node *n, const json_t *ips)
{
	const char *texts[8];
	size_t i, count = 0;
	json_t *v;

	json_array_foreach (ips, i, v)
		if (count < 8)
			texts[count++] = json_string_value(v);
	node_set_addresses(n, texts, count);
}

static json_t *bootstrap_of(const json_t *line)
{
	struct pod_spec p = {.ns = "demo", .name = "web-0", .sa = "web"};
	struct err e = {0};
	json_t *out;
	struct node *n;

	p.env = map_of(line, "env");
	p.labels = map_of(line, "labels");
	p.annotations = map_of(line, "annotations");
	n = node_new(&p, &context, &e);
	if (n) {
		size_t len;
		auto_free char *text = NULL;

		set_addresses(n, json_object_get(line, "ips"));
		text = bootstrap_render(n, &len);
		out = json_loadb(text, len, 0, NULL);
	} else {
		out = json_pack("{s:s}", "refused", e.msg);
	}
	node_free(&n);
	json_decref(p.env);
	json_decref(p.labels);
	json_decref(p.annotations);
	return out;
}

int main(void)
{
	json_t *line, *out;

	while ((line = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, NULL))) {
		out = bootstrap_of(line);
		if (json_dumpf(out, stdout, JSON_COMPACT))
			return EXIT_FAILURE;
		(void)putchar('\n');
		json_decref(out);
		json_decref(line);
	}
	return EXIT_SUCCESS;
}
