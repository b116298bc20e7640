/* discovery.c - see discovery.h.
 *
 * Nothing happens here by itself: each function walks the top level of one message.  A field that
 * occurs twice counts by its last occurrence, as every protobuf parser has it; `node` is a message,
 * so there the pieces are merged, and whoever smuggled a second id in behind the first would win
 * if we replaced only one of them.
 *
 * A field that we know by its number but that has another wire type ends the walk with an error: a
 * parser behind us would see an unknown field, and we do not want to argue about what it does.
 */
#include "discovery.h"
#include "common/err.h"
#include "rpc/rpc.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

enum { RPC_CODE_OF_NACK = RPC_INTERNAL };

/* grpc-core.md 3; 0: this flavour has no such field. */
static const struct request_fields {
	uint32_t node, type_url, nonce, error_detail, subscribe, unsubscribe, have;
	uint32_t had; /* a version, or `have`: there is something of an earlier stream */
} request_fields[] = {
    [DISCOVERY_SOTW] = {2, 4, 5, 6, 3, 0, 0, 1},
    [DISCOVERY_DELTA] = {1, 2, 6, 7, 3, 4, 5, 5},
};
enum { REQUEST_VERSION_SOTW = 1 };
enum {
	RESPONSE_VERSION = 1,
	RESPONSE_RESOURCES = 2,
	RESPONSE_TYPE_URL = 4,
	RESPONSE_NONCE = 5,
	RESPONSE_REMOVED_DELTA = 6,
};
enum { NODE_ID = 1, NODE_METADATA = 3 };
enum { STATUS_CODE = 1, STATUS_MESSAGE = 2 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { ANY_TYPE = 1, ANY_VALUE = 2 }; /* a delta resource has its version, and its Any, there */

struct pbwire discovery_reader(const struct rpc_msg *m)
{
	struct pbwire r;
	size_t n;
	const struct iovec *iov = rpc_msg_iov(m, &n);

	pbwire_init(&r, iov, n);
	return r;
}

static int malformed(struct err *e, const char *what)
{
	return err_set(e, ERR_PROTOCOL, "malformed discovery message: %s", what);
}

static int read_string(
    const struct pbwire_field *f, char *out, size_t size, const char *what, struct err *e)
{
	if (f->type != PBWIRE_BYTES || pbwire_string(f->bytes, out, size))
		return err_set(e, ERR_PROTOCOL,
		    "malformed discovery message: %s is not text of at most %zu bytes", what,
		    size - 1);
	return 0;
}

/* Of texts that are only shown or echoed, where a long one is no reason to refuse the message. */
static void read_text(const struct pbwire_field *f, char *out, size_t size)
{
	if (f->type != PBWIRE_BYTES || pbwire_string(f->bytes, out, size))
		out[0] = '\0';
}

static int read_node(struct discovery_request *q, const struct pbwire_field *node, struct err *e)
{
	struct pbwire r = node->bytes;
	struct pbwire_field f;
	int more;

	if (node->type != PBWIRE_BYTES)
		return malformed(e, "node");
	q->has_node = true;
	while ((more = pbwire_next(&r, &f)) > 0)
		if (f.number == NODE_ID)
			q->has_node_id = f.type == PBWIRE_BYTES && f.bytes.left > 0;
	return more < 0 ? malformed(e, "node") : 0;
}

static int read_error_detail(
    struct discovery_request *q, const struct pbwire_field *detail, struct err *e)
{
	struct pbwire r = detail->bytes;
	struct pbwire_field f;
	char text[DISCOVERY_WHY_SIZE];
	int more;

	if (detail->type != PBWIRE_BYTES)
		return malformed(e, "error_detail");
	q->nack = true;
	while ((more = pbwire_next(&r, &f)) > 0) {
		if (f.number != STATUS_MESSAGE || f.type != PBWIRE_BYTES)
			continue;
		err_printable(q->nack_why, sizeof(q->nack_why), text,
		    (unsigned)pbwire_copy(f.bytes, text, sizeof(text)));
	}
	return more < 0 ? malformed(e, "error_detail") : 0;
}

static int read_request_field(struct discovery_request *q, const struct request_fields *at,
    const struct pbwire_field *f, struct err *e)
{
	if (f->number == at->node)
		return read_node(q, f, e);
	if (f->number == at->type_url)
		return read_string(f, q->type_url, sizeof(q->type_url), "type_url", e);
	if (f->number == at->nonce)
		return read_string(f, q->nonce, sizeof(q->nonce), "response_nonce", e);
	if (f->number == at->error_detail)
		return read_error_detail(q, f, e);
	if (f->number == at->had)
		q->had += f->type == PBWIRE_BYTES && f->bytes.left > 0;
	return 0;
}

int discovery_read_request(
    struct discovery_request *q, enum discovery_flavour flavour, struct pbwire msg, struct err *e)
{
	struct pbwire_field f;
	unsigned fields = 0;
	int more;

	memset(q, 0, sizeof(*q));
	while ((more = pbwire_next(&msg, &f)) > 0) {
		if (++fields > DISCOVERY_FIELDS_MAX)
			return err_set(e, ERR_PROTOCOL, "a request of more than %d fields",
			    DISCOVERY_FIELDS_MAX);
		if (read_request_field(q, &request_fields[flavour], &f, e))
			return -1;
	}
	return more < 0 ? malformed(e, "request") : 0;
}

static int read_response_field(
    struct discovery_response *r, const struct pbwire_field *f, struct err *e)
{
	switch (f->number) {
	case RESPONSE_VERSION:
		read_text(f, r->version, sizeof(r->version));
		return 0;
	case RESPONSE_RESOURCES:
		r->resources++;
		return 0;
	case RESPONSE_TYPE_URL:
		return read_string(f, r->type_url, sizeof(r->type_url), "type_url", e);
	case RESPONSE_NONCE:
		return read_string(f, r->nonce, sizeof(r->nonce), "nonce", e);
	case RESPONSE_REMOVED_DELTA:
		r->removed++;
		return 0;
	default:
		return 0;
	}
}

int discovery_read_response(struct discovery_response *r, struct pbwire msg, struct err *e)
{
	struct pbwire_field f;
	int more;

	memset(r, 0, sizeof(*r));
	while ((more = pbwire_next(&msg, &f)) > 0)
		if (read_response_field(r, &f, e))
			return -1;
	return more < 0 ? malformed(e, "response") : 0;
}

/* A map<string, string> entry: {1: name, 2: version}. */
static int read_entry(const struct pbwire_field *entry, char *name, char *version, struct err *e)
{
	struct pbwire r = entry->bytes;
	struct pbwire_field f;
	int more;

	name[0] = version[0] = '\0';
	if (entry->type != PBWIRE_BYTES)
		return malformed(e, "initial_resource_versions");
	while ((more = pbwire_next(&r, &f)) > 0) {
		if (f.number == ENTRY_KEY &&
		    read_string(&f, name, DISCOVERY_NAME_SIZE, "resource name", e))
			return -1;
		if (f.number == ENTRY_VALUE)
			read_text(&f, version, DISCOVERY_NONCE_SIZE);
	}
	return more < 0 ? malformed(e, "initial_resource_versions") : 0;
}

int discovery_each_name(enum discovery_flavour flavour, struct pbwire msg, discovery_each each,
    void *ctx, struct err *e)
{
	const struct request_fields *at = &request_fields[flavour];
	char name[DISCOVERY_NAME_SIZE], version[DISCOVERY_NONCE_SIZE];
	struct discovery_name n = {.name = name, .version = version};
	struct pbwire_field f;
	int more;

	while ((more = pbwire_next(&msg, &f)) > 0) {
		version[0] = '\0';
		if (f.number == at->have) {
			n.verb = DISCOVERY_HAVE;
			if (read_entry(&f, name, version, e))
				return -1;
		} else if (f.number == at->subscribe || f.number == at->unsubscribe) {
			n.verb =
			    f.number == at->subscribe ? DISCOVERY_SUBSCRIBE : DISCOVERY_UNSUBSCRIBE;
			if (read_string(&f, name, sizeof(name), "resource name", e))
				return -1;
		} else {
			continue;
		}
		if (each(ctx, &n, e))
			return -1;
	}
	return more < 0 ? malformed(e, "request") : 0;
}

/* All fields of a node but id and metadata, whatever wire type those claim to have. */
static int keep_node(struct evbuffer *kept, const struct pbwire_field *node, struct err *e)
{
	struct pbwire r = node->bytes, before = r;
	struct pbwire_field f;
	int more;

	if (node->type != PBWIRE_BYTES)
		return malformed(e, "node");
	while ((more = pbwire_next(&r, &f)) > 0) {
		if (f.number != NODE_ID && f.number != NODE_METADATA)
			pbwire_put_raw(kept, before, f.size);
		before = r;
	}
	return more < 0 ? malformed(e, "node") : 0;
}

static int split_node(
    struct evbuffer *rest, struct evbuffer *node, uint32_t number, struct pbwire msg, struct err *e)
{
	struct pbwire before = msg;
	struct pbwire_field f;
	int more;

	while ((more = pbwire_next(&msg, &f)) > 0) {
		if (f.number != number)
			pbwire_put_raw(rest, before, f.size);
		else if (keep_node(node, &f, e))
			return -1;
		before = msg;
	}
	return more < 0 ? malformed(e, "request") : 0;
}

int discovery_replace_node(struct evbuffer *out, enum discovery_flavour flavour, struct pbwire msg,
    const struct discovery_node *ours, struct err *e)
{
	struct evbuffer *rest = evbuffer_new(), *node = evbuffer_new();
	uint32_t number = request_fields[flavour].node;
	int rc = split_node(rest, node, number, msg, e);

	if (rc == 0) {
		pbwire_put_bytes(node, NODE_ID, ours->id, strlen(ours->id));
		pbwire_put_bytes(node, NODE_METADATA, ours->metadata, ours->metadata_size);
		evbuffer_add_buffer(out, rest);
		pbwire_put_bytes(out, number, evbuffer_pullup(node, -1), evbuffer_get_length(node));
	}
	evbuffer_free(rest);
	evbuffer_free(node);
	return rc;
}

static void put_string(struct evbuffer *out, uint32_t number, const char *s)
{
	if (*s)
		pbwire_put_bytes(out, number, s, strlen(s));
}

static void put_error(struct evbuffer *out, uint32_t field, const char *why)
{
	struct evbuffer *status = evbuffer_new();

	pbwire_put_varint(status, STATUS_CODE, RPC_CODE_OF_NACK);
	put_string(status, STATUS_MESSAGE, why);
	pbwire_put_message(out, field, status);
}

void discovery_put_ack(struct evbuffer *out, enum discovery_flavour flavour,
    const struct discovery_response *r, const char *why)
{
	const struct request_fields *at = &request_fields[flavour];

	/* The version of the response also in a NACK: pilot-agent's habit (istio-agent.md 0.4). */
	if (flavour == DISCOVERY_SOTW)
		put_string(out, REQUEST_VERSION_SOTW, r->version);
	put_string(out, at->type_url, r->type_url);
	put_string(out, at->nonce, r->nonce);
	if (why)
		put_error(out, at->error_detail, why);
}

void discovery_put_subscribe(
    struct evbuffer *out, enum discovery_flavour flavour, const char *type_url)
{
	put_string(out, request_fields[flavour].type_url, type_url);
}

void discovery_put_health(struct evbuffer *out, enum discovery_flavour flavour, const char *why)
{
	put_string(out, request_fields[flavour].type_url, TYPE_HEALTH);
	if (why)
		put_error(out, request_fields[flavour].error_detail, why);
}

/* --- a resource --- */

/* 1: the first of that number; 0: there is none; -1: malformed. */
static int first_payload(struct pbwire msg, uint32_t number, struct pbwire *out)
{
	struct pbwire_field f;
	int more;

	while ((more = pbwire_next(&msg, &f)) > 0)
		if (f.number == number && f.type == PBWIRE_BYTES) {
			*out = f.bytes;
			return 1;
		}
	return more;
}

static bool is_any_of(struct pbwire any, const char *type)
{
	char found[DISCOVERY_TYPE_SIZE];
	struct pbwire name;

	return first_payload(any, ANY_TYPE, &name) > 0 &&
	       !pbwire_string(name, found, sizeof(found)) && !strcmp(found, type);
}

/* The message does not say which flavour it is.  A state-of-the-world resource is an Any; a delta
 * one has its version where that has its type, and the Any in field 2. */
int discovery_first_resource(struct pbwire msg, const char *type, struct pbwire *out)
{
	struct pbwire resource, any;

	*out = (struct pbwire){.left = 0};
	if (first_payload(msg, RESPONSE_RESOURCES, &resource) <= 0)
		return -1;
	if (is_any_of(resource, type))
		return first_payload(resource, ANY_VALUE, out);
	if (first_payload(resource, ANY_VALUE, &any) <= 0 || !is_any_of(any, type))
		return -1;
	return first_payload(any, ANY_VALUE, out);
}
