/* netns_watch_test.c - real network namespaces: their addresses, routes and interfaces, now and as
 * they change.
 */
#include "broker/base/fdstore.h"
#include "broker/netns/watch.h"
#include "tests/unit/broker/bpf.h"
#include <sys/resource.h>

struct world {
	struct broker_fdstore *kept;
	struct netns_home home;
	struct netns_watch v;
	struct netns_watch_seen seen;
	struct redirect_rules rules;
	struct broker_why w;
	int netns, told;
};

#define CABLE                                                                                      \
	"ip link set lo up && ip link add eth0 type veth peer name far0 && "                       \
	"ip link set eth0 up && ip link set far0 up && ip addr add 10.1.0.2/24 dev eth0"

static void on_changed(void *ctx, const struct netns_watch_seen *seen)
{
	struct world *w = ctx;

	w->told++;
	w->seen = *seen;
}

static const struct redirect_rules *rules_now(void *ctx)
{
	const struct world *w = ctx;

	return &w->rules;
}

static int setup(void **state)
{
	static struct world w;

	memset(&w, 0, sizeof(w));
	w.kept = broker_fdstore_new();
	assert_int_equal(netns_home_open(&w.home, w.kept, &w.w), 0);
	w.v = (struct netns_watch){.epoll = broker_loop_new(),
	    .home = &w.home,
	    .rules = rules_now,
	    .changed = on_changed,
	    .ctx = &w};
	w.netns = -1;
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	netns_watch_close(&w->v);
	netns_watch_close(&w->v); /* twice is once */
	close(w->v.epoll);
	netns_home_close(&w->home);
	if (w->netns >= 0)
		close(w->netns);
	broker_fdstore_free(&w->kept);
	return 0;
}

static void see(struct world *w, const char *commands)
{
	w->netns = place_netns(commands);
	if (netns_watch_open(&w->v, w->netns, &w->seen, &w->w))
		fail_msg("%s", w->w.text);
}

static int run_there(void *ctx, struct broker_why *w)
{
	(void)w;
	rig_shell("%s", (const char *)ctx);
	return 0;
}

/* Commands in the namespace, and what comes of them. */
static void then(struct world *w, const char *commands, int told)
{
	assert_int_equal(netns_visit(&w->home, w->netns, run_there, (void *)commands, &w->w), 0);
	while (w->told < told)
		broker_loop_turn(w->v.epoll, -1);
}

/* The flags of exactly this range; -1: it is not there. */
static int flags_of(const struct world *w, const char *address, unsigned bits)
{
	struct redirect_address a = {{0}};

	if (inet_pton(AF_INET, address, &a.word[3]) == 1) {
		a.word[2] = htobe32(0xffff);
		bits += 96;
	} else {
		inet_pton(AF_INET6, address, &a);
	}
	for (uint32_t i = 0; i < w->seen.nroutes; i++)
		if (w->seen.routes[i].bits == bits &&
		    !memcmp(&w->seen.routes[i].address, &a, sizeof(a)))
			return (int)w->seen.routes[i].flags;
	return -1;
}

static void test_what_is_local(void **state)
{
	struct world *w = *state;

	see(w, CABLE " && ip addr add fd01::2/64 dev eth0 nodad && ip addr add 10.9.9.9/32 dev lo"
		     " && ip route add local 10.8.0.0/16 dev lo");
	assert_int_equal(w->seen.addresses.naddresses, 2); /* to dial from: not lo's */
	assert_int_equal(flags_of(w, "10.1.0.2", 32), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(w, "fd01::2", 128), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(w, "10.9.9.9", 32), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(w, "10.8.0.0", 16), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(w, "10.1.0.0", 24), -1); /* that is the network */
	assert_int_equal(flags_of(w, "127.0.0.0", 8), -1); /* that is known */
	assert_int_equal(flags_of(w, "::1", 128), -1);
}

/* istio adds it as well. */
static void test_passthrough_address(void **state)
{
	struct world *w = *state;

	see(w, "ip link set lo up");
	while (flags_of(w, "::6", 128) < 0) /* the kernel takes its time */
		broker_loop_turn(w->v.epoll, -1);
	assert_int_equal(flags_of(w, "::6", 128), REDIRECT_CIDR_LOCAL);
	assert_int_equal(netns_watch_look(&w->v, &w->seen, &w->w), 0);
	assert_int_equal(flags_of(w, "::6", 128), REDIRECT_CIDR_LOCAL);
}

static void test_excluded_interfaces(void **state)
{
	struct world *w = *state;

	w->rules.ninterfaces = 2;
	strcpy(w->rules.interfaces[0], "net1");
	strcpy(w->rules.interfaces[1], "net2"); /* which does not exist (yet) */
	see(w,
	    CABLE " && ip link add net1 type veth peer name far1 && ip link set net1 up && "
		  "ip link set far1 up && ip addr add 10.2.0.2/24 dev net1 && "
		  "ip route add 192.168.0.0/16 via 10.2.0.1 && ip route add default via 10.1.0.1");
	assert_int_equal(w->seen.ninterfaces, 1);
	assert_int_equal(flags_of(w, "10.2.0.0", 24), REDIRECT_CIDR_INTERFACE);
	assert_int_equal(flags_of(w, "192.168.0.0", 16), REDIRECT_CIDR_INTERFACE);
	assert_int_equal(flags_of(w, "0.0.0.0", 0), 0);
	assert_int_equal(flags_of(w, "10.1.0.0", 24), 0); /* narrower than a wider excluded one */
	assert_int_equal(flags_of(w, "10.2.0.2", 32), REDIRECT_CIDR_LOCAL);
	then(w, "ip link add net2 type veth peer name far2", 1);
	assert_int_equal(w->seen.ninterfaces, 2);
}

/* An address of a whole prefix has a route in the main table too. */
static void test_each_range_once(void **state)
{
	struct world *w = *state;
	const struct redirect_cidr *routes = w->seen.routes;

	w->rules.ninterfaces = 1;
	strcpy(w->rules.interfaces[0], "net1");
	see(w,
	    CABLE " && ip addr add fd01::2/128 dev eth0 nodad && ip link add net1 type veth peer "
		  "name far1 && ip link set net1 up && ip addr add fd02::2/128 dev net1 nodad");
	assert_int_equal(flags_of(w, "fd01::2", 128), REDIRECT_CIDR_LOCAL);
	assert_int_equal(flags_of(w, "fd02::2", 128), REDIRECT_CIDR_LOCAL);
	for (uint32_t i = 0; i < w->seen.nroutes; i++)
		for (uint32_t k = 0; k < i; k++)
			assert_false(routes[i].bits == routes[k].bits &&
				     !memcmp(&routes[i].address, &routes[k].address,
					 sizeof(routes[i].address)));
}

static void test_changes_are_told(void **state)
{
	struct world *w = *state;
	int told;

	see(w, CABLE);
	then(w, "true", 1); /* of ::6, which we added */
	then(w, "ip addr add 10.1.0.3/24 dev eth0", told = w->told + 1);
	assert_int_equal(flags_of(w, "10.1.0.3", 32), REDIRECT_CIDR_LOCAL);
	then(w, "ip addr del 10.1.0.2/24 dev eth0", told + 1);
	assert_int_equal(flags_of(w, "10.1.0.2", 32), -1);
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
	struct world *w = *state;

	see(w, CABLE);
	then(w, "true", 1);
	then(w, "ip addr add 10.1.0.3/24 dev eth0", w->told);
	limit_fds(4);
	for (int i = 0; i < 4; i++)
		broker_loop_turn(w->v.epoll, 100);
	assert_int_equal(flags_of(w, "10.1.0.3", 32), -1);
	limit_fds(1024);
	for (int i = 0; i < 50 && flags_of(w, "10.1.0.3", 32) < 0; i++)
		broker_loop_turn(w->v.epoll, 100);
	assert_int_equal(flags_of(w, "10.1.0.3", 32), REDIRECT_CIDR_LOCAL);
}

/* However many: the socket's buffer overflows, and one look says it all. */
static void test_many_changes_are_one(void **state)
{
	struct world *w = *state;

	see(w, CABLE);
	then(w, "true", 1);
	then(w,
	    "for i in $(seq 2000); do echo addr add 10.7.$((i / 250)).$((i % 250 + 1))/32 dev lo; "
	    "echo addr del 10.7.$((i / 250)).$((i % 250 + 1))/32 dev lo; done | ip -batch - && "
	    "ip addr add 10.6.6.6/32 dev lo",
	    2);
	while (flags_of(w, "10.6.6.6", 32) < 0)
		broker_loop_turn(w->v.epoll, -1);
	assert_in_range(w->told, 2, 4);
}

/* A pod that is root makes more than anybody wants to know; its addresses come first. */
static void test_more_routes_than_fit(void **state)
{
	struct world *w = *state;

	w->rules.ninterfaces = 1;
	strcpy(w->rules.interfaces[0], "eth0");
	see(w,
	    CABLE " && for i in $(seq 2000); do echo route add 172.16.$((i / 250)).$((i % 250))/32"
		  " dev eth0; done | ip -batch -");
	assert_int_equal(w->seen.nroutes, NETNS_ROUTES_MAX);
	assert_int_equal(flags_of(w, "10.1.0.2", 32), REDIRECT_CIDR_LOCAL);
}

static void test_which_namespace(void **state)
{
	struct world *w = *state;
	int other = place_netns("");

	assert_false(netns_watch_is_of(&w->v, other));
	see(w, "");
	assert_true(netns_watch_is_of(&w->v, w->netns));
	assert_false(netns_watch_is_of(&w->v, other));
	close(other);
}

#define VIEW_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    VIEW_TEST(test_what_is_local),
	    VIEW_TEST(test_passthrough_address),
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
