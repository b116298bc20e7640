/* cert_cache_tell_test.c - who is told what: tokens, wrong answers, coming and going.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/istiod.c tests/fake/ca_client.c
 * LINK: tests/fake/x509.c tests/fake/secrets.c tests/unit/worker/certs/cert_world.c
 */
#include "cert_world.h"
#include "tests/fake/x509.h"
#include <string.h>

/* --- tokens --- */

static void nothing_is_given_without_a_valid_token(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	b->token.jwt = NULL;
	b->problem = "token: other audience";
	join(b);
	join_and_get(a);
	assert_null(b->has);
	assert_string_equal(b->why, "token: other audience");
	later(0);
	b->token.jwt = (char *)"SECRET token of b";
	cert_token_changed(b->sub);
	assert_null(b->has); /* R2 */
	later(0);
	assert_ptr_equal(b->has, a->has);
	assert_int_equal(asked(), 1);
}

static void a_fresh_token_is_no_news_but_a_bad_one_is(void **state)
{
	struct pod *a = pod_of("a", "web");
	unsigned told;

	(void)state;
	join_and_get(a);
	told = a->told;
	cert_token_changed(a->sub);
	later(MINUTE);
	assert_int_equal(a->told, told);
	a->token.jwt = NULL;
	cert_token_changed(a->sub);
	later(0);
	assert_null(a->has);
	assert_string_equal(a->why, "token: expired");
}

static void the_renewal_uses_whoever_has_a_token(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	join(a);
	join_and_get(b);
	a->token.jwt = NULL;
	b->token.jwt = (char *)"SECRET renewed";
	later(12 * HOUR);
	assert_memory_equal(&fake_ca_request(w.ca)->pod, &b->uid, sizeof(b->uid));
	assert_string_equal(fake_ca_request(w.ca)->token, "SECRET renewed");
	answer();
	assert_string_equal(b->serial, "2");
	assert_null(a->has); /* its own token is what counts */
}

static void without_a_token_it_waits(void **state)
{
	struct pod *a = pod_of("a", "web");
	int keys = fake_x509_keys();

	(void)state;
	a->token.jwt = NULL;
	a->problem = "token: not there";
	join(a);
	later(10 * MINUTE);
	assert_int_equal(asked(), 0);
	assert_int_equal(fake_x509_keys(), keys); /* no RSA key for nothing */
	assert_string_equal(a->why, "token: not there");
	a->token.jwt = (char *)"SECRET";
	cert_token_changed(a->sub);
	later(0);
	assert_int_equal(pending(), 1); /* at once, though the pause had grown to a minute */
	refuse("no");
	later(560);
	assert_int_equal(pending(), 1); /* and what it waited for was not istiod */
	answer();
	assert_non_null(a->has);
}

/* The file came without a word from the source: the pause ends some time. */
static void a_token_is_looked_for_again(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	a->token.jwt = NULL;
	join(a);
	later(MINUTE);
	a->token.jwt = (char *)"SECRET";
	later(66 * SECOND);
	assert_int_equal(pending(), 1);
}

static void a_pod_that_brings_a_token_need_not_wait(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	a->token.jwt = NULL;
	join(a);
	later(10 * MINUTE);
	join(b);
	later(0);
	assert_int_equal(pending(), 1);
	answer();
	assert_non_null(b->has);
	assert_null(a->has);
}

static void a_new_token_ends_the_pause(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join(a);
	later(0);
	for (int i = 0; i < 8; i++) {
		fake_ca_fail(w.ca, ERR_DENIED, "istiod: UNAUTHENTICATED: no");
		later(67 * SECOND);
	}
	fake_ca_fail(w.ca, ERR_DENIED, "istiod: UNAUTHENTICATED: no");
	cert_token_changed(a->sub);
	later(0);
	assert_int_equal(pending(), 1);
}

/* istiod may dislike only this pod's token; the others' identity is as good. */
static void after_a_refusal_it_is_anothers_turn(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	join(a);
	join(b);
	later(0);
	assert_memory_equal(&fake_ca_request(w.ca)->pod, &a->uid, sizeof(a->uid));
	fake_ca_fail(w.ca, ERR_DENIED, "istiod: UNAUTHENTICATED: no");
	later(SECOND);
	assert_memory_equal(&fake_ca_request(w.ca)->pod, &b->uid, sizeof(b->uid));
	answer();
	assert_non_null(a->has);
}

static void the_token_of_a_removed_pod_is_not_used(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	join(a);
	join(b);
	later(0);
	leave(a);
	assert_int_equal(pending(), 0); /* given up, with its repetitions */
	later(SECOND);
	assert_memory_equal(&fake_ca_request(w.ca)->pod, &b->uid, sizeof(b->uid));
	answer();
	assert_non_null(b->has);
	assert_int_equal(a->told, 1);
}

/* While the key is made (160-540 ms for RSA) the token expires. */
static void the_token_is_looked_at_again_after_the_key(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	b->token.jwt = NULL;
	a->leave_after_question = 2; /* the first was for telling it: gone when the key is there */
	join(a);
	join(b);
	later(0);
	assert_null(a->sub);
	assert_int_equal(asked(), 0);
	assert_string_equal(b->why, "token: expired");
}

/* --- answers that are none --- */

static void a_wrong_answer_reaches_nobody(void **state)
{
	const struct answer wrong[] = {
	    {.uri = "spiffe://td/ns/istio-system/sa/agentd"}, /* the node's own: surprise 5 */
	    {.uri = "spiffe://td/ns/demo/sa/db"},
	    {.uri = "spiffe://evil/ns/demo/sa/web"},
	    {.key = 1000000},
	    {.starts_in_s = 3600},
	    {.ttl_s = -1},
	    {.ttl_s = TTL_S + 3600},
	    {.leaf = "what?"},
	    {.root = "what?"},
	    {.n = 1},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct pod *a = pod_of("a", "web");

		join(a);
		later(0);
		answer_with(wrong[i]);
		assert_null(a->has);
		assert_memory_equal(a->why, "answer of istiod: ", 18);
		later(FLOOR_MS - SECOND);
		assert_int_equal(asked(), 1); /* issued is issued */
		later(2 * SECOND);
		answer();
		assert_non_null(a->has);
		assert_string_equal(a->why, "");
		leave(a);
		world_restart(&w.options, "td");
	}
}

static void a_wrong_answer_does_not_replace_a_right_one(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join_and_get(a);
	later(12 * HOUR);
	answer_with((struct answer){.uri = "spiffe://td/ns/istio-system/sa/agentd"});
	assert_string_equal(a->serial, "1");
	assert_string_equal(a->why, "answer of istiod: another identity");
}

/* istiod's clock may be ahead of ours by the two minutes that it dates back. */
static void a_little_longer_than_asked_is_fine(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join(a);
	later(0);
	answer_with((struct answer){.ttl_s = TTL_S + 119});
	assert_non_null(a->has);
}

static void the_first_trust_domain_counts(void **state)
{
	(void)state;
	world_restart(&w.options, "");
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "db");

	join(a);
	join(b);
	later(0);
	answer_with((struct answer){.uri = "spiffe://mesh/ns/demo/sa/web"});
	assert_string_equal(a->has->id.trust_domain, "mesh");
	assert_string_equal(istiod_trust_domain(w.istiod), "mesh");
	answer_with((struct answer){.uri = "spiffe://evil/ns/demo/sa/db"}); /* was under way */
	assert_null(b->has);
	later(FLOOR_MS);
	assert_non_null(strstr(fake_ca_request(w.ca)->csr_pem, "spiffe://mesh/"));
	answer();
	assert_string_equal(b->has->id.trust_domain, "mesh");
}

/* It is renamed at istiod before, or after, it is here. */
static void a_former_trust_domain_is_taken(void **state)
{
	const struct cert_cache_options o = {.reissue_min_ms = FLOOR_MS, .linger_ms = LINGER_MS};
	static const char *const uris[] = {
	    "spiffe://new/ns/demo/sa/web", "spiffe://old/ns/demo/sa/web"};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		world_restart(&o, "new");
		istiod_free(&w.istiod);
		w.plane.former_trust_domains = "old,older";
		w.istiod = istiod_new(w.loop, NULL, NULL, &w.plane, 0);
		cert_cache_free(&w.cache);
		w.cache = cert_cache_new(w.loop, w.istiod, w.ca, &w.options);
		struct pod *a = pod_of("a", "web");
		join(a);
		later(0);
		answer_with((struct answer){.uri = uris[i]});
		assert_non_null(a->has);
		assert_string_equal(istiod_trust_domain(w.istiod), "new");
	}
}

static void a_trust_domain_of_its_own_is_expected(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	strcpy(a->spec.trust_domain, "td2");
	join(a);
	later(0);
	answer_with((struct answer){.uri = "spiffe://td/ns/demo/sa/web"});
	assert_null(a->has);
	later(FLOOR_MS);
	answer_with((struct answer){.uri = "spiffe://td2/ns/demo/sa/web"});
	assert_non_null(a->has);
	assert_string_equal(istiod_trust_domain(w.istiod), "td");
}

/* --- coming and going --- */

static void it_lingers(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");
	struct cert *before;

	(void)state;
	join_and_get(a);
	before = a->has;
	leave(a);
	later(LINGER_MS - SECOND);
	join(b);
	later(2 * SECOND); /* who came back stops the end */
	assert_ptr_equal(b->has, before);
	assert_int_equal(asked(), 1);
	leave(b);
	later(LINGER_MS - SECOND);
	later(2 * SECOND);
	assert_int_equal(fake_loop_live(w.loop), 0); /* forgotten */
	join(a);
	later(0);
	assert_int_equal(asked(), 2);
}

/* Whatever the linger is: a pod that comes and goes must not hurry istiod. */
static void a_short_linger_ends_no_pause(void **state)
{
	struct pod *a, *b;

	(void)state;
	world_restart(&(struct cert_cache_options){.reissue_min_ms = FLOOR_MS}, "td");
	a = pod_of("a", "web");
	b = pod_of("b", "web");
	join(a);
	later(0);
	refuse("no");
	leave(a); /* the back-off stays */
	join(b);
	later(0);
	assert_int_equal(asked(), 1);
	assert_string_equal(b->why, "no");
	later(560);
	answer();
	assert_string_equal(b->serial, "1");
	leave(b); /* so does the floor, and the certificate with it */
	later(FLOOR_MS - 2 * SECOND);
	join(a);
	later(0);
	leave(a);
	assert_string_equal(a->serial, "1");
	assert_int_equal(asked(), 2);
	later(3 * SECOND);
	assert_int_equal(fake_loop_live(w.loop), 0); /* forgotten */
	join(a);
	later(0);
	assert_int_equal(asked(), 3);
}

static void nobody_there_no_renewal(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	join_and_get(a);
	later(12 * HOUR - MINUTE);
	leave(a);
	later(2 * MINUTE);
	assert_int_equal(asked(), 1);
	join(b);
	later(0);
	assert_string_equal(b->serial, "1");
	assert_int_equal(pending(), 1); /* it was due */
	answer();
	assert_string_equal(b->serial, "2");
}

/* threats-and-faults.md T25. */
static void a_crash_looping_pod_costs_one_csr(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	for (int i = 0; i < 1000; i++) {
		join(a);
		later(100);
		if (pending())
			answer();
		leave(a);
		later(SECOND);
	}
	assert_int_equal(asked(), 1);
}

static void coming_and_going_does_not_shorten_the_pause(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	for (int i = 0; i < 1000; i++) { /* 100 s; istiod never answers in time */
		join(a);
		later(50);
		leave(a);
		later(50);
	}
	assert_in_range(asked(), 2, 18);
}

static void who_left_is_not_told(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web"), *c = pod_of("c", "web");

	(void)state;
	a->takes_along = b; /* told after it */
	c->takes_along = a; /* told before it */
	join(a);
	join(b);
	join(c);
	later(0);
	answer();
	assert_null(a->sub);
	assert_null(b->sub);
	assert_int_equal(b->told, 1);
	assert_int_equal(a->told, 2);
	later(12 * HOUR);
	answer();
	assert_int_equal(a->told, 2);
	assert_string_equal(c->serial, "2");
}

static void all_may_leave_inside_the_callback(void **state)
{
	(void)state;
	for (int linger = 0; linger < 2; linger++) {
		world_restart(&(struct cert_cache_options){.reissue_min_ms = linger ? FLOOR_MS : 0,
				  .linger_ms = linger ? LINGER_MS : 0},
		    "td");
		struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web"),
			   *c = pod_of("c", "web");

		a->leave_when_told = b->leave_when_told = c->leave_when_told = true;
		join(a);
		join(b);
		later(0);
		answer();
		assert_null(a->sub);
		assert_null(b->sub);
		assert_string_equal(b->serial, "1"); /* what it was told was still there */
		join(c);                             /* and the same from the cache, told alone */
		later(0);
		if (linger)
			assert_string_equal(c->serial, "1");
		else
			answer();
		assert_null(c->sub);
		later(LINGER_MS);
		assert_int_equal(fake_loop_live(w.loop), 0);
	}
}

/* The same with bad news, told to one alone: the reason is there until the callback returns. */
static void the_last_may_leave_at_bad_news(void **state)
{
	(void)state;
	world_restart(
	    &(struct cert_cache_options){.reissue_min_ms = FLOOR_MS, .linger_ms = 0}, "td");
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	b->leave_when_told_why = true;
	join(a);
	later(0);
	refuse("no");
	join(b);
	leave(a);
	later(0);
	assert_null(b->sub);
	assert_string_equal(b->why, "no");
	later(SECOND); /* the pause, which nobody shortens by leaving */
	assert_int_equal(fake_loop_live(w.loop), 0);
}

/* All left while the key was made: it is wiped, nothing is sent, and nobody is waited for longer.
 */
static void a_key_for_nobody(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	a->leave_after_question = 2;
	join(a);
	later(0);
	assert_null(a->sub);
	assert_int_equal(asked(), 0);
	later(LINGER_MS - SECOND);
	join(b);
	later(0);
	assert_int_equal(pending(), 1);
	assert_string_equal(b->why, "");
	leave(b);
	later(LINGER_MS);
	assert_int_equal(fake_loop_live(w.loop), 0);
}

/* The signer of a certificate that is there is a pod like others. */
static void leaving_after_the_answer_changes_nothing(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	join(a);
	join_and_get(b);
	leave(a);
	later(12 * HOUR);
	refuse("no");
	later(560);
	assert_int_equal(pending(), 1);
}

static void may_join_inside_the_callback(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web"), *c = pod_of("c", "db");

	(void)state;
	a->brings = b;
	b->brings = c;
	join_and_get(a);
	assert_int_equal(b->told, 0); /* R2 again: not inside its cert_subscribe */
	later(0);
	assert_int_equal(b->told, 1);
	assert_ptr_equal(b->has, a->has);
	assert_int_equal(asked(), 2); /* c's */
}

/* Leaving at each stage, with nobody else there: nothing runs on. */
static void leaving_ends_everything(void **state)
{
	(void)state;
	for (int stage = 0; stage < 9; stage++) {
		world_restart(
		    &(struct cert_cache_options){.reissue_min_ms = FLOOR_MS, .linger_ms = 0}, "td");
		struct pod *a = pod_of("a", "web");

		a->leave_after_question = stage == 1 ? 2 : 0; /* while the key is made */
		a->leave_when_told_why = stage == 8;
		join(a);
		if (stage >= 1)
			later(0); /* CSR under way */
		if (stage == 3)
			answer();
		if (stage == 4 || stage == 5 || stage == 8)
			refuse("no");
		if (stage == 5)
			later(SECOND); /* second CSR under way */
		if (stage == 6)
			answer_with((struct answer){.n = 1}); /* the floor runs */
		if (stage == 7) {
			answer();
			later(12 * HOUR); /* renewal under way */
		}
		leave(a);
		assert_int_equal(pending(), 0);
		later(FLOOR_MS);
		assert_int_equal(fake_loop_live(w.loop), 0);
		later(100LL * HOUR);
		assert_true(a->told <= 3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WORLD_TEST(nothing_is_given_without_a_valid_token),
	    WORLD_TEST(a_fresh_token_is_no_news_but_a_bad_one_is),
	    WORLD_TEST(the_renewal_uses_whoever_has_a_token),
	    WORLD_TEST(without_a_token_it_waits),
	    WORLD_TEST(a_token_is_looked_for_again),
	    WORLD_TEST(a_pod_that_brings_a_token_need_not_wait),
	    WORLD_TEST(a_new_token_ends_the_pause),
	    WORLD_TEST(after_a_refusal_it_is_anothers_turn),
	    WORLD_TEST(the_token_of_a_removed_pod_is_not_used),
	    WORLD_TEST(the_token_is_looked_at_again_after_the_key),
	    WORLD_TEST(a_wrong_answer_reaches_nobody),
	    WORLD_TEST(a_wrong_answer_does_not_replace_a_right_one),
	    WORLD_TEST(a_little_longer_than_asked_is_fine),
	    WORLD_TEST(the_first_trust_domain_counts),
	    WORLD_TEST(a_former_trust_domain_is_taken),
	    WORLD_TEST(a_trust_domain_of_its_own_is_expected),
	    WORLD_TEST(it_lingers),
	    WORLD_TEST(a_short_linger_ends_no_pause),
	    WORLD_TEST(nobody_there_no_renewal),
	    WORLD_TEST(a_crash_looping_pod_costs_one_csr),
	    WORLD_TEST(coming_and_going_does_not_shorten_the_pause),
	    WORLD_TEST(who_left_is_not_told),
	    WORLD_TEST(all_may_leave_inside_the_callback),
	    WORLD_TEST(the_last_may_leave_at_bad_news),
	    WORLD_TEST(a_key_for_nobody),
	    WORLD_TEST(leaving_after_the_answer_changes_nothing),
	    WORLD_TEST(may_join_inside_the_callback),
	    WORLD_TEST(leaving_ends_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
