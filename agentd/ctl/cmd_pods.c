/* cmd_pods.c - agentctl pods [POD]; a pod and the one that replaces it can have the same name. */
#include "ctl.h"
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
	return *why ? why : ctl_string(json_object_get(pod, "token"), "why_not");
}

/* What is let in all the same (`attest: prefer`), and so is no problem. */
static const char *proven(const json_t *pod)
{
	const json_t *attested = json_object_get(json_object_get(pod, "sockets"), "attested");

	if (*ctl_string(attested, "unproven"))
		return "no";
	return json_array_size(json_object_get(attested, "cgroup_ids")) ? "yes" : "-";
}

static bool has_problem(const json_t *pods)
{
	const json_t *p;
	size_t i;

	json_array_foreach (pods, i, p)
		if (*problem_of(p) || !json_is_true(json_object_get(p, "ready")))
			return true;
	return false;
}

static void print_table(const json_t *pods, const json_t *refused, const json_t *waiting)
{
	struct table *t = table_new(6);
	char label[400];
	const json_t *p;
	size_t i;

	table_row(t, "POD", "SERVICE ACCOUNT", "READY", "PROVEN", "UID", "PROBLEM", NULL);
	json_array_foreach (pods, i, p) {
		label_of(p, label, sizeof(label));
		table_row(t, label, ctl_string(p, "service_account"),
		    json_is_true(json_object_get(p, "ready")) ? "yes" : "no", proven(p),
		    ctl_string(p, "uid"), problem_of(p), NULL);
	}
	table_print_free(&t);
	json_array_foreach (refused, i, p)
		printf("refused: %s: %s\n", ctl_string(p, "file"), ctl_string(p, "why"));
	json_array_foreach (waiting, i, p)
		printf("volume %s of pod %s: %s\n", ctl_string(p, "volume"), ctl_string(p, "uid"),
		    ctl_string(p, "problem"));
}

static void print_trees(const json_t *pods)
{
	const json_t *p;
	size_t i;

	json_array_foreach (pods, i, p) {
		if (i)
			putchar('\n');
		ctl_print_tree(p, 0);
	}
}

int cmd_pods(const struct ctl *c)
{
	int status;
	json_t *all = ctl_request(c, "GET", "/pods", &status);
	json_t *pods = json_object_get(all, "pods");
	const json_t *refused = json_object_get(all, "refused_manifests");
	const json_t *waiting = json_object_get(all, "waiting_volumes");

	if (!all)
		return status;
	status = ctl_select(c, pods, "pods", is_named);
	if (has_problem(pods) ||
	    (!c->name && (json_array_size(refused) || json_array_size(waiting))))
		status = CTL_PROBLEM;
	if (c->json)
		ctl_print_json(all);
	else if (c->name)
		print_trees(pods);
	else
		print_table(pods, refused, waiting);
	json_decref(all);
	return status;
}
