/* pods.c - the table, and the directories it stands for.
 *
 * Everything here happens inside <run>/pods, where only root can name anything; the directories a
 * pod sees are mounted read-only, so no path component can change under our hands.
 */
#include "pods.h"
#include "broker/base/file.h"
#include "broker/base/state.h"
#include "broker/kubelet/pod_source.h"
#include "broker/netns/dial.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "identity.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("broker");

enum { PATH_BYTES = 160 }; /* --run is bounded */

struct broker_pod {
	struct uuid uid;
	char name[UUID_TEXT_SIZE];
	char dir[PATH_BYTES]; /* <run>/pods/<uid> */
	bool claimed;         /* by the worker that runs */
	struct pod_socket {
		struct pods *pods;
		struct broker_listener_spec spec;
		struct broker_listener listener;
		bool served;  /* the worker that runs has a copy */
		bool renewed; /* which is dead, and it was not told yet */
	} sockets[LINK_LISTENER_END];
	struct pod_identity identity;
	struct netns_dial dial;
	struct broker_pod *prev, *next;
};

struct pods {
	struct pods_rig rig;
	struct pod_identities identities;
	unsigned n;
	unsigned renewed; /* sockets to be told of */
	struct broker_pod *list;
};

/* Istio's names: its bootstrap finds them where the directory is mounted. */
static const char *const socket_names[LINK_LISTENER_END] = {
    [LINK_LISTEN_SDS] = "socket", [LINK_LISTEN_XDS] = "XDS"};
static const char *const kept_names[LINK_LISTENER_END] = {
    [LINK_LISTEN_SDS] = "sds", [LINK_LISTEN_XDS] = "xds"};
static const char *const file_names[LINK_FILE_END] = {
    [LINK_FILE_BOOTSTRAP] = "envoy-rev.json", [LINK_FILE_ROOT] = "root-cert.pem"};

/* Whoever can reach it at all may connect: the directory is mounted into one pod only. */
enum { SOCKET_MODE = 0666, FILE_MODE = 0644, DIR_MODE = 0700, MOUNT_MODE = 0755 };

struct pods *pods_new(const struct pods_rig *rig)
{
	struct pods *ps = mem_zalloc(sizeof(*ps));

	ps->rig = *rig;
	ps->identities = (struct pod_identities){.epoll = rig->epoll,
	    .way = pod_peer_best_way(),
	    .options = rig->options,
	    .home = rig->home,
	    .states = rig->states,
	    .gone = rig->gone,
	    .emptied = rig->emptied,
	    .of_host = rig->of_host,
	    .ctx = rig->ctx};
	return ps;
}

static void set_renewed(struct pods *ps, struct pod_socket *s, bool renewed)
{
	ps->renewed += renewed - s->renewed;
	s->renewed = renewed;
}

/* A worker that has no copy need not hear of it.  Where none could be made the next worker's
 * request tries again. */
static void on_renewed(void *ctx, int fd)
{
	struct pod_socket *s = ctx;

	if (!s->served || fd < 0)
		return;
	set_renewed(s->pods, s, true);
	s->pods->rig.renewed(s->pods->rig.ctx);
}

static void pod_free(struct pods *ps, struct broker_pod *pod)
{
	DL_DELETE(ps->list, pod);
	ps->n--;
	for (int i = 0; i < LINK_LISTENER_END; i++) {
		set_renewed(ps, &pod->sockets[i], false);
		broker_listener_release(&pod->sockets[i].listener);
	}
	pod_identity_end(&pod->identity);
	free(pod);
}

void pods_free(struct pods **ps)
{
	struct broker_pod *pod, *tmp;

	if (!*ps)
		return;
	DL_FOREACH_SAFE ((*ps)->list, pod, tmp)
		pod_free(*ps, pod);
	free(*ps);
	*ps = NULL;
}

static struct broker_pod *find(const struct pods *ps, const struct uuid *uid)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		if (uuid_equal(&pod->uid, uid))
			return pod;
	return NULL;
}

struct broker_pod *pods_find(const struct pods *ps, const struct uuid *uid, struct err *e)
{
	struct broker_pod *pod = find(ps, uid);

	if (!pod)
		err_set(e, ENOENT, "this pod was not added");
	return pod;
}

/* <dir>/mount/<name>, or the directory itself. */
static void path_in(const struct broker_pod *pod, const char *name, char out[PATH_BYTES])
{
	if (snprintf(out, PATH_BYTES, "%s/mount%s%s", pod->dir, *name ? "/" : "", name) >=
	    PATH_BYTES)
		abort();
}

/* The mode is set, not left to the umask, and mended when an earlier broker died in between. */
static int make_directory(const char *path, mode_t mode, struct err *e)
{
	if (mkdir(path, mode) && errno != EEXIST)
		return err_sys(e, "mkdir %s", path);
	if (chmod(path, mode))
		return err_sys(e, "chmod %s", path);
	return 0;
}

static void name_pod(const struct pods *ps, struct broker_pod *pod, const struct uuid *uid)
{
	pod->uid = *uid;
	uuid_format(uid, pod->name);
	snprintf(pod->dir, sizeof(pod->dir), "%s/pods/%s", ps->rig.options->run, pod->name);
}

static void describe_socket(struct pods *ps, struct broker_pod *pod, int kind)
{
	struct pod_socket *s = &pod->sockets[kind];

	s->pods = ps;
	s->spec = (struct broker_listener_spec){.epoll = ps->rig.epoll,
	    .kept = ps->rig.kept,
	    .mode = SOCKET_MODE,
	    .renewed = on_renewed,
	    .ctx = s};
	snprintf(s->spec.path, sizeof(s->spec.path), "%s/mount/%s", pod->dir, socket_names[kind]);
	snprintf(s->spec.name, sizeof(s->spec.name), "%s.%s", pod->name, kept_names[kind]);
}

int pods_add(struct pods *ps, const struct uuid *uid, struct err *e)
{
	struct broker_pod *pod = find(ps, uid);
	char mount[PATH_BYTES];

	if (pod) {
		pod->claimed = true;
		return 0;
	}
	if (ps->n >= ps->rig.options->max_pods)
		return err_set(e, ENOSPC, "there are %u pods already (--max-pods)", ps->n);
	pod = mem_zalloc(sizeof(*pod));
	pod->claimed = true;
	name_pod(ps, pod, uid);
	for (int i = 0; i < LINK_LISTENER_END; i++)
		describe_socket(ps, pod, i);
	path_in(pod, "", mount);
	if (make_directory(pod->dir, DIR_MODE, e) || make_directory(mount, MOUNT_MODE, e)) {
		free(pod);
		return -1;
	}
	pod_identity_begin(&pod->identity, &ps->identities, uid);
	DL_APPEND(ps->list, pod);
	ps->n++;
	return 0;
}

/* Names we give, and the temporary ones a death may have left. */
static void unlink_known(const struct broker_pod *pod, const char *name)
{
	char path[PATH_BYTES], temp[32];

	path_in(pod, name, path);
	unlink(path);
	snprintf(temp, sizeof(temp), ".%s.new", name);
	path_in(pod, temp, path);
	unlink(path);
}

static int remove_all(const struct pods *ps, const struct broker_pod *pod, struct err *e)
{
	char mount[PATH_BYTES];

	broker_state_netns_del(ps->rig.states, &pod->uid);
	for (int i = 0; i < LINK_LISTENER_END; i++)
		unlink_known(pod, socket_names[i]);
	for (int i = 0; i < LINK_FILE_END; i++)
		unlink_known(pod, file_names[i]);
	path_in(pod, "", mount);
	if ((rmdir(mount) && errno != ENOENT) || (rmdir(pod->dir) && errno != ENOENT))
		return err_sys(e, "rmdir %s", pod->dir);
	return 0;
}

int pods_remove(struct pods *ps, const struct uuid *uid, struct err *e)
{
	struct broker_pod *pod = find(ps, uid), stranger = {.claimed = false};
	int rc;

	name_pod(ps, &stranger, uid);
	rc = remove_all(ps, &stranger, e);
	if (!pod)
		return rc;
	for (int i = 0; i < LINK_LISTENER_END; i++)
		broker_listener_close(&pod->sockets[i].listener);
	pod_free(ps, pod);
	return rc;
}

/* --- one worker after the other --- */

void pods_generation(struct pods *ps)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod) {
		pod->claimed = false;
		for (int i = 0; i < LINK_LISTENER_END; i++) {
			pod->sockets[i].served = false;
			set_renewed(ps, &pod->sockets[i], false);
		}
	}
}

static void sweep_one(struct pods *ps, const struct uuid *uid)
{
	struct broker_pod *known = find(ps, uid), stranger = {.claimed = false};
	const char *source;
	struct err e;

	if (known && known->claimed)
		return;
	name_pod(ps, &stranger, uid);
	if ((source = pod_source_of(ps->rig.options, uid))) {
		log_warn(stranger.name,
		    "the worker did not add this pod, but it has %s: kept as it is", source);
		return;
	}
	if (pods_remove(ps, uid, &e))
		log_warn(stranger.name, "a pod that nothing names: %s", e.msg);
	else
		log_info(stranger.name, "a pod that nothing names: removed");
}

/* Every pod has a directory. */
void pods_sweep(struct pods *ps)
{
	char path[PATH_MAX];
	struct dirent *entry;
	struct uuid uid;

	snprintf(path, sizeof(path), "%s/pods", ps->rig.options->run);
	DIR *d = opendir(path);
	if (!d)
		return;
	while (pod_source_is_known(ps->rig.options) && (entry = readdir(d)))
		if (uuid_parse(&uid, entry->d_name))
			sweep_one(ps, &uid);
	closedir(d);
}

static bool next_renewed(const struct pods *ps, struct broker_pod **pod, enum link_listener *kind)
{
	DL_FOREACH (ps->list, *pod)
		for (int i = 0; i < LINK_LISTENER_END; i++) {
			*kind = (enum link_listener)i;
			if ((*pod)->sockets[i].renewed)
				return true;
		}
	return false;
}

bool pods_pending(const struct pods *ps)
{
	return ps->renewed > 0;
}

void pods_next(struct pods *ps, struct link_packet *p, int *fd)
{
	enum link_listener kind;
	struct broker_pod *pod;

	if (!next_renewed(ps, &pod, &kind))
		abort(); /* the caller has asked whether there is one */
	set_renewed(ps, &pod->sockets[kind], false);
	*p = (struct link_packet){.what = LINK_LISTENER, .kind = (uint16_t)kind, .uid = pod->uid};
	*fd = pod->sockets[kind].listener.watch.fd;
}

/* --- what it asks for --- */

int broker_pod_listen(struct pods *ps, struct broker_pod *pod, unsigned kind, struct err *e)
{
	if (kind >= LINK_LISTENER_END)
		return err_set(e, EINVAL, "there is no listener of kind %u", kind);
	struct pod_socket *s = &pod->sockets[kind];
	int fd = broker_listener_open(&s->listener, &s->spec, e);
	s->served = fd >= 0;
	set_renewed(ps, s, false); /* this is the new one */
	return fd;
}

int broker_pod_write(struct broker_pod *pod, unsigned kind, int memfd, struct err *e)
{
	char path[PATH_BYTES];

	if (kind >= LINK_FILE_END)
		return err_set(e, EINVAL, "there is no file of kind %u", kind);
	path_in(pod, file_names[kind], path);
	return broker_file_write(path, FILE_MODE, memfd, e);
}

int broker_pod_peer(
    struct broker_pod *pod, int conn, bool require, struct link_packet *out, struct err *e)
{
	return pod_identity_check(&pod->identity, conn, require, out, e);
}

int broker_pod_netns_in(const struct broker_pod *pod, uint64_t cgroup)
{
	const struct pod_cgroup *c = &pod->identity.cgroup;

	return c->watched && !c->emptied && c->id == cgroup ? pod->identity.netns_fd : -1;
}

int broker_pod_netns_fd(const struct broker_pod *pod)
{
	return pod->identity.netns_fd;
}

int broker_pod_dial(
    const struct pods *ps, struct broker_pod *pod, const struct link_request *r, struct err *e)
{
	return netns_dial(&pod->dial, ps->rig.home, pod->identity.netns_fd, r, e);
}
