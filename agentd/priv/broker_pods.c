/* broker_pods.c - the table, and the directories it stands for.
 *
 * Everything here happens inside <run>/pods, where only root can name anything; the directories a
 * pod sees are mounted read-only, so no path component can change under our hands.
 */
#include "broker_pods.h"
#include "broker_cgroup.h"
#include "broker_file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

enum { PATH_BYTES = 160 }; /* --run is bounded */

struct broker_pod {
	struct uuid uid;
	char name[UUID_TEXT_SIZE];
	char dir[PATH_BYTES]; /* <run>/pods/<uid> */
	struct broker_listener listeners[PRIV_LISTENER_END];
	/* Held, so that its id stays unique and later sockets can be made in it; -1: not learned.
	 */
	int netns;
	struct broker_netns_id netns_id;
	struct broker_cgroup cgroup; /* since then */
	struct broker_pod *prev, *next;
};

struct broker_pods {
	int epoll;
	const struct broker_options *options;
	unsigned n;
	const struct broker_netns_home *home;
	struct broker_pod *list;
};

/* Istio's names: its bootstrap finds them where the directory is mounted. */
static const char *const socket_names[PRIV_LISTENER_END] = {
    [PRIV_LISTEN_SDS] = "socket", [PRIV_LISTEN_XDS] = "XDS"};
static const char *const file_names[PRIV_FILE_END] = {
    [PRIV_FILE_BOOTSTRAP] = "envoy-rev.json", [PRIV_FILE_ROOT] = "root-cert.pem"};

/* Whoever can reach it at all may connect: the directory is mounted into one pod only. */
enum { SOCKET_MODE = 0666, FILE_MODE = 0644, DIR_MODE = 0700, MOUNT_MODE = 0755 };

struct broker_pods *broker_pods_new(
    int epoll, const struct broker_options *o, const struct broker_netns_home *home)
{
	struct broker_pods *ps = broker_zalloc(sizeof(*ps));

	*ps = (struct broker_pods){.epoll = epoll, .options = o, .home = home};
	return ps;
}

static void pod_free(struct broker_pods *ps, struct broker_pod *pod)
{
	DL_DELETE(ps->list, pod);
	ps->n--;
	for (int i = 0; i < PRIV_LISTENER_END; i++)
		broker_listener_close(&pod->listeners[i]);
	broker_cgroup_end(&pod->cgroup);
	if (pod->netns >= 0)
		close(pod->netns);
	free(pod);
}

void broker_pods_free(struct broker_pods **ps)
{
	struct broker_pod *pod, *tmp;

	if (!*ps)
		return;
	DL_FOREACH_SAFE ((*ps)->list, pod, tmp)
		pod_free(*ps, pod);
	free(*ps);
	*ps = NULL;
}

static struct broker_pod *find(const struct broker_pods *ps, const struct uuid *uid)
{
	struct broker_pod *pod;

	DL_FOREACH (ps->list, pod)
		if (uuid_equal(&pod->uid, uid))
			return pod;
	return NULL;
}

struct broker_pod *broker_pods_find(
    const struct broker_pods *ps, const struct uuid *uid, struct broker_why *w)
{
	struct broker_pod *pod = find(ps, uid);

	if (!pod)
		broker_refuse(w, ENOENT, "this pod was not added");
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
static int make_directory(const char *path, mode_t mode, struct broker_why *w)
{
	if (mkdir(path, mode) && errno != EEXIST)
		return broker_refuse_sys(w, "mkdir %s", path);
	if (chmod(path, mode))
		return broker_refuse_sys(w, "chmod %s", path);
	return 0;
}

int broker_pods_add(struct broker_pods *ps, const struct uuid *uid, struct broker_why *w)
{
	char mount[PATH_BYTES];

	if (find(ps, uid))
		return 0;
	if (ps->n >= ps->options->max_pods)
		return broker_refuse(w, ENOSPC, "there are %u pods already (--max-pods)", ps->n);
	struct broker_pod *pod = broker_zalloc(sizeof(*pod));
	pod->uid = *uid;
	pod->netns = -1;
	uuid_format(uid, pod->name);
	snprintf(pod->dir, sizeof(pod->dir), "%s/pods/%s", ps->options->run, pod->name);
	path_in(pod, "", mount);
	if (make_directory(pod->dir, DIR_MODE, w) || make_directory(mount, MOUNT_MODE, w)) {
		free(pod);
		return -1;
	}
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

int broker_pods_remove(struct broker_pods *ps, struct broker_pod *pod, struct broker_why *w)
{
	char mount[PATH_BYTES];
	int rc = 0;

	for (int i = 0; i < PRIV_LISTENER_END; i++)
		unlink_known(pod, socket_names[i]);
	for (int i = 0; i < PRIV_FILE_END; i++)
		unlink_known(pod, file_names[i]);
	path_in(pod, "", mount);
	if ((rmdir(mount) && errno != ENOENT) || (rmdir(pod->dir) && errno != ENOENT))
		rc = broker_refuse_sys(w, "rmdir %s", pod->dir);
	pod_free(ps, pod);
	return rc;
}

int broker_pod_listen(
    struct broker_pods *ps, struct broker_pod *pod, unsigned kind, struct broker_why *w)
{
	char path[PATH_BYTES];

	if (kind >= PRIV_LISTENER_END)
		return broker_refuse(w, EINVAL, "there is no listener of kind %u", kind);
	path_in(pod, socket_names[kind], path);
	return broker_listener_open(&pod->listeners[kind], ps->epoll, path, SOCKET_MODE, w);
}

int broker_pod_write(struct broker_pod *pod, unsigned kind, int memfd, struct broker_why *w)
{
	char path[PATH_BYTES];

	if (kind >= PRIV_FILE_END)
		return broker_refuse(w, EINVAL, "there is no file of kind %u", kind);
	path_in(pod, file_names[kind], path);
	return broker_file_write(path, FILE_MODE, memfd, w);
}

/* Another one than the pod's: a sandbox that was started anew, or somebody else? */
static int check_replacement(struct broker_pod *pod, struct broker_why *w)
{
	static const char other[] = "the peer is in another network namespace than the pod began "
				    "with";

	if (broker_cgroup_emptied(&pod->cgroup))
		return 0;
	if (pod->cgroup.watched)
		return broker_refuse(
		    w, EPERM, "%s, and the pod's cgroup was never empty since", other);
	return broker_refuse(w, EPERM,
	    "%s; give <uid>/cgroup beside the manifest, so that a restarted pod is told from an "
	    "intruder, or remove the manifest and add it again",
	    other);
}

/* The first one wins; a namespace is one pod's (security-rules.md 4, i#61211). */
static int check_netns(const struct broker_pods *ps, struct broker_pod *pod,
    const struct broker_netns_id *id, struct broker_why *w)
{
	const struct broker_pod *other;

	if (pod->netns >= 0 && broker_netns_same(&pod->netns_id, id))
		return 0;
	if (pod->netns >= 0 && check_replacement(pod, w))
		return -1;
	DL_FOREACH (ps->list, other) {
		if (other->netns < 0 || !broker_netns_same(&other->netns_id, id))
			continue;
		broker_log(BROKER_WARN, pod->name,
		    "a peer came from the network namespace of pod %s: refused", other->name);
		return broker_refuse(
		    w, EPERM, "the peer is in the network namespace of pod %s", other->name);
	}
	return 0;
}

/* From here on the cgroup must become empty for another namespace; one that was named only now is
 * watched from now on. */
static void watch_cgroup(struct broker_pods *ps, struct broker_pod *pod, bool is_new)
{
	struct broker_why w = {.code = 0};

	if (!is_new && pod->cgroup.watched)
		return;
	if (broker_cgroup_watch(&pod->cgroup, ps->epoll, ps->options, pod->name, &w) && is_new &&
	    w.code != ENOENT)
		broker_log(BROKER_WARN, pod->name, "a restart will not be noticed: %s", w.text);
}

static void learn_netns(
    struct broker_pods *ps, struct broker_pod *pod, int fd, const struct broker_netns_id *id)
{
	bool is_new = pod->netns < 0 || !broker_netns_same(&pod->netns_id, id);

	if (pod->netns >= 0 && is_new)
		broker_log(BROKER_INFO, pod->name,
		    "a new network namespace: the pod's cgroup was empty in between");
	if (pod->netns >= 0)
		close(pod->netns);
	pod->netns = fd;
	pod->netns_id = *id;
	watch_cgroup(ps, pod, is_new);
}

int broker_pod_netns(struct broker_pods *ps, struct broker_pod *pod, int conn,
    struct priv_packet *out, struct broker_why *w)
{
	struct broker_netns_id id;
	int fd = broker_netns_of(ps->home, conn, &id, w);

	if (fd < 0)
		return -1;
	if (check_netns(ps, pod, &id, w) || broker_netns_describe(ps->home, fd, out, w)) {
		close(fd);
		return -1;
	}
	learn_netns(ps, pod, fd, &id);
	return 0;
}

int broker_pod_netns_fd(const struct broker_pod *pod)
{
	return pod->netns;
}
