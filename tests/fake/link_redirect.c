/* link_redirect.c - stands in for agentd/worker/link/redirect.c, beside fake/priv.c. */
#include "link_redirect.h"
#include "common/err.h"
#include "common/mem.h"
#include "link_calls.h"
#include <string.h>

static const struct uuid nobody;
static struct redirect_rules rules;
static struct redirect_names_told names;
static struct redirect_question question;
static int shuts, dels;
static link_redirect_noted noted;
static void *noted_ctx;

const struct redirect_rules *fake_redirect_rules(void)
{
	return &rules;
}

const struct redirect_names_told *fake_redirect_names(void)
{
	return &names;
}

void fake_redirect_named(struct link *p, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_REDIRECT_NAMES, NULL, -1);
	struct err e;

	c->done(c->ctx, fake_link_refusal(&e, why));
}

const struct redirect_question *fake_redirect_question(void)
{
	return &question;
}

int fake_redirect_shuts(void)
{
	return shuts;
}

int fake_redirect_dels(void)
{
	return dels;
}

void fake_redirect_reset(void)
{
	memset(&rules, 0, sizeof(rules));
	shuts = dels = 0;
}

void link_redirect_set(struct link *p, struct link_call **slot, const struct uuid *pod,
    const struct redirect_rules *r, link_redirected done, void *ctx)
{
	rules = *r;
	fake_link_call(p, slot, LINK_REDIRECT_SET, pod, ctx)->redirected = done;
}

void link_redirect_del(
    struct link *p, struct link_call **slot, const struct uuid *pod, link_done done, void *ctx)
{
	dels++;
	fake_link_call(p, slot, LINK_REDIRECT_DEL, pod, ctx)->done = done;
}

void link_redirect_names(struct link *p, struct link_call **slot,
    const struct redirect_names_told *n, link_done done, void *ctx)
{
	names = *n;
	fake_link_call(p, slot, LINK_REDIRECT_NAMES, &nobody, ctx)->done = done;
}

void link_redirect_shut(struct link *p, const struct uuid *pod)
{
	(void)p;
	(void)pod;
	shuts++;
}

void link_redirect_explain(struct link *p, struct link_call **slot, const struct uuid *pod,
    const struct redirect_question *q, link_explained done, void *ctx)
{
	question = *q;
	fake_link_call(p, slot, LINK_REDIRECT_EXPLAIN, pod, ctx)->explained = done;
}

void link_redirect_trace(
    struct link *p, struct link_call **slot, const struct uuid *pod, link_listening done, void *ctx)
{
	fake_link_call(p, slot, LINK_REDIRECT_TRACE, pod ? pod : &nobody, ctx)->listening = done;
}

void link_redirect_counters(struct link *p, struct link_call **slot, link_listening done, void *ctx)
{
	fake_link_call(p, slot, LINK_REDIRECT_COUNTERS, &nobody, ctx)->listening = done;
}

void link_on_redirect(struct link *p, link_redirect_noted told, void *ctx)
{
	(void)p;
	noted = told;
	noted_ctx = ctx;
}

/* --- answers --- */

static const char *above;

void fake_redirect_above(const char *what)
{
	above = what;
}

void fake_redirect_set(struct link *p, const struct uuid *pod, unsigned index,
    const struct redirect_counters *baseline, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_REDIRECT_SET, pod, -1);
	struct err e;

	const struct link_redirection is = {.closed = why && index,
	    .index = why ? 0 : index,
	    .above = why ? NULL : above,
	    .baseline = why ? NULL : baseline};
	c->redirected(c->ctx, fake_link_refusal(&e, why), &is);
}

void fake_redirect_let_go(struct link *p, const struct uuid *pod, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_REDIRECT_DEL, pod, -1);
	struct err e;

	c->done(c->ctx, fake_link_refusal(&e, why));
}

static void give(struct link *p, enum link_op op, int fd, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, op, NULL, -1);
	struct err e;

	c->listening(c->ctx, fake_link_refusal(&e, why), why ? -1 : fd);
}

void fake_redirect_counters(struct link *p, int fd, const char *why)
{
	give(p, LINK_REDIRECT_COUNTERS, fd, why);
}

void fake_redirect_traced(struct link *p, int fd, const char *why)
{
	give(p, LINK_REDIRECT_TRACE, fd, why);
}

void fake_redirect_explained(struct link *p, unsigned verdict, const char *why)
{
	auto_free struct link_call *c = fake_link_answer(p, LINK_REDIRECT_EXPLAIN, NULL, -1);
	struct err e;

	c->explained(c->ctx, fake_link_refusal(&e, why), why ? 0 : verdict);
}

bool fake_redirect_is_noted(void)
{
	return noted;
}

void fake_redirect_note(const struct uuid *pod, const char *why, unsigned repaired)
{
	struct err e;

	noted(noted_ctx, pod, fake_link_refusal(&e, why), repaired);
}
