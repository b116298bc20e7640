/* dns_test.c - one pod's DNS in the worker: which resolvers, the sockets from the broker,
 * names from istiod.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/fake/link_redirect.c tests/fake/rpc.c tests/unit/worker/pod/row_rig.c
 * LINK: tests/unit/worker/metrics_rig.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "mesh/traffic.h"
#include "row_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/ads/discovery.h"
#include "worker/ads/xds_proxy.h"
#include "worker/dns/keep.h"
#include "worker/pod/rows.h"
#include "worker/pods/pod.h"
#include <arpa/inet.h>
#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

static struct pod pod = {.spec.uid = {{1}}, .spec.ns = "demo", .spec.label = "demo/web"};
static struct redirect_plan plan;
static struct agent_shared shared;
static struct pod_context context = {.shared = &shared, .pod = &pod, .plan = &plan};
static const struct pod_service *const row = &pod_dns_service;
static void *d;
static bool captured;
static local_handler told;
static void *told_ctx;

/* In place of xds_proxy.c's. */
void xds_proxy_take(struct xds_proxy *x, const char *url, local_handler handler, void *ctx)
{
	(void)x;
	assert_string_equal(url, TYPE_NAME_TABLE);
	told = handler;
	told_ctx = ctx;
}

/* In place of node.c's. */
const struct node_settings *node_settings(const struct node *n)
{
	static const struct node_settings settings = {.dns_timeout_ms = 5000};

	(void)n;
	return &settings;
}

void node_set_dns_captured(struct node *n, bool is)
{
	(void)n;
	captured = is;
}

static int setup(void **state)
{
	(void)state;
	shared = (struct agent_shared){.loop = fake_loop(),
	    .link = fake_link(),
	    .dns_upstream = "10.96.0.10,fd00::10",
	    .node.cluster_domain = "cluster.local"};
	shared.names = dns_keep_new(shared.loop, shared.link);
	plan = (struct redirect_plan){
	    .mode = REDIRECT_MODE_EBPF, .rules.flags = REDIRECT_DNS | REDIRECT_DNS_ALL};
	told = NULL;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &d);
	dns_keep_free(&shared.names);
	fake_loop_end(&shared.loop);
	assert_int_equal(fake_link_live(shared.link), 0);
	link_free(&shared.link);
	metrics_clear();
	return 0;
}

static void start(void)
{
	d = row_start(row, &context);
}

static bool says(const char *key, const char *what)
{
	json_t *o = row_show(row, d, NULL);
	const json_t *at = json_object_get(o, key);
	bool yes = json_is_string(at) ? strstr(json_string_value(at), what) != NULL
				      : json_is_true(at) == !strcmp(what, "yes");

	json_decref(o);
	return yes;
}

static void servers(const char *expected)
{
	json_t *o = row_show(row, d, NULL);
	auto_free char *text = json_dumps(json_object_get(o, "servers"), JSON_COMPACT);

	assert_string_equal(text, expected);
	json_decref(o);
}

static void add_server(const char *address, uint32_t bits)
{
	struct redirect_cidr *c = &plan.rules.cidrs[plan.rules.ncidrs++];

	c->flags = REDIRECT_CIDR_DNS;
	c->bits = bits;
	if (strchr(address, ':')) {
		inet_pton(AF_INET6, address, c->address.word);
		return;
	}
	c->address.word[2] = htonl(0xffff);
	inet_pton(AF_INET, address, &c->address.word[3]);
}

/* --- which resolvers --- */

static void those_of_the_node(void **state)
{
	(void)state;
	start();
	assert_true(captured);
	servers("[\"10.96.0.10\",\"fd00::10\"]");
}

static void those_of_the_pod(void **state)
{
	(void)state;
	plan.rules.flags = REDIRECT_DNS;
	add_server("10.0.0.53", 128);
	add_server("10.0.0.0", 120); /* a range is no resolver */
	add_server("fd00::53", 128);
	start();
	servers("[\"10.0.0.53\",\"fd00::53\"]");
}

static void none_at_all(void **state)
{
	(void)state;
	shared.dns_upstream = "";
	start();
	assert_false(captured);
	assert_true(says("why_not", "dns_upstream"));
	row->netns(d, true);
	row->directory(d);
	assert_null(told);
	assert_int_equal(fake_link_live(shared.link), 0);
}

static void who_did_not_ask(void **state)
{
	(void)state;
	plan.rules.flags = 0;
	start();
	assert_false(captured);
	assert_true(says("why_not", ""));
	row_stop(row, &d);
	plan = (struct redirect_plan){.mode = REDIRECT_MODE_ISTIO_CNI, .rules.flags = REDIRECT_DNS};
	start();
	assert_false(captured);
}

/* --- the sockets --- */

static int some_socket(int type)
{
	int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 1), 0);
	return fd;
}

static void give_both(void)
{
	fake_link_listening(
	    shared.link, &pod.spec.uid, LINK_LISTEN_DNS_UDP, some_socket(SOCK_DGRAM), NULL);
	fake_link_listening(
	    shared.link, &pod.spec.uid, LINK_LISTEN_DNS_TCP, some_socket(SOCK_STREAM), NULL);
}

static void asked_for_when_the_pod_is_live(void **state)
{
	(void)state;
	start();
	assert_int_equal(fake_link_live(shared.link), 0);
	assert_true(says("answers", "no") && says("why_not", "namespace"));
	row->netns(d, true);
	give_both();
	assert_true(says("answers", "yes"));
	/* It may be in another one now: all is asked for again. */
	row->netns(d, true);
	assert_true(says("answers", "no"));
	give_both();
	assert_true(says("answers", "yes"));
	row->netns(d, false);
	assert_true(says("answers", "no") && says("why_not", "namespace"));
	assert_int_equal(fake_link_live(shared.link), 0);
	assert_int_equal(fake_loop_live(shared.loop), 0);
}

static void refused_and_asked_for_again(void **state)
{
	(void)state;
	start();
	row->netns(d, true);
	fake_link_listening(shared.link, &pod.spec.uid, LINK_LISTEN_DNS_UDP, -1, "in use");
	assert_true(says("why_not", "in use"));
	fake_loop_advance(shared.loop, 9999);
	assert_int_equal(fake_link_waiting(shared.link, LINK_LISTEN), 0);
	fake_loop_advance(shared.loop, 1);
	fake_link_listening(
	    shared.link, &pod.spec.uid, LINK_LISTEN_DNS_UDP, some_socket(SOCK_DGRAM), NULL);
	fake_link_listening(shared.link, &pod.spec.uid, LINK_LISTEN_DNS_TCP, -1, "in use");
	assert_true(says("answers", "no"));
	fake_loop_advance(shared.loop, 10000);
	give_both();
	assert_true(says("answers", "yes") && says("why_not", ""));
}

/* In the middle of everything. */
static void stopped_at_any_time(void **state)
{
	(void)state;
	for (int step = 0; step < 4; step++) {
		start();
		row->netns(d, true);
		if (step == 3)
			fake_link_listening(
			    shared.link, &pod.spec.uid, LINK_LISTEN_DNS_UDP, -1, "no");
		else if (step)
			fake_link_listening(shared.link, &pod.spec.uid, LINK_LISTEN_DNS_UDP,
			    some_socket(SOCK_DGRAM), NULL);
		if (step == 2)
			fake_link_listening(shared.link, &pod.spec.uid, LINK_LISTEN_DNS_TCP,
			    some_socket(SOCK_STREAM), NULL);
		row_stop(row, &d);
		assert_int_equal(fake_link_live(shared.link), 0);
		assert_int_equal(fake_loop_live(shared.loop), 0);
	}
}

/* --- the names --- */

static struct evbuffer *field(uint32_t number, struct evbuffer *in)
{
	struct evbuffer *out = evbuffer_new();

	pbwire_put_bytes(out, number, evbuffer_pullup(in, -1), evbuffer_get_length(in));
	evbuffer_free(in);
	return out;
}

static struct evbuffer *text(uint32_t number, const char *s)
{
	struct evbuffer *out = evbuffer_new();

	pbwire_put_bytes(out, number, s, strlen(s));
	return out;
}

static struct evbuffer *both(struct evbuffer *a, struct evbuffer *b)
{
	evbuffer_add_buffer(a, b);
	evbuffer_free(b);
	return a;
}

/* A response with one host; of the delta flavour its Any is inside of a resource. */
static int tell(const char *type, bool delta, const char *host, struct err *e)
{
	struct evbuffer *table = field(1, both(text(1, host), field(2, text(1, "240.0.0.1"))));
	struct evbuffer *resource = both(text(1, type), field(2, table));
	struct evbuffer *m;
	struct rpc_msg *msg;
	int rc;

	if (delta)
		resource = both(text(1, "version"), field(2, resource));
	m = field(2, resource);
	msg = fake_rpc_msg(evbuffer_pullup(m, -1), evbuffer_get_length(m));
	rc = told(told_ctx, msg, e);
	fake_rpc_msg_free(&msg);
	evbuffer_free(m);
	return rc;
}

static void resolves(const char *name, const char *expected)
{
	json_t *o = row_show(row, d, name);
	auto_free char *found = json_dumps(json_object_get(o, "resolved"), JSON_COMPACT);

	assert_string_equal(found, expected);
	json_decref(o);
}

static void names_come_by_the_stream(void **state)
{
	struct err e = {0};

	(void)state;
	start();
	row->directory(d);
	assert_non_null(told);
	resolves("web.example", "{\"name\":\"web.example.\",\"found\":false,\"alias\":\"\","
				"\"addresses\":[]}");
	for (int delta = 0; delta < 2; delta++) {
		assert_int_equal(
		    tell(TYPE_NAME_TABLE, delta, delta ? "web.example" : "old.example", &e), 0);
		resolves(delta ? "WEB.example" : "old.example.",
		    delta ? "{\"name\":\"web.example.\",\"found\":true,\"alias\":\"\","
			    "\"addresses\":[\"240.0.0.1\"]}"
			  : "{\"name\":\"old.example.\",\"found\":true,\"alias\":\"\","
			    "\"addresses\":[\"240.0.0.1\"]}");
	}
	/* A bad one leaves what was there. */
	assert_int_equal(tell(TYPE_PROXY_CONFIG, false, "x.example", &e), -1);
	assert_non_null(strstr(e.msg, "no NameTable"));
	resolves("old.example", "{\"name\":\"old.example.\",\"found\":false,\"alias\":\"\","
				"\"addresses\":[]}");
	resolves("web.example.demo.svc.cluster.local",
	    "{\"name\":\"web.example.demo.svc.cluster.local.\",\"found\":true,"
	    "\"alias\":\"web.example.\",\"addresses\":[\"240.0.0.1\"]}");
}

/* A worker begins with what the last one had. */
static void stale_until_istiod_speaks(void **state)
{
	struct err e = {0};

	(void)state;
	start();
	row->directory(d);
	assert_true(says("stale", "no"));
	assert_int_equal(row->count(d), 0);
	assert_int_equal(tell(TYPE_NAME_TABLE, false, "web.example", &e), 0);
	row_stop(row, &d);

	start();
	assert_true(says("stale", "yes"));
	assert_int_equal(row->count(d), 1);
	resolves("web.example", "{\"name\":\"web.example.\",\"found\":true,\"alias\":\"\","
				"\"addresses\":[\"240.0.0.1\"]}");
	row->directory(d);
	assert_int_equal(tell(TYPE_NAME_TABLE, false, "web.example", &e), 0);
	assert_true(says("stale", "no"));
	row_stop(row, &d);
	/* One that is not captured any more has none to be stale. */
	plan.rules.flags = 0;
	start();
	assert_true(says("stale", "no"));
}

/* The next pod of this uid has none of its names. */
static void forgotten_with_the_pod(void **state)
{
	struct err e = {0};

	(void)state;
	start();
	row->directory(d);
	assert_int_equal(tell(TYPE_NAME_TABLE, false, "web.example", &e), 0);
	row_stop(row, &d);
	row->forget(&shared, &pod);
	start();
	assert_true(says("stale", "no"));
	assert_int_equal(row->count(d), 0);
}

static void measured(void **state)
{
	(void)state;
	start();
	row->measure(d, "pod=\"web\"");
	assert_metric("istio_agent_dns_upstream_failures_total{pod=\"web\"} 0");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(those_of_the_node),
	    TEST(those_of_the_pod),
	    TEST(none_at_all),
	    TEST(who_did_not_ask),
	    TEST(asked_for_when_the_pod_is_live),
	    TEST(refused_and_asked_for_again),
	    TEST(stopped_at_any_time),
	    TEST(names_come_by_the_stream),
	    TEST(stale_until_istiod_speaks),
	    TEST(forgotten_with_the_pod),
	    TEST(measured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
