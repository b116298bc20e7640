/* account.c - a response -> its version and nonce are noted -> a request with that nonce
 * settles it: ACK or NACK.  A nonce comes again when Envoy only changes what it subscribes to.
 */
#include "account.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("xds");

/* A cluster that is still warming keeps Envoy from answering for clusters. */
enum { TYPES_MAX = 16, UNANSWERED_MS = 60 * 1000 };

/* How the talk about one type stands. */
struct account_type {
	char url[DISCOVERY_TYPE_SIZE], version[DISCOVERY_NONCE_SIZE], nonce[DISCOVERY_NONCE_SIZE];
	bool settled; /* the response with this nonce was ACKed or NACKed */
	bool refused; /* the last one that was settled: NACKed */
	json_int_t acked, nacked;
	json_int_t pushed_at; /* Unix seconds; of the last response */
	int64_t pushed_ms;    /* the same on the monotonic clock */
	unsigned resources;   /* in it: all of them, or with delta those that are new */
	char last_nack[DISCOVERY_WHY_SIZE];
	struct account_type *next;
};

static struct account_type *find_type(const struct ads_account *a, const char *url)
{
	struct account_type *t;

	LL_FOREACH (a->types, t)
		if (strcmp(t->url, url) == 0)
			return t;
	return NULL;
}

void ads_account_settle(const struct ads_account *a, struct account_type *t, const char *nack)
{
	if (!t)
		return;
	t->settled = true;
	t->refused = nack != NULL;
	if (!nack) {
		t->acked++;
		return;
	}
	t->nacked++;
	snprintf(t->last_nack, sizeof(t->last_nack), "%s", *nack ? nack : "no reason given");
	log_warn_limited(a->log, a->label, "NACK of %s: %s", t->url, t->last_nack);
}

struct account_type *ads_account_response(struct ads_account *a, const struct discovery_response *r)
{
	struct account_type *t = find_type(a, r->type_url);

	if (!t && a->ntypes < TYPES_MAX) {
		t = mem_zalloc(sizeof(*t));
		memcpy(t->url, r->type_url, sizeof(t->url));
		LL_APPEND(a->types, t);
		a->ntypes++;
	}
	if (!t)
		return NULL;
	memcpy(t->version, r->version, sizeof(t->version));
	memcpy(t->nonce, r->nonce, sizeof(t->nonce));
	t->settled = false;
	t->pushed_at = loop_now_ms(a->loop) / 1000;
	t->pushed_ms = loop_uptime_ms(a->loop);
	t->resources = r->resources;
	return t;
}

int64_t ads_account_request(struct ads_account *a, const struct discovery_request *q)
{
	struct account_type *t = find_type(a, q->type_url);

	if (!t || !q->nonce[0] || strcmp(q->nonce, t->nonce) != 0 || t->settled)
		return -1;
	ads_account_settle(a, t, q->nack ? q->nack_why : NULL);
	return loop_uptime_ms(a->loop) - t->pushed_ms;
}

void ads_account_stream_ended(struct ads_account *a)
{
	struct account_type *t;

	LL_FOREACH (a->types, t)
		t->nonce[0] = '\0';
}

unsigned ads_account_refused(const struct ads_account *a)
{
	const struct account_type *t;
	unsigned n = 0;

	LL_FOREACH (a->types, t)
		n += t->refused && t->nonce[0];
	return n;
}

/* "Cluster" */
static const char *short_name(const struct account_type *t)
{
	const char *dot = strrchr(t->url, '.');

	return dot ? dot + 1 : t->url;
}

/* Who has no nonce was not pushed on this stream: what Envoy said of it before is over. */
enum served ads_account_served(const struct ads_account *a, struct err *why)
{
	const struct account_type *t;

	LL_FOREACH (a->types, t) {
		const int64_t ms = loop_uptime_ms(a->loop) - t->pushed_ms;

		if (!t->nonce[0] || (t->settled ? !t->refused : ms < UNANSWERED_MS))
			continue;
		if (t->settled)
			err_set(why, ERR_INVALID,
			    "its Envoy refused the last push of %s: agentctl xds shows why",
			    short_name(t));
		else
			err_set(why, ERR_UNAVAILABLE,
			    "its Envoy has not answered the last push of %s for %lld s",
			    short_name(t), (long long)(ms / 1000));
		return SERVED_NO;
	}
	return SERVED_YES;
}

static const char *state_of(const struct account_type *t)
{
	if (!t->settled)
		return "stale";
	return t->refused ? "refused" : "synced";
}

json_t *ads_account_dump(const struct ads_account *a)
{
	json_t *types = json_object();
	const struct account_type *t;

	LL_FOREACH (a->types, t)
		json_object_set_new(types, t->url,
		    json_pack("{s:s, s:s, s:s, s:I, s:i, s:I, s:I, s:b, s:s}", "version",
			t->version, "nonce", t->nonce, "state", state_of(t), "pushed_at",
			t->pushed_at, "resources", (int)t->resources, "acked", t->acked, "nacked",
			t->nacked, "refused", t->refused, "last_nack", t->last_nack));
	return types;
}

void ads_account_clear(struct ads_account *a)
{
	struct account_type *t, *next;

	LL_FOREACH_SAFE (a->types, t, next)
		free(t);
	a->types = NULL;
	a->ntypes = 0;
}
