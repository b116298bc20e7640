/* names.h - the names that istiod told the pods of the node, as bits of two sets: pure.
 *
 * The worker writes them, the programs look them up while no DNS proxy answers (names.bpf.h).  A
 * name is one text from its last byte to its first, in lower case, with a dot before each label:
 * ".web.demo".  So one way through it has the hash of each of its ends, and "*.demo" is found.
 * Each table of names has a salt of its own: a pod's names are nobody else's.
 *
 * With 20,000 names, of all tables, one foreign name in 40,000 is taken for a known one, with
 * 200,000 one in 65.
 */
#pragma once
#include "redirect.h"

enum {
	NAMES_WORDS = 1 << 15,
	NAMES_BITS = NAMES_WORDS * 64,
	NAMES_PROBES = 3,
	NAMES_PROBE_BITS = 21, /* of a hash, for one bit of a set */
	NAMES_TEXT_SIZE = 256,
};

struct redirect_names {
	__u64 known[NAMES_WORDS];   /* all of them */
	__u64 istiods[NAMES_WORDS]; /* those that no other resolver has: not the cluster's */
};

/* What the worker tells; pods without a row have no names. */
struct redirect_names_told {
	__u64 npods;
	struct redirect_names_of {
		__u8 pod[16]; /* its uid */
		__u64 salt;
	} pods[REDIRECT_PODS_MAX];
	struct redirect_names names;
};

/* FNV-1a. */
static inline __u64 names_hash_begin(__u64 salt)
{
	return salt ^ 0xcbf29ce484222325ull;
}

static inline __u64 names_hash_add(__u64 hash, __u8 c)
{
	return (hash ^ c) * 0x100000001b3ull;
}

/* Of `.rest`, that of `.*.rest`. */
static inline __u64 names_hash_wildcard(__u64 hash)
{
	return names_hash_add(names_hash_add(hash, '*'), '.');
}

/* Names are short, so the high bits say too little. */
static inline __u64 names_hash_end(__u64 hash)
{
	hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ull;
	hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebull;
	return hash ^ (hash >> 31);
}

static inline __u32 names_bit(__u64 ended, __u32 probe)
{
	return (ended >> (probe * NAMES_PROBE_BITS)) & (NAMES_BITS - 1);
}

/* 1 or 0. */
static inline __u64 names_has(const __u64 *set, __u64 ended)
{
	__u64 all = 1;

	for (__u32 i = 0; i < NAMES_PROBES; i++) {
		__u32 bit = names_bit(ended, i);
		all &= set[bit / 64] >> (bit % 64);
	}
	return all;
}
