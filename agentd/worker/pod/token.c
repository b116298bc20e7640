/* agent_token.c
 *
 * start -> the source's token is read, or else the file beside the manifest is followed -> changed;
 * another one comes -> changed; it expires -> changed.  A token that cannot be read takes the place
 * of one that could, as the pod's owner took that one away.
 */
#include "token.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "pod_services.h"
#include "worker/base/loop.h"
#include "worker/crypto/token.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"
#include <string.h>

LOG_SCOPE("pod");

struct pod_token {
	struct loop *loop;
	const struct pod *pod;
	struct link_follow *follow; /* NULL: the source tells */
	struct token token;         /* jwt NULL: none */
	struct err why;             /* why there is none */
	struct loop_timer expiry;
	pod_token_changed changed;
	void *ctx;
};

const struct token *pod_token_valid(const struct pod_token *t, struct err *e)
{
	const struct pod *p = t->pod;

	if (!t->token.jwt) {
		*e = t->why;
		return NULL;
	}
	if (token_check(&t->token, p->ns, p->sa, &p->uid, loop_now_ms(t->loop) / 1000, e))
		return NULL;
	return &t->token;
}

static void on_expired(void *ctx)
{
	struct pod_token *t = ctx;

	t->changed(t->ctx, true);
}

/* What the pod wrote as the time may be any number. */
static void watch_expiry(struct pod_token *t)
{
	int64_t latest_s = INT64_MAX / 1000;
	int64_t at_s = t->token.expires < latest_s ? t->token.expires : latest_s;

	if (t->token.jwt)
		loop_timer_at(t->loop, &t->expiry, at_s * 1000, on_expired, t);
	else
		loop_timer_stop(&t->expiry);
}

static void was_read(struct pod_token *t)
{
	struct err e = {0};

	if (!pod_token_valid(t, &e))
		log_warn(t->pod->label, "no usable token: %s", e.msg);
	t->changed(t->ctx, false);
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

void pod_token_again(struct pod_token *t)
{
	token_clear(&t->token);
	(void)token_parse(&t->token, t->pod->token, strlen(t->pod->token), &t->why);
	was_read(t);
}

struct pod_token *pod_token_start(
    const struct agent_shared *a, const struct pod *p, pod_token_changed changed, void *ctx)
{
	struct pod_token *t = mem_zalloc(sizeof(*t));

	t->loop = a->loop;
	t->pod = p;
	t->changed = changed;
	t->ctx = ctx;
	err_set(&t->why, ERR_UNAVAILABLE, "token: not read yet");
	if (!p->token)
		t->follow = link_follow(a->link, LINK_FOLLOW_TOKEN, &p->uid, 0, on_file, t);
	return t;
}

void pod_token_stop(struct pod_token **token)
{
	struct pod_token *t = take(*token);

	if (!t)
		return;
	link_unfollow(&t->follow);
	loop_timer_stop(&t->expiry);
	token_clear(&t->token);
	free(t);
}

json_t *pod_token_dump(const struct pod_token *t)
{
	struct err e = {0};
	bool valid = pod_token_valid(t, &e) != NULL;
	json_t *o = json_pack("{s:b}", "valid", valid);

	if (t->token.jwt)
		json_object_set_new(o, "expires", json_integer(t->token.expires));
	if (!valid)
		json_object_set_new(o, "why_not", json_string(e.msg));
	return o;
}
