/* x509.c - see x509.h. */
#include "x509.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "common/words.h"
#include "mesh/identity.h"
#include "worker/crypto/revocation.h"
#include "worker/crypto/roots.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int keys;
static const char *failure;

int x509_make_request(struct x509_request *out, const struct x509_key_params *k,
    const struct identity *id, struct err *e)
{
	char uri[IDENTITY_URI_SIZE], key[32];

	if (failure)
		return err_set(e, ERR_INVALID, "%s", take(failure));
	keys++;
	snprintf(key, sizeof(key), "SECRET KEY %d", keys); /* stdio's own buffers are not wiped */
	out->key_pem = secret_dup(key);
	out->csr_pem = mem_printf(
	    "CSR %d %d%s %s", keys, k->type, k->pkcs8 ? "-pkcs8" : "", identity_uri(id, uri));
	return 0;
}

void x509_request_clear(struct x509_request *r)
{
	secret_free(r->key_pem);
	free(r->csr_pem);
	*r = (struct x509_request){0};
}

static int read_leaf(
    const char *text, int *key, struct identity *id, struct x509_leaf *leaf, struct err *e)
{
	if (sscanf(text,
		"LEAF %63s %d spiffe://%255[^/]/ns/%63[^/]/sa/%253[^ ] %" SCNd64 " %" SCNd64,
		leaf->serial, key, id->trust_domain, id->ns, id->sa, &leaf->not_before,
		&leaf->not_after) != 7)
		return err_set(e, ERR_INVALID, "not a certificate");
	return 0;
}

int x509_check_chain(
    const struct x509_answer *from, struct identity *id, struct x509_leaf *leaf, struct err *e)
{
	struct identity named;
	int key;

	if (from->n < 2 || read_leaf(from->chain[0], &key, &named, leaf, e))
		return err_set(e, ERR_INVALID, "no chain");
	if (key != atoi(from->key_pem + strlen("SECRET KEY ")))
		return err_set(e, ERR_INVALID, "another key");
	if (strcmp(named.ns, id->ns) != 0 || strcmp(named.sa, id->sa) != 0)
		return err_set(e, ERR_INVALID, "another identity");
	if (from->expect_td && !words_has(from->expect_td, named.trust_domain))
		return err_set(e, ERR_INVALID, "another trust domain");
	if (leaf->not_before > from->now_s + 60)
		return err_set(e, ERR_INVALID, "not valid yet");
	if (leaf->not_after <= from->now_s)
		return err_set(e, ERR_INVALID, "expired");
	if (leaf->not_after > from->now_s + from->ttl_max_s)
		return err_set(e, ERR_INVALID, "lives too long");
	if (from->n > 2)
		(void)sscanf(from->chain[1], "BETWEEN until %" SCNd64, &leaf->chain_ends);
	*id = named;
	return 0;
}

char *x509_normalise_pem(const char *pem, size_t len, struct err *e)
{
	if (strncmp(pem, "LEAF", 4) != 0 && strncmp(pem, "ROOT", 4) != 0 &&
	    strncmp(pem, "BETWEEN", 7) != 0) {
		err_set(e, ERR_INVALID, "not PEM");
		return NULL;
	}
	return mem_printf("%.*s\n", (int)len, pem);
}

char *x509_normalise_key(const char *pem, size_t len, struct err *e)
{
	if (strncmp(pem, "SECRET KEY", 10) != 0) {
		err_set(e, ERR_INVALID, "not a key");
		return NULL;
	}
	return secret_new(pem, len);
}

int x509_read_leaf(const char *pem, size_t len, struct x509_leaf *leaf, struct err *e)
{
	struct identity id;
	int key;

	(void)len;
	return read_leaf(pem, &key, &id, leaf, e);
}

/* --- roots --- */

char *roots_read(const char *pem, size_t len, char note[ROOTS_NOTE_SIZE], struct err *e)
{
	snprintf(note, ROOTS_NOTE_SIZE, "%s", strstr(pem, "ODD") ? "block 2 is left out" : "");
	return x509_normalise_pem(pem, len, e);
}

char *roots_union(const char *a, const char *b)
{
	if (!b || !strcmp(a, b))
		return mem_strdup(a);
	return strcmp(a, b) < 0 ? mem_printf("%s%s", a, b) : mem_printf("%s%s", b, a);
}

/* --- revocation lists --- */

struct revocation {
	unsigned refs;
	char *pem;
	int64_t begins, ends;
};

struct revocation *revocation_read(const char *pem, size_t len, struct err *e)
{
	struct revocation *r;

	if (strncmp(pem, "CRL", 3) != 0) {
		err_set(e, ERR_INVALID, "not a CRL");
		return NULL;
	}
	r = mem_zalloc(sizeof(*r));
	r->refs = 1;
	r->pem = mem_printf("%.*s\n", (int)len, pem);
	(void)sscanf(r->pem, "CRL %*s %" SCNd64 "-%" SCNd64, &r->begins, &r->ends);
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
	free(r->pem);
	free(r);
}

const char *revocation_pem(const struct revocation *r)
{
	return r->pem;
}

int64_t revocation_next(const struct revocation *r, int64_t now_s)
{
	return r->begins > now_s ? r->begins : r->ends > now_s ? r->ends : 0;
}

/* Whom it refuses: "CRL of-another" all, "CRL for-ROOT" those of another root. */
static bool is_for(const struct revocation *r, const char *roots_pem)
{
	const char *root = strstr(r->pem, "CRL for-");

	return root ? strstr(roots_pem, "ROOT ") && roots_pem[5] == root[8]
		    : !strstr(r->pem, "of-another");
}

void revocation_try(const struct revocation *r, const char *chain_pem, const char *roots_pem,
    int64_t now_s, struct revocation_trial *t)
{
	(void)chain_pem;
	*t = (struct revocation_trial){
	    .result = REVOCATION_PASSES, .ends = r->ends, .warn_at = r->ends ? r->ends - 10 : 0};
	if (!is_for(r, roots_pem) || now_s < r->begins)
		t->result = REVOCATION_FAILS;
	else if (r->ends && now_s >= r->ends)
		t->result = REVOCATION_ENDED;
	if (t->result == REVOCATION_FAILS)
		err_set(&t->why, ERR_INVALID, "it has no list of the CA");
	else if (t->result == REVOCATION_ENDED)
		err_set(&t->why, ERR_INVALID, "it has ended");
}

/* --- */

int64_t x509_usable_until(const struct x509_leaf *leaf)
{
	return leaf->chain_ends && leaf->chain_ends < leaf->not_after ? leaf->chain_ends
								      : leaf->not_after;
}

void x509_pem_life(const char *pem, struct x509_life *life)
{
	*life = (struct x509_life){.n = *pem != '\0', .first_end = 1000, .last_end = 2000};
}

/* Different for different data; that is all that is asked. */
void x509_sha256(const void *data, size_t size, uint8_t out[X509_SHA256_SIZE])
{
	const uint8_t *bytes = data;

	memset(out, 0, X509_SHA256_SIZE);
	for (size_t i = 0; i < size; i++) {
		uint8_t *at = &out[i % X509_SHA256_SIZE];
		*at = (uint8_t)(*at * 31 + bytes[i] + 1 + out[(i + 7) % X509_SHA256_SIZE]);
	}
}

char *fake_x509_leaf(const struct fake_leaf *l)
{
	return mem_printf("LEAF %s %d %s %" PRId64 " %" PRId64, l->serial, l->key, l->uri,
	    l->not_before, l->not_after);
}

int fake_x509_key_of(const char *csr_pem)
{
	return atoi(csr_pem + strlen("CSR "));
}

int fake_x509_keys(void)
{
	return keys;
}

void fake_x509_fail(const char *why)
{
	failure = why;
}
