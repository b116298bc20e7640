/* own_test.c - a pod's own connection: nobody else's, moved to when it is ready, and when a
 * certificate counts as refused.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/fake/x509.c
 * LINK: tests/unit/worker/istiod/istiod_rig.c
 */
#include "istiod_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "worker/istiod/own.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct uuid machine = {{1}}, other = {{2}};

static struct {
	struct istiod_own *own;
	struct istiod_turn *turn;
	struct istiod_lease *lease;
	struct rpc_channel *got;
	unsigned refused, roots, moved;
} w;

static void on_refused(void *ctx)
{
	(void)ctx;
	w.refused++;
}

static void on_roots(void *ctx)
{
	(void)ctx;
	w.roots++;
}

static void push_root(const char *pem)
{
	const struct link_content c = {.name = "", .data = pem, .size = strlen(pem)};

	fake_link_push(rig.link, LINK_FOLLOW_ROOT, NULL, 0, &c);
}

static int setup(void **state)
{
	static const struct istiod_own_events events = {on_refused, on_roots};

	(void)state;
	memset(&w, 0, sizeof(w));
	istiod_rig_begin();
	fake_rpc_script(rig.rpc);
	rig.plane.root = "";
	rig.plane.connections = 1;
	rig.plane.pod_opens_per_second = rig.plane.pod_opens_burst = 1000;
	rig.istiod = istiod_new(rig.loop, rig.rpc, rig.link, &rig.plane, 0);
	w.own = istiod_own_new(rig.istiod, &machine, &events, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	istiod_turn_cancel(&w.turn);
	istiod_lease_end(&w.lease);
	istiod_own_free(&w.own);
	istiod_own_free(&w.own);
	istiod_rig_end();
	return 0;
}

static void on_granted(void *ctx, struct rpc_channel *c)
{
	(void)ctx;
	w.got = c;
}

static void later(void)
{
	fake_loop_advance(rig.loop, 10);
}

static struct rpc_channel *last(void)
{
	return fake_rpc_channel(rig.rpc, fake_rpc_channels(rig.rpc) - 1);
}

static void become(struct rpc_channel *c, enum rpc_channel_state s)
{
	fake_rpc_channel_set(c, s);
	later();
}

static const char *key_of(const struct rpc_channel *c)
{
	const char *key = fake_rpc_channel_options(c)->key_pem;

	return key ? key : "";
}

/* Which connection a turn of this pod gets, once all that want to are ready. */
static struct rpc_channel *granted(const struct uuid *pod)
{
	w.got = NULL;
	istiod_turn(rig.istiod, &w.turn, pod, on_granted, NULL);
	later();
	for (unsigned i = 0; !w.got && i < fake_rpc_channels(rig.rpc); i++)
		if (!fake_rpc_channel_freed(fake_rpc_channel(rig.rpc, i)) &&
		    fake_rpc_connects(fake_rpc_channel(rig.rpc, i)))
			become(fake_rpc_channel(rig.rpc, i), RPC_READY);
	assert_non_null(w.got);
	return w.got;
}

static void present(void)
{
	push_root("ROOT a");
	istiod_own_present(w.own, "KEY", "CHAIN");
}

static void turns_are_granted_on_it_and_on_no_other(void **state)
{
	struct rpc_channel *mine;

	(void)state;
	present();
	mine = granted(&machine);
	assert_string_equal(key_of(mine), "KEY");
	assert_string_equal(fake_rpc_channel_options(mine)->chain_pem, "CHAIN");
	assert_ptr_not_equal(granted(&other), mine);
	assert_string_equal(key_of(w.got), "");
	assert_null(fake_rpc_channel_options(w.got)->owner);
	assert_non_null(fake_rpc_channel_options(mine)->owner);
	assert_ptr_equal(granted(&machine), mine);
}

static void no_other_pod_ever_gets_it(void **state)
{
	struct rpc_channel *mine;
	struct uuid stranger = {{0}};

	(void)state;
	present();
	mine = granted(&machine);
	for (unsigned i = 0; i < 1000; i++) {
		memcpy(&stranger.bytes[12], &i, sizeof(i));
		assert_ptr_not_equal(granted(&stranger), mine);
	}
	assert_ptr_equal(granted(&machine), mine);
}

/* Also while nothing is presented, and while the shared one is ready. */
static void without_a_certificate_it_is_its_own_all_the_same(void **state)
{
	(void)state;
	push_root("ROOT a");
	granted(&other);
	assert_ptr_not_equal(granted(&machine), granted(&other));
}

static void on_move(void *ctx)
{
	(void)ctx;
	w.moved++;
}

static void streams_move_when_the_new_one_is_ready(void **state)
{
	struct rpc_channel *first, *second;

	(void)state;
	push_root("ROOT a");
	istiod_own_present(w.own, "KEY 1", "CHAIN");
	first = granted(&machine);
	istiod_lease(rig.istiod, &w.lease, first, on_move, NULL);
	istiod_own_present(w.own, "KEY 2", "CHAIN");
	second = last();
	assert_int_equal(fake_rpc_connects(second), 1); /* without being asked */
	fake_loop_advance(rig.loop, 60 * 1000);
	assert_int_equal(w.moved, 0);
	assert_false(fake_rpc_channel_freed(first));
	fake_rpc_channel_set(second, RPC_READY);
	fake_loop_advance(rig.loop, 1000);
	assert_int_equal(w.moved, 1);
	assert_true(fake_rpc_channel_freed(first));
	assert_ptr_equal(granted(&machine), second);
}

/* Nothing to show: what stands is left to stand, and nothing is tried before somebody asks. */
static void nothing_to_present_ends_nothing(void **state)
{
	struct rpc_channel *first;

	(void)state;
	present();
	first = granted(&machine);
	istiod_lease(rig.istiod, &w.lease, first, on_move, NULL);
	istiod_own_present(w.own, NULL, NULL);
	fake_loop_advance(rig.loop, 60 * 1000);
	assert_int_equal(fake_rpc_connects(last()), 0);
	assert_int_equal(w.moved, 0);
	assert_false(fake_rpc_channel_freed(first));
}

static void istiod_that_is_away_refuses_nothing(void **state)
{
	struct rpc_channel *with, *bare;

	(void)state;
	present();
	with = last();
	become(with, RPC_TRANSIENT_FAILURE);
	bare = last();
	assert_ptr_not_equal(bare, with);
	assert_string_equal(key_of(bare), "");
	become(bare, RPC_TRANSIENT_FAILURE);
	fake_loop_advance(rig.loop, 3600 * 1000);
	assert_int_equal(w.refused, 0);
	become(with, RPC_READY); /* it is back */
	assert_true(fake_rpc_channel_freed(bare));
	assert_int_equal(w.refused, 0);
}

/* It may have come back between the two tries. */
static void the_certificate_is_tried_again_before_it_is_refused(void **state)
{
	struct rpc_channel *with, *bare, *again;

	(void)state;
	present();
	with = last();
	become(with, RPC_TRANSIENT_FAILURE);
	bare = last();
	become(bare, RPC_READY);
	again = last();
	assert_ptr_not_equal(again, bare);
	assert_string_equal(key_of(again), "KEY");
	assert_int_equal(w.refused, 0);
	become(again, RPC_READY);
	assert_int_equal(w.refused, 0);
	assert_true(fake_rpc_channel_freed(bare));
}

static void what_fails_where_another_is_ready_is_refused(void **state)
{
	struct rpc_channel *bare;

	(void)state;
	present();
	become(last(), RPC_TRANSIENT_FAILURE);
	bare = last();
	become(bare, RPC_READY);
	become(last(), RPC_TRANSIENT_FAILURE);
	assert_int_equal(w.refused, 1);
	assert_true(fake_rpc_channel_freed(bare));
	fake_loop_advance(rig.loop, 3600 * 1000);
	assert_int_equal(w.refused, 1); /* once */
}

static void new_roots_are_told_and_used(void **state)
{
	(void)state;
	assert_null(istiod_roots(rig.istiod));
	istiod_own_present(w.own, "KEY", "CHAIN");
	push_root("ROOT a");
	assert_int_equal(w.roots, 1);
	assert_string_equal(key_of(last()), "KEY");
	push_root("ROOT b");
	assert_int_equal(w.roots, 2);
	assert_string_equal(fake_rpc_channel_options(last())->roots_pem, istiod_roots(rig.istiod));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(turns_are_granted_on_it_and_on_no_other),
	    TEST(no_other_pod_ever_gets_it),
	    TEST(without_a_certificate_it_is_its_own_all_the_same),
	    TEST(streams_move_when_the_new_one_is_ready),
	    TEST(nothing_to_present_ends_nothing),
	    TEST(istiod_that_is_away_refuses_nothing),
	    TEST(the_certificate_is_tried_again_before_it_is_refused),
	    TEST(what_fails_where_another_is_ready_is_refused),
	    TEST(new_roots_are_told_and_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
