/* ads_test.c - the proxy of a pod's ADS stream: what it is made with, offered, told and asked.
 *
 * LINK: tests/unit/worker/pod/row_rig.c tests/unit/worker/metrics_rig.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "row_rig.h"
#include "tests/unit/worker/ads/extension.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/ads/wasm.h"
#include "worker/ads/xds_proxy.h"
#include "worker/pod/identity.h"
#include "worker/pod/rows.h"
#include "worker/pod/server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct plane plane;
static struct pod_context context = {.plane = &plane};
static const struct pod_service *const row = &pod_ads_service;
static void *s;

static struct {
	struct xds_owner owner;
	struct limits *limits;
	unsigned tokens;
	unsigned progress;
	bool freed, connected;
	enum xds_stream stream;
	struct ads_wasm wasm;
} world;

/* --- in place of the neighbours --- */

static struct xds_proxy *const proxy = (struct xds_proxy *)&world;
static struct limits *const limits = (struct limits *)&world.limits;
static const struct token *const valid = (const struct token *)&world.owner;

struct xds_proxy *xds_proxy_new(
    const struct pod *p, const struct node *n, struct istiod *i, const struct xds_owner *owner)
{
	(void)p;
	(void)n;
	(void)i;
	world.owner = *owner;
	return proxy;
}

void xds_proxy_limit(struct xds_proxy *x, struct limits *l)
{
	assert_ptr_equal(x, proxy);
	world.limits = l;
}

enum xds_stream xds_proxy_stream(const struct xds_proxy *x, const char **why)
{
	assert_ptr_equal(x, proxy);
	*why = "why";
	return world.stream;
}

size_t xds_proxy_queued(const struct xds_proxy *x)
{
	assert_ptr_equal(x, proxy);
	return 55;
}

void xds_proxy_free(struct xds_proxy **x)
{
	world.freed = *x != NULL;
	*x = NULL;
}

bool xds_proxy_incoming(struct xds_proxy *x, struct rpc_stream *st, const char *method)
{
	(void)st;
	assert_ptr_equal(x, proxy);
	return !strcmp(method, "ours");
}

void xds_proxy_token_changed(struct xds_proxy *x)
{
	assert_ptr_equal(x, proxy);
	world.tokens++;
}

bool xds_proxy_connected(const struct xds_proxy *x)
{
	assert_ptr_equal(x, proxy);
	return world.connected;
}

unsigned xds_proxy_refused(const struct xds_proxy *x)
{
	assert_ptr_equal(x, proxy);
	return 2;
}

enum served xds_proxy_served(const struct xds_proxy *x, struct err *why)
{
	assert_ptr_equal(x, proxy);
	err_set(why, ERR_DENIED, "refused");
	return SERVED_NO;
}

json_t *xds_proxy_dump(const struct xds_proxy *x)
{
	assert_ptr_equal(x, proxy);
	return json_string("dumped");
}

const struct ads_wasm *xds_proxy_wasm(const struct xds_proxy *x)
{
	assert_ptr_equal(x, proxy);
	return &world.wasm;
}

struct limits *pod_server_limits(const struct pod_server *server)
{
	(void)server;
	return limits;
}

const struct token *pod_identity_credential(const struct pod_identity *i, struct err *e)
{
	(void)e;
	assert_ptr_equal(i, context.identity);
	return valid;
}

void pod_tell_progress(struct pod_context *c)
{
	assert_ptr_equal(c, &context);
	world.progress++;
}

/* --- the tests --- */

/* istiod sends a filter of this name, whose module is remote. */
static void has_filter(const char *name)
{
	struct evbuffer *filter = wasm_of(remote_at("_", ""), evbuffer_new(), evbuffer_new());
	struct evbuffer *b = wrapped(2, any(TYPE_EXTENSION, extension(name, HTTP_WASM, filter)));
	struct evbuffer *out = evbuffer_new();
	struct iovec whole = {evbuffer_pullup(b, -1), evbuffer_get_length(b)};
	struct pbwire msg;
	struct err e;

	pbwire_init(&msg, &whole, 1);
	assert_int_equal(ads_wasm_response(&world.wasm, DISCOVERY_SOTW, msg, out, &e), 1);
	evbuffer_free(b);
	evbuffer_free(out);
	world.owner.plugins(world.owner.ctx);
}

static int setup(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	context.ads = NULL;
	s = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &s);
	return 0;
}

static void nothing_before_the_directory(void **state)
{
	int64_t in_use[LIMIT_END] = {[LIMIT_QUEUED] = -1};
	struct err why;
	json_t *o = row_show(row, s, NULL);

	(void)state;
	row->token(s, false);
	row->uses(s, in_use);
	assert_null(context.ads);
	assert_int_equal(world.tokens, 0);
	assert_int_equal(in_use[LIMIT_QUEUED], -1);
	assert_int_equal(row->count(s), 0);
	assert_int_equal(row->served(s, &why), SERVED_UNASKED);
	assert_int_equal(json_object_size(o), 0);
	json_decref(o);
}

static void made_with_token_and_limits_and_offered(void **state)
{
	(void)state;
	row->directory(s);
	assert_ptr_equal(context.ads, proxy);
	assert_ptr_equal(world.limits, limits);
	context.identity = (struct pod_identity *)&world.tokens;
	assert_ptr_equal(world.owner.token(world.owner.ctx, NULL), valid);
}

/* What Envoy was given it keeps. */
static void an_expired_token_is_no_news(void **state)
{
	(void)state;
	row->directory(s);
	row->token(s, true);
	assert_int_equal(world.tokens, 0);
	row->token(s, false);
	assert_int_equal(world.tokens, 1);
}

/* Nothing is said where all is well; else on all pages, and the pod is not served in full. */
static void wasm_filters_are_named(void **state)
{
	json_t *o = json_object(), *dumped;
	const struct err *why;

	(void)state;
	row->dump(s, o);
	row->directory(s);
	row->dump(s, o);
	assert_int_equal(json_object_size(o), 0);
	assert_int_equal(row->progress(s, &why), POD_FINE);
	has_filter("demo.auth");
	assert_int_equal(row->progress(s, &why), POD_DEGRADED);
	assert_non_null(strstr(why->msg, "Wasm filter demo.auth: its module is remote"));
	assert_int_equal(world.progress, 1);
	row->dump(s, o);
	dumped = ads_wasm_dump(&world.wasm);
	assert_true(json_equal(json_object_get(o, "remote_wasm"), dumped));
	ads_wasm_clear(&world.wasm);
	world.owner.plugins(world.owner.ctx);
	assert_int_equal(row->progress(s, &why), POD_FINE);
	json_decref(o);
	json_decref(dumped);
}

static void asked_and_looked_at(void **state)
{
	int64_t in_use[LIMIT_END] = {0};
	struct err why;
	json_t *o;

	(void)state;
	row->directory(s);
	assert_int_equal(row->served(s, &why), SERVED_NO);
	assert_string_equal(why.msg, "refused");
	assert_true(row->call(s, NULL, "ours"));
	assert_false(row->call(s, NULL, "another"));
	row->uses(s, in_use);
	assert_int_equal(in_use[LIMIT_QUEUED], 55);
	assert_int_equal(row->count(s), 0);
	world.connected = true;
	assert_int_equal(row->count(s), 1);
	o = row_show(row, s, NULL);
	assert_string_equal(json_string_value(json_object_get(o, "ads")), "dumped");
	json_decref(o);
	row_stop(row, &s);
	assert_true(world.freed);
}

static void what_envoy_refuses_is_a_gauge(void **state)
{
	(void)state;
	row->measure(s, "pod=\"web\""); /* nothing is known before the directory */
	row->directory(s);
	has_filter("demo.auth");
	row->measure(s, "pod=\"db\"");
	assert_metric("agentd_xds_refused_types{pod=\"db\"} 2\n");
	assert_metric("agentd_xds_remote_wasm{pod=\"db\",policy=\"closed\"} 1\n");
	assert_metric("agentd_xds_remote_wasm{pod=\"db\",policy=\"open\"} 0\n");
	assert_false(metrics_say("web"));
	metrics_clear();
	ads_wasm_clear(&world.wasm);
}

/* What istiod is away for is nobody's loss; what it refuses is. */
static void what_the_pod_has_of_it(void **state)
{
	static const enum pod_has of[] = {[XDS_NONE] = POD_AWAY,
	    [XDS_OPENS] = POD_WAITS,
	    [XDS_SERVED] = POD_HAS,
	    [XDS_HELD] = POD_HAS,
	    [XDS_REFUSED] = POD_LACKS};
	const char *why = "";

	(void)state;
	assert_int_equal(row->has(s, &why), POD_WAITS); /* no directory */
	row->directory(s);
	for (int i = XDS_NONE; i <= XDS_REFUSED; i++) {
		world.stream = (enum xds_stream)i;
		assert_int_equal(row->has(s, &why), of[i]);
	}
	assert_string_equal(why, "why");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(nothing_before_the_directory),
	    TEST(made_with_token_and_limits_and_offered),
	    TEST(an_expired_token_is_no_news),
	    TEST(wasm_filters_are_named),
	    TEST(asked_and_looked_at),
	    TEST(what_envoy_refuses_is_a_gauge),
	    TEST(what_the_pod_has_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
