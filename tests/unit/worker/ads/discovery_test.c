/* discovery_test.c - the walker over discovery messages, on bytes cut at every possible place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/mem.h"
#include "worker/ads/discovery.h"

enum { MESSAGE_SIZE = 16384, PIECES = 40 };

/* A message under construction, and the same in pieces. */
struct message {
	uint8_t bytes[MESSAGE_SIZE];
	size_t len;
	struct iovec iov[PIECES];
};

static struct evbuffer *out;

static int setup(void **state)
{
	(void)state;
	out = evbuffer_new();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	evbuffer_free(out);
	return 0;
}

/* Moves what was put into `out` into the message. */
static void finish(struct message *m)
{
	m->len = evbuffer_get_length(out);
	assert_true(m->len <= sizeof(m->bytes));
	evbuffer_remove(out, m->bytes, m->len);
}

static struct pbwire whole(struct message *m)
{
	struct pbwire r;

	m->iov[0] = (struct iovec){m->bytes, m->len};
	pbwire_init(&r, m->iov, 1);
	return r;
}

static struct pbwire cut_at(struct message *m, size_t at)
{
	struct pbwire r;

	m->iov[0] = (struct iovec){m->bytes, at};
	m->iov[1] = (struct iovec){NULL, 0};
	m->iov[2] = (struct iovec){m->bytes + at, m->len - at};
	pbwire_init(&r, m->iov, 3);
	return r;
}

static void put_text(uint32_t number, const char *s)
{
	pbwire_put_bytes(out, number, s, strlen(s));
}

/* Field `number` with a message of one text field. */
static void put_nested(uint32_t number, uint32_t inner, const char *text)
{
	struct evbuffer *b = evbuffer_new();

	pbwire_put_bytes(b, inner, text, strlen(text));
	pbwire_put_bytes(out, number, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
}

static void a_request_is_read(void **state)
{
	struct discovery_request q;
	struct message m;
	struct err e;

	(void)state;
	for (int delta = 0; delta < 2; delta++) {
		put_nested(delta ? 1 : 2, 1, "sidecar~1.2.3.4~a.b~c");
		put_text(delta ? 2 : 4, TYPE_CLUSTER);
		put_text(delta ? 6 : 5, "nonce-1");
		put_nested(delta ? 7 : 6, 2, "bad \n listener");
		finish(&m);
		for (size_t at = 0; at <= m.len; at++) {
			assert_int_equal(discovery_read_request(&q, delta, cut_at(&m, at), &e), 0);
			assert_string_equal(q.type_url, TYPE_CLUSTER);
			assert_string_equal(q.nonce, "nonce-1");
			assert_true(q.has_node && q.has_node_id && q.nack);
			assert_string_equal(q.nack_why, "bad ? listener");
		}
	}
}

static void the_last_occurrence_counts(void **state)
{
	struct discovery_request q;
	struct message m;
	struct err e;

	(void)state;
	put_text(4, TYPE_CLUSTER);
	put_nested(2, 1, "an id");
	put_text(4, TYPE_LISTENER);
	put_nested(2, 1, "");
	finish(&m);
	assert_int_equal(discovery_read_request(&q, DISCOVERY_SOTW, whole(&m), &e), 0);
	assert_string_equal(q.type_url, TYPE_LISTENER);
	assert_true(q.has_node);
	assert_false(q.has_node_id);
	assert_false(q.nack);
}

static void a_long_reason_is_cut(void **state)
{
	struct discovery_request q;
	char long_text[5000];
	struct message m;
	struct err e;

	(void)state;
	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	put_nested(6, 2, long_text);
	finish(&m);
	assert_int_equal(discovery_read_request(&q, DISCOVERY_SOTW, whole(&m), &e), 0);
	assert_int_equal(strlen(q.nack_why), DISCOVERY_WHY_SIZE - 1);
}

static void malformed_requests_are_errors(void **state)
{
	static const struct {
		const char *what, *bytes;
		size_t len;
	} bad[] = {
	    {"a truncated field",
		"\x22\x05"
		"ab",
		4},
	    {"a truncated tag", "\xa2", 1},
	    {"a group", "\x23\x24", 2},
	    {"a type that is a number", "\x20\x01", 2},
	    {"a node that is a number", "\x10\x01", 2},
	    {"a malformed node", "\x12\x02\x0a\x05", 4},
	    {"an error_detail that is a number", "\x30\x01", 2},
	    {"a malformed error_detail", "\x32\x01\x12", 3},
	    {"a NUL in the type",
		"\x22\x03"
		"a\0b",
		5},
	    {"a nonce that is not UTF-8", "\x2a\x01\xff", 3},
	};
	struct discovery_request q;
	struct message m;
	char text[DISCOVERY_TYPE_SIZE + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct err e = {0};

		m.len = bad[i].len;
		memcpy(m.bytes, bad[i].bytes, m.len);
		if (discovery_read_request(&q, DISCOVERY_SOTW, whole(&m), &e) != -1)
			fail_msg("%s was taken", bad[i].what);
		assert_int_equal(e.code, ERR_PROTOCOL);
	}
	for (size_t len = DISCOVERY_TYPE_SIZE - 1; len <= DISCOVERY_TYPE_SIZE; len++) {
		struct err e;

		memset(text, 'a', len);
		text[len] = '\0';
		put_text(4, text);
		finish(&m);
		assert_int_equal(discovery_read_request(&q, DISCOVERY_SOTW, whole(&m), &e),
		    len < DISCOVERY_TYPE_SIZE ? 0 : -1);
	}
}

static void fields_of_a_request_are_counted(void **state)
{
	struct discovery_request q;
	auto_free uint8_t *bytes = mem_zalloc(2 * (DISCOVERY_FIELDS_MAX + 1));
	struct pbwire r;
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i <= DISCOVERY_FIELDS_MAX; i++)
		bytes[2 * i] = 0x0a; /* an empty version */
	for (size_t n = DISCOVERY_FIELDS_MAX; n <= DISCOVERY_FIELDS_MAX + 1; n++) {
		struct iovec iov = {bytes, 2 * n};

		pbwire_init(&r, &iov, 1);
		assert_int_equal(discovery_read_request(&q, DISCOVERY_SOTW, r, &e),
		    n > DISCOVERY_FIELDS_MAX ? -1 : 0);
	}
	assert_string_equal(e.msg, "a request of more than 200000 fields");
}

static void a_response_is_read(void **state)
{
	struct discovery_response r;
	struct message m;
	struct err e;

	(void)state;
	put_text(1, "v7");
	put_nested(2, 1, "anything");
	put_text(2, "\xff not even a message");
	put_text(6, "removed, in delta");
	put_text(4, TYPE_LISTENER);
	put_text(5, "n");
	finish(&m);
	for (size_t at = 0; at <= m.len; at++) {
		assert_int_equal(discovery_read_response(&r, cut_at(&m, at), &e), 0);
		assert_string_equal(r.type_url, TYPE_LISTENER);
		assert_string_equal(r.version, "v7");
		assert_string_equal(r.nonce, "n");
		assert_int_equal(r.resources, 2);
	}
	m.len--;
	assert_int_equal(discovery_read_response(&r, whole(&m), &e), -1);
}

/* The nonce must be sent back as it is, the version is only shown. */
static void a_long_nonce_is_an_error_a_long_version_is_not(void **state)
{
	char text[DISCOVERY_NONCE_SIZE + 1];
	struct discovery_response r;
	struct message m;
	struct err e;

	(void)state;
	memset(text, 'n', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	put_text(1, text);
	finish(&m);
	assert_int_equal(discovery_read_response(&r, whole(&m), &e), 0);
	assert_string_equal(r.version, "");
	put_text(5, text);
	finish(&m);
	assert_int_equal(discovery_read_response(&r, whole(&m), &e), -1);
}

struct seen {
	char text[512];
	int stop_after;
};

static int on_name(void *ctx, const struct discovery_name *n, struct err *e)
{
	static const char *const verbs[] = {"+", "-", "="};
	struct seen *s = ctx;
	size_t at = strlen(s->text);

	if (s->stop_after-- == 0)
		return err_set(e, ERR_INVALID, "enough");
	snprintf(
	    s->text + at, sizeof(s->text) - at, "%s%s(%s) ", verbs[n->verb], n->name, n->version);
	return 0;
}

static void names_come_in_the_order_of_the_wire(void **state)
{
	static const char entry[] = "\x0a\x01"
				    "c"
				    "\x12\x02"
				    "v9";
	struct seen s = {.stop_after = 9};
	struct message m;
	struct err e;

	(void)state;
	put_text(3, "a");
	put_text(4, "b");
	pbwire_put_bytes(out, 5, entry, sizeof(entry) - 1);
	put_text(3, "d");
	finish(&m);
	for (size_t at = 0; at <= m.len; at++) {
		s.text[0] = '\0';
		s.stop_after = 9;
		assert_int_equal(
		    discovery_each_name(DISCOVERY_DELTA, cut_at(&m, at), on_name, &s, &e), 0);
		assert_string_equal(s.text, "+a() -b() =c(v9) +d() ");
	}
	s = (struct seen){.stop_after = 1};
	assert_int_equal(discovery_each_name(DISCOVERY_DELTA, whole(&m), on_name, &s, &e), -1);
	assert_string_equal(e.msg, "enough");
	assert_string_equal(s.text, "+a() ");
	/* In SotW 4 is the type and 5 the nonce. */
	s = (struct seen){.stop_after = 9};
	assert_int_equal(discovery_each_name(DISCOVERY_SOTW, whole(&m), on_name, &s, &e), 0);
	assert_string_equal(s.text, "+a() +d() ");
}

static int ignore_name(void *ctx, const struct discovery_name *n, struct err *e)
{
	(void)e;
	*(size_t *)ctx = strlen(n->name);
	return 0;
}

static void a_name_has_at_most_4096_bytes(void **state)
{
	static char name[DISCOVERY_NAME_SIZE + 1];
	struct message m;
	struct err e;
	size_t len = 0;

	(void)state;
	memset(name, 'x', DISCOVERY_NAME_SIZE - 1);
	put_text(3, name);
	finish(&m);
	assert_int_equal(discovery_each_name(DISCOVERY_SOTW, whole(&m), ignore_name, &len, &e), 0);
	assert_int_equal(len, 4096);
	put_nested(5, 1, name);
	finish(&m);
	len = 0;
	assert_int_equal(discovery_each_name(DISCOVERY_DELTA, whole(&m), ignore_name, &len, &e), 0);
	assert_int_equal(len, 4096);
	name[DISCOVERY_NAME_SIZE - 1] = 'x';
	put_nested(5, 1, name);
	finish(&m);
	assert_int_equal(
	    discovery_each_name(DISCOVERY_DELTA, whole(&m), ignore_name, &len, &e), -1);
	put_text(3, name);
	finish(&m);
	assert_int_equal(discovery_each_name(DISCOVERY_SOTW, whole(&m), ignore_name, &len, &e), -1);
}

static void malformed_names_are_errors(void **state)
{
	static const char *const bad[] = {
	    "\x28\x01",         /* an entry that is a number */
	    "\x2a\x01\x0a",     /* a truncated entry */
	    "\x2a\x02\x08\x01", /* its key is a number */
	    "\x1a\x01\xfe",     /* not UTF-8 */
	    "\x18\x01",         /* a name that is a number */
	    ("\x1a\x02"
	     "a"), /* truncated */
	};
	struct message m;
	struct err e;
	size_t len;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		m.len = strlen(bad[i]);
		memcpy(m.bytes, bad[i], m.len);
		assert_int_equal(
		    discovery_each_name(DISCOVERY_DELTA, whole(&m), ignore_name, &len, &e), -1);
	}
}

static void assert_out(const void *bytes, size_t len)
{
	assert_int_equal(evbuffer_get_length(out), len);
	assert_memory_equal(evbuffer_pullup(out, -1), bytes, len);
	evbuffer_drain(out, len);
}
#define ASSERT_OUT(literal) assert_out(literal, sizeof(literal) - 1)

static void acks_and_subscriptions_are_exactly_these_bytes(void **state)
{
	const struct discovery_response r = {.type_url = "T", .nonce = "N", .version = "V"};

	(void)state;
	discovery_put_ack(out, DISCOVERY_SOTW, &r, NULL);
	ASSERT_OUT("\x0a\x01V\x22\x01T\x2a\x01N");
	discovery_put_ack(out, DISCOVERY_DELTA, &r, NULL);
	ASSERT_OUT("\x12\x01T\x32\x01N");
	discovery_put_ack(out, DISCOVERY_SOTW, &r, "why"); /* with the new version */
	ASSERT_OUT("\x0a\x01V\x22\x01T\x2a\x01N\x32\x07\x08\x0d\x12\x03why");
	discovery_put_ack(out, DISCOVERY_DELTA, &r, "why");
	ASSERT_OUT("\x12\x01T\x32\x01N\x3a\x07\x08\x0d\x12\x03why");
	discovery_put_subscribe(out, DISCOVERY_SOTW, "T");
	ASSERT_OUT("\x22\x01T");
	discovery_put_subscribe(out, DISCOVERY_DELTA, "T");
	ASSERT_OUT("\x12\x01T");
	discovery_put_health(out, DISCOVERY_SOTW, NULL);
	ASSERT_OUT("\x22\x2e" TYPE_HEALTH);
	discovery_put_health(out, DISCOVERY_DELTA, "why"); /* bare-metal-identity.md 5 */
	ASSERT_OUT("\x12\x2e" TYPE_HEALTH "\x3a\x07\x08\x0d\x12\x03why");
}

static const struct discovery_node ours = {.id = "ID", .metadata = "MD", .metadata_size = 2};
#define OURS "\x0a\x02ID\x1a\x02MD"

static void replace(const char *bytes, size_t len, enum discovery_flavour f, int expect)
{
	struct message m = {.len = len};
	struct err e;

	memcpy(m.bytes, bytes, len);
	assert_int_equal(discovery_replace_node(out, f, whole(&m), &ours, &e), expect);
}
#define REPLACE(literal, f, expect) replace(literal, sizeof(literal) - 1, f, expect)

static void id_and_metadata_are_replaced(void **state)
{
	(void)state;
	/* Cluster (2) stays, everything around the node stays. */
	REPLACE("\x12\x0c\x0a\x02xy\x12\x02"
		"cl\x1a\x02zz\x22\x01T\x2a\x01N",
	    DISCOVERY_SOTW, 0);
	ASSERT_OUT("\x22\x01T\x2a\x01N\x12\x0c\x12\x02"
		   "cl" OURS);
	REPLACE("\x0a\x04\x12\x02"
		"cl\x12\x01T",
	    DISCOVERY_DELTA, 0);
	ASSERT_OUT("\x12\x01T\x0a\x0c\x12\x02"
		   "cl" OURS);
}

static void a_request_without_a_node_gets_ours(void **state)
{
	(void)state;
	REPLACE("\x22\x01T", DISCOVERY_SOTW, 0);
	ASSERT_OUT("\x22\x01T\x12\x08" OURS);
	REPLACE("", DISCOVERY_DELTA, 0);
	ASSERT_OUT("\x0a\x08" OURS);
}

/* Field 2 is the node of SotW and the type of delta: the other flavour's is an ordinary field. */
static void only_the_flavours_own_node_is_touched(void **state)
{
	(void)state;
	REPLACE("\x0a\x01v", DISCOVERY_SOTW, 0);
	ASSERT_OUT("\x0a\x01v\x12\x08" OURS);
}

static void a_node_in_pieces_becomes_one(void **state)
{
	(void)state;
	REPLACE("\x12\x08\x0a\x02xy\x12\x02"
		"c1\x22\x01T\x12\x0c\x12\x02"
		"c2\x0a\x02zz\x1a\x02mm",
	    DISCOVERY_SOTW, 0);
	ASSERT_OUT("\x22\x01T\x12\x10\x12\x02"
		   "c1\x12\x02"
		   "c2" OURS);
}

/* Parsers disagree about a known field of another wire type; so it does not get past us. */
static void an_id_of_another_wire_type_is_dropped_too(void **state)
{
	(void)state;
	REPLACE("\x12\x07\x08\x05\x1d"
		"abcd",
	    DISCOVERY_SOTW, 0);
	ASSERT_OUT("\x12\x08" OURS);
}

static void nothing_is_written_when_a_request_is_malformed(void **state)
{
	(void)state;
	REPLACE("\x22\x01T\x12\x01\x0a", DISCOVERY_SOTW, -1);
	REPLACE("\x22\x01T\x10\x01", DISCOVERY_SOTW, -1);
	REPLACE("\x22\x01T\x2a\x05", DISCOVERY_SOTW, -1);
	assert_int_equal(evbuffer_get_length(out), 0);
}

/* grpc-core.md 5: with protobuf-c a deep metadata ends the process. */
static void deep_metadata_is_walked_over(void **state)
{
	enum { DEPTH = 5000 };
	static uint8_t deep[4 * DEPTH + 16];
	size_t at = sizeof(deep), len = 0;
	struct iovec iov;
	struct pbwire msg;
	struct err e;

	(void)state;
	/* Value{struct_value{...}} from the inside to the outside. */
	for (int i = 0; i < DEPTH && len < sizeof(deep) - 8; i++) {
		uint8_t head[4] = {
		    0x2a, (uint8_t)(len | 0x80), (uint8_t)(len >> 7 | 0x80), (uint8_t)(len >> 14)};

		at -= sizeof(head);
		memcpy(deep + at, head, sizeof(head));
		len += sizeof(head);
	}
	pbwire_put_bytes(out, 3, deep + at, len);
	len = evbuffer_get_length(out);
	iov = (struct iovec){malloc(len + 4), len + 4};
	memcpy(iov.iov_base,
	    (uint8_t[]){
		0x12, (uint8_t)(len | 0x80), (uint8_t)(len >> 7 | 0x80), (uint8_t)(len >> 14)},
	    4);
	evbuffer_remove(out, (uint8_t *)iov.iov_base + 4, len);
	pbwire_init(&msg, &iov, 1);
	assert_int_equal(discovery_replace_node(out, DISCOVERY_SOTW, msg, &ours, &e), 0);
	ASSERT_OUT("\x12\x08" OURS);
	free(iov.iov_base);
}

/* ---- 1,000 random requests: what is ours is ours, all else is byte-equal ---- */

static uint32_t seed;

static uint32_t rnd(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 17;
	seed ^= seed << 5;
	return seed % below;
}

static void put_random_field(struct evbuffer *to, uint32_t number)
{
	uint8_t junk[200];
	size_t len = rnd(rnd(4) ? 12 : sizeof(junk));

	for (size_t i = 0; i < len; i++)
		junk[i] = (uint8_t)rnd(256);
	if (rnd(5) == 0)
		pbwire_put_varint(to, number, (uint64_t)rnd(UINT32_MAX) << rnd(32));
	else
		pbwire_put_bytes(to, number, junk, len);
}

/* A node of random fields; `kept` collects those that must survive. */
static void put_random_node(uint32_t number, struct evbuffer *kept)
{
	struct evbuffer *node = evbuffer_new(), *field = evbuffer_new();

	for (uint32_t n = rnd(8); n > 0; n--) {
		uint32_t f = rnd(6) ? 1 + rnd(14) : 1 + rnd(1 << 20);

		put_random_field(field, f);
		evbuffer_add(node, evbuffer_pullup(field, -1), evbuffer_get_length(field));
		if (f != 1 && f != 3)
			evbuffer_add_buffer(kept, field);
		evbuffer_drain(field, evbuffer_get_length(field));
	}
	pbwire_put_bytes(out, number, evbuffer_pullup(node, -1), evbuffer_get_length(node));
	evbuffer_free(node);
	evbuffer_free(field);
}

static struct pbwire cut_at_random(struct message *m)
{
	struct pbwire r;
	size_t at = 0;

	for (int i = 0; i < PIECES - 1; i++) {
		size_t n = rnd((uint32_t)(m->len - at) + 1) / (1 + rnd(9));

		m->iov[i] = (struct iovec){m->bytes + at, n};
		at += n;
	}
	m->iov[PIECES - 1] = (struct iovec){m->bytes + at, m->len - at};
	pbwire_init(&r, m->iov, PIECES);
	return r;
}

static void random_requests_keep_what_is_not_ours(void **state)
{
	static struct message m;
	struct evbuffer *rest = evbuffer_new(), *kept = evbuffer_new(), *field = evbuffer_new();

	(void)state;
	for (uint32_t round = 1; round <= 1000; round++) {
		enum discovery_flavour f = round % 2 ? DISCOVERY_SOTW : DISCOVERY_DELTA;
		uint32_t node = f == DISCOVERY_SOTW ? 2 : 1;
		struct err e;

		seed = round * 2654435761u;
		for (uint32_t n = rnd(10); n > 0; n--) {
			uint32_t number = 1 + rnd(12);

			if (number == node) {
				put_random_node(node, kept);
				continue;
			}
			put_random_field(field, number);
			evbuffer_add(out, evbuffer_pullup(field, -1), evbuffer_get_length(field));
			evbuffer_add_buffer(rest, field);
		}
		finish(&m);
		evbuffer_add(kept, OURS, sizeof(OURS) - 1);
		pbwire_put_bytes(rest, node, evbuffer_pullup(kept, -1), evbuffer_get_length(kept));
		assert_int_equal(discovery_replace_node(out, f, cut_at_random(&m), &ours, &e), 0);
		assert_out(evbuffer_pullup(rest, -1), evbuffer_get_length(rest));
		evbuffer_drain(rest, evbuffer_get_length(rest));
		evbuffer_drain(kept, evbuffer_get_length(kept));
	}
	evbuffer_free(rest);
	evbuffer_free(kept);
	evbuffer_free(field);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_request_is_read),
	    TEST(the_last_occurrence_counts),
	    TEST(a_long_reason_is_cut),
	    TEST(malformed_requests_are_errors),
	    TEST(fields_of_a_request_are_counted),
	    TEST(a_response_is_read),
	    TEST(a_long_nonce_is_an_error_a_long_version_is_not),
	    TEST(names_come_in_the_order_of_the_wire),
	    TEST(a_name_has_at_most_4096_bytes),
	    TEST(malformed_names_are_errors),
	    TEST(acks_and_subscriptions_are_exactly_these_bytes),
	    TEST(id_and_metadata_are_replaced),
	    TEST(a_request_without_a_node_gets_ours),
	    TEST(only_the_flavours_own_node_is_touched),
	    TEST(a_node_in_pieces_becomes_one),
	    TEST(an_id_of_another_wire_type_is_dropped_too),
	    TEST(nothing_is_written_when_a_request_is_malformed),
	    TEST(deep_metadata_is_walked_over),
	    TEST(random_requests_keep_what_is_not_ours),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
