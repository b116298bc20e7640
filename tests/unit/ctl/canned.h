/* canned.h - a ctl_request() that answers with what the test wrote, and what a command printed. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "ctl/commands.h"

struct printed {
	int status; /* exit status of the command */
	char out[64 * 1024], err[8 * 1024];
};

/* What the next requests get: JSON text, or NULL and the status of a failure. */
void canned_answer(const char *json, int failure);
/* The same as the text that it is, for a ctl_envoy_admin(): "ENVOY page" is then the request. */
char *canned_text(const struct ctl *c, const char *page, size_t *len, int *status);
/* "METHOD target" of the last request. */
const char *canned_request(void);

/* Run a command, with one word or none, with stdout and stderr caught. */
const struct printed *run_command(const struct ctl_command *command, const char *word, bool json);
/* The same with all that argv can say; `run` is set here. */
const struct printed *run_asked(int (*cmd)(const struct ctl *c), struct ctl c);
/* Line `n` (from 0) of what was printed on stdout, or "". */
const char *line(const struct printed *p, unsigned n);
/* Each answer here must be survived, by tables and by JSON, with and without a name: keys missing,
 * of another type, lists that are none. */
void survive_strange_answers(const struct ctl_command *command, const char *const *answers);
