/* rotation.c - the Secret's data is read -> what makes no sense in it is left out -> it is what we
 * know -> the step that is due -> the leaf -> what each caBundle is to hold.
 *
 * A leaf moves to another CA when each caBundle is seen to hold that one, and has been told an hour
 * ago; a leaf that is over moves at once.
 */
#include "rotation.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"

/* From here on a leaf that is still good is of little use: the next look may be late. */
enum { LEAF_LAST_S = 3600 };

const char *const rotation_names[ROTATION_KEYS] = {
    "ca.crt", "ca.key", "ca.since", "next.crt", "next.key", "next.since", "old.crt"};
const char *const rotation_words[] = {"none", "steady", "announcing", "signing"};

/* What a Secret says. */
struct known {
	struct authority *ca, *next;
	char *old;                 /* PEM */
	int64_t since, next_since; /* 0: does not say */
};

struct rotation {
	char *dns;
	struct known known;
	struct authority_leaf leaf;
	char *leaf_ca; /* PEM, of who signed it */
};

/* --- a Secret's data --- */

void rotation_data_clear(struct rotation_data *d)
{
	for (unsigned i = 0; i < ROTATION_KEYS; i++)
		secret_free(d->text[i]);
	*d = (struct rotation_data){0};
}

void rotation_plan_clear(struct rotation_plan *p)
{
	rotation_data_clear(&p->data);
	*p = (struct rotation_plan){0};
}

static void known_clear(struct known *k)
{
	authority_free(&k->ca);
	authority_free(&k->next);
	free(k->old);
	*k = (struct known){0};
}

static void write_since(char **text, int64_t since)
{
	char number[24];
	int n = snprintf(number, sizeof(number), "%lld", (long long)since);

	if (since)
		*text = secret_new(number, (size_t)n);
}

static void write_data(const struct known *k, struct rotation_data *out)
{
	if (k->ca) {
		out->text[ROTATION_CA_CRT] = secret_dup(authority_crt(k->ca));
		out->text[ROTATION_CA_KEY] = secret_dup(authority_key(k->ca));
		write_since(&out->text[ROTATION_CA_SINCE], k->since);
	}
	if (k->next) {
		out->text[ROTATION_NEXT_CRT] = secret_dup(authority_crt(k->next));
		out->text[ROTATION_NEXT_KEY] = secret_dup(authority_key(k->next));
		write_since(&out->text[ROTATION_NEXT_SINCE], k->next_since);
	}
	out->text[ROTATION_OLD_CRT] = secret_dup(k->old);
}

/* --- reading it --- */

struct reading {
	const struct rotation_data *data;
	const struct known *before;
	int64_t now_s;
	char *wrong;
	unsigned size;
};

/* The first thing that is wrong is said: the others often come of it. */
static void wrong(const struct reading *r, const char *key, const char *why)
{
	if (!*r->wrong)
		snprintf(r->wrong, r->size, "%s: %s", key, why);
}

/* 0: it is no time, or one that has not come. */
static int64_t read_since(const struct reading *r, enum rotation_key key)
{
	const char *text = r->data->text[key];
	long long v;
	char *end;

	if (!text)
		return 0;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno == 0 && *text && !*end && v > 0 && v <= r->now_s + ROTATION_SLACK_S)
		return v;
	wrong(r, rotation_names[key], "is no time in the past (Unix seconds)");
	return 0;
}

static bool is_same(const struct authority *a, const char *crt, const char *key)
{
	return a && strcmp(authority_crt(a), crt) == 0 && strcmp(authority_key(a), key) == 0;
}

/* What has not changed since the last look needs no reading. */
static struct authority *read_again(const struct known *before, const char *crt, const char *key)
{
	if (is_same(before->ca, crt, key))
		return authority_ref(before->ca);
	return is_same(before->next, crt, key) ? authority_ref(before->next) : NULL;
}

static struct authority *read_authority(const struct reading *r, enum rotation_key crt)
{
	const char *cert = r->data->text[crt], *key = r->data->text[crt + 1];
	struct authority *a;
	struct err e;

	if (!cert && !key)
		return NULL;
	a = read_again(r->before, cert ? cert : "", key ? key : "");
	if (!a)
		a = authority_read(cert ? cert : "", key ? key : "", &e);
	if (!a) {
		wrong(r, rotation_names[crt], e.msg);
	} else if (authority_begin(a) > r->now_s) {
		wrong(r, rotation_names[crt], "it begins in the future");
		authority_free(&a);
	} else if (authority_end(a) <= r->now_s) {
		wrong(r, rotation_names[crt], "it is over");
		authority_free(&a);
	}
	return a;
}

static char *read_old(const struct reading *r)
{
	struct bundle_want want = {.must = {r->data->text[ROTATION_OLD_CRT]}};
	char *pem = bundle_mend("", &want);

	if (want.must[0] && !pem)
		wrong(r, rotation_names[ROTATION_OLD_CRT], "no certificate");
	return pem;
}

static void read_known(const struct reading *r, struct known *k)
{
	k->ca = read_authority(r, ROTATION_CA_CRT);
	k->next = read_authority(r, ROTATION_NEXT_CRT);
	k->old = read_old(r);
	k->since = read_since(r, ROTATION_CA_SINCE);
	k->next_since = k->next ? read_since(r, ROTATION_NEXT_SINCE) : 0;
	if (k->next && k->old) {
		wrong(r, rotation_names[ROTATION_OLD_CRT], "is there beside next.crt");
		authority_free(&k->next);
		k->next_since = 0;
	}
}

static bool is_empty(const struct rotation_data *d)
{
	for (unsigned i = 0; i < ROTATION_KEYS; i++)
		if (d->text[i])
			return false;
	return true;
}

/* --- steps --- */

static enum rotation_state state_of(const struct known *k)
{
	if (!k->ca)
		return ROTATION_NONE;
	if (k->next)
		return ROTATION_ANNOUNCING;
	return k->old ? ROTATION_SIGNING : ROTATION_STEADY;
}

static bool held(const struct rotation_seen *seen, const char *crt)
{
	for (unsigned i = 0; i < seen->n_bundles; i++)
		if (!bundle_holds(seen->bundles[i], crt))
			return false;
	return seen->n_bundles > 0;
}

static const char *step_steady(struct known *k, const struct rotation_seen *seen)
{
	if (seen->now_s - k->since < ROTATION_PERIOD_S &&
	    authority_end(k->ca) - seen->now_s > ROTATION_END_S)
		return NULL;
	k->next = authority_new(seen->now_s);
	return "a next CA is announced";
}

static const char *step_announcing(struct known *k, const struct rotation_seen *seen)
{
	if (authority_end(k->next) - seen->now_s <= ROTATION_END_S) {
		authority_free(&k->next);
		k->next_since = 0;
		return "the next CA has waited too long";
	}
	if (!held(seen, authority_crt(k->next)))
		return NULL;
	if (!k->next_since) {
		k->next_since = seen->now_s;
		return "each caBundle holds the next CA";
	}
	if (seen->now_s - k->next_since < ROTATION_ANNOUNCE_S)
		return NULL;
	k->old = mem_strdup(authority_crt(k->ca));
	authority_free(&k->ca);
	k->ca = take(k->next);
	k->since = seen->now_s;
	k->next_since = 0;
	return "the next CA signs";
}

static const char *step_signing(struct known *k, const struct rotation_seen *seen)
{
	if (seen->now_s - k->since < AUTHORITY_LEAF_S + ROTATION_SLACK_S)
		return NULL;
	free(take(k->old));
	return "the previous CA is retired";
}

/* What is due of a Secret that makes sense.  NULL: nothing. */
static const char *step(struct known *k, const struct rotation_seen *seen)
{
	if (!k->since) {
		k->since = seen->now_s;
		return "ca.since is set";
	}
	if (k->next)
		return step_announcing(k, seen);
	return k->old ? step_signing(k, seen) : step_steady(k, seen);
}

/* Nothing signs: what is known goes back, else the next one is the best there is, else a new one.
 */
static const char *step_without(struct known *k, struct rotation *r, int64_t now_s)
{
	if (r->known.ca && authority_end(r->known.ca) > now_s) {
		known_clear(k);
		return "a replica's own data is put back";
	}
	free(take(k->old));
	k->since = now_s;
	k->next_since = 0;
	if (k->next) {
		k->ca = take(k->next);
		return "the next CA signs, for there is no other";
	}
	k->ca = authority_new(now_s);
	return "a new CA is made";
}

static void look_at_data(
    struct rotation *r, const struct rotation_seen *seen, struct rotation_plan *plan)
{
	struct reading reading = {
	    seen->data, &r->known, seen->now_s, plan->wrong, sizeof(plan->wrong)};
	struct known k = {0};

	read_known(&reading, &k);
	if (!k.ca) {
		if (!is_empty(seen->data) && !*plan->wrong)
			wrong(&reading, rotation_names[ROTATION_CA_CRT], "is not there");
		plan->step = step_without(&k, r, seen->now_s);
		write_data(k.ca ? &k : &r->known, &plan->data);
		known_clear(&k);
	} else {
		plan->step = *plan->wrong ? "senseless entries are removed" : step(&k, seen);
		if (plan->step) { /* it is taken when the Secret says so */
			write_data(&k, &plan->data);
			known_clear(&k);
			read_known(&reading, &k);
		}
		known_clear(&r->known);
		r->known = k;
	}
	plan->put = plan->step != NULL;
}

/* --- the leaf --- */

/* May it move to the CA that signs now, though it is good still? */
static bool may_move(const struct rotation *r, const struct rotation_seen *seen)
{
	const struct known *k = &r->known;

	if (!k->since || !held(seen, authority_crt(k->ca)))
		return false;
	return (k->old && strcmp(r->leaf_ca, k->old) == 0) ||
	       seen->now_s - k->since >= ROTATION_ANNOUNCE_S;
}

static bool leaf_is_due(const struct rotation *r, const struct rotation_seen *seen)
{
	const struct authority_leaf *leaf = &r->leaf;
	int64_t now = seen->now_s;

	if (!leaf->crt || now < leaf->signed_at - AUTHORITY_EARLY_S / 2 ||
	    now >= leaf->end - LEAF_LAST_S)
		return true;
	if (strcmp(r->leaf_ca, authority_crt(r->known.ca)) != 0)
		return may_move(r, seen);
	return now >= leaf->signed_at + (leaf->end - leaf->signed_at) / 2;
}

static void look_at_leaf(
    struct rotation *r, const struct rotation_seen *seen, struct rotation_plan *plan)
{
	if (!r->known.ca || !leaf_is_due(r, seen))
		return;
	authority_sign(r->known.ca, r->dns, seen->now_s, &r->leaf);
	free(r->leaf_ca);
	r->leaf_ca = mem_strdup(authority_crt(r->known.ca));
	plan->signed_anew = true;
}

static void look_at_bundles(
    struct rotation *r, const struct rotation_seen *seen, struct rotation_plan *plan)
{
	const struct known *k = &r->known;

	plan->want =
	    (struct bundle_want){.must = {k->ca ? authority_crt(k->ca) : NULL,
				     k->next ? authority_crt(k->next) : NULL, k->old, r->leaf_ca}};
	plan->want.only = seen->data && !plan->put && plan->state == ROTATION_STEADY && k->since &&
			  seen->now_s - k->since >= AUTHORITY_LEAF_S + ROTATION_SLACK_S;
	plan->trusted = r->leaf_ca && held(seen, r->leaf_ca);
}

void rotation_look(struct rotation *r, const struct rotation_seen *seen, struct rotation_plan *plan)
{
	*plan = (struct rotation_plan){0};
	if (seen->data)
		look_at_data(r, seen, plan);
	plan->state = state_of(&r->known);
	look_at_leaf(r, seen, plan);
	look_at_bundles(r, seen, plan);
}

struct rotation *rotation_new(const char *dns)
{
	struct rotation *r = mem_zalloc(sizeof(*r));

	r->dns = mem_strdup(dns);
	return r;
}

void rotation_free(struct rotation **rotation)
{
	struct rotation *r = take(*rotation);

	if (!r)
		return;
	known_clear(&r->known);
	authority_leaf_clear(&r->leaf);
	free(r->leaf_ca);
	free(r->dns);
	free(r);
}

const struct authority_leaf *rotation_leaf(const struct rotation *r)
{
	return &r->leaf;
}
