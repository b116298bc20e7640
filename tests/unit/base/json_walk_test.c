/* json_walk_test.c - tokens, what is JSON and what is none, and how deep it may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json_walk.h"
#include "common/mem.h"

static void tokens_come_in_order(void **state)
{
	static const char text[] = " {\"a\" : [1, -0.5e+3, \"x\\\"y\"], \"b\":{}, \"c\":null}\n";
	static const struct {
		enum json_token token;
		const char *text;
		unsigned depth;
	} wanted[] = {{JSON_WALK_OBJECT, "{", 1}, {JSON_WALK_KEY, "\"a\"", 1},
	    {JSON_WALK_ARRAY, "[", 2}, {JSON_WALK_SCALAR, "1", 2}, {JSON_WALK_SCALAR, "-0.5e+3", 2},
	    {JSON_WALK_STRING, "\"x\\\"y\"", 2}, {JSON_WALK_CLOSE, "]", 1},
	    {JSON_WALK_KEY, "\"b\"", 1}, {JSON_WALK_OBJECT, "{", 2}, {JSON_WALK_CLOSE, "}", 1},
	    {JSON_WALK_KEY, "\"c\"", 1}, {JSON_WALK_SCALAR, "null", 1}, {JSON_WALK_CLOSE, "}", 0}};
	struct json_walk w;

	(void)state;
	json_walk_begin(&w, text, sizeof(text) - 1);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
		assert_int_equal(json_walk_next(&w), wanted[i].token);
		assert_int_equal(w.len, strlen(wanted[i].text));
		assert_memory_equal(w.token, wanted[i].text, w.len);
		assert_int_equal(w.depth, wanted[i].depth);
	}
	assert_int_equal(json_walk_next(&w), JSON_WALK_END);
	assert_int_equal(json_walk_next(&w), JSON_WALK_END);
}

static void what_is_skipped_is_whole(void **state)
{
	static const char text[] = "{\"a\":{\"b\":[[],{}]},\"c\":1}";
	struct json_walk w;

	(void)state;
	json_walk_begin(&w, text, sizeof(text) - 1);
	assert_int_equal(json_walk_next(&w), JSON_WALK_OBJECT);
	assert_int_equal(json_walk_next(&w), JSON_WALK_KEY);
	assert_true(json_walk_is(&w, "a"));
	assert_false(json_walk_is(&w, "ab"));
	assert_true(json_walk_skip(&w, json_walk_next(&w)));
	assert_int_equal(json_walk_next(&w), JSON_WALK_KEY);
	assert_true(json_walk_is(&w, "c"));
	assert_true(json_walk_skip(&w, json_walk_next(&w)));
	assert_int_equal(json_walk_next(&w), JSON_WALK_CLOSE);
}

static void what_is_no_json_is_bad(void **state)
{
	static const char *const bad[] = {"", " ", "{", "{}}", "{} {}", "[]", "1", "{\"a\"}",
	    "{\"a\":}", "{\"a\":1,}", "{,}", "{a:1}", "{\"a\":[1,]}", "{\"a\":[1}", "{\"a\":01}",
	    "{\"a\":1.}", "{\"a\":-}", "{\"a\":1e}", "{\"a\":+1}", "{\"a\":tru}", "{\"a\":truee}",
	    "{\"a\":\"\n\"}", "{\"a\":\"\\x\"}", "{\"a\":\"\\u12g4\"}", "{\"a\":\"\\",
	    "{\"a\":\"\xff\"}", "{\"a\":\"\xc0\x80\"}", "{\"a\":\"\xed\xa0\x80\"}",
	    "{\"a\":\"\xf4\x90\x80\x80\"}", "{\"a\":\"\xc3"};
	static const char *const good[] = {
	    "{}", " { } ", "{\"a\":\"\xc3\xa9\xf0\x9f\x98\x80\\u00e9\"}"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (json_walk_is_object(bad[i], strlen(bad[i])))
			fail_msg("taken: %s", bad[i]);
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_true(json_walk_is_object(good[i], strlen(good[i])));
	assert_false(json_walk_is_object("{\0}", 3));
}

static void it_is_not_too_deep(void **state)
{
	const size_t most = JSON_WALK_DEPTH_MAX - 1;
	auto_free char *text = mem_zalloc(2 * most + 32);

	(void)state;
	for (size_t deeper = 0; deeper < 2; deeper++) {
		size_t n = (size_t)sprintf(text, "{\"a\":");

		memset(text + n, '[', most + deeper);
		memset(text + n + most + deeper, ']', most + deeper);
		n += 2 * (most + deeper);
		text[n++] = '}';
		assert_int_equal(json_walk_is_object(text, n), !deeper);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tokens_come_in_order),
	    cmocka_unit_test(what_is_skipped_is_whole),
	    cmocka_unit_test(what_is_no_json_is_bad),
	    cmocka_unit_test(it_is_not_too_deep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
