/* cert_cache_test.c - when a CSR is sent and when not; renewal.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/istiod.c tests/fake/ca_client.c
 * LINK: tests/fake/x509.c tests/fake/secrets.c tests/unit/worker/certs/cert_world.c tests/unit/worker/metrics_rig.c
 */
#include "cert_world.h"
#include "common/mem.h"
#include "tests/fake/secrets.h"
#include "tests/fake/x509.h"
#include "tests/unit/worker/metrics_rig.h"
#include <stdio.h>
#include <string.h>

/* --- what is shared and what is not --- */

static void two_pods_of_an_account_share_one_csr(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web"), *c = pod_of("c", "db");
	const struct ca_request *r;

	(void)state;
	join(a);
	join(b);
	join(c);
	assert_int_equal(a->told + a->asked, 0); /* R2: never inside the call */
	later(0);
	assert_int_equal(a->told, 1); /* the current state: nothing yet, and nothing went wrong */
	assert_null(a->has);
	assert_string_equal(a->why, "");
	assert_int_equal(pending(), 2);
	r = fake_ca_request(w.ca);
	assert_non_null(strstr(r->csr_pem, " spiffe://td/ns/demo/sa/web"));
	assert_memory_equal(&r->pod, &a->uid, sizeof(a->uid));
	assert_string_equal(r->token, a->token.jwt);
	assert_string_equal(r->cert_signer, "");
	assert_int_equal(r->ttl_s, TTL_S);
	answer();
	assert_non_null(a->has);
	assert_ptr_equal(a->has, b->has);
	assert_null(c->has);
	assert_string_equal(a->why, "");
	/* Every element goes to Envoy, the last one is the root (istio-agent.md 0.13). */
	assert_non_null(strstr(a->has->chain_pem, "LEAF 1 "));
	assert_non_null(strstr(a->has->chain_pem, "\nBETWEEN\nROOT one and two\n"));
	assert_string_equal(a->has->root_pem, "ROOT one and two\n");
	assert_non_null(strstr(a->has->key_pem, "SECRET KEY"));
	assert_string_equal(a->has->id.sa, "web");
	answer();
	assert_string_equal(c->serial, "2");
	assert_string_equal(a->serial, "1");
}

/* security-rules.md 2: the key of the cache holds all that shaped the certificate. */
static void whatever_shapes_a_certificate_makes_another_one(void **state)
{
	struct pod *p[9];

	(void)state;
	for (unsigned i = 0; i < 9; i++)
		p[i] = pod_of("p", "web");
	strcpy(p[1]->spec.trust_domain, "td2");
	strcpy(p[2]->spec.ns, "other");
	p[3]->spec.key.type = X509_RSA_2048;
	p[4]->spec.key.pkcs8 = true;
	p[5]->spec.ttl_s = 3600;
	strcpy(p[6]->spec.cert_signer, "signer");
	p[7]->spec.ratio = 0.3;
	p[8]->spec.pod = p[8]->uid;
	for (unsigned i = 0; i < 9; i++)
		join(p[i]);
	later(0);
	assert_int_equal(asked(), 9);
	while (pending())
		answer();
	for (unsigned i = 0; i < 9; i++)
		assert_non_null(p[i]->has);
}

static void the_request_carries_what_the_pod_asked_for(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	a->spec.key.type = X509_RSA_4096;
	a->spec.key.pkcs8 = true;
	a->spec.ttl_s = 7200;
	strcpy(a->spec.cert_signer, "signer");
	join(a);
	later(0);
	assert_int_equal(fake_ca_request(w.ca)->ttl_s, 7200);
	assert_string_equal(fake_ca_request(w.ca)->cert_signer, "signer");
	assert_non_null(strstr(fake_ca_request(w.ca)->csr_pem, " 4-pkcs8 "));
}

static void a_late_pod_gets_what_is_there(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	join_and_get(a);
	later(HOUR);
	join(b);
	assert_int_equal(b->told, 0);
	later(0);
	assert_ptr_equal(b->has, a->has);
	assert_int_equal(b->told, 1);
	assert_int_equal(asked(), 1);
}

/* --- renewal --- */

static void renews_when_the_ratio_of_the_life_is_left(void **state)
{
	const double ratios[] = {0.5, 0.2, 0.8};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct pod *a = pod_of("a", "web");
		int64_t wait = (int64_t)((1 - ratios[i]) * 24 * HOUR);

		a->spec.ratio = ratios[i];
		join_and_get(a);
		later(wait - SECOND);
		assert_int_equal(asked(), 1);
		later(2 * SECOND);
		assert_int_equal(asked(), 2);
		assert_int_equal(a->told, 2); /* not told before there is something to tell */
		answer();
		assert_string_equal(a->serial, "2");
		leave(a);
		world_restart(&w.options, "td");
	}
}

/* istiod dates back by 2 minutes: counted is from receipt (istio-agent.md 0.15). */
static void a_short_life_counts_from_its_receipt(void **state)
{
	(void)state;
	world_restart(&(struct cert_cache_options){.reissue_min_ms = 0}, "td");
	struct pod *a = pod_of("a", "web");

	join(a);
	later(0);
	answer_with((struct answer){.ttl_s = 20});
	later(9900);
	assert_int_equal(asked(), 1);
	later(200);
	assert_int_equal(asked(), 2);
}

/* The floor is for a CA that is asked too often, and not for certificates that end meanwhile. */
static void a_short_life_bounds_the_pause(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join(a);
	later(0);
	for (unsigned n = 1; n < 5; n++) {
		answer_with((struct answer){.ttl_s = 60});
		later(29 * SECOND);
		assert_int_equal(asked(), n);
		later(2 * SECOND);
		assert_int_equal(asked(), n + 1);
	}
	answer_with((struct answer){.n = 1}); /* of the last one's life, then */
	assert_non_null(a->has);
	later(19 * SECOND);
	assert_int_equal(pending(), 0);
	later(2 * SECOND);
	assert_int_equal(pending(), 1);
}

/* What agentctl certs shows is when it comes. */
static void no_renewal_is_announced_for_the_time_of_a_pause(void **state)
{
	struct pod *a = pod_of("a", "web");
	char at[CERT_TIME_SIZE];
	json_t *o;

	(void)state;
	a->spec.ratio = 0.8;
	join(a);
	later(0);
	answer_with((struct answer){.ttl_s = 60});
	o = cert_cache_dump(w.cache);
	assert_string_equal(json_string_value(json_object_get(json_array_get(o, 0), "renew_at")),
	    cert_time(loop_now_ms(w.loop) / 1000 + 20, at));
	json_decref(o);
	later(19 * SECOND);
	assert_int_equal(pending(), 0);
	later(2 * SECOND);
	assert_int_equal(pending(), 1);
}

static const char *warning(void)
{
	static char text[ERR_MSG_SIZE];
	json_t *all = cert_cache_warnings(w.cache);

	assert_in_range(json_array_size(all), 0, 1);
	snprintf(text, sizeof(text), "%s",
	    json_array_size(all) ? json_string_value(json_array_get(all, 0)) : "");
	json_decref(all);
	return text;
}

static void a_ca_that_ends_first_counts(void **state)
{
	struct pod *a = pod_of("a", "web");
	char until[CERT_TIME_SIZE];
	struct err why;

	(void)state;
	join(a);
	later(0);
	auto_free char *between =
	    mem_printf("BETWEEN until %lld", (long long)(loop_now_ms(w.loop) / 1000 + 7200));
	auto_free char *text = mem_printf("certificates end with a CA of their chain, at %s",
	    cert_time(loop_now_ms(w.loop) / 1000 + 7200, until));

	answer_with((struct answer){.between = between});
	assert_string_equal(warning(), text);
	later(59 * MINUTE);
	assert_int_equal(pending(), 0);
	later(2 * MINUTE);
	assert_int_equal(pending(), 1);
	assert_int_equal(cert_cache_over(w.cache, &why), 0);
	later(HOUR); /* istiod does not answer */
	assert_int_equal(cert_cache_over(w.cache, &why), 1);
	assert_non_null(strstr(why.msg, "sa/web: a CA certificate of its chain has expired"));
	answer();
	assert_int_equal(cert_cache_over(w.cache, &why), 0);
	assert_string_equal(warning(), "");
}

static void one_that_is_over_is_counted(void **state)
{
	struct pod *a = pod_of("a", "web");
	struct err why;

	(void)state;
	join_and_get(a);
	assert_int_equal(cert_cache_over(w.cache, &why), 0);
	later(24 * HOUR);
	assert_int_equal(cert_cache_over(w.cache, &why), 1);
	assert_non_null(strstr(why.msg, "the certificate has expired"));
	answer();
	assert_int_equal(cert_cache_over(w.cache, &why), 0);
}

static void what_is_left_out_of_its_roots_is_said(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "db");

	(void)state;
	join(a);
	join(b);
	later(0);
	answer_with((struct answer){.root = "ROOT of ODD ones"});
	answer_with((struct answer){.root = "ROOT of ODD ones"});
	assert_string_equal(warning(), "roots of certificates: block 2 is left out");
	assert_string_equal(b->serial, "2");
}

static struct {
	unsigned added, gone, told_before;
	const struct pod *pod;
} changes;

static void on_changed(void *ctx, const struct cert *added)
{
	assert_ptr_equal(ctx, &changes);
	changes.added += added != NULL;
	changes.gone += added == NULL;
	if (added)
		changes.told_before = changes.pod->told;
}

/* Before the subscribers: what is pushed with it must be right. */
static void changes_are_told(void **state)
{
	struct pod *a;

	(void)state;
	memset(&changes, 0, sizeof(changes));
	world_restart(&(struct cert_cache_options){.changed = on_changed, .ctx = &changes}, "td");
	changes.pod = a = pod_of("a", "web");
	join_and_get(a);
	assert_int_equal(changes.added, 1);
	assert_int_equal(changes.told_before, a->told - 1);
	leave(a);
	later(0);
	assert_int_equal(changes.gone, 1);
}

static void renewals_are_spread_by_the_jitter(void **state)
{
	int64_t first = INT64_MAX, last = 0;

	(void)state;
	for (int i = 0; i < 60; i++) {
		struct pod *a = pod_of("a", "web");
		int64_t waited = 0;

		a->spec.jitter = 0.1;
		join_and_get(a);
		for (; asked() == 1; waited += MINUTE)
			later(MINUTE);
		assert_in_range(waited, 0.4 * 24 * HOUR, 0.6 * 24 * HOUR + MINUTE);
		first = waited < first ? waited : first;
		last = waited > last ? waited : last;
		leave(a);
		world_restart(&w.options, "td");
	}
	assert_true(first < 11.5 * HOUR && last > 12.5 * HOUR); /* of 9.6 to 14.4 */
}

static void a_failed_renewal_keeps_what_is_valid(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	join_and_get(a);
	later(12 * HOUR);
	assert_int_equal(pending(), 1);
	refuse("istiod is away");
	assert_string_equal(a->serial, "1");
	assert_string_equal(a->why, "istiod is away");
	assert_int_equal(a->told, 3);
	later(SECOND);
	refuse("istiod is away");
	assert_int_equal(a->told, 3); /* nothing new */
	join(b);
	later(0);
	assert_string_equal(b->serial, "1"); /* still good for a new one */
	assert_string_equal(b->why, "istiod is away");
	later(2 * SECOND);
	answer();
	assert_string_equal(a->serial, "2");
	assert_string_equal(a->why, "");
	assert_string_equal(b->serial, "2");
}

static void refused_up_to(int64_t max)
{
	int64_t expected = 500;

	for (int i = 0; i < 12; i++) {
		int64_t waited = 0;

		refuse("no");
		for (; !pending(); waited += 10)
			later(10);
		assert_in_range(waited, expected * 9 / 10, expected * 11 / 10 + 10);
		expected = expected * 2 < max ? expected * 2 : max;
	}
}

/* 0.5 s, doubling to 8 s, with a valid certificate to 60 s, each +-10 %; the next trouble begins at
 * 0.5 s again. */
static void failures_back_off(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join(a);
	later(0);
	refused_up_to(8 * SECOND);
	answer();
	later(12 * HOUR);
	refused_up_to(60 * SECOND);
	later(12 * HOUR); /* it has ended */
	for (int i = 0; i < 2; i++) {
		refuse("no");
		later(8800);
		assert_int_equal(pending(), 1);
	}
}

static void back_off_is_per_entry(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "db");

	(void)state;
	join(a);
	later(0);
	for (int i = 0; i < 10; i++) {
		refuse("no");
		later(70 * SECOND);
	}
	refuse("no");
	join(b);
	later(0);
	assert_int_equal(pending(), 1);
	assert_non_null(strstr(fake_ca_request(w.ca)->csr_pem, "/sa/db"));
}

/* The floor is a minimum, not an appointment. */
static void a_short_floor_does_not_end_the_pause(void **state)
{
	(void)state;
	world_restart(
	    &(struct cert_cache_options){.reissue_min_ms = SECOND, .linger_ms = LINGER_MS}, "td");
	struct pod *a = pod_of("a", "web");

	join(a);
	later(0);
	for (int i = 0; i < 10; i++) {
		answer_with((struct answer){.n = 1});
		later(9 * SECOND);
	}
	answer_with((struct answer){.n = 1});
	later(7 * SECOND);
	assert_int_equal(pending(), 0);
	later(2 * SECOND);
	assert_int_equal(pending(), 1);
}

static void a_key_that_cannot_be_made_is_told(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	fake_x509_fail("no random bytes");
	join(a);
	later(0);
	assert_int_equal(asked(), 0);
	assert_string_equal(a->why, "no random bytes");
	later(600);
	answer();
	assert_string_equal(a->why, "");
}

/* --- keys --- */

/* An RSA key takes half a second: after a suspend a new pod must not wait for all renewals. */
static void who_has_nothing_gets_its_key_first(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "db"), *c = pod_of("c", "cart");
	struct pod *d = pod_of("d", "mail");

	(void)state;
	join_and_get(a);
	join_and_get(b);
	join_and_get(c);
	fake_loop_hold_work(w.loop, true);
	later(12 * HOUR); /* all three are due; the key of the first is being made */
	join(d);
	later(0);
	fake_loop_hold_work(w.loop, false);
	later(0);
	assert_int_equal(pending(), 4);
	assert_false(fake_ca_request(w.ca)->urgent);
	answer();
	assert_non_null(strstr(fake_ca_request(w.ca)->csr_pem, "/sa/mail"));
	assert_true(fake_ca_request(w.ca)->urgent);
	answer();
	assert_non_null(d->has);
	assert_false(fake_ca_request(w.ca)->urgent);
}

/* Whoever's key is being made, or waits for its turn, may leave: the others get theirs. */
static void leaving_gives_the_key_to_the_next(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		world_restart(
		    &(struct cert_cache_options){.reissue_min_ms = FLOOR_MS, .linger_ms = 0}, "td");
		struct pod *p[] = {pod_of("a", "web"), pod_of("b", "db"), pod_of("c", "cart")};

		fake_loop_hold_work(w.loop, true);
		for (unsigned k = 0; k < 3; k++)
			join(p[k]);
		later(0);
		leave(p[i]);
		fake_loop_hold_work(w.loop, false);
		later(0);
		assert_int_equal(pending(), 2);
	}
	struct pod *rest = pod_of("d", "mail");

	fake_loop_hold_work(w.loop, true); /* at the end nobody waits for keys of others */
	join(rest);
	later(0);
}

static void the_last_reference_wipes_the_key(void **state)
{
	struct pod *a = pod_of("a", "web");
	struct cert *mine;

	(void)state;
	if (!secrets_watched())
		skip();
	join_and_get(a);
	mine = cert_ref(a->has);
	leave(a);
	later(LINGER_MS);
	assert_int_equal(fake_loop_live(w.loop), 0); /* the cache forgot it, we did not */
	assert_non_null(strstr(mine->key_pem, "SECRET KEY"));
	cert_unref(&mine);
	assert_null(mine);
	assert_int_equal(secrets_freed(), 0);
	cert_unref(&mine);          /* NULL is fine */
	free(mem_strdup("SECRET")); /* the watch does see */
	assert_int_equal(secrets_freed(), 1);
	secrets_watch();
}

/* --- what can be seen --- */

static const char *field(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static void the_dump_says_what_and_why_not(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");
	json_t *all, *o;

	(void)state;
	a->spec.key.type = b->spec.key.type = X509_RSA_2048;
	join(a);
	join(b);
	later(0);
	all = cert_cache_dump(w.cache);
	o = json_array_get(all, 0);
	assert_int_equal(json_array_size(all), 1);
	assert_string_equal(field(o, "spiffe_id"), "spiffe://td/ns/demo/sa/web");
	assert_string_equal(field(o, "control_plane"), "istiod");
	assert_string_equal(field(o, "key_type"), "RSA 2048");
	assert_string_equal(field(o, "serial"), "");
	assert_string_equal(field(o, "not_after"), "");
	assert_string_equal(field(o, "renew_at"), "");
	assert_string_equal(field(o, "why_not"), "waiting for istiod");
	assert_int_equal(json_integer_value(json_object_get(o, "issued")), 0);
	json_decref(all);
	fake_istiod_why_not(w.istiod, "cannot connect to 1.2.3.4:15012: refused");
	all = cert_cache_dump(w.cache);
	o = json_array_get(all, 0);
	assert_string_equal(
	    field(o, "why_not"), "waiting for istiod: cannot connect to 1.2.3.4:15012: refused");
	json_decref(all);
	fake_istiod_why_not(w.istiod, NULL);
	answer();
	all = cert_cache_dump(w.cache);
	o = json_array_get(all, 0);
	assert_string_equal(field(o, "serial"), "1");
	/* 1700000000 is 2023-11-14T22:13:20Z. */
	assert_string_equal(field(o, "not_before"), "2023-11-14T22:11:20Z");
	assert_string_equal(field(o, "not_after"), "2023-11-15T22:13:20Z");
	assert_string_equal(field(o, "renew_at"), "2023-11-15T10:13:20Z");
	assert_string_equal(field(o, "why_not"), "");
	assert_int_equal(json_integer_value(json_object_get(o, "issued")), 1);
	assert_int_equal(json_array_size(json_object_get(o, "subscribers")), 2);
	assert_string_equal(
	    json_string_value(json_array_get(json_object_get(o, "subscribers"), 1)), "demo/b");
	auto_free char *text = json_dumps(all, 0);
	assert_null(strstr(text, "SECRET"));
	json_decref(all);
}

static void it_is_counted(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web"), *c = pod_of("c", "db");

	(void)state;
	assert_metric("\nagentd_certificates_cached 0\n");
	join_and_get(a);
	join(b);
	join_and_get(c);
	assert_metric("\nagentd_certificates_cached 2\n");
	assert_metric("\nagentd_certificate_cache_hits_total 1\n");
	later(12 * HOUR);
	answer();
	answer();
	assert_metric("\nagentd_certificates_cached 2\n");
	leave(c);
	later(LINGER_MS);
	assert_metric("\nagentd_certificates_cached 1\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WORLD_TEST(two_pods_of_an_account_share_one_csr),
	    WORLD_TEST(whatever_shapes_a_certificate_makes_another_one),
	    WORLD_TEST(the_request_carries_what_the_pod_asked_for),
	    WORLD_TEST(a_late_pod_gets_what_is_there),
	    WORLD_TEST(renews_when_the_ratio_of_the_life_is_left),
	    WORLD_TEST(a_short_life_counts_from_its_receipt),
	    WORLD_TEST(a_short_life_bounds_the_pause),
	    WORLD_TEST(no_renewal_is_announced_for_the_time_of_a_pause),
	    WORLD_TEST(a_ca_that_ends_first_counts),
	    WORLD_TEST(one_that_is_over_is_counted),
	    WORLD_TEST(what_is_left_out_of_its_roots_is_said),
	    WORLD_TEST(changes_are_told),
	    WORLD_TEST(renewals_are_spread_by_the_jitter),
	    WORLD_TEST(a_failed_renewal_keeps_what_is_valid),
	    WORLD_TEST(failures_back_off),
	    WORLD_TEST(back_off_is_per_entry),
	    WORLD_TEST(a_short_floor_does_not_end_the_pause),
	    WORLD_TEST(a_key_that_cannot_be_made_is_told),
	    WORLD_TEST(who_has_nothing_gets_its_key_first),
	    WORLD_TEST(leaving_gives_the_key_to_the_next),
	    WORLD_TEST(the_last_reference_wipes_the_key),
	    WORLD_TEST(the_dump_says_what_and_why_not),
	    WORLD_TEST(it_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
