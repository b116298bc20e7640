/* x509_test.c - our request says what Istio's says, and of all certificates that a CA could send
 * back only the right one is taken (threats-and-faults.md T24).
 *
 * The CA is made here: root -> intermediate -> leaf.  Each bad certificate differs from the good
 * one in one thing, and the message must name that thing, so that none is refused by accident.
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/identity.h"
#include "worker/crypto/x509.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after the four above */
#include <cmocka.h>

enum { HOUR = 3600, DAY = 86400 };
static const int64_t NOW = 1700000000;
static const struct identity WEB = {"cluster.local", "demo", "web"};
#define WEB_URI "URI:spiffe://cluster.local/ns/demo/sa/web"

struct ca {
	EVP_PKEY *key;
	X509 *cert;
};
static struct ca root, other_root, inter;
static struct x509_request ours;

/* --- a CA --- */

struct recipe {
	const char *san, *basic, *usage, *eku, *feature; /* NULL: extension left out */
	int64_t starts, ends;                            /* relative to NOW */
	bool nul_in_san, san_twice;
	unsigned serial_bytes; /* of 0xab; 0: serial number 1 */
};

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	if (!value)
		return;
	X509V3_CTX ctx;
	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(ext);
	X509_add_ext(cert, ext, -1);
	X509_EXTENSION_free(ext);
}

static void add_nul_san(X509 *cert)
{
	static const char uri[] = "spiffe://cluster.local/ns/demo/sa/web\0.evil";
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	GENERAL_NAME *name = GENERAL_NAME_new();
	ASN1_IA5STRING *value = ASN1_IA5STRING_new();
	ASN1_STRING_set(value, uri, sizeof(uri) - 1);
	GENERAL_NAME_set0_value(name, GEN_URI, value);
	sk_GENERAL_NAME_push(names, name);
	assert_int_equal(X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 1, 0), 1);
	GENERAL_NAMES_free(names);
}

static X509 *issue(const struct recipe *r, const char *cn, EVP_PKEY *key, const struct ca *by)
{
	static const uint8_t ab[32] = {[0 ... 31] = 0xab};
	X509 *cert = X509_new();
	X509_set_version(cert, X509_VERSION_3);
	if (r->serial_bytes)
		ASN1_STRING_set(X509_get_serialNumber(cert), ab, (int)r->serial_bytes);
	else
		ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
	ASN1_TIME_set(X509_getm_notBefore(cert), NOW + r->starts);
	ASN1_TIME_set(X509_getm_notAfter(cert), NOW + r->ends);
	X509_NAME_add_entry_by_txt(
	    X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0);
	X509_set_issuer_name(cert, X509_get_subject_name(by->cert ? by->cert : cert));
	X509_set_pubkey(cert, key);
	/* Key ids are what tells two roots of one name apart, here as in Envoy. */
	add_extension(cert, by->cert, NID_subject_key_identifier, "hash");
	add_extension(cert, by->cert, NID_authority_key_identifier, by->cert ? "keyid" : NULL);
	add_extension(cert, by->cert, NID_basic_constraints, r->basic);
	add_extension(cert, by->cert, NID_key_usage, r->usage);
	add_extension(cert, by->cert, NID_ext_key_usage, r->eku);
	add_extension(cert, by->cert, NID_tlsfeature, r->feature);
	add_extension(cert, by->cert, NID_subject_alt_name, r->san);
	if (r->san_twice)
		add_extension(cert, by->cert, NID_subject_alt_name, r->san);
	if (r->nul_in_san)
		add_nul_san(cert);
	assert_true(X509_sign(cert, by->key, EVP_sha256()));
	return cert;
}

static struct ca make_ca(const char *cn, const struct ca *by, int64_t starts, int64_t ends)
{
	struct recipe r = {.basic = "critical,CA:TRUE",
	    .usage = "critical,keyCertSign",
	    .starts = starts,
	    .ends = ends};
	struct ca ca = {.key = EVP_EC_gen("P-256")};
	struct ca self = {.key = ca.key};
	ca.cert = issue(&r, cn, ca.key, by ? by : &self);
	return ca;
}

static void drop_ca(struct ca *ca)
{
	EVP_PKEY_free(ca->key);
	X509_free(ca->cert);
}

static char *pem_of(X509 *cert)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *data;
	assert_true(PEM_write_bio_X509(bio, cert));
	size_t size = (size_t)BIO_get_mem_data(bio, &data);
	char *text = mem_zalloc(size + 1);
	memcpy(text, data, size);
	BIO_free(bio);
	return text;
}

static EVP_PKEY *key_of(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)"");
	BIO_free(bio);
	assert_non_null(key);
	return key;
}

static struct recipe good(void)
{
	return (struct recipe){.san = WEB_URI,
	    .basic = "critical,CA:FALSE",
	    .usage = "critical,digitalSignature,keyEncipherment",
	    .eku = "serverAuth,clientAuth",
	    .starts = -120,
	    .ends = DAY};
}

static int group_setup(void **state)
{
	(void)state;
	struct err e;
	root = make_ca("root", NULL, -DAY, 365 * DAY);
	other_root = make_ca("root", NULL, -DAY, 365 * DAY); /* same name, other key */
	inter = make_ca("inter", &root, -DAY, 30 * DAY);
	return x509_make_request(&ours, &(struct x509_key_params){X509_EC_P256, false}, &WEB, &e);
}

static int group_teardown(void **state)
{
	(void)state;
	drop_ca(&root), drop_ca(&other_root), drop_ca(&inter);
	x509_request_clear(&ours);
	return 0;
}

/* --- requests --- */

static X509_REQ *req_of(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509_REQ *req = PEM_read_bio_X509_REQ(bio, NULL, NULL, NULL);
	BIO_free(bio);
	assert_non_null(req);
	return req;
}

/* istio-agent.md 4.4: O with one empty string and nothing else; one extension, critical, one URI.
 */
static void check_request(const struct x509_request *r, const struct identity *id)
{
	X509_REQ *req = req_of(r->csr_pem);
	EVP_PKEY *key = key_of(r->key_pem);
	assert_int_equal(X509_REQ_verify(req, key), 1);
	assert_int_equal(EVP_PKEY_eq(X509_REQ_get0_pubkey(req), key), 1);

	X509_NAME *subject = X509_REQ_get_subject_name(req);
	assert_int_equal(X509_NAME_entry_count(subject), 1);
	X509_NAME_ENTRY *o = X509_NAME_get_entry(subject, 0);
	assert_int_equal(OBJ_obj2nid(X509_NAME_ENTRY_get_object(o)), NID_organizationName);
	assert_int_equal(ASN1_STRING_length(X509_NAME_ENTRY_get_data(o)), 0);
	assert_int_equal(ASN1_STRING_type(X509_NAME_ENTRY_get_data(o)), V_ASN1_PRINTABLESTRING);

	X509_EXTENSIONS *exts = X509_REQ_get_extensions(req);
	assert_int_equal(sk_X509_EXTENSION_num(exts), 1);
	X509_EXTENSION *san = sk_X509_EXTENSION_value(exts, 0);
	assert_int_equal(OBJ_obj2nid(X509_EXTENSION_get_object(san)), NID_subject_alt_name);
	assert_int_equal(X509_EXTENSION_get_critical(san), 1);
	GENERAL_NAMES *names = X509V3_EXT_d2i(san);
	assert_int_equal(sk_GENERAL_NAME_num(names), 1);
	int type;
	const ASN1_STRING *uri = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, 0), &type);
	char expected[IDENTITY_URI_SIZE];
	assert_int_equal(type, GEN_URI);
	assert_string_equal((const char *)ASN1_STRING_get0_data(uri), identity_uri(id, expected));

	GENERAL_NAMES_free(names);
	sk_X509_EXTENSION_pop_free(exts, X509_EXTENSION_free);
	EVP_PKEY_free(key);
	X509_REQ_free(req);
}

static void test_request_of_each_type(void **state)
{
	(void)state;
	static const struct {
		struct x509_key_params k;
		const char *begin, *algorithm;
		int bits;
	} types[] = {
	    {{X509_EC_P256, false}, "-----BEGIN EC PRIVATE KEY-----\n", "EC", 256},
	    {{X509_EC_P256, true}, "-----BEGIN PRIVATE KEY-----\n", "EC", 256},
	    {{X509_EC_P384, false}, "-----BEGIN EC PRIVATE KEY-----\n", "EC", 384},
	    {{X509_RSA_2048, false}, "-----BEGIN RSA PRIVATE KEY-----\n", "RSA", 2048},
	    {{X509_RSA_2048, true}, "-----BEGIN PRIVATE KEY-----\n", "RSA", 2048},
	    {{X509_RSA_3072, false}, "-----BEGIN RSA PRIVATE KEY-----\n", "RSA", 3072},
	    {{X509_RSA_4096, false}, "-----BEGIN RSA PRIVATE KEY-----\n", "RSA", 4096},
	};
	/* large RSA keys take a second: the last three are for the soak run */
	size_t n = sizeof(types) / sizeof(*types) - (getenv("AGENTD_SOAK") ? 0 : 3);
	for (size_t i = 0; i < n; i++) {
		struct x509_request r;
		struct err e;
		assert_int_equal(x509_make_request(&r, &types[i].k, &WEB, &e), 0);
		assert_int_equal(strncmp(r.key_pem, types[i].begin, strlen(types[i].begin)), 0);
		assert_non_null(strstr(r.csr_pem, "-----BEGIN CERTIFICATE REQUEST-----\n"));
		EVP_PKEY *key = key_of(r.key_pem);
		assert_true(EVP_PKEY_is_a(key, types[i].algorithm));
		assert_int_equal(EVP_PKEY_get_bits(key), types[i].bits);
		EVP_PKEY_free(key);
		check_request(&r, &WEB);
		x509_request_clear(&r);
		assert_null(r.key_pem);
	}
}

/* A key type that is none, e.g. from a corrupt cache key, is an error and no crash. */
static void test_no_such_type(void **state)
{
	(void)state;
	struct x509_request r;
	struct err e;
	struct x509_key_params k = {(enum x509_key_type)77, false};
	assert_int_equal(x509_make_request(&r, &k, &WEB, &e), -1);
	assert_non_null(strstr(e.msg, "cannot make a certificate request"));
}

static void test_each_request_has_its_own_key(void **state)
{
	(void)state;
	struct x509_request r;
	struct err e;
	assert_int_equal(x509_make_request(&r, &(struct x509_key_params){0}, &WEB, &e), 0);
	assert_string_not_equal(r.key_pem, ours.key_pem);
	x509_request_clear(&r);
}

/* --- answers --- */

struct check {
	const char *const *chain;
	size_t n;
	const char *key_pem, *td;
	int64_t ttl_max;
};

static int run_check(
    const struct check *c, struct identity *id, struct x509_leaf *leaf, struct err *e)
{
	*e = (struct err){0};
	int rc = x509_check_chain(
	    &(struct x509_answer){c->chain, c->n, c->key_pem, c->td, NOW, c->ttl_max}, id, leaf, e);
	assert_int_equal(ERR_peek_error(), 0); /* TLS on this thread would stumble over it */
	return rc;
}

/* Issues by `recipe` and checks leaf, intermediate, root. */
static int check_recipe(
    const struct recipe *r, struct identity *id, struct x509_leaf *leaf, struct err *e)
{
	EVP_PKEY *key = key_of(ours.key_pem);
	X509 *cert = issue(r, "", key, &inter);
	auto_free char *a = pem_of(cert), *b = pem_of(inter.cert), *c = pem_of(root.cert);
	const char *chain[] = {a, b, c};
	struct check check = {chain, 3, ours.key_pem, "cluster.local", DAY};
	int rc = run_check(&check, id, leaf, e);
	X509_free(cert);
	EVP_PKEY_free(key);
	return rc;
}

static void accept(const struct recipe *r)
{
	struct identity id = WEB;
	struct x509_leaf leaf;
	struct err e;
	if (check_recipe(r, &id, &leaf, &e))
		fail_msg("refused: %s", e.msg);
	assert_int_equal(leaf.not_before, NOW + r->starts);
	assert_int_equal(leaf.not_after, NOW + r->ends);
	assert_true(identity_equal(&id, &WEB));
}

static void assert_refused(int rc, const struct err *e, const char *why)
{
	if (rc == 0)
		fail_msg("accepted in spite of: %s", why);
	if (!strstr(e->msg, why))
		fail_msg("\"%s\" instead of \"%s\"", e->msg, why);
}

static void refuse(const struct recipe *r, const char *why)
{
	struct identity id = WEB;
	struct x509_leaf leaf = {.serial = "untouched"};
	struct err e;
	assert_refused(check_recipe(r, &id, &leaf, &e), &e, why);
	assert_string_equal(leaf.serial, "untouched");
	assert_true(identity_equal(&id, &WEB));
}

static void test_good(void **state)
{
	(void)state;
	struct recipe r = good();
	accept(&r);
	r.eku = NULL; /* no extended key usage restricts nothing */
	accept(&r);
	r.basic = r.usage = NULL;
	accept(&r);
}

static void test_other_identity(void **state)
{
	(void)state;
	static const struct {
		const char *san, *why;
	} bad[] = {
	    {"URI:spiffe://cluster.local/ns/demo/sa/web2", "sa/web2, not for our identity"},
	    {"URI:spiffe://cluster.local/ns/prod/sa/web", "ns/prod/sa/web, not for our identity"},
	    /* istiod-live.md 1.5: the node's certificate, or a foreign trust domain */
	    {"URI:spiffe://cluster.local/ns/istio-system/sa/agentd", "not for our identity"},
	    {"URI:spiffe://evil.td/ns/demo/sa/web", "trust domain is \"evil.td\", not \"cluster"},
	    {"URI:spiffe://cluster.local/ns/demo/sa/web/", "is not valid"},
	    {"URI:spiffe://CLUSTER.local/ns/demo/sa/web", "is not valid"},
	    {"URI:https://cluster.local/", "not a SPIFFE id"},
	    {"DNS:cluster.local", "is not a URI"},
	    {NULL, "not have exactly one subject alternative name"},
	    {WEB_URI "," WEB_URI, "not have exactly one subject alternative name"},
	    {WEB_URI ",URI:spiffe://cluster.local/ns/demo/sa/db", "not have exactly one"},
	    {WEB_URI ",DNS:db.demo.svc", "not have exactly one"},
	    {WEB_URI ",IP:10.0.0.1", "not have exactly one"},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct recipe r = good();
		r.san = bad[i].san;
		refuse(&r, bad[i].why);
	}
}

static void test_hidden_names(void **state)
{
	(void)state;
	struct recipe r = good();
	r.san_twice = true;
	refuse(&r, "not have exactly one");
	r = good();
	r.san = NULL;
	r.nul_in_san = true;
	refuse(&r, "not a SPIFFE id");
}

static void test_ca_is_no_leaf(void **state)
{
	(void)state;
	struct recipe r = good();
	r.basic = "critical,CA:TRUE"; /* with a key usage that does not say so */
	refuse(&r, "it is a CA certificate");
	r.basic = "CA:TRUE,pathlen:0", r.usage = "keyCertSign";
	refuse(&r, "it is a CA certificate");
	r = good();
	r.usage = "digitalSignature,keyCertSign";
	refuse(&r, "it is a CA certificate");
	r.basic = NULL;
	refuse(&r, "it is a CA certificate");
}

/* Beyond what OpenSSL asks: Envoy would keep it, and refuse what names it. */
static void test_what_envoy_refuses(void **state)
{
	(void)state;
	struct recipe r = good();
	r.usage = "critical,keyEncipherment";
	refuse(&r, "Envoy would refuse it: its key usage lacks digitalSignature");
	r.usage = NULL; /* without the extension all is allowed */
	accept(&r);
	r.feature = "status_request";
	refuse(&r, "Envoy would refuse it: it asks for an OCSP staple");
}

static void test_malformed_extension(void **state)
{
	(void)state;
	struct recipe r = good();
	r.usage = "DER:04:00"; /* no bit string */
	refuse(&r, "its extensions are malformed");
}

static void test_usage(void **state)
{
	(void)state;
	static const char *const bad[] = {
	    "serverAuth", "clientAuth", "codeSigning", "anyExtendedKeyUsage"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct recipe r = good();
		r.eku = bad[i];
		refuse(&r, "not for both TLS servers and clients");
	}
}

static void test_life(void **state)
{
	(void)state;
	struct recipe r = good();
	r.ends = 0;
	refuse(&r, "it expired 0 s ago");
	r.ends = -1;
	refuse(&r, "it expired 1 s ago");
	r.ends = 1;
	accept(&r);
	r = good();
	r.starts = 60; /* the CA's clock may be a little ahead */
	accept(&r);
	r.starts = 61;
	refuse(&r, "not valid yet (in 61 s");
	r = good();
	r.ends = DAY + 60;
	accept(&r);
	r.ends = DAY + 61;
	refuse(&r, "it is valid for 86461 s, more than 86400");
	r.ends = (int64_t)10 * 365 * DAY;
	refuse(&r, "it is valid for");
}

static void test_serial(void **state)
{
	(void)state;
	struct recipe r = good();
	struct identity id = WEB;
	struct x509_leaf leaf;
	struct err e;
	r.serial_bytes = 20;
	assert_int_equal(check_recipe(&r, &id, &leaf, &e), 0);
	assert_string_equal(leaf.serial, "abababababababababababababababababababab");
	r.serial_bytes = 21;
	refuse(&r, "serial number has 21 bytes");
}

/* A fixed good leaf, and what else may be in the answer. */
struct answer {
	char *leaf, *inter, *root, *other_root;
};

static struct answer make_answer(void)
{
	struct recipe r = good();
	EVP_PKEY *key = key_of(ours.key_pem);
	X509 *cert = issue(&r, "", key, &inter);
	struct answer a = {
	    pem_of(cert), pem_of(inter.cert), pem_of(root.cert), pem_of(other_root.cert)};
	X509_free(cert);
	EVP_PKEY_free(key);
	return a;
}

static void drop_answer(struct answer *a)
{
	free(a->leaf), free(a->inter), free(a->root), free(a->other_root);
}

static int check_elements(const char *const *chain, size_t n, struct err *e)
{
	struct identity id = WEB;
	struct x509_leaf leaf;
	struct check c = {chain, n, ours.key_pem, "cluster.local", DAY};
	return run_check(&c, &id, &leaf, e);
}

static void test_other_key(void **state)
{
	(void)state;
	struct answer a = make_answer();
	const char *chain[] = {a.leaf, a.inter, a.root};
	struct x509_request other;
	struct identity id = WEB;
	struct x509_leaf leaf;
	struct err e;
	for (enum x509_key_type t = X509_EC_P256; t <= X509_EC_P384; t++) {
		assert_int_equal(
		    x509_make_request(&other, &(struct x509_key_params){t, false}, &WEB, &e), 0);
		struct check c = {chain, 3, other.key_pem, "cluster.local", DAY};
		assert_refused(run_check(&c, &id, &leaf, &e), &e, "it is for another key");
		x509_request_clear(&other);
	}
	struct check c = {chain, 3, "no key", "cluster.local", DAY};
	assert_refused(run_check(&c, &id, &leaf, &e), &e, "our private key");
	drop_answer(&a);
}

static void test_learned_trust_domain(void **state)
{
	(void)state;
	struct answer a = make_answer();
	const char *chain[] = {a.leaf, a.inter, a.root};
	struct identity id = {"", "demo", "web"};
	struct x509_leaf leaf;
	struct err e;
	struct check c = {chain, 3, ours.key_pem, NULL, DAY};
	assert_int_equal(run_check(&c, &id, &leaf, &e), 0);
	assert_string_equal(id.trust_domain, "cluster.local");
	assert_string_equal(leaf.serial, "01");
	c.td = "new.example,cluster.local";
	assert_int_equal(run_check(&c, &id, &leaf, &e), 0);
	assert_string_equal(id.trust_domain, "cluster.local");
	c.td = "cluster.local.example,cluster";
	assert_refused(run_check(&c, &id, &leaf, &e), &e, "trust domain");
	/* an empty expectation is one that nothing meets */
	c.td = "";
	assert_refused(run_check(&c, &id, &leaf, &e), &e, "trust domain");
	drop_answer(&a);
}

static void test_number_of_elements(void **state)
{
	(void)state;
	struct answer a = make_answer();
	const char *chain[65] = {a.leaf};
	struct err e;
	assert_refused(check_elements(chain, 0, &e), &e, "chain of 0 elements");
	assert_refused(check_elements(chain, 1, &e), &e, "chain of 1 elements");
	for (size_t i = 1; i < 65; i++)
		chain[i] = a.inter;
	chain[63] = chain[64] = a.root;
	assert_int_equal(check_elements(chain, 64, &e), 0);
	assert_refused(check_elements(chain, 65, &e), &e, "chain of 65 elements");
	drop_answer(&a);
}

/* istio-agent.md 0.14: the roots are the last element, several in one while they rotate. */
static void test_roots(void **state)
{
	(void)state;
	struct answer a = make_answer();
	struct err e;
	auto_free char *both = mem_zalloc(strlen(a.root) + strlen(a.other_root) + 1);
	strcat(strcpy(both, a.other_root), a.root);
	const char *chain[] = {a.leaf, a.inter, both};
	assert_int_equal(check_elements(chain, 3, &e), 0);
	chain[2] = a.other_root;
	assert_refused(check_elements(chain, 3, &e), &e, "does not lead to its roots");
	const char *gap[] = {a.leaf, a.root};
	assert_refused(check_elements(gap, 2, &e), &e, "does not lead to its roots");
	/* what is not last is not trusted */
	const char *swapped[] = {a.leaf, a.inter, a.root, a.other_root};
	assert_refused(check_elements(swapped, 4, &e), &e, "does not lead to its roots");
	drop_answer(&a);
}

/* Of a root and its renewal with the same key, what ends last counts. */
static void test_ends_of_its_path(void **state)
{
	(void)state;
	struct answer a = make_answer();
	struct recipe by = {.basic = "critical,CA:TRUE", .usage = "critical,keyCertSign"};
	struct ca self = {.key = root.key}, renewed = {.key = root.key};
	struct identity id = WEB;
	struct x509_leaf leaf;
	struct err e;
	by.starts = -9 * DAY, by.ends = -DAY;
	renewed.cert = issue(&by, "root", root.key, &self);
	auto_free char *old = pem_of(renewed.cert);
	auto_free char *both = mem_printf("%s%s%s", old, a.root, a.other_root);
	const char *chain[] = {a.leaf, a.inter, both};
	struct check c = {chain, 3, ours.key_pem, "cluster.local", DAY};
	assert_int_equal(run_check(&c, &id, &leaf, &e), 0);
	struct x509_life inter_life, root_life;
	x509_pem_life(a.inter, &inter_life);
	x509_pem_life(a.root, &root_life);
	assert_int_equal(leaf.chain_ends, inter_life.first_end);
	assert_int_equal(leaf.root_ends, root_life.first_end);
	assert_int_equal(x509_usable_until(&leaf), leaf.not_after);
	leaf.chain_ends = leaf.not_after - 1;
	assert_int_equal(x509_usable_until(&leaf), leaf.not_after - 1);
	leaf.root_ends = leaf.not_after - 2;
	assert_int_equal(x509_usable_until(&leaf), leaf.not_after - 2);
	X509_free(renewed.cert);
	drop_answer(&a);
}

/* The mesh's CA is trusted because it is last, whoever signed it: the company's root is not sent.
 */
static void test_root_that_another_signed(void **state)
{
	(void)state;
	struct answer a = make_answer();
	struct ca stranger = make_ca("inter", &root, -DAY, DAY); /* the name of ours */
	auto_free char *other = pem_of(stranger.cert);
	struct err e;
	const char *chain[] = {a.leaf, a.inter};
	assert_int_equal(check_elements(chain, 2, &e), 0);
	const char *twice[] = {a.leaf, a.inter, a.inter};
	assert_int_equal(check_elements(twice, 3, &e), 0);
	const char *wrong[] = {a.leaf, other};
	assert_refused(check_elements(wrong, 2, &e), &e, "does not lead to its roots");
	const char *untrusted[] = {a.leaf, a.inter, other};
	assert_refused(check_elements(untrusted, 3, &e), &e, "does not lead to its roots");
	/* but a leaf is nobody's CA, not even its own */
	const char *itself[] = {a.leaf, a.leaf};
	assert_refused(check_elements(itself, 2, &e), &e, "itself one of its roots");
	const char *beside[] = {a.leaf, a.inter, a.leaf};
	assert_refused(check_elements(beside, 3, &e), &e, "itself one of its roots");
	drop_ca(&stranger);
	drop_answer(&a);
}

/* Signed by a leaf, and by a CA that is itself expired. */
static void test_bad_issuers(void **state)
{
	(void)state;
	struct recipe r = good();
	struct ca leaf_ca = {.key = EVP_EC_gen("P-256")};
	leaf_ca.cert = issue(&r, "leaf", leaf_ca.key, &root);
	struct ca old_ca = make_ca("old", &root, -2 * DAY, -1);
	struct ca *cas[] = {&leaf_ca, &old_ca};
	static const char *const why[] = {"invalid CA certificate", "certificate has expired"};
	EVP_PKEY *key = key_of(ours.key_pem);
	for (size_t i = 0; i < 2; i++) {
		X509 *cert = issue(&r, "", key, cas[i]);
		auto_free char *a = pem_of(cert), *b = pem_of(cas[i]->cert), *c = pem_of(root.cert);
		const char *chain[] = {a, b, c};
		struct err e;
		assert_refused(check_elements(chain, 3, &e), &e, why[i]);
		X509_free(cert);
		drop_ca(cas[i]);
	}
	EVP_PKEY_free(key);
}

/* A bit turned anywhere in the leaf: never accepted (signature), never a crash. */
static void test_damaged_leaf(void **state)
{
	(void)state;
	struct answer a = make_answer();
	struct err e;
	for (size_t at = 28; at + 28 < strlen(a.leaf); at += 3) {
		auto_free char *bad = mem_strdup(a.leaf);
		bad[at] = bad[at] == 'A' ? 'B' : 'A';
		auto_free char *read = x509_normalise_pem(bad, strlen(bad), &e);
		const char *chain[] = {bad, a.inter, a.root};
		if (read && strcmp(read, a.leaf) == 0)
			continue; /* bits that base64 does not use */
		if (check_elements(chain, 3, &e) == 0)
			fail_msg("accepted with a change at %zu", at);
	}
	drop_answer(&a);
}

static void test_garbage(void **state)
{
	(void)state;
	struct answer a = make_answer();
	auto_free char *two = mem_zalloc(2 * strlen(a.leaf) + 1);
	strcat(strcpy(two, a.leaf), a.leaf);
	auto_free char *cut = mem_strdup(a.leaf);
	cut[strlen(cut) / 2] = '\0';
	auto_free char *huge = mem_zalloc(256 * 1024 + 2);
	memset(huge, '\n', 256 * 1024 + 1);
	const struct {
		const char *text, *why;
	} bad[] = {
	    {"", "no certificate in it"},
	    {"garbage", "no certificate in it"},
	    {"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not a PEM"},
	    {"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n", "not a PEM"},
	    {two, "more than 1 certificate"},
	    {cut, "not a PEM"},
	    {ours.key_pem, "not a PEM"},
	    {ours.csr_pem, "not a PEM"},
	    {huge, "more than 262144"},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct err e;
		const char *first[] = {bad[i].text, a.inter, a.root};
		assert_refused(check_elements(first, 3, &e), &e, bad[i].why);
		assert_non_null(strstr(e.msg, "element 1 of"));
		const char *middle[] = {a.leaf, bad[i].text, a.root};
		assert_refused(check_elements(middle, 3, &e), &e, bad[i].why);
		const char *last[] = {a.leaf, a.inter, bad[i].text};
		if (bad[i].text !=
		    two) /* several roots are fine; that these are none is seen later */
			assert_refused(check_elements(last, 3, &e), &e, bad[i].why);
	}
	drop_answer(&a);
}

/* The right certificate under another label, with a PEM header, or with a byte behind it. */
static void test_relabelled(void **state)
{
	(void)state;
	struct answer a = make_answer();
	BIO *in = BIO_new_mem_buf(a.leaf, -1);
	char *type, *header;
	unsigned char *der;
	long len;
	assert_true(PEM_read_bio(in, &type, &header, &der, &len));
	der = OPENSSL_realloc(der, (size_t)len + 1);
	der[len] = 0;
	static const struct {
		const char *type, *header;
		int extra;
	} kinds[] = {{"CERTIFICATE", "", 0}, {"X509 CERTIFICATE", "", 0},
	    {"TRUSTED CERTIFICATE", "", 0}, {"CERTIFICATE", "Name: x\n", 0},
	    {"CERTIFICATE", "", 1}};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		BIO *out = BIO_new(BIO_s_mem());
		struct err e;
		PEM_write_bio(out, kinds[i].type, kinds[i].header, der, len + kinds[i].extra);
		BIO_write(out, "", 1);
		char *text;
		BIO_get_mem_data(out, &text);
		const char *chain[] = {text, a.inter, a.root};
		int rc = check_elements(chain, 3, &e);
		if (i == 0)
			assert_int_equal(rc, 0);
		else
			assert_refused(rc, &e, "not a PEM certificate");
		BIO_free(out);
	}
	BIO_free(in);
	OPENSSL_free(type), OPENSSL_free(header), OPENSSL_free(der);
	drop_answer(&a);
}

/* --- PEM --- */

static void test_normalise(void **state)
{
	(void)state;
	struct answer a = make_answer();
	struct err e = {0};
	auto_free char *text =
	    mem_printf("# our roots\r\n%s\n\nsubject: x\n%strailing", a.root, a.other_root);
	auto_free char *expected = mem_printf("%s%s", a.root, a.other_root);
	auto_free char *got = x509_normalise_pem(text, strlen(text), &e);
	assert_non_null(got);
	assert_string_equal(got, expected);
	auto_free char *again = x509_normalise_pem(got, strlen(got), &e);
	assert_string_equal(again, expected);
	drop_answer(&a);
}

/* Windows line ends become ours, and a file without a last line end is whole. */
static void test_normalise_line_ends(void **state)
{
	(void)state;
	struct err e = {0};
	auto_free char *pem = pem_of(root.cert);
	auto_free char *crlf = mem_zalloc(2 * strlen(pem) + 1);
	char *out = crlf;
	for (const char *p = pem; *p; p++) {
		if (*p == '\n')
			*out++ = '\r';
		*out++ = *p;
	}
	auto_free char *got = x509_normalise_pem(crlf, strlen(crlf), &e);
	assert_string_equal(got, pem);
	auto_free char *open = x509_normalise_pem(pem, strlen(pem) - 1, &e);
	assert_string_equal(open, pem);
}

static void test_normalise_limits(void **state)
{
	(void)state;
	struct err e;
	auto_free char *one = pem_of(root.cert);
	size_t len = strlen(one);
	auto_free char *many = mem_zalloc(65 * len + 1);
	for (int i = 0; i < 65; i++)
		memcpy(many + (size_t)i * len, one, len);
	auto_free char *all = x509_normalise_pem(many, 64 * len, &e);
	assert_string_equal(all, (many[64 * len] = '\0', many));
	many[64 * len] = '-';
	assert_null(x509_normalise_pem(many, 65 * len, &e));
	assert_non_null(strstr(e.msg, "more than 64 certificates"));
	assert_null(x509_normalise_pem("", 0, &e));
	assert_non_null(strstr(e.msg, "no certificate"));
	assert_null(x509_normalise_pem(ours.key_pem, strlen(ours.key_pem), &e)); /* never a key */
	assert_int_equal(ERR_peek_error(), 0);
}

/* What agentctl and --check say of roots: when the first ends, and the last. */
static void test_life_of_a_text(void **state)
{
	struct answer a = make_answer();
	auto_free char *both = mem_printf("%s%s", a.leaf, a.root);
	struct x509_life one, life;

	(void)state;
	x509_pem_life(a.leaf, &one);
	x509_pem_life(both, &life);
	assert_int_equal(one.n, 1);
	assert_int_equal(life.n, 2);
	assert_true(one.first_end > NOW && one.first_end == one.last_end);
	assert_int_equal(life.first_end, one.first_end);
	x509_pem_life(a.root, &one);
	assert_true(one.first_end > life.first_end);
	assert_int_equal(life.last_end, one.last_end);
	x509_pem_life("garbage", &life);
	assert_int_equal(life.n + life.first_end + life.last_end, 0);
	assert_int_equal(ERR_peek_error(), 0);
	drop_answer(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_request_of_each_type),
	    cmocka_unit_test(test_no_such_type),
	    cmocka_unit_test(test_each_request_has_its_own_key),
	    cmocka_unit_test(test_good),
	    cmocka_unit_test(test_life_of_a_text),
	    cmocka_unit_test(test_other_identity),
	    cmocka_unit_test(test_hidden_names),
	    cmocka_unit_test(test_ca_is_no_leaf),
	    cmocka_unit_test(test_what_envoy_refuses),
	    cmocka_unit_test(test_ends_of_its_path),
	    cmocka_unit_test(test_malformed_extension),
	    cmocka_unit_test(test_usage),
	    cmocka_unit_test(test_life),
	    cmocka_unit_test(test_serial),
	    cmocka_unit_test(test_other_key),
	    cmocka_unit_test(test_learned_trust_domain),
	    cmocka_unit_test(test_number_of_elements),
	    cmocka_unit_test(test_roots),
	    cmocka_unit_test(test_root_that_another_signed),
	    cmocka_unit_test(test_bad_issuers),
	    cmocka_unit_test(test_damaged_leaf),
	    cmocka_unit_test(test_garbage),
	    cmocka_unit_test(test_relabelled),
	    cmocka_unit_test(test_normalise),
	    cmocka_unit_test(test_normalise_line_ends),
	    cmocka_unit_test(test_normalise_limits),
	};
	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
