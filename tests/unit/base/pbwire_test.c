/* pbwire_test.c - protobuf wire bytes in pieces.  No neighbours, so nothing is faked. */
#include "base/pbwire.h"

#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define BYTES(...) ((const uint8_t[]){__VA_ARGS__}), sizeof((const uint8_t[]){__VA_ARGS__})

static struct iovec one;

static struct pbwire reader(const void *data, size_t size)
{
	struct pbwire r;

	one = (struct iovec){.iov_base = (void *)data, .iov_len = size};
	pbwire_init(&r, &one, 1);
	return r;
}

/* The result of reading one field out of these bytes. */
static int first(struct pbwire_field *f, const uint8_t *data, size_t size)
{
	struct pbwire r = reader(data, size);

	return pbwire_next(&r, f);
}

static void test_every_type_is_read(void **state)
{
	(void)state;
	static const uint8_t data[] = {0x08, 0x96, 0x01, /* 1: 150 */
	    0x11, 8, 7, 6, 5, 4, 3, 2, 1,                /* 2: fixed64 */
	    0x1a, 3, 'a', 'b', 'c',                      /* 3: "abc" */
	    0x25, 1, 0, 0, 0x80,                         /* 4: fixed32 */
	    0xf8, 0xff, 0xff, 0xff, 0x0f, 0};            /* 2^29-1: 0 */
	struct pbwire r = reader(data, sizeof(data));
	struct pbwire_field f;
	char text[4];

	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(f.number, 1);
	assert_int_equal(f.type, PBWIRE_VARINT);
	assert_int_equal(f.value, 150);
	assert_int_equal(f.size, 3);
	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(f.type, PBWIRE_FIXED64);
	assert_true(f.value == 0x0102030405060708);
	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(f.type, PBWIRE_BYTES);
	assert_int_equal(f.bytes.left, 3);
	assert_int_equal(f.size, 5);
	assert_int_equal(pbwire_string(f.bytes, text, sizeof(text)), 0);
	assert_string_equal(text, "abc");
	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(f.type, PBWIRE_FIXED32);
	assert_true(f.value == 0x80000001);
	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(f.number, (1 << 29) - 1);
	assert_int_equal(f.size, 6);
	assert_int_equal(pbwire_next(&r, &f), 0);
	assert_int_equal(pbwire_next(&r, &f), 0);
}

static void test_varint_limits(void **state)
{
	(void)state;
	struct pbwire_field f;

	assert_int_equal(
	    first(&f, BYTES(8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1)), 1);
	assert_true(f.value == UINT64_MAX);
	/* One bit more than 64; an eleventh byte; padding zeroes are what Go accepts, too. */
	assert_int_equal(
	    first(&f, BYTES(8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2)), -1);
	assert_int_equal(
	    first(&f, BYTES(8, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0)), -1);
	assert_int_equal(
	    first(&f, BYTES(8, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0)), 1);
	assert_true(f.value == 1);
	assert_int_equal(first(&f, BYTES(8)), -1);
	assert_int_equal(first(&f, BYTES(8, 0x80)), -1);
}

static void test_bad_tags(void **state)
{
	(void)state;
	struct pbwire_field f;

	assert_int_equal(first(&f, BYTES(0x00, 1)), -1);    /* field 0 */
	assert_int_equal(first(&f, BYTES(0x02, 0)), -1);    /* field 0, bytes */
	assert_int_equal(first(&f, BYTES(0x0b, 0x0c)), -1); /* group start */
	assert_int_equal(first(&f, BYTES(0x0c)), -1);       /* group end */
	assert_int_equal(first(&f, BYTES(0x0e, 1)), -1);    /* type 6 */
	assert_int_equal(first(&f, BYTES(0x0f, 1)), -1);    /* type 7 */
	assert_int_equal(first(&f, BYTES(0x80, 0x80, 0x80, 0x80, 0x10, 0)), -1); /* number 2^29 */
	assert_int_equal(
	    first(&f, BYTES(0x88, 0x80, 0x80, 0x80, 0x80, 0x01, 0)), -1); /* 1 + 2^32 */
	assert_int_equal(first(&f, BYTES(0x88, 0x00, 5)), 1); /* padded tag of field 1 */
	assert_int_equal(f.number, 1);
}

static void test_lengths_beyond_the_end(void **state)
{
	(void)state;
	struct pbwire_field f;

	assert_int_equal(first(&f, BYTES(0x0a, 1)), -1);
	assert_int_equal(first(&f, BYTES(0x0a, 0)), 1);
	assert_int_equal(f.bytes.left, 0);
	/* 2^64-1: must not wrap around. */
	assert_int_equal(
	    first(&f, BYTES(0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'x')),
	    -1);
	assert_int_equal(first(&f, BYTES(0x09, 1, 2, 3, 4, 5, 6, 7)), -1);
	assert_int_equal(first(&f, BYTES(0x0d, 1, 2, 3)), -1);
}

/* A nested reader ends with its payload, though there are bytes behind it. */
static void test_nested_is_bounded_by_its_parent(void **state)
{
	(void)state;
	static const uint8_t data[] = {
	    0x0a, 2, 0x12, 9, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'};
	struct pbwire r = reader(data, sizeof(data));
	struct pbwire_field f, inner;

	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(pbwire_next(&f.bytes, &inner), -1);
}

static void test_malformed_stays(void **state)
{
	(void)state;
	struct pbwire r = reader(BYTES(8, 1, 0x0b, 8, 1));
	struct pbwire_field f;

	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(pbwire_next(&r, &f), -1);
	assert_int_equal(r.left, 3);
	assert_int_equal(pbwire_next(&r, &f), -1);
}

/* Field count, values and outcome of a walk as one number; nested bytes of field 5 included. */
static uint64_t digest(struct pbwire r, int *rc)
{
	struct pbwire_field f;
	uint64_t sum = 7;

	while ((*rc = pbwire_next(&r, &f)) == 1) {
		uint8_t copy[64];

		sum = sum * 131 + f.number * 8 + f.type + f.value + f.size;
		if (f.type != PBWIRE_BYTES)
			continue;
		size_t n = pbwire_copy(f.bytes, copy, sizeof(copy));
		assert_int_equal(n, f.bytes.left);
		for (size_t i = 0; i < n; i++)
			sum = sum * 131 + copy[i];
	}
	return sum;
}

/* The size of a prefix's last whole field decides; both halves are blocks of their own for ASan. */
static void check_split(const uint8_t *data, size_t size, size_t cut, int want_rc, uint64_t want)
{
	void *a = malloc(cut), *b = malloc(size - cut);
	struct iovec iov[] = {{a, cut}, {NULL, 0}, {b, size - cut}};
	struct pbwire r;
	int rc;

	if (cut)
		memcpy(a, data, cut);
	if (size > cut)
		memcpy(b, data + cut, size - cut);
	pbwire_init(&r, iov, 3);
	assert_true(digest(r, &rc) == want);
	assert_int_equal(rc, want_rc);
	free(a);
	free(b);
}

static void test_every_prefix_split_everywhere(void **state)
{
	(void)state;
	struct evbuffer *msg = evbuffer_new();
	bool whole_ends[256] = {[0] = true};

	pbwire_put_varint(msg, 1, 300);
	whole_ends[evbuffer_get_length(msg)] = true;
	pbwire_put_bytes(msg, 5, "type.googleapis.com/x", 21);
	whole_ends[evbuffer_get_length(msg)] = true;
	evbuffer_add(msg, (uint8_t[]){0x31, 1, 2, 3, 4, 5, 6, 7, 8, 0x3d, 1, 2, 3, 4}, 14);
	whole_ends[evbuffer_get_length(msg) - 5] = whole_ends[evbuffer_get_length(msg)] = true;
	pbwire_put_varint(msg, 1 << 20, UINT64_MAX);
	whole_ends[evbuffer_get_length(msg)] = true;
	pbwire_put_bytes(msg, 2, "", 0);
	whole_ends[evbuffer_get_length(msg)] = true;

	const uint8_t *data = evbuffer_pullup(msg, -1);
	size_t all = evbuffer_get_length(msg);

	for (size_t size = 0; size <= all; size++) {
		uint8_t *exact = malloc(size);
		int rc;

		if (size)
			memcpy(exact, data, size);
		uint64_t want = digest(reader(exact, size), &rc);

		/* A prefix is well-formed exactly where a field ends. */
		assert_int_equal(rc, whole_ends[size] ? 0 : -1);
		for (size_t cut = 0; cut <= size; cut++)
			check_split(data, size, cut, rc, want);
		free(exact);
	}
	evbuffer_free(msg);
}

/* The payload lies in memory that cannot be read: touching one byte of it would be fatal. */
static void test_skipping_touches_nothing(void **state)
{
	(void)state;
	enum { SIZE = 64 << 20 };
	void *forbidden = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t head[] = {0x12, 0x80, 0x80, 0x80, 0x20}, tail[] = {0x22, 1, 'u'};
	struct iovec iov[] = {{head, sizeof(head)}, {forbidden, SIZE}, {tail, sizeof(tail)}};
	struct pbwire r;
	struct pbwire_field f;
	char text[2];

	assert_ptr_not_equal(forbidden, MAP_FAILED);
	pbwire_init(&r, iov, 3);
	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(f.bytes.left, SIZE);
	assert_int_equal(f.size, SIZE + sizeof(head));
	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(f.number, 4);
	assert_int_equal(pbwire_string(f.bytes, text, sizeof(text)), 0);
	assert_int_equal(pbwire_next(&r, &f), 0);
	munmap(forbidden, SIZE);
}

static void test_empty_iovecs(void **state)
{
	(void)state;
	uint8_t a[] = {8}, b[] = {1};
	struct iovec iov[] = {{NULL, 0}, {a, 1}, {NULL, 0}, {NULL, 0}, {b, 1}, {NULL, 0}};
	struct pbwire r;
	struct pbwire_field f;

	pbwire_init(&r, iov, 6);
	assert_int_equal(pbwire_next(&r, &f), 1);
	assert_int_equal(f.value, 1);
	assert_int_equal(pbwire_next(&r, &f), 0);
	pbwire_init(&r, iov, 1);
	assert_int_equal(pbwire_next(&r, &f), 0);
	pbwire_init(&r, NULL, 0);
	assert_int_equal(pbwire_next(&r, &f), 0);
}

static int string_of(const uint8_t *data, size_t size)
{
	char text[16];

	return pbwire_string(reader(data, size), text, sizeof(text));
}

static void test_strings(void **state)
{
	(void)state;
	char text[4] = "zzz";

	assert_int_equal(string_of(BYTES('a', 'b')), 0);
	assert_int_equal(string_of(BYTES(0xc2, 0x80)), 0);             /* U+0080 */
	assert_int_equal(string_of(BYTES(0xe2, 0x82, 0xac)), 0);       /* U+20AC */
	assert_int_equal(string_of(BYTES(0xee, 0x80, 0x80)), 0);       /* U+E000 */
	assert_int_equal(string_of(BYTES(0xed, 0x9f, 0xbf)), 0);       /* U+D7FF */
	assert_int_equal(string_of(BYTES(0xf4, 0x8f, 0xbf, 0xbf)), 0); /* U+10FFFF */
	assert_int_equal(string_of(BYTES('a', 0, 'b')), -1);           /* NUL */
	assert_int_equal(string_of(BYTES(0)), -1);
	assert_int_equal(string_of(BYTES(0xc0, 0x80)), -1);             /* overlong NUL */
	assert_int_equal(string_of(BYTES(0xc1, 0xbf)), -1);             /* overlong */
	assert_int_equal(string_of(BYTES(0xe0, 0x9f, 0xbf)), -1);       /* overlong */
	assert_int_equal(string_of(BYTES(0xf0, 0x8f, 0xbf, 0xbf)), -1); /* overlong */
	assert_int_equal(string_of(BYTES(0xed, 0xa0, 0x80)), -1);       /* surrogate U+D800 */
	assert_int_equal(string_of(BYTES(0xed, 0xbf, 0xbf)), -1);       /* surrogate U+DFFF */
	assert_int_equal(string_of(BYTES(0xf4, 0x90, 0x80, 0x80)), -1); /* U+110000 */
	assert_int_equal(string_of(BYTES(0xf8, 0x88, 0x80, 0x80, 0x80)), -1);
	assert_int_equal(string_of(BYTES(0xfc, 0x80, 0x80, 0x80)), -1);
	assert_int_equal(string_of(BYTES(0xff)), -1);
	assert_int_equal(string_of(BYTES(0x80)), -1);            /* stray continuation */
	assert_int_equal(string_of(BYTES('a', 0xe2, 0x82)), -1); /* cut */
	assert_int_equal(string_of(BYTES(0xe2, 0x28, 0xa1)), -1);
	/* The NUL must fit, too; an empty string is one. */
	assert_int_equal(pbwire_string(reader("abcd", 4), text, 4), -1);
	assert_int_equal(pbwire_string(reader("abc", 3), text, 4), 0);
	assert_string_equal(text, "abc");
	assert_int_equal(pbwire_string(reader("", 0), text, 1), 0);
	assert_string_equal(text, "");
	assert_int_equal(pbwire_string(reader("", 0), text, 0), -1);
}

static void test_copy_is_bounded(void **state)
{
	(void)state;
	char out[4] = "....";

	assert_int_equal(pbwire_copy(reader("abcdef", 6), out, 3), 3);
	assert_memory_equal(out, "abc.", 4);
}

static void test_writers(void **state)
{
	(void)state;
	static const uint8_t want[] = {
	    0x08, 0, 0xa2, 0x06, 2, 'h', 'i', 0x10, 0xac, 0x02, 0x18, 0x80, 0x01};
	struct evbuffer *out = evbuffer_new();

	pbwire_put_varint(out, 1, 0);
	pbwire_put_bytes(out, 100, "hi", 2);
	pbwire_put_varint(out, 2, 300);
	pbwire_put_varint(out, 3, 128);
	assert_int_equal(evbuffer_get_length(out), sizeof(want));
	assert_memory_equal(evbuffer_pullup(out, -1), want, sizeof(want));
	evbuffer_free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_type_is_read),
	    cmocka_unit_test(test_varint_limits),
	    cmocka_unit_test(test_bad_tags),
	    cmocka_unit_test(test_lengths_beyond_the_end),
	    cmocka_unit_test(test_nested_is_bounded_by_its_parent),
	    cmocka_unit_test(test_malformed_stays),
	    cmocka_unit_test(test_every_prefix_split_everywhere),
	    cmocka_unit_test(test_skipping_touches_nothing),
	    cmocka_unit_test(test_empty_iovecs),
	    cmocka_unit_test(test_strings),
	    cmocka_unit_test(test_copy_is_bounded),
	    cmocka_unit_test(test_writers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
