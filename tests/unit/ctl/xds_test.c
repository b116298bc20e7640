/* xds_test.c - streams, types, refusals, and names of pods.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/command.c agentd/ctl/envoy_lists.c agentd/ctl/list.c agentd/ctl/show.c agentd/ctl/table.c agentd/ctl/xds.c agentd/ctl/xds_names.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "canned.h"
#include "common/mem.h"
#include "ctl/envoy_admin.h"
#include "ctl/one_pod.h"
#include "ctl/request.h"
#include "ctl/warming.h"

#define TYPE "type.googleapis.com/envoy.config.cluster.v3.Cluster"
#define POD(label, why, refused, secret)                                                           \
	"{\"pod\":\"" label                                                                        \
	"\",\"ads\":{\"connected\":true,\"flavour\":\"delta\",\"why_not\":\"" why                  \
	"\",\"types\":{\"" TYPE                                                                    \
	"\":{\"version\":\"v1\",\"state\":\"synced\",\"resources\":7,\"acked\":3,\"nacked\":1,"    \
	"\"refused\":" refused ",\"last_nack\":\"bad cluster\"}}},"                                \
	"\"sds\":{\"pushes\":2,\"acks\":2,\"nacks\":0," secret "}}"
#define FINE(label) POD(label, "", "false", "\"refused\":false,\"last_nack\":\"\"")
#define XDS(list) "{\"xds\":[" list "]}"

/* What its Envoy would say. */
static const char *warming;

json_t *ctl_one_pod(const struct ctl *c, const char *name, int *status)
{
	(void)c, (void)status;
	return *name ? json_object() : NULL;
}

void ctl_warming_add(const struct ctl *c, const json_t *pod, json_t *thing)
{
	json_t *all = json_loads(warming ? warming : "{}", 0, NULL);

	(void)c, (void)pod;
	json_object_update(thing, all);
	json_decref(all);
}

static void streams_are_a_table(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(XDS(FINE("demo/web-0")), 0);
	p = run_command(&ctl_xds, NULL, false);
	assert_string_equal(canned_request(), "GET /xds");
	assert_string_equal(line(p, 0),
	    "POD         TYPE          STATE   PUSHED  ITEMS  VERSION  ACKED  NACKED  PROBLEM");
	assert_string_equal(line(p, 1),
	    "demo/web-0  (stream)      delta                                          ");
	assert_string_equal(line(p, 2),
	    "demo/web-0  Cluster       SYNCED  -       7      v1       3      1       ");
	assert_string_equal(line(p, 3),
	    "demo/web-0  Secret (SDS)                  2               2      0       ");
	assert_int_equal(p->status, CTL_OK); /* what was refused once and is mended */
}

/* What Envoy has not answered yet is not in sync, and no problem; the time of the push is an age.
 */
static void a_push_has_a_state_and_an_age(void **state)
{
	static const struct {
		const char *state, *shown;
		int ago;
		const char *age;
	} cases[] = {{"stale", "STALE", 30, "30s"}, {"synced", "SYNCED", 600, "10min"},
	    {"refused", "REFUSED", 36000, "10h"}, {"x", "-", -50, "0s"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char answer[400], wanted[80];

		snprintf(answer, sizeof(answer),
		    XDS("{\"pod\":\"a/b\",\"ads\":{\"connected\":true,\"types\":{\"" TYPE
			"\":{\"state\":\"%s\",\"pushed_at\":%lld}}}}"),
		    cases[i].state, (long long)time(NULL) - cases[i].ago);
		canned_answer(answer, 0);
		const struct printed *p = run_command(&ctl_xds, NULL, false);

		snprintf(wanted, sizeof(wanted), "Cluster       %-*s", (int)strlen(cases[i].shown),
		    cases[i].shown);
		assert_non_null(strstr(line(p, 2), wanted));
		assert_non_null(strstr(line(p, 2), cases[i].age));
		assert_int_equal(p->status, CTL_OK);
	}
}

/* Each is a problem, told with these words. */
static void every_problem_is_told(void **state)
{
	static const struct {
		const char *json, *says;
	} cases[] = {
	    {XDS(POD("a/b", "token expired", "false", "\"refused\":false")), "token expired"},
	    {XDS(POD("a/b", "", "true", "\"refused\":false")), "bad cluster"},
	    {XDS(POD("a/b", "", "false", "\"refused\":true,\"last_nack\":\"bad key\"")), "bad key"},
	    {XDS(POD("a/b", "", "false", "\"refused\":false,\"why_not\":\"no CA\"")), "no CA"},
	    {XDS("{\"pod\":\"a/b\",\"ads\":{\"remote_wasm\":{\"demo.auth\":\"no module\"}}}"),
		"demo.auth: no module"},
	    {XDS(POD("a/b", "gone", "false", "\"refused\":false") "," FINE("a/c")), "gone"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		canned_answer(cases[i].json, 0);
		const struct printed *p = run_command(&ctl_xds, NULL, false);

		assert_int_equal(p->status, CTL_PROBLEM);
		assert_non_null(strstr(p->out, cases[i].says));
		assert_int_equal(run_command(&ctl_xds, NULL, true)->status, CTL_PROBLEM);
	}
}

static void a_name_leaves_only_its_pod(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(XDS(FINE("demo/web-0") "," POD(
			  "prod/web-0", "gone", "false", "\"refused\":false") "," FINE("demo/db")),
	    0);
	p = run_command(&ctl_xds, "demo/web-0", false);
	assert_int_equal(p->status, CTL_OK);
	assert_null(strstr(p->out, "prod"));
	assert_null(strstr(p->out, "demo/db"));
	p = run_command(
	    &ctl_xds, "web-0", false); /* both, and the first does not hide the second */
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_non_null(strstr(p->out, "demo/web-0"));
	assert_non_null(strstr(p->out, "prod/web-0"));
	assert_null(strstr(p->out, "demo/db"));
	p = run_command(&ctl_xds, "web", true);
	assert_int_equal(p->status, CTL_NOT_FOUND);
	assert_string_equal(p->err, "agentctl: web: no such name (agentctl xds lists them)\n");
}

static void a_pod_that_just_came_has_no_streams(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(XDS("{\"pod\":\"demo/new\"}"), 0);
	p = run_command(&ctl_xds, NULL, false);
	assert_int_equal(p->status, CTL_OK);
	assert_string_equal(line(p, 1),
	    "demo/new  (stream)      not connected                                         ");
	assert_string_equal(line(p, 2),
	    "demo/new  Secret (SDS)                         0               0      0       ");
}

static void what_has_been_warming_is_a_row_of_one_pod(void **state)
{
	const struct printed *p;

	(void)state;
	warming = "{\"warming\":[{\"type\":\"Cluster\",\"name\":\"db\",\"for_s\":75}]}";
	canned_answer(XDS(FINE("demo/web-0")), 0);
	p = run_command(&ctl_xds, "web-0", false);
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_non_null(strstr(p->out, "demo/web-0  Cluster       WARMING "));
	assert_non_null(strstr(p->out, "  db: for 75 s\n"));
	canned_answer(XDS(FINE("demo/web-0")), 0);
	assert_int_equal(run_command(&ctl_xds, NULL, false)->status, CTL_OK);
	warming = "{\"warming_unknown\":\"does its Envoy run?\"}";
	canned_answer(XDS(FINE("demo/web-0")), 0);
	p = run_command(&ctl_xds, "web-0", false);
	assert_int_equal(p->status, CTL_OK);
	assert_non_null(strstr(p->out, "does its Envoy run?"));
	warming = NULL;
}

static void strange_answers_are_survived(void **state)
{
	static const char *const answers[] = {"{}", "{\"xds\":{}}",
	    "{\"xds\":[null,1,\"x\",[],{}]}", "{\"xds\":[{\"pod\":7,\"ads\":[],\"sds\":\"\"}]}",
	    "{\"xds\":[{\"pod\":\"demo/"
	    "web-0\",\"ads\":{\"types\":[1]},\"sds\":{\"pushes\":\"x\"}}]}",
	    "{\"xds\":[{\"pod\":\"demo/web-0\",\"ads\":{\"types\":{\"\":null,\".\":3}}}]}",
	    "{\"xds\":[{\"pod\":\"web-0\",\"sds\":{\"refused\":true,\"last_nack\":4}}]}", NULL};

	(void)state;
	survive_strange_answers(&ctl_xds, answers);
}

/* ---- --names: what Envoy says that it has ---- */

char *ctl_envoy_admin(const struct ctl *c, const char *page, size_t *len, int *status)
{
	return canned_text(c, page, len, status);
}

static const struct printed *names_of(const char *pod, bool json)
{
	static const struct ctl_given names[] = {{"names", ""}, {NULL, NULL}};

	return run_asked(ctl_xds.run,
	    (struct ctl){
		.words = {pod}, .options = names, .json = json, .output = json ? "json" : NULL});
}

#define DUMP(parts) "{\"configs\":[" parts "]}"
#define CLUSTERS                                                                                   \
	"{\"static_clusters\":[{\"cluster\":{\"name\":\"xds-grpc\"}}],"                            \
	"\"dynamic_active_clusters\":[{\"version_info\":\"v7\",\"cluster\":{\"name\":\"a\"}}],"    \
	"\"dynamic_warming_clusters\":[{\"version_info\":\"v8\",\"cluster\":{\"name\":\"b\"}}]}"
#define LISTENERS                                                                                  \
	"{\"dynamic_listeners\":[{\"name\":\"l\",\"active_state\":{\"version_info\":\"v1\"}},"     \
	"{\"name\":\"m\",\"warming_state\":{\"version_info\":\"v2\"}}]}"

static void names_are_those_that_envoy_was_pushed(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(DUMP(CLUSTERS "," LISTENERS), 0);
	p = names_of("demo/web-0", false);
	assert_string_equal(canned_request(), "ENVOY /config_dump?include_eds");
	assert_string_equal(line(p, 0), "TYPE      STATE    NAME  VERSION  PROBLEM");
	assert_string_equal(line(p, 1), "Cluster   active   a     v7       ");
	assert_string_equal(line(p, 2), "Cluster   warming  b     v8       ");
	assert_string_equal(line(p, 3), "Listener  active   l     v1       ");
	assert_string_equal(line(p, 4), "Listener  warming  m     v2       ");
	assert_null(strstr(p->out, "xds-grpc")); /* of the bootstrap */
	assert_int_equal(p->status, CTL_OK);
	p = names_of("demo/web-0", true);
	assert_non_null(strstr(p->out, "\"name\": \"a\""));
	assert_int_equal(p->status, CTL_OK);
}

static void a_refused_resource_is_a_problem(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(
	    DUMP("{\"dynamic_listeners\":[{\"name\":\"l\\u001b[2J\",\"error_state\":"
		 "{\"details\":\"no filter x\"}},{\"error_state\":{\"failed_configuration\":"
		 "{\"name\":\"l\\u001b[2J\"},\"details\":\"the update\"}}]}"),
	    0);
	p = names_of("demo/web-0", false);
	assert_non_null(strstr(line(p, 1), "Listener  refused  l"));
	assert_non_null(strstr(line(p, 1), "no filter x"));
	assert_string_equal(line(p, 2), ""); /* Envoy has it twice */
	assert_null(strchr(p->out, '\033')); /* it may be an app's answer */
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_int_equal(names_of("demo/web-0", true)->status, CTL_PROBLEM);
}

static void names_are_of_one_pod_that_answers(void **state)
{
	(void)state;
	canned_answer("{}", 0);
	assert_int_equal(names_of(NULL, false)->status, CTL_USAGE);
	canned_answer(NULL, CTL_NOT_FOUND);
	assert_int_equal(names_of("demo/nobody", false)->status, CTL_NOT_FOUND);
}

/* An app may listen at Envoy's port. */
static void a_dump_of_any_shape_is_survived(void **state)
{
	static const char *const dumps[] = {"{}", "{\"configs\":7}", DUMP("null,1,[],\"x\""),
	    DUMP("{\"dynamic_active_clusters\":{\"a\":1}}"),
	    DUMP("{\"dynamic_active_clusters\":[null,[],1,\"x\"]}"),
	    DUMP("{\"dynamic_active_clusters\":[{\"cluster\":[],\"version_info\":1}]}"),
	    DUMP("{\"dynamic_listeners\":[{\"name\":{},\"active_state\":[]},{}]}"),
	    DUMP("{\"dynamic_listeners\":[{\"error_state\":{\"details\":[]}}]}")};

	(void)state;
	for (size_t i = 0; i < sizeof(dumps) / sizeof(*dumps); i++) {
		canned_answer(dumps[i], 0);
		assert_in_range(names_of("a", false)->status, CTL_OK, CTL_PROBLEM);
		assert_in_range(names_of("a", true)->status, CTL_OK, CTL_PROBLEM);
	}
}

/* Each takes as much of this process' memory as an Envoy's, and a hundredth of its bytes. */
static void more_names_than_an_envoy_has_are_refused(void **state)
{
	enum { EMPTY = 4000 };
	auto_free char *dump = mem_zalloc(3 * EMPTY + 100);
	size_t n = (size_t)sprintf(dump, "{\"configs\":[{\"dynamic_listeners\":[{}");

	(void)state;
	for (int i = 0; i < EMPTY; i++)
		n += (size_t)sprintf(dump + n, ",{}");
	strcpy(dump + n, "]}]}");
	canned_answer(dump, 0);
	assert_int_equal(names_of("a", false)->status, CTL_PROBLEM);
	assert_non_null(strstr(names_of("a", true)->err, "more than 1023 names in 120"));
}

/* A name that nobody reads, and an entry with more of it than is looked at. */
static void what_is_large_is_passed_over(void **state)
{
	enum { LARGE = 70 * 1024 };
	auto_free char *dump = mem_zalloc(LARGE + 300);
	size_t n = (size_t)sprintf(dump, "{\"configs\":[{\"dynamic_listeners\":[{\"name\":\"");

	(void)state;
	memset(dump + n, 'a', LARGE);
	strcpy(dump + n + LARGE, "\"},{\"name\":\"b\",\"active_state\":{}}]}]}");
	canned_answer(dump, 0);
	assert_string_equal(line(names_of("a", false), 1), "Listener                         ");
	assert_string_equal(line(names_of("a", false), 2), "Listener  active  b              ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(streams_are_a_table),
	    cmocka_unit_test(a_push_has_a_state_and_an_age),
	    cmocka_unit_test(every_problem_is_told),
	    cmocka_unit_test(a_name_leaves_only_its_pod),
	    cmocka_unit_test(a_pod_that_just_came_has_no_streams),
	    cmocka_unit_test(what_has_been_warming_is_a_row_of_one_pod),
	    cmocka_unit_test(strange_answers_are_survived),
	    cmocka_unit_test(names_are_those_that_envoy_was_pushed),
	    cmocka_unit_test(a_refused_resource_is_a_problem),
	    cmocka_unit_test(names_are_of_one_pod_that_answers),
	    cmocka_unit_test(a_dump_of_any_shape_is_survived),
	    cmocka_unit_test(more_names_than_an_envoy_has_are_refused),
	    cmocka_unit_test(what_is_large_is_passed_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
