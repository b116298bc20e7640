/* metrics_listener.c - found or bound -> handed to each worker -> shut down by one: made again for
 * the next.
 *
 * What an earlier broker left may have another address: of another command line, or node.  Its
 * sharers (that broker, systemd) would keep the port busy until they are told, so it is shut down
 * first; with SO_REUSEADDR a socket that does not listen is in nobody's way.  A broker that gets
 * all of it back makes itself a new one, as soon as the one that failed is gone with its own.
 */
#include "metrics_listener.h"
#include "broker/base/endpoint.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

LOG_SCOPE("broker");

static const char name[] = "metrics";

/* Scrapes are few; somebody's SYNs are not to fill the node's memory. */
enum { BACKLOG = 128 };

/* Of a process, and its worker, that end. */
enum { AGAIN_MS = 20, PATIENCE_MS = 2000 };

/* --- the address --- */

union address {
	struct sockaddr_storage any;
	struct sockaddr sa;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static socklen_t size_of(const union address *a)
{
	return a->any.ss_family == AF_INET ? sizeof(a->v4) : sizeof(a->v6);
}

/* Of other fields there are none that we set. */
static bool is_same(const union address *a, const union address *b)
{
	if (a->any.ss_family != b->any.ss_family)
		return false;
	if (a->any.ss_family == AF_INET)
		return a->v4.sin_port == b->v4.sin_port &&
		       a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
	return a->v6.sin6_port == b->v6.sin6_port &&
	       !memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof(a->v6.sin6_addr));
}

/* --- the socket --- */

/* [::] is both families, whatever the node's default. */
static int bind_one(const char *text, struct err *e)
{
	const int one = 1, zero = 0;
	union address a = {.any.ss_family = AF_UNSPEC};

	if (broker_endpoint_parse(text, &a.any, e))
		return -1;
	auto_close int fd =
	    socket(a.any.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    (a.any.ss_family == AF_INET6 &&
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero))) ||
	    bind(fd, &a.sa, size_of(&a)))
		return err_sys(e, "--metrics %s", text);
	return take_fd(fd);
}

/* Here it shows that somebody else listens at the same address and, as we do, would share it. */
static int make(const char *text, struct err *e)
{
	auto_close int fd = bind_one(text, e);

	if (fd >= 0 && listen(fd, BACKLOG))
		return err_sys(e, "--metrics %s", text);
	return fd < 0 ? -1 : take_fd(fd);
}

/* Who shut ours down, and failed, is heard of before the kernel has closed all of its sockets. */
static int make_again(const char *text, struct err *e)
{
	int fd = make(text, e);

	for (int ms = 0; fd < 0 && e->code == EADDRINUSE && ms < PATIENCE_MS; ms += AGAIN_MS) {
		usleep(AGAIN_MS * 1000);
		fd = make(text, e);
	}
	return fd;
}

int metrics_listener_try(const char *text, struct err *e)
{
	auto_close int fd = make(text, e);

	return fd < 0 ? -1 : 0;
}

static int option(int fd, int which)
{
	int value = -1;
	socklen_t size = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, which, &value, &size) ? -1 : value;
}

static bool is_listening(int fd)
{
	return option(fd, SO_ACCEPTCONN) == 1;
}

static bool is_at_home(const struct netns_home *h, int fd)
{
	auto_close int netns = ioctl(fd, SIOCGSKNS);

	return netns >= 0 && netns_is_own(h, netns);
}

static bool is_wanted(const struct metrics_listener_spec *s, int fd)
{
	union address have = {.any.ss_family = AF_UNSPEC}, want = have;
	socklen_t size = sizeof(have);
	struct err e;

	return option(fd, SO_TYPE) == SOCK_STREAM && option(fd, SO_PROTOCOL) == IPPROTO_TCP &&
	       is_listening(fd) && !getsockname(fd, &have.sa, &size) &&
	       !broker_endpoint_parse(s->address, &want.any, &e) && is_same(&have, &want) &&
	       is_at_home(s->home, fd);
}

/* -1: there was none, or it is something else. */
static int take_kept(const struct metrics_listener_spec *s)
{
	auto_close int fd = broker_fdstore_take(s->kept, name);
	int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);

	if (flags < 0)
		return -1;
	if (is_wanted(s, fd) && !fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return take_fd(fd);
	log_info(NULL, "the kept descriptor %s does not listen at %s: making a new one", name,
	    s->address);
	shutdown(fd, SHUT_RDWR);
	broker_fdstore_drop(s->kept, name); /* systemd may have one */
	return -1;
}

static void drop(struct metrics_listener *m)
{
	if (m->watch.ready)
		broker_fdstore_drop(m->spec->kept, name);
	metrics_listener_release(m);
}

static void on_shut_down(void *ctx, uint32_t events)
{
	struct metrics_listener *m = ctx;

	(void)events;
	drop(m);
	m->spec->shut(m->spec->ctx);
}

int metrics_listener_open(
    struct metrics_listener *m, const struct metrics_listener_spec *spec, struct err *e)
{
	const bool had = m->watch.ready;

	if (had && is_listening(m->watch.fd))
		return m->watch.fd;
	drop(m);
	int fd = take_kept(spec);
	if (fd < 0)
		fd = had ? make_again(spec->address, e) : make(spec->address, e);
	if (fd < 0)
		return -1;
	m->spec = spec;
	m->watch = (struct broker_watch){.fd = fd, .ready = on_shut_down, .ctx = m};
	if (broker_watch_start(spec->epoll, &m->watch, EPOLLRDHUP)) {
		err_sys(e, "watch the socket of --metrics");
		m->watch.ready = NULL;
		close(fd);
		return -1;
	}
	broker_fdstore_put(spec->kept, name, fd);
	return fd;
}

void metrics_listener_release(struct metrics_listener *m)
{
	if (!m->watch.ready)
		return;
	broker_watch_end(m->spec->epoll, &m->watch);
	close(m->watch.fd);
	m->watch.ready = NULL;
}
