/* tls.c - see tls.h. */
#include "tls.h"
#include "common/err.h"
#include "common/mem.h"
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

static int refuse(struct err *e, const char *what)
{
	char text[160];
	unsigned long code = ERR_peek_last_error();

	ERR_error_string_n(code, text, sizeof(text));
	ERR_clear_error();
	return code ? err_set(e, ERR_INVALID, "%s: %s", what, text)
		    : err_set(e, ERR_INVALID, "%s", what);
}

/* The empty passphrase keeps OpenSSL from asking on the terminal. */
static char no_passphrase[] = "";

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
    const unsigned char *offered, unsigned int len, void *ctx)
{
	static const unsigned char http[] = "\x08http/1.1";

	(void)ssl;
	(void)ctx;
	if (SSL_select_next_proto((unsigned char **)out, out_len, http, sizeof(http) - 1, offered,
		len) == OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_OK;
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

SSL_CTX *tls_context_empty(void)
{
	SSL_CTX *tls = SSL_CTX_new(TLS_server_method());

	if (!tls)
		abort();
	SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
	SSL_CTX_set_cipher_list(tls, "ECDHE+AESGCM:ECDHE+CHACHA20");
	SSL_CTX_set_options(
	    tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_num_tickets(tls, 0);
	SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(tls, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
	return tls;
}

/* --- the pair --- */

static int64_t seconds_of(const ASN1_TIME *t)
{
	struct tm tm = {0};

	return ASN1_TIME_to_tm(t, &tm) ? timegm(&tm) : 0;
}

static int check_times(const X509 *leaf, int64_t now_s, int64_t *expires_s, struct err *e)
{
	char text[32];
	time_t begin = seconds_of(X509_get0_notBefore(leaf));
	time_t end = seconds_of(X509_get0_notAfter(leaf));
	time_t at = now_s < begin ? begin : end;
	struct tm tm;

	*expires_s = end;
	if (now_s >= begin && now_s < end)
		return 0;
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
	return err_set(e, ERR_INVALID, "the certificate %s %s",
	    now_s < begin ? "is not valid before" : "expired at", text);
}

/* The first is the leaf. */
static int use_chain(SSL_CTX *tls, const struct tls_pair *p, int64_t *expires_s, struct err *e)
{
	BIO *bio = BIO_new_mem_buf(p->chain_pem, -1);
	X509 *cert = NULL;
	int n = 0, rc = 0;

	while (!rc && (cert = PEM_read_bio_X509(bio, NULL, NULL, no_passphrase))) {
		if (n++ == 0)
			rc = SSL_CTX_use_certificate(tls, cert) == 1
				 ? check_times(cert, p->now_s, expires_s, e)
				 : refuse(e, "the certificate");
		else if (n > TLS_CHAIN_MAX)
			rc = err_set(e, ERR_INVALID, "more than %d certificates", TLS_CHAIN_MAX);
		else if (SSL_CTX_add1_chain_cert(tls, cert) != 1)
			rc = refuse(e, "an intermediate certificate");
		X509_free(cert);
	}
	BIO_free(bio);
	if (!rc && !n)
		rc = err_set(e, ERR_INVALID, "no certificate in PEM");
	ERR_clear_error(); /* the end of the file is one to PEM_read */
	return rc;
}

static int use_key(SSL_CTX *tls, const char *pem, struct err *e)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, no_passphrase);
	int rc = 0;

	if (!key)
		rc = refuse(e, "no private key in PEM without a passphrase");
	else if (SSL_CTX_use_PrivateKey(tls, key) != 1 || SSL_CTX_check_private_key(tls) != 1)
		rc = refuse(e, "the key is not the certificate's");
	EVP_PKEY_free(key);
	BIO_free(bio);
	return rc;
}

int tls_context_new(SSL_CTX **out, int64_t *expires_s, const struct tls_pair *p, struct err *e)
{
	SSL_CTX *tls = tls_context_empty();

	if (use_chain(tls, p, expires_s, e) || use_key(tls, p->key_pem, e)) {
		SSL_CTX_free(tls);
		return -1;
	}
	*out = tls;
	return 0;
}

/* --- clients --- */

X509_STORE *tls_clients_new(const char *cas_pem, struct err *e)
{
	BIO *bio = BIO_new_mem_buf(cas_pem, -1);
	X509_STORE *store = X509_STORE_new();
	X509 *ca;
	int n = 0;

	if (!bio || !store)
		abort(); /* no memory */
	while (
	    n <= TLS_CLIENT_CAS_MAX && (ca = PEM_read_bio_X509(bio, NULL, NULL, no_passphrase))) {
		n += X509_STORE_add_cert(store, ca) == 1;
		X509_free(ca);
	}
	BIO_free(bio);
	ERR_clear_error(); /* the end of the file is one to PEM_read */
	if (n && n <= TLS_CLIENT_CAS_MAX)
		return store;
	X509_STORE_free(store);
	err_set(e, ERR_INVALID, "%s %d certificates of CAs in PEM",
	    n ? "more than" : "not one of up to", TLS_CLIENT_CAS_MAX);
	return NULL;
}

void tls_clients_ask(SSL_CTX *tls, X509_STORE *clients)
{
	if (SSL_CTX_set1_verify_cert_store(tls, clients) != 1)
		abort();
	SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
}

bool tls_client_is_known(const SSL *ssl)
{
	return SSL_get0_peer_certificate(ssl) && SSL_get_verify_result(ssl) == X509_V_OK;
}

int tls_check_name(const char *chain_pem, const char *name, struct err *e)
{
	BIO *bio = BIO_new_mem_buf(chain_pem, -1);
	X509 *leaf = PEM_read_bio_X509(bio, NULL, NULL, no_passphrase);
	int rc = 0;

	/* An API server looks at no subject (injection.md 1). */
	if (!leaf || X509_check_host(leaf, name, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) != 1)
		rc = err_set(e, ERR_INVALID,
		    "the certificate is not for %s: no subjectAltName DNS:%s", name, name);
	X509_free(leaf);
	BIO_free(bio);
	ERR_clear_error();
	return rc;
}
