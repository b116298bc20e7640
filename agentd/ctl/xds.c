/* xds.c - agentctl xds [POD], or with --names what of it the pod's Envoy has. */
#include "commands.h"
#include "common/err.h"
#include "common/mem.h"
#include "envoy_admin.h"
#include "list.h"
#include "one_pod.h"
#include "show.h"
#include "table.h"
#include "warming.h"
#include "xds_names.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

/* "type.googleapis.com/envoy.config.cluster.v3.Cluster" -> "Cluster" */
static const char *short_type(const char *url)
{
	const char *dot = strrchr(url, '.');

	return dot ? dot + 1 : url;
}

/* Envoy's reason, if it refused the last push; the count has earlier refusals. */
static const char *refusal_of(const json_t *o)
{
	return json_is_true(json_object_get(o, "refused")) ? ctl_string(o, "last_nack") : "";
}

/* Envoy's reason against the last secret, or the reason why there is none to send. */
static const char *secret_problem(const json_t *sds)
{
	const char *last = refusal_of(sds), *whole = ctl_string(sds, "refusal");

	if (*last)
		return *whole ? whole : last;
	return ctl_string(sds, "why_not");
}

static bool has_problem(const json_t *x)
{
	const json_t *ads = json_object_get(x, "ads");
	const char *url;
	json_t *type;

	if (json_object_size(json_object_get(ads, "remote_wasm")) ||
	    json_array_size(json_object_get(x, "warming")))
		return true;
	json_object_foreach (json_object_get(ads, "types"), url, type)
		if (*refusal_of(type))
			return true;
	return *ctl_string(ads, "why_not") || *secret_problem(json_object_get(x, "sds"));
}

/* In the words of istioctl. */
static const char *state_of(const json_t *type)
{
	static const char *const words[][2] = {
	    {"synced", "SYNCED"}, {"stale", "STALE"}, {"refused", "REFUSED"}};
	const char *state = ctl_string(type, "state");

	for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(words[i][0], state))
			return words[i][1];
	return "-";
}

/* How long ago: "12s", "3h"; "-": never. */
static char *pushed_of(const json_t *type)
{
	const long long at = json_integer_value(json_object_get(type, "pushed_at"));
	const long long s = (long long)time(NULL) - at;

	if (!at)
		return mem_strdup("-");
	if (s < 120)
		return mem_printf("%llds", s > 0 ? s : 0);
	return s < 7200 ? mem_printf("%lldmin", s / 60) : mem_printf("%lldh", s / 3600);
}

static void add_types(struct table *t, const char *pod, const json_t *ads)
{
	const char *url;
	json_t *type;

	json_object_foreach (json_object_get(ads, "types"), url, type) {
		auto_free char *acked = ctl_count(type, "acked");
		auto_free char *nacked = ctl_count(type, "nacked");
		auto_free char *items = ctl_count(type, "resources");
		auto_free char *pushed = pushed_of(type);

		table_row(t, pod, short_type(url), state_of(type), pushed, items,
		    ctl_string(type, "version"), acked, nacked, refusal_of(type), NULL);
	}
}

/* Envoy accepted it, and does not use it yet. */
static void add_warming(struct table *t, const char *pod, const json_t *x)
{
	const char *unknown = ctl_string(x, "warming_unknown");
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(x, "warming"), i, one) {
		auto_free char *why = mem_printf("%s: for %lld s", ctl_string(one, "name"),
		    (long long)json_integer_value(json_object_get(one, "for_s")));

		table_row(
		    t, pod, ctl_string(one, "type"), "WARMING", "", "", "", "", "", why, NULL);
	}
	if (*unknown)
		table_row(t, pod, "(warming)", "unknown", "", "", "", "", "", unknown, NULL);
}

/* Of pilot-agent it would have had a file. */
static void add_wasm(struct table *t, const char *pod, const json_t *ads)
{
	json_t *filters = json_object_get(ads, "remote_wasm");
	const char *name;
	json_t *said;

	json_object_foreach (filters, name, said) {
		auto_free char *why = mem_printf("%s: %s", name, ctl_string(filters, name));

		table_row(t, pod, "Wasm", "", "", "", "", "", "", why, NULL);
	}
}

/* The reason why there is no configuration, and the time of the next try. */
static char *stream_problem(const json_t *ads)
{
	const char *why = ctl_string(ads, "why_not");
	long long left = json_integer_value(json_object_get(ads, "retry_at")) - time(NULL);

	return *why && left > 0 ? mem_printf("%s (next try in %lld s)", why, left)
				: mem_strdup(why);
}

static void add_pod(struct table *t, const json_t *x)
{
	const char *pod = ctl_string(x, "pod");
	const json_t *ads = json_object_get(x, "ads"), *sds = json_object_get(x, "sds");
	bool connected = json_is_true(json_object_get(ads, "connected"));
	auto_free char *why = stream_problem(ads);
	auto_free char *acked = ctl_count(sds, "acks");
	auto_free char *nacked = ctl_count(sds, "nacks");
	auto_free char *pushes = ctl_count(sds, "pushes");

	table_row(t, pod, "(stream)", connected ? ctl_string(ads, "flavour") : "not connected", "",
	    "", "", "", "", why, NULL);
	add_types(t, pod, ads);
	add_warming(t, pod, x);
	add_wasm(t, pod, ads);
	table_row(
	    t, pod, "Secret (SDS)", "", "", pushes, "", acked, nacked, secret_problem(sds), NULL);
}

static void print_table(const json_t *answer)
{
	struct table *t = table_new(9);
	const json_t *x;
	size_t i;

	table_row(t, "POD", "TYPE", "STATE", "PUSHED", "ITEMS", "VERSION", "ACKED", "NACKED",
	    "PROBLEM", NULL);
	json_array_foreach (json_object_get(answer, "xds"), i, x)
		add_pod(t, x);
	table_print_free(&t);
}

static int print_names(const struct ctl *c, json_t *names)
{
	const int status = xds_names_refused(names) ? CTL_PROBLEM : CTL_OK;
	json_t *answer = json_pack("{s:O}", "names", names);

	if (c->json)
		ctl_print_answer(c, answer);
	else
		xds_names_print(names);
	json_decref(answer);
	return status;
}

static int show_names(const struct ctl *c)
{
	int status = CTL_USAGE;
	json_t *names;
	struct err e;
	size_t len;

	if (!c->words[0]) {
		fprintf(stderr, "agentctl: xds --names: of which pod?\n");
		return status;
	}
	auto_free char *dump = ctl_envoy_admin(c, "/config_dump?include_eds", &len, &status);
	if (!dump)
		return status;
	names = xds_names_of(dump, len, &e);
	if (!names) {
		fprintf(stderr, "agentctl: %s\n", e.msg);
		return CTL_PROBLEM;
	}
	status = print_names(c, names);
	json_decref(names);
	return status;
}

static void look(const struct ctl *c, json_t *x)
{
	int status;
	json_t *pod = ctl_one_pod(c, ctl_string(x, "pod"), &status);

	if (pod)
		ctl_warming_add(c, pod, x);
	json_decref(pod);
}

static int xds(const struct ctl *c)
{
	static const struct ctl_list list = {
	    .noun = "xds",
	    .page = "/xds",
	    .key = "xds",
	    .is_named = ctl_list_is_pod,
	    .look = look,
	    .has_problem = has_problem,
	    .print = print_table,
	};

	return ctl_option(c, "names") ? show_names(c) : ctl_list(c, &list);
}

const struct ctl_command ctl_xds = {
    .noun = "xds",
    .args = "[POD]",
    .help = "configuration streams: types, SYNCED or STALE, last push, versions, ACKs and NACKs",
    .most = 1,
    .options = {{"names", NULL, "each resource that the pod's Envoy says it has"}},
    .run = xds,
};
