/* yaml.h - a YAML document as a jansson value, with the line of each value.
 *
 * Every scalar becomes a JSON string: "0777", "true", "no" and "1e3" mean what their reader says
 * they mean; or what they mean to Go's YAML.  Refused: aliases and anchors, tags, a second
 * document, duplicate keys, keys that are not scalars, NUL and control characters, invalid UTF-8,
 * depth above 32, more than 4,096 nodes, input above 1 MiB.  Errors say "line N: ...".
 */
#pragma once
#include <jansson.h>
#include <stddef.h>

struct err;
struct yaml_doc;

struct yaml_doc *yaml_doc_parse(const char *text, size_t len, struct err *e);
void yaml_doc_free(struct yaml_doc **y);
json_t *yaml_doc_root(const struct yaml_doc *y); /* borrowed */
/* Line of a value of this document, 1-based; 0: it is not one. */
unsigned yaml_doc_line(const struct yaml_doc *y, const json_t *value);

/* The document alone, its plain scalars as yaml_scalar.h reads them.  NULL: refused; the caller's.
 */
json_t *yaml_typed(const char *text, size_t len, struct err *e);
