/* revocation.c - see revocation.h.
 *
 * Text -> lists, each written again.  Lists, a chain and its roots -> OpenSSL's verification with a
 * look into the lists for each element, as Envoy's BoringSSL does it -> the first reason that is a
 * list's, and neither a time's nor a revocation.
 */
#include "revocation.h"
#include "common/mem.h"
#include "pem.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

enum {
	LISTS_MAX = 64,
	LISTS_SIZE_MAX = 1 << 20,
	CHAIN_MAX = 2 * PEM_CERTS_MAX, /* the roots are in it, too */
	NAME_SIZE = 100,
	WARN_PART = 4,
	WARN_MAX_S = 7 * 24 * 3600,
};

struct revocation {
	unsigned refs;
	char *pem;
	STACK_OF(X509_CRL) * lists;
};

static void free_lists(STACK_OF(X509_CRL) * lists)
{
	sk_X509_CRL_pop_free(lists, X509_CRL_free);
}

/* --- reading --- */

/* One block as a list; anything else in it, or behind it, is refused. */
static X509_CRL *block_list(
    const char *type, const char *header, const unsigned char *der, long len)
{
	if (strcmp(type, PEM_STRING_X509_CRL) != 0 || *header)
		return NULL;
	const unsigned char *at = der;
	X509_CRL *list = d2i_X509_CRL(NULL, &at, len);
	if (list && at != der + len) {
		X509_CRL_free(list);
		return NULL;
	}
	return list;
}

/* 1: one more list is in `r`.  0: no more blocks.  -1: something else is there. */
static int read_list(BIO *in, BIO *out, struct revocation *r)
{
	char *type = NULL, *header = NULL;
	unsigned char *der = NULL;
	long len;
	if (!PEM_read_bio(in, &type, &header, &der, &len))
		return ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE ? 0 : -1;
	X509_CRL *list = block_list(type, header, der, len);
	OPENSSL_free(type);
	OPENSSL_free(header);
	OPENSSL_free(der);
	if (!list)
		return -1;
	if (!sk_X509_CRL_push(r->lists, list))
		abort();
	return PEM_write_bio_X509_CRL(out, list) ? 1 : -1;
}

static int read_lists(struct revocation *r, const char *pem, size_t len, struct err *e)
{
	owned(bio) BIO *in = BIO_new_mem_buf(pem, (int)len);
	owned(bio) BIO *out = BIO_new(BIO_s_mem());
	int more, n = 0;
	if (!in || !out || !r->lists)
		abort();
	while ((more = read_list(in, out, r)) > 0)
		if (++n > LISTS_MAX)
			return err_set(e, ERR_INVALID, "more than %d revocation lists", LISTS_MAX);
	if (more < 0)
		return pem_fail(e, "not a PEM revocation list");
	if (n == 0)
		return err_set(e, ERR_INVALID, "no revocation list in it");
	r->pem = pem_bio_text(out);
	return 0;
}

struct revocation *revocation_read(const char *pem, size_t len, struct err *e)
{
	struct revocation *r;
	if (len > LISTS_SIZE_MAX) {
		err_set(e, ERR_INVALID, "%zu bytes are more than %d", len, LISTS_SIZE_MAX);
		return NULL;
	}
	r = mem_zalloc(sizeof(*r));
	r->refs = 1;
	r->lists = sk_X509_CRL_new_null();
	if (read_lists(r, pem, len, e))
		revocation_unref(&r);
	ERR_clear_error();
	return r;
}

struct revocation *revocation_ref(struct revocation *r)
{
	r->refs++;
	return r;
}

void revocation_unref(struct revocation **revocation)
{
	struct revocation *r = take(*revocation);
	if (!r || --r->refs)
		return;
	free_lists(r->lists);
	free(r->pem);
	free(r);
}

const char *revocation_pem(const struct revocation *r)
{
	return r->pem;
}

/* --- times --- */

/* 0: it has none, or one that cannot be read. */
static int64_t seconds_of(const ASN1_TIME *time)
{
	struct tm tm;
	return time && ASN1_TIME_to_tm(time, &tm) ? timegm(&tm) : 0;
}

static void sooner(int64_t *next, int64_t at, int64_t now_s)
{
	if (at > now_s && (!*next || at < *next))
		*next = at;
}

int64_t revocation_next(const struct revocation *r, int64_t now_s)
{
	int64_t next = 0;
	for (int i = 0; i < sk_X509_CRL_num(r->lists); i++) {
		const X509_CRL *list = sk_X509_CRL_value(r->lists, i);
		sooner(&next, seconds_of(X509_CRL_get0_lastUpdate(list)), now_s);
		sooner(&next, seconds_of(X509_CRL_get0_nextUpdate(list)), now_s);
	}
	ERR_clear_error();
	return next;
}

/* Of the lists of one CA the one that ends last counts. */
static void note_end(const struct revocation *r, X509 *ca, struct revocation_trial *t)
{
	int64_t ends = 0, life = 0;
	for (int i = 0; i < sk_X509_CRL_num(r->lists); i++) {
		const X509_CRL *list = sk_X509_CRL_value(r->lists, i);
		int64_t end = seconds_of(X509_CRL_get0_nextUpdate(list));
		if (X509_NAME_cmp(X509_CRL_get_issuer(list), X509_get_subject_name(ca)) != 0)
			continue;
		if (!end)
			return; /* for ever */
		if (end <= ends)
			continue;
		ends = end;
		life = end - seconds_of(X509_CRL_get0_lastUpdate(list));
	}
	if (!ends || (t->ends && t->ends <= ends))
		return;
	life /= WARN_PART;
	t->ends = ends;
	t->warn_at = ends - (life < WARN_MAX_S ? life : WARN_MAX_S);
}

/* --- trying --- */

static X509 *top_of(X509_STORE_CTX *ctx)
{
	const struct stack_st_X509 *chain = X509_STORE_CTX_get0_chain(ctx);
	return sk_X509_value(chain, sk_X509_num(chain) - 1);
}

/* The list of who signed the top can be checked only if that is the top itself. */
static bool ends_at_root(X509_STORE_CTX *ctx)
{
	X509 *top = top_of(ctx);
	return top && X509_check_issued(top, top) == X509_V_OK;
}

static void explain(struct revocation_trial *t, int code, X509_STORE_CTX *ctx)
{
	const X509 *cert = X509_STORE_CTX_get_current_cert(ctx);
	char name[NAME_SIZE] = "";
	if (cert && ends_at_root(ctx))
		X509_NAME_oneline(X509_get_issuer_name(cert), name, sizeof(name));
	else if (top_of(ctx))
		X509_NAME_oneline(X509_get_subject_name(top_of(ctx)), name, sizeof(name));
	if (!ends_at_root(ctx))
		err_set(&t->why, ERR_INVALID,
		    "the CA %s is trusted without its own root: no list helps then", name);
	else if (code == X509_V_ERR_UNABLE_TO_GET_CRL)
		err_set(&t->why, ERR_INVALID, "it has no list of the CA %s", name);
	else if (code == X509_V_ERR_KEYUSAGE_NO_CRL_SIGN)
		err_set(&t->why, ERR_INVALID,
		    "the CA %s may not sign a list: its key usage lacks cRLSign", name);
	else if (code == X509_V_ERR_CRL_HAS_EXPIRED)
		err_set(&t->why, ERR_INVALID, "the list of the CA %s has ended", name);
	else
		err_set(&t->why, ERR_INVALID, "the list of the CA %s: %s", name,
		    X509_verify_cert_error_string(code));
}

/* What is wrong with the certificates themselves was said when they came. */
static int on_verified(int good, X509_STORE_CTX *ctx)
{
	struct revocation_trial *t = X509_STORE_CTX_get_app_data(ctx);
	int code = X509_STORE_CTX_get_error(ctx);
	if (good || code == X509_V_ERR_CERT_REVOKED || code == X509_V_ERR_CERT_HAS_EXPIRED ||
	    code == X509_V_ERR_CERT_NOT_YET_VALID)
		return 1;
	if (t->result == REVOCATION_PASSES || code != X509_V_ERR_CRL_HAS_EXPIRED)
		explain(t, code, ctx);
	t->result = code == X509_V_ERR_CRL_HAS_EXPIRED ? REVOCATION_ENDED : REVOCATION_FAILS;
	return t->result == REVOCATION_ENDED;
}

static void verify(const struct revocation *r, struct stack_st_X509 *chain,
    struct stack_st_X509 *roots, int64_t now_s, struct revocation_trial *t)
{
	owned(store) X509_STORE *store = X509_STORE_new();
	owned(store_ctx) X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	if (!store || !ctx)
		abort();
	for (int i = 0; i < sk_X509_num(roots); i++)
		(void)X509_STORE_add_cert(store, sk_X509_value(roots, i));
	for (int i = 0; i < sk_X509_CRL_num(r->lists); i++)
		(void)X509_STORE_add_crl(store, sk_X509_CRL_value(r->lists, i));
	if (!X509_STORE_CTX_init(ctx, store, sk_X509_value(chain, 0), chain))
		abort();
	X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
	X509_VERIFY_PARAM_set_time(param, now_s);
	X509_VERIFY_PARAM_set_flags(
	    param, X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
	X509_STORE_CTX_set_app_data(ctx, t);
	X509_STORE_CTX_set_verify_cb(ctx, on_verified);
	t->result = REVOCATION_PASSES;
	(void)X509_verify_cert(ctx);
	const struct stack_st_X509 *found = X509_STORE_CTX_get0_chain(ctx);
	/* A CA alone is its own issuer. */
	for (int i = sk_X509_num(found) > 1; i < sk_X509_num(found); i++)
		note_end(r, sk_X509_value(found, i), t);
}

void revocation_try(const struct revocation *r, const char *chain_pem, const char *roots_pem,
    int64_t now_s, struct revocation_trial *t)
{
	owned(certs) struct stack_st_X509 *chain = pem_certs_new(), *roots = pem_certs_new();
	*t = (struct revocation_trial){.result = REVOCATION_FAILS};
	if (!pem_certs_read(chain, chain_pem, strlen(chain_pem), CHAIN_MAX, &t->why) &&
	    !pem_certs_read(roots, roots_pem, strlen(roots_pem), PEM_CERTS_MAX, &t->why))
		verify(r, chain, roots, now_s, t);
	ERR_clear_error();
}
