/* hash.h - a hash of text under a key that nobody outside knows, for tables of names that somebody
 * else chooses: a chooser who cannot compute it cannot make them collide.
 */
#pragma once
#include <stdint.h>

struct hash_key {
	uint64_t word[2];
};
struct hash_key hash_key_new(void); /* random */
uint64_t hash_text(const struct hash_key *k, const char *s);
