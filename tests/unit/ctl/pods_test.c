/* pods_test.c - the table, one pod, several of one name, what is a problem.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/list.c agentd/ctl/show.c agentd/ctl/table.c agentd/ctl/pods.c agentd/ctl/pod_summary.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"
#include "common/mem.h"
#include "ctl/warming.h"

#define READY                                                                                      \
	"{\"uid\":\"u-1\",\"namespace\":\"demo\",\"name\":\"web-0\",\"service_account\":\"web\","  \
	"\"ready\":true,\"why_not\":\"\",\"served\":\"yes\",\"token\":{\"valid\":true},"           \
	"\"sockets\":{\"attested\":"                                                               \
	"{\"cgroup_ids\":[\"7\"],\"unproven\":\"\"}}}"
#define STARTING                                                                                   \
	"{\"uid\":\"u-2\",\"namespace\":\"demo\",\"name\":\"db-0\",\"service_account\":\"db\","    \
	"\"ready\":false,\"why_not\":\"\",\"served\":\"unasked\"}"
#define REFUSED                                                                                    \
	"{\"uid\":\"u-3\",\"namespace\":\"prod\",\"name\":\"web-0\",\"service_account\":\"web\","  \
	"\"ready\":false,\"why_not\":\"bad key\",\"served\":\"no\",\"why_unserved\":\"bad key\","  \
	"\"token\":{\"why_not\":\"no token\"}}"
#define NO_TOKEN                                                                                   \
	"{\"uid\":\"u-4\",\"namespace\":\"demo\",\"name\":\"app\",\"service_account\":\"app\","    \
	"\"ready\":true,\"why_not\":\"\",\"token\":{\"valid\":false,\"why_not\":\"expired\"},"     \
	"\"sockets\":{\"attested\":{\"cgroup_ids\":[\"7\"],\"unproven\":\"no cgroup\"}}}"
#define HELD                                                                                       \
	"{\"uid\":\"u-5\",\"namespace\":\"demo\",\"name\":\"db-1\",\"service_account\":\"db\","    \
	"\"ready\":true,\"why_not\":\"\",\"served\":\"held\",\"why_unserved\":\"no room\","        \
	"\"token\":{\"valid\":true}}"
#define PODS(list) "{\"pods\":[" list "],\"refused_manifests\":[]}"

/* What its Envoy would say. */
static const char *warming;

void ctl_warming_add(const struct ctl *c, const json_t *pod, json_t *thing)
{
	json_t *all = json_loads(warming ? warming : "{}", 0, NULL);

	(void)c;
	assert_ptr_equal(pod, thing);
	json_object_update(thing, all);
	json_decref(all);
}

static void all_pods_are_a_table(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(PODS(READY "," STARTING "," REFUSED "," NO_TOKEN "," HELD), 0);
	p = run_command(&ctl_pods, NULL, false);
	assert_string_equal(canned_request(), "GET /pods");
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_string_equal(
	    line(p, 0), "POD         SERVICE ACCOUNT  READY  SERVED  PROVEN  KEYS  UID  PROBLEM");
	assert_string_equal(
	    line(p, 1), "demo/web-0  web              yes    yes     yes     -     u-1  ");
	assert_string_equal(
	    line(p, 2), "demo/db-0   db               no     -       -       -     u-2  ");
	assert_string_equal(
	    line(p, 3), "prod/web-0  web              no     no      -       -     u-3  bad key");
	assert_string_equal(
	    line(p, 4), "demo/app    app              yes    -       no      -     u-4  expired");
	assert_string_equal(
	    line(p, 5), "demo/db-1   db               yes    held    -       -     u-5  no room");
	assert_string_equal(line(p, 6), "");
}

static int status_of(const char *json, const char *name)
{
	int text, as_json;

	canned_answer(json, 0);
	text = run_command(&ctl_pods, name, false)->status;
	as_json = run_command(&ctl_pods, name, true)->status;
	assert_int_equal(text, as_json); /* -o json finds the same problems */
	return text;
}

static void the_exit_status_says_whether_all_is_well(void **state)
{
	(void)state;
	assert_int_equal(status_of(PODS(""), NULL), CTL_OK);
	assert_int_equal(status_of(PODS(READY), NULL), CTL_OK);
	assert_int_equal(status_of(PODS(READY "," STARTING), NULL), CTL_PROBLEM);
	assert_int_equal(status_of(PODS(NO_TOKEN), NULL), CTL_PROBLEM);
	assert_int_equal(status_of(PODS(HELD), NULL), CTL_PROBLEM);
	assert_int_equal(status_of("{\"pods\":[]}", NULL), CTL_OK);
	assert_int_equal(status_of("{}", NULL), CTL_PROBLEM);
}

static void a_refused_manifest_is_told_with_its_reason(void **state)
{
	static const char json[] = "{\"pods\":[" READY "],\"refused_manifests\":"
				   "[{\"file\":\"x.yaml\",\"why\":\"line 3: no uid\"}]}";
	const struct printed *p;

	(void)state;
	canned_answer(json, 0);
	p = run_command(&ctl_pods, NULL, false);
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_string_equal(line(p, 2), "refused: x.yaml: line 3: no uid");
	/* It is no problem of the pod that was asked for. */
	assert_int_equal(status_of(json, "demo/web-0"), CTL_OK);
}

static void one_pod_is_named_in_three_ways(void **state)
{
	static const char *const names[] = {"db-0", "demo/db-0", "u-2"};

	(void)state;
	canned_answer(PODS(READY "," STARTING "," REFUSED), 0);
	for (size_t i = 0; i < 3; i++) {
		const struct printed *p = run_command(&ctl_pods, names[i], false);

		assert_string_equal(line(p, 0), "demo/db-0  NOT ready");
		assert_string_equal(line(p, 1), "  uid            u-2");
		assert_null(strstr(p->out, "u-1"));
		assert_null(strstr(p->out, "u-3"));
		assert_int_equal(p->status, CTL_PROBLEM); /* not ready */
	}
	assert_int_equal(status_of(PODS(READY "," STARTING), "u-1"), CTL_OK);
}

/* Only Envoy knows: it is asked for one pod, and the exit status goes by its answer. */
static void what_has_been_warming_is_a_problem_of_one_pod(void **state)
{
	static const char well[] = PODS(READY);

	(void)state;
	warming = "{\"warming\":[{\"type\":\"Listener\",\"name\":\"outbound\",\"for_s\":75}]}";
	assert_int_equal(status_of(well, "web-0"), CTL_PROBLEM);
	assert_int_equal(status_of(well, NULL), CTL_OK);
	canned_answer(well, 0);
	assert_non_null(strstr(run_command(&ctl_pods, "web-0", false)->out,
	    "  problem        Listener outbound has been warming for 75 s"));
	warming = "{\"warming_unknown\":\"does its Envoy run?\"}";
	assert_int_equal(status_of(well, "web-0"), CTL_OK);
	canned_answer(well, 0);
	assert_non_null(strstr(run_command(&ctl_pods, "web-0", false)->out,
	    "  warming        not known: does its Envoy run?\n"));
	warming = NULL;
}

static void pods_of_one_name_are_all_shown(void **state)
{
	const struct printed *p;
	json_t *v;

	(void)state;
	canned_answer(PODS(READY "," STARTING "," REFUSED), 0);
	p = run_command(&ctl_pods, "web-0", false);
	assert_string_equal(line(p, 0), "demo/web-0  ready, served");
	assert_non_null(
	    strstr(p->out, "\n\nprod/web-0  NOT ready, NOT served\n  problem        bad key\n"));
	assert_null(strstr(p->out, "u-2"));
	assert_int_equal(p->status, CTL_PROBLEM); /* of the second one */

	p = run_command(&ctl_pods, "web-0", true);
	v = json_loads(p->out, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(v, "pods")), 2);
	json_decref(v);
}

/* All that a person asks first, in fewer lines than a screen has. */
static void one_pod_fits_a_screen(void **state)
{
	static const char pod[] =
	    "{\"uid\": \"33567a4b-2a94-441a-a70c-54cb23f25e0a\", \"namespace\": \"demo\", \""
	    "name\": \"web\", \"service_account\": \"web\", \"source\": \"kubelet\", \"ready"
	    "\": false, \"why_not\": \"\", \"problems\": {\"dns\": \"no resolver\"}, \"redir"
	    "ect\": {\"mode\": \"ebpf\", \"policy\": \"strict\", \"in_force\": true, "
	    "\"probe_ports\": [80, 81], \"inbou"
	    "nd\": false, \"open\": true, \"redirected\": 3, \"passed\": 2, \"dropped\": 1, "
	    "\"above\": \"exclusions\", \"counters\": {}}, \"node_id\": "
	    "\"sidecar~10.0.0.7~web.demo~demo.svc.cluster.lo"
	    "cal\", \"control_plane\": \"istiod\", \"ignored\": [\"A\"], \"unsupported\": [\""
	    "B\", \"C\"], \"token\": {\"valid\": false, \"expires\": 0, \"why_not\": \"expir"
	    "ed 3 s ago\"}, \"limits\": [{\"name\": \"connections\", \"unit\": \"\", \"limit"
	    "\": 32, \"hits\": 0}, {\"name\": \"queued\", \"unit\": \"bytes\", \"limit\": 83"
	    "88608, \"hits\": 4}], \"dns\": {\"captured\": true, \"answers\": false, \"names"
	    "\": 7, \"stale\": true, \"requests\": 9, \"failed\": 1}, \"sockets\": {\"accept"
	    "ed\": 5, \"refused\": 2, \"waiting\": 1, \"attested\": {\"unproven\": \"no cgro"
	    "up\"}, \"refused_by\": {\"netns\": 2}, \"refusals\": []}, \"status_port\": "
	    "{\"scrapes\": [\"9090/metrics\", \"9091/x\"], "
	    "\"rewritten_probes\": [\"a\", \"b\"]}, \"remote_wasm\": {\"demo.auth\": \"no "
	    "module\"}, "
	    "\"sends_to\": {\"zipkin\": \"z:9411\"}, "
	    "\"health\": {\"state\": \"unhealthy\", \"why\": \"status 500\", \"asked\": 9, "
	    "\"failed\": 4}, "
	    "\"registration\": {\"group\": \"vm\", \"entry\": \"vm-1.2.3.4\", \"registered\": "
	    "false, \"elsewhere\": true}, "
	    "\"volume\": {\"state\""
	    ": \"published\", \"problem\": \"\"}}";
	auto_free char *answer = mem_printf("{\"pods\":[%s]}", pod);
	const struct printed *p;

	(void)state;
	canned_answer(answer, 0);
	p = run_command(&ctl_pods, "web", false);
	assert_string_equal(p->out,
	    "demo/web  NOT ready\n"
	    "  problem        dns: no resolver\n"
	    "  uid            33567a4b-2a94-441a-a70c-54cb23f25e0a\n"
	    "  account        web, told by the kubelet\n"
	    "  volume         published\n"
	    "  control plane  istiod, as sidecar~10.0.0.7~web.demo~demo.svc.cluster.local\n"
	    "  token          expired 3 s ago\n"
	    "  connections    5 accepted, 2 refused, 1 wait\n"
	    "                 refused: netns (2)\n"
	    "                 not proven: no cgroup\n"
	    "  registration   group vm, entry vm-1.2.3.4: NOT registered, behind NAT\n"
	    "  health         unhealthy: status 500; asked 9 times, 4 in vain\n"
	    "  redirection    ebpf, strict: in force, OPEN\n"
	    "                 3 redirected, 2 passed, 1 dropped\n"
	    "                 above the ceiling: exclusions\n"
	    "  scraped        9090/metrics 9091/x\n"
	    "  probes         2 rewritten\n"
	    "  probes let in  80 81\n"
	    "  remote wasm    demo.auth: no module\n"
	    "  sends to       zipkin z:9411\n"
	    "  dns            NOT answered, 7 names (stale); 9 requests, 1 failed\n"
	    "  limit          queued: reached 4 times (8388608 bytes)\n"
	    "  unsupported    B C\n"
	    "  ignored        A\n");
	for (unsigned i = 0; *line(p, i); i++)
		assert_true(strlen(line(p, i)) <= 80 && i < 25);
	assert_int_equal(p->status, CTL_PROBLEM);
	p = run_command(&ctl_pods, NULL, false);
	assert_non_null(strstr(line(p, 1), "  2 unsupported, 1 ignored  "));
	p = run_asked(ctl_pods.run, (struct ctl){.words = {"web"}, .json = true, .yaml = true});
	assert_non_null(strstr(p->out, "    node_id: \"sidecar~10.0.0.7~web.demo"));
}

static void a_name_that_is_not_there_is_a_problem(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(PODS(READY), 0);
	p = run_command(&ctl_pods, "web-1", false);
	assert_int_equal(p->status, CTL_NOT_FOUND);
	assert_string_equal(p->out, "");
	assert_string_equal(p->err, "agentctl: web-1: no such name (agentctl pods lists them)\n");
	assert_int_equal(status_of(PODS(READY), "demo/"), CTL_NOT_FOUND);
	assert_int_equal(status_of(PODS(READY), ""), CTL_NOT_FOUND);
}

static void json_is_what_agentd_said(void **state)
{
	static const char json[] = "{\"pods\":[" READY "],\"refused_manifests\":[],\"new\":[1]}";
	json_t *v, *w = json_loads(json, 0, NULL);

	(void)state;
	canned_answer(json, 0);
	v = json_loads(run_command(&ctl_pods, NULL, true)->out, 0, NULL);
	assert_true(json_equal(v, w));
	json_decref(v);
	json_decref(w);
}

static void strange_answers_are_survived(void **state)
{
	static const char *const answers[] = {"{}", "{\"pods\":{}}", "{\"pods\":\"x\"}",
	    "{\"pods\":[null,1,\"x\",[],{}]}", "{\"pods\":[],\"refused_manifests\":[1,{}]}",
	    "{\"pods\":[],\"refused_manifests\":\"no\"}",
	    "{\"pods\":[{\"name\":1,\"namespace\":null,\"uid\":[],\"ready\":\"yes\",\"token\":3}]}",
	    "{\"pods\":[{\"namespace\":\"demo\",\"name\":\"web-0\",\"why_not\":{}}]}", NULL};

	(void)state;
	survive_strange_answers(&ctl_pods, answers);
}

static void no_answer_is_passed_on(void **state)
{
	(void)state;
	canned_answer(NULL, CTL_UNREACHABLE);
	assert_int_equal(run_command(&ctl_pods, NULL, false)->status, CTL_UNREACHABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_pods_are_a_table),
	    cmocka_unit_test(the_exit_status_says_whether_all_is_well),
	    cmocka_unit_test(a_refused_manifest_is_told_with_its_reason),
	    cmocka_unit_test(one_pod_fits_a_screen),
	    cmocka_unit_test(one_pod_is_named_in_three_ways),
	    cmocka_unit_test(what_has_been_warming_is_a_problem_of_one_pod),
	    cmocka_unit_test(pods_of_one_name_are_all_shown),
	    cmocka_unit_test(a_name_that_is_not_there_is_a_problem),
	    cmocka_unit_test(json_is_what_agentd_said),
	    cmocka_unit_test(strange_answers_are_survived),
	    cmocka_unit_test(no_answer_is_passed_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
