/* show.h - things in an answer: found, and printed as JSON or as a tree. */
#pragma once
#include <jansson.h>

/* The string at `key`, or "". */
const char *ctl_string(const json_t *object, const char *key);
char *ctl_count(const json_t *object, const char *key); /* as text, the caller's */
void ctl_print_json(const json_t *value);
/* An object or array, indented, "key: value" a line: for the detail of one thing. */
void ctl_print_tree(const json_t *value, int indent);
