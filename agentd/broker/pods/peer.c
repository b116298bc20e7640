/* peer.c - see peer.h.
 *
 * a connection -> a pidfd of the process that made it -> its cgroup: by its id, which is opened as
 * a handle and followed upwards until the pod's directory is met (no names are read, so it does not
 * matter from which cgroup namespace we look, and nobody can make the walk long) -> or, on older
 * kernels, by its number in the lists of the pod's cgroup and of those below -> the process still
 * lives: what was found was its own.
 *
 * A handle of a cgroup is its id.  A cgroup that was removed cannot be opened; v2 never moves one.
 */
#include "peer.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/pidfd.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

/* Of cgroups above the peer's; below the pod's when lists are read. */
enum { UPWARDS_MAX = 64, DEPTH_MAX = 8, CGROUPS_MAX = 256 };
/* How long a connection may have waited until somebody looks at it; a process that is older has had
 * its number when the connection was made.  The clock of processes has steps of 10 ms. */
enum { YOUNG_MS = 300 };
enum { FILEID_KERNFS = 0xfe };

enum pod_peer_way pod_peer_best_way(void)
{
	enum pod_peer_way way = POD_PEER_BY_PID;
	uint64_t id;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return way;
	auto_close int pidfd = pidfd_of_peer(pair[0]);
	if (pidfd >= 0)
		way = pidfd_cgroup(pidfd, &id) ? POD_PEER_BY_PIDFD : POD_PEER_BY_INFO;
	close(pair[0]);
	close(pair[1]);
	return way;
}

static int open_by_id(int dir, uint64_t id)
{
	union {
		struct file_handle head;
		char bytes[sizeof(struct file_handle) + sizeof(id)];
	} handle = {.head = {.handle_bytes = sizeof(id), .handle_type = FILEID_KERNFS}};

	memcpy(handle.head.f_handle, &id, sizeof(id));
	return open_by_handle_at(dir, &handle.head, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* 1, 0, or -1 with errno. */
static int is_below(int dir, uint64_t id)
{
	struct stat pods, st;
	ino_t last = 0;
	int fd;

	if (fstat(dir, &pods))
		return -1;
	auto_close int at = open_by_id(dir, id);
	if (at < 0)
		return errno == ESTALE || errno == ENOENT ? 0 : -1;
	for (int i = 0; i < UPWARDS_MAX; i++) {
		if (fstat(at, &st) || st.st_dev != pods.st_dev || st.st_ino == last)
			return 0;
		if (st.st_ino == pods.st_ino)
			return 1;
		last = st.st_ino;
		if ((fd = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
			return 0;
		close(at);
		at = fd;
	}
	return 0;
}

static int elsewhere(struct err *e)
{
	return err_set(e, EACCES, "the peer is not in the pod's cgroup");
}

static int gone(struct err *e)
{
	return err_set(e, ESRCH, "the peer has exited");
}

static int find_by_info(int pidfd, int dir, uint64_t *id, struct err *e)
{
	if (pidfd_cgroup(pidfd, id))
		return errno == ESRCH
			   ? gone(e)
			   : err_set(e, ENODATA, "the kernel does not report the peer's cgroup");
	switch (is_below(dir, *id)) {
	case 1:
		return 0;
	case 0:
		return elsewhere(e);
	default:
		return err_set(
		    e, ENODATA, "the peer's cgroup cannot be opened: %s", strerror(errno));
	}
}

/* --- by the lists --- */

struct search {
	pid_t pid;
	int left; /* cgroups that may still be looked at */
	bool cut;
};

static bool lists(int dir, pid_t pid)
{
	int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char line[32];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strtol(line, NULL, 10) == pid;
	if (f)
		fclose(f);
	return found;
}

/* The id of the cgroup that has it, `dir` (which is taken) or one below; 0: none. */
static uint64_t search(struct search *s, int dir, int depth)
{
	DIR *d = fdopendir(dir);
	const struct dirent *entry;
	struct stat st;
	uint64_t id = 0;

	if (!d) {
		close(dir);
		return 0;
	}
	if (lists(dir, s->pid) && !fstat(dir, &st))
		id = st.st_ino;
	while (!id && (entry = readdir(d))) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		if (depth == DEPTH_MAX || s->left-- <= 0) {
			s->cut = true;
			break;
		}
		int sub =
		    openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (sub >= 0)
			id = search(s, sub, depth + 1);
	}
	closedir(d);
	return id;
}

static int find_in_lists(pid_t pid, int dir, uint64_t *id, struct err *e)
{
	struct search s = {.pid = pid, .left = CGROUPS_MAX};
	/* An open file of its own: the pod's is read again from its begin. */
	int top = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	*id = top < 0 ? 0 : search(&s, top, 0);
	if (*id)
		return 0;
	if (s.cut)
		return err_set(e, ENODATA, "the pod has too many cgroups to look at");
	return elsewhere(e);
}

/* When it began, in ticks since boot, from /proc/PID/stat: the 22nd field.  The second one is a
 * name, and may hold anything.  -1: it is not there. */
static int64_t began(const char *stat)
{
	const char *end = strrchr(stat, ')');

	for (int field = 2; end && field < 22; field++)
		end = strchr(end + 1, ' ');
	return end ? (int64_t)(strtoull(end, NULL, 10) & INT64_MAX) : -1;
}

/* Milliseconds since it began; -1: it cannot be read. */
static int64_t age_ms(pid_t pid)
{
	char path[40], text[1024];
	struct timespec now;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	int64_t ticks = began(text);
	if (ticks < 0 || clock_gettime(CLOCK_BOOTTIME, &now))
		return -1;
	return now.tv_sec * 1000 + now.tv_nsec / 1000000 - ticks / sysconf(_SC_CLK_TCK) * 1000 -
	       ticks % sysconf(_SC_CLK_TCK) * 1000 / sysconf(_SC_CLK_TCK);
}

/* --- all ways --- */

int pod_peer_open(enum pod_peer_way way, int conn, pid_t pid, struct err *e)
{
	auto_close int fd = way == POD_PEER_BY_PID ? pidfd_of_number(pid) : pidfd_of_peer(conn);

	if (fd < 0 && (errno == ESRCH || errno == EINVAL))
		return gone(e);
	if (fd < 0)
		return err_set(e, ENODATA, "the peer's process: %s", strerror(errno));
	if (way == POD_PEER_BY_PID && age_ms(pid) < YOUNG_MS)
		return err_set(e, ESRCH,
		    "the peer began less than %d ms ago: this kernel cannot tell it from an "
		    "earlier process with its pid",
		    YOUNG_MS);
	return take_fd(fd);
}

int pod_peer_cgroup(enum pod_peer_way way, int conn, int dir, uint64_t *id, struct err *e)
{
	pid_t pid = pidfd_number_of_peer(conn);
	int rc;

	*id = 0;
	if (pid <= 0)
		return err_set(e, ENODATA,
		    "the peer is in a pid namespace that agentd cannot see (a VM, or agentd itself "
		    "is not in the node's)");
	auto_close int pidfd = pod_peer_open(way, conn, pid, e);
	if (pidfd < 0)
		return -1;
	rc = way == POD_PEER_BY_INFO ? find_by_info(pidfd, dir, id, e)
				     : find_in_lists(pid, dir, id, e);
	/* The number was its own all the time, if it is alive now. */
	if (pidfd_ended(pidfd))
		rc = gone(e);
	if (rc)
		*id = 0;
	return rc;
}
