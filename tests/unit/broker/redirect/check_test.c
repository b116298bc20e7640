/* check_test.c - a worker that is not ours any more asks for the impossible, or for
 * more than the node allows.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/redirect/check.h"
#include "common/err.h"
#include "tests/unit/broker/bpf.h"

static struct redirect_rules r;
static struct redirect_ceiling c;
static struct err e;

static int setup(void **state)
{
	(void)state;
	r = good_rules();
	c.worker_uid = 1338;
	return redirect_ceiling_read("permissive,exclusions,probes", &c, &e);
}

static void accepted(void)
{
	if (redirect_check(&r, &c, &e))
		fail_msg("%s", e.msg);
}

static void refused(int code, const char *why)
{
	assert_int_equal(redirect_check(&r, &c, &e), -1);
	assert_int_equal(e.code, code);
	if (!strstr(e.msg, why))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, why);
	setup(NULL);
}

static void test_shape(void **state)
{
	(void)state;
	accepted();
	r.version++;
	refused(EINVAL, "rules of version");
	r.flags |= REDIRECT_TRACE; /* the broker's own */
	refused(EINVAL, "unknown flags");
	r.flags |= 1u << 31;
	refused(EINVAL, "unknown flags");
	r.strict = 2;
	refused(EINVAL, "unknown flags");
	r.nrows = REDIRECT_ROWS_MAX + 1;
	refused(EINVAL, "too many rows");
	r.ncidrs = UINT32_MAX;
	refused(EINVAL, "too many rows");
	r.ninterfaces = REDIRECT_INTERFACES_MAX + 1;
	refused(EINVAL, "too many rows");
	r.outbound_port = 0;
	refused(EINVAL, "two ports");
	r.inbound_port = 0;
	refused(EINVAL, "two ports");
	r.inbound_port = r.outbound_port;
	refused(EINVAL, "two ports");
	/* What goes to Envoy would go to whoever answers DNS, which is the worker. */
	r.flags |= REDIRECT_DNS;
	r.dns_port = r.outbound_port;
	refused(EINVAL, "dns_port");
	r.flags |= REDIRECT_DNS;
	r.dns_port = r.inbound_port;
	refused(EINVAL, "dns_port");
	r.flags |= REDIRECT_DNS;
	r.dns_port = r.tunnel_port;
	refused(EINVAL, "dns_port");
	r.flags |= REDIRECT_DNS;
	r.dns_port = 0; /* any that is free */
	refused(EINVAL, "dns_port");
}

static void test_rows(void **state)
{
	(void)state;
	r.rows[1].kind = 0;
	refused(EINVAL, "a row of kind 0");
	r.rows[1].kind = REDIRECT_PORT_INTERFACE; /* those have names, and indexes are seen */
	refused(EINVAL, "a row of kind");
	r.cidrs[0].bits = 129;
	refused(EINVAL, "address range");
	r.cidrs[0].flags = REDIRECT_CIDR_LOCAL; /* what is local is seen, never said */
	refused(EINVAL, "address range");
	r.cidrs[0].flags = REDIRECT_CIDR_INTERFACE;
	refused(EINVAL, "address range");
	r.ninterfaces = 1;
	refused(EINVAL, "an interface without a name");
	r.ninterfaces = 1;
	memset(r.interfaces[0], 'x', REDIRECT_INTERFACE_SIZE);
	refused(EINVAL, "an interface without a name");
	r.nrows = 1; /* what lies behind is nobody's */
	r.rows[1].kind = 99;
	accepted();
}

/* In every user namespace: k * 65536 is its root. */
static void test_proxys_ids(void **state)
{
	(void)state;
	r.proxy_uid = 0;
	refused(EPERM, "must not be root's");
	r.proxy_gid = 0;
	refused(EPERM, "must not be root's");
	r.proxy_uid = 7 * 65536;
	refused(EPERM, "must not be root's");
	r.proxy_uid = 65536 + 1338;
	refused(EPERM, "agentd's worker");
}

/* Nobody but root has a word for these, so a worker that says another one is not ours. */
static void test_numbers(void **state)
{
	(void)state;
	r.proxy_uid = 1000;
	refused(EPERM, "proxy_uid 1000, but 1337");
	r.proxy_gid = 1000;
	refused(EPERM, "proxy_gid 1000, but 1337");
	r.flags |= REDIRECT_DNS;
	r.dns_port = 8080;
	refused(EPERM, "dns_port 8080, but 15053");
	r.flags |= REDIRECT_DNS;
	accepted();
	r.proxy_uid = 1000;
	c.proxy_uid = 1000;
	accepted();
	c.is_manifests = true;
	r.proxy_gid = 1000;
	accepted();
	c.exclusions = false;
	refused(EPERM, "proxy_gid 1000, but 1337");
}

static void test_policy(void **state)
{
	(void)state;
	r.strict = 0;
	accepted();
	c.permissive = false;
	refused(EPERM, "permissive");
	c.permissive = false;
	accepted();
}

static void test_what_is_gone(void **state)
{
	static const char *const gone[] = {
	    "accelerate", "strict,accelerate-node", "accelerate-no-fionread,probes"};

	(void)state;
	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
		assert_int_equal(redirect_ceiling_read(gone[i], &c, &e), -1);
		assert_non_null(strstr(e.msg, "acceleration was tried, does not pay and is gone"));
		assert_int_equal(e.code, ERR_INVALID);
	}
	for (uint32_t flag = 1 << 8; flag <= 1 << 9; flag <<= 1) {
		r.flags |= flag;
		refused(EINVAL, "unknown flags");
		r.flags &= ~flag;
	}
}

/* Under `strict`, by rules that let nothing past Envoy. */
static void captured(void)
{
	c.exclusions = false;
	r.nrows = 1;
	r.ncidrs = 0;
}

static void forbid(void)
{
	c.exclusions = false;
	refused(EPERM, "exclusions");
}

static void test_exclusions(void **state)
{
	(void)state;
	forbid(); /* a port, and a range */
	r.nrows = 1;
	forbid(); /* the range */
	r.ncidrs = 0;
	forbid(); /* the port */
	setup(NULL);
	captured();
	accepted();
	captured();
	r.ninterfaces = 1;
	strcpy(r.interfaces[0], "eth0");
	forbid();
	r.nrows = 1;
	r.ncidrs = 0;
	r.flags &= ~(uint32_t)REDIRECT_OUTBOUND_ALL;
	forbid();
	r.nrows = 1;
	r.ncidrs = 0;
	r.flags |= REDIRECT_GROUPS_INCLUDE;
	forbid();
	r.nrows = 1;
	r.ncidrs = 0;
	r.rows[0].kind = REDIRECT_PORT_GROUP;
	forbid();
}

static void refused_port(uint16_t *of_r, const char *why)
{
	captured();
	*of_r = 8080;
	refused(EPERM, why);
}

/* Ports of the app that let their traffic past Envoy, or to the app in its place. */
static void test_inbound(void **state)
{
	static const uint32_t reserved[] = {15020, 15021, 15090};
	static const uint32_t others[] = {80, 8080, 15000, 15001, 15004, 15006, 15008, 15053};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		captured();
		r.rows[0].number = reserved[i];
		accepted();
		setup(NULL);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		captured();
		r.rows[0].number = others[i];
		refused(EPERM, "inbound exclusions");
	}
	captured();
	r.rows[0] = (struct redirect_row){REDIRECT_PORT_INBOUND_INCLUDE, 80};
	r.flags &= ~(uint32_t)REDIRECT_INBOUND_ALL;
	refused(EPERM, "inbound exclusions");
	refused_port(&r.tunnel_port, "inbound_tunnel_port 8080, but 15008");
	refused_port(&r.outbound_port, "envoy_port 8080, but 15001");
	refused_port(&r.inbound_port, "inbound_capture_port 8080, but 15006");
	captured();
	c.status_port = 15099;
	refused(EPERM, "inbound exclusions");
	captured();
	c.status_port = r.rows[0].number = 15099;
	accepted();
}

static void test_probe_ports(void **state)
{
	static const uint32_t bad[] = {0, 65536, 65536 + 8080, 15000, 15001, 15004, 15006, 15008,
	    15020, 15021, 15053, 15090, 4001, 4002};

	(void)state;
	r.rows[0] = (struct redirect_row){REDIRECT_PORT_PROBE, 8080};
	accepted();
	c.probes = false;
	refused(EPERM, "does not allow probe ports");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		c.exclusions = c.is_manifests = true;
		c.status_port = 4001;
		r.dns_port = 4002;
		r.rows[0] = (struct redirect_row){REDIRECT_PORT_PROBE, bad[i]};
		refused(EINVAL, "probe ports");
	}
	r.nrows = 65;
	for (uint32_t i = 0; i < r.nrows; i++)
		r.rows[i] = (struct redirect_row){REDIRECT_PORT_PROBE, 1 + i};
	refused(EINVAL, "at most 64 probe ports");
}

static void test_words(void **state)
{
	static const char *const bad[] = {"all", "accelerated", "strict;exclusions", "dns_port",
	    "dns_port=", "dns_port=0", "dns_port=65536", "dns_port=53 ", "dns_port=-1",
	    "dns_port=0x35", "proxy_uid=4294967295", "proxy_uid=99999999999", "proxy=1",
	    "worker_uid=1"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (!redirect_ceiling_read(bad[i], &c, &e))
			fail_msg("\"%s\" is a word", bad[i]);
		assert_non_null(strstr(e.msg, "--redirect-allow takes"));
	}
	assert_int_equal(
	    redirect_ceiling_read("strict,proxy_uid=1000650001,proxy_gid=4294967294,dns_port=53,"
				  "envoy_port=65535,inbound_capture_port=2,"
				  "inbound_tunnel_port=3,status_port=4",
		&c, &e),
	    0);
	assert_true(!c.permissive && !c.exclusions);
	assert_int_equal(c.proxy_uid, 1000650001);
	assert_int_equal(c.proxy_gid, 4294967294u);
	assert_int_equal(c.dns_port, 53);
	assert_int_equal(c.envoy_port, 65535);
	assert_int_equal(c.inbound_capture_port, 2);
	assert_int_equal(c.inbound_tunnel_port, 3);
	assert_int_equal(c.status_port, 4);
	assert_int_equal(c.worker_uid, 1338);
	assert_int_equal(redirect_ceiling_read("exclusions", &c, &e), 0);
	assert_true(!c.permissive && c.exclusions && !c.probes);
	assert_int_equal(redirect_ceiling_read("probes", &c, &e), 0);
	assert_true(!c.permissive && !c.exclusions && c.probes);
	assert_int_equal(c.dns_port, 15053); /* nothing of the last list is left */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(test_shape, setup),
	    cmocka_unit_test_setup(test_rows, setup),
	    cmocka_unit_test_setup(test_proxys_ids, setup),
	    cmocka_unit_test_setup(test_numbers, setup),
	    cmocka_unit_test_setup(test_policy, setup),
	    cmocka_unit_test_setup(test_what_is_gone, setup),
	    cmocka_unit_test_setup(test_exclusions, setup),
	    cmocka_unit_test_setup(test_inbound, setup),
	    cmocka_unit_test_setup(test_probe_ports, setup),
	    cmocka_unit_test_setup(test_words, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
