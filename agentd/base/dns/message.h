/* message.h - reads the question of a DNS message, and writes answers to it; ldns inside.
 *
 * One question of class IN is understood; everything else is answered with the code that the
 * RFCs have for it, or not at all.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DNS_HEADER_SIZE = 12,
	DNS_NAME_SIZE = 1024,     /* of the text of 255 bytes, escapes and all */
	DNS_MESSAGE_MAX = 65535,  /* also what a client of TCP may get */
	DNS_QUERY_MAX = 4096,     /* more than a question can need, keys and cookies included */
	DNS_UDP_SIZE = 512,       /* what a client of UDP gets that does not say more (EDNS) */
	DNS_ADDRESSES_MAX = 1024, /* in one answer */
	DNS_TTL_S = 30,           /* istio-agent.md 7.3 */
};
enum dns_type { DNS_A = 1, DNS_AAAA = 28 };
enum dns_code {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_SAY_NOTHING = -1,
};

struct dns_query {
	const uint8_t *data; /* as it came */
	size_t size;
	size_t question_end;      /* in `data` */
	char name[DNS_NAME_SIZE]; /* lower case, with its final dot */
	uint16_t type;
	size_t udp_size; /* what the client takes by UDP: at least 512 */
};
/* DNS_NOERROR, or the code to reply instead of an answer.  `data` must outlive the query. */
enum dns_code dns_query_read(struct dns_query *q, const uint8_t *data, size_t size);

struct dns_address {
	uint8_t bytes[16]; /* of which an A record has 4 */
};
struct dns_answer {
	const char *alias; /* a CNAME from the name asked to this one; NULL: none */
	const struct dns_address *addresses; /* of the family asked */
	size_t n;
};
/* Authoritative; an empty one is "no data".  Cut to `limit` bytes with TC.  The bytes are the
 * caller's to free(). */
uint8_t *dns_answer_write(
    const struct dns_query *q, const struct dns_answer *a, size_t limit, size_t *size);
/* `out` has room for `size` bytes, those of the query: its header and question in answer, with this
 * code; returns their number. 0: the query is shorter than a header. */
size_t dns_refusal_write(uint8_t *out, const uint8_t *query, size_t size, enum dns_code code);

/* Is this an answer to that question?  The id is not looked at. */
bool dns_is_answer_to(const struct dns_query *q, const uint8_t *data, size_t size);
/* An answer to `q` becomes its header and question, with TC: its new size. */
size_t dns_cut(const struct dns_query *q, uint8_t *data);
bool dns_is_failure(
    const uint8_t *data, size_t size); /* SERVFAIL and the like; a header at least */
uint16_t dns_id(const uint8_t *data);
void dns_set_id(uint8_t *data, uint16_t id);
