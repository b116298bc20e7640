/* status.c - agentctl status, ready, alive */
#include "alive.h"
#include "commands.h"
#include "request.h"
#include "show.h"
#include <stdio.h>
#include <string.h>

enum { MIB = 1 << 20, NAMED_MAX = 5 };

/* "": it knows us, or this node has none. */
static const char *kubelet_problem(const json_t *s)
{
	return ctl_string(json_object_get(s, "kubelet"), "why_not");
}

/* "": it answers. */
static const char *broker_problem(const json_t *s)
{
	return ctl_string(json_object_get(s, "broker"), "why_not");
}

static bool has_problem(const json_t *s)
{
	const json_t *plane;
	size_t i;

	json_array_foreach (json_object_get(s, "control_planes"), i, plane)
		if (*ctl_string(plane, "why_not") ||
		    *ctl_string(json_object_get(plane, "crl"), "why_not"))
			return true;
	return json_is_false(json_object_get(s, "confined")) || *broker_problem(s) ||
	       json_array_size(json_object_get(s, "problems")) || *kubelet_problem(s) ||
	       json_array_size(json_object_get(s, "refused_manifests")) ||
	       json_array_size(json_object_get(s, "waiting_volumes")) ||
	       json_array_size(json_object_get(s, "unserved")) ||
	       json_array_size(json_object_get(s, "lost")) ||
	       json_integer_value(json_object_get(s, "pods")) !=
		   json_integer_value(json_object_get(s, "pods_ready"));
}

static void print_plane(const json_t *p)
{
	const char *why = ctl_string(p, "why_not");
	const json_t *crl = json_object_get(p, "crl");
	const char *crl_why = ctl_string(crl, "why_not");
	const json_t *c;
	size_t i;

	printf("control plane  %s at %s:", ctl_string(p, "name"), ctl_string(p, "address"));
	json_array_foreach (json_object_get(p, "connections"), i, c)
		printf(" %s", ctl_string(c, "state"));
	printf("\n");
	if (json_is_true(json_object_get(crl, "present")))
		printf("  revocation list in force%s%s\n",
		    *ctl_string(crl, "ends") ? " until " : "", ctl_string(crl, "ends"));
	json_array_foreach (json_object_get(p, "warnings"), i, c)
		printf("  warning: %s\n", json_string_value(c) ? json_string_value(c) : "");
	if (*why)
		printf("  problem: %s\n", why);
	if (*crl_why)
		printf("  problem: %s\n", crl_why);
}

static void print_kubelet(const json_t *s)
{
	const char *why = kubelet_problem(s);

	if (json_is_object(json_object_get(s, "kubelet")))
		printf("kubelet        %s\n", *why ? "not registered" : "registered");
	if (*why)
		printf("  problem: %s\n", why);
}

/* Only while there are some. */
static void print_pushes(const json_t *p)
{
	json_int_t held = json_integer_value(json_object_get(p, "held")),
		   streams = json_integer_value(json_object_get(p, "streams"));

	if (held >= MIB || streams)
		printf("pushes         %lld of %lld MiB on their way to Envoys, %lld wait\n",
		    (long long)(held / MIB),
		    (long long)(json_integer_value(json_object_get(p, "bound")) / MIB),
		    (long long)streams);
}

static void print_pods(const json_t *s)
{
	const json_int_t pods = json_integer_value(json_object_get(s, "pods"));
	const json_int_t ready = json_integer_value(json_object_get(s, "pods_ready"));
	const json_t *unserved = json_object_get(s, "unserved"), *p;
	const size_t n = json_array_size(unserved);
	size_t i;

	printf("pods           %lld, %lld ready", (long long)pods, (long long)ready);
	if (n)
		printf(", %zu not served", n);
	printf("\n");
	if (pods != ready)
		printf("  problem: %lld not ready; agentctl pods shows why\n",
		    (long long)(pods - ready));
	for (i = 0; i < n && i < NAMED_MAX && (p = json_array_get(unserved, i)); i++)
		printf("  problem: %s/%s is %s: %s\n", ctl_string(p, "namespace"),
		    ctl_string(p, "name"),
		    strcmp(ctl_string(p, "served"), "held") ? "not served" : "held",
		    ctl_string(p, "why"));
	if (n > NAMED_MAX)
		printf("  problem: %zu more; agentctl pods shows why\n", n - NAMED_MAX);
}

static void print_status(const json_t *s)
{
	const json_t *v;
	size_t i;

	printf("agentd         %s on %s, up %lld s\n", ctl_string(s, "version"),
	    ctl_string(s, "node_name"),
	    (long long)json_integer_value(json_object_get(s, "uptime_s")));
	printf("cage           %s\n", ctl_string(s, "cage"));
	if (json_is_false(json_object_get(s, "confined")))
		printf("  problem: the worker is NOT confined (agentd --no-privsep)\n");
	if (*broker_problem(s))
		printf("broker         silent\n  problem: %s\n", broker_problem(s));
	json_array_foreach (json_object_get(s, "problems"), i, v)
		printf("  problem: %s\n", json_string_value(v) ? json_string_value(v) : "");
	print_kubelet(s);
	print_pods(s);
	json_array_foreach (json_object_get(s, "lost"), i, v)
		printf("  problem: %s had its %s before this agentd's start: %s\n",
		    ctl_string(v, "pod"), ctl_string(v, "service"), ctl_string(v, "why"));
	json_array_foreach (json_object_get(s, "control_planes"), i, v)
		print_plane(v);
	print_pushes(json_object_get(s, "pushes"));
	json_array_foreach (json_object_get(s, "refused_manifests"), i, v)
		printf("refused        %s: %s\n", ctl_string(v, "file"), ctl_string(v, "why"));
	json_array_foreach (json_object_get(s, "waiting_volumes"), i, v)
		printf("refused        volume %s of %s: %s\n", ctl_string(v, "volume"),
		    ctl_string(v, *ctl_string(v, "pod") ? "pod" : "uid"), ctl_string(v, "problem"));
}

static int show_status(const struct ctl *c)
{
	int status;
	json_t *s = ctl_request(c, "GET", "/status", &status);

	if (!s)
		return status;
	status = has_problem(s) ? CTL_PROBLEM : CTL_OK;
	if (c->json)
		ctl_print_answer(c, s);
	else
		print_status(s);
	json_decref(s);
	return status;
}

const struct ctl_command ctl_status = {
    .noun = "status",
    .args = "",
    .help = "agentd, its control planes, pods that are not served, what is wrong",
    .run = show_status,
};

static const char *loss(const json_t *s)
{
	static char text[512];
	const json_t *lost = json_object_get(s, "lost"), *first = json_array_get(lost, 0);

	snprintf(text, sizeof(text), "pods that lost what they had: %zu, as %s: %s: %s",
	    json_array_size(lost), ctl_string(first, "pod"), ctl_string(first, "service"),
	    ctl_string(first, "why"));
	return text;
}

/* What the worker says of itself and of the kubelet; "": it is ready. */
static const char *why_unready(const json_t *s, bool is_asked_itself)
{
	if (*broker_problem(s))
		return broker_problem(s);
	if (!json_is_true(json_object_get(s, "settled")))
		return "some previous pods are not served yet";
	if (!is_asked_itself && json_is_false(json_object_get(s, "in_charge")))
		return loss(s);
	return kubelet_problem(s);
}

/* What is wrong with one pod or one control plane does not count, unless it had what is missing
 * before this agentd's start: an update would stop for it.  A kubelet that does not know us does:
 * no meshed pod of the node could start. */
static int show_ready(const struct ctl *c)
{
	struct ctl_alive itself;
	int status = ctl_alive_ask(c, &itself);

	if (status != CTL_OK)
		return status;
	if (itself.is == CTL_ALIVE_OVER)
		return printf("ready: another agentd has the pods\n"), CTL_OK;
	if (itself.is == CTL_ALIVE_STARTING || itself.is == CTL_ALIVE_NOT)
		return printf("not ready: %s\n", itself.why), CTL_PROBLEM;
	json_t *s = ctl_request(c, "GET", "/status", &status);
	if (!s)
		return status;
	const char *why = why_unready(s, itself.is == CTL_ALIVE_READY);
	status = *why ? CTL_PROBLEM : CTL_OK;
	if (c->json)
		ctl_print_answer(c, s);
	else
		printf("%s%s\n", *why ? "not ready: " : "ready", why);
	json_decref(s);
	return status;
}

#define OF                                                                                         \
	{                                                                                          \
		"of", "PATH",                                                                      \
		    "the agentd whose --alive PATH is, and not the one that has the pods"          \
	}

const struct ctl_command ctl_ready = {
    .noun = "ready",
    .args = "[--of PATH]",
    .help =
	"for probes of agentd: whether all that was served before is served, the broker answers "
	"and the kubelet knows agentd",
    .options = {OF},
    .run = show_ready,
};

/* For a probe that restarts a container: nothing that is wrong outside of it counts. */
static int show_alive(const struct ctl *c)
{
	struct ctl_alive itself;
	int status = ctl_alive_ask(c, &itself);

	if (status != CTL_OK)
		return status;
	if (itself.is == CTL_ALIVE_STARTING)
		return printf("starting: %s\n", itself.why), CTL_PROBLEM;
	return printf("alive\n"), CTL_OK;
}

const struct ctl_command ctl_alive = {
    .noun = "alive",
    .args = "--of PATH",
    .help = "for probes: whether the broker turns, and knows whether it is ready",
    .options = {OF},
    .run = show_alive,
};
