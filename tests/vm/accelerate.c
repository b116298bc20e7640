/* accelerate.c - an app and its Envoy, accelerated, and two Envoys: what is written is read, once and
 * in order.
 *
 * A kernel that cannot says why, and everything goes as without.
 */
#include "broker/redirect/accelerate.h"
#include "checks.h"
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	OUT = 15001,
	IN = 15006,
	APP_PORT = 8081,
	BULK = 4 << 20,
	PIECE = 1 << 17,
	WAIT_MS = 5000,
	CONNECTIONS = 200
};

struct pair {
	int app, envoy;
};
/* Where an Envoy dials from, while its child listens as another. */
struct story {
	bool back; /* the one that accepted writes */
	const struct place *from;
};
struct outcome {
	char wrong[96];
};

/* --- two ends of one connection --- */

static void become(uid_t uid)
{
	if (setresuid(0, 0, 0) || setresgid(uid, uid, 0) || setresuid(uid, uid, 0))
		broken("another user");
}

static int listen_at(uid_t uid, uint16_t port)
{
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	const int on = 1, off = 0;
	int fd;

	become(uid);
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 64))
		broken("a listener to accelerate");
	return fd;
}

static struct pair join(int listener, bool inbound)
{
	struct sockaddr_in from = {.sin_family = AF_INET},
			   to = {.sin_family = AF_INET, .sin_port = htons(inbound ? APP_PORT : 80)};
	const struct timeval limit = {.tv_sec = WAIT_MS / 1000};
	int dialled, accepted;

	become(inbound ? ENVOY : APP);
	inet_pton(AF_INET, "127.0.0.6", &from.sin_addr);
	inet_pton(AF_INET, inbound ? "127.0.0.1" : peer_ip[0], &to.sin_addr);
	dialled = socket(AF_INET, SOCK_STREAM, 0);
	if ((inbound && bind(dialled, (struct sockaddr *)&from, sizeof(from))) ||
	    connect(dialled, (struct sockaddr *)&to, sizeof(to)))
		broken("a dial to accelerate");
	accepted = accept(listener, NULL, NULL);
	setsockopt(dialled, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(accepted, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return inbound ? (struct pair){accepted, dialled} : (struct pair){dialled, accepted};
}

static void part_from(const struct pair *p)
{
	close(p->app);
	close(p->envoy);
}

/* --- stories: what was wrong, or nothing --- */

static const char *tell_words(const struct pair *p)
{
	char read[16] = "";

	for (int i = 0; i < 100; i++)
		if (send(p->app, "hello", 5, 0) != 5 || recv(p->envoy, read, 5, MSG_PEEK) != 5 ||
		    recv(p->envoy, read, sizeof(read), 0) != 5 ||
		    send(p->envoy, "world", 5, 0) != 5 || recv(p->app, read, sizeof(read), 0) != 5)
			return "a word is lost";
	return NULL;
}

static const char *tell_half_closed(const struct pair *p)
{
	char read[64];

	if (shutdown(p->envoy, SHUT_WR) || send(p->app, "late", 4, 0) != 4 ||
	    shutdown(p->app, SHUT_WR) || send(p->app, "never", 5, MSG_NOSIGNAL) != -1)
		return "half-closed ends do not work";
	if (recv(p->envoy, read, sizeof(read), 0) != 4 ||
	    recv(p->envoy, read, sizeof(read), 0) != 0)
		return "the last word of a half-closed connection is lost";
	return NULL;
}

static const char *tell_reset(const struct pair *p)
{
	const struct linger now = {.l_onoff = 1};
	char read[64];
	int fd = dup(p->app);

	if (send(p->app, "last", 4, 0) != 4 ||
	    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)))
		return "no reset";
	close(fd);
	close(p->app);
	if (recv(p->envoy, read, sizeof(read), 0) != 4 ||
	    recv(p->envoy, read, sizeof(read), 0) != -1 || errno != ECONNRESET)
		return "a reset takes what was sent before";
	return NULL;
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

	while ((n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT)) > 0)
		for (ssize_t i = 0; i < n; i++)
			if (piece[i] != byte_at((*at)++))
				return false;
	return true;
}

static const char *tell_stuck(const struct pair *p)
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

static const char *tell_edges(const struct pair *p)
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

/* Of the first connections; the others say some words. */
static const char *(*const stories[])(const struct pair *) = {
    tell_words, tell_half_closed, tell_reset, tell_stuck, tell_edges};

static void move_to(const struct place *p)
{
	int procs;

	become(0);
	procs = openat(p->cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (setns(p->netns, CLONE_NEWNET) || write(procs, "0", 1) != 1)
		broken("a place of another pod");
	close(procs);
}

static struct pair join_between(int listener, bool back)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(APP_PORT)};
	const struct timeval limit = {.tv_sec = WAIT_MS / 1000};
	int dialled, accepted;

	inet_pton(AF_INET, peer_ip[0], &to.sin_addr);
	dialled = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(dialled, (struct sockaddr *)&to, sizeof(to)))
		broken("a dial to another Envoy");
	accepted = accept(listener, NULL, NULL);
	setsockopt(dialled, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(accepted, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return back ? (struct pair){accepted, dialled} : (struct pair){dialled, accepted};
}

static void tell_between(void *ctx, void *result)
{
	const struct story *s = ctx;
	struct outcome *out = result;
	int listener = listen_at(ENVOY, IN);

	move_to(s->from);
	become(ENVOY);
	for (size_t i = 0; i < CONNECTIONS && !*out->wrong; i++) {
		struct pair p = join_between(listener, s->back);
		const char *wrong =
		    i < sizeof(stories) / sizeof(*stories) ? stories[i](&p) : tell_words(&p);
		part_from(&p);
		if (wrong)
			snprintf(out->wrong, sizeof(out->wrong), "%s", wrong);
	}
	close(listener);
}

static void tell_all(void *ctx, void *result)
{
	bool inbound = *(const bool *)ctx;
	struct outcome *out = result;
	int listener = inbound ? listen_at(APP, APP_PORT) : listen_at(ENVOY, OUT);

	for (size_t i = 0; i < CONNECTIONS; i++) {
		struct pair p = join(listener, inbound);
		const char *wrong =
		    i < sizeof(stories) / sizeof(*stories) ? stories[i](&p) : tell_words(&p);
		part_from(&p);
		if (wrong) {
			snprintf(out->wrong, sizeof(out->wrong), "%s", wrong);
			break;
		}
	}
	close(listener);
}

/* --- the checks --- */

static void must_tell(const struct world *w, bool inbound, const char *name)
{
	struct outcome out = {""};
	int rc = visit(&w->pod, (struct who){0, 0}, tell_all, &inbound, &out, sizeof(out));

	check(!rc && !*out.wrong, name, "%s", rc ? "it died" : out.wrong);
}

static void must_tell_between(const struct world *w, bool back, const char *name)
{
	struct story s = {.back = back, .from = &w->pod};
	struct outcome out = {""};
	int rc = visit(&w->peer, (struct who){0, 0}, tell_between, &s, &out, sizeof(out));

	check(!rc && !*out.wrong, name, "%s", rc ? "it died" : out.wrong);
}

static struct accelerate_counts counted(const struct world *w, const char *map)
{
	struct accelerate_counts each[256] = {{0}}, sum = {0};
	const uint32_t at = 0;
	int fd = pinned_map(w, map);

	if (fd >= 0)
		bpf_map_lookup_elem(fd, &at, each);
	close(fd);
	for (size_t i = 0; i < sizeof(each) / sizeof(*each); i++) {
		sum.lanes += each[i].lanes;
		sum.given += each[i].given;
	}
	return sum;
}

static void check_nothing_stays(const struct world *w)
{
	int givers = map_count(w, "givers"), takers = map_count(w, "takers"),
	    places = map_count(w, "taker_places");

	check(!givers && !takers && !places, "nothing stays in the maps", "%d %d %d", givers,
	    takers, places);
}

/* The peer's programs are those of a pod for the while. */
static void check_between(
    struct loader *l, const struct world *w, const struct redirect_rules *rules)
{
	struct accelerate_counts c;
	struct err why;

	if (loader_set_peer(l, rules, &why))
		check(false, "another pod that accelerates", "%s", why.msg);
	check(map_count(w, "homes") >= 2, "two pods' addresses are theirs", "%d",
	    map_count(w, "homes"));
	must_tell_between(w, false, "an Envoy writes to another");
	must_tell_between(w, true, "and that one to the first");
	c = counted(w, "between_counts");
	check(c.lanes >= 2 * CONNECTIONS && c.given > 2 * PIECE, "bytes from Envoy to Envoy",
	    "%llu connections, %llu bytes", (unsigned long long)c.lanes,
	    (unsigned long long)c.given);
	check_nothing_stays(w);
	if (loader_remove_peer(l, &why))
		check(false, "the other pod goes", "%s", why.msg);
}

void check_acceleration(struct loader *l, const struct world *w)
{
	struct redirect_rules rules = default_rules();
	char path[2 * TEXT];
	struct err why;

	part("acceleration");
	rules.flags |= REDIRECT_ACCELERATE | REDIRECT_ACCELERATE_NODE;
	if (loader_set(l, &rules, &why) || loader_live(l, &why))
		check(false, "rules that accelerate", "%s", why.msg);
	must_tell(w, false, "an app writes to its Envoy, outbound");
	must_tell(w, true, "an app writes to its Envoy, inbound");
	snprintf(path, sizeof(path), "%s/agentd/v%d/map_givers", w->bpffs, REDIRECT_LAYOUT);
	if (access(path, F_OK)) {
		int rc = redirect_accelerate_try(false, &why);
		check(rc != 0, "acceleration refused by a kernel that can", "%s", "");
		printf("     not accelerated: %s\n", rc ? why.msg : "");
		return;
	}
	struct accelerate_counts c = counted(w, "lane_counts");
	check(c.lanes >= 2 * CONNECTIONS && c.given > PIECE, "bytes from socket to socket",
	    "%llu connections, %llu bytes", (unsigned long long)c.lanes,
	    (unsigned long long)c.given);
	check_nothing_stays(w);
	check_between(l, w, &rules);
}
