/* pod_sockets.c - made and marked when a worker asks -> its worker ends: unmarked, queued queries
 * are answered "server failure", and so are later ones -> the next worker asks: closed, made again.
 *
 * One dual-stack socket on the wildcard address serves 127.0.53.1 and its neighbours as well as
 * ::1.  What did not come to a loopback address is nobody's query: it is not answered, here or by
 * the worker.  One bit of a message is read: the answer is the question with two bytes changed.
 */
#include "pod_sockets.h"
#include "broker/base/loop.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	BACKLOG = 128,
	PER_TURN = 256, /* then others have theirs */
	HEADER = 12,
	MESSAGE_MAX = 4096, /* a longer question would not come back whole */
	FLAGS = 2,          /* where they are: QR, opcode, AA, TC, RD; RA, Z, rcode */
	IS_ANSWER = 0x80,
	SERVER_FAILURE = 2,
	LAST_QUERIES_US = 20 * 1000,
};

bool pod_sockets_is_kind(unsigned kind)
{
	return kind == LINK_LISTEN_DNS_UDP || kind == LINK_LISTEN_DNS_TCP;
}

/* --- made --- */

struct making {
	int type;
	uint16_t port;
	int fd; /* -1 until it is there */
};

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

/* An answer must leave from the address that was asked, so each datagram says which that is. */
static int make_dual(const struct making *m, struct err *e)
{
	const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(m->port)};
	auto_close int fd = socket(AF_INET6, m->type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0) ||
	    (m->type == SOCK_DGRAM && set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)) ||
	    (m->type == SOCK_STREAM && set(fd, SOL_SOCKET, SO_REUSEADDR, 1)) ||
	    bind(fd, (const struct sockaddr *)&any, sizeof(any)))
		return err_sys(e, "port %u of the pod", m->port);
	return take_fd(fd);
}

/* A kernel without IPv6. */
static int make_v4(const struct making *m, struct err *e)
{
	const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(m->port)};
	auto_close int fd = socket(AF_INET, m->type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || (m->type == SOCK_DGRAM && set(fd, IPPROTO_IP, IP_PKTINFO, 1)) ||
	    (m->type == SOCK_STREAM && set(fd, SOL_SOCKET, SO_REUSEADDR, 1)) ||
	    bind(fd, (const struct sockaddr *)&any, sizeof(any)))
		return err_sys(e, "port %u of the pod", m->port);
	return take_fd(fd);
}

static int make_there(void *ctx, struct err *e)
{
	struct making *m = ctx;

	m->fd = make_dual(m, e);
	if (m->fd < 0 && e->code == EAFNOSUPPORT)
		m->fd = make_v4(m, e);
	if (m->fd < 0)
		return -1;
	return m->type == SOCK_STREAM && listen(m->fd, BACKLOG) ? err_sys(e, "listen") : 0;
}

/* --- between two workers --- */

/* What came to an address of the pod's own is no query of this proxy (T11). */
static bool came_to_loopback(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct in6_pktinfo *at = (struct in6_pktinfo *)CMSG_DATA(c);
			at->ipi6_ifindex = 0;
			return IN6_IS_ADDR_LOOPBACK(&at->ipi6_addr) ||
			       (IN6_IS_ADDR_V4MAPPED(&at->ipi6_addr) &&
				   at->ipi6_addr.s6_addr[12] == IN_LOOPBACKNET);
		}
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			struct in_pktinfo *at = (struct in_pktinfo *)CMSG_DATA(c);
			at->ipi_ifindex = 0;
			at->ipi_spec_dst = at->ipi_addr;
			return ntohl(at->ipi_addr.s_addr) >> 24 == IN_LOOPBACKNET;
		}
	}
	return false;
}

/* False: there is none. */
static bool refuse_query(int fd)
{
	uint8_t text[MESSAGE_MAX];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	} control;
	struct sockaddr_storage from;
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text)};
	struct msghdr msg = {.msg_name = &from,
	    .msg_namelen = sizeof(from),
	    .msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);

	if (n < 0)
		return false;
	if (n < HEADER || (msg.msg_flags & MSG_TRUNC) || (text[FLAGS] & IS_ANSWER) ||
	    !came_to_loopback(&msg))
		return true;
	text[FLAGS] |= IS_ANSWER;
	text[FLAGS + 1] = SERVER_FAILURE;
	iov.iov_len = (size_t)n;
	msg.msg_flags = 0;
	sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL); /* it need not arrive */
	return true;
}

static void refuse_queries(int fd)
{
	for (int i = 0; i < PER_TURN && refuse_query(fd); i++)
		;
}

static void on_query(void *ctx, uint32_t events)
{
	const struct pod_socket *s = ctx;

	(void)events;
	refuse_queries(s->watch.fd);
}

/* A worker that is not dead yet may have a copy; without the mark that is no harm. */
static void unmark(struct pod_socket *s)
{
	const struct pod_sockets *of = s->of;
	struct err e;

	if (s->state == POD_SOCKET_SERVED)
		of->rig->mark(of->rig->ctx, &of->pod, s->watch.fd, false, &e);
}

/* Nobody hears of a datagram that goes with its socket. */
static void close_socket(struct pod_socket *s)
{
	unmark(s);
	if (s->state == POD_SOCKET_REFUSES)
		broker_watch_end(s->of->rig->epoll, &s->watch);
	if (s->state != POD_SOCKET_NONE) {
		refuse_queries(s->watch.fd);
		close(s->watch.fd);
	}
	s->state = POD_SOCKET_NONE;
}

/* Queries are answered, for as long as the socket is here. */
static void refuse(struct pod_socket *s)
{
	if (s->state != POD_SOCKET_SERVED)
		return;
	unmark(s);
	s->watch = (struct broker_watch){.fd = s->watch.fd, .ready = on_query, .ctx = s};
	if (broker_watch_start(s->of->rig->epoll, &s->watch, EPOLLIN))
		close_socket(s);
	else
		s->state = POD_SOCKET_REFUSES;
}

bool pod_sockets_detach(struct pod_sockets *s)
{
	close_socket(&s->tcp); /* connections end */
	refuse(&s->udp);
	return s->udp.state != POD_SOCKET_NONE;
}

/* --- asked for, and given up --- */

void pod_sockets_end(struct pod_sockets *s)
{
	close_socket(&s->udp);
	close_socket(&s->tcp);
}

/* The worker serves both or none: with one refused, a mark on the other would lead to nobody. */
int pod_sockets_listen(struct pod_sockets *s, const struct pod_sockets_rig *rig,
    const struct pod_sockets_place *at, unsigned kind, struct err *e)
{
	struct pod_socket *one = kind == LINK_LISTEN_DNS_UDP ? &s->udp : &s->tcp;
	struct making m = {.type = kind == LINK_LISTEN_DNS_UDP ? SOCK_DGRAM : SOCK_STREAM,
	    .port = at->port,
	    .fd = -1};

	close_socket(one);
	if (netns_visit(rig->home, at->netns, make_there, &m, e) ||
	    rig->mark(rig->ctx, at->pod, m.fd, true, e)) {
		mem_closep(&m.fd);
		pod_sockets_end(s);
		return -1;
	}
	s->rig = rig;
	s->pod = *at->pod;
	*one = (struct pod_socket){.state = POD_SOCKET_SERVED, .watch.fd = m.fd, .of = s};
	return m.fd;
}

void pod_sockets_sweep(struct pod_sockets *s)
{
	if (s->udp.state == POD_SOCKET_REFUSES)
		pod_sockets_end(s);
}

void pod_sockets_await_last_queries(void)
{
	usleep(LAST_QUERIES_US);
}
