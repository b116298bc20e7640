/* broker_listeners_fuzz.c - any bytes as a line of a pod's /proc/net/tcp: who listens there is the
 * pod's choice.
 */
#include "broker/redirect/listeners.c" /* its statics */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct line l;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	parse(text, &l);
	free(text);
	return 0;
}
