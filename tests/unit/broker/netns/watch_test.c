/* watch_test.c - real network namespaces: their addresses, routes and interfaces, now and as
 * they change.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/base/fdstore.h"
#include "broker/netns/watch.h"
#include "common/err.h"
#include "tests/unit/broker/bpf.h"
#include <sys/resource.h>

struct world {
	struct broker_fdstore *kept;
	struct netns_home home;
	struct netns_watch v;
	struct netns_watch_seen seen;
	struct redirect_rules rules;
	struct err e;
	int netns, told;
};

#define CABLE                                                                                      \
	"ip link set lo up && ip link add eth0 type veth peer name far0 && "                       \
	"ip link set eth0 up && ip link set far0 up && ip addr add 10.1.0.2/24 dev eth0"

static void on_changed(void *ctx, const struct netns_watch_seen *seen)
{
	struct world *e = ctx;

	e->told++;
	e->seen = *seen;
}

static const struct redirect_rules *rules_now(void *ctx)
{
	const struct world *e = ctx;

	return &e->rules;
}

static int setup(void **state)
{
	static struct world e;

	memset(&e, 0, sizeof(e));
	e.kept = broker_fdstore_new();
	assert_int_equal(netns_home_open(&e.home, e.kept, &e.e), 0);
	e.v = (struct netns_watch){.epoll = broker_loop_new(),
	    .home = &e.home,
	    .rules = rules_now,
	    .changed = on_changed,
	    .ctx = &e};
	e.netns = -1;
	*state = &e;
	return 0;
}

static int teardown(void **state)
{
	struct world *e = *state;

	netns_watch_close(&e->v);
	netns_watch_close(&e->v); /* twice is once */
	close(e->v.epoll);
	netns_home_close(&e->home);
	if (e->netns >= 0)
		close(e->netns);
	broker_fdstore_free(&e->kept);
	return 0;
}

static void see(struct world *e, const char *commands)
{
	e->netns = place_netns(commands);
	if (netns_watch_open(&e->v, e->netns, &e->seen, &e->e))
		fail_msg("%s", e->e.msg);
}

static int run_there(void *ctx, struct err *e)
{
	(void)e;
	rig_shell("%s", (const char *)ctx);
	return 0;
}

/* Commands in the namespace, and what comes of them. */
static void then(struct world *e, const char *commands, int told)
{
	assert_int_equal(netns_visit(&e->home, e->netns, run_there, (void *)commands, &e->e), 0);
	while (e->told < told)
		broker_loop_turn(e->v.epoll, -1);
}

/* The flags of exactly this range; -1: it is not there. */
static int flags_of(const struct world *e, const char *address, unsigned bits)
{
	struct redirect_address a = {{0}};

	if (inet_pton(AF_INET, address, &a.word[3]) == 1) {
		a.word[2] = htobe32(0xffff);
		bits += 96;
	} else {
		inet_pton(AF_INET6, address, &a);
	}
	for (uint32_t i = 0; i < e->seen.nroutes; i++)
		if (e->seen.routes[i].bits == bits &&
		    !memcmp(&e->seen.routes[i].address, &a, sizeof(a)))
			return (int)e->seen.routes[i].flags;
	return -1;
}

/* The kernel takes its time: an IPv6 address is there before its route is. */
static void until_local(struct world *e, const char *address, unsigned bits)
{
	while (flags_of(e, address, bits) != REDIRECT_CIDR_LOCAL)
		broker_loop_turn(e->v.epoll, -1);
}

static void test_what_is_local(void **state)
{
	struct world *e = *state;

	see(e, CABLE " && ip addr add fd01::2/64 dev eth0 nodad && ip addr add 10.9.9.9/32 dev lo"
		     " && ip route add local 10.8.0.0/16 dev lo");
	until_local(e, "fd01::2", 128);
	assert_int_equal(e->seen.addresses.naddresses, 2); /* to dial from: not lo's */
	assert_int_equal(flags_of(e, "10.1.0.2", 32), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(e, "10.9.9.9", 32), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(e, "10.8.0.0", 16), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(e, "10.1.0.0", 24), -1); /* that is the network */
	assert_int_equal(flags_of(e, "127.0.0.0", 8), -1); /* that is known */
	assert_int_equal(flags_of(e, "::1", 128), -1);
}

/* istio adds it as well. */
static void test_passthrough_address(void **state)
{
	struct world *e = *state;

	see(e, "ip link set lo up");
	until_local(e, "::6", 128);
	assert_int_equal(netns_watch_look(&e->v, &e->seen, &e->e), 0);
	assert_int_equal(flags_of(e, "::6", 128), REDIRECT_CIDR_LOCAL);
}

/* It is in the rows while it is there, and no longer. */
static void test_where_captured_dials_of_ipv6_end(void **state)
{
	struct world *e = *state;

	see(e, "ip link set lo up");
	until_local(e, "::127.15.1.0", REDIRECT_SPREAD_BITS);
	e->told = 0;
	then(e, "ip -6 route del local ::127.15.1.0/121", 1);
	assert_int_equal(flags_of(e, "::127.15.1.0", REDIRECT_SPREAD_BITS), -1);
}

static void test_excluded_interfaces(void **state)
{
	struct world *e = *state;

	e->rules.ninterfaces = 2;
	strcpy(e->rules.interfaces[0], "net1");
	strcpy(e->rules.interfaces[1], "net2"); /* which does not exist (yet) */
	see(e,
	    CABLE " && ip link add net1 type veth peer name far1 && ip link set net1 up && "
		  "ip link set far1 up && ip addr add 10.2.0.2/24 dev net1 && "
		  "ip route add 192.168.0.0/16 via 10.2.0.1 && ip route add default via 10.1.0.1");
	assert_int_equal(e->seen.ninterfaces, 1);
	assert_int_equal(flags_of(e, "10.2.0.0", 24), REDIRECT_CIDR_INTERFACE);
	assert_int_equal(flags_of(e, "192.168.0.0", 16), REDIRECT_CIDR_INTERFACE);
	assert_int_equal(flags_of(e, "0.0.0.0", 0), 0);
	assert_int_equal(flags_of(e, "10.1.0.0", 24), 0); /* narrower than a wider excluded one */
	assert_int_equal(flags_of(e, "10.2.0.2", 32), REDIRECT_CIDR_LOCAL);
	then(e, "ip link add net2 type veth peer name far2", 0);
	while (e->seen.ninterfaces < 2)
		broker_loop_turn(e->v.epoll, -1);
}

/* An address of a whole prefix has a route in the main table too. */
static void test_each_range_once(void **state)
{
	struct world *e = *state;
	const struct redirect_cidr *routes = e->seen.routes;

	e->rules.ninterfaces = 1;
	strcpy(e->rules.interfaces[0], "net1");
	see(e,
	    CABLE " && ip addr add fd01::2/128 dev eth0 nodad && ip link add net1 type veth peer "
		  "name far1 && ip link set net1 up && ip addr add fd02::2/128 dev net1 nodad");
	until_local(e, "fd01::2", 128);
	until_local(e, "fd02::2", 128);
	for (uint32_t i = 0; i < e->seen.nroutes; i++)
		for (uint32_t k = 0; k < i; k++)
			assert_false(routes[i].bits == routes[k].bits &&
				     !memcmp(&routes[i].address, &routes[k].address,
					 sizeof(routes[i].address)));
}

static void test_changes_are_told(void **state)
{
	struct world *e = *state;

	see(e, CABLE);
	then(e, "ip addr add 10.1.0.3/24 dev eth0", 0);
	until_local(e, "10.1.0.3", 32);
	then(e, "ip addr del 10.1.0.2/24 dev eth0", 0);
	while (flags_of(e, "10.1.0.2", 32) >= 0)
		broker_loop_turn(e->v.epoll, -1);
}

static void limit_fds(rlim_t n)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = n;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* For want of descriptors, say: what changed is not forgotten. */
static void test_a_look_that_failed_is_made_again(void **state)
{
	struct world *e = *state;

	see(e, CABLE);
	then(e, "ip addr add 10.1.0.9/32 dev lo", 1);
	then(e, "ip addr add 10.1.0.3/24 dev eth0", e->told);
	limit_fds(4);
	for (int i = 0; i < 4; i++)
		broker_loop_turn(e->v.epoll, 100);
	assert_int_equal(flags_of(e, "10.1.0.3", 32), -1);
	limit_fds(1024);
	until_local(e, "10.1.0.3", 32);
}

/* However many: the socket's buffer overflows, and one look says it all. */
static void test_many_changes_are_one(void **state)
{
	struct world *e = *state;

	see(e, CABLE);
	then(e, "ip addr add 10.1.0.9/32 dev lo", 1);
	then(e,
	    "for i in $(seq 2000); do echo addr add 10.7.$((i / 250)).$((i % 250 + 1))/32 dev lo; "
	    "echo addr del 10.7.$((i / 250)).$((i % 250 + 1))/32 dev lo; done | ip -batch - && "
	    "ip addr add 10.6.6.6/32 dev lo",
	    2);
	until_local(e, "10.6.6.6", 32);
	assert_in_range(e->told, 2, 4);
}

/* A pod that is root makes more than anybody wants to know; its addresses come first. */
static void test_more_routes_than_fit(void **state)
{
	struct world *e = *state;

	e->rules.ninterfaces = 1;
	strcpy(e->rules.interfaces[0], "eth0");
	see(e,
	    CABLE " && for i in $(seq 2000); do echo route add 172.16.$((i / 250)).$((i % 250))/32"
		  " dev eth0; done | ip -batch -");
	assert_int_equal(e->seen.nroutes, NETNS_ROUTES_MAX);
	assert_int_equal(flags_of(e, "10.1.0.2", 32), REDIRECT_CIDR_LOCAL);
}

static void test_which_namespace(void **state)
{
	struct world *e = *state;
	int other = place_netns("");

	assert_false(netns_watch_is_of(&e->v, other));
	see(e, "");
	assert_true(netns_watch_is_of(&e->v, e->netns));
	assert_false(netns_watch_is_of(&e->v, other));
	close(other);
}

#define VIEW_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    VIEW_TEST(test_what_is_local),
	    VIEW_TEST(test_passthrough_address),
	    VIEW_TEST(test_where_captured_dials_of_ipv6_end),
	    VIEW_TEST(test_excluded_interfaces),
	    VIEW_TEST(test_each_range_once),
	    VIEW_TEST(test_changes_are_told),
	    VIEW_TEST(test_a_look_that_failed_is_made_again),
	    VIEW_TEST(test_many_changes_are_one),
	    VIEW_TEST(test_more_routes_than_fit),
	    VIEW_TEST(test_which_namespace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
