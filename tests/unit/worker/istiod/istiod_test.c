/* istiod_test.c - roots, connections, turns, and what every stream carries.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/fake/x509.c
 * LINK: tests/fake/secrets.c tests/unit/worker/istiod/istiod_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "istiod_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "tests/fake/secrets.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { INDEX = 3, ASKERS = 200 };

/* Somebody who wants to open a stream. */
struct asker {
	struct istiod_turn *turn;
	struct uuid pod;
	struct rpc_channel *got;
	unsigned granted, order, moved;
	struct asker *cancels, *asks;
};

static struct {
	struct asker askers[ASKERS];
	unsigned order;
} w;

static void make(void)
{
	rig.istiod = istiod_new(rig.loop, rig.rpc, rig.link, &rig.plane, INDEX);
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	istiod_rig_begin();
	for (unsigned i = 0; i < ASKERS; i++) /* as different as version 4 uids are */
		snprintf((char *)w.askers[i].pod.bytes, 16, "%x-%x", i * 2654435761u, i);
	secrets_watch();
	make();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ASKERS; i++)
		istiod_turn_cancel(&w.askers[i].turn);
	istiod_rig_end();
	assert_int_equal(secrets_freed(), 0);
	return 0;
}

static void ask(struct asker *a);

static void on_granted(void *ctx, struct rpc_channel *c)
{
	struct asker *a = ctx;

	assert_null(a->turn); /* R3 */
	a->got = c;
	a->granted++;
	a->order = ++w.order;
	if (a->cancels)
		istiod_turn_cancel(&a->cancels->turn);
	if (a->asks)
		ask(a->asks);
}

static void ask(struct asker *a)
{
	istiod_turn(rig.istiod, &a->turn, &a->pod, on_granted, a);
	assert_non_null(a->turn);
}

static void root(const char *pem)
{
	fake_link_root(rig.link, INDEX, pem);
}

static void later(int64_t ms)
{
	fake_loop_advance(rig.loop, ms);
}

static void assert_why_not(const char *expected)
{
	assert_string_equal(istiod_why_not(rig.istiod), expected);
}

/* As agentctl and Prometheus see it. */
static void assert_dumped(bool connected, const char *why_not)
{
	json_t *d = istiod_dump(rig.istiod);

	assert_int_equal(json_is_true(json_object_get(d, "connected")), connected);
	assert_string_equal(json_string_value(json_object_get(d, "why_not")), why_not);
	assert_int_equal(istiod_connected(rig.istiod), connected);
	json_decref(d);
}

static const struct rpc_channel_options *channel(unsigned i)
{
	return fake_rpc_channel_options(fake_rpc_channel(rig.rpc, i));
}

/* A connection fails; why, grpc says only to a call that does not wait. */
static void fails(unsigned connection, const char *why)
{
	unsigned n = fake_rpc_opened(rig.rpc);

	fake_rpc_channel_set(fake_rpc_channel(rig.rpc, connection), RPC_TRANSIENT_FAILURE);
	later(0);
	assert_int_equal(fake_rpc_opened(rig.rpc), n + 1);
	assert_false(fake_rpc_how(fake_rpc_stream(rig.rpc, n))->wait_for_ready);
	assert_int_equal(fake_rpc_how(fake_rpc_stream(rig.rpc, n))->nheaders, 0); /* no token */
	fake_rpc_end(fake_rpc_stream(rig.rpc, n), RPC_UNAVAILABLE, why);
	later(0);
}

/* --- roots --- */

static void connects_once_the_root_is_known(void **state)
{
	struct asker *a = w.askers;

	(void)state;
	assert_true(fake_link_follows(rig.link, LINK_FOLLOW_ROOT, NULL, INDEX));
	ask(a);
	later(3600 * 1000);
	assert_int_equal(a->granted + fake_rpc_channels(rig.rpc), 0);
	assert_why_not("root certificate: not read yet");
	root("ROOT one");
	assert_int_equal(a->granted, 0); /* R2 */
	later(0);
	assert_int_equal(a->granted, 1);
	assert_why_not("");
	assert_int_equal(fake_rpc_channels(rig.rpc), 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_string_equal(channel(i)->target, "istiod.test:15012");
		assert_string_equal(channel(i)->server_name, "istiod.istio-system.svc");
		assert_string_equal(channel(i)->roots_pem, "ROOT one\n"); /* normalised */
		assert_int_equal(channel(i)->shard, i);
		assert_false(channel(i)->plaintext);
	}
}

static void the_systems_roots_need_no_file(void **state)
{
	struct asker *a = w.askers;

	(void)state;
	istiod_free(&rig.istiod);
	rig.plane.root = "SYSTEM";
	rig.plane.connections = 16;
	make();
	assert_int_equal(fake_link_live(rig.link), 0);
	assert_int_equal(fake_rpc_channels(rig.rpc), 16);
	assert_null(channel(15)->roots_pem);
	ask(a);
	later(0);
	assert_int_equal(a->granted, 1);
}

/* Streams that live keep their connection; only new turns get the new root (istio-agent.md 1.2). */
static void a_changed_root_is_for_new_turns(void **state)
{
	static const struct rpc_events none = {0};
	struct rpc_stream *old = NULL;
	struct asker *a = w.askers;
	struct err e;

	(void)state;
	root("ROOT one");
	ask(a);
	later(0);
	assert_int_equal(istiod_open(rig.istiod, a->got, &old,
			     &(struct istiod_stream){"/x", .events = &none}, &e),
	    0);
	ask(a + 1);
	root("ROOT two"); /* while a turn waits: it gets the new one */
	assert_int_equal(fake_rpc_channels(rig.rpc), 4);
	assert_true(fake_rpc_channel_freed(fake_rpc_channel(rig.rpc, 0)));
	assert_true(fake_rpc_channel_freed(fake_rpc_channel(rig.rpc, 1)));
	later(0);
	assert_string_equal(fake_rpc_channel_options(a[1].got)->roots_pem, "ROOT two\n");
	assert_false(fake_rpc_ended(old));
	rpc_close(&old, RPC_CANCELLED, "");
}

static void the_same_root_changes_nothing(void **state)
{
	(void)state;
	root("ROOT one");
	root("ROOT one");
	assert_int_equal(fake_rpc_channels(rig.rpc), 2);
}

static void a_bad_root_keeps_the_old_one(void **state)
{
	struct asker *a = w.askers;

	(void)state;
	root("ROOT one");
	root("garbage");
	assert_why_not("root certificate: not PEM");
	root(NULL);
	assert_memory_equal(istiod_why_not(rig.istiod), "root certificate: ", 18);
	ask(a);
	later(0);
	assert_int_equal(a->granted, 1);
	assert_int_equal(fake_rpc_channels(rig.rpc), 2);
	root("ROOT one"); /* repaired, and still the same */
	assert_why_not("");
	assert_int_equal(fake_rpc_channels(rig.rpc), 2);
}

static void without_any_good_root_turns_wait(void **state)
{
	struct asker *a = w.askers;

	(void)state;
	ask(a);
	root(NULL);
	root("garbage");
	later(3600 * 1000);
	assert_int_equal(a->granted, 0);
	assert_why_not("root certificate: not PEM");
	root("ROOT one");
	later(0);
	assert_int_equal(a->granted, 1);
}

static unsigned lines_logged(int fd)
{
	char text[8192];
	ssize_t n = pread(fd, text, sizeof(text), 0);
	unsigned lines = 0;

	for (ssize_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	return lines;
}

/* What is repeated by broker or grpc is not repeated in the log. */
static void trouble_is_logged_once(void **state)
{
	int log = memfd_create("log", MFD_CLOEXEC), before = dup(STDERR_FILENO);
	unsigned lines[3];

	(void)state;
	dup2(log, STDERR_FILENO);
	root("garbage");
	root("garbage");
	lines[0] = lines_logged(log);
	root("ROOT one");
	root("garbage"); /* new trouble */
	lines[1] = lines_logged(log);
	for (int i = 0; i < 3; i++) {
		fake_rpc_channel_set(fake_rpc_channel(rig.rpc, 0), RPC_CONNECTING);
		later(0);
		fails(0, "refused");
	}
	lines[2] = lines_logged(log);
	dup2(before, STDERR_FILENO);
	close(before);
	close(log);
	assert_int_equal(lines[0], 1);
	assert_int_equal(lines[1], 2);
	assert_int_equal(lines[2], 3);
}

/* --- turns --- */

static void turns_are_granted_in_order(void **state)
{
	(void)state;
	root("ROOT one");
	for (unsigned i = 0; i < 2; i++)
		fake_rpc_channel_set(fake_rpc_channel(rig.rpc, i), RPC_READY);
	later(0);
	for (unsigned i = 0; i < 5; i++)
		ask(&w.askers[i]);
	assert_int_equal(w.askers[0].granted, 0); /* R2, also when nothing is missing */
	later(0);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(w.askers[i].order, i + 1);
}

static void a_pods_streams_share_a_connection(void **state)
{
	unsigned first = 0;

	(void)state;
	root("ROOT one");
	for (unsigned i = 0; i < ASKERS; i++)
		ask(&w.askers[i]);
	later(0);
	for (unsigned i = 0; i < ASKERS; i++) {
		struct asker *a = &w.askers[i];
		struct rpc_channel *before = a->got;

		first += before == fake_rpc_channel(rig.rpc, 0);
		ask(a);
		later(0);
		assert_ptr_equal(a->got, before);
	}
	assert_in_range(first, ASKERS * 2 / 5, ASKERS * 3 / 5); /* and the pods share them both */
}

static void a_cancelled_turn_is_not_granted(void **state)
{
	struct asker *a = w.askers;

	(void)state;
	ask(a);
	ask(a + 1);
	ask(a + 2);
	a[1].cancels = &a[2]; /* inside a callback, the next one */
	istiod_turn_cancel(&a->turn);
	assert_null(a->turn);
	istiod_turn_cancel(&a->turn);
	root("ROOT one");
	later(0);
	assert_int_equal(a[0].granted, 0);
	assert_int_equal(a[1].granted, 1);
	assert_int_equal(a[2].granted, 0);
	ask(a);
	istiod_turn_cancel(&a->turn); /* granted is what its timer would do next */
	later(5000);
	assert_int_equal(a->granted, 0);
	assert_int_equal(fake_loop_live(rig.loop), 0);
}

static void may_ask_again_inside_the_callback(void **state)
{
	struct asker *a = w.askers;

	(void)state;
	root("ROOT one");
	a->asks = a + 1;
	ask(a);
	ask(a + 2);
	later(0);
	assert_int_equal(a[2].order, 2); /* who asks again goes to the end */
	assert_int_equal(a[1].order, 3);
}

/* --- streams --- */

static struct rpc_stream *open_with(const char *token)
{
	static const struct rpc_events none = {0};
	static struct rpc_stream *slot;
	struct err e;
	unsigned n = fake_rpc_opened(rig.rpc);

	ask(w.askers);
	later(0);
	assert_int_equal(
	    istiod_open(rig.istiod, w.askers->got, &slot,
		&(struct istiod_stream){"/a.b.C/D", token, 7000, &none, NULL, true}, &e),
	    0);
	rpc_close(&slot, RPC_CANCELLED, "");
	return fake_rpc_stream(rig.rpc, n);
}

static void a_stream_carries_cluster_and_token(void **state)
{
	static const char token[] = "SECRETe30.e30.c2ln-longer-than-the-first-buffer-of-stdio-"
				    "0123456789012345678901234567890123456789012345678901234567890";
	struct rpc_stream *s;

	(void)state;
	root("ROOT one");
	s = open_with(token);
	assert_string_equal(fake_rpc_header(s, "clusterid"), "Kubernetes");
	assert_memory_equal(fake_rpc_header(s, "authorization"), "Bearer ", 7);
	assert_string_equal(fake_rpc_header(s, "authorization") + 7, token);
	assert_string_equal(fake_rpc_how(s)->method, "/a.b.C/D");
	assert_int_equal(fake_rpc_how(s)->deadline_ms, 7000);
	assert_true(fake_rpc_how(s)->wait_for_ready); /* a deadline ends the wait */
	assert_int_equal(fake_rpc_how(s)->nheaders, 2);
}

/* istio-agent.md 0.7, 1.2: no token is no error, and an empty cluster id is sent. */
static void without_a_token_only_the_cluster(void **state)
{
	struct rpc_stream *s;

	(void)state;
	istiod_free(&rig.istiod);
	rig.plane.cluster_id = "";
	make();
	root("ROOT one");
	s = open_with(NULL);
	assert_null(fake_rpc_header(s, "authorization"));
	assert_string_equal(fake_rpc_header(s, "clusterid"), "");
}

static void an_illegal_token_is_refused_without_quoting_it(void **state)
{
	static const struct rpc_events none = {0};
	struct rpc_stream *slot = NULL;
	struct err e = {0};

	(void)state;
	root("ROOT one");
	ask(w.askers);
	later(0);
	assert_int_equal(istiod_open(rig.istiod, w.askers->got, &slot,
			     &(struct istiod_stream){"/x", "SECRET\n", 0, &none, NULL, false}, &e),
	    -1);
	assert_null(slot);
	assert_memory_equal(e.msg, "istiod: ", 8);
	assert_null(strstr(e.msg, "SECRET"));
}

/* --- streams that stay, pods that harm --- */

static void on_moved(void *ctx)
{
	struct asker *a = ctx;

	a->moved++;
}

static void on_never(void *ctx)
{
	(void)ctx;
	abort();
}

/* istiod-live.md 3: new streams go to the new connection at once. */
static void a_leased_stream_is_told_to_move(void **state)
{
	struct istiod_lease *lease = NULL;
	struct asker *a = w.askers;
	struct rpc_channel *c;

	(void)state;
	root("ROOT one");
	ask(a);
	later(0);
	istiod_lease(rig.istiod, &lease, a->got, on_never, NULL);
	istiod_lease_end(&lease);
	assert_null(lease);
	istiod_lease_end(&lease);
	istiod_lease(rig.istiod, &lease, c = a->got, on_moved, a);
	fake_rpc_channel_set(c, RPC_IDLE);
	later(0);
	ask(a); /* waits until the new connection is there */
	later(0);
	assert_int_equal(a->granted, 1);
	fake_rpc_channel_set(c, RPC_READY);
	later(0);
	assert_int_equal(a->granted, 2);
	later(1000);
	assert_null(lease);
	assert_int_equal(a->moved, 1);
}

static void a_pod_that_opens_again_and_again_is_alone(void **state)
{
	struct asker *a = w.askers;
	struct rpc_channel *shared;

	(void)state;
	root("ROOT one");
	for (unsigned i = 0; i < 20; i++) {
		ask(a);
		later(0);
		if (i == 2)
			shared = a->got;
		istiod_turn_cancel(&a->turn);
	}
	ask(a);
	later(3000);
	assert_ptr_not_equal(a->got, shared);
	assert_int_equal(fake_rpc_channels(rig.rpc), 3);
	istiod_blame(rig.istiod, &a[1].pod, "GOAWAY");
	istiod_blame(rig.istiod, &a[1].pod, "GOAWAY");
	assert_int_equal(fake_rpc_channels(rig.rpc), 4);
}

/* Neither connections nor pace nor trouble: one that is full or away takes nothing from another. */
static void two_control_planes_share_nothing(void **state)
{
	struct istiod *first;

	(void)state;
	istiod_free(&rig.istiod);
	rig.plane.root = "SYSTEM";
	rig.plane.opens_per_second = 1;
	rig.plane.opens_burst = 1;
	make();
	first = take(rig.istiod);
	rig.plane.name = "other";
	rig.plane.address = "other.test:15012";
	make();
	for (unsigned i = 0; i < 2; i++) /* the first one's connections */
		fails(i, "refused");
	for (unsigned i = 0; i < 3; i++)
		ask(&w.askers[i]);
	later(0);
	assert_int_equal(w.order, 1); /* of the other */
	istiod_turn(first, &w.askers[9].turn, &w.askers[9].pod, on_granted, &w.askers[9]);
	later(10 * 1000);
	assert_int_equal(w.order, 3);
	assert_int_equal(w.askers[9].granted, 0);
	assert_why_not("");
	assert_string_equal(istiod_why_not(first),
	    "cannot connect to istiod.test:15012 as istiod.istio-system.svc: refused");
	for (unsigned i = 0; i < 3; i++)
		assert_string_equal(
		    fake_rpc_channel_options(w.askers[i].got)->target, "other.test:15012");
	for (unsigned i = 0; i < 2; i++)
		fake_rpc_channel_set(fake_rpc_channel(rig.rpc, i), RPC_READY);
	later(0);
	assert_int_equal(w.askers[9].granted, 1);
	assert_string_equal(fake_rpc_channel_options(w.askers[9].got)->target, "istiod.test:15012");
	istiod_free(&first);
}

/* --- what is known --- */

/* No pod asks for it, and silence is not health. */
static void nobody_needs_a_pod_to_know_whether_it_is_there(void **state)
{
	struct rpc_channel *first;

	(void)state;
	assert_dumped(false, "never connected: root certificate: not read yet");
	assert_int_equal(istiod_root_expires(rig.istiod), 0);
	root("garbage");
	later(0);
	assert_dumped(false, "never connected: root certificate: not PEM");
	root("ROOT one");
	assert_dumped(false, "never connected: the first attempt is not over");
	assert_int_equal(istiod_root_expires(rig.istiod), 1000);
	first = fake_rpc_channel(rig.rpc, 0);
	assert_int_equal(fake_rpc_connects(first), 1);
	assert_int_equal(fake_rpc_connects(fake_rpc_channel(rig.rpc, 1)), 0);
	fails(0, "refused");
	assert_dumped(false,
	    "never connected: cannot connect to istiod.test:15012 as istiod.istio-system.svc: "
	    "refused");
	fake_rpc_channel_set(first, RPC_READY);
	later(0);
	assert_dumped(true, "");
	fake_rpc_channel_set(first, RPC_IDLE); /* its time was over */
	later(999);
	assert_dumped(false, "");
	assert_int_equal(fake_rpc_connects(first), 1);
	later(1);
	assert_int_equal(fake_rpc_connects(first), 2);
	fails(0, "gone");
	assert_dumped(
	    false, "cannot connect to istiod.test:15012 as istiod.istio-system.svc: gone");
}

static void the_first_trust_domain_counts(void **state)
{
	(void)state;
	assert_string_equal(istiod_trust_domain(rig.istiod), "");
	istiod_learn_trust_domain(rig.istiod, "first");
	istiod_learn_trust_domain(rig.istiod, "second");
	assert_string_equal(istiod_trust_domain(rig.istiod), "first");
	istiod_free(&rig.istiod);
	rig.plane.trust_domain = "configured";
	make();
	istiod_learn_trust_domain(rig.istiod, "first");
	assert_string_equal(istiod_trust_domain(rig.istiod), "configured");
	assert_string_equal(istiod_trust_domains(rig.istiod), "configured");
	istiod_free(&rig.istiod);
	rig.plane.former_trust_domains = "old,older";
	make();
	assert_string_equal(istiod_trust_domain(rig.istiod), "configured");
	assert_string_equal(istiod_trust_domains(rig.istiod), "configured,old,older");
	rig.plane.former_trust_domains = NULL;
	assert_string_equal(istiod_options(rig.istiod)->mesh_id, "mesh");
}

static void the_dump_shows_the_connections(void **state)
{
	json_t *d;

	(void)state;
	root("ROOT one");
	later(0);
	d = istiod_dump(rig.istiod);
	assert_string_equal(json_string_value(json_object_get(d, "name")), "istiod");
	assert_string_equal(json_string_value(json_object_get(d, "address")), "istiod.test:15012");
	assert_string_equal(json_string_value(json_object_get(d, "root")), "/var/run/root.pem");
	json_t *c = json_object_get(d, "connections");
	assert_int_equal(json_array_size(c), 2);
	assert_string_equal(/* which is kept */
	    json_string_value(json_object_get(json_array_get(c, 0), "state")), "READY");
	assert_string_equal(
	    json_string_value(json_object_get(json_array_get(c, 1), "state")), "IDLE");
	json_decref(d);
	assert_why_not("");
	fails(0, "certificate verify failed");
	assert_why_not("cannot connect to istiod.test:15012 as istiod.istio-system.svc: "
		       "certificate verify failed");
	fake_rpc_channel_set(fake_rpc_channel(rig.rpc, 0), RPC_READY);
	later(0);
	assert_why_not("");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(connects_once_the_root_is_known),
	    TEST(the_systems_roots_need_no_file),
	    TEST(a_changed_root_is_for_new_turns),
	    TEST(the_same_root_changes_nothing),
	    TEST(a_bad_root_keeps_the_old_one),
	    TEST(without_any_good_root_turns_wait),
	    TEST(trouble_is_logged_once),
	    TEST(turns_are_granted_in_order),
	    TEST(a_pods_streams_share_a_connection),
	    TEST(a_cancelled_turn_is_not_granted),
	    TEST(may_ask_again_inside_the_callback),
	    TEST(a_stream_carries_cluster_and_token),
	    TEST(without_a_token_only_the_cluster),
	    TEST(an_illegal_token_is_refused_without_quoting_it),
	    TEST(a_leased_stream_is_told_to_move),
	    TEST(a_pod_that_opens_again_and_again_is_alone),
	    TEST(two_control_planes_share_nothing),
	    TEST(nobody_needs_a_pod_to_know_whether_it_is_there),
	    TEST(the_first_trust_domain_counts),
	    TEST(the_dump_shows_the_connections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
