/* pod_sockets.c - made and marked when a worker asks -> its worker ends: unmarked, what is queued
 * is answered "server failure", as is what still comes -> the next worker asks: closed, made anew.
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
#include <utlist.h>

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

struct dns_socket {
	struct broker_watch watch; /* fd -1: none; `ready` NULL: a worker serves it */
	struct dns_pod *pod;
};

struct dns_pod {
	struct pod_sockets *dns;
	struct uuid uid;
	struct dns_socket udp, tcp;
	struct dns_pod *prev, *next;
};

struct pod_sockets {
	struct pod_sockets_rig rig;
	struct dns_pod *pods;
};

struct pod_sockets *pod_sockets_new(const struct pod_sockets_rig *rig)
{
	struct pod_sockets *d = mem_zalloc(sizeof(*d));

	d->rig = *rig;
	return d;
}

bool pod_sockets_is_kind(unsigned kind)
{
	return kind == LINK_LISTEN_DNS_UDP || kind == LINK_LISTEN_DNS_TCP;
}

static struct dns_pod *find(const struct pod_sockets *d, const struct uuid *uid)
{
	struct dns_pod *p;

	DL_FOREACH (d->pods, p)
		if (uuid_equal(&p->uid, uid))
			return p;
	return NULL;
}

static struct dns_pod *find_or_add(struct pod_sockets *d, const struct uuid *uid)
{
	struct dns_pod *p = find(d, uid);

	if (p)
		return p;
	p = mem_zalloc(sizeof(*p));
	p->dns = d;
	p->uid = *uid;
	p->udp = p->tcp = (struct dns_socket){.watch.fd = -1, .pod = p};
	DL_APPEND(d->pods, p);
	return p;
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
	const struct dns_socket *s = ctx;

	(void)events;
	refuse_queries(s->watch.fd);
}

/* A worker that is not dead yet may have a copy; without the mark that is no harm. */
static void unmark(struct dns_socket *s)
{
	const struct pod_sockets_rig *rig = &s->pod->dns->rig;
	struct err e;

	if (s->watch.fd >= 0 && !s->watch.ready)
		rig->mark(rig->ctx, &s->pod->uid, s->watch.fd, false, &e);
}

/* Nobody hears of a datagram that goes with its socket. */
static void close_socket(struct dns_socket *s)
{
	unmark(s);
	if (s->watch.ready)
		broker_watch_end(s->pod->dns->rig.epoll, &s->watch);
	if (s->watch.fd >= 0)
		refuse_queries(s->watch.fd);
	mem_closep(&s->watch.fd);
	s->watch = (struct broker_watch){.fd = -1};
}

/* Connections end; queries are answered, for as long as the socket is here. */
static void leave_alone(struct dns_pod *p)
{
	struct dns_socket *s = &p->udp;

	close_socket(&p->tcp);
	if (s->watch.fd < 0 || s->watch.ready)
		return;
	unmark(s);
	s->watch = (struct broker_watch){.fd = s->watch.fd, .ready = on_query, .ctx = s};
	if (broker_watch_start(p->dns->rig.epoll, &s->watch, EPOLLIN)) {
		s->watch.ready = NULL;
		close_socket(s);
	}
}

void pod_sockets_detach(struct pod_sockets *d)
{
	struct dns_pod *p;

	DL_FOREACH (d->pods, p)
		leave_alone(p);
}

/* --- asked for, and given up --- */

static void forget(struct dns_pod *p)
{
	close_socket(&p->udp);
	close_socket(&p->tcp);
	DL_DELETE(p->dns->pods, p);
	free(p);
}

void pod_sockets_end(struct pod_sockets *d, const struct uuid *pod)
{
	struct dns_pod *p = find(d, pod);

	if (p)
		forget(p);
}

/* The worker serves both or none: with one refused, a mark on the other would lead to nobody. */
int pod_sockets_listen(struct pod_sockets *d, const struct uuid *pod, unsigned kind, struct err *e)
{
	const struct pod_sockets_rig *rig = &d->rig;
	struct making m = {
	    .type = kind == LINK_LISTEN_DNS_UDP ? SOCK_DGRAM : SOCK_STREAM, .fd = -1};
	int netns = rig->place(rig->ctx, pod, &m.port, e);

	if (netns < 0) {
		pod_sockets_end(d, pod);
		return -1;
	}
	struct dns_pod *p = find_or_add(d, pod);
	struct dns_socket *s = kind == LINK_LISTEN_DNS_UDP ? &p->udp : &p->tcp;
	close_socket(s);
	if (netns_visit(rig->home, netns, make_there, &m, e) ||
	    rig->mark(rig->ctx, pod, m.fd, true, e)) {
		mem_closep(&m.fd);
		forget(p);
		return -1;
	}
	s->watch.fd = m.fd;
	return m.fd;
}

void pod_sockets_sweep(struct pod_sockets *d)
{
	struct dns_pod *p, *tmp;

	DL_FOREACH_SAFE (d->pods, p, tmp)
		if (p->udp.watch.ready)
			forget(p);
}

/* A query whose sender saw the mark may still be on its way to the socket. */
void pod_sockets_free(struct pod_sockets **dp)
{
	struct pod_sockets *d = take(*dp);
	struct dns_pod *p, *tmp;

	if (!d)
		return;
	pod_sockets_detach(d);
	if (d->pods)
		usleep(LAST_QUERIES_US);
	DL_FOREACH_SAFE (d->pods, p, tmp)
		forget(p);
	free(d);
}
