/* patch.c - both values are walked together; a path grows and shrinks along the way.
 *
 * A list is walked with one index, that of the list as it is being changed: an element that goes on
 * is entered, one that is not found further on in `to` is removed, one that is new is added there.
 * So the order of operations is the order in which they can be applied.
 */
#include "patch.h"
#include "common/mem.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct patch {
	json_t *operations;
	char *path; /* RFC 6901 */
	size_t len, room;
};

static void compare(struct patch *p, json_t *from, json_t *to);

/* --- the path --- */

static void path_put(struct patch *p, char c)
{
	if (p->len + 2 > p->room) {
		p->room = 2 * p->room + 64;
		p->path = mem_realloc(p->path, p->room);
	}
	p->path[p->len++] = c;
	p->path[p->len] = '\0';
}

static void path_enter(struct patch *p, const char *key)
{
	path_put(p, '/');
	for (; *key; key++) {
		if (*key == '~' || *key == '/')
			path_put(p, '~');
		path_put(p, (char)(*key == '~' ? '0' : *key == '/' ? '1' : *key));
	}
}

static void path_enter_at(struct patch *p, size_t index)
{
	char text[24];

	snprintf(text, sizeof(text), "%zu", index);
	path_enter(p, text);
}

static void path_leave(struct patch *p, size_t len)
{
	p->len = len;
	p->path[len] = '\0';
}

/* --- operations --- */

static void add(struct patch *p, const char *op, json_t *value)
{
	json_t *o = json_pack("{s:s, s:s}", "op", op, "path", p->path);

	if (value)
		json_object_set(o, "value", value);
	json_array_append_new(p->operations, o);
}

static void compare_member(struct patch *p, const char *key, json_t *from, json_t *to)
{
	size_t len = p->len;

	path_enter(p, key);
	if (!to)
		add(p, "remove", NULL);
	else if (!from)
		add(p, "add", to);
	else
		compare(p, from, to);
	path_leave(p, len);
}

static void compare_objects(struct patch *p, json_t *from, json_t *to)
{
	const char *key;
	json_t *v;

	json_object_foreach (from, key, v)
		compare_member(p, key, v, json_object_get(to, key));
	json_object_foreach (to, key, v)
		if (!json_object_get(from, key))
			compare_member(p, key, NULL, v);
}

static void at(struct patch *p, size_t index, const char *op, json_t *value)
{
	size_t len = p->len;

	path_enter_at(p, index);
	add(p, op, value);
	path_leave(p, len);
}

static bool is_same(const json_t *a, const json_t *b)
{
	const json_t *name = json_object_get(a, "name"), *other = json_object_get(b, "name");

	if (json_is_string(name) && json_is_string(other))
		return json_equal(name, other);
	return json_equal(a, b);
}

/* is_same() as a text: a name, else all of it, which is no JSON and JSON. */
static char *identity_of(const json_t *v)
{
	const json_t *name = json_object_get(v, "name");

	if (json_is_string(name))
		return mem_printf("=%s", json_string_value(name));
	return json_dumps(v, JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_COMPACT);
}

/* Of each element of `from`: the last place in `to` where the same one is, counted from 1; 0: it
 * is not there.  The caller frees it. */
static size_t *places(const json_t *from, const json_t *to)
{
	size_t *out = mem_zalloc((json_array_size(from) + 1) * sizeof(*out)), i;
	json_t *known = json_object(), *v;

	json_array_foreach (to, i, v) {
		auto_free char *text = identity_of(v);

		json_object_set_new(known, text, json_integer((json_int_t)i + 1));
	}
	json_array_foreach (from, i, v) {
		auto_free char *text = identity_of(v);

		out[i] = (size_t)json_integer_value(json_object_get(known, text));
	}
	json_decref(known);
	return out;
}

/* Places are asked for from the first difference on. */
static void compare_arrays(struct patch *p, json_t *from, json_t *to)
{
	size_t i = 0, k = 0, len = p->len;
	auto_free size_t *later = NULL;

	while (i < json_array_size(from) || k < json_array_size(to)) {
		json_t *old = json_array_get(from, i), *new = json_array_get(to, k);
		bool same = old && new &&is_same(old, new);

		if (!same && !later)
			later = places(from, to);
		if (same) {
			path_enter_at(p, k);
			compare(p, old, new);
			path_leave(p, len);
			i++, k++;
		} else if (old && later[i] <= k) {
			at(p, k, "remove", NULL);
			i++;
		} else {
			at(p, k++, "add", new);
		}
	}
}

static void compare(struct patch *p, json_t *from, json_t *to)
{
	if (json_is_object(from) && json_is_object(to))
		compare_objects(p, from, to);
	else if (json_is_array(from) && json_is_array(to))
		compare_arrays(p, from, to);
	else if (!json_equal(from, to))
		add(p, "replace", to);
}

json_t *inject_patch(json_t *from, json_t *to)
{
	struct patch p = {.operations = json_array()};

	path_put(&p, '\0');
	path_leave(&p, 0);
	compare(&p, from, to);
	free(p.path);
	return p.operations;
}
