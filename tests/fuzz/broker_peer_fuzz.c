/* broker_peer_fuzz.c - any bytes as /proc/PID/stat: its second field is a name that the process
 * chose. */
#include "broker/pods/peer.c" /* its statics */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (began(text) < -1 || (!strchr(text, ')') && began(text) != -1))
		abort();
	free(text);
	return 0;
}
