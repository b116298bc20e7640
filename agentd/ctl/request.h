/* request.h - one request to the admin socket of agentd. */
#pragma once
#include "command.h"
#include <jansson.h>

/* One request to the admin socket.  On failure it prints the reason to stderr, sets `*status` and
 * returns NULL.  The answer is an object; unless c->json its strings and keys are printable ASCII.
 */
json_t *ctl_request(const struct ctl *c, const char *method, const char *target, int *status);

/* The same for an endless answer with one object a line.  `print` shows each object.  Returns the
 * exit status when the answer ends. */
int ctl_stream(const struct ctl *c, const char *target,
    void (*print)(const struct ctl *c, const json_t *line));
