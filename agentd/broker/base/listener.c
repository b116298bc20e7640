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

/* "<dir>/.<name>.new": whoever can write there is root, so a left-over is ours. */
static int temporary_name(struct sockaddr_un *out, const char *path)
{
	const char *slash = strrchr(path, '/');
	int n = snprintf(out->sun_path, sizeof(out->sun_path), "%.*s/.%s.new", (int)(slash - path),
	    path, slash + 1);

	return n < (int)sizeof(out->sun_path) ? 0 : -1;
}

static int publish(int fd, const char *path, mode_t mode, struct err *e)
{
	struct sockaddr_un temp = {.sun_family = AF_UNIX};

	if (temporary_name(&temp, path))
		return err_set(e, ENAMETOOLONG, "%s is too long for a socket", path);
	if (unlink(temp.sun_path) && errno != ENOENT)
		return err_sys(e, "unlink %s", temp.sun_path);
	if (bind(fd, (struct sockaddr *)&temp, sizeof(temp)))
		return err_sys(e, "bind %s", temp.sun_path);
	if (listen(fd, BACKLOG) || chmod(temp.sun_path, mode) || rename(temp.sun_path, path)) {
		err_sys(e, "listen on %s", path);
		unlink(temp.sun_path);
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

/* The name it was bound to: the temporary one, in our directory. */
static bool is_bound_for(int fd, const char *path)
{
	struct sockaddr_un have = {.sun_family = AF_UNSPEC}, want = {.sun_family = AF_UNIX};
	socklen_t size = sizeof(have) - 1; /* stays NUL-terminated */

	return !temporary_name(&want, path) && !getsockname(fd, (struct sockaddr *)&have, &size) &&
	       have.sun_family == AF_UNIX && !strcmp(have.sun_path, want.sun_path);
}

/* That the file still leads to this socket cannot be seen; a name is dropped before its file is
 * replaced, so it could only be another agentd's, which then did not keep its own. */
static bool is_listener_at(int fd, const char *path)
{
	struct stat st;

	return has_option(fd, SO_DOMAIN, AF_UNIX) && has_option(fd, SO_TYPE, SOCK_STREAM) &&
	       has_option(fd, SO_ACCEPTCONN, 1) && is_bound_for(fd, path) && is_healthy(fd) &&
	       !lstat(path, &st) && S_ISSOCK(st.st_mode);
}

/* -1: there was none, or it is something else. */
static int take_kept(const struct broker_listener_spec *s)
{
	auto_close int fd = broker_fdstore_take(s->kept, s->name);
	int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);

	if (flags < 0)
		return -1;
	if (!is_listener_at(fd, s->path) || fcntl(fd, F_SETFL, flags | O_NONBLOCK)) {
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
	if (publish(fd, s->path, s->mode, e))
		return -1;
	return take_fd(fd);
}

static void on_hang_up(void *ctx, uint32_t events)
{
	struct broker_listener *l = ctx;
	const struct broker_listener_spec *s = l->spec;
	struct err e;

	(void)events;
	log_warn(NULL, "%s: the worker shut the socket down; making a new one", s->path);
	broker_listener_close(l);
	int fd = broker_listener_open(l, s, &e);
	if (fd < 0)
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
