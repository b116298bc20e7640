/* carried.c - see carried.h. */
#include "carried.h"
#include "common/mem.h"
#include "mesh/node.h"
#include "worker/pods/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

const struct istiod_options carried_plane = {.name = "plane",
    .address = "istiod:15012",
    .root = "SYSTEM",
    .server_name = "istiod",
    .trust_domain = "",
    .cluster_id = "c1",
    .mesh_id = "",
    .connections = 1,
    .unread_stream_s = 15,
    .hold_empty_push_s = 30};

struct limits *carried_limits(struct loop *l)
{
	static const struct limits_values values = {.of = {[LIMIT_QUEUED] = 8 << 20}};

	return limits_new(l, &values, NULL, NULL);
}

/* What mesh/node rendered: the two functions that the relay asks. */
const char *node_id(const struct node *n)
{
	(void)n;
	return OUR_NODE;
}

const void *node_metadata_struct(const struct node *n, size_t *size)
{
	(void)n;
	*size = strlen(OUR_METADATA);
	return OUR_METADATA;
}

void carried_answer(
    struct rpc_stream *up, const char *type, const char *nonce, const char *resource)
{
	struct evbuffer *b = evbuffer_new();

	say_text(b, 1, "v1");
	say_text(b, 2, resource);
	say_text(b, 4, type);
	say_text(b, 5, nonce);
	fake_rpc_push(up, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
}

void carried_removal(struct rpc_stream *up, const char *type, const char *name)
{
	struct evbuffer *b = evbuffer_new();

	say_text(b, 4, type);
	say_text(b, 6, name);
	fake_rpc_push(up, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
}

void carried_answer_mib(struct rpc_stream *up, size_t mib)
{
	size_t len = mib << 20;
	auto_free char *big = mem_zalloc(len + 1);

	memset(big, 'x', len);
	carried_answer(up, TYPE_CLUSTER, "n", big);
}

void carried_assert_sent(const struct rpc_stream *s, unsigned i, const void *bytes, size_t len)
{
	size_t sent_len;
	const void *sent = fake_rpc_sent_bytes(s, i, &sent_len);

	assert_non_null(sent);
	assert_int_equal(sent_len, len);
	assert_memory_equal(sent, bytes, len);
}

void carried_assert_said(
    const struct rpc_stream *up, unsigned i, enum discovery_flavour f, const struct say *q)
{
	struct evbuffer *b = say_bytes(f, q);

	carried_assert_sent(up, i, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
}

void carried_assert_said_as_us(
    const struct rpc_stream *up, unsigned i, enum discovery_flavour f, struct say q)
{
	struct evbuffer *b, *node = evbuffer_new();
	bool had_node = q.node_id != NULL;

	q.node_id = NULL;
	b = say_bytes(f, &q);
	if (had_node)
		say_text(node, 2, "a cluster");
	say_text(node, 1, OUR_NODE);
	say_text(node, 3, OUR_METADATA);
	pbwire_put_bytes(
	    b, f == DISCOVERY_DELTA ? 1 : 2, evbuffer_pullup(node, -1), evbuffer_get_length(node));
	carried_assert_sent(up, i, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
	evbuffer_free(node);
}
