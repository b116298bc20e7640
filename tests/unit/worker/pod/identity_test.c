/* identity_test.c - what a machine shows istiod: the newest that is valid, what is refused comes
 * after the token, what is issued is kept; and what is said of it.
 *
 * A pair is "KEY n" and "CERT n FROM UNTIL"; its text may be bad in whole: "BAD why".
 *
 * LINK: tests/unit/worker/pod/row_rig.c tests/fake/link.c tests/fake/link_redirect.c tests/fake/link_volume.c
 * LINK: tests/fake/loop.c tests/fake/istiod.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "row_rig.h"
#include "tests/fake/istiod.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "worker/crypto/cert.h"
#include "worker/crypto/pair.h"
#include "worker/crypto/token.h"
#include "worker/pod/identity.h"
#include "worker/pod/rows.h"
#include "worker/pod/token.h"
#include "worker/pods/pod.h"
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct istiod_options options = {
    .name = "istiod", .address = "istiod:15012", .trust_domain = "td"};
static struct plane plane;
static struct agent_shared shared;
static struct pod pod;
static struct pod_context context;
static const struct pod_service *const row = &pod_identity_service;
static void *s;
static struct {
	unsigned told;
	bool token; /* is there a valid one? */
	int64_t start_s;
} world;

/* --- in place of the neighbours --- */

void pod_tell_token(struct pod_context *c, bool expired)
{
	assert_ptr_equal(c, &context);
	assert_false(expired);
	world.told++;
	assert_true(world.told < 100);
	row->token(s, false); /* as every row hears it */
}

const struct token *pod_token_valid(const struct pod_token *t, struct err *e)
{
	static struct token token = {.jwt = (char *)"a token", .expires = 10};

	(void)t;
	if (world.token)
		return &token;
	err_set(e, ERR_DENIED, "no token");
	return NULL;
}

int pair_read(struct pair *p, const struct pair_text *t, const struct pair_wanted *w, struct err *e)
{
	struct pair made = {0};
	int key, cert;

	*w->begins_s = 0;
	assert_string_equal(w->ns, "demo");
	assert_string_equal(w->trust_domains, "td");
	if (!w->roots_pem)
		return err_set(e, ERR_UNAVAILABLE, "no roots");
	if (sscanf(t->key, "KEY %d", &key) != 1 ||
	    sscanf(t->chain, "CERT %d %" SCNd64 " %" SCNd64, &cert, &made.leaf.not_before,
		&made.leaf.not_after) != 3)
		return err_set(e, ERR_INVALID, "%s", t->key);
	made.leaf.not_before += world.start_s;
	made.leaf.not_after += world.start_s;
	snprintf(made.leaf.serial, sizeof(made.leaf.serial), "%d", cert);
	if (key != cert)
		return err_set(e, ERR_INVALID, "another key");
	if (made.leaf.not_after <= w->now_s)
		return err_set(e, ERR_INVALID, "expired");
	if (made.leaf.not_before > w->now_s) {
		*w->begins_s = made.leaf.not_before;
		return err_set(e, ERR_INVALID, "not yet");
	}
	made.key_pem = secret_dup(t->key);
	made.chain_pem = mem_strdup(t->chain);
	*p = made;
	return 0;
}

int pair_read_file(
    struct pair *p, const char *text, size_t size, const struct pair_wanted *w, struct err *e)
{
	const char *chain = strstr(text, "CERT");
	auto_free char *key = mem_printf("%.*s", chain ? (int)(chain - text) : (int)size, text);

	if (!chain)
		return err_set(e, ERR_INVALID, "%s", key);
	return pair_read(p, &(struct pair_text){key, chain, strlen(key), strlen(chain)}, w, e);
}

char *pair_write_file(const char *key_pem, const char *chain_pem)
{
	auto_free char *both = mem_printf("%s%s", key_pem, chain_pem);

	return secret_dup(both);
}

void pair_clear(struct pair *p)
{
	secret_free(take(p->key_pem));
	free(take(p->chain_pem));
	*p = (struct pair){0};
}

/* --- what happens --- */

static void begin(bool by_certificate)
{
	pod = (struct pod){.spec.uid = {{1}},
	    .spec.ns = "demo",
	    .spec.name = "vm",
	    .spec.sa = "web",
	    .spec.label = "demo/vm",
	    .spec.by_certificate = by_certificate};
	memset(&world, 0, sizeof(world));
	shared = (struct agent_shared){.loop = fake_loop(), .link = fake_link(), .planes = &plane};
	world.start_s = loop_now_ms(shared.loop) / 1000;
	plane.istiod = istiod_new(shared.loop, NULL, NULL, &options, 0);
	context = (struct pod_context){.shared = &shared, .plane = &plane, .pod = &pod};
	s = row_start(row, &context);
	fake_istiod_new_roots(plane.istiod, "ROOTS");
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &s);
	istiod_free(&plane.istiod);
	link_free(&shared.link);
	assert_int_equal(fake_loop_live(shared.loop), 0);
	fake_loop_end(&shared.loop);
	return 0;
}

static void file(enum link_followed what, const char *text)
{
	struct err e;
	struct link_content c = {.name = "", .data = text, .size = text ? strlen(text) : 0};

	if (!text) {
		err_set(&e, ENOENT, "not there");
		c.e = &e;
	}
	fake_link_push(shared.link, what, &pod.spec.uid, 0, &c);
}

/* NULL: not there. */
static void files(const char *key, const char *chain, const char *kept)
{
	row->directory(s);
	file(LINK_FOLLOW_KEY, key);
	file(LINK_FOLLOW_CHAIN, chain);
	file(LINK_FOLLOW_KEPT, kept);
}

static void issued(const char *key, const char *chain)
{
	struct cert c = {.refs = 1, .key_pem = (char *)key, .n = 2};
	auto_free char *both = mem_printf("%sROOTS", chain);

	c.chain_pem = both;
	c.element_size[0] = strlen(chain);
	row->certificate(s, &c, "");
}

static void shows(const char *chain)
{
	assert_string_equal(fake_istiod_presented(plane.istiod), chain);
}

static void opens_by(const char *what)
{
	struct err e = {0};
	const struct token *t = pod_identity_credential(s, &e);

	if (!t)
		return assert_non_null(strstr(e.msg, what));
	assert_string_equal(t->jwt ? t->jwt : "certificate", what);
}

static const char *said(const char *key)
{
	static char text[300];
	json_t *o = row_show(row, s, NULL);
	const json_t *v = json_object_get(json_object_get(o, "identity"), key);
	auto_free char *dump = json_dumps(v, JSON_ENCODE_ANY);

	snprintf(text, sizeof(text), "%s",
	    json_is_string(v) ? json_string_value(v)
	    : dump            ? dump
			      : "");
	json_decref(o);
	return text;
}

static void later(int64_t s_)
{
	fake_loop_advance(shared.loop, s_ * 1000);
}

/* --- the tests --- */

static void a_pod_by_token_has_its_token_alone(void **state)
{
	(void)state;
	begin(false);
	row->directory(s);
	assert_false(fake_link_follows(shared.link, LINK_FOLLOW_KEY, &pod.spec.uid, 0));
	assert_true(pod_identity_is_known(s));
	assert_null(fake_istiod_presented(plane.istiod));
	opens_by("no token");
	world.token = true;
	opens_by("a token");
	issued("KEY 1", "CERT 1 0 100");
	assert_string_equal(fake_link_identity(shared.link), "");
	assert_string_equal(said("credential"), "");
}

static void nothing_is_said_before_all_files_were(void **state)
{
	(void)state;
	begin(true);
	world.token = true;
	row->directory(s);
	file(LINK_FOLLOW_KEY, "KEY 1");
	file(LINK_FOLLOW_CHAIN, "CERT 1 0 100");
	assert_false(pod_identity_is_known(s));
	opens_by("not read yet");
	assert_int_equal(world.told, 0);
	file(LINK_FOLLOW_KEPT, NULL);
	assert_true(pod_identity_is_known(s));
	assert_true(world.told > 0);
	shows("CERT 1 0 100");
	opens_by("a token"); /* along with it */
	world.token = false;
	opens_by("certificate");
	assert_string_equal(said("credential"), "provisioned certificate");
}

static void the_newest_valid_one_is_shown(void **state)
{
	(void)state;
	begin(true);
	files("KEY 1", "CERT 1 -50 100", "KEY 2CERT 2 -20 50");
	shows("CERT 2 -20 50");
	issued("KEY 3", "CERT 3 -10 20");
	shows("CERT 3 -10 20");
	later(20); /* it ends: the newest of the others */
	shows("CERT 2 -20 50");
	file(LINK_FOLLOW_CHAIN, "CERT 4 10 100"); /* root replaces the pair, file by file */
	shows("CERT 2 -20 50");
	assert_non_null(strstr(said("refused"), "another key"));
	file(LINK_FOLLOW_KEY, "KEY 4");
	shows("CERT 4 10 100");
}

static void of_two_that_begin_at_once_the_later_is_newer(void **state)
{
	(void)state;
	begin(true);
	files("KEY 1", "CERT 1 0 100", NULL);
	issued("KEY 2", "CERT 2 0 100");
	shows("CERT 2 0 100");
	file(LINK_FOLLOW_KEPT, "KEY 2CERT 2 0 100"); /* the same */
	assert_string_equal(said("credential"), "issued certificate");
}

static void one_of_tomorrow_is_shown_tomorrow(void **state)
{
	(void)state;
	begin(true);
	world.token = true;
	files("KEY 1", "CERT 1 60 100", NULL);
	shows("");
	opens_by("a token");
	later(60);
	shows("CERT 1 60 100");
}

static void an_expired_one_is_never_shown(void **state)
{
	(void)state;
	begin(true);
	files("KEY 1", "CERT 1 -50 10", NULL);
	later(10);
	shows("");
	opens_by("locked out");
	assert_non_null(strstr(said("why_not"), "locked out"));
	world.token = true;
	row->token(s, false);
	opens_by("a token");
	assert_string_equal(said("why_not"), "");
}

/* Whoever looks in time brings a token. */
static void the_end_is_told_before(void **state)
{
	(void)state;
	begin(true);
	files("KEY 1", "CERT 1 0 4800", NULL);
	later(4200);
	assert_string_equal(said("why_not"), "");
	later(1);
	assert_string_equal(
	    said("why_not"), "locked out in 9 min, unless it is renewed or gets a token");
	shows("CERT 1 0 4800");
	world.token = true;
	assert_string_equal(said("why_not"), "");
}

enum { AN_HOUR = 3600, A_DAY = 24 * AN_HOUR };

/* Back an hour, forward 25: what is over by the clock is never shown, and not lost either. */
static void the_clock_is_set(void **state)
{
	unsigned told;

	(void)state;
	begin(true);
	files("KEY 1", "CERT 1 -60 86340", "KEY 2CERT 2 -43200 43200");
	shows("CERT 1 -60 86340");
	fake_loop_wall_step(shared.loop, -AN_HOUR * 1000LL);
	shows("CERT 1 -60 86340"); /* it was good, and istiod's clock decides */
	told = world.told;
	fake_loop_wall_step(shared.loop, (A_DAY + 2 * AN_HOUR) * 1000LL); /* 25 h ahead */
	shows("");
	opens_by("locked out");
	later(A_DAY); /* no loop */
	assert_int_equal(world.told, told + 1);
	fake_loop_wall_step(shared.loop, -(2 * A_DAY + AN_HOUR) * 1000LL); /* right again */
	shows("CERT 1 -60 86340");
	opens_by("certificate");
	assert_string_equal(said("why_not"), "");
}

static void what_is_issued_is_kept(void **state)
{
	struct err e;

	(void)state;
	begin(true);
	world.token = true;
	files(NULL, NULL, NULL);
	assert_string_equal(said("off_until"), "1970-01-01T00:00:10Z"); /* the token's end */
	issued("KEY 1", "CERT 1 0 100");
	assert_string_equal(fake_link_identity(shared.link), "KEY 1CERT 1 0 100");
	fake_link_identity_done(shared.link, &pod.spec.uid, ENOSPC, "No space left on device");
	assert_non_null(strstr(said("why_not"), "No space left on device"));
	assert_true(row->troubles(s, &e) && strstr(e.msg, "No space left on device"));
	shows("CERT 1 0 100"); /* it is good all the same */
	later(1);
	fake_link_identity_done(shared.link, &pod.spec.uid, EAGAIN, "many at once");
	assert_false(row->troubles(s, &e)); /* a moment's */
	later(2);                           /* 1.2 s at most */
	fake_link_identity_done(shared.link, &pod.spec.uid, 0, NULL);
	assert_string_equal(said("why_not"), "");
	assert_false(row->troubles(s, &e));
	later(50);
	file(LINK_FOLLOW_KEPT, "KEY 1CERT 1 0 100");
	assert_string_not_equal(said("off_until"), "1970-01-01T00:00:10Z");
	issued("KEY 1", "CERT 1 0 100"); /* told again */
	issued("KEY 2", "CERT 2 10 100");
	assert_string_equal(fake_link_identity(shared.link), "KEY 2CERT 2 10 100");
	fake_link_identity_done(shared.link, &pod.spec.uid, 0, NULL);
}

static void a_refused_one_comes_after_the_token(void **state)
{
	(void)state;
	begin(true);
	world.token = true;
	files("KEY 1", "CERT 1 -50 100", "KEY 2CERT 2 -20 100");
	fake_istiod_refuse_certificate(plane.istiod);
	shows("CERT 1 -50 100"); /* another certificate comes before the token */
	assert_true(pod_identity_wants_new(s));
	fake_istiod_refuse_certificate(plane.istiod);
	shows("");
	opens_by("a token");
	assert_non_null(strstr(said("why_not"), "refuses the certificate"));
	world.token = false;
	row->token(s, true);
	shows("CERT 2 -20 100"); /* nothing else is left */
	assert_non_null(strstr(said("why_not"), "locked out"));
}

/* Else each would cost a certificate. */
static void a_new_one_is_asked_for_once(void **state)
{
	(void)state;
	begin(true);
	world.token = true;
	files("KEY 1", "CERT 1 -50 100", NULL);
	fake_istiod_refuse_certificate(plane.istiod);
	assert_true(pod_identity_wants_new(s));
	issued("KEY 2", "CERT 2 -20 100");
	fake_link_identity_done(shared.link, &pod.spec.uid, 0, NULL);
	shows("CERT 2 -20 100");
	assert_false(pod_identity_wants_new(s));
	fake_istiod_refuse_certificate(plane.istiod);
	assert_false(pod_identity_wants_new(s));
	shows("");
}

static void new_roots_make_all_good_again(void **state)
{
	(void)state;
	begin(true);
	world.token = true;
	files("KEY 1", "CERT 1 -50 100", NULL);
	fake_istiod_refuse_certificate(plane.istiod);
	shows("");
	fake_istiod_new_roots(plane.istiod, "OTHER ROOTS");
	shows("CERT 1 -50 100");
}

static void a_bad_file_is_named(void **state)
{
	struct err e;
	const struct link_content c = {.name = "", .e = &e};

	(void)state;
	begin(true);
	files(NULL, NULL, "BAD: torn");
	assert_non_null(strstr(said("refused"), "\"kept certificate\": \"BAD: torn\""));
	err_set(&e, EACCES, "is a key that others than root can read");
	fake_link_push(shared.link, LINK_FOLLOW_KEY, &pod.spec.uid, 0, &c);
	assert_non_null(strstr(said("refused"), "\"provisioned certificate\": \"is a key that"));
	assert_string_equal(said("credential"), "none");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_pod_by_token_has_its_token_alone),
	    TEST(nothing_is_said_before_all_files_were),
	    TEST(the_newest_valid_one_is_shown),
	    TEST(of_two_that_begin_at_once_the_later_is_newer),
	    TEST(one_of_tomorrow_is_shown_tomorrow),
	    TEST(an_expired_one_is_never_shown),
	    TEST(the_end_is_told_before),
	    TEST(the_clock_is_set),
	    TEST(what_is_issued_is_kept),
	    TEST(a_refused_one_comes_after_the_token),
	    TEST(a_new_one_is_asked_for_once),
	    TEST(new_roots_make_all_good_again),
	    TEST(a_bad_file_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
