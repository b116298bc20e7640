/* own.c
 *
 * present -> a new connection with it, at once -> READY: streams of the one before move there.
 * It fails -> is istiod there at all?  A connection without the certificate tries, as long as it
 * takes -> READY -> a new connection with the certificate -> READY: it was istiod that came back;
 * or it fails -> refused.  What to present then is the owner's decision.
 *
 * A pool tells its changes from inside a callback of the channel, which is not the place to replace
 * it: that is done soon after.
 */
#include "own.h"
#include "base/loop.h"
#include "common/mem.h"
#include "istiod_internal.h"
#include "pool.h"
#include "turnstile.h"
#include <string.h>
#include <utlist.h>

struct istiod_own {
	struct istiod *istiod;
	struct uuid pod;
	struct istiod_options options; /* the plane's, but one connection */
	struct pool *pool;
	bool presents;
	struct rpc_channel *bare; /* without a certificate: NULL while nothing is suspected */
	bool again;               /* the present connection was made while `bare` was ready */
	struct loop_timer soon;
	const struct istiod_own_events *ev;
	void *ctx;
	struct istiod_own *prev, *next;
};

static void end_suspicion(struct istiod_own *o)
{
	loop_timer_stop(&o->soon);
	rpc_channel_free(&o->bare);
	o->again = false;
}

static void on_refused(void *ctx)
{
	struct istiod_own *o = ctx;

	end_suspicion(o);
	o->ev->refused(o->ctx);
}

static void on_again(void *ctx)
{
	struct istiod_own *o = ctx;

	o->again = true;
	pool_connect(o->pool, o->istiod->roots_pem);
	pool_connect_now(o->pool);
}

static void on_bare_changed(void *ctx, enum rpc_channel_state state)
{
	struct istiod_own *o = ctx;

	if (state == RPC_READY && !o->again)
		loop_timer_in(o->istiod->loop, &o->soon, 0, on_again, o);
}

static void suspect(struct istiod_own *o)
{
	char owner[UUID_TEXT_SIZE + 8];
	const struct rpc_channel_options options = {
	    .target = o->options.address,
	    .roots_pem = o->istiod->roots_pem,
	    .server_name = o->options.server_name,
	    .owner = owner,
	};

	uuid_format(&o->pod, owner);
	memcpy(owner + UUID_TEXT_SIZE - 1, ".bare", sizeof(".bare"));
	o->bare = rpc_channel_new(o->istiod->rpc, &options, on_bare_changed, o);
	rpc_channel_connect(o->bare);
}

static void on_pool_changed(void *ctx)
{
	struct istiod_own *o = ctx;

	if (pool_is_ready(o->pool))
		end_suspicion(o);
	else if (o->presents && o->again && pool_fails(o->pool))
		loop_timer_in(o->istiod->loop, &o->soon, 0, on_refused, o);
	else if (o->presents && !o->bare && pool_fails(o->pool))
		suspect(o);
	turnstile_kick(o->istiod->turnstile);
}

void istiod_own_present(struct istiod_own *o, const char *key_pem, const char *chain_pem)
{
	end_suspicion(o);
	o->presents = key_pem != NULL;
	pool_present(o->pool, key_pem, chain_pem);
	if (!pool_connectable(o->istiod->pool))
		return;
	pool_connect(o->pool, o->istiod->roots_pem);
	if (o->presents)
		pool_connect_now(o->pool);
}

bool istiod_own_is_ready(const struct istiod_own *o)
{
	return pool_is_ready(o->pool);
}

/* --- of a control plane --- */

struct pool *istiod_own_pool(const struct istiod *i, const struct uuid *pod)
{
	const struct istiod_own *o;

	DL_FOREACH (i->owns, o)
		if (uuid_equal(&o->pod, pod))
			return o->pool;
	return i->pool;
}

struct pool *istiod_own_pool_with(const struct istiod *i, const struct rpc_channel *c)
{
	const struct istiod_own *o;

	DL_FOREACH (i->owns, o)
		if (pool_has(o->pool, c))
			return o->pool;
	return i->pool;
}

bool istiod_own_any(const struct istiod *i, bool (*is_so)(const struct pool *p))
{
	const struct istiod_own *o;

	DL_FOREACH (i->owns, o)
		if (is_so(o->pool))
			return true;
	return false;
}

const char *istiod_own_why_not(const struct istiod *i)
{
	const struct istiod_own *o;

	DL_FOREACH (i->owns, o)
		if (*pool_why_not(o->pool))
			return pool_why_not(o->pool);
	return "";
}

void istiod_own_roots(struct istiod *i)
{
	struct istiod_own *o = NULL;

	DL_FOREACH (i->owns, o) {
		end_suspicion(o);
		pool_connect(o->pool, i->roots_pem);
		if (o->presents)
			pool_connect_now(o->pool);
		o->ev->roots(o->ctx);
	}
}

json_t *istiod_own_dump(const struct istiod *i)
{
	json_t *all = json_array();
	const struct istiod_own *o = NULL;

	DL_FOREACH (i->owns, o) {
		json_t *some = pool_dump(o->pool);

		json_array_extend(all, some);
		json_decref(some);
	}
	return all;
}

const char *istiod_roots(const struct istiod *i)
{
	return i->roots_pem;
}

/* --- life --- */

struct istiod_own *istiod_own_new(
    struct istiod *i, const struct uuid *pod, const struct istiod_own_events *ev, void *ctx)
{
	struct istiod_own *o = mem_zalloc(sizeof(*o));

	o->istiod = i;
	o->pod = *pod;
	o->options = i->options;
	o->options.connections = 1;
	o->ev = ev;
	o->ctx = ctx;
	o->pool = pool_new(i->loop, i->rpc, &o->options, on_pool_changed, o);
	pool_own(o->pool, pod);
	DL_APPEND(i->owns, o);
	if (pool_connectable(i->pool))
		pool_connect(o->pool, i->roots_pem);
	return o;
}

void istiod_own_free(struct istiod_own **own)
{
	struct istiod_own *o = take(*own);

	if (!o)
		return;
	end_suspicion(o);
	DL_DELETE(o->istiod->owns, o);
	pool_free(&o->pool);
	free(o);
}
