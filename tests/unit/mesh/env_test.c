/* env_test.c - the closed list of security-rules.md 3: each class, its bounds from both sides.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
#include "common/mem.h"
#include "node_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* --- limits of the whole --- */

/* bare-metal-identity.md 4: root's word only, and by these two keys. */
static void test_a_machine_may_register(void **state)
{
	static const char *const keys[] = {"AUTO_REGISTER_GROUP", "WORKLOAD_ENTRY"};
	struct fixture *f = *state;
	char longest[301];

	f->pod.machine = true;
	memset(longest, 'a', 300);
	longest[300] = '\0';
	for (unsigned i = 0; i < 2; i++) {
		auto_free char *key = mem_printf("ISTIO_META_%s", keys[i]);
		auto_free char *config = mem_printf("proxyMetadata: {%s: other}", key);

		accepted(f, key, "web.v2");
		assert_string_equal(meta_text(f, keys[i]), "web.v2");
		assert_true(settings(f)->registers);
		accepted(f, "PROXY_CONFIG", config);
		assert_string_equal(meta_text(f, keys[i]), "other");
		accepted(f, key, "");
		assert_false(settings(f)->registers);
		refused(f, key, longest, "at most 253");
		refused(f, key, "Web", "lower case");
		refused(f, key, "a/b", "DNS subdomain");
	}
	accepted(f, "ISTIO_META_auto_register_group", "web");
	assert_null(meta(f, "auto_register_group"));
	accepted(f, "ISTIO_METAJSON_X", "{\"AUTO_REGISTER_GROUP\": \"web\"}");
	assert_null(meta(f, "AUTO_REGISTER_GROUP"));
}

/* Peers dial it: root's word, by the names of Istio's agent and of its tool. */
static void test_a_machine_says_its_address(void **state)
{
	static const char *const bad[] = {"x", "10.77.0", "0.0.0.0", "127.0.0.2", "169.254.1.1",
	    "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "ff02::1",
	    "10.77.0.3,10.77.0.4"};
	struct fixture *f = *state;

	f->pod.machine = true;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		refused(f, "INSTANCE_IP", bad[i], "can dial");
		refused(f, "ISTIO_SVC_IP", bad[i], "can dial");
	}
	accepted(f, "ISTIO_SVC_IP", "2001:DB8::0:1");
	assert_string_equal(settings(f)->address, "2001:db8::1");
	accepted(f, "INSTANCE_IP", "");
	assert_string_equal(settings(f)->address, "");
	put(f->pod.env, "ISTIO_SVC_IP", "10.77.0.4");
	accepted(f, "INSTANCE_IP", "10.77.0.3");
	assert_string_equal(settings(f)->address, "10.77.0.3");
	assert_false(lists(f, "ignored", "INSTANCE_IP"));
}

static void test_limits_of_the_environment(void **state)
{
	struct fixture *f = *state;
	auto_free char *value = mem_zalloc((64 << 10) + 2);
	char key[140];

	memset(value, 'x', 64 << 10);
	accepted(f, "BIG", value);
	value[64 << 10] = 'x';
	refused(f, "BIG", value, "65536 bytes");
	memset(key, 'k', sizeof(key));
	key[128] = '\0';
	accepted(f, key, "v");
	key[128] = 'k';
	key[129] = '\0';
	put(f->pod.env, key, "v");
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "1 to 128"));
	json_object_del(f->pod.env, key);
	for (int i = 0; i < 256; i++) {
		(void)snprintf(key, sizeof(key), "K%d", i);
		put(f->pod.env, key, "v");
	}
	assert_non_null(make(f));
	assert_int_equal(json_array_size(json_object_get(node_leftovers(f->node), "ignored")), 256);
	put(f->pod.env, "K256", "v");
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "256 entries"));
}

static void test_total_size(void **state)
{
	struct fixture *f = *state;
	auto_free char *value = mem_zalloc((64 << 10) + 1);
	char key[16];

	memset(value, 'x', (64 << 10) - 2);
	for (int i = 0; i < 4; i++) { /* 4 * (64 KiB - 2 + 2) = 256 KiB */
		(void)snprintf(key, sizeof(key), "K%d", i);
		put(f->pod.env, key, value);
	}
	assert_non_null(make(f));
	put(f->pod.env, "E", "");
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "262144 bytes in all"));
}

static void test_bytes_of_the_environment(void **state)
{
	static const char *const keys[] = {"", "A B", "A=B", "A\n", "\xc3\x84", "A\x01", "A~"};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		put(f->pod.env, keys[i], "v");
		assert_null(make(f));
		assert_non_null(strstr(f->e.msg, "key"));
		json_object_del(f->pod.env, keys[i]);
	}
	refused(f, "A", "a\nb", "without line breaks");
	refused(f, "ISTIO_META_A", "a\rb", "without line breaks");
	json_object_set_new(f->pod.env, "A", json_stringn_nocheck("a\0b", 3));
	assert_null(make(f));
	json_object_set_new(f->pod.env, "A", json_stringn_nocheck("a\xff", 2));
	assert_null(make(f));
	json_object_set_new(f->pod.env, "A", json_integer(1));
	assert_null(make(f));
	json_object_del(f->pod.env, "A");
	accepted(f, "PROXY_CONFIG", "concurrency: 2\nstatusPort: 15020\n"); /* YAML may */
	accepted(f, "ISTIO_METAJSON_A", "{\n\"a\": 1}");
	/* so may JSON that is only passed on */
	accepted(f, "ISTIO_META_POD_PORTS", "[\n {\"containerPort\":8080}\r\n]");
	assert_string_equal(meta_text(f, "POD_PORTS"), "[\n {\"containerPort\":8080}\r\n]");
	refused(f, "ISTIO_META_POD_PORTS", "[\n{]", "without line breaks");
	refused(f, "ISTIO_META_A", "\n1", "without line breaks");
}

static void test_limits_of_labels(void **state)
{
	struct fixture *f = *state;

	put(f->pod.labels, "a b", "v");
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "labels"));
	json_object_del(f->pod.labels, "a b");
	put(f->pod.annotations, "a", "line\nline");
	assert_non_null(make(f));
	json_object_set_new(f->pod.annotations, "a", json_true());
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "annotations"));
	json_object_clear(f->pod.annotations);
}

/* As many as an API server lets in: 256 KiB of annotations, and labels by the thousand. */
static void test_many_labels_and_annotations(void **state)
{
	static const char *const keys[] = {"ISTIO_METAJSON_LABELS", "ISTIO_METAJSON_ANNOTATIONS"};
	struct fixture *f = *state;
	json_t *many = json_object();
	auto_free char *text = NULL, *value = mem_zalloc((256 << 10) + 2);
	char key[32];

	for (int i = 0; i < 5000; i++) {
		(void)snprintf(key, sizeof(key), "example.com/k%d", i);
		put(f->pod.labels, key, "v");
		put(many, key, "v");
	}
	memset(value, 'x', 256 << 10);
	put(f->pod.annotations, "one", value);
	assert_non_null(make(f));
	assert_int_equal(json_object_size(meta(f, "LABELS")), 5000);
	text = json_dumps(many, 0);
	for (unsigned i = 0; i < 2; i++) {
		accepted(f, keys[i], text);
		assert_string_equal(meta_text(f, "example.com/k4999"), "v");
		put(many, "big", value);
		free(text);
		text = json_dumps(many, 0);
		accepted(f, keys[i], text);
	}
	json_decref(many);
	put(f->pod.annotations, "two", value); /* 512 KiB, and the keys */
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "annotations: more than 524288 bytes in all"));
	json_object_del(f->pod.annotations, "two");
	put(f->pod.labels, "one", value);
	put(f->pod.labels, "two", value);
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "labels: more than 524288 bytes in all"));
}

/* --- class: must equal one control plane --- */

static void test_control_plane_by_address(void **state)
{
	struct fixture *f = *state;

	accepted(f, "CA_ADDR", "istiod.istio-system.svc:15012");
	assert_int_equal(settings(f)->plane, 0);
	accepted(
	    f, "CA_ADDR", "istiod.istio-system.svc.cluster.local:15012"); /* the same Service */
	assert_int_equal(settings(f)->plane, 0);
	accepted(f, "CA_ADDR", "other.example:15012");
	assert_int_equal(settings(f)->plane, 1);
	assert_string_equal(meta_text(f, "CLUSTER_ID"), "east");
	assert_null(meta(f, "MESH_ID"));
	refused(f, "CA_ADDR", "evil.example:15012", "istiod.istio-system.svc:15012, other.example");
	refused(f, "CA_ADDR", "istiod.istio-system.svc:15010", "allowed");
	refused(f, "CA_ADDR", "istiod.istio-system.svc.evil.example:15012", "allowed");
	refused(f, "CA_ADDR", "xistiod.istio-system.svc:15012", "allowed");
	accepted(f, "PROXY_CONFIG", "{\"discoveryAddress\": \"other.example:15012\"}");
	assert_int_equal(settings(f)->plane, 1);
	refused(f, "PROXY_CONFIG", "discoveryAddress: evil:15012", "other.example:15012");
	refused(f, "PROXY_CONFIG", "discovery_address: evil:15012", "other.example:15012");
	refused(f, "PROXY_CONFIG", "discoveryAddress: {a: b}", "text");
}

static void test_control_plane_by_annotation(void **state)
{
	struct fixture *f = *state;
	const char *annotation = "sidecar.istio.io/discoveryAddress";

	put(f->pod.annotations, annotation, "evil:15012");
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, annotation));
	put(f->pod.annotations, annotation, "other.example:15012");
	assert_non_null(make(f));
	assert_int_equal(settings(f)->plane, 1);
	refused(f, "CA_ADDR", "istiod.istio-system.svc:15012", "different control planes");
	accepted(f, "CA_ADDR", "other.example:15012");
	assert_string_equal(
	    json_string_value(json_object_get(meta(f, "PROXY_CONFIG"), "discoveryAddress")),
	    "other.example:15012");
	json_object_clear(f->pod.annotations);
	put(f->pod.annotations, "proxy.istio.io/config", "discoveryAddress: evil:15012");
	assert_null(make(f));
}

static void test_values_of_the_control_plane(void **state)
{
	struct fixture *f = *state;

	accepted(f, "ISTIOD_SAN", "istiod.istio-system.svc");
	refused(f, "ISTIOD_SAN", "evil", "istiod.istio-system.svc");
	accepted(f, "TRUST_DOMAIN", "cluster.local");
	refused(f, "TRUST_DOMAIN", "evil.local", "cluster.local");
	accepted(f, "ISTIO_META_CLUSTER_ID", "Kubernetes");
	refused(f, "ISTIO_META_CLUSTER_ID", "east", "Kubernetes");
	refused(f, "ISTIO_META_MESH_ID", "mesh2", "mesh1");
	refused(f, "ISTIO_META_CERT_SIGNER", "any", "only empty");
	refused(f, "XDS_ROOT_CA", "SYSTEM", "only empty");
	refused(f, "CA_ROOT_CA", "/etc/shadow", "only empty");
	refused(f, "PILOT_CERT_PROVIDER", "custom", "istiod");
	refused(f, "CA_PROVIDER", "GoogleCA", "Citadel");
	accepted(f, "CA_PROVIDER", "Citadel");
	refused(f, "PROXY_CONFIG", "controlPlaneAuthPolicy: NONE", "MUTUAL_TLS");
	put(f->pod.env, "CA_ADDR", "other.example:15012");
	refused(f, "ISTIO_META_CLUSTER_ID", "Kubernetes", "east");
	/* the plane's trust domain is not known: the claim is neither compared nor used */
	accepted(f, "TRUST_DOMAIN", "any.local");
	assert_true(lists(f, "ignored", "TRUST_DOMAIN"));
	accepted(f, "ISTIO_META_MESH_ID", "any");
	assert_null(meta(f, "MESH_ID"));
}

/* What is listed as ignored begins so. */
static bool lists_ignored(const struct fixture *f, const char *begin)
{
	const json_t *names = json_object_get(node_leftovers(f->node), "ignored"), *v;
	size_t i;

	json_array_foreach (names, i, v)
		if (!strncmp(json_string_value(v), begin, strlen(begin)))
			return true;
	return false;
}

/* The node's settings changed since it was published (security-rules.md G10). */
static void test_a_pod_that_runs_is_not_refused_for_the_nodes_word(void **state)
{
	static const char *const cases[][3] = {
	    {"ISTIO_META_CLUSTER_ID", "west",
		"ISTIO_META_CLUSTER_ID (\"west\"; on this node now: "
		"Kubernetes)"},
	    {"ISTIO_META_MESH_ID", "mesh0", "ISTIO_META_MESH_ID (\"mesh0\""},
	    {"TRUST_DOMAIN", "old.local", "TRUST_DOMAIN (\"old.local\""},
	    {"ISTIOD_SAN", "istiod", "ISTIOD_SAN (\"istiod\""},
	    {"CA_ADDR", "gone.example:15012", "CA_ADDR (\"gone.example:15012\""},
	    {"PROXY_CONFIG", "discoveryAddress: gone.example:15012",
		"PROXY_CONFIG.discoveryAddress (\"gone.example:15012\""},
	    {"SECRET_TTL", "48h", "SECRET_TTL (\"48h\""},
	};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		f->pod.running = false;
		refused(f, cases[i][0], cases[i][1], "allowed");
		f->pod.running = true;
		accepted(f, cases[i][0], cases[i][1]);
		if (!lists_ignored(f, cases[i][2]))
			fail_msg("%s is not listed", cases[i][2]);
	}
	assert_string_equal(meta_text(f, "CLUSTER_ID"), "Kubernetes");
	assert_int_equal(settings(f)->plane, 0);
	/* what is its own fault is no setting of the node's */
	refused(f, "SECRET_TTL", "soon", "allowed");
	refused(f, "CREDENTIAL_FETCHER_TYPE", "GoogleComputeEngine", "allowed");
	refused(f, "POD_NAME", "another", "web-0");
}

static void test_a_limit_that_sank_bounds_a_pod_that_runs(void **state)
{
	struct fixture *f = *state;
	struct node_context c = node_context;

	c.ttl_min_s = 60;
	c.ttl_max_s = 1800;
	c.scope_pod = true;
	f->pod.running = true;
	put(f->pod.env, "SECRET_TTL", "1h");
	put(f->pod.annotations, "agentd.node.mesh/scope", "service-account");
	assert_non_null(make_in(f, &c));
	assert_int_equal(settings(f)->ttl_s, 1800);
	assert_true(settings(f)->scope_pod);
	assert_true(lists_ignored(f, "SECRET_TTL (\"1h\"; on this node now: 60s to 1800s"));
	assert_true(lists_ignored(f, "annotation agentd.node.mesh/scope (\"service-account\""));
	put(f->pod.env, "SECRET_TTL", "30s");
	assert_non_null(make_in(f, &c));
	assert_int_equal(settings(f)->ttl_s, 60);
	f->pod.running = false;
	assert_null(make_in(f, &c));
}

static void test_former_names_of_the_control_plane(void **state)
{
	static const char *const keys[] = {
	    "TRUST_DOMAIN", "ISTIO_META_CLUSTER_ID", "ISTIO_META_MESH_ID"};
	struct fixture *f = *state;
	struct node_plane plane = node_context_planes[0];
	struct node_context c = node_context;

	plane.former_trust_domains = plane.former_cluster_ids = plane.former_mesh_ids = "o,old";
	c.planes = &plane;
	c.nplanes = 1;
	for (unsigned i = 0; i < 3; i++) {
		put(f->pod.env, keys[i], "old");
		assert_non_null(make_in(f, &c));
		assert_int_equal(
		    json_array_size(json_object_get(node_leftovers(f->node), "ignored")), 0);
		put(f->pod.env, keys[i], "ol");
		assert_null(make_in(f, &c));
		json_object_del(f->pod.env, keys[i]);
	}
	put(f->pod.env, "ISTIO_META_CLUSTER_ID", "old");
	assert_non_null(make_in(f, &c));
	assert_string_equal(meta_text(f, "CLUSTER_ID"), "Kubernetes");
}

/* --- classes: fixed, own identity --- */

static void test_fixed(void **state)
{
	static const struct {
		const char *key, *good, *bad;
	} cases[] = {
	    {"CREDENTIAL_FETCHER_TYPE", "JWT", "GoogleComputeEngine"},
	    {"JWT_POLICY", "third-party-jwt", "first-party-jwt"},
	    {"XDS_AUTH_PROVIDER", "", "gcp"},
	    {"ISTIO_BOOTSTRAP", "", "/tmp/mine.json"},
	    {"WORKLOAD_IDENTITY_SOCKET_FILE", "socket", "agent.sock"},
	    {"PROXY_CONFIG", "configPath: ./etc/istio/proxy", "configPath: /tmp"},
	    {"PROXY_CONFIG", "binaryPath: /usr/local/bin/envoy", "binaryPath: /bin/sh"},
	    {"PROXY_CONFIG", "customConfigFile: ''", "customConfigFile: /tmp/x"},
	    {"PROXY_CONFIG", "proxyBootstrapTemplatePath: ~", "proxyBootstrapTemplatePath: /tmp/x"},
	};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		accepted(f, cases[i].key, cases[i].good);
		refused(f, cases[i].key, cases[i].bad, "allowed");
	}
}

static void test_identity_is_the_sources(void **state)
{
	struct fixture *f = *state;

	accepted(f, "POD_NAME", "web-0");
	refused(f, "POD_NAME", "web-1", "web-0");
	accepted(f, "POD_NAMESPACE", "demo");
	refused(f, "POD_NAMESPACE", "prod", "demo");
	accepted(f, "SERVICE_ACCOUNT", "web");
	refused(f, "SERVICE_ACCOUNT", "admin", "web");
	accepted(f, "INSTANCE_IP", "10.9.9.9");
	assert_true(lists(f, "ignored", "INSTANCE_IP"));
	accepted(f, "ISTIO_SVC_IP", "x");
	assert_true(lists(f, "ignored", "ISTIO_SVC_IP"));
	assert_string_equal(meta_text(f, "INSTANCE_IPS"), "127.0.0.1");
}

/* --- class: bounded --- */

static void test_bounds(void **state)
{
	static const struct {
		const char *key, *low, *high, *below, *above, *junk;
	} cases[] = {
	    {"SECRET_TTL", "1h", "24h", "59m59s", "24h1s", "24"},
	    {"SECRET_GRACE_PERIOD_RATIO", "0.2", "0.8", "0.19", "0.81", "nan"},
	    {"SECRET_GRACE_PERIOD_RATIO_JITTER", "0", "0.1", "-0.01", "0.11", "1e-2"},
	    {"DNS_FORWARD_TIMEOUT", "0.1s", "10s", "99ms", "10.1s", "5"},
	    {"WORKLOAD_RSA_KEY_SIZE", "2048", "4096", "1024", "8192", "0x800"},
	    {"ISTIO_CPU_LIMIT", "0", "65535", "-1", "65536", "2.5"},
	    {"ENVOY_STATUS_PORT", "1024", "65535", "1023", "65536", "80a"},
	    {"ENVOY_PROMETHEUS_PORT", "1024", "65535", "1", "165535",
		""
		" 15090"},
	    {"PROXY_CONFIG", "drainDuration: 0s", "drainDuration: 3600s", "drainDuration: -1s",
		"drainDuration: 3601s", "drainDuration: 45"},
	    {"PROXY_CONFIG", "terminationDrainDuration: 0s", "terminationDrainDuration: 1h",
		"terminationDrainDuration: -1s", "terminationDrainDuration: 2h",
		"terminationDrainDuration: soon"},
	    {"PROXY_CONFIG", "concurrency: 0", "concurrency: 256", "concurrency: -1",
		"concurrency: 257", "concurrency: two"},
	};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		accepted(f, cases[i].key, cases[i].low);
		accepted(f, cases[i].key, cases[i].high);
		refused(f, cases[i].key, cases[i].below, "allowed");
		refused(f, cases[i].key, cases[i].above, "allowed");
		refused(f, cases[i].key, cases[i].junk, "allowed");
	}
}

static void test_values_arrive(void **state)
{
	struct fixture *f = *state;

	accepted(f, "SECRET_TTL", "1h30m");
	assert_int_equal(settings(f)->ttl_s, 5400);
	accepted(f, "SECRET_GRACE_PERIOD_RATIO", "0.75");
	assert_true(settings(f)->ratio == 0.75);
	accepted(f, "SECRET_GRACE_PERIOD_RATIO_JITTER", "0.05");
	assert_true(settings(f)->jitter == 0.05);
	accepted(f, "PKCS8_KEY", "true");
	assert_true(settings(f)->key.pkcs8);
	accepted(f, "ISTIO_DELTA_XDS", "false");
	assert_false(settings(f)->delta_xds);
	accepted(f, "PROXY_CONFIG", "{drainDuration: 1m30s, concurrency: 3, statusPort: 0}");
	assert_int_equal(settings(f)->drain_ms, 90000);
	assert_int_equal(settings(f)->concurrency, 3);
	assert_int_equal(settings(f)->agent_port, 0);
	put(f->pod.annotations, "status.sidecar.istio.io/port", "15099");
	accepted(f, "PROXY_CONFIG", "proxyAdminPort: 15999");
	assert_int_equal(settings(f)->admin_port, 15999);
	assert_int_equal(settings(f)->agent_port, 15099);
}

static void test_bool_spellings(void **state)
{
	static const char *const good[] = {
	    "1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"};
	static const char *const bad[] = {"yes", "no", "on", "tRUE", "2", "true ", "1|t", "|"};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(good) / sizeof(*good); i++) {
		accepted(f, "PKCS8_KEY", good[i]);
		assert_int_equal(settings(f)->key.pkcs8, i < 6);
	}
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		refused(f, "ISTIO_DELTA_XDS", bad[i], "true, false");
}

static void test_concurrency(void **state)
{
	struct fixture *f = *state;

	accepted(f, "ISTIO_CPU_LIMIT", "4");
	assert_int_equal(settings(f)->concurrency, 4);
	accepted(f, "ISTIO_CPU_LIMIT", "0");
	assert_int_equal(settings(f)->concurrency, -1);
	accepted(f, "ISTIO_CPU_LIMIT", "384"); /* a node's cores are no reason to refuse */
	assert_int_equal(settings(f)->concurrency, 256);
	put(f->pod.env, "PROXY_CONFIG", "concurrency: 0");
	accepted(f, "ISTIO_CPU_LIMIT", "4");
	assert_int_equal(settings(f)->concurrency, 0);
}

/* decisions.md 5. */
static void test_key_type(void **state)
{
	static const struct {
		const char *algorithm, *curve, *bits;
		enum x509_key_type type;
	} cases[] = {
	    {NULL, NULL, NULL, X509_EC_P256},
	    {"ECDSA", NULL, NULL, X509_EC_P256},
	    {"ECDSA", "P384", NULL, X509_EC_P384},
	    {"ECDSA", "P384", "2048", X509_EC_P384},
	    {NULL, "P384", NULL, X509_EC_P384},
	    {NULL, "P256", "4096", X509_EC_P256},
	    {"", NULL, NULL, X509_RSA_2048},
	    {"", "P384", "3072", X509_RSA_3072},
	    {NULL, NULL, "2048", X509_RSA_2048},
	    {NULL, NULL, "3072", X509_RSA_3072},
	    {NULL, NULL, "4096", X509_RSA_4096},
	};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		json_object_clear(f->pod.env);
		if (cases[i].algorithm)
			put(f->pod.env, "ECC_SIGNATURE_ALGORITHM", cases[i].algorithm);
		if (cases[i].curve)
			put(f->pod.env, "ECC_CURVE", cases[i].curve);
		if (cases[i].bits)
			put(f->pod.env, "WORKLOAD_RSA_KEY_SIZE", cases[i].bits);
		assert_non_null(make(f));
		assert_int_equal(settings(f)->key.type, cases[i].type);
	}
	json_object_clear(f->pod.env);
	refused(f, "ECC_SIGNATURE_ALGORITHM", "RSA", "ECDSA");
	refused(f, "ECC_CURVE", "P521", "P256|P384");
	refused(f, "ECC_CURVE", "P256|P384", "P256|P384");
}

static void test_scope(void **state)
{
	struct fixture *f = *state;

	put(f->pod.annotations, "agentd.node.mesh/scope", "pod");
	assert_non_null(make(f));
	assert_true(settings(f)->scope_pod);
	put(f->pod.annotations, "agentd.node.mesh/scope", "service-account");
	assert_non_null(make(f));
	assert_false(settings(f)->scope_pod);
	put(f->pod.annotations, "agentd.node.mesh/scope", "node");
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "agentd.node.mesh/scope"));
}

/* security-rules.md 2: lowering it is the node's alone. */
static void test_scope_of_the_node(void **state)
{
	struct fixture *f = *state;
	struct node_context c = node_context;

	c.scope_pod = true;
	assert_non_null(make_in(f, &c));
	assert_true(settings(f)->scope_pod);
	put(f->pod.annotations, "agentd.node.mesh/scope", "pod");
	assert_non_null(make_in(f, &c));
	assert_true(settings(f)->scope_pod);
	put(f->pod.annotations, "agentd.node.mesh/scope", "service-account");
	assert_null(make_in(f, &c));
	assert_non_null(strstr(f->e.msg, "agentd.node.mesh/scope"));
	assert_non_null(strstr(f->e.msg, "allowed: pod"));
}

/* --- class: ports --- */

static void test_ports(void **state)
{
	static const char *const taken[] = {"15001", "15006", "15008", "15053"};
	struct fixture *f = *state;

	for (unsigned i = 0; i < 4; i++)
		refused(f, "ENVOY_STATUS_PORT", taken[i], "15001 15006 15008 15053");
	accepted(f, "ENVOY_PROMETHEUS_PORT", "0");
	assert_int_equal(settings(f)->prometheus_port, 0);
	refused(f, "ENVOY_PROMETHEUS_PORT", "15021", "are both 15021");
	refused(f, "ENVOY_PROMETHEUS_PORT", "15000", "are both 15000");
	refused(f, "PROXY_CONFIG", "statusPort: 15090", "are both 15090");
	refused(f, "PROXY_CONFIG", "proxyAdminPort: 0", "1024");
	put(f->pod.env, "ENVOY_STATUS_PORT", "0");
	accepted(f, "ENVOY_PROMETHEUS_PORT", "0"); /* two that are not there do not collide */
}

/* --- classes: node only, not yet supported, unknown --- */

static void test_command_line(void **state)
{
	struct fixture *f = *state;

	accepted(f, "PROXY_CONFIG", "{fileFlushInterval: 250ms, fileFlushMinSizeKb: 64}");
	refused(f, "PROXY_CONFIG", "fileFlushInterval: 0s", "1ms to 3600s");
	refused(f, "PROXY_CONFIG", "fileFlushMinSizeKb: 65536", "0 to 65535");
	refused(f, "HOST_IP", "node-1", "an IP address");
	accepted(f, "HOST_IP", "fd00::1");
}

static void test_ignored_and_unsupported(void **state)
{
	static const char *const ignored[] = {"GRPC_KEEPALIVE_INTERVAL", "ISTIO_GPRC_MAXSTREAMS",
	    "XDS_HEADER_X", "CA_HEADER_AUTHORIZATION", "COMPLIANCE_POLICY", "PILOT_ENABLE_CA_CRL",
	    "PROXY_CONFIG_XDS_AGENT", "CLOUD_PLATFORM", "GCP_METADATA", "WASM_MODULE_EXPIRY",
	    "KUBERNETES_SERVICE_HOST", "FILE_DEBOUNCE_DURATION", "LD_PRELOAD", "PROXY_CONFIG_X"};
	static const char *const unsupported[] = {"PROV_CERT", "OUTPUT_CERTS", "DNS_PROXY_ADDR",
	    "DISABLE_ENVOY", "ISTIO_META_ENABLE_SELF_DISCOVERY", "PEER_METADATA_DISCOVERY",
	    "FILE_MOUNTED_CERTS"};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(ignored) / sizeof(*ignored); i++) {
		accepted(f, ignored[i], "some value");
		assert_true(lists(f, "ignored", ignored[i]));
		assert_null(meta(f, ignored[i]));
	}
	for (unsigned i = 0; i < sizeof(unsupported) / sizeof(*unsupported); i++) {
		accepted(f, unsupported[i], "some value");
		assert_true(lists(f, "unsupported", unsupported[i]));
	}
	accepted(f, "FILE_MOUNTED_CERTS", "false"); /* what happens anyway */
	assert_false(lists(f, "unsupported", "FILE_MOUNTED_CERTS"));
	accepted(f, "ISTIO_META_AUTO_REGISTER_GROUP", "web"); /* no machine */
	assert_true(lists(f, "ignored", "ISTIO_META_AUTO_REGISTER_GROUP"));
	assert_null(meta(f, "AUTO_REGISTER_GROUP"));
	assert_false(settings(f)->registers);
	accepted(f, "PROXY_CONFIG", "readinessProbe: {tcpSocket: {port: 80}}");
	assert_true(lists(f, "unsupported", "PROXY_CONFIG.readinessProbe"));
	accepted(f, "PROXY_CONFIG", "privateKeyProvider: {cryptomb: {pollDelay: 10ms}}");
	assert_true(lists(f, "unsupported", "PROXY_CONFIG.privateKeyProvider"));
	put(f->pod.annotations, "traffic.sidecar.istio.io/excludeInboundPorts", "1");
	put(f->pod.annotations, "kubernetes.io/unrelated", "1");
	assert_non_null(make(f));
	assert_true(
	    !lists(f, "unsupported", "annotation traffic.sidecar.istio.io/excludeInboundPorts"));
	assert_int_equal(json_array_size(json_object_get(node_leftovers(f->node), "ignored")), 0);
}

/* Ours are few, so another one is a mistake; everybody else's are their own. */
static void test_misspelt_annotations(void **state)
{
	struct fixture *f = *state;

	put(f->pod.annotations, "agentd.node.mesh/redirectPolcy", "strict");
	put(f->pod.annotations, "agentd.node.mesh/scop", "");
	put(f->pod.annotations, "agentd.node.mesh/redirect", "ebpf");
	put(f->pod.annotations, "agentd.node.mess/redirect", "ebpf");
	assert_non_null(make(f));
	assert_true(lists(f, "ignored",
	    "annotation agentd.node.mesh/redirectPolcy (nearest: "
	    "agentd.node.mesh/redirectPolicy)"));
	assert_true(lists(
	    f, "ignored", "annotation agentd.node.mesh/scop (nearest: agentd.node.mesh/scope)"));
	assert_int_equal(json_array_size(json_object_get(node_leftovers(f->node), "ignored")), 2);
	json_object_clear(f->pod.annotations);
	put(f->pod.annotations, "traffic.sidecar.istio.io/excludeOutboundPort", "5432");
	put(f->pod.annotations, "traffic.sidecar.istio.io/includeinboundports", "80");
	put(f->pod.annotations, "traffic.sidecar.istio.io/excludeInterfaces", "eth1");
	assert_non_null(make(f));
	assert_true(lists(f, "ignored",
	    "annotation traffic.sidecar.istio.io/excludeOutboundPort (nearest: "
	    "traffic.sidecar.istio.io/excludeOutboundPorts)"));
	assert_true(lists(f, "ignored",
	    "annotation traffic.sidecar.istio.io/includeinboundports (nearest: "
	    "traffic.sidecar.istio.io/includeInboundPorts)"));
	assert_int_equal(json_array_size(json_object_get(node_leftovers(f->node), "ignored")), 2);
	for (unsigned i = 0; i < 100; i++) {
		auto_free char *name = mem_printf("traffic.sidecar.istio.io/x%u", i);

		put(f->pod.annotations, name, "");
	}
	assert_non_null(make(f));
	assert_int_equal(json_array_size(json_object_get(node_leftovers(f->node), "ignored")), 16);
	json_object_clear(f->pod.annotations);
	put(f->pod.annotations, "agentd.node.mesh/redirectAccelerate", "loopback");
	assert_non_null(make(f));
	assert_true(lists(f, "ignored", "annotation agentd.node.mesh/redirectAccelerate"));
}

static void test_empty_is_unset(void **state)
{
	static const char *const keys[] = {"CA_ADDR", "PILOT_CERT_PROVIDER", "SECRET_TTL",
	    "PKCS8_KEY", "TRUST_DOMAIN", "POD_NAME", "ISTIO_META_CLUSTER_ID", "PROXY_CONFIG",
	    "ISTIO_METAJSON_LABELS", "UNKNOWN", "ENVOY_STATUS_PORT"};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		accepted(f, keys[i], "");
}

/* --- class: echo, and the reserved keys by every way --- */

static void test_echo(void **state)
{
	struct fixture *f = *state;

	put(f->pod.env, "ISTIO_META_OWNER", "kubernetes://apis/v1/x");
	put(f->pod.env, "ISTIO_METAJSON_X",
	    "{\"N\": 1, \"B\": true, \"O\": {\"k\": null}, \"L\": [1.5]}");
	assert_non_null(make(f));
	assert_string_equal(meta_text(f, "OWNER"), "kubernetes://apis/v1/x");
	assert_int_equal(json_integer_value(meta(f, "N")), 1);
	assert_true(json_is_true(meta(f, "B")));
	assert_true(json_is_null(json_object_get(meta(f, "O"), "k")));
	assert_null(meta(f, "X"));
	/* istio-agent.md 8.3: JSON wins over text, the environment over proxyMetadata */
	accepted(f, "ISTIO_METAJSON_Y", "{\"OWNER\": \"json\"}");
	assert_string_equal(meta_text(f, "OWNER"), "json");
	accepted(f, "PROXY_CONFIG",
	    "proxyMetadata: {ISTIO_META_OWNER: config, ISTIO_META_NEW: 'true', OTHER: x}");
	assert_string_equal(meta_text(f, "OWNER"), "kubernetes://apis/v1/x");
	assert_string_equal(meta_text(f, "NEW"), "true");
	assert_true(lists(f, "ignored", "PROXY_CONFIG.proxyMetadata.OTHER"));
}

static void test_bad_metajson(void **state)
{
	struct fixture *f = *state;
	char deep[200] = "{\"a\":";

	refused(f, "ISTIO_METAJSON_X", "[]", "JSON object");
	refused(f, "ISTIO_METAJSON_X", "\"text\"", "JSON object");
	refused(f, "ISTIO_METAJSON_X", "{\"a\": 1} x", "JSON object");
	refused(f, "ISTIO_METAJSON_X", "{\"a\": 1, \"a\": 2}", "JSON object");
	refused(f, "ISTIO_METAJSON_X", "{\"a\": \"\\u0000\"}", "JSON object");
	refused(f, "ISTIO_METAJSON_X", "{\"a\": 1e999}", "JSON object");
	refused(f, "ISTIO_METAJSON_X", "{", "JSON object");
	memset(deep + 5, '[', 31);
	memset(deep + 36, ']', 31);
	strcpy(deep + 67, "}");
	accepted(f, "ISTIO_METAJSON_X", deep);
	memset(deep + 5, '[', 32);
	memset(deep + 37, ']', 32);
	strcpy(deep + 69, "}");
	refused(f, "ISTIO_METAJSON_X", deep, "32 deep");
}

static void test_echo_is_bounded(void **state)
{
	struct fixture *f = *state;
	auto_free char *value = mem_zalloc((64 << 10) + 1);
	char key[32];

	for (int i = 0; i < 128; i++) {
		(void)snprintf(key, sizeof(key), "ISTIO_META_K%d", i);
		put(f->pod.env, key, "v");
	}
	accepted(f, "OTHER", "v");
	refused(f, "ISTIO_META_ZZ", "v", "128 keys");
	json_object_clear(f->pod.env);
	memset(value, 'x', (64 << 10) - 12); /* two keys of 12 bytes: 128 KiB */
	put(f->pod.env, "ISTIO_META_A", value);
	put(f->pod.env, "ISTIO_META_B", value);
	assert_non_null(make(f));
	refused(f, "ISTIO_META_C", "", "128 KiB");
}

static const char *const reserved[] = {"NAME", "NAMESPACE", "SERVICE_ACCOUNT", "INSTANCE_IPS",
    "CLUSTER_ID", "MESH_ID", "NODE_NAME", "PILOT_SAN", "ISTIO_VERSION", "GENERATOR",
    "INTERCEPTION_MODE", "DNS_CAPTURE", "credential", "file-credential",
    "WORKLOAD_IDENTITY_SOCKET_FILE", "METADATA_DISCOVERY", "ENABLE_HBONE", "PLATFORM_METADATA",
    "STS_PORT", "AUTO_REGISTER_GROUP", "WORKLOAD_ENTRY", "LABELS", "STATIC_LABELS", "ANNOTATIONS",
    "PROXY_CONFIG", "ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT"};
enum { RESERVED = sizeof(reserved) / sizeof(*reserved) };

/* Nothing in the metadata but what a pod without that key has. */
static void same_metadata(struct fixture *f, const json_t *plain, const char *way, const char *key)
{
	if (!json_equal(json_object_get(node_json(f->node), "metadata"), plain))
		fail_msg("%s brought %s in", way, key);
}

static void flip_case(char *s)
{
	for (; *s; s++)
		if ((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z'))
			*s ^= 0x20;
}

/* istiod decodes without regard to case: "namespace" would be NAMESPACE. */
static void test_reserved_by_ISTIO_META(void **state)
{
	struct fixture *f = *state;
	json_t *plain;

	assert_non_null(make(f));
	plain = json_deep_copy(json_object_get(node_json(f->node), "metadata"));
	for (unsigned i = 0; i < RESERVED; i++) {
		char key[80];

		(void)snprintf(key, sizeof(key), "ISTIO_META_%s", reserved[i]);
		if (strcmp(reserved[i], "CLUSTER_ID") != 0 && strcmp(reserved[i], "MESH_ID") != 0) {
			accepted(f, key, "evil");
			assert_true(lists(f, "ignored", key));
			same_metadata(f, plain, "ISTIO_META_", key);
		}
		flip_case(key + strlen("ISTIO_META_"));
		accepted(f, key, "evil");
		same_metadata(f, plain, "ISTIO_META_", key);
	}
	json_decref(plain);
}

static void test_reserved_by_ISTIO_METAJSON(void **state)
{
	/* Go folds U+017F to 's' and U+212A to 'k'. */
	static const char *const odd[] = {"\xc5\xbf"
					  "ervice_account",
	    "\xc5\xbf"
	    "erVICE_ACCOUNT",
	    "", "NAME\\n", "na me"};
	struct fixture *f = *state;
	json_t *plain;

	assert_non_null(make(f));
	plain = json_deep_copy(json_object_get(node_json(f->node), "metadata"));
	for (unsigned i = 0; i < RESERVED; i++) {
		char json[160], name[40];

		(void)snprintf(name, sizeof(name), "%s", reserved[i]);
		flip_case(name);
		(void)snprintf(
		    json, sizeof(json), "{\"%s\": \"evil\", \"%s\": {}}", reserved[i], name);
		accepted(f, "ISTIO_METAJSON_X", json);
		same_metadata(f, plain, "ISTIO_METAJSON_X", reserved[i]);
		(void)snprintf(json, sizeof(json), "ISTIO_METAJSON_X.%s", reserved[i]);
		assert_true(lists(f, "ignored", json));
		(void)snprintf(json, sizeof(json), "ISTIO_METAJSON_%s", reserved[i]);
		if (strcmp(reserved[i], "LABELS") != 0 && strcmp(reserved[i], "ANNOTATIONS") != 0) {
			accepted(f, json, "{\"NAMESPACE\": \"evil\"}");
			same_metadata(f, plain, json, "NAMESPACE");
		}
	}
	for (unsigned i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		char json[80];

		(void)snprintf(json, sizeof(json), "{\"%s\": \"evil\"}", odd[i]);
		accepted(f, "ISTIO_METAJSON_X", json);
		same_metadata(f, plain, "ISTIO_METAJSON_X", odd[i]);
	}
	json_decref(plain);
}

static void test_reserved_by_other_ways(void **state)
{
	struct fixture *f = *state;

	accepted(f, "ISTIO_METAJSON_LABELS", "{\"NAMESPACE\": \"evil\", \"app\": \"a\"}");
	assert_string_equal(meta_text(f, "NAMESPACE"), "demo");
	assert_string_equal(meta_text(f, "app"), "a"); /* as Istio's own golden shows */
	assert_string_equal(
	    json_string_value(json_object_get(meta(f, "LABELS"), "NAMESPACE")), "evil");
	assert_false(lists(f, "ignored", "ISTIO_METAJSON_LABELS.NAMESPACE")); /* it arrives */
	accepted(f, "ISTIO_METAJSON_X", "{\"NAMESPACE\": \"evil\"}");
	assert_true(lists(f, "ignored", "ISTIO_METAJSON_X.NAMESPACE"));
	accepted(f, "ISTIO_METAJSON_ANNOTATIONS", "{\"SERVICE_ACCOUNT\": \"evil\"}");
	assert_string_equal(meta_text(f, "SERVICE_ACCOUNT"), "web");
	accepted(f, "PROXY_CONFIG",
	    "proxyMetadata: {ISTIO_META_NAMESPACE: evil, ISTIO_META_service_account: evil}");
	assert_string_equal(meta_text(f, "NAMESPACE"), "demo");
	assert_null(meta(f, "service_account"));
	assert_null(with(f, "PROXY_CONFIG", "proxyMetadata: {ISTIO_META_CLUSTER_ID: evil}"));
	assert_non_null(strstr(f->e.msg, "ISTIO_META_CLUSTER_ID: \"evil\" refused"));
	assert_null(with(f, "PROXY_CONFIG", "proxyMetadata: {ISTIO_META_X: {a: b}}"));
	assert_non_null(strstr(f->e.msg, "ISTIO_META_X"));
	refused(f, "PROXY_CONFIG", "proxyMetadata: text", "map");
}

static void test_version(void **state)
{
	static const char *const bad[] = {"1.2", "1.2.3-evil", "1.2.3.4", "v1.2.3", "latest",
	    "1..2", "1.2.3 ", "1.2.12345", "-1.2.3"};
	struct fixture *f = *state;

	accepted(f, "ISTIO_META_ISTIO_VERSION", "1.32.0");
	assert_string_equal(meta_text(f, "ISTIO_VERSION"), "1.32.0");
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		accepted(f, "ISTIO_META_ISTIO_VERSION", bad[i]);
		assert_null(meta(f, "ISTIO_VERSION"));
		assert_true(lists(f, "ignored", "ISTIO_META_ISTIO_VERSION"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(limits_of_the_environment),
	    TEST(total_size),
	    TEST(bytes_of_the_environment),
	    TEST(limits_of_labels),
	    TEST(control_plane_by_address),
	    TEST(control_plane_by_annotation),
	    TEST(values_of_the_control_plane),
	    TEST(a_pod_that_runs_is_not_refused_for_the_nodes_word),
	    TEST(a_limit_that_sank_bounds_a_pod_that_runs),
	    TEST(former_names_of_the_control_plane),
	    TEST(fixed),
	    TEST(identity_is_the_sources),
	    TEST(bounds),
	    TEST(values_arrive),
	    TEST(bool_spellings),
	    TEST(concurrency),
	    TEST(key_type),
	    TEST(scope),
	    TEST(scope_of_the_node),
	    TEST(ports),
	    TEST(command_line),
	    TEST(ignored_and_unsupported),
	    TEST(many_labels_and_annotations),
	    TEST(misspelt_annotations),
	    TEST(empty_is_unset),
	    TEST(echo),
	    TEST(bad_metajson),
	    TEST(echo_is_bounded),
	    TEST(reserved_by_ISTIO_META),
	    TEST(reserved_by_ISTIO_METAJSON),
	    TEST(reserved_by_other_ways),
	    TEST(a_machine_may_register),
	    TEST(a_machine_says_its_address),
	    TEST(version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
