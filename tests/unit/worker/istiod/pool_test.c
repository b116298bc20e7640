/* pool_test.c - what lives on connections, how it moves, and who gets one of its own.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c
 */
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "worker/istiod/istiod.h"
#include "worker/istiod/pool.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { STREAMS = 300, TEN_MINUTES = 600 * 1000 };

/* A stream that is to stay. */
struct stream {
	struct istiod_lease *lease;
	unsigned moved; /* as the how-manieth; 0: not yet */
};

static struct {
	struct loop *loop;
	struct rpc *rpc;
	struct istiod_options plane;
	struct pool *pool;
	struct stream streams[STREAMS];
	unsigned moved, changed;
} w;

static void on_changed(void *ctx)
{
	(void)ctx;
	w.changed++;
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	w.loop = fake_loop();
	w.rpc = rpc_new(w.loop);
	w.plane = (struct istiod_options){.name = "istiod",
	    .address = "istiod.test:15012",
	    .server_name = "istiod",
	    .connections = 1,
	    .opens_per_second = 20,
	    .opens_burst = 5,
	    .pod_opens_per_second = 1,
	    .pod_opens_burst = 3};
	w.pool = pool_new(w.loop, w.rpc, &w.plane, on_changed, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < STREAMS; i++)
		pool_lease_end(&w.streams[i].lease);
	pool_free(&w.pool);
	pool_free(&w.pool);
	for (unsigned i = 0; i < fake_rpc_channels(w.rpc); i++)
		assert_true(fake_rpc_channel_freed(fake_rpc_channel(w.rpc, i)));
	rpc_free(&w.rpc);
	fake_loop_advance(w.loop, 0);
	assert_int_equal(fake_loop_live(w.loop), 0);
	fake_loop_end(&w.loop);
	return 0;
}

static void later(int64_t ms)
{
	fake_loop_advance(w.loop, ms);
}

static struct uuid pod(unsigned i)
{
	struct uuid u;

	memset(&u, 0, sizeof(u));
	snprintf((char *)u.bytes, sizeof(u.bytes), "%x-%x", i * 2654435761u, i);
	return u;
}

static struct rpc_channel *channel_of(unsigned i)
{
	struct uuid u = pod(i);

	if (!pool_channel(w.pool, &u))
		later(0); /* connects */
	return pool_channel(w.pool, &u);
}

static void on_move(void *ctx)
{
	struct stream *s = ctx;

	assert_null(s->lease);
	assert_int_equal(s->moved, 0);
	s->moved = ++w.moved;
}

static struct rpc_channel *lease(unsigned i)
{
	struct rpc_channel *c = channel_of(i);

	pool_lease(w.pool, &w.streams[i].lease, c, on_move, &w.streams[i]);
	return c;
}

static void set(struct rpc_channel *c, enum rpc_channel_state s)
{
	fake_rpc_channel_set(c, s);
	later(0);
}

static json_t *dumped(unsigned connection)
{
	json_t *all = pool_dump(w.pool), *one = json_array_get(all, connection);

	json_incref(one);
	json_decref(all);
	return one;
}

/* --- connecting --- */

static void the_first_connects_at_once_the_others_when_somebody_wants_them(void **state)
{
	struct uuid u = pod(0), other = pod(1);

	(void)state;
	w.plane.connections = 2;
	assert_null(pool_channel(w.pool, &u));
	pool_connect(w.pool, "roots");
	assert_false(pool_connected(w.pool) || pool_ever_connected(w.pool));
	w.changed = 0;
	later(1000);
	assert_int_equal(w.changed, 1);
	assert_true(pool_connected(w.pool) && pool_ever_connected(w.pool));
	assert_int_equal(fake_rpc_connects(fake_rpc_channel(w.rpc, 0)), 1);
	assert_int_equal(fake_rpc_connects(fake_rpc_channel(w.rpc, 1)), 0);
	for (unsigned i = 2; channel_of(i) != fake_rpc_channel(w.rpc, 1); i++)
		other = pod(i + 1);
	assert_non_null(pool_channel(w.pool, &other));
	assert_int_equal(fake_rpc_connects(fake_rpc_channel(w.rpc, 1)), 1);
}

/* Whoever hangs up is dialled once a second, and not as fast as he does. */
static void the_first_is_kept(void **state)
{
	struct rpc_channel *c;

	(void)state;
	pool_connect(w.pool, "roots");
	later(0);
	c = fake_rpc_channel(w.rpc, 0);
	for (unsigned i = 1; i < 5; i++) {
		set(c, RPC_IDLE);
		assert_false(pool_connected(w.pool));
		later(999);
		assert_int_equal(fake_rpc_connects(c), i);
		later(1);
		assert_int_equal(fake_rpc_connects(c), i + 1);
		set(c, RPC_READY);
		assert_true(pool_connected(w.pool));
	}
	set(c, RPC_IDLE);
	pool_connect(w.pool, "others"); /* replaced: nobody dials the old one any more */
	later(10 * 1000);
	assert_true(fake_rpc_channel_freed(c));
}

static void who_is_back_says_why_it_was_away_no_more(void **state)
{
	struct rpc_channel *c;

	(void)state;
	pool_connect(w.pool, "roots");
	c = fake_rpc_channel(w.rpc, 0);
	set(c, RPC_TRANSIENT_FAILURE);
	fake_rpc_end(fake_rpc_stream(w.rpc, 0), RPC_UNAVAILABLE, "refused");
	later(0);
	assert_string_equal(
	    pool_why_not(w.pool), "cannot connect to istiod.test:15012 as istiod: refused");
	set(c, RPC_READY);
	assert_string_equal(pool_why_not(w.pool), "");
	/* It came back between failure and question. */
	set(c, RPC_TRANSIENT_FAILURE);
	fake_rpc_end(fake_rpc_stream(w.rpc, 1), RPC_UNIMPLEMENTED, "no such method");
	set(c, RPC_READY);
	assert_string_equal(pool_why_not(w.pool), "");
}

/* --- GOAWAY --- */

/* istiod-live.md 3: oldest first, at the pace of the bucket, on the new connection. */
static void goaway_moves_the_oldest_first_at_the_pace(void **state)
{
	struct rpc_channel *c;

	(void)state;
	pool_connect(w.pool, "roots");
	for (unsigned i = 0; i < 25; i++)
		c = lease(i);
	set(c, RPC_IDLE);
	assert_int_equal(fake_rpc_connects(c), 3); /* at once */
	set(c, RPC_READY);
	lease(25); /* a new stream: on the new connection */
	for (unsigned i = 0; i < 25; i++) {
		later(49);
		assert_int_equal(w.moved, i);
		later(1);
		assert_int_equal(w.streams[i].moved, i + 1);
	}
	later(60 * 1000);
	assert_int_equal(w.streams[25].moved, 0);
	assert_int_equal(fake_loop_live(w.loop), 0);
}

static void all_are_moved_within_the_grace(void **state)
{
	struct rpc_channel *c;

	(void)state;
	pool_connect(w.pool, "roots");
	for (unsigned i = 0; i < STREAMS; i++)
		c = lease(i);
	set(c, RPC_IDLE);
	set(c, RPC_READY);
	later(5000);
	assert_in_range(w.moved, STREAMS * 45 / 100, STREAMS * 55 / 100);
	later(5000);
	assert_int_equal(w.moved, STREAMS); /* 300 at 20/s would take 15 s */
}

/* Until there is a new connection the old one is better than nothing; its end at 11 s is hard. */
static void without_a_new_connection_they_stay_as_long_as_they_can(void **state)
{
	struct rpc_channel *c;

	(void)state;
	pool_connect(w.pool, "roots");
	for (unsigned i = 0; i < 5; i++)
		c = lease(i);
	set(c, RPC_IDLE);
	set(c, RPC_CONNECTING);
	later(9000);
	assert_int_equal(w.moved, 0);
	later(1000);
	assert_int_equal(w.moved, 5);
}

static void a_connection_that_breaks_moves_nobody(void **state)
{
	struct rpc_channel *c;

	(void)state;
	pool_connect(w.pool, "roots");
	for (unsigned i = 0; i < 5; i++)
		c = lease(i);
	set(c, RPC_IDLE);
	for (unsigned i = 0; i < 5; i++) /* their streams end by themselves */
		pool_lease_end(&w.streams[i].lease);
	set(c, RPC_READY);
	later(60 * 1000);
	assert_int_equal(w.moved, 0);
}

static void a_second_goaway_during_the_first(void **state)
{
	struct rpc_channel *c;

	(void)state;
	pool_connect(w.pool, "roots");
	for (unsigned i = 0; i < 100; i++)
		c = lease(i);
	set(c, RPC_IDLE);
	set(c, RPC_READY);
	later(1000);
	assert_int_equal(w.moved, 20);
	for (unsigned i = 100; i < 150; i++)
		lease(i);
	set(c, RPC_IDLE);
	set(c, RPC_READY);
	lease(150);
	later(9000);
	assert_int_equal(w.moved, 150);
	assert_int_equal(w.streams[150].moved, 0);
}

/* --- a new root --- */

static void a_replaced_connection_goes_with_its_last_stream(void **state)
{
	struct rpc_channel *old, *new;

	(void)state;
	pool_connect(w.pool, "one");
	old = lease(0);
	lease(1);
	pool_connect(w.pool, "two");
	new = lease(2);
	assert_ptr_not_equal(old, new);
	assert_string_equal(fake_rpc_channel_options(new)->roots_pem, "two");
	later(3600 * 1000);
	assert_int_equal(w.moved, 0); /* live streams are untouched (istio-agent.md 1.3) */
	pool_lease_end(&w.streams[0].lease);
	assert_false(fake_rpc_channel_freed(old));
	pool_lease_end(&w.streams[1].lease);
	assert_true(fake_rpc_channel_freed(old));
	assert_false(fake_rpc_channel_freed(new));
}

static void a_replaced_connection_hears_goaway_too(void **state)
{
	struct rpc_channel *old;

	(void)state;
	pool_connect(w.pool, "one");
	old = lease(0);
	pool_connect(w.pool, "two");
	set(old, RPC_IDLE);
	assert_int_equal(fake_rpc_connects(old), 2); /* it is not wanted back */
	later(50);
	assert_int_equal(w.moved, 1);
	assert_true(fake_rpc_channel_freed(old));
}

/* --- quarantine --- */

static void the_second_harm_moves_a_pod_away_for_ten_minutes(void **state)
{
	const struct uuid bad = pod(0);
	struct rpc_channel *shared, *own;
	json_t *d;

	(void)state;
	pool_connect(w.pool, "roots");
	shared = channel_of(0);
	pool_blame(w.pool, &bad, "GOAWAY");
	assert_ptr_equal(channel_of(0), shared);
	pool_blame(w.pool, &bad, "GOAWAY");
	own = lease(0);
	assert_ptr_not_equal(own, shared);
	assert_ptr_equal(channel_of(1), shared);
	assert_int_not_equal(
	    fake_rpc_channel_options(own)->shard, fake_rpc_channel_options(shared)->shard);
	d = dumped(1);
	assert_true(json_is_true(json_object_get(d, "quarantine")));
	assert_int_equal(json_integer_value(json_object_get(d, "streams")), 1);
	json_decref(d);
	later(TEN_MINUTES - 1);
	assert_ptr_equal(channel_of(0), own);
	later(1);
	assert_ptr_equal(channel_of(0), shared);
	assert_false(fake_rpc_channel_freed(own)); /* its stream lives on */
	pool_lease_end(&w.streams[0].lease);
	assert_true(fake_rpc_channel_freed(own));
	pool_blame(w.pool, &bad, "GOAWAY"); /* forgotten: the first time again */
	assert_ptr_equal(channel_of(0), shared);
}

static void harm_long_ago_does_not_count(void **state)
{
	const struct uuid bad = pod(0);

	(void)state;
	pool_connect(w.pool, "roots");
	pool_blame(w.pool, &bad, "GOAWAY");
	later(TEN_MINUTES);
	pool_blame(w.pool, &bad, "GOAWAY");
	assert_ptr_equal(channel_of(0), channel_of(1));
}

/* A GOAWAY hits all pods of a connection, whoever is to blame: not each gets one. */
static void quarantines_are_few(void **state)
{
	(void)state;
	pool_connect(w.pool, "roots");
	for (unsigned i = 0; i < 50; i++) {
		const struct uuid u = pod(i);

		pool_quarantine(w.pool, &u, "it keeps opening streams");
	}
	assert_int_equal(fake_rpc_channels(w.rpc), 1 + 8);
	later(TEN_MINUTES);
	for (unsigned i = 0; i < 50; i++)
		assert_ptr_equal(channel_of(i), fake_rpc_channel(w.rpc, 0));
	assert_int_equal(fake_loop_live(w.loop), 0);
	const struct uuid again = pod(3);
	pool_quarantine(w.pool, &again, "and again"); /* there is room again */
	assert_int_equal(fake_rpc_channels(w.rpc), 1 + 8 + 1);
}

static void a_new_root_is_for_quarantines_too(void **state)
{
	const struct uuid bad = pod(0);
	struct rpc_channel *own;

	(void)state;
	pool_connect(w.pool, "one");
	pool_quarantine(w.pool, &bad, "why");
	own = channel_of(0);
	pool_connect(w.pool, "two");
	assert_true(fake_rpc_channel_freed(own));
	assert_ptr_not_equal(channel_of(0), channel_of(1));
	assert_string_equal(fake_rpc_channel_options(channel_of(0))->roots_pem, "two");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(the_first_connects_at_once_the_others_when_somebody_wants_them),
	    TEST(the_first_is_kept),
	    TEST(who_is_back_says_why_it_was_away_no_more),
	    TEST(goaway_moves_the_oldest_first_at_the_pace),
	    TEST(all_are_moved_within_the_grace),
	    TEST(without_a_new_connection_they_stay_as_long_as_they_can),
	    TEST(a_connection_that_breaks_moves_nobody),
	    TEST(a_second_goaway_during_the_first),
	    TEST(a_replaced_connection_goes_with_its_last_stream),
	    TEST(a_replaced_connection_hears_goaway_too),
	    TEST(the_second_harm_moves_a_pod_away_for_ten_minutes),
	    TEST(harm_long_ago_does_not_count),
	    TEST(quarantines_are_few),
	    TEST(a_new_root_is_for_quarantines_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
