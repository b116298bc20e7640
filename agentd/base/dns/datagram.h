/* datagram.h - DNS over UDP on a wildcard socket: an answer leaves from the address that was
 * asked, or the client would not hear it (kernels.md 2).
 *
 * The socket has IPV6_RECVPKTINFO, or IP_PKTINFO if it is of IPv4.  A query to an address that is
 * not loopback came from outside.
 */
#pragma once
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Where an answer goes, and where it comes from. */
struct dns_way {
	struct sockaddr_storage client;
	socklen_t client_size;
	bool v6; /* `at6` counts; also of an IPv4 client of such a socket */
	struct in6_pktinfo at6;
	struct in_pktinfo at4;
};
/* The first that waits; it stays in the socket, so that the next owner of the socket finds the
 * queries that we did not answer.  Never blocks; -1: there is none.  `inside`: it came to a
 * loopback address. */
ssize_t dns_datagram_peek(int fd, uint8_t *data, size_t size, struct dns_way *w, bool *inside);
/* That one is done with. */
void dns_datagram_remove(int fd);
/* A socket that is full, or a client that is gone: it will ask again, or not. */
void dns_datagram_send(int fd, const struct dns_way *w, const uint8_t *data, size_t size);
/* Of an accepted connection: was it made to a loopback address? */
bool dns_is_inside(int fd);
