/* xds.c - see xds.h.
 *
 * xds_ask: a DiscoveryRequest is packed and sent -> data: the length prefix, then the fields of the
 * answer as they come, of which the short texts are kept -> its last byte: `answered`.
 */
#include "xds.h"
#include "base/pbwire.h"
#include "common/mem.h"

#include <event2/buffer.h>
#include <string.h>

enum { TAG, LENGTH, VARINT, BODY };                             /* of the walk */
enum { VERSION = 1, NODE = 2, NAMES = 3, TYPE = 4, NONCE = 5 }; /* of request and response */
enum { NODE_ID = 1, NODE_EXTENSIONS = 9, EXTENSION_NAME = 1, EXTENSION_SIZE = 110 };

static char *kept_in(struct xds *x)
{
	switch (x->in.tag >> 3) {
	case VERSION:
		return x->version;
	case TYPE:
		return x->type;
	case NONCE:
		return x->nonce;
	default:
		return NULL;
	}
}

static size_t walk_body(struct xds *x, const uint8_t *p, size_t n)
{
	char *to = kept_in(x);

	if (n > x->in.body)
		n = x->in.body;
	for (size_t i = 0; to && i < n && x->in.kept < XDS_TEXT - 1; i++)
		to[x->in.kept++] = (char)p[i];
	if (to)
		to[x->in.kept] = 0;
	x->in.body -= n;
	if (!x->in.body)
		x->in.state = TAG;
	return n;
}

static void end_varint(struct xds *x)
{
	uint64_t v = x->in.varint;

	x->in.varint = x->in.shift = 0;
	if (x->in.state == TAG) {
		x->in.tag = (unsigned)v;
		x->in.state = (v & 7) == 2 ? LENGTH : VARINT;
		return;
	}
	x->in.body = x->in.state == LENGTH ? v : 0;
	x->in.kept = 0;
	x->in.state = x->in.body ? BODY : TAG;
}

static size_t walk(struct xds *x, const uint8_t *p, size_t n)
{
	if (x->in.state == BODY)
		return walk_body(x, p, n);
	x->in.varint |= (uint64_t)(*p & 0x7f) << x->in.shift;
	x->in.shift += 7;
	if (!(*p & 0x80))
		end_varint(x);
	return 1;
}

static void end_message(struct xds *x)
{
	x->in.have = x->in.varint = x->in.shift = 0;
	x->in.state = TAG;
	x->ev.answered(x->ctx, x->in.size);
}

static void on_data(void *ctx, const uint8_t *p, size_t n)
{
	struct xds *x = ctx;

	while (n > 0) {
		size_t used = 1;

		if (x->in.have < sizeof(x->in.head)) {
			x->in.head[x->in.have++] = *p;
			x->in.left = x->in.size = (size_t)x->in.head[1] << 24 |
						  x->in.head[2] << 16 | x->in.head[3] << 8 |
						  x->in.head[4];
		} else {
			used = walk(x, p, n < x->in.left ? n : x->in.left);
			x->in.left -= used;
		}
		p += used;
		n -= used;
		if (x->in.have == sizeof(x->in.head) && !x->in.left)
			end_message(x);
	}
}

static void on_closed(void *ctx)
{
	struct xds *x = ctx;

	x->stream = NULL;
	x->ev.closed(x->ctx);
}

static void open_stream(
    struct xds *x, struct h2 *h, const char *method, const struct xds_events *ev)
{
	static const struct h2_events events = {on_data, on_closed};

	x->ev = *ev;
	x->stream = h2_open(h, method, &events, x);
}

void xds_open_sds(struct xds *x, struct h2 *h, const struct xds_events *ev, void *ctx)
{
	*x = (struct xds){.ctx = ctx};
	open_stream(x, h, "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets", ev);
}

void xds_open_ads(struct xds *x, struct h2 *h, const struct xds_events *ev, void *ctx)
{
	*x = (struct xds){.ctx = ctx};
	open_stream(x, h,
	    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources", ev);
}

static void put_text(struct evbuffer *b, unsigned field, const char *text)
{
	pbwire_put_bytes(b, field, text, strlen(text));
}

/* As large as Envoy's own, whose list of extensions is nearly all of it. */
static void put_node(struct evbuffer *b, size_t size)
{
	struct evbuffer *node = evbuffer_new(), *extension = evbuffer_new();
	char name[EXTENSION_SIZE + 1];

	memset(name, 'x', EXTENSION_SIZE);
	name[EXTENSION_SIZE] = 0;
	put_text(extension, EXTENSION_NAME, name);
	size_t len = evbuffer_get_length(extension);
	put_text(node, NODE_ID, "sidecar~10.0.0.1~bench.demo~demo.svc.cluster.local");
	while (evbuffer_get_length(node) + len < size)
		pbwire_put_bytes(node, NODE_EXTENSIONS, evbuffer_pullup(extension, -1), len);
	pbwire_put_bytes(b, NODE, evbuffer_pullup(node, -1), evbuffer_get_length(node));
	evbuffer_free(extension);
	evbuffer_free(node);
}

void xds_ask(struct xds *x, const struct xds_ask *a)
{
	struct evbuffer *b = evbuffer_new();
	uint8_t head[5] = {0};

	if (a->ack)
		put_text(b, VERSION, x->version);
	if (a->node)
		put_node(b, a->node);
	if (a->name)
		put_text(b, NAMES, a->name);
	put_text(b, TYPE, a->type);
	if (a->ack)
		put_text(b, NONCE, x->nonce);
	size_t len = evbuffer_get_length(b);

	for (int i = 0; i < 4; i++)
		head[1 + i] = (uint8_t)(len >> (24 - 8 * i));
	evbuffer_prepend(b, head, sizeof(head));
	h2_send(x->stream, evbuffer_pullup(b, -1), len + sizeof(head), a->last);
	evbuffer_free(b);
}
