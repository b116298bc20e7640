/* attest.c - see attest.h.
 *
 * a connection -> its process as a pidfd, its namespace, its cgroup -> both are what the broker
 * said of an earlier one: known -> served: the pidfd is watched -> it becomes readable: the process
 * has exited, its connection is shut down -> pidfds of connections that were closed before go when
 * the next one comes: so they are never more than connections a pod may have.
 */
#include "attest.h"
#include "base/loop.h"
#include "common/mem.h"
#include "common/pidfd.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* Containers of a pod that talk to agentd; one more costs a question to the broker. */
enum { CGROUPS_MAX = 8 };

struct process {
	struct attest *attest;
	int pidfd;
	struct rpc_connection connection;
	struct loop_fd exit;
	struct process *prev, *next;
};

struct attest {
	struct loop *loop;
	uint64_t cookie, cgroups[CGROUPS_MAX]; /* 0: none */
	unsigned next;
	struct process *processes;
};

/* --- one peer --- */

static int open_peer(int conn)
{
	int fd = pidfd_of_peer(conn);
	pid_t pid;

	if (fd >= 0 || errno != ENOPROTOOPT)
		return fd;
	/* The number may be another's by now: the broker, asked after this, would find that one too
	 * young (broker/pods/peer.h). */
	pid = pidfd_number_of_peer(conn);
	return pid > 0 ? pidfd_of_number(pid) : -1;
}

bool attest_is_alive(const struct attest_peer *p)
{
	return p->pidfd < 0 || !pidfd_ended(p->pidfd);
}

bool attest_look(struct attest_peer *p, int conn)
{
	socklen_t len = sizeof(p->cookie);

	*p = (struct attest_peer){.pidfd = open_peer(conn)};
	if (p->pidfd < 0 && (errno == ESRCH || errno == EINVAL))
		return false;
	if (getsockopt(conn, SOL_SOCKET, SO_NETNS_COOKIE, &p->cookie, &len))
		p->cookie = 0;
	if (p->pidfd >= 0 && pidfd_cgroup(p->pidfd, &p->cgroup_id))
		p->cgroup_id = 0;
	return attest_is_alive(p);
}

void attest_peer_clear(struct attest_peer *p)
{
	mem_closep(&p->pidfd);
}

/* --- what is known --- */

struct attest *attest_new(struct loop *l)
{
	struct attest *a = mem_zalloc(sizeof(*a));

	a->loop = l;
	return a;
}

bool attest_knows(const struct attest *a, const struct attest_peer *p)
{
	if (!p->cookie || !p->cgroup_id || p->cookie != a->cookie)
		return false;
	for (unsigned i = 0; i < CGROUPS_MAX; i++)
		if (a->cgroups[i] == p->cgroup_id)
			return true;
	return false;
}

void attest_learn(struct attest *a, uint64_t cookie, uint64_t cgroup_id)
{
	const struct attest_peer peer = {.cookie = cookie, .cgroup_id = cgroup_id};

	if (cookie != a->cookie) {
		for (unsigned i = 0; i < CGROUPS_MAX; i++)
			a->cgroups[i] = 0;
		a->cookie = cookie;
		a->next = 0;
	}
	if (cgroup_id && !attest_knows(a, &peer))
		a->cgroups[a->next++ % CGROUPS_MAX] = cgroup_id;
}

uint64_t attest_cgroup(const struct attest *a, unsigned i)
{
	return i < CGROUPS_MAX ? a->cgroups[i] : 0;
}

/* --- those that are served --- */

static void drop(struct process *p)
{
	DL_DELETE(p->attest->processes, p);
	loop_fd_stop(&p->exit);
	close(p->pidfd);
	free(p);
}

static void on_exit_of(void *ctx)
{
	struct process *p = ctx;

	rpc_connection_cut(&p->connection);
	drop(p);
}

static void prune(struct attest *a)
{
	struct process *p, *next;

	DL_FOREACH_SAFE (a->processes, p, next)
		if (!rpc_connection_is_open(&p->connection))
			drop(p);
}

void attest_watch(struct attest *a, struct attest_peer *peer, struct rpc_connection c)
{
	struct process *p;

	prune(a);
	if (peer->pidfd < 0)
		return;
	p = mem_zalloc(sizeof(*p));
	*p = (struct process){.attest = a, .pidfd = take_fd(peer->pidfd), .connection = c};
	DL_APPEND(a->processes, p);
	loop_fd_watch(a->loop, &p->exit, p->pidfd, LOOP_READ, on_exit_of, p);
}

unsigned attest_watched(const struct attest *a)
{
	const struct process *p;
	unsigned n;

	DL_COUNT(a->processes, p, n);
	return n;
}

void attest_free(struct attest **attest)
{
	struct attest *a = take(*attest);
	struct process *p, *next;

	if (!a)
		return;
	DL_FOREACH_SAFE (a->processes, p, next)
		drop(p);
	free(a);
}
