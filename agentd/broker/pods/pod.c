/* pod.c - added: its directories, its parts -> asked for: listeners, files, sockets to dial from ->
 * its cgroup is empty: what stood on its network namespace ends -> its worker is gone: nobody has a
 * copy -> removed, or the broker ends.
 *
 * Everything here happens inside <run>/pods, where only root can name anything; the directories a
 * pod sees are mounted read-only, so no path component can change under our hands.
 */
#include "pod.h"
#include "broker/base/file.h"
#include "broker/base/state.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

LOG_SCOPE("broker");

/* Istio's names: its bootstrap finds them where the directory is mounted. */
static const char *const file_names[LINK_FILE_END] = {
    [LINK_FILE_BOOTSTRAP] = "envoy-rev.json", [LINK_FILE_ROOT] = "root-cert.pem"};

enum { FILE_MODE = 0644, DIR_MODE = 0700, MOUNT_MODE = 0755 };

/* --- what must hold --- */

int pod_broken_rule(const struct broker_pod *pod)
{
	const struct pod_redirection *r = &pod->redirection;
	const bool served =
	    pod->dns.udp.state == POD_SOCKET_SERVED || pod->dns.tcp.state == POD_SOCKET_SERVED;
	const bool open = r->answer == POD_ANSWER_OWED || r->answer == POD_ANSWER_READY;
	const bool reason = r->inbound != POD_INBOUND_UNKNOWN && r->inbound != POD_INBOUND_LIVE;

	if (pod->identity.cgroup.state == POD_CGROUP_EMPTIED &&
	    (served || pod_redirection_is_live(r)))
		return 1;
	if (r->rules == POD_RULES_NONE &&
	    (r->inbound != POD_INBOUND_UNKNOWN || r->answer != POD_ANSWER_NOBODY ||
		pod->dns.udp.state != POD_SOCKET_NONE || pod->dns.tcp.state != POD_SOCKET_NONE))
		return 2;
	if (reason != (r->inbound_why.code != 0))
		return 3;
	if ((r->rules == POD_RULES_ASKED) != (r->asked != NULL))
		return 4;
	if (open != (r->id != 0) || (r->answer == POD_ANSWER_NOBODY && r->noted))
		return 5;
	return 0;
}

void pod_check(const struct broker_pod *pod)
{
	const int rule = pod_broken_rule(pod);

	if (!rule)
		return;
	log_error(pod->name, "rule %d of pods/pod.h does not hold: a bug of agentd's", rule);
	abort();
}

/* --- its directory --- */

static void name_pod(struct broker_pod *pod, const struct pods_rig *rig, const struct uuid *uid)
{
	pod->rig = rig;
	pod->uid = *uid;
	uuid_format(uid, pod->name);
	snprintf(pod->dir, sizeof(pod->dir), "%s/pods/%s", rig->options->run, pod->name);
}

/* <dir>/mount/<name>, or the directory itself. */
static void path_in(const struct broker_pod *pod, const char *name, char out[POD_PATH_SIZE])
{
	if (snprintf(out, POD_PATH_SIZE, "%s/mount%s%s", pod->dir, *name ? "/" : "", name) >=
	    POD_PATH_SIZE)
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

static int make_directories(const struct broker_pod *pod, struct err *e)
{
	char mount[POD_PATH_SIZE];

	path_in(pod, "", mount);
	return make_directory(pod->dir, DIR_MODE, e) || make_directory(mount, MOUNT_MODE, e) ? -1
											     : 0;
}

/* Names we give, and the temporary ones a death may have left. */
static void unlink_known(const struct broker_pod *pod, const char *name)
{
	char path[POD_PATH_SIZE], temp[32];

	path_in(pod, name, path);
	unlink(path);
	snprintf(temp, sizeof(temp), ".%s.new", name);
	path_in(pod, temp, path);
	unlink(path);
}

int pod_erase(const struct pods_rig *rig, const struct uuid *uid, struct err *e)
{
	struct broker_pod stranger = {.claimed = false};
	char mount[POD_PATH_SIZE];

	name_pod(&stranger, rig, uid);
	broker_state_netns_del(rig->states, uid);
	for (int i = 0; i < LINK_LISTENER_END; i++)
		unlink_known(&stranger, pod_listener_file(i));
	for (int i = 0; i < LINK_FILE_END; i++)
		unlink_known(&stranger, file_names[i]);
	path_in(&stranger, "", mount);
	if ((rmdir(mount) && errno != ENOENT) || (rmdir(stranger.dir) && errno != ENOENT))
		return err_sys(e, "rmdir %s", stranger.dir);
	return 0;
}

/* --- its parts --- */

/* Who comes next is another sandbox. */
static void on_emptied(void *ctx)
{
	struct broker_pod *pod = ctx;

	pod_identity_emptied(&pod->identity);
	pod_sockets_end(&pod->dns);
	if (pod->redirection.emptied)
		pod->redirection.emptied(pod);
	pod_check(pod);
}

static void describe_listeners(struct broker_pod *pod)
{
	const struct pods_rig *rig = pod->rig;
	char mount[POD_PATH_SIZE];
	const struct pod_listener_place at = {rig->epoll, rig->kept, mount, pod->name};

	path_in(pod, "", mount);
	for (int i = 0; i < LINK_LISTENER_END; i++) {
		pod->listeners[i] = (struct pod_listener){.renewed = rig->renewed, .ctx = rig->ctx};
		pod_listener_describe(&pod->listeners[i], (enum link_listener)i, &at);
	}
}

struct broker_pod *pod_new(const struct pods_rig *rig, const struct pod_identities *all,
    const struct uuid *uid, bool gone, struct err *e)
{
	struct broker_pod *pod = mem_zalloc(sizeof(*pod));

	name_pod(pod, rig, uid);
	if (make_directories(pod, e)) {
		free(pod);
		return NULL;
	}
	describe_listeners(pod);
	pod->identity.all = all;
	pod->identity.uid = *uid;
	pod->identity.name = pod->name;
	pod->identity.cgroup =
	    (struct pod_cgroup){.epoll = rig->epoll, .on_emptied = on_emptied, .ctx = pod};
	pod_identity_begin(&pod->identity, gone);
	return pod;
}

void pod_free(struct broker_pod **slot)
{
	struct broker_pod *pod = take(*slot);

	if (!pod)
		return;
	for (int i = 0; i < LINK_LISTENER_END; i++)
		broker_listener_release(&pod->listeners[i].listener);
	pod_sockets_end(&pod->dns);
	pod_redirection_end(&pod->redirection);
	pod_identity_end(&pod->identity);
	free(pod);
}

bool pod_detach(struct broker_pod *pod)
{
	const bool left = pod_sockets_detach(&pod->dns);

	pod->claimed = false;
	for (int i = 0; i < LINK_LISTENER_END; i++)
		pod->listeners[i].state = POD_LISTENER_IDLE;
	pod_redirection_detach(&pod->redirection);
	pod_check(pod);
	return left;
}

/* --- what the worker asks for --- */

int pod_listen(struct broker_pod *pod, unsigned kind, struct err *e)
{
	if (kind >= LINK_LISTENER_END)
		return err_set(e, EINVAL, "there is no listener of kind %u", kind);
	return pod_listener_open(&pod->listeners[kind], e);
}

bool pod_next_renewed(const struct broker_pod *pod, enum link_listener *kind)
{
	for (int i = 0; i < LINK_LISTENER_END; i++) {
		*kind = (enum link_listener)i;
		if (pod->listeners[i].state == POD_LISTENER_RENEWED)
			return true;
	}
	return false;
}

void pod_close_listeners(struct broker_pod *pod)
{
	for (int i = 0; i < LINK_LISTENER_END; i++)
		broker_listener_close(&pod->listeners[i].listener);
}

int pod_write(const struct broker_pod *pod, unsigned kind, int memfd, struct err *e)
{
	char path[POD_PATH_SIZE];

	if (kind >= LINK_FILE_END)
		return err_set(e, EINVAL, "there is no file of kind %u", kind);
	path_in(pod, file_names[kind], path);
	return broker_file_write(path, FILE_MODE, memfd, e);
}

int pod_dial(struct broker_pod *pod, const struct link_request *r, struct err *e)
{
	return netns_dial(&pod->dial, pod->rig->home, pod->identity.netns_fd, r, e);
}
