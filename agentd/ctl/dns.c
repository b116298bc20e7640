/* dns.c - agentctl dns [POD [NAME]] */
#include "commands.h"
#include "common/mem.h"
#include "list.h"
#include "show.h"
#include "table.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Nothing that would have to be escaped in a URL. */
static bool is_plain(const char *name)
{
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && !strchr("._-*", *name))
			return false;
	return true;
}

static const char *state_of(const json_t *x)
{
	if (json_is_true(json_object_get(x, "answers")))
		return "agentd";
	return json_is_true(json_object_get(x, "captured")) ? "its resolver" : "-";
}

/* Of the table; "-" before there is one.  Stale: istiod sent it to an earlier worker. */
static char *names_of(const json_t *x)
{
	long long n = json_integer_value(json_object_get(x, "names"));

	const char *stale = json_is_true(json_object_get(x, "stale")) ? " (stale)" : "";

	return json_is_true(json_object_get(x, "captured")) && n >= 0
		   ? mem_printf("%lld%s", n, stale)
		   : mem_strdup("-");
}

static void print_table(const json_t *answer)
{
	struct table *t = table_new(8);
	const json_t *x;
	size_t i;

	table_row(t, "POD", "ANSWERED BY", "NAMES", "REQUESTS", "LOCAL", "FORWARDED", "FAILED",
	    "PROBLEM", NULL);
	json_array_foreach (json_object_get(answer, "dns"), i, x) {
		auto_free char *names = names_of(x);
		auto_free char *requests = ctl_count(x, "requests");
		auto_free char *local = ctl_count(x, "local");
		auto_free char *forwarded = ctl_count(x, "forwarded");
		auto_free char *failed = ctl_count(x, "failed");

		table_row(t, ctl_string(x, "pod"), state_of(x), names, requests, local, forwarded,
		    failed, ctl_string(x, "why_not"), NULL);
	}
	table_print_free(&t);
}

/* What a name is in each of these pods; false: in none. */
static bool print_name(const json_t *pods)
{
	const json_t *x, *address;
	bool found = false;
	size_t i, j;

	json_array_foreach (pods, i, x) {
		const json_t *r = json_object_get(x, "resolved");
		const char *alias = ctl_string(r, "alias");
		bool here = json_is_true(json_object_get(r, "found"));

		printf("%s: %s", ctl_string(x, "pod"), ctl_string(r, "name"));
		if (*alias)
			printf(" = %s", alias);
		if (!here)
			printf(" is not one of istiod's names: the pod's resolver answers it");
		json_array_foreach (json_object_get(r, "addresses"), j, address)
			printf(" %s", json_is_string(address) ? json_string_value(address) : "?");
		putchar('\n');
		found |= here;
	}
	return found;
}

static const struct ctl_list list = {
    .noun = "dns",
    .page = "/dns",
    .key = "dns",
    .is_named = ctl_list_is_pod,
    .has_problem = ctl_list_says_why_not,
    .print = print_table,
};

static int resolve(const struct ctl *c, const char *pod, const char *name)
{
	auto_free char *page = mem_printf("/dns?name=%s", name);
	struct ctl_list of_name = list;
	json_t *answer;
	int status;

	of_name.page = page;
	answer = ctl_list_fetch(c, &of_name, pod, &status);
	if (!answer)
		return status;
	if (c->json)
		ctl_print_answer(c, answer);
	else if (!print_name(json_object_get(answer, "dns")))
		status = CTL_PROBLEM;
	json_decref(answer);
	return status;
}

static int dns(const struct ctl *c)
{
	const char *name = c->words[1];

	if (!name)
		return ctl_list(c, &list);
	return is_plain(name) ? resolve(c, c->words[0], name) : ctl_command_usage(&ctl_dns, stderr);
}

const struct ctl_command ctl_dns = {
    .noun = "dns",
    .args = "[POD [NAME]]",
    .help = "which pods' DNS agentd answers, or why not; the addresses of a name",
    .most = 2,
    .run = dns,
};
