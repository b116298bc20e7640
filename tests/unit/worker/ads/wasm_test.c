/* wasm_test.c - extensions with remote modules, in both flavours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "worker/ads/wasm.h"

#define HTTP_WASM TYPE_PREFIX "envoy.extensions.filters.http.wasm.v3.Wasm"
#define TCP_WASM TYPE_PREFIX "envoy.extensions.filters.network.wasm.v3.Wasm"
#define RBAC TYPE_PREFIX "envoy.extensions.filters.http.rbac.v3.RBAC"
enum { LOCAL = 1, REMOTE = 2 };

static struct ads_wasm wasm;

static int setup(void **state)
{
	(void)state;
	wasm = (struct ads_wasm){0};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ads_wasm_clear(&wasm);
	return 0;
}

/* Takes `inner`. */
static struct evbuffer *wrapped(uint32_t number, struct evbuffer *inner)
{
	struct evbuffer *out = evbuffer_new();
	size_t n = evbuffer_get_length(inner);

	pbwire_put_bytes(out, number, n ? evbuffer_pullup(inner, -1) : (void *)"", n);
	evbuffer_free(inner);
	return out;
}

/* Any{type, value}; takes `value`. */
static struct evbuffer *any(const char *type, struct evbuffer *value)
{
	struct evbuffer *out = evbuffer_new(), *v = wrapped(2, value);

	pbwire_put_bytes(out, 1, type, strlen(type));
	evbuffer_add_buffer(out, v);
	evbuffer_free(v);
	return out;
}

/* A resource: an extension with a plugin whose code is LOCAL or REMOTE. */
static struct evbuffer *extension(const char *name, const char *type, uint32_t source)
{
	struct evbuffer *config = wrapped(source, evbuffer_new()), *out = evbuffer_new(), *typed;

	config = wrapped(1, wrapped(3, wrapped(3, config)));
	typed = wrapped(2, any(type, config));
	pbwire_put_bytes(out, 1, name, strlen(name));
	evbuffer_add_buffer(out, typed);
	evbuffer_free(typed);
	return any(TYPE_EXTENSION, out);
}

static void add(struct evbuffer *response, struct evbuffer *resource, enum discovery_flavour f)
{
	struct evbuffer *field = wrapped(2, f == DISCOVERY_DELTA ? wrapped(2, resource) : resource);

	evbuffer_add_buffer(response, field);
	evbuffer_free(field);
}

/* Takes `response`. */
static void push(struct evbuffer *response, enum discovery_flavour f)
{
	struct iovec iov = {evbuffer_pullup(response, -1), evbuffer_get_length(response)};
	struct pbwire msg;

	pbwire_init(&msg, &iov, 1);
	ads_wasm_response(&wasm, f, msg);
	evbuffer_free(response);
}

static void push_one(const char *name, const char *type, uint32_t source, enum discovery_flavour f)
{
	struct evbuffer *response = evbuffer_new();

	add(response, extension(name, type, source), f);
	push(response, f);
}

static void names_are(const char *expected)
{
	json_t *names = ads_wasm_dump(&wasm);
	char *text = json_dumps(names, JSON_COMPACT);

	assert_string_equal(text, expected);
	assert_int_equal(ads_wasm_count(&wasm), json_array_size(names));
	free(text);
	json_decref(names);
}

/* Delta says what changes. */
static void delta(void **state)
{
	struct evbuffer *gone = evbuffer_new();

	(void)state;
	names_are("[]");
	push_one("demo.auth", HTTP_WASM, REMOTE, DISCOVERY_DELTA);
	push_one("demo.tcp", TCP_WASM, REMOTE, DISCOVERY_DELTA);
	push_one("demo.file", HTTP_WASM, LOCAL, DISCOVERY_DELTA);
	push_one("demo.rbac", RBAC, REMOTE, DISCOVERY_DELTA);
	names_are("[\"demo.auth\",\"demo.tcp\"]");
	push_one("demo.tcp", TCP_WASM, LOCAL, DISCOVERY_DELTA);
	names_are("[\"demo.auth\"]");
	pbwire_put_bytes(gone, 6, "demo.auth", 9);
	push(gone, DISCOVERY_DELTA);
	names_are("[]");
}

/* State of the world says all there is. */
static void sotw(void **state)
{
	(void)state;
	push_one("demo.auth", HTTP_WASM, REMOTE, DISCOVERY_SOTW);
	names_are("[\"demo.auth\"]");
	push_one("demo.two", HTTP_WASM, REMOTE, DISCOVERY_SOTW);
	names_are("[\"demo.two\"]");
	push(evbuffer_new(), DISCOVERY_SOTW);
	names_are("[]");
}

static void many(void **state)
{
	(void)state;
	for (int i = 0; i < ADS_WASM_MAX + 10; i++) {
		char name[20];

		(void)snprintf(name, sizeof(name), "n%d", i);
		push_one(name, HTTP_WASM, REMOTE, DISCOVERY_DELTA);
	}
	assert_int_equal(ads_wasm_count(&wasm), ADS_WASM_MAX);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {TEST(delta), TEST(sotw), TEST(many)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
