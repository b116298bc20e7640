/* route_test.c - the routes of real network namespaces.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/netns/route.h"
#include "tests/unit/broker/bpf.h"
#include <net/if.h>
#include <sched.h>

#define CABLE                                                                                      \
	"ip link set lo up && ip link add eth0 type veth peer name far0 && "                       \
	"ip link set eth0 up && ip addr add 10.1.0.2/24 dev eth0"

struct routes {
	struct redirect_cidr all[NETNS_ROUTES_MAX];
	uint32_t n;
};

/* In a child: this process stays where it is.  `excluded`: an interface; NULL: none. */
static struct routes list(const char *commands, const char *excluded)
{
	static struct routes r;
	int netns = place_netns(commands), pipes[2], status;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (pid == 0) {
		if (setns(netns, CLONE_NEWNET))
			_exit(1);
		uint32_t index = excluded ? if_nametoindex(excluded) : 0;

		r.n = netns_route_list(r.all, &index, excluded != NULL);
		_exit(write(pipes[1], &r, sizeof(r)) != sizeof(r));
	}
	close(pipes[1]);
	close(netns);
	memset(&r, 0, sizeof(r));
	for (size_t got = 0; got < sizeof(r);) {
		ssize_t n = read(pipes[0], (char *)&r + got, sizeof(r) - got);

		assert_true(n > 0);
		got += (size_t)n;
	}
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return r;
}

/* The flags of a prefix such as "10.1.0.2/32"; -1: it is not listed. */
static int flags_of(const struct routes *r, const char *prefix)
{
	struct redirect_address a = {{0, 0, htobe32(0xffff), 0}};
	char text[64];
	unsigned bits;

	assert_int_equal(sscanf(prefix, "%63[^/]/%u", text, &bits), 2);
	if (inet_pton(AF_INET, text, &a.word[3]) == 1)
		bits += 96;
	else
		assert_int_equal(inet_pton(AF_INET6, text, a.word), 1);
	for (uint32_t i = 0; i < r->n; i++)
		if (r->all[i].bits == bits && !memcmp(&r->all[i].address, &a, sizeof(a)))
			return (int)r->all[i].flags;
	return -1;
}

static void test_what_stays_inside(void **state)
{
	/* The kernel adds the address' own route a moment later. */
	struct routes r =
	    list(CABLE " && ip addr add fd00::2/64 dev eth0 nodad && "
		       "until ip -6 route show table local | grep -q fd00::2; do :; done",
		NULL);

	(void)state;
	assert_int_equal(flags_of(&r, "10.1.0.2/32"), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(&r, "fd00::2/128"), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(&r, "10.1.0.0/24"), -1); /* leaves, by eth0 */
	assert_int_equal(flags_of(&r, "127.0.0.0/8"), -1); /* known without a row */
	assert_int_equal(flags_of(&r, "127.0.0.1/32"), -1);
	assert_int_equal(flags_of(&r, "::1/128"), -1);
}

static void test_a_whole_prefix_may_be_local(void **state)
{
	struct routes r = list(CABLE " && ip route add local 192.0.2.0/25 dev lo", NULL);

	(void)state;
	assert_int_equal(flags_of(&r, "192.0.2.0/25"), REDIRECT_CIDR_LOCAL);
}

/* A narrower route by another interface is listed, too: it takes back what the wider one says. */
static void test_what_leaves_by_an_excluded_interface(void **state)
{
	struct routes r =
	    list(CABLE " && ip route add default via 10.1.0.1 && "
		       "ip link add eth1 type veth peer name far1 && ip link set eth1 up && "
		       "ip route add 203.0.113.0/24 dev eth1",
		"eth0");

	(void)state;
	assert_int_equal(flags_of(&r, "0.0.0.0/0"), REDIRECT_CIDR_INTERFACE);
	assert_int_equal(flags_of(&r, "10.1.0.0/24"), REDIRECT_CIDR_INTERFACE);
	assert_int_equal(flags_of(&r, "203.0.113.0/24"), 0);
	assert_int_equal(flags_of(&r, "10.1.0.2/32"), REDIRECT_CIDR_LOCAL);
}

/* A pod that makes many routes keeps sight of its addresses. */
static void test_there_is_a_bound(void **state)
{
	struct routes r = list(CABLE " && for i in $(seq 400); do "
				     "echo route add 198.18.$((i / 200)).$((i % 200))/32 dev eth0; "
				     "done | ip -batch -",
	    "eth0");

	(void)state;
	assert_int_equal(r.n, NETNS_ROUTES_MAX);
	assert_int_equal(flags_of(&r, "10.1.0.2/32"), REDIRECT_CIDR_LOCAL);
}

static void test_nothing_is_there(void **state)
{
	(void)state;
	assert_int_equal(list("true", NULL).n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_what_stays_inside),
	    cmocka_unit_test(test_a_whole_prefix_may_be_local),
	    cmocka_unit_test(test_what_leaves_by_an_excluded_interface),
	    cmocka_unit_test(test_there_is_a_bound),
	    cmocka_unit_test(test_nothing_is_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
