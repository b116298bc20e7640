/* crl.c
 *
 * content -> read as CRLs -> another text than before -> told.
 * content that is none, or a file that the broker refuses -> the last good one stays, warned once.
 * no file -> told that there is none.
 */
#include "crl.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "worker/crypto/revocation.h"
#include "worker/link/link.h"
#include <errno.h>
#include <string.h>

LOG_SCOPE("crl");

struct crl {
	struct link_follow *follow;
	const char *name;
	char *pem;
	struct err why;
	crl_changed changed;
	void *ctx;
};

/* Takes `pem`; NULL: none. */
static void put(struct crl *c, char *pem)
{
	char *old = c->pem;

	if (pem && old ? !strcmp(pem, old) : pem == old) {
		free(pem);
		return;
	}
	c->pem = pem;
	if (pem)
		log_info(c->name, "revocation list in force, %zu bytes", strlen(pem));
	else
		log_info(c->name, "the revocation list is gone");
	c->changed(c->ctx, pem);
	free(old); /* all have the new one */
}

static void on_file(void *ctx, const struct link_content *content)
{
	struct crl *c = ctx;
	struct err why = {0};
	struct revocation *list = NULL;
	char *pem = NULL;

	if (content->data)
		list = revocation_read(content->data, content->size, &why);
	else
		why = *content->e;
	if (list)
		pem = mem_strdup(revocation_pem(list));
	revocation_unref(&list);
	if (pem || why.code == ENOENT) {
		c->why = (struct err){0};
		put(c, pem);
		return;
	}
	err_wrap(&why, "revocation list");
	if (strcmp(why.msg, c->why.msg) != 0)
		log_warn(
		    c->name, "%s%s", why.msg, c->pem ? "; the last good list stays in force" : "");
	c->why = why;
}

struct crl *crl_new(
    struct link *p, unsigned plane, const char *name, crl_changed changed, void *ctx)
{
	struct crl *c = mem_zalloc(sizeof(*c));

	c->name = name;
	c->changed = changed;
	c->ctx = ctx;
	c->follow = link_follow(p, LINK_FOLLOW_CRL, NULL, plane, on_file, c);
	return c;
}

void crl_free(struct crl **crl)
{
	struct crl *c = take(*crl);

	if (!c)
		return;
	link_unfollow(&c->follow);
	free(c->pem);
	free(c);
}

const char *crl_pem(const struct crl *c)
{
	return c->pem;
}

json_t *crl_dump(const struct crl *c)
{
	return json_pack("{s:b, s:s}", "present", c->pem != NULL, "why_not", c->why.msg);
}
