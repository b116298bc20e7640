/* csi.c - a notice of either directory, or a timer -> is all as it should be? -> put back; the
 * kubelet has not come -> the link again, under another name.
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
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

LOG_SCOPE("broker");

/* Names of the link: "<stem><tail>", and "<stem>-<number><tail>" after that. */
static const char stem[] = "agentd.node.mesh", tail[] = "-reg.sock";

enum { ENTRY_SIZE = 48, NUMBERS = 10000 };
/* How long the kubelet may take before the link has another name: it looks once a second. */
enum { PATIENCE_MS = 2000, PATIENCE_MAX_MS = 64 * 1000 };

struct kubelet_csi {
	struct kubelet_csi_rig rig;
	struct broker_listener_spec spec;
	struct broker_listener listener;
	struct broker_audit audit;
	struct broker_timer unheard; /* is set until the kubelet has registered us */
	int64_t patience_ms;
	char registry[PATH_MAX];
	char entry[ENTRY_SIZE]; /* the link's name now; "": not known yet */
	bool registered;        /* the kubelet said so of this link */
	bool entered;           /* the link was there */
	bool told;              /* why it cannot be */
	time_t said;            /* that something was put back */
	unsigned restored;      /* something of ours, since this broker began */
	bool noted;             /* the worker is to be told so */
};

/* --- the link --- */

enum { SAY_SECONDS = 10 };

enum entry_is { ENTRY_MISSING, ENTRY_OURS, ENTRY_OTHER };

static void name_entry(char out[ENTRY_SIZE], int number)
{
	if (number)
		snprintf(out, ENTRY_SIZE, "%s-%d%s", stem, number, tail);
	else
		snprintf(out, ENTRY_SIZE, "%s%s", stem, tail);
}

/* The number in a name of ours; -1: it is none. */
static int number_of(const char *name)
{
	char again[ENTRY_SIZE];
	int number = 0;

	if (strncmp(name, stem, strlen(stem)) != 0)
		return -1;
	name += strlen(stem);
	if (*name == '-' && name[1] >= '1' && name[1] <= '9')
		number = (int)strtol(name + 1, NULL, 10) % NUMBERS;
	name_entry(again, number);
	return strcmp(again + strlen(stem), name) ? -1 : number;
}

/* Calls `each` with the names of ours in the registry; the largest number, or -1. */
static int each_entry(
    int registry, void (*each)(int registry, const char *name, const char *but), const char *but)
{
	int fd = openat(registry, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), last = -1, n;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *one;

	if (!d)
		mem_closep(&fd);
	while (d && (one = readdir(d))) {
		if ((n = number_of(one->d_name)) < 0)
			continue;
		last = n > last ? n : last;
		if (each)
			each(registry, one->d_name, but);
	}
	if (d)
		closedir(d);
	return last;
}

static void remove_other(int registry, const char *name, const char *but)
{
	if (strcmp(name, but) != 0)
		unlinkat(registry, name, 0);
}

static enum entry_is look(const struct kubelet_csi *c, int registry)
{
	char to[PATH_MAX];
	ssize_t n = *c->entry ? readlinkat(registry, c->entry, to, sizeof(to) - 1) : -1;

	if (n < 0)
		return !*c->entry || errno == ENOENT ? ENTRY_MISSING : ENTRY_OTHER;
	to[n] = '\0';
	return strcmp(to, c->spec.path) ? ENTRY_OTHER : ENTRY_OURS;
}

static void set_registered(struct kubelet_csi *c, bool registered)
{
	char path[PATH_MAX];

	c->registered = registered;
	snprintf(path, sizeof(path), "%s/registered", c->rig.options->run);
	if (!registered) {
		unlink(path);
		return broker_timer_set(&c->unheard, c->patience_ms);
	}
	broker_timer_set(&c->unheard, -1);
	c->patience_ms = PATIENCE_MS;
	unlink(path);
	if (symlink(c->entry, path))
		log_warn(NULL, "%s: %m", path);
}

/* Under another name, for only that makes the kubelet look at once (kubelet-csi.md 6). */
static bool put(struct kubelet_csi *c, int registry)
{
	name_entry(c->entry, (each_entry(registry, NULL, NULL) + 1) % NUMBERS);
	if (unlinkat(registry, c->entry, 0) &&
	    errno != ENOENT) /* only when the numbers begin again */
		log_warn(NULL, "%s/%s: %m", c->registry, c->entry);
	if (!symlinkat(c->spec.path, registry, c->entry)) {
		each_entry(registry, remove_other, c->entry);
		c->noted |= c->registered; /* what the worker says itself it is not told */
		set_registered(c, false);
		return true;
	}
	if (!c->told)
		log_error(NULL, "the kubelet cannot find agentd: %s/%s: %m", c->registry, c->entry);
	c->told = true;
	return false;
}

static void count(struct kubelet_csi *c)
{
	c->restored++;
	c->noted = true;
	c->rig.changed(c->rig.ctx);
}

/* `was`: what the link was called, or what stood in its place. */
static void say(struct kubelet_csi *c, enum entry_is was, const char *before)
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
		    "%s/%s was not the link to %s, which is %s now: a program with such a name "
		    "could be given the tokens of new pods",
		    c->registry, before, c->spec.path, c->entry);
	else if (c->entered)
		log_warn(
		    NULL, "%s/%s was removed; the link is %s now", c->registry, before, c->entry);
	else
		log_info(NULL, "the kubelet finds agentd by %s/%s", c->registry, c->entry);
}

/* -1: not yet, which is said once. */
static int open_registry(struct kubelet_csi *c)
{
	int registry = open(c->registry, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (registry < 0 && !c->told)
		log_warn(NULL, "the kubelet cannot find agentd yet: %s: %m", c->registry);
	c->told |= registry < 0;
	return registry;
}

/* False: to be tried again. */
static bool settle_entry(struct kubelet_csi *c)
{
	auto_close int registry = open_registry(c);
	char before[ENTRY_SIZE];
	enum entry_is was;

	if (registry < 0)
		return false;
	broker_audit_directory(&c->audit, c->registry);
	was = look(c, registry);
	memcpy(before, c->entry, sizeof(before));
	if (was != ENTRY_OURS && !put(c, registry))
		return false;
	if (was != ENTRY_OURS)
		say(c, was, before);
	c->entered = true;
	c->told = false;
	return true;
}

/* The kubelet looked when no agentd was there, or waits before it tries this name again. */
static void on_unheard(void *ctx)
{
	struct kubelet_csi *c = ctx;
	auto_close int registry = open_registry(c);

	if (c->patience_ms == PATIENCE_MAX_MS / 2)
		log_warn(NULL,
		    "the kubelet has not registered agentd: is it running, and is %s its own?",
		    c->registry);
	c->patience_ms =
	    c->patience_ms * 2 > PATIENCE_MAX_MS ? PATIENCE_MAX_MS : c->patience_ms * 2;
	if (registry < 0 || !put(c, registry))
		return broker_timer_set(&c->unheard, c->patience_ms);
	log_info(NULL, "not registered yet: the kubelet finds agentd by %s/%s now", c->registry,
	    c->entry);
}

/* What the agentd knew that is followed: the link's name, and that it is the one the kubelet knows.
 */
static void inherit(struct kubelet_csi *c)
{
	auto_close int registry = open_registry(c);
	char path[PATH_MAX], known[ENTRY_SIZE];
	int number = registry < 0 ? -1 : each_entry(registry, NULL, NULL);
	ssize_t n;

	if (number < 0)
		return;
	name_entry(c->entry, number);
	snprintf(path, sizeof(path), "%s/registered", c->rig.options->run);
	n = readlink(path, known, sizeof(known) - 1);
	known[n > 0 ? n : 0] = '\0';
	c->registered = !strcmp(known, c->entry);
	if (!c->registered)
		broker_timer_set(&c->unheard, c->patience_ms);
}

void kubelet_csi_registered(struct kubelet_csi *c, bool yes)
{
	if (c->registered != yes)
		set_registered(c, yes);
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
	c->noted = c->restored > 0 || c->registered;
	if (broker_timer_is_set(&c->unheard)) /* from now on somebody answers */
		broker_timer_set(&c->unheard, c->patience_ms);
	return broker_listener_open(&c->listener, &c->spec, e);
}

bool kubelet_csi_pending(const struct kubelet_csi *c)
{
	return c && c->noted;
}

void kubelet_csi_next(struct kubelet_csi *c, struct link_packet *p)
{
	c->noted = false;
	*p = (struct link_packet){.what = LINK_CSI_NOTE, .kind = c->registered, .arg = c->restored};
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
		    "%s is not shared with the node, or not there: the kubelet would not see "
		    "agentd's mounts (agentd --check says more)",
		    path);
	c->patience_ms = PATIENCE_MS;
	c->unheard.watch.fd = -1;
	if (kubelet_csi_listener(c, e) < 0 || broker_audit_open(&c->audit, e) ||
	    (broker_timer_open(&c->unheard, rig->epoll, on_unheard, c) && err_sys(e, "timer"))) {
		kubelet_csi_free(&c);
		return NULL;
	}
	broker_audit_directory(&c->audit, rig->options->run);
	if (rig->inherited)
		inherit(c);
	settle_entry(c);
	c->noted = c->registered;
	return c;
}

void kubelet_csi_free(struct kubelet_csi **c)
{
	if (!*c)
		return;
	broker_timer_close(&(*c)->unheard);
	broker_audit_close(&(*c)->audit);
	broker_listener_release(&(*c)->listener);
	free(*c);
	*c = NULL;
}
