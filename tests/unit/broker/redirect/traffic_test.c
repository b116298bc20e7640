/* traffic_test.c - a worker asks for redirection, and what its pods do meanwhile: cgroups
 * that come and go, network namespaces that are learned, workers and brokers that are replaced.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c tests/unit/broker/pods/peer.c */
#include "broker/base/loop.h"
#include "broker/base/state.h"
#include "broker/pods/pods.h"
#include "broker/redirect/live.h"
#include "broker/redirect/traffic_internal.h"
#include "broker/requests/broker_internal.h"
#include "common/err.h"
#include "common/mem.h"
#include "ebpf/names.h"
#include "ebpf/rules_types.h"
#include "tests/unit/broker/bpf.h"
#include "tests/unit/broker/pods/peer.h"
#include <poll.h>

struct world {
	struct rig *rig;
	struct place place;
	char name[64], pod[128];
	int listener;
};

static struct world w;

static void name_cgroup(const char *pod, const char *cgroup)
{
	char text[192];

	snprintf(text, sizeof(text), "%s/%s", w.name, cgroup);
	rig_shell("mkdir -p %s/%s", w.rig->manifests, pod);
	rig_file(rig_at(w.rig, "pods.d/%s/cgroup", pod), text);
	assert_int_equal(chmod(rig_at(w.rig, "pods.d/%s/cgroup", pod), 0600), 0);
	rig_file(rig_at(w.rig, "pods.d/%s.yaml", pod), "");
}

/* A rig whose broker redirects, in a cgroup and a bpffs of the test's own. */
static int setup(void **state)
{
	memset(&w, 0, sizeof(w));
	place_setup(&w.place);
	if (rig_setup(state))
		return -1;
	w.rig = *state;
	rig_stop(w.rig);
	snprintf(w.name, sizeof(w.name), "%s", strrchr(w.place.cgroup, '/') + 1);
	w.rig->o.redirect = true;
	w.rig->o.redirect_cgroup = w.name;
	w.rig->o.redirect_allow = "permissive,exclusions";
	w.rig->o.bpffs = w.place.bpffs;
	rig_start(w.rig);
	name_cgroup(rig_pod_text, "pod");
	w.listener = make_listener(w.rig);
	return 0;
}

static int teardown(void **state)
{
	int rc;

	close(w.listener);
	place_empty(&w.place); /* first: should the rest fail, nothing is left behind */
	rc = rig_teardown(state);
	place_teardown(&w.place);
	return rc;
}

static struct rig_ask set_request(const struct redirect_rules *rules)
{
	return (struct rig_ask){.op = LINK_REDIRECT_SET,
	    .pod = &rig_pod,
	    .fd = rig_memfd(rules, sizeof(*rules), RIG_SEALS)};
}

static void ask(const struct redirect_rules *rules)
{
	struct rig_ask a = set_request(rules);

	rig_do(w.rig, a);
	close(a.fd);
}

static void refused(const struct redirect_rules *rules, int code, const char *why)
{
	struct rig_ask a = set_request(rules);

	rig_refused(w.rig, a, code, why);
	close(a.fd);
}

/* The word that follows; notes about namespaces may come before it. */
static struct link_packet told(enum link_what what)
{
	struct link_packet p;
	int fd;

	do {
		if (!rig_next(w.rig, &p, &fd))
			fail_msg("no packet of kind %d", what);
		if (fd >= 0)
			close(fd);
	} while (p.what != what);
	return p;
}

/* Notes about namespaces. */
static void drain(void)
{
	rig_drain(w.rig);
}

static void in_force(void)
{
	struct link_packet p = told(LINK_REDIRECTED);

	if (p.code)
		fail_msg("%s", p.why);
	assert_in_range(p.arg, 1, REDIRECT_PODS_MAX);
	assert_memory_equal(&p.uid, &rig_pod, sizeof(rig_pod));
	drain();
}

static void nothing_told(void)
{
	struct link_packet p;
	int fd;

	while (rig_next(w.rig, &p, &fd)) {
		assert_int_not_equal(p.what, LINK_REDIRECTED);
		if (fd >= 0)
			close(fd);
	}
}

static bool is_closed(int cgroup)
{
	return place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL) == 1;
}

/* The gate knows nothing of it: it is what steers. */
static bool is_live(void)
{
	char pin[128];
	int fd;

	snprintf(pin, sizeof(pin), "pods/%s/redirect_lookup", rig_pod_text);
	fd = place_pin(&w.place, pin);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static struct peer envoy(const char *commands)
{
	char procs[PATH_MAX + 128];

	snprintf(procs, sizeof(procs), "%s/cgroup.procs", place_path(&w.place, "pod"));
	return peer_start(w.rig, w.listener, -1, commands, procs);
}

static void greet(const struct peer *p)
{
	struct link_packet reply = rig_ask(w.rig, peer_of(&rig_pod, p->accepted), NULL);

	if (reply.code)
		fail_msg("%s", reply.why);
	drain();
}

/* --- asking --- */

static void test_without_the_flag_it_is_refused(void **state)
{
	const struct redirect_rules rules = good_rules();

	(void)state;
	rig_stop(w.rig);
	w.rig->o.redirect = false;
	rig_start(w.rig);
	rig_add(w.rig);
	refused(&rules, EOPNOTSUPP, "--redirect");
	rig_refused(
	    w.rig, (struct rig_ask){.op = LINK_REDIRECT_COUNTERS}, EOPNOTSUPP, "--redirect");
	rig_do(w.rig, (struct rig_ask){.op = LINK_REDIRECT_DEL, .pod = &rig_pod});
}

/* Where no program would find a pod, none is in force, and the reason is said. */
static void test_a_tree_whose_level_is_not_known(void **state)
{
	const struct redirect_rules rules = good_rules();
	char part[64];

	(void)state;
	rig_stop(w.rig);
	snprintf(part, sizeof(part), "%s/part", w.place.top);
	rig_shell("mkdir %s && mount --bind %s %s", part, w.place.cgroup, part);
	w.rig->o.cgroup_root = part;
	w.rig->o.redirect_cgroup = "";
	rig_start(w.rig);
	rig_add(w.rig);
	refused(&rules, EXDEV, "its level cannot be measured");
	rig_stop(w.rig);
	rig_shell("umount %s", part);
	rig_start(w.rig);
}

static void test_hostile_requests(void **state)
{
	struct redirect_rules rules = good_rules();
	struct rig_ask a = {.op = LINK_REDIRECT_SET, .pod = &rig_pod};

	(void)state;
	a.fd = rig_memfd(&rules, sizeof(rules) - 1, RIG_SEALS);
	rig_refused(w.rig, a, EINVAL, "another size");
	close(a.fd);
	a.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	rig_refused(w.rig, a, EINVAL, "no memfd");
	close(a.fd);
	a.fd = rig_memfd(&rules, sizeof(rules), F_SEAL_SHRINK | F_SEAL_GROW);
	rig_refused(w.rig, a, EINVAL, "not sealed");
	close(a.fd);
	a = set_request(&rules);
	a.pod = &rig_other;
	rig_refused(w.rig, a, ENOENT, "was not added");
	close(a.fd);
	rules.proxy_uid = 0;
	refused(&rules, EPERM, "root's");
	assert_int_equal(place_rows(&w.place, "pods"), 0);
	nothing_told();
}

static void test_a_pod_without_a_cgroup_named(void **state)
{
	const struct redirect_rules rules = good_rules();

	(void)state;
	unlink(rig_at(w.rig, "pods.d/%s/cgroup", rig_pod_text));
	refused(&rules, ENOENT, "");
	rig_file(rig_at(w.rig, "pods.d/%s/cgroup", rig_pod_text), "../../etc");
	refused(&rules, EINVAL, "no path below the cgroup root");
}

static void test_a_cgroup_that_is_refused_is_said(void **state)
{
	const struct redirect_rules rules = good_rules();
	struct link_packet p;

	(void)state;
	name_cgroup(rig_pod_text, ".");
	ask(&rules);
	p = told(LINK_REDIRECTED);
	assert_int_equal(p.code, EINVAL);
	assert_non_null(strstr(p.why, "not below that of all pods"));
}

static void test_explain(void **state)
{
	const struct redirect_rules rules = good_rules();
	struct redirect_question q = {.flow = {.address = {{0, 0, htobe32(0xffff), 1}},
					  .uid = 1000,
					  .gid = 1000,
					  .port = 80,
					  .protocol = IPPROTO_TCP}};
	struct rig_ask a = {.op = LINK_REDIRECT_EXPLAIN, .pod = &rig_pod};

	(void)state;
	a.fd = rig_memfd(&q, sizeof(q), RIG_SEALS);
	assert_int_not_equal(rig_ask(w.rig, a, NULL).code, 0); /* it is not redirected */
	close(place_cgroup(&w.place, "pod"));
	ask(&rules);
	in_force();
	struct link_packet p = rig_ask(w.rig, a, NULL);
	assert_int_equal(p.code, 0);
	assert_int_equal(p.arg & 0xffff, REDIRECT_TO_OUTBOUND);
	close(a.fd);
	a.fd = rig_memfd(&q, sizeof(q), F_SEAL_SHRINK | F_SEAL_GROW);
	rig_refused(w.rig, a, EINVAL, "not sealed");
	close(a.fd);
}

/* --- cgroups --- */

static void test_names(void **state)
{
	auto_free struct redirect_names_told *t = mem_zalloc(sizeof(*t));
	struct rig_ask a = {.op = LINK_REDIRECT_NAMES};

	(void)state;
	a.fd = rig_memfd(t, sizeof(*t), RIG_SEALS);
	rig_do(w.rig, a);
	close(a.fd);
	a.fd = rig_memfd(t, sizeof(*t) - 1, RIG_SEALS);
	rig_refused(w.rig, a, EINVAL, "another size");
	close(a.fd);
	a.fd = rig_memfd(t, sizeof(*t), 0);
	rig_refused(w.rig, a, EINVAL, "not sealed");
	close(a.fd);
	t->npods = REDIRECT_PODS_MAX + 1;
	a.fd = rig_memfd(t, sizeof(*t), RIG_SEALS);
	rig_refused(w.rig, a, EINVAL, "more than");
	close(a.fd);
}

static void test_a_cgroup_is_awaited(void **state)
{
	const struct redirect_rules rules = good_rules();

	(void)state;
	ask(&rules);
	nothing_told();
	int other = place_cgroup(&w.place, "other");
	nothing_told();
	int pod = place_cgroup(&w.place, "pod");
	in_force();
	assert_true(is_closed(pod));
	assert_false(is_closed(other));
	close(pod);
	close(other);
}

/* The worker asks anew before the first is answered: only the last one counts. */
static void test_the_last_word_counts(void **state)
{
	struct redirect_rules rules = good_rules();
	struct redirect_pod entry;

	(void)state;
	ask(&rules);
	rules.outbound_port = 16001;
	ask(&rules);
	int pod = place_cgroup(&w.place, "pod");
	in_force();
	nothing_told();
	assert_true(place_entry(&w.place, pod, &entry));
	assert_int_equal(entry.outbound_port, 16001);
	close(pod);
}

static void test_a_pod_that_goes_is_not_awaited(void **state)
{
	const struct redirect_rules rules = good_rules();

	(void)state;
	ask(&rules);
	unlink(rig_at(w.rig, "pods.d/%s.yaml", rig_pod_text));
	rig_do(w.rig, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	close(place_cgroup(&w.place, "pod"));
	nothing_told();
	assert_int_equal(place_rows(&w.place, "pods"), 0);
}

/* Nobody asks again, nobody is told: but the new one is closed before anything comes in. */
static void test_a_cgroup_that_comes_back(void **state)
{
	const struct redirect_rules rules = good_rules();
	struct redirect_pod entry;

	(void)state;
	close(place_cgroup(&w.place, "pod"));
	ask(&rules);
	in_force();
	assert_int_equal(rmdir(place_path(&w.place, "pod")), 0);
	int pod = place_cgroup(&w.place, "pod");
	nothing_told();
	assert_true(place_entry(&w.place, pod, &entry));
	assert_true(is_closed(pod));
	assert_int_equal(place_rows(&w.place, "pods"), 1);
	close(pod);
}

/* --- live --- */

static void test_an_envoys_first_word_makes_it_live(void **state)
{
	const struct redirect_rules rules = good_rules();
	int pod = place_cgroup(&w.place, "pod");

	(void)state;
	ask(&rules);
	in_force();
	struct peer p = envoy("ip link set lo up");
	assert_true(is_closed(pod) && !is_live());
	greet(&p);
	assert_true(is_closed(pod) && is_live());
	peer_end(&p);
	close(pod);
}

static bool is_noticed(const struct broker_audit *a)
{
	struct pollfd p = {.fd = a->watch.fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* On a node with many pods a look at all would cost more than the one that comes. */
static void test_a_pod_makes_nobody_look_at_all_others(void **state)
{
	const struct redirect_rules rules = good_rules();
	int pod = place_cgroup(&w.place, "pod");

	(void)state;
	struct broker_audit *a = &w.rig->b->traffic->audit;
	a->due(a->ctx); /* from now on it hears of what comes and goes */
	ask(&rules);
	in_force();
	assert_false(is_noticed(a));
	struct peer p = envoy("ip link set lo up");
	greet(&p);
	assert_true(is_live());
	assert_false(is_noticed(a));
	rig_shell("rm %s/agentd/v%d/pods/%s/redirect_lookup", w.place.bpffs, REDIRECT_LAYOUT,
	    rig_pod_text);
	assert_true(is_noticed(a));
	a->due(a->ctx);
	while (is_noticed(a)) /* of that, and of what it put back */
		broker_loop_turn(a->epoll, -1);
	drain();
	rig_do(w.rig, (struct rig_ask){.op = LINK_REDIRECT_DEL, .pod = &rig_pod});
	assert_false(is_noticed(a));
	peer_end(&p);
	close(pod);
}

/* It was there before its rules: it says nothing more. */
static void test_an_envoy_that_is_known_already(void **state)
{
	const struct redirect_rules rules = good_rules();
	int pod = place_cgroup(&w.place, "pod");
	struct peer p = envoy("ip link set lo up");

	(void)state;
	greet(&p);
	ask(&rules);
	in_force();
	assert_true(is_closed(pod) && is_live());
	assert_int_equal(place_names(&w.place, "pods/01020300-0000-0000-0000-000000000000"), 3);
	rig_do(w.rig, (struct rig_ask){.op = LINK_REDIRECT_DEL, .pod = &rig_pod});
	assert_int_equal(place_rows(&w.place, "pods"), 0);
	ask(&rules);
	in_force();
	assert_true(is_closed(pod) && is_live());
	peer_end(&p);
	close(pod);
}

/* What is seen of a pod is looked at by its rules as they are, whatever became of asking. */
static void test_rules_that_fail_are_not_forgotten(void **state)
{
	struct redirect_rules rules = good_rules();
	int pod = place_cgroup(&w.place, "pod");
	char pin[128];
	struct peer p = envoy("ip link set lo up");

	(void)state;
	ask(&rules);
	in_force();
	greet(&p);
	assert_true(is_live());
	snprintf(pin, sizeof(pin), "pods/%s/redirect_getsockopt", rig_pod_text);
	int held = place_pin(&w.place, pin);
	rig_shell("rm %s/agentd/v%d/%s", w.place.bpffs, REDIRECT_LAYOUT, pin);
	rules.rows[0].number = 7777;
	ask(&rules);
	assert_int_equal(told(LINK_REDIRECTED).code, EBUSY);
	int before = place_rows(&w.place, "cidrs");
	rig_shell("nsenter --net=/proc/%d/ns/net ip addr add 10.9.0.8/24 dev lo", p.pid);
	for (int i = 0; i < 3000 && place_rows(&w.place, "cidrs") == before; i++) {
		usleep(20000);
		drain();
	}
	assert_in_range(place_rows(&w.place, "cidrs"), before + 1, before + 4);
	close(held);
	peer_end(&p);
	close(pod);
}

/* Nobody in the cgroup: what comes next has a namespace of its own, and is closed until it speaks.
 */
static void test_a_pod_that_was_empty_is_not_live(void **state)
{
	const struct redirect_rules rules = good_rules();
	int pod = place_cgroup(&w.place, "pod");

	(void)state;
	ask(&rules);
	in_force();
	struct peer p = envoy("ip link set lo up");
	greet(&p);
	assert_true(is_closed(pod) && is_live());
	peer_end(&p);
	for (int i = 0; i < 1000 && is_live(); i++) /* told within the kernel's own 10 ms */
		broker_turn(w.rig->b, 10);
	assert_true(is_closed(pod) && !is_live());
	ask(&rules); /* and a new word of the worker opens nothing */
	in_force();
	assert_true(is_closed(pod) && !is_live());
	p = envoy("ip link set lo up");
	greet(&p);
	assert_true(is_closed(pod) && is_live());
	peer_end(&p);
	close(pod);
}

static unsigned explained_dns(void)
{
	struct redirect_question q = {.flow = {.address = {{0, 0, htobe32(0xffff), 1}},
					  .uid = 1000,
					  .gid = 1000,
					  .port = 53,
					  .protocol = IPPROTO_UDP}};
	struct rig_ask a = {.op = LINK_REDIRECT_EXPLAIN, .pod = &rig_pod};

	a.fd = rig_memfd(&q, sizeof(q), RIG_SEALS);
	struct link_packet p = rig_ask(w.rig, a, NULL);
	close(a.fd);
	assert_int_equal(p.code, 0);
	return p.arg & 0xffff;
}

/* The worker's DNS proxy rests when it is told; a mark that stayed would lead to nobody. */
static void test_what_is_not_live_any_more_has_no_dns(void **state)
{
	const struct rig_ask listen = {
	    .op = LINK_LISTEN, .pod = &rig_pod, .kind = LINK_LISTEN_DNS_UDP};
	struct redirect_rules rules = good_rules();
	int pod = place_cgroup(&w.place, "pod"), cidrs, udp = -1;
	struct link_packet note;

	(void)state;
	rules.flags |= REDIRECT_DNS | REDIRECT_DNS_ALL;
	rules.dns_port = 15053;
	rig_refused(w.rig, listen, ENOENT, "DNS is not redirected");
	ask(&rules);
	in_force();
	rig_refused(w.rig, listen, ENOTCONN, "network namespace is not known");
	struct peer p = envoy("ip link set lo up");
	greet(&p);
	assert_int_equal(explained_dns(), REDIRECT_PASS_NO_DNS);
	rig_ask(w.rig, listen, &udp);
	assert_true(udp >= 0);
	close(udp);
	assert_int_equal(explained_dns(), REDIRECT_TO_DNS);
	cidrs = place_pin(&w.place, "map_cidrs");
	assert_int_equal(bpf_map_freeze(cidrs), 0); /* so that nothing can be written any more */
	rig_shell("nsenter -t %d -n ip addr add 10.1.2.3/32 dev lo", (int)p.pid);
	for (int i = 0; i < 30; i++) /* looked at after 100 ms */
		broker_turn(w.rig->b, 10);
	do
		note = told(LINK_REDIRECT_NOTE);
	while (!uuid_equal(&note.uid, &rig_pod)); /* an audit may have been due */
	assert_int_equal(note.arg, 0);
	assert_int_equal(explained_dns(), REDIRECT_PASS_NO_DNS);
	close(cidrs);
	peer_end(&p);
	close(pod);
}

/* The next sandbox has the same uid: its queries are not for a socket of the one before. */
static void test_a_pod_that_was_empty_has_no_dns(void **state)
{
	const struct rig_ask listen = {
	    .op = LINK_LISTEN, .pod = &rig_pod, .kind = LINK_LISTEN_DNS_UDP};
	struct redirect_rules rules = good_rules();
	int pod = place_cgroup(&w.place, "pod"), udp = -1;

	(void)state;
	rules.flags |= REDIRECT_DNS | REDIRECT_DNS_ALL;
	rules.dns_port = 15053;
	ask(&rules);
	in_force();
	struct peer p = envoy("ip link set lo up");
	greet(&p);
	rig_ask(w.rig, listen, &udp);
	assert_true(udp >= 0);
	assert_int_equal(explained_dns(), REDIRECT_TO_DNS);
	peer_end(&p);
	while (is_live())
		broker_turn(w.rig->b, PLACE_PATIENCE_MS);
	assert_int_equal(explained_dns(), REDIRECT_PASS_NO_DNS);
	close(udp);
	close(pod);
}

/* --- the node's own --- */

static void nobody(void *ctx)
{
	(void)ctx;
}

/* However it got there: with no programs in it, and no word of a peer. */
static void test_the_nodes_own_namespace_is_never_a_pods(void **state)
{
	const struct redirect_rules rules = good_rules();
	struct broker_fdstore *kept = broker_fdstore_new();
	struct netns_home home;
	struct err why;
	struct link_packet p;
	int cgroup = place_cgroup(&w.place, "pod"), epoll = broker_loop_new(), fd;
	int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), lookups;

	(void)state;
	rig_stop(w.rig);
	lookups = place_attached(here, BPF_SK_LOOKUP, NULL);
	assert_int_equal(netns_home_open(&home, kept, &why), 0);
	struct broker_states *states = broker_state_new(&w.rig->o, kept, &why);
	assert_non_null(states);
	struct pods *pods = pods_new(
	    &(struct pods_rig){epoll, &w.rig->o, &home, kept, states, nobody, nobody, NULL, NULL},
	    &why);
	struct redirect_traffic *t = redirect_traffic_new(
	    &(struct redirect_traffic_rig){epoll, &w.rig->o, &home, pods, nobody, NULL}, &why);
	assert_non_null(t);
	assert_int_equal(pods_add(pods, &rig_pod, false, &why), 0);
	struct broker_pod *pod = pods_known(pods, &rig_pod);
	fd = rig_memfd(&rules, sizeof(rules), RIG_SEALS);
	assert_int_equal(
	    redirect_traffic_set(t, pod, &(struct link_request){.id = 1}, fd, &why), 0);
	close(fd);
	assert_true(redirect_traffic_next(t, &p, &fd));
	assert_int_equal(p.code, 0);
	close(fd);
	pod->identity.netns_fd = here;
	redirect_live_learned(pod);
	assert_true(redirect_traffic_next(t, &p, &fd));
	assert_int_equal(p.what, LINK_REDIRECT_NOTE);
	assert_int_equal(p.arg, LINK_REDIRECT_LEFT);
	assert_non_null(strstr(p.why, "hostNetwork"));
	assert_int_equal(pod->redirection.inbound, POD_INBOUND_REFUSED);
	assert_int_equal(place_attached(here, BPF_SK_LOOKUP, NULL), lookups);
	assert_true(is_closed(cgroup) && !is_live());
	pods_free(&pods); /* and `here` */
	redirect_traffic_free(&t);
	broker_state_free(&states);
	netns_home_close(&home);
	broker_fdstore_free(&kept);
	close(epoll);
	close(cgroup);
	rig_start(w.rig);
}

/* --- workers and brokers --- */

static void next_worker(void)
{
	struct link_packet p;
	int fd;

	close(w.rig->fd);
	broker_detach(w.rig->b);
	rig_attach(w.rig);
	for (int i = 0; i < 2; i++) {
		assert_true(rig_next(w.rig, &p, &fd));
		if (fd >= 0)
			close(fd);
	}
}

static void test_the_next_worker_is_told_nothing_it_did_not_ask(void **state)
{
	const struct redirect_rules rules = good_rules();

	(void)state;
	ask(&rules);
	next_worker();
	close(place_cgroup(&w.place, "pod"));
	nothing_told();
	assert_int_equal(place_rows(&w.place, "pods"), 1); /* but done */
	rig_add(w.rig);
	ask(&rules);
	in_force();
}

static void test_ready_sweeps_who_has_no_manifest(void **state)
{
	const struct redirect_rules rules = good_rules();

	(void)state;
	close(place_cgroup(&w.place, "pod"));
	ask(&rules);
	in_force();
	next_worker();
	rig_do(
	    w.rig, (struct rig_ask){.op = LINK_READY}); /* it has one: refused now, but running */
	assert_int_equal(place_rows(&w.place, "pods"), 1);
	next_worker();
	unlink(rig_at(w.rig, "pods.d/%s.yaml", rig_pod_text));
	rig_do(w.rig, (struct rig_ask){.op = LINK_READY});
	assert_int_equal(place_rows(&w.place, "pods"), 0);
	assert_int_equal(place_names(&w.place, "pods"), 0);
}

/* What is awaited ends with the pod: nobody would ever take its rows away. */
static void test_what_is_swept_is_not_awaited(void **state)
{
	const struct redirect_rules rules = good_rules();

	(void)state;
	ask(&rules);
	next_worker();
	unlink(rig_at(w.rig, "pods.d/%s.yaml", rig_pod_text));
	rig_do(w.rig, (struct rig_ask){.op = LINK_READY});
	close(place_cgroup(&w.place, "pod"));
	nothing_told();
	assert_int_equal(place_rows(&w.place, "pods"), 0);
}

static void test_the_next_broker_sweeps_what_an_earlier_one_knew(void **state)
{
	const struct redirect_rules rules = good_rules();

	(void)state;
	close(place_cgroup(&w.place, "pod"));
	ask(&rules);
	in_force();
	rig_stop(w.rig);
	assert_int_equal(place_rows(&w.place, "pods"), 1);
	rig_start(w.rig);
	assert_int_equal(place_rows(&w.place, "pods"), 1);
	unlink(rig_at(w.rig, "pods.d/%s.yaml", rig_pod_text));
	rig_do(w.rig, (struct rig_ask){.op = LINK_READY});
	assert_int_equal(place_rows(&w.place, "pods"), 0);
	drain();
}

static void test_words_of_the_ceiling(void **state)
{
	static const char *const bad[] = {"permissiv", "permissive,", "all", "strict;exclusions"};
	struct err why;

	(void)state;
	rig_stop(w.rig);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		w.rig->o.redirect_allow = bad[i];
		w.rig->b = rig_broker(w.rig, &why);
		if (i == 1) { /* an empty item is dropped, as in all lists */
			assert_non_null(w.rig->b);
			broker_free(&w.rig->b);
			continue;
		}
		assert_null(w.rig->b);
		assert_non_null(strstr(why.msg, "--redirect-allow"));
	}
	w.rig->o.redirect_allow = "strict";
	rig_start(w.rig);
	rig_add(w.rig);
	struct redirect_rules rules = good_rules();
	refused(&rules, EPERM, "exclusions");
	rules.nrows = 1;
	rules.ncidrs = 0;
	close(place_cgroup(&w.place, "pod"));
	ask(&rules);
	in_force();
	rules.strict = 0;
	refused(&rules, EPERM, "permissive");
}

static void use_ceiling(const char *allow)
{
	rig_stop(w.rig);
	w.rig->o.redirect_allow = allow;
	rig_start(w.rig);
	rig_add(w.rig);
}

static struct redirect_rules captured_rules(void)
{
	struct redirect_rules rules = good_rules();

	rules.nrows = 1;
	rules.ncidrs = 0;
	return rules;
}

static void stays(void)
{
	const struct rig_ask del = {.op = LINK_REDIRECT_DEL, .pod = &rig_pod},
			     remove = {.op = LINK_POD_REMOVE, .pod = &rig_pod};

	rig_refused(w.rig, del, EBUSY, "it stays redirected: its manifest is there");
	rig_refused(w.rig, remove, EBUSY, "its manifest is there");
	assert_int_equal(place_rows(&w.place, "pods"), 1);
}

/* The worker's word is not the end of a pod, whoever wrote its rules and wherever they wait. */
static void test_a_pod_that_is_there_stays_captured(void **state)
{
	const struct redirect_rules rules = captured_rules();
	const struct rig_ask del = {.op = LINK_REDIRECT_DEL, .pod = &rig_pod};

	(void)state;
	use_ceiling("strict");
	rig_do(w.rig, del); /* nothing is there */
	ask(&rules);
	rig_refused(w.rig, del, EBUSY, "stays redirected"); /* its cgroup comes later */
	int pod = place_cgroup(&w.place, "pod");
	in_force();
	stays();
	assert_true(is_closed(pod));
	use_ceiling("permissive"); /* another broker, which was asked nothing yet */
	stays();
	unlink(rig_at(w.rig, "pods.d/%s.yaml", rig_pod_text));
	rig_do(w.rig, del);
	assert_int_equal(place_rows(&w.place, "pods"), 0);
	rig_do(w.rig, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	close(pod);
}

static void allow(const char *text, mode_t mode)
{
	const char *path = rig_at(w.rig, "pods.d/%s/redirect-allow", rig_pod_text);

	rig_file(path, text);
	assert_int_equal(chmod(path, mode), 0);
}

/* For one pod, by a file that only root can write. */
static void test_root_says_what_one_pod_may(void **state)
{
	struct redirect_rules rules = captured_rules();

	(void)state;
	use_ceiling("strict");
	close(place_cgroup(&w.place, "pod"));
	rules.proxy_uid = rules.proxy_gid = 2000;
	refused(&rules, EPERM, "proxy_uid 2000, but 1337");
	allow("strict,proxy_uid=2000,proxy_gid=2000\n", 0644);
	ask(&rules);
	in_force();
	rules.flags |= REDIRECT_DNS;
	rules.dns_port = 8080;
	refused(&rules, EPERM, "dns_port 8080, but 15053");
	allow("exclusions", 0666);
	refused(&rules, EINVAL, "/redirect-allow is writable by others");
	rig_refused(w.rig, (struct rig_ask){.op = LINK_REDIRECT_DEL, .pod = &rig_pod}, EINVAL,
	    "/redirect-allow is writable by others");
	allow("exclusions\nall\n", 0644);
	refused(&rules, EINVAL, "/redirect-allow is not one line");
	allow("everything", 0644);
	refused(&rules, EINVAL, "/redirect-allow: --redirect-allow takes");
	assert_int_equal(place_rows(&w.place, "pods"), 1);
	allow("exclusions", 0644);
	ask(&rules);
	in_force();
	rig_do(w.rig, (struct rig_ask){.op = LINK_REDIRECT_DEL, .pod = &rig_pod});
	assert_int_equal(place_rows(&w.place, "pods"), 0);
}

static void in_force_above(const char *what)
{
	struct link_packet p = told(LINK_REDIRECTED);

	assert_int_equal(p.code, 0);
	if (!strstr(p.why, what))
		fail_msg("\"%s\" lacks \"%s\"", p.why, what);
	drain();
}

/* What a pod was given it keeps, and no more; a new one is refused (security-rules.md G10). */
static void test_a_ceiling_that_sank(void **state)
{
	struct redirect_rules rules = good_rules(), more;

	(void)state;
	rules.strict = 0;
	use_ceiling("permissive,exclusions");
	close(place_cgroup(&w.place, "pod"));
	ask(&rules);
	in_force();
	use_ceiling("strict");
	ask(&rules);
	in_force_above("permissive");
	next_worker();
	rig_add(w.rig);
	ask(&rules);
	in_force_above("permissive");
	use_ceiling("permissive");
	ask(&rules);
	in_force_above("exclusions");
	more = rules;
	more.rows[more.nrows++] =
	    (struct redirect_row){.kind = REDIRECT_PORT_OUTBOUND_EXCLUDE, .number = 99};
	use_ceiling("strict");
	refused(&more, EPERM, "does not allow");
	more = rules;
	more.proxy_uid = 0;
	refused(&more, EPERM, "root's");
	use_ceiling("permissive,exclusions");
	ask(&rules);
	in_force_above("");
	/* It goes, and another one has the uid. */
	rig_do(w.rig, (struct rig_ask){.op = LINK_REDIRECT_DEL, .pod = &rig_pod});
	use_ceiling("strict");
	refused(&rules, EPERM, "does not allow");
}

#define TRAFFIC_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TRAFFIC_TEST(test_a_ceiling_that_sank),
	    TRAFFIC_TEST(test_without_the_flag_it_is_refused),
	    TRAFFIC_TEST(test_a_tree_whose_level_is_not_known),
	    TRAFFIC_TEST(test_hostile_requests),
	    TRAFFIC_TEST(test_a_pod_without_a_cgroup_named),
	    TRAFFIC_TEST(test_a_cgroup_that_is_refused_is_said),
	    TRAFFIC_TEST(test_explain),
	    TRAFFIC_TEST(test_names),
	    TRAFFIC_TEST(test_a_cgroup_is_awaited),
	    TRAFFIC_TEST(test_the_last_word_counts),
	    TRAFFIC_TEST(test_a_pod_that_goes_is_not_awaited),
	    TRAFFIC_TEST(test_a_cgroup_that_comes_back),
	    TRAFFIC_TEST(test_an_envoys_first_word_makes_it_live),
	    TRAFFIC_TEST(test_a_pod_makes_nobody_look_at_all_others),
	    TRAFFIC_TEST(test_an_envoy_that_is_known_already),
	    TRAFFIC_TEST(test_rules_that_fail_are_not_forgotten),
	    TRAFFIC_TEST(test_a_pod_that_was_empty_is_not_live),
	    TRAFFIC_TEST(test_a_pod_that_was_empty_has_no_dns),
	    TRAFFIC_TEST(test_the_nodes_own_namespace_is_never_a_pods),
	    TRAFFIC_TEST(test_what_is_not_live_any_more_has_no_dns),
	    TRAFFIC_TEST(test_the_next_worker_is_told_nothing_it_did_not_ask),
	    TRAFFIC_TEST(test_ready_sweeps_who_has_no_manifest),
	    TRAFFIC_TEST(test_what_is_swept_is_not_awaited),
	    TRAFFIC_TEST(test_the_next_broker_sweeps_what_an_earlier_one_knew),
	    TRAFFIC_TEST(test_words_of_the_ceiling),
	    TRAFFIC_TEST(test_a_pod_that_is_there_stays_captured),
	    TRAFFIC_TEST(test_root_says_what_one_pod_may),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
