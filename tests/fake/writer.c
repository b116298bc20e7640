/* writer.c - broker/base/writer.h without a child, for tests that count descriptors or children. */
#include "broker/base/writer.h"
#include "broker/base/durable.h"
#include "common/err.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int writer_start(const struct broker_place *at, int memfd, struct err *e)
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
