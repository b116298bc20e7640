/* tls_rig.h - what the fuzz targets of the injector's connections share: a certificate of
 * 127.0.0.1, which is its own root, and an end of a connection that says two parts, the second one
 * later.
 */
#pragma once
#include "base/loop.h"
#include "common/err.h"
#include "common/mem.h"
#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void must(bool held)
{
	if (!held)
		abort();
}

/* --- the certificate --- */

static inline char *rig_text(BIO *bio)
{
	char *text, *out;
	size_t n = (size_t)BIO_get_mem_data(bio, &text);

	out = mem_zalloc(n + 1);
	memcpy(out, text, n);
	BIO_free(bio);
	return out;
}

struct rig_pair {
	EVP_PKEY *key;
	X509 *cert;
	char *key_pem, *cert_pem;
};

static inline void rig_pair_make(struct rig_pair *p)
{
	BIO *key = BIO_new(BIO_s_mem()), *cert = BIO_new(BIO_s_mem());
	X509_EXTENSION *name =
	    X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");

	p->key = EVP_EC_gen("P-256");
	p->cert = X509_new();
	X509_set_version(p->cert, X509_VERSION_3);
	X509_gmtime_adj(X509_getm_notBefore(p->cert), -3600);
	X509_gmtime_adj(X509_getm_notAfter(p->cert), 86400);
	X509_set_pubkey(p->cert, p->key);
	must(name && X509_add_ext(p->cert, name, -1) && X509_sign(p->cert, p->key, EVP_sha256()));
	must(PEM_write_bio_X509(cert, p->cert));
	must(PEM_write_bio_PrivateKey(key, p->key, NULL, NULL, 0, NULL, NULL));
	X509_EXTENSION_free(name);
	p->key_pem = rig_text(key);
	p->cert_pem = rig_text(cert);
}

/* --- one end --- */

struct rig_end {
	struct loop *loop;
	struct bufferevent *bev; /* NULL: it is closed */
	const uint8_t *bytes;
	size_t cut, size;
	unsigned said;                      /* parts */
	unsigned turns;                     /* still to be waited */
	void (*all_said)(struct rig_end *); /* some turns later */
};

enum { RIG_TURNS = 8 }; /* of the loop: until the other end has read what was written */

static inline void rig_end_close(struct rig_end *e)
{
	if (e->bev)
		bufferevent_free(take(e->bev));
}

static inline void rig_end_on_turn(void *ctx);

static inline void rig_end_wait(struct rig_end *e)
{
	e->turns = RIG_TURNS;
	loop_post(e->loop, rig_end_on_turn, e);
}

static inline void rig_end_say(struct rig_end *e)
{
	const uint8_t *from = e->said ? e->bytes + e->cut : e->bytes;
	size_t n = e->said ? e->size - e->cut : e->cut;

	e->said++;
	if (n && e->bev)
		bufferevent_write(e->bev, from, n);
	rig_end_wait(e);
}

static inline void rig_end_on_turn(void *ctx)
{
	struct rig_end *e = ctx;

	if (--e->turns)
		loop_post(e->loop, rig_end_on_turn, e);
	else if (e->said == 1)
		rig_end_say(e);
	else
		e->all_said(e);
}
