/* broker_tcp_list_fuzz.c - any bytes as a line of a pod's /proc/net/tcp: who listens there is the
 * pod's choice.
 * SOAK: 10000000 runs
 */
#include "broker/redirect/tcp_list.c" /* its statics */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct redirect_tcp_socket s;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	parse(text, &s);
	free(text);
	return 0;
}
