/* broker_dns_query_fuzz.c - any datagram at the DNS socket of a pod that no worker serves: the
 * answer is the question with "server failure" in its header, or there is none.
 * SOAK: 10000000 runs
 */
#include "broker/netns/pod_sockets.c" /* its statics */
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PATIENCE_MS = 1000, TRIES = 10 };

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

/* Anybody may send to a port of the machine. */
static void own_network(void)
{
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int s;

	must(!unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNET : CLONE_NEWNET));
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	must(s >= 0 && !ioctl(s, SIOCSIFFLAGS, &lo));
	close(s);
}

static void start(void)
{
	static const struct pod_sockets_rig rig = {.mark = no_mark};
	static const struct pod_sockets_place place = {.netns = -1};
	struct making m = {.rig = &rig, .at = &place, .type = SOCK_DGRAM, .fd = -1};
	struct sockaddr_in6 at = {.sin6_family = AF_INET6};
	socklen_t size = sizeof(at);
	struct err e;

	own_network();
	must(!make_there(&m, &e) && !getsockname(m.fd, (struct sockaddr *)&at, &size));
	server = m.fd;
	at.sin6_addr = in6addr_loopback;
	client = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	must(client >= 0 && !connect(client, (struct sockaddr *)&at, size));
}

static bool comes(int socket)
{
	struct pollfd p = {.fd = socket, .events = POLLIN};
	int n;

	while ((n = poll(&p, 1, PATIENCE_MS)) < 0 && errno == EINTR)
		; /* by libFuzzer's own clock */
	return n == 1;
}

/* Asked again, as a resolver's client would: the kernel drops datagrams of loopback, too, when its
 * backlog is full of all the machine's (softnet_stat).  The answer's size; -1: there is none. */
static ssize_t ask(const uint8_t *data, size_t size, bool is_query, uint8_t *answer)
{
	for (int i = 0; i < TRIES; i++) {
		if (send(client, data, size, 0) != (ssize_t)size || !comes(server))
			continue;
		must(refuse_query(server) && !refuse_query(server));
		if (!is_query || comes(client))
			return recv(client, answer, MESSAGE_MAX + 1, MSG_DONTWAIT);
	}
	abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t answer[MESSAGE_MAX + 1];
	bool is_query = size >= HEADER && size <= MESSAGE_MAX && !(data[FLAGS] & IS_ANSWER);

	if (server < 0)
		start();
	if (size > MESSAGE_MAX + 100)
		return 0;
	must(ask(data, size, is_query, answer) == (is_query ? (ssize_t)size : -1));
	if (!is_query)
		return 0;
	must(answer[FLAGS] == (data[FLAGS] | IS_ANSWER) && answer[FLAGS + 1] == SERVER_FAILURE);
	must(!memcmp(answer, data, FLAGS) &&
	     !memcmp(answer + FLAGS + 2, data + FLAGS + 2, size - FLAGS - 2));
	return 0;
}
