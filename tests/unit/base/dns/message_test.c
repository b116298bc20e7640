/* message_test.c - questions that are read, or answered with an error, and answers to them. */
#include "base/dns/message.h"
#include "common/mem.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Of "www.Example.com", A, with EDNS of 1232 bytes. */
static const uint8_t good[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01"
			      "\x03www\x07"
			      "Example\x03"
			      "com\x00\x00\x01\x00\x01"
			      "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
enum {
	GOOD = sizeof(good) - 1,
	QUESTION_END = 12 + 17 + 4,
	TYPE_AT = 12 + 17,
	OPT_AT = QUESTION_END
};

static uint8_t bytes[512];
static struct dns_query q;

static enum dns_code read_with(size_t at, uint8_t value, size_t size)
{
	memcpy(bytes, good, GOOD);
	bytes[at] = value;
	return dns_query_read(&q, bytes, size);
}

static void a_good_question(void **state)
{
	(void)state;
	assert_int_equal(dns_query_read(&q, good, GOOD), DNS_NOERROR);
	assert_string_equal(q.name, "www.example.com.");
	assert_int_equal(q.type, DNS_A);
	assert_int_equal(q.udp_size, 1232);
	assert_int_equal(q.question_end, QUESTION_END);
	/* Without EDNS, or with less than every client takes. */
	memcpy(bytes, good, GOOD);
	bytes[11] = 0;
	assert_int_equal(dns_query_read(&q, bytes, QUESTION_END), DNS_NOERROR);
	assert_int_equal(q.udp_size, DNS_UDP_SIZE);
	assert_int_equal(read_with(OPT_AT + 3, 0, GOOD), DNS_NOERROR);
	assert_int_equal(q.udp_size, DNS_UDP_SIZE);
}

static void other_questions(void **state)
{
	(void)state;
	assert_int_equal(read_with(2, 0x81, GOOD), DNS_SAY_NOTHING);    /* an answer */
	assert_int_equal(read_with(2, 0x28, GOOD), DNS_NOTIMP);         /* an update */
	assert_int_equal(read_with(TYPE_AT + 3, 3, GOOD), DNS_REFUSED); /* CHAOS */
	assert_int_equal(read_with(5, 2, GOOD), DNS_FORMERR);           /* two questions */
	assert_int_equal(read_with(12, 0x3f, GOOD), DNS_FORMERR);       /* a label beyond the end */
	assert_int_equal(read_with(12, 0xc0, GOOD), DNS_FORMERR); /* a pointer into the header */
	for (size_t size = 0; size < GOOD; size++) {
		int code = read_with(0, 0, size);
		assert_true(size < DNS_HEADER_SIZE ? code == DNS_SAY_NOTHING : code == DNS_FORMERR);
	}
	memcpy(bytes, good, GOOD);
	bytes[5] = bytes[11] = 0;
	assert_int_equal(dns_query_read(&q, bytes, DNS_HEADER_SIZE), DNS_SERVFAIL);
}

static void odd_bytes_in_a_name(void **state)
{
	(void)state;
	assert_int_equal(read_with(13, '.', GOOD), DNS_NOERROR);
	assert_string_equal(q.name, "\\.ww.example.com.");
	assert_int_equal(read_with(13, 0, GOOD), DNS_NOERROR);
	assert_string_equal(q.name, "\\000ww.example.com.");
}

static void refusals(void **state)
{
	uint8_t out[GOOD];

	(void)state;
	assert_int_equal(dns_refusal_write(out, good, GOOD, DNS_SERVFAIL), QUESTION_END);
	assert_memory_equal(out, "\x12\x34\x81\x82\x00\x01\x00\x00\x00\x00\x00\x00", 12);
	assert_memory_equal(out + 12, good + 12, QUESTION_END - 12);
	/* What cannot be read is not repeated. */
	read_with(12, 0x3f, GOOD);
	assert_int_equal(dns_refusal_write(out, bytes, GOOD, DNS_FORMERR), DNS_HEADER_SIZE);
	assert_memory_equal(out, "\x12\x34\x81\x81\x00\x00\x00\x00\x00\x00\x00\x00", 12);
	assert_int_equal(dns_refusal_write(out, bytes, 11, DNS_FORMERR), 0);
}

static void answers(void **state)
{
	struct dns_address a[2] = {{{1, 2, 3, 4}}, {{5, 6, 7, 8}}};
	struct dns_answer answer = {.addresses = a, .n = 2};
	size_t size;

	(void)state;
	assert_int_equal(dns_query_read(&q, good, GOOD), DNS_NOERROR);
	uint8_t *wire = dns_answer_write(&q, &answer, 512, &size);
	assert_int_equal(size, QUESTION_END + 2 * 16);
	/* Authoritative; the question as it was spelt; names by pointer; 30 s. */
	assert_memory_equal(wire, "\x12\x34\x85\x80\x00\x01\x00\x02\x00\x00\x00\x00", 12);
	assert_memory_equal(wire + 12, good + 12, QUESTION_END - 12);
	assert_memory_equal(wire + QUESTION_END,
	    "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04\x01\x02\x03\x04", 16);
	free(wire);
	/* By another name. */
	answer.alias = "other.test.";
	wire = dns_answer_write(&q, &answer, 512, &size);
	assert_memory_equal(wire + 6, "\x00\x03", 2);
	assert_memory_equal(wire + QUESTION_END, "\xc0\x0c\x00\x05\x00\x01", 6);
	free(wire);
	/* No address of that family: no data. */
	answer.n = 0;
	wire = dns_answer_write(&q, &answer, 512, &size);
	assert_int_equal(size, QUESTION_END);
	assert_memory_equal(wire, "\x12\x34\x85\x80\x00\x01\x00\x00", 8);
	free(wire);
}

static void a_long_answer_is_cut(void **state)
{
	struct dns_address many[DNS_ADDRESSES_MAX] = {{{0}}};
	const struct dns_answer answer = {.addresses = many, .n = DNS_ADDRESSES_MAX};
	size_t size;

	(void)state;
	for (int type = DNS_A; type <= DNS_AAAA; type += DNS_AAAA - DNS_A) {
		assert_int_equal(read_with(TYPE_AT + 1, (uint8_t)type, GOOD), DNS_NOERROR);
		size_t each = type == DNS_A ? 16 : 28;
		uint8_t *wire = dns_answer_write(&q, &answer, 512, &size);
		assert_in_range(size, 512 - each, 512);
		assert_int_equal(wire[2] & 2, 2);
		assert_int_equal(wire[7], (size - QUESTION_END) / each);
		free(wire);
		wire = dns_answer_write(&q, &answer, DNS_MESSAGE_MAX, &size);
		assert_int_equal(size, QUESTION_END + DNS_ADDRESSES_MAX * each);
		assert_int_equal(wire[2] & 2, 0);
		free(wire);
	}
}

static void whose_answer(void **state)
{
	(void)state;
	assert_int_equal(dns_query_read(&q, good, GOOD), DNS_NOERROR);
	memcpy(bytes, good, GOOD);
	assert_false(dns_is_answer_to(&q, bytes, GOOD)); /* a question */
	bytes[2] = 0x81;
	assert_true(dns_is_answer_to(&q, bytes, GOOD));
	bytes[13] = 'W'; /* spelt otherwise */
	assert_true(dns_is_answer_to(&q, bytes, GOOD));
	bytes[13] = 'v';
	assert_false(dns_is_answer_to(&q, bytes, GOOD));
	assert_false(dns_is_answer_to(&q, bytes, QUESTION_END - 1));
	assert_false(dns_is_answer_to(&q, bytes, 11));
	/* An error need not repeat the question, an answer must. */
	bytes[5] = 0;
	assert_false(dns_is_answer_to(&q, bytes, GOOD));
	bytes[3] = 0x81;
	assert_true(dns_is_answer_to(&q, bytes, DNS_HEADER_SIZE));
	assert_false(dns_is_failure(bytes, DNS_HEADER_SIZE));
	bytes[3] = 0x82;
	assert_true(dns_is_failure(bytes, DNS_HEADER_SIZE));
	assert_int_equal(dns_cut(&q, bytes), DNS_HEADER_SIZE);
	bytes[5] = 1;
	assert_int_equal(dns_cut(&q, bytes), QUESTION_END);
	assert_memory_equal(bytes + 2, "\x83\x82\x00\x01\x00\x00\x00\x00\x00\x00", 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_good_question),
	    cmocka_unit_test(other_questions),
	    cmocka_unit_test(odd_bytes_in_a_name),
	    cmocka_unit_test(refusals),
	    cmocka_unit_test(answers),
	    cmocka_unit_test(a_long_answer_is_cut),
	    cmocka_unit_test(whose_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
