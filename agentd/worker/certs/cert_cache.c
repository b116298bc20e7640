/* cert_cache.c
 *
 * subscribe -> (first one) does anybody have a valid token? -> key on the worker thread -> CSR with
 *           the token of one subscriber -> answer checked -> tell all -> wait for renewal
 *           -> key -> CSR -> ...   (one key at a time; entries without a certificate first)
 * Something fails -> what is still valid stays, all are told why, retry with growing pauses.
 * unsubscribe -> (its token was under way) that CSR is given up, retry
 *             -> (last one) linger, floor and retry over -> forgotten, key wiped, not kept.
 * restore -> what an earlier worker stored lingers until a subscriber comes, and is looked at in
 * its turn: with all of them looked at first, nobody would be served meanwhile.
 *
 * Three things keep a CSR from being sent: `due` is off (the certificate is young), `retry` runs
 * (the last attempt failed), `floor` runs (istiod issued one just now, good or not).
 *
 * Future events are timed by both clocks (threats-and-faults.md T36): the wall clock goes on while
 * the machine sleeps but may be set, the other one stands still then and is never wrong.  Renewal
 * and end come with whichever is first.  The floor ends with the second: a clock that is ahead of
 * every certificate's end must not make a loop (istiod-live.md 1.10).  But a machine that slept, or
 * whose clock was put right, should not wait without a certificate: then the wall clock ends the
 * floor, once, and not again before a floor has passed in full.
 *
 * A subscriber may leave, or another join, while subscribers are being told: one that leaves is
 * only marked, and swept when all were told.
 */
#include "base/loop.h"
#include "base/metrics.h"
#include "ca_client.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "entry.h"
#include "keep.h"
#include "store.h"
#include "worker/istiod/istiod.h"
#include "worker/link/link.h"
#include <stdio.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

LOG_SCOPE("cert");

/* Urgent: pods wait without a valid certificate. */
enum { RETRY_FIRST_MS = 500, RETRY_MAX_MS = 60 * 1000, URGENT_MAX_MS = 8 * 1000 };

/* A pod that was here before the restart is here again by then. */
enum { RESTORED_MS = 60 * 1000 };

/* A check takes a millisecond or two.  Those that nobody waits for come at this pace, so that other
 * work, which is what pods wait for then, has nearly all of the time. */
enum { LOOK_MS = 10 };

static void start(struct cert_entry *e);
static void make_next(struct cert_cache *c);
static void forget_restored(struct cert_entry *e);

static void stop_waiting(struct cert_entry *e)
{
	if (e->waits)
		DL_DELETE(e->cache->waiting, e);
	e->waits = false;
}

static void entry_free(struct cert_entry *e)
{
	struct cert_cache *c = e->cache;

	stop_waiting(e);
	HASH_DEL(c->entries, e);
	cert_moment_stop(&e->renew);
	cert_moment_stop(&e->end);
	cert_moment_stop(&e->floor);
	loop_timer_stop(&e->retry);
	loop_timer_stop(&e->linger);
	loop_work_cancel(&e->keygen);
	if (c->maker == e) {
		c->maker = NULL;
		make_next(c);
	}
	ca_sign_cancel(&e->sign);
	x509_request_clear(&e->making.request);
	forget_restored(e);
	if (e->cert)
		metric_add(c->cached, "", -1);
	cert_unref(&e->cert);
	link_call_cancel(&e->storing);
	free(e);
}

/* Not at our own end: the next worker wants it. */
static void forget(struct cert_entry *e)
{
	const struct cert_cache_options *o = &e->cache->options;

	cert_keep_forget(e);
	entry_free(e);
	if (o->changed)
		o->changed(o->ctx, NULL);
}

/* An entry without subscribers goes when its linger is over, but not before what paces istiod's
 * CSRs is: a pod that comes and goes would start from zero every time.  Nor while its key is made:
 * freeing it would wait for the worker thread. */
static void let_go(struct cert_entry *e)
{
	char name[IDENTITY_URI_SIZE];

	if (e->subs || e->linger.armed || e->floor.age.armed || e->retry.armed || e->keygen)
		return;
	log_debug(cert_entry_name(e, name), "no subscriber came back: forgotten");
	forget(e);
}

static void on_lingered(void *ctx)
{
	let_go(ctx);
}

/* --- telling --- */

/* Drop subscribers that left; `e` may go with the last one. */
static void sweep(struct cert_entry *e)
{
	struct cert_sub *s, *next;

	DL_FOREACH_SAFE (e->subs, s, next) {
		if (!s->gone)
			continue;
		DL_DELETE(e->subs, s);
		free(s->subject);
		free(s);
	}
	if (e->subs)
		return;
	if (e->cache->options.linger_ms > 0)
		loop_timer_in(
		    e->cache->loop, &e->linger, e->cache->options.linger_ms, on_lingered, e);
	else
		let_go(e);
}

static void tell(struct cert_sub *s)
{
	struct cert_entry *e = s->entry;
	struct err why = {0};

	s->admitted = s->token(s->ctx, &why) != NULL;
	if (s->admitted)
		s->changed(s->ctx, cert_entry_valid(e), cert_entry_why_not(e));
	else
		s->changed(s->ctx, NULL, why.msg);
}

/* `e` may be gone afterwards. */
static void tell_all(struct cert_entry *e)
{
	struct cert_sub *s;

	e->telling = true;
	DL_FOREACH (e->subs, s)
		if (!s->gone && !s->soon.armed) /* a new subscriber is told soon anyway */
			tell(s);
	e->telling = false;
	sweep(e);
}

static void on_soon(void *ctx)
{
	struct cert_sub *s = ctx;
	struct cert_entry *e = s->entry;

	if (e->restored)
		return; /* when that was looked at */
	e->telling = true;
	tell(s);
	e->telling = false;
	sweep(e);
}

/* --- asking --- */

/* What was waited for: the next attempt, or the end of an entry that nobody wants. */
static void go_on(struct cert_entry *e)
{
	if (e->subs)
		start(e);
	else
		let_go(e);
}

static void on_retry(void *ctx)
{
	go_on(ctx);
}

static void on_floor(void *ctx)
{
	struct cert_entry *e = ctx;

	if (e->floor.age.armed && (e->hurried || cert_entry_valid(e)))
		return;
	e->hurried = e->floor.age.armed;
	cert_moment_stop(&e->floor);
	if (!e->retry.armed)
		go_on(e);
}

static void on_renew(void *ctx)
{
	struct cert_entry *e = ctx;

	cert_moment_stop(&e->renew);
	e->due = true;
	start(e);
}

/* Not now, and not inside the caller. */
static void start_soon(struct cert_entry *e)
{
	loop_timer_in(e->cache->loop, &e->retry, 0, on_retry, e);
}

/* After a sleep the answer to the CSR may be long in coming: meanwhile nobody gets the old one. */
static void on_end(void *ctx)
{
	struct cert_entry *e = ctx;

	if (cert_entry_valid(e) || e->expired)
		return;
	e->expired = true;
	e->due = true;
	if (!e->subs)
		return;
	start_soon(e);
	tell_all(e);
}

static void back_off(struct cert_entry *e)
{
	const unsigned max = cert_entry_valid(e) ? RETRY_MAX_MS : URGENT_MAX_MS;
	unsigned ms = e->retry_ms < max ? e->retry_ms : max, spread = ms / 10;

	e->retry_ms = ms * 2;
	ms += arc4random_uniform(2 * spread + 1) - spread;
	loop_timer_in(e->cache->loop, &e->retry, ms, on_retry, e);
}

/* What is valid stays.  `e` may be gone afterwards. */
static void failed(struct cert_entry *e, const struct err *why)
{
	char name[IDENTITY_URI_SIZE];
	bool expired = e->cert && !cert_entry_valid(e);

	x509_request_clear(&e->making.request);
	back_off(e);
	if (expired == e->expired && !strcmp(e->why_not, why->msg))
		return; /* all know, and so does the log */
	e->expired = expired;
	snprintf(e->why_not, sizeof(e->why_not), "%s", why->msg);
	log_warn(cert_entry_name(e, name), "%s: %s", e->cert ? "not renewed" : "no certificate",
	    why->msg);
	tell_all(e);
}

/* Any subscriber can prove the identity; each with its own token. */
static struct cert_sub *find_signer(
    const struct cert_entry *e, const struct token **token, struct err *why)
{
	struct err own = {0};
	struct cert_sub *s;

	DL_FOREACH (e->subs, s) { /* at least one */
		*token = s->token(s->ctx, &own);
		if (*token)
			return s;
		err_set(why, ERR_DENIED, "%s: %s", s->subject, own.msg);
	}
	return NULL;
}

static void no_token(struct cert_entry *e, const struct err *why)
{
	e->tokenless = true;
	failed(e, why);
}

static void keep_still(struct cert_entry *e, int64_t ms)
{
	cert_moment_stop(&e->floor);
	if (ms > 0)
		cert_moment_in(e->cache->loop, &e->floor, ms, on_floor, e);
}

/* The answer as a certificate, with the key it belongs to; NULL: it is no answer to our request. */
static struct cert *believe(
    struct cert_entry *e, const char *const *chain, size_t n, struct err *why)
{
	const char *elements[CERT_ELEMENTS_MAX];
	const struct x509_answer answer = {.chain = elements,
	    .n = n,
	    .key_pem = e->making.request.key_pem,
	    .expect_td = cert_entry_trust_domains(e),
	    .now_s = loop_now_ms(e->cache->loop) / 1000,
	    .ttl_max_s = e->spec.ttl_s + CERT_BACKDATING_S};
	struct cert *c = cert_new(chain, n, why);

	if (c) {
		memcpy(elements, chain, n * sizeof(*chain));
		elements[n - 1] = c->root_pem; /* what is none of them is left out */
		c->id = e->making.id;
	}
	if (!c || x509_check_chain(&answer, &c->id, &c->leaf, why)) {
		err_wrap(why, "answer of %s", istiod_options(e->cache->istiod)->name);
		cert_unref(&c);
		return NULL;
	}
	c->key_pem = take(e->making.request.key_pem);
	return c;
}

/* From now on, `age_ms` after it was issued, `c` is the certificate. */
static void adopt(struct cert_entry *e, struct cert *c, int64_t age_ms)
{
	struct loop *l = e->cache->loop;
	int64_t end_ms = c->leaf.not_after * 1000;

	if (!e->cert)
		metric_add(e->cache->cached, "", 1);
	cert_unref(&e->cert);
	e->cert = c;
	e->due = e->expired = false;
	istiod_learn_trust_domain(e->cache->istiod, c->id.trust_domain);
	cert_moment_in(l, &e->renew, e->renew_at_ms - e->issued_ms - age_ms, on_renew, e);
	cert_moment_in(l, &e->end, end_ms - e->issued_ms - age_ms, on_end, e);
	/* These are times of the wall clock already. */
	loop_timer_at(l, &e->renew.date, e->renew_at_ms, on_renew, e);
	loop_timer_at(l, &e->end.date, end_ms, on_end, e);
	if (e->cache->options.changed)
		e->cache->options.changed(e->cache->options.ctx, c);
}

/* `e` may be gone afterwards. */
static void issued(struct cert_entry *e, struct cert *c)
{
	struct loop *l = e->cache->loop;
	int64_t now_ms = loop_now_ms(l), until_s = x509_usable_until(&c->leaf);
	int64_t pause_ms = cert_entry_pause_ms(e, c->leaf.not_after * 1000 - now_ms);
	char name[IDENTITY_URI_SIZE];

	keep_still(e, pause_ms);
	e->issued++;
	e->retry_ms = RETRY_FIRST_MS;
	*e->why_not = 0;
	x509_request_clear(&e->making.request);
	e->issued_ms = now_ms;
	e->issued_uptime_ms = loop_uptime_ms(l);
	e->renew_at_ms = cert_entry_renewal(e, now_ms, until_s);
	if (e->renew_at_ms < now_ms + pause_ms)
		e->renew_at_ms = now_ms + pause_ms;
	adopt(e, c, 0);
	cert_keep(e);
	log_info(cert_entry_name(e, name), "certificate %s, valid for %lld s, renewal in %lld s",
	    c->leaf.serial, (long long)(c->leaf.not_after - now_ms / 1000),
	    (long long)((e->renew_at_ms - now_ms) / 1000));
	if (*c->note)
		log_warn(cert_entry_name(e, name), "roots of its certificate: %s", c->note);
	if (until_s < c->leaf.not_after)
		log_warn(cert_entry_name(e, name), "a CA of its chain ends before it, in %lld s",
		    (long long)(until_s - now_ms / 1000));
	tell_all(e);
}

static void on_signed(void *ctx, const struct err *why, const char *const *chain, size_t n)
{
	struct cert_entry *e = ctx;
	struct cert_sub *signer = take(e->signer);
	struct cert *c;
	struct err bad;

	if (why) {
		DL_DELETE(e->subs, signer); /* the next attempt is another's: istiod may dislike */
		DL_APPEND(e->subs, signer); /* only this one's token */
		return failed(e, why);
	}
	c = believe(e, chain, n, &bad);
	if (c)
		return issued(e, c);
	/* Issued is issued, whether we like it or not. */
	keep_still(e, cert_entry_pause_ms(e, cert_entry_last_life_ms(e)));
	failed(e, &bad);
}

static void make_key(void *ctx) /* on the worker thread */
{
	struct cert_making *m = &((struct cert_entry *)ctx)->making;

	x509_make_request(&m->request, &m->params, &m->id, &m->why);
}

static void on_key(void *ctx)
{
	struct cert_entry *e = ctx;
	const struct token *token;
	struct ca_request r;
	struct err why;

	e->cache->maker = NULL;
	make_next(e->cache);
	if (!e->subs) { /* they left meanwhile: the next one starts again */
		x509_request_clear(&e->making.request);
		return let_go(e);
	}
	if (!e->making.request.csr_pem)
		return failed(e, &e->making.why);
	e->signer = find_signer(e, &token, &why); /* again: tokens expire, subscribers leave */
	if (!e->signer)
		return no_token(e, &why);
	r = (struct ca_request){
	    .csr_pem = e->making.request.csr_pem,
	    .token = token->jwt,
	    .cert_signer = e->spec.cert_signer,
	    .ttl_s = e->spec.ttl_s,
	    .pod = e->signer->pod,
	    .urgent = !cert_entry_valid(e),
	};
	ca_sign(e->cache->ca, &e->sign, &r, on_signed, e);
}

/* One key at a time, those first who have nothing: an RSA key takes half a second, and all may be
 * due at once after a suspend. */
static void make_next(struct cert_cache *c)
{
	struct cert_entry *e;

	if (c->maker || !c->waiting)
		return;
	DL_FOREACH (c->waiting, e)
		if (!cert_entry_valid(e))
			break;
	c->maker = e = e ? e : c->waiting;
	stop_waiting(e);
	loop_work(c->loop, &e->keygen, make_key, on_key, e);
}

static void start(struct cert_entry *e)
{
	const char *td = cert_entry_trust_domain(e);
	const struct token *token;
	struct err why;

	if (!e->due || e->restored || e->floor.age.armed || e->waits || e->keygen || e->sign ||
	    !e->subs)
		return;
	if (!find_signer(e, &token, &why))
		return no_token(e, &why);
	if (e->tokenless) { /* what was waited for was not istiod */
		e->tokenless = false;
		e->retry_ms = RETRY_FIRST_MS;
	}
	/* istiod does not read the name in a CSR, so any trust domain does before one is known. */
	if (identity_set(&e->making.id, *td ? td : "cluster.local", e->spec.ns, e->spec.sa, &why))
		return failed(e, &why);
	e->making.params = e->spec.key;
	e->waits = true;
	DL_APPEND(e->cache->waiting, e);
	make_next(e->cache);
}

/* --- subscribers --- */

static struct cert_entry *entry_of(struct cert_cache *c, const struct cert_spec *spec)
{
	struct cert_origin origin;
	struct cert_entry *e;

	HASH_FIND(hh, c->entries, spec, sizeof(*spec), e);
	if (e)
		return e;
	e = mem_zalloc(sizeof(*e));
	e->cache = c;
	memcpy(&e->spec, spec, sizeof(*spec)); /* padding too */
	e->retry_ms = RETRY_FIRST_MS;
	e->due = true;
	HASH_ADD(hh, c->entries, spec, sizeof(e->spec), e);
	cert_keep_origin(c, &origin);
	cert_store_id(&origin, spec, e->id);
	return e;
}

struct cert_sub *cert_subscribe(
    struct cert_cache *c, const struct cert_spec *spec, const struct cert_subscriber *by)
{
	struct cert_entry *e = entry_of(c, spec);
	struct cert_sub *s = mem_zalloc(sizeof(*s));

	s->entry = e;
	s->pod = by->pod;
	s->subject = mem_strdup(by->subject);
	s->token = by->token;
	s->changed = by->changed;
	s->ctx = by->ctx;
	DL_APPEND(e->subs, s);
	loop_timer_stop(&e->linger);
	loop_timer_in(c->loop, &s->soon, 0, on_soon, s);
	if (cert_entry_valid(e))
		metric_add(c->hits, "", 1);
	/* A pod that comes and goes must not hurry istiod; one that brings a token may. */
	if (e->tokenless || !e->retry.armed)
		start_soon(e);
	return s;
}

void cert_unsubscribe(struct cert_sub **sub)
{
	struct cert_sub *s = take(*sub);
	struct cert_entry *e;

	if (!s)
		return;
	e = s->entry;
	s->gone = true;
	loop_timer_stop(&s->soon);
	if (e->signer == s) { /* its token goes with it */
		e->signer = NULL;
		ca_sign_cancel(&e->sign);
		x509_request_clear(&e->making.request);
		back_off(e);
	}
	if (!e->telling)
		sweep(e);
}

void cert_token_changed(struct cert_sub *s)
{
	struct cert_entry *e = s->entry;
	struct err why;

	if (!s->admitted || !s->token(s->ctx, &why))
		loop_timer_in(e->cache->loop, &s->soon, 0, on_soon, s);
	start_soon(e);
}

void cert_renew(struct cert_sub *s)
{
	s->entry->due = true;
	start_soon(s->entry);
}

/* --- what an earlier worker had --- */

static struct cert_entry **list_of(struct cert_entry *e)
{
	return e->wanted ? &e->cache->wanted : &e->cache->unread;
}

static void forget_restored(struct cert_entry *e)
{
	if (!e->restored)
		return;
	DL_DELETE(*list_of(e), e);
	cert_stored_clear(e->restored);
	free(take(e->restored));
}

/* Who came meanwhile hears of it. */
static void tell_soon(struct cert_entry *e)
{
	struct cert_sub *s;

	DL_FOREACH (e->subs, s) {
		loop_timer_in(e->cache->loop, &s->soon, 0, on_soon, s);
		if (cert_entry_valid(e))
			metric_add(e->cache->hits, "", 1);
	}
	if (e->subs)
		start_soon(e);
}

static void look_at(struct cert_entry *e)
{
	char name[IDENTITY_URI_SIZE];
	struct err why;
	struct cert *cert = cert_keep_believe(e, e->restored, &why);
	int64_t age_ms = cert_keep_age(e->cache, e->restored);

	forget_restored(e);
	if (cert) {
		e->stored = e->kept;
		adopt(e, cert, age_ms);
		keep_still(e, cert_entry_pause_ms(e, cert_entry_last_life_ms(e)) - age_ms);
		if (!e->stored)
			cert_keep(e);
		log_debug(
		    cert_entry_name(e, name), "certificate %s is restored", cert->leaf.serial);
	} else {
		log_warn(cert_entry_name(e, name), "stored certificate: %s", why.msg);
	}
	tell_soon(e);
}

static void on_look(void *ctx);

static void look_soon(struct cert_cache *c)
{
	if (c->wanted || c->unread)
		loop_timer_in(c->loop, &c->look, c->wanted ? 0 : LOOK_MS, on_look, c);
}

static void on_look(void *ctx)
{
	struct cert_cache *c = ctx;

	if (c->wanted || c->unread)
		look_at(c->wanted ? c->wanted : c->unread);
	look_soon(c);
}

void cert_wanted(struct cert_sub *s)
{
	struct cert_entry *e = s->entry;

	if (!e->restored || e->wanted)
		return;
	DL_DELETE(e->cache->unread, e);
	e->wanted = true;
	DL_APPEND(e->cache->wanted, e);
	look_soon(e->cache);
}

int cert_cache_restore(
    struct cert_cache *c, struct cert_stored *s, enum link_state from, struct err *e)
{
	struct cert_origin here;
	struct cert_entry *entry;
	bool renamed;

	cert_keep_origin(c, &here);
	if (strcmp(here.name, s->origin.name) != 0 || strcmp(here.address, s->origin.address) != 0)
		return err_set(
		    e, ERR_INVALID, "control plane %s is now configured differently", here.name);
	entry = entry_of(c, &s->spec);
	if (entry->cert || entry->restored || entry->subs)
		return err_set(e, ERR_INVALID, "a newer certificate exists");
	if ((renamed = strcmp(here.trust_domain, s->origin.trust_domain) != 0))
		cert_keep_drop(c, s, from);
	entry->kept = from == c->options.keep && !renamed;
	entry->issued_ms = s->issued_ms;
	entry->issued_uptime_ms = s->issued_uptime_ms;
	entry->renew_at_ms = s->renew_at_ms;
	loop_timer_in(c->loop, &entry->linger,
	    c->options.linger_ms > RESTORED_MS ? c->options.linger_ms : RESTORED_MS, on_lingered,
	    entry);
	keep_still(entry, cert_keep_pause(c, s));
	entry->restored = cert_stored_take(s);
	DL_APPEND(c->unread, entry);
	/* Its old place is cleared now; and the first one shows the trust domain. */
	if (!entry->kept || !*cert_entry_trust_domain(entry))
		look_at(entry);
	if (!c->look.armed)
		look_soon(c);
	return 0;
}

/* --- the cache --- */

struct cert_cache *cert_cache_new(
    struct loop *l, struct istiod *i, struct ca_client *ca, const struct cert_cache_options *o)
{
	struct cert_cache *c = mem_zalloc(sizeof(*c));

	c->loop = l;
	c->istiod = i;
	c->ca = ca;
	c->options = *o;
	c->cached =
	    metric_gauge("agentd_certificates_cached", "Certificates held, from all issuers.");
	c->hits = metric_counter("agentd_certificate_cache_hits_total",
	    "Subscribers that found a certificate in the cache.");
	metric_add(c->cached, "", 0);
	metric_add(c->hits, "", 0);
	return c;
}

void cert_cache_free(struct cert_cache **cache)
{
	struct cert_cache *c = take(*cache);
	struct cert_entry *e, *next;

	if (!c)
		return;
	back_off_stop(&c->store_again);
	loop_timer_stop(&c->look);
	HASH_ITER (hh, c->entries, e, next)
		stop_waiting(e); /* no more keys: freeing one that is made would wait for it */
	HASH_ITER (hh, c->entries, e, next) {
		log_bug_if(e->subs);
		entry_free(e);
	}
	free(c);
}
