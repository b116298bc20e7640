/* broker_nft_fuzz.c - any bytes as a part of nftables' list of chains: a pod that is root in its
 * network namespace names its tables and chains.
 * SOAK: 10000000 runs
 */
#include "broker/netns/iptables.c" /* its statics */
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = {.code = 0};
	char *part = malloc(size ? size : 1);

	if (!part)
		return 0;
	memcpy(part, data, size);
	if (check_part(part, size, &e) < 0 ? e.code != EEXIST || !strstr(e.msg, "istio") : e.code)
		abort();
	free(part);
	return 0;
}
