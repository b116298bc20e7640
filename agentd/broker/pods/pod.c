/* pod.c - added: its directories, its parts -> asked for: listeners, files, sockets to dial from ->
 * its cgroup is empty: what stood on its network namespace ends -> its worker is gone: nobody has a
 * copy -> removed, or the broker ends.
 *
 * Everything here happens inside <run>/pods, where only root can name anything.  A pod sees of it
 * the directory <uid>/mount: what is put there is made beside it, in <uid>, and renamed, so that no
 * name of a pod's making is ever followed.
 */
#include "pod.h"
#include "broker/base/audit.h"
#include "broker/base/file.h"
#include "broker/base/state.h"
#include "broker/kubelet/volume.h"
#include "common/log.h"
#include "common/mem.h"
#include "tree.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

LOG_SCOPE("broker");

/* Istio's names: its bootstrap finds them where the directory is mounted. */
static const char *const file_names[LINK_FILE_END] = {
    [LINK_FILE_BOOTSTRAP] = "envoy-rev.json", [LINK_FILE_ROOT] = "root-cert.pem"};

enum { FILE_MODE = 0644 };

const char *pod_file_name(enum link_file kind)
{
	return file_names[kind];
}

/* --- what must hold --- */

static bool is_listened(const struct broker_pod *pod)
{
	for (int i = 0; i < LINK_LISTENER_END; i++)
		if (pod->listeners[i].state != POD_LISTENER_IDLE)
			return true;
	return false;
}

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
	    (r->inbound != POD_INBOUND_UNKNOWN || r->answer != POD_ANSWER_NOBODY || served ||
		pod->dns.udp.state == POD_SOCKET_REFUSES))
		return 2;
	if (reason != (r->inbound_why.code != 0))
		return 3;
	if ((r->rules == POD_RULES_ASKED) != (r->asked != NULL))
		return 4;
	if (open != (r->id != 0) || (r->answer == POD_ANSWER_NOBODY && r->noted))
		return 5;
	if (!pod->claimed && (served || open || is_listened(pod) || r->noted || pod->mending.noted))
		return 6;
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

void pod_path_in(const struct broker_pod *pod, const char *name, char out[POD_PATH_SIZE])
{
	if (snprintf(out, POD_PATH_SIZE, "%s/mount%s%s", pod->dir, *name ? "/" : "", name) >=
	    POD_PATH_SIZE)
		abort();
}

void pod_first_path(const struct broker_pod *pod, const char *name, char out[POD_PATH_SIZE])
{
	if (snprintf(out, POD_PATH_SIZE, "%s/.%s.new", pod->dir, name) >= POD_PATH_SIZE)
		abort();
}

static void name_late(const struct broker_pod *pod, char out[POD_PATH_SIZE])
{
	if (snprintf(out, POD_PATH_SIZE, "%s/late", pod->dir) >= POD_PATH_SIZE)
		abort();
}

/* The kubelet starts no process of a pod before its volumes are mounted (kubelet-csi.md 3a): who
 * runs now began with another directory. */
static void note_late(const struct broker_pod *pod)
{
	const struct broker_options *o = pod->rig->options;
	char path[POD_PATH_SIZE];
	struct err e;

	if (!o->kubelet_root || !kubelet_volume_is_there(o, &pod->uid))
		return;
	auto_close int cgroup = pod_cgroup_open(o, pod->name, &e);
	if (cgroup < 0 || !pod_cgroup_is_populated(cgroup))
		return;
	log_error(pod->name, "its directory is made again while its containers run");
	name_late(pod, path);
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR);
	if (fd < 0)
		log_warn(pod->name, "%s: %m", path);
}

bool pod_is_late(const struct broker_pod *pod)
{
	char path[POD_PATH_SIZE];

	name_late(pod, path);
	return !access(path, F_OK);
}

void pod_came(const struct broker_pod *pod)
{
	char path[POD_PATH_SIZE];

	name_late(pod, path);
	unlink(path);
}

/* As much as can be; the first reason counts. */
int pod_erase(const struct pods_rig *rig, const struct uuid *uid, struct err *e)
{
	struct broker_pod stranger = {.claimed = false};
	struct err other;
	int rc;

	name_pod(&stranger, rig, uid);
	rc = broker_state_netns_del(rig->states, uid, e);
	rc |= broker_state_rules_del(rig->states, uid, rc ? &other : e);
	return rc | pod_tree_remove(stranger.dir, rc ? &other : e);
}

/* --- its parts --- */

/* Who comes next is another sandbox. */
static void on_emptied(void *ctx)
{
	struct broker_pod *pod = ctx;

	pod_identity_emptied(&pod->identity);
	if (pod->identity.unkept.code)
		broker_audit_soon(pod->rig->audit);
	pod_sockets_end(&pod->dns);
	if (pod->redirection.emptied)
		pod->redirection.emptied(pod);
	pod_check(pod);
}

static void describe_listeners(struct broker_pod *pod)
{
	const struct pods_rig *rig = pod->rig;
	const struct pod_listener_place at = {
	    rig->epoll, rig->kept, pod->dir, pod->name, pod_tree_may_be_written(pod)};

	for (int i = 0; i < LINK_LISTENER_END; i++) {
		pod->listeners[i] = (struct pod_listener){.renewed = rig->renewed, .ctx = rig->ctx};
		pod_listener_describe(&pod->listeners[i], (enum link_listener)i, &at);
	}
}

struct broker_pod *pod_new(const struct pods_rig *rig, const struct pod_identities *all,
    const struct uuid *uid, bool gone, struct err *e)
{
	struct broker_pod *pod = mem_zalloc(sizeof(*pod));
	int made;

	name_pod(pod, rig, uid);
	if ((made = pod_mend_directories(pod, e)) < 0) {
		free(pod);
		return NULL;
	}
	if (made)
		note_late(pod);
	describe_listeners(pod);
	pod->identity.all = all;
	pod->identity.uid = *uid;
	pod->identity.name = pod->name;
	pod->identity.cgroup =
	    (struct pod_cgroup){.epoll = rig->epoll, .on_emptied = on_emptied, .ctx = pod};
	pod_identity_begin(&pod->identity, gone);
	pod_sockets_begin(&pod->dns, uid, rig->kept);
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

void pod_detach(struct broker_pod *pod)
{
	pod_sockets_detach(&pod->dns);
	pod->claimed = false;
	pod->mending = (struct pod_mending){.noted = false};
	for (int i = 0; i < LINK_LISTENER_END; i++)
		pod->listeners[i].state = POD_LISTENER_IDLE;
	pod_redirection_detach(&pod->redirection);
	pod_check(pod);
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

int pod_write(struct broker_pod *pod, unsigned kind, int memfd, struct err *e)
{
	char path[POD_PATH_SIZE], first[POD_PATH_SIZE];

	if (kind >= LINK_FILE_END)
		return err_set(e, EINVAL, "there is no file of kind %u", kind);
	pod_path_in(pod, file_names[kind], path);
	pod_first_path(pod, file_names[kind], first);
	if (broker_file_write(path, first, FILE_MODE, memfd, e))
		return -1;
	pod->mending.written |= 1U << kind;
	return 0;
}

int pod_dial(struct broker_pod *pod, const struct link_request *r, struct err *e)
{
	return netns_dial(&pod->dial, pod->rig->home, pod->identity.netns_fd, r, e);
}
