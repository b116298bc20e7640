/* mend.c - directories, then what is in them, then what is kept elsewhere -> is it another story
 * than the worker was told? -> it is to be told.
 */
#include "mend.h"
#include "broker/base/audit.h"
#include "broker/base/file.h"
#include "common/log.h"
#include "pod.h"
#include "tree.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

LOG_SCOPE("broker");

enum { DIR_MODE = 0700, MOUNT_MODE = 0755 };

/* --- directories --- */

static bool is_there(const char *path)
{
	struct stat st;

	return !lstat(path, &st) || errno != ENOENT;
}

int pod_mend_directories(const struct broker_pod *pod, struct err *e)
{
	char mount[POD_PATH_SIZE];
	int dir, sub;

	pod_path_in(pod, "", mount);
	if ((dir = broker_file_directory(pod->dir, DIR_MODE, e)) < 0 ||
	    pod_tree_mount(pod, e) < 0 || (sub = broker_file_directory(mount, MOUNT_MODE, e)) < 0)
		return -1;
	broker_audit_directory(pod->rig->audit, pod->dir);
	broker_audit_directory(pod->rig->audit, mount);
	return dir + sub;
}

/* --- what is in them --- */

static int put_directories_back(const struct broker_pod *pod, struct err *e)
{
	char mount[POD_PATH_SIZE];
	int n;

	pod_path_in(pod, "", mount);
	if (is_there(mount))
		return 0;
	n = pod_mend_directories(pod, e);
	if (n >= 0)
		log_error(pod->name, "%s was removed: made again", mount);
	return n;
}

static int put_listeners_back(struct broker_pod *pod, struct err *e)
{
	int n = 0, rc = 0;

	for (int i = 0; i < LINK_LISTENER_END; i++) {
		int one = pod_listener_mend(&pod->listeners[i], e);

		n += one > 0;
		rc |= one < 0;
	}
	return rc ? -1 : n;
}

static unsigned find_lost(struct broker_pod *pod)
{
	struct pod_mending *m = &pod->mending;
	char path[POD_PATH_SIZE];
	unsigned n = 0;

	for (unsigned i = 0; i < LINK_FILE_END; i++) {
		pod_path_in(pod, pod_file_name((enum link_file)i), path);
		if (!(m->written & 1U << i) || is_there(path))
			continue;
		log_error(pod->name, "%s was removed: it is written again", path);
		m->written &= ~(1U << i);
		m->lost |= 1U << i;
		n++;
	}
	return n;
}

/* --- the whole pod --- */

/* Once for each reason. */
static void note(struct broker_pod *pod, const struct err *why)
{
	struct pod_mending *m = &pod->mending;

	m->noted |= strcmp(m->why.msg, why->msg) != 0;
	if (why->code && strcmp(m->why.msg, why->msg) != 0)
		log_error(pod->name, "%s; tried again until it can be", why->msg);
	else if (!why->code && m->why.code)
		log_info(pod->name, "all is in its place again");
	m->why = *why;
}

bool pod_mend(struct broker_pod *pod, unsigned *restored)
{
	struct err why = {.code = 0};
	int made = put_directories_back(pod, &why);
	int listens = made < 0 ? -1 : put_listeners_back(pod, &why);
	unsigned n = find_lost(pod);

	n += (made > 0 ? (unsigned)made : 0) + (listens > 0 ? (unsigned)listens : 0);
	*restored += n;
	pod->mending.noted |= n > 0;
	pod_identity_mend(&pod->identity, &why);
	note(pod, &why);
	return !why.code;
}

void pod_mend_told(struct broker_pod *pod, struct link_packet *p)
{
	struct pod_mending *m = &pod->mending;

	*p = (struct link_packet){
	    .what = LINK_POD_NOTE, .uid = pod->uid, .arg = m->lost, .code = m->why.code};
	snprintf(p->why, sizeof(p->why), "%s", m->why.code ? m->why.msg : "");
	m->lost = 0;
	m->noted = false;
}
