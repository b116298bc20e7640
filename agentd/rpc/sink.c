/* sink.c - shut down: nothing more can come -> the list -> the closer's close(), which sleeps while
 * a descriptor inside of it lingers -> a signal ends that sleep (process-split.md 8).
 *
 * Signals cannot wait for a sleep that has not begun, so the hurrier repeats them until the closer
 * is through.  Neither thread is there before it is needed.
 */
#include "sink.h"
#include "common/mem.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum { HURRY_NS = 1000000, STACK_SIZE = 64 << 10, PARTS_MAX = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int *fds; /* to be closed */
static size_t nfds, room;
static bool closing, started;
static pthread_t closer;

bool sink_is_needed(int fd)
{
	int passes = 1;
	socklen_t size = sizeof(passes);

	return getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &passes, &size) || passes;
}

/* What was looked at, and no byte more: behind it may be something else by now. */
ssize_t sink_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct iovec part[PARTS_MAX];
	struct msghdr look = *msg;
	size_t n = 0;

	if (look.msg_iovlen > PARTS_MAX)
		look.msg_iovlen = PARTS_MAX;
	memcpy(part, msg->msg_iov, look.msg_iovlen * sizeof(*part));
	look.msg_iov = part;
	ssize_t seen = syscall(SYS_recvmsg, fd, &look, flags | MSG_PEEK);

	if (seen <= 0)
		return seen;
	if (look.msg_flags & MSG_CTRUNC) {
		errno = EBADMSG;
		return -1;
	}
	for (size_t left = (size_t)seen; left > 0; n++) {
		if (part[n].iov_len > left)
			part[n].iov_len = left;
		left -= part[n].iov_len;
	}
	look.msg_iovlen = n;
	seen = syscall(SYS_recvmsg, fd, &look, flags);
	msg->msg_flags = look.msg_flags;
	return seen;
}

/* --- the end --- */

static void *close_all(void *arg)
{
	pthread_mutex_lock(&lock);
	for (;;) {
		while (nfds == 0)
			pthread_cond_wait(&changed, &lock);
		int fd = fds[--nfds];

		closing = true;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
		syscall(SYS_close, fd);
		pthread_mutex_lock(&lock);
		closing = false;
	}
	return arg;
}

static void *hurry(void *arg)
{
	const struct timespec pause = {.tv_nsec = HURRY_NS};

	pthread_mutex_lock(&lock);
	for (;;) {
		while (!closing)
			pthread_cond_wait(&changed, &lock);
		pthread_mutex_unlock(&lock);
		nanosleep(&pause, NULL);
		pthread_kill(closer, SIGUSR2);
		pthread_mutex_lock(&lock);
	}
	return arg;
}

static void on_hurry(int signal)
{
	(void)signal; /* that it came is all */
}

static void start(void)
{
	const struct sigaction woken = {.sa_handler = on_hurry, .sa_flags = SA_RESTART};
	pthread_attr_t small;
	pthread_t hurrier;

	if (started)
		return;
	started = true;
	sigaction(SIGUSR2, &woken, NULL);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, STACK_SIZE);
	pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&closer, &small, close_all, NULL) ||
	    pthread_create(&hurrier, &small, hurry, NULL))
		abort(); /* as without memory */
	pthread_attr_destroy(&small);
}

void sink_close(int fd)
{
	if (!sink_is_needed(fd)) {
		syscall(SYS_close, fd);
		return;
	}
	shutdown(fd, SHUT_RDWR);
	pthread_mutex_lock(&lock);
	start();
	if (nfds == room) {
		room = room ? 2 * room : 16;
		fds = mem_realloc(fds, room * sizeof(*fds));
	}
	fds[nfds++] = fd;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}
