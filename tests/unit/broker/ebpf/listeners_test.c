/* listeners_test.c - sockets that listened before the rules, in the real kernel:
 * whose are found, which are not, and what looking costs.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c tests/fake/clock.c */
#include "broker/ebpf/listeners.h"
#include "common/mem.h"
#include "tests/fake/clock.h"
#include "tests/unit/broker/bpf.h"
#include <sys/fsuid.h>
#include <sys/resource.h>

enum { OUT = 15001, IN = 15006, PROXY = 1337, APP = 1000, WORKERS = 8, MANY = 1000 };

static const struct uuid web = {{1, 2, 3}};
static struct netns_home home;
static struct broker_fdstore *kept;

static int setup(void **state)
{
	static struct place p;

	place_setup(&p);
	kept = broker_fdstore_new();
	assert_int_equal(netns_home_open(&home, kept, &p.e), 0);
	p.at.home = &home;
	place_start(&p);
	*state = &p;
	return 0;
}

static pid_t living;

/* Somebody who is there before the rules; goes with the test. */
static void inhabit(const struct place *p, const char *name)
{
	char procs[PATH_MAX + 128], text[16];

	living = fork();
	if (living == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", place_path(p, name));
	snprintf(text, sizeof(text), "%d", living);
	rig_file(procs, text);
}

static int teardown(void **state)
{
	if (living) {
		kill(living, SIGKILL);
		waitpid(living, NULL, 0);
		living = 0;
	}
	fake_clock_hurry(0);
	place_teardown(*state);
	netns_home_close(&home);
	broker_fdstore_free(&kept);
	return 0;
}

/* --- who listens --- */

struct who {
	const char *address;
	uid_t uid;
	uint16_t port;
	const char *device;
	bool only6; /* no IPv4 */
};

#define AT(address_, uid_, port_, ...)                                                             \
	((struct who){.address = (address_), .uid = (uid_), .port = (port_), __VA_ARGS__})

static void bind_to(int fd, const struct who *w)
{
	const bool v6 = strchr(w->address, ':');
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htobe16(w->port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htobe16(w->port)};
	const int one = 1, only6 = w->only6;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)), 0);
	if (w->device)
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, w->device,
				     (socklen_t)strlen(w->device)),
		    0);
	if (v6) {
		assert_int_equal(
		    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only6, sizeof(only6)), 0);
		assert_int_equal(inet_pton(AF_INET6, w->address, &six.sin6_addr), 1);
		assert_int_equal(bind(fd, (struct sockaddr *)&six, sizeof(six)), 0);
	} else {
		assert_int_equal(inet_pton(AF_INET, w->address, &four.sin_addr), 1);
		assert_int_equal(bind(fd, (struct sockaddr *)&four, sizeof(four)), 0);
	}
}

/* In that namespace, as the user's. */
static int bound(int netns, struct who w)
{
	int fd;

	assert_int_equal(setns(netns, CLONE_NEWNET), 0);
	setfsuid(w.uid);
	fd = socket(strchr(w.address, ':') ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setfsuid(0);
	assert_true(fd >= 0);
	bind_to(fd, &w);
	assert_int_equal(setns(home.fd, CLONE_NEWNET), 0);
	return fd;
}

static int listens(int netns, struct who w)
{
	int fd = bound(netns, w);

	assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static void envoy(int netns)
{
	listens(netns, AT("0.0.0.0", PROXY, OUT));
	listens(netns, AT("0.0.0.0", PROXY, IN));
}

/* --- what is known of them --- */

static uint16_t mark(const struct place *p, int fd)
{
	struct redirect_socket s;
	int map = place_pin(p, "map_sockets");
	int rc = bpf_map_lookup_elem(map, &fd, &s);

	close(map);
	if (rc)
		return 0;
	assert_int_equal(s.index, ebpf_index(p->r, &web));
	return s.kind;
}

static bool is_listener(const struct place *p, int fd, uint32_t family)
{
	const struct redirect_listener_key key = {ebpf_index(p->r, &web), family};
	uint64_t cookie = 0, there = 0;
	socklen_t size = sizeof(cookie);
	int map = place_pin(p, "map_listeners");

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size), 0);
	bpf_map_lookup_elem(map, &key, &there);
	close(map);
	return cookie == there;
}

static struct redirect_pod_state *pod(const struct place *p)
{
	return ebpf_pod_find(p->r, &web);
}

static bool find(const struct place *p, int netns)
{
	return ebpf_listeners_find(p->r, &pod(p)->entry, netns) == REDIRECT_LOOK_DONE;
}

/* As the broker looks: until all is known, and each time there is less that is not.  How often. */
static int find_all(const struct place *p, int netns, int sockets)
{
	for (int looks = 1; looks <= sockets + 1; looks++)
		switch (ebpf_listeners_find(p->r, &pod(p)->entry, netns)) {
		case REDIRECT_LOOK_DONE:
			return looks;
		case REDIRECT_LOOK_FOUND:
			break;
		default:
			fail_msg("look %d of %d sockets was in vain", looks, sockets);
		}
	fail_msg("%d sockets are not known after as many looks", sockets);
	return 0;
}

/* The pod's rules, in a cgroup where nobody is. */
static void ruled(struct place *p)
{
	const struct redirect_rules rules = good_rules();

	place_set(p, &web, place_cgroup(p, "pod"), &rules);
}

/* --- whose --- */

static void test_every_worker_is_found(void **state)
{
	struct place *p = *state;
	int netns = place_netns(""), out[WORKERS], in[WORKERS], there = 0;

	for (int i = 0; i < WORKERS; i++) {
		out[i] = listens(netns, AT("0.0.0.0", PROXY, OUT));
		in[i] = listens(netns, AT("0.0.0.0", PROXY, IN));
	}
	ruled(p);
	assert_in_range(
	    find_all(p, netns, 2 * WORKERS), 2, 2 * WORKERS + 1); /* there may be more */
	for (int i = 0; i < WORKERS; i++) {
		assert_int_equal(mark(p, out[i]), REDIRECT_SOCKET_LISTENS_OUT);
		assert_int_equal(mark(p, in[i]), REDIRECT_SOCKET_LISTENS_IN);
		there += is_listener(p, in[i], AF_INET);
	}
	assert_int_equal(there, 1);
	assert_int_equal(place_rows(p, "listeners"), 1);
	assert_true(find(p, netns));
}

static void test_addresses_and_families(void **state)
{
	static const struct {
		const char *address;
		uint32_t family;
		bool only6;
	} rows[] = {{"127.0.0.1", 0, false}, {"::1", 0, false},
	    {"::ffff:127.0.0.1", 0, false}, /* where nobody arrives */
	    {"10.9.0.7", AF_INET, false}, {"::", AF_INET6, false}, {"::", AF_INET6, true},
	    {"fd00::7", AF_INET6, false}, {"::ffff:10.9.0.7", AF_INET6, false}};
	struct place *p = *state;

	ruled(p);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		auto_close int netns =
		    place_netns("ip link set lo up; ip addr add 10.9.0.7/32 dev lo;"
				"ip addr add fd00::7/128 dev lo nodad");
		const struct who w = AT(rows[i].address, PROXY, IN, .only6 = rows[i].only6);
		auto_close int fd = listens(netns, w);

		find(p, netns);
		assert_int_equal(mark(p, fd), rows[i].family ? REDIRECT_SOCKET_LISTENS_IN : 0);
		if (rows[i].family)
			assert_true(is_listener(p, fd, rows[i].family));
	}
}

static void test_both_families_at_once(void **state)
{
	struct place *p = *state;
	int netns = place_netns("");
	int four = listens(netns, AT("0.0.0.0", PROXY, IN));
	int six = listens(netns, AT("::", PROXY, IN, .only6 = true));

	ruled(p);
	find(p, netns);
	assert_true(is_listener(p, four, AF_INET));
	assert_true(is_listener(p, six, AF_INET6));
}

static void test_nobody_elses(void **state)
{
	struct place *p = *state;
	int netns = place_netns("");
	int out = listens(netns, AT("0.0.0.0", PROXY + 5 * 65536, OUT));
	int foreign = listens(netns, AT("0.0.0.0", APP, IN));
	int other = listens(netns, AT("0.0.0.0", PROXY, 8080));

	ruled(p);
	for (int i = 0; i < 2; i++)
		assert_false(find(p, netns));
	assert_int_equal(mark(p, out), REDIRECT_SOCKET_LISTENS_OUT);
	assert_int_equal(mark(p, foreign), 0);
	assert_int_equal(mark(p, other), 0);
	assert_int_equal(place_rows(p, "listeners"), 0);
}

/* A look-up at Envoy's address finds somebody else's socket. */
static void test_who_stands_in_between(void **state)
{
	struct place *p = *state;
	int netns = place_netns("ip link set lo up; ip link add eth0 type veth peer eth1");
	int out = listens(netns, AT("0.0.0.0", APP, OUT, .device = "lo"));
	int in = listens(netns, AT("0.0.0.0", APP, IN, .device = "lo"));

	listens(netns, AT("0.0.0.0", PROXY, OUT, .device = "eth0"));
	listens(netns, AT("0.0.0.0", PROXY, IN, .device = "eth0"));
	ruled(p);
	assert_false(find(p, netns));
	assert_int_equal(mark(p, out), 0);
	assert_int_equal(mark(p, in), 0);
	assert_int_equal(place_rows(p, "listeners"), 0);
}

static void test_who_does_not_listen(void **state)
{
	struct place *p = *state;
	int netns = place_netns("");
	int out = bound(netns, AT("0.0.0.0", PROXY, OUT));

	ruled(p);
	assert_false(find(p, netns));
	assert_int_equal(mark(p, out), 0);
}

/* What is found is not always what was listed: it may have gone since. */
static void test_only_what_was_listed(void **state)
{
	static const char frame[64];
	LIBBPF_OPTS(bpf_test_run_opts, o, .data_in = frame, .data_size_in = sizeof(frame));
	struct place *p = *state;
	int netns = place_netns("");
	int in = listens(netns, AT("0.0.0.0", APP, IN));
	struct redirect_sought q = {.address = {{0, 0, htobe32(0xffff), htobe32(0x7f000001)}},
	    .index = 1,
	    .family = AF_INET,
	    .kind = REDIRECT_SOCKET_LISTENS_IN,
	    .port = IN};

	for (int i = 0; i < 2; i++) {
		p->r->bpf->bss->sought = q;
		assert_int_equal(setns(netns, CLONE_NEWNET), 0);
		assert_int_equal(
		    bpf_prog_test_run_opts(bpf_program__fd(p->r->bpf->progs.redirect_seek), &o), 0);
		assert_int_equal(setns(home.fd, CLONE_NEWNET), 0);
		assert_int_equal(o.retval, i ? REDIRECT_FOUND_NEW : REDIRECT_FOUND_NONE);
		q.address.word[3] = 0; /* as it was listed */
	}
	close(in);
}

/* Whatever the worker says it is. */
static void test_nobody_in_the_nodes_own_namespace(void **state)
{
	struct place *p = *state;
	struct netns_home here = home;
	int netns = place_netns("");
	int out = listens(netns, AT("0.0.0.0", PROXY, OUT));
	struct stat st;

	assert_int_equal(fstat(netns, &st), 0);
	here.init = (struct netns_id){.dev = st.st_dev, .ino = st.st_ino};
	p->r->home = &here;
	ruled(p);
	assert_false(find(p, netns));
	assert_int_equal(mark(p, out), 0);
	p->r->home = &home;
}

/* Nothing of it needs the kernel's types, where nothing has to. */
static void test_a_kernel_without_types(void **state)
{
	struct place *p = *state;

	redirect_free(&p->r);
	assert_int_equal(mount("none", "/sys/kernel/btf", "tmpfs", 0, NULL), 0);
	place_start(p);
	assert_int_equal(umount("/sys/kernel/btf"), 0);
}

/* A pod whose rules went and came back has another number. */
static void test_an_old_number_is_replaced(void **state)
{
	struct place *p = *state;
	int netns = place_netns("");
	int out = listens(netns, AT("0.0.0.0", PROXY, OUT));

	for (int i = 0; i < 2; i++) {
		ruled(p);
		find(p, netns);
		assert_int_equal(mark(p, out), REDIRECT_SOCKET_LISTENS_OUT);
		redirect_remove(p->r, &web);
	}
}

/* --- what it costs --- */

static uint64_t runs(const struct place *p)
{
	struct bpf_prog_info info = {0};
	uint32_t size = sizeof(info);
	int fd = bpf_program__fd(p->r->bpf->progs.redirect_seek);

	assert_int_equal(bpf_obj_get_info_by_fd(fd, &info, &size), 0);
	return info.run_cnt;
}

/* Look-ups of the next find(). */
static uint64_t find_runs(const struct place *p, int netns)
{
	uint64_t before = runs(p);

	find(p, netns);
	return runs(p) - before;
}

enum { TRIES = 16, CROWD = 96 };

static void test_many_workers(void **state)
{
	struct place *p = *state;
	int netns = place_netns(""), stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	int fds[2 * CROWD], looks = 0, marked;

	ruled(p);
	for (int i = 0; i < 2 * CROWD; i++)
		fds[i] = listens(netns, AT("0.0.0.0", PROXY, i % 2 ? IN : OUT));
	do { /* a slow machine has time for some of them only */
		find(p, netns);
		marked = 0;
		for (int i = 0; i < 2 * CROWD; i++)
			marked += mark(p, fds[i]) != 0;
	} while (marked < 2 * CROWD && ++looks < 100);
	assert_int_equal(marked, 2 * CROWD);
	assert_in_range(find_runs(p, netns), 1, 2 * CROWD * TRIES / 2);
	for (looks = 0; !find(p, netns) && looks < 100; looks++)
		;
	assert_in_range(looks, 0, 99);
	close(stats);
}

/* It is no fault of the pod's, and a look is as long as before. */
static void test_whoever_else_has_the_core(void **state)
{
	enum { LOOK_MS = 20 };
	struct place *p = *state;
	int netns = place_netns("");

	for (int i = 0; i < 2 * WORKERS; i++)
		listens(netns, AT("0.0.0.0", PROXY, i % 2 ? IN : OUT));
	ruled(p);
	fake_clock_hurry(2 * LOOK_MS);
	find_all(p, netns, 2 * WORKERS);
}

/* What is not Envoy's costs little; what looks like it costs time, and of that there is an end. */
static void test_looking_is_bounded(void **state)
{
	struct place *p = *state;
	int netns = place_netns("ip link add eth0 type veth peer eth1; ip link set eth0 up");
	int stats = bpf_enable_stats(BPF_STATS_RUN_TIME);
	struct rlimit all = {9 * MANY, 9 * MANY};

	assert_true(stats >= 0);
	setrlimit(RLIMIT_NOFILE, &all);
	ruled(p);
	for (int i = 0; i < MANY; i++)
		listens(netns, AT("0.0.0.0", APP, (uint16_t)(20000 + i)));
	assert_int_equal(find_runs(p, netns), 0); /* nobody on Envoy's ports */
	for (int i = 0; i < 7 * MANY; i++)
		listens(netns, AT("0.0.0.0", PROXY, OUT, .device = "eth0"));
	for (int i = 0; i < 2; i++)
		assert_in_range(find_runs(p, netns), 1, MANY); /* of 65,536, each slower */
	close(stats);
}

/* Whoever looks at the counters sees what others dialled. */
static void test_looking_is_not_counted(void **state)
{
	struct place *p = *state;
	const struct redirect_rules rules = good_rules();
	int netns = place_netns("ip link set lo up"), cgroup = place_cgroup(p, "pod");
	struct redirect_counters now;
	uint32_t row;

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	row = (ebpf_index(p->r, &web) & REDIRECT_ROW_MASK) - 1;
	listens(netns, AT("0.0.0.0", PROXY, IN));
	find(p, netns);
	assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(p->r->bpf->maps.counters), &row, &now), 0);
	for (int i = 0; i < REDIRECT_VERDICTS; i++)
		assert_int_equal(now.n[i], 0);
}

/* --- when --- */

static void test_a_pod_that_ran_before_its_rules(void **state)
{
	struct place *p = *state;
	const struct redirect_rules rules = good_rules();
	int netns = place_netns(""), cgroup = place_cgroup(p, "pod");

	inhabit(p, "pod");
	envoy(netns);
	if (redirect_set(p->r, &web, (struct redirect_where){cgroup, netns}, &rules, &p->e))
		fail_msg("%s", p->e.msg);
	assert_int_equal(place_rows(p, "listeners"), 1); /* before it is live */
	assert_true(pod(p)->late);
	place_live(p, &web, netns, 7);
	assert_false(pod(p)->late); /* all were known */
}

static void test_a_namespace_that_is_learned_later(void **state)
{
	struct place *p = *state;
	const struct redirect_rules rules = good_rules();
	int netns = place_netns(""), cgroup = place_cgroup(p, "pod");

	inhabit(p, "pod");
	envoy(netns);
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_rows(p, "listeners"), 0);
	place_live(p, &web, netns, 7);
	assert_int_equal(place_rows(p, "listeners"), 1);
}

static void test_a_pod_that_begins_under_its_rules(void **state)
{
	struct place *p = *state;
	int netns = place_netns("");

	ruled(p);
	envoy(netns);
	place_live(p, &web, netns, 7);
	assert_int_equal(place_rows(p, "listeners"), 0); /* nobody looks for what cannot be */
}

static int its_netns;
static int netns_of_pod(void *ctx, const struct uuid *uid)
{
	(void)ctx;
	(void)uid;
	return its_netns;
}

static int no_cgroup(void *ctx, const struct uuid *uid)
{
	(void)ctx;
	(void)uid;
	return -1;
}

static void no_directory(void *ctx, const char *path)
{
	(void)ctx;
	(void)path;
}

static const struct redirect_targets there = {no_cgroup, netns_of_pod, no_directory, NULL};

/* Bound before the rules, it listens after we looked; with each audit we look once more. */
static void test_an_envoy_that_listens_later(void **state)
{
	struct place *p = *state;
	const struct redirect_rules rules = good_rules();
	int netns = its_netns = place_netns(""), cgroup = place_cgroup(p, "pod");
	int in = bound(netns, AT("0.0.0.0", PROXY, IN));
	inhabit(p, "pod");

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	assert_int_equal(listen(in, 1), 0);
	redirect_audit(p->r, &there);
	assert_false(is_listener(p, in, AF_INET)); /* looked a moment ago */
	pod(p)->look_ms = 0;
	redirect_audit(p->r, &there);
	assert_true(is_listener(p, in, AF_INET));
	assert_true(pod(p)->late); /* nobody on the other port yet */
}

static void test_the_next_broker_looks(void **state)
{
	struct place *p = *state;
	const struct redirect_rules rules = good_rules();
	int netns = place_netns(""), cgroup = place_cgroup(p, "pod");

	place_set(p, &web, cgroup, &rules);
	envoy(netns);
	redirect_free(&p->r);
	place_start(p);
	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	assert_int_equal(place_rows(p, "listeners"), 1);
	redirect_close(p->r, &web);
	assert_false(pod(p)->late);
}

static void test_other_ports_are_looked_for(void **state)
{
	struct place *p = *state;
	struct redirect_rules rules = good_rules();
	int netns = place_netns(""), cgroup = place_cgroup(p, "pod");
	int in = listens(netns, AT("0.0.0.0", PROXY, IN + 1));

	place_set(p, &web, cgroup, &rules);
	inhabit(p, "pod");
	place_live(p, &web, netns, 7);
	rules.inbound_port = IN + 1;
	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	assert_true(is_listener(p, in, AF_INET));
}

#define BPF_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    BPF_TEST(test_every_worker_is_found),
	    BPF_TEST(test_addresses_and_families),
	    BPF_TEST(test_both_families_at_once),
	    BPF_TEST(test_nobody_elses),
	    BPF_TEST(test_who_stands_in_between),
	    BPF_TEST(test_who_does_not_listen),
	    BPF_TEST(test_only_what_was_listed),
	    BPF_TEST(test_nobody_in_the_nodes_own_namespace),
	    BPF_TEST(test_a_kernel_without_types),
	    BPF_TEST(test_an_old_number_is_replaced),
	    BPF_TEST(test_many_workers),
	    BPF_TEST(test_whoever_else_has_the_core),
	    BPF_TEST(test_looking_is_bounded),
	    BPF_TEST(test_looking_is_not_counted),
	    BPF_TEST(test_a_pod_that_ran_before_its_rules),
	    BPF_TEST(test_a_namespace_that_is_learned_later),
	    BPF_TEST(test_a_pod_that_begins_under_its_rules),
	    BPF_TEST(test_an_envoy_that_listens_later),
	    BPF_TEST(test_the_next_broker_looks),
	    BPF_TEST(test_other_ports_are_looked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
