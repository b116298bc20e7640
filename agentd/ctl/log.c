/* log.c - agentctl log [SCOPE:LEVEL] */
#include "commands.h"
#include "common/mem.h"
#include "request.h"
#include "show.h"
#include "table.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Only what a level can be made of goes into the URL. */
static bool is_spec(const char *s)
{
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr(":,_-*", *s))
			return false;
	return true;
}

static int show_log(const struct ctl *c)
{
	const char *spec = c->words[0];
	auto_free char *target =
	    mem_printf("/logging%s%s", spec ? "?level=" : "", spec ? spec : "");
	struct table *t;
	const char *scope;
	json_t *levels, *level;
	int status;

	if (spec && !is_spec(spec)) {
		fprintf(stderr, "agentctl: not a level: %s (for example xds:debug)\n", spec);
		return CTL_USAGE;
	}
	levels = ctl_request(c, spec ? "POST" : "GET", target, &status);
	if (!levels)
		return status;
	if (c->json) {
		ctl_print_answer(c, levels);
	} else {
		t = table_new(2);
		table_row(t, "SCOPE", "LEVEL", NULL);
		json_object_foreach (levels, scope, level)
			table_row(t, scope, ctl_string(levels, scope), NULL);
		table_print_free(&t);
	}
	json_decref(levels);
	return status;
}

const struct ctl_command ctl_log = {
    .noun = "log",
    .args = "[SCOPE:LEVEL]",
    .help = "log levels, or change them: xds:debug, default:warn",
    .most = 1,
    .run = show_log,
};
