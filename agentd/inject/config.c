/* config.c - see config.h. */
#include "config.h"
#include "base/json_text.h"
#include "common/err.h"
#include "common/mem.h"
#include <stdio.h>
#include <string.h>

/* What istiod's chart has under global.proxy (injection.md 5). */
static const char chart_proxy[] =
    "{\"image\":\"proxyv2\",\"includeIPRanges\":\"*\",\"includeInboundPorts\":\"*\","
    "\"logLevel\":\"warning\",\"componentLogLevel\":\"misc:error\","
    "\"resources\":{\"requests\":{\"cpu\":\"100m\",\"memory\":\"128Mi\"},"
    "\"limits\":{\"cpu\":\"2000m\",\"memory\":\"1024Mi\"}}}";

/* Keys of our part with their defaults, which tell the type, too. */
static const char defaults[] =
    "{\"network\":\"\",\"clusterDomain\":\"cluster.local\",\"ipFamily\":\"ipv4\","
    "\"redirectMode\":\"ebpf\",\"templateName\":\"agentd\",\"native\":true,\"controlPlanes\":[],"
    "\"hideFromIstiod\":false,"
    "\"sandboxedRuntimeClasses\":[\"gvisor\",\"kata\",\"kata-clh\",\"kata-fc\",\"kata-qemu\","
    "\"kata-qemu-snp\",\"kata-qemu-tdx\"]}";

/* --- looking --- */

json_t *inject_at(const json_t *o, const char *path)
{
	json_t *v = (json_t *)o;

	while (v && *path) {
		size_t n = strcspn(path, ".");

		v = json_object_getn(v, path, n);
		path += path[n] ? n + 1 : n;
	}
	return v && !json_is_null(v) ? v : NULL;
}

char *inject_scalar(const json_t *v)
{
	if (json_is_string(v))
		return mem_strdup(json_string_value(v));
	if (!v || json_is_object(v) || json_is_array(v) || json_is_null(v))
		return NULL;
	return json_text(v, JSON_ENCODE_ANY);
}

char *inject_text(const json_t *o, const char *path)
{
	char *text = inject_scalar(inject_at(o, path));

	if (text && *text)
		return text;
	free(text);
	return NULL;
}

bool inject_true(const json_t *o, const char *path)
{
	const json_t *v = inject_at(o, path);

	return json_is_true(v) || (json_is_string(v) && !strcmp(json_string_value(v), "true"));
}

/* --- reading --- */

static int check_texts(const char *key, const json_t *list, struct err *e)
{
	const json_t *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (!json_is_string(v))
			return err_set(e, ERR_INVALID, "agentd.%s: must be a list of texts", key);
	return 0;
}

static int take_own(json_t *into, json_t *own, struct err *e)
{
	char shown[64];
	const char *key;
	json_t *v;

	json_object_foreach (own, key, v) {
		const json_t *known = json_object_get(into, key);

		if (!known)
			return err_set(e, ERR_INVALID, "agentd: no such key \"%s\"",
			    err_printable(shown, sizeof(shown), key, (unsigned)strlen(key)));
		if (json_is_boolean(known) ? !json_is_boolean(v)
					   : json_typeof(known) != json_typeof(v))
			return err_set(e, ERR_INVALID, "agentd.%s: must be %s", key,
			    json_is_boolean(known) ? "true or false"
			    : json_is_array(known) ? "a list of texts"
						   : "text");
		if (check_texts(key, v, e))
			return -1;
		json_object_set(into, key, v);
	}
	return 0;
}

static const char *own_text(const struct inject_config *c, const char *key)
{
	return json_string_value(json_object_get(c->own, key));
}

static int one_of(const char *key, const char *value, const char *const *allowed, struct err *e)
{
	char shown[64], all[128] = "";
	size_t n = 0;

	for (; *allowed; allowed++) {
		if (!strcmp(*allowed, value))
			return 0;
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", *allowed);
	}
	return err_set(e, ERR_INVALID, "agentd.%s: \"%s\" refused; allowed: %s", key,
	    err_printable(shown, sizeof(shown), value, (unsigned)strlen(value)), all);
}

static int read_own(struct inject_config *c, struct err *e)
{
	static const char *const families[] = {"ipv4", "ipv6", NULL};
	static const char *const modes[] = {"ebpf", "istio-cni", "istio-init", "none", NULL};

	c->redirect_mode = own_text(c, "redirectMode");
	c->network = own_text(c, "network");
	c->cluster_domain = own_text(c, "clusterDomain");
	c->template_name = own_text(c, "templateName");
	c->sandboxes = json_object_get(c->own, "sandboxedRuntimeClasses");
	c->planes = json_object_get(c->own, "controlPlanes");
	c->native = json_is_true(json_object_get(c->own, "native"));
	c->hide_from_istiod = json_is_true(json_object_get(c->own, "hideFromIstiod"));
	if (one_of("ipFamily", own_text(c, "ipFamily"), families, e) ||
	    one_of("redirectMode", c->redirect_mode, modes, e))
		return -1;
	c->ipv6 = !strcmp(own_text(c, "ipFamily"), "ipv6");
	c->istio_cni = !strcmp(c->redirect_mode, "istio-cni");
	return 0;
}

static int take_object(const char *name, json_t *given, json_t **out, struct err *e)
{
	if (given && !json_is_object(given) && !json_is_null(given))
		return err_set(e, ERR_INVALID, "%s: must be a map", name);
	*out = json_is_object(given) ? json_deep_copy(given) : json_object();
	return 0;
}

static void add_proxy(json_t *values)
{
	json_t *global = inject_at(values, "global");

	if (!json_is_object(global)) {
		global = json_object();
		json_object_set_new(values, "global", global);
	}
	if (!json_is_object(inject_at(global, "proxy")))
		json_object_set_new(global, "proxy", json_loads(chart_proxy, 0, NULL));
}

struct inject_config *inject_config_new(json_t *values, json_t *mesh, json_t *own, struct err *e)
{
	struct inject_config *c = mem_zalloc(sizeof(*c));

	c->own = json_loads(defaults, 0, NULL);
	if (own && !json_is_object(own) && !json_is_null(own))
		err_set(e, ERR_INVALID, "agentd: must be a map");
	else if (!take_object("values", values, &c->values, e) &&
		 !take_object("meshConfig", mesh, &c->mesh, e) && !take_own(c->own, own, e) &&
		 !read_own(c, e)) {
		add_proxy(c->values);
		return c;
	}
	inject_config_free(&c);
	return NULL;
}

struct inject_config *inject_config_of(json_t *all, struct err *e)
{
	static const char *const known[] = {"values", "meshConfig", "agentd"};
	char shown[64];
	const char *key;
	json_t *v;

	if (!json_is_object(all) && !json_is_null(all)) {
		err_set(e, ERR_INVALID, "must be a map of values, meshConfig, agentd");
		return NULL;
	}
	json_object_foreach (all, key, v)
		if (strcmp(key, known[0]) != 0 && strcmp(key, known[1]) != 0 &&
		    strcmp(key, known[2]) != 0) {
			err_set(e, ERR_INVALID,
			    "no such key \"%s\"; it has values, meshConfig, agentd",
			    err_printable(shown, sizeof(shown), key, (unsigned)strlen(key)));
			return NULL;
		}
	return inject_config_new(json_object_get(all, known[0]), json_object_get(all, known[1]),
	    json_object_get(all, known[2]), e);
}

void inject_config_free(struct inject_config **config)
{
	struct inject_config *c = take(*config);

	if (!c)
		return;
	json_decref(c->values);
	json_decref(c->mesh);
	json_decref(c->own);
	free(c);
}
