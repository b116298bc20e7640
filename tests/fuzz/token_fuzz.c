/* token_fuzz.c - the claims of a hostile token file.
 *
 * An input that starts with '{' is a payload, which is put into base64url here: the fuzzer does not
 * get through that by itself.  A token that is accepted is one for its own claims, and nothing of a
 * refused one is in the message.
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/identity.h"
#include "worker/crypto/token.h"
#include <stdlib.h>
#include <string.h>

enum { QUOTED = 12 };

static size_t encode(char *out, const uint8_t *data, size_t size)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	size_t n = 0;

	out[n++] = 'h';
	out[n++] = '.';
	for (size_t bit = 0; bit < size * 8; bit += 6) {
		unsigned two = (unsigned)data[bit / 8] << 8;
		two |= bit / 8 + 1 < size ? data[bit / 8 + 1] : 0;
		out[n++] = digits[two >> (10 - bit % 8) & 63];
	}
	out[n++] = '.';
	out[n++] = 's';
	return n;
}

#define OTHER "11111111-2222-3333-4444-555555555555"

static void check_accepted(struct token *t)
{
	struct uuid pod;
	struct token_holder h = {t->ns, t->sa, &pod, .unbound = !*t->pod_uid};
	struct err e;

	if (strspn(t->jwt, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") !=
	    strlen(t->jwt))
		abort();
	if (t->expires <= 0 || !uuid_parse(&pod, h.unbound ? OTHER : t->pod_uid) ||
	    !identity_valid_ns(t->ns) || !identity_valid_sa(t->sa))
		abort();
	if (!token_check(t, &h, t->expires - 1, &e) != t->for_istio)
		abort();
	if (!token_check(t, &h, t->expires, &e))
		abort();
	h.unbound = false;
	if (!*t->pod_uid && !token_check(t, &h, t->expires - 1, &e))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_zalloc(size * 4 / 3 + 8);
	struct token t;
	struct err e = {0};
	size_t len = size;

	if (size && *data == '{')
		len = encode(text, data, size);
	else
		memcpy(text, data, size);
	if (token_parse(&t, text, len, &e) == 0)
		check_accepted(&t);
	else if (t.jwt || (len >= QUOTED && memmem(e.msg, strlen(e.msg), text, QUOTED)))
		abort();
	token_clear(&t);
	return 0;
}
