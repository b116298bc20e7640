/* dial.c - connections, requests and answers, as many as go; counted and timed.
 *
 *   serve PORT COUNT         answers, at so many ports
 *   short|keep ADDRESS PORT PARALLEL SIZE SECONDS [MOST]
 *                            asks for SIZE bytes, PARALLEL at a time: each time on a new
 * connection, MOST of them, or on one for ever
 *
 * A request is REQUEST bytes, the first four of them the size of the answer.  An operation of
 * `short` lasts from connect() to the answer's last byte.  One thread, so that what is measured is
 * the path and not this program.  The result is a line of JSON, times in microseconds.
 */
#include "common/mem.h"
#include "times.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { REQUEST = 64, ANSWER_MAX = 1 << 20, EVENTS = 64, FAILED_MAX = 100, PATIENCE_MS = 10000 };

static char bytes[ANSWER_MAX];

static struct sockaddr_in address_of(const char *ip, const char *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

	if (inet_pton(AF_INET, ip, &a.sin_addr) != 1)
		die("an IPv4 address is needed");
	return a;
}

static void watch(int epoll, int how, int fd, uint32_t events, void *of)
{
	struct epoll_event e = {.events = events, .data.ptr = of};

	if (epoll_ctl(epoll, how, fd, &e))
		die("epoll_ctl");
}

/* --- the side that answers --- */

struct served {
	int fd;
	char request[REQUEST];
	size_t got, left; /* of the request; of the answer */
	bool full;        /* the socket takes no more for now */
	bool listens;
};

static bool receive(struct served *s)
{
	ssize_t n = recv(s->fd, s->request + s->got, REQUEST - s->got, 0);
	uint32_t size;

	if (n <= 0)
		return false;
	s->got += (size_t)n;
	if (s->got == REQUEST) {
		memcpy(&size, s->request, sizeof(size));
		s->left = size < ANSWER_MAX ? size : ANSWER_MAX;
		s->got = 0;
	}
	return true;
}

static bool answer(int epoll, struct served *s)
{
	bool full;
	ssize_t n;

	if (!s->left)
		return true;
	n = send(s->fd, bytes, s->left, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN)
		return false;
	s->left -= n > 0 ? (size_t)n : 0;
	full = s->left > 0;
	if (full != s->full)
		watch(epoll, EPOLL_CTL_MOD, s->fd, full ? EPOLLOUT : EPOLLIN, s);
	s->full = full;
	return true;
}

static void take_one(int epoll, int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct served *s;

	if (fd < 0)
		return;
	s = mem_zalloc(sizeof(*s));
	s->fd = fd;
	watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, s);
}

static void listen_at(int epoll, const char *port, int offset)
{
	struct sockaddr_in any = address_of("0.0.0.0", port);
	struct served *l = mem_zalloc(sizeof(*l));

	any.sin_port = htons((uint16_t)(ntohs(any.sin_port) + offset));
	*l =
	    (struct served){.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), .listens = true};
	setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	if (bind(l->fd, (const struct sockaddr *)&any, sizeof(any)) || listen(l->fd, 4096))
		die("the port is taken");
	watch(epoll, EPOLL_CTL_ADD, l->fd, EPOLLIN, l);
}

static void serve(const char *port, int count)
{
	int epoll = epoll_create1(0);

	for (int i = 0; i < count; i++)
		listen_at(epoll, port, i);
	for (;;) {
		struct epoll_event e[EVENTS];
		int n = epoll_wait(epoll, e, EVENTS, -1);

		for (int i = 0; i < n; i++) {
			struct served *s = e[i].data.ptr;
			if (s->listens) {
				take_one(epoll, s->fd);
			} else if ((!s->left && !receive(s)) || !answer(epoll, s)) {
				close(s->fd);
				free(s);
			}
		}
	}
}

/* --- the side that asks --- */

struct load {
	struct sockaddr_in to;
	uint32_t size;
	bool keep;
	int epoll;
	int64_t end;
	size_t active, failed, dialled, most;
	size_t no_port; /* dials for which each local port waited */
	struct times times;
};

struct dial {
	struct load *l;
	int fd;
	int64_t start;
	size_t left; /* of the answer; 0: not asked yet */
};

static void dial(struct dial *d)
{
	struct load *l = d->l;

	d->left = 0;
	l->dialled++;
	d->start = now_ns(CLOCK_MONOTONIC);
	d->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (connect(d->fd, (const struct sockaddr *)&l->to, sizeof(l->to)) &&
	    errno != EINPROGRESS) {
		if (errno != EADDRNOTAVAIL)
			die("connect");
		close(d->fd);
		l->no_port++;
		l->active--;
		return;
	}
	watch(l->epoll, EPOLL_CTL_ADD, d->fd, EPOLLOUT, d);
}

static int ask(struct dial *d)
{
	char request[REQUEST] = {0};

	memcpy(request, &d->l->size, sizeof(d->l->size));
	d->left = d->l->size;
	return send(d->fd, request, REQUEST, MSG_NOSIGNAL) == REQUEST ? 0 : -1;
}

static void finish(struct dial *d)
{
	close(d->fd);
	if (now_ns(CLOCK_MONOTONIC) < d->l->end && d->l->dialled < d->l->most)
		dial(d);
	else
		d->l->active--;
}

static void fail(struct dial *d)
{
	if (++d->l->failed > FAILED_MAX)
		die("too many operations failed");
	finish(d);
}

static void on_answered(struct dial *d)
{
	int64_t now = now_ns(CLOCK_MONOTONIC);

	times_note(&d->l->times, now - d->start);
	if (!d->l->keep || now >= d->l->end) {
		finish(d);
		return;
	}
	d->start = now;
	if (ask(d))
		fail(d);
}

static void on_event(struct dial *d)
{
	if (!d->left) {
		watch(d->l->epoll, EPOLL_CTL_MOD, d->fd, EPOLLIN, d);
		if (ask(d))
			fail(d);
		return;
	}
	ssize_t n = recv(d->fd, bytes, sizeof(bytes), 0);
	if (n <= 0) {
		fail(d);
		return;
	}
	d->left -= (size_t)n < d->left ? (size_t)n : d->left;
	if (!d->left)
		on_answered(d);
}

static void ask_all(struct load *l, int parallel)
{
	struct dial *all = mem_zalloc((size_t)parallel * sizeof(*all));

	for (int i = 0; i < parallel; i++) {
		all[i].l = l;
		l->active++;
		dial(&all[i]);
	}
	while (l->active) {
		struct epoll_event e[EVENTS];
		int n = epoll_wait(l->epoll, e, EVENTS, PATIENCE_MS);

		if (n == 0)
			die("no answer any more");
		for (int i = 0; i < n; i++)
			on_event(e[i].data.ptr);
	}
	free(all);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "serve"))
		serve(argv[2], atoi(argv[3]));
	if (argc != 7 && argc != 8)
		die("dial serve PORT COUNT | short|keep ADDRESS PORT PARALLEL SIZE SECONDS [MOST]");

	int64_t start = now_ns(CLOCK_MONOTONIC);
	struct load l = {.to = address_of(argv[2], argv[3]),
	    .size = (uint32_t)atoi(argv[5]),
	    .keep = !strcmp(argv[1], "keep"),
	    .epoll = epoll_create1(0),
	    .most = argc > 7 ? (size_t)atoi(argv[7]) : SIZE_MAX,
	    .end = start + (int64_t)(atof(argv[6]) * 1e9)};
	ask_all(&l, atoi(argv[4]));

	double seconds = (double)(now_ns(CLOCK_MONOTONIC) - start) / 1e9;

	if (l.times.n || !l.no_port)
		times_print(&l.times, seconds);
	else
		printf("{\"n\": 0, \"seconds\": %.3f", seconds);
	printf(", \"failed\": %zu, \"no_port\": %zu}\n", l.failed, l.no_port);
	free(l.times.ns);
	return 0;
}
