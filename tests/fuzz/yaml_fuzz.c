/* yaml_fuzz.c - any bytes: refused with a line, or a document that keeps every promise of yaml.h.
 */
#include "base/yaml.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DEPTH_MAX = 32, NODES_MAX = 4096 };

struct walk {
	const struct yaml_doc *yaml;
	unsigned lines, nodes;
};

static void must(int promise)
{
	if (!promise)
		abort();
}

static void check_text(const char *s, size_t len, int is_key)
{
	for (size_t i = 0; i < len; i++)
		must((unsigned char)s[i] >= 0x20 ? s[i] != 0x7f
						 : !is_key && (s[i] == '\n' || s[i] == '\t'));
}

static void check(struct walk *w, json_t *value, unsigned depth)
{
	const char *key;
	json_t *child;
	size_t i;

	must(++w->nodes <= NODES_MAX);
	must(yaml_doc_line(w->yaml, value) >= 1 && yaml_doc_line(w->yaml, value) <= w->lines);
	if (json_is_string(value)) {
		check_text(json_string_value(value), json_string_length(value), 0);
		return;
	}
	must(depth < DEPTH_MAX);
	if (json_is_array(value)) {
		json_array_foreach (value, i, child)
			check(w, child, depth + 1);
		return;
	}
	must(json_is_object(value));
	json_object_foreach (value, key, child) {
		check_text(key, strlen(key), 1);
		check(w, child, depth + 1);
	}
}

/* What is taken is the same for both readers; shapes and keys, too. */
static void check_typed(json_t *text, json_t *typed)
{
	const char *key;
	json_t *child;
	size_t i;

	must(json_is_string(text) != (json_is_object(typed) || json_is_array(typed)));
	must(json_object_size(text) == json_object_size(typed));
	must(json_array_size(text) == json_array_size(typed));
	json_array_foreach (text, i, child)
		check_typed(child, json_array_get(typed, i));
	json_object_foreach (text, key, child)
		check_typed(child, json_object_get(typed, key));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = {0};
	json_t *typed = yaml_typed((const char *)data, size, &e);
	struct yaml_doc *y = yaml_doc_parse((const char *)data, size, &e);
	struct walk w = {.yaml = y, .lines = 2}; /* an empty value may begin behind the end */

	must(!y == !typed);
	if (typed)
		check_typed(yaml_doc_root(y), typed);
	json_decref(typed);
	if (!y) {
		must(strncmp(e.msg, "line ", 5) == 0 && e.code == ERR_INVALID);
		return 0;
	}
	for (size_t i = 0; i < size; i++)
		w.lines += data[i] == '\n' || data[i] == '\r' || data[i] >= 0x80; /* NEL, LS, PS */
	if (yaml_doc_line(y, yaml_doc_root(y)) || json_object_size(yaml_doc_root(y)) > 0)
		check(&w, yaml_doc_root(y), 0);
	yaml_doc_free(&y);
	return 0;
}
