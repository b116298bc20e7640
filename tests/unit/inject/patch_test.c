/* patch_test.c - the difference of two values: what is in it, and that it makes the second of the
 * first.
 * LINK: tests/unit/json_rig.c
 */
#include "inject/patch.h"
#include "tests/fuzz/patch_rig.h"
#include "tests/unit/json_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_patch(const char *from_text, const char *to_text, const char *patch_text)
{
	json_t *from = rig_json(from_text), *to = rig_json(to_text), *wanted = rig_json(patch_text),
	       *done;
	json_t *patch = inject_patch(from, to);

	if (!json_equal(patch, wanted))
		fail_msg("%s", json_dumps(patch, 0));
	done = patch_apply(from, patch);
	assert_true(json_equal(done, to));
	json_decref(done);
	json_decref(patch);
	json_decref(wanted);
	json_decref(from);
	json_decref(to);
}

static void equal_values_have_an_empty_one(void **state)
{
	(void)state;
	assert_patch("{'a':[1,{'b':null}]}", "{'a':[1,{'b':null}]}", "[]");
	assert_patch("1", "1", "[]");
}

static void only_what_is_new_or_changed(void **state)
{
	(void)state;
	assert_patch("{'a':1,'b':{'c':1,'d':2},'e':[]}", "{'b':{'c':1,'d':3},'e':[],'f':{'g':[1]}}",
	    "[{'op':'remove','path':'/a'},{'op':'replace','path':'/b/d','value':3},"
	    "{'op':'add','path':'/f','value':{'g':[1]}}]");
	assert_patch("{'a':null}", "{'a':{}}", "[{'op':'replace','path':'/a','value':{}}]");
	assert_patch("{'a':[]}", "{'a':{}}", "[{'op':'replace','path':'/a','value':{}}]");
	assert_patch("1", "'x'", "[{'op':'replace','path':'','value':'x'}]");
}

static void names_are_escaped(void **state)
{
	(void)state;
	assert_patch("{'l':{}}", "{'l':{'istio.io/rev~1':'x','':1}}",
	    "[{'op':'add','path':'/l/istio.io~1rev~01','value':'x'},"
	    "{'op':'add','path':'/l/','value':1}]");
}

static void one_more_container_leaves_the_others_alone(void **state)
{
	(void)state;
	assert_patch("[{'name':'a','x':1},{'name':'b'}]",
	    "[{'name':'p'},{'name':'a','x':1},{'name':'b'}]",
	    "[{'op':'add','path':'/0','value':{'name':'p'}}]");
	assert_patch("[{'name':'a'},{'name':'b'}]", "[{'name':'a'},{'name':'b'},{'name':'p'}]",
	    "[{'op':'add','path':'/2','value':{'name':'p'}}]");
	assert_patch("[]", "[1]", "[{'op':'add','path':'/0','value':1}]");
}

static void a_container_that_goes_and_one_that_changes(void **state)
{
	(void)state;
	assert_patch("[{'name':'p'},{'name':'a','x':{'y':1}},{'name':'b'}]",
	    "[{'name':'a','x':{'y':2}},{'name':'b'},{'name':'p'}]",
	    "[{'op':'add','path':'/0','value':{'name':'a','x':{'y':2}}},"
	    "{'op':'add','path':'/1','value':{'name':'b'}},{'op':'remove','path':'/3'},"
	    "{'op':'remove','path':'/3'}]");
	assert_patch("[{'name':'p'},{'name':'a','x':{'y':1}}]", "[{'name':'a','x':{'y':2}}]",
	    "[{'op':'remove','path':'/0'},{'op':'replace','path':'/0/x/y','value':2}]");
}

static void elements_without_names_are_compared_whole(void **state)
{
	(void)state;
	assert_patch("['-c','x','-l']", "['-c','-l','-l']",
	    "[{'op':'remove','path':'/1'},{'op':'add','path':'/2','value':'-l'}]");
	assert_patch("[{'a':1},{'a':2}]", "[{'a':2}]", "[{'op':'remove','path':'/0'}]");
	assert_patch("[1,1,1]", "[1,1]", "[{'op':'remove','path':'/2'}]");
}

/* Any two values, from a few bits. */
static json_t *made(uint32_t *seed, unsigned depth)
{
	static const char *const names[] = {"a", "b/c", "~", "name"};
	unsigned kind = (*seed = *seed * 1664525 + 1013904223) >> 28;
	json_t *v;

	if (kind < 6 || !depth)
		return json_integer(kind & 1);
	if (kind == 6)
		return json_string(names[*seed >> 26 & 3]);
	v = kind < 11 ? json_object() : json_array();
	for (unsigned n = *seed >> 20 & 3; n; n--) {
		if (json_is_array(v))
			json_array_append_new(v, made(seed, depth - 1));
		else
			json_object_set_new(v, names[*seed >> (17 + n) & 3], made(seed, depth - 1));
	}
	return v;
}

static void it_makes_the_second_of_the_first(void **state)
{
	uint32_t seed = 1;

	(void)state;
	for (unsigned i = 0; i < 20000; i++) {
		json_t *from = made(&seed, 4), *to = made(&seed, 4);
		json_t *patch = inject_patch(from, to), *done = patch_apply(from, patch);

		assert_true(done && json_equal(done, to));
		json_decref(done);
		json_decref(patch);
		json_decref(from);
		json_decref(to);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(equal_values_have_an_empty_one),
	    cmocka_unit_test(only_what_is_new_or_changed),
	    cmocka_unit_test(names_are_escaped),
	    cmocka_unit_test(one_more_container_leaves_the_others_alone),
	    cmocka_unit_test(a_container_that_goes_and_one_that_changes),
	    cmocka_unit_test(elements_without_names_are_compared_whole),
	    cmocka_unit_test(it_makes_the_second_of_the_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
