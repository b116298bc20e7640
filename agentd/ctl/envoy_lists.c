/* envoy_lists.c - the top's array -> each object in it -> each list that is asked for -> each
 * entry, picked into a small tree, taken, freed.
 */
#include "envoy_lists.h"
#include "base/json_walk.h"
#include "common/mem.h"

enum { ENTRIES_MORE = 1000, ENTRY_LEAST = 512 };

struct reading {
	const struct envoy_lists *what;
	void *ctx;
	struct json_walk walk;
	unsigned left; /* values that this entry may still have */
};

size_t envoy_lists_most(size_t len)
{
	return ENTRIES_MORE + len / ENTRY_LEAST;
}

static const char *find(const struct reading *r, const char *const *words)
{
	while (*words && !json_walk_is(&r->walk, *words))
		words++;
	return *words;
}

/* NULL: it is none that is kept. */
static json_t *leaf(const struct reading *r)
{
	if (r->walk.len > ENVOY_LISTS_TEXT_MAX)
		return NULL;
	return json_loadb(r->walk.token, r->walk.len, JSON_DECODE_ANY, NULL);
}

/* The value that begins with `first`, to its end. */
static json_t *pick(struct reading *r, enum json_token first)
{
	const char *key = NULL;
	enum json_token t;
	json_t *v;

	if (!r->left) {
		json_walk_skip(&r->walk, first);
		return NULL;
	}
	r->left--;
	if (first != JSON_WALK_OBJECT && first != JSON_WALK_ARRAY)
		return leaf(r);
	v = first == JSON_WALK_OBJECT ? json_object() : json_array();
	while ((t = json_walk_next(&r->walk)) != JSON_WALK_CLOSE && t != JSON_WALK_BAD) {
		if (t == JSON_WALK_KEY) {
			key = find(r, r->what->keep);
			t = json_walk_next(&r->walk);
		}
		if (first == JSON_WALK_ARRAY)
			json_array_append_new(v, pick(r, t));
		else if (key)
			json_object_set_new(v, key, pick(r, t));
		else
			json_walk_skip(&r->walk, t);
	}
	return v;
}

static void read_entries(struct reading *r, const char *list)
{
	enum json_token t;

	while ((t = json_walk_next(&r->walk)) != JSON_WALK_CLOSE && t != JSON_WALK_BAD) {
		json_t *entry;

		r->left = ENVOY_LISTS_VALUES_MAX;
		entry = pick(r, t);
		if (json_is_object(entry))
			r->what->entry(r->ctx, list, entry);
		json_decref(entry);
	}
}

/* The members of an object that are arrays; `below` reads one. */
static void read_members(
    struct reading *r, const char *const *names, void (*below)(struct reading *r, const char *name))
{
	while (json_walk_next(&r->walk) == JSON_WALK_KEY) {
		const char *name = find(r, names);
		const enum json_token t = json_walk_next(&r->walk);

		if (name && t == JSON_WALK_ARRAY)
			below(r, name);
		else
			json_walk_skip(&r->walk, t);
	}
}

static void read_parts(struct reading *r, const char *top)
{
	enum json_token t;

	(void)top;
	while ((t = json_walk_next(&r->walk)) != JSON_WALK_CLOSE && t != JSON_WALK_BAD)
		if (t == JSON_WALK_OBJECT)
			read_members(r, r->what->lists, read_entries);
		else
			json_walk_skip(&r->walk, t);
}

void envoy_lists_read(const struct envoy_lists *what, const char *text, size_t len, void *ctx)
{
	const char *const top[] = {what->top, NULL};
	auto_free struct reading *r = mem_zalloc(sizeof(*r));

	r->what = what;
	r->ctx = ctx;
	json_walk_begin(&r->walk, text, len);
	if (json_walk_next(&r->walk) == JSON_WALK_OBJECT)
		read_members(r, top, read_parts);
}
