/* redirect.c - agentctl redirect [POD] | explain --pod POD ... [SRC] DST | trace [POD] */
#include "commands.h"
#include "common/mem.h"
#include "list.h"
#include "request.h"
#include "show.h"
#include "table.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool is_ebpf(const json_t *x)
{
	return !strcmp(ctl_string(x, "mode"), "ebpf");
}

/* No Envoy came and nothing was decided: whether its processes are where the rules are, nobody
 * knows (hostNetwork). */
static bool has_counted(const json_t *x)
{
	return json_integer_value(json_object_get(x, "redirected")) ||
	       json_integer_value(json_object_get(x, "passed")) ||
	       json_integer_value(json_object_get(x, "dropped"));
}

static const char *state_of(const json_t *x)
{
	if (!is_ebpf(x))
		return "-";
	if (!json_is_true(json_object_get(x, "in_force")))
		return "no";
	if (json_is_true(json_object_get(x, "inbound")))
		return "yes";
	return has_counted(x) ? "outbound" : "unseen";
}

static void print_table(const json_t *answer)
{
	struct table *t = table_new(8);
	const json_t *x;
	size_t i;

	table_row(t, "POD", "MODE", "POLICY", "IN FORCE", "REDIRECTED", "PASSED", "DROPPED",
	    "PROBLEM", NULL);
	json_array_foreach (json_object_get(answer, "redirect"), i, x) {
		auto_free char *redirected = ctl_count(x, "redirected");
		auto_free char *passed = ctl_count(x, "passed");
		auto_free char *dropped = ctl_count(x, "dropped");

		table_row(t, ctl_string(x, "pod"), ctl_string(x, "mode"),
		    is_ebpf(x) ? ctl_string(x, "policy") : "-", state_of(x), redirected, passed,
		    dropped, ctl_string(x, "why_not"), NULL);
	}
	table_print_free(&t);
}

static const struct ctl_list list = {
    .noun = "redirect",
    .page = "/redirect",
    .key = "redirect",
    .is_named = ctl_list_is_pod,
    .has_problem = ctl_list_says_why_not,
    .print = print_table,
    .print_one = ctl_print_yaml,
};

static int redirect(const struct ctl *c)
{
	return ctl_list(c, &list);
}

const struct ctl_command ctl_redirect = {
    .noun = "redirect",
    .args = "[POD]",
    .help = "which pods' traffic agentd redirects, or why not; counters by rule",
    .most = 1,
    .run = redirect,
};

/* The uid of the pod that `name` names. Otherwise prints why it is not exactly one; NULL. */
static char *find_uid(const struct ctl *c, const char *name, int *status)
{
	const struct ctl plain = {.run = c->run};
	json_t *answer = ctl_list_fetch(&plain, &list, name, status);
	const json_t *pods = json_object_get(answer, "redirect");
	char *uid = NULL;

	if (!answer)
		return NULL;
	if (*status == CTL_OK && json_array_size(pods) > 1) {
		fprintf(stderr, "agentctl: %s: more than one pod; name it by its uid\n", name);
		*status = CTL_PROBLEM;
	}
	if (*status == CTL_OK)
		uid = mem_strdup(ctl_string(json_array_get(pods, 0), "uid"));
	json_decref(answer);
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

static int explain(const struct ctl *c)
{
	const char *source = c->words[1] ? c->words[0] : NULL;
	const char *target = c->words[1] ? c->words[1] : c->words[0];
	const char *name = ctl_option(c, "pod");
	const char *uid = ctl_option(c, "uid"), *gid = ctl_option(c, "gid");
	int status;

	if (!name || !is_plain(source) || !is_plain(target) || !is_plain(uid) || !is_plain(gid) ||
	    (!source && (!uid || !gid || ctl_option(c, "probe"))))
		return ctl_command_usage(&ctl_redirect_explain, stderr);
	auto_free char *pod = find_uid(c, name, &status);
	if (!pod)
		return status;
	auto_free char *url = mem_printf("/redirect/explain?pod=%s&to=%s&protocol=%s%s%s%s%s%s%s%s",
	    pod, target, ctl_option(c, "udp") ? "udp" : "tcp", uid ? "&uid=" : "", uid ? uid : "",
	    gid ? "&gid=" : "", gid ? gid : "", source ? "&from=" : "", source ? source : "",
	    ctl_option(c, "probe") ? "&probe=1" : "");
	json_t *answer = ctl_request(c, "GET", url, &status);
	if (!answer)
		return status;
	if (c->json)
		ctl_print_answer(c, answer);
	else
		printf("%s: %s: %s\n", ctl_string(answer, "direction"),
		    ctl_string(answer, "verdict"), ctl_string(answer, "rule"));
	json_decref(answer);
	return CTL_OK;
}

const struct ctl_command ctl_redirect_explain = {
    .noun = "redirect",
    .verb = "explain",
    .args = "--pod POD [--uid N --gid N] [--udp] [--probe] [SRC] DST",
    .help = "the rule that decides over a connection",
    .more = "DST is ADDRESS:PORT or [ADDRESS]:PORT; with SRC, an address outside the pod, the "
	    "connection is inbound",
    .least = 1,
    .most = 2,
    .options = {{"pod", "POD", "the pod whose traffic it is"},
	{"uid", "N", "of the dialling process in the pod"}, {"gid", "N", "of that process"},
	{"udp", NULL, "instead of TCP"},
	{"probe", NULL, "with SRC: the connection is the kubelet's own"}},
    .run = explain,
};

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

	auto_free char *uid = c->words[0] ? find_uid(c, c->words[0], &status) : NULL;
	if (c->words[0] && !uid)
		return status;
	auto_free char *url = mem_printf("/redirect/trace%s%s", uid ? "?pod=" : "", uid ? uid : "");
	return ctl_stream(c, url, print_decision);
}

const struct ctl_command ctl_redirect_trace = {
    .noun = "redirect",
    .verb = "trace",
    .args = "[POD]",
    .help = "decisions as they are made, until Ctrl-C",
    .most = 1,
    .run = trace,
};
