/* envoy.h - what Envoy says on a discovery stream, for tests on the fake rpc. */
#pragma once
#include "tests/fake/rpc.h"
#include "worker/ads/discovery.h"

#include <event2/buffer.h>
#include <string.h>

enum { SAY_NAMES = 8 };

/* NULL or empty: the field is not sent. */
struct say {
	const char *node_id, *type, *version, *nonce, *nack;
	const char *names[SAY_NAMES]; /* subscribe */
	const char *drop[SAY_NAMES];  /* delta: unsubscribe */
	const char *have[SAY_NAMES];  /* delta: name, version, name, version */
};

/* NULL: nothing. */
void say_text(struct evbuffer *out, uint32_t number, const char *s);

/* The bytes, in the order Envoy has them. */
struct evbuffer *say_bytes(enum discovery_flavour f, const struct say *q);
void say_to(struct rpc_stream *s, enum discovery_flavour f, const struct say *q);
#define SAY(stream, flavour, ...) say_to(stream, flavour, &(struct say){__VA_ARGS__})
