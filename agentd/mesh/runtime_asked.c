/* runtime_asked.c - a map of texts, and a number from one of three places. */
#include "runtime_asked.h"
#include "base/json_text.h"
#include "common/err.h"
#include "common/mem.h"
#include "refusal.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char limit_key[] = "overload.global_downstream_max_connections";

static bool is_printable(const char *s)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n; i++)
		if (s[i] < ' ' || s[i] > '~')
			return false;
	return n <= RUNTIME_ASKED_TEXT_MAX;
}

json_t *runtime_asked_values(const json_t *proxy_config, struct err *e)
{
	static const char where[] = "PROXY_CONFIG.runtimeValues",
			  allowed[] =
			      "at most 64 keys and texts of printable ASCII, 256 bytes each";
	json_t *all = json_object_get(proxy_config, "runtimeValues"), *v;
	const char *key, *text;

	if (!all)
		return json_object();
	if (!json_is_object(all) || json_object_size(all) > RUNTIME_ASKED_VALUES_MAX) {
		refusal(where, "(its size)", allowed, e);
		return NULL;
	}
	json_object_foreach (all, key, v) {
		text = json_string_value(v);
		if (*key && is_printable(key) && text && is_printable(text))
			continue;
		refusal(where, key, allowed, e);
		return NULL;
	}
	return json_copy(all);
}

static int64_t read_limit(const char *key, const char *text, struct err *e)
{
	size_t n = strlen(text);
	long long limit =
	    n && n <= 10 && strspn(text, "0123456789") == n ? strtoll(text, NULL, 10) : 0;

	if (limit < 1 || limit > RUNTIME_ASKED_NO_LIMIT)
		return refusal(key, text, "1 to 2147483647", e);
	return limit;
}

int64_t runtime_asked_connections(const json_t *proxy_config, const json_t *metadata, struct err *e)
{
	static const char field[] = "globalDownstreamConnectionLimit",
			  meta[] = "GLOBAL_DOWNSTREAM_MAX_CONNECTIONS";
	const json_t *settings = json_object_get(proxy_config, "connectionSettings");
	const json_t *values = json_object_get(proxy_config, "runtimeValues");
	const json_t *limit = json_object_get(settings, field);
	auto_free char *number = limit ? json_text(limit, JSON_ENCODE_ANY) : NULL;
	const char *text;

	if (number)
		return read_limit(
		    "PROXY_CONFIG.connectionSettings.globalDownstreamConnectionLimit", number, e);
	if ((text = json_string_value(json_object_get(metadata, meta))))
		return read_limit("ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS", text, e);
	if ((text = json_string_value(json_object_get(values, limit_key))) && *text)
		return read_limit("PROXY_CONFIG.runtimeValues", text, e);
	return RUNTIME_ASKED_NO_LIMIT;
}
