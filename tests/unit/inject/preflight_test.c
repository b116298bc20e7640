/* preflight_test.c - pods that run with istiod's sidecar: which could be agentd's, and how.
 *
 * LINK: tests/unit/json_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "inject/before.h"
#include "inject/config.h"
#include "inject/preflight.h"
#include "tests/unit/json_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct preflight *p;
static json_t *answer;
static struct err e;

static int setup(void **state)
{
	(void)state;
	e = (struct err){0};
	p = preflight_new(inject_config_new(NULL, NULL, NULL, &e));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	preflight_free(&p);
	json_decref(answer);
	answer = NULL;
	return 0;
}

static void take_text(const char *text)
{
	json_t *o = rig_json(text);

	assert_int_equal(preflight_take(o, &e, p), 0);
	json_decref(o);
}

/* What istiod's injector makes of a pod of Deployment `web`, or of another owner. */
#define STATUS                                                                                     \
	"'sidecar.istio.io/status':'{\\'initContainers\\':[\\'istio-init\\'],\\'containers\\':["   \
	"\\'istio-proxy\\'],\\'volumes\\':[\\'istio-token\\'],\\'imagePullSecrets\\':null}'"
#define INJECTED(kind, owner, annotations, env, app, spec)                                         \
	"{'apiVersion':'v1','kind':'Pod','metadata':{'namespace':'demo','generateName':'" owner    \
	"-','labels':{'app':'web','pod-template-hash':'h4sh'},'ownerReferences':[{'apiVersion':"   \
	"'v1','kind':'" kind "','name':'" owner                                                    \
	"','controller':true}],'annotations':{" STATUS annotations                                 \
	"}},'spec':{'initContainers':[{'name':'istio-init'}],'volumes':[{'name':"                  \
	"'istio-token'},{'name':'own'}],'containers':[{'name':'istio-proxy','image':'p','env':"    \
	"[" env "]},{'name':'app'" app "}]" spec "}}"
#define WEB(annotations, env, app, spec)                                                           \
	INJECTED("ReplicaSet", "web-h4sh", annotations, env, app, spec)

/* The first workload with that verdict. */
static const json_t *row_of(const char *verdict)
{
	json_t *row;
	size_t i;

	json_decref(answer);
	answer = preflight_answer(p);
	json_array_foreach (json_object_get(answer, "workloads"), i, row)
		if (!strcmp(json_string_value(json_object_get(row, "verdict")), verdict))
			return row;
	fail_msg("no row is \"%s\"", verdict);
	return NULL;
}

static long long pods_of(const json_t *row)
{
	return json_integer_value(json_object_get(row, "pods"));
}

static void says(const json_t *row, const char *key, const char *text)
{
	const json_t *list = json_object_get(row, key);
	json_t *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (strstr(json_string_value(v), text))
			return;
	fail_msg("%s does not say: %s", key, text);
}

static void pods_of_an_owner_are_one_row(void **state)
{
	const json_t *row;

	(void)state;
	take_text(WEB("", "", "", ""));
	take_text(WEB("", "", "", ""));
	row = row_of("moves");
	assert_int_equal(pods_of(row), 2);
	assert_string_equal(json_string_value(json_object_get(row, "kind")), "Deployment");
	assert_string_equal(json_string_value(json_object_get(row, "name")), "web");
	assert_string_equal(json_string_value(json_object_get(row, "namespace")), "demo");
	assert_int_equal(json_array_size(json_object_get(row, "changes")), 0);
}

/* By the engine's own words; a mesh says it as well as a pod. */
static void what_a_node_refuses_cannot_move(void **state)
{
	static const char *const cases[][2] = {
	    {WEB(",'sidecar.istio.io/interceptionMode':'TPROXY'", "", "", ""), "TPROXY"},
	    {WEB("", "{'name':'PROXY_CONFIG','value':'{\\'interceptionMode\\':\\'TPROXY\\'}'}", "",
		 ""),
		"TPROXY"},
	    {WEB("", "", "", ",'runtimeClassName':'kata'"), "sandbox"},
	    {WEB(",'inject.istio.io/templates':'gateway'", "", "", ""), "template \"gateway\""},
	    {WEB("", "", "", ",'hostNetwork':true"), "host networking"},
	    {WEB(",'sidecar.istio.io/inject':'false'", "", "", ""), "injection disabled"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		take_text(cases[i][0]);
		says(row_of("cannot"), "refused", cases[i][1]);
		preflight_free(&p);
		setup(NULL);
	}
}

/* One pod of several is enough. */
static void the_worst_pod_of_a_workload_counts(void **state)
{
	(void)state;
	take_text(WEB("", "", "", ""));
	take_text(WEB(",'sidecar.istio.io/interceptionMode':'TPROXY'", "", "", ""));
	take_text(WEB("", "", "", ""));
	assert_int_equal(pods_of(row_of("cannot")), 3);
}

#define REWRITTEN ",'readinessProbe':{'httpGet':{'port':15020,'path':'/app-health/app/readyz'}}"
#define PROBERS                                                                                    \
	"{'name':'ISTIO_KUBE_APP_PROBERS','value':'{\\'/app-health/app/"                           \
	"readyz\\':{\\'tcpSocket\\':{\\'port\\':8080}}}'}"

static void what_is_different_is_said(void **state)
{
	static const char *const cases[][2] = {
	    {WEB("", PROBERS, REWRITTEN, ""), "probes: the kubelet asks the app itself"},
	    {WEB(",'sidecar.istio.io/userVolumeMount':'{\\'c\\':{\\'mountPath\\':\\'/c\\'}}'", "",
		 "", ""),
		"userVolumeMount: Envoy itself"},
	    {WEB(",'sidecar.istio.io/bootstrapOverride':'x'", "", "", ""), "bootstrapOverride"},
	    {INJECTED("Job", "tidy-28412345", "", "", "", ""), "ends with the Job"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		take_text(cases[i][0]);
		says(row_of("changes"), "changes", cases[i][1]);
		preflight_free(&p);
		setup(NULL);
	}
}

#define VARIABLE(name, value) "{'name':'" name "','value':'" value "'}"

static void configured(const char *values, const char *mesh)
{
	json_t *v = rig_json(values), *m = rig_json(mesh);

	preflight_free(&p);
	p = preflight_new(inject_config_new(v, m, NULL, &e));
	json_decref(v);
	json_decref(m);
}

/* What Istio's injector writes itself is no news; nor is what comes from elsewhere. */
static void variables_that_agentd_does_not_see_are_said(void **state)
{
	const json_t *row;

	(void)state;
	take_text(WEB("",
	    VARIABLE("PILOT_CERT_PROVIDER", "istiod") "," VARIABLE("ISTIO_META_WORKLOAD_NAME",
		"w") "," VARIABLE("TRUST_DOMAIN", "td.example") ",{'name':'HOST_IP',"
								"'valueFrom':{}}",
	    "", ""));
	row_of("moves");
	take_text(WEB("", VARIABLE("SECRET_TTL", "2h") "," VARIABLE("LD_PRELOAD", "x"), "", ""));
	row = row_of("changes");
	says(row, "changes", "variable SECRET_TTL of istio-proxy: agentd does not see it");
	says(row, "changes", "variable LD_PRELOAD");
}

#define CANARY "istiod-canary.istio-system.svc:15012"
#define OF_CANARY                                                                                  \
	VARIABLE("PROXY_CONFIG", "{\\'discoveryAddress\\':\\'" CANARY "\\'}")                      \
	"," VARIABLE("CA_ADDR", CANARY)

/* Its own istiod is no other CA, also where the mesh has another one by now. */
static void another_ca_cannot(void **state)
{
	static const char other[] = WEB("", VARIABLE("CA_ADDR", "issuer:443"), "", "");

	(void)state;
	take_text(WEB("", OF_CANARY, "", ""));
	row_of("moves");
	take_text(other);
	says(row_of("cannot"), "refused", "CA_ADDR: \"issuer:443\" refused; allowed: istiod.");
	configured("{}", "{'trustDomain':'cluster.local'}");
	take_text(WEB("", OF_CANARY, "", ""));
	row_of("moves");
	take_text(other);
	says(row_of("cannot"), "refused", "CA_ADDR: \"issuer:443\" refused; allowed: istiod.");
	configured("{'global':{'caAddress':'istiod.istio-system.svc:15012'}}", "{}");
	take_text(other);
	says(row_of("cannot"), "refused", "CA_ADDR: \"issuer:443\" refused; allowed: istiod.");
}

/* Compared where the configuration says it. */
static void a_pod_of_another_mesh_cannot(void **state)
{
	static const char *const cases[][4] = {
	    {"TRUST_DOMAIN", "td.example", "{}", "{'trustDomain':'td.example'}"},
	    {"ISTIO_META_MESH_ID", "m1", "{'global':{'meshID':'m1'}}", "{}"},
	    {"ISTIO_META_CLUSTER_ID", "c1", "{'global':{'multiCluster':{'clusterName':'c1'}}}",
		"{}"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (unsigned k = 0; k < 3; k++) {
			auto_free char *text = mem_printf(WEB("", VARIABLE("%s", "%s"), "", ""),
			    cases[i][0], k == 1 ? "other" : cases[i][1]);

			configured(k < 2 ? cases[i][2] : "{}", k < 2 ? cases[i][3] : "{}");
			take_text(text);
			if (k == 1)
				says(row_of("cannot"), "refused", cases[i][0]);
			else
				row_of("moves");
		}
	}
}

/* Of Istio's template `spire`, whose volume the status lists; and of ours. */
static void a_volume_of_spire_cannot(void **state)
{
	(void)state;
	take_text("{'kind':'Pod','metadata':{'name':'a','annotations':{'sidecar.istio.io/status':'{"
		  "\\'containers\\':[\\'istio-proxy\\'],\\'volumes\\':[\\'s\\']}'}},'spec':{"
		  "'containers':[{'name':'istio-proxy'},{'name':'app'}],'volumes':[{'name':'s',"
		  "'csi':{'driver':'csi.spiffe.io','readOnly':true}}]}}");
	says(row_of("cannot"), "refused", "csi.spiffe.io");
	preflight_free(&p);
	setup(NULL);
	take_text("{'metadata':{'name':'o'},'spec':{'containers':[{'name':'a'}],'volumes':"
		  "[{'name':'v','csi':{'driver':'agentd.node.mesh','readOnly':true}},{'name':'s',"
		  "'csi':{'driver':'csi.spiffe.io'}}]}}");
	says(row_of("cannot"), "refused", "csi.spiffe.io");
}

/* Where a Job's Envoy is no native sidecar, somebody has to end it. */
static void a_job_with_a_classic_sidecar_is_told(void **state)
{
	json_t *own = json_pack("{s:b}", "native", 0);

	(void)state;
	preflight_free(&p);
	p = preflight_new(inject_config_new(NULL, NULL, own, &e));
	json_decref(own);
	take_text(INJECTED("Job", "tidy", "", "", "", ""));
	says(row_of("changes"), "changes", "must POST /quitquitquit");
}

/* Where istio's own rules redirect, Envoy goes on asking for the kubelet. */
static void probes_that_stay_rewritten_are_no_change(void **state)
{
	(void)state;
	take_text(WEB(",'agentd.node.mesh/redirect':'istio-cni'", PROBERS, REWRITTEN, ""));
	row_of("moves");
}

static void istiods_own_template_is_no_obstacle(void **state)
{
	(void)state;
	take_text(WEB(",'inject.istio.io/templates':'sidecar'", "", "", ""));
	row_of("moves");
}

#define PLUGIN(ns, url, more)                                                                      \
	"{'apiVersion':'extensions.istio.io/v1alpha1','kind':'WasmPlugin','metadata':{'name':"     \
	"'auth','namespace':'" ns "'},'spec':{'url':'" url "'" more "}}"

static void a_plugin_finds_its_pods(void **state)
{
	(void)state;
	take_text(PLUGIN("demo", "oci://x", ",'selector':{'matchLabels':{'app':'web'}}"));
	take_text(WEB("", "", "", ""));
	says(row_of("changes"), "changes", "WasmPlugin demo/auth: ");
	preflight_free(&p);
	setup(NULL);
	take_text(WEB("", "", "", ""));
	take_text(PLUGIN("istio-system", "https://x", ""));
	says(row_of("changes"), "changes", "WasmPlugin istio-system/auth: ");
}

static void a_plugin_of_others_changes_nothing(void **state)
{
	(void)state;
	take_text(WEB("", "", "", ""));
	take_text(PLUGIN("demo", "file:///opt/x.wasm", ""));
	take_text(PLUGIN("other", "oci://x", ""));
	take_text(PLUGIN("demo", "oci://x", ",'selector':{'matchLabels':{'app':'other'}}"));
	take_text(PLUGIN("demo", "oci://x", ",'targetRefs':[{'kind':'Gateway'}]"));
	row_of("moves");
}

static void what_has_no_sidecar_is_outside_and_ours_has_moved(void **state)
{
	(void)state;
	take_text("{'kind':'Pod','apiVersion':'v1','metadata':{'name':'n','namespace':'d'},"
		  "'spec':{'containers':[{'name':'a'}]}}");
	take_text("{'metadata':{'name':'o'},'spec':{'containers':[{'name':'a'}],'volumes':"
		  "[{'name':'v','csi':{'driver':'agentd.node.mesh','readOnly':true}}]}}");
	take_text("{'kind':'ConfigMap','apiVersion':'v1'}");
	assert_int_equal(pods_of(row_of("outside")), 1);
	assert_int_equal(pods_of(row_of("moved")), 1);
	assert_int_equal(
	    json_integer_value(json_object_get(json_object_get(answer, "verdicts"), "moved")), 1);
}

/* It runs, published by an agentd before this rule, and its next pod would not start. */
static void ours_without_read_only_cannot(void **state)
{
	(void)state;
	take_text("{'metadata':{'name':'o'},'spec':{'containers':[{'name':'a'}],'volumes':"
		  "[{'name':'v','csi':{'driver':'agentd.node.mesh'}}]}}");
	says(row_of("cannot"), "refused", "the volume of agentd.node.mesh needs readOnly: true");
}

/* Wrong types, wherever they are, and texts that would write to a terminal. */
static void hostile_pods_are_rows_as_others(void **state)
{
	static const char *const pods[] = {"{'kind':'Pod'}", "{'kind':'Pod','spec':1}",
	    "{'kind':'Pod','metadata':[],'spec':{'containers':{}}}",
	    "{'kind':'Pod','metadata':{'annotations':{'sidecar.istio.io/status':'[1]'}},"
	    "'spec':{'containers':[1,{'name':2}],'volumes':'x'}}",
	    WEB(",'proxy.istio.io/overrides':'{\\'containers\\':3,\\'initContainers\\':[1]}'",
		"{'name':1},7,{'name':'PROXY_CONFIG','value':'x'}", ",'readinessProbe':[]", ""),
	    "{'kind':'Pod','metadata':{'name':'\\u001b[2J'},'spec':{'containers':[{}]}}"};
	auto_free char *text = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(pods) / sizeof(*pods); i++)
		take_text(pods[i]);
	row_of("outside");
	text = json_dumps(answer, 0);
	assert_null(strstr(text, "001b"));
}

/* The pod as it was: what the injector added is gone, what was the pod's own is back. */
static void the_pod_before_is_as_its_owner_wrote_it(void **state)
{
	json_t *pod = rig_json(WEB(",'proxy.istio.io/overrides':'{\\'containers\\':[{\\'name\\':"
				   "\\'istio-proxy\\',\\'image\\':\\'auto\\'}]}'",
	    PROBERS, REWRITTEN, ""));
	json_t *want =
	    rig_json("{'initContainers':[],'volumes':[{'name':'own'}],'containers':[{'name':'app',"
		     "'readinessProbe':{'tcpSocket':{'port':8080}}},{'name':'istio-proxy','image':"
		     "'auto'}]}");
	struct inject_before b;

	(void)state;
	inject_before(&b, pod);
	assert_true(json_equal(json_object_get(b.pod, "spec"), want));
	assert_int_equal(b.probes, 1);
	assert_string_equal(json_string_value(json_object_get(b.proxy, "image")), "p");
	inject_before_clear(&b);
	json_decref(pod);
	json_decref(want);
}

static void too_many_workloads_are_refused(void **state)
{
	auto_free char *big = mem_zalloc((1 << 20) + 1);
	int rc = 0;
	unsigned n = 0;

	(void)state;
	memset(big, 'x', 1 << 20);
	for (; !rc && n < 1024; n++) {
		json_t *pod = json_pack("{s:s, s:{s:o, s:{s:s}}, s:{}}", "kind", "Pod", "metadata",
		    "name", json_sprintf("%u", n), "labels", "l", big, "spec");

		rc = preflight_take(pod, &e, p);
		json_decref(pod);
	}
	assert_int_equal(n, 510);
	assert_non_null(strstr(e.msg, "more workloads than can be kept"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    TEST(pods_of_an_owner_are_one_row),
	    TEST(what_a_node_refuses_cannot_move),
	    TEST(the_worst_pod_of_a_workload_counts),
	    TEST(what_is_different_is_said),
	    TEST(variables_that_agentd_does_not_see_are_said),
	    TEST(another_ca_cannot),
	    TEST(a_pod_of_another_mesh_cannot),
	    TEST(a_volume_of_spire_cannot),
	    TEST(a_job_with_a_classic_sidecar_is_told),
	    TEST(probes_that_stay_rewritten_are_no_change),
	    TEST(istiods_own_template_is_no_obstacle),
	    TEST(a_plugin_finds_its_pods),
	    TEST(a_plugin_of_others_changes_nothing),
	    TEST(what_has_no_sidecar_is_outside_and_ours_has_moved),
	    TEST(ours_without_read_only_cannot),
	    TEST(hostile_pods_are_rows_as_others),
	    TEST(the_pod_before_is_as_its_owner_wrote_it),
	    TEST(too_many_workloads_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
