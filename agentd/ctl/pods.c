/* pods.c - agentctl pods [POD]; a pod and the one that replaces it can have the same name. */
#include "commands.h"
#include "common/mem.h"
#include "list.h"
#include "pod_summary.h"
#include "show.h"
#include "table.h"
#include "warming.h"
#include <stdio.h>
#include <string.h>

static void label_of(const json_t *pod, char *out, size_t size)
{
	snprintf(out, size, "%s/%s", ctl_string(pod, "namespace"), ctl_string(pod, "name"));
}

static bool is_named(const json_t *pod, const char *name)
{
	char label[400];

	label_of(pod, label, sizeof(label));
	return !strcmp(label, name) || !strcmp(ctl_string(pod, "uid"), name) ||
	       !strcmp(ctl_string(pod, "name"), name);
}

/* What keeps it from being served, the first cause first. */
static const char *problem_of(const json_t *pod)
{
	const char *why = ctl_string(pod, "why_not");

	if (!*why)
		why = ctl_string(json_object_get(pod, "volume"), "problem");
	if (!*why)
		why = ctl_string(pod, "why_unserved");
	return *why ? why : ctl_string(json_object_get(pod, "token"), "why_not");
}

/* A connection that is let in all the same (`attest: prefer`) is not a problem. */
static const char *proven(const json_t *pod)
{
	const json_t *attested = json_object_get(json_object_get(pod, "sockets"), "attested");

	if (*ctl_string(attested, "unproven"))
		return "no";
	return json_array_size(json_object_get(attested, "cgroup_ids")) ? "yes" : "-";
}

static const char *served(const json_t *pod)
{
	const char *word = ctl_string(pod, "served");

	return *word && strcmp(word, "unasked") != 0 ? word : "-";
}

static bool has_problem(const json_t *pod)
{
	return *problem_of(pod) || !json_is_true(json_object_get(pod, "ready")) ||
	       json_array_size(json_object_get(pod, "warming"));
}

/* Manifests and volumes that are not pods yet. */
static bool answer_has_problem(const json_t *answer)
{
	return json_array_size(json_object_get(answer, "refused_manifests")) ||
	       json_array_size(json_object_get(answer, "waiting_volumes"));
}

static void print_table(const json_t *answer)
{
	struct table *t = table_new(8);
	char label[400];
	const json_t *p;
	size_t i;

	table_row(t, "POD", "SERVICE ACCOUNT", "READY", "SERVED", "PROVEN", "KEYS", "UID",
	    "PROBLEM", NULL);
	json_array_foreach (json_object_get(answer, "pods"), i, p) {
		auto_free char *keys = ctl_pod_unused_keys(p);

		label_of(p, label, sizeof(label));
		table_row(t, label, ctl_string(p, "service_account"),
		    json_is_true(json_object_get(p, "ready")) ? "yes" : "no", served(p), proven(p),
		    keys, ctl_string(p, "uid"), problem_of(p), NULL);
	}
	table_print_free(&t);
	json_array_foreach (json_object_get(answer, "refused_manifests"), i, p)
		printf("refused: %s: %s\n", ctl_string(p, "file"), ctl_string(p, "why"));
	json_array_foreach (json_object_get(answer, "waiting_volumes"), i, p)
		printf("volume %s of pod %s: %s\n", ctl_string(p, "volume"),
		    ctl_string(p, *ctl_string(p, "pod") ? "pod" : "uid"), ctl_string(p, "problem"));
}

static void look(const struct ctl *c, json_t *pod)
{
	ctl_warming_add(c, pod, pod);
}

static int pods(const struct ctl *c)
{
	static const struct ctl_list list = {
	    .noun = "pods",
	    .page = "/pods",
	    .key = "pods",
	    .is_named = is_named,
	    .look = look,
	    .has_problem = has_problem,
	    .answer_has_problem = answer_has_problem,
	    .print = print_table,
	    .print_one = ctl_pod_summary,
	};

	return ctl_list(c, &list);
}

const struct ctl_command ctl_pods = {
    .noun = "pods",
    .args = "[POD]",
    .help = "the pods of this node, or one on a screen (ns/name or uid; -o yaml: all of it)",
    .most = 1,
    .run = pods,
};
