/* plugin.c - an extension -> is it a Wasm filter? -> can Envoy have its module? -> the same without
 * istiod's keys, or another filter in its place.
 *
 * A Wasm filter comes as a message or, in a TypedStruct, as the google.protobuf.Struct of its JSON.
 * Both are walked with one table of members.  A member that comes twice makes the filter
 * unreadable: Envoy would merge the two, and could see another filter than we do.
 */
#include "plugin.h"
#include "common/mem.h"

#include <ctype.h>
#include <event2/buffer.h>
#include <string.h>

enum { EXTENSION_NAME = 1, EXTENSION_CONFIG = 2 };
enum { ANY_TYPE = 1, ANY_VALUE = 2 }; /* TypedStruct has the same */
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { STRUCT_FIELDS = 1 };
enum { VALUE_NULL = 1, VALUE_STRING = 3, VALUE_STRUCT = 5 };
enum { KEY_SIZE = 64 }; /* longer ones are no member's */

/* --- reading --- */

/* A member of a message, by number, and by name where the message is a Struct. */
struct member {
	uint32_t number;
	const char *name;
};
static const struct member config = {1, "config"}, policy = {7, "failure_policy"},
			   fail_open = {5, "fail_open"}, vm = {3, "vm_config"}, code = {3, "code"},
			   local = {1, "local"}, remote = {2, "remote"}, sha256 = {2, "sha256"},
			   http_uri = {1, "http_uri"}, uri = {1, "uri"}, cluster = {2, "cluster"},
			   timeout = {3, "timeout"};
enum { FAIL_CLOSED = 2, FAIL_OPEN = 3 };

/* A message in one of both forms. */
struct form {
	struct pbwire msg;
	bool by_name;
};

/* vm_config and vmConfig are one name. */
static bool same_name(const char *key, const char *name)
{
	for (;; key++, name++) {
		key += *key == '_';
		name += *name == '_';
		if (tolower((unsigned char)*key) != *name)
			return false;
		if (!*key)
			return true;
	}
}

/* One of its keys, if it has several. */
static bool is_named(struct pbwire entry, const char *name)
{
	char key[KEY_SIZE];
	struct pbwire_field f;

	while (pbwire_next(&entry, &f) > 0)
		if (f.number == ENTRY_KEY && f.type == PBWIRE_BYTES &&
		    !pbwire_string(f.bytes, key, sizeof(key)) && same_name(key, name))
			return true;
	return false;
}

/* The field of the Value of that name. */
static int value_named(struct pbwire fields, const char *name, struct pbwire_field *out)
{
	struct pbwire_field f;
	struct pbwire key, value = {.left = 0};
	int more, found = 0;

	while ((more = pbwire_next(&fields, &f)) > 0) {
		if (f.number != STRUCT_FIELDS || f.type != PBWIRE_BYTES || !is_named(f.bytes, name))
			continue;
		if (found++ || pbwire_only(f.bytes, ENTRY_KEY, &key) < 0 ||
		    pbwire_only(f.bytes, ENTRY_VALUE, &value) < 0)
			return -1;
	}
	if (more < 0 || !found || !value.left)
		return more < 0 ? -1 : 0;
	if (pbwire_next(&value, out) <= 0 || value.left)
		return -1;
	return out->number != VALUE_NULL;
}

static int get(const struct form *in, const struct member *m, struct pbwire_field *out)
{
	return in->by_name ? value_named(in->msg, m->name, out)
			   : pbwire_only_field(in->msg, m->number, out);
}

static bool is_bytes(const struct form *in, const struct pbwire_field *f, uint32_t number)
{
	return f->type == PBWIRE_BYTES && (!in->by_name || f->number == number);
}

static int enter(const struct form *in, const struct member *m, struct form *out)
{
	struct pbwire_field f;
	int found = get(in, m, &f);

	if (found <= 0)
		return found;
	*out = (struct form){f.bytes, in->by_name};
	return is_bytes(in, &f, VALUE_STRUCT) ? 1 : -1;
}

/* There, and more than nothing; cut to `size`. */
static bool has_text(const struct form *in, const struct member *m, char *out, size_t size)
{
	struct pbwire_field f;

	if (get(in, m, &f) <= 0 || !is_bytes(in, &f, VALUE_STRING))
		return false;
	out[pbwire_copy(f.bytes, out, size - 1)] = '\0';
	return f.bytes.left > 0;
}

/* In JSON an enum is its name or its number. */
static bool fails_open(const struct form *filter)
{
	const double as_number = FAIL_OPEN;
	char text[KEY_SIZE];
	struct pbwire_field f;
	struct form in;
	uint64_t bits;

	if (enter(filter, &config, &in) <= 0)
		return false;
	memcpy(&bits, &as_number, sizeof(bits));
	switch (get(&in, &policy, &f)) {
	case 0:
		return get(&in, &fail_open, &f) > 0 && f.type == PBWIRE_VARINT && f.value;
	case 1:
		if (has_text(&in, &policy, text, sizeof(text)))
			return !strcmp(text, "FAIL_OPEN");
		return (f.type == PBWIRE_VARINT && f.value == FAIL_OPEN) ||
		       (f.type == PBWIRE_FIXED64 && f.value == bits);
	default:
		return false;
	}
}

static const char unreadable[] = "its configuration cannot be read";

/* What Envoy asks of a module that it fetches itself. */
static const char *why_not_fetched(const struct form *from)
{
	char text[KEY_SIZE];
	struct pbwire_field f;
	struct form at;

	if (enter(from, &http_uri, &at) <= 0 || !has_text(&at, &uri, text, sizeof(text)) ||
	    get(&at, &timeout, &f) <= 0 || !has_text(&at, &cluster, text, sizeof(text)))
		return "its module is remote, and its address is not complete";
	if (!strcmp(text, "_"))
		return "its module is remote, and agentd fetches none";
	if (!has_text(from, &sha256, text, sizeof(text)))
		return "its module is remote and has no sha256";
	return NULL;
}

/* NULL: Envoy can have it. */
static const char *why_not(const struct form *filter)
{
	static const struct member *const to_code[] = {&config, &vm, &code, NULL};
	struct form at = *filter, from;
	struct pbwire_field f;
	int is_local, is_remote;

	for (const struct member *const *m = to_code; *m; m++) {
		int found = enter(&at, *m, &at);

		if (found <= 0)
			return found < 0 ? unreadable : "it has no module";
	}
	is_local = get(&at, &local, &f);
	is_remote = enter(&at, &remote, &from);
	if (is_local < 0 || is_remote < 0 || is_local + is_remote > 1)
		return unreadable;
	if (is_remote)
		return why_not_fetched(&from);
	return is_local ? NULL : "it has no module";
}

/* --- without istiod's keys --- */

#define KEYS "ISTIO_META_WASM_"

/* A step from a message to one in it; with `name` only to entries of that name. */
struct step {
	uint32_t number;
	const char *name;
};
#define ANY_STEPS                                                                                  \
	{EXTENSION_CONFIG, NULL},                                                                  \
	{                                                                                          \
		ANY_VALUE, NULL                                                                    \
	}
#define NAMED(name)                                                                                \
	{STRUCT_FIELDS, name}, {ENTRY_VALUE, NULL},                                                \
	{                                                                                          \
		VALUE_STRUCT, NULL                                                                 \
	}
/* From an extension to the entries of its environment. */
static const struct step to_environment[] = {
    ANY_STEPS, {1, NULL}, {3, NULL}, {7, NULL}, {2, KEYS}, {0, NULL}};
static const struct step to_environment_by_name[] = {ANY_STEPS, {ANY_VALUE, NULL}, NAMED("config"),
    NAMED("vm_config"), NAMED("environment_variables"), NAMED("key_values"), {STRUCT_FIELDS, KEYS},
    {0, NULL}};

/* A key that comes twice may be ours. */
static bool is_ours(struct pbwire entry)
{
	struct pbwire_field f;
	char key[sizeof(KEYS)] = "";

	while (pbwire_next(&entry, &f) > 0)
		if (f.number == ENTRY_KEY && f.type == PBWIRE_BYTES &&
		    pbwire_copy(f.bytes, key, sizeof(KEYS) - 1) == sizeof(KEYS) - 1 &&
		    !strcmp(key, KEYS))
			return true;
	return false;
}

enum touch { KEEP, DROP, GO_ON };

static enum touch touch(const struct step *way, const struct pbwire_field *f)
{
	const bool last = !way[1].number;

	if (f->number != way->number || f->type != PBWIRE_BYTES)
		return KEEP;
	if (last)
		return is_ours(f->bytes) ? DROP : KEEP;
	return !way->name || is_named(f->bytes, way->name) ? GO_ON : KEEP;
}

/* `msg` without the keys at the end of `way`.  1: some were there; 0: none; -1: malformed. */
static int clean(struct evbuffer *out, struct pbwire msg, const struct step *way)
{
	struct pbwire kept = msg, at = msg;
	struct pbwire_field f;
	int more, found = 0;

	while ((more = pbwire_next(&msg, &f)) > 0) {
		enum touch t = touch(way, &f);
		struct evbuffer *inner;

		at = msg;
		if (t == KEEP)
			continue;
		pbwire_put_raw(out, kept, kept.left - at.left - f.size);
		kept = at;
		found |= t == DROP;
		if (t == DROP)
			continue;
		inner = evbuffer_new();
		found |= clean(inner, f.bytes, way + 1);
		pbwire_put_message(out, way->number, inner);
	}
	pbwire_put_raw(out, kept, kept.left - at.left);
	return more < 0 ? -1 : found;
}

/* --- in its place --- */

enum layer { NO_WASM, HTTP, NETWORK };
#define FILTERS "envoy.extensions.filters."
static const char *const wasm_types[] = {
    [HTTP] = FILTERS "http.wasm.v3.Wasm", [NETWORK] = FILTERS "network.wasm.v3.Wasm"};
static const char *const rbac_types[] = {
    [HTTP] = FILTERS "http.rbac.v3.RBAC", [NETWORK] = FILTERS "network.rbac.v3.RBAC"};

static void put_text(struct evbuffer *out, uint32_t number, const char *text)
{
	pbwire_put_bytes(out, number, text, strlen(text));
}

/* Rules that allow nothing, or none; Istio's names in the statistics (status-listener.md 5). */
static void put_rbac(struct evbuffer *out, enum layer layer, bool open)
{
	enum { RULES = 1, HTTP_PREFIX = 6, NETWORK_PREFIX = 3 };

	if (!open)
		put_text(out, RULES, "");
	put_text(out, layer == HTTP ? HTTP_PREFIX : NETWORK_PREFIX,
	    open ? "wasm-default-allow" : "wasm-default-deny");
}

/* A module that is nowhere, tried once: Envoy then does what the policy says.  It takes any text as
 * a sha256. */
static void put_nowhere(struct evbuffer *out, bool open)
{
	enum { VM_RUNTIME = 2, RETRY_POLICY = 3, NUM_RETRIES = 2 };
	struct evbuffer *plugin = evbuffer_new(), *machine = evbuffer_new(),
			*module = evbuffer_new(), *from = evbuffer_new(), *at = evbuffer_new(),
			*retry = evbuffer_new();

	put_text(at, uri.number, "http://nowhere.invalid/");
	put_text(at, cluster.number, "_");
	pbwire_put_message(at, timeout.number, evbuffer_new());
	put_text(retry, NUM_RETRIES, ""); /* 0 */
	pbwire_put_message(from, http_uri.number, at);
	put_text(from, sha256.number, "nil");
	pbwire_put_message(from, RETRY_POLICY, retry);
	pbwire_put_message(module, remote.number, from);
	put_text(machine, VM_RUNTIME, "envoy.wasm.runtime.null"); /* in each Envoy */
	pbwire_put_message(machine, code.number, module);
	pbwire_put_message(plugin, vm.number, machine);
	pbwire_put_varint(plugin, policy.number, open ? FAIL_OPEN : FAIL_CLOSED);
	pbwire_put_message(out, config.number, plugin);
}

/* Those of istiod take RBAC as well, and are called so (status-listener.md 5). */
static bool slot_takes_rbac(const char *name)
{
	static const char *const istiods[] = {"extensions.istio.io/", "extenstions.istio.io/"};

	for (size_t i = 0; i < sizeof(istiods) / sizeof(*istiods); i++)
		if (!strncmp(name, istiods[i], strlen(istiods[i])))
			return true;
	return false;
}

static void put_instead(struct evbuffer *out, const struct plugin *p, enum layer layer)
{
	const bool rbac = slot_takes_rbac(p->name);
	auto_free char *type =
	    mem_printf("%s%s", TYPE_PREFIX, rbac ? rbac_types[layer] : wasm_types[layer]);
	struct evbuffer *any = evbuffer_new(), *filter = evbuffer_new();

	if (rbac)
		put_rbac(filter, layer, p->open);
	else
		put_nowhere(filter, p->open);
	put_text(any, ANY_TYPE, type);
	pbwire_put_message(any, ANY_VALUE, filter);
	put_text(out, EXTENSION_NAME, p->name);
	pbwire_put_message(out, EXTENSION_CONFIG, any);
}

/* --- all of it --- */

/* The name of a type behind its prefix, as Envoy reads it.  -1: there is none, or it is too long.
 */
static int type_of(struct pbwire any, char out[DISCOVERY_TYPE_SIZE])
{
	struct pbwire text;
	const char *slash;

	if (pbwire_only(any, ANY_TYPE, &text) <= 0 || pbwire_string(text, out, DISCOVERY_TYPE_SIZE))
		return -1;
	slash = strrchr(out, '/');
	if (slash)
		memmove(out, slash + 1, strlen(slash + 1) + 1);
	return 0;
}

static int layer_of(struct pbwire any, enum layer *layer, struct form *filter)
{
	char type[DISCOVERY_TYPE_SIZE];

	*filter = (struct form){.msg.left = 0};
	if (type_of(any, type) || pbwire_only(any, ANY_VALUE, &filter->msg) < 0)
		return -1;
	filter->by_name =
	    !strcmp(type, "udpa.type.v1.TypedStruct") || !strcmp(type, "xds.type.v3.TypedStruct");
	if (filter->by_name) {
		any = filter->msg;
		if (type_of(any, type) || pbwire_only(any, ANY_VALUE, &filter->msg) < 0)
			return -1;
	}
	*layer = !strcmp(type, wasm_types[HTTP])      ? HTTP
		 : !strcmp(type, wasm_types[NETWORK]) ? NETWORK
						      : NO_WASM;
	return 0;
}

int plugin_give(struct plugin *p, struct pbwire extension, struct evbuffer *out)
{
	struct pbwire name, any;
	struct form filter;
	enum layer layer;
	struct evbuffer *cleaned;
	int found;

	p->why = NULL;
	if (pbwire_only(extension, EXTENSION_NAME, &name) <= 0 ||
	    pbwire_string(name, p->name, sizeof(p->name)) ||
	    pbwire_only(extension, EXTENSION_CONFIG, &any) <= 0 || layer_of(any, &layer, &filter))
		return -1;
	if (layer == NO_WASM)
		return 0;
	cleaned = evbuffer_new();
	found = clean(cleaned, extension, filter.by_name ? to_environment_by_name : to_environment);
	p->why = found < 0 ? unreadable : why_not(&filter);
	p->open = fails_open(&filter);
	if (p->why)
		put_instead(out, p, layer);
	else if (found)
		evbuffer_add_buffer(out, cleaned);
	evbuffer_free(cleaned);
	return p->why || found;
}
