/* broker_tcp_list_fuzz.c - any bytes as a line of a pod's /proc/net/tcp: who listens there is the
 * pod's choice.
 *
 * A socket that is written as the kernel writes it is read as it was.
 * SOAK: 10000000 runs
 */
#include "broker/ebpf/tcp_list.c" /* its statics */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_address(char out[33], const struct redirect_address *a, bool v6)
{
	for (int i = v6 ? 0 : 3; i < 4; i++)
		snprintf(out + strlen(out), 9, "%08X", a->word[i]);
}

static void there_and_back(const uint8_t *data, size_t size)
{
	struct redirect_tcp_socket was, is;
	char text[512], address[33] = "", remote[33] = "";
	bool v6 = size & 1;

	if (size < sizeof(was))
		return;
	memcpy(&was, data, sizeof(was));
	was.port &= 0xffff;
	was.state &= 0xff;
	for (int i = 0; i < 3 && !v6; i++)
		was.address.word[i] = was.remote.word[i] = i == 2 ? htobe32(0xffff) : 0;
	write_address(address, &was.address, v6);
	write_address(remote, &was.remote, v6);
	snprintf(text, sizeof(text),
	    "%4d: %s:%04X %s:%04X %02X %08X:%08X %02X:%08X %08X %5u %8d %u\n", 7, address, was.port,
	    remote, 9U, was.state, 1U, 2U, 3U, 4U, 5U, was.uid, 6, 8U);
	if (!parse(text, &is) || memcmp(&was, &is, sizeof(was)) != 0)
		abort();
}

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
	there_and_back(data, size);
	return 0;
}
