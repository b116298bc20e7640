/* link_volume.c - stands in for agentd/worker/link/volume.c, beside fake/priv.c. */
#include "link_volume.h"
#include "common/err.h"
#include "common/mem.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <utlist.h>

#include <cmocka.h>

#include "link_calls.h"

static const struct uuid nobody;

void link_caller(struct link *p, struct link_call **slot, int fd, link_done done, void *ctx)
{
	assert_true(fd >= 0);
	fake_link_call(p, slot, LINK_CALLER, &nobody, ctx)->done = done;
}

static void of_volume(struct link_call *c, const char *volume, link_done done)
{
	assert_true(strlen(volume) < sizeof c->volume);
	strcpy(c->volume, volume);
	c->done = done;
}

void link_publish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx)
{
	of_volume(fake_link_call(p, slot, LINK_PUBLISH, pod, ctx), volume, done);
}

void link_unpublish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx)
{
	of_volume(fake_link_call(p, slot, LINK_UNPUBLISH, pod, ctx), volume, done);
}

void link_volume_list(struct link *p, struct link_call **slot, link_volume_found found, void *ctx)
{
	fake_link_call(p, slot, LINK_VOLUMES, &nobody, ctx)->volume_found = found;
}

static link_csi_noted noted;
static void *noted_ctx;

void link_on_csi(struct link *p, link_csi_noted told, void *ctx)
{
	(void)p;
	noted = told;
	noted_ctx = ctx;
}

void fake_link_csi_note(bool registered, unsigned restored)
{
	assert_non_null(noted);
	noted(noted_ctx, registered, restored);
}

void link_csi_registered(struct link *p, bool yes)
{
	(void)yes;
	link_call_cancel(
	    (struct link_call *[]){fake_link_call(p, NULL, LINK_CSI_REGISTERED, &nobody, NULL)});
}

/* --- answers --- */

static void answer(struct link_call *c, int code, const char *why)
{
	struct err e;

	if (why)
		err_set(&e, code, "%s", why);
	c->done(c->ctx, why ? &e : NULL);
	free(c);
}

void fake_link_called(struct link *p, int code, const char *why)
{
	answer(fake_link_answer(p, LINK_CALLER, NULL, -1), code, why);
}

static struct link_call *waiting_for(
    struct link *p, enum link_op op, const struct uuid *pod, const char *volume)
{
	struct link_call *c = fake_link_answer(p, op, pod, -1);

	if (volume)
		assert_string_equal(c->volume, volume);
	return c;
}

void fake_link_published(
    struct link *p, const struct uuid *pod, const char *volume, int code, const char *why)
{
	answer(waiting_for(p, LINK_PUBLISH, pod, volume), code, why);
}

void fake_link_unpublished(
    struct link *p, const struct uuid *pod, const char *volume, int code, const char *why)
{
	answer(waiting_for(p, LINK_UNPUBLISH, pod, volume), code, why);
}

void fake_link_volumes(struct link *p, const struct link_volume *volumes, size_t n, const char *why)
{
	struct link_call *c = NULL, *mine;
	struct err e;

	assert_int_equal(fake_link_waiting(p, LINK_VOLUMES), 1);
	DL_FOREACH (p->calls, mine)
		if (mine->op == LINK_VOLUMES)
			c = mine;
	for (size_t i = 0; i < n; i++) {
		c->volume_found(c->ctx, &volumes[i]);
		if (!fake_link_waiting(p, LINK_VOLUMES))
			return; /* it was cancelled */
	}
	c = fake_link_answer(p, LINK_VOLUMES, NULL, -1);
	c->volume_found(c->ctx, &(struct link_volume){.e = fake_link_refusal(&e, why)});
	free(c);
}
