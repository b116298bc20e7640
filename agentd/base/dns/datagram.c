/* datagram.c - looked at, with the address that it came to -> answered, with that one as the
 * source -> removed.
 */
#include "datagram.h"
#include <string.h>

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
};

static bool is_loopback4(uint32_t network_order)
{
	return ntohl(network_order) >> 24 == IN_LOOPBACKNET;
}

static bool is_loopback6(const struct in6_addr *a)
{
	return IN6_IS_ADDR_LOOPBACK(a) ||
	       (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == IN_LOOPBACKNET);
}

/* Which interface it came in by says nothing about the way back. */
static bool find_way(struct dns_way *w, struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			memcpy(&w->at6, CMSG_DATA(c), sizeof(w->at6));
			w->at6.ipi6_ifindex = 0;
			w->v6 = true;
			return is_loopback6(&w->at6.ipi6_addr);
		}
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			memcpy(&w->at4, CMSG_DATA(c), sizeof(w->at4));
			w->at4.ipi_ifindex = 0;
			w->at4.ipi_spec_dst = w->at4.ipi_addr;
			return is_loopback4(w->at4.ipi_addr.s_addr);
		}
	}
	return false;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the kernel writes there */
ssize_t dns_datagram_peek(int fd, uint8_t *data, size_t size, struct dns_way *w, bool *inside)
{
	union control control;
	struct iovec iov = {.iov_base = data, .iov_len = size};
	struct msghdr msg = {.msg_name = &w->client,
	    .msg_namelen = sizeof(w->client),
	    .msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0)
		return -1;
	w->client_size = msg.msg_namelen;
	w->v6 = false;
	*inside = find_way(w, &msg);
	return n;
}

/* Nothing is copied: a datagram goes whole, however little of it is asked for. */
void dns_datagram_remove(int fd)
{
	recv(fd, NULL, 0, MSG_DONTWAIT);
}

void dns_datagram_send(int fd, const struct dns_way *w, const uint8_t *data, size_t size)
{
	const void *at = w->v6 ? (const void *)&w->at6 : &w->at4;
	size_t at_size = w->v6 ? sizeof(w->at6) : sizeof(w->at4);
	union control control = {.bytes = {0}};
	struct iovec iov = {.iov_base = (void *)data, .iov_len = size};
	struct msghdr msg = {.msg_name = (void *)&w->client,
	    .msg_namelen = w->client_size,
	    .msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = CMSG_SPACE(at_size)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = w->v6 ? IPPROTO_IPV6 : IPPROTO_IP;
	c->cmsg_type = w->v6 ? IPV6_PKTINFO : IP_PKTINFO;
	c->cmsg_len = CMSG_LEN(at_size);
	memcpy(CMSG_DATA(c), at, at_size);
	sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool dns_is_inside(int fd)
{
	struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&at;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&at;
	socklen_t size = sizeof(at);

	if (getsockname(fd, (struct sockaddr *)&at, &size))
		return false;
	if (at.ss_family == AF_INET)
		return is_loopback4(v4->sin_addr.s_addr);
	return at.ss_family == AF_INET6 && is_loopback6(&v6->sin6_addr);
}
