/* notify.c - a datagram for each thing said.
 *
 * start: what systemd kept comes as fds from 3 on -> found; while running: FDSTORE for each put,
 * FDSTOREREMOVE for each drop, and what the keeper says.  systemd closes a stored fd that hangs up,
 * which is right for a stream (a listener that was shut down is worthless) and wrong for the rest:
 * an ICMP error on a UDP socket looks the same, so FDPOLL=0.  Storing needs
 * FileDescriptorStoreMax=; without it systemd drops what it gets, says so in its log, and a restart
 * costs what it costs.
 *
 * A burst may fill the manager's socket, so the first message that finds no room waits, for up to a
 * second.  If that was in vain the manager stands still: from then on messages queue up without
 * waiting, until one gets through.  WATCHDOG=1 does not: it would be old.
 */
#include "notify.h"
#include "broker/base/rundir.h"
#include "broker/base/state.h"
#include "broker/netns/pod_sockets.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

enum { FIRST_FD = 3, FDS_MAX = 1 << 20, MESSAGE_SIZE = 512, QUEUED_MAX = 8192 };

/* It could not be said yet. */
struct queued {
	int fd; /* -1; ours */
	struct queued *prev, *next;
	char text[];
};

static struct {
	int fd;
	socklen_t size;
	struct sockaddr_un to;
	bool open, complained;
	bool silent; /* it was waited for, in vain */
	struct queued *queue;
	unsigned nqueued;
} manager;

static bool read_address(const char *text)
{
	size_t n = text ? strlen(text) : 0;

	if ((n && *text != '/' && *text != '@') || n < 2 || n >= sizeof(manager.to.sun_path))
		return false;
	manager.to.sun_family = AF_UNIX;
	memcpy(manager.to.sun_path, text, n);
	if (*text == '@')
		manager.to.sun_path[0] = '\0';
	manager.size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
	return true;
}

void notify_open(void)
{
	const struct timeval patience = {.tv_sec = 1};

	if (manager.open || !read_address(getenv("NOTIFY_SOCKET")))
		return;
	manager.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	manager.open = manager.fd >= 0;
	if (manager.open)
		setsockopt(manager.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

static void unqueue(struct queued *q)
{
	DL_DELETE(manager.queue, q);
	manager.nqueued--;
	mem_closep(&q->fd);
	free(q);
}

void notify_close(void)
{
	while (manager.queue)
		unqueue(manager.queue);
	if (manager.open)
		close(manager.fd);
	memset(&manager, 0, sizeof(manager));
}

static int transmit(const char *text, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = (char *)text, .iov_len = strlen(text)};
	struct msghdr msg = {
	    .msg_name = &manager.to, .msg_namelen = manager.size, .msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(manager.fd, &msg, MSG_NOSIGNAL | (manager.silent ? MSG_DONTWAIT : 0)) < 0;
}

/* False: there is no room. */
static bool say_now(const char *text, int fd)
{
	if (!transmit(text, fd)) {
		manager.complained = false;
		return true;
	}
	if (!manager.complained)
		log_warn(NULL, "the service manager cannot be notified: %m");
	manager.complained = true;
	manager.silent = errno == EAGAIN;
	return !manager.silent; /* what fails otherwise would fail again */
}

static void keep(const char *text, int fd)
{
	struct queued *q = mem_zalloc(sizeof(*q) + strlen(text) + 1);

	if (manager.nqueued == QUEUED_MAX)
		unqueue(manager.queue);
	memcpy(q->text, text, strlen(text) + 1);
	q->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	DL_APPEND(manager.queue, q);
	manager.nqueued++;
}

void notify_again(void)
{
	while (manager.queue && say_now(manager.queue->text, manager.queue->fd))
		unqueue(manager.queue);
	manager.silent = manager.queue;
}

const char *notify_problem(void)
{
	return manager.queue ? "the service manager does not read: it may take agentd for not "
			       "started, or for hung"
			     : NULL;
}

static void send_message(const char *text, int fd)
{
	if (!manager.open)
		return;
	notify_again();
	if ((manager.queue || !say_now(text, fd)) && !strstr(text, "WATCHDOG=1"))
		keep(text, fd);
}

void notify(const char *fmt, ...)
{
	char text[MESSAGE_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	send_message(text, -1);
}

/* The time is what Type=notify-reload (systemd 253) wants with it. */
void notify_reloading(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	notify(
	    "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000);
}

/* Digits only; -1: no such variable, or not a number up to `max`. */
static long long number_of(const char *variable, long long max)
{
	const char *text = getenv(variable);
	char *end;

	if (!text || *text < '0' || *text > '9')
		return -1;
	errno = 0;
	long long n = strtoll(text, &end, 10);
	return *end || errno || n > max ? -1 : n;
}

int64_t notify_watchdog_ms(void)
{
	long long us = number_of("WATCHDOG_USEC", LLONG_MAX),
		  pid = number_of("WATCHDOG_PID", INT_MAX);

	if (us <= 0 || (pid >= 0 && pid != getpid()))
		return 0;
	return us < 1000 ? 1 : us / 1000;
}

/* --- FDSTORE --- */

static bool is_stream(int fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM;
}

static void on_put(void *ctx, const char *name, int fd)
{
	char text[MESSAGE_SIZE];

	(void)ctx;
	if (!strcmp(name, BROKER_RUNDIR_LOCK) || broker_state_is_key(name) ||
	    pod_sockets_is_kept(name))
		return;
	snprintf(
	    text, sizeof(text), "FDSTORE=1\nFDNAME=%s%s", name, is_stream(fd) ? "" : "\nFDPOLL=0");
	send_message(text, fd);
}

static void on_drop(void *ctx, const char *name)
{
	(void)ctx;
	notify("FDSTOREREMOVE=1\nFDNAME=%s", name);
}

/* A copy of the name that `*at` begins with, which is moved past its ':'. */
static void next_name(const char **at, char out[BROKER_FDSTORE_NAME])
{
	size_t n = strcspn(*at, ":");

	/* One that is too long is cut, belongs to nobody then, and is swept. */
	snprintf(out, BROKER_FDSTORE_NAME, "%.*s", (int)(n < INT_MAX ? n : 0), *at);
	*at += n + ((*at)[n] == ':');
}

static void receive(struct broker_fdstore *k)
{
	long long n = number_of("LISTEN_FDS", FDS_MAX);
	const char *names = getenv("LISTEN_FDNAMES");
	char name[BROKER_FDSTORE_NAME];

	if (n <= 0 || number_of("LISTEN_PID", INT_MAX) != getpid())
		return;
	names = names ? names : "";
	for (int fd = FIRST_FD; fd < FIRST_FD + n && fcntl(fd, F_GETFD) >= 0; fd++) {
		next_name(&names, name);
		broker_fdstore_found(k, name, fd);
	}
	log_info(NULL, "%lld descriptors were kept by the service manager", n);
}

/* After a re-execution the pid is the same and the numbers are not: they count once. */
void notify_keep(struct broker_fdstore *k)
{
	receive(k);
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDNAMES");
	if (manager.open)
		broker_fdstore_mirror(k, &(struct broker_fdstore_sink){on_put, on_drop, NULL});
}
