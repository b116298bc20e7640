/* entry.c - what an entry of the cache is, and how `agentctl certs` shows it. */
#include "entry.h"
#include "common/mem.h"
#include "worker/istiod/istiod.h"
#include <stdio.h>
#include <string.h>
#include <utlist.h>

void cert_moment_stop(struct cert_moment *m)
{
	loop_timer_stop(&m->date);
	loop_timer_stop(&m->age);
}

void cert_moment_in(struct loop *l, struct cert_moment *m, int64_t ms, loop_cb come, void *ctx)
{
	loop_timer_at(l, &m->date, loop_now_ms(l) + ms, come, ctx);
	loop_timer_in(l, &m->age, ms, come, ctx);
}

const char *cert_entry_trust_domain(const struct cert_entry *e)
{
	return *e->spec.trust_domain ? e->spec.trust_domain : istiod_trust_domain(e->cache->istiod);
}

char *cert_entry_name(const struct cert_entry *e, char out[IDENTITY_URI_SIZE])
{
	const char *td = e->cert ? e->cert->id.trust_domain : cert_entry_trust_domain(e);

	snprintf(out, IDENTITY_URI_SIZE, "spiffe://%s/ns/%s/sa/%s", *td ? td : "?", e->spec.ns,
	    e->spec.sa);
	return out;
}

struct cert *cert_entry_valid(const struct cert_entry *e)
{
	int64_t now_s = loop_now_ms(e->cache->loop) / 1000;

	return e->cert && e->end.age.armed && now_s < e->cert->leaf.not_after ? e->cert : NULL;
}

const char *cert_entry_why_not(const struct cert_entry *e)
{
	if (!*e->why_not && e->cert && !cert_entry_valid(e))
		return "the certificate has expired";
	return e->why_not;
}

static const char *key_type_name(enum x509_key_type t)
{
	static const char *const names[] = {
	    [X509_EC_P256] = "EC P-256",
	    [X509_EC_P384] = "EC P-384",
	    [X509_RSA_2048] = "RSA 2048",
	    [X509_RSA_3072] = "RSA 3072",
	    [X509_RSA_4096] = "RSA 4096",
	};

	return names[t];
}

static json_t *dump_entry(const struct cert_entry *e)
{
	const char *istiod = istiod_options(e->cache->istiod)->name, *why = cert_entry_why_not(e);
	char name[IDENTITY_URI_SIZE], renew[CERT_TIME_SIZE] = "";
	const char *away = istiod_why_not(e->cache->istiod);
	auto_free char *waiting = mem_printf("waiting for %s%s%s", istiod, *away ? ": " : "", away);
	json_t *o, *cert = cert_dump(e->cert), *subjects = json_array();
	const struct cert_sub *s;

	DL_FOREACH (e->subs, s)
		json_array_append_new(subjects, json_string(s->subject));
	if (e->renew.age.armed)
		cert_time(e->renew_at_ms / 1000, renew);
	if (e->restored)
		why = "it was stored by an earlier worker and is looked at soon";
	else if ((e->sign && *away) || (!*why && !e->cert))
		why = waiting; /* this attempt, or the first, has not ended */
	o = json_pack("{s:s, s:s, s:s, s:s, s:o, s:i, s:s}", "spiffe_id", cert_entry_name(e, name),
	    "control_plane", istiod, "key_type", key_type_name(e->spec.key.type), "renew_at", renew,
	    "subscribers", subjects, "issued", (int)e->issued, "why_not", why);
	json_object_update(o, cert);
	json_decref(cert);
	return o;
}

json_t *cert_cache_dump(const struct cert_cache *c)
{
	json_t *all = json_array();
	const struct cert_entry *e, *next;

	HASH_ITER (hh, c->entries, e, next)
		json_array_append_new(all, dump_entry(e));
	return all;
}
