/* x509.c - a key and its request out, an answer in.
 *
 * x509_make_request: new key -> PEM -> request with our one URI -> PEM.  Later, x509_check_chain:
 * read every element -> the leaf is one that may be ours (key, identity, kind, life) -> the chain
 * leads to the roots that came with it.  The answer is not believed because istiod was: it gives
 * the *node's* certificate when it misreads a request, and copies a foreign trust domain
 * (istiod-live.md 1.5; threats-and-faults.md T24).
 *
 * Whatever happens the thread's OpenSSL error queue is left empty: TLS connections share it.
 */
#include "x509.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "common/words.h"
#include "mesh/identity.h"
#include "pem.h"
#include <openssl/encoder.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

enum {
	ELEMENTS_MAX = 64,
	SERIAL_SIZE_MAX = 20, /* RFC 5280 4.1.2.2 */
	CLOCK_SLACK_S = 60,
	KEY_SIZE_MAX = 64 * 1024,
	RSA_BITS_MIN = 2048,
	EC_BITS_MIN = 256,
};

OWNED(pkey, EVP_PKEY, EVP_PKEY_free)
OWNED(encoder, OSSL_ENCODER_CTX, OSSL_ENCODER_CTX_free)
OWNED(req, X509_REQ, X509_REQ_free)
OWNED(names, GENERAL_NAMES, GENERAL_NAMES_free)
OWNED(exts, X509_EXTENSIONS, sk_X509_EXTENSION_free)
OWNED(ext, X509_EXTENSION, X509_EXTENSION_free)

/* --- the request --- */

static EVP_PKEY *make_key(enum x509_key_type type)
{
	switch (type) {
	case X509_EC_P256:
		return EVP_EC_gen("P-256");
	case X509_EC_P384:
		return EVP_EC_gen("P-384");
	case X509_RSA_2048:
		return EVP_RSA_gen(2048);
	case X509_RSA_3072:
		return EVP_RSA_gen(3072);
	case X509_RSA_4096:
		return EVP_RSA_gen(4096);
	}
	return NULL;
}

/* A memory BIO wipes what it frees, so the copy is the only one left. */
static char *secret_text(BIO *bio)
{
	char *data;
	long size = BIO_get_mem_data(bio, &data);
	return secret_new(data, (size_t)size);
}

static char *key_text(const EVP_PKEY *key, bool pkcs8)
{
	owned(bio) BIO *bio = BIO_new(BIO_s_mem());
	owned(encoder) OSSL_ENCODER_CTX *enc = OSSL_ENCODER_CTX_new_for_pkey(
	    key, EVP_PKEY_KEYPAIR, "PEM", pkcs8 ? "PrivateKeyInfo" : "type-specific", NULL);
	return bio && enc && OSSL_ENCODER_to_bio(enc, bio) ? secret_text(bio) : NULL;
}

/* Go writes O as a PrintableString, empty or not; the string types' own minimum of one character
 * is not asked for when the type is given. */
static bool add_subject(X509_REQ *req)
{
	return X509_NAME_add_entry_by_NID(X509_REQ_get_subject_name(req), NID_organizationName,
	    V_ASN1_PRINTABLESTRING, (const unsigned char *)"", 0, -1, 0);
}

static bool add_san(X509_REQ *req, const char *uri)
{
	owned(names) GENERAL_NAMES *names = GENERAL_NAMES_new();
	owned(exts) X509_EXTENSIONS *exts = sk_X509_EXTENSION_new_null();
	GENERAL_NAME *name = GENERAL_NAME_new();
	ASN1_IA5STRING *value = ASN1_IA5STRING_new();
	if (!names || !exts || !name || !value)
		abort();
	if (!ASN1_STRING_set(value, uri, -1) || !sk_GENERAL_NAME_push(names, name))
		abort();
	GENERAL_NAME_set0_value(name, GEN_URI, value);
	owned(ext) X509_EXTENSION *ext = X509V3_EXT_i2d(NID_subject_alt_name, 1, names);
	return ext && sk_X509_EXTENSION_push(exts, ext) && X509_REQ_add_extensions(req, exts);
}

static char *request_text(EVP_PKEY *key, enum x509_key_type type, const struct identity *id)
{
	char uri[IDENTITY_URI_SIZE];
	owned(bio) BIO *bio = BIO_new(BIO_s_mem());
	owned(req) X509_REQ *req = X509_REQ_new();
	const EVP_MD *hash = type == X509_EC_P384 ? EVP_sha384() : EVP_sha256();
	if (!bio || !req || !add_subject(req) || !add_san(req, identity_uri(id, uri)) ||
	    !X509_REQ_set_pubkey(req, key) || !X509_REQ_sign(req, key, hash) ||
	    !PEM_write_bio_X509_REQ(bio, req))
		return NULL;
	return pem_bio_text(bio);
}

int x509_make_request(struct x509_request *out, const struct x509_key_params *k,
    const struct identity *id, struct err *e)
{
	struct x509_request made = {0};
	owned(pkey) EVP_PKEY *key = make_key(k->type);
	if (key)
		made.key_pem = key_text(key, k->pkcs8);
	if (made.key_pem)
		made.csr_pem = request_text(key, k->type, id);
	if (!made.csr_pem) {
		x509_request_clear(&made);
		return pem_fail(e, "cannot make a certificate request");
	}
	ERR_clear_error();
	*out = made;
	return 0;
}

void x509_request_clear(struct x509_request *r)
{
	secret_free(r->key_pem);
	free(r->csr_pem);
	*r = (struct x509_request){0};
}

/* --- PEM --- */

static char *certs_text(const struct stack_st_X509 *certs, struct err *e)
{
	owned(bio) BIO *bio = BIO_new(BIO_s_mem());
	for (int i = 0; i < sk_X509_num(certs); i++) {
		if (!bio || !PEM_write_bio_X509(bio, sk_X509_value(certs, i))) {
			pem_fail(e, "cannot write a certificate");
			return NULL;
		}
	}
	return pem_bio_text(bio);
}

char *x509_normalise_pem(const char *pem, size_t len, struct err *e)
{
	owned(certs) struct stack_st_X509 *certs = pem_certs_new();
	char *text =
	    pem_certs_read(certs, pem, len, PEM_CERTS_MAX, e) ? NULL : certs_text(certs, e);
	ERR_clear_error();
	return text;
}

/* --- a key --- */

/* How many blocks of a private key, of whatever kind, begin in the text. */
static unsigned count_keys(const char *pem)
{
	unsigned n = 0;
	while ((pem = strstr(pem, "PRIVATE KEY-----"))) {
		n++;
		pem++;
	}
	return n / 2; /* each has an end */
}

static int check_strength(const EVP_PKEY *key, struct err *e)
{
	int kind = EVP_PKEY_get_base_id(key), bits = EVP_PKEY_get_bits(key);
	int least = kind == EVP_PKEY_RSA ? RSA_BITS_MIN : EC_BITS_MIN;
	if (kind != EVP_PKEY_RSA && kind != EVP_PKEY_EC)
		return err_set(e, ERR_INVALID, "neither an RSA key nor one of an elliptic curve");
	if (bits < least)
		return err_set(e, ERR_INVALID, "%d bits are fewer than %d", bits, least);
	return 0;
}

static char *normal_key(const char *pem, struct err *e)
{
	owned(bio) BIO *bio = BIO_new_mem_buf(pem, -1);
	if (strstr(pem, "ENCRYPTED")) {
		err_set(e, ERR_INVALID, "it has a passphrase, and agentd has nobody to ask for it");
		return NULL;
	}
	if (count_keys(pem) != 1) {
		err_set(e, ERR_INVALID, "not one PEM private key");
		return NULL;
	}
	owned(pkey) EVP_PKEY *key =
	    bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)"") : NULL;
	if (!key) {
		pem_fail(e, "not a PEM private key");
		return NULL;
	}
	if (check_strength(key, e))
		return NULL;
	char *text = key_text(key, true);
	if (!text)
		pem_fail(e, "cannot write the key");
	return text;
}

char *x509_normalise_key(const char *pem, size_t len, struct err *e)
{
	char *text = NULL, *copy;
	if (len > KEY_SIZE_MAX || memchr(pem, '\0', len)) {
		err_set(e, ERR_INVALID, "not the PEM text of a private key");
		return NULL;
	}
	copy = secret_new(pem, len);
	text = normal_key(copy, e);
	secret_free(copy);
	ERR_clear_error();
	return text;
}

/* --- is the leaf ours? --- */

static int check_key(X509 *leaf, const char *key_pem, struct err *e)
{
	owned(bio) BIO *bio = BIO_new_mem_buf(key_pem, -1);
	/* The empty passphrase keeps OpenSSL from asking on the terminal. */
	owned(pkey) EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)"");
	if (!key)
		return pem_fail(e, "our private key");
	if (EVP_PKEY_eq(X509_get0_pubkey(leaf), key) != 1)
		return err_set(e, ERR_INVALID, "it is for another key");
	return 0;
}

/* The one name in the leaf.  A second one of any kind is refused too: istiod never adds one
 * (istio-agent.md 4.5), and a DNS name would let the pod pass for a server that it is not. */
static int read_identity(X509 *leaf, struct identity *found, struct err *e)
{
	owned(names) GENERAL_NAMES *names =
	    X509_get_ext_d2i(leaf, NID_subject_alt_name, NULL, NULL);
	if (!names || sk_GENERAL_NAME_num(names) != 1)
		return err_set(
		    e, ERR_INVALID, "it does not have exactly one subject alternative name");
	int type;
	const ASN1_STRING *uri = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, 0), &type);
	if (type != GEN_URI)
		return err_set(e, ERR_INVALID, "its subject alternative name is not a URI");
	return identity_parse(
	    found, (const char *)ASN1_STRING_get0_data(uri), (size_t)ASN1_STRING_length(uri), e);
}

static int check_identity(
    X509 *leaf, const struct identity *id, const char *td, struct identity *found, struct err *e)
{
	char uri[IDENTITY_URI_SIZE];
	if (read_identity(leaf, found, e))
		return -1;
	if (strcmp(found->ns, id->ns) != 0 || strcmp(found->sa, id->sa) != 0)
		return err_set(e, ERR_INVALID, "it is for %.180s, not for our identity",
		    identity_uri(found, uri));
	if (td && !words_has(td, found->trust_domain))
		return err_set(e, ERR_INVALID, "its trust domain is \"%.90s\", not \"%.90s\"",
		    found->trust_domain, td);
	return 0;
}

static int check_kind(X509 *leaf, struct err *e)
{
	uint32_t flags = X509_get_extension_flags(leaf);
	if (flags & EXFLAG_INVALID)
		return err_set(e, ERR_INVALID, "its extensions are malformed");
	if (flags & EXFLAG_CA ||
	    (flags & EXFLAG_KUSAGE && X509_get_key_usage(leaf) & KU_KEY_CERT_SIGN))
		return err_set(e, ERR_INVALID, "it is a CA certificate");
	if (flags & EXFLAG_KUSAGE && !(X509_get_key_usage(leaf) & KU_DIGITAL_SIGNATURE))
		return err_set(
		    e, ERR_INVALID, "Envoy would refuse it: its key usage lacks digitalSignature");
	if (X509_get_ext_by_NID(leaf, NID_tlsfeature, -1) >= 0)
		return err_set(e, ERR_INVALID,
		    "Envoy would refuse it: it asks for an OCSP staple (TLS feature)");
	uint32_t both = XKU_SSL_SERVER | XKU_SSL_CLIENT; /* without the extension all are set */
	if ((X509_get_extended_key_usage(leaf) & both) != both)
		return err_set(e, ERR_INVALID, "it is not for both TLS servers and clients");
	return 0;
}

static int read_time(int64_t *out, const ASN1_TIME *time, struct err *e)
{
	struct tm tm;
	if (!ASN1_TIME_to_tm(time, &tm))
		return pem_fail(e, "its validity");
	*out = timegm(&tm);
	return 0;
}

static int read_leaf(X509 *cert, struct x509_leaf *leaf, struct err *e)
{
	const ASN1_INTEGER *serial = X509_get0_serialNumber(cert);
	const unsigned char *byte = ASN1_STRING_get0_data(serial);
	size_t n = (size_t)ASN1_STRING_length(serial);
	if (n > SERIAL_SIZE_MAX)
		return err_set(e, ERR_INVALID, "its serial number has %zu bytes", n);
	*leaf = (struct x509_leaf){0};
	for (size_t i = 0; i < n; i++)
		snprintf(leaf->serial + 2 * i, 3, "%02x", byte[i]);
	if (read_time(&leaf->not_before, X509_get0_notBefore(cert), e))
		return -1;
	return read_time(&leaf->not_after, X509_get0_notAfter(cert), e);
}

static int64_t end_of(X509 *cert)
{
	struct err ignored;
	int64_t end = 0;
	(void)read_time(&end, X509_get0_notAfter(cert), &ignored);
	return end;
}

static bool has_one_name(X509 *a, X509 *b)
{
	return !X509_NAME_cmp(X509_get_subject_name(a), X509_get_subject_name(b));
}

static bool has_one_key(X509 *a, X509 *b)
{
	return EVP_PKEY_eq(X509_get0_pubkey(a), X509_get0_pubkey(b)) == 1;
}

/* Is there one more of its name: with its key and a later end, or with another key? */
static void look_beside(const struct stack_st_X509 *certs, X509 *cert, bool *renewed, bool *alike)
{
	*renewed = *alike = false;
	for (int i = 0; i < sk_X509_num(certs); i++) {
		X509 *other = sk_X509_value(certs, i);
		if (other == cert || !has_one_name(cert, other))
			continue;
		if (has_one_key(cert, other))
			*renewed |= end_of(other) > end_of(cert);
		else
			*alike |= !X509_get0_subject_key_id(cert);
	}
}

static void add_life(struct x509_life *life, const struct stack_st_X509 *certs, X509 *cert)
{
	int64_t end = end_of(cert);
	bool renewed, alike;
	look_beside(certs, cert, &renewed, &alike);
	life->n++;
	life->alike += alike;
	if (!renewed && (!life->first_end || end < life->first_end))
		life->first_end = end;
	if (end > life->last_end)
		life->last_end = end;
}

void x509_pem_life(const char *pem, struct x509_life *life)
{
	owned(certs) struct stack_st_X509 *certs = pem_certs_new();
	struct err ignored;
	*life = (struct x509_life){.n = 0};
	if (!pem_certs_read(certs, pem, strlen(pem), PEM_CERTS_MAX, &ignored))
		for (int i = 0; i < sk_X509_num(certs); i++)
			add_life(life, certs, sk_X509_value(certs, i));
	ERR_clear_error();
}

int64_t x509_usable_until(const struct x509_leaf *leaf)
{
	int64_t end = leaf->not_after;
	if (leaf->chain_ends && leaf->chain_ends < end)
		end = leaf->chain_ends;
	return leaf->root_ends && leaf->root_ends < end ? leaf->root_ends : end;
}

/* The wall clocks of CA and node may differ a little, in both directions. */
static int check_life(const struct x509_leaf *leaf, int64_t now_s, int64_t ttl_max_s, struct err *e)
{
	int64_t starts = leaf->not_before - now_s, ends = leaf->not_after - now_s;
	if (starts > CLOCK_SLACK_S)
		return err_set(e, ERR_INVALID,
		    "it is not valid yet (in %lld s; is the clock right?)", (long long)starts);
	if (ends <= 0)
		return err_set(e, ERR_INVALID, "it expired %lld s ago (is the clock right?)",
		    (long long)-ends);
	if (ends > ttl_max_s + CLOCK_SLACK_S)
		return err_set(e, ERR_INVALID, "it is valid for %lld s, more than %lld",
		    (long long)ends, (long long)ttl_max_s);
	return 0;
}

/* --- the chain --- */

struct answer {
	struct stack_st_X509 *leaf, *between, *roots;
};

static void free_answer(struct answer *a)
{
	pem_certs_free(a->leaf);
	pem_certs_free(a->between);
	pem_certs_free(a->roots);
}

/* `path` leads from the leaf to one of the roots. */
static void note_path(
    struct x509_leaf *leaf, const struct stack_st_X509 *path, const struct stack_st_X509 *roots)
{
	int top = sk_X509_num(path) - 1;
	X509 *root = sk_X509_value(path, top);
	for (int i = 1; i < top; i++) {
		int64_t end = end_of(sk_X509_value(path, i));
		if (!leaf->chain_ends || end < leaf->chain_ends)
			leaf->chain_ends = end;
	}
	for (int i = 0; i < sk_X509_num(roots); i++) {
		X509 *other = sk_X509_value(roots, i);
		int64_t end = end_of(other);
		if (end > leaf->root_ends && has_one_name(other, root) && has_one_key(other, root))
			leaf->root_ends = end;
	}
}

/* A certificate whose life starts within the slack is judged as of then.  Any CA in the last
 * element is trusted, self-signed or not, as for Go (a mesh's CA under a company's root). */
static int check_path(const struct answer *a, struct x509_leaf *life, int64_t now_s, struct err *e)
{
	owned(store) X509_STORE *store = X509_STORE_new();
	owned(store_ctx) X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	if (!store || !ctx)
		abort();
	for (int i = 0; i < sk_X509_num(a->roots); i++) {
		X509 *trusted = sk_X509_value(a->roots, i);

		if (X509_cmp(trusted, sk_X509_value(a->leaf, 0)) == 0)
			return err_set(e, ERR_INVALID, "it is itself one of its roots");
		if (!X509_STORE_add_cert(store, trusted))
			return pem_fail(e, "its roots");
	}
	if (!X509_STORE_CTX_init(ctx, store, sk_X509_value(a->leaf, 0), a->between))
		return pem_fail(e, "its chain");
	X509_VERIFY_PARAM *param = X509_STORE_CTX_get0_param(ctx);
	X509_VERIFY_PARAM_set_time(param, life->not_before > now_s ? life->not_before : now_s);
	X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_ANY);
	X509_VERIFY_PARAM_set_flags(param, X509_V_FLAG_PARTIAL_CHAIN);
	if (X509_verify_cert(ctx) == 1) {
		note_path(life, X509_STORE_CTX_get0_chain(ctx), a->roots);
		return 0;
	}
	return err_set(e, ERR_INVALID, "its chain does not lead to its roots: %s",
	    X509_verify_cert_error_string(X509_STORE_CTX_get_error(ctx)));
}

/* One certificate in each element but the last. */
static int read_answer(struct answer *a, const char *const *chain, size_t n, struct err *e)
{
	if (n < 2 || n > ELEMENTS_MAX)
		return err_set(e, ERR_INVALID, "certificate chain of %zu elements, not 2 to %d", n,
		    ELEMENTS_MAX);
	for (size_t i = 0; i < n; i++) {
		bool last = i + 1 == n;
		struct stack_st_X509 *out = i == 0 ? a->leaf : last ? a->roots : a->between;
		if (pem_certs_read(out, chain[i], strlen(chain[i]), last ? PEM_CERTS_MAX : 1, e))
			return err_wrap(e, "element %zu of the certificate chain", i + 1);
	}
	return 0;
}

int x509_check_chain(
    const struct x509_answer *from, struct identity *id, struct x509_leaf *leaf, struct err *e)
{
	struct answer a = {pem_certs_new(), pem_certs_new(), pem_certs_new()};
	struct identity found;
	struct x509_leaf life = {0};
	int rc = read_answer(&a, from->chain, from->n, e);
	X509 *cert = sk_X509_value(a.leaf, 0);
	if (!rc &&
	    (check_identity(cert, id, from->expect_td, &found, e) || check_kind(cert, e) ||
		read_leaf(cert, &life, e) || check_life(&life, from->now_s, from->ttl_max_s, e) ||
		check_key(cert, from->key_pem, e) || check_path(&a, &life, from->now_s, e)))
		rc = err_wrap(e, "certificate refused");
	free_answer(&a);
	ERR_clear_error();
	if (rc)
		return -1;
	*id = found;
	*leaf = life;
	return 0;
}

int x509_read_leaf(const char *pem, size_t len, struct x509_leaf *leaf, struct err *e)
{
	owned(certs) struct stack_st_X509 *certs = pem_certs_new();
	int rc = pem_certs_read(certs, pem, len, PEM_CERTS_MAX, e);
	if (!rc)
		rc = read_leaf(sk_X509_value(certs, 0), leaf, e);
	ERR_clear_error();
	return rc;
}

void x509_sha256(const void *data, size_t size, uint8_t out[X509_SHA256_SIZE])
{
	if (!EVP_Digest(data, size, out, NULL, EVP_sha256(), NULL))
		abort();
}
