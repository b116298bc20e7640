/* alive.c - somebody connects -> is it root? -> a packet -> closed, with all that it sent.
 *
 * Nothing is received, and what an answer does not fit into is no agentctl: so nothing waits.
 */
#include "alive.h"
#include "broker/base/apart.h"
#include "broker/base/listener.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

LOG_SCOPE("broker");

enum { BACKLOG = 16, PER_TURN = 16 };

static const char *const words[] = {[ALIVE_STARTING] = "starting",
    [ALIVE_READY] = "ready",
    [ALIVE_NOT] = "not ready",
    [ALIVE_OVER] = "over"};

static bool is_root(int conn)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return !getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &peer, &size) && peer.uid == 0;
}

void alive_answer(struct alive *a)
{
	char text[ALIVE_WHY_SIZE + 16];
	int n = snprintf(text, sizeof(text), "%s\n%s", words[a->word], a->why), conn;

	for (int i = 0; i < PER_TURN; i++) {
		conn = accept4(a->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (conn < 0)
			return;
		if (is_root(conn))
			(void)send(conn, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
		(void)apart_close(conn);
	}
}

void alive_say(struct alive *a, enum alive_word word, const char *why)
{
	/* Of a next try: a kubelet would take us for hung. */
	a->word = word == ALIVE_STARTING && a->word != ALIVE_STARTING ? ALIVE_NOT : word;
	snprintf(a->why, sizeof(a->why), "%s", why);
}

static int listen_at(const char *path, struct err *e)
{
	auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(e, "socket for %s", path);
	apart_refuse_descriptors(fd);
	if (broker_listener_bind(fd, path, S_IRUSR | S_IWUSR, e))
		return err_wrap(e, "--alive");
	if (listen(fd, BACKLOG))
		return err_sys(e, "--alive: listen on %s", path);
	return take_fd(fd);
}

int alive_open(struct alive *a, const char *path, struct err *e)
{
	*a = (struct alive){.watch = {.fd = -1}, .epoll = -1};
	if (path)
		a->watch.fd = listen_at(path, e);
	return path && a->watch.fd < 0 ? -1 : 0;
}

void alive_close(struct alive *a)
{
	alive_unwatch(a);
	mem_closep(&a->watch.fd);
}

/* --- while a loop runs --- */

static void on_connection(void *ctx, uint32_t events)
{
	(void)events;
	alive_answer(ctx);
}

int alive_watch(struct alive *a, int epoll, struct err *e)
{
	if (a->watch.fd < 0)
		return 0;
	a->watch.ready = on_connection;
	a->watch.ctx = a;
	if (broker_watch_start(epoll, &a->watch, EPOLLIN))
		return err_sys(e, "watch who asks whether agentd lives");
	a->epoll = epoll;
	return 0;
}

void alive_unwatch(struct alive *a)
{
	if (a->epoll >= 0)
		broker_watch_end(a->epoll, &a->watch);
	a->epoll = -1;
}

/* --- while none does --- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool alive_rest(struct alive *a, int process, int64_t ms)
{
	const int64_t until = now_ms() + ms;
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	auto_close int signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
	struct pollfd fds[] = {
	    {signals, POLLIN, 0}, {process, POLLIN, 0}, {a->watch.fd, POLLIN, 0}};

	for (;;) {
		int64_t left = ms < 0 ? -1 : until - now_ms();
		if (ms >= 0 && left <= 0)
			return false;
		if (poll(fds, 3, (int)left) <= 0)
			continue; /* interrupted, or it is time */
		if (fds[0].revents)
			return true;
		if (fds[1].revents)
			return false;
		alive_answer(a);
	}
}
