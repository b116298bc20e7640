/* kubelet_caller.c - credentials -> a pidfd -> the lines of its cgroups -> it still lives: they
 * were its own.
 *
 * The names of the tree are the kubelet's (kubelet-csi.md 3c, 6): a component `kubepods*`, or
 * `*kubepods*.slice` where the parent has a name of its own; never a prefix of the path, for with
 * --cgroup-root it begins with anything.  A path that leaves our own cgroup namespace does not show
 * the names above it, so nobody can say what it is in.
 */
#include "kubelet_caller.h"
#include "cgroup.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/pidfd.h"
#include "peer.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_stream(int conn)
{
	int domain = -1, type = -1;
	socklen_t len = sizeof(int);

	return !getsockopt(conn, SOL_SOCKET, SO_DOMAIN, &domain, &len) && domain == AF_UNIX &&
	       !getsockopt(conn, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM;
}

/* "<n>:<controllers>:<path>\n"; every hierarchy counts, and there must be one of v2. */
static int check_line(char *line, bool *v2, struct err *e)
{
	char *path = strchr(line, ':');

	path = path ? strchr(path + 1, ':') : NULL;
	if (!path)
		return err_set(e, EPERM, "the caller's cgroup cannot be read");
	path++;
	path[strcspn(path, "\n")] = '\0';
	*v2 |= !strncmp(line, "0::", 3);
	if (!strncmp(path, "/..", 3))
		return err_set(e, EPERM,
		    "the caller is outside of agentd's cgroup namespace, and may be in a pod: "
		    "agentd must run in the node's own (privileged)");
	if (pod_cgroup_is_pods(path))
		return err_set(e, EPERM, "the caller is in a pod: %.120s", path);
	return 0;
}

static int check_cgroups(pid_t pid, struct err *e)
{
	char path[40], *line = NULL;
	size_t room = 0;
	bool v2 = false;
	int rc = 0;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	FILE *f = fopen(path, "re");
	while (f && rc == 0 && getline(&line, &room, f) > 0)
		rc = check_line(line, &v2, e);
	free(line);
	if (f)
		fclose(f);
	if (rc == 0 && !v2)
		rc = err_set(e, EPERM, "the caller's cgroup cannot be read");
	return rc;
}

static int gone(struct err *e)
{
	return err_set(e, ESRCH, "the caller has exited");
}

int kubelet_caller_check(int conn, struct err *e)
{
	struct ucred cred = {.pid = 0};
	socklen_t len = sizeof(cred);
	int rc;

	if (!is_stream(conn) || getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return err_set(e, EINVAL, "this is no connection of a unix stream");
	if (cred.uid != 0)
		return err_set(e, EACCES, "the caller is uid %u", (unsigned)cred.uid);
	if (cred.pid <= 0)
		return err_set(e, EPERM,
		    "the caller's process cannot be seen: agentd must run in the node's pid "
		    "namespace (hostPID)");
	auto_close int pidfd = pod_peer_open(pod_peer_best_way(), conn, cred.pid, e);
	if (pidfd < 0)
		return -1;
	rc = check_cgroups(cred.pid, e);
	/* The number was its own all the time, if it is alive now. */
	return pidfd_ended(pidfd) ? gone(e) : rc;
}
