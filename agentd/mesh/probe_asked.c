/* probe_asked.c - numbers, then the one way to ask -> a document like the injector's, which
 * targets.c checks.  Each field has its type already (proxy_fields.c). */
#include "probe_asked.h"
#include "common/err.h"
#include "common/mem.h"
#include "refusal.h"
#include "targets.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEADERS_MAX = 16, SECONDS_MAX = 3600, TIMES_MAX = 100 };

static const char ways[] = "exactly one of httpGet, tcpSocket, grpc";

/* --- refusals --- */

static int refuse(
    const char *key, const char *field, const json_t *v, const char *allowed, struct err *e)
{
	auto_free char *name = mem_printf("%s.%s", key, field);
	auto_free char *text =
	    v && !json_is_string(v) ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

	return refusal(name, text ? text : v ? json_string_value(v) : "", allowed, e);
}

static int check_fields(const char *key, const json_t *o, const char *const known[], struct err *e)
{
	const char *name;
	json_t *v;

	json_object_foreach ((json_t *)o, name, v) {
		unsigned i = 0;

		while (known[i] && strcmp(known[i], name) != 0)
			i++;
		if (!known[i])
			return refuse(key, name, v, "no such field", e);
	}
	return 0;
}

/* --- numbers --- */

static const struct {
	const char *field;
	size_t at;
	unsigned fallback, most; /* 0 means the default */
} numbers[] = {
    {"initialDelaySeconds", offsetof(struct probe_asked, delay_s), 0, SECONDS_MAX},
    {"timeoutSeconds", offsetof(struct probe_asked, timeout_s), 1, TARGETS_TIMEOUT_MAX_S},
    {"periodSeconds", offsetof(struct probe_asked, period_s), 10, SECONDS_MAX},
    {"successThreshold", offsetof(struct probe_asked, successes), 1, TIMES_MAX},
    {"failureThreshold", offsetof(struct probe_asked, failures), 1, TIMES_MAX},
};

static int read_numbers(
    const char *key, const json_t *probe, struct probe_asked *out, struct err *e)
{
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		const json_t *v = json_object_get(probe, numbers[i].field);
		json_int_t n = json_integer_value(v);
		char allowed[32];

		(void)snprintf(allowed, sizeof(allowed), "0 to %u", numbers[i].most);
		if (n < 0 || n > numbers[i].most)
			return refuse(key, numbers[i].field, v, allowed, e);
		*(unsigned *)((char *)out + numbers[i].at) = n ? (unsigned)n : numbers[i].fallback;
	}
	return 0;
}

/* --- headers --- */

static bool is_token(const char *s)
{
	static const char token[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

	return *s && strlen(s) <= 64 && !s[strspn(s, token)];
}

static bool is_value(const char *s)
{
	const char *c = s;

	while (*c >= ' ' && *c <= '~')
		c++;
	return !*c && c - s <= 256;
}

/* What frames the request is not the owner's. */
static bool is_framing(const char *name)
{
	static const char *const all[] = {"connection", "content-length", "transfer-encoding",
	    "upgrade", "te", "trailer", "expect", "keep-alive", "proxy-connection"};

	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcasecmp(all[i], name))
			return true;
	return !strncasecmp(name, "x-envoy-", 8);
}

static bool has_header(const json_t *headers, const char *wanted)
{
	const json_t *h;
	size_t i;

	json_array_foreach (headers, i, h) {
		const char *name = json_string_value(json_object_get(h, "name"));

		if (name && !strcasecmp(name, wanted))
			return true;
	}
	return false;
}

static int read_headers(
    const char *key, const json_t *headers, struct probe_asked *out, struct err *e)
{
	char lines[PROBE_ASKED_HEADERS_SIZE];
	size_t at, i;
	const json_t *h;

	if (json_array_size(headers) > HEADERS_MAX)
		return refuse(key, "httpHeaders", headers, "a list of at most 16", e);
	at = (size_t)snprintf(lines, sizeof(lines), "%s%s",
	    has_header(headers, "host") ? "" : "Host: localhost\r\n",
	    has_header(headers, "user-agent") ? "" : "User-Agent: istio-probe/1.0\r\n");
	json_array_foreach (headers, i, h) {
		const char *name = json_string_value(json_object_get(h, "name"));
		const char *value = json_string_value(json_object_get(h, "value"));

		if (!name || !is_token(name) || is_framing(name) || (value && !is_value(value)))
			return refuse(key, "httpHeaders", h,
			    "{name: A-Z a-z 0-9 - _, value: printable ASCII of at most 256 bytes}, "
			    "and no name that frames a request",
			    e);
		at += (size_t)snprintf(
		    lines + at, sizeof(lines) - at, "%s: %s\r\n", name, value ? value : "");
		if (at >= sizeof(lines))
			return refuse(key, "httpHeaders", NULL, "2048 bytes in all", e);
	}
	out->headers = mem_strdup(lines);
	return 0;
}

/* --- the way --- */

static int check_way(const char *key, const json_t *way, const char *const known[], struct err *e)
{
	const json_t *host = json_object_get(way, "host");

	if (host)
		return refuse(key, "host", host,
		    "none: the app is asked at the machine's own address, with "
		    "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION=true at its loopback",
		    e);
	return check_fields(key, way, known, e);
}

/* The scheme is the injector's. */
static json_t *as_injected(const json_t *way)
{
	json_t *out = json_copy((json_t *)way);
	const char *scheme = json_string_value(json_object_get(way, "scheme"));

	if (scheme && (!strcasecmp(scheme, "http") || !strcasecmp(scheme, "https")))
		json_object_set_new(out, "scheme", json_string(scheme[4] ? "HTTPS" : "HTTP"));
	return out;
}

static const char *const fields_of_http[] = {"path", "port", "host", "scheme", "httpHeaders", NULL};
static const char *const fields_of_tcp[] = {"port", "host", NULL};
static const char *const fields_of_grpc[] = {"port", "service", NULL};

static const struct {
	const char *name;
	const char *const *fields;
} kinds[] = {{"httpGet", fields_of_http}, {"tcpSocket", fields_of_tcp}, {"grpc", fields_of_grpc}};

/* -1: none, or several. */
static int kind_of(const json_t *probe)
{
	int found = -1;

	for (int i = 0; i < 3; i++) {
		if (!json_object_get(probe, kinds[i].name))
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

static json_t *prober(
    const char *key, const char *kind, const json_t *way, unsigned timeout_s, struct err *e)
{
	json_t *document = json_pack("{s:{s:o, s:i}}", PROBE_ASKED_ROUTE, kind, as_injected(way),
	    "timeoutSeconds", (int)timeout_s);
	json_t *all = targets_probers(key, document, e);

	json_decref(document);
	return all;
}

json_t *probe_asked_read(
    const char *key, const json_t *probe, struct probe_asked *out, struct err *e)
{
	static const char *const known[] = {"initialDelaySeconds", "timeoutSeconds",
	    "periodSeconds", "successThreshold", "failureThreshold", "httpGet", "tcpSocket", "grpc",
	    NULL};
	const json_t *way;
	int kind;

	*out = (struct probe_asked){0};
	if (json_object_get(probe, "exec")) {
		refuse(key, "exec", json_object_get(probe, "exec"),
		    "none, agentd runs no program: let the app answer httpGet", e);
		return NULL;
	}
	kind = kind_of(probe);
	if (kind < 0) {
		refusal(key, "", ways, e);
		return NULL;
	}
	way = json_object_get(probe, kinds[kind].name);
	auto_free char *at = mem_printf("%s.%s", key, kinds[kind].name);
	if (check_fields(key, probe, known, e) || read_numbers(key, probe, out, e) ||
	    check_way(at, way, kinds[kind].fields, e) ||
	    read_headers(at, json_object_get(way, "httpHeaders"), out, e))
		return NULL;
	out->given = true;
	return prober(key, kinds[kind].name, way, out->timeout_s, e);
}
