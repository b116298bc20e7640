/* before.c - the status is read -> what it lists goes -> what the pod had of its own comes back. */
#include "before.h"
#include "common/mem.h"
#include "inject_internal.h"
#include <string.h>

static const char *const lists[] = {"initContainers", "containers", "volumes"};
enum { NLISTS = sizeof(lists) / sizeof(*lists), NCONTAINERS = 2 };

/* JSON in an annotation, or in a variable. */
static json_t *inner(const char *text)
{
	json_t *o = text ? json_loads(text, 0, NULL) : NULL;

	if (json_is_object(o))
		return o;
	json_decref(o);
	return json_object();
}

static bool is_listed(const json_t *names, const char *name)
{
	json_t *v;
	size_t i;

	json_array_foreach (names, i, v)
		if (json_is_string(v) && !strcmp(json_string_value(v), name))
			return true;
	return false;
}

static void take_out(struct inject_before *b, json_t *list, const json_t *names)
{
	for (size_t i = json_array_size(list); i-- > 0;) {
		json_t *thing = json_array_get(list, i);

		if (!is_listed(names, inject_name_of(thing)))
			continue;
		if (!strcmp(inject_name_of(thing), INJECT_PROXY) && !b->proxy)
			b->proxy = json_incref(thing);
		json_array_remove(list, i);
	}
}

/* NULL: it is not set, or not as text. */
static const char *variable(const json_t *container, const char *name)
{
	return json_string_value(
	    json_object_get(inject_named(json_object_get(container, "env"), name), "value"));
}

/* The pod's own words for istio-proxy, where they stood as a container. */
static void put_back_own(json_t *spec, const char *overrides)
{
	json_t *all = inner(overrides), *c;
	size_t i;

	for (unsigned k = 0; k < NCONTAINERS; k++)
		json_array_foreach (json_object_get(all, lists[k]), i, c)
			json_array_append(inject_part(spec, lists[k], json_array()), c);
	json_decref(all);
}

static void put_back(struct inject_before *b, json_t *spec, json_t *annotations)
{
	static const char *const written[] = {INJECT_STATUS, INJECT_OVERRIDES, "istio.io/rev"};
	json_t *probers = inner(variable(b->proxy, "ISTIO_KUBE_APP_PROBERS"));

	put_back_own(spec, json_string_value(json_object_get(annotations, INJECT_OVERRIDES)));
	b->probes = inject_restore_probes(spec, probers);
	b->proxy_config = inner(variable(b->proxy, "PROXY_CONFIG"));
	for (unsigned i = 0; i < sizeof(written) / sizeof(*written); i++)
		json_object_del(annotations, written[i]);
	json_decref(probers);
}

void inject_before(struct inject_before *b, const json_t *pod)
{
	json_t *out = json_deep_copy(pod), *spec = json_object_get(out, "spec");
	json_t *annotations = inject_at(out, "metadata.annotations");
	json_t *status = inner(json_string_value(json_object_get(annotations, INJECT_STATUS)));

	*b = (struct inject_before){.pod = out};
	for (unsigned i = 0; i < NLISTS; i++)
		take_out(b, json_object_get(spec, lists[i]), json_object_get(status, lists[i]));
	if (json_is_object(spec) && json_is_object(annotations))
		put_back(b, spec, annotations);
	json_decref(status);
}

static void tell(
    json_t *global, const char *key, const struct inject_before *b, const char *variable_name)
{
	const char *value = variable(b->proxy, variable_name);
	auto_free char *told = inject_text(global, key);

	if (!told && value)
		json_object_set_new(global, key, json_string(value));
}

static void forget(json_t *container, const char *variable_name)
{
	json_t *env = json_object_get(container, "env");

	for (size_t i = json_array_size(env); i-- > 0;)
		if (!strcmp(inject_name_of(json_array_get(env, i)), variable_name))
			json_array_remove(env, i);
}

/* Does another program issue its certificates, and not its istiod? */
static bool has_other_ca(const struct inject_before *b)
{
	const char *ca = variable(b->proxy, "CA_ADDR");
	const char *istiod =
	    json_string_value(json_object_get(b->proxy_config, "discoveryAddress"));

	return ca && strcmp(ca, istiod ? istiod : "istiod.istio-system.svc:15012") != 0;
}

void inject_before_tells(const struct inject_before *b, struct inject_config *c)
{
	json_t *global = json_copy(inject_at(c->values, "global"));
	json_t *clusters = inject_at(global, "multiCluster");
	bool known = json_object_size(c->mesh);

	c->values = json_copy(c->values);
	c->mesh =
	    known ? json_incref(c->mesh) : json_pack("{s:O?}", "defaultConfig", b->proxy_config);
	clusters = json_is_object(clusters) ? json_copy(clusters) : json_object();
	json_object_set_new(c->values, "global", global);
	json_object_set_new(global, "multiCluster", clusters);
	tell(clusters, "clusterName", b, "ISTIO_META_CLUSTER_ID");
	tell(global, "meshID", b, "ISTIO_META_MESH_ID");
	tell(global, "trustDomain", b, "TRUST_DOMAIN");
	if (!known || has_other_ca(b))
		tell(global, "caAddress", b, "CA_ADDR");
	else
		forget(b->proxy, "CA_ADDR"); /* its istiod may be another one from now on */
}

void inject_before_clear(struct inject_before *b)
{
	json_decref(b->pod);
	json_decref(b->proxy);
	json_decref(b->proxy_config);
	*b = (struct inject_before){0};
}
