/* node.c - the pod as a node will see it, read by the node's own readers.
 *
 * What they refuse is refused here in the same words; what they ignore becomes a warning.  The
 * node's own settings are not known: it is taken to have the control plane of discoveryAddress and
 * those of agentd.controlPlanes; a CA elsewhere (caAddress) is none of them.  Its ceilings
 * (redirect_allow) are its own.
 */
#include "mesh/node.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/version.h"
#include "inject_internal.h"
#include "mesh/pod.h"
#include "mesh/traffic.h"
#include <string.h>

enum { PLANES_MAX = 16, DAY_S = 86400 };

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

/* What the mesh says is what a control plane has; a pod's own word is compared with it. */
static size_t add_plane(
    struct node_plane *planes, size_t n, const char *address, const json_t *mesh)
{
	if (n < PLANES_MAX && *address)
		planes[n++] = (struct node_plane){.address = address,
		    .server_name = "",
		    .trust_domain = text_of(mesh, "TRUST_DOMAIN"),
		    .cluster_id = text_of(mesh, "ISTIO_META_CLUSTER_ID"),
		    .mesh_id = text_of(mesh, "ISTIO_META_MESH_ID")};
	return n;
}

/* Not read there, but at another place: in an attribute, an argument, by redirection. */
static bool is_done(const char *name)
{
	static const char *const done[] = {
	    "PROXY_CONFIG.proxyMetadata.", "PROXY_CONFIG.fileFlush", "ISTIO_META_DNS_CAPTURE"};

	for (unsigned i = 0; i < sizeof(done) / sizeof(*done); i++)
		if (!strncmp(name, done[i], strlen(done[i])))
			return true;
	return false;
}

static void warn_of(json_t *warnings, const json_t *names, const char *why)
{
	char shown[100];
	json_t *v;
	size_t i;

	json_array_foreach (names, i, v) {
		const char *name = json_string_value(v);

		if (is_done(name))
			continue;
		err_printable(shown, sizeof(shown), name, (unsigned)strlen(name));
		json_array_append_new(warnings, json_sprintf("%s %s", shown, why));
	}
}

static int read_pod(const struct pod_spec *p, const struct node_context *c,
    const struct redirect_node *defaults, json_t *warnings, struct err *e)
{
	struct node *node = node_new(p, c, e);
	struct redirect_node n = *defaults;
	struct redirect_plan *plan;
	int rc;

	if (!node)
		return -1;
	plan = mem_zalloc(sizeof(*plan));
	n.status_port = node_settings(node)->agent_port;
	rc = traffic_read(plan, p, &n, e);
	if (!rc) {
		warn_of(warnings, json_object_get(node_leftovers(node), "ignored"), "is ignored");
		warn_of(warnings, json_object_get(node_leftovers(node), "unsupported"),
		    "has no effect yet");
	}
	free(plan);
	node_free(&node);
	return rc;
}

/* JSON in an attribute that we have written ourselves. */
static json_t *inner(const json_t *attributes, const char *key)
{
	json_t *o = json_loads(text_of(attributes, key), 0, NULL);

	return o ? o : json_object();
}

int inject_check_node(
    const struct inject_config *c, const json_t *attributes, json_t *warnings, struct err *e)
{
	auto_free char *discovery = inject_text(c->mesh, "defaultConfig.discoveryAddress");
	auto_free char *istiod = inject_istiod(c);
	auto_free char *ns = inject_text(c->values, "global.istioNamespace");
	struct node_plane planes[PLANES_MAX];
	struct redirect_node defaults = {.strict = true};
	struct node_context context = {.planes = planes,
	    .node_name = "",
	    .host_ip = "192.0.2.1", /* whichever it will be */
	    .istio_namespace = ns ? ns : "istio-system",
	    .cluster_domain = c->cluster_domain,
	    .ipv6 = c->ipv6,
	    .version = version_text,
	    .ttl_min_s = DAY_S / 24,
	    .ttl_max_s = DAY_S};
	struct pod_spec p = {.env = (json_t *)attributes,
	    .labels = json_object(),
	    .annotations = inner(attributes, "ISTIO_METAJSON_ANNOTATIONS"),
	    .redirect = json_object(),
	    .proxy_uid = 1337,
	    .proxy_gid = 1337};
	json_t *mesh = inject_mesh_attributes(c), *v;
	size_t i;
	int rc;

	if (traffic_mode_parse(&defaults.mode, c->redirect_mode))
		abort(); /* config.c has looked */
	context.nplanes = add_plane(planes, 0, discovery ? discovery : istiod, mesh);
	json_array_foreach (c->planes, i, v)
		context.nplanes = add_plane(planes, context.nplanes, json_string_value(v), mesh);
	rc = read_pod(&p, &context, &defaults, warnings, e);
	json_decref(mesh);
	json_decref(p.labels);
	json_decref(p.annotations);
	json_decref(p.redirect);
	return rc;
}
