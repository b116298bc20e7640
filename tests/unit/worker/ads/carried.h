/* carried.h - what istiod says on a discovery stream, and what reached the other side of a relay.
 *
 * Comes with a node (node_id() and node_metadata_struct()), whose id is OUR_NODE.
 */
#pragma once
#include "envoy.h"
#include <stddef.h>

#define OUR_NODE "sidecar~10.0.0.1~web-0.demo~demo.svc.cluster.local"
#define OUR_METADATA "our metadata"

/* A response of istiod: the fields read have one number in both flavours. */
void carried_answer(
    struct rpc_stream *up, const char *type, const char *nonce, const char *resource);
void carried_answer_mib(struct rpc_stream *up, size_t mib); /* for clusters */

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
