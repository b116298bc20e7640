/* pcds_test.c - trust anchors out of a response, of either flavour, or a reason why not.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/x509.c
 */
#include "base/pbwire.h"
#include "common/err.h"
#include "common/mem.h"
#include "tests/fake/rpc.h"
#include "worker/ads/discovery.h"
#include "worker/ads/pcds.h"
#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct evbuffer *buffer(void)
{
	return evbuffer_new();
}

/* Field `number` of `out` becomes the content of `in`, which goes. */
static void put(struct evbuffer *out, uint32_t number, struct evbuffer *in)
{
	pbwire_put_bytes(out, number, evbuffer_pullup(in, -1), evbuffer_get_length(in));
	evbuffer_free(in);
}

static void put_text(struct evbuffer *out, uint32_t number, const char *text)
{
	pbwire_put_bytes(out, number, text, strlen(text));
}

static struct evbuffer *config(unsigned n, const char *const *pems)
{
	struct evbuffer *c = buffer();

	put_text(c, 1, "some other field");
	pbwire_put_varint(c, 34, 7); /* not what it should be: not read */
	for (unsigned i = 0; i < n; i++)
		put_text(c, 34, pems[i]);
	return c;
}

static struct evbuffer *any_of(const char *type, struct evbuffer *value)
{
	struct evbuffer *any = buffer();

	put_text(any, 1, type);
	put(any, 2, value);
	return any;
}

/* The resource of a whole response; goes. */
static struct evbuffer *response(enum discovery_flavour f, struct evbuffer *any)
{
	struct evbuffer *m = buffer(), *r;

	put_text(m, 4, TYPE_PROXY_CONFIG);
	if (f == DISCOVERY_SOTW) {
		put(m, 2, any);
		return m;
	}
	r = buffer();
	put_text(r, 3, "name");
	put_text(r, 1, "version");
	put(r, 2, any);
	put(m, 2, r);
	return m;
}

static char note[ROOTS_NOTE_SIZE];

static char *read_it(struct evbuffer *m, struct err *e)
{
	struct rpc_msg *msg = fake_rpc_msg(evbuffer_pullup(m, -1), evbuffer_get_length(m));
	char *got = pcds_read(msg, note, e);

	fake_rpc_msg_free(&msg);
	evbuffer_free(m);
	return got;
}

static void anchors_of_both_flavours(void **state)
{
	static const char *const pems[] = {"ROOT one", "ROOT two"};

	(void)state;
	for (int f = DISCOVERY_SOTW; f <= DISCOVERY_DELTA; f++)
		for (unsigned n = 0; n < 3; n++) {
			struct err e = {0};
			struct evbuffer *m =
			    response(f, any_of(TYPE_PROXY_CONFIG, config(n, pems)));
			auto_free char *got = read_it(m, &e);

			assert_non_null(got);
			assert_string_equal(got, n == 0   ? ""
						 : n == 1 ? "ROOT one\n"
							  : "ROOT one\nROOT two\n");
		}
}

/* istiod's first resource counts (istio-agent.md 0.4). */
static void only_the_first_resource(void **state)
{
	static const char *const one[] = {"ROOT one"}, *const bad[] = {"garbage"};
	struct evbuffer *m = response(DISCOVERY_SOTW, any_of(TYPE_PROXY_CONFIG, config(1, one)));
	struct err e = {0};

	(void)state;
	put(m, 2, any_of(TYPE_PROXY_CONFIG, config(1, bad)));
	auto_free char *got = read_it(m, &e);
	assert_string_equal(got, "ROOT one\n");
}

/* A message without any field is not on the wire at all. */
static void an_empty_config_has_none(void **state)
{
	struct evbuffer *any = buffer();
	struct err e = {0};

	(void)state;
	put_text(any, 1, TYPE_PROXY_CONFIG);
	auto_free char *got = read_it(response(DISCOVERY_DELTA, any), &e);
	assert_string_equal(got, "");
}

static void refused(struct evbuffer *m, const char *expected)
{
	struct err e = {0};

	assert_null(read_it(m, &e));
	if (!strstr(e.msg, expected))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, expected);
}

/* An old set is better than none, and a good anchor than an old set. */
static void what_is_no_anchor_is_left_out_and_named(void **state)
{
	static const char *const pems[] = {"garbage", "ROOT one", "ROOT of ODD ones"};
	struct err e = {0};

	(void)state;
	auto_free char *got =
	    read_it(response(DISCOVERY_SOTW, any_of(TYPE_PROXY_CONFIG, config(3, pems))), &e);
	assert_string_equal(got, "ROOT one\nROOT of ODD ones\n");
	assert_string_equal(note, "trust anchor 1: not PEM; trust anchor 3: block 2 is left out");
	auto_free char *fine =
	    read_it(response(DISCOVERY_SOTW, any_of(TYPE_PROXY_CONFIG, config(1, pems + 1))), &e);
	assert_string_equal(fine, "ROOT one\n");
	assert_string_equal(note, "");
}

static void what_has_no_anchor_is_refused_whole(void **state)
{
	static const char *const bad[] = {"words", "garbage"};
	struct evbuffer *broken = buffer(), *empty = buffer();

	(void)state;
	evbuffer_add(broken, "\xff\xff", 2);
	for (int f = DISCOVERY_SOTW; f <= DISCOVERY_DELTA; f++) {
		refused(response(f, any_of(TYPE_PROXY_CONFIG, config(2, bad))),
		    "trust anchor 1: not PEM; trust anchor 2: not PEM");
		refused(response(f, any_of(TYPE_CLUSTER, config(1, bad))), "no ProxyConfig");
	}
	refused(response(DISCOVERY_SOTW, any_of(TYPE_PROXY_CONFIG, broken)), "malformed");
	pbwire_put_varint(empty, 2, 1);
	refused(empty, "no ProxyConfig");
}

static void it_is_bounded(void **state)
{
	const char *many[65];
	auto_free char *big = mem_zalloc(PCDS_SIZE_MAX + 1);
	const char *half[] = {big, big};
	struct err e = {0};

	(void)state;
	for (unsigned i = 0; i < 65; i++)
		many[i] = "ROOT";
	auto_free char *all =
	    read_it(response(DISCOVERY_SOTW, any_of(TYPE_PROXY_CONFIG, config(64, many))), &e);
	assert_int_equal(strlen(all), 64 * 5);
	refused(response(DISCOVERY_SOTW, any_of(TYPE_PROXY_CONFIG, config(65, many))),
	    "more than 64 trust anchors");
	memset(big, 'x', PCDS_SIZE_MAX / 2);
	memcpy(big, "ROOT", 4);
	auto_free char *most =
	    read_it(response(DISCOVERY_SOTW, any_of(TYPE_PROXY_CONFIG, config(2, half))), &e);
	assert_non_null(most);
	memset(big, 'x', PCDS_SIZE_MAX / 2 + 1);
	memcpy(big, "ROOT", 4);
	refused(
	    response(DISCOVERY_SOTW, any_of(TYPE_PROXY_CONFIG, config(2, half))), "262144 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(anchors_of_both_flavours),
	    cmocka_unit_test(only_the_first_resource),
	    cmocka_unit_test(an_empty_config_has_none),
	    cmocka_unit_test(what_is_no_anchor_is_left_out_and_named),
	    cmocka_unit_test(what_has_no_anchor_is_refused_whole),
	    cmocka_unit_test(it_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
