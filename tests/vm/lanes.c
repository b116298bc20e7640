/* lanes.c - sockets of any user, and what each end may do with them.
 */
#include "lanes.h"
#include "checks.h"
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE = 1 << 17, WAIT_MS = 60000 };

uint64_t lanes_read;

/* --- two ends of one connection --- */

void lanes_become(uid_t uid)
{
	if (setresuid(0, 0, 0) || setresgid(uid, uid, 0) || setresuid(uid, uid, 0))
		broken("another user");
}

void lanes_move_to(const struct place *p)
{
	int procs;

	lanes_become(0);
	procs = openat(p->cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (setns(p->netns, CLONE_NEWNET) || write(procs, "0", 1) != 1)
		broken("a place of another pod");
	close(procs);
}

int lanes_listen(uid_t uid, uint16_t port)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	const int on = 1, off = 0;
	int fd;

	lanes_become(uid);
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 64))
		broken("a listener to accelerate");
	return fd;
}

struct pair lanes_join(int listener, bool inbound)
{
	struct sockaddr_in from = {.sin_family = AF_INET},
			   to = {.sin_family = AF_INET, .sin_port = htons(inbound ? APP_PORT : 80)};
	const int on = 1; /* as Envoy */
	int dialled, accepted;

	lanes_become(inbound ? ENVOY : APP);
	inet_pton(AF_INET, "127.0.0.6", &from.sin_addr);
	inet_pton(AF_INET, inbound ? "127.0.0.1" : peer_ip[0], &to.sin_addr);
	dialled = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(dialled, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	if ((inbound && bind(dialled, (struct sockaddr *)&from, sizeof(from))) ||
	    connect(dialled, (struct sockaddr *)&to, sizeof(to)))
		broken("a dial to accelerate");
	accepted = accept(listener, NULL, NULL);
	return inbound ? (struct pair){accepted, dialled} : (struct pair){dialled, accepted};
}

struct pair lanes_join_between(int listener, bool back)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(APP_PORT)};
	int dialled, accepted;

	inet_pton(AF_INET, peer_ip[0], &to.sin_addr);
	dialled = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(dialled, (struct sockaddr *)&to, sizeof(to)))
		broken("a dial to another Envoy");
	accepted = accept(listener, NULL, NULL);
	return back ? (struct pair){accepted, dialled} : (struct pair){dialled, accepted};
}

void lanes_part(const struct pair *p)
{
	close(p->app);
	close(p->envoy);
}

/* --- stories: what was wrong, or nothing --- */

/* As Envoy, which is told first and waits in no call: one that waits in recv() while a reset comes
 * is told EAGAIN by Linux 6.1. */
static ssize_t hear(int fd, char *to, size_t size, int flags)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, WAIT_MS) == 1 ? recv(fd, to, size, flags | MSG_DONTWAIT) : -1;
}

const char *lanes_word(const struct pair *p)
{
	char read[16] = "", back[16] = "";

	if (send(p->app, "hello", 5, 0) != 5 || hear(p->envoy, read, 5, MSG_PEEK) != 5 ||
	    hear(p->envoy, read, sizeof(read), 0) != 5 || send(p->envoy, "world", 5, 0) != 5 ||
	    hear(p->app, back, sizeof(back), 0) != 5)
		return "a word is lost";
	lanes_read += 10;
	return memcmp(read, "hello", 5) || memcmp(back, "world", 5) ? "a word is another" : NULL;
}

const char *lanes_words(const struct pair *p)
{
	const char *wrong = NULL;

	for (int i = 0; i < 100 && !wrong; i++)
		wrong = lanes_word(p);
	return wrong;
}

const char *lanes_half_closed(const struct pair *p)
{
	char read[64];

	if (shutdown(p->envoy, SHUT_WR) || send(p->app, "late", 4, 0) != 4 ||
	    shutdown(p->app, SHUT_WR) || send(p->app, "never", 5, MSG_NOSIGNAL) != -1)
		return "half-closed ends do not work";
	if (hear(p->envoy, read, sizeof(read), 0) != 4 ||
	    hear(p->envoy, read, sizeof(read), 0) != 0)
		return "the last word of a half-closed connection is lost";
	return NULL;
}

const char *lanes_reset(const struct pair *p)
{
	const struct linger now = {.l_onoff = 1};
	char read[64];
	int fd = dup(p->app);

	if (send(p->app, "last", 4, 0) != 4 ||
	    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)))
		return "no reset";
	close(fd);
	close(p->app);
	if (hear(p->envoy, read, sizeof(read), 0) != 4)
		return "a reset takes what was sent before";
	if (hear(p->envoy, read, sizeof(read), 0) != -1)
		return "a reset is an end";
	return errno == ECONNRESET ? NULL : "a reset is not heard";
}

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 31 + i / 251);
}

/* One that waits for nobody; nothing more goes in: how much went. */
static size_t fill(int fd, size_t at, size_t most)
{
	uint8_t piece[PIECE];
	ssize_t n = 1;

	while (at < most && n > 0) {
		size_t size = most - at < sizeof(piece) ? most - at : sizeof(piece);
		for (size_t i = 0; i < size; i++)
			piece[i] = byte_at(at + i);
		n = send(fd, piece, size, MSG_DONTWAIT);
		at += n > 0 ? (size_t)n : 0;
	}
	return at;
}

static bool drain(int fd, size_t *at)
{
	uint8_t piece[1 << 14];
	ssize_t n;

	while ((n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			if (piece[i] != byte_at((*at)++))
				return false;
		lanes_read += (uint64_t)n;
	}
	return true;
}

const char *lanes_stuck(const struct pair *p)
{
	size_t in = fill(p->app, 0, 16 * (size_t)BULK), out = 0;

	if (in == 16 * (size_t)BULK)
		return "a reader that is stuck lets the writer go on";
	shutdown(p->app, SHUT_WR);
	for (int i = 0; out < in && i < 100000; i++) {
		struct epoll_event e;
		int poll = epoll_create1(0);
		epoll_ctl(poll, EPOLL_CTL_ADD, p->envoy, &(struct epoll_event){.events = EPOLLIN});
		if (epoll_wait(poll, &e, 1, WAIT_MS) != 1)
			i = 100000;
		close(poll);
		if (!drain(p->envoy, &out))
			return "bytes of a stuck reader differ";
	}
	return out == in ? NULL : "bytes of a stuck reader are lost";
}

const char *lanes_edges(const struct pair *p)
{
	struct epoll_event e[2];
	size_t in = 0, out = 0;
	int poll = epoll_create1(0), n = 2;

	epoll_ctl(poll, EPOLL_CTL_ADD, p->app, &(struct epoll_event){.events = EPOLLOUT | EPOLLET});
	epoll_ctl(
	    poll, EPOLL_CTL_ADD, p->envoy, &(struct epoll_event){.events = EPOLLIN | EPOLLET});
	while (out < BULK && n > 0) {
		n = epoll_wait(poll, e, 2, WAIT_MS);
		in = fill(p->app, in, BULK);
		if (!drain(p->envoy, &out))
			return "bytes of a stream differ";
	}
	close(poll);
	return out == BULK ? NULL : "a reader was not told";
}

/* --- the maps --- */

static void sum_up(struct accelerate_counts *sum, const struct accelerate_counts *row)
{
	sum->lanes += row->lanes;
	sum->given += row->given;
	sum->passed += row->passed;
}

struct accelerate_row lanes_counted(const struct world *w)
{
	struct accelerate_row row, sum = {0};
	int fd = pinned_map(w, "lane_rows");

	for (uint32_t at = 0; at < ACCELERATE_ROWS && !bpf_map_lookup_elem(fd, &at, &row); at++) {
		sum_up(&sum.loopback, &row.loopback);
		sum_up(&sum.between, &row.between);
	}
	close(fd);
	return sum;
}

void lanes_nothing_stays(const struct world *w)
{
	int givers = map_count(w, "givers"), takers = map_count(w, "takers"),
	    places = map_count(w, "taker_places");

	check(!givers && !takers && !places, "nothing stays in the maps", "%d %d %d", givers,
	    takers, places);
}
