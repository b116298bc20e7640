/* keep.c - certificates beyond this process.
 *
 * issued -> store -> (refused: said once, and all that is not stored is tried again, one by one,
 *                     after 0.5 s, doubling to 30 s)
 * forgotten -> delete.
 * At the start of the next worker: what was stored is believed as little as an answer of istiod.
 */
#include "keep.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/secret.h"
#include "entry.h"
#include "store.h"
#include "worker/istiod/istiod.h"
#include "worker/link/link.h"
#include <stdio.h>
#include <string.h>

LOG_SCOPE("cert");

void cert_keep_origin(const struct cert_cache *c, struct cert_origin *o)
{
	const struct istiod_options *i = istiod_options(c->istiod);

	memset(o, 0, sizeof(*o)); /* compared as bytes */
	snprintf(o->name, sizeof(o->name), "%s", i->name);
	snprintf(o->address, sizeof(o->address), "%s", i->address);
	snprintf(o->trust_domain, sizeof(o->trust_domain), "%s", i->trust_domain);
}

/* NULL: it is too large to be kept. */
static char *text_of(const struct cert_entry *e, size_t *size)
{
	struct cert_stored s = {.spec = e->spec,
	    .issued_ms = e->issued_ms,
	    .issued_uptime_ms = e->issued_uptime_ms,
	    .renew_at_ms = e->renew_at_ms,
	    .key_pem = e->cert->key_pem,
	    .chain_pem = e->cert->chain_pem,
	    .n = e->cert->n};

	cert_keep_origin(e->cache, &s.origin);
	memcpy(s.element_size, e->cert->element_size, sizeof(s.element_size));
	return cert_store_write(&s, size);
}

static void on_again(void *ctx)
{
	struct cert_cache *c = ctx;
	struct cert_entry *e = NULL, *next = NULL;
	bool all = true;

	HASH_ITER (hh, c->entries, e, next) {
		if (!e->cert || e->stored)
			continue;
		all = false;
		if (!e->storing) {
			cert_keep(e); /* the others when it is */
			return;
		}
	}
	if (all)
		c->store_why.code = 0;
}

static void on_stored(void *ctx, const struct err *why)
{
	struct cert_entry *e = ctx;
	struct cert_cache *c = e->cache;

	e->stored = !why;
	if (why) {
		if (c->store_why.code != why->code)
			log_warn(NULL,
			    "certificates are not stored, so a restart requests each one again: %s",
			    why->msg);
		c->store_why = *why;
		back_off_start(c->loop, &c->store_again, on_again, c);
		return;
	}
	if (c->store_why.code)
		log_info(NULL, "certificates are stored again");
	c->store_why.code = 0;
	back_off_succeeded(&c->store_again);
	on_again(c);
}

void cert_keep(struct cert_entry *e)
{
	const struct cert_cache_options *o = &e->cache->options;
	struct link_kept k = {.kind = o->keep, .id = e->id};
	char *text;

	if (!o->link || !(text = text_of(e, &k.size)))
		return;
	k.data = text;
	e->kept = true;
	e->stored = false;
	link_call_cancel(&e->storing);
	link_state_put(o->link, &e->storing, &k, on_stored, e);
	mem_wipe_free(text);
}

const struct err *cert_cache_why_unstored(const struct cert_cache *c)
{
	return c->store_why.code ? &c->store_why : NULL;
}

void cert_keep_forget(struct cert_entry *e)
{
	struct cert_cache *c = e->cache;
	const struct cert_cache_options *o = &c->options;

	if (o->link && e->kept)
		link_state_del(o->link, o->keep, e->id);
	if (c->store_why.code && !back_off_waits(&c->store_again)) /* this one was the try */
		back_off_start(c->loop, &c->store_again, on_again, c);
}

void cert_keep_drop(const struct cert_cache *c, const struct cert_stored *s, enum link_state from)
{
	uint8_t id[X509_SHA256_SIZE];

	cert_store_id(&s->origin, &s->spec, id);
	link_state_del(c->options.link, from, id);
}

/* Its elements, as istiod sent them. */
static size_t split(const struct cert_stored *s, char *elements[CERT_ELEMENTS_MAX])
{
	size_t at = 0;

	for (size_t i = 0; i < s->n; at += s->element_size[i++])
		elements[i] = mem_printf("%.*s", (int)s->element_size[i], s->chain_pem + at);
	return s->n;
}

/* With a clock that was set back since, it is what it was when it was issued. */
static int check(const struct cert_entry *e, const struct cert_stored *s, struct cert *c,
    const char *const *chain, struct err *why)
{
	int64_t now_s = loop_now_ms(e->cache->loop) / 1000, issued_s = s->issued_ms / 1000;
	const struct x509_answer answer = {.chain = chain,
	    .n = s->n,
	    .key_pem = s->key_pem,
	    .expect_td = cert_entry_trust_domains(e),
	    .now_s = now_s > issued_s ? now_s : issued_s,
	    .ttl_max_s = e->spec.ttl_s + CERT_BACKDATING_S};

	/* Its trust domain comes from the certificate. */
	if (identity_set(&c->id, "cluster.local", e->spec.ns, e->spec.sa, why))
		return -1;
	return x509_check_chain(&answer, &c->id, &c->leaf, why);
}

struct cert *cert_keep_believe(
    const struct cert_entry *e, const struct cert_stored *s, struct err *why)
{
	char *elements[CERT_ELEMENTS_MAX] = {NULL};
	size_t n = split(s, elements);
	struct cert *c = cert_new((const char *const *)elements, n, why);

	if (c && check(e, s, c, (const char *const *)elements, why))
		cert_unref(&c);
	for (size_t i = 0; i < n; i++)
		free(elements[i]);
	if (c)
		c->key_pem = secret_dup(s->key_pem);
	return c;
}

int64_t cert_keep_age(const struct cert_cache *c, const struct cert_stored *s)
{
	int64_t age_ms = loop_uptime_ms(c->loop) - s->issued_uptime_ms;

	if (age_ms < 0)
		age_ms = loop_now_ms(c->loop) - s->issued_ms;
	return age_ms > 0 ? age_ms : 0;
}

int64_t cert_keep_pause(const struct cert_cache *c, const struct cert_stored *s)
{
	int64_t pause_ms = c->options.reissue_min_ms, until_ms = s->renew_at_ms - s->issued_ms;

	return (until_ms < pause_ms ? until_ms : pause_ms) - cert_keep_age(c, s);
}
