/* open_fds.c - see open_fds.h. */
#include "open_fds.h"
#include <poll.h>

enum { FDS_MAX = 256 };

int open_fds(void)
{
	struct pollfd fds[FDS_MAX];
	int n = 0;

	for (int fd = 0; fd < FDS_MAX; fd++)
		fds[fd] = (struct pollfd){.fd = fd};
	poll(fds, FDS_MAX, 0); /* one call for all of them */
	for (int fd = 0; fd < FDS_MAX; fd++)
		n += !(fds[fd].revents & POLLNVAL);
	return n;
}
