/* identity.c
 *
 * directory -> three files are followed: the provisioned key and chain, the kept pair -> all are
 * told
 * -> each pair is read, or refused by name -> the newest valid one is presented -> the rows below
 * look again.  The same when a file, the control plane's roots or the token change, when the
 * presented one ends, and when the clock is set. A certificate is issued -> a pair like the others,
 * the newest -> kept: written by the broker, again until it is -> told as a file, like any other
 * change. istiod refuses the presented one -> it counts as refused, until it or the roots change; a
 * new one is asked for, once.
 *
 * A pod by token has none of this: its credential is its token.
 */
#include "identity.h"
#include "base/back_off.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/secret.h"
#include "rows.h"
#include "token.h"
#include "worker/crypto/cert.h"
#include "worker/crypto/pair.h"
#include "worker/crypto/token.h"
#include "worker/istiod/istiod.h"
#include "worker/istiod/own.h"
#include "worker/link/calls.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"
#include <errno.h>
#include <string.h>

LOG_SCOPE("pod");

enum { ISSUED, KEPT, PROVISIONED, PAIRS, NOTHING = PAIRS };
enum { KEY, CHAIN, KEPT_FILE, FILES };

static const char *const names[] = {[ISSUED] = "issued certificate",
    [KEPT] = "kept certificate",
    [PROVISIONED] = "provisioned certificate"};
static const enum link_followed kinds[FILES] = {
    LINK_FOLLOW_KEY, LINK_FOLLOW_CHAIN, LINK_FOLLOW_KEPT};

/* One of the three. */
struct held {
	char *key, *chain; /* texts: the key's is a secret; KEPT: both in `key`; NULL: not there */
	struct pair pair;  /* key_pem NULL: not valid, or none */
	struct err why;    /* why it is not valid; code 0: it is, or there is none */
	int64_t begins_s;  /* when it is worth another look; 0: not because of the time */
	unsigned turn; /* in which it came: the later of two that begin in one second is newer */
	bool refused;  /* by istiod */
};

struct followed {
	struct pod_identity *identity;
	struct link_follow *follow;
	bool told;
	struct err why; /* why it cannot be read; code 0, or ENOENT: it is not there */
};

struct pod_identity {
	struct pod_context *context;
	struct istiod_own *own; /* NULL: by token */
	struct followed *files; /* FILES; with the next: NULL, as it is by token */
	struct held *of;        /* PAIRS */
	unsigned turns;
	unsigned shown;             /* which; NOTHING */
	char *shown_chain;          /* what of it is presented; NULL: nothing is */
	bool wants_new, asked_anew; /* after a refusal: once, until one is taken */
	struct loop_timer next;     /* a pair begins or ends */
	struct loop_clock clock;    /* one that ended may not have */
	struct link_call *keeping;
	struct back_off keep_again;
	struct err keep_why; /* why it is not kept; code 0: it is */
};

static void choose(struct pod_identity *i);
static void keep(void *ctx);

static int64_t now_s(const struct pod_identity *i)
{
	return loop_now_ms(i->context->shared->loop) / 1000;
}

bool pod_identity_is_known(const struct pod_identity *i)
{
	for (unsigned f = 0; i->own && f < FILES; f++)
		if (!i->files[f].told)
			return false;
	return true;
}

bool pod_identity_wants_new(const struct pod_identity *i)
{
	return i->wants_new;
}

const struct token *pod_identity_credential(const struct pod_identity *i, struct err *e)
{
	static const struct token none_needed;
	const struct token *token;
	struct err why;

	if (!i->own)
		return pod_token_valid(i->context->token, e);
	if (!pod_identity_is_known(i)) {
		err_set(e, ERR_UNAVAILABLE, "identity: its certificate is not read yet");
		return NULL;
	}
	token = pod_token_valid(i->context->token, &why);
	if (!token && i->shown != NOTHING)
		return &none_needed;
	if (!token)
		err_set(e, ERR_DENIED,
		    "locked out: no certificate of this identity is valid (agentctl certs), and no "
		    "token: %s",
		    why.msg);
	return token;
}

/* --- the pairs --- */

static void read_pair(struct pod_identity *i, unsigned which)
{
	struct held *h = &i->of[which];
	const struct pod_context *c = i->context;
	const struct pair_wanted w = {.trust_domains = istiod_trust_domains(c->plane->istiod),
	    .ns = c->pod->spec.ns,
	    .sa = c->pod->spec.sa,
	    .roots_pem = istiod_roots(c->plane->istiod),
	    .now_s = now_s(i),
	    .begins_s = &h->begins_s};
	struct err why = {0};
	int rc = 0;

	pair_clear(&h->pair);
	h->begins_s = 0;
	if (h->key && which == KEPT)
		rc = pair_read_file(&h->pair, h->key, strlen(h->key), &w, &why);
	else if (h->key && h->chain)
		rc = pair_read(&h->pair,
		    &(struct pair_text){h->key, h->chain, strlen(h->key), strlen(h->chain)}, &w,
		    &why);
	if (rc && why.code != ERR_UNAVAILABLE && strcmp(why.msg, h->why.msg) != 0)
		log_warn(c->pod->spec.label, "%s refused: %s", names[which], why.msg);
	h->why = rc ? why : (struct err){0};
}

static void hold(struct pod_identity *i, unsigned which, char **place, const char *text, size_t n)
{
	struct held *h = &i->of[which];

	secret_free(*place);
	*place = text ? secret_new(text, n) : NULL;
	h->turn = ++i->turns;
	h->refused = false;
}

static bool is_newer(const struct held *a, const struct held *b)
{
	int64_t later = a->pair.leaf.not_before - b->pair.leaf.not_before;

	return later ? later > 0 : a->turn > b->turn;
}

/* What is kept is what was issued last, as a rule. */
static bool is_same(const struct held *a, const struct held *b)
{
	return a->pair.key_pem && b->pair.key_pem && !strcmp(a->pair.chain_pem, b->pair.chain_pem);
}

/* The newest that is valid, of those that istiod refused or of the others; NOTHING. */
static unsigned newest(const struct pod_identity *i, bool refused)
{
	unsigned best = NOTHING;

	for (unsigned w = 0; w < PAIRS; w++) {
		const struct held *h = &i->of[w];

		if (!h->pair.key_pem || h->refused != refused ||
		    h->pair.leaf.not_after <= now_s(i) || (w == KEPT && is_same(h, &i->of[ISSUED])))
			continue;
		if (best == NOTHING || is_newer(h, &i->of[best]))
			best = w;
	}
	return best;
}

static unsigned best_of(const struct pod_identity *i)
{
	unsigned best = newest(i, false);
	struct err why;

	if (best != NOTHING || pod_token_valid(i->context->token, &why))
		return best;
	return newest(i, true);
}

static void on_next(void *ctx)
{
	struct pod_identity *i = ctx;

	for (unsigned w = 0; w < PAIRS; w++)
		read_pair(i, w);
	choose(i);
}

/* One that was over by the old clock may not be; one that was good stays so until it ends. */
static void on_clock(void *ctx)
{
	struct pod_identity *i = ctx;

	for (unsigned w = 0; w < PAIRS; w++)
		if (!i->of[w].pair.key_pem)
			read_pair(i, w);
	choose(i);
}

/* When a pair ends, or begins. */
static int64_t turns_at(const struct held *h)
{
	if (h->pair.key_pem)
		return h->pair.leaf.not_after;
	return h->begins_s ? h->begins_s : INT64_MAX;
}

static void watch_time(struct pod_identity *i)
{
	int64_t at_s = INT64_MAX;

	for (unsigned w = 0; w < PAIRS; w++)
		if (turns_at(&i->of[w]) < at_s)
			at_s = turns_at(&i->of[w]);
	if (at_s == INT64_MAX)
		loop_timer_stop(&i->next);
	else
		loop_timer_at(i->context->shared->loop, &i->next, at_s * 1000, on_next, i);
}

static bool is_shown(const struct pod_identity *i, const struct pair *p)
{
	const char *chain = p ? p->chain_pem : NULL;

	if (!chain || !i->shown_chain)
		return !chain && !i->shown_chain;
	return !strcmp(chain, i->shown_chain);
}

static void show_pair(struct pod_identity *i, const struct pair *p)
{
	if (p)
		log_info(i->context->pod->spec.label, "shows istiod its %s %s", names[i->shown],
		    p->leaf.serial);
	free(i->shown_chain);
	i->shown_chain = p ? mem_strdup(p->chain_pem) : NULL;
	istiod_own_present(i->own, p ? p->key_pem : NULL, p ? p->chain_pem : NULL);
}

static void choose(struct pod_identity *i)
{
	const struct pair *p;
	unsigned before = i->shown;

	if (!i->own || !pod_identity_is_known(i))
		return;
	i->shown = best_of(i);
	watch_time(i);
	p = i->shown == NOTHING ? NULL : &i->of[i->shown].pair;
	if (is_shown(i, p) && (before == NOTHING) == (i->shown == NOTHING))
		return;
	if (!is_shown(i, p))
		show_pair(i, p);
	pod_tell_token(i->context, false);
}

/* --- files --- */

static void on_file(void *ctx, const struct link_content *c)
{
	struct followed *f = ctx;
	struct pod_identity *i = f->identity;
	unsigned what = (unsigned)(f - i->files), which = what == KEPT_FILE ? KEPT : PROVISIONED;
	struct held *h = &i->of[which];
	bool first = !pod_identity_is_known(i);

	if (!c->data && c->e->code != ENOENT && strcmp(c->e->msg, f->why.msg) != 0)
		log_warn(i->context->pod->spec.label, "%s refused: %s", names[which], c->e->msg);
	if (c->data)
		f->why = (struct err){0};
	else
		f->why = *c->e;
	f->told = true;
	hold(i, which, what == CHAIN ? &h->chain : &h->key, c->data, c->size);
	if (!pod_identity_is_known(i))
		return;
	for (unsigned w = 0; w < PAIRS; w++)
		if (first || w == which)
			read_pair(i, w);
	choose(i);
	if (first) {
		keep(i);
		pod_tell_token(i->context, false); /* the rows below wait for it */
	}
}

static void on_directory(void *s)
{
	struct pod_identity *i = s;
	const struct pod_context *c = i->context;

	for (unsigned f = 0; i->own && f < FILES; f++) {
		i->files[f].identity = i;
		i->files[f].follow = link_follow(
		    c->shared->link, kinds[f], &c->pod->spec.uid, 0, on_file, &i->files[f]);
	}
}

/* --- what istiod does --- */

static void on_refused(void *ctx)
{
	struct pod_identity *i = ctx;

	if (i->shown == NOTHING)
		return;
	if (!i->of[i->shown].refused)
		log_warn(i->context->pod->spec.label,
		    "istiod refuses the %s %s, and does not say why (its log does)",
		    names[i->shown], i->of[i->shown].pair.leaf.serial);
	for (unsigned w = 0; w < PAIRS; w++)
		if (is_same(&i->of[w], &i->of[i->shown]))
			i->of[w].refused = true;
	i->wants_new = !i->asked_anew;
	i->asked_anew = true;
	choose(i);
}

static void on_roots(void *ctx)
{
	struct pod_identity *i = ctx;

	for (unsigned w = 0; w < PAIRS; w++)
		i->of[w].refused = false;
	on_next(i);
}

/* --- keeping --- */

static void on_kept(void *ctx, const struct err *e)
{
	struct pod_identity *i = ctx;

	if (!e) {
		i->keep_why = (struct err){0};
		back_off_succeeded(&i->keep_again);
		return;
	}
	if (e->code != EAGAIN && strcmp(e->msg, i->keep_why.msg) != 0)
		log_warn(i->context->pod->spec.label,
		    "its certificate is not kept on disk, so a reboot will need a token: %s",
		    e->msg);
	i->keep_why = *e;
	back_off_start(i->context->shared->loop, &i->keep_again, keep, i);
}

static void keep(void *ctx)
{
	struct pod_identity *i = ctx;
	const struct held *h = &i->of[ISSUED];
	char *text;

	if (!h->pair.key_pem)
		return;
	text = pair_write_file(h->pair.key_pem, h->pair.chain_pem);
	link_call_cancel(&i->keeping);
	if (!i->of[KEPT].key || strcmp(text, i->of[KEPT].key) != 0)
		link_identity_put(i->context->shared->link, &i->keeping, &i->context->pod->spec.uid,
		    text, on_kept, i);
	secret_free(text);
}

/* Without its roots, which are istiod's to know. */
static char *chain_of(const struct cert *c)
{
	size_t size = 0;

	for (size_t n = 0; n + 1 < c->n; n++)
		size += c->element_size[n];
	return mem_printf("%.*s", (int)size, c->chain_pem);
}

static void on_certificate(void *s, struct cert *c, const char *why_not)
{
	struct pod_identity *i = s;
	struct held *h = &i->of[ISSUED];
	auto_free char *chain = c && i->own ? chain_of(c) : NULL;

	(void)why_not;
	if (!chain || (h->chain && !strcmp(chain, h->chain)))
		return;
	hold(i, ISSUED, &h->key, c->key_pem, strlen(c->key_pem));
	hold(i, ISSUED, &h->chain, chain, strlen(chain));
	read_pair(i, ISSUED);
	i->wants_new = false;
	if (i->shown != NOTHING && istiod_own_is_ready(i->own))
		i->asked_anew = false; /* the one before was taken */
	choose(i);
	if (pod_identity_is_known(i))
		keep(i);
}

static void on_token(void *s, bool expired)
{
	(void)expired;
	choose(s);
}

/* --- life --- */

static int start(void *s, struct err *e)
{
	static const struct istiod_own_events events = {on_refused, on_roots};
	struct pod_identity *i = s;
	struct pod_context *c = i->context;

	(void)e;
	i->shown = NOTHING;
	c->identity = i;
	if (!c->pod->spec.by_certificate)
		return 0;
	i->files = mem_zalloc(FILES * sizeof(*i->files));
	i->of = mem_zalloc(PAIRS * sizeof(*i->of));
	i->own = istiod_own_new(c->plane->istiod, &c->pod->spec.uid, &events, i);
	loop_clock_watch(c->shared->loop, &i->clock, on_clock, i);
	return 0;
}

static void stop(void *s)
{
	struct pod_identity *i = s;

	for (unsigned f = 0; i->files && f < FILES; f++)
		link_unfollow(&i->files[f].follow);
	free(i->files);
	link_call_cancel(&i->keeping);
	back_off_stop(&i->keep_again);
	loop_timer_stop(&i->next);
	loop_clock_stop(&i->clock);
	for (unsigned w = 0; i->of && w < PAIRS; w++) {
		secret_free(i->of[w].key);
		secret_free(i->of[w].chain);
		pair_clear(&i->of[w].pair);
	}
	free(i->of);
	free(i->shown_chain);
	istiod_own_free(&i->own);
}

/* --- for people --- */

/* Until then the machine may be off: what is on disk counts, and the token. */
static int64_t latest_end(const struct pod_identity *i, const struct token *token)
{
	int64_t end = token ? token->expires : 0;

	for (unsigned w = KEPT; w < PAIRS; w++)
		if (i->of[w].pair.key_pem && !i->of[w].refused &&
		    i->of[w].pair.leaf.not_after > end)
			end = i->of[w].pair.leaf.not_after;
	return end;
}

static json_t *dump_refused(const struct pod_identity *i)
{
	json_t *all = json_object();

	for (unsigned w = 0; w < PAIRS; w++) {
		const char *why = i->of[w].refused ? "istiod refuses it" : i->of[w].why.msg;

		if (*why)
			json_object_set_new(all, names[w], json_string(why));
	}
	for (unsigned f = 0; f < FILES; f++)
		if (i->files[f].why.code && i->files[f].why.code != ENOENT)
			json_object_set_new(all, names[f == KEPT_FILE ? KEPT : PROVISIONED],
			    json_string(i->files[f].why.msg));
	return all;
}

/* A renewal is due when a fifth of its life is left, at the latest (security-rules.md 3). */
enum { LATE = 8 };

/* Seconds until nothing is valid any more, where no renewal came; -1: that is far. */
static int64_t lock_out_in(const struct pod_identity *i, const struct token *token)
{
	const struct x509_leaf *leaf = i->shown == NOTHING ? NULL : &i->of[i->shown].pair.leaf;
	const int64_t left = leaf ? leaf->not_after - now_s(i) : 0;

	if (!leaf || token || left * LATE >= leaf->not_after - leaf->not_before)
		return -1;
	return left;
}

static void not_kept(const struct pod_identity *i, struct err *why)
{
	err_set(why, ERR_UNAVAILABLE,
	    "the newest certificate is not kept on disk, a reboot will need a token: %.120s",
	    i->keep_why.msg);
}

/* The pod has all that it needs now, but the node's disk does not take what it needs later. */
static bool troubles(void *s, struct err *why)
{
	const struct pod_identity *i = s;

	if (!i->keep_why.code || i->keep_why.code == EAGAIN)
		return false;
	not_kept(i, why);
	return true;
}

static void why_not(const struct pod_identity *i, const struct token *token, char why[ERR_MSG_SIZE])
{
	struct err e = {0};

	if (i->shown != NOTHING && i->of[i->shown].refused)
		err_set(&e, ERR_DENIED,
		    "locked out: istiod refuses the certificate, and there is "
		    "no token");
	else if (i->shown == NOTHING && !token)
		(void)pod_identity_credential(i, &e);
	else if (i->shown == NOTHING && newest(i, true) != NOTHING)
		err_set(
		    &e, ERR_DENIED, "istiod refuses the certificate: by token until it expires");
	else if (lock_out_in(i, token) >= 0)
		err_set(&e, ERR_UNAVAILABLE,
		    "locked out in %lld min, unless it is renewed or gets a token",
		    (long long)lock_out_in(i, token) / 60);
	else if (i->keep_why.code)
		not_kept(i, &e);
	snprintf(why, ERR_MSG_SIZE, "%s", e.msg);
}

/* credential, serial, off_until, refused{}, why_not */
static void show(void *s, json_t *o, const char *name)
{
	const struct pod_identity *i = s;
	char until[CERT_TIME_SIZE] = "", why[ERR_MSG_SIZE];
	const struct token *token;
	const char *credential;
	struct err e;

	(void)name;
	if (!i->own)
		return;
	token = pod_token_valid(i->context->token, &e);
	if (latest_end(i, token))
		cert_time(latest_end(i, token), until);
	why_not(i, token, why);
	credential = i->shown != NOTHING ? names[i->shown] : token ? "token" : "none";
	json_object_set_new(o, "identity",
	    json_pack("{s:s, s:s, s:s, s:s, s:o, s:s}", "pod", i->context->pod->spec.label,
		"credential", credential, "serial",
		i->shown != NOTHING ? i->of[i->shown].pair.leaf.serial : "", "off_until", until,
		"refused", dump_refused(i), "why_not", why));
}

const struct pod_service pod_identity_service = {
    .name = "identity",
    .size = sizeof(struct pod_identity),
    .start = start,
    .stop = stop,
    .troubles = troubles,
    .directory = on_directory,
    .token = on_token,
    .certificate = on_certificate,
    .page = "certs",
    .show = show,
};
