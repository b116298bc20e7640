/* command.h - one command of agentctl: its words, its options, its help, and what it does.
 *
 * A command is one file that defines its `struct ctl_command`, and a line in commands.h.
 *
 * Exit status of every command: 0 fine, 1 a problem was found (and printed), 2 usage, 3 the agent
 * cannot be reached, 4 nothing has the name that was given.
 */
#pragma once
#include <stdbool.h>
#include <stdio.h>

enum { CTL_OK, CTL_PROBLEM, CTL_USAGE, CTL_UNREACHABLE, CTL_NOT_FOUND };

enum { CTL_WORDS_MAX = 2, CTL_OPTIONS_MAX = 7 };

/* The options of the command line; borrowed from argv. */
struct ctl_given {
	const char *name;  /* NULL: the end */
	const char *value; /* "": it takes none */
};
struct ctl {
	const char *run;    /* directory of admin.sock */
	const char *output; /* of -o; NULL: it was not given */
	bool json;          /* -o json or yaml */
	bool yaml;
	const char *words[CTL_WORDS_MAX + 1]; /* after noun and verb; then NULL */
	const struct ctl_given *options;      /* of the command; NULL: none */
};

struct ctl_option {
	const char *name;  /* "uid"; NULL: the end */
	const char *value; /* "N"; NULL: it takes none */
	const char *help;
};
struct ctl_command {
	const char *noun, *verb; /* "redirect", "trace"; most have no verb: NULL */
	const char *args;        /* "[POD]" */
	const char *help;        /* one line */
	const char *more;        /* a second line about args; NULL: none */
	bool writes;             /* a file: -o FILE */
	unsigned least, most;    /* how many words; at most CTL_WORDS_MAX */
	struct ctl_option options[CTL_OPTIONS_MAX + 1];
	int (*run)(const struct ctl *c); /* the exit status */
};

/* NULL: it was not given; "": it was, and takes no value. */
const char *ctl_option(const struct ctl *c, const char *name);
bool ctl_command_has_option(const struct ctl_command *command, const char *name);
/* Prints how to call it; returns CTL_USAGE. */
int ctl_command_usage(const struct ctl_command *command, FILE *out);
void ctl_command_help(const struct ctl_command *command, FILE *out); /* all about it */
