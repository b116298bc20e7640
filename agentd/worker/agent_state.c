/* agent_state.c - list where certificates are stored now -> each one to the cache of its control
 * plane -> list where they were stored with another setting -> done.
 */
#include "agent_state.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/certs/cert_cache.h"
#include "worker/certs/store.h"
#include "worker/istiod/istiod.h"
#include "worker/link/link.h"
#include "worker/pod/pod_services.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

LOG_SCOPE("state");

struct agent_state {
	const struct agent_shared *shared;
	enum link_state keep;
	unsigned step; /* places that were listed, or are */
	struct link_call *listing;
	unsigned restored;
	loop_cb done;
	void *ctx;
};

static struct cert_cache *cache_of(const struct agent_shared *s, const char *plane)
{
	for (size_t i = 0; i < s->node.nplanes; i++)
		if (!strcmp(istiod_options(s->planes[i].istiod)->name, plane))
			return s->planes[i].certs;
	return NULL;
}

static int restore(
    struct agent_state *a, const struct link_kept *k, struct cert_stored *s, struct err *e)
{
	struct cert_cache *cache = cache_of(a->shared, s->origin.name);
	uint8_t id[X509_SHA256_SIZE];

	cert_store_id(&s->origin, &s->spec, id);
	if (memcmp(id, k->id, sizeof(id)) != 0)
		return err_set(e, ERR_INVALID, "damaged: it has the name of another one");
	if (!cache)
		return err_set(
		    e, ERR_INVALID, "control plane %s is not configured any more", s->origin.name);
	return cert_cache_restore(cache, s, k->kind, e);
}

/* Where it should not be stored any more it is not left either. */
static void take_one(struct agent_state *a, const struct link_kept *k)
{
	struct cert_stored s;
	struct err e;
	int rc = cert_store_read(&s, k->data, k->size, &e);
	bool strange = rc && e.code == EPROTONOSUPPORT;

	if (!rc) {
		rc = restore(a, k, &s, &e);
		cert_stored_clear(&s);
	}
	a->restored += !rc;
	if (rc)
		log_warn(NULL, "stored certificate %02x%02x%02x%02x.. is ignored%s: %s", k->id[0],
		    k->id[1], k->id[2], k->id[3], strange ? " and left alone" : "", e.msg);
	if (!strange && (rc || k->kind != a->keep))
		link_state_del(a->shared->link, k->kind, k->id);
}

static void list(struct agent_state *a);

static void on_kept(void *ctx, const struct link_kept *k)
{
	struct agent_state *a = ctx;

	if (k->data)
		return take_one(a, k);
	if (k->e)
		log_warn(NULL, "stored certificates cannot be read: %s", k->e->msg);
	list(a);
}

/* The current place first: an entry in both is a leftover in the other one. */
static void list(struct agent_state *a)
{
	if (a->step == LINK_STATE_CERTS_END) {
		if (a->restored)
			log_info(NULL, "%u stored certificate%s", a->restored,
			    a->restored == 1 ? "" : "s");
		a->done(a->ctx);
		return;
	}
	enum link_state next = (enum link_state)((a->keep + a->step++) % LINK_STATE_CERTS_END);
	link_state_list(a->shared->link, &a->listing, next, on_kept, a);
}

struct agent_state *agent_state_restore(
    const struct agent_shared *s, enum link_state keep, loop_cb done, void *ctx)
{
	struct agent_state *a = mem_zalloc(sizeof(*a));

	a->shared = s;
	a->keep = keep;
	a->done = done;
	a->ctx = ctx;
	list(a);
	return a;
}

void agent_state_free(struct agent_state **s)
{
	struct agent_state *a = take(*s);

	if (!a)
		return;
	link_call_cancel(&a->listing);
	free(a);
}
