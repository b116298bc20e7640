/* annotations.c - each annotation that istiod's injector checks, by its rule (injection.md 6).
 *
 * Lists of ports, ranges and interfaces are not here: a node reads them itself, and more strictly
 * (node.c).  What remains is what no node is told: it only shapes the container.
 */
#include "common/err.h"
#include "inject_internal.h"
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Each: NULL, or why not. */

static const char *check_mode(const char *v)
{
	if (!strcmp(v, "REDIRECT") || !strcmp(v, "TPROXY") || !strcmp(v, "NONE"))
		return NULL;
	return "interceptionMode invalid, use REDIRECT,TPROXY,NONE";
}

static bool is_number(const char *v, uint64_t most)
{
	size_t n = strspn(v, "0123456789");

	return n && !v[n] && n < 12 && strtoull(v, NULL, 10) <= most;
}

static const char *check_number(const char *v)
{
	return is_number(v, UINT32_MAX) ? NULL : "must be a whole number, 0 to 4294967295";
}

static const char *check_port(const char *v)
{
	return is_number(v, UINT16_MAX) ? NULL : "must be a port, 0 to 65535";
}

static const char *check_bool(const char *v)
{
	static const char *const words[] = {
	    "1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"};

	for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(words[i], v))
			return NULL;
	return "must be true or false";
}

/* "100m", "1.5", "1Gi", "2e3": Kubernetes' quantities (k8s.io/apimachinery, resource.Quantity). */
static const char *check_quantity(const char *v)
{
	static const char *const suffixes[] = {
	    "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
	static const char why[] = "must be a quantity: 100m, 2, 128Mi";
	const char *at = v + (*v == '+' || *v == '-');
	size_t whole = strspn(at, "0123456789"), part = 0;

	at += whole;
	if (*at == '.')
		at += 1 + (part = strspn(at + 1, "0123456789"));
	if (whole + part == 0 || strlen(v) > 64)
		return why;
	for (unsigned i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++)
		if (!strcmp(suffixes[i], at))
			return NULL;
	if (*at != 'e' && *at != 'E')
		return why;
	at += 1 + (at[1] == '+' || at[1] == '-');
	return is_number(at, 999) ? NULL : why;
}

static const struct {
	const char *key;
	const char *(*check)(const char *value);
} rows[] = {
    {"sidecar.istio.io/interceptionMode", check_mode},
    {"status.sidecar.istio.io/port", check_port},
    {"readiness.status.sidecar.istio.io/initialDelaySeconds", check_number},
    {"readiness.status.sidecar.istio.io/periodSeconds", check_number},
    {"readiness.status.sidecar.istio.io/failureThreshold", check_number},
    {"prometheus.istio.io/merge-metrics", check_bool},
    {"sidecar.istio.io/proxyCPU", check_quantity},
    {"sidecar.istio.io/proxyMemory", check_quantity},
    {"sidecar.istio.io/proxyCPULimit", check_quantity},
    {"sidecar.istio.io/proxyMemoryLimit", check_quantity},
};

int inject_check_annotations(const json_t *annotations, struct err *e)
{
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const char *v = json_string_value(json_object_get(annotations, rows[i].key));
		const char *why = v ? rows[i].check(v) : NULL;
		char shown[50];

		if (why)
			return err_set(e, ERR_INVALID, "invalid value '%s' for annotation '%s': %s",
			    err_printable(shown, sizeof(shown), v, (unsigned)strlen(v)),
			    rows[i].key, why);
	}
	return 0;
}

void inject_warn_annotations(const json_t *annotations, json_t *warnings)
{
	static const char *const idle[] = {"sidecar.istio.io/agentLogLevel",
	    "sidecar.istio.io/capNetBindService", "sidecar.istio.io/enableCoreDump"};

	for (unsigned i = 0; i < sizeof(idle) / sizeof(*idle); i++)
		if (json_object_get(annotations, idle[i]))
			json_array_append_new(
			    warnings, json_sprintf("annotation %s has no effect", idle[i]));
}
