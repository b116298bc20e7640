/* message.c - bytes -> ldns -> one question; addresses -> ldns -> bytes, with names compressed.
 */
#include "message.h"
#include "common/mem.h"
#include <ldns/ldns.h>
#include <string.h>

enum {
	FLAGS = 2,
	CODE = 3,
	COUNTS = 4,
	QR = 0x80,
	OPCODE = 0x78,
	TC = 0x02,
	RD = 0x01,
	RCODE = 0x0f
};

uint16_t dns_id(const uint8_t *data)
{
	return (uint16_t)(data[0] << 8 | data[1]);
}

void dns_set_id(uint8_t *data, uint16_t id)
{
	data[0] = (uint8_t)(id >> 8);
	data[1] = (uint8_t)id;
}

/* --- a question --- */

static int read_name(struct dns_query *q, const ldns_rdf *name)
{
	char *text;
	int rc = -1;

	ldns_dname2canonical(name);
	text = ldns_rdf2str(name);
	if (text && strlen(text) < sizeof(q->name)) {
		strcpy(q->name, text); /* NOLINT(clang-analyzer-security.insecureAPI.strcpy) */
		rc = 0;
	}
	free(text);
	return rc;
}

/* It must be on the wire as it is, so that it can be found again in an answer. */
static int find_end(struct dns_query *q, const ldns_rdf *name)
{
	size_t size = ldns_rdf_size(name);

	q->question_end = DNS_HEADER_SIZE + size + 4;
	if (q->question_end > q->size)
		return -1;
	for (size_t i = 0; i < size; i++)
		if (LDNS_DNAME_NORMALIZE((int)q->data[DNS_HEADER_SIZE + i]) !=
		    LDNS_DNAME_NORMALIZE((int)ldns_rdf_data(name)[i]))
			return -1;
	return 0;
}

static enum dns_code read_question(struct dns_query *q, const ldns_pkt *pkt)
{
	const ldns_rr_list *questions = ldns_pkt_question(pkt);
	const ldns_rr *rr;

	if (ldns_pkt_qdcount(pkt) == 0)
		return DNS_SERVFAIL; /* istio-agent.md 7.4 */
	if (ldns_pkt_qdcount(pkt) != 1)
		return DNS_FORMERR;
	rr = ldns_rr_list_rr(questions, 0);
	if (find_end(q, ldns_rr_owner(rr)) || read_name(q, ldns_rr_owner(rr)))
		return DNS_FORMERR;
	if (ldns_rr_get_class(rr) != LDNS_RR_CLASS_IN)
		return DNS_REFUSED;
	q->type = (uint16_t)ldns_rr_get_type(rr);
	q->udp_size = ldns_pkt_edns(pkt) ? ldns_pkt_edns_udp_size(pkt) : 0;
	if (q->udp_size < DNS_UDP_SIZE)
		q->udp_size = DNS_UDP_SIZE;
	return DNS_NOERROR;
}

enum dns_code dns_query_read(struct dns_query *q, const uint8_t *data, size_t size)
{
	ldns_pkt *pkt = NULL;
	enum dns_code code;

	*q = (struct dns_query){.data = data, .size = size};
	if (size < DNS_HEADER_SIZE || (data[FLAGS] & QR))
		return DNS_SAY_NOTHING; /* answering an answer makes a loop */
	if (data[FLAGS] & OPCODE)
		return DNS_NOTIMP;
	/* ldns reads all records: a full message takes milliseconds that are not this pod's. */
	if (size > DNS_QUERY_MAX || ldns_wire2pkt(&pkt, data, size) != LDNS_STATUS_OK)
		return DNS_FORMERR;
	code = read_question(q, pkt);
	ldns_pkt_free(pkt);
	return code;
}

/* --- in answer to it --- */

size_t dns_refusal_write(uint8_t *out, const uint8_t *query, size_t size, enum dns_code code)
{
	struct dns_query q;

	if (size < DNS_HEADER_SIZE)
		return 0;
	if (dns_query_read(&q, query, size) != DNS_NOERROR)
		q.question_end = DNS_HEADER_SIZE;
	memcpy(out, query, q.question_end);
	out[FLAGS] = (uint8_t)(QR | (query[FLAGS] & (OPCODE | RD)));
	out[CODE] = (uint8_t)(0x80 | code); /* recursion is available */
	memset(out + COUNTS, 0, DNS_HEADER_SIZE - COUNTS);
	out[COUNTS + 1] = q.question_end > DNS_HEADER_SIZE;
	return q.question_end;
}

static ldns_rr *new_rr(const ldns_rdf *owner, ldns_rr_type type, ldns_rdf *data)
{
	ldns_rr *rr = ldns_rr_new();

	ldns_rr_set_owner(rr, ldns_rdf_clone(owner));
	ldns_rr_set_type(rr, type);
	ldns_rr_set_class(rr, LDNS_RR_CLASS_IN);
	ldns_rr_set_ttl(rr, DNS_TTL_S);
	ldns_rr_push_rdf(rr, data);
	return rr;
}

static ldns_pkt *new_answer(const struct dns_query *q)
{
	ldns_pkt *pkt = NULL;

	if (ldns_wire2pkt(&pkt, q->data, q->question_end) == LDNS_STATUS_OK)
		return pkt;
	/* Counts speak of more than the question: the same without them. */
	uint8_t bare[DNS_HEADER_SIZE + 255 + 4];
	if (q->question_end > sizeof(bare))
		return NULL;
	memcpy(bare, q->data, q->question_end);
	memset(bare + COUNTS + 2, 0, DNS_HEADER_SIZE - COUNTS - 2);
	return ldns_wire2pkt(&pkt, bare, q->question_end) == LDNS_STATUS_OK ? pkt : NULL;
}

static void add_records(ldns_pkt *pkt, const struct dns_query *q, const struct dns_answer *a)
{
	const ldns_rdf *asked = ldns_rr_owner(ldns_rr_list_rr(ldns_pkt_question(pkt), 0));
	bool v4 = q->type == DNS_A;
	ldns_rdf *owner;

	if (a->n == 0)
		return; /* not even the alias: istio-agent.md 7.4 */
	owner = a->alias ? ldns_dname_new_frm_str(a->alias) : ldns_rdf_clone(asked);
	if (!owner)
		return;
	ldns_dname2canonical(owner);
	if (a->alias)
		ldns_pkt_push_rr(pkt, LDNS_SECTION_ANSWER,
		    new_rr(asked, LDNS_RR_TYPE_CNAME, ldns_rdf_clone(owner)));
	for (size_t i = 0; i < a->n && i < DNS_ADDRESSES_MAX; i++)
		ldns_pkt_push_rr(pkt, LDNS_SECTION_ANSWER,
		    new_rr(owner, v4 ? LDNS_RR_TYPE_A : LDNS_RR_TYPE_AAAA,
			ldns_rdf_new_frm_data(v4 ? LDNS_RDF_TYPE_A : LDNS_RDF_TYPE_AAAA,
			    v4 ? 4 : 16, a->addresses[i].bytes)));
	ldns_rdf_deep_free(owner);
}

/* Some of the addresses are better than none: not everybody asks again by TCP. */
static void drop_records(ldns_pkt *pkt, const struct dns_query *q, size_t excess)
{
	size_t each = q->type == DNS_A ? 16 : 28; /* its owner is a pointer */
	ldns_rr_list *all = ldns_pkt_answer(pkt);

	for (size_t n = excess / each + 1; n > 0 && ldns_rr_list_rr_count(all); n--)
		ldns_rr_free(ldns_rr_list_pop_rr(all));
	ldns_pkt_set_ancount(pkt, (uint16_t)ldns_rr_list_rr_count(all));
	ldns_pkt_set_tc(pkt, true);
}

uint8_t *dns_answer_write(
    const struct dns_query *q, const struct dns_answer *a, size_t limit, size_t *size)
{
	ldns_pkt *pkt = new_answer(q);
	uint8_t *wire = NULL;

	*size = 0;
	if (!pkt)
		return NULL;
	ldns_pkt_set_qr(pkt, true);
	ldns_pkt_set_aa(pkt, true);
	ldns_pkt_set_ra(pkt, true);
	add_records(pkt, q, a);
	while (ldns_pkt2wire(&wire, pkt, size) == LDNS_STATUS_OK && *size > limit &&
	       ldns_rr_list_rr_count(ldns_pkt_answer(pkt))) {
		free(take(wire));
		drop_records(pkt, q, *size - limit);
	}
	ldns_pkt_free(pkt);
	return wire;
}

/* --- somebody else's answer --- */

/* Who could not read the question need not repeat it. */
bool dns_is_answer_to(const struct dns_query *q, const uint8_t *data, size_t size)
{
	if (size < DNS_HEADER_SIZE || !(data[FLAGS] & QR))
		return false;
	if (!data[COUNTS] && !data[COUNTS + 1])
		return (data[CODE] & RCODE) != DNS_NOERROR;
	if (size < q->question_end || data[COUNTS] || data[COUNTS + 1] != 1)
		return false;
	for (size_t i = DNS_HEADER_SIZE; i < q->question_end; i++)
		if (LDNS_DNAME_NORMALIZE((int)data[i]) != LDNS_DNAME_NORMALIZE((int)q->data[i]))
			return false;
	return true;
}

size_t dns_cut(const struct dns_query *q, uint8_t *data)
{
	data[FLAGS] |= TC;
	memset(data + COUNTS + 2, 0, DNS_HEADER_SIZE - COUNTS - 2);
	return data[COUNTS + 1] ? q->question_end : DNS_HEADER_SIZE;
}

bool dns_is_failure(const uint8_t *data, size_t size)
{
	return size < DNS_HEADER_SIZE || (data[CODE] & RCODE) == DNS_SERVFAIL;
}
