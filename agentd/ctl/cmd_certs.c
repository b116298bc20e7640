/* cmd_certs.c - agentctl certs [SA] */
#include "ctl.h"
#include <stdio.h>
#include <string.h>

/* "web" and "demo/web" name spiffe://td/ns/demo/sa/web. */
static bool is_named(const json_t *cert, const char *name)
{
	const char *id = ctl_string(cert, "spiffe_id"), *ns = strstr(id, "/ns/"),
		   *sa = strstr(id, "/sa/");
	char label[400];

	if (!strcmp(id, name))
		return true;
	if (!ns || !sa)
		return false;
	snprintf(label, sizeof(label), "%.*s/%s", (int)(sa - ns - 4), ns + 4, sa + 4);
	return !strcmp(label, name) || !strcmp(sa + 4, name);
}

/* "a,b,c", or "a,b..." if it is too long. */
static void join(const json_t *strings, char *out, size_t size)
{
	const json_t *s;
	size_t i, at = 0;

	*out = '\0';
	json_array_foreach (strings, i, s) {
		if (!json_is_string(s))
			continue;
		at += (size_t)snprintf(
		    out + at, size - at, "%s%s", at ? "," : "", json_string_value(s));
		if (at >= size) {
			snprintf(out + size - 4, 4, "...");
			return;
		}
	}
}

static bool has_problem(const json_t *certs)
{
	const json_t *c;
	size_t i;

	json_array_foreach (certs, i, c)
		if (*ctl_string(c, "why_not"))
			return true;
	return false;
}

static void print_table(const json_t *certs)
{
	struct table *t = table_new(7);
	char pods[200];
	const json_t *c;
	size_t i;

	table_row(t, "SPIFFE ID", "KEY", "SERIAL", "EXPIRES", "RENEWAL", "PODS", "PROBLEM", NULL);
	json_array_foreach (certs, i, c) {
		join(json_object_get(c, "subscribers"), pods, sizeof(pods));
		table_row(t, ctl_string(c, "spiffe_id"), ctl_string(c, "key_type"),
		    ctl_string(c, "serial"), ctl_string(c, "not_after"), ctl_string(c, "renew_at"),
		    pods, ctl_string(c, "why_not"), NULL);
	}
	table_print_free(&t);
}

int cmd_certs(const struct ctl *c)
{
	int status;
	json_t *all = ctl_request(c, "GET", "/certs", &status);
	json_t *certs = json_object_get(all, "certificates");

	if (!all)
		return status;
	status = ctl_select(c, certs, "certs", is_named);
	if (has_problem(certs))
		status = CTL_PROBLEM;
	if (c->json)
		ctl_print_json(all);
	else
		print_table(certs);
	json_decref(all);
	return status;
}
