/* yaml.h - a YAML document as a jansson value, with the line each value stood on.
 *
 * Every scalar becomes a JSON string: "0777", "true", "no" and "1e3" mean what their reader says
 * they mean.  Refused: aliases and anchors, tags, a second document, duplicate keys, keys that are
 * not scalars, NUL and control characters, invalid UTF-8, depth above 32, more than 4,096 nodes,
 * input above 1 MiB.  Errors say "line N: ...".
 */
#pragma once
#include <jansson.h>
#include <stddef.h>

struct err;
struct yaml;

struct yaml *yaml_parse(const char *text, size_t len, struct err *e);
void yaml_free(struct yaml **y);
json_t *yaml_root(const struct yaml *y); /* borrowed */
/* Line of a value of this document, 1-based; 0 if it is none. */
unsigned yaml_line(const struct yaml *y, const json_t *value);
