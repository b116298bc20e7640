/* version.c - agentctl version [--deps] */
#include "common/version.h"
#include "commands.h"
#include "request.h"
#include "show.h"
#include "table.h"
#include <stdio.h>

static int show_version(const struct ctl *c)
{
	const char *library;
	json_t *answer, *version;
	struct table *t;
	int status;

	answer = ctl_request(c, "GET", "/version", &status);
	if (!answer)
		return status;
	if (!ctl_option(c, "deps"))
		json_object_del(answer, "libraries");
	if (c->json) {
		json_object_set_new(answer, "agentctl", json_string(version_text));
		ctl_print_answer(c, answer);
	} else {
		t = table_new(2);
		table_row(t, "PROGRAM", "VERSION", NULL);
		table_row(t, "agentctl", version_text, NULL);
		table_row(t, "agentd", ctl_string(answer, "agentd"), NULL);
		json_object_foreach (json_object_get(answer, "libraries"), library, version)
			table_row(t, library,
			    json_is_string(version) ? json_string_value(version) : "", NULL);
		table_print_free(&t);
	}
	json_decref(answer);
	return status;
}

const struct ctl_command ctl_version = {
    .noun = "version",
    .args = "",
    .help = "of agentctl and of agentd; --deps: also of agentd's libraries",
    .options = {{"deps", NULL, "also the libraries of agentd's worker"}},
    .run = show_version,
};
