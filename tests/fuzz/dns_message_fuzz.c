/* dns_message_fuzz.c - any bytes as a pod's query, and any as a resolver's answer to it.
 *
 * The first two bytes say how long the query is.  What is read is answered, refused and cut within
 * its bounds, and our own answers are answers to it.
 */
#include "base/dns/message.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_answer(const struct dns_query *q, const struct dns_answer *a, size_t limit)
{
	size_t size;
	uint8_t *wire = dns_answer_write(q, a, limit, &size);

	if (!wire || size > limit || size < q->question_end || !dns_is_answer_to(q, wire, size) ||
	    dns_id(wire) != dns_id(q->data))
		abort();
	free(wire);
}

static void answer(const struct dns_query *q)
{
	struct dns_address a[70] = {{{0}}};

	check_answer(q, &(struct dns_answer){.alias = NULL}, DNS_UDP_SIZE);
	check_answer(q, &(struct dns_answer){.addresses = a, .n = 70}, DNS_UDP_SIZE);
	check_answer(q, &(struct dns_answer){.alias = "a.b.", .addresses = a, .n = 1}, q->udp_size);
}

static void take_answer(const struct dns_query *q, const uint8_t *data, size_t size)
{
	uint8_t *copy;

	if (!dns_is_answer_to(q, data, size))
		return;
	dns_is_failure(data, size);
	copy = malloc(size);
	memcpy(copy, data, size);
	if (dns_cut(q, copy) > size)
		abort();
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n = size < 2 ? 0 : (size_t)data[0] << 8 | data[1];
	struct dns_query q;

	if (size < 2 || n > size - 2)
		return 0;
	uint8_t *query = malloc(n + 1), *out = malloc(n + 1);
	memcpy(query, data + 2, n);
	enum dns_code code = dns_query_read(&q, query, n);
	if (dns_refusal_write(out, query, n, DNS_SERVFAIL) > n)
		abort();
	if (code == DNS_NOERROR) {
		if (q.question_end > n || !*q.name || q.name[strlen(q.name) - 1] != '.')
			abort();
		answer(&q);
		take_answer(&q, data + 2 + n, size - 2 - n);
	}
	free(query);
	free(out);
	return 0;
}
