/* main.c - agentctl NOUN [NAME] [-o json|yaml] [-w]: what agentd knows, and why something is not.
 *
 * Options are read, wherever they stand -> the command that the words name -> has it that many
 * words, and those options? -> it runs, once or every 2 seconds.
 */
#include "commands.h"
#include "common/err.h"
#include "common/nearest.h"
#include "common/version.h"
#include "terminal.h"
#include "watch.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROW(name) &ctl_##name,
static const struct ctl_command *const commands[] = {CTL_COMMANDS(ROW) NULL};
#undef ROW

enum { COLUMN = 14, OPTIONS_MAX = 48, OWN = 256 };

/* --- help --- */

/* One line; words that are too long for their column go before what they are good for. */
static void print_row(const struct ctl_command *command, FILE *out)
{
	const char *verb = command->verb ? command->verb : "", *args = command->args;
	char words[COLUMN + 1];
	int len = snprintf(words, sizeof(words), "%s%s%s", verb, *verb && *args ? " " : "", args);

	if (len > COLUMN)
		fprintf(
		    out, "  %-10s %-*s %s: %s\n", command->noun, COLUMN, verb, args, command->help);
	else
		fprintf(out, "  %-10s %-*s %s\n", command->noun, COLUMN, words, command->help);
}

static int usage(FILE *out)
{
	fprintf(out, "usage: agentctl [--run DIR] NOUN [NAME] [-o json|yaml] [-w]\n\n");
	for (const struct ctl_command *const *at = commands; *at; at++)
		print_row(*at, out);
	fprintf(out,
	    "\n"
	    "  --run DIR      agentd's directory (default /run/agentd)\n"
	    "  -o json|yaml   all of the answer instead of a table\n"
	    "  -w, --watch    repeat every 2 seconds; a terminal shows what changed\n"
	    "  --version      version of agentctl\n\n"
	    "exit status: 0 fine, 1 a problem was found, 2 usage, 3 agentd not reachable,\n"
	    "4 no such name\n");
	return CTL_USAGE;
}

/* With its verbs, if it has some; NULL: of all. */
static void help(const struct ctl_command *command)
{
	if (!command) {
		usage(stdout);
		return;
	}
	ctl_command_help(command, stdout);
	if (command->verb)
		return;
	for (const struct ctl_command *const *at = commands; *at; at++)
		if ((*at)->verb && !strcmp((*at)->noun, command->noun))
			ctl_command_usage(*at, stdout);
}

/* --- the command line --- */

struct line {
	struct ctl ctl;
	struct ctl_given given[OPTIONS_MAX]; /* options of commands, each once */
	bool watch, help;
};

/* Those of agentctl, then those of every command: a name means the same in all of them. */
static void list_options(struct option out[OPTIONS_MAX])
{
	static const struct option general[] = {{"run", required_argument, NULL, 'r'},
	    {"output", required_argument, NULL, 'o'}, {"watch", no_argument, NULL, 'w'},
	    {"version", no_argument, NULL, 'v'}, {"help", no_argument, NULL, 'h'}};
	unsigned n = sizeof(general) / sizeof(*general);

	memcpy(out, general, sizeof(general));
	for (const struct ctl_command *const *at = commands; *at; at++)
		for (const struct ctl_option *o = (*at)->options; o->name; o++) {
			if (n + 1 == OPTIONS_MAX)
				abort();
			out[n] = (struct option){o->name,
			    o->value ? required_argument : no_argument, NULL, OWN + (int)n};
			n++;
		}
	out[n] = (struct option){0};
}

/* The last one counts. */
static void give(struct line *l, const char *name, const char *value)
{
	struct ctl_given *g = l->given;

	while (g->name && strcmp(g->name, name) != 0)
		g++;
	*g = (struct ctl_given){name, value ? value : ""};
}

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct line *l)
{
	struct option options[OPTIONS_MAX];
	int opt;

	list_options(options);
	while ((opt = getopt_long(argc, argv, "o:f:wh", options, NULL)) != -1) {
		if (opt >= OWN)
			give(l, options[opt - OWN].name, optarg);
		else if (opt == 'r')
			l->ctl.run = optarg;
		else if (opt == 'o')
			l->ctl.output = optarg;
		else if (opt == 'f')
			give(l, "file", optarg);
		else if (opt == 'w')
			l->watch = true;
		else if (opt == 'h')
			l->help = true;
		else if (opt == 'v')
			return printf("agentctl %s\n", version_text), CTL_OK;
		else
			return CTL_USAGE; /* getopt has said it */
	}
	l->ctl.yaml = l->ctl.output && !strcmp(l->ctl.output, "yaml");
	l->ctl.json = l->ctl.yaml || (l->ctl.output && !strcmp(l->ctl.output, "json"));
	return -1;
}

/* By noun and verb, or else by noun alone; NULL: there is none. */
static const struct ctl_command *find(int argc, char **argv)
{
	const struct ctl_command *found = NULL;

	for (const struct ctl_command *const *at = commands; *at; at++) {
		const char *verb = (*at)->verb;

		if (argc == 0 || strcmp((*at)->noun, argv[0]) != 0)
			continue;
		if (verb && argc > 1 && !strcmp(verb, argv[1]))
			return *at;
		if (!verb)
			found = *at;
	}
	return found;
}

/* Somebody has it, or it would not have been taken. */
static const struct ctl_command *owner_of(const char *option)
{
	const struct ctl_command *const *at = commands;

	while (!ctl_command_has_option(*at, option))
		at++;
	return *at;
}

/* Options that it does not have; the exit status. */
static int check_options(const struct ctl_command *command, const struct line *l)
{
	if (l->ctl.output && !l->ctl.json && !command->writes) {
		fprintf(stderr, "agentctl: -o takes json or yaml, not %s\n", l->ctl.output);
		return CTL_USAGE;
	}
	if (l->watch && (command->writes || ctl_command_has_option(command, "file"))) {
		fprintf(stderr, "agentctl: %s runs once: no -w\n", command->noun);
		return ctl_command_usage(command, stderr);
	}
	for (const struct ctl_given *g = l->given; g->name; g++) {
		const struct ctl_command *owner = owner_of(g->name);

		if (ctl_command_has_option(command, g->name))
			continue;
		fprintf(stderr, "agentctl: --%s belongs to %s%s%s\n", g->name, owner->noun,
		    owner->verb ? " " : "", owner->verb ? owner->verb : "");
		return ctl_command_usage(owner, stderr);
	}
	return CTL_OK;
}

/* What follows noun and verb goes into `l`; the exit status. */
static int check_words(const struct ctl_command *command, int argc, char **argv, struct line *l)
{
	unsigned n = (unsigned)argc - 1 - !!command->verb;

	if (n > command->most)
		fprintf(stderr, "agentctl: unexpected argument: %s\n", argv[argc - 1]);
	if (n > command->most || n < command->least)
		return ctl_command_usage(command, stderr);
	for (unsigned i = 0; i < n; i++)
		l->ctl.words[i] = argv[(unsigned)argc - n + i];
	return CTL_OK;
}

/* A slip costs one line. */
static int no_such_noun(const char *noun)
{
	struct nearest n = {.wanted = noun};
	char shown[80];

	for (const struct ctl_command *const *at = commands; *at; at++)
		nearest_consider(&n, (*at)->noun);
	err_printable(shown, sizeof(shown), noun, (unsigned)strlen(noun));
	fprintf(stderr, "agentctl: no such noun: %s; nearest: %s (agentctl --help lists all)\n",
	    shown, n.name);
	return CTL_USAGE;
}

/* --- running --- */

/* What it prints goes into `*text`, the caller's; the exit status. */
static int run_into(const struct ctl_command *command, const struct ctl *c, char **text)
{
	size_t size = 0;
	FILE *screen = stdout;
	int status;

	stdout = open_memstream(text, &size);
	if (!stdout)
		abort();
	status = command->run(c);
	fclose(stdout);
	stdout = screen;
	terminal_clean(*text, size);
	return status;
}

/* On a terminal, with what is not as it was marked; `*before` becomes what is there now. */
static int run_drawn(const struct ctl_command *command, const struct ctl *c, char **before)
{
	char *now = NULL;
	const int status = run_into(command, c, &now);

	ctl_watch_draw(terminal_raw(), *before, now);
	fflush(terminal_raw());
	free(*before);
	*before = now;
	return status;
}

/* Until it makes no sense: agentd is gone, or nobody reads (SIGPIPE is off). */
static int run(const struct ctl_command *command, const struct line *l)
{
	const bool redraw = l->watch && isatty(STDOUT_FILENO) && command != &ctl_redirect_trace;
	char *before = NULL;
	int status;

	for (;;) {
		status = redraw ? run_drawn(command, &l->ctl, &before) : command->run(&l->ctl);
		if (fflush(stdout) || ferror(stdout)) {
			fprintf(stderr, "agentctl: cannot write the answer: %m\n");
			status = CTL_PROBLEM;
			break;
		}
		if (!l->watch || status == CTL_USAGE || status == CTL_UNREACHABLE)
			break;
		sleep(2);
		if (!redraw)
			printf("\n");
	}
	free(before);
	return status;
}

static int run_words(int argc, char **argv, struct line *l)
{
	const struct ctl_command *command = find(argc, argv);
	int status;

	if (l->help) {
		help(command);
		return CTL_OK;
	}
	if (argc > 0 && !command)
		return no_such_noun(argv[0]);
	if (!command)
		return usage(stderr);
	status = check_words(command, argc, argv, l);
	if (status == CTL_OK)
		status = check_options(command, l);
	return status == CTL_OK ? run(command, l) : status;
}

int main(int argc, char **argv)
{
	struct line l = {.ctl = {.run = "/run/agentd"}};
	int status;

	terminal_guard();
	status = parse_options(argc, argv, &l);
	l.ctl.options = l.given;
	return status >= 0 ? status : run_words(argc - optind, argv + optind, &l);
}
