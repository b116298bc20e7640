/* writer.c - a child writes, and says how it went. */
#include "writer.h"
#include "common/err.h"
#include "common/mem.h"
#include "durable.h"
#include <fcntl.h>
#include <limits.h>
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

static void be_child(const struct broker_place *at, int memfd, int out)
{
	struct err e = {0};

	close_all_but((unsigned)memfd, (unsigned)out);
	if (broker_durable_write(at, memfd, &e) && !e.code)
		e.code = ERR_UNAVAILABLE;
	_exit(write(out, &e, sizeof(e)) != sizeof(e));
}

int writer_start(const struct broker_place *at, int memfd, struct err *e)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return err_sys(e, "pipe");
	auto_close int in = ends[0], out = ends[1];
	if ((pid = fork()) < 0)
		return err_sys(e, "fork");
	if (!pid)
		be_child(at, memfd, out);
	return take_fd(in);
}
