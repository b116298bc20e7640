/* rotation_test.c - the CA's states, one step a time, by replicas whose clocks differ, who race,
 * and who find their Secret emptied, broken or gone: at no moment does an API server see a leaf
 * that its caBundle does not trust.
 *
 * An API server stands in the middle: a Secret with a version, two caBundles, and a check of each
 * replica's leaf with OpenSSL's own verifier.
 */
#include "common/mem.h"
#include "common/secret.h"
#include "injector/ca/rotation.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* after the four above */
#include <cmocka.h>

enum { HOUR = 3600, DAY = 86400, BUNDLES = 2 };
static const int64_t START = 1800000000;
#define SERVICE "agentd-injector.agentd-system.svc"

/* --- a cluster: what the API server keeps --- */

static struct {
	struct rotation_data data;
	bool gone, bundles_unread;
	unsigned version;
	char *bundle[BUNDLES];
	int64_t now;
} cluster;

static void copy_data(struct rotation_data *to, const struct rotation_data *from)
{
	rotation_data_clear(to);
	for (unsigned i = 0; i < ROTATION_KEYS; i++)
		to->text[i] = secret_dup(from->text[i]);
}

static void set(enum rotation_key key, const char *text)
{
	secret_free(cluster.data.text[key]);
	cluster.data.text[key] = secret_dup(text);
	cluster.version++;
}

static const char *get(enum rotation_key key)
{
	return cluster.data.text[key];
}

static void set_bundle(unsigned i, const char *text)
{
	free(cluster.bundle[i]);
	cluster.bundle[i] = mem_strdup(text);
}

/* --- a replica --- */

struct replica {
	struct rotation *r;
	int64_t ahead;
	bool leaf_trusted;
	struct rotation_plan plan; /* of the last look */
	unsigned version;          /* that was read */
};
static struct replica a, b;

static void look(struct replica *x)
{
	const char *const bundles[] = {cluster.bundle[0], cluster.bundle[1]};
	struct rotation_seen seen = {.data = cluster.gone ? NULL : &cluster.data,
	    .bundles = bundles,
	    .n_bundles = cluster.bundles_unread ? 0 : BUNDLES,
	    .now_s = cluster.now + x->ahead};

	rotation_plan_clear(&x->plan);
	x->version = cluster.version;
	rotation_look(x->r, &seen, &x->plan);
	assert_int_equal(ERR_peek_error(), 0);
	if (!cluster.bundles_unread)
		x->leaf_trusted = x->plan.trusted;
}

/* False: another replica was there first. */
static bool put(struct replica *x)
{
	if (x->version != cluster.version)
		return false;
	copy_data(&cluster.data, &x->plan.data);
	cluster.version++;
	return true;
}

/* True: something was changed. */
static bool mend(struct replica *x)
{
	bool changed = false;

	for (unsigned i = 0; i < BUNDLES && !cluster.bundles_unread; i++) {
		auto_free char *text = bundle_mend(cluster.bundle[i], &x->plan.want);

		if (text)
			set_bundle(i, text);
		changed |= text != NULL;
	}
	return changed;
}

/* As the program does it each 10 s: until nothing is to be written. */
static void rest(struct replica *x)
{
	for (unsigned i = 0; i < 8; i++) {
		bool changed;

		look(x);
		changed = x->plan.put && put(x);
		changed |= !changed && mend(x);
		if (!changed)
			return;
	}
	fail_msg("it never comes to rest: %s", x->plan.step);
}

static X509 *read_cert(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);

	BIO_free(bio);
	return cert;
}

/* As Go's verifier: the roots of a caBundle, the service's name, the purpose, its own clock. */
static bool admits(const char *bundle, const char *leaf)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	BIO *bio = BIO_new_mem_buf(bundle, -1);
	X509 *cert = read_cert(leaf), *root;
	bool ok;

	while ((root = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL) {
		X509_STORE_add_cert(store, root);
		X509_free(root);
	}
	X509_STORE_CTX_init(ctx, store, cert, NULL);
	X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(ctx), cluster.now);
	X509_VERIFY_PARAM_set1_host(X509_STORE_CTX_get0_param(ctx), SERVICE, 0);
	X509_STORE_CTX_set_purpose(ctx, X509_PURPOSE_SSL_SERVER);
	ok = X509_verify_cert(ctx) == 1;
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	X509_free(cert);
	BIO_free(bio);
	ERR_clear_error();
	return ok;
}

/* What is ready is trusted, whatever others have done meanwhile. */
static void check(const struct replica *x)
{
	const char *leaf = rotation_leaf(x->r)->crt;

	assert_true(x->leaf_trusted);
	for (unsigned i = 0; i < BUNDLES; i++)
		if (!admits(cluster.bundle[i], leaf))
			fail_msg("an admission fails: step %s", x->plan.step);
}

static void run(int64_t seconds)
{
	int64_t end = cluster.now + seconds, step = seconds > DAY / 2 ? HOUR : HOUR / 4;

	while (cluster.now < end) {
		cluster.now += end - cluster.now < step ? end - cluster.now : step;
		check(&a);
		rest(&a);
		check(&b);
		rest(&b);
		check(&a);
	}
}

static int setup(void **state)
{
	(void)state;
	rotation_data_clear(&cluster.data);
	cluster.gone = cluster.bundles_unread = false;
	cluster.now = START;
	set_bundle(0, "");
	set_bundle(1, "");
	a = (struct replica){.r = rotation_new(SERVICE)};
	b = (struct replica){.r = rotation_new(SERVICE)};
	return 0;
}

static void end_replica(struct replica *x)
{
	rotation_plan_clear(&x->plan);
	rotation_free(&x->r);
}

static int teardown(void **state)
{
	(void)state;
	end_replica(&a);
	end_replica(&b);
	rotation_data_clear(&cluster.data);
	for (unsigned i = 0; i < BUNDLES; i++)
		free(take(cluster.bundle[i]));
	return 0;
}

static void begin(void)
{
	rest(&a);
	rest(&b);
	check(&a);
	check(&b);
	assert_int_equal(a.plan.state, ROTATION_STEADY);
}

/* To the second in which a rotation is due; nobody is asked anything on the way. */
static void wait_for_period(void)
{
	begin();
	cluster.now += ROTATION_PERIOD_S -
		       (cluster.now - strtoll(get(ROTATION_CA_SINCE), NULL, 10)) - HOUR / 4;
	rest(&a);
	rest(&b);
}

static void again(struct replica *x)
{
	end_replica(x);
	*x = (struct replica){.r = rotation_new(SERVICE), .ahead = x->ahead};
}

static unsigned certificates(const char *bundle)
{
	unsigned n = 0;

	for (const char *at = bundle; (at = strstr(at, "BEGIN CERT")) != NULL; at++)
		n++;
	return n;
}

/* --- tests --- */

/* The chart makes the Secret and the configuration empty. */
static void test_first_ca(void **state)
{
	(void)state;
	look(&a);
	assert_true(a.plan.put);
	assert_null(rotation_leaf(a.r)->crt); /* it is nobody's until the Secret says so */
	assert_true(put(&a));
	look(&a);
	assert_false(a.plan.trusted); /* no caBundle has it yet */
	assert_non_null(rotation_leaf(a.r)->crt);
	begin();
	assert_int_equal(certificates(cluster.bundle[0]), 1);
	assert_string_equal(cluster.bundle[0], get(ROTATION_CA_CRT));
	assert_string_equal(cluster.bundle[0], cluster.bundle[1]);
}

static void test_two_replicas_race_for_the_first_ca(void **state)
{
	(void)state;
	look(&a);
	look(&b);
	assert_true(a.plan.put && b.plan.put);
	assert_true(put(&b));
	assert_false(put(&a));
	begin();
	assert_int_equal(certificates(cluster.bundle[0]), 1);
}

static void test_all_states(void **state)
{
	auto_free char *first = NULL, *second = NULL;

	(void)state;
	begin();
	first = mem_strdup(get(ROTATION_CA_CRT));
	run(2 * DAY);
	wait_for_period();
	assert_string_equal(get(ROTATION_CA_CRT), first);
	assert_null(get(ROTATION_NEXT_CRT));

	run(HOUR / 2);
	assert_int_equal(a.plan.state, ROTATION_ANNOUNCING);
	second = mem_strdup(get(ROTATION_NEXT_CRT));
	assert_non_null(get(ROTATION_NEXT_SINCE));
	assert_true(
	    bundle_holds(cluster.bundle[0], first) && bundle_holds(cluster.bundle[1], second));
	assert_string_equal(get(ROTATION_CA_CRT), first);
	run(HOUR / 2);
	assert_int_equal(b.plan.state, ROTATION_ANNOUNCING);

	run(HOUR);
	assert_int_equal(b.plan.state, ROTATION_SIGNING);
	assert_string_equal(get(ROTATION_CA_CRT), second);
	assert_string_equal(get(ROTATION_OLD_CRT), first);
	assert_null(get(ROTATION_NEXT_CRT));
	assert_null(get(ROTATION_NEXT_KEY));
	assert_true(
	    admits(second, rotation_leaf(a.r)->crt) && admits(second, rotation_leaf(b.r)->crt));
	run(DAY - HOUR);
	assert_true(bundle_holds(cluster.bundle[0], first));
	assert_int_equal(a.plan.state, ROTATION_SIGNING);

	run(3 * HOUR);
	assert_int_equal(a.plan.state, ROTATION_STEADY);
	assert_null(get(ROTATION_OLD_CRT));
	assert_string_equal(cluster.bundle[0], second);
	wait_for_period();
	run(2 * HOUR);
	assert_string_not_equal(get(ROTATION_CA_CRT), second);
}

/* Each replica is on its own clock, and the API server on a third one. */
static void test_clocks_differ(void **state)
{
	static const int64_t pairs[][2] = {
	    {-10 * HOUR, 10 * HOUR}, {HOUR / 2, -HOUR / 2}, {11 * HOUR, 0}};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		a.ahead = pairs[i][0];
		b.ahead = pairs[i][1];
		wait_for_period();
		cluster.now -= 12 * HOUR;
		run(2 * DAY);
		assert_int_equal(a.plan.state, ROTATION_STEADY);
	}
}

static void test_a_clock_steps(void **state)
{
	(void)state;
	begin();
	run(DAY);
	for (unsigned i = 0; i < 40; i++) {
		cluster.now += i % 2 ? 3 * DAY : -2 * DAY;
		rest(&a);
		rest(&b);
		check(&a);
		check(&b);
	}
}

static void test_a_replica_that_starts_in_each_state(void **state)
{
	(void)state;
	wait_for_period();
	for (int64_t end = cluster.now + 2 * DAY; cluster.now < end; cluster.now += HOUR) {
		rest(&a);
		again(&b);
		rest(&b);
		check(&a);
		check(&b);
	}
}

/* Both away from the start of the announcement on. */
static void test_nobody_was_there_for_long(void **state)
{
	static const int64_t away[] = {HOUR, 2 * DAY, 40 * DAY, 360 * DAY, 3L * 365 * DAY};

	(void)state;
	for (unsigned i = 0; i < sizeof(away) / sizeof(*away); i++) {
		wait_for_period();
		run(HOUR);
		cluster.now += away[i];
		again(&a);
		again(&b);
		do {
			cluster.now += HOUR;
			rest(&a);
			rest(&b);
			check(&a);
			check(&b);
		} while (a.plan.state != ROTATION_STEADY);
	}
}

/* A caBundle is emptied in each state: what is there again trusts all leaves. */
static void test_emptied_bundles(void **state)
{
	(void)state;
	wait_for_period();
	for (int64_t end = cluster.now + 2 * DAY; cluster.now < end; cluster.now += HOUR) {
		set_bundle((unsigned)(cluster.now / HOUR) % BUNDLES, "");
		look(&a);
		assert_false(a.plan.trusted);
		rest(&a);
		rest(&b);
		check(&a);
		check(&b);
	}
	assert_string_not_equal(cluster.bundle[0], "");
}

static void test_an_announcement_nobody_can_read_is_not_followed(void **state)
{
	(void)state;
	begin();
	cluster.now += ROTATION_PERIOD_S;
	look(&a);
	assert_true(a.plan.put && put(&a));
	cluster.bundles_unread = true; /* as if the right to patch were gone */
	for (unsigned i = 0; i < 20 * 24; i++, cluster.now += HOUR) {
		rest(&a);
		assert_null(get(ROTATION_NEXT_SINCE));
		assert_int_equal(a.plan.state, ROTATION_ANNOUNCING);
	}
	cluster.bundles_unread = false;
	rest(&a);
	assert_non_null(get(ROTATION_NEXT_SINCE));
	cluster.now += 2L * HOUR;
	set_bundle(1, ""); /* just when it should sign */
	look(&a);
	assert_false(a.plan.put);
	assert_int_equal(a.plan.state, ROTATION_ANNOUNCING);
	rest(&a);
	check(&a);
}

static void test_emptied_secret(void **state)
{
	auto_free char *ca = NULL;

	(void)state;
	begin();
	wait_for_period();
	run(HOUR / 2); /* announcing: all of it comes back */
	ca = mem_strdup(get(ROTATION_NEXT_CRT));
	rotation_data_clear(&cluster.data);
	cluster.version++;
	look(&b);
	assert_string_equal(b.plan.wrong, "");
	assert_true(b.plan.put);
	assert_string_equal(b.plan.step, "a replica's own data is put back");
	run(HOUR / 2);
	assert_string_equal(get(ROTATION_NEXT_CRT), ca);
	run(3 * DAY);
	assert_string_equal(get(ROTATION_CA_CRT), ca);
}

/* The Secret is deleted, then made empty again; or another CA takes its place. */
static void test_deleted_secret(void **state)
{
	auto_free char *ca = NULL;

	(void)state;
	begin();
	ca = mem_strdup(get(ROTATION_CA_CRT));
	cluster.gone = true;
	run(3 * DAY); /* leaves are renewed */
	rotation_data_clear(&cluster.data);
	cluster.gone = false;
	run(HOUR);
	assert_string_equal(get(ROTATION_CA_CRT), ca);
}

static void test_another_ca_all_of_a_sudden(void **state)
{
	struct authority *other = authority_new(START);

	(void)state;
	begin();
	rotation_data_clear(&cluster.data);
	set(ROTATION_CA_CRT, authority_crt(other));
	set(ROTATION_CA_KEY, authority_key(other));
	rest(&a);
	check(&a);
	check(&b);
	set_bundle(0, ""); /* what is in use is not in the Secret */
	rest(&a);
	check(&a);
	assert_false(admits(authority_crt(other),
	    rotation_leaf(a.r)->crt)); /* not before it was told an hour ago */
	run(2 * HOUR);
	assert_true(admits(authority_crt(other), rotation_leaf(a.r)->crt));
	assert_true(admits(authority_crt(other), rotation_leaf(b.r)->crt));
	run(2 * DAY);
	assert_string_equal(cluster.bundle[0], authority_crt(other));
	authority_free(&other);
}

/* Each key, broken in each way, in each state. */
static void test_broken_secrets(void **state)
{
	static const char *const bad[] = {NULL, "", "x", "-1", "99999999999999999999", "4000000000",
	    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
	    "-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n-----END PRIVATE KEY-----\n"};

	(void)state;
	wait_for_period();
	for (int64_t end = cluster.now + 2 * DAY; cluster.now < end; cluster.now += HOUR) {
		unsigned pick = (unsigned)(cluster.now / HOUR);

		set(pick % ROTATION_KEYS, bad[pick / ROTATION_KEYS % 8]);
		rest(&a);
		rest(&b);
		check(&a);
		check(&b);
		assert_non_null(get(ROTATION_CA_CRT));
	}
}

static void test_what_is_wrong_is_said(void **state)
{
	struct authority *other = authority_new(START),
			 *over = authority_new(START - 2 * AUTHORITY_LIFE_S);
	const struct {
		enum rotation_key key;
		const char *text, *said;
	} cases[] = {
	    {ROTATION_CA_KEY, "x", "ca.crt: no private key"},
	    {ROTATION_CA_CRT, "x", "ca.crt: no certificate"},
	    {ROTATION_CA_KEY, authority_key(other), "ca.crt: the key is another one's"},
	    {ROTATION_CA_CRT, rotation_leaf(a.r)->crt, "ca.crt: no certificate"},
	    {ROTATION_CA_SINCE, "soon", "ca.since: is no time in the past (Unix seconds)"},
	    {ROTATION_CA_SINCE, "4000000000", "ca.since: is no time in the past (Unix seconds)"},
	    {ROTATION_NEXT_CRT, authority_crt(other), "next.crt: no private key"},
	    {ROTATION_OLD_CRT, "x", "old.crt: no certificate"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		begin();
		set(cases[i].key, cases[i].text);
		look(&a);
		assert_true(a.plan.put);
		assert_string_equal(a.plan.wrong, cases[i].said);
		rest(&a);
		assert_string_equal(a.plan.wrong, "");
		check(&a);
		check(&b);
	}
	set(ROTATION_CA_CRT, authority_crt(over));
	set(ROTATION_CA_KEY, authority_key(over));
	look(&a);
	assert_string_equal(a.plan.wrong, "ca.crt: it is over");
	again(&a); /* nobody knows another one */
	begin();
	authority_free(&other);
	authority_free(&over);
}

/* A leaf is no CA, though it has a key; a CA that another one signed is not its own root. */
static void test_only_a_ca_of_its_own_is_taken(void **state)
{
	(void)state;
	begin();
	again(&b);
	rest(&b);
	set(ROTATION_CA_CRT, rotation_leaf(a.r)->crt);
	set(ROTATION_CA_KEY, rotation_leaf(a.r)->key);
	look(&b);
	assert_string_equal(b.plan.wrong, "ca.crt: the certificate is no CA's");
}

/* `form` with the certificate for each '@'. */
static char *with(const char *form, const char *crt)
{
	char *out = mem_strdup("");

	for (; *form; form++) {
		char *longer =
		    *form == '@' ? mem_printf("%s%s", out, crt) : mem_printf("%s%c", out, *form);

		free(out);
		out = longer;
	}
	return out;
}

/* What another reader may see otherwise is not what it should be, and is put right. */
static void test_a_bundle_is_its_certificates(void **state)
{
	static const char *const forms[] = {"a comment\n@", "@@", "@\n",
	    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n@",
	    "-----BEGIN CERTIFICATE-----\n@", "-----BEGIN X-----\nMAA=\n-----END X-----\n@"};
	const char *ca;

	(void)state;
	begin();
	ca = get(ROTATION_CA_CRT);
	for (unsigned i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		auto_free char *text = with(forms[i], ca);

		set_bundle(1, text);
		look(&a);
		assert_false(a.plan.trusted);
		rest(&a);
		assert_string_equal(cluster.bundle[1], ca);
	}
}

static void test_a_leaf_lives_for_a_day(void **state)
{
	const struct authority_leaf *leaf;
	unsigned signings = 0;

	(void)state;
	begin();
	leaf = rotation_leaf(a.r);
	assert_int_equal(leaf->end - leaf->signed_at, DAY);
	for (unsigned i = 0; i < 4 * 24; i++, cluster.now += HOUR) {
		rest(&a);
		check(&a);
		signings += a.plan.signed_anew;
	}
	assert_int_equal(signings, 7); /* twice a day */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_first_ca),
	    TEST(test_two_replicas_race_for_the_first_ca),
	    TEST(test_all_states),
	    TEST(test_clocks_differ),
	    TEST(test_a_clock_steps),
	    TEST(test_a_replica_that_starts_in_each_state),
	    TEST(test_nobody_was_there_for_long),
	    TEST(test_emptied_bundles),
	    TEST(test_an_announcement_nobody_can_read_is_not_followed),
	    TEST(test_emptied_secret),
	    TEST(test_deleted_secret),
	    TEST(test_another_ca_all_of_a_sudden),
	    TEST(test_broken_secrets),
	    TEST(test_what_is_wrong_is_said),
	    TEST(test_only_a_ca_of_its_own_is_taken),
	    TEST(test_a_bundle_is_its_certificates),
	    TEST(test_a_leaf_lives_for_a_day),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
