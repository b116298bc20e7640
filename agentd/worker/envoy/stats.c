/* stats.c - written anew with each bootstrap, for it holds the addresses of the pod. */
#include "stats.h"
#include "common/mem.h"
#include "mesh/node.h"
#include "mesh/stats_asked.h"
#include "status.h"
#include <string.h>

/* istio-agent.md 8.5; the order matters. */
static const char *const stat_tags[][2] = {
    {"cluster_name", "^cluster(\\.(.+);)"},
    {"http_conn_manager_prefix",
	"^http\\.(((?:[_.[:digit:]\\w]*|[_\\[\\]aAbBcCdDeEfF[:digit:]\\w\\:]*));\\.)"},
    {"thread_name", "^server(\\.(.+))\\.watchdog"},
    {"tcp_prefix", "^tcp\\.((.*?)\\.)\\w+?$"},
    {"response_code", "_rq(_(\\d{3}))$"},
    {"response_code_class", "_rq(_(\\dxx))$"},
    {"http_conn_manager_listener_prefix",
	"^listener(?=\\.).*?\\.http\\.(((?:[_.[:digit:]]*|[_\\[\\]aAbBcCdDeEfF[:digit:]]*))\\.)"},
    {"listener_address", "^listener\\.(((?:[_.[:digit:]]*|[_\\[\\]aAbBcCdDeEfF[:digit:]]*))\\.)"},
    {"mongo_prefix", "^mongo\\.(.+?)\\.(collection|cmd|cx_|op_|delays_|decoding_)(.*?)$"},
    {"cache", "(cache\\.(.+?)\\.)"},
    {"component", "(component\\.(.+?)\\.)"},
    {"tag", "(tag\\.(.+?);\\.)"},
    {"wasm_filter", "(wasm_filter\\.(.+?)\\.)"},
    {"authz_enforce_result", "rbac(\\.(allowed|denied))"},
    {"authz_dry_run_action", "(\\.istio_dry_run_(allow|deny)_)"},
    {"authz_dry_run_result", "(\\.shadow_(allowed|denied))"},
};
static const char last_before_extra[] = "mongo_prefix";

static const char *const stat_inclusions[][2] = {
    {"prefix", "reporter="},
    {"prefix", "cluster_manager"},
    {"prefix", "listener_manager"},
    {"prefix", "server"},
    {"prefix", "cluster.xds-grpc"},
    {"prefix", "wasm"},
    {"prefix", "component"},
    {"prefix", "istio"},
    {"suffix", "rbac.allowed"},
    {"suffix", "rbac.denied"},
    {"suffix", "shadow_allowed"},
    {"suffix", "shadow_denied"},
};

static void add_tag(json_t *tags, const char *name, const char *regex)
{
	json_array_append_new(tags, json_pack("{s:s, s:s}", "tag_name", name, "regex", regex));
}

static json_t *tags(const json_t *extra)
{
	json_t *all = json_array(), *name;
	size_t k;

	for (unsigned i = 0; i < sizeof(stat_tags) / sizeof(*stat_tags); i++) {
		add_tag(all, stat_tags[i][0], stat_tags[i][1]);
		if (strcmp(stat_tags[i][0], last_before_extra) != 0)
			continue;
		json_array_foreach (extra, k, name) {
			auto_free char *regex =
			    mem_printf("(%s=\\.=(.*?);\\.;)", json_string_value(name));

			add_tag(all, json_string_value(name), regex);
		}
	}
	return all;
}

static json_t *pattern(const char *kind, const char *text)
{
	if (!strcmp(kind, "regex"))
		return json_pack("{s:{s:s}}", "safe_regex", "regex", text);
	return json_pack("{s:s}", kind, text);
}

/* With the pod's addresses in the place of {pod_ip}, once for each. */
static void add_pattern(const struct node *n, json_t *patterns, const char *kind, const char *text)
{
	const json_t *metadata = json_object_get(node_json(n), "metadata");
	const char *ips = json_string_value(json_object_get(metadata, "INSTANCE_IPS"));

	if (!strstr(text, "{pod_ip}")) {
		json_array_append_new(patterns, pattern(kind, text));
		return;
	}
	for (size_t len; *ips; ips += len + (ips[len] == ',')) {
		len = strcspn(ips, ",");
		auto_free char *ip = mem_printf("%.*s", (int)len, ips);
		auto_free char *with_ip = stats_asked_with(text, ip);

		json_array_append_new(patterns, pattern(kind, with_ip));
	}
}

static json_t *patterns(const struct node *n, const json_t *asked)
{
	static const char *const kinds[] = {"prefix", "suffix", "regex"};
	json_t *all = json_array(), *v;
	size_t i;

	for (i = 0; i < sizeof(stat_inclusions) / sizeof(*stat_inclusions); i++)
		json_array_append_new(
		    all, json_pack("{s:s}", stat_inclusions[i][0], stat_inclusions[i][1]));
	json_array_append_new(
	    all, json_pack("{s:{s:s}}", "safe_regex", "regex", "vhost\\..*\\.route\\..*"));
	status_add_stats(n, all);
	for (unsigned k = 0; k < 3; k++)
		json_array_foreach (json_object_get(asked, kinds[k]), i, v)
			add_pattern(n, all, kinds[k], json_string_value(v));
	return all;
}

static json_t *bucket_settings(const json_t *asked)
{
	json_t *all = json_array(), *list;
	const char *prefix;

	json_object_foreach (json_object_get(asked, "buckets"), prefix, list)
		json_array_append_new(
		    all, json_pack("{s:{s:s}, s:O}", "match", "prefix", prefix, "buckets", list));
	return all;
}

static void add_interval(json_t *bootstrap, const char *field, const json_t *ms)
{
	if (ms)
		json_object_set_new(bootstrap, field,
		    json_sprintf("%lld.%03llds", json_integer_value(ms) / 1000,
			json_integer_value(ms) % 1000));
}

void stats_add(const struct node *n, json_t *bootstrap)
{
	const json_t *asked = node_settings(n)->stats;
	json_t *config = json_pack("{s:b, s:o, s:{s:{s:o}}}", "use_all_default_tags", false,
	    "stats_tags", tags(json_object_get(asked, "tags")), "stats_matcher", "inclusion_list",
	    "patterns", patterns(n, asked));

	if (json_object_get(asked, "buckets"))
		json_object_set_new(config, "histogram_bucket_settings", bucket_settings(asked));
	json_object_set_new(bootstrap, "stats_config", config);
	add_interval(bootstrap, "stats_flush_interval", json_object_get(asked, "flush_ms"));
	add_interval(bootstrap, "stats_eviction_interval", json_object_get(asked, "eviction_ms"));
}
