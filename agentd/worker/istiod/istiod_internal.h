/* istiod_internal.h - a control plane's parts: for own.c, whose connections are among them. */
#pragma once
#include "common/err.h"
#include "istiod.h"

struct istiod {
	struct loop *loop;
	struct rpc *rpc;
	struct istiod_options options;
	struct link_follow *root;
	char *roots_pem;    /* NULL: the system's, or none yet */
	struct err why_not; /* of the root; code 0: fine */
	char trust_domain[256];
	struct pool *pool;
	struct istiod_own *owns; /* pods with a connection of their own */
	struct turnstile *turnstile;
};

/* The pod's own connection, or the ones that all share. */
struct pool *istiod_own_pool(const struct istiod *i, const struct uuid *pod);
/* The pool that has this connection, or had it. */
struct pool *istiod_own_pool_with(const struct istiod *i, const struct rpc_channel *c);
void istiod_own_roots(struct istiod *i);         /* they changed */
json_t *istiod_own_dump(const struct istiod *i); /* as pool_dump(), of all of them */
