/* verdicts_test.c - the same pod before `inject --check`, preflight and a node: the three take it,
 * or the three refuse it and name the same thing.
 *
 * A row is a pod as its owner writes it, with variables for its sidecar. inject gets them as
 * proxyMetadata; preflight sees the pod with istiod's sidecar, whose environment has them; a node
 * gets them as attributes.
 *
 * LINK: tests/unit/json_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "inject/config.h"
#include "inject/preflight.h"
#include "inject/workload.h"
#include "mesh/node.h"
#include "mesh/pod.h"
#include "mesh/traffic.h"
#include "tests/unit/json_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CONFIG "proxy.istio.io/config"

static const struct node_plane plane = {.address = "istiod.istio-system.svc:15012",
    .server_name = "istiod.istio-system.svc",
    .trust_domain = "cluster.local",
    .cluster_id = "Kubernetes",
    .mesh_id = "cluster.local"};
static const struct node_context context = {.planes = &plane,
    .nplanes = 1,
    .node_name = "n",
    .host_ip = "192.0.2.1",
    .istio_namespace = "istio-system",
    .cluster_domain = "cluster.local",
    .version = "0",
    .ttl_min_s = 3600,
    .ttl_max_s = 86400};

struct row {
	const char *annotations, *env; /* JSON, with ' for " */
	const char *refused;           /* what each refusal says; NULL: the pod is taken */
	const char *volume;            /* a CSI driver; a node does not see it */
	const char *label;
};

#define ANNOTATION(name, value) .annotations = "{'" name "':'" value "'}"
#define PORTS(name, value) ANNOTATION("traffic.sidecar.istio.io/" name, value)
#define FIELD(yaml) ANNOTATION(CONFIG, yaml)
#define VARIABLE(name, value) .env = "{'" name "':'" value "'}"

static const struct row rows[] = {
    {.annotations = "{}"},
    {.label = "name"},

    /* words of YAML */
    {FIELD("holdApplicationUntilProxyStarts: True")},
    {FIELD("holdApplicationUntilProxyStarts: yes")},
    {FIELD("holdApplicationUntilProxyStarts: on")},
    {FIELD("tracing:\\n  zipkin:\\n  sampling: 0.1\\n")},
    {FIELD("proxyHeaders: {server: null}")},
    {FIELD("gatewayTopology: {numTrustedProxies: ~}")},
    {FIELD("holdApplicationUntilProxyStarts: maybe"), .refused = "holdApplicationUntilProxyStarts"},
    {FIELD("concurrency: many"), .refused = "concurrency"},
    {FIELD("tracing: {sampling: all}"), .refused = "tracing.sampling"},
    {FIELD("drainDuration: 5"), .refused = "drainDuration"},
    {FIELD("proxyMetadata: {A: 1}"), .refused = "proxyMetadata.A"},
    {FIELD("concurrency: 257"), .refused = "concurrency"},
    {FIELD("statusPort: 15001"), .refused = "statusPort"},
    {FIELD("discoveryAddress: a.b:1"), .refused = "discoveryAddress"},
    {FIELD("- a"), .refused = CONFIG},

    /* lists of ports */
    {PORTS("excludeOutboundPorts", "3306, 5432")},
    {PORTS("excludeInboundPorts", " 8080,9090 ")},
    {PORTS("includeInboundPorts", "8080,  9090")},
    {PORTS("excludeOutboundPorts", "10000-10100"), .refused = "excludeOutboundPorts"},
    {PORTS("excludeInboundPorts", "80 80"), .refused = "excludeInboundPorts"},
    {ANNOTATION("agentd.node.mesh/probePorts", "8080, 9000")},

    /* variables */
    {VARIABLE("ISTIO_META_POD_PORTS", "[\\n {\\'containerPort\\':8080}\\n]")},
    {VARIABLE("CA_ADDR", "issuer.cert-system.svc:443"), .refused = "CA_ADDR"},
    {VARIABLE("CA_ADDR", "istiod.istio-system.svc:15012")},
    {VARIABLE("XDS_ROOT_CA", "/etc/root.pem"), .refused = "XDS_ROOT_CA"},
    {VARIABLE("JWT_POLICY", "first-party-jwt"), .refused = "JWT_POLICY"},
    {VARIABLE("PILOT_CERT_PROVIDER", "kubernetes"), .refused = "PILOT_CERT_PROVIDER"},
    {VARIABLE("SECRET_TTL", "240h"), .refused = "SECRET_TTL"},
    {VARIABLE("SECRET_TTL", "2h")},
    {VARIABLE("ISTIO_DELTA_XDS", "maybe"), .refused = "ISTIO_DELTA_XDS"},
    {VARIABLE("WORKLOAD_IDENTITY_SOCKET_FILE", "agent.sock"),
	.refused = "WORKLOAD_IDENTITY_SOCKET_FILE"},
    {VARIABLE("UNHEARD_OF", "1")},

    {.refused = "csi.spiffe.io", .volume = "csi.spiffe.io"},
    {.volume = "secrets-store.csi.k8s.io"},
};

/* --- the pod --- */

static json_t *pod_of(const struct row *r)
{
	json_t *labels = json_object();
	json_t *pod = json_pack("{s:s, s:s, s:{s:s, s:s, s:o, s:o}, s:{s:[{s:s}]}}", "apiVersion",
	    "v1", "kind", "Pod", "metadata", "name", "web", "namespace", "demo", "labels", labels,
	    "annotations", rig_json(r->annotations ? r->annotations : "{}"), "spec", "containers",
	    "name", "app");

	if (r->label)
		json_object_set_new(labels, r->label, json_string("web"));
	if (r->volume)
		json_object_set_new(json_object_get(pod, "spec"), "volumes",
		    json_pack("[{s:s, s:{s:s, s:b}}]", "name", "workload-socket", "csi", "driver",
			r->volume, "readOnly", 1));
	return pod;
}

static json_t *env_of(const struct row *r)
{
	return rig_json(r->env ? r->env : "{}");
}

static json_t *annotations_of(json_t *pod)
{
	return json_object_get(json_object_get(pod, "metadata"), "annotations");
}

/* --- the three; each: NULL, or why not; the caller frees it --- */

static char *copy_of(const json_t *text)
{
	return json_is_string(text) ? mem_strdup(json_string_value(text)) : NULL;
}

static struct inject_config *configured(void)
{
	json_t *values = rig_json("{'global':{'hub':'h','tag':'1'}}");
	struct err e;
	struct inject_config *c = inject_config_new(values, NULL, NULL, &e);

	json_decref(values);
	return c;
}

static char *inject_says(const struct row *r)
{
	struct inject_config *config = configured();
	struct inject_work w = {config, INJECT_CHECK, json_array()};
	json_t *pod = pod_of(r), *metadata = json_pack("{s:o}", "proxyMetadata", env_of(r));
	auto_free char *text = json_dumps(metadata, 0);
	struct err e;
	char *said;

	if (r->env)
		json_object_set_new(annotations_of(pod), CONFIG, json_string(text));
	json_decref(inject_object(&w, pod, &e));
	said = copy_of(json_object_get(json_array_get(w.said, 0), "refused"));
	json_decref(metadata);
	json_decref(pod);
	json_decref(w.said);
	inject_config_free(&config);
	return said;
}

/* As istiod's injector makes it, with the template of SPIRE where there is a volume. */
static void put_sidecar(json_t *pod, const struct row *r)
{
	json_t *env = env_of(r), *value;
	json_t *list = rig_json("[{'name':'PROXY_CONFIG','value':'{}\\n'}]");
	const char *name;

	json_object_foreach (env, name, value)
		json_array_append_new(list, json_pack("{s:s, s:O}", "name", name, "value", value));
	json_array_append_new(json_object_get(json_object_get(pod, "spec"), "containers"),
	    json_pack("{s:s, s:o}", "name", "istio-proxy", "env", list));
	json_object_set_new(annotations_of(pod), "sidecar.istio.io/status",
	    json_string("{\"containers\":[\"istio-proxy\"],\"volumes\":[\"workload-socket\"]}"));
	json_decref(env);
}

static char *preflight_says(const struct row *r)
{
	struct preflight *p = preflight_new(configured());
	json_t *pod = pod_of(r), *answer, *row;
	struct err e;
	char *said;

	put_sidecar(pod, r);
	assert_int_equal(preflight_take(pod, &e, p), 0);
	answer = preflight_answer(p);
	row = json_array_get(json_object_get(answer, "workloads"), 0);
	said = copy_of(json_array_get(json_object_get(row, "refused"), 0));
	assert_int_equal(
	    !strcmp(json_string_value(json_object_get(row, "verdict")), "cannot"), said != NULL);
	json_decref(answer);
	json_decref(pod);
	preflight_free(&p);
	return said;
}

static char *node_says(const struct row *r)
{
	struct pod_spec spec = {.ns = "demo",
	    .name = "web",
	    .sa = "default",
	    .env = env_of(r),
	    .labels = json_object(),
	    .annotations = rig_json(r->annotations ? r->annotations : "{}"),
	    .redirect = json_object()};
	struct redirect_node defaults = {.strict = true};
	struct redirect_plan *plan = mem_zalloc(sizeof(*plan));
	struct err e;
	struct node *n = node_new(&spec, &context, &e);
	bool taken;

	assert_int_equal(traffic_mode_parse(&defaults.mode, "ebpf"), 0);
	taken = n && !traffic_read(plan, &spec, &defaults, &e);
	if (n && r->label)
		assert_int_equal(json_array_size(json_object_get(node_leftovers(n), "ignored")), 0);
	node_free(&n);
	free(plan);
	json_decref(spec.env);
	json_decref(spec.labels);
	json_decref(spec.annotations);
	json_decref(spec.redirect);
	return taken ? NULL : mem_strdup(e.msg);
}

/* --- what they say --- */

static void says(const char *program, const char *refused, const char *why)
{
	if (!refused && why)
		fail_msg("%s: %s", program, why);
	if (refused && !why)
		fail_msg("%s takes it: %s", program, refused);
	if (refused && !strstr(why, refused))
		fail_msg("%s: \"%s\" does not name %s", program, why, refused);
}

static void the_three_say_the_same(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct row *r = &rows[i];
		auto_free char *injected = inject_says(r), *before = preflight_says(r);
		auto_free char *node = node_says(r);

		says("inject --check", r->refused, injected);
		says("preflight", r->refused, before);
		says("node", r->volume ? NULL : r->refused, node);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_three_say_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
