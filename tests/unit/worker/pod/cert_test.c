/* cert_test.c - when a pod subscribes, what it trusts, and what is written and told of that.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/unit/worker/pod/row_rig.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "row_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "worker/ads/discovery.h"
#include "worker/ads/pcds.h"
#include "worker/ads/xds_proxy.h"
#include "worker/certs/cert_cache.h"
#include "worker/istiod/istiod.h"
#include "worker/pod/identity.h"
#include "worker/pod/rows.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct {
	char text[128]; /* "trust, certificate, " */
	struct cert_subscriber by;
	struct cert_spec spec;
	int subscribed, unsubscribed, looks, renewed, wanted;
	bool unknown, wants_new; /* of identity.h */
	local_handler anchors;
	void *anchors_ctx;
	const char *anchors_now; /* NULL: the response is not usable */
	const char *note;        /* what of it is left out */
	int certified;
	const char *away; /* NULL: istiod is there */
} world;
static struct node_settings settings;

/* --- in place of the neighbours --- */

static void say(const char *what)
{
	strcat(world.text, what);
}

void pod_tell_trust(struct pod_context *c)
{
	(void)c;
	say("trust, ");
}

void pod_tell_certificate(struct pod_context *c, struct cert *cert, const char *why_not)
{
	(void)c;
	say(cert ? "certificate, " : why_not);
}

const char *istiod_why_not(const struct istiod *i)
{
	(void)i;
	return world.away ? world.away : "";
}

void pod_tell_progress(struct pod_context *c)
{
	(void)c;
}

void pod_set_certified(struct pod *p)
{
	p->certified = true;
	world.certified++;
}

const struct node_settings *node_settings(const struct node *n)
{
	(void)n;
	return &settings;
}

bool pod_identity_is_known(const struct pod_identity *i)
{
	(void)i;
	return !world.unknown;
}

bool pod_identity_wants_new(const struct pod_identity *i)
{
	(void)i;
	return world.wants_new;
}

void cert_renew(struct cert_sub *s)
{
	assert_ptr_equal(s, &world);
	world.renewed++;
}

void cert_wanted(struct cert_sub *s)
{
	assert_ptr_equal(s, &world);
	world.wanted++;
}

const struct token *pod_identity_credential(const struct pod_identity *i, struct err *e)
{
	(void)i;
	err_set(e, ERR_UNAVAILABLE, "no token");
	return NULL;
}

struct cert_sub *cert_subscribe(
    struct cert_cache *c, const struct cert_spec *spec, const struct cert_subscriber *by)
{
	(void)c;
	world.subscribed++;
	world.by = *by;
	world.spec = *spec;
	return (struct cert_sub *)&world;
}

void cert_unsubscribe(struct cert_sub **s)
{
	world.unsubscribed += *s != NULL;
	*s = NULL;
}

void cert_token_changed(struct cert_sub *s)
{
	assert_ptr_equal(s, &world);
	world.looks++;
}

void xds_proxy_take(struct xds_proxy *x, const char *type_url, local_handler handler, void *ctx)
{
	(void)x;
	assert_string_equal(type_url, TYPE_PROXY_CONFIG);
	world.anchors = handler;
	world.anchors_ctx = ctx;
}

char *pcds_read(const struct rpc_msg *response, char note[ROOTS_NOTE_SIZE], struct err *e)
{
	(void)response;
	snprintf(note, ROOTS_NOTE_SIZE, "%s", world.note ? world.note : "");
	if (!world.anchors_now)
		err_set(e, ERR_PROTOCOL, "not usable");
	return mem_strdup(world.anchors_now);
}

/* --- the tests --- */

static struct agent_shared shared;
static struct plane plane;
static struct pod pod;
static struct pod_context context = {.shared = &shared, .plane = &plane, .pod = &pod};
static const struct pod_service *const row = &pod_cert_service;
static void *s;

static int setup(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	settings = (struct node_settings){.ttl_s = 3600, .cert_signer = "a-signer"};
	pod = (struct pod){
	    .spec.uid = {{1}}, .spec.ns = "demo", .spec.sa = "web", .spec.label = "demo/web-0"};
	shared = (struct agent_shared){.loop = fake_loop(), .link = fake_link(), .pcds = true};
	s = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &s);
	assert_int_equal(world.unsubscribed, world.subscribed);
	link_free(&shared.link);
	metrics_clear();
	fake_loop_end(&shared.loop);
	return 0;
}

#define PEM(name) "-----BEGIN CERTIFICATE-----\n" name "\n-----END CERTIFICATE-----\n"

static struct cert *make_cert(const char *root)
{
	struct cert *c = mem_zalloc(sizeof(*c));

	c->refs = 1;
	c->root_pem = mem_strdup(root);
	return c;
}

/* The cache gives it, and keeps none. */
static void give(const char *root)
{
	struct cert *c = make_cert(root);

	world.by.changed(world.by.ctx, c, "");
	cert_unref(&c);
}

static int push_anchors(const char *now)
{
	struct err e;

	world.anchors_now = now;
	return world.anchors(world.anchors_ctx, NULL, &e);
}

static void said(const char *what)
{
	assert_string_equal(world.text, what);
	world.text[0] = '\0';
}

static const char *written(int times)
{
	assert_int_equal(fake_link_writes(shared.link, &pod.spec.uid, LINK_FILE_ROOT), times);
	return times ? fake_link_written(shared.link, &pod.spec.uid, LINK_FILE_ROOT, NULL) : "";
}

static void the_first_word_about_the_token_subscribes(void **state)
{
	struct err e;

	(void)state;
	row->directory(s);
	assert_int_equal(world.subscribed, 0);
	row->token(s, false);
	assert_int_equal(world.subscribed, 1);
	assert_string_equal(world.spec.ns, "demo");
	assert_string_equal(world.spec.sa, "web");
	assert_string_equal(world.spec.cert_signer, "a-signer");
	assert_int_equal(world.spec.ttl_s, 3600);
	assert_int_equal(world.spec.pod.bytes[0], 0); /* all pods of the account */
	assert_null(world.by.token(world.by.ctx, &e));
	row->token(s, false);
	row->token(s, true);
	assert_int_equal(world.subscribed, 1);
	assert_int_equal(world.looks, 2);
}

/* The call itself is for another row. */
static void who_calls_is_served_first(void **state)
{
	(void)state;
	assert_false(row->call(s, NULL, "/a/b"));
	row->token(s, false);
	assert_int_equal(world.wanted, 0);
	assert_false(row->call(s, NULL, "/a/b"));
	assert_int_equal(world.wanted, 1);
}

static void a_pod_may_have_its_own(void **state)
{
	(void)state;
	settings.scope_pod = true;
	row->token(s, false);
	assert_int_equal(world.spec.pod.bytes[0], 1);
}

static void what_it_shows_istiod_is_its_own(void **state)
{
	(void)state;
	pod.spec.by_certificate = true;
	world.unknown = true; /* what there is to show */
	row->token(s, false);
	assert_int_equal(world.subscribed, 0);
	world.unknown = false;
	row->token(s, false);
	assert_int_equal(world.subscribed, 1);
	assert_int_equal(world.spec.pod.bytes[0], 1);
	row->token(s, false);
	assert_int_equal(world.renewed, 0);
	world.wants_new = true;
	row->token(s, false);
	assert_int_equal(world.renewed, 1);
}

/* Roots first: the peers' certificates may be of the new one already. */
static void trust_is_written_and_told_before_the_certificate(void **state)
{
	(void)state;
	row->token(s, false);
	written(0);
	give("one\n");
	said("trust, certificate, ");
	assert_string_equal(written(1), "one\n");
	assert_null(context.roots); /* the certificate's own */
	assert_int_equal(world.certified, 1);
	give("one\n"); /* another certificate of the same root */
	said("trust, certificate, ");
	written(1);
	assert_int_equal(world.certified, 1); /* said once */
	give("two\n");
	assert_string_equal(written(2), "two\n");
	world.text[0] = '\0';
	world.by.changed(world.by.ctx, NULL, "why not");
	said("why not");
}

static void is_served(enum served expected, const char *why)
{
	struct err e = {0};

	assert_int_equal(row->served(s, &e), expected);
	assert_string_equal(e.msg, why);
}

/* The certificate ends by the clock, whether or not somebody said so. */
static void a_pod_is_served_while_its_certificate_is_valid(void **state)
{
	struct cert *c = make_cert("one\n");

	(void)state;
	c->leaf.not_after = loop_now_ms(shared.loop) / 1000 + 70;
	is_served(SERVED_UNASKED, ""); /* it has only just begun */
	fake_loop_advance(shared.loop, 9999);
	is_served(SERVED_UNASKED, "");
	world.away = "cannot connect";
	is_served(SERVED_NO, "no certificate: nothing to show istiod was read yet");
	world.away = NULL;
	fake_loop_advance(shared.loop, 1);
	is_served(SERVED_NO, "no certificate: nothing to show istiod was read yet");
	row->token(s, false);
	is_served(SERVED_NO, "no certificate: istiod has not answered yet");
	world.away = "cannot connect";
	is_served(SERVED_NO, "no certificate: cannot connect");
	world.by.changed(world.by.ctx, NULL, "istiod: PERMISSION_DENIED: no");
	is_served(SERVED_NO, "no certificate: istiod: PERMISSION_DENIED: no");
	world.by.changed(world.by.ctx, c, "");
	is_served(SERVED_YES, "");
	world.by.changed(world.by.ctx, c, "istiod: UNKNOWN: no");
	is_served(SERVED_HELD, "its certificate is not renewed: istiod: UNKNOWN: no");
	world.by.changed(world.by.ctx, NULL, "token: expired");
	is_served(SERVED_NO, "no certificate: token: expired");
	world.by.changed(world.by.ctx, c, "");
	fake_loop_advance(shared.loop, 59000);
	is_served(SERVED_YES, "");
	fake_loop_wall_step(shared.loop, 1000);
	is_served(SERVED_NO, "no certificate: cannot connect");
	cert_unref(&c);
}

/* No certificate of it; in the order of their text. */
static void anchors_join_the_roots(void **state)
{
	(void)state;
	row->directory(s);
	row->token(s, false);
	assert_int_equal(push_anchors(PEM("b")), 0); /* before there is a certificate: kept */
	written(0);
	said("");
	give(PEM("a"));
	assert_string_equal(written(1), PEM("a") PEM("b"));
	assert_string_equal(context.roots, PEM("a") PEM("b"));
	said("trust, certificate, ");
	assert_int_equal(push_anchors(PEM("c")), 0);
	said("trust, ");
	assert_string_equal(written(2), PEM("a") PEM("c"));
	assert_int_equal(push_anchors(NULL), -1); /* not usable: all stays */
	said("");
	written(2);
	assert_int_equal(push_anchors(""), 0);
	assert_string_equal(written(3), PEM("a"));
	assert_null(context.roots);
}

static void anchors_that_are_left_out_are_named(void **state)
{
	json_t *o = json_object();

	(void)state;
	row->directory(s);
	world.note = "trust anchor 2: no certificate in it";
	assert_int_equal(push_anchors(PEM("b")), 0);
	row->dump(s, o);
	assert_string_equal(json_string_value(json_object_get(o, "trust_anchors")), world.note);
	json_object_clear(o);
	world.note = NULL;
	assert_int_equal(push_anchors(PEM("b")), 0);
	row->dump(s, o);
	assert_int_equal(json_object_size(o), 0);
	json_decref(o);
}

static void without_pcds_nobody_subscribes(void **state)
{
	(void)state;
	shared.pcds = false;
	row->directory(s);
	assert_null(world.anchors);
}

/* Envoy has its roots by SDS, so the pod may start; but it is said, and repeated. */
static void a_root_that_is_not_written_is_a_problem(void **state)
{
	const struct err *why = NULL;

	(void)state;
	row->token(s, false);
	assert_int_equal(row->progress(s, &why), POD_FINE);
	give("one\n");
	assert_int_equal(row->progress(s, &why), POD_FINE); /* nobody waits for it */
	fake_link_wrote(shared.link, &pod.spec.uid, LINK_FILE_ROOT, "no room");
	assert_int_equal(row->progress(s, &why), POD_DEGRADED);
	assert_non_null(strstr(why->msg, "root-cert.pem"));
	give("two\n"); /* the newest one is written, not the one that failed */
	fake_link_wrote(shared.link, &pod.spec.uid, LINK_FILE_ROOT, "no room");
	fake_loop_advance(shared.loop, 36 * 1000);
	assert_string_equal(written(3), "two\n");
	fake_link_wrote(shared.link, &pod.spec.uid, LINK_FILE_ROOT, NULL);
	why = NULL;
	assert_int_equal(row->progress(s, &why), POD_FINE);
	assert_null(why);
	row->lost(s, 1U << LINK_FILE_BOOTSTRAP); /* another one's */
	written(3);
	row->lost(s, 1U << LINK_FILE_ROOT);
	assert_string_equal(written(4), "two\n");
}

/* A renewal that is refused takes nothing while the certificate is valid. */
static void what_the_pod_has_of_it(void **state)
{
	struct cert *c = make_cert(PEM("a"));
	const char *why;

	(void)state;
	row->directory(s);
	row->token(s, false);
	assert_int_equal(row->has(s, &why), POD_WAITS);
	world.by.changed(world.by.ctx, NULL, "");
	assert_int_equal(row->has(s, &why), POD_WAITS);
	world.by.changed(world.by.ctx, NULL, "istiod: denied");
	assert_int_equal(row->has(s, &why), POD_LACKS);
	assert_string_equal(why, "istiod: denied");
	world.by.changed(world.by.ctx, c, "istiod: denied");
	assert_int_equal(row->has(s, &why), POD_HAS);
	world.by.changed(world.by.ctx, NULL, "the certificate has expired");
	assert_int_equal(row->has(s, &why), POD_LACKS);
	cert_unref(&c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(the_first_word_about_the_token_subscribes),
	    TEST(who_calls_is_served_first),
	    TEST(a_pod_may_have_its_own),
	    TEST(what_it_shows_istiod_is_its_own),
	    TEST(trust_is_written_and_told_before_the_certificate),
	    TEST(a_pod_is_served_while_its_certificate_is_valid),
	    TEST(anchors_join_the_roots),
	    TEST(without_pcds_nobody_subscribes),
	    TEST(anchors_that_are_left_out_are_named),
	    TEST(a_root_that_is_not_written_is_a_problem),
	    TEST(what_the_pod_has_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
