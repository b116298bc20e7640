/* handover.c - one conversation, of packets of fixed size.
 *
 *   new                               old
 *   ASK            ->                 may it?  no: REFUSED and why
 *                                     its worker ends; clients wait in the backlogs
 *                  <- ENTRY name, fd  for each that is kept
 *                  <- END count
 *   checks, starts its worker
 *   READY          ->                 ends
 *   (closes)       ->                 starts its worker again
 *
 * The version comes first in every packet.  A new one that says nothing for too long is killed
 * before the old one goes on: two workers must not serve one pod.
 */
#include "handover.h"
#include "broker/base/listener.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/protocol.h"
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

LOG_SCOPE("broker");

enum what { ASK = 1, REFUSED, ENTRY, END, READY };
enum {
	BACKLOG = 4,
	SLICE_MS = 200,
	READY_PATIENCE_MS = 120000, /* of the old one: a node full of pods starts */
	PACKET_PATIENCE_S = 30,     /* of the new one: the other's worker ends */
	ASK_PATIENCE_S = 1,         /* of the old one, which serves meanwhile */
};

struct packet {
	char magic[12];
	uint32_t version;
	uint32_t what, count;
	char text[LINK_WHY_SIZE]; /* name or reason */
};
static const char magic[12] = "agentd:give";

static int send_packet(int sock, enum what what, uint32_t count, const char *text, int fd)
{
	struct packet p = {.version = HANDOVER_VERSION, .what = what, .count = count};

	memcpy(p.magic, magic, sizeof(magic));
	snprintf(p.text, sizeof(p.text), "%s", text);
	while (fdpass_send(sock, &p, sizeof(p), fd)) {
		struct pollfd room = {.fd = sock, .events = POLLOUT};
		if (errno != EAGAIN || poll(&room, 1, PACKET_PATIENCE_S * 1000) != 1)
			return -1;
	}
	return 0;
}

/* Waits for one; *fd is the caller's. */
static int receive(int sock, struct packet *p, int *fd, struct err *e)
{
	struct fdpass_got got;

	memset(p, 0, sizeof(*p));
	int rc = fdpass_receive(sock, p, sizeof(*p), 0, &got);
	*fd = fdpass_first(&got);
	if (rc)
		return err_sys(e, "the other agentd");
	if (got.size == 0)
		return err_set(e, ECONNRESET, "the other agentd left");
	if (got.size < (ssize_t)offsetof(struct packet, what) ||
	    memcmp(p->magic, magic, sizeof(magic)) != 0)
		return err_set(e, EPROTO, "the other end is no agentd");
	if (p->version != HANDOVER_VERSION)
		return err_set(e, EPROTO,
		    "the other agentd hands over in version %u, this one in version %d: stop one, "
		    "then start the other",
		    p->version, HANDOVER_VERSION);
	if (got.size != sizeof(*p) || got.nfds > 1 || got.cut || got.lost)
		return err_set(e, EPROTO, "a packet of the other agentd is damaged");
	p->text[sizeof(p->text) - 1] = '\0';
	return 0;
}

static int address_of(struct sockaddr_un *a, const char *run, const char *name)
{
	a->sun_family = AF_UNIX;
	return snprintf(a->sun_path, sizeof(a->sun_path), "%s/%s", run, name) <
		       (int)sizeof(a->sun_path)
		   ? 0
		   : -1;
}

static void set_patience(int sock, time_t seconds)
{
	const struct timeval t = {.tv_sec = seconds};

	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
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

static int check_ask(int conn, struct err *e)
{
	struct packet p;
	int fd, rc = receive(conn, &p, &fd, e);

	mem_closep(&fd);
	if (rc == 0 && p.what != ASK)
		rc = err_set(e, EPROTO, "the other agentd asks for nothing");
	return rc;
}

static void on_connection(void *ctx, uint32_t events)
{
	struct handover *h = ctx;
	struct err e;
	pid_t peer = 0;
	auto_close int conn = accept4(h->watch.fd, NULL, NULL, SOCK_CLOEXEC);

	(void)events;
	if (conn < 0)
		return;
	set_patience(conn, ASK_PATIENCE_S);
	/* The question is taken first: with it unread, closing would lose the answer. */
	int rc = check_ask(conn, &e) || check_peer(conn, &peer, &e) ? -1 : 0;
	if (rc == 0 && h->conn >= 0)
		rc = err_set(&e, EBUSY, "another hand-over is under way");
	if (rc) {
		log_warn(NULL, "nothing is handed over: %s", e.msg);
		send_packet(conn, REFUSED, 0, e.msg, -1);
		return;
	}
	log_info(NULL, "agentd %d asks to take over", (int)peer);
	h->peer = peer;
	h->conn = take_fd(conn);
	h->asked(h->ctx);
}

/* Renamed over that of the broker before us, or of the one that failed to replace us. */
static int listen_at(const char *run, struct err *e)
{
	struct sockaddr_un temp, path;
	auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0 || address_of(&temp, run, ".handover.new") || address_of(&path, run, "handover"))
		return err_sys(e, "socket for a hand-over");
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
	close(h->watch.fd);
	mem_closep(&h->conn);
	h->watch.ready = NULL;
}

void handover_refuse(struct handover *h, const char *why)
{
	send_packet(h->conn, REFUSED, 0, why, -1);
	log_warn(NULL, "nothing is handed over: %s", why);
	mem_closep(&h->conn);
}

/* --- the old one: giving --- */

struct giving {
	int conn;
	uint32_t count;
	bool failed;
};

static void give_one(void *ctx, const char *name, int fd)
{
	struct giving *g = ctx;

	g->failed = g->failed || send_packet(g->conn, ENTRY, 0, name, fd);
	g->count++;
}

static bool asked_to_end(void)
{
	sigset_t s;

	return !sigpending(&s) && (sigismember(&s, SIGTERM) == 1 || sigismember(&s, SIGINT) == 1);
}

static bool wait_until_ready(const struct handover *h, struct err *e)
{
	struct pollfd there = {.fd = h->conn, .events = POLLIN};
	struct packet p;
	int fd;

	for (int ms = 0; poll(&there, 1, SLICE_MS) == 0; ms += SLICE_MS) {
		if (asked_to_end())
			return true;
		if (notify_watchdog_ms())
			notify("WATCHDOG=1");
		if (ms == READY_PATIENCE_MS)
			kill(h->peer, SIGKILL);
	}
	int rc = receive(h->conn, &p, &fd, e);
	mem_closep(&fd);
	if (rc == 0 && p.what != READY)
		rc = err_set(e, ECONNRESET, "%s", p.text);
	return rc == 0;
}

enum broker_handed handover_give(struct handover *h, struct broker_fdstore *k)
{
	struct giving g = {.conn = h->conn};
	struct err e = {0};
	bool over = false;

	broker_fdstore_each(k, BROKER_FDSTORE, give_one, &g);
	if (g.failed || send_packet(h->conn, END, g.count, "", -1))
		err_sys(&e, "the other agentd does not take the descriptors");
	else
		over = wait_until_ready(h, &e);
	if (over)
		log_info(NULL, "agentd %d has taken over", (int)h->peer);
	else
		log_error(NULL, "agentd %d has not taken over, this one goes on: %s", (int)h->peer,
		    e.msg);
	mem_closep(&h->conn);
	return over ? BROKER_HANDED_OVER : BROKER_HANDED_BACK;
}

/* --- the new one --- */

/* -1 with errno: ENOENT and ECONNREFUSED: there is nobody. */
static int call(const char *run)
{
	struct sockaddr_un a;
	auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (address_of(&a, run, "handover")) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		return -1;
	set_patience(fd, PACKET_PATIENCE_S);
	return take_fd(fd);
}

/* 1: that was one, 0: that was all. */
static int take_one(int conn, struct broker_fdstore *k, uint32_t count, struct err *e)
{
	struct packet p;
	int fd, rc = receive(conn, &p, &fd, e);

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

int handover_take(const char *run, struct broker_fdstore *k, int *conn, struct err *e)
{
	auto_close int fd = call(run);
	uint32_t count = 0;
	int rc;

	*conn = -1;
	if (fd < 0 && (errno == ENOENT || errno == ECONNREFUSED))
		return 0;
	if (fd < 0 || send_packet(fd, ASK, 0, "", -1))
		return err_sys(e, "%s/handover", run);
	while ((rc = take_one(fd, k, count, e)) > 0)
		count++;
	if (rc)
		return -1;
	log_info(NULL, "took over %u descriptors", count);
	*conn = take_fd(fd);
	return 0;
}

void handover_done(int *conn)
{
	if (*conn < 0)
		return;
	send_packet(*conn, READY, 0, "", -1);
	close(*conn);
	*conn = -1;
}
