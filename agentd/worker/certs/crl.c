/* crl.c
 *
 * content -> read as lists -> tried with each certificate of the cache -> as good as the one in
 * force? -> told.
 * a certificate comes or goes, a list begins or ends -> both are tried again.
 * content that is none, or a file that the broker refuses -> the last good one stays, warned once.
 * no file -> told that there is none.
 */
#include "crl.h"
#include "base/loop.h"
#include "cert_cache.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/crypto/cert.h"
#include "worker/crypto/revocation.h"
#include "worker/link/link.h"
#include <errno.h>
#include <string.h>

LOG_SCOPE("crl");

enum { SEEN_MAX = 8, TEXT_SIZE = 2 * ERR_MSG_SIZE };

enum use { USELESS, LAME, GOOD }; /* none passes; some, or they did until it ended; all */

/* A list with all our certificates. */
struct trial {
	const struct revocation *list;
	int64_t now_s, ends, warn_at;
	unsigned tried, passed, ended;
	struct err why; /* of the last one that does not pass */
	/* What is above a leaf decides alone, and most have the same. */
	const char *seen[SEEN_MAX];
	unsigned nseen;
};

struct crl {
	struct crl_options o;
	struct link_follow *follow;
	struct revocation *file, *force; /* as the file has it; what Envoys have */
	struct trial of_force;
	char *common; /* what is above the leaves, if it is the same of all */
	struct err unreadable;
	char problem[TEXT_SIZE];
	struct loop_timer again;
	bool warned; /* that it ends soon */
	crl_changed changed;
	void *ctx;
};

/* --- trying --- */

static const char *above(const struct cert *c)
{
	return c->chain_pem + c->element_size[0];
}

static bool was_seen(struct trial *t, const char *issuers)
{
	for (unsigned i = 0; i < t->nseen; i++)
		if (!strcmp(t->seen[i], issuers))
			return true;
	if (t->nseen < SEEN_MAX)
		t->seen[t->nseen++] = issuers;
	return false;
}

static void try_one(void *ctx, const struct cert *c)
{
	struct trial *t = ctx;
	struct revocation_trial one;

	if (was_seen(t, above(c)))
		return;
	revocation_try(t->list, c->chain_pem, c->root_pem, t->now_s, &one);
	t->tried++;
	t->passed += one.result == REVOCATION_PASSES;
	t->ended += one.result == REVOCATION_ENDED;
	if (one.result != REVOCATION_PASSES)
		t->why = one.why;
	if (!one.ends || (t->ends && t->ends <= one.ends))
		return;
	t->ends = one.ends;
	t->warn_at = one.warn_at;
}

static struct trial try_all(const struct crl *c, const struct revocation *list)
{
	struct trial t = {.list = list, .now_s = loop_now_ms(c->o.loop) / 1000};

	if (list)
		cert_cache_each(c->o.certs, try_one, &t);
	return t;
}

static const char *common_of(const struct trial *t)
{
	return t->nseen == 1 ? t->seen[0] : NULL;
}

static enum use use_of(const struct trial *t)
{
	if (t->passed + t->ended == 0)
		return USELESS;
	return t->passed == t->tried ? GOOD : LAME;
}

/* --- what is in force --- */

static void put(struct crl *c, struct revocation *list)
{
	struct revocation *old = c->force;

	if (list == old)
		return;
	c->force = list ? revocation_ref(list) : NULL;
	c->warned = false;
	if (list)
		log_info(
		    c->o.name, "revocation list in force, %zu bytes", strlen(revocation_pem(list)));
	else
		log_info(c->o.name, "the revocation list is gone");
	c->changed(c->ctx);
	revocation_unref(&old); /* all have the new one */
}

static void say(struct crl *c, const char *problem)
{
	if (*problem && strcmp(problem, c->problem) != 0)
		log_warn(c->o.name, "%s", problem);
	snprintf(c->problem, sizeof(c->problem), "%s", problem);
}

/* Of the file, then of what is in force. */
static void judge_problem(struct crl *c, const struct trial *of_file)
{
	const struct trial *f = &c->of_force;
	char text[TEXT_SIZE] = "", ended[CERT_TIME_SIZE] = "";
	const char *why = c->unreadable.code                      ? c->unreadable.msg
			  : c->file != c->force && of_file->tried ? of_file->why.msg
								  : NULL;
	size_t n = 0;

	if (why)
		n = (size_t)snprintf(text, sizeof(text), "revocation list: %s; %s", why,
		    c->force ? "the last good list stays in force" : "it is not in force");
	if (f->ended)
		cert_time(f->ends, ended);
	if (f->passed < f->tried && n < sizeof(text))
		snprintf(text + n, sizeof(text) - n,
		    "%srevocation list in force: %s%s%s: Envoys refuse %s peers", n ? "; " : "",
		    f->why.msg, *ended ? " at " : "", ended, f->passed ? "such" : "all");
	say(c, text);
}

static bool ends_soon(const struct crl *c)
{
	const struct trial *f = &c->of_force;

	return c->force && f->warn_at && f->warn_at <= loop_now_ms(c->o.loop) / 1000 &&
	       f->passed == f->tried;
}

static void judge(struct crl *c);

static void on_again(void *ctx)
{
	judge(ctx);
}

static int64_t earlier(int64_t a, int64_t b)
{
	return !a || (b && b < a) ? b : a;
}

static void judge_again_later(struct crl *c)
{
	int64_t now_s = loop_now_ms(c->o.loop) / 1000, at = 0, warn = c->of_force.warn_at;

	if (c->file)
		at = revocation_next(c->file, now_s);
	if (c->force)
		at = earlier(at, revocation_next(c->force, now_s));
	if (warn > now_s)
		at = earlier(at, warn);
	loop_timer_stop(&c->again);
	if (at)
		loop_timer_at(c->o.loop, &c->again, at * 1000, on_again, c);
}

static void judge(struct crl *c)
{
	struct trial t = try_all(c, c->file);
	char end[CERT_TIME_SIZE];

	c->of_force = c->force == c->file ? t : try_all(c, c->force);
	if (c->file && use_of(&t) > USELESS && (!c->force || use_of(&t) >= use_of(&c->of_force))) {
		c->of_force = t;
		put(c, c->file);
	}
	free(c->common);
	c->common = mem_strdup(common_of(c->file ? &t : &c->of_force));
	judge_problem(c, &t);
	if (ends_soon(c) && !c->warned)
		log_warn(c->o.name, "the revocation list ends at %s and was not replaced yet",
		    cert_time(c->of_force.ends, end));
	c->warned = ends_soon(c);
	judge_again_later(c);
}

void crl_try_again(struct crl *c, const struct cert *added)
{
	if (!c || (!c->file && !c->force))
		return;
	if (added && c->common && !strcmp(c->common, above(added)))
		return;
	judge(c);
}

/* --- the file --- */

static void on_file(void *ctx, const struct link_content *content)
{
	struct crl *c = ctx;
	struct err why = {0};
	struct revocation *list = NULL;

	if (content->data)
		list = revocation_read(content->data, content->size, &why);
	else
		why = *content->e;
	c->unreadable = (struct err){0};
	revocation_unref(&c->file);
	if (list && c->force && !strcmp(revocation_pem(list), revocation_pem(c->force))) {
		c->file = revocation_ref(c->force); /* the same is no news */
		revocation_unref(&list);
	} else if (list) {
		c->file = list;
	} else if (why.code == ENOENT) {
		put(c, NULL);
	} else {
		c->unreadable = why;
	}
	judge(c);
}

struct crl *crl_new(const struct crl_options *o, crl_changed changed, void *ctx)
{
	struct crl *c = mem_zalloc(sizeof(*c));

	c->o = *o;
	c->changed = changed;
	c->ctx = ctx;
	c->follow = link_follow(o->link, LINK_FOLLOW_CRL, NULL, o->plane, on_file, c);
	return c;
}

void crl_free(struct crl **crl)
{
	struct crl *c = take(*crl);

	if (!c)
		return;
	link_unfollow(&c->follow);
	loop_timer_stop(&c->again);
	revocation_unref(&c->file);
	revocation_unref(&c->force);
	free(c->common);
	free(c);
}

struct revocation *crl_in_force(const struct crl *c)
{
	return c->force;
}

int64_t crl_ends(const struct crl *c)
{
	return c->force ? c->of_force.ends : 0;
}

const char *crl_why_refused(const struct crl *c)
{
	return c->of_force.passed < c->of_force.tried ? c->of_force.why.msg : NULL;
}

bool crl_has_problem(const struct crl *c)
{
	return *c->problem;
}

json_t *crl_dump(const struct crl *c)
{
	char ends[CERT_TIME_SIZE] = "";
	auto_free char *warning = NULL;

	if (crl_ends(c))
		cert_time(crl_ends(c), ends);
	if (ends_soon(c))
		warning =
		    mem_printf("the revocation list ends at %s and was not replaced yet", ends);
	return json_pack("{s:b, s:s, s:s, s:s}", "present", c->force != NULL, "ends", ends,
	    "why_not", c->problem, "warning", warning ? warning : "");
}
