/* stats_asked.c - three lists, a document, two intervals. */
#include "stats_asked.h"
#include "common/err.h"
#include "common/mem.h"
#include "duration.h"
#include "refusal.h"
#include "regex.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FLUSH_DEFAULT_MS = 5000, FLUSH_MAX_MS = 299999, EVICTION_MAX_MS = 24 * 3600 * 1000 };

/* A name goes into a regular expression. */
static bool is_tag(const char *s)
{
	size_t n = strlen(s);

	return n >= 1 && n <= STATS_ASKED_TEXT_MAX &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

static bool is_part_of_a_name(const char *s)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\')
			return false;
	return n >= 1 && n <= STATS_ASKED_TEXT_MAX;
}

char *stats_asked_with(const char *text, const char *ip)
{
	static const char variable[] = "{pod_ip}";
	char *out = NULL;
	size_t size;
	FILE *f = open_memstream(&out, &size);

	for (const char *at; (at = strstr(text, variable)); text = at + strlen(variable))
		(void)fprintf(f, "%.*s%s", (int)(at - text), text, ip);
	(void)fputs(text, f);
	(void)fclose(f);
	return out;
}

static bool is_regex(const char *s)
{
	auto_free char *with_ip = stats_asked_with(s, "0");

	return *s && strlen(s) <= STATS_ASKED_TEXT_MAX && regex_is_safe(with_ip);
}

struct list_key {
	const char *name, *annotation, *matcher_field; /* NULL: the field is ProxyConfig's own */
	bool (*valid)(const char *s);
	const char *allowed;
};

static const struct list_key lists[] = {
    {"prefix", "sidecar.istio.io/statsInclusionPrefixes", "inclusionPrefixes", is_part_of_a_name,
	"up to 64 prefixes of printable ASCII, 256 bytes each"},
    {"suffix", "sidecar.istio.io/statsInclusionSuffixes", "inclusionSuffixes", is_part_of_a_name,
	"up to 64 suffixes of printable ASCII, 256 bytes each"},
    {"regex", "sidecar.istio.io/statsInclusionRegexps", "inclusionRegexps", is_regex,
	"up to 64 expressions as RE2 takes them, 256 bytes each"},
    {"tags", "sidecar.istio.io/extraStatTags", NULL, is_tag, "up to 64 names of A-Z a-z 0-9 _"},
};

static bool has(const json_t *list, const char *text)
{
	json_t *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (!strcmp(json_string_value(v), text))
			return true;
	return false;
}

static int add_entry(json_t *out, const struct list_key *k, const char *entry, struct err *e)
{
	auto_free char *key = mem_printf("%s, annotation %s",
	    k->matcher_field ? "PROXY_CONFIG.proxyStatsMatcher" : "PROXY_CONFIG.extraStatTags",
	    k->annotation);

	if (!entry || !k->valid(entry) || json_array_size(out) >= STATS_ASKED_ENTRIES_MAX)
		return refusal(key, entry ? entry : "(no text)", k->allowed, e);
	if (!has(out, entry))
		json_array_append_new(out, json_string(entry));
	return 0;
}

/* "a, b" */
static int add_entries(json_t *out, const struct list_key *k, const char *text, struct err *e)
{
	while (*text) {
		size_t skipped = strspn(text, " ,"), n = strcspn(text + skipped, " ,");
		auto_free char *entry = mem_printf("%.*s", (int)n, text + skipped);

		if (n && add_entry(out, k, entry, e))
			return -1;
		text += skipped + n;
	}
	return 0;
}

static int read_list(json_t *out, const struct list_key *k, const json_t *config,
    const json_t *annotations, struct err *e)
{
	const char *annotation = json_string_value(json_object_get(annotations, k->annotation));
	json_t *field =
	    k->matcher_field
		? json_object_get(json_object_get(config, "proxyStatsMatcher"), k->matcher_field)
		: json_object_get(config, "extraStatTags");
	json_t *entries = json_array(), *entry;
	size_t i;

	bool wins = annotation && *annotation && k->matcher_field;

	json_object_set_new(out, k->name, entries);
	if (!wins)
		json_array_foreach (field, i, entry)
			if (add_entry(entries, k, json_string_value(entry), e))
				return -1;
	return annotation ? add_entries(entries, k, annotation, e) : 0;
}

static bool are_buckets(const json_t *list)
{
	double before = 0;
	json_t *v;
	size_t i;

	json_array_foreach (list, i, v) {
		if (!json_is_number(v) || json_number_value(v) <= before)
			return false;
		before = json_number_value(v);
	}
	return json_array_size(list) >= 1 && json_array_size(list) <= STATS_ASKED_BUCKETS_MAX;
}

/* Of several prefixes that fit, Envoy takes the first. */
static json_t *sorted(const json_t *object)
{
	auto_free char *text = json_dumps(object, JSON_SORT_KEYS);

	return json_loads(text, 0, NULL);
}

static int read_buckets(json_t *out, const json_t *annotations, struct err *e)
{
	static const char key[] = "sidecar.istio.io/statsHistogramBuckets";
	const char *text = json_string_value(json_object_get(annotations, key)), *prefix;
	json_t *buckets = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL, *list;
	bool good = !text || (json_is_object(buckets) &&
				 json_object_size(buckets) <= STATS_ASKED_ENTRIES_MAX);

	json_object_foreach (buckets, prefix, list)
		good = good && is_part_of_a_name(prefix) && are_buckets(list);
	if (good && buckets)
		json_object_set_new(out, "buckets", sorted(buckets));
	json_decref(buckets);
	return good ? 0
		    : refusal("annotation sidecar.istio.io/statsHistogramBuckets", text,
			  "JSON {\"PREFIX\": [rising numbers above 0]}", e);
}

static int read_interval(
    json_t *out, const char *name, const char *key, const json_t *annotations, struct err *e)
{
	const char *text = json_string_value(json_object_get(annotations, key));
	bool flush = !strcmp(name, "flush_ms");
	auto_free char *shown = mem_printf("annotation %s", key);
	int64_t ms, unit = json_integer_value(json_object_get(out, "flush_ms"));

	if (!text)
		return 0;
	if (!unit)
		unit = FLUSH_DEFAULT_MS;
	if (!duration_parse(text, &ms) || ms < 1 || ms > (flush ? FLUSH_MAX_MS : EVICTION_MAX_MS) ||
	    (!flush && ms % unit))
		return refusal(shown, text,
		    flush ? "1ms to 299s" : "a multiple of statsFlushInterval (5s), 24h at most",
		    e);
	json_object_set_new(out, name, json_integer(ms));
	return 0;
}

json_t *stats_asked_read(const json_t *proxy_config, const json_t *annotations, struct err *e)
{
	json_t *out = json_object();
	int rc = 0;

	for (unsigned i = 0; !rc && i < sizeof(lists) / sizeof(*lists); i++)
		rc = read_list(out, &lists[i], proxy_config, annotations, e);
	if (rc || read_buckets(out, annotations, e) ||
	    read_interval(out, "flush_ms", "sidecar.istio.io/statsFlushInterval", annotations, e) ||
	    read_interval(
		out, "eviction_ms", "sidecar.istio.io/statsEvictionInterval", annotations, e))
		json_decref(take(out));
	return out;
}
