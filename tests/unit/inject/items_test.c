/* items_test.c - a stream of JSON, cut into its objects wherever its pieces end. */
#include "common/err.h"
#include "common/mem.h"
#include "inject/items.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *taken;
static struct err e;

static int take_it(json_t *object, struct err *err, void *ctx)
{
	(void)ctx;
	json_array_append(taken, object);
	if (json_object_get(object, "bad"))
		return err_set(err, ERR_INVALID, "a bad one");
	return 0;
}

/* In pieces of that size; 0 or -1. */
static int cut(const char *text, size_t piece)
{
	struct items *s = items_new(take_it, NULL);
	size_t len = strlen(text);
	int rc = 0;

	json_array_clear(taken);
	for (size_t at = 0; at < len && !rc; at += piece)
		rc = items_feed(s, text + at, len - at < piece ? len - at : piece, &e);
	if (!rc)
		rc = items_end(s, &e);
	items_free(&s);
	return rc;
}

static int setup(void **state)
{
	(void)state;
	taken = json_array();
	e = (struct err){0};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	json_decref(taken);
	return 0;
}

static void gives(const char *text, const char *objects)
{
	for (size_t piece = 1; piece < 8; piece++) {
		char *got;

		if (cut(text, piece))
			fail_msg("%s: %s", text, e.msg);
		got = json_dumps(taken, JSON_COMPACT);
		assert_string_equal(got, objects);
		free(got);
	}
}

static void refuses(const char *text, const char *why)
{
	for (size_t piece = 1; piece < 8; piece++) {
		assert_int_equal(cut(text, piece), -1);
		if (!strstr(e.msg, why))
			fail_msg("%s: %s", text, e.msg);
	}
}

static void the_items_of_a_list_come_one_by_one(void **state)
{
	(void)state;
	gives(
	    "{\"apiVersion\":\"v1\",\"items\": [ {\"a\":1},\n{\"b\":[{}]} ], \"kind\":\"List\"}\n",
	    "[{\"a\":1},{\"b\":[{}]}]");
	gives("{\"items\":[]}", "[]");
	gives("{\"items\":[{}],\"metadata\":{\"items\":[{\"no\":1}]},\"x\":\"]}\"}{\"items\":[{}]}",
	    "[{},{}]");
}

static void objects_may_stand_one_after_the_other(void **state)
{
	(void)state;
	gives("{\"a\":1}\n{\"b\":2} {\"c\":3}", "[{\"a\":1},{\"b\":2},{\"c\":3}]");
	gives("{\"spec\":{\"items\":[{}]},\"items\":{\"x\":1}}",
	    "[{\"spec\":{\"items\":[{}]},\"items\":{\"x\":1}}]");
	gives("{\"a\":\"items\",\"b\":[{}]}", "[{\"a\":\"items\",\"b\":[{}]}]");
}

static void brackets_and_quotes_in_texts_are_text(void **state)
{
	(void)state;
	gives("{\"items\":[{\"a\":\"}]\\\"{\"},{\"b\":\"\\\\\"}]}",
	    "[{\"a\":\"}]\\\"{\"},{\"b\":\"\\\\\"}]");
}

static void what_is_no_json_is_refused_by_its_number(void **state)
{
	(void)state;
	refuses("", "no object");
	refuses("  \n", "no object");
	refuses("apiVersion: v1", "object 1: must begin with");
	refuses("[{}]", "object 1: must begin with");
	refuses("{\"items\":[{},1]}", "object 2: must begin with");
	refuses("{\"items\":[{}}", "object 2: \"items\" must end");
	refuses("{\"items\":[{}],", "object 2: the input ends inside");
	refuses("{\"items\":[{},{\"a\":\"", "object 2: the input ends inside");
	refuses("{\"items\":[{\"a\":1,\"a\":2}]}", "object 1: duplicate");
	refuses("{\"items\":[{\"a\":]}]}", "object 1: ");
	refuses("{}]", "object 2: must begin with");
	refuses("{\"items\":[{\"bad\":1},{}]}", "a bad one");
	assert_int_equal(json_array_size(taken), 1);
}

/* What is kept does not grow with the stream, and one object has its bound. */
static void one_object_is_held(void **state)
{
	static char piece[64 << 10];
	struct items *s = items_new(take_it, NULL);
	size_t n = 0;
	int rc = 0;

	(void)state;
	memset(piece, ' ', sizeof(piece));
	assert_int_equal(items_feed(s, "{\"items\":[", 10, &e), 0);
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(items_feed(s, piece, sizeof(piece), &e), 0);
	assert_int_equal(items_feed(s, "{\"a\":\"", 6, &e), 0);
	memset(piece, 'x', sizeof(piece));
	for (; !rc; n++)
		rc = items_feed(s, piece, sizeof(piece), &e);
	assert_int_equal(n, ITEMS_OBJECT_MAX / sizeof(piece));
	assert_string_equal(e.msg, "object 1: more than 4 MiB");
	items_free(&s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    TEST(the_items_of_a_list_come_one_by_one),
	    TEST(objects_may_stand_one_after_the_other),
	    TEST(brackets_and_quotes_in_texts_are_text),
	    TEST(what_is_no_json_is_refused_by_its_number),
	    TEST(one_object_is_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
