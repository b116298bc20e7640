/* collectors_asked.c - five services, each with an address; four maybe with TLS and keepalive. */
#include "collectors_asked.h"
#include "base/json_text.h"
#include "common/err.h"
#include "common/mem.h"
#include "duration.h"
#include "refusal.h"
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char host_ip_variable[] = "$(HOST_IP)";

static const char *text_of(const json_t *o, const char *field)
{
	const char *text = json_string_value(json_object_get(o, field));

	return text ? text : "";
}

static bool is_address(const char *host)
{
	unsigned char bytes[16];

	return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* A name of DNS, an address, or the variable that nobody knew. */
static bool is_host(const char *host)
{
	static const char letters[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
	size_t n = strlen(host);

	return is_address(host) || !strcmp(host, host_ip_variable) ||
	       (n >= 1 && n <= 253 && strspn(host, letters) == n);
}

/* HOST:PORT, or [V6]:PORT; 0: it is none. */
static unsigned long split_address(const char *text, char *host, size_t size)
{
	const char *colon = strrchr(text, ':');
	bool bracket = *text == '[' && colon > text && colon[-1] == ']';
	size_t n = colon ? (size_t)(colon - text) - (bracket ? 2 : 0) : 0, digits;
	unsigned long port;

	if (n < 1 || n >= size)
		return 0;
	memcpy(host, text + bracket, n);
	host[n] = '\0';
	digits = strspn(colon + 1, "0123456789");
	port = digits && digits <= 5 && !colon[1 + digits] ? strtoul(colon + 1, NULL, 10) : 0;
	return (!bracket && strchr(host, ':')) || port > 65535 ? 0 : port;
}

/* NULL: refused. */
static json_t *read_address(const char *key, const char *text, const char *host_ip, struct err *e)
{
	char host[256];
	unsigned long port = split_address(text, host, sizeof(host));

	if (!port || !is_host(host)) {
		refusal(key, text, "HOST:PORT", e);
		return NULL;
	}
	return json_pack("{s:s, s:i}", "host",
	    host_ip && !strcmp(host, host_ip_variable) ? host_ip : host, "port", (int)port);
}

/* --- TLS --- */

static bool is_printable(const char *s)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return false;
	return n >= 1 && n <= COLLECTORS_TEXT_MAX;
}

/* As worker/sds takes it in the name of a secret. */
static bool is_path(const char *path)
{
	if (*path != '/' || strlen(path) > COLLECTORS_PATH_MAX || strchr(path, '~'))
		return false;
	for (const char *at = path; (at = strstr(at, "/..")); at += 3)
		if (at[3] == '/' || !at[3])
			return false;
	return true;
}

/* One of the fields that name a file; *path "": it is not set. */
static int read_path(
    const char *key, const json_t *tls, const char *field, const char **path, struct err *e)
{
	auto_free char *where = mem_printf("%s.%s", key, field);

	*path = text_of(tls, field);
	if (**path && !is_path(*path))
		return refusal(where, *path, "an absolute path without .. and ~", e);
	return 0;
}

/* The secrets that Envoy asks agentd for: files are named to Envoy, and never opened. */
static int add_files(json_t *out, const char *key, const json_t *tls, bool mutual, struct err *e)
{
	const char *ca, *cert, *own;

	if (read_path(key, tls, "caCertificates", &ca, e) ||
	    read_path(key, tls, "clientCertificate", &cert, e) ||
	    read_path(key, tls, "privateKey", &own, e))
		return -1;
	if (mutual && (!*cert || !*own))
		return refusal(key, "MUTUAL", "it with clientCertificate and privateKey", e);
	json_object_set_new(out, "root", json_sprintf("file-root:%s", *ca ? ca : "system"));
	if (mutual)
		json_object_set_new(out, "certificate", json_sprintf("file-cert:%s~%s", cert, own));
	return 0;
}

static int add_names(json_t *out, const char *key, const json_t *tls, struct err *e)
{
	static const char allowed[] = "at most 64 names of printable ASCII, 256 bytes each";
	json_t *sans = json_object_get(tls, "subjectAltNames"), *v;
	const char *sni = text_of(tls, "sni");
	size_t i;

	if (*sni && !is_printable(sni))
		return refusal(key, sni, allowed, e);
	if (*sni)
		json_object_set_new(out, "sni", json_string(sni));
	json_array_foreach (sans, i, v)
		if (i >= COLLECTORS_SANS_MAX || !json_is_string(v) ||
		    !is_printable(json_string_value(v)))
			return refusal(key, "subjectAltNames", allowed, e);
	if (json_array_size(sans))
		json_object_set(out, "sans", sans);
	return 0;
}

static int add_tls(json_t *service, const char *where, const json_t *tls, struct err *e)
{
	auto_free char *key = mem_printf("%s.tlsSettings", where);
	const char *mode = text_of(tls, "mode");
	bool in_mesh = !strcmp(mode, "ISTIO_MUTUAL"), mutual = !strcmp(mode, "MUTUAL");
	json_t *out;

	if (!tls || !*mode || !strcmp(mode, "DISABLE"))
		return 0;
	if (!in_mesh && !mutual && strcmp(mode, "SIMPLE") != 0)
		return refusal(key, mode, "DISABLE, SIMPLE, MUTUAL, ISTIO_MUTUAL", e);
	if (json_object_get(tls, "credentialName"))
		return refusal(key, "credentialName", "files, or ISTIO_MUTUAL", e);
	out = json_pack("{s:b, s:s}", "in_mesh", in_mesh, "root", "ROOTCA");
	json_object_set_new(service, "tls", out);
	if (in_mesh)
		json_object_set_new(out, "certificate", json_string("default"));
	else if (add_files(out, key, tls, mutual, e))
		return -1;
	return add_names(out, key, tls, e);
}

/* --- keepalive --- */

enum { KEEPALIVE_MAX = 32767 }; /* the kernel's */

/* A number, or a duration in whole seconds. */
static int64_t seconds_or_number(const json_t *v)
{
	int64_t ms = 0;

	if (!json_is_string(v))
		return json_integer_value(v);
	(void)duration_parse(json_string_value(v), &ms); /* its type was looked at */
	return ms / 1000;
}

/* What is 0 stays the kernel's. */
static int add_keepalive(json_t *service, const char *key, const json_t *asked, struct err *e)
{
	static const char *const fields[][2] = {{"probes", "keepalive_probes"},
	    {"time", "keepalive_time"}, {"interval", "keepalive_interval"}};
	json_t *out;

	if (!asked)
		return 0;
	out = json_object();
	json_object_set_new(service, "keepalive", out);
	for (unsigned i = 0; i < 3; i++) {
		const json_t *v = json_object_get(asked, fields[i][0]);
		auto_free char *where = mem_printf("%s.tcpKeepalive.%s", key, fields[i][0]);
		auto_free char *text = json_text(v, JSON_ENCODE_ANY);
		int64_t n = seconds_or_number(v);

		if (n > KEEPALIVE_MAX)
			return refusal(where, text, i ? "0s to 32767s" : "0 to 32767", e);
		if (n)
			json_object_set_new(out, fields[i][1], json_integer(n));
	}
	return 0;
}

/* --- services --- */

struct reading {
	json_t *out;
	const char *host_ip;
};

/* One without an address is not asked for. */
static int add_service(
    const struct reading *r, const char *key, const char *name, const json_t *asked, struct err *e)
{
	json_t *service;

	if (!*text_of(asked, "address"))
		return 0;
	service = read_address(key, text_of(asked, "address"), r->host_ip, e);
	if (!service)
		return -1;
	json_object_set_new(r->out, name, service);
	return add_keepalive(service, key, json_object_get(asked, "tcpKeepalive"), e) ||
		       add_tls(service, key, json_object_get(asked, "tlsSettings"), e)
		   ? -1
		   : 0;
}

/* The tracers share their settings of TLS. */
static int add_tracer(const struct reading *r, const json_t *tracing, struct err *e)
{
	static const char *const kinds[] = {"zipkin", "datadog"};
	static const char *const gone[] = {"lightstep", "openCensusAgent", "stackdriver"};

	for (unsigned i = 0; i < 3; i++)
		if (json_object_get(tracing, gone[i]))
			return refusal("PROXY_CONFIG.tracing", gone[i],
			    "zipkin, datadog; or a provider of Istio's Telemetry API", e);
	for (unsigned i = 0; i < 2; i++) {
		auto_free char *key = mem_printf("PROXY_CONFIG.tracing.%s", kinds[i]);

		if (add_service(r, key, kinds[i], json_object_get(tracing, kinds[i]), e))
			return -1;
		if (json_object_get(r->out, kinds[i]))
			return add_tls(json_object_get(r->out, kinds[i]), "PROXY_CONFIG.tracing",
			    json_object_get(tracing, "tlsSettings"), e);
	}
	return 0;
}

/* Envoy has no resolver for it. */
static int add_statsd(const struct reading *r, const json_t *config, struct err *e)
{
	static const char key[] = "PROXY_CONFIG.statsdUdpAddress";
	const char *text = text_of(config, "statsdUdpAddress");
	json_t *address;

	if (!*text)
		return 0;
	address = read_address(key, text, r->host_ip, e);
	if (!address)
		return -1;
	json_object_set_new(r->out, "statsd", address);
	return is_address(text_of(address, "host")) ? 0 : refusal(key, text, "IP:PORT", e);
}

json_t *collectors_asked_read(const json_t *proxy_config, const char *host_ip, struct err *e)
{
	struct reading r = {.out = json_object(), .host_ip = host_ip};

	if (add_tracer(&r, json_object_get(proxy_config, "tracing"), e) ||
	    add_statsd(&r, proxy_config, e) ||
	    add_service(&r, "PROXY_CONFIG.envoyMetricsService", "metrics",
		json_object_get(proxy_config, "envoyMetricsService"), e) ||
	    add_service(&r, "PROXY_CONFIG.envoyAccessLogService", "logs",
		json_object_get(proxy_config, "envoyAccessLogService"), e))
		json_decref(take(r.out));
	return r.out;
}
