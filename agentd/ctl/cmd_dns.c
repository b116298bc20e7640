/* cmd_dns.c - agentctl dns [POD [NAME]] */
#include "common/mem.h"
#include "ctl.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* "web-0", "demo/web-0" or a uid. */
static bool is_named(const json_t *x, const char *name)
{
	const char *label = ctl_string(x, "pod"), *slash = strchr(label, '/');

	return !strcmp(label, name) || (slash && !strcmp(slash + 1, name)) ||
	       !strcmp(ctl_string(x, "uid"), name);
}

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

/* Of the table; "-" before there is one. */
static char *names_of(const json_t *x)
{
	long long n = json_integer_value(json_object_get(x, "names"));

	return json_is_true(json_object_get(x, "captured")) && n >= 0 ? mem_printf("%lld", n)
								      : mem_strdup("-");
}

static void print_table(const json_t *pods)
{
	struct table *t = table_new(8);
	const json_t *x;
	size_t i;

	table_row(t, "POD", "ANSWERED BY", "NAMES", "REQUESTS", "LOCAL", "FORWARDED", "FAILED",
	    "PROBLEM", NULL);
	json_array_foreach (pods, i, x) {
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
			printf(" is none of istiod's names: the pod's resolver is asked");
		json_array_foreach (json_object_get(r, "addresses"), j, address)
			printf(" %s", json_is_string(address) ? json_string_value(address) : "?");
		putchar('\n');
		found |= here;
	}
	return found;
}

static int show(const struct ctl *c, json_t *all)
{
	json_t *pods = json_object_get(all, "dns");
	int status = ctl_select(c, pods, "dns", is_named);

	if (status == CTL_OK && !c->words[0] && ctl_any_says_why_not(pods))
		status = CTL_PROBLEM;
	if (c->json)
		ctl_print_json(all);
	else if (!c->words[0])
		print_table(pods);
	else if (!print_name(pods))
		status = CTL_PROBLEM;
	return status;
}

int cmd_dns(const struct ctl *c)
{
	const char *name = c->words[0];
	int status;

	if (c->words[1] || (name && !is_plain(name)))
		return fprintf(stderr, "usage: agentctl dns [POD [NAME]]\n"), CTL_USAGE;
	auto_free char *url = mem_printf("/dns%s%s", name ? "?name=" : "", name ? name : "");
	json_t *all = ctl_request(c, "GET", url, &status);
	if (!all)
		return status;
	status = show(c, all);
	json_decref(all);
	return status;
}
