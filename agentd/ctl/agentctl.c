/* agentctl.c - agentctl NOUN [NAME] [-o json] [-w]: what agentd knows, and why something is not. */
#include "ctl.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command {
	const char *noun, *name, *help;
	int (*run)(const struct ctl *c);
} commands[] = {
    {"status", "", "agentd, its control planes, what is wrong", cmd_status},
    {"ready", "", "whether all pods of before a start are served again (a probe)", cmd_ready},
    {"pods", "[POD]", "the pods of this node, or all about one (ns/name or uid)", cmd_pods},
    {"certs", "[SA]", "certificates: SPIFFE id, serial, expiry, who uses it", cmd_certs},
    {"xds", "[POD]", "configuration streams: types, versions, ACKs and NACKs", cmd_xds},
    {"redirect", "[POD]", "whose traffic is redirected, or not; counters by rule", cmd_redirect},
    {"redirect", "explain", "--pod POD [--uid N --gid N] [--udp] [SRC] DST: what decides",
	cmd_redirect},
    {"redirect", "trace [POD]", "decisions as they fall, until Ctrl-C", cmd_redirect},
    {"dns", "[POD [NAME]]", "whose DNS is answered, or not; what a name is there", cmd_dns},
    {"log", "[SCOPE:LEVEL]", "log levels, or change them: xds:debug, default:warn", cmd_log},
    {"version", "", "of agentctl and of agentd; --deps: of agentd's libraries, too", cmd_version},
};
enum { NCOMMANDS = sizeof(commands) / sizeof(*commands) };

static void usage(FILE *out)
{
	fprintf(out, "usage: agentctl [--run DIR] NOUN [NAME] [-o json] [-w]\n\n");
	for (unsigned i = 0; i < NCOMMANDS; i++)
		fprintf(
		    out, "  %-8s %-14s %s\n", commands[i].noun, commands[i].name, commands[i].help);
	fprintf(out,
	    "\n"
	    "  --run DIR      agentd's directory (default /run/agentd)\n"
	    "  -o json        JSON instead of a table\n"
	    "  -w, --watch    again every 2 seconds\n"
	    "  --version      version of agentctl\n\n"
	    "exit status: 0 fine, 1 a problem was found, 2 usage, 3 agentd not reachable\n");
}

static const struct command *find(const char *noun)
{
	for (unsigned i = 0; i < NCOMMANDS; i++)
		if (!strcmp(commands[i].noun, noun))
			return &commands[i];
	return NULL;
}

/* -1: go on; else the exit status. */
static int parse_options(int argc, char **argv, struct ctl *c, bool *watch)
{
	static const struct option options[] = {{"run", required_argument, NULL, 'r'},
	    {"output", required_argument, NULL, 'o'}, {"watch", no_argument, NULL, 'w'},
	    {"version", no_argument, NULL, 'v'}, {"help", no_argument, NULL, 'h'},
	    {"pod", required_argument, NULL, 'p'}, {"uid", required_argument, NULL, 'u'},
	    {"gid", required_argument, NULL, 'g'}, {"udp", no_argument, NULL, 'U'},
	    {"deps", no_argument, NULL, 'd'}, {0}};
	int opt;

	while ((opt = getopt_long(argc, argv, "o:wh", options, NULL)) != -1) {
		if (opt == 'r')
			c->run = optarg;
		else if (opt == 'o' && !strcmp(optarg, "json"))
			c->json = true;
		else if (opt == 'w')
			*watch = true;
		else if (opt == 'p')
			c->explain.pod = optarg;
		else if (opt == 'u')
			c->explain.uid = optarg;
		else if (opt == 'g')
			c->explain.gid = optarg;
		else if (opt == 'U')
			c->explain.udp = true;
		else if (opt == 'd')
			c->deps = true;
		else if (opt == 'v')
			return puts("agentctl " AGENTD_VERSION), CTL_OK;
		else if (opt == 'h')
			return usage(stdout), CTL_OK;
		else {
			if (opt == 'o')
				fprintf(stderr, "agentctl: -o takes json, not %s\n", optarg);
			return usage(stderr), CTL_USAGE;
		}
	}
	return -1;
}

/* Of the noun and its names; those of `redirect` have verbs. */
static int words_of(const struct command *command)
{
	if (command->run == cmd_redirect)
		return 1 + CTL_WORDS_MAX;
	if (command->run == cmd_dns)
		return 3;
	return *command->name ? 2 : 1;
}

static bool has_question(const struct ctl *c)
{
	return c->explain.pod || c->explain.uid || c->explain.gid || c->explain.udp;
}

/* The command that argv names, with its NAME in `c`; NULL after saying what is wrong. */
static const struct command *parse_noun(int argc, char **argv, struct ctl *c)
{
	const struct command *command = argc > 0 ? find(argv[0]) : NULL;

	if (argc > 0 && !command)
		fprintf(stderr, "agentctl: no such noun: %s\n", argv[0]);
	if (command && argc > words_of(command)) {
		fprintf(stderr, "agentctl: too much: %s\n", argv[argc - 1]);
		command = NULL;
	}
	if (command && command->run != cmd_redirect && has_question(c)) {
		fprintf(stderr, "agentctl: --pod, --uid, --gid and --udp belong to redirect "
				"explain\n");
		command = NULL;
	}
	if (command && command->run != cmd_version && c->deps) {
		fprintf(stderr, "agentctl: --deps belongs to version\n");
		command = NULL;
	}
	if (!command)
		usage(stderr);
	else if (argc > 1)
		c->name = argv[1];
	for (int i = 2; command && i < argc; i++)
		c->words[i - 2] = argv[i];
	return command;
}

/* Until it makes no sense: agentd is gone, or nobody reads (SIGPIPE is off). */
static int run(const struct command *command, const struct ctl *c, bool watch)
{
	for (;;) {
		int status = command->run(c);

		if (fflush(stdout) || ferror(stdout)) {
			fprintf(stderr, "agentctl: cannot write the answer: %m\n");
			return CTL_PROBLEM;
		}
		if (!watch || status == CTL_USAGE || status == CTL_UNREACHABLE)
			return status;
		sleep(2);
		printf("\n");
	}
}

int main(int argc, char **argv)
{
	struct ctl c = {.run = "/run/agentd"};
	const struct command *command;
	bool watch = false;
	int status = parse_options(argc, argv, &c, &watch);

	if (status >= 0)
		return status;
	command = parse_noun(argc - optind, argv + optind, &c);
	return command ? run(command, &c, watch) : CTL_USAGE;
}
