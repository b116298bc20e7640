/* listener.c - made once, handed out often, made again when somebody shut it down.
 *
 * It outlives the worker as our copy, and us as a kept descriptor: then it comes back under its
 * name, and is taken when it is what the name says.
 *
 * The worker shares the open file description of the sockets it serves.  A shutdown(2) by it would
 * make the path refuse for ever, also through our copy, and listen() does not heal that
 * (process-split.md 0.7).  The copy is therefore watched for its hang-up; a fresh socket is then
 * renamed over the dead one, and the next client gets that.  SHUT_RD alone is enough to refuse
 * connections and shows as RDHUP, not as HUP.
 */
#include "listener.h"
#include "apart.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

LOG_SCOPE("broker");

/* Connections wait here while a worker is replaced; beyond it clients see EAGAIN. */
enum { BACKLOG = 4096 };

/* Whoever can write there is root, so a left-over is ours. */
static int first_name(const struct broker_listener_spec *s, char out[BROKER_PATH_SIZE])
{
	const char *slash = strrchr(s->path, '/');
	int n = *s->first ? snprintf(out, BROKER_PATH_SIZE, "%s", s->first)
			  : snprintf(out, BROKER_PATH_SIZE, "%.*s/.%s.new", (int)(slash - s->path),
				s->path, slash + 1);

	return n < BROKER_PATH_SIZE ? 0 : -1;
}

/* The file has the mode of the socket, but for what the umask forbids. */
int broker_listener_bind(int fd, const char *path, mode_t mode, struct err *e)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	mode_t umask_was;
	int rc;

	if (snprintf(at.sun_path, sizeof(at.sun_path), "%s", path) >= (int)sizeof(at.sun_path))
		return err_set(e, ENAMETOOLONG, "%s is too long for a socket", path);
	if (unlink(path) && errno != ENOENT)
		return err_sys(e, "unlink %s", path);
	umask_was = umask(0);
	rc = fchmod(fd, mode) || bind(fd, (struct sockaddr *)&at, sizeof(at)) ? -1 : 0;
	umask(umask_was); /* leaves errno */
	return rc ? err_sys(e, "bind %s", path) : 0;
}

static int publish(int fd, const struct broker_listener_spec *s, struct err *e)
{
	char first[BROKER_PATH_SIZE];

	if (first_name(s, first))
		return err_set(e, ENAMETOOLONG, "%s is too long for a socket", s->path);
	if (broker_listener_bind(fd, first, s->mode, e))
		return -1;
	if (listen(fd, BACKLOG) || rename(first, s->path)) {
		err_sys(e, "listen on %s", s->path);
		unlink(first);
		return -1;
	}
	return 0;
}

static bool is_healthy(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) == 0 || !(p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

static bool has_option(int fd, int option, int wanted)
{
	int value = -1;
	socklen_t size = sizeof(value);

	return !getsockopt(fd, SOL_SOCKET, option, &value, &size) && value == wanted;
}

/* The name it was bound to: the first one, which earlier agentds had beside the last. */
static bool is_bound_for(int fd, const struct broker_listener_spec *s)
{
	struct broker_listener_spec beside = *s;
	struct sockaddr_un have = {.sun_family = AF_UNSPEC};
	socklen_t size = sizeof(have) - 1; /* stays NUL-terminated */
	char first[BROKER_PATH_SIZE], earlier[BROKER_PATH_SIZE];

	*beside.first = '\0';
	if (first_name(s, first) || first_name(&beside, earlier) ||
	    getsockname(fd, (struct sockaddr *)&have, &size) || have.sun_family != AF_UNIX)
		return false;
	return !strcmp(have.sun_path, first) || !strcmp(have.sun_path, earlier);
}

/* That the file still leads to this socket cannot be seen; a name is dropped before its file is
 * replaced, so it could only be another agentd's, which then did not keep its own. */
static bool is_listener_at(int fd, const struct broker_listener_spec *s)
{
	struct stat st;

	return has_option(fd, SO_DOMAIN, AF_UNIX) && has_option(fd, SO_TYPE, SOCK_STREAM) &&
	       has_option(fd, SO_ACCEPTCONN, 1) && is_bound_for(fd, s) && is_healthy(fd) &&
	       !lstat(s->path, &st) && S_ISSOCK(st.st_mode);
}

/* -1: there was none, or it is something else. */
static int take_kept(const struct broker_listener_spec *s)
{
	auto_close int fd = broker_fdstore_take(s->kept, s->name);
	int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);

	if (flags < 0)
		return -1;
	if (!is_listener_at(fd, s) || fcntl(fd, F_SETFL, flags | O_NONBLOCK)) {
		log_warn(NULL, "the kept descriptor %s is no listener at %s: making a new one",
		    s->name, s->path);
		return -1;
	}
	return take_fd(fd);
}

/* Non-blocking is a property of the description: once here, for all who get it. */
static int make(const struct broker_listener_spec *s, struct err *e)
{
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(e, "socket for %s", s->path);
	broker_fdstore_drop(s->kept, s->name);
	if (publish(fd, s, e))
		return -1;
	return take_fd(fd);
}

static void on_hang_up(void *ctx, uint32_t events)
{
	struct broker_listener *l = ctx;
	const struct broker_listener_spec *s = l->spec;
	struct err e;
	int fd = -1;

	(void)events;
	log_warn(NULL, "%s: the worker shut the socket down%s", s->path,
	    s->once ? "" : "; making a new one");
	broker_listener_close(l);
	if (!s->once && (fd = broker_listener_open(l, s, &e)) < 0)
		log_error(NULL, "%s", e.msg);
	s->renewed(s->ctx, fd);
}

/* An agentd that took over and then failed may have put its own there, or root removed it. */
bool broker_listener_is_there(const struct broker_listener *l)
{
	struct stat st;

	return l->watch.ready && !lstat(l->spec->path, &st) && st.st_dev == l->dev &&
	       st.st_ino == l->ino;
}

bool broker_listener_is_awaited(const struct broker_listener *l)
{
	struct pollfd p = {.fd = l->watch.ready ? l->watch.fd : -1, .events = POLLIN};

	return poll(&p, 1, 0) > 0 && (p.revents & POLLIN);
}

static void remember_file(struct broker_listener *l)
{
	struct stat st = {.st_ino = 0};

	lstat(l->spec->path, &st); /* gone already: not there when it is asked for again */
	l->dev = st.st_dev;
	l->ino = st.st_ino;
}

int broker_listener_open(
    struct broker_listener *l, const struct broker_listener_spec *spec, struct err *e)
{
	if (broker_listener_is_there(l) && is_healthy(l->watch.fd))
		return l->watch.fd;
	broker_listener_close(l);
	int fd = take_kept(spec);
	if (fd < 0 && (fd = make(spec, e)) < 0)
		return -1;
	apart_refuse_descriptors(fd);
	l->spec = spec;
	l->watch = (struct broker_watch){.fd = fd, .ready = on_hang_up, .ctx = l};
	if (broker_watch_start(spec->epoll, &l->watch, EPOLLRDHUP)) {
		err_sys(e, "watch %s", spec->path);
		l->watch.ready = NULL;
		close(fd);
		return -1;
	}
	remember_file(l);
	broker_fdstore_put(spec->kept, spec->name, fd);
	return fd;
}

void broker_listener_release(struct broker_listener *l)
{
	if (!l->watch.ready)
		return;
	broker_watch_end(l->spec->epoll, &l->watch);
	apart_close_listener(l->watch.fd);
	l->watch.ready = NULL;
}

void broker_listener_close(struct broker_listener *l)
{
	if (l->watch.ready)
		broker_fdstore_drop(l->spec->kept, l->spec->name);
	broker_listener_release(l);
}
