/* yaml_tree.h - one YAML document that is read as JSON, changed, and written again, so that what
 * was not changed stays as it is written: "0777", yes, quotes, block texts and the order of keys.
 * Comments and blank lines of a document that is written are lost.
 *
 * Plain scalars mean what they mean to Kubernetes (YAML 1.1: yes is true, 0777 is 511).  Refused:
 * aliases and anchors, tags, merge keys, duplicate keys, keys that are no scalars, a second
 * document, depth above 64, more than 1,000,000 nodes.  Errors say "line N: ...".
 */
#pragma once
#include <jansson.h>
#include <stddef.h>

struct err;
struct yaml_tree;

struct yaml_tree *yaml_tree_parse(const char *text, size_t len, struct err *e);
void yaml_tree_free(struct yaml_tree **t);
json_t *yaml_tree_value(const struct yaml_tree *t); /* borrowed; null: an empty document */

/* The tree becomes `value`.  The text is read again before it is handed out: -1 says that YAML
 * cannot hold it.  The caller frees `*out`.  After it, the tree can only be freed. */
int yaml_tree_write(struct yaml_tree *t, json_t *value, char **out, size_t *out_len, struct err *e);

/* The text of a member of a document's outermost map, read up to there and no further: also where
 * the document would be refused.  NULL: there is none; `e` is filled if what was read is no YAML,
 * or deeper than 1,000.  The caller frees it. */
char *yaml_tree_peek(const char *text, size_t len, const char *key, struct err *e);
