/* redirect_test.c - programs, links, pins and rows in the real kernel: what is there after
 * each step, what another broker finds, what is left when all of it is over.
 *
 * What the programs decide is the e2e tests' matter, and rules_test.c's.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/ebpf/table.h"
#include "common/err.h"
#include "common/mem.h"
#include "ebpf/names.h"
#include "ebpf/rules_types.h"
#include "tests/unit/broker/bpf.h"

enum { OF_NODE = 11, MAPS = 20 };

static const struct uuid web = {{1, 2, 3}}, db = {{4, 5, 6}};
static const char web_pins[] = "pods/01020300-0000-0000-0000-000000000000";

static void refused(struct place *p, const struct uuid *pod, int cgroup, const char *why)
{
	const struct redirect_rules rules = good_rules();

	assert_int_equal(
	    redirect_set(p->r, pod, (struct redirect_where){cgroup, -1}, &rules, &p->e), -1);
	if (!strstr(p->e.msg, why))
		fail_msg("\"%s\" lacks \"%s\"", p->e.msg, why);
}

static void expect_nothing(struct place *p)
{
	static const char *const maps[] = {"pods", "pods_by_index", "ports", "cidrs", "listeners",
	    "tuples", "self_calls", "baselines"};

	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
		assert_int_equal(place_rows(p, maps[i]), 0);
	assert_int_equal(place_names(p, "pods"), 0);
}

static void test_all_is_pinned_and_nothing_of_a_pod(void **state)
{
	struct place *p = *state;
	int top = place_cgroup(p, "."), pod = place_cgroup(p, "pod");

	assert_int_equal(place_names(p, "."), OF_NODE + MAPS + 1);
	assert_int_equal(place_attached(top, BPF_CGROUP_INET4_CONNECT, NULL), 1);
	assert_int_equal(place_attached(top, BPF_CGROUP_SOCK_OPS, NULL), 1);
	assert_int_equal(place_attached(top, BPF_CGROUP_GETSOCKOPT, NULL), 0);
	assert_int_equal(place_attached(pod, BPF_CGROUP_INET4_CONNECT, NULL), 0);
	expect_nothing(p);
	close(top);
	close(pod);
}

static void test_a_strict_pod_is_closed_to_what_is_not_steered(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod"), netns = place_netns("");
	const struct redirect_rules rules = good_rules();
	struct redirect_pod entry;

	place_set(p, &web, cgroup, &rules);
	assert_true(place_entry(p, cgroup, &entry));
	assert_int_equal(entry.outbound_port, 15001);
	assert_memory_equal(entry.uid, &web, sizeof(web));
	assert_int_equal(entry.index, ebpf_index(p->r, &web));
	assert_int_equal(place_rows(p, "ports"), 2);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_GETSOCKOPT, NULL), 1);
	assert_int_equal(place_names(p, web_pins), 2);
	place_live(p, &web, netns, 7);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 1);
	assert_int_equal(place_rows(p, "cidrs"), 2);
	assert_true(place_entry(p, cgroup, &entry));
	assert_int_equal(entry.source4.word[3], htobe32(0x0a090007));
	redirect_remove(p->r, &web);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_GETSOCKOPT, NULL), 0);
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 0);
	expect_nothing(p);
	close(cgroup);
	close(netns);
}

static void test_a_permissive_pod_is_never_closed(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod");
	struct redirect_rules rules = good_rules();

	place_set(p, &web, cgroup, &rules);
	rules.strict = 0;
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 0);
	redirect_remove(p->r, &web);
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 0);
	close(cgroup);
}

/* Below where the programs hang. */
static uint32_t levels(const struct place *p)
{
	int fd = place_pin(p, "map_pod_levels");
	const uint32_t at = 0;
	uint32_t bits;

	assert_int_equal(bpf_map_lookup_elem(fd, &at, &bits), 0);
	close(fd);
	return bits >> p->r->top.level;
}

/* Also after an upgrade, and by a broker that was not told of the pods yet. */
static void test_pods_are_looked_for_where_they_are(void **state)
{
	struct place *p = *state;
	int class = place_cgroup(p, "burstable"), deep = place_cgroup(p, "burstable/pod");
	int near = place_cgroup(p, "pod");
	const struct redirect_rules rules = good_rules();

	assert_int_equal(levels(p), 0);
	place_set(p, &web, deep, &rules);
	assert_int_equal(levels(p), 1 << 2);
	place_set(p, &db, near, &rules);
	assert_int_equal(levels(p), 1 << 2 | 1 << 1);
	redirect_free(&p->r);
	place_start(p);
	assert_int_equal(levels(p), 1 << 2 | 1 << 1);
	close(class);
	close(deep);
	close(near);
}

static void test_a_level_that_was_taken_away_is_put_back(void **state)
{
	struct place *p = *state;
	const struct redirect_rules rules = good_rules();
	int cgroup = place_cgroup(p, "pod"), fd;
	const uint32_t none = 0;

	place_set(p, &web, cgroup, &rules);
	fd = place_pin(p, "map_pod_levels");
	assert_int_equal(bpf_map_update_elem(fd, &none, &none, BPF_ANY), 0);
	assert_int_equal(redirect_audit(p->r, &place_nowhere).repaired, 1);
	assert_int_equal(levels(p), 1 << 1);
	close(fd);
	close(cgroup);
}

/* Sockets go on under the same index; rows that are not asked for any more go. */
static void test_a_change_keeps_the_index(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod"), netns = place_netns("");
	struct redirect_rules rules = good_rules();
	uint32_t index;

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	index = ebpf_index(p->r, &web);
	rules.nrows = 1;
	rules.rows[0].number = 7777;
	rules.ncidrs = 0;
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(ebpf_index(p->r, &web), index);
	assert_int_equal(place_rows(p, "ports"), 1);
	assert_int_equal(place_rows(p, "cidrs"), 1);                     /* its own address */
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 1); /* still live */
	place_live(p, &web, netns, 8);
	assert_int_equal(place_rows(p, "cidrs"), 1);
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 1);
	close(cgroup);
	close(netns);
}

/* The trie answers once: the own address repeats that its range is excluded. */
static void test_rows_repeat_what_covers_them(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod"), netns = place_netns("");
	const struct redirect_rules rules = good_rules();
	struct redirect_cidr_key key = {.prefix = REDIRECT_CIDR_BITS + 128};
	uint32_t flags = 0;
	int fd = place_pin(p, "map_cidrs");

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	key.index = ebpf_index(p->r, &web);
	key.address = place_seen(7).routes[0].address;
	assert_int_equal(bpf_map_lookup_elem(fd, &key, &flags), 0);
	assert_int_equal(
	    flags & ((1 << REDIRECT_CIDR_PREFIX) - 1), REDIRECT_CIDR_LOCAL | REDIRECT_CIDR_EXCLUDE);
	close(fd);
	close(cgroup);
	close(netns);
}

static int explained(struct place *p, struct redirect_question q)
{
	return redirect_explain(p->r, &web, &q, &p->e);
}

static void test_what_is_explained_is_what_the_maps_say(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "pod"), dns = socket(AF_INET, SOCK_STREAM, 0);
	struct redirect_rules rules = good_rules();
	struct redirect_question q = {
	    .flow = {.address = {{0, 0, htobe32(0xffff), htobe32(0x0a000001)}},
		.uid = 1000,
		.gid = 1000,
		.port = 80,
		.protocol = IPPROTO_TCP}};
	struct redirect_question in = {.inbound = 1,
	    .arrival = {.source = {{0, 0, htobe32(0xffff), htobe32(0x01010101)}},
		.address = q.flow.address,
		.port = 15020}};

	rules.flags |= REDIRECT_DNS | REDIRECT_DNS_ALL;
	assert_int_equal(explained(p, q), -1);
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(explained(p, q), REDIRECT_PASS_CIDR_EXCLUDED);
	q.flow.address.word[3] = htobe32(0x01010101);
	assert_int_equal(explained(p, q), REDIRECT_TO_OUTBOUND);
	q.flow.port = 9999;
	assert_int_equal(explained(p, q), REDIRECT_PASS_PORT_EXCLUDED);
	assert_int_equal(explained(p, in), REDIRECT_PASS_INBOUND_EXCLUDED);
	q.flow.port = 53;
	assert_int_equal(explained(p, q), REDIRECT_TO_OUTBOUND); /* nobody answers it */
	assert_int_equal(redirect_answer(p->r, &web, dns, true, &p->e), 0);
	assert_int_equal(explained(p, q), REDIRECT_TO_DNS);
	assert_int_equal(redirect_answered(p->r, &web, &p->e), 0);
	/* Nobody answers any more: what comes by TCP could not be judged, so nobody else is asked.
	 */
	assert_int_equal(redirect_answer(p->r, &web, dns, false, &p->e), 0);
	assert_int_equal(explained(p, q), REDIRECT_TO_DNS);
	q.flow.protocol = IPPROTO_UDP;
	assert_int_equal(explained(p, q), REDIRECT_PASS_NO_DNS);
	in.arrival.port = 80;
	rules.strict = 0;
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(explained(p, in), -1); /* not live: Envoy does not see it */
}

static bool names_of(struct place *p, const struct uuid *pod, uint64_t *salt)
{
	auto_close int fd = place_pin(p, "map_names_of");

	return bpf_map_lookup_elem(fd, pod, salt) == 0;
}

/* The program is where DNS is captured; that it was answered is remembered, also by the next
 * broker. */
static void test_names_without_a_proxy(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "pod"), dns = socket(AF_INET, SOCK_DGRAM, 0);
	auto_free struct redirect_names_told *t = mem_zalloc(sizeof(*t));
	struct redirect_rules rules = good_rules();
	struct redirect_pod entry;
	uint64_t salt = 0;

	rules.strict = 0; /* whose gate would be there, too */
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 0);
	rules.flags |= REDIRECT_DNS | REDIRECT_DNS_ALL;
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	assert_true(place_entry(p, cgroup, &entry));
	assert_false(entry.flags & REDIRECT_DNS_KNOWN);
	assert_int_equal(redirect_answer(p->r, &web, dns, true, &p->e), 0);
	assert_true(place_entry(p, cgroup, &entry));
	assert_false(entry.flags & REDIRECT_DNS_KNOWN); /* it may have no port yet */
	assert_int_equal(redirect_answered(p->r, &web, &p->e), 0);
	assert_true(place_entry(p, cgroup, &entry));
	assert_true(entry.flags & REDIRECT_DNS_KNOWN);

	t->npods = 1;
	memcpy(t->pods[0].pod, &web, sizeof(web));
	t->pods[0].salt = 5;
	assert_int_equal(redirect_names_put(p->r, t, &p->e), 0);
	assert_true(names_of(p, &web, &salt));
	assert_int_equal(salt, 5);
	place_restart(p);
	place_set(p, &web, cgroup, &rules);
	assert_true(place_entry(p, cgroup, &entry));
	assert_true(entry.flags & REDIRECT_DNS_KNOWN);
	assert_true(names_of(p, &web, &salt));
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	t->npods = REDIRECT_PODS_MAX + 1;
	assert_int_equal(redirect_names_put(p->r, t, &p->e), -1);
	t->npods = 0;
	assert_int_equal(redirect_names_put(p->r, t, &p->e), 0);
	assert_false(names_of(p, &web, &salt));
	rules.flags &= ~(uint32_t)(REDIRECT_DNS | REDIRECT_DNS_ALL);
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 0);
	assert_true(place_entry(p, cgroup, &entry));
	assert_false(entry.flags & REDIRECT_DNS_KNOWN);
}

/* --- another broker --- */

static void test_the_next_broker_goes_on(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod"), netns = place_netns(""), top = place_cgroup(p, ".");
	const struct redirect_rules rules = good_rules();
	uint32_t before[8] = {0}, after[8] = {0}, index;

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	index = ebpf_index(p->r, &web);
	place_attached(top, BPF_CGROUP_INET4_CONNECT, before);
	redirect_free(&p->r);
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 1); /* without any broker */
	assert_int_equal(place_attached(top, BPF_CGROUP_INET4_CONNECT, NULL), 1);
	place_start(p);
	assert_int_equal(place_attached(top, BPF_CGROUP_INET4_CONNECT, after), 1);
	assert_int_not_equal(before[0], after[0]); /* a program of its own, in the same link */
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 1);
	assert_int_equal(ebpf_index(p->r, &web), index);
	assert_int_equal(place_rows(p, "cidrs"), 2);
	place_set(p, &web, cgroup, &rules); /* the worker asks again: what was seen still counts */
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 1);
	assert_int_equal(place_rows(p, "cidrs"), 2);
	place_live(p, &web, netns, 8);
	assert_int_equal(place_rows(p, "cidrs"), 2); /* and not any more */
	redirect_remove(p->r, &web);
	expect_nothing(p);
	close(cgroup);
	close(netns);
	close(top);
}

/* A namespace that went while no broker was there: the pod is not live, so it is closed again. */
static void test_a_dead_namespace_is_not_live(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod"), netns = place_netns("");
	const struct redirect_rules rules = good_rules();

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	redirect_free(&p->r);
	close(netns);
	for (int i = 0; i < 30000 && !p->r; i++) { /* the kernel takes it down by and by */
		struct bpf_link_info info = {0};
		uint32_t len = sizeof(info);
		char name[96];

		snprintf(name, sizeof(name), "%s/redirect_lookup", web_pins);
		int link = place_pin(p, name);
		assert_int_equal(bpf_obj_get_info_by_fd(link, &info, &len), 0);
		close(link);
		if (info.netns.netns_ino)
			usleep(1000);
		else
			place_start(p);
	}
	assert_non_null(p->r);
	assert_true(redirect_gone(p->r, &web));
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	netns = place_netns("");
	place_live(p, &web, netns, 7);
	assert_false(redirect_gone(p->r, &web));
	close(cgroup);
	close(netns);
}

static void test_a_cgroup_that_went_is_removed_all_the_same(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod");
	const struct redirect_rules rules = good_rules();

	place_set(p, &web, cgroup, &rules);
	close(cgroup);
	assert_int_equal(rmdir(place_path(p, "pod")), 0);
	place_restart(p);
	redirect_remove(p->r, &web);
	expect_nothing(p);
}

/* As a broker leaves them that died while it set or removed a pod. */
static void test_rows_and_pins_of_nobody_go(void **state)
{
	struct place *p = *state;
	const uint32_t index = 0x50001;
	const struct redirect_port_key port = {index, REDIRECT_PORT_GROUP, 5};
	const struct redirect_cidr_key cidr = {REDIRECT_CIDR_BITS, index, {{0}}};
	const struct redirect_pod entry = {.index = index};
	const uint32_t flags = REDIRECT_CIDR_EXCLUDE;
	const uint8_t one = 1;
	int fd;

	fd = place_pin(p, "map_ports");
	assert_int_equal(bpf_map_update_elem(fd, &port, &one, 0), 0);
	close(fd);
	fd = place_pin(p, "map_cidrs");
	assert_int_equal(bpf_map_update_elem(fd, &cidr, &flags, 0), 0);
	close(fd);
	fd = place_pin(p, "map_pods_by_index");
	assert_int_equal(bpf_map_update_elem(fd, &index, &entry, 0), 0);
	close(fd);
	rig_shell("mkdir %s/agentd/v%d/%s", p->bpffs, REDIRECT_LAYOUT, web_pins);
	place_restart(p);
	expect_nothing(p);
}

static void test_a_failed_start_leaves_what_was(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod"), top = place_cgroup(p, ".");
	struct redirect_place elsewhere = p->at;
	const struct redirect_rules rules = good_rules();
	uint32_t before[8] = {0}, after[8] = {0};
	struct err e;

	place_set(p, &web, cgroup, &rules);
	redirect_free(&p->r);
	place_attached(top, BPF_CGROUP_INET4_CONNECT, before);
	elsewhere.cgroup = "/nowhere";
	assert_null(redirect_new(&elsewhere, &e));
	elsewhere.cgroup = "/tmp"; /* no cgroup at all */
	assert_null(redirect_new(&elsewhere, &e));
	assert_int_equal(place_attached(top, BPF_CGROUP_INET4_CONNECT, after), 1);
	assert_int_equal(before[0], after[0]);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	assert_int_equal(place_rows(p, "pods"), 1);
	place_start(p);
	close(cgroup);
	close(top);
}

/* Links of the cgroup that it was before would leave the pods of the new one alone. */
static void test_the_cgroup_of_all_pods_may_be_another_one(void **state)
{
	struct place *p = *state;
	int old = place_cgroup(p, "."), new = place_cgroup(p, "pods");

	redirect_free(&p->r);
	strcat(p->cgroup, "/pods");
	place_start(p);
	assert_int_equal(place_attached(old, BPF_CGROUP_INET4_CONNECT, NULL), 0);
	assert_int_equal(place_attached(new, BPF_CGROUP_INET4_CONNECT, NULL), 1);
	assert_int_equal(place_names(p, "."), OF_NODE + MAPS + 1);
	close(old);
	close(new);
	p->cgroup[strlen(p->cgroup) - strlen("/pods")] = '\0';
}

/* --- cgroups --- */

static void test_cgroups_that_are_no_pods(void **state)
{
	struct place *p = *state;
	int top = place_cgroup(p, "."), pod = place_cgroup(p, "pod"),
	    inner = place_cgroup(p, "pod/app"), root = open(p->root, O_RDONLY | O_CLOEXEC);
	const struct redirect_rules rules = good_rules();
	char deep[64] = "a";

	refused(p, &web, top, "not below that of all pods");
	refused(p, &web, root, "not below that of all pods");
	place_set(p, &web, pod, &rules);
	refused(p, &db, pod, "the cgroup is that of pod 01020300");
	refused(p, &db, inner, "the cgroup lies in that of pod 01020300");
	redirect_remove(p->r, &web);
	place_set(p, &db, inner, &rules);
	refused(
	    p, &web, pod, "in the cgroup lies that of pod 04050600-0000-0000-0000-000000000000");
	redirect_remove(p->r, &db);
	for (int i = 1; i <= REDIRECT_DEPTH; i++) {
		close(place_cgroup(p, deep));
		strcat(deep, "/a");
	}
	int low = place_cgroup(p, deep);
	refused(p, &web, low, "levels below");
	deep[strlen(deep) - 2] = '\0';
	int lowest = place_cgroup(p, deep);
	place_set(p, &web, lowest, &rules);
	redirect_remove(p->r, &web);
	expect_nothing(p); /* and what was refused left nothing */
	close(top);
	close(pod);
	close(inner);
	close(root);
	close(low);
	close(lowest);
}

static void test_agentd_is_in_no_pod(void **state)
{
	struct place *p = *state;
	int pod = place_cgroup(p, "pod"), inner = place_cgroup(p, "pod/agentd");
	char procs[PATH_MAX + 128];
	int status;

	redirect_free(&p->r);
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", place_path(p, "pod/agentd"));
	pid_t pid = fork();
	if (pid == 0) { /* a broker there, so that the test's own process stays where it is */
		rig_file(procs, "0");
		place_start(p);
		refused(p, &web, pod, "agentd itself is in that cgroup");
		refused(p, &web, inner, "agentd itself is in that cgroup");
		redirect_free(&p->r);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	place_start(p);
	close(pod);
	close(inner);
}

/* A service that is restarted has a new cgroup under its name, and a new namespace. */
static void test_a_pod_moves_to_another_cgroup(void **state)
{
	struct place *p = *state;
	int old = place_cgroup(p, "pod"), netns = place_netns(""), new;
	const struct redirect_rules rules = good_rules();
	struct redirect_pod entry;

	place_set(p, &web, old, &rules);
	place_live(p, &web, netns, 7);
	assert_int_equal(rmdir(place_path(p, "pod")), 0);
	new = place_cgroup(p, "pod");
	place_set(p, &web, new, &rules);
	assert_int_equal(place_rows(p, "pods"), 1);
	assert_true(place_entry(p, new, &entry));
	assert_int_equal(place_attached(new, BPF_CGROUP_INET_INGRESS, NULL), 1);
	assert_int_equal(place_attached(new, BPF_CGROUP_GETSOCKOPT, NULL), 1);
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 0);
	close(old);
	close(new);
	close(netns);
}

static void test_a_sandbox_that_is_gone_closes_the_pod(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod"), netns = place_netns(""), next = place_netns("");
	const struct redirect_rules rules = good_rules();

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	redirect_close(p->r, &web);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 0);
	place_live(p, &web, next, 9);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	assert_int_equal(place_attached(next, BPF_SK_LOOKUP, NULL), 1);
	close(cgroup);
	close(netns);
	close(next);
}

/* --- the cgroup of all pods --- */

/* By default that is another one when the kubelet's tree is there; two programs of a kind would
 * redirect twice. */
static void test_programs_stay_where_they_are(void **state)
{
	struct place *p = *state;
	int top = place_cgroup(p, "."), tree = place_cgroup(p, "kubepods");
	const struct redirect_rules rules = good_rules();
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s", place_path(p, "kubepods"));
	redirect_free(&p->r);
	p->at.cgroup = path;
	p->at.stays = true;
	place_start(p);
	assert_int_equal(place_attached(top, BPF_CGROUP_INET4_CONNECT, NULL), 1);
	assert_int_equal(place_attached(tree, BPF_CGROUP_INET4_CONNECT, NULL), 0);
	place_set(p, &web, place_cgroup(p, "pod"), &rules);
	redirect_remove(p->r, &web);
	redirect_free(&p->r);
	rig_shell("rm -r %s/agentd", p->bpffs); /* a node that was booted */
	while (place_attached(top, BPF_CGROUP_INET4_CONNECT, NULL))
		usleep(1000); /* the kernel lets go of it by and by */
	place_start(p);
	assert_int_equal(place_attached(top, BPF_CGROUP_INET4_CONNECT, NULL), 0);
	assert_int_equal(place_attached(tree, BPF_CGROUP_INET4_CONNECT, NULL), 1);
	refused(p, &web, place_cgroup(p, "pod"), "not below that of all pods");
	place_restart(p);
	assert_int_equal(place_attached(tree, BPF_CGROUP_INET4_CONNECT, NULL), 1);
	close(top);
	close(tree);
}

/* A slice goes with the last that was in it. */
static void test_the_cgroup_of_all_pods_is_made_anew(void **state)
{
	struct place *p = *state;
	const struct redirect_rules rules = good_rules();
	int tree = place_cgroup(p, "kubepods"), pod;
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s", place_path(p, "kubepods"));
	redirect_free(&p->r);
	p->at.cgroup = path;
	place_start(p);
	place_set(p, &web, pod = place_cgroup(p, "kubepods/pod"), &rules);
	for (int i = 0; i < 2; i++) {
		close(tree);
		close(pod);
		rig_shell("rmdir %s/pod %s", path, path);
		tree = place_cgroup(p, "kubepods");
		assert_int_equal(place_attached(tree, BPF_CGROUP_INET4_CONNECT, NULL), 0);
		pod = place_cgroup(p, "kubepods/pod");
		if (i)
			redirect_audit(p->r, &place_nowhere);
		else
			place_set(p, &web, pod, &rules);
		assert_int_equal(place_attached(tree, BPF_CGROUP_INET4_CONNECT, NULL), 1);
	}
	close(tree);
	close(pod);
}

/* --- numbers --- */

/* Sockets of the first pod still carry its number: it must be nobody's. */
static void test_a_row_is_used_again_but_no_index(void **state)
{
	struct place *p = *state;
	int cgroup = place_cgroup(p, "pod"), other = place_cgroup(p, "other");
	const struct redirect_rules rules = good_rules();
	struct redirect_counters baseline;
	uint32_t first, row;

	place_set(p, &web, cgroup, &rules);
	first = ebpf_index(p->r, &web);
	row = redirect_counted(p->r, &web, &baseline);
	assert_int_equal(row, first & REDIRECT_ROW_MASK);
	redirect_remove(p->r, &web);
	place_set(p, &db, other, &rules);
	assert_int_equal(redirect_counted(p->r, &db, &baseline), row);
	assert_int_not_equal(ebpf_index(p->r, &db), first);
	assert_int_equal(redirect_counted(p->r, &web, &baseline), 0);
	close(cgroup);
	close(other);
}

/* The worker gets this descriptor. */
static void test_counters_are_the_programs_own(void **state)
{
	struct place *p = *state;
	size_t size = REDIRECT_PODS_MAX * sizeof(struct redirect_counters);
	int fd = redirect_counters(p->r);
	struct redirect_counters row = {{7}};
	uint32_t key = 0;
	void *at;

	assert_int_equal(bpf_map_update_elem(fd, &key, &row, 0), -1);
	assert_int_equal(errno, EPERM);
	at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	munmap(at, size);
	assert_ptr_equal(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
}

static void test_who_is_not_there_costs_nothing(void **state)
{
	struct place *p = *state;
	const struct netns_watch_seen seen = place_seen(7);
	int netns = place_netns("");

	redirect_remove(p->r, &web);
	assert_int_equal(redirect_live(p->r, &web, netns, &seen, &p->e), 0);
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 0);
	assert_null(redirect_rules(p->r, &web));
	assert_int_equal(ebpf_index(p->r, &web), 0);
	close(netns);
}

#define BPF_TEST(f) cmocka_unit_test_setup_teardown(f, place_begin, place_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    BPF_TEST(test_all_is_pinned_and_nothing_of_a_pod),
	    BPF_TEST(test_a_strict_pod_is_closed_to_what_is_not_steered),
	    BPF_TEST(test_a_permissive_pod_is_never_closed),
	    BPF_TEST(test_pods_are_looked_for_where_they_are),
	    BPF_TEST(test_a_level_that_was_taken_away_is_put_back),
	    BPF_TEST(test_a_change_keeps_the_index),
	    BPF_TEST(test_rows_repeat_what_covers_them),
	    BPF_TEST(test_names_without_a_proxy),
	    BPF_TEST(test_what_is_explained_is_what_the_maps_say),
	    BPF_TEST(test_the_next_broker_goes_on),
	    BPF_TEST(test_a_dead_namespace_is_not_live),
	    BPF_TEST(test_a_cgroup_that_went_is_removed_all_the_same),
	    BPF_TEST(test_rows_and_pins_of_nobody_go),
	    BPF_TEST(test_a_failed_start_leaves_what_was),
	    BPF_TEST(test_the_cgroup_of_all_pods_may_be_another_one),
	    BPF_TEST(test_cgroups_that_are_no_pods),
	    BPF_TEST(test_agentd_is_in_no_pod),
	    BPF_TEST(test_a_pod_moves_to_another_cgroup),
	    BPF_TEST(test_a_sandbox_that_is_gone_closes_the_pod),
	    BPF_TEST(test_programs_stay_where_they_are),
	    BPF_TEST(test_the_cgroup_of_all_pods_is_made_anew),
	    BPF_TEST(test_a_row_is_used_again_but_no_index),
	    BPF_TEST(test_counters_are_the_programs_own),
	    BPF_TEST(test_who_is_not_there_costs_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
