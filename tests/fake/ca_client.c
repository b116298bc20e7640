/* ca_client.c - see ca_client.h. */
#include "ca_client.h"
#include "common/err.h"
#include "common/mem.h"
#include <assert.h>
#include <utlist.h>

struct ca_sign {
	struct ca_sign *prev, *next;
	struct ca_client *client;
	struct ca_sign **slot;
	struct ca_request request; /* its strings are copies */
	ca_signed done;
	void *ctx;
};

struct ca_client {
	struct ca_sign *waiting;
	unsigned asked;
};

struct ca_client *ca_client_new(struct loop *l, struct istiod *i, unsigned per_second)
{
	(void)per_second;
	(void)l;
	(void)i;
	return mem_zalloc(sizeof(struct ca_client));
}

void ca_client_free(struct ca_client **c)
{
	assert(!*c || !(*c)->waiting);
	free(take(*c));
}

void ca_sign(struct ca_client *c, struct ca_sign **slot, const struct ca_request *r, ca_signed done,
    void *ctx)
{
	struct ca_sign *s = mem_zalloc(sizeof(*s));

	assert(!*slot);
	s->client = c;
	s->slot = slot;
	s->request = *r;
	s->request.csr_pem = mem_strdup(r->csr_pem);
	s->request.token = mem_strdup(r->token);
	s->request.cert_signer = mem_strdup(r->cert_signer);
	s->done = done;
	s->ctx = ctx;
	*slot = s;
	c->asked++;
	DL_APPEND(c->waiting, s);
}

static void sign_free(struct ca_sign *s)
{
	DL_DELETE(s->client->waiting, s);
	*s->slot = NULL;
	free((char *)s->request.csr_pem);
	mem_wipe_free((char *)s->request.token);
	free((char *)s->request.cert_signer);
	free(s);
}

void ca_sign_cancel(struct ca_sign **s)
{
	if (*s)
		sign_free(*s);
}

unsigned fake_ca_asked(const struct ca_client *c)
{
	return c->asked;
}

unsigned fake_ca_pending(const struct ca_client *c)
{
	const struct ca_sign *s;
	unsigned n = 0;

	DL_FOREACH (c->waiting, s)
		n++;
	return n;
}

const struct ca_request *fake_ca_request(const struct ca_client *c)
{
	assert(c->waiting);
	return &c->waiting->request;
}

static void end(struct ca_client *c, const struct err *e, const char *const *chain, size_t n)
{
	struct ca_sign *s = c->waiting;
	ca_signed done = s->done;
	void *ctx = s->ctx;

	sign_free(s);
	done(ctx, e, chain, n);
}

void fake_ca_answer(struct ca_client *c, const char *const *chain, size_t n)
{
	assert(c->waiting);
	end(c, NULL, chain, n);
}

void fake_ca_fail(struct ca_client *c, int code, const char *why)
{
	struct err e;

	assert(c->waiting);
	err_set(&e, code, "%s", why);
	end(c, &e, NULL, 0);
}
