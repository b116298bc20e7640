/* cert_store_fuzz.c - a kept certificate that is anything.
 *
 * The digest is put right first, as nothing would get behind it otherwise.  Whatever is accepted
 * is written again byte for byte, and its sizes are those of its texts.
 */
#include "common/err.h"
#include "common/mem.h"
#include "worker/certs/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DIGEST_AT = 19, BODY_AT = DIGEST_AT + 2 * X509_SHA256_SIZE + 1 };

static void put_digest_right(char *text, size_t size)
{
	uint8_t digest[X509_SHA256_SIZE];
	char hex[3];

	if (size <= BODY_AT)
		return;
	x509_sha256(text + BODY_AT, size - BODY_AT, digest);
	for (int i = 0; i < X509_SHA256_SIZE; i++) {
		snprintf(hex, sizeof(hex), "%02x", digest[i]);
		memcpy(text + DIGEST_AT + 2 * (ptrdiff_t)i, hex, 2);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = mem_zalloc(size + 1);
	struct cert_stored s;
	struct err e;
	size_t again_size, sum = 0;

	memcpy(text, data, size);
	put_digest_right(text, size);
	if (cert_store_read(&s, text, size, &e))
		return 0;
	auto_free char *again = cert_store_write(&s, &again_size);
	if (!again || again_size != size || memcmp(again, text, size) != 0)
		abort();
	for (size_t i = 0; i < s.n; i++)
		sum += s.element_size[i];
	if (sum != strlen(s.chain_pem) || s.spec.key.type > X509_RSA_4096)
		abort();
	cert_stored_clear(&s);
	return 0;
}
