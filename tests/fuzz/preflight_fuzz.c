/* preflight_fuzz.c - any bytes as the pods of a cluster, in pieces of any size: refused, or a row
 * for each owner; the same in other pieces; a List's items are those that jansson finds.
 */
#include "common/err.h"
#include "common/mem.h"
#include "inject/config.h"
#include "inject/items.h"
#include "inject/preflight.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

static int keep(json_t *object, struct err *e, void *list)
{
	(void)e;
	return json_array_append(list, object);
}

static int cut(items_cb *cb, void *ctx, const uint8_t *data, size_t size, size_t piece)
{
	struct items *s = items_new(cb, ctx);
	struct err e = {0};
	int rc = 0;

	for (size_t at = 0; at < size && !rc; at += piece)
		rc = items_feed(
		    s, (const char *)data + at, size - at < piece ? size - at : piece, &e);
	if (!rc)
		rc = items_end(s, &e);
	must(!rc || *e.msg);
	items_free(&s);
	return rc;
}

/* By another reader: `found` are its items, or it is itself what was found. */
static void check_items(const json_t *whole, int rc, const json_t *found)
{
	const json_t *items = json_object_get(whole, "items"), *v;
	bool objects = json_is_array(items);
	size_t i;

	json_array_foreach (items, i, v)
		objects = objects && json_is_object(v);
	if (!json_is_object(whole) || (json_is_array(items) && !objects))
		return;
	must(!rc);
	if (!objects ||
	    (json_array_size(found) == 1 && json_equal(json_array_get(found, 0), whole)))
		must(json_array_size(found) == 1 && json_equal(json_array_get(found, 0), whole));
	else
		must(json_equal(found, items));
}

static void check_texts(const json_t *list)
{
	json_t *v;
	size_t i;

	must(json_array_size(list) <= PREFLIGHT_TEXTS_MAX);
	json_array_foreach (list, i, v)
		for (const char *at = json_string_value(v); *at; at++)
			must(*at >= ' ' && *at < 127);
}

static void check_answer(const json_t *found, const json_t *answer)
{
	json_int_t pods = 0, rows = 0;
	const char *key;
	json_t *v;
	size_t i;

	json_array_foreach (json_object_get(answer, "workloads"), i, v) {
		pods += json_integer_value(json_object_get(v, "pods"));
		check_texts(json_object_get(v, "refused"));
		check_texts(json_object_get(v, "changes"));
	}
	json_object_foreach (json_object_get(answer, "verdicts"), key, v)
		rows += json_integer_value(v);
	must(rows == (json_int_t)i && pods <= (json_int_t)json_array_size(found));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t piece = size ? 1 + *data % 32 : 1;
	json_t *found = json_array(), *again = json_array(), *whole, *answer;
	struct preflight *p = preflight_new(inject_config_new(NULL, NULL, NULL, NULL));
	int rc = cut(keep, found, data, size, size + 1);

	must(cut(keep, again, data, size, piece) == rc && json_equal(found, again));
	whole = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
	check_items(whole, rc, found);
	must(cut(preflight_take, p, data, size, piece) == rc);
	answer = preflight_answer(p);
	check_answer(found, answer);
	json_decref(answer);
	json_decref(whole);
	json_decref(found);
	json_decref(again);
	preflight_free(&p);
	return 0;
}
