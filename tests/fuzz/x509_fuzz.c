/* x509_fuzz.c - a hostile answer of the CA: elements with a NUL between them.
 *
 * The key is made here, so no input is ever the right answer: the seeds are certificates that are
 * refused for their key alone.  Each element also goes through x509_normalise_pem, whose output
 * must be its own normal form.
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/identity.h"
#include "worker/crypto/x509.h"
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 8 };
/* When the seeds are valid. */
static const int64_t NOW = 1700000000, LIFE = 86400;

static const char *our_key(void)
{
	static struct x509_request r; /* reachable for ever: no leak */
	struct identity id;
	struct err e;

	if (!r.key_pem && (identity_set(&id, "cluster.local", "demo", "web", &e) ||
			      x509_make_request(&r, &(struct x509_key_params){0}, &id, &e)))
		abort();
	return r.key_pem;
}

static void check_normal_form(const char *pem)
{
	struct err e;
	auto_free char *once = x509_normalise_pem(pem, strlen(pem), &e);
	auto_free char *twice = once ? x509_normalise_pem(once, strlen(once), &e) : NULL;

	/* The normal form can be over the size limit that its source kept. */
	if (twice && strcmp(once, twice) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_zalloc(size + 1);
	const char *chain[ELEMENTS];
	struct identity id;
	struct x509_leaf leaf;
	struct err e;
	size_t n = 0;

	memcpy(text, data, size);
	for (char *at = text; at < text + size && n < ELEMENTS; at += strlen(at) + 1)
		chain[n++] = at;
	for (size_t i = 0; i < n; i++)
		check_normal_form(chain[i]);
	if (identity_set(&id, "cluster.local", "demo", "web", &e) ||
	    x509_check_chain(
		&(struct x509_answer){chain, n, our_key(), NULL, NOW, LIFE}, &id, &leaf, &e) == 0 ||
	    ERR_peek_error())
		abort();
	return 0;
}
