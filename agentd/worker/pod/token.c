/* token.c
 *
 * directory -> the source's token is read, or else the file beside the manifest is followed ->
 * told; another one comes -> told; it expires -> told.  A token that cannot be read takes the place
 * of one that could, as the pod's owner took that one away.  The file is root's word, so its token
 * need not name the pod.
 */
#include "token.h"
#include "accounts.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "rows.h"
#include "worker/crypto/token.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"
#include <string.h>

LOG_SCOPE("pod");

struct pod_token {
	struct pod_context *context;
	bool has_directory;
	struct link_follow *follow; /* of root's file; NULL: the source tells */
	struct token token;         /* jwt NULL: none */
	struct err why;             /* why there is none */
	struct loop_timer expiry;
	struct account *account; /* the pod's */
};

const struct token *pod_token_valid(const struct pod_token *t, struct err *e)
{
	const struct pod *p = t->context->pod;
	struct token_holder h = {
	    p->spec.ns, p->spec.sa, &p->spec.uid, .unbound = t->follow != NULL};

	if (!t->token.jwt) {
		*e = t->why;
		return NULL;
	}
	if (token_check(&t->token, &h, loop_now_ms(t->context->shared->loop) / 1000, e))
		return NULL;
	return &t->token;
}

static void on_expired(void *ctx)
{
	const struct pod_token *t = ctx;

	pod_tell_token(t->context, true);
}

/* What the pod wrote as the time may be any number. */
static void watch_expiry(struct pod_token *t)
{
	int64_t latest_s = INT64_MAX / 1000;
	int64_t at_s = t->token.expires < latest_s ? t->token.expires : latest_s;

	if (t->token.jwt)
		loop_timer_at(t->context->shared->loop, &t->expiry, at_s * 1000, on_expired, t);
	else
		loop_timer_stop(&t->expiry);
}

static void was_read(struct pod_token *t)
{
	struct err e = {0};

	if (pod_token_valid(t, &e))
		accounts_note(t->account, &t->token);
	else
		log_warn(t->context->pod->spec.label, "no usable token: %s", e.msg);
	pod_tell_token(t->context, false);
	watch_expiry(t);
}

static void on_file(void *ctx, const struct link_content *c)
{
	struct pod_token *t = ctx;

	token_clear(&t->token);
	if (c->data) {
		(void)token_parse(&t->token, c->data, c->size, &t->why);
	} else {
		t->why = *c->e;
		err_wrap(&t->why, "token");
	}
	was_read(t);
}

static void take_given(struct pod_token *t)
{
	const char *given = t->context->pod->spec.token;

	token_clear(&t->token);
	(void)token_parse(&t->token, given, strlen(given), &t->why);
	was_read(t);
}

static void on_given(void *s)
{
	struct pod_token *t = s;

	if (t->has_directory)
		take_given(t);
}

static void on_directory(void *s)
{
	struct pod_token *t = s;
	const struct pod_context *c = t->context;

	t->has_directory = true;
	if (c->pod->spec.token)
		take_given(t);
	else
		t->follow = link_follow(
		    c->shared->link, LINK_FOLLOW_TOKEN, &c->pod->spec.uid, 0, on_file, t);
}

static int start(void *s, struct err *e)
{
	struct pod_token *t = s;

	(void)e;
	err_set(&t->why, ERR_UNAVAILABLE, "token: not read yet");
	t->account = accounts_use(
	    t->context->shared->accounts, t->context->pod->spec.ns, t->context->pod->spec.sa);
	t->context->token = t;
	return 0;
}

static void stop(void *s)
{
	struct pod_token *t = s;

	link_unfollow(&t->follow);
	loop_timer_stop(&t->expiry);
	token_clear(&t->token);
	accounts_drop(&t->account);
}

/* That it is not valid is the certificate's to say: it comes of the same token. */
static enum served served(void *s, struct err *why)
{
	const struct pod_token *t = s;
	const struct pod *p = t->context->pod;

	if (!pod_token_valid(t, why) || !accounts_is_gone(t->account, &t->token))
		return SERVED_YES;
	err_set(why, ERR_DENIED,
	    "its token is of an account %s/%s that was deleted and made again: istiod refuses it "
	    "(change tokenExpirationSeconds by one)",
	    p->spec.ns, p->spec.sa);
	return SERVED_HELD;
}

/* valid, expires, why_not; nothing before the directory */
static json_t *dump_token(struct pod_token *t)
{
	json_t *o = json_object();
	struct err e = {0};
	bool valid;

	if (!t->has_directory)
		return o;
	valid = pod_token_valid(t, &e) != NULL;
	json_object_set_new(o, "valid", json_boolean(valid));
	if (t->token.jwt)
		json_object_set_new(o, "expires", json_integer(t->token.expires));
	if (!valid)
		json_object_set_new(o, "why_not", json_string(e.msg));
	return o;
}

static void dump(void *s, json_t *o)
{
	json_object_set_new(o, "token", dump_token(s));
}

const struct pod_service pod_token_service = {
    .name = "token",
    .size = sizeof(struct pod_token),
    .start = start,
    .stop = stop,
    .directory = on_directory,
    .token_given = on_given,
    .served = served,
    .dump = dump,
};
