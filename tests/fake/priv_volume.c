/* fake/priv_volume.c - stands in for agentd/priv/priv_volume.c, beside fake/priv.c. */
#include "priv_volume.h"
#include "common/err.h"
#include "common/mem.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <utlist.h>

#include <cmocka.h>

#include "priv_calls.h"

static const struct uuid nobody;

void priv_caller(struct priv *p, struct priv_call **slot, int fd, priv_done done, void *ctx)
{
	assert_true(fd >= 0);
	fake_priv_call(p, slot, PRIV_CALLER, &nobody, ctx)->done = done;
}

static void of_volume(struct priv_call *c, const char *volume, priv_done done)
{
	assert_true(strlen(volume) < sizeof c->volume);
	strcpy(c->volume, volume);
	c->done = done;
}

void priv_publish(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const char *volume, priv_done done, void *ctx)
{
	of_volume(fake_priv_call(p, slot, PRIV_PUBLISH, pod, ctx), volume, done);
}

void priv_unpublish(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const char *volume, priv_done done, void *ctx)
{
	of_volume(fake_priv_call(p, slot, PRIV_UNPUBLISH, pod, ctx), volume, done);
}

void priv_volume_list(struct priv *p, struct priv_call **slot, priv_volume_found found, void *ctx)
{
	fake_priv_call(p, slot, PRIV_VOLUMES, &nobody, ctx)->volume_found = found;
}

static priv_csi_noted noted;
static void *noted_ctx;

void priv_on_csi(struct priv *p, priv_csi_noted told, void *ctx)
{
	(void)p;
	noted = told;
	noted_ctx = ctx;
}

void fake_priv_csi_note(unsigned n)
{
	assert_non_null(noted);
	noted(noted_ctx, n);
}

/* --- answers --- */

static void answer(struct priv_call *c, int code, const char *why)
{
	struct err e;

	if (why)
		err_set(&e, code, "%s", why);
	c->done(c->ctx, why ? &e : NULL);
	free(c);
}

void fake_priv_called(struct priv *p, int code, const char *why)
{
	answer(fake_priv_answer(p, PRIV_CALLER, NULL, -1), code, why);
}

static struct priv_call *waiting_for(
    struct priv *p, enum priv_op op, const struct uuid *pod, const char *volume)
{
	struct priv_call *c = fake_priv_answer(p, op, pod, -1);

	if (volume)
		assert_string_equal(c->volume, volume);
	return c;
}

void fake_priv_published(
    struct priv *p, const struct uuid *pod, const char *volume, int code, const char *why)
{
	answer(waiting_for(p, PRIV_PUBLISH, pod, volume), code, why);
}

void fake_priv_unpublished(
    struct priv *p, const struct uuid *pod, const char *volume, int code, const char *why)
{
	answer(waiting_for(p, PRIV_UNPUBLISH, pod, volume), code, why);
}

void fake_priv_volumes(struct priv *p, const struct priv_volume *volumes, size_t n, const char *why)
{
	struct priv_call *c = NULL, *mine;
	struct err e;

	assert_int_equal(fake_priv_waiting(p, PRIV_VOLUMES), 1);
	DL_FOREACH (p->calls, mine)
		if (mine->op == PRIV_VOLUMES)
			c = mine;
	for (size_t i = 0; i < n; i++) {
		c->volume_found(c->ctx, &volumes[i]);
		if (!fake_priv_waiting(p, PRIV_VOLUMES))
			return; /* it was cancelled */
	}
	c = fake_priv_answer(p, PRIV_VOLUMES, NULL, -1);
	c->volume_found(c->ctx, &(struct priv_volume){.e = fake_priv_refusal(&e, why)});
	free(c);
}
