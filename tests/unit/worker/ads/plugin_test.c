/* plugin_test.c - what Envoy is given of one extension. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/mem.h"
#include "extension.h"

#define ISTIOS "extensions.istio.io/trafficextension/demo.auth"
#define UDPA TYPE_PREFIX "udpa.type.v1.TypedStruct"
#define XDS TYPE_PREFIX "xds.type.v3.TypedStruct"
#define NONE evbuffer_new()

static struct plugin plugin;

static struct pbwire reader_of(struct evbuffer *b, struct iovec *whole)
{
	struct pbwire r;

	*whole = (struct iovec){evbuffer_pullup(b, -1), evbuffer_get_length(b)};
	pbwire_init(&r, whole, whole->iov_base ? 1 : 0);
	return r;
}

static void assert_same(struct evbuffer *a, struct evbuffer *b)
{
	size_t n = evbuffer_get_length(b);

	assert_int_equal(evbuffer_get_length(a), n);
	assert_memory_equal(evbuffer_pullup(a, -1), evbuffer_pullup(b, -1), n);
}

/* Both are taken; `expected` NULL: it passes as it is. */
static void gives(struct evbuffer *from, struct evbuffer *expected)
{
	struct evbuffer *out = evbuffer_new();
	struct iovec whole;

	assert_int_equal(plugin_give(&plugin, reader_of(from, &whole), out), expected ? 1 : 0);
	if (!expected)
		expected = NONE;
	assert_same(out, expected);
	evbuffer_free(expected);
	evbuffer_free(from);
	evbuffer_free(out);
}

static void is_refused(struct evbuffer *from)
{
	struct evbuffer *out = evbuffer_new();
	struct iovec whole;

	assert_int_equal(plugin_give(&plugin, reader_of(from, &whole), out), -1);
	assert_int_equal(evbuffer_get_length(out), 0);
	evbuffer_free(from);
	evbuffer_free(out);
}

static struct evbuffer *file(void)
{
	return wrapped(1, text(1, "/m.wasm"));
}

static struct evbuffer *istiods(void)
{
	return fields(variable(SECRET, "{}"), variable("COLOUR", "red"),
	    variable("ISTIO_META_WASM_IMAGE_PULL_POLICY", "Always"),
	    variable("ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION", "1"), NULL);
}

static void others_pass(void **state)
{
	(void)state;
	gives(extension("a", RBAC, text(2, SECRET)), NULL);
	gives(extension("a", UDPA, fields(text(1, RBAC), wrapped(2, has("config", NONE)), NULL)),
	    NULL);
	gives(extension("a", HTTP_WASM, wasm_of(file(), NONE, NONE)), NULL);
	gives(extension("a", TCP_WASM, wasm_of(remote_at("c", "ab"), NONE, NONE)), NULL);
	assert_null(plugin.why);
	assert_string_equal(plugin.name, "a");
}

/* All else stays, in its order. */
static void istiods_keys_leave_what_passes(void **state)
{
	struct evbuffer *(*const left)(const char *, const char *) = variable;

	(void)state;
	gives(extension("a", HTTP_WASM, wasm_of(file(), istiods(), number(7, 2))),
	    extension("a", HTTP_WASM, wasm_of(file(), left("COLOUR", "red"), number(7, 2))));
	gives(extension("a", "x/envoy.extensions.filters.network.wasm.v3.Wasm",
		  wasm_of(remote_at("c", "ab"), istiods(), NONE)),
	    extension("a", "x/envoy.extensions.filters.network.wasm.v3.Wasm",
		wasm_of(remote_at("c", "ab"), left("COLOUR", "red"), NONE)));
	assert_null(plugin.why);
}

/* A key that comes twice in an entry, and an environment that comes in two pieces. */
static void no_form_of_the_keys_stays(void **state)
{
	struct evbuffer *two = wrapped(2, fields(text(1, "A"), text(1, SECRET), NULL));
	struct evbuffer *vm = fields(wrapped(3, file()), wrapped(7, two),
	    wrapped(7, fields(variable("B", "b"), variable(SECRET, "x"), NULL)), NULL);
	struct evbuffer *left =
	    fields(wrapped(3, file()), wrapped(7, NONE), wrapped(7, variable("B", "b")), NULL);

	(void)state;
	gives(extension("a", HTTP_WASM, wrapped(1, wrapped(3, vm))),
	    extension("a", HTTP_WASM, wrapped(1, wrapped(3, left))));
}

/* `more` of the Struct of its plugin; the names as protobuf has them, or as JSON. */
static struct evbuffer *by_name(
    const char *type, struct evbuffer *code, bool camel, struct evbuffer *environment)
{
	struct evbuffer *vm = fields(has("code", code),
	    has(camel ? "environmentVariables" : "environment_variables",
		has(camel ? "keyValues" : "key_values", environment)),
	    NULL);

	return fields(text(1, type),
	    wrapped(2, has("config", has(camel ? "vmConfig" : "vm_config", vm))), NULL);
}

static struct evbuffer *file_by_name(void)
{
	return has("local", says("filename", "/m.wasm"));
}

static void a_typed_struct_is_one_too(void **state)
{
	(void)state;
	for (int camel = 0; camel < 2; camel++) {
		const char *type = camel ? XDS : UDPA;

		gives(
		    extension("a", type, by_name(HTTP_WASM, file_by_name(), camel, says("A", "b"))),
		    NULL);
		gives(extension("a", type,
			  by_name(TCP_WASM, file_by_name(), camel,
			      fields(says(SECRET, "{}"), says("A", "b"), NULL))),
		    extension("a", type, by_name(TCP_WASM, file_by_name(), camel, says("A", "b"))));
		assert_null(plugin.why);
	}
}

/* --- in its place --- */

static struct evbuffer *rbac(const char *name, bool http, bool open)
{
	static const char *const types[] = {
	    TYPE_PREFIX "envoy.extensions.filters.network.rbac.v3.RBAC", RBAC};
	struct evbuffer *prefix =
	    text(http ? 6 : 3, open ? "wasm-default-allow" : "wasm-default-deny");

	return extension(name, types[http], open ? prefix : fields(wrapped(1, NONE), prefix, NULL));
}

static void istiods_slots_get_rbac(void **state)
{
	static const struct {
		uint32_t field;
		uint64_t value;
		bool open;
	} policies[] = {{7, 3, true}, {7, 2, false}, {7, 1, false}, {5, 1, true}, {5, 0, false}};

	(void)state;
	for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++)
		for (int http = 0; http < 2; http++) {
			gives(extension(ISTIOS, http ? HTTP_WASM : TCP_WASM,
				  wasm_of(remote_at("_", ""), istiods(),
				      number(policies[i].field, policies[i].value))),
			    rbac(ISTIOS, http, policies[i].open));
			assert_int_equal(plugin.open, policies[i].open);
			assert_non_null(strstr(plugin.why, "agentd fetches none"));
		}
	gives(extension("extenstions.istio.io/wasmplugin/demo.a", HTTP_WASM,
		  wasm_of(remote_at("_", ""), istiods(), NONE)),
	    rbac("extenstions.istio.io/wasmplugin/demo.a", true, false));
}

/* A policy by name, by number, and by the older switch. */
static void a_typed_struct_says_its_policy(void **state)
{
	static const double three = 3;
	struct evbuffer *policies[] = {says("failurePolicy", "FAIL_OPEN"),
	    pair(1, "failure_policy", NONE), pair(1, "fail_open", number(4, 1)),
	    says("failure_policy", "FAIL_CLOSED")};
	struct evbuffer *fixed = evbuffer_new();

	(void)state;
	evbuffer_add(fixed, "\x11", 1);
	evbuffer_add(fixed, &three, sizeof(three));
	evbuffer_free(policies[1]);
	policies[1] = pair(1, "failure_policy", fixed);
	for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++) {
		struct evbuffer *uri = fields(
		    says("uri", "oci://x"), says("cluster", "_"), says("timeout", "30s"), NULL);
		struct evbuffer *vm =
		    has("vm_config", has("code", has("remote", has("http_uri", uri))));

		gives(extension(ISTIOS, UDPA,
			  fields(text(1, HTTP_WASM),
			      wrapped(2, has("config", fields(vm, policies[i], NULL))), NULL)),
		    rbac(ISTIOS, true, i < 3));
	}
}

/* Of a name that is not istiod's: a slot that may take Wasm alone. */
static void other_slots_get_wasm(void **state)
{
	static const char *const kept[] = {"nil", "_", "envoy.wasm.runtime.null"};
	struct evbuffer *out = evbuffer_new(),
			*from = extension(
			    "mine", TCP_WASM, wasm_of(remote_at("_", ""), istiods(), number(7, 3)));
	struct iovec whole;
	struct plugin again;

	(void)state;
	assert_int_equal(plugin_give(&plugin, reader_of(from, &whole), out), 1);
	assert_true(plugin.open);
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
		assert_int_not_equal(evbuffer_search(out, kept[i], strlen(kept[i]), NULL).pos, -1);
	assert_int_equal(evbuffer_search(out, SECRET, strlen(SECRET), NULL).pos, -1);
	/* It is of the same kind, name and policy. */
	evbuffer_drain(from, evbuffer_get_length(from));
	assert_int_equal(plugin_give(&again, reader_of(out, &whole), from), 1);
	assert_true(again.open);
	assert_string_equal(again.name, "mine");
	assert_same(from, out);
	evbuffer_free(from);
	evbuffer_free(out);
}

/* All that Envoy would refuse. */
static void what_cannot_be_had_says_why(void **state)
{
	struct evbuffer *code[] = {remote_at("c", ""), remote_at("", "ab"), wrapped(2, NONE), NONE,
	    fields(file(), remote_at("c", "ab"), NULL), fields(file(), file(), NULL)};
	static const char *const why[] = {"no sha256", "address is not complete",
	    "address is not complete", "no module", "cannot be read", "cannot be read"};

	(void)state;
	for (size_t i = 0; i < sizeof(code) / sizeof(*code); i++) {
		gives(extension(ISTIOS, HTTP_WASM, wasm_of(code[i], istiods(), NONE)),
		    rbac(ISTIOS, true, false));
		assert_non_null(strstr(plugin.why, why[i]));
	}
	gives(extension(ISTIOS, HTTP_WASM, NONE), rbac(ISTIOS, true, false));
	assert_string_equal(plugin.why, "it has no module");
	gives(extension(ISTIOS, HTTP_WASM, text(1, "\xff")), rbac(ISTIOS, true, false));
	assert_string_equal(plugin.why, "its configuration cannot be read");
	gives(extension(ISTIOS, XDS,
		  by_name(HTTP_WASM, fields(file_by_name(), file_by_name(), NULL), false, NONE)),
	    rbac(ISTIOS, true, false));
	assert_string_equal(plugin.why, "its configuration cannot be read");
}

static void what_is_none_is_refused(void **state)
{
	(void)state;
	is_refused(NONE);
	is_refused(text(1, "a"));
	is_refused(wrapped(2, any(RBAC, NONE)));
	is_refused(text(1, "\xff"));
	is_refused(fields(text(1, "a"), wrapped(2, NONE), NULL)); /* of no type */
	is_refused(fields(extension("a", RBAC, NONE), text(1, "b"), NULL));
	is_refused(fields(extension("a", RBAC, NONE), wrapped(2, any(HTTP_WASM, NONE)), NULL));
	is_refused(fields(
	    text(1, "a"), wrapped(2, fields(any(RBAC, NONE), text(1, HTTP_WASM), NULL)), NULL));
}

/* As large as istiod may send it: time goes with its size. */
static void a_large_one_costs_as_it_is_large(void **state)
{
	enum { ENTRIES = 100000 };
	struct evbuffer *environment = evbuffer_new(), *out = evbuffer_new(), *from;
	struct iovec whole;

	(void)state;
	for (unsigned i = 0; i < ENTRIES; i++) {
		struct evbuffer *one = variable(i % 2 ? "A" : SECRET, "");

		evbuffer_add_buffer(environment, one);
		evbuffer_free(one);
	}
	from = extension("a", HTTP_WASM, wasm_of(file(), environment, NONE));
	assert_int_equal(plugin_give(&plugin, reader_of(from, &whole), out), 1);
	assert_true(evbuffer_get_length(out) > ENTRIES / 2 * 5);
	assert_int_equal(evbuffer_search(out, SECRET, strlen(SECRET), NULL).pos, -1);
	evbuffer_free(from);
	evbuffer_free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(others_pass),
	    cmocka_unit_test(istiods_keys_leave_what_passes),
	    cmocka_unit_test(no_form_of_the_keys_stays),
	    cmocka_unit_test(a_typed_struct_is_one_too),
	    cmocka_unit_test(istiods_slots_get_rbac),
	    cmocka_unit_test(a_typed_struct_says_its_policy),
	    cmocka_unit_test(other_slots_get_wasm),
	    cmocka_unit_test(what_cannot_be_had_says_why),
	    cmocka_unit_test(what_is_none_is_refused),
	    cmocka_unit_test(a_large_one_costs_as_it_is_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
