/* preflight.c - agentctl preflight: may these pods be agentd's?  No cluster is asked.
 *
 * The input is read a piece at a time -> each object goes to the preflight -> its answer is
 * printed: what cannot move first, what has no sidecar as a number.
 */
#include "inject/preflight.h"
#include "commands.h"
#include "common/err.h"
#include "common/mem.h"
#include "inject.h"
#include "inject/items.h"
#include "show.h"
#include "table.h"
#include <string.h>

enum { PIECE = 64 << 10 };

static int read_all(FILE *f, const char *name, struct items *s, struct err *e)
{
	auto_free char *piece = mem_zalloc(PIECE);
	size_t n;

	while ((n = fread(piece, 1, PIECE, f)))
		if (items_feed(s, piece, n, e))
			return err_wrap(e, "%s", name);
	if (ferror(f))
		return err_sys(e, "%s", name);
	return items_end(s, e) ? err_wrap(e, "%s", name) : 0;
}

static int read_file(const char *name, struct preflight *p, struct err *e)
{
	FILE *f = strcmp(name, "-") ? fopen(name, "re") : stdin;
	struct items *s;
	int rc;

	if (!f)
		return err_sys(e, "%s", name);
	s = items_new(preflight_take, p);
	rc = read_all(f, name, s, e);
	items_free(&s);
	if (f != stdin)
		fclose(f);
	return rc;
}

/* --- printing --- */

/* Its first reason beside it, the others below. */
static void add_row(struct table *t, const json_t *row)
{
	static const char *const keys[] = {"refused", "changes"};
	auto_free char *name = mem_printf("%s %s/%s", ctl_string(row, "kind"),
	    ctl_string(row, "namespace"), ctl_string(row, "name"));
	auto_free char *pods = ctl_count(row, "pods");
	unsigned rows = 0;
	const json_t *v;
	size_t i;

	for (unsigned k = 0; k < 2; k++)
		json_array_foreach (json_object_get(row, keys[k]), i, v) {
			const char *text = json_string_value(v);

			if (rows++)
				table_row(t, "", "", "", text, NULL);
			else
				table_row(t, name, pods, ctl_string(row, "verdict"), text, NULL);
		}
	if (!rows)
		table_row(t, name, pods, ctl_string(row, "verdict"), "", NULL);
}

static void print_table(const json_t *answer)
{
	const json_t *counts = json_object_get(answer, "verdicts"), *row;
	struct table *t = table_new(4);
	size_t i;

	table_row(t, "WORKLOAD", "PODS", "VERDICT", "WHY", NULL);
	json_array_foreach (json_object_get(answer, "workloads"), i, row)
		if (strcmp(ctl_string(row, "verdict"), "outside") != 0)
			add_row(t, row);
	table_print_free(&t);
	printf("\n%lld cannot move, %lld change, %lld move as they are, %lld moved, %lld have no "
	       "sidecar\n",
	    (long long)json_integer_value(json_object_get(counts, "cannot")),
	    (long long)json_integer_value(json_object_get(counts, "changes")),
	    (long long)json_integer_value(json_object_get(counts, "moves")),
	    (long long)json_integer_value(json_object_get(counts, "moved")),
	    (long long)json_integer_value(json_object_get(counts, "outside")));
}

/* Exit status. */
static int print(const struct ctl *c, const struct preflight *p)
{
	json_t *answer = preflight_answer(p);
	const json_t *cannot = json_object_get(json_object_get(answer, "verdicts"), "cannot");
	const int status = json_integer_value(cannot) ? CTL_PROBLEM : CTL_OK;

	if (c->json)
		ctl_print_answer(c, answer);
	else
		print_table(answer);
	json_decref(answer);
	return status;
}

static int preflight(const struct ctl *c)
{
	int status = ctl_inject_check_usage(c, &ctl_preflight);
	struct inject_config *config;
	struct preflight *p;
	struct err e;

	if (status)
		return status;
	if (!(config = ctl_inject_config(c, &e))) {
		fprintf(stderr, "agentctl: %s\n", e.msg);
		return CTL_PROBLEM;
	}
	p = preflight_new(config);
	if (read_file(ctl_option(c, "file"), p, &e)) {
		fprintf(stderr, "agentctl: %s\n", e.msg);
		status = CTL_PROBLEM;
	} else {
		status = print(c, p);
	}
	preflight_free(&p);
	return status;
}

const struct ctl_command ctl_preflight = {
    .noun = "preflight",
    .args = "-f PODS.json|-",
    .help = "which workloads of a cluster can be agentd's, and what changes for them",
    .more = "PODS.json: of kubectl get pods,wasmplugins -A -o json",
    .options = {{"file", "FILE", "pods as JSON; -: standard input"},
	{"config", "FILE", "{values, meshConfig, agentd}"},
	{"values", "FILE", "istiod's values, as its injector has them"},
	{"mesh", "FILE", "istiod's mesh configuration"},
	{"native", "BOOL", "true (default): a sidecar of initContainers; false: a container"}},
    .run = preflight,
};
