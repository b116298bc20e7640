/* show.h - things in an answer: found, and printed as JSON or YAML. */
#pragma once
#include "command.h"
#include <jansson.h>

/* The string at `key`, or "". */
const char *ctl_string(const json_t *object, const char *key);
char *ctl_count(const json_t *object, const char *key); /* as text, the caller's */
void ctl_print_yaml(const json_t *value); /* an object or an array, its strings printable ASCII */
/* Text of pods and peers, as it may be shown: nothing of it steers a terminal.  The caller's. */
json_t *ctl_printable_string(const char *s);
json_t *ctl_printable(json_t *value); /* all strings and keys in it */
/* As -o asks, whatever its strings hold. */
void ctl_print_answer(const struct ctl *c, const json_t *value);
/* The same of a text that is JSON (base/json_walk.h), as it goes by. */
void ctl_print_text(const struct ctl *c, const char *text, size_t len);
