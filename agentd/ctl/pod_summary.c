/* pod_summary.c - a line for each part of a pod, in the order in which they come to be; what does
 * not concern it has none.
 */
#include "pod_summary.h"
#include "common/mem.h"
#include "show.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

__attribute__((format(printf, 2, 3))) static void row(const char *what, const char *fmt, ...)
{
	va_list ap;

	printf("  %-14s ", what);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static long long number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static bool is_true(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

char *ctl_pod_unused_keys(const json_t *pod)
{
	const size_t unsupported = json_array_size(json_object_get(pod, "unsupported"));
	const size_t ignored = json_array_size(json_object_get(pod, "ignored"));

	if (unsupported && ignored)
		return mem_printf("%zu unsupported, %zu ignored", unsupported, ignored);
	if (unsupported || ignored)
		return mem_printf("%zu %s", unsupported ? unsupported : ignored,
		    unsupported ? "unsupported" : "ignored");
	return mem_strdup("-");
}

static void show_list(const char *what, const json_t *list)
{
	const json_t *one;
	size_t i;

	if (!json_array_size(list))
		return;
	printf("  %-14s", what);
	json_array_foreach (list, i, one)
		if (json_is_string(one))
			printf(" %s", json_string_value(one));
		else
			printf(" %lld", (long long)json_integer_value(one));
	putchar('\n');
}

static void show_token(const json_t *token)
{
	const long long expires = number(token, "expires"), left = expires - time(NULL);

	if (*ctl_string(token, "why_not"))
		row("token", "%s", ctl_string(token, "why_not"));
	else if (is_true(token, "valid"))
		row("token", "valid for %lld min", left / 60);
	else
		row("token", "none that is valid");
}

static void show_sockets(const json_t *sockets)
{
	const json_t *refused = json_object_get(sockets, "refused_by");
	const char *unproven = ctl_string(json_object_get(sockets, "attested"), "unproven");
	const char *why;
	json_t *n;

	row("connections", "%lld accepted, %lld refused, %lld wait", number(sockets, "accepted"),
	    number(sockets, "refused"), number(sockets, "waiting"));
	json_object_foreach ((json_t *)refused, why, n)
		row("", "refused: %s (%lld)", why, (long long)json_integer_value(n));
	if (*unproven)
		row("", "not proven: %s", unproven);
}

static void show_redirect(const json_t *r)
{
	if (!json_is_object(r) || !strcmp(ctl_string(r, "mode"), "none"))
		return;
	row("redirection", "%s, %s: %s%s%s", ctl_string(r, "mode"), ctl_string(r, "policy"),
	    is_true(r, "in_force") ? "in force" : "NOT in force",
	    is_true(r, "inbound") ? ", inbound too" : "", is_true(r, "open") ? ", OPEN" : "");
	row("", "%lld redirected, %lld passed, %lld dropped", number(r, "redirected"),
	    number(r, "passed"), number(r, "dropped"));
	if (*ctl_string(r, "above"))
		row("", "above the ceiling: %s", ctl_string(r, "above"));
}

/* What Envoy asks of the app for others, and where the kubelet asks past Envoy. */
static void show_asked(const json_t *pod)
{
	const json_t *status = json_object_get(pod, "status_port");
	const size_t rewritten = json_array_size(json_object_get(status, "rewritten_probes"));

	show_list("scraped", json_object_get(status, "scrapes"));
	if (rewritten)
		row("probes", "%zu rewritten", rewritten);
	show_list(
	    "probes let in", json_object_get(json_object_get(pod, "redirect"), "probe_ports"));
}

static void show_wasm(json_t *filters)
{
	const char *name;
	json_t *why;

	json_object_foreach (filters, name, why)
		row("remote wasm", "%s: %s", name, ctl_string(filters, name));
}

/* How istiod takes a machine. */
static void show_registration(const json_t *r)
{
	const bool grouped = *ctl_string(r, "group");

	if (json_is_object(r))
		row("registration", "%s%s%s%s: %s%s", grouped ? "group " : "",
		    ctl_string(r, "group"), grouped ? ", entry " : "entry ", ctl_string(r, "entry"),
		    is_true(r, "registered") ? "registered" : "NOT registered",
		    is_true(r, "elsewhere") ? ", behind NAT" : "");
}

static void show_health(const json_t *h)
{
	const char *why = ctl_string(h, "why");

	if (json_is_object(h))
		row("health", "%s%s%s; asked %lld times, %lld in vain", ctl_string(h, "state"),
		    *why ? ": " : "", why, number(h, "asked"), number(h, "failed"));
}

static void show_collectors(const json_t *collectors)
{
	const char *name;
	json_t *address;

	json_object_foreach ((json_t *)collectors, name, address)
		row("sends to", "%s %s", name,
		    json_is_string(address) ? json_string_value(address) : "?");
}

static void show_dns(const json_t *dns)
{
	if (is_true(dns, "captured"))
		row("dns", "%s, %lld names%s; %lld requests, %lld failed",
		    is_true(dns, "answers") ? "answered" : "NOT answered", number(dns, "names"),
		    is_true(dns, "stale") ? " (stale)" : "", number(dns, "requests"),
		    number(dns, "failed"));
}

static void show_limits(const json_t *limits)
{
	const json_t *l;
	size_t i;

	json_array_foreach (limits, i, l)
		if (number(l, "hits"))
			row("limit", "%s: reached %lld times (%lld %s)", ctl_string(l, "name"),
			    number(l, "hits"), number(l, "limit"), ctl_string(l, "unit"));
}

static void show_problems(const json_t *pod)
{
	const char *service;
	json_t *why;

	if (*ctl_string(pod, "why_not"))
		row("problem", "%s", ctl_string(pod, "why_not"));
	json_object_foreach (json_object_get(pod, "problems"), service, why)
		row("problem", "%s: %s", service,
		    json_is_string(why) ? json_string_value(why) : "");
}

static void show_warming(const json_t *pod)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(pod, "warming"), i, one)
		row("problem", "%s %s has been warming for %lld s: Envoy does not use it yet",
		    ctl_string(one, "type"), ctl_string(one, "name"), number(one, "for_s"));
	if (*ctl_string(pod, "warming_unknown"))
		row("warming", "not known: %s", ctl_string(pod, "warming_unknown"));
}

/* What it gets now: nothing is said of a pod that is refused, or asks for nothing. */
static const char *served(const json_t *pod)
{
	static const char *const words[][2] = {
	    {"yes", ", served"}, {"held", ", held"}, {"no", ", NOT served"}};

	for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(ctl_string(pod, "served"), words[i][0]))
			return words[i][1];
	return "";
}

void ctl_pod_summary(const json_t *pod)
{
	const json_t *volume = json_object_get(pod, "volume");

	printf("%s/%s  %s%s\n", ctl_string(pod, "namespace"), ctl_string(pod, "name"),
	    is_true(pod, "ready") ? "ready" : "NOT ready", served(pod));
	show_problems(pod);
	show_warming(pod);
	row("uid", "%s", ctl_string(pod, "uid"));
	row("account", "%s, told by the %s", ctl_string(pod, "service_account"),
	    ctl_string(pod, "source"));
	if (json_is_object(volume))
		row("volume", "%s%s%s", ctl_string(volume, "state"),
		    *ctl_string(volume, "problem") ? ": " : "", ctl_string(volume, "problem"));
	if (*ctl_string(pod, "control_plane"))
		row("control plane", "%s, as %s", ctl_string(pod, "control_plane"),
		    ctl_string(pod, "node_id"));
	if (json_is_object(json_object_get(pod, "token")))
		show_token(json_object_get(pod, "token"));
	if (json_is_object(json_object_get(pod, "sockets")))
		show_sockets(json_object_get(pod, "sockets"));
	show_registration(json_object_get(pod, "registration"));
	show_health(json_object_get(pod, "health"));
	show_redirect(json_object_get(pod, "redirect"));
	show_asked(pod);
	show_wasm(json_object_get(pod, "remote_wasm"));
	show_collectors(json_object_get(pod, "sends_to"));
	show_dns(json_object_get(pod, "dns"));
	show_limits(json_object_get(pod, "limits"));
	show_list("unsupported", json_object_get(pod, "unsupported"));
	show_list("ignored", json_object_get(pod, "ignored"));
}
