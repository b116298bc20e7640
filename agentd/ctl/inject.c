/* inject.c - agentctl inject, agentctl uninject: manifests in, manifests out.  No cluster is asked.
 *
 * The configuration is read -> the whole input is read -> it is done in memory -> what was passed
 * over and what has no effect goes to stderr -> the output is written, whole or not at all.
 */
#include "inject.h"
#include "commands.h"
#include "common/err.h"
#include "common/mem.h"
#include "inject/config.h"
#include "inject/stream.h"
#include "show.h"
#include "table.h"
#include "terminal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 256 << 20, CHUNK = 64 << 10 };

/* --- files --- */

/* NULL: it cannot be read; `name` "-" is standard input. */
static char *read_file(const char *name, size_t *len, struct err *e)
{
	FILE *f = strcmp(name, "-") ? fopen(name, "re") : stdin;
	char *all = NULL;
	size_t n = 1, room = 0;

	for (*len = 0; f && n && *len < INPUT_MAX; *len += n) {
		if (room < *len + CHUNK + 1)
			all = mem_realloc(all, room = 2 * *len + CHUNK + 1);
		n = fread(all + *len, 1, CHUNK, f);
	}
	if (!f || ferror(f))
		err_sys(e, "%s", name);
	else if (*len >= INPUT_MAX)
		err_set(e, ERR_INVALID, "%s: more than 256 MiB", name);
	else
		n = 1;
	if (f && f != stdin)
		fclose(f);
	if (n == 1)
		return all;
	free(all);
	return NULL;
}

static int write_file(const char *name, const char *text, size_t len, struct err *e)
{
	FILE *f = name ? fopen(name, "we") : terminal_raw();
	bool fine = f && fwrite(text, 1, len, f) == len && !fflush(f);

	if (!fine)
		err_sys(e, "%s", name ? name : "standard output");
	if (f && name && fclose(f) && fine)
		return err_sys(e, "%s", name);
	return fine ? 0 : -1;
}

/* --- configuration --- */

static json_t *read_document(const char *name, struct err *e)
{
	size_t len;
	auto_free char *text = name ? read_file(name, &len, e) : NULL;
	json_t *v = text ? inject_read(text, len, e) : NULL;

	if (text && !v)
		err_wrap(e, "%s", name);
	return v;
}

static json_t *read_parts(const struct ctl *c, struct err *e)
{
	static const char *const parts[][2] = {{"values", "values"}, {"mesh", "meshConfig"}};
	json_t *all = json_object(), *v;

	for (unsigned i = 0; i < 2; i++) {
		const char *file = ctl_option(c, parts[i][0]);

		if (!file)
			continue;
		if (!(v = read_document(file, e))) {
			json_decref(all);
			return NULL;
		}
		json_object_set_new(all, parts[i][1], v);
	}
	return all;
}

struct inject_config *ctl_inject_config(const struct ctl *c, struct err *e)
{
	const char *native = ctl_option(c, "native"), *file = ctl_option(c, "config");
	json_t *all = file ? read_document(file, e) : read_parts(c, e), *own;
	struct inject_config *config;

	if (!all)
		return NULL;
	if (json_is_null(all)) {
		json_decref(all);
		all = json_object();
	}
	if (native && json_is_object(all)) {
		own = json_object_get(all, "agentd");
		own = !own || json_is_null(own) ? json_object() : json_incref(own);
		json_object_set_new(own, "native", json_boolean(!strcmp(native, "true")));
		json_object_set_new(all, "agentd", own);
	}
	config = inject_config_of(all, e);
	if (!config && file)
		err_wrap(e, "%s", file);
	json_decref(all);
	return config;
}

/* --- what is said of the pods --- */

static void print_said(json_t *all)
{
	json_t *said = ctl_printable(all), *one, *warning;
	size_t i, k;

	json_array_foreach (said, i, one) {
		const char *object = ctl_string(one, "object");

		if (json_object_get(one, "skipped"))
			fprintf(stderr, "===> Skipping injection because %s %s\n", object,
			    ctl_string(one, "skipped"));
		json_array_foreach (json_object_get(one, "warnings"), k, warning)
			fprintf(stderr, "agentctl: %s: %s\n", object, json_string_value(warning));
	}
	json_decref(said);
}

static const char *problem_of(const json_t *one)
{
	const char *refused = json_string_value(json_object_get(one, "refused"));
	const char *warning =
	    json_string_value(json_array_get(json_object_get(one, "warnings"), 0));

	return refused ? refused : warning ? warning : "";
}

static void print_table(const json_t *said)
{
	struct table *t = table_new(4);
	json_t *one;
	size_t i;

	table_row(t, "OBJECT", "INJECTED", "RULE", "PROBLEM", NULL);
	json_array_foreach (said, i, one) {
		bool yes = json_is_true(json_object_get(one, "injected"));

		table_row(t, ctl_string(one, "object"),
		    json_object_get(one, "refused") ? "refused"
		    : yes                           ? "yes"
						    : "no",
		    ctl_string(one, "rule"), problem_of(one), NULL);
	}
	table_print_free(&t);
}

/* Exit status. */
static int print_check(const struct ctl *c, json_t *said)
{
	int status = CTL_OK;
	json_t *one, *answer;
	size_t i;

	json_array_foreach (said, i, one)
		if (json_object_get(one, "refused"))
			status = CTL_PROBLEM;
	if (!c->json) {
		print_table(said);
		return status;
	}
	answer = json_pack("{s:O}", "pods", said);
	ctl_print_answer(c, answer);
	json_decref(answer);
	return status;
}

/* --- the commands --- */

static int fail(const struct err *e)
{
	fprintf(stderr, "agentctl: %s\n", e->msg);
	return CTL_PROBLEM;
}

static int process(const struct ctl *c, struct inject_work *w)
{
	struct err e;
	size_t len, out_len;
	auto_free char *text = read_file(ctl_option(c, "file"), &len, &e);
	auto_free char *out = text ? inject_stream(w, text, len, &out_len, &e) : NULL;

	if (!out)
		return fail(&e);
	if (w->action == INJECT_CHECK)
		return print_check(c, w->said);
	print_said(w->said);
	return write_file(c->output, out, out_len, &e) ? fail(&e) : CTL_OK;
}

static int run(const struct ctl *c, struct inject_config *config, enum inject_action action)
{
	struct inject_work w = {.config = config, .action = action, .said = json_array()};
	int status = process(c, &w);

	json_decref(w.said);
	return status;
}

int ctl_inject_check_usage(const struct ctl *c, const struct ctl_command *command)
{
	const char *native = ctl_option(c, "native");

	if (!ctl_option(c, "file"))
		fprintf(stderr, "agentctl: %s needs -f FILE, or -f - for standard input\n",
		    command->noun);
	else if (ctl_option(c, "config") && (ctl_option(c, "values") || ctl_option(c, "mesh")))
		fprintf(stderr, "agentctl: --config, or --values and --mesh\n");
	else if (native && strcmp(native, "true") != 0 && strcmp(native, "false") != 0)
		fprintf(stderr, "agentctl: --native takes true or false, not %s\n", native);
	else
		return CTL_OK;
	return ctl_command_usage(command, stderr);
}

static int inject(const struct ctl *c)
{
	struct inject_config *config;
	struct err e;
	int status = ctl_inject_check_usage(c, &ctl_inject);

	if (status)
		return status;
	if (!(config = ctl_inject_config(c, &e)))
		return fail(&e);
	status = run(c, config, ctl_option(c, "check") ? INJECT_CHECK : INJECT_ADD);
	inject_config_free(&config);
	return status;
}

static int uninject(const struct ctl *c)
{
	int status = ctl_inject_check_usage(c, &ctl_uninject);

	return status ? status : run(c, NULL, INJECT_TAKE_BACK);
}

const struct ctl_command ctl_inject = {
    .noun = "inject",
    .args = "-f FILE|- [-o FILE]",
    .help = "add Envoy and agentd's volume to the pods of manifests",
    .writes = true,
    .options = {{"file", "FILE", "manifests, YAML or JSON; -: standard input"},
	{"check", NULL, "only say what would be done, and what a node would refuse"},
	{"config", "FILE", "{values, meshConfig, agentd}"},
	{"values", "FILE", "istiod's values, as its injector has them"},
	{"mesh", "FILE", "istiod's mesh configuration"},
	{"native", "BOOL", "true (default): a sidecar of initContainers; false: a container"}},
    .run = inject,
};
const struct ctl_command ctl_uninject = {
    .noun = "uninject",
    .args = "-f FILE|- [-o FILE]",
    .help = "take back what agentctl inject added",
    .writes = true,
    .options = {{"file", "FILE", "manifests, YAML or JSON; -: standard input"}},
    .run = uninject,
};
