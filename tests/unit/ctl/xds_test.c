/* xds_test.c - streams, types, refusals, and names of pods.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/list.c agentd/ctl/show.c agentd/ctl/table.c agentd/ctl/xds.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "canned.h"

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
	    {XDS("{\"pod\":\"a/b\",\"ads\":{\"remote_wasm\":[\"demo.auth\"]}}"),
		"demo.auth: Envoy cannot fetch its remote module"},
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(streams_are_a_table),
	    cmocka_unit_test(a_push_has_a_state_and_an_age),
	    cmocka_unit_test(every_problem_is_told),
	    cmocka_unit_test(a_name_leaves_only_its_pod),
	    cmocka_unit_test(a_pod_that_just_came_has_no_streams),
	    cmocka_unit_test(strange_answers_are_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
