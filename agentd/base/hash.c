/* hash.c - SipHash-1-3: eight bytes at a time into four words, one round each, three at the end. */
#include "hash.h"
#include <endian.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

struct hash_key hash_key_new(void)
{
	struct hash_key k;

	while (getrandom(&k, sizeof(k), 0) != sizeof(k))
		;
	return k;
}

static uint64_t turn(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = turn(v[1], 13) ^ v[0];
	v[3] = turn(v[3], 16) ^ v[2];
	v[0] = turn(v[0], 32);
	v[2] += v[1];
	v[0] += v[3];
	v[1] = turn(v[1], 17) ^ v[2];
	v[3] = turn(v[3], 21) ^ v[0];
	v[2] = turn(v[2], 32);
}

static void take_word(uint64_t v[4], uint64_t m)
{
	v[3] ^= m;
	mix(v);
	v[0] ^= m;
}

uint64_t hash_text(const struct hash_key *k, const char *s)
{
	uint64_t v[4] = {k->word[0] ^ 0x736f6d6570736575, k->word[1] ^ 0x646f72616e646f6d,
	    k->word[0] ^ 0x6c7967656e657261, k->word[1] ^ 0x7465646279746573};
	size_t size = strlen(s), left = size;
	uint64_t m;

	for (; left >= sizeof(m); left -= sizeof(m), s += sizeof(m)) {
		memcpy(&m, s, sizeof(m));
		take_word(v, le64toh(m));
	}
	m = 0;
	memcpy(&m, s, left);
	take_word(v, le64toh(m) | (uint64_t)size << 56);
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		mix(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
