/* iptables_test.c - the kernel's own tables, in network namespaces of the test's own.
 */
#include "broker/netns/iptables.h"
#include "common/err.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

static int setup(void **state)
{
	(void)state;
	if (geteuid() != 0) {
		print_message("needs root\n");
		skip();
	}
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	return 0;
}

static void rules(const char *program, const char *text)
{
	char command[600];

	snprintf(command, sizeof(command), "printf '%s' | %s", text, program);
	assert_int_equal(system(command), 0);
}

static int check(struct err *e)
{
	*e = (struct err){.code = 0};
	return netns_iptables_check(NULL, e);
}

static void expect_found(const char *what)
{
	struct err e;

	assert_int_equal(check(&e), -1);
	assert_int_equal(e.code, EEXIST);
	assert_non_null(strstr(e.msg, what));
}

static void test_nothing(void **state)
{
	struct err e;
	char line[80] = "";
	FILE *names;

	(void)state;
	assert_int_equal(check(&e), 0);
	/* Asking made no table. */
	names = fopen("/proc/self/net/ip_tables_names", "re");
	assert_true(!names || !fgets(line, sizeof(line), names));
	if (names)
		(void)fclose(names);
}

static void test_rules_of_others(void **state)
{
	struct err e;

	(void)state;
	rules("iptables-nft-restore",
	    "*nat\\n:KUBE-MARK - [0:0]\\n-A OUTPUT -j KUBE-MARK\\nCOMMIT\\n");
	assert_int_equal(check(&e), 0);
}

static void test_istio_by_iptables_nft(void **state)
{
	(void)state;
	rules("iptables-nft-restore",
	    "*nat\\n:ISTIO_OUTPUT - [0:0]\\n-A OUTPUT -j ISTIO_OUTPUT\\nCOMMIT\\n");
	expect_found("iptables-nft chain, ISTIO_OUTPUT");
}

static void test_istio_for_ipv6_only(void **state)
{
	(void)state;
	rules("ip6tables-nft-restore", "*nat\\n:ISTIO_INBOUND - [0:0]\\nCOMMIT\\n");
	expect_found("ISTIO_INBOUND");
}

/* Behind more chains than one answer of the kernel holds. */
static void test_istio_among_many(void **state)
{
	(void)state;
	assert_int_equal(
	    system("{ echo '*filter'; for i in $(seq 1 2000); do echo \":C$i - [0:0]\"; done; "
		   "echo COMMIT; echo '*nat'; echo ':ISTIO_REDIRECT - [0:0]'; echo COMMIT; } | "
		   "iptables-nft-restore"),
	    0);
	expect_found("ISTIO_REDIRECT");
}

static void test_istio_by_legacy_iptables(void **state)
{
	(void)state;
	if (system("iptables-legacy -t nat -L >/dev/null 2>&1") != 0) {
		print_message("this kernel has no legacy iptables\n");
		skip();
	}
	rules("iptables-legacy-restore",
	    "*nat\\n:ISTIO_OUTPUT - [0:0]\\n-A OUTPUT -j ISTIO_OUTPUT\\nCOMMIT\\n");
	expect_found("legacy iptables table, nat");
}

#define IN_NETNS(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {IN_NETNS(test_nothing), IN_NETNS(test_rules_of_others),
	    IN_NETNS(test_istio_by_iptables_nft), IN_NETNS(test_istio_for_ipv6_only),
	    IN_NETNS(test_istio_among_many), IN_NETNS(test_istio_by_legacy_iptables)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
