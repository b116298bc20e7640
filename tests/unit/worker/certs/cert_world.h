/* cert_world.h - the scene of the tests of cert_cache: a plane, a CA, and pods that subscribe. */
#pragma once
#include "common/err.h"
#include "tests/fake/ca_client.h"
#include "tests/fake/istiod.h"
#include "tests/fake/loop.h"
#include "worker/certs/cert_cache.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };
enum { TTL_S = 24 * 3600, FLOOR_MS = 5 * MINUTE, LINGER_MS = 5 * MINUTE };

struct world {
	struct loop *loop;
	struct istiod_options plane;
	struct cert_cache_options options;
	struct istiod *istiod;
	struct ca_client *ca;
	struct cert_cache *cache;
	struct pod *pods;
	int serial;
	int64_t ahead_s; /* our clock, of the CA's */
};
extern struct world w;

/* Trust domain "td", floor and linger 5 minutes. */
int world_setup(void **state);
/* Whatever a test did: nothing is left running, and no key or token was freed as it was. */
int world_teardown(void **state);
/* A fresh world with other options, in the middle of a test. */
void world_restart(const struct cert_cache_options *o, const char *trust_domain);

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)

/* A subscriber, and what it does in its callbacks. */
struct pod {
	struct pod *next;
	char name[32];
	struct uuid uid;
	struct cert_spec spec;
	struct cert_sub *sub;
	struct token token; /* jwt NULL: not valid, because of `problem` */
	const char *problem;
	unsigned told, asked;
	struct cert *has; /* as it was last told; not a reference */
	char serial[64], why[ERR_MSG_SIZE];
	bool leave_when_told;          /* a certificate */
	bool leave_when_told_why;      /* there is none */
	unsigned leave_after_question; /* the n-th for its token; 0: stay */
	struct pod *takes_along, *brings;
};
/* The world owns it; at the end it leaves. */
struct pod *pod_of(const char *name, const char *sa);
void join(struct pod *p);
void join_and_get(struct pod *p); /* its first certificate, too */
void leave(struct pod *p);

/* The answer to the oldest CSR; parts that are 0 get what a good istiod gives. */
struct answer {
	const char *uri;
	int key, ttl_s, starts_in_s;
	const char *leaf, *between, *root; /* instead of a certificate */
	size_t n;
};
void answer_with(struct answer a);
void answer(void);
void refuse(const char *why);

void later(int64_t ms);
void set_clock(int64_t by_ms); /* ours; the CA's is right */
void sleep_for(int64_t ms);    /* the machine: the monotonic clock stands still */
unsigned asked(void);          /* CSRs, ever */
unsigned pending(void);        /* CSRs that wait for an answer */
