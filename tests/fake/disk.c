/* disk.c - broker/base/disk.h without a child, for tests that count descriptors or children. */
#include "broker/base/disk.h"
#include "broker/base/durable.h"
#include "common/err.h"
#include "common/fdpass.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int disk_write(const struct broker_place *at, int memfd, struct err *e)
{
	struct err how = {0};
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return err_sys(e, "pipe");
	(void)broker_durable_write(at, memfd, &how);
	if (write(ends[1], &how, sizeof(how)) != sizeof(how))
		abort();
	close(ends[1]);
	return ends[0];
}

int disk_read(const struct broker_place *at, struct err *e)
{
	struct broker_content c;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
		return err_sys(e, "socketpair");
	broker_file_read(at, &c);
	if (fdpass_send(ends[1], &c, sizeof(c), c.fd))
		abort();
	if (c.fd >= 0)
		close(c.fd);
	close(ends[1]);
	return ends[0];
}

void disk_take(int fd, struct broker_content *out)
{
	struct fdpass_got got;

	if (fdpass_receive(fd, out, sizeof(*out), MSG_DONTWAIT, &got))
		abort();
	out->fd = fdpass_first(&got);
}
