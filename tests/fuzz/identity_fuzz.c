/* identity_fuzz.c - what is accepted is printed back as the very bytes that were read. */
#include "common/err.h"
#include "mesh/identity.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct identity id, again;
	struct err e;
	char uri[IDENTITY_URI_SIZE];

	if (identity_parse(&id, (const char *)data, size, &e))
		return 0;
	identity_uri(&id, uri);
	if (strlen(uri) != size || memcmp(uri, data, size) != 0)
		abort();
	if (identity_set(&again, id.trust_domain, id.ns, id.sa, &e) || !identity_equal(&id, &again))
		abort();
	return 0;
}
