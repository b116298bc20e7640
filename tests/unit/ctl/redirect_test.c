/* redirect_test.c - the table, one pod, a question, a stream.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/command.c agentd/ctl/list.c agentd/ctl/show.c agentd/ctl/table.c agentd/ctl/redirect.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"

#define WEB                                                                                        \
	"{\"pod\":\"demo/web-0\",\"uid\":\"u-1\",\"mode\":\"ebpf\",\"policy\":\"strict\","         \
	"\"in_force\":true,\"inbound\":true,\"why_not\":\"\",\"redirected\":12,\"passed\":3,"      \
	"\"dropped\":0,\"counters\":{\"included range\":12,\"loopback\":3}}"
#define EARLY                                                                                      \
	"{\"pod\":\"demo/db-0\",\"uid\":\"u-2\",\"mode\":\"ebpf\",\"policy\":\"permissive\","      \
	"\"in_force\":true,\"inbound\":false,\"why_not\":\"\"}"
#define REFUSED                                                                                    \
	"{\"pod\":\"prod/web-0\",\"uid\":\"u-3\",\"mode\":\"ebpf\",\"policy\":\"strict\","         \
	"\"in_force\":false,\"inbound\":false,\"why_not\":\"no cgroup\"}"
#define OTHERS                                                                                     \
	"{\"pod\":\"demo/cni\",\"uid\":\"u-4\",\"mode\":\"istio-cni\",\"policy\":\"strict\","      \
	"\"in_force\":false,\"why_not\":\"\"}"
#define PODS(list) "{\"redirect\":[" list "]}"

static void all_pods_are_a_table(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(PODS(WEB "," EARLY "," REFUSED "," OTHERS), 0);
	p = run_command(&ctl_redirect, NULL, false);
	assert_string_equal(canned_request(), "GET /redirect");
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_string_equal(line(p, 0), "POD         MODE       POLICY      IN FORCE  "
					"REDIRECTED  PASSED  DROPPED  PROBLEM");
	assert_string_equal(line(p, 1), "demo/web-0  ebpf       strict      yes       12          "
					"3       0        ");
	assert_string_equal(line(p, 2), "demo/db-0   ebpf       permissive  unseen    0           "
					"0       0        ");
	assert_string_equal(line(p, 3), "prod/web-0  ebpf       strict      no        0           "
					"0       0        no cgroup");
	assert_string_equal(line(p, 4), "demo/cni    istio-cni  -           -         0           "
					"0       0        ");
}

/* Before the first Envoy: a decision shows that the programs see the pod. */
static void what_was_counted_is_seen(void **state)
{
	static const char *const counts[] = {"redirected", "passed", "dropped"};
	char json[256];

	(void)state;
	for (int i = 0; i < 3; i++) {
		snprintf(json, sizeof(json),
		    "{\"redirect\":[{\"pod\":\"a/b\",\"mode\":\"ebpf\",\"in_force\":true,"
		    "\"inbound\":false,\"%s\":1}]}",
		    counts[i]);
		canned_answer(json, 0);
		assert_non_null(
		    strstr(line(run_command(&ctl_redirect, NULL, false), 1), " outbound "));
	}
}

static void the_exit_status_says_whether_all_is_well(void **state)
{
	(void)state;
	canned_answer(PODS(WEB "," EARLY "," OTHERS), 0);
	assert_int_equal(run_command(&ctl_redirect, NULL, false)->status, CTL_OK);
	assert_int_equal(run_command(&ctl_redirect, NULL, true)->status, CTL_OK);
	canned_answer(PODS(WEB "," REFUSED), 0);
	assert_int_equal(run_command(&ctl_redirect, NULL, true)->status, CTL_PROBLEM);
	assert_int_equal(run_command(&ctl_redirect, "u-1", false)->status, CTL_OK);
	assert_int_equal(run_command(&ctl_redirect, "nobody", false)->status, CTL_NOT_FOUND);
	canned_answer(NULL, CTL_UNREACHABLE);
	assert_int_equal(run_command(&ctl_redirect, NULL, false)->status, CTL_UNREACHABLE);
}

static void one_pod_shows_its_counters_by_rule(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(PODS(WEB "," EARLY), 0);
	p = run_command(&ctl_redirect, "demo/web-0", false);
	assert_int_equal(p->status, CTL_OK);
	assert_non_null(strstr(p->out, "  included range: 12\n"));
	assert_null(strstr(p->out, "db-0"));
}

/* --- explain --- */

/* The canned answer serves the look for the pod and the question. */
#define ANSWERED                                                                                   \
	"{\"redirect\":[" WEB "],\"direction\":\"outbound\",\"verdict\":\"redirected\","           \
	"\"rule\":\"included range\"}"

#define GIVEN(...) ((const struct ctl_given[]){__VA_ARGS__, {0}})
#define WHO                                                                                        \
	{"pod", "web-0"}, {"uid", "7"},                                                            \
	{                                                                                          \
		"gid", "8"                                                                         \
	}

static void a_dial_is_explained(void **state)
{
	struct ctl c = {.words = {"10.0.0.7:80"}, .options = GIVEN(WHO)};
	const struct printed *p;

	(void)state;
	canned_answer(ANSWERED, 0);
	p = run_asked(ctl_redirect_explain.run, c);
	assert_int_equal(p->status, CTL_OK);
	assert_string_equal(p->out, "outbound: redirected: included range\n");
	assert_string_equal(canned_request(),
	    "GET /redirect/explain?pod=u-1&to=10.0.0.7:80&protocol=tcp&uid=7&gid=8");
	c.options = GIVEN(WHO, {"udp", ""});
	c.json = true;
	p = run_asked(ctl_redirect_explain.run, c);
	assert_non_null(strstr(p->out, "\"rule\": \"included range\""));
	assert_non_null(strstr(canned_request(), "protocol=udp"));
}

static void an_arrival_needs_no_user(void **state)
{
	const struct ctl c = {
	    .words = {"fd00::1", "[fd00::2]:80"}, .options = GIVEN({"pod", "u-1"})};

	(void)state;
	canned_answer(ANSWERED, 0);
	assert_int_equal(run_asked(ctl_redirect_explain.run, c)->status, CTL_OK);
	assert_string_equal(canned_request(),
	    "GET /redirect/explain?pod=u-1&to=[fd00::2]:80&protocol=tcp&from=fd00::1");
}

static void a_probe_is_explained(void **state)
{
	const struct ctl c = {
	    .words = {"10.0.0.2", "10.0.0.7:80"}, .options = GIVEN({"pod", "u-1"}, {"probe", ""})};

	(void)state;
	canned_answer(ANSWERED, 0);
	assert_int_equal(run_asked(ctl_redirect_explain.run, c)->status, CTL_OK);
	assert_string_equal(canned_request(),
	    "GET /redirect/explain?pod=u-1&to=10.0.0.7:80&protocol=tcp&from=10.0.0.2&probe=1");
}

static void what_is_no_question_is_usage(void **state)
{
	const struct ctl cases[] = {
	    {.words = {"1.2.3.4:5"}},
	    {.words = {"1.2.3.4:5"}, .options = GIVEN({"uid", "1"}, {"gid", "1"})},
	    {.words = {"1.2.3.4:5"}, .options = GIVEN({"pod", "web-0"}, {"uid", "1"})},
	    {.words = {"1.2.3.4:5&pod=x"}, .options = GIVEN(WHO)},
	    {.words = {"a&b", "1.2.3.4:5"}, .options = GIVEN(WHO)},
	    {.words = {"1.2.3.4:5"}, .options = GIVEN(WHO, {"probe", ""})},
	    {.words = {"1.2.3.4:5"},
		.options = GIVEN({"pod", "web-0"}, {"uid", "1"}, {"gid", "1 2"})},
	};

	(void)state;
	canned_answer(ANSWERED, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct printed *p = run_asked(ctl_redirect_explain.run, cases[i]);

		assert_int_equal(p->status, CTL_USAGE);
		assert_string_equal(p->out, "");
		assert_non_null(strstr(p->err, "usage: agentctl redirect explain --pod POD"));
	}
}

static void a_name_of_two_pods_is_no_answer(void **state)
{
	const struct ctl c = {
	    .words = {"1.1.1.1", "2.2.2.2:3"}, .options = GIVEN({"pod", "web-0"})};
	const struct printed *p;

	(void)state;
	canned_answer(PODS(WEB "," REFUSED), 0);
	p = run_asked(ctl_redirect_explain.run, c);
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_non_null(strstr(p->err, "more than one pod"));
}

/* --- trace --- */

static void decisions_are_lines(void **state)
{
	static const char lines[] =
	    "{\"redirect\":[" WEB "],\"lines\":["
	    "{\"pod\":\"demo/web-0\",\"verdict\":\"redirected\",\"rule\":\"included range\","
	    "\"protocol\":\"tcp\",\"to\":\"10.0.0.7\",\"port\":80,\"direction\":\"outbound\","
	    "\"lost\":0,\"uid\":7,\"gid\":8},"
	    "{\"pod\":\"demo/web-0\",\"verdict\":\"passed\",\"rule\":\"tunnel port\","
	    "\"protocol\":\"tcp\",\"to\":\"fd00::2\",\"port\":15008,\"direction\":\"inbound\","
	    "\"lost\":5,\"from\":\"fd00::1\"}]}";
	const struct printed *p;

	(void)state;
	canned_answer(lines, 0);
	p = run_command(&ctl_redirect_trace, NULL, false);
	assert_string_equal(canned_request(), "STREAM /redirect/trace");
	assert_string_equal(
	    line(p, 0), "demo/web-0  uid 7 gid 8 -> tcp 10.0.0.7:80  redirected: included range");
	assert_string_equal(line(p, 1), "(5 lost)");
	assert_string_equal(
	    line(p, 2), "demo/web-0  from fd00::1 -> tcp [fd00::2]:15008  passed: tunnel port");
	p = run_command(&ctl_redirect_trace, "web-0", true);
	assert_string_equal(canned_request(), "STREAM /redirect/trace?pod=u-1");
	assert_memory_equal(line(p, 0), "{\"pod\":\"demo/web-0\",", 20);
	canned_answer(NULL, CTL_UNREACHABLE);
	assert_int_equal(run_command(&ctl_redirect_trace, NULL, false)->status, CTL_UNREACHABLE);
}

static void strange_answers_are_survived(void **state)
{
	static const char *const answers[] = {"{}", "{\"redirect\":1}",
	    "{\"redirect\":[1,null,[]]}",
	    "{\"redirect\":[{\"pod\":1,\"mode\":null,\"redirected\":\"x\",\"counters\":[1]}]}",
	    NULL};

	(void)state;
	survive_strange_answers(&ctl_redirect, answers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_pods_are_a_table),
	    cmocka_unit_test(what_was_counted_is_seen),
	    cmocka_unit_test(the_exit_status_says_whether_all_is_well),
	    cmocka_unit_test(one_pod_shows_its_counters_by_rule),
	    cmocka_unit_test(a_dial_is_explained), cmocka_unit_test(an_arrival_needs_no_user),
	    cmocka_unit_test(a_probe_is_explained), cmocka_unit_test(what_is_no_question_is_usage),
	    cmocka_unit_test(a_name_of_two_pods_is_no_answer),
	    cmocka_unit_test(decisions_are_lines), cmocka_unit_test(strange_answers_are_survived)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
