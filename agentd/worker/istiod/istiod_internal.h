/* istiod_internal.h - a control plane's parts: for own.c, whose connections are among them. */
#pragma once
#include "common/err.h"
#include "istiod.h"
#include "worker/crypto/roots.h"
#include "worker/crypto/x509.h"

struct istiod {
	struct loop *loop;
	struct rpc *rpc;
	struct istiod_options options;
	struct link_follow *root;
	char *roots_pem; /* NULL: the system's, or none yet */
	struct x509_life roots_life;
	char roots_note[ROOTS_NOTE_SIZE]; /* as roots_read() has it */
	struct err why_not;               /* of the root; code 0: fine */
	char trust_domain[256];
	char *trust_domains; /* with the former ones; NULL: there are none */
	struct pool *pool;
	struct istiod_own *owns; /* pods with a connection of their own */
	struct turnstile *turnstile;
	struct metric *waits;
};

/* The pod's own connection, or the ones that all share. */
struct pool *istiod_own_pool(const struct istiod *i, const struct uuid *pod);
/* The pool that has this connection, or had it. */
struct pool *istiod_own_pool_with(const struct istiod *i, const struct rpc_channel *c);
/* Is there one of which that is so? */
bool istiod_own_any(const struct istiod *i, bool (*is_so)(const struct pool *p));
const char *istiod_own_why_not(const struct istiod *i); /* of the first that has a reason; "" */
void istiod_own_roots(struct istiod *i);                /* they changed */
json_t *istiod_own_dump(const struct istiod *i);        /* as pool_dump(), of all of them */
