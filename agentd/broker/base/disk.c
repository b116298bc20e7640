/* disk.c - a child writes or reads, and says how it went. */
#include "disk.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/mem.h"
#include "durable.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(sizeof(struct err) <= PIPE_BUF, "it comes in one piece");

/* A range without a descriptor is refused, which is as good. */
static void close_all_but(unsigned a, unsigned b)
{
	const unsigned low = a < b ? a : b, high = a < b ? b : a;

	close_range(STDERR_FILENO + 1, low - 1, 0);
	close_range(low + 1, high - 1, 0);
	close_range(high + 1, UINT_MAX, 0);
}

/* --- writing --- */

static void be_writer(const struct broker_place *at, int memfd, int out)
{
	struct err e = {0};

	close_all_but((unsigned)memfd, (unsigned)out);
	if (broker_durable_write(at, memfd, &e) && !e.code)
		e.code = ERR_UNAVAILABLE;
	_exit(write(out, &e, sizeof(e)) != sizeof(e));
}

int disk_write(const struct broker_place *at, int memfd, struct err *e)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return err_sys(e, "pipe");
	auto_close int in = ends[0], out = ends[1];
	if ((pid = fork()) < 0)
		return err_sys(e, "fork");
	if (!pid)
		be_writer(at, memfd, out);
	return take_fd(in);
}

/* --- reading --- */

static void be_reader(const struct broker_place *at, int out)
{
	struct broker_content c;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	close_all_but((unsigned)out, (unsigned)out);
	broker_file_read(at, &c);
	_exit(fdpass_send(out, &c, sizeof(c), c.fd) != 0);
}

int disk_read(const struct broker_place *at, struct err *e)
{
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
		return err_sys(e, "socketpair");
	auto_close int in = ends[0], out = ends[1];
	if ((pid = fork()) < 0)
		return err_sys(e, "fork");
	if (!pid)
		be_reader(at, out);
	return take_fd(in);
}

void disk_take(int fd, struct broker_content *out)
{
	struct fdpass_got got = {0};

	if (fdpass_receive(fd, out, sizeof(*out), MSG_DONTWAIT, &got) || got.size != sizeof(*out)) {
		*out = (struct broker_content){.state = LINK_FILE_REFUSED, .fd = -1, .digest = 2};
		err_set(&out->why, EIO, "the process that read it was killed");
		return;
	}
	out->fd = fdpass_first(&got);
	if (out->state == LINK_FILE_CONTENT && out->fd < 0) {
		out->state = LINK_FILE_REFUSED;
		err_set(&out->why, EMFILE, "no descriptor is left for it");
	}
}
