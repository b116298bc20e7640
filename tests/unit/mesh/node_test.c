/* node_test.c - what Envoy and istiod are told about a pod.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
#include "base/pbwire.h"
#include "common/mem.h"
#include "node_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* --- what an undecorated pod gets --- */

static void test_defaults(void **state)
{
	struct fixture *f = *state;
	const struct node_settings *s;

	assert_non_null(make(f));
	s = settings(f);
	assert_int_equal(s->plane, 0);
	assert_int_equal(s->key.type, X509_EC_P256);
	assert_false(s->key.pkcs8);
	assert_string_equal(s->cert_signer, "");
	assert_int_equal(s->ttl_s, 24 * 3600);
	assert_true(s->ratio == 0.5 && s->jitter == 0.01);
	assert_true(s->delta_xds);
	assert_false(s->dual_stack || s->scope_pod);
	assert_int_equal(s->admin_port, 15000);
	assert_int_equal(s->agent_port, 15020);
	assert_int_equal(s->status_port, 15021);
	assert_int_equal(s->prometheus_port, 15090);
	assert_int_equal(s->concurrency, -1);
	assert_int_equal(s->drain_ms, 45000);
	assert_int_equal(json_array_size(json_object_get(node_leftovers(f->node), "ignored")), 0);
	assert_int_equal(
	    json_array_size(json_object_get(node_leftovers(f->node), "unsupported")), 0);
}

/* istio-agent.md 0.16, 8.2, 8.3. */
static void test_node_of_a_plain_pod(void **state)
{
	struct fixture *f = *state;

	assert_non_null(make(f));
	assert_string_equal(
	    node_id(f->node), "sidecar~127.0.0.1~web-0.demo~demo.svc.cluster.local");
	assert_string_equal(
	    json_string_value(json_object_get(node_json(f->node), "id")), node_id(f->node));
	assert_string_equal(
	    json_string_value(json_object_get(node_json(f->node), "cluster")), "istio-proxy.demo");
	assert_null(json_object_get(node_json(f->node), "locality"));
	assert_string_equal(meta_text(f, "NAME"), "web-0");
	assert_string_equal(meta_text(f, "NAMESPACE"), "demo");
	assert_string_equal(meta_text(f, "SERVICE_ACCOUNT"), "web");
	assert_string_equal(meta_text(f, "CLUSTER_ID"), "Kubernetes");
	assert_string_equal(meta_text(f, "MESH_ID"), "mesh1");
	assert_string_equal(meta_text(f, "NODE_NAME"), "node-1");
	assert_string_equal(meta_text(f, "INTERCEPTION_MODE"), "NONE");
	assert_string_equal(meta_text(f, "ENVOY_SKIP_DEPRECATED_LOGS"), "true");
	assert_string_equal(meta_text(f, "WORKLOAD_IDENTITY_SOCKET_FILE"), "socket");
	assert_string_equal(meta_text(f, "METADATA_DISCOVERY"), "false");
	assert_int_equal(node_settings(f->node)->dns_timeout_ms, 5000);
	assert_string_equal(
	    json_string_value(json_array_get(meta(f, "PILOT_SAN"), 0)), "istiod.istio-system.svc");
	assert_int_equal(json_integer_value(meta(f, "ENVOY_STATUS_PORT")), 15021);
	assert_int_equal(json_integer_value(meta(f, "ENVOY_PROMETHEUS_PORT")), 15090);
	assert_true(json_is_object(meta(f, "PROXY_CONFIG")));
	/* What there is nothing of is left out. */
	assert_null(meta(f, "LABELS"));
	assert_null(meta(f, "ANNOTATIONS"));
	assert_null(meta(f, "STATIC_LABELS"));
	assert_null(meta(f, "DNS_CAPTURE"));
	assert_null(meta(f, "ISTIO_VERSION")); /* absent: istiod takes it for a new one */
}

static const json_t *proxy_config(const struct fixture *f, const char *field)
{
	return json_object_get(meta(f, "PROXY_CONFIG"), field);
}

static void test_proxy_config_has_the_types_of_istio(void **state)
{
	struct fixture *f = *state;

	assert_non_null(make(f));
	assert_int_equal(json_integer_value(proxy_config(f, "proxyAdminPort")), 15000);
	assert_int_equal(json_integer_value(proxy_config(f, "statusPort")), 15020);
	assert_int_equal(json_integer_value(proxy_config(f, "statNameLength")), 189);
	assert_null(proxy_config(f, "concurrency"));
	accepted(f, "ISTIO_CPU_LIMIT", "2"); /* then it is the concurrency */
	assert_int_equal(json_integer_value(proxy_config(f, "concurrency")), 2);
	accepted(f, "PROXY_CONFIG", "{concurrency: 0, statNameLength: 200}");
	assert_true(json_is_integer(proxy_config(f, "concurrency")));
	assert_int_equal(json_integer_value(proxy_config(f, "concurrency")), 0);
	assert_int_equal(json_integer_value(proxy_config(f, "statNameLength")), 200);
}

static void test_addresses(void **state)
{
	static const char *const v4[] = {"10.0.0.7", "not an address", "10.0.0.7", "fd00::7",
	    "10.0.0.300", "fe80::1%eth0", "::ffff:10.0.0.9"};
	static const char *const v6[] = {"fd00::7"};
	struct fixture *f = *state;
	struct node_context six = node_context;

	assert_non_null(make(f));
	assert_string_equal(meta_text(f, "INSTANCE_IPS"), "127.0.0.1");
	assert_true(node_set_addresses(f->node, v4, 7));
	assert_false(node_set_addresses(f->node, v4, 7));
	assert_string_equal(meta_text(f, "INSTANCE_IPS"), "10.0.0.7,fd00::7,::ffff:10.0.0.9");
	assert_string_equal(node_id(f->node), "sidecar~10.0.0.7~web-0.demo~demo.svc.cluster.local");
	assert_false(node_is_ipv6(f->node));
	assert_true(node_has_family(f->node, true) && node_has_family(f->node, false));
	assert_true(node_set_addresses(f->node, v6, 1));
	assert_true(node_is_ipv6(f->node));
	assert_string_equal(node_id(f->node), "sidecar~fd00::7~web-0.demo~demo.svc.cluster.local");
	node_set_addresses(f->node, NULL, 0);
	assert_string_equal(meta_text(f, "INSTANCE_IPS"), "127.0.0.1");
	node_free(&f->node);
	six.ipv6 = true;
	f->node = node_new(&f->pod, &six, &f->e);
	assert_string_equal(node_id(f->node), "sidecar~::1~web-0.demo~demo.svc.cluster.local");
	assert_true(node_is_ipv6(f->node));
}

/* First, among the others or not, as behind NAT. */
static void test_the_address_that_a_machine_says(void **state)
{
	static const char *const ips[] = {"172.17.0.1", "10.77.0.3", "fd00::7"};
	struct fixture *f = *state;
	char many[80][INET6_ADDRSTRLEN];
	const char *all[80];

	f->pod.machine = true;
	accepted(f, "INSTANCE_IP", "10.77.0.3");
	assert_string_equal(meta_text(f, "INSTANCE_IPS"), "10.77.0.3,127.0.0.1");
	assert_false(node_has_addresses(f->node) || node_is_elsewhere(f->node));
	assert_true(node_set_addresses(f->node, ips, 3));
	assert_string_equal(meta_text(f, "INSTANCE_IPS"), "10.77.0.3,172.17.0.1,fd00::7");
	assert_true(node_has_addresses(f->node) && !node_is_elsewhere(f->node));
	assert_false(node_set_addresses(f->node, ips, 3));
	node_set_addresses(f->node, ips, 1);
	assert_string_equal(meta_text(f, "INSTANCE_IPS"), "10.77.0.3,172.17.0.1");
	assert_true(node_is_elsewhere(f->node));
	assert_string_equal(
	    node_id(f->node), "sidecar~10.77.0.3~web-0.demo~demo.svc.cluster.local");
	for (unsigned i = 0; i < 80; i++) {
		(void)snprintf(many[i], sizeof(many[i]), "10.1.0.%u", i + 1);
		all[i] = many[i];
	}
	node_set_addresses(f->node, all, 80);
	assert_memory_equal(meta_text(f, "INSTANCE_IPS"), "10.77.0.3,10.1.0.1,10.1.0.2,", 28);
	assert_string_equal(strrchr(meta_text(f, "INSTANCE_IPS"), ','), ",10.1.0.63");
	/* no reason for listeners that cannot be bound */
	accepted(f, "INSTANCE_IP", "2001:db8::9");
	assert_false(node_is_ipv6(f->node));
}

static void test_dual_stack_takes_the_first_family(void **state)
{
	static const char *const ips[] = {"fd00::7", "10.0.0.7"};
	struct fixture *f = *state;

	assert_non_null(make(f));
	node_set_addresses(f->node, ips, 2);
	assert_false(node_is_ipv6(f->node));
	accepted(f, "ISTIO_DUAL_STACK", "true");
	node_set_addresses(f->node, ips, 2);
	assert_true(node_is_ipv6(f->node));
}

static void test_many_addresses_are_cut(void **state)
{
	struct fixture *f = *state;
	const char *ips[100];
	char text[100][20];

	for (int i = 0; i < 100; i++) {
		(void)snprintf(text[i], sizeof(text[i]), "10.0.0.%d", i);
		ips[i] = text[i];
	}
	assert_non_null(make(f));
	node_set_addresses(f->node, ips, 100);
	assert_non_null(strstr(meta_text(f, "INSTANCE_IPS"), ",10.0.0.63"));
	assert_null(strstr(meta_text(f, "INSTANCE_IPS"), ",10.0.0.64"));
}

static const char *cluster_of(const struct fixture *f)
{
	return json_string_value(json_object_get(node_json(f->node), "cluster"));
}

static void test_cluster_name(void **state)
{
	struct fixture *f = *state;

	accepted(f, "ISTIO_META_WORKLOAD_NAME", "wl");
	assert_string_equal(cluster_of(f), "wl.demo");
	put(f->pod.labels, "service.istio.io/canonical-name", "canon");
	accepted(f, "ISTIO_META_WORKLOAD_NAME", "wl");
	assert_string_equal(cluster_of(f), "canon.demo");
	put(f->pod.labels, "app.kubernetes.io/name", "named");
	assert_non_null(make(f));
	assert_string_equal(cluster_of(f), "named.demo");
	put(f->pod.labels, "app", "shop");
	assert_non_null(make(f));
	assert_string_equal(cluster_of(f), "shop.demo");
	accepted(f, "PROXY_CONFIG", "serviceCluster: istio-proxy");
	assert_string_equal(cluster_of(f), "shop.demo");
	accepted(f, "PROXY_CONFIG", "serviceCluster: own");
	assert_string_equal(cluster_of(f), "own");
}

/* istio-agent.md 8.2: ProxyConfig has one of the two. */
static void test_tracing_name(void **state)
{
	struct fixture *f = *state;

	accepted(f, "PROXY_CONFIG", "tracingServiceName: CANONICAL_NAME_ONLY");
	assert_string_equal(cluster_of(f), "istio-proxy.demo");
	accepted(f, "PROXY_CONFIG", "tracingServiceName: CANONICAL_NAME_AND_NAMESPACE");
	assert_string_equal(cluster_of(f), "istio-proxy.demo");
	put(f->pod.labels, "app", "shop");
	put(f->pod.labels, "service.istio.io/canonical-name", "canon");
	accepted(f, "PROXY_CONFIG", "tracingServiceName: APP_LABEL_AND_NAMESPACE");
	assert_string_equal(cluster_of(f), "shop.demo");
	accepted(f, "PROXY_CONFIG", "tracingServiceName: CANONICAL_NAME_ONLY");
	assert_string_equal(cluster_of(f), "canon");
	accepted(f, "PROXY_CONFIG", "tracingServiceName: CANONICAL_NAME_AND_NAMESPACE");
	assert_string_equal(cluster_of(f), "canon.demo");
	refused(f, "PROXY_CONFIG", "tracingServiceName: OTHER", "CANONICAL_NAME_ONLY");
}

static void assert_locality(
    struct fixture *f, const char *label, const char *value, const char *expected)
{
	auto_free char *text = NULL;

	put(f->pod.labels, label, value);
	assert_non_null(make(f));
	text = json_dumps(json_object_get(node_json(f->node), "locality"), JSON_COMPACT);
	assert_string_equal(text, expected);
}

static void test_locality(void **state)
{
	struct fixture *f = *state;

	assert_locality(
	    f, "istio-locality", "r.z.s", "{\"region\":\"r\",\"sub_zone\":\"s\",\"zone\":\"z\"}");
	assert_locality(f, "istio-locality", "r.1/z", "{\"region\":\"r.1\",\"zone\":\"z\"}");
	assert_locality(
	    f, "topology.istio.io/locality", "eu/a", "{\"region\":\"eu\",\"zone\":\"a\"}");
	assert_locality(f, "topology.istio.io/locality", "eu/a/1/more",
	    "{\"region\":\"eu\",\"sub_zone\":\"1\",\"zone\":\"a\"}");
	assert_locality(f, "topology.istio.io/locality", "eu", "{\"region\":\"eu\"}");
	strcpy(f->pod.locality, "us/b"); /* of a manifest */
	assert_locality(
	    f, "topology.istio.io/locality", "eu", "{\"region\":\"us\",\"zone\":\"b\"}");
}

/* --- bytes --- */

/* The same pod told in another order gives the same bytes. */
static void test_deterministic(void **state)
{
	static const char *const pairs[][2] = {{"ISTIO_META_Z", "1"}, {"ISTIO_META_A", "2"},
	    {"UNKNOWN", "x"}, {"ISTIO_METAJSON_Q", "{\"z\": {\"b\": 1, \"a\": 2}, \"c\": 1.5}"}};
	struct fixture *f = *state;
	auto_free char *first = NULL, *second = NULL;
	auto_free void *bytes = NULL;
	const void *rendered;
	size_t n, m;

	for (int i = 0; i < 4; i++) {
		put(f->pod.env, pairs[i][0], pairs[i][1]);
		put(f->pod.labels, pairs[i][0], "v");
	}
	assert_non_null(make(f));
	first = json_dumps(node_json(f->node), 0);
	rendered = node_metadata_struct(f->node, &n);
	bytes = mem_dup(rendered, n);
	json_object_clear(f->pod.env);
	json_object_clear(f->pod.labels);
	for (int i = 3; i >= 0; i--) {
		put(f->pod.env, pairs[i][0], pairs[i][1]);
		put(f->pod.labels, pairs[i][0], "v");
	}
	assert_non_null(make(f));
	second = json_dumps(node_json(f->node), 0);
	assert_string_equal(first, second);
	assert_memory_equal(bytes, node_metadata_struct(f->node, &m), n);
	assert_int_equal(n, m);
}

/* A reader of google.protobuf.Struct, independent of the writer. */
static json_t *read_value(struct pbwire r);

static char *text_of(struct pbwire r)
{
	char *s = mem_zalloc(r.left + 1);

	assert_int_equal(pbwire_string(r, s, r.left + 1), 0);
	return s;
}

static json_t *read_struct(struct pbwire r)
{
	json_t *o = json_object();
	struct pbwire_field f, part;

	while (pbwire_next(&r, &f) == 1) {
		auto_free char *key = NULL;

		assert_int_equal(f.number, 1);
		assert_int_equal(pbwire_next(&f.bytes, &part), 1);
		assert_int_equal(part.number, 1);
		key = text_of(part.bytes);
		assert_int_equal(pbwire_next(&f.bytes, &part), 1);
		assert_int_equal(part.number, 2);
		json_object_set_new(o, key, read_value(part.bytes));
		assert_int_equal(pbwire_next(&f.bytes, &part), 0);
	}
	assert_int_equal(r.left, 0);
	return o;
}

static json_t *read_value(struct pbwire r)
{
	struct pbwire_field f;
	auto_free char *text = NULL;
	double d;
	json_t *list;

	assert_int_equal(pbwire_next(&r, &f), 1);
	switch (f.number) {
	case 1:
		return json_null();
	case 2:
		assert_int_equal(f.type, PBWIRE_FIXED64);
		memcpy(&d, &f.value, sizeof(d));
		return json_real(d);
	case 3:
		text = text_of(f.bytes);
		return json_string(text);
	case 4:
		return json_boolean(f.value);
	case 5:
		return read_struct(f.bytes);
	default:
		assert_int_equal(f.number, 6);
		list = json_array();
		for (struct pbwire items = f.bytes; pbwire_next(&items, &f) == 1;)
			json_array_append_new(list, read_value(f.bytes));
		return list;
	}
}

/* Protobuf knows only doubles. */
static json_t *as_doubles(const json_t *v)
{
	const char *key;
	json_t *child, *out;
	size_t i;

	if (json_is_integer(v))
		return json_real((double)json_integer_value(v));
	out = json_copy((json_t *)v);
	json_object_foreach (out, key, child)
		json_object_set_new(out, key, as_doubles(child));
	json_array_foreach (out, i, child)
		json_array_set_new(out, i, as_doubles(child));
	return out;
}

static void test_struct_equals_json(void **state)
{
	struct fixture *f = *state;
	struct pbwire r;
	struct iovec iov;
	json_t *from_bytes, *from_json;

	put(f->pod.env, "ISTIO_META_EMPTY", "");
	put(f->pod.env, "ISTIO_METAJSON_T",
	    "{\"n\": null, \"t\": true, \"f\": false, \"i\": -7, \"d\": 0.1, \"s\": \"\\u00e4\","
	    " \"l\": [], \"o\": {}, \"deep\": [[{\"x\": [1, \"2\"]}]]}");
	put(f->pod.labels, "app", "web");
	assert_non_null(make(f));
	iov.iov_base = (void *)node_metadata_struct(f->node, &iov.iov_len);
	pbwire_init(&r, &iov, 1);
	from_bytes = read_struct(r);
	from_json = as_doubles(json_object_get(node_json(f->node), "metadata"));
	assert_true(json_equal(from_bytes, from_json));
	json_decref(from_bytes);
	json_decref(from_json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(defaults),
	    TEST(node_of_a_plain_pod),
	    TEST(proxy_config_has_the_types_of_istio),
	    TEST(addresses),
	    TEST(the_address_that_a_machine_says),
	    TEST(dual_stack_takes_the_first_family),
	    TEST(many_addresses_are_cut),
	    TEST(cluster_name),
	    TEST(tracing_name),
	    TEST(locality),
	    TEST(deterministic),
	    TEST(struct_equals_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
