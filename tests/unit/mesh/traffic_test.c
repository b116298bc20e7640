/* redirect_test.c - each key of `redirect:`, its annotation and its variable: read, refused, at its
 * limit; and which of the three wins.
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/pod.h"
#include "mesh/traffic.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRAFFIC "traffic.sidecar.istio.io/"

static struct pod_spec pod;
static struct redirect_node node;
static struct redirect_plan plan;
static struct err e;

static int setup(void **state)
{
	(void)state;
	pod = (struct pod_spec){.redirect = json_object(),
	    .annotations = json_object(),
	    .env = json_object(),
	    .proxy_uid = 1337,
	    .proxy_gid = 1337};
	node = (struct redirect_node){
	    .mode = REDIRECT_MODE_EBPF, .strict = true, .status_port = 15020};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	json_decref(pod.redirect);
	json_decref(pod.annotations);
	json_decref(pod.env);
	return 0;
}

static void put(json_t *o, const char *key, const char *value)
{
	json_object_set_new(o, key, json_string(value));
}

static const struct redirect_rules *read_plan(void)
{
	if (traffic_read(&plan, &pod, &node, &e))
		fail_msg("%s", e.msg);
	return &plan.rules;
}

/* With this key alone. */
static const struct redirect_rules *with(const char *key, const char *value)
{
	json_object_clear(pod.redirect);
	put(pod.redirect, key, value);
	return read_plan();
}

static void refused(const char *key, const char *value, const char *why)
{
	json_object_clear(pod.redirect);
	put(pod.redirect, key, value);
	if (!traffic_read(&plan, &pod, &node, &e))
		fail_msg("%s: \"%s\" is accepted", key, value);
	if (!strstr(e.msg, key) || !strstr(e.msg, why))
		fail_msg("\"%s\" lacks \"%s\" or \"%s\"", e.msg, key, why);
	json_object_clear(pod.redirect);
}

/* Numbers of a kind, in their order: "1 2 3". */
static void expect_rows(enum redirect_port_kind kind, const char *wanted)
{
	char got[2048] = "";

	for (uint32_t i = 0; i < plan.rules.nrows; i++)
		if (plan.rules.rows[i].kind == kind)
			sprintf(
			    got + strlen(got), "%s%u", *got ? " " : "", plan.rules.rows[i].number);
	assert_string_equal(got, wanted);
}

static void test_defaults_are_those_of_the_injection(void **state)
{
	const struct redirect_rules *r = read_plan();

	(void)state;
	assert_int_equal(plan.mode, REDIRECT_MODE_EBPF);
	assert_int_equal(r->version, REDIRECT_RULES_VERSION);
	assert_int_equal(r->flags, REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL);
	assert_int_equal(r->strict, 1);
	assert_int_equal(r->proxy_uid, 1337);
	assert_int_equal(r->outbound_port, 15001);
	assert_int_equal(r->inbound_port, 15006);
	assert_int_equal(r->tunnel_port, 15008);
	assert_int_equal(r->dns_port, 15053);
	assert_int_equal(r->ncidrs, 0);
	assert_int_equal(r->ninterfaces, 0);
	expect_rows(REDIRECT_PORT_INBOUND_EXCLUDE, "15090 15021 15020");
	expect_rows(REDIRECT_PORT_OUTBOUND_EXCLUDE, "");
}

static void test_modes(void **state)
{
	(void)state;
	with("mode", "istio-cni");
	assert_int_equal(plan.mode, REDIRECT_MODE_ISTIO_CNI);
	assert_int_equal(plan.rules.outbound_port, 0); /* rules are no matter of ours */
	with("mode", "none");
	assert_int_equal(plan.mode, REDIRECT_MODE_NONE);
	refused("mode", "iptables", "ebpf, istio-cni, istio-init or none");
	node.mode = REDIRECT_MODE_NONE;
	json_object_clear(pod.redirect);
	read_plan();
	assert_int_equal(plan.mode, REDIRECT_MODE_NONE);
	with("mode", "ebpf");
	assert_int_equal(plan.mode, REDIRECT_MODE_EBPF);
	put(pod.annotations, "agentd.node.mesh/redirect", "istio-init");
	with("mode", "ebpf");
	assert_int_equal(plan.mode, REDIRECT_MODE_EBPF);
}

static void test_interception_mode(void **state)
{
	(void)state;
	with("istio_inbound_interception_mode", "REDIRECT");
	assert_int_equal(plan.mode, REDIRECT_MODE_EBPF);
	refused("istio_inbound_interception_mode", "TPROXY", "istio-cni");
	with("istio_inbound_interception_mode", "NONE");
	assert_int_equal(plan.mode, REDIRECT_MODE_NONE);
	json_object_clear(pod.redirect);
	put(pod.annotations, "sidecar.istio.io/interceptionMode", "TPROXY");
	assert_int_equal(traffic_read(&plan, &pod, &node, &e), -1);
	node.mode = REDIRECT_MODE_ISTIO_CNI; /* whose business it is */
	read_plan();
	assert_int_equal(plan.mode, REDIRECT_MODE_ISTIO_CNI);
}

static void test_policy(void **state)
{
	(void)state;
	assert_int_equal(with("policy", "permissive")->strict, 0);
	assert_int_equal(with("policy", "strict")->strict, 1);
	refused("policy", "lax", "strict or permissive");
	node.strict = false;
	json_object_clear(pod.redirect);
	assert_int_equal(read_plan()->strict, 0);
}

static void test_ports_of_envoy(void **state)
{
	static const char *const keys[] = {
	    "envoy_port", "inbound_capture_port", "inbound_tunnel_port", "dns_port"};
	static const char *const bad[] = {
	    "0", "65536", "-1", "+1", "1x", " 1", "", "99999999999999"};

	(void)state;
	assert_int_equal(with("envoy_port", "1")->outbound_port, 1);
	assert_int_equal(with("inbound_capture_port", "65535")->inbound_port, 65535);
	assert_int_equal(with("inbound_tunnel_port", "15009")->tunnel_port, 15009);
	assert_int_equal(with("dns_port", "5353")->dns_port, 5353);
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++)
		for (size_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++)
			refused(keys[k], bad[b], "a port (1 to 65535)");
	refused("inbound_capture_port", "15001", "a port other than envoy_port");
}

static void test_inbound_ports(void **state)
{
	(void)state;
	with("istio_inbound_ports", "80,,443,80,");
	assert_false(plan.rules.flags & REDIRECT_INBOUND_ALL);
	expect_rows(REDIRECT_PORT_INBOUND_INCLUDE, "80 443");
	expect_rows(REDIRECT_PORT_INBOUND_EXCLUDE, ""); /* ignored beside a list, as istio does */
	with("istio_inbound_ports", "");
	assert_false(plan.rules.flags & REDIRECT_INBOUND_ALL);
	expect_rows(REDIRECT_PORT_INBOUND_INCLUDE, "");
	refused("istio_inbound_ports", "80,*", "ports");
	refused("istio_inbound_ports", "http", "ports");
	refused("istio_inbound_ports", "0", "ports");
	with("istio_local_exclude_ports", "9090,15021");
	expect_rows(REDIRECT_PORT_INBOUND_EXCLUDE, "9090 15021 15090 15020");
	refused("istio_local_exclude_ports", "65536", "ports");
	node.status_port = 0;
	with("istio_local_exclude_ports", "");
	expect_rows(REDIRECT_PORT_INBOUND_EXCLUDE, "15090 15021");
}

static void test_outbound_ports(void **state)
{
	(void)state;
	with("istio_outbound_ports", "3306,5432");
	expect_rows(REDIRECT_PORT_OUTBOUND_INCLUDE, "3306 5432");
	assert_true(plan.rules.flags & REDIRECT_OUTBOUND_ALL);
	with("istio_local_outbound_ports_exclude", "22");
	expect_rows(REDIRECT_PORT_OUTBOUND_EXCLUDE, "22");
	refused("istio_outbound_ports", "1-5", "ports");
	refused("istio_local_outbound_ports_exclude", "1;2", "ports");
}

static void test_ranges(void **state)
{
	(void)state;
	with("istio_service_cidr", "10.0.0.0/8,fd00::/8");
	assert_false(plan.rules.flags & REDIRECT_OUTBOUND_ALL);
	assert_int_equal(plan.rules.ncidrs, 2);
	with("istio_service_cidr", "");
	assert_false(plan.rules.flags & REDIRECT_OUTBOUND_ALL);
	assert_int_equal(plan.rules.ncidrs, 0);
	with("istio_service_cidr", "127.1.2.3/32");
	assert_true(plan.rules.flags & REDIRECT_LOOPBACK_INCLUDED);
	with("istio_service_exclude_cidr", "127.1.2.3/32");
	assert_false(plan.rules.flags & REDIRECT_LOOPBACK_INCLUDED);
	assert_int_equal(plan.rules.cidrs[0].flags, REDIRECT_CIDR_EXCLUDE);
	refused("istio_service_cidr", "10.0.0.0/8,*", "not an address range");
	refused("istio_service_exclude_cidr", "*", "not an address range");
	put(pod.redirect, "istio_service_cidr", "10.1.0.0/16"); /* flattened */
	put(pod.redirect, "istio_service_exclude_cidr", "10.0.0.0/8");
	assert_int_equal(
	    read_plan()->cidrs[0].flags, REDIRECT_CIDR_INCLUDE | REDIRECT_CIDR_EXCLUDE);
}

static void test_interfaces(void **state)
{
	(void)state;
	with("istio_exclude_interfaces", "eth1,,net-1.2@x");
	assert_int_equal(plan.rules.ninterfaces, 2);
	assert_string_equal(plan.rules.interfaces[0], "eth1");
	assert_string_equal(plan.rules.interfaces[1], "net-1.2@x");
	with("istio_exclude_interfaces", "abcdefghijklmno");
	refused("istio_exclude_interfaces", "abcdefghijklmnop", "of at most 15 characters");
	refused("istio_exclude_interfaces", "abcdefghijklmnopqrs", "of at most 15 characters");
	refused("istio_exclude_interfaces", "eth0/1", "letters, digits");
	refused("istio_exclude_interfaces", "eth+", "letters, digits");
	with("istio_exclude_interfaces", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p");
	refused(
	    "istio_exclude_interfaces", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "at most 16 names");
}

/* Of a pod that is refused, for this or for another reason. */
static void test_is_it_strict(void **state)
{
	static const struct {
		const char *key, *value;
		bool strict;
	} rows[] = {{"mode", "ebpf", true}, {"mode", "none", false}, {"mode", "epbf", false},
	    {"policy", "permissive", false}, {"policy", "permisive", true},
	    {"envoy_port", "x", true}, {"nonsense", "1", true},
	    {"istio_inbound_interception_mode", "TPROXY", true},
	    {"istio_inbound_interception_mode", "NONE", false}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct redirect_node of_node = {.mode = REDIRECT_MODE_EBPF, .strict = true};

		if (!strcmp(rows[i].key, "mode"))
			of_node.mode = REDIRECT_MODE_NONE;
		json_object_clear(pod.redirect);
		put(pod.redirect, rows[i].key, rows[i].value);
		if (traffic_is_strict(&pod, &of_node) != rows[i].strict)
			fail_msg("%s: %s", rows[i].key, rows[i].value);
	}
	json_object_clear(pod.redirect);
}

static void test_what_ebpf_does_not_cover_is_refused(void **state)
{
	(void)state;
	with("kube_virt_interfaces", "");
	refused("kube_virt_interfaces", "net1", "istio-cni");
	refused("reroute_virtual_interfaces", "net1", "istio-cni");
	refused("outbound_owner_groups", "java,202", "numeric group ids");
	refused("outbound_owner_groups_exclude", "ftp", "numeric group ids");
}

static void test_groups(void **state)
{
	(void)state;
	with("outbound_owner_groups", "202,0,4294967294");
	assert_true(plan.rules.flags & REDIRECT_GROUPS_INCLUDE);
	expect_rows(REDIRECT_PORT_GROUP, "202 0 4294967294");
	refused("outbound_owner_groups", "4294967295", "numeric group ids");
	with("outbound_owner_groups_exclude", "888");
	assert_false(plan.rules.flags & REDIRECT_GROUPS_INCLUDE);
	expect_rows(REDIRECT_PORT_GROUP, "888");
	put(pod.redirect, "outbound_owner_groups", "202");
	assert_int_equal(traffic_read(&plan, &pod, &node, &e), -1);
	assert_non_null(strstr(e.msg, "beside outbound_owner_groups"));
}

static void test_dns(void **state)
{
	(void)state;
	assert_false(with("redirect_dns", "false")->flags & REDIRECT_DNS);
	with("redirect_dns", "true");
	assert_int_equal(
	    plan.rules.flags & (REDIRECT_DNS | REDIRECT_DNS_ALL), REDIRECT_DNS | REDIRECT_DNS_ALL);
	put(pod.redirect, "dns_servers", "10.0.0.10,fd00::a");
	assert_int_equal(read_plan()->flags & (REDIRECT_DNS | REDIRECT_DNS_ALL), REDIRECT_DNS);
	assert_int_equal(plan.rules.ncidrs, 2);
	assert_int_equal(plan.rules.cidrs[1].flags, REDIRECT_CIDR_DNS);
	refused("redirect_dns", "yes", "true or false");
	refused("dns_servers", "resolver", "not an address range");
	refused("dns_servers", "10.0.0.0/8", "a resolver is one address");
}

static void test_probe_ports(void **state)
{
	static const char *const reserved[] = {"15000", "15001", "15004", "15006", "15008", "15020",
	    "15021", "15053", "15090", "8080,15021"};

	(void)state;
	with("probe_ports", "8080,,443,8080");
	expect_rows(REDIRECT_PORT_PROBE, "8080 443");
	with("probe_ports", "");
	expect_rows(REDIRECT_PORT_PROBE, "");
	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
		refused("probe_ports", reserved[i],
		    "other than Envoy's and agentd's: 15000, 15001, 15004, 15006, 15008, 15020, "
		    "15021, 15053, 15090");
	refused("probe_ports", "0", "ports (1 to 65535), separated by commas");
	refused("probe_ports", "http", "ports (1 to 65535), separated by commas");
	put(pod.redirect, "dns_port", "5353"); /* the pod's own */
	put(pod.redirect, "probe_ports", "5353");
	assert_int_equal(traffic_read(&plan, &pod, &node, &e), -1);
	node.status_port = 4000;
	refused("probe_ports", "4000", "other than Envoy's and agentd's");
	put(pod.env, "AGENTD_PROBE_PORTS", "8080");
	read_plan();
	expect_rows(REDIRECT_PORT_PROBE, "8080");
	put(pod.annotations, "agentd.node.mesh/probePorts", "8081");
	read_plan();
	expect_rows(REDIRECT_PORT_PROBE, "8081");
}

static void test_flags_that_mean_nothing_here(void **state)
{
	(void)state;
	with("drop_invalid", "true");
	with("dual_stack", "true");
	refused("drop_invalid", "maybe", "true or false");
}

/* As Istio's injector and istio-cni read them. */
static void test_lists_may_have_blanks(void **state)
{
	static const char *const keys[] = {"istio_inbound_ports", "istio_local_exclude_ports",
	    "istio_outbound_ports", "istio_local_outbound_ports_exclude", "outbound_owner_groups",
	    "probe_ports"};

	(void)state;
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
		const struct redirect_rules tight = *with(keys[k], "3306,5432");
		const struct redirect_rules *loose = with(keys[k], " 3306 ,  5432, ");

		assert_memory_equal(loose, &tight, sizeof(tight));
		refused(keys[k], "33 06", "separated by commas");
		refused(keys[k], "3306-3310", "separated by commas");
	}
}

/* security-rules.md 3: 64 of each list. */
static void test_lists_have_an_end(void **state)
{
	static const char *const keys[] = {"istio_inbound_ports", "istio_local_exclude_ports",
	    "istio_outbound_ports", "istio_local_outbound_ports_exclude", "outbound_owner_groups",
	    "probe_ports"};

	(void)state;
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
		char list[1024] = "";
		for (int i = 1; i <= 64; i++)
			sprintf(list + strlen(list), "%d,", i);
		strcat(list, "64,1,"); /* said twice: it is one */
		with(keys[k], list);
		strcat(list, "65");
		refused(keys[k], list, "more than 64");
	}
}

/* The longest that is allowed fits: whatever a pod asks for has room in the struct. */
static void test_all_lists_at_their_end(void **state)
{
	char ports[1024] = "", ranges[8192] = "";

	(void)state;
	for (int i = 1; i <= 64; i++)
		sprintf(ports + strlen(ports), "%d,", i);
	for (int i = 0; i < 250; i++)
		sprintf(ranges + strlen(ranges), "10.%d.0.0/16,", i);
	put(pod.redirect, "istio_local_exclude_ports", ports);
	put(pod.redirect, "istio_outbound_ports", ports);
	put(pod.redirect, "istio_local_outbound_ports_exclude", ports);
	put(pod.redirect, "outbound_owner_groups", ports);
	put(pod.redirect, "probe_ports", ports);
	put(pod.redirect, "istio_service_cidr", ranges);
	assert_int_equal(read_plan()->nrows, 5 * 64 + 3);
	assert_int_equal(plan.rules.ncidrs, 250);
}

static void test_unknown_keys_and_types(void **state)
{
	(void)state;
	refused("istio_inbound_port", "80", "no such key");
	json_object_clear(pod.redirect);
	json_object_set_new(pod.redirect, "policy", json_integer(1));
	assert_int_equal(traffic_read(&plan, &pod, &node, &e), -1);
	assert_non_null(strstr(e.msg, "policy must be text"));
	json_object_clear(pod.redirect);
	put(pod.redirect, "\033[2J", "x");
	assert_int_equal(traffic_read(&plan, &pod, &node, &e), -1);
	assert_null(strchr(e.msg, '\033'));
}

/* istio's own words; others' annotations are nobody's. */
static void test_annotations(void **state)
{
	(void)state;
	put(pod.annotations, TRAFFIC "includeInboundPorts", "80");
	put(pod.annotations, TRAFFIC "excludeOutboundIPRanges", "10.0.0.0/8");
	put(pod.annotations, TRAFFIC "excludeOutboundPorts", "22");
	put(pod.annotations, TRAFFIC "includeOutboundPorts", "25");
	put(pod.annotations, TRAFFIC "excludeInterfaces", "eth1");
	put(pod.annotations, TRAFFIC "nobodysKey", "?");
	put(pod.annotations, "agentd.node.mesh/redirectPolicy", "permissive");
	read_plan();
	expect_rows(REDIRECT_PORT_INBOUND_INCLUDE, "80");
	expect_rows(REDIRECT_PORT_OUTBOUND_EXCLUDE, "22");
	expect_rows(REDIRECT_PORT_OUTBOUND_INCLUDE, "25");
	assert_int_equal(plan.rules.ncidrs, 1);
	assert_int_equal(plan.rules.ninterfaces, 1);
	assert_int_equal(plan.rules.strict, 0);
	put(pod.annotations, TRAFFIC "excludeOutboundPorts", "ssh");
	assert_int_equal(traffic_read(&plan, &pod, &node, &e), -1);
	assert_non_null(strstr(e.msg, TRAFFIC "excludeOutboundPorts")); /* what its owner wrote */
}

/* A running machine keeps its certificates. */
static void test_what_is_gone_changes_nothing(void **state)
{
	struct redirect_plan without;

	(void)state;
	read_plan();
	without = plan;
	put(pod.annotations, "agentd.node.mesh/redirectAccelerate", "loopback");
	put(pod.redirect, "accelerate", "node");
	read_plan();
	assert_memory_equal(&plan, &without, sizeof(plan));
}

static void test_a_flag_wins_over_an_annotation_over_a_variable(void **state)
{
	(void)state;
	put(pod.env, "ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE", "1");
	read_plan();
	expect_rows(REDIRECT_PORT_OUTBOUND_EXCLUDE, "1");
	put(pod.annotations, TRAFFIC "excludeOutboundPorts", "2");
	read_plan();
	expect_rows(REDIRECT_PORT_OUTBOUND_EXCLUDE, "2");
	put(pod.redirect, "istio_local_outbound_ports_exclude", "3");
	read_plan();
	expect_rows(REDIRECT_PORT_OUTBOUND_EXCLUDE, "3");
	put(pod.redirect, "istio_local_outbound_ports_exclude", ""); /* none is a word, too */
	read_plan();
	expect_rows(REDIRECT_PORT_OUTBOUND_EXCLUDE, "");
}

static void on_key(void *ctx, const char *flag, const char *annotation, const char *variable,
    const char *otherwise)
{
	(void)annotation;
	(void)variable;
	*(int *)ctx += 1;
	put(pod.redirect, flag, otherwise);
}

/* What is documented as the default is one. */
static void test_defaults_can_be_said(void **state)
{
	struct redirect_plan before;
	int n = 0;

	(void)state;
	read_plan();
	before = plan;
	traffic_keys_each(on_key, &n);
	assert_true(n > 20);
	read_plan();
	assert_memory_equal(&plan, &before, sizeof(plan));
}

static void test_verdicts_have_names_and_one_fate(void **state)
{
	(void)state;
	for (int v = 0; v < REDIRECT_VERDICTS; v++) {
		assert_non_null(traffic_verdict_name(v));
		assert_true(*traffic_verdict_name(v));
		assert_non_null(traffic_verdict_word(v));
		assert_int_equal(strspn(traffic_verdict_word(v), "abcdefghijklmnopqrstuvwxyz_"),
		    strlen(traffic_verdict_word(v)));
		assert_false(traffic_verdict_redirects(v) && traffic_verdict_drops(v));
	}
	assert_true(traffic_verdict_redirects(REDIRECT_TO_SELF));
	assert_true(traffic_verdict_drops(REDIRECT_DROP_GATE));
	assert_false(traffic_verdict_drops(REDIRECT_PASS_GROUP));
	for (int m = REDIRECT_MODE_NONE; m <= REDIRECT_MODE_ISTIO_INIT; m++) {
		enum redirect_mode back;
		assert_int_equal(traffic_mode_parse(&back, traffic_mode_name(m)), 0);
		assert_int_equal(back, m);
	}
}

#define READ_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    READ_TEST(test_defaults_are_those_of_the_injection),
	    READ_TEST(test_modes),
	    READ_TEST(test_interception_mode),
	    READ_TEST(test_policy),
	    READ_TEST(test_ports_of_envoy),
	    READ_TEST(test_inbound_ports),
	    READ_TEST(test_outbound_ports),
	    READ_TEST(test_ranges),
	    READ_TEST(test_interfaces),
	    READ_TEST(test_is_it_strict),
	    READ_TEST(test_what_ebpf_does_not_cover_is_refused),
	    READ_TEST(test_groups),
	    READ_TEST(test_dns),
	    READ_TEST(test_probe_ports),
	    READ_TEST(test_flags_that_mean_nothing_here),
	    READ_TEST(test_lists_may_have_blanks),
	    READ_TEST(test_lists_have_an_end),
	    READ_TEST(test_all_lists_at_their_end),
	    READ_TEST(test_unknown_keys_and_types),
	    READ_TEST(test_annotations),
	    READ_TEST(test_what_is_gone_changes_nothing),
	    READ_TEST(test_a_flag_wins_over_an_annotation_over_a_variable),
	    READ_TEST(test_defaults_can_be_said),
	    READ_TEST(test_verdicts_have_names_and_one_fate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
