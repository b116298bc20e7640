/* wasm.c - a response -> each of its resources: by name, with a remote module or without. */
#include "wasm.h"
#include <string.h>

/* Field numbers of discovery.proto, extension.proto, any.proto, wasm.proto and base.proto. */
enum {
	RESPONSE_RESOURCES = 2,
	RESPONSE_REMOVED = 6, /* delta */
	DELTA_RESOURCE = 2,
	ANY_TYPE = 1,
	ANY_VALUE = 2,
	EXTENSION_NAME = 1,
	EXTENSION_CONFIG = 2,
};
/* Wasm.config, PluginConfig.vm_config, VmConfig.code, AsyncDataSource.remote */
static const uint32_t to_remote[] = {1, 3, 3, 2};

/* The last field of this number counts, as in protobuf. */
static bool find(struct pbwire msg, uint32_t number, struct pbwire *out)
{
	struct pbwire_field f;
	bool found = false;

	while (pbwire_next(&msg, &f) > 0)
		if (f.number == number && f.type == PBWIRE_BYTES) {
			*out = f.bytes;
			found = true;
		}
	return found;
}

static bool text_of(struct pbwire msg, uint32_t number, char *out, size_t size)
{
	struct pbwire text;

	return find(msg, number, &text) && !pbwire_string(text, out, size);
}

static bool is_remote(struct pbwire extension)
{
	static const char wasm[] = ".wasm.v3.Wasm";
	char type[DISCOVERY_TYPE_SIZE];
	struct pbwire at;
	size_t n;

	if (!find(extension, EXTENSION_CONFIG, &at) || !text_of(at, ANY_TYPE, type, sizeof(type)))
		return false;
	n = strlen(type);
	if (n < sizeof(wasm) || strcmp(type + n - (sizeof(wasm) - 1), wasm) != 0)
		return false;
	if (!find(at, ANY_VALUE, &at))
		return false;
	for (unsigned i = 0; i < sizeof(to_remote) / sizeof(*to_remote); i++)
		if (!find(at, to_remote[i], &at))
			return false;
	return true;
}

static void note(struct ads_wasm *w, struct pbwire resource, enum discovery_flavour f)
{
	char name[DISCOVERY_NAME_SIZE];
	struct pbwire at = resource;

	if ((f == DISCOVERY_DELTA && !find(at, DELTA_RESOURCE, &at)) || !find(at, ANY_VALUE, &at) ||
	    !text_of(at, EXTENSION_NAME, name, sizeof(name)))
		return;
	if (!is_remote(at))
		json_object_del(w->names, name);
	else if (json_object_size(w->names) < ADS_WASM_MAX)
		json_object_set_new(w->names, name, json_true());
}

static void forget(struct ads_wasm *w, struct pbwire name)
{
	char text[DISCOVERY_NAME_SIZE];

	if (!pbwire_string(name, text, sizeof(text)))
		json_object_del(w->names, text);
}

void ads_wasm_response(struct ads_wasm *w, enum discovery_flavour f, struct pbwire msg)
{
	struct pbwire_field field;

	if (!w->names || f == DISCOVERY_SOTW)
		ads_wasm_clear(w);
	if (!w->names)
		w->names = json_object();
	while (pbwire_next(&msg, &field) > 0) {
		if (field.type != PBWIRE_BYTES)
			continue;
		if (field.number == RESPONSE_RESOURCES)
			note(w, field.bytes, f);
		else if (field.number == RESPONSE_REMOVED && f == DISCOVERY_DELTA)
			forget(w, field.bytes);
	}
}

unsigned ads_wasm_count(const struct ads_wasm *w)
{
	return (unsigned)json_object_size(w->names);
}

json_t *ads_wasm_dump(const struct ads_wasm *w)
{
	json_t *all = json_array(), *v;
	const char *name;

	json_object_foreach (w->names, name, v)
		json_array_append_new(all, json_string(name));
	return all;
}

void ads_wasm_clear(struct ads_wasm *w)
{
	json_decref(w->names);
	w->names = NULL;
}
