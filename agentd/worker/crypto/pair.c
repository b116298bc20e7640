/* pair.c - the key is read -> the chain is cut into its certificates -> with the plane's roots as
 * the last element it is looked at as an answer of istiod is.
 */
#include "pair.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include <stdint.h>
#include <string.h>

enum { TTL_MAX_S = INT32_MAX };

static const char begin[] = "-----BEGIN CERTIFICATE-----";
static const char end[] = "-----END CERTIFICATE-----\n";

/* Cuts a normalised text in place of its ends; returns how many, -1: too many. */
static int cut(const char *pem, char *out[PAIR_CERTIFICATES_MAX])
{
	int n = 0;

	for (const char *stop; (stop = strstr(pem, end)); pem = stop + strlen(end)) {
		if (n == PAIR_CERTIFICATES_MAX)
			return -1;
		out[n++] = mem_printf("%.*s", (int)(stop + strlen(end) - pem), pem);
	}
	return n;
}

static int check(struct pair *p, const struct pair_wanted *w, struct err *e)
{
	char *elements[PAIR_CERTIFICATES_MAX + 1] = {NULL};
	int n = cut(p->chain_pem, elements), rc = -1;
	struct x509_answer answer = {.chain = (const char *const *)elements,
	    .key_pem = p->key_pem,
	    .expect_td = *w->trust_domains ? w->trust_domains : NULL,
	    .now_s = w->now_s,
	    .ttl_max_s = TTL_MAX_S};

	if (n < 0) {
		err_set(e, ERR_INVALID, "more than %d certificates", PAIR_CERTIFICATES_MAX);
	} else if (!identity_set(&p->id, "cluster.local", w->ns, w->sa, e)) { /* td: its own */
		elements[n] = mem_strdup(w->roots_pem);
		answer.n = (size_t)n + 1;
		rc = x509_check_chain(&answer, &p->id, &p->leaf, e);
	}
	for (int i = 0; i <= PAIR_CERTIFICATES_MAX; i++)
		free(elements[i]);
	return rc;
}

/* An answer of istiod may be a minute early; what is shown to it may not. */
static int check_begin(const struct pair *p, const struct pair_wanted *w, struct err *e)
{
	struct x509_leaf leaf;

	if (x509_read_leaf(p->chain_pem, strlen(p->chain_pem), &leaf, e))
		return err_wrap(e, "certificate");
	if (leaf.not_before <= w->now_s)
		return 0;
	*w->begins_s = leaf.not_before;
	return err_set(e, ERR_INVALID,
	    "certificate refused: it is not valid yet (in %lld s; is the clock right?)",
	    (long long)(leaf.not_before - w->now_s));
}

int pair_read(
    struct pair *p, const struct pair_text *from, const struct pair_wanted *w, struct err *e)
{
	struct pair made = {0};

	*w->begins_s = 0;
	if (!w->roots_pem)
		return err_set(e, ERR_UNAVAILABLE,
		    "the control plane's roots are not known (they have to be a file: "
		    "--root-file)");
	if (!(made.key_pem = x509_normalise_key(from->key, from->key_size, e)))
		return err_wrap(e, "key");
	if (!(made.chain_pem = x509_normalise_pem(from->chain, from->chain_size, e)))
		err_wrap(e, "certificate");
	if (!made.chain_pem || check_begin(&made, w, e) || check(&made, w, e)) {
		pair_clear(&made);
		return -1;
	}
	*p = made;
	return 0;
}

int pair_read_file(
    struct pair *p, const char *text, size_t size, const struct pair_wanted *w, struct err *e)
{
	const char *chain = memmem(text, size, begin, strlen(begin));
	size_t key_size = chain ? (size_t)(chain - text) : size;
	const struct pair_text t = {text, text + key_size, key_size, size - key_size};

	return pair_read(p, &t, w, e);
}

char *pair_write_file(const char *key_pem, const char *chain_pem)
{
	size_t key = strlen(key_pem), chain = strlen(chain_pem);
	char *both = mem_zalloc(key + chain + 1), *text;

	mempcpy(mempcpy(both, key_pem, key), chain_pem, chain);
	text = secret_new(both, key + chain);
	mem_wipe_free(both);
	return text;
}

void pair_clear(struct pair *p)
{
	secret_free(take(p->key_pem));
	free(take(p->chain_pem));
	*p = (struct pair){0};
}
