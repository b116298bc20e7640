/* cert.c - made from an answer, handed around by reference, wiped with the last of them. */
#include "cert.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "roots.h"
#include <string.h>
#include <time.h>

/* Envoy gets every element, the roots too; root = the last one (istio-agent.md 0.13). */
struct cert *cert_new(const char *const *chain, size_t n, struct err *e)
{
	struct cert *c = mem_zalloc(sizeof(*c));

	c->refs = 1;
	if (n > CERT_ELEMENTS_MAX) {
		err_set(e, ERR_INVALID, "certificate chain of %zu elements, more than %d", n,
		    CERT_ELEMENTS_MAX);
		cert_unref(&c);
		return NULL;
	}
	c->n = n;
	for (size_t i = 0; i < n; i++) {
		const bool last = i == n - 1;
		auto_free char *pem = last ? roots_read(chain[i], strlen(chain[i]), c->note, e)
					   : x509_normalise_pem(chain[i], strlen(chain[i]), e);
		auto_free char *before = take(c->chain_pem);

		if (!pem) {
			cert_unref(&c);
			return NULL;
		}
		c->chain_pem = mem_printf("%s%s", before ? before : "", pem);
		c->element_size[i] = strlen(pem);
		if (last)
			c->root_pem = take(pem);
	}
	return c;
}

struct cert *cert_ref(struct cert *c)
{
	c->refs++;
	return c;
}

void cert_unref(struct cert **cert)
{
	struct cert *c = take(*cert);

	if (!c || --c->refs)
		return;
	secret_free(c->key_pem);
	free(c->chain_pem);
	free(c->root_pem);
	free(c);
}

char *cert_time(int64_t unix_s, char out[CERT_TIME_SIZE])
{
	time_t t = (time_t)unix_s;
	struct tm tm;

	if (!gmtime_r(&t, &tm) || !strftime(out, CERT_TIME_SIZE, "%Y-%m-%dT%H:%M:%SZ", &tm))
		*out = 0; /* a year of more than four digits */
	return out;
}

json_t *cert_dump(const struct cert *c)
{
	char from[CERT_TIME_SIZE] = "", until[CERT_TIME_SIZE] = "", chain[CERT_TIME_SIZE] = "",
	     root[CERT_TIME_SIZE] = "";

	if (c) {
		cert_time(c->leaf.not_before, from);
		cert_time(c->leaf.not_after, until);
	}
	if (c && c->leaf.chain_ends)
		cert_time(c->leaf.chain_ends, chain);
	if (c && c->leaf.root_ends)
		cert_time(c->leaf.root_ends, root);
	return json_pack("{s:s, s:s, s:s, s:s, s:s}", "serial", c ? c->leaf.serial : "",
	    "not_before", from, "not_after", until, "chain_not_after", chain, "root_not_after",
	    root);
}
