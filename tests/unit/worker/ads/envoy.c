/* envoy.c - see envoy.h. */
#include "envoy.h"

void say_text(struct evbuffer *out, uint32_t number, const char *s)
{
	if (s)
		pbwire_put_bytes(out, number, s, strlen(s));
}

static void say_pair(struct evbuffer *out, uint32_t number, uint32_t a, const char *first,
    uint32_t b, const char *second)
{
	struct evbuffer *inner = evbuffer_new();

	say_text(inner, a, first);
	say_text(inner, b, second);
	pbwire_put_bytes(out, number, evbuffer_pullup(inner, -1), evbuffer_get_length(inner));
	evbuffer_free(inner);
}

struct evbuffer *say_bytes(enum discovery_flavour f, const struct say *q)
{
	struct evbuffer *out = evbuffer_new();
	bool delta = f == DISCOVERY_DELTA;

	if (!delta)
		say_text(out, 1, q->version);
	if (q->node_id)
		say_pair(out, delta ? 1 : 2, 1, q->node_id, 2, "a cluster");
	if (delta)
		say_text(out, 2, q->type);
	for (int i = 0; i < SAY_NAMES && q->names[i]; i++)
		say_text(out, 3, q->names[i]);
	for (int i = 0; i < SAY_NAMES && q->drop[i]; i++)
		say_text(out, 4, q->drop[i]);
	if (!delta)
		say_text(out, 4, q->type);
	for (int i = 0; i < SAY_NAMES && q->have[i]; i += 2)
		say_pair(out, 5, 1, q->have[i], 2, q->have[i + 1]);
	say_text(out, delta ? 6 : 5, q->nonce);
	if (q->nack)
		say_pair(out, delta ? 7 : 6, 2, q->nack, 3, NULL);
	return out;
}

void say_to(struct rpc_stream *s, enum discovery_flavour f, const struct say *q)
{
	struct evbuffer *b = say_bytes(f, q);

	fake_rpc_push(s, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
}
