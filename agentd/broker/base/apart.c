/* apart.c - a child for each -> its end is waited for with all other children's.
 *
 * Not a copy of the table: what is closed must be gone for us as well, and a file's close is its
 * flush, whoever else holds a copy.
 */
#include "apart.h"
#include "common/log.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

LOG_SCOPE("broker");

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* A burst of connections costs as many children for a moment.  One packet can bring as many. */
enum { CHILDREN_MAX = 256, SECONDS = 1 };

/* Of a child: it makes two system calls, and where functions are bound lazily libc saves all
 * registers on it. */
enum { STACK_SIZE = 16 * 1024 };

static pid_t children[CHILDREN_MAX]; /* 0: free */
static _Alignas(16) char stacks[CHILDREN_MAX][STACK_SIZE];

static pid_t *find(pid_t pid)
{
	for (size_t i = 0; i < CHILDREN_MAX; i++)
		if (children[i] == pid)
			return &children[i];
	return NULL;
}

/* It has our memory, and so our errno.  Neither call fails, whatever the file says to its close. */
__attribute__((no_sanitize("address", "undefined"))) static int close_as_child(void *fd)
{
	alarm(SECONDS);
	return close_range((unsigned)(uintptr_t)fd, (unsigned)(uintptr_t)fd, 0);
}

/* A copy of our memory would be most of the work: it is made only if no stack is free. */
static pid_t start(int fd, const pid_t *child)
{
	const int flags = CLONE_FILES | SIGCHLD;
	void *arg = (void *)(uintptr_t)fd; /* NOLINT(performance-no-int-to-ptr) */
	pid_t pid;

	if (child)
		return clone(close_as_child, stacks[child - children + 1], flags | CLONE_VM, arg);
	if ((pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL)) == 0)
		_exit(close_as_child(arg));
	return pid;
}

bool apart_close(int fd)
{
	pid_t *child = find(0), pid;

	if (fd < 0)
		return true;
	if (fcntl(fd, F_GET_SEALS) >= 0) {
		close(fd);
		return true;
	}
	if ((pid = start(fd, child)) < 0)
		log_warn(NULL, "a descriptor stays open, since no child can close it: %m");
	else if (child)
		*child = pid;
	return pid > 0 && child;
}

void apart_close_listener(int fd)
{
	struct pollfd waiting = {.fd = fd, .events = POLLIN};

	if (poll(&waiting, 1, 0) == 1)
		(void)apart_close(fd);
	else
		close(fd);
}

void apart_refuse_descriptors(int listener)
{
	const int none = 0;

	setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &none, sizeof(none));
}

bool apart_is_busy(void)
{
	int n = 0;

	for (size_t i = 0; i < CHILDREN_MAX; i++)
		n += children[i] != 0;
	return n >= CHILDREN_MAX / 2;
}

bool apart_reaped(pid_t pid)
{
	pid_t *child = pid > 0 ? find(pid) : NULL;

	if (child)
		*child = 0;
	return child;
}
