/* pair_fuzz.c - any bytes as the file that holds an identity: refused with a reason, or taken as
 * one key and one chain for exactly the identity that is asked for.
 *
 * What is accepted is written and read again to the same.  The roots are in the input's own hands:
 * an input is the roots, a NUL, the file.
 */
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "worker/crypto/pair.h"
#include <openssl/err.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int promise)
{
	if (!promise)
		abort();
}

static void check_accepted(const struct pair *p, const struct pair_wanted *w)
{
	char *file = pair_write_file(p->key_pem, p->chain_pem);
	struct pair again = {0};
	struct err e;

	must(!strcmp(p->id.ns, w->ns) && !strcmp(p->id.sa, w->sa));
	must(!strcmp(p->id.trust_domain, w->trust_domains)); /* one */
	must(p->leaf.not_before <= w->now_s && p->leaf.not_after > w->now_s);
	must(!pair_read_file(&again, file, strlen(file), w, &e));
	must(!strcmp(again.key_pem, p->key_pem) && !strcmp(again.chain_pem, p->chain_pem));
	pair_clear(&again);
	secret_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *split = size ? memchr(data, '\0', size) : NULL;
	auto_free char *roots =
	    split ? mem_printf("%.*s", (int)(split - (const char *)data), (const char *)data)
		  : NULL;
	const char *file = split ? split + 1 : (const char *)data;
	int64_t begins = -1;
	const struct pair_wanted w = {
	    "cluster.local", "demo", "web", roots ? roots : "", 1700000000, &begins};
	struct pair p = {0};
	struct err e = {0};

	if (pair_read_file(&p, file, size - (size_t)(file - (const char *)data), &w, &e))
		must(*e.msg && !p.key_pem && !p.chain_pem);
	else
		check_accepted(&p, &w);
	must(begins == 0 || begins > w.now_s);
	must(!ERR_peek_error());
	pair_clear(&p);
	return 0;
}
