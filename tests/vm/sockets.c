/* sockets.c - see sockets.h.
 *
 * A server is one child with one poll loop; a dial is one child with one socket, so that every user
 * and every cgroup can be played.
 */
#include "sockets.h"
#include "ebpf/redirect.h"
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ORIGINAL_DST = 80 }; /* SOL_IP and SOL_IPV6 alike */
enum { PATIENCE = 60 };

struct told {
	uint16_t name, port, original_port;
	char original[TEXT], peer[TEXT], local[TEXT];
};

/* --- addresses --- */

static void to_text(const struct sockaddr_storage *s, char out[TEXT], uint16_t *port)
{
	const struct sockaddr_in6 *in6 = (const void *)s;
	struct sockaddr_in in;
	char text[TEXT] = "";

	memcpy(&in, s, sizeof(in));
	if (s->ss_family == AF_INET)
		inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
	else
		inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
	snprintf(out, TEXT, "%s", text + (strncmp(text, "::ffff:", 7) ? 0 : 7));
	if (port)
		*port = ntohs(in.sin_port);
}

static socklen_t from_text(
    const char *text, uint16_t port, bool mapped, struct sockaddr_storage *out)
{
	struct sockaddr_in6 *in6 = (void *)out;
	struct sockaddr_in *in = (void *)out;
	char as6[TEXT + 8];

	memset(out, 0, sizeof(*out));
	if (!strchr(text, ':') && !mapped) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		inet_pton(AF_INET, text, &in->sin_addr);
		return sizeof(*in);
	}
	snprintf(as6, sizeof(as6), "%s%s", mapped ? "::ffff:" : "", text);
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	inet_pton(AF_INET6, as6, &in6->sin6_addr);
	return sizeof(*in6);
}

static int make_socket(const struct dial *d, int type)
{
	const struct timeval patience = {.tv_sec = d->patience ? d->patience : PATIENCE};
	int fd =
	    socket(strchr(d->to, ':') || d->mapped ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return fd;
}

/* --- servers --- */

static int open_port(uint16_t port, int type)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	const int on = 1, off = 0;
	int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || (type == SOCK_STREAM && listen(fd, 1024)))
		broken("a port to listen on");
	return fd;
}

static int mark(const struct server *s, int fd)
{
	const struct redirect_socket as = {.index = s->index, .kind = REDIRECT_SOCKET_LISTENS_DNS};

	return s->mark ? bpf_map_update_elem(s->mark, &fd, &as, BPF_ANY) : 0;
}

/* As Envoy's original_dst filter asks. */
static void ask_original(int fd, const struct sockaddr_storage *local, struct told *t)
{
	char text[TEXT];
	struct sockaddr_storage a = {0};
	socklen_t len;

	to_text(local, text, NULL);
	bool v6 = strchr(text, ':') != NULL;
	len = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	if (!getsockopt(fd, v6 ? SOL_IPV6 : SOL_IP, ORIGINAL_DST, &a, &len))
		to_text(&a, t->original, &t->original_port);
}

/* The dialler closes first.  Else its ports would wait out a minute here. */
static void greet(int listener, const struct server *s, uint16_t port)
{
	const struct timeval second = {.tv_sec = 1};
	struct told t = {.name = s->name, .port = port};
	struct sockaddr_storage peer = {0}, local = {0};
	socklen_t len = sizeof(peer), local_len = sizeof(local);
	int fd = accept4(listener, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
	getsockname(fd, (struct sockaddr *)&local, &local_len);
	to_text(&peer, t.peer, NULL);
	to_text(&local, t.local, NULL);
	ask_original(fd, &local, &t);
	send(fd, &t, sizeof(t), MSG_NOSIGNAL);
	recv(fd, &t, sizeof(t), 0);
	close(fd);
}

/* From the address that was asked (kernels.md 2). */
static void echo(int fd, const struct server *s)
{
	struct sockaddr_storage peer;
	char control[64];
	uint16_t name = s->name;
	struct iovec io = {&name, sizeof(name)};
	struct msghdr m = {.msg_name = &peer,
	    .msg_namelen = sizeof(peer),
	    .msg_iov = &io,
	    .msg_iovlen = 1,
	    .msg_control = control,
	    .msg_controllen = sizeof(control)};

	if (recvmsg(fd, &m, 0) < 0)
		return;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (c)
		((struct in6_pktinfo *)CMSG_DATA(c))->ipi6_ifindex = 0;
	name = s->name;
	sendmsg(fd, &m, 0);
}

static void run_server(void *ctx, int ready)
{
	const struct server *s = ctx;
	struct pollfd fds[2 * PORTS_MAX];
	int n = 0, ntcp;

	for (int i = 0; i < PORTS_MAX && s->tcp[i]; i++)
		fds[n++] = (struct pollfd){open_port(s->tcp[i], SOCK_STREAM), POLLIN, 0};
	ntcp = n;
	for (int i = 0; i < PORTS_MAX && s->udp[i]; i++)
		fds[n++] = (struct pollfd){open_port(s->udp[i], SOCK_DGRAM), POLLIN, 0};
	for (int i = 0; i < n; i++)
		if (mark(s, fds[i].fd))
			broken("mark a socket");
	if (write(ready, ".", 1) != 1)
		return;
	for (;;) {
		poll(fds, (nfds_t)n, -1);
		for (int i = 0; i < n; i++)
			if (fds[i].revents && i < ntcp)
				greet(fds[i].fd, s, s->tcp[i]);
			else if (fds[i].revents)
				echo(fds[i].fd, s);
	}
}

pid_t serve(const struct place *p, const struct server *s)
{
	/* A mark is written by root; so nobody of another user marks. */
	return settle(p, s->who, run_server, (void *)s);
}

/* --- diallers --- */

static void dial_once(const struct dial *d, struct seen *out)
{
	struct sockaddr_storage a, name = {0};
	socklen_t len = from_text(d->to, d->port, d->mapped, &a), name_len = sizeof(name);
	struct told t;
	errno = 0;
	int fd = make_socket(d, SOCK_STREAM);

	memset(out, 0, sizeof(*out));
	snprintf(out->to, TEXT, "%s", d->to);
	if (d->from) {
		struct sockaddr_storage own;
		socklen_t own_len = from_text(d->from, 0, d->mapped, &own);
		if (bind(fd, (struct sockaddr *)&own, own_len))
			broken(d->from);
	}
	if (connect(fd, (struct sockaddr *)&a, len) ||
	    recv(fd, &t, sizeof(t), MSG_WAITALL) != sizeof(t)) {
		out->error = errno == EINPROGRESS ? ETIMEDOUT : errno ? errno : EPIPE;
		close(fd);
		return;
	}
	out->name = t.name;
	out->port = t.port;
	out->original_port = t.original_port;
	memcpy(out->original, t.original, TEXT);
	memcpy(out->peer, t.peer, TEXT);
	memcpy(out->local, t.local, TEXT);
	if (!getpeername(fd, (struct sockaddr *)&name, &name_len))
		to_text(&name, out->peername, &out->peername_port);
	name_len = sizeof(name);
	if (!getsockname(fd, (struct sockaddr *)&name, &name_len))
		to_text(&name, out->sockname, NULL);
	close(fd);
}

static void run_dial(void *ctx, void *out)
{
	const struct dial *d = ctx;
	struct seen first;

	dial_once(d, &first);
	*(struct seen *)out = first;
	for (int i = 0; i < d->again && !memcmp(out, &first, sizeof(first)); i++)
		dial_once(d, out);
}

struct seen dial(const struct place *p, struct who who, const struct dial *d)
{
	struct seen s = {.error = 0};

	if (visit(p, who, run_dial, (void *)d, &s, sizeof(s)))
		broken("a dialler");
	return s;
}

static void run_ask(void *ctx, void *out)
{
	const struct ask *a = ctx;
	struct answers *r = out;
	const struct dial d = {.to = a->servers[0]};
	int fd = make_socket(&d, SOCK_DGRAM);

	memset(r, 0, sizeof(*r));
	for (int i = 0; i < 3 && a->servers[i]; i++, r->n++) {
		struct sockaddr_storage to, from = {0};
		socklen_t len = from_text(a->servers[i], 53, false, &to), from_len = sizeof(from);
		if (a->connected && connect(fd, (struct sockaddr *)&to, len))
			r->error = errno;
		if (sendto(fd, "?", 2, 0, a->connected ? NULL : (struct sockaddr *)&to,
			a->connected ? 0 : len) < 0 ||
		    recvfrom(fd, &r->name[i], 2, 0, (struct sockaddr *)&from, &from_len) < 0) {
			r->error = errno;
			return;
		}
		if (a->connected) {
			from_len = sizeof(from);
			getpeername(fd, (struct sockaddr *)&from, &from_len);
		}
		to_text(&from, r->source[i], NULL);
	}
}

struct answers ask(const struct place *p, struct who who, const struct ask *a)
{
	struct answers r = {.error = 0};

	if (visit(p, who, run_ask, (void *)a, &r, sizeof(r)))
		broken("a resolver");
	return r;
}

static void run_load(void *ctx, int ready)
{
	const struct load *l = ctx;
	const bool captured = l->port != l->dial.port;
	struct seen s;

	for (bool told = false;; told = true) {
		dial_once(&l->dial, &s);
		if (!s.error && s.port == l->port && !strcmp(s.peername, l->dial.to) &&
		    (!captured ||
			(s.original_port == l->dial.port && !strcmp(s.original, l->dial.to)))) {
			__atomic_fetch_add(&l->tally->good, 1, __ATOMIC_RELAXED);
		} else {
			l->tally->wrong = s;
			__atomic_fetch_add(&l->tally->bad, 1, __ATOMIC_RELAXED);
		}
		if (!told && write(ready, ".", 1) != 1)
			return;
	}
}

struct tally *tally_new(void)
{
	void *t = mmap(
	    NULL, sizeof(struct tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (t == MAP_FAILED)
		broken("memory");
	return t;
}

pid_t load(const struct place *p, struct who who, struct load *l)
{
	return settle(p, who, run_load, l);
}
