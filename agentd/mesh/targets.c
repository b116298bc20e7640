/* targets.c - two JSON documents of the injector, read field by field; fields unknown here are left
 * out. */
#include "targets.h"
#include "common/err.h"
#include "common/mem.h"
#include <stdio.h>
#include <string.h>

enum { PATH_SIZE_MAX = 2048, SERVICE_SIZE_MAX = 1024 };

static const char ports_allowed[] =
    "1 to 65535 but 15000 15001 15004 15006 15008 15020 15021 15053 15090";

bool targets_port_is_reserved(unsigned port)
{
	static const unsigned ports[] = {
	    15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090};

	for (unsigned i = 0; i < sizeof(ports) / sizeof(*ports); i++)
		if (ports[i] == port)
			return true;
	return false;
}

/* `v` NULL: it is missing. */
static int refuse(
    const char *key, const char *field, const json_t *v, const char *allowed, struct err *e)
{
	auto_free char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	char printable[50] = "";

	if (text)
		err_printable(printable, sizeof(printable), text, (unsigned)strlen(text));
	return err_set(
	    e, ERR_INVALID, "%s%s: %s refused; allowed: %s", key, field, printable, allowed);
}

static bool is_printable(const char *s, size_t n, size_t max)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return false;
	return n <= max;
}

static int read_port(const char *key, const json_t *v, unsigned *port, struct err *e)
{
	json_int_t n = json_integer_value(v);

	if (!json_is_integer(v) || n < 1 || n > 65535 || targets_port_is_reserved((unsigned)n))
		return refuse(key, ".port", v, ports_allowed, e);
	*port = (unsigned)n;
	return 0;
}

/* A path without its first '/' gets it, as the kubelet would have done. */
static int add_path(json_t *out, const char *key, const json_t *v, struct err *e)
{
	const char *path = v && !json_is_null(v) ? json_string_value(v) : "";

	if (!path || !is_printable(path, json_string_length(v), PATH_SIZE_MAX))
		return refuse(key, ".path", v, "printable ASCII without spaces, 2048 bytes", e);
	json_object_set_new(out, "path", json_sprintf("%s%s", *path == '/' ? "" : "/", path));
	return 0;
}

static int add_service(json_t *out, const char *key, const json_t *v, struct err *e)
{
	const char *service = v && !json_is_null(v) ? json_string_value(v) : "";

	if (!service || !is_printable(service, json_string_length(v), SERVICE_SIZE_MAX))
		return refuse(key, ".service", v, "printable ASCII without spaces, 1024 bytes", e);
	json_object_set_new(out, "service", json_string(service));
	return 0;
}

static int add_timeout(json_t *out, const char *key, const json_t *v, struct err *e)
{
	json_int_t s = json_integer_value(v);

	if (v && (!json_is_integer(v) || s < 0 || s > TARGETS_TIMEOUT_MAX_S))
		return refuse(key, ".timeoutSeconds", v, "0 to 60", e);
	json_object_set_new(out, "timeout_s", json_integer(s));
	return 0;
}

static int add_http(json_t *out, const char *key, const json_t *probe, struct err *e)
{
	const json_t *scheme = json_object_get(probe, "scheme");
	const char *name = scheme ? json_string_value(scheme) : "HTTP";

	if (!name || (*name && strcmp(name, "HTTP") != 0 && strcmp(name, "HTTPS") != 0))
		return refuse(key, ".scheme", scheme, "HTTP, HTTPS", e);
	json_object_set_new(out, "kind", json_string(!strcmp(name, "HTTPS") ? "https" : "http"));
	return add_path(out, key, json_object_get(probe, "path"), e);
}

static int add_tcp(json_t *out, const char *key, const json_t *probe, struct err *e)
{
	(void)key, (void)probe, (void)e;
	json_object_set_new(out, "kind", json_string("tcp"));
	return 0;
}

static int add_grpc(json_t *out, const char *key, const json_t *probe, struct err *e)
{
	json_object_set_new(out, "kind", json_string("grpc"));
	return add_service(out, key, json_object_get(probe, "service"), e);
}

static const struct {
	const char *name;
	int (*add)(json_t *out, const char *key, const json_t *probe, struct err *e);
} kinds[] = {{"httpGet", add_http}, {"tcpSocket", add_tcp}, {"grpc", add_grpc}};

/* Exactly one of the kinds; -1: none or several. */
static int kind_of(const json_t *prober)
{
	int found = -1;

	for (int i = 0; i < 3; i++) {
		if (!json_is_object(json_object_get(prober, kinds[i].name)))
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

/* "/app-health/CONTAINER/readyz"; the name is Kubernetes': letters, digits, '-'. */
static bool is_route(const char *route)
{
	static const char *const ends[] = {"livez", "readyz", "startupz", "prestopz", "poststartz"};
	static const char *const begins[] = {"/app-health/", "/app-lifecycle/"};

	for (unsigned i = 0; i < 2; i++) {
		const char *name = route + strlen(begins[i]);
		size_t n;

		if (strncmp(route, begins[i], strlen(begins[i])) != 0)
			continue;
		n = strspn(
		    name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
		for (unsigned k = 0; k < 5 && n >= 1 && n <= 253 && name[n] == '/'; k++)
			if (!strcmp(name + n + 1, ends[k]))
				return true;
	}
	return false;
}

static int add_prober(
    json_t *all, const char *key, const char *route, const json_t *prober, struct err *e)
{
	auto_free char *at = mem_printf("%s[%s]", key, route);
	int kind = kind_of(prober);
	json_t *out = json_object();
	const json_t *probe;
	unsigned port = 0;

	json_array_append_new(all, out);
	if (!is_route(route))
		return refuse(at, "", prober,
		    "/app-health/NAME/{livez,readyz,startupz} and "
		    "/app-lifecycle/NAME/{prestopz,poststartz}",
		    e);
	if (kind < 0)
		return refuse(at, "", prober, "exactly one of httpGet, tcpSocket, grpc", e);
	probe = json_object_get(prober, kinds[kind].name);
	if (read_port(at, json_object_get(probe, "port"), &port, e) ||
	    kinds[kind].add(out, at, probe, e) ||
	    add_timeout(out, at, json_object_get(prober, "timeoutSeconds"), e))
		return -1;
	json_object_set_new(out, "route", json_string(route));
	json_object_set_new(out, "port", json_integer(port));
	return 0;
}

json_t *targets_probers(const char *key, const json_t *document, struct err *e)
{
	json_t *all = json_array(), *prober;
	const char *route;
	int rc = 0;

	if (json_object_size(document) > TARGETS_PROBERS_MAX)
		rc = err_set(e, ERR_INVALID, "%s: more than %d entries", key, TARGETS_PROBERS_MAX);
	json_object_foreach ((json_t *)document, route, prober)
		if (!rc)
			rc = add_prober(all, key, route, prober, e);
	if (rc)
		json_decref(take(all));
	return all;
}

/* Numbers are texts here. */
static int add_scrape(json_t *all, const char *key, const json_t *target, struct err *e)
{
	const json_t *port = json_object_get(target, "port"), *path;
	const char *digits = port ? json_string_value(port) : "80";
	size_t n = digits ? strspn(digits, "0123456789") : 0;
	unsigned long number = n && n < 6 && !digits[n] ? strtoul(digits, NULL, 10) : 0;
	json_t *out = json_object();

	json_array_append_new(all, out);
	if (number < 1 || number > 65535 || targets_port_is_reserved((unsigned)number))
		return refuse(key, ".port", port, ports_allowed, e);
	json_object_set_new(out, "port", json_integer((json_int_t)number));
	path = json_object_get(target, "path");
	if (!path || (json_is_string(path) && !json_string_length(path)))
		return json_object_set_new(out, "path", json_string("/metrics"));
	if (!json_is_string(path) || *json_string_value(path) != '/')
		return refuse(key, ".path", path, "a path that begins with /", e);
	return add_path(out, key, path, e);
}

static int add_scrapes(json_t *all, const char *key, const json_t *document, struct err *e)
{
	const json_t *targets = json_object_get(document, "targets");
	json_t *target;
	size_t i;

	if (!json_array_size(targets))
		return add_scrape(all, key, document, e);
	if (json_array_size(targets) > TARGETS_SCRAPES_MAX)
		return err_set(
		    e, ERR_INVALID, "%s: more than %d targets", key, TARGETS_SCRAPES_MAX);
	json_array_foreach (targets, i, target)
		if (add_scrape(all, key, target, e))
			return -1;
	return 0;
}

json_t *targets_scrapes(const char *key, const json_t *document, struct err *e)
{
	json_t *all = json_array();
	const char *wanted = json_string_value(json_object_get(document, "scrape"));
	int rc = 0;

	if (!(wanted && !strcmp(wanted, "false")))
		rc = add_scrapes(all, key, document, e);
	if (rc)
		json_decref(take(all));
	return all;
}
