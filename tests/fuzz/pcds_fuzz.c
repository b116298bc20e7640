/* pcds_fuzz.c - a response of istiod as trust anchors.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c
 */
#include "common/err.h"
#include "tests/fake/rpc.h"
#include "worker/ads/pcds.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rpc_msg *m = fake_rpc_msg(data, size);
	struct err e = {0};
	char note[ROOTS_NOTE_SIZE];
	char *got = pcds_read(m, note, &e);

	if (!got && !*e.msg)
		abort();
	for (const char *at = note; *at; at++)
		if (*at < ' ' || *at > '~')
			abort();
	if (got && *got && !strstr(got, "-----BEGIN CERTIFICATE-----"))
		abort();
	free(got);
	fake_rpc_msg_free(&m);
	return 0;
}
