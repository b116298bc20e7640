/* insist.c - requests that nobody waits for, repeated until the broker has done them.
 *
 * A pod went, an entry is to be forgotten: who asked is gone when a refusal comes.  asked ->
 * refused: logged once for each reason, asked again after 0.5 s, doubling to 30 s -> done; or
 * something takes its place: the pod is added, the entry is put.  A directory with something
 * foreign in it is the end: the next try would tell the same.
 */
#include "base/back_off.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "link_internal.h"
#include <errno.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("link");

enum { BUSY_MS = 10000 };

struct link_insisted {
	struct link_insistence *of;
	struct link_request req;
	struct link_call *call; /* NULL: it waits */
	struct back_off again;
	struct err why;   /* code 0: not refused yet */
	int64_t since_ms; /* of the first refusal */
	struct link_insisted *prev, *next;
};

static struct link_insisted *find(const struct link_insistence *all, const struct link_request *req)
{
	struct link_insisted *i;

	DL_FOREACH (all->list, i)
		if (i->req.op == req->op && i->req.kind == req->kind &&
		    uuid_equal(&i->req.uid, &req->uid) &&
		    !memcmp(i->req.state_id, req->state_id, sizeof(req->state_id)))
			return i;
	return NULL;
}

static void drop(struct link_insisted *i)
{
	link_call_cancel(&i->call);
	back_off_stop(&i->again);
	DL_DELETE(i->of->list, i);
	free(i);
}

/* The pod's containers end, or its manifest has not gone yet: most of these are over at the next
 * try. */
static bool is_no_problem_yet(const struct link_insisted *i)
{
	return i->why.code == EBUSY && loop_uptime_ms(i->of->loop) - i->since_ms < BUSY_MS;
}

/* What stands in its way does not go by itself. */
static bool is_final(const struct err *e)
{
	return e->code == ENOTEMPTY;
}

static void note(struct link_insisted *i, const struct err *e)
{
	const struct link_op_row *row = ops_row(i->req.op);
	char uid[UUID_TEXT_SIZE];

	uuid_format(&i->req.uid, uid);
	if (!i->why.code)
		i->since_ms = loop_uptime_ms(i->of->loop);
	if (strcmp(i->why.msg, e->msg) != 0)
		log_at(e->code == EBUSY ? LOG_INFO : LOG_WARN,
		    row->whose == LINK_NO_POD ? NULL : uid,
		    is_final(e) ? "the broker refused to %s: %s"
				: "the broker refused to %s: %s; tried again until it is done",
		    row->refused, e->msg);
	i->why = *e;
}

static void ask(void *ctx);

static void on_answer(void *ctx, const struct err *e)
{
	struct link_insisted *i = ctx;

	if (e)
		note(i, e);
	if (!e || is_final(e))
		drop(i);
	else
		back_off_start(i->of->loop, &i->again, ask, i);
}

static void ask(void *ctx)
{
	struct link_insisted *i = ctx;

	link_ask(i->of->link, &i->call, &i->req, -1, on_answer, i);
}

void link_insist(struct link *p, const struct link_request *req)
{
	struct link_insistence *all = link_insistence(p);
	struct link_insisted *i;

	if (find(all, req))
		return;
	i = mem_zalloc(sizeof(*i));
	i->of = all;
	i->req = *req;
	DL_APPEND(all->list, i);
	ask(i);
}

void link_insist_no_more(struct link *p, const struct link_request *req)
{
	struct link_insisted *i = find(link_insistence(p), req);

	if (i)
		drop(i);
}

unsigned link_insists(struct link *p, struct err *why)
{
	const struct link_insisted *i;
	unsigned n = 0;

	DL_FOREACH (link_insistence(p)->list, i) {
		if (!i->why.code || is_no_problem_yet(i))
			continue;
		n++;
		*why = i->why;
		err_wrap(why, "%s", ops_row(i->req.op)->refused);
	}
	return n;
}

void link_insistence_end(struct link_insistence *all)
{
	struct link_insisted *i, *tmp;

	DL_FOREACH_SAFE (all->list, i, tmp)
		drop(i);
}
