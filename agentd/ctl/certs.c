/* certs.c - agentctl certs [SA], or with --envoy those that a pod's Envoy has. */
#include "commands.h"
#include "common/mem.h"
#include "envoy_admin.h"
#include "envoy_certs.h"
#include "list.h"
#include "show.h"
#include "table.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* "demo/web" of its id: the rest is the same for all of a mesh. */
static void account_of(const json_t *cert, char *out, size_t size)
{
	const char *id = ctl_string(cert, "spiffe_id"), *ns = strstr(id, "/ns/"),
		   *sa = strstr(id, "/sa/");

	if (ns && sa && sa > ns)
		snprintf(
		    out, size, "%.*s/%s", (int)(sa - ns - 4 > 0 ? sa - ns - 4 : 0), ns + 4, sa + 4);
	else
		snprintf(out, size, "%s", id);
}

/* How long it is until then: "23h", "-" if nobody knows. */
static const char *until(const json_t *cert, const char *key, char out[16])
{
	struct tm tm = {.tm_sec = 0};
	const char *text = ctl_string(cert, key), *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);
	const long long s = end && !*end ? (long long)timegm(&tm) - (long long)time(NULL) : 0;

	if (!end || *end)
		return *text ? text : "-";
	if (s <= 0)
		return "over";
	if (s < 7200)
		snprintf(out, 16, "%lldmin", s / 60);
	else if (s / 86400 < 2)
		snprintf(out, 16, "%lldh", s / 3600);
	else
		snprintf(out, 16, "%lldd", s / 86400);
	return out;
}

static void print_table(const json_t *answer)
{
	struct table *t = table_new(7);
	char account[400], leaf[16], renewal[16], chain[16], root[16];
	const json_t *c;
	size_t i;

	table_row(t, "ACCOUNT", "EXPIRES", "RENEWAL", "CHAIN", "ROOT", "PODS", "PROBLEM", NULL);
	json_array_foreach (json_object_get(answer, "certificates"), i, c) {
		auto_free char *pods =
		    mem_printf("%zu", json_array_size(json_object_get(c, "subscribers")));

		account_of(c, account, sizeof(account));
		table_row(t, account, until(c, "not_after", leaf), until(c, "renew_at", renewal),
		    until(c, "chain_not_after", chain), until(c, "root_not_after", root), pods,
		    ctl_string(c, "why_not"), NULL);
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

static void print_envoys(const json_t *certs)
{
	struct table *t = table_new(5);
	char left[16];
	const json_t *c;
	size_t i;

	table_row(t, "KIND", "NAME", "SERIAL", "EXPIRES", "PROBLEM", NULL);
	json_array_foreach (certs, i, c)
		table_row(t, ctl_string(c, "kind"), ctl_string(c, "name"), ctl_string(c, "serial"),
		    until(c, "not_after", left), ctl_string(c, "why_not"), NULL);
	table_print_free(&t);
}

static int show_envoys(const struct ctl *c)
{
	int status = CTL_USAGE;
	json_t *certs, *answer;
	const json_t *one;
	size_t i, len;

	if (!c->words[0]) {
		fprintf(stderr, "agentctl: certs --envoy: of which pod?\n");
		return status;
	}
	auto_free char *page = ctl_envoy_admin(c, "/certs", &len, &status);
	if (!page)
		return status;
	certs = envoy_certs_of(page, len, time(NULL));
	json_array_foreach (certs, i, one)
		if (ctl_list_says_why_not(one))
			status = CTL_PROBLEM;
	answer = json_pack("{s:O}", "envoy", certs);
	if (c->json)
		ctl_print_answer(c, answer);
	else
		print_envoys(certs);
	json_decref(answer);
	json_decref(certs);
	return status;
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
	    .print_one = ctl_print_yaml,
	};

	return ctl_option(c, "envoy") ? show_envoys(c) : ctl_list(c, &list);
}

const struct ctl_command ctl_certs = {
    .noun = "certs",
    .args = "[SA|POD]",
    .help = "certificates: expiry, renewal, pods; of one account all: id, serial, chain, root",
    .most = 1,
    .options = {{"envoy", NULL, "those that the pod's Envoy has, of files, too"}},
    .run = certs,
};
