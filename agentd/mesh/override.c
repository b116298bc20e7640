/* override.c - read: spelt as we spell it -> what is reserved is refused.  Rendered: merged. */
#include "override.h"
#include "common/err.h"
#include "common/mem.h"
#include "refusal.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- merging --- */

/* "staticResources" -> "static_resources" */
static char *snake_case(const char *key)
{
	char *out = mem_zalloc(2 * strlen(key) + 1), *to = out;

	for (const char *from = key; *from; from++) {
		if (isupper((unsigned char)*from))
			*to++ = '_';
		*to++ = (char)tolower((unsigned char)*from);
	}
	return out;
}

/* Of these a message has one; the last that is set counts. */
static void leave_one_of(json_t *message, const char *field)
{
	static const char *const matcher[] = {"reject_all", "exclusion_list", "inclusion_list"};
	bool is_one = false;

	for (unsigned i = 0; i < 3; i++)
		is_one = is_one || !strcmp(matcher[i], field);
	for (unsigned i = 0; i < 3 && is_one; i++)
		if (strcmp(matcher[i], field) != 0)
			json_object_del(message, matcher[i]);
}

static void append(json_t *list, const json_t *more)
{
	json_t *copy = json_deep_copy(more);

	json_array_extend(list, copy);
	json_decref(copy);
}

/* As deep as both are messages; Envoy itself reads what is new below. */
static void merge(json_t *to, const json_t *from)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)from, key, v) {
		auto_free char *field = snake_case(key);
		json_t *old = json_object_get(to, field);

		if (json_is_null(v))
			continue;
		leave_one_of(to, field);
		if (json_is_array(old) && json_is_array(v))
			append(old, v);
		else if (json_is_object(old) && json_is_object(v) && !json_object_get(v, "@type"))
			merge(old, v);
		else
			json_object_set_new(to, field, json_deep_copy(v));
	}
}

void override_merge(json_t *bootstrap, const json_t *override)
{
	merge(bootstrap, override);
}

/* --- reading --- */

struct reserved {
	const char *key;
	const unsigned *ports;
	size_t nports;
};

static bool is_own_port(const struct reserved *r, double port)
{
	for (size_t i = 0; i < r->nports; i++)
		if (r->ports[i] && port == r->ports[i])
			return true;
	return false;
}

/* A number of proto JSON may be a text. */
static bool is_own_port_value(const struct reserved *r, const char *key, const json_t *v)
{
	auto_free char *field = snake_case(key);

	return !strcmp(field, "port_value") &&
	       is_own_port(r,
		   json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v));
}

/* Anywhere in an address; the document's depth is bounded. */
static bool has_own_port(const struct reserved *r, const json_t *v)
{
	const char *key;
	json_t *child;
	size_t i;

	json_object_foreach ((json_t *)v, key, child)
		if (is_own_port_value(r, key, child) || has_own_port(r, child))
			return true;
	json_array_foreach (v, i, child)
		if (has_own_port(r, child))
			return true;
	return false;
}

/* "0.0.0.0_15021" */
static bool is_own_listener(const struct reserved *r, const char *name)
{
	const char *port = name ? strrchr(name, '_') : NULL;

	return port && is_own_port(r, strtod(port + 1, NULL));
}

static int check_listener(const struct reserved *r, const json_t *listener, struct err *e)
{
	const char *name = json_string_value(json_object_get(listener, "name")), *key;
	json_t *v;

	if (!json_is_object(listener))
		return refusal(r->key, "listeners", "objects", e);
	if (is_own_listener(r, name))
		return refusal(r->key, name, "listeners with other names than Envoy's own", e);
	json_object_foreach ((json_t *)listener, key, v) {
		auto_free char *field = snake_case(key);

		if ((!strcmp(field, "address") || !strcmp(field, "additional_addresses")) &&
		    has_own_port(r, v))
			return refusal(r->key, name ? name : "a listener",
			    "listeners on other ports than Envoy's own", e);
	}
	return 0;
}

static int check_cluster(const struct reserved *r, const json_t *cluster, struct err *e)
{
	static const char *const own[] = {"prometheus_stats", "agent", "sds-grpc", "sds-files-grpc",
	    "xds-grpc", "zipkin", "datadog_agent", "envoy_metrics_service",
	    "envoy_accesslog_service"};
	const char *name = json_string_value(json_object_get(cluster, "name"));

	if (!json_is_object(cluster))
		return refusal(r->key, "clusters", "objects", e);
	for (unsigned i = 0; name && i < sizeof(own) / sizeof(*own); i++)
		if (!strcmp(name, own[i]) || !strncmp(name, "agentd_", strlen("agentd_")))
			return refusal(
			    r->key, name, "clusters with other names than Envoy's own", e);
	return 0;
}

static int check_list(const struct reserved *r, const json_t *resources, const char *field,
    int (*check)(const struct reserved *r, const json_t *one, struct err *e), struct err *e)
{
	const json_t *list = json_object_get(resources, field);
	json_t *one;
	size_t i;

	if (list && !json_is_array(list))
		return refusal(r->key, field, "a list", e);
	json_array_foreach (list, i, one)
		if (check(r, one, e))
			return -1;
	return 0;
}

/* The pod's Envoy reaches agentd by the clusters that it was given. */
static int check_pipes(const struct reserved *r, const json_t *v, struct err *e)
{
	const char *path = json_string_value(json_object_get(json_object_get(v, "pipe"), "path"));
	const char *key;
	json_t *child;
	size_t i;

	if (path && (strstr(path, "istio/proxy") || strstr(path, "workload-spiffe-uds")))
		return refusal(r->key, path, "other pipes than agentd's sockets", e);
	json_object_foreach ((json_t *)v, key, child)
		if (check_pipes(r, child, e))
			return -1;
	json_array_foreach (v, i, child)
		if (check_pipes(r, child, e))
			return -1;
	return 0;
}

static int check(const struct reserved *r, const json_t *override, struct err *e)
{
	static const char *const sections[] = {"node", "admin", "dynamic_resources"};
	const json_t *resources = json_object_get(override, "static_resources");

	for (unsigned i = 0; i < 3; i++)
		if (json_object_get(override, sections[i]))
			return refusal(r->key, sections[i], "other sections", e);
	if (!json_is_object(resources))
		return refusal(r->key, "static_resources", "an object", e);
	return check_list(r, resources, "clusters", check_cluster, e) ||
		       check_list(r, resources, "listeners", check_listener, e) ||
		       check_pipes(r, override, e)
		   ? -1
		   : 0;
}

json_t *override_read(
    const char *key, const json_t *document, const unsigned *own, size_t n, struct err *e)
{
	json_t *out = json_pack("{s:{}}", "static_resources");
	struct reserved r = {.key = key, .ports = own, .nports = n};

	merge(out, document);
	if (check(&r, out, e))
		json_decref(take(out));
	return out;
}

char *override_text(const char *text, const char *host_ip)
{
	static const char variable[] = "$(HOST_IP)";
	bool v6 = host_ip && strchr(host_ip, ':');
	char *out = NULL;
	size_t size;
	FILE *f = open_memstream(&out, &size);

	for (const char *at; host_ip && (at = strstr(text, variable)); text = at + strlen(variable))
		(void)fprintf(
		    f, "%.*s%s%s%s", (int)(at - text), text, v6 ? "[" : "", host_ip, v6 ? "]" : "");
	(void)fputs(text, f);
	(void)fclose(f);
	return out;
}
