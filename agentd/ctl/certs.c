/* certs.c - agentctl certs [SA] */
#include "commands.h"
#include "list.h"
#include "show.h"
#include "table.h"
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

static void print_table(const json_t *answer)
{
	struct table *t = table_new(7);
	char pods[200];
	const json_t *c;
	size_t i;

	table_row(t, "SPIFFE ID", "KEY", "SERIAL", "EXPIRES", "RENEWAL", "PODS", "PROBLEM", NULL);
	json_array_foreach (json_object_get(answer, "certificates"), i, c) {
		join(json_object_get(c, "subscribers"), pods, sizeof(pods));
		table_row(t, ctl_string(c, "spiffe_id"), ctl_string(c, "key_type"),
		    ctl_string(c, "serial"), ctl_string(c, "not_after"), ctl_string(c, "renew_at"),
		    pods, ctl_string(c, "why_not"), NULL);
	}
	table_print_free(&t);
}

static int certs(const struct ctl *c)
{
	static const struct ctl_list list = {
	    .noun = "certs",
	    .page = "/certs",
	    .key = "certificates",
	    .is_named = is_named,
	    .has_problem = ctl_list_says_why_not,
	    .print = print_table,
	};

	return ctl_list(c, &list);
}

const struct ctl_command ctl_certs = {
    .noun = "certs",
    .args = "[SA]",
    .help = "certificates: SPIFFE id, serial, expiry, users",
    .most = 1,
    .run = certs,
};
