/* cidr_look_up.h - what the trie of the programs would say of an address: by its bits, one by one.
 */
#pragma once
#include "border/rules.h"
#include <stdbool.h>
#include <stddef.h>

static inline bool cidr_is_in(const struct redirect_cidr *c, const struct redirect_address *a)
{
	const uint8_t *range = (const uint8_t *)&c->address, *one = (const uint8_t *)a;

	for (uint32_t bit = 0; bit < c->bits; bit++)
		if ((range[bit / 8] ^ one[bit / 8]) & 0x80 >> bit % 8)
			return false;
	return true;
}

/* Flags of the longest range; 0: none. */
static inline uint32_t cidr_look_up(
    const struct redirect_rules *r, const struct redirect_address *a)
{
	const struct redirect_cidr *longest = NULL;

	for (uint32_t i = 0; i < r->ncidrs; i++)
		if (cidr_is_in(&r->cidrs[i], a) && (!longest || r->cidrs[i].bits > longest->bits))
			longest = &r->cidrs[i];
	return longest ? longest->flags : 0;
}
