/* rotation.h - the webhook's CA, from the first one to the next, without a moment in which an API
 * server does not trust a leaf in use.  Pure: what a Secret and the caBundles say, and a clock, in;
 * what is to be written, and the leaf to be shown, out.
 *
 *   steady      ca.crt signs.  After ROTATION_PERIOD_S, or a week before its end:
 *   announcing  next.crt is made, and stands in each caBundle beside ca.crt.  next.since says since
 *               when somebody has seen it there.  ROTATION_ANNOUNCE_S later, if it still does:
 *   signing     next.crt is now ca.crt, and signs; the one before is old.crt, and still trusted.
 *               When the last leaf of it is over, old.crt goes: steady again.
 *
 * The state is what keys the Secret has, and nothing else, so that any replica may take each step.
 * It is written with the resourceVersion that was read: of two that take a step, one is refused,
 * and reads what the other wrote.  A caBundle loses certificates in the steady state only.
 *
 * A Secret that was emptied gets back what a replica still knows; only when none knows anything is
 * a new CA made.  Keys that are not ours are not looked at.
 */
#pragma once
#include "authority.h"
#include "bundle.h"
#include <stdbool.h>

enum {
	ROTATION_PERIOD_S = 30 * 86400,
	ROTATION_ANNOUNCE_S = 3600,
	ROTATION_SLACK_S = 3600, /* more than two clocks differ */
	ROTATION_END_S = 7 * 86400,
};

enum rotation_key {
	ROTATION_CA_CRT,
	ROTATION_CA_KEY,
	ROTATION_CA_SINCE, /* Unix seconds as text: when it began to sign */
	ROTATION_NEXT_CRT,
	ROTATION_NEXT_KEY,
	ROTATION_NEXT_SINCE,
	ROTATION_OLD_CRT,
	ROTATION_KEYS
};
extern const char *const rotation_names[ROTATION_KEYS]; /* "ca.crt" */

/* The Secret's data.  NULL: there is no such key.  Each is a secret (common/secret.h). */
struct rotation_data {
	char *text[ROTATION_KEYS];
};
void rotation_data_clear(struct rotation_data *d);

enum rotation_state { ROTATION_NONE, ROTATION_STEADY, ROTATION_ANNOUNCING, ROTATION_SIGNING };
extern const char *const rotation_words[]; /* "announcing" */

struct rotation_seen {
	const struct rotation_data *data; /* NULL: not there, or it could not be read */
	const char *const *bundles;       /* each webhook's caBundle */
	unsigned n_bundles;               /* 0: they could not be read */
	int64_t now_s;
};

struct rotation_plan {
	bool put; /* `data` belongs into the Secret; then look again */
	struct rotation_data data;
	const char *step;          /* why it is put: "a new CA"; a literal */
	struct bundle_want want;   /* for each caBundle; its texts live until the next look */
	bool trusted;              /* each caBundle that was seen holds the CA of the leaf */
	bool signed_anew;          /* the leaf is another one than at the last look */
	enum rotation_state state; /* of what is known, whether it was read now or before */
	char wrong[256];           /* "": nothing is, in what was read */
};
void rotation_plan_clear(struct rotation_plan *p);

/* One replica's memory: the Secret as it last made sense, and the leaf. */
struct rotation;
struct rotation *rotation_new(const char *dns); /* the server's name */
void rotation_free(struct rotation **r);

void rotation_look(
    struct rotation *r, const struct rotation_seen *seen, struct rotation_plan *plan);
const struct authority_leaf *rotation_leaf(const struct rotation *r); /* its crt may be NULL */
