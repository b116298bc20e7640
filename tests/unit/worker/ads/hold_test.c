/* hold_test.c - what takes much away right after a reconnect waits, and nothing else.
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/unit/worker/ads/envoy.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "envoy.h"
#include "tests/fake/loop.h"
#include "worker/ads/hold.h"

enum { HOLD_S = 30, HOLD_MS = HOLD_S * 1000 };

struct world {
	struct loop *loop;
	struct log_budget log;
	struct ads_hold *push;
	char passed[200]; /* nonces, in order */
};

static void on_pass(void *ctx, const void *bytes, size_t len)
{
	struct world *w = ctx;
	struct iovec whole = {(void *)bytes, len};
	struct discovery_response r;
	struct pbwire msg;
	struct err e;

	pbwire_init(&msg, &whole, 1);
	assert_int_equal(discovery_read_response(&r, msg, &e), 0);
	strcat(w->passed, r.nonce);
}

static int setup_with(void **state, unsigned hold_s)
{
	struct world *w = mem_zalloc(sizeof(*w));
	const struct ads_hold_options o = {fake_loop(), hold_s, "demo/web-0", &w->log, on_pass, w};

	w->loop = o.loop;
	w->push = ads_hold_new(&o);
	*state = w;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, HOLD_S);
}

static int setup_off(void **state)
{
	return setup_with(state, 0);
}

static int teardown(void **state)
{
	struct world *w = *state;

	ads_hold_free(&w->push);
	assert_int_equal(fake_loop_live(w->loop), 0);
	fake_loop_end(&w->loop);
	free(w);
	return 0;
}

static void ask(struct world *w, enum discovery_flavour f, const struct say *say)
{
	struct evbuffer *b = say_bytes(f, say);
	struct rpc_msg *m = fake_rpc_msg(evbuffer_pullup(b, -1), evbuffer_get_length(b));
	struct discovery_request q;
	struct err e;

	assert_int_equal(discovery_read_request(&q, f, discovery_reader(m), &e), 0);
	ads_hold_request(w->push, &q);
	fake_rpc_msg_free(&m);
	evbuffer_free(b);
}
#define SOTW(w, ...) ask(w, DISCOVERY_SOTW, &(struct say){__VA_ARGS__})
#define DELTA(w, ...) ask(w, DISCOVERY_DELTA, &(struct say){__VA_ARGS__})

/* Of one letter in `what` each: r a resource, x a removed one. */
static enum ads_hold_verdict answer(struct world *w, enum discovery_flavour f, const char *type,
    const char *nonce, const char *what)
{
	struct evbuffer *b = evbuffer_new();
	struct discovery_response r;
	struct rpc_msg *m;
	enum ads_hold_verdict v;
	struct err e;

	say_text(b, 4, type);
	say_text(b, 5, nonce);
	for (; *what; what++)
		say_text(b, *what == 'r' ? 2 : 6, "some name");
	m = fake_rpc_msg(evbuffer_pullup(b, -1), evbuffer_get_length(b));
	assert_int_equal(discovery_read_response(&r, discovery_reader(m), &e), 0);
	v = ads_hold_response(w->push, f, &r, m);
	fake_rpc_msg_free(&m);
	evbuffer_free(b);
	return v;
}
#define sotw(w, type, nonce, what) answer(w, DISCOVERY_SOTW, type, nonce, what)
#define delta(w, type, nonce, what) answer(w, DISCOVERY_DELTA, type, nonce, what)

static void a_deletion_that_was_meant_comes_late(void **state)
{
	struct world *w = *state;

	assert_string_equal(ads_hold_why(w->push), "");
	SOTW(w, .type = TYPE_CLUSTER, .version = "v7");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", ""), ADS_HOLD_HELD);
	assert_non_null(strstr(ads_hold_why(w->push), "removes all clusters"));
	fake_loop_wall_step(w->loop, 24 * 3600 * 1000); /* a duration, not a date */
	fake_loop_advance(w->loop, HOLD_MS - 1);
	assert_string_equal(w->passed, "");
	fake_loop_advance(w->loop, 1);
	assert_string_equal(w->passed, "1");
	assert_string_equal(ads_hold_why(w->push), "");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "2", ""), ADS_HOLD_PASS);
}

static void what_istiod_says_next_takes_its_place(void **state)
{
	struct world *w = *state;

	SOTW(w, .type = TYPE_LISTENER, .version = "v7");
	assert_int_equal(sotw(w, TYPE_LISTENER, "1", ""), ADS_HOLD_HELD);
	assert_int_equal(sotw(w, TYPE_LISTENER, "2", ""), ADS_HOLD_HELD);
	assert_non_null(strstr(ads_hold_why(w->push), "removes all listeners"));
	assert_int_equal(sotw(w, TYPE_LISTENER, "3", "r"), ADS_HOLD_PASS);
	assert_string_equal(ads_hold_why(w->push), "");
	assert_int_equal(sotw(w, TYPE_LISTENER, "4", ""), ADS_HOLD_PASS);
	fake_loop_advance(w->loop, 2 * HOLD_MS);
	assert_string_equal(w->passed, "");
}

static void the_first_answer_alone_is_looked_at(void **state)
{
	struct world *w = *state;

	SOTW(w, .type = TYPE_CLUSTER, .version = "v7");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", "r"), ADS_HOLD_PASS);
	assert_int_equal(sotw(w, TYPE_CLUSTER, "2", ""), ADS_HOLD_PASS);
}

static void who_has_nothing_loses_nothing(void **state)
{
	struct world *w = *state;

	SOTW(w, .type = TYPE_CLUSTER);
	SOTW(w, .type = TYPE_CLUSTER, .version = "v1", .nonce = "0"); /* its first one counts */
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", ""), ADS_HOLD_PASS);
	SOTW(w, .type = TYPE_LISTENER, .version = "");
	assert_int_equal(sotw(w, TYPE_LISTENER, "1", ""), ADS_HOLD_PASS);
	/* Nor is it our business for other types: without a cluster they mean nothing. */
	SOTW(w, .type = TYPE_SECRET, .version = "v1");
	assert_int_equal(sotw(w, TYPE_SECRET, "1", ""), ADS_HOLD_PASS);
	assert_int_equal(fake_loop_live(w->loop), 0);
}

static void a_delta_takes_much_or_not(void **state)
{
	static const struct {
		const char *what;
		enum ads_hold_verdict verdict;
	} cases[] = {{"xx", ADS_HOLD_HELD}, {"xxx", ADS_HOLD_HELD}, {"x", ADS_HOLD_HELD},
	    {"", ADS_HOLD_PASS}, {"xxr", ADS_HOLD_HELD}, {"rr", ADS_HOLD_PASS}};
	struct world *w = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		DELTA(w, .type = TYPE_CLUSTER, .have = {"a", "1", "b", ""});
		assert_int_equal(delta(w, TYPE_CLUSTER, "1", cases[i].what), cases[i].verdict);
		ads_hold_stream_ended(w->push);
	}
	DELTA(w, .type = TYPE_CLUSTER);
	assert_int_equal(delta(w, TYPE_CLUSTER, "1", "xx"), ADS_HOLD_PASS);
	assert_string_equal(w->passed, "");
}

/* A tenth is much; what Envoy has is what it got last from here. */
static void state_of_the_world_takes_much_or_not(void **state)
{
	struct world *w = *state;

	SOTW(w, .type = TYPE_CLUSTER, .version = "v1");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", "r"), ADS_HOLD_PASS); /* of how many? */
	assert_int_equal(sotw(w, TYPE_CLUSTER, "2", "rrrrrrrrrrr"), ADS_HOLD_PASS);
	ads_hold_stream_ended(w->push);
	SOTW(w, .type = TYPE_CLUSTER, .version = "v1");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", "rrrrrrrrrr"), ADS_HOLD_PASS);
	ads_hold_stream_ended(w->push);
	SOTW(w, .type = TYPE_CLUSTER, .version = "v1");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", "rrrrrrrrr"), ADS_HOLD_HELD);
	assert_non_null(strstr(ads_hold_why(w->push), "removes 1 of 10 clusters"));
	assert_true(ads_hold_size(w->push) > 0);
	ads_hold_stream_ended(w->push); /* Envoy still has ten */
	SOTW(w, .type = TYPE_CLUSTER, .version = "v1");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", "rrrrrrrrr"), ADS_HOLD_HELD);
	assert_int_equal(sotw(w, TYPE_CLUSTER, "2", "rrrrrrrrrr"), ADS_HOLD_PASS);
	assert_int_equal(ads_hold_size(w->push), 0);
	assert_string_equal(w->passed, "");
}

static void what_istiod_says_next_may_be_no_better(void **state)
{
	struct world *w = *state;

	SOTW(w, .type = TYPE_CLUSTER);
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", "rrr"), ADS_HOLD_PASS);
	ads_hold_stream_ended(w->push);
	SOTW(w, .type = TYPE_CLUSTER, .version = "v1");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", ""), ADS_HOLD_HELD);
	assert_int_equal(sotw(w, TYPE_CLUSTER, "2", "rr"), ADS_HOLD_HELD);
	fake_loop_advance(w->loop, HOLD_MS);
	assert_string_equal(w->passed, "12");
}

/* It removes fewer each time, until that is meant. */
static void an_istiod_gets_ready_step_by_step(void **state)
{
	static const char *const removes[] = {"xxxr", "xx", "x"};
	struct world *w = *state;

	for (size_t i = 0; i < sizeof(removes) / sizeof(*removes); i++) {
		DELTA(w, .type = TYPE_CLUSTER, .have = {"a", "1", "b", "1", "c", "1", "d", "1"});
		assert_int_equal(delta(w, TYPE_CLUSTER, "1", removes[i]), ADS_HOLD_HELD);
		assert_int_equal(delta(w, TYPE_CLUSTER, "2", "r"), ADS_HOLD_ANEW);
		ads_hold_stream_ended(w->push);
	}
	DELTA(w, .type = TYPE_CLUSTER, .have = {"a", "1", "b", "1", "c", "1", "d", "1"});
	assert_int_equal(delta(w, TYPE_CLUSTER, "1", "x"), ADS_HOLD_PASS);
	assert_string_equal(w->passed, "");
}

/* istiod thinks that Envoy has none of these any more: it would never remove what is gone. */
static void a_delta_stream_begins_anew_once(void **state)
{
	struct world *w = *state;

	for (int round = 0; round < 2; round++) {
		DELTA(w, .type = TYPE_CLUSTER, .have = {"a", "1", "b", "1"});
		assert_int_equal(delta(w, TYPE_CLUSTER, "1", "xx"), ADS_HOLD_HELD);
		assert_int_equal(delta(w, TYPE_CLUSTER, "2", "r"), ADS_HOLD_ANEW);
		ads_hold_stream_ended(w->push);
		/* The same again: it means it. */
		DELTA(w, .type = TYPE_CLUSTER, .have = {"a", "1", "b", "1"});
		assert_int_equal(delta(w, TYPE_CLUSTER, "1", "xx"), ADS_HOLD_PASS);
		assert_int_equal(delta(w, TYPE_CLUSTER, "2", "r"), ADS_HOLD_PASS);
		ads_hold_stream_ended(w->push);
	}
	assert_string_equal(w->passed, "");
}

static void all_that_was_held_passes_in_order(void **state)
{
	struct world *w = *state;

	DELTA(w, .type = TYPE_CLUSTER, .have = {"a", "1"});
	DELTA(w, .type = TYPE_LISTENER, .have = {"l", "1"});
	assert_int_equal(delta(w, TYPE_CLUSTER, "1", "x"), ADS_HOLD_HELD);
	fake_loop_advance(w->loop, 10000);
	assert_int_equal(delta(w, TYPE_LISTENER, "2", "x"), ADS_HOLD_HELD); /* a time of its own */
	assert_int_equal(delta(w, TYPE_CLUSTER, "3", "x"), ADS_HOLD_HELD);
	assert_int_equal(delta(w, TYPE_CLUSTER, "4", ""), ADS_HOLD_HELD);
	fake_loop_advance(w->loop, HOLD_MS - 10000);
	assert_string_equal(w->passed, "134");
	fake_loop_advance(w->loop, 10000);
	assert_string_equal(w->passed, "1342");
}

/* What is held is bounded: the first whatever its size, more up to 1 MiB. */
static void too_much_is_passed_on(void **state)
{
	struct world *w = *state;
	size_t n = 100000;
	char *many = mem_zalloc(n + 1);

	memset(many, 'x', n);
	DELTA(w, .type = TYPE_CLUSTER, .have = {"a", "1"});
	assert_int_equal(delta(w, TYPE_CLUSTER, "1", many), ADS_HOLD_HELD);
	assert_int_equal(delta(w, TYPE_CLUSTER, "2", "x"), ADS_HOLD_PASS);
	assert_string_equal(w->passed, "1");
	assert_int_equal(fake_loop_live(w->loop), 0);
	free(many);
}

static void it_ends_with_the_stream(void **state)
{
	struct world *w = *state;

	SOTW(w, .type = TYPE_CLUSTER, .version = "v7");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", ""), ADS_HOLD_HELD);
	ads_hold_stream_ended(w->push);
	assert_string_equal(ads_hold_why(w->push), "");
	fake_loop_advance(w->loop, HOLD_MS);
	assert_string_equal(w->passed, "");
	/* The next one is looked at for itself. */
	SOTW(w, .type = TYPE_CLUSTER, .version = "v7");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", ""), ADS_HOLD_HELD);
}

static void it_can_be_turned_off(void **state)
{
	struct world *w = *state;

	SOTW(w, .type = TYPE_CLUSTER, .version = "v7");
	assert_int_equal(sotw(w, TYPE_CLUSTER, "1", ""), ADS_HOLD_PASS);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_deletion_that_was_meant_comes_late),
	    TEST(what_istiod_says_next_takes_its_place),
	    TEST(the_first_answer_alone_is_looked_at),
	    TEST(who_has_nothing_loses_nothing),
	    TEST(a_delta_takes_much_or_not),
	    TEST(state_of_the_world_takes_much_or_not),
	    TEST(what_istiod_says_next_may_be_no_better),
	    TEST(an_istiod_gets_ready_step_by_step),
	    TEST(a_delta_stream_begins_anew_once),
	    TEST(all_that_was_held_passes_in_order),
	    TEST(too_much_is_passed_on),
	    TEST(it_ends_with_the_stream),
	    cmocka_unit_test_setup_teardown(it_can_be_turned_off, setup_off, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
