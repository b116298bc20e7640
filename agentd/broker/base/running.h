/* running.h - the agentd that runs in a run directory, and its command line: for agentd --check. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

/* Embed it zeroed. */
struct broker_running {
	pid_t pid;
	int argc;
	char **argv; /* ends with NULL; ours, as its text */
	char *text;
};

/* Who holds <run>/lock, and what it was started with.  False: nobody, or it cannot be seen. */
bool broker_running_find(struct broker_running *r, const char *run);
void broker_running_clear(struct broker_running *r);
