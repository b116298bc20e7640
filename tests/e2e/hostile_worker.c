/* hostile_worker.c - in agentd-worker's place: gives its end of the broker's socket to the test.
 *
 * The test's address is in the file that the broker took for the configuration.  What the test does
 * with the socket the broker cannot tell from what a worker does that somebody took over: this
 * process keeps its end too, and lives until the test hangs up or the broker kills it.
 */
#include "border/protocol.h"
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Sizes as this release compiles them, for the test to check its own against. */
static int hand_over(int to)
{
	uint32_t sizes[2] = {sizeof(struct link_request), sizeof(struct link_packet)};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = sizes, .iov_len = sizeof(sizes)};
	struct msghdr msg = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int fd = LINK_FD;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(to, &msg, 0) == sizeof(sizes) ? 0 : -1;
}

int main(void)
{
	struct sockaddr_un test = {.sun_family = AF_UNIX};
	int to = socket(AF_UNIX, SOCK_STREAM, 0);
	char byte;

	if (read(LINK_CONFIG_FD, test.sun_path, sizeof(test.sun_path) - 1) <= 0 ||
	    connect(to, (struct sockaddr *)&test, sizeof(test)) || hand_over(to))
		return 3;
	return read(to, &byte, 1) < 0;
}
