/* broker_dns_query_fuzz.c - any datagram at the DNS socket of a pod that no worker serves: the
 * answer is the question with "server failure" in its header, or there is none.
 * SOAK: 10000000 runs
 */
#include "broker/netns/pod_sockets.c" /* its statics */
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int server = -1, client = -1;

static void must(bool held)
{
	if (!held)
		abort();
}

static int no_mark(void *ctx, const struct uuid *pod, int socket, bool answered, struct err *e)
{
	(void)ctx, (void)pod, (void)socket, (void)answered, (void)e;
	return 0;
}

static void start(void)
{
	static const struct pod_sockets_rig rig = {.mark = no_mark};
	static const struct pod_sockets_place place = {.netns = -1};
	struct making m = {.rig = &rig, .at = &place, .type = SOCK_DGRAM, .fd = -1};
	struct sockaddr_in6 at = {.sin6_family = AF_INET6};
	socklen_t size = sizeof(at);
	struct err e;

	must(!make_there(&m, &e) && !getsockname(m.fd, (struct sockaddr *)&at, &size));
	server = m.fd;
	at.sin6_addr = in6addr_loopback;
	client = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	must(client >= 0 && !connect(client, (struct sockaddr *)&at, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t answer[MESSAGE_MAX + 1];
	bool is_query = size >= HEADER && size <= MESSAGE_MAX && !(data[FLAGS] & IS_ANSWER);

	if (server < 0)
		start();
	if (size > MESSAGE_MAX + 100 || send(client, data, size, 0) != (ssize_t)size)
		return 0;
	must(refuse_query(server) && !refuse_query(server));
	ssize_t n = recv(client, answer, sizeof(answer), MSG_DONTWAIT);
	must((n == (ssize_t)size) == is_query || !size);
	if (n < HEADER)
		return 0;
	must(answer[FLAGS] == (data[FLAGS] | IS_ANSWER) && answer[FLAGS + 1] == SERVER_FAILURE);
	must(!memcmp(answer, data, FLAGS) &&
	     !memcmp(answer + FLAGS + 2, data + FLAGS + 2, size - FLAGS - 2));
	return 0;
}
