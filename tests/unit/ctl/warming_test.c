/* warming_test.c - what of a dump has been warming for long, and what is said when there is none.
 * LINK: agentd/ctl/envoy_lists.c agentd/ctl/show.c agentd/ctl/warming.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/mem.h"
#include "ctl/envoy_admin.h"
#include "ctl/warming.h"

static bool known;
static const char *dumped; /* NULL: Envoy does not answer */

bool ctl_envoy_is_known(const json_t *pod)
{
	(void)pod;
	return known;
}

char *ctl_envoy_page(
    const struct ctl *c, const json_t *pod, const char *page, size_t *len, struct err *e)
{
	(void)c, (void)pod;
	assert_string_equal(page, "/config_dump");
	if (!dumped)
		err_set(e, ERR_UNAVAILABLE, "does its Envoy run?");
	*len = dumped ? strlen(dumped) : 0;
	return mem_strdup(dumped);
}

static void is(json_t *o, const char *expected)
{
	auto_free char *text = json_dumps(o, JSON_COMPACT);

	assert_string_equal(text, expected);
	json_decref(o);
}

static json_t *of(const char *text, int64_t now_s)
{
	return ctl_warming_of(text, strlen(text), now_s);
}

enum { THEN_S = 1769860800 }; /* 2026-01-31T12:00:00Z */

static void what_warms_for_a_minute_is_named(void **state)
{
	static const char dump[] =
	    "{\"configs\":[{\"dynamic_active_clusters\":[{\"last_updated\":"
	    "\"2026-01-31T11:00:00Z\",\"cluster\":{\"name\":\"used\"}}],"
	    "\"dynamic_warming_clusters\":[{\"last_updated\":\"2026-01-31T12:00:00.123Z\","
	    "\"cluster\":{\"name\":\"no secret\"}}]},"
	    "{\"dynamic_listeners\":["
	    "{\"name\":\"new\",\"warming_state\":{\"last_updated\":\"2026-01-31T12:00:10Z\"}},"
	    "{\"name\":\"changed\",\"active_state\":{\"last_updated\":\"2026-01-31T10:00:00Z\"},"
	    "\"warming_state\":{\"last_updated\":\"2026-01-31T12:00:00Z\"}},"
	    "{\"name\":\"used\",\"active_state\":{\"last_updated\":\"2026-01-31T10:00:00Z\"}}]}]}";

	(void)state;
	is(of(dump, THEN_S + 59), "[]");
	is(of(dump, THEN_S + 60), "[{\"type\":\"Cluster\",\"name\":\"no secret\",\"for_s\":60},"
				  "{\"type\":\"Listener\",\"name\":\"changed\",\"for_s\":60}]");
	is(of(dump, THEN_S - 7200), "[]"); /* a clock that was set */
}

static void strange_dumps_are_survived(void **state)
{
	static const char *const dumps[] = {"{}", "{\"configs\":{}}", "{\"configs\":[1,null,{}]}",
	    "{\"configs\":[{\"dynamic_warming_clusters\":[1,{},{\"cluster\":[]}],"
	    "\"dynamic_listeners\":[7,{\"name\":\"a\",\"warming_state\":3}]}]}",
	    "{\"configs\":[{\"dynamic_listeners\":[{\"name\":\"a\",\"warming_state\":"
	    "{\"last_updated\":\"2026-01-31T12:00:00 tomorrow\"}},{\"warming_state\":"
	    "{\"last_updated\":\"2026-01-31T12:00:00Z\"}}]}]}"};

	(void)state;
	for (size_t i = 0; i < sizeof(dumps) / sizeof(*dumps); i++)
		is(of(dumps[i], THEN_S + 600), "[]");
}

/* More than a page can show; an app may listen there instead of Envoy. */
static void there_is_a_limit(void **state)
{
	json_t *clusters = json_array(), *dump, *all;

	(void)state;
	for (int i = 0; i < 200; i++)
		json_array_append_new(
		    clusters, json_pack("{s:s, s:{s:s}}", "last_updated", "2026-01-31T12:00:00Z",
				  "cluster", "name", "c"));
	dump = json_pack("{s:[{s:o}]}", "configs", "dynamic_warming_clusters", clusters);
	auto_free char *text = json_dumps(dump, 0);
	all = of(text, THEN_S + 60);
	assert_int_equal(json_array_size(all), 100);
	json_decref(all);
	json_decref(dump);
}

static json_t *added(void)
{
	const struct ctl c = {0};
	json_t *thing = json_object();

	ctl_warming_add(&c, thing, thing);
	return thing;
}

static void an_envoy_that_cannot_be_asked_is_not_known(void **state)
{
	(void)state;
	is(added(), "{}");
	known = true;
	is(added(), "{\"warming_unknown\":\"does its Envoy run?\"}");
	dumped = "{}";
	is(added(), "{\"warming\":[]}");
	dumped = "{\"configs\":[{\"dynamic_listeners\":[{\"name\":\"\\u001b[2J\",\"warming_state\":"
		 "{\"last_updated\":\"2001-01-01T00:00:00Z\"}}]}]}";
	json_t *thing = added();
	const json_t *first = json_array_get(json_object_get(thing, "warming"), 0);
	assert_string_equal(json_string_value(json_object_get(first, "name")), "?[2J");
	json_decref(thing);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_warms_for_a_minute_is_named),
	    cmocka_unit_test(strange_dumps_are_survived),
	    cmocka_unit_test(there_is_a_limit),
	    cmocka_unit_test(an_envoy_that_cannot_be_asked_is_not_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
