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
	c = (struct redirect_ceiling){.permissive = true, .exclusions = true, .worker_uid = 1338};
	return 0;
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
	refused(EINVAL, "version 2");
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
	r.nrows = 1;
	r.ncidrs = 0;
	c.exclusions = false;
	accepted(); /* inbound only */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(test_shape, setup),
	    cmocka_unit_test_setup(test_rows, setup),
	    cmocka_unit_test_setup(test_proxys_ids, setup),
	    cmocka_unit_test_setup(test_policy, setup),
	    cmocka_unit_test_setup(test_exclusions, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
