/* proxy_fields.c - a table for each message; one walk over document and tables together.
 *
 * What each type takes is what Go's jsonpb takes (istio-agent.md 10.3).  Recursion ends with the
 * tables.
 */
#include "proxy_fields.h"
#include "base/json_text.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/words.h"
#include "duration.h"
#include "refusal.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum type { TEXT, BOOL, INT, UINT, DOUBLE, DURATION, ENUM, MESSAGE };
enum many { ONE, LIST, MAP };

struct field {
	const char *name; /* NULL: the last */
	enum type type;
	enum many many;
	const struct field *fields; /* of a MESSAGE */
	const char *words;          /* of an ENUM, by number from 0 on: "A,B" */
};

/* --- the tables --- */

#define ROW(field, is, ...)                                                                        \
	{                                                                                          \
		.name = (field), .type = (is), __VA_ARGS__                                         \
	}

/* Messages that are refused elsewhere, or empty. */
static const struct field anything[] = {{0}};

static const struct field tls[] = {
    ROW("mode", ENUM, .words = "DISABLE,SIMPLE,MUTUAL,ISTIO_MUTUAL"),
    ROW("clientCertificate", TEXT),
    ROW("privateKey", TEXT),
    ROW("caCertificates", TEXT),
    ROW("credentialName", TEXT),
    ROW("subjectAltNames", TEXT, .many = LIST),
    ROW("sni", TEXT),
    ROW("insecureSkipVerify", BOOL),
    ROW("caCrl", TEXT),
    {0},
};
static const struct field keepalive[] = {
    ROW("probes", UINT),
    ROW("time", DURATION),
    ROW("interval", DURATION),
    {0},
};
static const struct field service[] = {
    ROW("address", TEXT),
    ROW("tlsSettings", MESSAGE, .fields = tls),
    ROW("tcpKeepalive", MESSAGE, .fields = keepalive),
    {0},
};

static const struct field tracer[] = {
    ROW("address", TEXT),
    {0},
};
static const struct field tag_value[] = {
    ROW("value", TEXT),
    {0},
};
static const struct field tag_source[] = {
    ROW("name", TEXT),
    ROW("defaultValue", TEXT),
    {0},
};
static const struct field tag[] = {
    ROW("literal", MESSAGE, .fields = tag_value),
    ROW("environment", MESSAGE, .fields = tag_source),
    ROW("header", MESSAGE, .fields = tag_source),
    {0},
};
static const struct field tracing[] = {
    ROW("zipkin", MESSAGE, .fields = tracer),
    ROW("datadog", MESSAGE, .fields = tracer),
    ROW("lightstep", MESSAGE, .fields = anything),
    ROW("stackdriver", MESSAGE, .fields = anything),
    ROW("openCensusAgent", MESSAGE, .fields = anything),
    ROW("customTags", MESSAGE, .many = MAP, .fields = tag),
    ROW("maxPathTagLength", UINT),
    ROW("sampling", DOUBLE),
    ROW("tlsSettings", MESSAGE, .fields = tls),
    ROW("enableIstioTags", BOOL),
    {0},
};

static const struct field header[] = {
    ROW("name", TEXT),
    ROW("value", TEXT),
    {0},
};
static const struct field http_get[] = {
    ROW("path", TEXT),
    ROW("port", UINT),
    ROW("host", TEXT),
    ROW("scheme", TEXT),
    ROW("httpHeaders", MESSAGE, .many = LIST, .fields = header),
    {0},
};
static const struct field tcp_socket[] = {
    ROW("host", TEXT),
    ROW("port", UINT),
    {0},
};
static const struct field grpc[] = {
    ROW("port", UINT),
    ROW("service", TEXT),
    {0},
};
static const struct field exec[] = {
    ROW("command", TEXT, .many = LIST),
    {0},
};
static const struct field probe[] = {
    ROW("initialDelaySeconds", INT),
    ROW("timeoutSeconds", INT),
    ROW("periodSeconds", INT),
    ROW("successThreshold", INT),
    ROW("failureThreshold", INT),
    ROW("httpGet", MESSAGE, .fields = http_get),
    ROW("tcpSocket", MESSAGE, .fields = tcp_socket),
    ROW("grpc", MESSAGE, .fields = grpc),
    ROW("exec", MESSAGE, .fields = exec),
    {0},
};

#define CLIENT_CERT                                                                                \
	"UNDEFINED,SANITIZE,FORWARD_ONLY,APPEND_FORWARD,SANITIZE_SET,ALWAYS_FORWARD_ONLY"
static const struct field disabled[] = {
    ROW("disabled", BOOL),
    {0},
};
static const struct field enabled[] = {
    ROW("enabled", BOOL),
    {0},
};
static const struct field server[] = {
    ROW("disabled", BOOL),
    ROW("value", TEXT),
    {0},
};
static const struct field exchange[] = {
    ROW("mode", ENUM, .words = "UNDEFINED,IN_MESH"),
    {0},
};
static const struct field details[] = {
    ROW("subject", BOOL),
    ROW("cert", BOOL),
    ROW("chain", BOOL),
    ROW("dns", BOOL),
    ROW("uri", BOOL),
    {0},
};
static const struct field headers[] = {
    ROW("forwardedClientCert", ENUM, .words = CLIENT_CERT),
    ROW("setCurrentClientCertDetails", MESSAGE, .fields = details),
    ROW("requestId", MESSAGE, .fields = disabled),
    ROW("server", MESSAGE, .fields = server),
    ROW("attemptCount", MESSAGE, .fields = disabled),
    ROW("envoyDebugHeaders", MESSAGE, .fields = disabled),
    ROW("metadataExchangeHeaders", MESSAGE, .fields = exchange),
    ROW("preserveHttp1HeaderCase", BOOL),
    ROW("xForwardedHost", MESSAGE, .fields = enabled),
    ROW("xForwardedPort", MESSAGE, .fields = enabled),
    {0},
};
static const struct field topology[] = {
    ROW("numTrustedProxies", UINT),
    ROW("forwardClientCertDetails", ENUM, .words = CLIENT_CERT),
    ROW("proxyProtocol", MESSAGE, .fields = anything),
    {0},
};

static const struct field provider[] = {
    ROW("pollDelay", DURATION),
    ROW("fallback", BOOL),
    {0},
};
static const struct field providers[] = {
    ROW("cryptomb", MESSAGE, .fields = provider),
    ROW("qat", MESSAGE, .fields = provider),
    {0},
};
static const struct field matcher[] = {
    ROW("inclusionPrefixes", TEXT, .many = LIST),
    ROW("inclusionSuffixes", TEXT, .many = LIST),
    ROW("inclusionRegexps", TEXT, .many = LIST),
    {0},
};
static const struct field sds[] = {
    ROW("enabled", BOOL),
    ROW("k8sSaJwtPath", TEXT),
    {0},
};
static const struct field image[] = {
    ROW("imageType", TEXT),
    {0},
};
static const struct field connections[] = {
    ROW("globalDownstreamConnectionLimit", INT),
    {0},
};

static const struct field proxy_config[] = {
    ROW("configPath", TEXT),
    ROW("binaryPath", TEXT),
    ROW("serviceCluster", TEXT),
    ROW("tracingServiceName", ENUM,
	.words = "APP_LABEL_AND_NAMESPACE,CANONICAL_NAME_ONLY,CANONICAL_NAME_AND_NAMESPACE"),
    ROW("drainDuration", DURATION),
    ROW("discoveryAddress", TEXT),
    ROW("discoveryRefreshDelay", DURATION),
    ROW("zipkinAddress", TEXT),
    ROW("statsdUdpAddress", TEXT),
    ROW("envoyMetricsServiceAddress", TEXT),
    ROW("proxyAdminPort", INT),
    ROW("availabilityZone", TEXT),
    ROW("controlPlaneAuthPolicy", ENUM, .words = "NONE,MUTUAL_TLS"),
    ROW("customConfigFile", TEXT),
    ROW("statNameLength", INT),
    ROW("concurrency", INT),
    ROW("proxyBootstrapTemplatePath", TEXT),
    ROW("interceptionMode", ENUM, .words = "REDIRECT,TPROXY,NONE"),
    ROW("tracing", MESSAGE, .fields = tracing),
    ROW("sds", MESSAGE, .fields = sds),
    ROW("envoyAccessLogService", MESSAGE, .fields = service),
    ROW("envoyMetricsService", MESSAGE, .fields = service),
    ROW("proxyMetadata", TEXT, .many = MAP),
    ROW("runtimeValues", TEXT, .many = MAP),
    ROW("statusPort", INT),
    ROW("extraStatTags", TEXT, .many = LIST),
    ROW("gatewayTopology", MESSAGE, .fields = topology),
    ROW("terminationDrainDuration", DURATION),
    ROW("meshId", TEXT),
    ROW("readinessProbe", MESSAGE, .fields = probe),
    ROW("proxyStatsMatcher", MESSAGE, .fields = matcher),
    ROW("holdApplicationUntilProxyStarts", BOOL),
    ROW("caCertificatesPem", TEXT, .many = LIST),
    ROW("image", MESSAGE, .fields = image),
    ROW("privateKeyProvider", MESSAGE, .fields = providers),
    ROW("proxyHeaders", MESSAGE, .fields = headers),
    ROW("fileFlushInterval", DURATION),
    ROW("fileFlushMinSizeKb", UINT),
    ROW("statsCompression", BOOL),
    ROW("connectionSettings", MESSAGE, .fields = connections),
    {0},
};

/* --- one value --- */

static json_t *refuse(const char *path, const json_t *v, const char *allowed, struct err *e)
{
	auto_free char *text =
	    json_is_string(v) ? NULL : json_text(v, JSON_ENCODE_ANY | JSON_COMPACT);

	refusal(path, text ? text : json_string_value(v), allowed, e);
	return NULL;
}

/* The number of a text; NULL: it is none. */
static json_t *number_of(const json_t *v)
{
	const char *text = json_string_value(v);
	json_t *number = NULL;

	if (!text)
		return json_is_number(v) ? json_incref((json_t *)v) : NULL;
	if (!text[strspn(text, "+-.0123456789eE")])
		number = json_loads(text, JSON_DECODE_ANY, NULL);
	return number;
}

/* 5.0 is whole. */
static json_t *whole(const json_t *v, double least, double most)
{
	json_t *number = number_of(v);
	double d = json_number_value(number);

	if (number && d >= least && d <= most && d == trunc(d)) {
		json_decref(number);
		return json_integer((json_int_t)d);
	}
	json_decref(number);
	return NULL;
}

/* A word, or its number. */
static json_t *word_of(const json_t *v, const char *words)
{
	const char *text = json_string_value(v);

	if (text && words_has(words, text))
		return json_incref((json_t *)v);
	if (json_is_integer(v))
		for (json_int_t i = json_integer_value(v); *words; i--) {
			size_t n = strcspn(words, ",");

			if (i == 0)
				return json_stringn(words, n);
			words += n + strspn(words + n, ",");
		}
	return NULL;
}

static json_t *duration_of(const json_t *v)
{
	int64_t ms;

	return json_is_string(v) && duration_parse(json_string_value(v), &ms)
		   ? json_incref((json_t *)v)
		   : NULL;
}

static const char *allowed_of(const struct field *f)
{
	static const char *const by_type[] = {[TEXT] = "a text",
	    [BOOL] = "true, false",
	    [INT] = "a whole number, -2147483648 to 2147483647",
	    [UINT] = "a whole number, 0 to 4294967295",
	    [DOUBLE] = "a number",
	    [DURATION] = "a duration: 5s, 1m30s",
	    [MESSAGE] = "a map of fields"};

	return f->type == ENUM ? f->words : by_type[f->type];
}

static json_t *message_of(
    const char *path, const struct field *fields, const json_t *v, struct err *e);

static json_t *one(const char *path, const struct field *f, const json_t *v, struct err *e)
{
	json_t *out = NULL;

	if (f->type == MESSAGE && json_is_object(v))
		return message_of(path, f->fields, v, e);
	if (f->type == TEXT || f->type == BOOL)
		out = json_is_string(v) == (f->type == TEXT) &&
			      json_is_boolean(v) == (f->type == BOOL)
			  ? json_incref((json_t *)v)
			  : NULL;
	else if (f->type == INT)
		out = whole(v, INT32_MIN, INT32_MAX);
	else if (f->type == UINT)
		out = whole(v, 0, UINT32_MAX);
	else if (f->type == DOUBLE)
		out = number_of(v);
	else if (f->type == DURATION)
		out = duration_of(v);
	else if (f->type == ENUM)
		out = word_of(v, f->words);
	return out ? out : refuse(path, v, allowed_of(f), e);
}

/* --- several, and messages --- */

static json_t *list_of(const char *path, const struct field *f, const json_t *v, struct err *e)
{
	json_t *out = json_array(), *entry;
	size_t i;

	json_array_foreach (v, i, entry) {
		auto_free char *at = mem_printf("%s[%zu]", path, i);

		if (json_array_append_new(out, one(at, f, entry, e))) {
			json_decref(out);
			return NULL;
		}
	}
	return out;
}

/* null is the empty text here, as in Go. */
static json_t *map_of(const char *path, const struct field *f, const json_t *v, struct err *e)
{
	json_t *out = json_object(), *entry;
	const char *key;

	json_object_foreach ((json_t *)v, key, entry) {
		auto_free char *at = mem_printf("%s.%s", path, key);
		bool empty = json_is_null(entry) && f->type == TEXT;

		if (json_object_set_new(out, key, empty ? json_string("") : one(at, f, entry, e))) {
			json_decref(out);
			return NULL;
		}
	}
	return out;
}

static json_t *value_of(const char *path, const struct field *f, const json_t *v, struct err *e)
{
	if (f->many == ONE)
		return one(path, f, v, e);
	if (f->many == LIST)
		return json_is_array(v) ? list_of(path, f, v, e) : refuse(path, v, "a list", e);
	return json_is_object(v) ? map_of(path, f, v, e) : refuse(path, v, "a map", e);
}

/* Proto JSON takes both spellings of a name; NULL: it is not known. */
static const struct field *find(const struct field *fields, const char *key)
{
	auto_free char *camel_case = mem_strdup(key);
	char *to = camel_case;

	for (const char *from = key; *from; from++)
		if (from[0] == '_' && from[1] >= 'a' && from[1] <= 'z')
			*to++ = (char)(*++from - 'a' + 'A');
		else
			*to++ = *from;
	*to = '\0';
	while (fields->name && strcmp(fields->name, camel_case) != 0)
		fields++;
	return fields->name ? fields : NULL;
}

static int add_field(
    json_t *out, const char *path, const struct field *f, const json_t *v, struct err *e)
{
	if (f->type == TEXT && f->many == ONE && json_is_string(v) && !json_string_length(v))
		return 0; /* as good as none */
	if (json_object_get(out, f->name))
		return err_set(e, ERR_INVALID, "%s is given twice", path);
	return json_object_set_new(out, f->name, value_of(path, f, v, e));
}

static json_t *message_of(
    const char *path, const struct field *fields, const json_t *v, struct err *e)
{
	json_t *out = json_object(), *value;
	const char *key;

	json_object_foreach ((json_t *)v, key, value) {
		const struct field *f = find(fields, key);
		auto_free char *at = mem_printf("%s.%s", path, f ? f->name : "");

		if (json_is_null(value))
			continue;
		if (f ? add_field(out, at, f, value, e) : json_object_set(out, key, value)) {
			json_decref(out);
			return NULL;
		}
	}
	return out;
}

json_t *proxy_fields_read(const char *where, const json_t *document, struct err *e)
{
	static const struct field all = {.type = MESSAGE, .fields = proxy_config};

	return document && !json_is_null(document) ? one(where, &all, document, e) : json_object();
}
