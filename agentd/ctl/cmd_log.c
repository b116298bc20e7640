/* cmd_log.c - agentctl log [SCOPE:LEVEL] */
#include "common/mem.h"
#include "ctl.h"
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

int cmd_log(const struct ctl *c)
{
	auto_free char *target =
	    mem_printf("/logging%s%s", c->name ? "?level=" : "", c->name ? c->name : "");
	struct table *t;
	const char *scope;
	json_t *levels, *level;
	int status;

	if (c->name && !is_spec(c->name)) {
		fprintf(stderr, "agentctl: not a level: %s (like xds:debug)\n", c->name);
		return CTL_USAGE;
	}
	levels = ctl_request(c, c->name ? "POST" : "GET", target, &status);
	if (!levels)
		return status;
	if (c->json) {
		ctl_print_json(levels);
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
