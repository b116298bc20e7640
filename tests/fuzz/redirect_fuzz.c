/* redirect_fuzz.c - a pod's own words about its traffic: "key=value" lines, keys with an `a` or `e`
 * before them are annotations or variables.
 *
 * What is accepted is what the broker accepts on a node that allows all; ranges mean the same
 * before and after they are flattened.
 */
#include "common/err.h"
#include "mesh/cidr.h"
#include "mesh/pod.h"
#include "mesh/traffic.h"
#include "tests/unit/mesh/cidr_look_up.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

static void take_line(struct pod_spec *p, char *line)
{
	char *value = strchr(line, '=');
	json_t *into = p->redirect;

	if (!value)
		return;
	*value++ = '\0';
	if (*line == 'a' || *line == 'e')
		into = *line++ == 'a' ? p->annotations : p->env;
	json_object_set_new(into, line, json_string(value)); /* NULL when it is no UTF-8 */
}

static void check(const struct redirect_plan *plan)
{
	const struct redirect_rules *r = &plan->rules;

	if (plan->mode != REDIRECT_MODE_EBPF) {
		must(!r->version && !r->nrows);
		return;
	}
	must(r->version == REDIRECT_RULES_VERSION && r->strict <= 1);
	must(r->outbound_port && r->inbound_port && r->outbound_port != r->inbound_port);
	must(r->nrows <= REDIRECT_ROWS_MAX && r->ncidrs <= REDIRECT_CIDRS_MAX);
	for (uint32_t i = 0; i < r->nrows; i++) {
		must(r->rows[i].kind && r->rows[i].kind != REDIRECT_PORT_INTERFACE &&
		     r->rows[i].kind <= REDIRECT_PORT_PROBE);
		must(r->rows[i].kind == REDIRECT_PORT_GROUP || r->rows[i].number <= 65535);
		must(r->rows[i].kind != REDIRECT_PORT_PROBE ||
		     rules_can_probe(r, r->rows[i].number));
	}
	for (uint32_t i = 0; i < r->ninterfaces; i++)
		must(r->interfaces[i][0] && memchr(r->interfaces[i], 0, REDIRECT_INTERFACE_SIZE));
}

/* Of IPv4 with the ranges of IPv4, of IPv6 with those of IPv6. */
static bool same_family(const struct redirect_cidr *c, bool v4)
{
	return (c->bits >= 96 && !c->address.word[0] && !c->address.word[1] &&
		   c->address.word[2] == __builtin_bswap32(0xffff)) == v4;
}

static void check_ranges(const char *include, const char *exclude)
{
	struct redirect_rules flat = {.version = 1}, raw;
	struct err e;

	if (cidr_add(&flat, "i", include, REDIRECT_CIDR_INCLUDE, &e) ||
	    cidr_add(&flat, "x", exclude, REDIRECT_CIDR_EXCLUDE, &e))
		return;
	raw = flat;
	cidr_flatten(&flat);
	for (uint32_t i = 0; i < raw.ncidrs && i < 32; i++) {
		bool v4 = same_family(&raw.cidrs[i], true);
		uint32_t all = 0;
		for (uint32_t k = 0; k < raw.ncidrs; k++) {
			struct redirect_rules one = {.ncidrs = 1, .cidrs = {raw.cidrs[k]}};
			if (same_family(&raw.cidrs[k], v4))
				all |= cidr_look_up(&one, &raw.cidrs[i].address);
		}
		must(cidr_look_up(&flat, &raw.cidrs[i].address) == all);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct redirect_node node = {
	    .mode = REDIRECT_MODE_EBPF, .strict = true, .status_port = 15020};
	struct pod_spec p = {.redirect = json_object(),
	    .annotations = json_object(),
	    .env = json_object(),
	    .proxy_uid = 1337,
	    .proxy_gid = 1337};
	char *text = calloc(1, size + 1), *rest = text, *line;
	struct redirect_plan plan;
	struct err e = {.code = 0};
	const char *i, *x;

	if (size)
		memcpy(text, data, size);
	while ((line = strsep(&rest, "\n")))
		take_line(&p, line);
	if (traffic_read(&plan, &p, &node, &e))
		must(*e.msg);
	else
		check(&plan);
	i = json_string_value(json_object_get(p.redirect, "istio_service_cidr"));
	x = json_string_value(json_object_get(p.redirect, "istio_service_exclude_cidr"));
	if (i && x)
		check_ranges(i, x);
	json_decref(p.redirect);
	json_decref(p.annotations);
	json_decref(p.env);
	free(text);
	return 0;
}
