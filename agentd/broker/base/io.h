/* io.h - packets to and from the worker, and sealed files. */
#pragma once
#include "border/protocol.h"
#include "common/err.h"
#include <stdbool.h>
#include <sys/types.h>

enum broker_got { BROKER_GOT_REQUEST, BROKER_GOT_NOTHING, BROKER_GOT_EOF, BROKER_GOT_GARBAGE };

struct broker_request {
	struct link_request r;
	int nfds;
	int fd;       /* the first one, the receiver's: for apart.h; -1 */
	bool lost_fd; /* we had no room for it: not the worker's fault */
	bool hoards;  /* it sends more than can be closed */
};
/* GARBAGE: not a packet of the right size. */
enum broker_got broker_io_receive(int sock, struct broker_request *req, struct err *e);

/* Would a packet fit?  Ours is the only writer, so after `true` one send cannot find it full. */
bool broker_io_writable(int sock);

/* Copies `size` bytes, or up to the end, from offset 0 of a file; the copy is FNV-1a hashed. */
struct broker_copy {
	size_t size;
	uint64_t digest;
};
int broker_io_copy(int from, int to, size_t max, struct broker_copy *done, struct err *e);
int broker_io_seal(int memfd, struct err *e);
