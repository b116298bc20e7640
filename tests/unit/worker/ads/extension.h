/* extension.h - packed extensions with Wasm filters, for tests; each function takes its buffers. */
#pragma once
#include "worker/ads/plugin.h"
#include <event2/buffer.h>
#include <string.h>

#define HTTP_WASM TYPE_PREFIX "envoy.extensions.filters.http.wasm.v3.Wasm"
#define TCP_WASM TYPE_PREFIX "envoy.extensions.filters.network.wasm.v3.Wasm"
#define RBAC TYPE_PREFIX "envoy.extensions.filters.http.rbac.v3.RBAC"
#define SECRET "ISTIO_META_WASM_IMAGE_PULL_SECRET"

/* Fields one after the other; NULL ends them. */
static inline struct evbuffer *fields(struct evbuffer *first, ...) __attribute__((sentinel));
static inline struct evbuffer *fields(struct evbuffer *first, ...)
{
	struct evbuffer *out = evbuffer_new(), *one;
	va_list ap;

	va_start(ap, first);
	for (one = first; one; one = va_arg(ap, struct evbuffer *)) {
		evbuffer_add_buffer(out, one);
		evbuffer_free(one);
	}
	va_end(ap);
	return out;
}

static inline struct evbuffer *wrapped(uint32_t number, struct evbuffer *inner)
{
	struct evbuffer *out = evbuffer_new();

	pbwire_put_message(out, number, inner);
	return out;
}

static inline struct evbuffer *text(uint32_t number, const char *s)
{
	struct evbuffer *out = evbuffer_new();

	pbwire_put_bytes(out, number, s, strlen(s));
	return out;
}

static inline struct evbuffer *number(uint32_t field, uint64_t value)
{
	struct evbuffer *out = evbuffer_new();

	pbwire_put_varint(out, field, value);
	return out;
}

static inline struct evbuffer *any(const char *type, struct evbuffer *value)
{
	return fields(text(1, type), wrapped(2, value), NULL);
}

/* The entry of a map<string, string>, or of a Struct with `value` a Value. */
static inline struct evbuffer *pair(uint32_t map, const char *key, struct evbuffer *value)
{
	return wrapped(map, fields(text(1, key), wrapped(2, value), NULL));
}

static inline struct evbuffer *variable(const char *key, const char *value)
{
	return wrapped(2, fields(text(1, key), text(2, value), NULL));
}

/* A member of a Struct: text, a Struct. */
static inline struct evbuffer *says(const char *key, const char *value)
{
	return pair(1, key, text(3, value));
}
static inline struct evbuffer *has(const char *key, struct evbuffer *members)
{
	return pair(1, key, wrapped(5, members));
}

/* A Wasm filter of this code (AsyncDataSource) and environment; `policy` is more of its plugin. */
static inline struct evbuffer *wasm_of(
    struct evbuffer *code, struct evbuffer *environment, struct evbuffer *policy)
{
	struct evbuffer *vm = fields(wrapped(3, code), wrapped(7, environment), NULL);

	return wrapped(1, fields(text(1, "demo"), wrapped(3, vm), policy, NULL));
}

static inline struct evbuffer *remote_at(const char *cluster, const char *sha256)
{
	struct evbuffer *uri =
	    fields(text(1, "oci://x/y"), text(2, cluster), wrapped(3, number(1, 30)), NULL);

	return wrapped(2, fields(wrapped(1, uri), text(2, sha256), NULL));
}

static inline struct evbuffer *extension(
    const char *name, const char *type, struct evbuffer *filter)
{
	return fields(text(1, name), wrapped(2, any(type, filter)), NULL);
}
