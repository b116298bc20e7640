/* tls.h - a server's certificate and its key, as what its connections are made of: TLS 1.2 or 1.3,
 * forward secrecy, HTTP/1.1; no renegotiation, no tickets, no sessions.
 */
#pragma once
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

struct err;

enum { TLS_CHAIN_MAX = 10, TLS_CLIENT_CAS_MAX = 100 };

struct tls_pair {
	const char *chain_pem, *key_pem; /* the leaf first; no passphrase */
	int64_t now_s;
};
/* -1: it is no pair, or not valid now.  The caller frees `*out`; `*expires_s`: the leaf's end. */
int tls_context_new(SSL_CTX **out, int64_t *expires_s, const struct tls_pair *p, struct err *e);
/* Without a certificate: every handshake fails. */
SSL_CTX *tls_context_empty(void);
/* CAs in PEM, 100 at most, for tls_clients_ask(); the caller frees it.  NULL: there is none. */
X509_STORE *tls_clients_new(const char *cas_pem, struct err *e);
/* A client may have a certificate; one of none of these CAs ends the handshake. */
void tls_clients_ask(SSL_CTX *tls, X509_STORE *clients);
bool tls_client_is_known(const SSL *ssl); /* it had one */
/* Is the leaf for this name?  `why` says for which it is. */
int tls_check_name(const char *chain_pem, const char *name, struct err *e);
