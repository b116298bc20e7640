/* carried.h - what istiod says on a discovery stream, and what reached the other side of a relay.
 *
 * Comes with a node (node_id() and node_metadata_struct()), whose id is OUR_NODE.
 */
#pragma once
#include "envoy.h"
#include "tests/fake/loop.h"
#include "worker/istiod/istiod.h"
#include <stddef.h>

struct limits;

#define OUR_NODE "sidecar~10.0.0.1~web-0.demo~demo.svc.cluster.local"
#define OUR_METADATA "our metadata"

/* A control plane, and how much may wait for Envoy (8 MiB). */
extern const struct istiod_options carried_plane;
struct limits *carried_limits(struct loop *l);

/* What Envoy says, and what comes of it; `w` has a loop. */
#define ASK(w, down, flavour, ...)                                                                 \
	do {                                                                                       \
		SAY(down, flavour, __VA_ARGS__);                                                   \
		fake_loop_advance((w)->loop, 0);                                                   \
	} while (0)
#define SOTW(w, down, ...) ASK(w, down, DISCOVERY_SOTW, __VA_ARGS__)
#define DELTA(w, down, ...) ASK(w, down, DISCOVERY_DELTA, __VA_ARGS__)

/* A response of istiod: the fields read have one number in both flavours. */
void carried_answer(
    struct rpc_stream *up, const char *type, const char *nonce, const char *resource);
void carried_removal(struct rpc_stream *up, const char *type, const char *name); /* delta */
void carried_answer_mib(struct rpc_stream *up, size_t mib);                      /* for clusters */

/* The i-th message that was sent on is these bytes. */
void carried_assert_sent(const struct rpc_stream *s, unsigned i, const void *bytes, size_t len);
/* The i-th message to istiod is this request as Envoy would have made it. */
void carried_assert_said(
    const struct rpc_stream *up, unsigned i, enum discovery_flavour f, const struct say *q);
#define ASSERT_SAID(up, i, f, ...) carried_assert_said(up, i, f, &(struct say){__VA_ARGS__})
/* The i-th message to istiod is `q` without its node, and then one node: Envoy's cluster and ours.
 */
void carried_assert_said_as_us(
    const struct rpc_stream *up, unsigned i, enum discovery_flavour f, struct say q);
#define ASSERT_SAID_AS_US(up, i, f, ...)                                                           \
	carried_assert_said_as_us(up, i, f, (struct say){__VA_ARGS__})
