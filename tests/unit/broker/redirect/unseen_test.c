/* unseen_test.c - a pod whose dials no program sees, in the real kernel: when it is named, and when
 * not.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/base/state.h"
#include "broker/ebpf/table.h"
#include "broker/ebpf/tcp_list.h"
#include "broker/redirect/traffic_internal.h"
#include "broker/redirect/unseen.h"
#include "common/mem.h"
#include "tests/unit/broker/bpf.h"
#include "tests/unit/broker/rig.h"

enum { MINUTE_S = 60 };

static const struct uuid web = {{1, 2, 3}};
static struct netns_home home;
static struct broker_fdstore *kept;

static int setup(void **state)
{
	static struct place p;
	const struct redirect_rules rules = good_rules();

	place_setup(&p);
	kept = broker_fdstore_new();
	assert_int_equal(netns_home_open(&home, kept, &p.e), 0);
	p.at.home = &home;
	place_start(&p);
	place_set(&p, &web, place_cgroup(&p, "pod"), &rules);
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	place_teardown(*state);
	netns_home_close(&home);
	broker_fdstore_free(&kept);
	return 0;
}

/* The two ends of a connection, dialled by who is in no pod's cgroup. */
struct connection {
	int netns, listener, dialled, accepted;
};

/* From port `from` to port `to`; 0: the kernel chooses. */
static struct connection connection_to(const char *address, uint16_t from, uint16_t to_port)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
	    .sin_addr.s_addr = inet_addr(address),
	    .sin_port = htons(to_port)};
	const struct sockaddr_in source = {.sin_family = AF_INET, .sin_port = htons(from)};
	struct connection c = {
	    .netns = place_netns("ip link set lo up && ip address add 10.9.0.7/32 dev lo")};

	assert_int_equal(setns(c.netns, CLONE_NEWNET), 0);
	c.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(c.listener, (const struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(listen(c.listener, 1), 0);
	c.dialled = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(c.dialled, (const struct sockaddr *)&source, sizeof(source)), 0);
	assert_int_equal(connect(c.dialled, (const struct sockaddr *)&to, sizeof(to)), 0);
	c.accepted = accept(c.listener, NULL, NULL);
	assert_true(c.accepted >= 0);
	assert_int_equal(setns(home.fd, CLONE_NEWNET), 0);
	return c;
}

static void end(struct connection *c)
{
	close(c->netns);
	close(c->listener);
	close(c->dialled);
	close(c->accepted);
}

static int look(struct place *p, const struct connection *c)
{
	p->e.code = 0;
	return redirect_unseen(p->r, &web, c->netns, &p->e);
}

static void a_minute_goes_by(const struct place *p)
{
	ebpf_pod_find(p->r, &web)->since_s -= MINUTE_S;
}

static void test_a_pod_that_nobody_sees_is_named(void **state)
{
	struct place *p = *state;
	struct connection c = connection_to("10.9.0.7", 0, 80);

	assert_int_equal(look(p, &c), 0);
	assert_int_equal(look(p, &c), 0); /* the minute is not over */
	a_minute_goes_by(p);
	assert_int_equal(look(p, &c), -1);
	assert_int_equal(p->e.code, ENODATA);
	end(&c);
}

/* Within the pod, or by somebody else: 81 is no port that dials take, and at 40000 one listens. */
static void test_what_was_not_dialled_outside(void **state)
{
	struct place *p = *state;
	struct connection c = connection_to("127.0.0.1", 0, 80);

	look(p, &c);
	a_minute_goes_by(p);
	assert_int_equal(look(p, &c), 0);
	end(&c);
	c = connection_to("10.9.0.7", 81, 40000);
	assert_int_equal(look(p, &c), 0);
	end(&c);
}

/* Where captured dials end, too, also those of an earlier agentd's. */
static void test_what_is_loopback(void **state)
{
	static const struct {
		const char *address;
		bool is;
	} rows[] = {{"::1", true}, {"::ffff:127.15.1.9", true}, {"::127.15.1.9", true},
	    {"::", false}, {"::6", false}, {"::ffff:10.9.0.7", false}, {"::10.9.0.7", false},
	    {"fd77::127.15.1.9", false}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct redirect_address a;
		assert_int_equal(inet_pton(AF_INET6, rows[i].address, &a), 1);
		assert_int_equal(ebpf_tcp_is_loopback(&a), rows[i].is);
	}
}

static void test_one_dial_that_was_seen_is_enough(void **state)
{
	struct place *p = *state;
	struct connection c = connection_to("10.9.0.7", 0, 80);
	auto_close int cgroup = place_cgroup(p, "pod");

	look(p, &c);
	a_minute_goes_by(p);
	assert_int_equal(look(p, &c), -1);
	place_dial(cgroup);
	assert_int_equal(look(p, &c), 0);
	end(&c);
}

/* What comes after it in a cgroup of the same name has a minute of its own. */
static void test_another_cgroup_begins_anew(void **state)
{
	struct place *p = *state;
	struct connection c = connection_to("10.9.0.7", 0, 80);
	const struct redirect_rules rules = good_rules();

	look(p, &c);
	a_minute_goes_by(p);
	place_set(p, &web, place_cgroup(p, "next"), &rules);
	assert_int_equal(look(p, &c), 0);
	end(&c);
}

static void on_changed_in_netns(void *ctx, uint32_t events)
{
	(void)ctx;
	(void)events;
}

static void nobody(void *ctx)
{
	(void)ctx;
}

static void on_changed(void *ctx)
{
	++*(int *)ctx;
}

/* Said once; and taken back. */
static void test_the_worker_is_told(void **state)
{
	struct place *p = *state;
	struct connection c = connection_to("10.9.0.7", 0, 80);
	auto_close int cgroup = place_cgroup(p, "pod"), epoll = broker_loop_new();
	int told = 0;
	void *rig;

	rig_setup(&rig);
	rig_stop(rig); /* of it, only its directories are wanted */
	const struct broker_options *o = &((struct rig *)rig)->o;
	struct broker_states *states = broker_state_new(o, kept, &p->e);
	struct pods *pods = pods_new(
	    &(struct pods_rig){epoll, o, &home, kept, states, nobody, nobody, NULL, NULL}, &p->e);
	struct redirect_traffic t = {
	    .rig = {.home = &home, .pods = pods, .changed = on_changed, .ctx = &told},
	    .redirect = p->r};
	assert_int_equal(pods_add(pods, &web, false, &p->e), 0);
	struct pod_redirection *r = &pods_known(pods, &web)->redirection;
	r->by = &t;
	r->rules = POD_RULES_WRITTEN;
	r->answer = POD_ANSWER_GIVEN;
	r->inbound = POD_INBOUND_LIVE;
	r->view.netns = c.netns;
	r->view.watch.ready = on_changed_in_netns;
	for (int i = 0; i < 3; i++) {
		t.looked_again = 0;
		redirect_traffic_look_again(&t);
		if (!i)
			a_minute_goes_by(p);
		assert_int_equal(told, i ? 1 : 0);
		assert_int_equal(r->inbound, i ? POD_INBOUND_UNSEEN : POD_INBOUND_LIVE);
	}
	assert_int_equal(r->inbound_why.code, ENODATA);
	place_dial(cgroup);
	t.looked_again = 0;
	redirect_traffic_look_again(&t);
	assert_int_equal(told, 2);
	assert_int_equal(r->inbound, POD_INBOUND_LIVE);
	memset(r, 0, sizeof(*r));
	pods_free(&pods);
	broker_state_free(&states);
	rig_teardown(&rig);
	end(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_pod_that_nobody_sees_is_named, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_what_was_not_dialled_outside, setup, teardown),
	    cmocka_unit_test(test_what_is_loopback),
	    cmocka_unit_test_setup_teardown(test_one_dial_that_was_seen_is_enough, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_another_cgroup_begins_anew, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_the_worker_is_told, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
