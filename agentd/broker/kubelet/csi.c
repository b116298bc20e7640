/* kubelet_csi.c - a notice of either directory, or a timer -> is all as it should be? -> put back.
 *
 * Who puts something else there is root on the node: another agentd, an installer, an attacker who
 * wants pods' tokens.  None of it can be prevented, all of it is said.
 */
#include "csi.h"
#include "broker/base/audit.h"
#include "broker/base/listener.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "mount.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

LOG_SCOPE("broker");

static const char entry[] = "agentd.node.mesh-reg.sock";
static const char temporary[] = ".agentd.node.mesh-reg.sock.new"; /* the kubelet ignores dots */

struct kubelet_csi {
	struct kubelet_csi_rig rig;
	struct broker_listener_spec spec;
	struct broker_listener listener;
	struct broker_audit audit;
	char registry[PATH_MAX];
	bool entered;      /* the link was there */
	bool told;         /* why it cannot be */
	time_t said;       /* that something was put back */
	unsigned restored; /* something of ours, since this broker began */
	bool noted;        /* the worker is to be told so */
};

/* --- the link --- */

enum { SAY_SECONDS = 10 };

enum entry_is { ENTRY_MISSING, ENTRY_OURS, ENTRY_OTHER };

static enum entry_is look(const struct kubelet_csi *c, int registry)
{
	char to[PATH_MAX];
	ssize_t n = readlinkat(registry, entry, to, sizeof(to) - 1);

	if (n < 0)
		return errno == ENOENT ? ENTRY_MISSING : ENTRY_OTHER;
	to[n] = '\0';
	return strcmp(to, c->spec.path) ? ENTRY_OTHER : ENTRY_OURS;
}

/* In one step, so that the kubelet never sees it half made. */
static bool put(struct kubelet_csi *c, int registry)
{
	if ((!unlinkat(registry, temporary, 0) || errno == ENOENT) &&
	    !symlinkat(c->spec.path, registry, temporary) &&
	    !renameat(registry, temporary, registry, entry))
		return true;
	if (!c->told)
		log_error(NULL, "the kubelet cannot find agentd: %s/%s: %m", c->registry, entry);
	c->told = true;
	unlinkat(registry, temporary, 0);
	return false;
}

static void count(struct kubelet_csi *c)
{
	c->restored++;
	c->noted = true;
	c->rig.changed(c->rig.ctx);
}

static void say(struct kubelet_csi *c, enum entry_is was)
{
	struct timespec now;

	if (was == ENTRY_OTHER || c->entered)
		count(c);
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (c->said && now.tv_sec - c->said < SAY_SECONDS)
		return; /* two programs that are of two minds */
	c->said = now.tv_sec;
	if (was == ENTRY_OTHER)
		log_error(NULL,
		    "%s/%s was something else than the link to %s, and is that again: a program "
		    "that has this name could be given the tokens of new pods",
		    c->registry, entry, c->spec.path);
	else if (c->entered)
		log_warn(NULL, "%s/%s was removed, and is there again", c->registry, entry);
	else
		log_info(NULL, "the kubelet finds agentd by %s/%s", c->registry, entry);
}

/* False: to be tried again. */
static bool settle_entry(struct kubelet_csi *c)
{
	auto_close int registry = open(c->registry, O_PATH | O_DIRECTORY | O_CLOEXEC);
	enum entry_is was;

	if (registry < 0) {
		if (!c->told)
			log_warn(NULL, "the kubelet cannot find agentd yet: %s: %m", c->registry);
		c->told = true;
		return false;
	}
	broker_audit_directory(&c->audit, c->registry);
	was = look(c, registry);
	if (was != ENTRY_OURS && !put(c, registry))
		return false;
	if (was != ENTRY_OURS)
		say(c, was);
	c->entered = true;
	c->told = false;
	return true;
}

/* --- the socket --- */

static void on_shut_down(void *ctx, int fd)
{
	struct kubelet_csi *c = ctx;

	(void)fd;
	c->rig.renewed(c->rig.ctx);
}

static void settle_socket(struct kubelet_csi *c)
{
	struct err e;

	if (broker_listener_is_there(&c->listener))
		return;
	log_error(NULL, "%s was removed or replaced; making a new one", c->spec.path);
	if (broker_listener_open(&c->listener, &c->spec, &e) < 0)
		log_error(NULL, "%s", e.msg);
	count(c);
	c->rig.renewed(c->rig.ctx);
}

int kubelet_csi_listener(struct kubelet_csi *c, struct err *e)
{
	c->noted = c->restored > 0;
	return broker_listener_open(&c->listener, &c->spec, e);
}

bool kubelet_csi_pending(const struct kubelet_csi *c)
{
	return c && c->noted;
}

void kubelet_csi_next(struct kubelet_csi *c, struct link_packet *p)
{
	c->noted = false;
	*p = (struct link_packet){.what = LINK_CSI_NOTE, .arg = c->restored};
}

/* --- life --- */

/* The notices of the last time are forgotten: what changed since is seen by the look. */
static bool on_due(void *ctx)
{
	struct kubelet_csi *c = ctx;

	settle_socket(c);
	return settle_entry(c);
}

struct kubelet_csi *kubelet_csi_new(const struct kubelet_csi_rig *rig, struct err *e)
{
	struct kubelet_csi *c = mem_zalloc(sizeof(*c));
	char path[PATH_MAX];

	c->rig = *rig;
	snprintf(
	    c->registry, sizeof(c->registry), "%s/plugins_registry", rig->options->kubelet_root);
	c->spec = (struct broker_listener_spec){.epoll = rig->epoll,
	    .kept = rig->kept,
	    .mode = S_IRUSR | S_IWUSR,
	    .name = "csi",
	    .renewed = on_shut_down,
	    .ctx = c};
	snprintf(c->spec.path, sizeof(c->spec.path), "%s/csi.sock", rig->options->run);
	c->audit = (struct broker_audit){.epoll = rig->epoll, .due = on_due, .ctx = c};
	snprintf(path, sizeof(path), "%s/pods", rig->options->kubelet_root);
	if (!kubelet_mount_is_seen(path))
		log_warn(NULL,
		    "%s is not shared with the node, or not there: the kubelet would not see what "
		    "is mounted (agentd --check says more)",
		    path);
	if (kubelet_csi_listener(c, e) < 0 || broker_audit_open(&c->audit, e)) {
		kubelet_csi_free(&c);
		return NULL;
	}
	broker_audit_directory(&c->audit, rig->options->run);
	settle_entry(c);
	return c;
}

void kubelet_csi_free(struct kubelet_csi **c)
{
	if (!*c)
		return;
	broker_audit_close(&(*c)->audit);
	broker_listener_release(&(*c)->listener);
	free(*c);
	*c = NULL;
}
