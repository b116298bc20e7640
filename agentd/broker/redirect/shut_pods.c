/* shut_pods.c - which pods are shut, while a broker runs.
 *
 * start, or a notice of the manifests' directory -> a pod that can only be strict, and that nobody
 * asked rules for -> its cgroup is there, or awaited, each that has its name -> shut.
 * The worker's rules are refused, or cannot be written -> the same.
 * Rules are accepted, or the pod is let go -> it is off the list.
 *
 * A pod that runs already is left alone until its rules are asked for: it may be none of the mesh's
 * (mode none), which the broker cannot tell.
 */
#include "shut_pods.h"
#include "broker/ebpf/table.h"
#include "broker/pods/cgroup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "pod.h"
#include "shut.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

struct redirect_shut_pod {
	struct redirect_shut_pods *by;
	struct uuid uid;
	struct cgroup_await await;
	struct redirect_shut_pod *prev, *next;
};

static struct redirect_shut_pod *find(const struct redirect_shut_pods *all, const struct uuid *uid)
{
	struct redirect_shut_pod *s;

	DL_FOREACH (all->list, s)
		if (uuid_equal(&s->uid, uid))
			return s;
	return NULL;
}

/* --- shut --- */

void redirect_shut_pods_add_at(struct redirect_shut_pods *all, const struct uuid *uid, int cgroup)
{
	struct redirect_ceiling c;
	char name[UUID_TEXT_SIZE];
	struct err e;
	int rc;

	if (redirect_ceiling_of(all->options, all->ceiling, uid, &c, &e))
		c = *all->ceiling;
	uuid_format(uid, name);
	broker_audit_own_begins(all->audit);
	rc = redirect_shut(all->redirect, (struct redirect_shut_at){uid, cgroup}, &c, &e);
	all->shut(all->ctx, uid);
	broker_audit_own_ends(all->audit);
	if (rc)
		log_error(name, "the strict pod cannot be shut: %s", e.msg);
	else if (redirect_is_shut(all->redirect, uid))
		log_info(name, "the strict pod is shut until its rules are in force");
}

static void on_cgroup(void *ctx, int received)
{
	struct redirect_shut_pod *s = ctx;
	auto_close int dir = received;

	if (!s->by->is_asked_for(s->by->ctx, &s->uid))
		redirect_shut_pods_add_at(s->by, &s->uid, dir);
}

static struct redirect_shut_pod *add(struct redirect_shut_pods *all, const struct uuid *uid)
{
	struct redirect_shut_pod *s = mem_zalloc(sizeof(*s));

	s->by = all;
	s->uid = *uid;
	s->await = (struct cgroup_await){.all = all->awaits, .there = on_cgroup, .ctx = s};
	DL_APPEND(all->list, s);
	return s;
}

static void await(struct redirect_shut_pod *s, bool running)
{
	const struct broker_options *o = s->by->options;
	char name[UUID_TEXT_SIZE], paths[KUBEPODS_SIZE];
	struct err e;

	uuid_format(&s->uid, name);
	if (pod_cgroup_paths(o, name, paths, &e)) {
		log_error(name, "the strict pod cannot be shut: %s", e.msg);
		return;
	}
	auto_close int dir = cgroup_await_start(&s->await, paths, &e);
	if (dir >= 0 && (running || !pod_cgroup_is_populated(dir)))
		redirect_shut_pods_add_at(s->by, &s->uid, dir);
}

static void forget(struct redirect_shut_pods *all, struct redirect_shut_pod *s)
{
	cgroup_await_end(&s->await);
	DL_DELETE(all->list, s);
	free(s);
}

/* Root may have named another cgroup. */
static void again(struct redirect_shut_pods *all, const struct uuid *uid, bool running)
{
	struct redirect_shut_pod *s = find(all, uid);

	if (s)
		forget(all, s);
	await(add(all, uid), running);
}

void redirect_shut_pods_add(struct redirect_shut_pods *all, const struct uuid *uid)
{
	if (!all->is_asked_for(all->ctx, uid))
		again(all, uid, true);
}

void redirect_shut_pods_end(struct redirect_shut_pods *all, const struct uuid *uid)
{
	struct redirect_shut_pod *s = find(all, uid);

	if (s)
		forget(all, s);
}

int redirect_shut_pods_cgroup(const struct redirect_shut_pods *all, const struct uuid *uid)
{
	const struct redirect_shut_pod *s = find(all, uid);

	return s && redirect_is_shut(all->redirect, uid) ? cgroup_await_open(&s->await) : -1;
}

/* --- root's word --- */

static void on_due(void *ctx, const struct uuid *uid)
{
	struct redirect_shut_pods *all = ctx;

	if (!all->is_asked_for(all->ctx, uid))
		again(all, uid, false);
}

static void on_manifest(struct redirect_shut_pods *all, const char *file)
{
	struct uuid uid;

	if (!redirect_shut_read_name(file, &uid))
		return;
	if (redirect_shut_is_due(all->options, all->ceiling, &uid))
		on_due(all, &uid);
	else if (find(all, &uid))
		all->gone(all->ctx, &uid);
}

static void on_notice(void *ctx, uint32_t events)
{
	struct redirect_shut_pods *all = ctx;
	char buffer[4096] __attribute__((aligned(8)));
	const struct inotify_event *ev;
	ssize_t n = read(all->manifests.fd, buffer, sizeof(buffer));

	(void)events;
	for (ssize_t at = 0; at < n; at += (ssize_t)(sizeof(*ev) + ev->len)) {
		ev = (const struct inotify_event *)(const void *)(buffer + at);
		if (ev->mask & IN_IGNORED)
			all->followed = false; /* the directory is gone */
		else if (ev->mask & IN_Q_OVERFLOW)
			redirect_shut_each(all->options, all->ceiling, on_due, all);
		else if (ev->len)
			on_manifest(all, ev->name);
	}
}

static int watch(struct redirect_shut_pods *all, struct err *e)
{
	auto_close int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	if (fd < 0)
		return err_sys(e, "inotify");
	all->manifests = (struct broker_watch){.fd = fd, .ctx = all};
	if (broker_watch_start(all->epoll, &all->manifests, EPOLLIN))
		return err_sys(e, "watch for manifests");
	all->manifests.ready = on_notice;
	take_fd(fd);
	return 0;
}

void redirect_shut_pods_look(struct redirect_shut_pods *all)
{
	if (!all->manifests.ready || all->followed)
		return;
	all->followed = broker_notices_add(all->manifests.fd, all->options->manifests,
			    IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE |
				IN_ONLYDIR) >= 0;
	redirect_shut_each(all->options, all->ceiling, on_due, all);
}

int redirect_shut_pods_open(struct redirect_shut_pods *all, struct err *e)
{
	if (!all->options->manifests)
		return 0;
	if (watch(all, e))
		return -1;
	redirect_shut_pods_look(all);
	return 0;
}

void redirect_shut_pods_close(struct redirect_shut_pods *all)
{
	struct redirect_shut_pod *s, *tmp;

	DL_FOREACH_SAFE (all->list, s, tmp)
		forget(all, s);
	if (!all->manifests.ready)
		return;
	broker_watch_end(all->epoll, &all->manifests);
	close(all->manifests.fd);
	all->manifests.ready = NULL;
}
