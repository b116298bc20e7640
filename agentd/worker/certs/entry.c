/* entry.c - what an entry of the cache is, and how `agentctl certs` shows it. */
#include "entry.h"
#include "common/mem.h"
#include "worker/istiod/istiod.h"
#include <stdio.h>
#include <string.h>
#include <utlist.h>

enum { WARNINGS_MAX = 5 };

/* Of a life, between two certificates; a part of a second is never worth a request. */
enum { FLOOR_PART = 3, FLOOR_LEAST_MS = 1000 };

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

const char *cert_entry_trust_domains(const struct cert_entry *e)
{
	const char *all =
	    *e->spec.trust_domain ? e->spec.trust_domain : istiod_trust_domains(e->cache->istiod);

	return *all ? all : NULL;
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

int64_t cert_entry_pause_ms(const struct cert_entry *e, int64_t life_ms)
{
	int64_t most = e->cache->options.reissue_min_ms, part = life_ms / FLOOR_PART;

	part = part > FLOOR_LEAST_MS ? part : FLOOR_LEAST_MS;
	return part < most ? part : most;
}

int64_t cert_entry_last_life_ms(const struct cert_entry *e)
{
	return e->cert ? e->cert->leaf.not_after * 1000 - e->issued_ms : e->spec.ttl_s * 1000;
}

/* Receipt is the local clock: istiod dates back (istio-agent.md 0.15). */
int64_t cert_entry_renewal(const struct cert_entry *e, int64_t now_ms, int64_t end_s)
{
	double life_ms = (double)(end_s * 1000 - now_ms);
	double random = (double)arc4random() / UINT32_MAX;
	double left = e->spec.ratio + e->spec.jitter * (2 * random - 1);

	left = left < 0 ? 0 : left > 1 ? 1 : left;
	return now_ms + (int64_t)((1 - left) * life_ms);
}

/* By the wall clock: peers go by theirs. */
static bool is_over(const struct cert_entry *e)
{
	return !cert_entry_valid(e) ||
	       loop_now_ms(e->cache->loop) / 1000 >= x509_usable_until(&e->cert->leaf);
}

const char *cert_entry_why_not(const struct cert_entry *e)
{
	if (*e->why_not || !e->cert)
		return e->why_not;
	if (!cert_entry_valid(e))
		return "the certificate has expired";
	return is_over(e) ? "a CA certificate of its chain has expired" : "";
}

void cert_cache_each(
    const struct cert_cache *c, void (*each)(void *ctx, const struct cert *cert), void *ctx)
{
	const struct cert_entry *e, *next;

	HASH_ITER (hh, c->entries, e, next)
		if (cert_entry_valid(e))
			each(ctx, e->cert);
}

unsigned cert_cache_over(const struct cert_cache *c, struct err *why)
{
	const struct cert_entry *e, *next;
	char name[IDENTITY_URI_SIZE];
	unsigned n = 0;

	HASH_ITER (hh, c->entries, e, next)
		if (e->subs && e->cert && is_over(e) && !n++)
			err_set(why, ERR_UNAVAILABLE, "%s: %s", cert_entry_name(e, name),
			    cert_entry_why_not(e));
	return n;
}

static bool has_text(const json_t *list, const char *text)
{
	const json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		if (!strcmp(json_string_value(one), text))
			return true;
	return false;
}

/* All that have one CA have the same to say of it. */
static void add_warning(json_t *list, const char *text)
{
	if (*text && json_array_size(list) < WARNINGS_MAX && !has_text(list, text))
		json_array_append_new(list, json_string(text));
}

json_t *cert_cache_warnings(const struct cert_cache *c)
{
	json_t *all = json_array();
	const struct cert_entry *e, *next;

	HASH_ITER (hh, c->entries, e, next) {
		auto_free char *text = NULL;
		char until[CERT_TIME_SIZE];

		if (!cert_entry_valid(e))
			continue;
		if (*e->cert->note)
			text = mem_printf("roots of certificates: %s", e->cert->note);
		add_warning(all, text ? text : "");
		free(take(text));
		if (x509_usable_until(&e->cert->leaf) < e->cert->leaf.not_after)
			text = mem_printf("certificates end with a CA of their chain, at %s",
			    cert_time(x509_usable_until(&e->cert->leaf), until));
		add_warning(all, text ? text : "");
	}
	return all;
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
