/* handover.c - one conversation, of packets of fixed size.
 *
 *   new                               old
 *   (connects)     ->                 who is it?  nobody who may: REFUSED and why, nothing is read
 *   ASK seconds    ->                 its worker ends; clients wait in the backlogs
 *                  <- ENTRY name, fd  for each that is kept
 *                  <- END count
 *   checks, starts its worker, which serves, and looks whether it serves what the old one did
 *   READY          ->                 ends
 *   REFUSED why    ->                 starts its worker again; so it does if the new one is gone
 *
 * The version comes first in every packet.  A new one that says nothing for a minute longer than it
 * asked for is killed before the old one goes on: two workers must not serve one pod.
 *
 * Callers that may ask, and have not asked yet, are a few, and the next one takes the place of the
 * first: who is mute holds nobody.
 */
#include "handover.h"
#include "border/protocol.h"
#include "broker/base/apart.h"
#include "broker/base/listener.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include "notify.h"
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

LOG_SCOPE("broker");

enum what { ASK = 1, REFUSED, ENTRY, END, READY };
enum {
	BACKLOG = 4,
	SLICE_MS = 200,
	START_PATIENCE_S = 60, /* of the old one, beside what was asked for: a full node starts */
	GIVE_PATIENCE_MS = 30000, /* of the old one: for all descriptors */
	PACKET_PATIENCE_S = 30,   /* of the new one: the other's worker ends */
};

struct packet {
	char magic[12];
	uint32_t version;
	uint32_t what, count;
	char text[LINK_WHY_SIZE]; /* name or reason */
};
static const char magic[12] = "agentd:give";

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What finds no room waits for it until then. */
static int send_until(int sock, const struct packet *p, int fd, int64_t until_ms)
{
	while (fdpass_send(sock, p, sizeof(*p), fd)) {
		struct pollfd room = {.fd = sock, .events = POLLOUT};
		int64_t left = until_ms - now_ms();
		if (errno != EAGAIN || left <= 0 || poll(&room, 1, (int)left) < 0)
			return -1;
	}
	return 0;
}

static struct packet packet_of(enum what what, uint32_t count, const char *text)
{
	struct packet p = {.version = HANDOVER_VERSION, .what = what, .count = count};

	memcpy(p.magic, magic, sizeof(magic));
	snprintf(p.text, sizeof(p.text), "%s", text);
	return p;
}

/* A word that is lost is not waited for. */
static int send_packet(int sock, enum what what, uint32_t count, const char *text)
{
	const struct packet p = packet_of(what, count, text);

	return send_until(sock, &p, -1, 0);
}

static int check_packet(struct packet *p, const struct fdpass_got *got, struct err *e)
{
	if (got->size == 0)
		return err_set(e, ECONNRESET, "the other agentd left");
	if (got->size < (ssize_t)offsetof(struct packet, what) ||
	    memcmp(p->magic, magic, sizeof(magic)) != 0)
		return err_set(e, EPROTO, "the other end is no agentd");
	if (p->version != HANDOVER_VERSION)
		return err_set(e, EPROTO,
		    "the other agentd hands over in version %u, this one in version %d: stop one, "
		    "then start the other",
		    p->version, HANDOVER_VERSION);
	if (got->size != sizeof(*p) || got->nfds > 1 || got->cut || got->lost)
		return err_set(e, EPROTO, "a packet of the other agentd is damaged");
	p->text[sizeof(p->text) - 1] = '\0';
	return 0;
}

/* *fd is the caller's; NULL: none may come, and what comes is closed apart.  EAGAIN: nothing is
 * there (`flags`: MSG_DONTWAIT), or nothing came in time. */
static int receive(int sock, struct packet *p, int *fd, int flags, struct err *e)
{
	struct fdpass_got got;

	memset(p, 0, sizeof(*p));
	int rc = fdpass_receive(sock, p, sizeof(*p), flags, &got);
	/* Closed with something unread: the error comes before what it said last. */
	if (rc && errno == ECONNRESET)
		rc = fdpass_receive(sock, p, sizeof(*p), flags, &got);
	if (rc)
		err_sys(e, "the other agentd");
	if (fd)
		*fd = fdpass_first(&got);
	for (unsigned i = 0; !fd && i < got.nfds; i++)
		(void)apart_close(got.fds[i]);
	if (rc)
		return -1;
	if (!fd && got.nfds)
		return err_set(e, EPROTO, "the other agentd sends descriptors");
	return check_packet(p, &got, e);
}

static int address_of(struct sockaddr_un *a, const char *run, const char *name)
{
	a->sun_family = AF_UNIX;
	return snprintf(a->sun_path, sizeof(a->sun_path), "%s/%s", run, name) <
		       (int)sizeof(a->sun_path)
		   ? 0
		   : -1;
}

/* --- the old one: who asks --- */

static size_t read_map(const char *pid, char *out, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/uid_map", pid);
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(out, 1, size, f) : 0;
	if (f)
		fclose(f);
	return n;
}

/* Root of a pod that was given the path is in the pod's.  Its socket says so, whoever has it. */
static bool is_of_our_network(int conn)
{
	auto_close int netns = ioctl(conn, SIOCGSKNS);
	struct stat ours, theirs;

	return netns >= 0 && !fstat(netns, &theirs) && !stat("/proc/self/ns/net", &ours) &&
	       ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* Root of a user namespace of his own has uid 0 for us too if that is how it is mapped; but he has
 * other uids as well.  Its link in /proc is hidden from who has fewer capabilities. */
static int check_peer(int conn, pid_t *pid, struct err *e)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);
	char number[16], ours[256], theirs[256];

	if (getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return err_sys(e, "SO_PEERCRED");
	if (peer.uid != 0)
		return err_set(e, EPERM, "only root may take over, not uid %u", (unsigned)peer.uid);
	if (!is_of_our_network(conn))
		return err_set(
		    e, EPERM, "only root in agentd's own network namespace may take over");
	if (peer.pid <= 0)
		return err_set(e, EPERM,
		    "the agentd that takes over is in another pid namespace and cannot be examined "
		    "(hostPID: true)");
	snprintf(number, sizeof(number), "%d", (int)peer.pid);
	size_t n = read_map("self", ours, sizeof(ours));
	if (!n || read_map(number, theirs, sizeof(theirs)) != n || memcmp(ours, theirs, n) != 0)
		return err_set(e, EPERM, "only root of the node's user namespace may take over");
	*pid = peer.pid;
	return 0;
}

/* Nothing of it is read any more: what it sent is closed with it. */
static void turn_away(int conn, const struct err *why)
{
	log_warn(NULL, "nothing is handed over: %s", why->msg);
	send_packet(conn, REFUSED, 0, why->msg);
	(void)apart_close(conn);
}

static int leave_caller(struct handover *h, struct handover_caller *c)
{
	broker_watch_end(h->epoll, &c->watch);
	c->watch.ready = NULL;
	return c->watch.fd;
}

static void on_word(void *ctx, uint32_t events)
{
	struct handover_caller *c = ctx;
	struct handover *h = c->of;
	struct packet p;
	struct err e;
	int rc = receive(c->watch.fd, &p, NULL, MSG_DONTWAIT, &e);

	(void)events;
	if (rc && e.code == EAGAIN)
		return;
	int conn = leave_caller(h, c);
	if (rc == 0 && p.what != ASK)
		rc = err_set(&e, EPROTO, "the other agentd asks for nothing");
	if (rc == 0 && h->conn >= 0)
		rc = err_set(&e, EBUSY, "another hand-over is under way");
	if (rc)
		return turn_away(conn, &e);
	log_info(NULL, "agentd %d asks to take over", (int)c->pid);
	h->peer = c->pid;
	h->wants_s = p.count < HANDOVER_SECONDS_MAX ? p.count : HANDOVER_SECONDS_MAX;
	h->conn = conn;
	h->asked(h->ctx);
}

static void await_word(struct handover *h, int conn, pid_t pid)
{
	struct handover_caller *c = &h->callers[h->next++ % HANDOVER_CALLERS];
	struct err e;

	err_set(&e, EBUSY, "others called, and this one said nothing");
	if (c->watch.ready)
		turn_away(leave_caller(h, c), &e);
	*c = (struct handover_caller){{conn, on_word, c}, h, pid};
	if (broker_watch_start(h->epoll, &c->watch, EPOLLIN)) {
		c->watch.ready = NULL;
		err_sys(&e, "watch");
		turn_away(conn, &e);
	}
}

static void on_connection(void *ctx, uint32_t events)
{
	struct handover *h = ctx;
	struct err e;
	pid_t peer = 0;
	int conn = accept4(h->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (conn < 0)
		return;
	if (check_peer(conn, &peer, &e))
		turn_away(conn, &e);
	else
		await_word(h, conn, peer);
}

/* Renamed over that of the broker before us, or of the one that failed to replace us. */
static int listen_at(const char *run, struct err *e)
{
	struct sockaddr_un temp, path;
	auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || address_of(&temp, run, ".handover.new") || address_of(&path, run, "handover"))
		return err_sys(e, "socket for a hand-over");
	apart_refuse_descriptors(fd);
	if (broker_listener_bind(fd, temp.sun_path, S_IRUSR | S_IWUSR, e))
		return -1;
	if (listen(fd, BACKLOG) || rename(temp.sun_path, path.sun_path))
		return err_sys(e, "listen on %s", path.sun_path);
	return take_fd(fd);
}

int handover_open(
    struct handover *h, int epoll, const char *run, handover_asked asked, void *ctx, struct err *e)
{
	int fd = listen_at(run, e);

	if (fd < 0)
		return -1;
	*h = (struct handover){.watch = {.fd = fd, .ready = on_connection, .ctx = h},
	    .epoll = epoll,
	    .conn = -1,
	    .asked = asked,
	    .ctx = ctx};
	if (broker_watch_start(epoll, &h->watch, EPOLLIN)) {
		close(fd);
		h->watch.ready = NULL;
		return err_sys(e, "watch the hand-over");
	}
	return 0;
}

void handover_close(struct handover *h)
{
	if (!h->watch.ready)
		return;
	broker_watch_end(h->epoll, &h->watch);
	apart_close_listener(h->watch.fd);
	for (int i = 0; i < HANDOVER_CALLERS; i++)
		if (h->callers[i].watch.ready)
			(void)apart_close(leave_caller(h, &h->callers[i]));
	mem_closep(&h->conn);
	h->watch.ready = NULL;
}

void handover_refuse(struct handover *h, const char *why)
{
	struct err e;

	err_set(&e, EBUSY, "%s", why);
	turn_away(take_fd(h->conn), &e);
}

/* --- the old one: giving --- */

struct giving {
	int conn;
	int64_t until_ms;
	uint32_t count;
	bool failed;
};

static void give_one(void *ctx, const char *name, int fd)
{
	struct giving *g = ctx;
	const struct packet p = packet_of(ENTRY, 0, name);

	g->failed = g->failed || send_until(g->conn, &p, fd, g->until_ms);
	g->count++;
}

static int give_all(struct handover *h, struct broker_fdstore *k)
{
	struct giving g = {.conn = h->conn, .until_ms = now_ms() + GIVE_PATIENCE_MS};

	broker_fdstore_each(k, BROKER_FDSTORE, give_one, &g);
	const struct packet end = packet_of(END, g.count, "");
	return g.failed ? -1 : send_until(h->conn, &end, -1, g.until_ms);
}

static bool asked_to_end(void)
{
	sigset_t s;

	return !sigpending(&s) && (sigismember(&s, SIGTERM) == 1 || sigismember(&s, SIGINT) == 1);
}

/* One slice.  True: there is a word, or an end. */
static bool hears(const struct handover *h, struct alive *a)
{
	struct pollfd fds[] = {{h->conn, POLLIN, 0}, {a->watch.fd, POLLIN, 0}};

	if (poll(fds, 2, SLICE_MS) > 0 && fds[1].revents)
		alive_answer(a);
	if (notify_watchdog_ms())
		notify("WATCHDOG=1");
	return fds[0].revents;
}

static bool wait_until_ready(const struct handover *h, struct alive *a, struct err *e)
{
	const int64_t seconds = START_PATIENCE_S + (h->wants_s ? h->wants_s : START_PATIENCE_S);
	const int64_t until_ms = now_ms() + seconds * 1000;
	struct packet p;

	while (!hears(h, a)) {
		if (asked_to_end())
			return true;
		if (now_ms() >= until_ms)
			kill(h->peer, SIGKILL);
	}
	int rc = receive(h->conn, &p, NULL, MSG_DONTWAIT, e);
	if (rc == 0 && p.what != READY)
		rc = err_set(e, ECONNRESET, "%s", p.text);
	return rc == 0;
}

enum broker_handed handover_give(struct handover *h, struct broker_fdstore *k, struct alive *a)
{
	struct err e = {0};
	bool over = false;

	if (give_all(h, k))
		err_sys(&e, "the other agentd does not take the descriptors");
	else
		over = wait_until_ready(h, a, &e);
	if (over)
		log_info(NULL, "agentd %d has taken over", (int)h->peer);
	else
		log_error(NULL, "agentd %d has not taken over, this one goes on: %s", (int)h->peer,
		    e.msg);
	(void)apart_close(take_fd(h->conn));
	return over ? BROKER_HANDED_OVER : BROKER_HANDED_BACK;
}

/* --- the new one --- */

/* -1 with errno: ENOENT and ECONNREFUSED: there is nobody. */
static int call(const char *run)
{
	const struct timeval patience = {.tv_sec = PACKET_PATIENCE_S};
	struct sockaddr_un a;
	auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (address_of(&a, run, "handover")) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return take_fd(fd);
}

/* 1: that was one, 0: that was all. */
static int take_one(int conn, struct broker_fdstore *k, uint32_t count, struct err *e)
{
	struct packet p;
	int fd, rc = receive(conn, &p, &fd, 0, e);

	if (rc == 0 && p.what == ENTRY && fd >= 0) {
		broker_fdstore_found(k, p.text, fd);
		return 1;
	}
	mem_closep(&fd);
	if (rc == 0 && p.what == END && p.count == count)
		return 0;
	if (rc == 0 && p.what == REFUSED)
		return err_set(e, EPERM, "the other agentd refuses: %s", p.text);
	return rc ? rc : err_set(e, EPROTO, "the other agentd gave less than it announced");
}

int handover_take(const char *run, unsigned seconds, struct broker_fdstore *k,
    struct handover_from *f, struct err *e)
{
	auto_close int fd = call(run);
	struct ucred old = {.pid = 0};
	socklen_t size = sizeof(old);
	uint32_t count = 0;
	int rc;

	*f = (struct handover_from){.conn = -1};
	if (fd < 0 && (errno == ENOENT || errno == ECONNREFUSED))
		return 0;
	if (fd < 0 || send_packet(fd, ASK, seconds, ""))
		return err_sys(e, "%s/handover", run);
	while ((rc = take_one(fd, k, count, e)) > 0)
		count++;
	if (rc)
		return -1;
	log_info(NULL, "took over %u descriptors", count);
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &old, &size))
		f->pid = old.pid;
	f->conn = take_fd(fd);
	return 0;
}

bool handover_is_waited_for(const struct handover_from *f)
{
	struct pollfd p = {.fd = f->conn, .events = POLLIN};

	return f->conn >= 0 && poll(&p, 1, 0) == 0; /* it says nothing more; its end is readable */
}

static void end_with(struct handover_from *f, enum what what, const char *why)
{
	if (f->conn >= 0)
		send_packet(f->conn, what, 0, why);
	mem_closep(&f->conn);
}

void handover_done(struct handover_from *f)
{
	end_with(f, READY, "");
}

void handover_give_back(struct handover_from *f, const char *why)
{
	end_with(f, REFUSED, why);
}
