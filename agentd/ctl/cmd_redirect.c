/* cmd_redirect.c - agentctl redirect [POD] | explain --pod POD ... [SRC] DST | trace [POD] */
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

static bool is_ebpf(const json_t *x)
{
	return !strcmp(ctl_string(x, "mode"), "ebpf");
}

static const char *state_of(const json_t *x)
{
	if (!is_ebpf(x))
		return "-";
	if (!json_is_true(json_object_get(x, "in_force")))
		return "no";
	return json_is_true(json_object_get(x, "inbound")) ? "yes" : "outbound";
}

static void print_table(const json_t *pods)
{
	struct table *t = table_new(8);
	const json_t *x;
	size_t i;

	table_row(t, "POD", "MODE", "POLICY", "IN FORCE", "REDIRECTED", "PASSED", "DROPPED",
	    "PROBLEM", NULL);
	json_array_foreach (pods, i, x) {
		auto_free char *redirected = ctl_count(x, "redirected");
		auto_free char *passed = ctl_count(x, "passed");
		auto_free char *dropped = ctl_count(x, "dropped");

		table_row(t, ctl_string(x, "pod"), ctl_string(x, "mode"),
		    is_ebpf(x) ? ctl_string(x, "policy") : "-", state_of(x), redirected, passed,
		    dropped, ctl_string(x, "why_not"), NULL);
	}
	table_print_free(&t);
}

static void print_trees(const json_t *pods)
{
	const json_t *x;
	size_t i;

	json_array_foreach (pods, i, x) {
		if (i)
			putchar('\n');
		ctl_print_tree(x, 0);
	}
}

static int show(const struct ctl *c)
{
	int status;
	json_t *all = ctl_request(c, "GET", "/redirect", &status);
	json_t *pods = json_object_get(all, "redirect");

	if (!all)
		return status;
	status = ctl_select(c, pods, "redirect", is_named);
	if (ctl_any_says_why_not(pods))
		status = CTL_PROBLEM;
	if (c->json)
		ctl_print_json(all);
	else if (c->name)
		print_trees(pods);
	else
		print_table(pods);
	json_decref(all);
	return status;
}

/* Of the pod that `name` names; NULL after saying why there is none, or which. */
static char *find_uid(const struct ctl *c, const char *name, int *status)
{
	struct ctl plain = {.run = c->run, .name = name};
	json_t *all = ctl_request(&plain, "GET", "/redirect", status);
	json_t *pods = json_object_get(all, "redirect");
	char *uid = NULL;

	if (!all)
		return NULL;
	*status = ctl_select(&plain, pods, "redirect", is_named);
	if (*status == CTL_OK && json_array_size(pods) > 1) {
		fprintf(stderr, "agentctl: %s: more than one pod; name it by its uid\n", name);
		*status = CTL_PROBLEM;
	}
	if (*status == CTL_OK)
		uid = mem_strdup(ctl_string(json_array_get(pods, 0), "uid"));
	json_decref(all);
	return uid;
}

/* --- explain --- */

/* Addresses, ports and numbers: nothing that would have to be escaped in a URL. */
static bool is_plain(const char *s)
{
	if (!s)
		return true;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr(".:[]", *s))
			return false;
	return true;
}

static int usage(void)
{
	fprintf(stderr, "usage: agentctl redirect explain --pod POD [--uid N --gid N] [--udp] "
			"[SRC] DST\n"
			"  DST is ADDRESS:PORT or [ADDRESS]:PORT; with SRC, an address outside of "
			"the pod, an arrival\n");
	return CTL_USAGE;
}

static int explain(const struct ctl *c)
{
	const char *source = c->words[1] ? c->words[0] : NULL;
	const char *target = c->words[1] ? c->words[1] : c->words[0];
	const char *uid = c->explain.uid, *gid = c->explain.gid;
	int status;

	if (!c->explain.pod || !target || c->words[CTL_WORDS_MAX - 1] || !is_plain(source) ||
	    !is_plain(target) || !is_plain(uid) || !is_plain(gid) || (!source && (!uid || !gid)))
		return usage();
	auto_free char *pod = find_uid(c, c->explain.pod, &status);
	if (!pod)
		return status;
	auto_free char *url = mem_printf("/redirect/explain?pod=%s&to=%s&protocol=%s%s%s%s%s%s%s",
	    pod, target, c->explain.udp ? "udp" : "tcp", uid ? "&uid=" : "", uid ? uid : "",
	    gid ? "&gid=" : "", gid ? gid : "", source ? "&from=" : "", source ? source : "");
	json_t *answer = ctl_request(c, "GET", url, &status);
	if (!answer)
		return status;
	if (c->json)
		ctl_print_json(answer);
	else
		printf("%s: %s: %s\n", ctl_string(answer, "direction"),
		    ctl_string(answer, "verdict"), ctl_string(answer, "rule"));
	json_decref(answer);
	return CTL_OK;
}

/* --- trace --- */

static void print_decision(const struct ctl *c, const json_t *d)
{
	long long lost = (long long)json_integer_value(json_object_get(d, "lost"));
	bool inbound = !strcmp(ctl_string(d, "direction"), "inbound");
	const char *to = ctl_string(d, "to");
	bool v6 = strchr(to, ':');

	if (c->json) {
		json_dumpf(d, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
		putchar('\n');
		return;
	}
	if (lost)
		printf("(%lld lost)\n", lost);
	printf("%s  ", ctl_string(d, "pod"));
	if (inbound)
		printf("from %s", ctl_string(d, "from"));
	else
		printf("uid %lld gid %lld",
		    (long long)json_integer_value(json_object_get(d, "uid")),
		    (long long)json_integer_value(json_object_get(d, "gid")));
	printf(" -> %s %s%s%s:%lld  %s: %s\n", ctl_string(d, "protocol"), v6 ? "[" : "", to,
	    v6 ? "]" : "", (long long)json_integer_value(json_object_get(d, "port")),
	    ctl_string(d, "verdict"), ctl_string(d, "rule"));
}

static int trace(const struct ctl *c)
{
	int status = CTL_OK;

	if (c->words[1])
		return fprintf(stderr, "agentctl: too much: %s\n", c->words[1]), CTL_USAGE;
	auto_free char *uid = c->words[0] ? find_uid(c, c->words[0], &status) : NULL;
	if (c->words[0] && !uid)
		return status;
	auto_free char *url = mem_printf("/redirect/trace%s%s", uid ? "?pod=" : "", uid ? uid : "");
	return ctl_stream(c, url, print_decision);
}

int cmd_redirect(const struct ctl *c)
{
	const char *verb = c->name ? c->name : "";

	if (!strcmp(verb, "explain"))
		return explain(c);
	if (c->explain.pod || c->explain.uid || c->explain.gid || c->explain.udp)
		return usage();
	if (!strcmp(verb, "trace"))
		return trace(c);
	if (c->words[0])
		return fprintf(stderr, "agentctl: too much: %s\n", c->words[0]), CTL_USAGE;
	return show(c);
}
