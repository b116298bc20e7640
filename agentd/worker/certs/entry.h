/* entry.h - one certificate of the cache: shared by the files of cert_cache only.
 */
#pragma once
#include "base/back_off.h"
#include "base/loop.h"
#include "cert_cache.h"
#include "common/err.h"
#include <uthash.h>

/* istiod dates certificates back by so much (istio-agent.md 4.5): a clock that is behind by less
 * accepts them, and sees them live longer than it asked for. */
enum { CERT_BACKDATING_S = 120 };

/* A time to come, by both clocks. */
struct cert_moment {
	struct loop_timer date, age;
};

struct cert_sub {
	struct cert_sub *prev, *next;
	struct cert_entry *entry;
	struct loop_timer soon; /* tells the current state, outside of its caller */
	struct uuid pod;
	char *subject;
	cert_token token;
	cert_changed changed;
	void *ctx;
	bool admitted; /* its token was valid when it was last told */
	bool gone;
};

/* What the worker thread reads and writes; the loop leaves it alone while `keygen` is set. */
struct cert_making {
	struct x509_key_params params;
	struct identity id;
	struct x509_request request;
	struct err why;
};

struct cert_entry {
	UT_hash_handle hh;
	struct cert_spec spec; /* the key */
	struct cert_cache *cache;
	struct cert_sub *subs;
	struct cert *cert;
	struct cert_making making;
	struct cert_stored *restored;   /* of an earlier worker, and not looked at yet */
	bool wanted;                    /* it is to be looked at before others */
	struct cert_entry *prev, *next; /* in a list of the cache */
	struct loop_work *keygen;
	struct ca_sign *sign;
	struct cert_sub *signer; /* whose token is under way */
	struct cert_moment renew, end, floor;
	struct loop_timer retry, linger;
	int64_t renew_at_ms;
	unsigned retry_ms, issued;
	char why_not[ERR_MSG_SIZE];
	bool waits;     /* for its key */
	bool due;       /* a certificate is wanted */
	bool tokenless; /* nobody had a valid token at the last attempt */
	bool expired;   /* and the subscribers know */
	bool hurried;   /* the floor was cut short, and none has passed since */
	bool telling;
	/* in the kept state, by id */
	struct link_call *storing;
	uint8_t id[LINK_STATE_ID_SIZE];
	int64_t issued_ms, issued_uptime_ms;
	bool kept;   /* or so we asked */
	bool stored; /* as it is now */
};

struct cert_cache {
	struct loop *loop;
	struct istiod *istiod;
	struct ca_client *ca;
	struct cert_cache_options options;
	struct cert_entry *entries;
	struct cert_entry *waiting, *maker; /* for the worker thread; the one it works for */
	struct cert_entry *wanted, *unread; /* restored */
	struct loop_timer look;             /* at one of them */
	struct metric *cached, *hits;
	struct back_off store_again;
	struct err store_why; /* error of the last store; code 0: none */
};

void cert_moment_stop(struct cert_moment *m);
/* `come` runs once for each clock, unless the moment is stopped: look at `armed`. */
void cert_moment_in(struct loop *l, struct cert_moment *m, int64_t ms, loop_cb come, void *ctx);

const char *cert_entry_trust_domain(const struct cert_entry *e);
const char *cert_entry_trust_domains(const struct cert_entry *e); /* NULL: any will do */
/* For log and dump: as good as is known before the first answer. */
char *cert_entry_name(const struct cert_entry *e, char out[IDENTITY_URI_SIZE]);
struct cert *cert_entry_valid(const struct cert_entry *e); /* NULL: none */
/* How long no other certificate is asked for after one that lives so long. */
int64_t cert_entry_pause_ms(const struct cert_entry *e, int64_t life_ms);
/* Of the last good one, or as long as the next is to live. */
int64_t cert_entry_last_life_ms(const struct cert_entry *e);
/* When one that is good until `end_s` is to be renewed, Unix ms. */
int64_t cert_entry_renewal(const struct cert_entry *e, int64_t now_ms, int64_t end_s);
const char *cert_entry_why_not(const struct cert_entry *e);
