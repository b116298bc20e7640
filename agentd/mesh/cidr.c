/* cidr.c - see cidr.h. */
#include "cidr.h"
#include "common/err.h"
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	V4_BITS = 96,
	RANGES_MAX = REDIRECT_CIDRS_MAX - 1,
	TEXT_SIZE = INET6_ADDRSTRLEN + sizeof("/128")
};

int cidr_parse_address(struct redirect_address *out, const char *text)
{
	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, text, &out->word[3]) == 1) {
		out->word[2] = htobe32(0xffff);
		return 0;
	}
	return inet_pton(AF_INET6, text, out) == 1 ? 0 : -1;
}

static bool is_v4(const struct redirect_address *a)
{
	return !(a->word[0] | a->word[1]) && a->word[2] == htobe32(0xffff);
}

/* Keeps the first `bits`. */
static void mask(struct redirect_address *a, unsigned bits)
{
	uint8_t *byte = (uint8_t *)a;

	for (unsigned i = 0; i < sizeof(*a); i++) {
		unsigned keep = bits > i * 8 ? bits - i * 8 : 0;
		if (keep < 8)
			byte[i] &= (uint8_t) ~(0xff >> keep);
	}
}

/* As the trie sees it: IPv4 lies within ::/0. */
static bool holds(const struct redirect_cidr *c, const struct redirect_address *a)
{
	struct redirect_address masked = *a;

	mask(&masked, c->bits);
	return !memcmp(&masked, &c->address, sizeof(masked));
}

static bool covers(const struct redirect_cidr *c, const struct redirect_address *a)
{
	return is_v4(&c->address) == is_v4(a) && holds(c, a);
}

/* Without "/n" it is one address. */
static int parse(struct redirect_cidr *out, char *text)
{
	char *slash = strchr(text, '/'), *end;
	unsigned long bits = 128, max;

	if (slash)
		*slash = '\0';
	if (cidr_parse_address(&out->address, text))
		return -1;
	max = strchr(text, ':') ? 128 : 32;
	if (max == 128 && is_v4(&out->address))
		return -1; /* istio's rules for IPv6 never see IPv4 */
	if (slash) {
		bits = strtoul(slash + 1, &end, 10);
		if (!slash[1] || strspn(slash + 1, "0123456789") != strlen(slash + 1) || *end ||
		    bits > max)
			return -1;
		bits += max == 32 ? V4_BITS : 0;
	}
	out->bits = (uint32_t)bits;
	mask(&out->address, out->bits);
	return 0;
}

static int put(struct redirect_rules *r, const struct redirect_cidr *c)
{
	for (uint32_t i = 0; i < r->ncidrs; i++)
		if (r->cidrs[i].bits == c->bits &&
		    !memcmp(&r->cidrs[i].address, &c->address, sizeof(c->address))) {
			r->cidrs[i].flags |= c->flags;
			return 0;
		}
	if (r->ncidrs == RANGES_MAX)
		return -1;
	r->cidrs[r->ncidrs++] = *c;
	return 0;
}

int cidr_add(
    struct redirect_rules *r, const char *what, const char *list, uint32_t flag, struct err *e)
{
	while (*list) {
		size_t n = strcspn(list, ",");
		struct redirect_cidr c = {.flags = flag};
		char text[TEXT_SIZE], shown[TEXT_SIZE];

		if (n >= sizeof(text) ||
		    (n && parse(&c, memcpy(memset(text, 0, sizeof(text)), list, n))))
			return err_set(e, ERR_INVALID, "%s: \"%s\" is not an address range", what,
			    err_printable(shown, sizeof(shown), list, (unsigned)n));
		if (n && put(r, &c))
			return err_set(e, ERR_INVALID, "%s: more than %d ranges", what, RANGES_MAX);
		list += n + (list[n] == ',');
	}
	return 0;
}

/* What holds for ::/0 does not for IPv4, so that gets a row of its own; there is one left for it.
 */
static void part_families(struct redirect_rules *r)
{
	struct redirect_cidr v4 = {.bits = V4_BITS};

	cidr_parse_address(&v4.address, "0.0.0.0");
	for (uint32_t i = 0; i < r->ncidrs; i++)
		if (r->cidrs[i].bits == V4_BITS && is_v4(&r->cidrs[i].address))
			return;
	for (uint32_t i = 0; i < r->ncidrs; i++)
		if (r->cidrs[i].bits < V4_BITS && holds(&r->cidrs[i], &v4.address)) {
			r->cidrs[r->ncidrs++] = v4;
			return;
		}
}

void cidr_flatten(struct redirect_rules *r)
{
	uint32_t own[REDIRECT_CIDRS_MAX];

	part_families(r);
	for (uint32_t i = 0; i < r->ncidrs; i++)
		own[i] = r->cidrs[i].flags;
	for (uint32_t i = 0; i < r->ncidrs; i++)
		for (uint32_t k = 0; k < r->ncidrs; k++)
			if (r->cidrs[k].bits < r->cidrs[i].bits &&
			    covers(&r->cidrs[k], &r->cidrs[i].address))
				r->cidrs[i].flags |= own[k];
}

int cidr_has_loopback(const struct redirect_rules *r, uint32_t flags)
{
	struct redirect_cidr loopback4 = {.bits = V4_BITS + 8}, loopback6 = {.bits = 128};

	cidr_parse_address(&loopback4.address, "127.0.0.0");
	cidr_parse_address(&loopback6.address, "::1");
	for (uint32_t i = 0; i < r->ncidrs; i++)
		if ((r->cidrs[i].flags & flags) &&
		    covers(is_v4(&r->cidrs[i].address) ? &loopback4 : &loopback6,
			&r->cidrs[i].address))
			return 1;
	return 0;
}
