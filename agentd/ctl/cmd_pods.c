/* cmd_pods.c - agentctl pods [POD] */
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

	return *why ? why : ctl_string(json_object_get(pod, "token"), "why_not");
}

static int print_one(const struct ctl *c, const json_t *pods)
{
	const json_t *p;
	size_t i;

	json_array_foreach (pods, i, p) {
		if (!is_named(p, c->name))
			continue;
		if (c->json)
			ctl_print_json(p);
		else
			ctl_print_tree(p, 0);
		return *problem_of(p) ? CTL_PROBLEM : CTL_OK;
	}
	fprintf(stderr, "agentctl: no such pod: %s (agentctl pods lists them)\n", c->name);
	return CTL_PROBLEM;
}

static int print_all(const json_t *pods, const json_t *refused)
{
	struct table *t = table_new(5);
	int status = CTL_OK;
	char label[400];
	const json_t *p;
	size_t i;

	table_row(t, "POD", "SERVICE ACCOUNT", "READY", "UID", "PROBLEM", NULL);
	json_array_foreach (pods, i, p) {
		label_of(p, label, sizeof(label));
		table_row(t, label, ctl_string(p, "service_account"),
		    json_is_true(json_object_get(p, "ready")) ? "yes" : "no", ctl_string(p, "uid"),
		    problem_of(p), NULL);
		if (*problem_of(p) || !json_is_true(json_object_get(p, "ready")))
			status = CTL_PROBLEM;
	}
	table_print_free(&t);
	json_array_foreach (refused, i, p) {
		printf("refused: %s: %s\n", ctl_string(p, "file"), ctl_string(p, "why"));
		status = CTL_PROBLEM;
	}
	return status;
}

int cmd_pods(const struct ctl *c)
{
	int status;
	json_t *all = ctl_request(c, "GET", "/pods", &status);
	const json_t *pods = json_object_get(all, "pods");

	if (!all)
		return status;
	if (c->name)
		status = print_one(c, pods);
	else if (c->json)
		ctl_print_json(all);
	else
		status = print_all(pods, json_object_get(all, "refused_manifests"));
	json_decref(all);
	return status;
}
