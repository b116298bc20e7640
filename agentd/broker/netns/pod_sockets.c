/* pod_sockets.c - made and marked when a worker asks -> its worker ends: queries wait -> the next
 * worker asks: made anew beside the old one, which hears nothing more, refuses what waits, and is
 * closed.  Or no worker asks in time: unmarked, queued queries are refused, and so are later ones.
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
#include <stdio.h>
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
	DISCARD_PORT = 9,
};

/* As they are kept: "<uid>.dns-udp". */
static const char *const endings[] = {".dns-udp", ".dns-tcp"};

bool pod_sockets_is_kept(const char *name)
{
	const char *ending = strchr(name, '.');

	return ending && (!strcmp(ending, endings[0]) || !strcmp(ending, endings[1]));
}

static void kept_name(const struct pod_socket *s, char out[BROKER_FDSTORE_NAME])
{
	char pod[UUID_TEXT_SIZE];

	uuid_format(&s->of->pod, pod);
	snprintf(out, BROKER_FDSTORE_NAME, "%s%s", pod, endings[s == &s->of->tcp]);
}

bool pod_sockets_is_kind(unsigned kind)
{
	return kind == LINK_LISTEN_DNS_UDP || kind == LINK_LISTEN_DNS_TCP;
}

/* --- made --- */

struct making {
	const struct pod_sockets_rig *rig;
	const struct pod_sockets_place *at;
	int type;
	uint16_t port;
	bool beside; /* another one of ours has the port, too */
	int fd;      /* -1 until it is there */
};

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

/* Before it is bound: a query finds whichever of two sockets the kernel likes. */
static int mark(const struct making *m, int fd, struct err *e)
{
	return m->rig->mark(m->rig->ctx, m->at->pod, fd, true, e);
}

/* An answer must leave from the address that was asked, so each datagram says which that is. */
static int make_dual(const struct making *m, struct err *e)
{
	const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(m->port)};
	auto_close int fd = socket(AF_INET6, m->type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0) ||
	    (m->type == SOCK_DGRAM && set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)) ||
	    (m->type == SOCK_STREAM && set(fd, SOL_SOCKET, SO_REUSEADDR, 1)) ||
	    set(fd, SOL_SOCKET, SO_REUSEPORT, m->beside))
		return err_sys(e, "a socket of the pod");
	if (mark(m, fd, e))
		return -1;
	if (bind(fd, (const struct sockaddr *)&any, sizeof(any)))
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
	    set(fd, SOL_SOCKET, SO_REUSEPORT, m->beside))
		return err_sys(e, "a socket of the pod");
	if (mark(m, fd, e))
		return -1;
	if (bind(fd, (const struct sockaddr *)&any, sizeof(any)))
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
	if (m->type == SOCK_STREAM && listen(m->fd, BACKLOG))
		return err_sys(e, "listen");
	set(m->fd, SOL_SOCKET, SO_REUSEPORT, 0); /* the pod is not to share it */
	return 0;
}

/* --- between two workers --- */

/* What came to an address of the pod's own is no query of this proxy. */
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

/* --- the end of one --- */

/* A holder of a copy may still be there; without the mark that is no harm. */
static void unmark(struct pod_socket *s)
{
	const struct pod_sockets *of = s->of;
	struct err e;

	if (of->rig && (s->state == POD_SOCKET_SERVED || s->state == POD_SOCKET_WAITS))
		of->rig->mark(of->rig->ctx, &of->pod, s->watch.fd, false, &e);
}

/* Closing is not enough while somebody has a copy.  A datagram socket hears nobody but its peer;
 * the discard port of loopback says nothing. */
static void hush(const struct pod_socket *s)
{
	const struct sockaddr_in v4 = {.sin_family = AF_INET,
	    .sin_port = htons(DISCARD_PORT),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(DISCARD_PORT)};

	v6.sin6_addr.s6_addr[10] = v6.sin6_addr.s6_addr[11] = 0xff;
	memcpy(v6.sin6_addr.s6_addr + 12, &v4.sin_addr, sizeof(v4.sin_addr));
	if (s == &s->of->tcp)
		shutdown(s->watch.fd, SHUT_RDWR);
	else if (connect(s->watch.fd, (const struct sockaddr *)&v6, sizeof(v6)))
		(void)connect(s->watch.fd, (const struct sockaddr *)&v4, sizeof(v4));
}

/* Nobody hears of a datagram that goes with its socket. */
static void close_socket(struct pod_socket *s)
{
	char name[BROKER_FDSTORE_NAME];

	if (s->state == POD_SOCKET_NONE)
		return;
	if (s->state == POD_SOCKET_REFUSES)
		broker_watch_end(s->of->rig->epoll, &s->watch);
	hush(s); /* first: a look-up may find this one of the two, and it must not be without a mark
		  */
	unmark(s);
	refuse_queries(s->watch.fd);
	kept_name(s, name);
	broker_fdstore_drop(s->of->kept, name);
	close(s->watch.fd);
	s->state = POD_SOCKET_NONE;
}

void pod_sockets_end(struct pod_sockets *s)
{
	close_socket(&s->udp);
	close_socket(&s->tcp);
}

static void leave_socket(struct pod_socket *s)
{
	if (s->state == POD_SOCKET_REFUSES)
		broker_watch_end(s->of->rig->epoll, &s->watch);
	if (s->state != POD_SOCKET_NONE)
		close(s->watch.fd);
	s->state = POD_SOCKET_NONE;
}

void pod_sockets_leave(struct pod_sockets *s)
{
	leave_socket(&s->udp);
	leave_socket(&s->tcp);
}

/* --- from one worker to the next --- */

void pod_sockets_detach(struct pod_sockets *s)
{
	if (s->udp.state == POD_SOCKET_SERVED)
		s->udp.state = POD_SOCKET_WAITS;
	if (s->tcp.state == POD_SOCKET_SERVED)
		s->tcp.state = POD_SOCKET_WAITS;
}

bool pod_sockets_wait(const struct pod_sockets *s)
{
	return s->udp.state == POD_SOCKET_WAITS || s->tcp.state == POD_SOCKET_WAITS;
}

/* Queries are answered, for as long as the socket is here. */
static void refuse(struct pod_socket *s)
{
	const struct pod_sockets_rig *rig = s->of->rig;

	if (s->state != POD_SOCKET_WAITS)
		return;
	unmark(s);
	s->watch = (struct broker_watch){.fd = s->watch.fd, .ready = on_query, .ctx = s};
	if (!rig || broker_watch_start(rig->epoll, &s->watch, EPOLLIN))
		close_socket(s);
	else
		s->state = POD_SOCKET_REFUSES;
}

bool pod_sockets_give_up(struct pod_sockets *s)
{
	if (s->tcp.state == POD_SOCKET_WAITS)
		close_socket(&s->tcp); /* connections end */
	refuse(&s->udp);
	return s->udp.state != POD_SOCKET_NONE;
}

void pod_sockets_sweep(struct pod_sockets *s)
{
	if (s->udp.state == POD_SOCKET_REFUSES)
		close_socket(&s->udp);
}

void pod_sockets_await_last_queries(void)
{
	usleep(LAST_QUERIES_US);
}

/* --- begun, and asked for --- */

static bool is_type(int fd, int type)
{
	int is = 0;
	socklen_t size = sizeof(is);

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &is, &size) && is == type;
}

static void find(struct pod_socket *s, int type)
{
	char name[BROKER_FDSTORE_NAME];
	int fd;

	kept_name(s, name);
	fd = broker_fdstore_take(s->of->kept, name);
	if (!is_type(fd, type)) {
		mem_closep(&fd);
		return;
	}
	s->watch.fd = fd;
	s->state = POD_SOCKET_WAITS;
	broker_fdstore_put(s->of->kept, name, fd);
}

void pod_sockets_begin(struct pod_sockets *s, const struct uuid *pod, struct broker_fdstore *kept)
{
	s->pod = *pod;
	s->kept = kept;
	s->udp.of = s->tcp.of = s;
	find(&s->udp, SOCK_DGRAM);
	find(&s->tcp, SOCK_STREAM);
}

/* The worker serves both or none: with one refused, a mark on the other would lead to nobody. */
int pod_sockets_listen(struct pod_sockets *s, const struct pod_sockets_rig *rig,
    const struct pod_sockets_place *at, unsigned kind, struct err *e)
{
	struct pod_socket *one = kind == LINK_LISTEN_DNS_UDP ? &s->udp : &s->tcp;
	struct making m = {.rig = rig,
	    .at = at,
	    .type = kind == LINK_LISTEN_DNS_UDP ? SOCK_DGRAM : SOCK_STREAM,
	    .port = at->port,
	    .fd = -1};
	char name[BROKER_FDSTORE_NAME];

	/* Beside the old one, if that lets it. */
	m.beside =
	    one->state != POD_SOCKET_NONE && !set(one->watch.fd, SOL_SOCKET, SO_REUSEPORT, 1);
	if (netns_visit(rig->home, at->netns, make_there, &m, e)) {
		mem_closep(&m.fd);
		pod_sockets_end(s);
		return -1;
	}
	s->rig = rig;
	close_socket(one);
	*one = (struct pod_socket){.state = POD_SOCKET_SERVED, .watch.fd = m.fd, .of = s};
	kept_name(one, name);
	broker_fdstore_put(s->kept, name, m.fd);
	return m.fd;
}
