/* registration.c - a machine whose manifest asks istiod for a WorkloadEntry (bare-metal-identity.md
 * 4).
 *
 * istiod decides at the first request of each stream: it answers, and the entry is there -> the
 * machine is registered for as long as the stream lives, and 10 seconds beyond.  Or it ends the
 * stream: its words, and what to do, are the pod's problem until a stream is answered.
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/node.h"
#include "rows.h"
#include "worker/ads/xds_proxy.h"
#include <stdio.h>
#include <string.h>

enum { ENTRY_NAME_MAX = 253, WHY_MAX = 180 };

struct pod_registration {
	struct pod_context *context;
	struct err why; /* istiod's refusal; code 0: none since its last answer */
};

static const char group_key[] = "AUTO_REGISTER_GROUP", entry_key[] = "WORKLOAD_ENTRY";

static const struct {
	const char *said, *to_do;
} advice[] = {
    {"cannot find WorkloadGroup", "create the group in this namespace"},
    {"must correspond to an existing WorkloadEntry",
	"create the entry, or name a group by ISTIO_META_AUTO_REGISTER_GROUP"},
    {"WorkloadEntry namespace mismatch", "the group's namespace must be the manifest's"},
    {"WorkloadEntry service account mismatch",
	"the group's template must have the manifest's service_account"},
    {"requires a verified identity", "istiod took no certificate or token: agentctl certs"},
    {"WorkloadEntry", "the log of istiod says more"},
};

/* NULL: it is not about the registration. */
static const char *what_to_do(const char *why)
{
	for (unsigned i = 0; i < sizeof(advice) / sizeof(*advice); i++)
		if (strstr(why, advice[i].said))
			return advice[i].to_do;
	return NULL;
}

static void on_refused(void *ctx, const char *why)
{
	struct pod_registration *r = ctx;
	const char *to_do = what_to_do(why);

	if (!to_do)
		return;
	err_set(&r->why, ERR_DENIED, "%.*s: %s", WHY_MAX, why, to_do);
	pod_tell_progress(r->context);
}

static void on_answered(void *ctx)
{
	struct pod_registration *r = ctx;

	if (!r->why.code)
		return;
	r->why = (struct err){0};
	pod_tell_progress(r->context);
}

static void on_directory(void *s)
{
	struct pod_registration *r = s;
	const struct xds_listener listener = {on_answered, on_refused, r};

	if (node_settings(r->context->node)->registers)
		xds_proxy_listen(r->context->ads, &listener);
}

static enum pod_progress progress(void *s, const struct err **why)
{
	const struct pod_registration *r = s;

	*why = &r->why;
	return r->why.code ? POD_DEGRADED : POD_FINE;
}

static const char *metadata(const struct pod_registration *r, const char *key)
{
	const json_t *all = json_object_get(node_json(r->context->node), "metadata");
	const char *text = json_string_value(json_object_get(all, key));

	return text ? text : "";
}

/* As istiod makes it: the last 253 bytes of GROUP-ADDRESS[-NETWORK]. */
static char *entry_name(const struct pod_registration *r)
{
	const char *group = metadata(r, group_key), *ips = metadata(r, "INSTANCE_IPS");
	const char *network = metadata(r, "NETWORK");
	auto_free char *name = NULL;
	size_t n;

	if (!*group)
		return mem_strdup(metadata(r, entry_key));
	name = mem_printf(
	    "%s-%.*s%s%s", group, (int)strcspn(ips, ","), ips, *network ? "-" : "", network);
	for (char *c = name + strlen(group); *c; c++)
		if (*c == ':')
			*c = '-';
	n = strlen(name);
	return mem_strdup(n > ENTRY_NAME_MAX ? name + n - ENTRY_NAME_MAX : name);
}

/* registration{group, entry, registered, elsewhere, why_not}; elsewhere: its address, as the owner
 * says, is none of its network namespace */
static void dump(void *s, json_t *o)
{
	const struct pod_registration *r = s;
	const struct pod_context *c = r->context;
	auto_free char *entry = NULL;

	if (!node_settings(c->node)->registers)
		return;
	entry = entry_name(r);
	json_object_set_new(o, "registration",
	    json_pack("{s:s, s:s, s:b, s:b, s:s}", "group", metadata(r, group_key), "entry", entry,
		"registered", c->ads && xds_proxy_connected(c->ads), "elsewhere",
		node_is_elsewhere(c->node), "why_not", r->why.msg));
}

const struct pod_service pod_registration_service = {
    .name = "registration",
    .size = sizeof(struct pod_registration),
    .directory = on_directory,
    .progress = progress,
    .dump = dump,
};
