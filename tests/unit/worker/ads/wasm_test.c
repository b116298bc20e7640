/* wasm_test.c - responses with extensions, and which filters are named, in both flavours.
 * LINK: tests/unit/worker/ads/envoy.c tests/fake/rpc.c tests/fake/loop.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/err.h"
#include "common/mem.h"
#include "envoy.h"
#include "extension.h"
#include "worker/ads/wasm.h"

static struct ads_wasm wasm;
static struct evbuffer *given; /* of the last response */
static struct err e;

static int setup(void **state)
{
	(void)state;
	wasm = (struct ads_wasm){0};
	given = evbuffer_new();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ads_wasm_clear(&wasm);
	evbuffer_free(given);
	return 0;
}

/* --- what istiod and Envoy say --- */

static struct evbuffer *plugin(const char *name, bool remote, uint64_t policy)
{
	struct evbuffer *code = remote ? remote_at("_", "") : wrapped(1, text(1, "/m.wasm"));

	return any(TYPE_EXTENSION,
	    extension(name, HTTP_WASM, wasm_of(code, evbuffer_new(), number(7, policy))));
}

static struct evbuffer *resource(struct evbuffer *of, enum discovery_flavour f)
{
	if (f == DISCOVERY_DELTA)
		of = fields(
		    text(3, "its name"), text(1, "v1"), wrapped(2, of), text(6, "ttl"), NULL);
	return wrapped(2, of);
}

static struct pbwire reader_of(struct evbuffer *b, struct iovec *whole)
{
	struct pbwire r;

	*whole = (struct iovec){evbuffer_pullup(b, -1), evbuffer_get_length(b)};
	pbwire_init(&r, whole, whole->iov_base ? 1 : 0);
	return r;
}

/* Takes `response`. */
static int push(struct evbuffer *response, enum discovery_flavour f)
{
	struct iovec whole;
	int rc;

	evbuffer_drain(given, evbuffer_get_length(given));
	rc = ads_wasm_response(&wasm, f, reader_of(response, &whole), given, &e);
	evbuffer_free(response);
	return rc;
}

static void push_remote(const char *name, enum discovery_flavour f)
{
	assert_int_equal(push(resource(plugin(name, true, 2), f), f), 1);
}

static void request(enum discovery_flavour f, const struct say *q)
{
	struct evbuffer *bytes = say_bytes(f, q);
	struct discovery_request read;
	struct iovec whole;
	struct pbwire msg = reader_of(bytes, &whole);

	assert_int_equal(discovery_read_request(&read, f, msg, &e), 0);
	ads_wasm_request(&wasm, f, &read, msg);
	evbuffer_free(bytes);
}
#define REQUEST(f, ...) request(f, &(struct say){__VA_ARGS__})

static void names_are(const char *expected)
{
	json_t *names = ads_wasm_dump(&wasm);
	auto_free char *all = mem_strdup("");
	const char *name;
	json_t *why;

	json_object_foreach (names, name, why) {
		auto_free char *before = take(all);

		all = mem_printf("%s%s%s", before, *before ? " " : "", name);
	}
	json_decref(names);
	assert_string_equal(all, expected);
}

/* --- responses --- */

/* One is replaced; what is around it stays where it is. */
static void a_response_keeps_all_else(void **state)
{
	(void)state;
	for (int f = DISCOVERY_SOTW; f <= DISCOVERY_DELTA; f++) {
		struct evbuffer *rbac = any(TYPE_EXTENSION, extension("r", RBAC, evbuffer_new()));
		struct evbuffer *before = fields(text(1, "version"), resource(rbac, f), NULL);
		size_t n = evbuffer_get_length(before);
		auto_free char *head = mem_dup(evbuffer_pullup(before, -1), n);
		struct evbuffer *after = text(5, "nonce");

		assert_int_equal(
		    push(fields(before, resource(plugin("a", true, 3), f), after, NULL), f), 1);
		assert_memory_equal(evbuffer_pullup(given, -1), head, n);
		n = evbuffer_get_length(given);
		assert_memory_equal(evbuffer_pullup(given, -1) + n - 5, "nonce", 5);
		assert_int_equal(evbuffer_search(given, "oci://", 6, NULL).pos, -1);
		if (f == DISCOVERY_DELTA)
			assert_int_not_equal(evbuffer_search(given, "its name", 8, NULL).pos, -1);
		names_are("a");
		assert_int_equal(push(evbuffer_new(), f), 0);
	}
}

static void what_envoy_can_have_is_not_named(void **state)
{
	(void)state;
	push_remote("a", DISCOVERY_DELTA);
	push_remote("b", DISCOVERY_DELTA);
	names_are("a b");
	assert_int_equal(
	    push(resource(plugin("a", false, 2), DISCOVERY_DELTA), DISCOVERY_DELTA), 0);
	names_are("b");
	/* istiod does not say so, but Envoy would heed it. */
	assert_int_equal(push(text(6, "b"), DISCOVERY_DELTA), 0);
	names_are("");
}

/* A later answer of the same stream need not have all that an earlier one had. */
static void a_response_without_it_changes_nothing(void **state)
{
	(void)state;
	push_remote("a", DISCOVERY_SOTW);
	push_remote("b", DISCOVERY_SOTW);
	names_are("a b");
}

static void what_is_no_extension_is_refused(void **state)
{
	struct evbuffer *bad[] = {text(2, "\xff"), wrapped(2, any(RBAC, evbuffer_new())),
	    resource(any(TYPE_EXTENSION, text(1, "a")), DISCOVERY_SOTW), number(2, 1)};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(push(bad[i], DISCOVERY_SOTW), -1);
		assert_string_equal(
		    e.msg, "resource 1 is no extension with a name and a configuration");
	}
	assert_int_equal(push(resource(evbuffer_new(), DISCOVERY_DELTA), DISCOVERY_DELTA), -1);
	names_are("");
}

static void names_are_bounded(void **state)
{
	(void)state;
	for (int i = 0; i < ADS_WASM_MAX + 10; i++) {
		char name[20];

		(void)snprintf(name, sizeof(name), "n%d", i);
		push_remote(name, DISCOVERY_DELTA);
	}
	assert_int_equal(wasm.n, ADS_WASM_MAX);
}

/* --- for how long --- */

static void delta_says_what_it_does_not_ask_for(void **state)
{
	(void)state;
	push_remote("a", DISCOVERY_DELTA);
	push_remote("b", DISCOVERY_DELTA);
	REQUEST(DISCOVERY_DELTA, .type = TYPE_CLUSTER, .drop = {"a"});
	REQUEST(DISCOVERY_DELTA, .type = TYPE_EXTENSION, .nonce = "n"); /* an ACK */
	names_are("a b");
	REQUEST(DISCOVERY_DELTA, .type = TYPE_EXTENSION, .drop = {"a", "x"});
	names_are("b");
}

static void state_of_the_world_says_what_it_asks_for(void **state)
{
	(void)state;
	push_remote("a", DISCOVERY_SOTW);
	push_remote("b", DISCOVERY_SOTW);
	REQUEST(DISCOVERY_SOTW, .type = TYPE_EXTENSION, .names = {"b", "c", "a"}, .nonce = "n");
	names_are("a b");
	REQUEST(DISCOVERY_SOTW, .type = TYPE_EXTENSION, .names = {"b"}, .nonce = "n");
	names_are("b");
	REQUEST(DISCOVERY_SOTW, .type = TYPE_EXTENSION, .nonce = "n");
	names_are("");
}

/* Envoy keeps what it has.  What it does not ask for until it has its listeners it has not. */
static void a_new_stream_says_what_is_left(void **state)
{
	(void)state;
	for (int f = DISCOVERY_SOTW; f <= DISCOVERY_DELTA; f++) {
		push_remote("a", f);
		push_remote("b", f);
		ads_wasm_stream_ended(&wasm);
		REQUEST(f, .type = TYPE_LISTENER);
		names_are("a b");
		REQUEST(f, .type = TYPE_EXTENSION, .names = {"b"});
		push_remote("c", f);
		REQUEST(f, .type = TYPE_LISTENER, .nonce = "n");
		names_are("b c");
		ads_wasm_stream_ended(&wasm);
		REQUEST(f, .type = TYPE_LISTENER, .nonce = "n");
		names_are("");
	}
}

static void reasons_and_changes(void **state)
{
	char why[ERR_MSG_SIZE];
	unsigned changes;

	(void)state;
	assert_null(ads_wasm_why(&wasm, why, sizeof(why)));
	assert_int_equal(push(resource(plugin("a", true, 3), DISCOVERY_DELTA), DISCOVERY_DELTA), 1);
	assert_int_equal(wasm.open, 1);
	assert_string_equal(ads_wasm_why(&wasm, why, sizeof(why)),
	    "Wasm filter a: its module is remote, and agentd fetches none: traffic passes without "
	    "the filter (FAIL_OPEN)");
	push_remote("b", DISCOVERY_DELTA);
	assert_int_equal(wasm.open, 1);
	assert_int_equal(wasm.n, 2);
	changes = wasm.changes;
	REQUEST(DISCOVERY_DELTA, .type = TYPE_EXTENSION, .names = {"a"});
	assert_int_equal(wasm.changes, changes);
	REQUEST(DISCOVERY_DELTA, .type = TYPE_EXTENSION, .drop = {"a"});
	assert_int_not_equal(wasm.changes, changes);
	assert_int_equal(wasm.open, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_response_keeps_all_else),
	    TEST(what_envoy_can_have_is_not_named),
	    TEST(a_response_without_it_changes_nothing),
	    TEST(what_is_no_extension_is_refused),
	    TEST(names_are_bounded),
	    TEST(delta_says_what_it_does_not_ask_for),
	    TEST(state_of_the_world_says_what_it_asks_for),
	    TEST(a_new_stream_says_what_is_left),
	    TEST(reasons_and_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
