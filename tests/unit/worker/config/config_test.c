/* config_test.c - defaults, file, flags; what is refused, and how it is said. */
#include "common/err.h"
#include "common/flags.h"
#include "common/mem.h"
#include "worker/config/config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PLANE "control_planes:\n  - name: istiod\n    address: istiod.example:15012\n"

/* Flags end with NULL. */
static int load(struct config *c, const char *text, struct err *e, ...)
{
	char *argv[16] = {"agentd-worker"};
	int argc = 1;
	va_list ap;

	va_start(ap, e);
	while (argc < 15 && (argv[argc] = va_arg(ap, char *)))
		argc++;
	va_end(ap);
	*e = (struct err){0};
	return config_load(
	    c, &(struct config_file){"agentd.yaml", text, strlen(text)}, argc, argv, e);
}

static void file_fails(const char *text, const char *expected)
{
	struct config c;
	struct err e;

	if (!load(&c, text, &e, NULL))
		fail_msg("taken: %s", text);
	if (!strstr(e.msg, expected))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, expected);
	config_clear(&c); /* nothing is left, so nothing happens */
}

static void flag_fails(const char *flag, const char *value, const char *expected)
{
	struct config c;
	struct err e;

	if (!load(&c, "", &e, flag, value, NULL))
		fail_msg("taken: %s", flag);
	if (!strstr(e.msg, expected))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, expected);
}

static void test_memory_of_a_pod(void **state)
{
	struct config c;
	struct err e;

	(void)state;
	flag_fails("--pod-message-mib", "17", "pod_memory_mib is below twice pod_message_mib");
	assert_int_equal(load(&c, "pod_memory_mib: 128\npod_message_mib: 64\n", &e, NULL), 0);
	assert_int_equal(c.pod_message_mib, 64);
	config_clear(&c);
}

static void test_defaults(void **state)
{
	struct config c;
	struct err e;
	char host[256] = "";

	(void)state;
	assert_int_equal(load(&c, "", &e, NULL), 0);
	assert_string_equal(c.log_level, "info");
	assert_false(c.log_json || c.check || c.pcds);
	gethostname(host, sizeof(host) - 1);
	assert_string_equal(c.node_name, host);
	assert_string_equal(c.istio_namespace, "istio-system");
	assert_string_equal(c.cluster_domain, "cluster.local");
	assert_string_equal(c.ip_family, "ipv4");
	assert_int_equal(c.secret_ttl_min_s, 3600);
	assert_int_equal(c.secret_ttl_max_s, 86400);
	assert_int_equal(c.certificate_reissue_min_s, 300);
	assert_int_equal(c.certificate_linger_s, 300);
	assert_string_equal(c.certificate_scope, "service-account");
	assert_int_equal(c.csr_per_second, 10);
	assert_int_equal(c.push_memory_mib, 64);
	assert_string_equal(c.attest, "prefer");
	assert_string_equal(c.state_keys, "tmpfs");
	assert_int_equal(c.nplanes, 1);
	assert_string_equal(c.planes[0].name, "istiod");
	assert_string_equal(c.planes[0].address, "istiod.istio-system.svc:15012");
	assert_string_equal(c.planes[0].root, "");
	assert_string_equal(c.planes[0].server_name, "istiod.istio-system.svc");
	assert_string_equal(c.planes[0].trust_domain, "");
	assert_string_equal(c.planes[0].cluster_id, "Kubernetes");
	assert_string_equal(c.planes[0].mesh_id, "");
	assert_int_equal(c.planes[0].connections, 2);
	assert_int_equal(c.planes[0].opens_per_second, 20);
	assert_int_equal(c.planes[0].opens_burst, 5);
	assert_int_equal(c.planes[0].pod_opens_per_second, 1);
	assert_int_equal(c.planes[0].pod_opens_burst, 3);
	assert_int_equal(c.planes[0].unread_stream_s, 15);
	assert_int_equal(c.planes[0].hold_empty_push_s, 30);
	config_clear(&c);
	assert_null(c.planes);
	config_clear(&c);
}

static void test_file(void **state)
{
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(load(&c,
			     "# comment\nlog_level: sds:debug\nlog_json: true\nnode_name: n1\n"
			     "host_ip: fd00::1\n"
			     "ip_family: ipv6\nsecret_ttl_min_s: 1\nsecret_ttl_max_s: 31536000\n"
			     "certificate_reissue_min_s: 1\ncertificate_linger_s: 0\n"
			     "istio_namespace: mesh\ncluster_domain: a.b\n",
			     &e, NULL),
	    0);
	assert_string_equal(c.log_level, "sds:debug");
	assert_true(c.log_json);
	assert_string_equal(c.node_name, "n1");
	assert_string_equal(c.host_ip, "fd00::1");
	assert_string_equal(c.ip_family, "ipv6");
	assert_int_equal(c.secret_ttl_min_s, 1);
	assert_int_equal(c.secret_ttl_max_s, 31536000);
	assert_int_equal(c.certificate_reissue_min_s, 1);
	assert_int_equal(c.certificate_linger_s, 0);
	assert_string_equal(c.cluster_domain, "a.b");
	assert_string_equal(c.planes[0].address, "istiod.mesh.svc:15012");
	config_clear(&c);
}

static void test_flags_win(void **state)
{
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(load(&c, "log_level: info\nnode_name: file\nlog_json: true\n", &e,
			     "--log-level", "debug", "--node-name=flag", "--log-json=false",
			     "--check", "--secret-ttl-min-s=5", "--istio-namespace", "mesh", NULL),
	    0);
	assert_string_equal(c.log_level, "debug");
	assert_string_equal(c.node_name, "flag");
	assert_false(c.log_json);
	assert_true(c.check);
	assert_int_equal(c.secret_ttl_min_s, 5);
	assert_string_equal(c.planes[0].server_name, "istiod.mesh.svc");
	config_clear(&c);
	assert_int_equal(
	    load(&c, "", &e, "--log-json", "--node-name=a=b", "--check-state", NULL), 0);
	assert_true(c.log_json && c.check_state && !c.check);
	assert_string_equal(c.node_name, "a=b");
	config_clear(&c);
}

static void test_bad_flags(void **state)
{
	(void)state;
	flag_fails("--certificate-scope", "node", "service-account or pod");
	flag_fails("--csr-per-second", "0", "1 to 100");
	flag_fails("--log-levle", "debug", "--log-levle: no such flag; nearest: --log-level");
	flag_fails("--log_level", "debug", "nearest: --log-level");
	flag_fails("log-level", "debug", "nearest: --log-level");
	flag_fails("--kubelet-rot", "/k", "nearest: --kubelet-root");
	flag_fails("-h", NULL, "no such flag");
	flag_fails("", NULL, "no such flag");
	flag_fails("--log-level", NULL, "--log-level needs a value");
	flag_fails("--log-level=", NULL, "log_level");
	flag_fails("--log-json=yes", NULL, "true or false");
	flag_fails("--control-planes=x", NULL, "no such flag");
	flag_fails("--secret-ttl-min-s", "0", "a number from 1 to 31536000");
	flag_fails("--check", "now", "now: no such flag");
	flag_fails("--max-pods", "1", "--max-pods is for the broker");
}

static void test_bad_files(void **state)
{
	(void)state;
	file_fails("log_level: info\nnode_nmae: x\n",
	    "agentd.yaml: line 2: node_nmae: no such key; nearest: node_name");
	file_fails("control_plane: []\n", "nearest: control_planes");
	file_fails("check: true\n", "check: is no key of this file");
	file_fails("log-level: info\n", "nearest: log_level");
	file_fails("\n\nrun: /run\n",
	    "line 3: run: is no key of this file, but the flag --run of agentd's command line");
	file_fails("max_pods: 3\n", "the flag --max-pods of agentd");
	file_fails("kubelet_root: /k\n", "the flag --kubelet-root of agentd");
	file_fails("kubelet_rot: /k\n",
	    "kubelet_rot: no such key; nearest: the flag --kubelet-root of agentd's command line");
	file_fails("check_state: true\n", "no such key");
	file_fails("log_json: yes\n", "line 1: log_json: \"yes\" must be true or false");
	file_fails("node_name: a b\n", "one word");
	file_fails("node_name: [a]\n", "one value");
	file_fails("certificate_directories: /etc,certs\n", "absolute paths");
	file_fails("host_ip: node-1\n", "an IP address");
	file_fails("host_ip: 10.0.0.1,10.0.0.2\n", "an IP address");
	file_fails("ip_family: 4\n", "ipv4 or ipv6");
	file_fails("istio_namespace: a.b\n", "a DNS label");
	file_fails("secret_ttl_min_s: 1h\n", "a number from 1");
	file_fails("secret_ttl_min_s: 31536001\n", "a number from 1 to 31536000");
	file_fails("certificate_reissue_min_s: 0\n", "a number from 1");
	file_fails("secret_ttl_min_s: 90000\n", "above secret_ttl_max_s");
	file_fails("node_name: a\nnode_name: b\n", "agentd.yaml: line 2");
	file_fails("a: [\n", "agentd.yaml: line ");
	file_fails("redirect_accelerate: loopback\n",
	    "redirect_accelerate: \"loopback\" must be off: acceleration was tried, does not pay "
	    "and is gone");
	file_fails("redirect: or\n", "must be ebpf, istio-cni, istio-init or none");
	file_fails("redirect: istio\n", "must be ebpf, istio-cni, istio-init or none");
	file_fails("redirect: \"\"\n", "must be ebpf, istio-cni, istio-init or none");
	file_fails("redirect_accelerate: acceleration\n", "must be off: ");
	file_fails("- a\n", "not a map");
	file_fails("\"\\e[31m\": 1\n", "control character");
	file_fails("\"\u00e4\": 1\n", "??: no such key");
}

static void test_planes(void **state)
{
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(
	    load(&c,
		PLANE "    root: SYSTEM\n    server_name: sn\n    trust_domain: td.example\n"
		      "    cluster_id: c1\n    connections: 16\n    opens_per_second: 1000\n"
		      "    opens_burst: 1\n    unread_stream_s: 60\n"
		      "    hold_empty_push_s: 0\n"
		      "  - {name: b, address: '[::1]:1', mesh_id: m, trust_domain: x}\n"
		      "  - {name: c, address: localhost:65535}\n",
		&e, NULL),
	    0);
	assert_int_equal(c.nplanes, 3);
	assert_string_equal(c.planes[0].root, "SYSTEM");
	assert_string_equal(c.planes[0].server_name, "sn");
	assert_string_equal(c.planes[0].trust_domain, "td.example");
	assert_string_equal(c.planes[0].mesh_id, "td.example"); /* as Istio's charts have it */
	assert_string_equal(c.planes[0].cluster_id, "c1");
	assert_int_equal(c.planes[0].connections, 16);
	assert_int_equal(c.planes[0].opens_per_second, 1000);
	assert_int_equal(c.planes[0].opens_burst, 1);
	assert_int_equal(c.planes[0].unread_stream_s, 60);
	assert_int_equal(c.planes[0].hold_empty_push_s, 0);
	assert_int_equal(c.planes[1].hold_empty_push_s, 30);
	assert_string_equal(c.planes[1].server_name, "::1");
	assert_string_equal(c.planes[1].mesh_id, "m");
	assert_string_equal(
	    c.planes[2].server_name, "istiod.istio-system.svc"); /* istio-agent.md 0.9 */
	config_clear(&c);
}

static void test_former_names(void **state)
{
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(
	    load(&c,
		PLANE "    trust_domain: [new.example, old, older]\n    cluster_id: [c2, c1]\n"
		      "  - {name: b, address: b:1, mesh_id: [m2, m1], trust_domain: [t]}\n"
		      "  - {name: c, address: c:1, mesh_id: m, trust_domain: [t2, t1]}\n",
		&e, NULL),
	    0);
	assert_string_equal(c.planes[0].trust_domain, "new.example");
	assert_string_equal(c.planes[0].former_trust_domains, "old,older");
	assert_string_equal(c.planes[0].cluster_id, "c2");
	assert_string_equal(c.planes[0].former_cluster_ids, "c1");
	assert_string_equal(c.planes[0].mesh_id, "new.example");
	assert_string_equal(c.planes[0].former_mesh_ids, "old,older");
	assert_string_equal(c.planes[1].mesh_id, "m2");
	assert_string_equal(c.planes[1].former_mesh_ids, "m1");
	assert_null(c.planes[1].former_trust_domains);
	assert_null(c.planes[2].former_mesh_ids);
	config_clear(&c);
}

static void plane_fails(const char *line, const char *expected)
{
	auto_free char *text = mem_printf("%s    %s\n", PLANE, line);

	file_fails(text, expected);
}

static void test_bad_planes(void **state)
{
	static const char *const addresses[] = {"istiod", "istiod:", "istiod:0", "istiod:65536",
	    "istiod:15012x", ":15012", "istiod:15012:1", "[::1]", "[]:1", "[::1:15012",
	    "http://istiod:15012", "a b:1", "::1:15012", "istiod:+15012", "unix:/x:1"};

	(void)state;
	for (unsigned i = 0; i < sizeof(addresses) / sizeof(*addresses); i++) {
		auto_free char *text =
		    mem_printf("control_planes:\n- name: a\n  address: '%s'\n", addresses[i]);

		file_fails(text, "line 3: control_planes[0]: address: ");
	}
	file_fails("control_planes: []\n", "must be a list");
	file_fails("control_planes: text\n", "must be a list");
	file_fails("control_planes: {a: b}\n", "must be a list");
	file_fails("control_planes:\n- text\n", "line 2: control_planes[0]: must be a map");
	file_fails("control_planes:\n- name: a\n  root: SYSTEM\n",
	    "line 2: control_planes[0]: address is missing");
	file_fails("control_planes:\n- address: a:1\n", "name is missing");
	plane_fails(
	    "adress: a:1", "line 4: control_planes[0]: adress: no such key; nearest: address");
	plane_fails("connections: 0", "a number from 1 to 16");
	plane_fails("connections: 17", "a number from 1 to 16");
	plane_fails("opens_per_second: 0", "a number from 1 to 1000");
	plane_fails("opens_burst: 1001", "a number from 1 to 1000");
	plane_fails("pod_opens_per_second: 0", "a number from 1 to 1000");
	plane_fails("pod_opens_burst: 0", "a number from 1 to 1000");
	plane_fails("unread_stream_s: 0", "a number from 1 to 3600");
	plane_fails("hold_empty_push_s: -1", "a number from 0 to 3600");
	plane_fails("trust_domain: Cluster.Local", "a trust domain");
	plane_fails("trust_domain: [td, Cluster.Local]", "Cluster.Local");
	plane_fails("trust_domain: ['', td]", "names without commas");
	plane_fails("cluster_id: ['a,b', c]", "names without commas");
	plane_fails("cluster_id: [a, [b]]", "names without commas");
	plane_fails("mesh_id: []", "1 to 8 names");
	plane_fails("mesh_id: [1, 2, 3, 4, 5, 6, 7, 8, 9]", "1 to 8 names");
	plane_fails("server_name: [a, b]", "one value");
	plane_fails("server_name: 'a b'", "a DNS name");
	plane_fails("root: {a: b}", "one value");
	plane_fails("root: /etc/agentd/root-cert.pem",
	    "root: \"/etc/agentd/root-cert.pem\" must be SYSTEM; a file is named by agentd's flag "
	    "--root-file INDEX=FILE");
	file_fails(PLANE "  - {name: istiod, address: b:1}\n",
	    "line 4: control_planes[1]: name: \"istiod\" must be unique");
	file_fails(PLANE "  - {name: b, address: istiod.example:15012}\n", "unique");
}

static void test_number_of_planes(void **state)
{
	char text[2048] = "control_planes:\n";
	struct config c;
	struct err e;

	(void)state;
	for (int i = 0; i < 16; i++)
		(void)snprintf(
		    text + strlen(text), 64, "- {name: p%d, address: 'h:%d'}\n", i, i + 1);
	assert_int_equal(load(&c, text, &e, NULL), 0);
	assert_int_equal(c.nplanes, 16);
	config_clear(&c);
	strcat(text, "- {name: p16, address: 'h:17'}\n");
	file_fails(text, "more than 16");
}

/* Each key of the list can be set, by its name in the file and by its flag. */
static void test_every_key_has_its_row(void **state)
{
	struct config c;
	struct err e;

	(void)state;
	for (unsigned i = 0; i < flags_count; i++) {
		const struct flag *f = &flags_list[i];
		if (f->whose == FLAG_BROKER || f->kind == FLAG_LIST)
			continue;
		auto_free char *flag = mem_printf("--%s=%s", f->name, f->start);
		auto_free char *line = mem_printf("%s: \"%s\"\n", f->name, f->start);
		for (char *p = line; *p != ':'; p++)
			*p = *p == '-' ? '_' : *p;
		if (load(&c, "", &e, flag, NULL))
			fail_msg("%s: %s", flag, e.msg);
		config_clear(&c);
		if (load(&c, line, &e, NULL))
			fail_msg("%s: %s", line, e.msg);
		config_clear(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_defaults),
	    cmocka_unit_test(test_memory_of_a_pod),
	    cmocka_unit_test(test_file),
	    cmocka_unit_test(test_flags_win),
	    cmocka_unit_test(test_bad_flags),
	    cmocka_unit_test(test_bad_files),
	    cmocka_unit_test(test_planes),
	    cmocka_unit_test(test_former_names),
	    cmocka_unit_test(test_bad_planes),
	    cmocka_unit_test(test_number_of_planes),
	    cmocka_unit_test(test_every_key_has_its_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
