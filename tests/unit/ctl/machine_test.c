/* machine_test.c - where each key goes, what is left out, one uid for one workload, bad files.
 * LINK: agentd/ctl/cluster_env.c agentd/ctl/machine.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/yaml.h"
#include "common/err.h"
#include "common/mem.h"
#include "ctl/machine.h"
#include "machine_files.h"

static struct machine m;
static struct yaml_doc *manifest;

static int teardown(void **state)
{
	(void)state;
	machine_clear(&m);
	yaml_doc_free(&manifest);
	return 0;
}

static int read_as(const char *name, const char *env, const char *mesh, struct err *e)
{
	const struct machine_files f = {name, env, mesh, strlen(env), strlen(mesh)};

	return machine_read(&m, &f, e);
}

static void made_of(const char *env, const char *mesh)
{
	struct err e = {0};

	teardown(NULL);
	if (read_as("vm-1", env, mesh, &e))
		fail_msg("%s", e.msg);
	manifest = yaml_doc_parse(m.manifest, strlen(m.manifest), &e);
	if (!manifest)
		fail_msg("%s\n%s", e.msg, m.manifest);
}

static const json_t *at(const char *map)
{
	return json_object_get(yaml_doc_root(manifest), map);
}

static const char *text(const char *map, const char *key)
{
	const json_t *o = map ? at(map) : yaml_doc_root(manifest);
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "(nothing)";
}

static const char *left(const char *what)
{
	const char *why = json_string_value(json_object_get(m.left, what));

	return why ? why : "";
}

static void each_key_has_its_place(void **state)
{
	char uid[UUID_TEXT_SIZE];

	(void)state;
	made_of(CLUSTER_ENV, MESH_YAML);
	uuid_format(&m.uid, uid);
	assert_string_equal(text(NULL, "uid"), uid);
	assert_string_equal(text(NULL, "name"), "vm-1");
	assert_string_equal(text(NULL, "namespace"), "vm");
	assert_string_equal(text(NULL, "service_account"), "web-sa");
	assert_string_equal(text(NULL, "identity"), "certificate");
	assert_string_equal(text("labels", "version"), "v1");
	assert_string_equal(text("redirect", "istio_inbound_ports"), "*");
	assert_string_equal(text("redirect", "istio_local_exclude_ports"), "22,15090,15021,15020");
	assert_string_equal(text("redirect", "istio_service_cidr"), "*");
	assert_string_equal(text("env", "ISTIO_META_NETWORK"), "net1");
	assert_string_equal(text("env", "ISTIO_META_POD_PORTS"), "[]");
	assert_string_equal(text("env", "ISTIO_METAJSON_LABELS"), "(nothing)");
	assert_string_equal(text("env", "SERVICE_ACCOUNT"), "(nothing)");
	assert_string_equal(m.plane,
	    "- {name: istiod, address: \"istiod.istio-system.svc:15012\", cluster_id: "
	    "\"Kubernetes\", mesh_id: \"mesh1\", trust_domain: \"cluster.local\"}");
}

static void cluster_env_wins_over_mesh_yaml(void **state)
{
	(void)state;
	made_of(CLUSTER_ENV, MESH_YAML);
	assert_string_equal(text("env", "ISTIO_META_MESH_ID"), "mesh1");
}

static void the_rest_of_default_config_is_proxy_config(void **state)
{
	json_t *config,
	    *expected = json_pack("{s:s, s:i, s:{s:{s:i}}, s:b, s:{}}", "discoveryAddress",
		"istiod.istio-system.svc:15012", "concurrency", 2, "readinessProbe", "httpGet",
		"port", 8080, "holdApplicationUntilProxyStarts", 1, "tracing");

	(void)state;
	made_of(CLUSTER_ENV,
	    MESH_YAML "  holdApplicationUntilProxyStarts: yes\n  tracing: {zipkin: }\n");
	config = json_loads(text("env", "PROXY_CONFIG"), 0, NULL);
	assert_true(json_equal(config, expected));
	json_decref(config);
	json_decref(expected);
	made_of(CLUSTER_ENV, "defaultConfig: {}\n");
	assert_string_equal(text("env", "PROXY_CONFIG"), "(nothing)");
	assert_non_null(strstr(m.plane, "istiod.istio-system.svc:15012"));
}

static void what_is_left_out_is_said(void **state)
{
	(void)state;
	made_of(CLUSTER_ENV,
	    "defaultConfig: {readinessProbe: {exec: {command: [x]}}, concurrency: 1}\n");
	assert_non_null(strstr(left("readinessProbe"), "httpGet"));
	assert_null(strstr(text("env", "PROXY_CONFIG"), "exec"));
	made_of(CLUSTER_ENV "ISTIO_SVC_IP='10.0.0.9'\n", MESH_YAML "extensionProviders: []\n");
	assert_string_equal(text("env", "ISTIO_SVC_IP"), "10.0.0.9");
	assert_non_null(strstr(left("extensionProviders"), "defaultConfig"));
	assert_string_equal(text("env", "ISTIO_META_AUTO_REGISTER_GROUP"), "web");
}

static void a_workload_has_one_uid(void **state)
{
	struct uuid first;
	char uid[UUID_TEXT_SIZE];
	struct err e;

	(void)state;
	made_of(CLUSTER_ENV, MESH_YAML);
	first = m.uid;
	uuid_format(&first, uid);
	assert_int_equal(uid[14], '8'); /* the version */
	made_of(CLUSTER_ENV "A='b'\n", "{}\n");
	assert_true(uuid_equal(&m.uid, &first));
	teardown(NULL);
	assert_int_equal(read_as("vm-2", CLUSTER_ENV, MESH_YAML, &e), 0);
	assert_false(uuid_equal(&m.uid, &first));
}

static void strange_texts_stay_what_they_are(void **state)
{
	(void)state;
	made_of("POD_NAMESPACE='vm'\nSERVICE_ACCOUNT='sa'\nA='\xe2\x80\xa8\xef\xbb\xbf: # \"\\ {'\n"
		"ISTIO_METAJSON_LABELS='{\"a: b\":\"- \xe2\x80\xa9\"}'\n",
	    "defaultConfig: {x: \"\\uFFFF\\u2028\", \"k: l\": [a, {b: 'c: d'}]}\n");
	assert_string_equal(text("env", "A"), "\xe2\x80\xa8\xef\xbb\xbf: # \"\\ {");
	assert_string_equal(text("labels", "a: b"), "- \xe2\x80\xa9");
}

static void refused(const char *name, const char *env, const char *mesh, const char *why)
{
	struct err e = {0};

	assert_int_equal(read_as(name, env, mesh, &e), -1);
	assert_null(m.manifest);
	if (!strstr(e.msg, why))
		fail_msg("%s", e.msg);
}

#define OWNER "POD_NAMESPACE='vm'\nSERVICE_ACCOUNT='sa'\n"

static void bad_files_are_refused(void **state)
{
	(void)state;
	refused("a", "x", "{}", "cluster.env: line 1");
	refused("a", OWNER, "[", "mesh.yaml: line ");
	refused("a", OWNER, "[]", "mesh.yaml: no map");
	refused("a", OWNER, "defaultConfig: x", "mesh.yaml: defaultConfig: \"x\" refused");
	refused("a", OWNER, "defaultConfig: {proxyMetadata: x}",
	    "defaultConfig.proxyMetadata: \"x\" refused; allowed: a map");
	refused(
	    "a", OWNER, "defaultConfig: {proxyMetadata: {A: true}}", "proxyMetadata.A: \"true\"");
	refused("a", "POD_NAMESPACE='vm'", "{}", "SERVICE_ACCOUNT is neither");
	refused("a", "SERVICE_ACCOUNT='sa'", "{}", "POD_NAMESPACE is neither");
	refused("a", OWNER "ISTIO_NAMESPACE='x'", "{}", "disagree");
	refused("a", "POD_NAMESPACE='../x'\nSERVICE_ACCOUNT='sa'", "{}", "not a DNS name");
	refused("Host", OWNER, "{}", "--name");
	refused("", OWNER, "{}", "--name");
	refused("a", OWNER "ISTIO_METAJSON_LABELS='[1]'", "{}", "ISTIO_METAJSON_LABELS");
	refused("a", OWNER "ISTIO_METAJSON_LABELS='{\"a\":1}'", "{}", "ISTIO_METAJSON_LABELS");
	refused("a", OWNER "ISTIO_METAJSON_LABELS='{\"a\":\"\\u0001\"}'", "{}",
	    "ISTIO_METAJSON_LABELS");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(each_key_has_its_place, teardown),
	    cmocka_unit_test_teardown(cluster_env_wins_over_mesh_yaml, teardown),
	    cmocka_unit_test_teardown(the_rest_of_default_config_is_proxy_config, teardown),
	    cmocka_unit_test_teardown(what_is_left_out_is_said, teardown),
	    cmocka_unit_test_teardown(a_workload_has_one_uid, teardown),
	    cmocka_unit_test_teardown(strange_texts_stay_what_they_are, teardown),
	    cmocka_unit_test_teardown(bad_files_are_refused, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
