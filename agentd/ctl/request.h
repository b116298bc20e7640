/* request.h - one request to the admin socket of agentd. */
#pragma once
#include "command.h"
#include <jansson.h>

/* One request to the admin socket; NULL after saying on stderr why not (`*status` is then set).
 * The answer is an object; unless c->json its strings and keys are printable ASCII. */
json_t *ctl_request(const struct ctl *c, const char *method, const char *target, int *status);

/* The same for an answer without an end, one object in each line: prints each with `print`, until
 * the answer ends; the exit status. */
int ctl_stream(const struct ctl *c, const char *target,
    void (*print)(const struct ctl *c, const json_t *line));
