/* keep_test.c - certificates that outlive the worker: stored, restored, deleted.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/istiod.c tests/fake/ca_client.c
 * LINK: tests/fake/x509.c tests/fake/secrets.c tests/fake/link.c tests/unit/worker/certs/cert_world.c
 */
#include "cert_world.h"
#include "common/mem.h"
#include "tests/fake/link.h"
#include "tests/fake/secrets.h"
#include "worker/certs/store.h"
#include <stdio.h>
#include <string.h>

static struct link *broker; /* outlives the workers */

static struct cert_cache_options kept_in(enum link_state where)
{
	return (struct cert_cache_options){
	    .reissue_min_ms = FLOOR_MS, .linger_ms = LINGER_MS, .link = broker, .keep = where};
}

static int setup(void **state)
{
	world_setup(state);
	broker = fake_link();
	struct cert_cache_options o = kept_in(LINK_STATE_CERT);
	world_restart(&o, "td");
	return 0;
}

static int teardown(void **state)
{
	world_teardown(state);
	assert_int_equal(fake_link_live(broker), 0);
	link_free(&broker);
	assert_int_equal(secrets_freed(), 0);
	return 0;
}
#define KEEP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

enum { LOOKED = 10 }; /* ms: one was looked at, though nobody asks for it */

static unsigned stored(void)
{
	return (unsigned)fake_link_kept(broker, LINK_STATE_CERT);
}

static void issue(struct pod *p)
{
	join_and_get(p);
	fake_link_put(broker, NULL);
}

/* What is kept at this place goes to the cache; how many were refused, and why. */
static unsigned restore_from(enum link_state from, char why[ERR_MSG_SIZE])
{
	unsigned refused = 0;

	for (int i = 0; i < fake_link_kept(broker, from); i++) {
		struct link_kept k = fake_link_kept_at(broker, from, i);
		struct cert_stored s;
		struct err e = {0};
		uint8_t id[X509_SHA256_SIZE];
		assert_int_equal(cert_store_read(&s, k.data, k.size, &e), 0);
		cert_store_id(&s.origin, &s.spec, id);
		assert_memory_equal(id, k.id, sizeof(id));
		if (cert_cache_restore(w.cache, &s, from, &e)) {
			snprintf(why, ERR_MSG_SIZE, "%s", e.msg);
			refused++;
		}
		cert_stored_clear(&s);
	}
	return refused;
}

/* Another worker, with these options, on the same clocks. */
static void another_worker(const struct cert_cache_options *o, const char *trust_domain)
{
	struct pod *p;

	for (p = w.pods; p; p = p->next)
		cert_unsubscribe(&p->sub); /* lingers: nothing is forgotten at our own end */
	cert_cache_free(&w.cache);
	istiod_free(&w.istiod);
	w.plane.trust_domain = trust_domain;
	w.istiod = istiod_new(w.loop, NULL, NULL, &w.plane, 0);
	w.options = *o;
	w.cache = cert_cache_new(w.loop, w.istiod, w.ca, &w.options);
}

static void restart(void)
{
	struct cert_cache_options o = kept_in(LINK_STATE_CERT);
	char why[ERR_MSG_SIZE];

	another_worker(&o, "td");
	assert_int_equal(restore_from(LINK_STATE_CERT, why), 0);
}

/* --- stored --- */

static void stored_when_issued_and_when_renewed(void **state)
{
	struct pod *a = pod_of("a", "web");
	struct link_kept k;

	(void)state;
	join_and_get(a);
	assert_int_equal(stored(), 0);
	fake_link_put(broker, NULL);
	k = fake_link_kept_at(broker, LINK_STATE_CERT, 0);
	assert_non_null(strstr(k.data, "\nservice_account: web\n"));
	assert_non_null(strstr(k.data, "\n\nSECRET KEY"));
	assert_non_null(strstr(k.data, "LEAF 1 "));
	later(13 * HOUR);
	answer();
	assert_string_equal(a->serial, "2");
	fake_link_put(broker, NULL);
	assert_int_equal(stored(), 1);
	assert_non_null(strstr(fake_link_kept_at(broker, LINK_STATE_CERT, 0).data, "LEAF 2 "));
}

/* A newer one overtakes: its predecessor's answer is nobody's. */
static void the_newest_is_what_is_stored(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join_and_get(a);
	later(13 * HOUR);
	answer();
	assert_int_equal(fake_link_waiting(broker, LINK_STATE_PUT), 1);
	fake_link_put(broker, NULL);
	assert_non_null(strstr(fake_link_kept_at(broker, LINK_STATE_CERT, 0).data, "LEAF 2 "));
}

/* Refused is refused; pods have what they have, and it is tried again, ever more rarely. */
static void what_cannot_be_stored_is_tried_again(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "db"), *c = pod_of("c", "mq");

	(void)state;
	join_and_get(a);
	fake_link_put(broker, "No space left on device");
	join_and_get(b);
	fake_link_put(broker, "No space left on device");
	join_and_get(c);
	fake_link_put(broker, "Read-only file system");
	assert_non_null(a->has);
	assert_non_null(strstr(cert_cache_why_unstored(w.cache)->msg, "Read-only"));
	for (int i = 0; i < 20; i++) { /* one try for all of them, for ever */
		later(36 * SECOND);    /* half a minute and a fifth, at most */
		assert_int_equal(fake_link_waiting(broker, LINK_STATE_PUT), 1);
		fake_link_put(broker, "No space left on device");
	}
	later(36 * SECOND);
	assert_non_null(cert_cache_why_unstored(w.cache));
	for (int i = 0; i < 3; i++) { /* and when there is room, the others at once */
		assert_int_equal(fake_link_waiting(broker, LINK_STATE_PUT), 1);
		fake_link_put(broker, NULL);
	}
	assert_int_equal(fake_link_waiting(broker, LINK_STATE_PUT), 0);
	assert_int_equal(stored(), 3);
	assert_null(cert_cache_why_unstored(w.cache));
	later(HOUR);
	assert_int_equal(fake_link_waiting(broker, LINK_STATE_PUT), 0);
	assert_int_equal(asked(), 3);
}

/* What nobody wants any more is not missing. */
static void what_is_forgotten_need_not_be_stored(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join_and_get(a);
	fake_link_put(broker, "No space left on device");
	assert_non_null(cert_cache_why_unstored(w.cache));
	leave(a);
	later(SECOND);
	if (fake_link_waiting(broker, LINK_STATE_PUT))
		fake_link_put(broker, "No space left on device");
	later(LINGER_MS + 60 * SECOND);
	assert_null(cert_cache_why_unstored(w.cache));
}

/* When nobody came back its key is nowhere. */
static void forgotten_is_deleted(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	issue(a);
	leave(a);
	later(LINGER_MS - 1);
	assert_int_equal(stored(), 1);
	later(1);
	assert_int_equal(stored(), 0);
}

static void without_linger_it_is_deleted_after_the_floor(void **state)
{
	struct pod *a = pod_of("a", "web");
	struct cert_cache_options o = kept_in(LINK_STATE_CERT);

	(void)state;
	o.linger_ms = 0;
	another_worker(&o, "td");
	issue(a);
	leave(a);
	later(FLOOR_MS - 1);
	assert_int_equal(stored(), 1);
	later(1);
	assert_int_equal(stored(), 0);
}

static void our_own_end_deletes_nothing(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	issue(a);
	restart();
	assert_int_equal(stored(), 1);
}

/* --- restored --- */

/* The same certificate, no CSR; for a new pod of the account, too, with its own token only. */
static void a_restart_costs_nothing(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web"), *c = pod_of("c", "web");

	(void)state;
	issue(a);
	later(HOUR);
	restart();
	c->token.jwt = NULL;
	join(a);
	join(b);
	join(c);
	later(LOOKED);
	assert_string_equal(a->serial, "1");
	assert_string_equal(b->serial, "1");
	assert_null(c->has);
	assert_non_null(strstr(a->has->key_pem, "SECRET KEY"));
	assert_string_equal(a->has->id.sa, "web");
	assert_non_null(strstr(a->has->root_pem, "ROOT one and two"));
	assert_int_equal(asked(), 1);
	assert_int_equal(fake_link_waiting(broker, LINK_STATE_PUT), 0); /* it is stored already */
	/* Renewed when it would have been: half of 24 hours after it was issued. */
	later(11 * HOUR - SECOND);
	assert_int_equal(asked(), 1);
	later(SECOND);
	assert_int_equal(asked(), 2);
	answer();
	assert_string_equal(a->serial, "2");
	fake_link_put(broker, NULL);
	assert_int_equal(stored(), 1);
}

static void one_that_nobody_wants_goes_after_its_linger(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	issue(a);
	restart();
	later(LINGER_MS - 1);
	assert_int_equal(stored(), 1);
	later(1);
	assert_int_equal(stored(), 0);
}

static struct {
	struct loop_timer turn;
	unsigned had, most;
	struct pod *first;
} between;

/* Whatever else the loop has to do. */
static void on_turn(void *ctx)
{
	unsigned has = 0, all = 0;

	(void)ctx;
	for (struct pod *p = w.pods; p; p = p->next, all++) {
		has += p->has != NULL;
		if (p->has && !between.first)
			between.first = p;
	}
	if (has - between.had > between.most)
		between.most = has - between.had;
	between.had = has;
	if (has < all)
		loop_timer_in(w.loop, &between.turn, 1, on_turn, NULL);
}

/* A check takes its time: what else there is to do comes between two, and who asks is the first. */
static void each_is_looked_at_in_a_turn_of_its_own(void **state)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	struct pod *asks = NULL;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		issue(asks = pod_of(names[i], names[i]));
	restart();
	json_t *dump = cert_cache_dump(w.cache);
	auto_free char *text = json_dumps(dump, 0);

	json_decref(dump);
	assert_non_null(strstr(text, "looked at soon"));
	for (struct pod *p = w.pods; p; p = p->next) {
		p->has = NULL;
		join(p);
	}
	cert_wanted(asks->sub);
	memset(&between, 0, sizeof(between));
	on_turn(NULL);
	assert_int_equal(between.had, 0);
	later(1);
	assert_ptr_equal(between.first, asks);
	assert_int_equal(between.had, 1);
	later(4 * LOOKED);
	assert_int_equal(between.had, 4);
	assert_int_equal(between.most, 1);
	assert_int_equal(asked(), 4);
}

/* Nobody knows it yet, and its linger is over. */
static void one_that_was_not_looked_at_may_go(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	issue(a);
	restart();
	join(a);
	leave(a);
}

/* Where certificates do not linger pods still get a minute to come back. */
static void a_restart_waits_for_pods_as_long_as_the_floor(void **state)
{
	struct pod *a = pod_of("a", "web");
	struct cert_cache_options o = kept_in(LINK_STATE_CERT);
	char why[ERR_MSG_SIZE];

	(void)state;
	issue(a);
	o.linger_ms = 0;
	another_worker(&o, "td");
	assert_int_equal(restore_from(LINK_STATE_CERT, why), 0);
	later(FLOOR_MS - 1);
	assert_int_equal(stored(), 1);
	later(1);
	assert_int_equal(stored(), 0);
}

/* Two certificates are never closer than the floor, worker or no worker (security-rules.md 3). */
static void the_floor_goes_on(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	issue(a);
	later(3 * MINUTE);
	restart();
	join(a);
	later(SECOND); /* it is looked at */
	assert_non_null(a->has);
	cert_renew(a->sub);
	later(2 * MINUTE - 2 * SECOND);
	assert_int_equal(asked(), 1);
	later(SECOND);
	assert_int_equal(asked(), 2);
}

/* Not longer than a life allows: a third of this one's are 20 s. */
static void the_floor_of_a_short_life_goes_on(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join(a);
	later(0);
	answer_with((struct answer){.ttl_s = 60});
	fake_link_put(broker, NULL);
	later(10 * SECOND);
	restart();
	join(a);
	later(SECOND);
	assert_non_null(a->has);
	cert_renew(a->sub);
	later(8 * SECOND);
	assert_int_equal(asked(), 1);
	restart(); /* when it has expired, nothing holds the next one */
	later(50 * SECOND);
	restart();
	join(a);
	later(SECOND);
	assert_int_equal(asked(), 2);
	assert_null(a->has);
}

/* No clock makes an expired certificate good, and a right one bad (threats-and-faults.md T36). */
static void clocks_that_were_set_between_two_workers(void **state)
{
	static const int64_t steps[] = {-HOUR, -24 * (int64_t)HOUR, HOUR, 10 * (int64_t)HOUR};

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct pod *a = pod_of("a", "web");
		int64_t late = steps[i] > 0 ? steps[i] : 0;
		issue(a);
		unsigned before = asked();
		later(HOUR);
		set_clock(steps[i]);
		restart();
		join(a);
		later(0);
		assert_non_null(a->has);
		assert_int_equal(asked(), before);
		later(11 * HOUR - late - SECOND);
		assert_int_equal(asked(), before);
		later(SECOND);
		assert_int_equal(asked(), before + 1); /* by whichever clock said so first */
		leave(a);
		later(LINGER_MS);
		set_clock(-steps[i]);
	}
}

/* Set back by a day while 24 hours passed: by the monotonic clock it has ended. */
static void an_expired_one_is_not_revived_by_the_clock(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	issue(a);
	cert_unsubscribe(&a->sub);
	cert_cache_free(&w.cache);
	w.cache = cert_cache_new(w.loop, w.istiod, w.ca, &w.options);
	later(24 * HOUR);
	set_clock(-24 * (int64_t)HOUR);
	restart();
	join(a);
	later(LOOKED);
	assert_null(a->has);
	assert_int_equal(asked(), 2);
}

/* --- not restored --- */

static void expect_refused(const char *trust_domain, const char *says)
{
	struct cert_cache_options o = kept_in(LINK_STATE_CERT);
	char why[ERR_MSG_SIZE] = "";

	another_worker(&o, trust_domain);
	assert_int_equal(restore_from(LINK_STATE_CERT, why), 1);
	if (!strstr(why, says))
		fail_msg("%s", why);
}

static void another_configuration_does_not_match(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	issue(a);
	w.plane.address = "elsewhere:15012";
	expect_refused("td", "configured differently");
	w.plane.address = "istiod.test:15012";
	restart();
	a->spec.ttl_s = 3600; /* the node's bound was lowered */
	join(a);
	later(0);
	assert_int_equal(asked(), 2);
}

static const char *believed_under(const char *trust_domain, const char *former)
{
	struct cert_cache_options o = kept_in(LINK_STATE_CERT);
	struct pod *b = pod_of("b", "web");
	char why[ERR_MSG_SIZE] = "";

	w.plane.former_trust_domains = former;
	another_worker(&o, trust_domain);
	assert_int_equal(restore_from(LINK_STATE_CERT, why), 0);
	if (fake_link_waiting(broker, LINK_STATE_PUT))
		fake_link_put(broker, NULL);
	join(b);
	later(LOOKED);
	return b->has ? b->has->id.trust_domain : "none";
}

/* The mesh was renamed: what is stored is of a former name, and stored under the new one now. */
static void a_former_trust_domain_is_restored(void **state)
{
	(void)state;
	issue(pod_of("a", "web"));
	assert_string_equal(believed_under("td2", "td"), "td");
	assert_int_equal(stored(), 1);
	assert_string_equal(believed_under("td2", "other,td"), "td");
	assert_int_equal(asked(), 1);
	assert_string_equal(believed_under("td2", NULL), "none");
	later(FLOOR_MS);
	assert_int_equal(asked(), 2);
	w.plane.former_trust_domains = NULL;
}

/* Without a configured one the first certificate decides, a restored one too. */
static void the_trust_domain_is_learned_again(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "db");
	struct cert_cache_options o = kept_in(LINK_STATE_CERT);
	char why[ERR_MSG_SIZE];

	(void)state;
	another_worker(&o, "");
	issue(a);
	another_worker(&o, "");
	assert_string_equal(istiod_trust_domain(w.istiod), "");
	assert_int_equal(restore_from(LINK_STATE_CERT, why), 0);
	assert_string_equal(istiod_trust_domain(w.istiod), "cluster.local");
	join(b);
	later(0);
	answer_with((struct answer){.uri = "spiffe://other/ns/demo/sa/db"});
	assert_null(b->has);
}

/* Whoever wrote the file: what istiod may not answer is not restored either. */
static void what_istiod_may_not_answer_is_not_restored(void **state)
{
	static const char *const spoilt[][2] = {{"\nnamespace: demo", "\nnamespace: nemo"},
	    {"SECRET KEY ", "SECRET KEY 9"}, {"/sa/web ", "/sa/wob "}, {"LEAF 1 ", "leaf 1 "}};
	struct pod *a = pod_of("a", "web");

	(void)state;
	issue(a);
	for (unsigned i = 0; i < 4; i++) {
		struct link_kept k = fake_link_kept_at(broker, LINK_STATE_CERT, 0);
		struct cert_cache_options o = kept_in(LINK_STATE_CERT);
		struct cert_stored s;
		struct err e = {0};
		another_worker(&o, "td");
		assert_int_equal(cert_store_read(&s, k.data, k.size, &e), 0);
		if (i == 0)
			strcpy(s.spec.ns, "nemo");
		else if (i == 1)
			s.key_pem[strlen(s.key_pem) - 1]++;
		else {
			char *at = strstr(s.chain_pem, spoilt[i][0]);
			memcpy(at, spoilt[i][1], strlen(spoilt[i][1]));
		}
		assert_int_equal(cert_cache_restore(w.cache, &s, LINK_STATE_CERT, &e), 0);
		join(a);
		later(0);
		assert_null(a->has);
		cert_stored_clear(&s);
	}
	assert_int_equal(asked(), 2); /* the account that has no floor: its name was changed */
}

/* --- places --- */

/* state_keys was changed: what is there is used, and moves. */
static void certificates_move_to_where_they_are_wanted(void **state)
{
	struct pod *a = pod_of("a", "web");
	struct cert_cache_options o = kept_in(LINK_STATE_CERT_IN_MEMORY);
	char why[ERR_MSG_SIZE];

	(void)state;
	issue(a);
	another_worker(&o, "td");
	assert_int_equal(restore_from(LINK_STATE_CERT, why), 0);
	fake_link_put(broker, NULL);
	assert_int_equal(fake_link_kept(broker, LINK_STATE_CERT_IN_MEMORY), 1);
	join(a);
	later(0);
	assert_string_equal(a->serial, "1");
	assert_int_equal(restore_from(LINK_STATE_CERT, why), 1); /* the same once more */
	assert_non_null(strstr(why, "newer"));
	leave(a);
	later(LINGER_MS);
	assert_int_equal(fake_link_kept(broker, LINK_STATE_CERT_IN_MEMORY), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    KEEP_TEST(stored_when_issued_and_when_renewed),
	    KEEP_TEST(the_newest_is_what_is_stored),
	    KEEP_TEST(what_cannot_be_stored_is_tried_again),
	    KEEP_TEST(what_is_forgotten_need_not_be_stored),
	    KEEP_TEST(forgotten_is_deleted),
	    KEEP_TEST(without_linger_it_is_deleted_after_the_floor),
	    KEEP_TEST(our_own_end_deletes_nothing),
	    KEEP_TEST(a_restart_costs_nothing),
	    KEEP_TEST(one_that_nobody_wants_goes_after_its_linger),
	    KEEP_TEST(each_is_looked_at_in_a_turn_of_its_own),
	    KEEP_TEST(one_that_was_not_looked_at_may_go),
	    KEEP_TEST(a_restart_waits_for_pods_as_long_as_the_floor),
	    KEEP_TEST(the_floor_goes_on),
	    KEEP_TEST(the_floor_of_a_short_life_goes_on),
	    KEEP_TEST(clocks_that_were_set_between_two_workers),
	    KEEP_TEST(an_expired_one_is_not_revived_by_the_clock),
	    KEEP_TEST(another_configuration_does_not_match),
	    KEEP_TEST(a_former_trust_domain_is_restored),
	    KEEP_TEST(the_trust_domain_is_learned_again),
	    KEEP_TEST(what_istiod_may_not_answer_is_not_restored),
	    KEEP_TEST(certificates_move_to_where_they_are_wanted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
