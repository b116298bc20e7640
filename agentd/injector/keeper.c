/* keeper.c - a look: the Secret -> the configuration -> what is to be done -> one write, and
 * another look at once, or none, and the next look in 10 s.
 *
 * A write is never believed: what it did is seen by the next look.  Two replicas that write at the
 * same time make one conflict, and the other one's look begins again.
 */
#include "keeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/metrics.h"
#include "ca/rotation.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/secret.h"
#include "kube/client.h"
#include "kube/objects.h"
#include "server.h"

LOG_SCOPE("keeper");

enum {
	LOOK_MS = 10 * 1000,
	HURRY_MS = 1000,
	AGAIN_MAX = 8,
	CLOCKS_S = 6 * 3600,
	WHY_SIZE = 384,
	NAME_MAX_SIZE = 253
};

struct keeper {
	struct loop *loop;
	struct server *server;
	struct kube_client *kube;
	struct rotation *rotation;
	struct loop_timer next;
	int64_t look_ms;
	char *secret_path, *webhook_path;
	/* One look. */
	unsigned again; /* looks at once, one after another */
	json_t *secret, *webhook;
	int64_t date_s;
	char why[WHY_SIZE]; /* of what could not be read or written; "": nothing */
	struct rotation_plan plan;
	/* All of them. */
	int64_t rested_at;   /* on the monotonic clock */
	bool trusted;        /* as it was seen last */
	char said[WHY_SIZE]; /* what the log said last */
	struct metric *looks, *writes, *conflicts, *is_trusted, *state;
};

static void look(void *ctx);

/* --- what people see --- */

static void count(struct metric *m, const char *key, const char *value, unsigned n)
{
	char labels[64];

	metric_add(m, metric_labels(labels, sizeof(labels), key, value, NULL), n);
}

static void make_metrics(struct keeper *k)
{
	k->looks = metric_counter(
	    "agentd_injector_ca_looks_total", "Looks at the Secret and the webhook's caBundles");
	k->writes = metric_counter(
	    "agentd_injector_ca_writes_total", "Secret and caBundles, as they were written");
	k->conflicts = metric_counter("agentd_injector_ca_conflicts_total",
	    "Writes that were dropped because another replica wrote first");
	k->is_trusted = metric_gauge("agentd_injector_ca_trusted",
	    "1: each caBundle, as it was seen last, holds the CA of this replica's certificate");
	k->state = metric_gauge("agentd_injector_ca_state", "1: the state the webhook's CA is in");
	count(k->looks, "result", "ok", 0);
	count(k->looks, "result", "failed", 0);
	count(k->writes, "object", "secret", 0);
	count(k->writes, "object", "caBundle", 0);
	metric_add(k->conflicts, "", 0);
	metric_set(k->is_trusted, "", 0);
}

/* The first reason of a look is the one that counts. */
static void fail(struct keeper *k, const char *what, const char *why)
{
	if (!*k->why)
		snprintf(k->why, sizeof(k->why), "%s: %s", what, why);
}

static void say(struct keeper *k)
{
	if (strcmp(k->said, k->why) == 0)
		return;
	if (*k->why)
		log_error(NULL, "%s", k->why);
	else
		log_info(NULL, "Secret and caBundles are as they should be");
	snprintf(k->said, sizeof(k->said), "%s", k->why);
}

static void tell_server(struct keeper *k)
{
	char why[WHY_SIZE + 64] = "no caBundle is known to hold the CA of its certificate";

	if (*k->why)
		snprintf(why, sizeof(why), "%s", k->why);
	server_ready_set(k->server, k->trusted ? NULL : why);
	metric_set(k->is_trusted, "", k->trusted);
	for (unsigned i = ROTATION_NONE; i <= ROTATION_SIGNING; i++) {
		char labels[64];

		metric_set(k->state,
		    metric_labels(labels, sizeof(labels), "state", rotation_words[i], NULL),
		    i == k->plan.state);
	}
}

/* --- the end of a look --- */

static void look_clear(struct keeper *k)
{
	json_decref(take(k->secret));
	json_decref(take(k->webhook));
	rotation_plan_clear(&k->plan);
	*k->why = '\0';
}

static void rest(struct keeper *k)
{
	count(k->looks, "result", *k->why ? "failed" : "ok", 1);
	say(k);
	tell_server(k);
	look_clear(k);
	kube_hang_up(k->kube);
	k->again = 0;
	k->rested_at = loop_uptime_ms(k->loop);
	loop_timer_in(k->loop, &k->next, k->look_ms, look, k);
}

static void look_again(struct keeper *k)
{
	if (++k->again > AGAIN_MAX) {
		rest(k);
		return;
	}
	look_clear(k);
	look(k);
}

/* --- writing --- */

/* 409 of an update, 422 of a patch whose test failed; either way the next look knows more. */
static void on_written(void *ctx, const struct kube_answer *a)
{
	struct keeper *k = ctx;
	const char *object = k->plan.put ? "secret" : "caBundle";

	if (a->status == 200) {
		count(k->writes, "object", object, 1);
		look_again(k);
		return;
	}
	if (a->status == 409 || (a->status == 422 && !k->plan.put)) {
		metric_add(k->conflicts, "", 1);
		look_again(k);
		return;
	}
	fail(
	    k, k->plan.put ? "the Secret cannot be written" : "caBundle cannot be written", a->why);
	rest(k);
}

static void put_secret(struct keeper *k)
{
	char *body = kube_secret_with(k->secret, rotation_names, k->plan.data.text, ROTATION_KEYS);

	log_info(NULL, "the Secret is written: %s", k->plan.step);
	kube_ask(k->kube, &(struct kube_ask){"PUT", k->secret_path, body}, on_written, k);
	secret_free(body);
}

/* False: they are as they should be. */
static bool patch_bundles(struct keeper *k, char *const *bundles, unsigned n)
{
	char *mended[KUBE_WEBHOOKS_MAX] = {NULL}, *body;
	bool any = false;

	for (unsigned i = 0; i < n; i++) {
		mended[i] = bundle_mend(bundles[i], &k->plan.want);
		any |= mended[i] != NULL;
	}
	if (any) {
		body = kube_bundles_patch(k->webhook, mended, n);
		kube_ask(
		    k->kube, &(struct kube_ask){"PATCH", k->webhook_path, body}, on_written, k);
		secret_free(body);
	}
	for (unsigned i = 0; i < n; i++)
		free(mended[i]);
	return any;
}

/* --- deciding --- */

static void show_leaf(struct keeper *k)
{
	const struct authority_leaf *leaf = rotation_leaf(k->rotation);
	struct err e;

	if (!k->plan.signed_anew)
		return;
	if (server_certificate_set(k->server, leaf->crt, leaf->key, &e))
		fail(k, "its certificate", e.msg);
	else
		log_info(NULL, "a new certificate is shown");
}

static void decide(struct keeper *k, char *const *bundles, unsigned n)
{
	struct rotation_data data = {{NULL}};
	struct rotation_seen seen = {.data = k->secret ? &data : NULL,
	    .bundles = (const char *const *)bundles,
	    .n_bundles = n,
	    .now_s = time(NULL)};

	for (unsigned i = 0; i < ROTATION_KEYS && k->secret; i++)
		data.text[i] = kube_secret_text(k->secret, rotation_names[i]);
	rotation_look(k->rotation, &seen, &k->plan);
	rotation_data_clear(&data);
	if (*k->plan.wrong) {
		fail(k, "the Secret makes no sense", k->plan.wrong);
		say(k); /* a write that mends it is followed by a look that finds nothing */
	}
	show_leaf(k);
	if (n > 0)
		k->trusted = k->plan.trusted;
	if (k->plan.put)
		put_secret(k);
	else if (!patch_bundles(k, bundles, n))
		rest(k);
}

/* --- reading --- */

static void on_webhook(void *ctx, const struct kube_answer *a)
{
	struct keeper *k = ctx;
	char *bundles[KUBE_WEBHOOKS_MAX];
	struct err e = {0};
	int n = -1;

	if (a->status != 200)
		fail(k, k->webhook_path, a->why);
	else if (!(k->webhook =
			 kube_object_read(a->body, a->len, "MutatingWebhookConfiguration", &e)) ||
		 (n = kube_bundles_read(k->webhook, bundles, &e)) < 0)
		fail(k, k->webhook_path, e.msg);
	if (n < 0)
		n = 0;
	decide(k, bundles, (unsigned)n);
	while (n > 0)
		secret_free(bundles[--n]);
}

/* The certificate is checked by the API server's clock; on another one nothing right can be done.
 */
static bool clocks_agree(struct keeper *k, int64_t date_s)
{
	int64_t ahead = date_s ? time(NULL) - date_s : 0;
	char why[96];

	if (ahead <= CLOCKS_S && ahead >= -CLOCKS_S)
		return true;
	snprintf(why, sizeof(why), "it is %lld s %s the API server's", (long long)llabs(ahead),
	    ahead > 0 ? "ahead of" : "behind");
	fail(k, "the clock of this node", why);
	return false;
}

static void on_secret(void *ctx, const struct kube_answer *a)
{
	struct keeper *k = ctx;
	struct err e;

	if (a->status != 200)
		fail(k, k->secret_path, a->why);
	else if (!(k->secret = kube_object_read(a->body, a->len, "Secret", &e)))
		fail(k, k->secret_path, e.msg);
	if (!a->status)
		decide(k, NULL, 0);
	else if (!clocks_agree(k, a->date_s))
		rest(k);
	else
		kube_ask(k->kube, &(struct kube_ask){"GET", k->webhook_path, NULL}, on_webhook, k);
}

static void look(void *ctx)
{
	struct keeper *k = ctx;

	kube_ask(k->kube, &(struct kube_ask){"GET", k->secret_path, NULL}, on_secret, k);
}

/* Its caBundle is empty, perhaps.  Anybody may say so: hence the pause. */
static void on_distrust(void *ctx)
{
	struct keeper *k = ctx;

	if (k->next.armed && loop_uptime_ms(k->loop) - k->rested_at >= HURRY_MS)
		loop_timer_in(k->loop, &k->next, 0, look, k);
}

/* --- its life --- */

/* Names go into paths. */
static int check_name(const char *what, const char *name, struct err *e)
{
	size_t good = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") : 0;

	if (good > 0 && !name[good] && good <= NAME_MAX_SIZE)
		return 0;
	return err_set(
	    e, ERR_INVALID, "%s: \"%.64s\" is no name of an object", what, name ? name : "");
}

struct keeper *keeper_new(
    struct loop *l, struct server *s, const struct keeper_objects *o, struct err *e)
{
	struct keeper *k = mem_zalloc(sizeof(*k));

	k->loop = l;
	k->server = s;
	k->kube = kube_client_new(l, o->kube_dir, e);
	if (!k->kube || check_name("namespace", kube_namespace(k->kube), e) ||
	    check_name("--secret", o->secret, e) || check_name("--webhook", o->webhook, e) ||
	    check_name("--server-name", o->server_name, e)) {
		keeper_free(&k);
		return NULL;
	}
	k->look_ms = o->look_ms ? strtol(o->look_ms, NULL, 10) : LOOK_MS;
	k->rotation = rotation_new(o->server_name);
	k->secret_path =
	    mem_printf("/api/v1/namespaces/%s/secrets/%s", kube_namespace(k->kube), o->secret);
	k->webhook_path = mem_printf("/apis/admissionregistration.k8s.io/v1/"
				     "mutatingwebhookconfigurations/%s",
	    o->webhook);
	make_metrics(k);
	server_on_distrust(s, on_distrust, k);
	loop_timer_in(l, &k->next, 0, look, k);
	return k;
}

void keeper_free(struct keeper **keeper)
{
	struct keeper *k = take(*keeper);

	if (!k)
		return;
	server_on_distrust(k->server, NULL, NULL);
	loop_timer_stop(&k->next);
	kube_client_free(&k->kube);
	rotation_free(&k->rotation);
	look_clear(k);
	free(k->secret_path);
	free(k->webhook_path);
	free(k);
}
