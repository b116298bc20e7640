/* hash.h - a hash of text under a key that nobody outside knows, for tables of names that somebody
 * else chooses: who cannot compute it cannot make all of them fall into one place.
 */
#pragma once
#include <stdint.h>

struct hash_key {
	uint64_t word[2];
};
struct hash_key hash_key_new(void); /* random */
uint64_t hash_text(const struct hash_key *k, const char *s);
