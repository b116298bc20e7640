/* completion.c - agentctl completion: what a bash evaluates to complete agentctl's words.
 *
 * It comes from the table of commands.  Names of pods and accounts are asked of agentd, as root
 * only.
 */
#include "commands.h"
#include <stdio.h>
#include <string.h>

#define ROW(name) &ctl_##name,
static const struct ctl_command *const commands[] = {CTL_COMMANDS(ROW) NULL};
#undef ROW

static void print_nouns(void)
{
	printf("\tlocal nouns='");
	for (const struct ctl_command *const *at = commands; *at; at++)
		if (!(*at)->verb)
			printf("%s%s", at == commands ? "" : " ", (*at)->noun);
	printf("'\n");
}

/* And not PODS.json. */
static bool takes_a_pod(const struct ctl_command *command)
{
	const char *pod = strstr(command->args, "POD");

	return pod && pod[3] != 'S';
}

/* Its verbs and its options. */
static void print_words_of(const struct ctl_command *command)
{
	printf("\t%s) words='", command->noun);
	for (const struct ctl_command *const *at = commands; *at; at++) {
		if (strcmp((*at)->noun, command->noun) != 0)
			continue;
		if ((*at)->verb)
			printf("%s ", (*at)->verb);
		for (const struct ctl_option *o = (*at)->options; o->name; o++)
			printf("--%s ", o->name);
	}
	printf("'%s ;;\n", takes_a_pod(command) ? " pods=1" : "");
}

static int completion(const struct ctl *c)
{
	(void)c;
	printf("# bash: eval \"$(agentctl completion)\"\n"
	       "_agentctl() {\n"
	       "\tlocal word=${COMP_WORDS[COMP_CWORD]} noun=${COMP_WORDS[1]} words='' pods=''\n");
	print_nouns();
	printf("\tif ((COMP_CWORD == 1)); then\n"
	       "\t\tCOMPREPLY=($(compgen -W \"$nouns --run --version --help\" -- \"$word\"))\n"
	       "\t\treturn\n"
	       "\tfi\n"
	       "\tcase $noun in\n");
	for (const struct ctl_command *const *at = commands; *at; at++)
		if (!(*at)->verb)
			print_words_of(*at);
	printf("\tesac\n"
	       "\t[ -z \"$pods\" ] ||\n"
	       "\t\twords+=\" $(agentctl pods 2>/dev/null | awk 'NR > 1 { print $1 }')\"\n"
	       "\tCOMPREPLY=($(compgen -W \"$words -o -w --help\" -- \"$word\"))\n"
	       "}\n"
	       "complete -F _agentctl agentctl\n");
	return CTL_OK;
}

const struct ctl_command ctl_completion = {
    .noun = "completion",
    .args = "",
    .help = "for bash: eval \"$(agentctl completion)\"",
    .run = completion,
};
