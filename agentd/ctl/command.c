/* command.c - see command.h. */
#include "command.h"
#include <string.h>

const char *ctl_option(const struct ctl *c, const char *name)
{
	for (const struct ctl_given *g = c->options; g && g->name; g++)
		if (!strcmp(g->name, name))
			return g->value;
	return NULL;
}

bool ctl_command_has_option(const struct ctl_command *command, const char *name)
{
	for (const struct ctl_option *o = command->options; o->name; o++)
		if (!strcmp(o->name, name))
			return true;
	return false;
}

static void print_words(const struct ctl_command *command, FILE *out)
{
	fprintf(out, "usage: agentctl %s", command->noun);
	if (command->verb)
		fprintf(out, " %s", command->verb);
	for (const struct ctl_option *o = command->options; o->name; o++)
		if (!strstr(command->args, o->name)) /* else they say how it is to be used */
			fprintf(out, " [--%s%s%s]", o->name, o->value ? " " : "",
			    o->value ? o->value : "");
	fprintf(out, "%s%s\n", *command->args ? " " : "", command->args);
}

int ctl_command_usage(const struct ctl_command *command, FILE *out)
{
	print_words(command, out);
	if (command->more)
		fprintf(out, "  %s\n", command->more);
	return CTL_USAGE;
}

void ctl_command_help(const struct ctl_command *command, FILE *out)
{
	ctl_command_usage(command, out);
	fprintf(out, "\n%s\n", command->help);
	for (const struct ctl_option *o = command->options; o->name; o++)
		fprintf(out, "  --%s %-*s %s\n", o->name, 10 - (int)strlen(o->name),
		    o->value ? o->value : "", o->help);
	fprintf(out, "\nagentctl --help lists all commands.\n");
}
