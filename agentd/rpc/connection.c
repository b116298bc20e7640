/* connection.c - a connection that was given to a server, by its fd's number and its inode. */
#include "server.h"
#include "sink.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number may be another's by now: grpc closes a connection when its peer goes. */
static bool is_open(int fd, ino_t inode)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && S_ISSOCK(st.st_mode) && st.st_ino == inode;
}

bool rpc_connection_is_open(const struct rpc_connection *c)
{
	return is_open(c->fd, c->inode);
}

void rpc_connection_cut(const struct rpc_connection *c)
{
	int fd = c->fd < 0 ? -1 : fcntl(c->fd, F_DUPFD_CLOEXEC, 0);

	/* Looked at and shut down is the copy, which nobody can close and open as another. */
	if (is_open(fd, c->inode)) {
		shutdown(fd, SHUT_RDWR);
		sink_close(fd); /* grpc may have closed its own meanwhile */
	} else if (fd >= 0) {
		close(fd);
	}
}
