/* certs.c - agentctl certs [SA] */
#include "commands.h"
#include "common/mem.h"
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

/* "kept certificate: expired; ..." */
static char *refused_of(const json_t *identity)
{
	char *all = mem_strdup("");
	const char *what;
	json_t *why;

	json_object_foreach (json_object_get(identity, "refused"), what, why) {
		auto_free char *before = all;
		const char *text = json_string_value(why);

		all = mem_printf("%s%s%s: %s", before, *before ? "; " : "", what, text ? text : "");
	}
	return all;
}

/* Of machines: by what they prove who they are. */
static void print_identities(const json_t *list)
{
	struct table *t;
	const json_t *identity;
	size_t i;

	if (!json_array_size(list))
		return;
	t = table_new(5);
	table_row(t, "IDENTITY", "CREDENTIAL", "MAY BE OFF UNTIL", "PROBLEM", "REFUSED", NULL);
	json_array_foreach (list, i, identity) {
		auto_free char *refused = refused_of(identity);
		const char *until = ctl_string(identity, "off_until");

		table_row(t, ctl_string(identity, "pod"), ctl_string(identity, "credential"),
		    *until ? until : "-", ctl_string(identity, "why_not"), refused, NULL);
	}
	putchar('\n');
	table_print_free(&t);
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
	print_identities(json_object_get(answer, "identities"));
}

/* Of the node: with a name the certificates of that account alone are asked for. */
static bool has_problem(const json_t *answer)
{
	const json_t *identity;
	size_t i;

	json_array_foreach (json_object_get(answer, "identities"), i, identity)
		if (ctl_list_says_why_not(identity))
			return true;
	return false;
}

static int certs(const struct ctl *c)
{
	static const struct ctl_list list = {
	    .noun = "certs",
	    .page = "/certs",
	    .key = "certificates",
	    .is_named = is_named,
	    .has_problem = ctl_list_says_why_not,
	    .answer_has_problem = has_problem,
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
