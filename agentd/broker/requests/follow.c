/* follow.c - inotify on directories, one mark for each file.
 *
 * follow -> watch the directory, or the nearest one above it that exists -> mark every file of the
 * follow -> (the worker has room) read a marked file, compare with what was told last, tell.
 * An event marks the file it names; the appearance of a missing directory, the disappearance of a
 * watched one and an overflow of the queue watch anew and mark everything.  `..data` is the link
 * by which a Kubernetes volume swaps all of its files at once.
 *
 * A worker that begins hears first of the manifests whose pods are awaited.
 *
 * The watch is always placed before the files are looked at, so a change is either seen by the look
 * or makes an event.  Renaming a directory above the watched one, and rewriting a file inside the
 * target of `..data` in place, make none: nobody does that to a live node.  A link on the way that
 * is repointed does (ways.h).
 */
#include "follow.h"
#include "broker/base/file.h"
#include "broker/base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "ways.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <utlist.h>

LOG_SCOPE("broker");

enum {
	/* Follows share watches.  IN_MASK_ADD: one that is placed again with a mask to replace its
	 * own sees nothing for a moment, while the kernel does so (Linux 6.18, fs/notify/inotify).
	 */
	WATCHED = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CREATE | IN_ATTRIB |
		  IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_MASK_ADD,
	SELF = IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT,
	EVENT_BYTES = 4096,
	NODE_FOLLOWS_MAX = 3 * LINK_PLANES_MAX,
	ARM_ATTEMPTS = 8,
};

static const char suffix[] = ".yaml";

/* One file of a follow. */
struct file {
	bool marked;
	bool told;    /* `digest` is of what the worker knows */
	bool ignored; /* there are too many: one of these is told, as refused */
	uint64_t digest;
	struct file *prev, *next;
	char name[];
};

struct follow {
	const struct follows *of;
	uint32_t id;
	enum link_followed what;
	struct uuid pod;            /* of a file of one pod */
	char *top;                  /* from the command line */
	char sub[UUID_TEXT_SIZE];   /* "" for none */
	char *path;                 /* top/sub, the directory itself */
	size_t watched;             /* how much of `path` is watched; all of it when it exists */
	int wd;                     /* -1: none */
	struct ways ways;           /* to `top` */
	bool synced;                /* MANIFESTS: the worker was told that it knows all there was */
	unsigned nfiles, max_files; /* those that run may be more */
	bool overfull;              /* there is an ignored one */
	struct file *files;
	struct follow *prev, *next;
};

struct follows {
	const struct broker_options *options;
	struct broker_watch watch; /* the inotify fd */
	int epoll;
	struct follow *list; /* the one that was served last is at the end */
	struct follows_events ev;
	void *ctx;
};

/* --- watches --- */

/* Without --manifests: told to be empty, and that is all. */
static bool is_nowhere(const struct follow *f)
{
	return !*f->path;
}

/* Several follows may share a directory and so a watch. */
static void drop_watch(struct follows *fs, int wd)
{
	const struct follow *f;

	DL_FOREACH (fs->list, f)
		if (f->wd == wd || ways_has(&f->ways, wd))
			return;
	if (wd >= 0)
		inotify_rm_watch(fs->watch.fd, wd);
}

/* The sub-directory's name comes from a pod's uid and is never a link (security-rules.md 6). */
static uint32_t watch_flags(const struct follow *f, size_t len)
{
	return *f->sub && !f->path[len] ? WATCHED | IN_DONT_FOLLOW : WATCHED;
}

/* The next longer path after the first `len` bytes of f->path. */
static size_t next_component(const struct follow *f, size_t len)
{
	size_t start = len + (f->path[len] == '/');

	return start + strcspn(f->path + start, "/");
}

/* Watches the longest existing part of f->path; -1: not even that. */
static int watch_longest(struct follows *fs, struct follow *f, struct err *e)
{
	char path[PATH_MAX];
	size_t len = strlen(f->path);
	int wd;

	memcpy(path, f->path, len + 1);
	while ((wd = broker_notices_add(fs->watch.fd, path, watch_flags(f, len))) < 0) {
		if ((errno != ENOENT && errno != ENOTDIR && errno != ELOOP) || len <= 1)
			return err_sys(e, "watch %s", path);
		while (len > 1 && path[len - 1] != '/')
			len--;
		len -= len > 1;
		path[len ? len : 1] = '\0';
	}
	f->watched = len;
	return wd;
}

/* Has the directory after the watched one appeared before the watch was there? */
static bool is_outdated(const struct follow *f)
{
	char path[PATH_MAX];
	struct stat st;
	size_t len;

	if (!f->path[f->watched])
		return false;
	len = next_component(f, f->watched);
	memcpy(path, f->path, len);
	path[len] = '\0';
	return !(*f->sub && !f->path[len] ? lstat(path, &st) : stat(path, &st)) &&
	       S_ISDIR(st.st_mode);
}

/* Before the directory itself: one that they lead to from now on makes an event. */
static void watch_ways(struct follows *fs, struct follow *f)
{
	struct ways old = f->ways;

	f->ways = (struct ways){0};
	ways_watch(&f->ways, fs->watch.fd, f->top);
	for (unsigned i = 0; i < old.n; i++)
		drop_watch(fs, old.at[i].wd);
	ways_clear(&old);
}

static int arm(struct follows *fs, struct follow *f, struct err *e)
{
	int attempt = 0;

	watch_ways(fs, f);
	do {
		int old = f->wd;
		f->wd = watch_longest(fs, f, e);
		if (f->wd != old)
			drop_watch(fs, old);
		if (f->wd < 0)
			return -1;
	} while (is_outdated(f) && ++attempt < ARM_ATTEMPTS);
	return 0;
}

/* --- marks --- */

static bool wants_sync(const struct follow *f)
{
	return f->what == LINK_FOLLOW_MANIFESTS && !f->synced;
}

/* The name of a pod's manifest. */
static bool is_uid(const char *name, struct uuid *pod)
{
	char uid[UUID_TEXT_SIZE];

	if (strlen(name) != sizeof(uid) - 1 + sizeof(suffix) - 1)
		return false;
	snprintf(uid, sizeof(uid), "%s", name);
	return uuid_parse(pod, uid);
}

/* Only what is there at the start can be of a pod that was served before. */
static unsigned running(const struct follow *f, const char *name)
{
	struct uuid pod;

	return wants_sync(f) && is_uid(name, &pod) ? f->of->ev.running(f->of->ctx, &pod) : 0;
}

static void mark(struct follow *f, const char *name)
{
	bool full = f->nfiles >= f->max_files && !running(f, name);
	struct file *file;

	DL_FOREACH (f->files, file)
		if (!strcmp(file->name, name))
			break;
	if (!file && full && f->overfull)
		return; /* it is said of another one */
	if (!file) {
		file = mem_zalloc(sizeof(*file) + strlen(name) + 1);
		file->ignored = full;
		f->overfull |= full;
		f->nfiles += !file->ignored;
		memcpy(file->name, name, strlen(name) + 1);
		DL_APPEND(f->files, file);
	}
	file->marked = true;
}

static bool is_manifest(const char *name)
{
	size_t n = strlen(name), s = sizeof(suffix) - 1;

	return *name != '.' && n > s && !strcmp(name + n - s, suffix);
}

/* What is there, and what was: those that are gone are found out when they are read. */
static void mark_all(struct follow *f)
{
	struct file *file;
	const struct dirent *entry;
	DIR *dir;

	DL_FOREACH (f->files, file)
		file->marked = true;
	if (f->what != LINK_FOLLOW_MANIFESTS || !(dir = opendir(f->path)))
		return;
	while ((entry = readdir(dir)))
		if (is_manifest(entry->d_name))
			mark(f, entry->d_name);
	closedir(dir);
}

static void arm_again(struct follows *fs, struct follow *f)
{
	struct err e;

	if (is_nowhere(f))
		return;
	if (arm(fs, f, &e))
		log_error(NULL, "changes will be missed: %s", e.msg);
	mark_all(f);
}

/* --- events --- */

/* A new file is empty until its writer closes it, which is the next event: an empty manifest is
 * never worth telling. */
static bool is_just_made(const struct follow *f, const struct inotify_event *ev)
{
	char path[PATH_MAX + NAME_MAX + 2];
	struct stat st;

	if (!(ev->mask & IN_CREATE))
		return false;
	snprintf(path, sizeof(path), "%s/%s", f->path, ev->name);
	return !lstat(path, &st) && S_ISREG(st.st_mode) && st.st_size == 0;
}

static void on_event_in_directory(struct follow *f, const struct inotify_event *ev)
{
	if (!strcmp(ev->name, "..data"))
		mark_all(f);
	else if (is_just_made(f, ev))
		return;
	else if (f->what != LINK_FOLLOW_MANIFESTS && !strcmp(ev->name, f->files->name))
		f->files->marked = true;
	else if (f->what == LINK_FOLLOW_MANIFESTS && is_manifest(ev->name))
		mark(f, ev->name);
}

static void on_event(struct follows *fs, struct follow *f, const struct inotify_event *ev)
{
	const char *name = ev->len ? ev->name : "";
	size_t start = f->watched + (f->path[f->watched] == '/');
	size_t n = strcspn(f->path + start, "/");

	if (ev->mask & SELF) {
		if (ev->mask & IN_IGNORED)
			f->wd = -1; /* the kernel has ended it */
		arm_again(fs, f);
	} else if (!f->path[f->watched]) {
		if (*name)
			on_event_in_directory(f, ev);
	} else if (strlen(name) == n && !strncmp(f->path + start, name, n)) {
		arm_again(fs, f); /* the missing directory may be there now */
	}
}

static bool is_of_its_way(const struct follow *f, const struct inotify_event *ev)
{
	return f->wd != ev->wd && ev->mask & SELF
		   ? ways_has(&f->ways, ev->wd)
		   : ev->len && ways_lead_through(&f->ways, ev->wd, ev->name);
}

static void on_events(struct follows *fs, const char *bytes, size_t size)
{
	const struct inotify_event *ev;
	struct follow *f;

	for (size_t at = 0; at < size; at += sizeof(*ev) + ev->len) {
		ev = (const struct inotify_event *)(const void *)(bytes + at);
		DL_FOREACH (fs->list, f) {
			if (ev->mask & IN_Q_OVERFLOW || is_of_its_way(f, ev))
				arm_again(fs, f);
			else if (f->wd == ev->wd)
				on_event(fs, f, ev);
		}
	}
}

static void on_inotify(void *ctx, uint32_t events)
{
	struct follows *fs = ctx;
	char bytes[EVENT_BYTES] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	(void)events;
	while ((n = read(fs->watch.fd, bytes, sizeof(bytes))) > 0)
		on_events(fs, bytes, (size_t)n);
	if (follows_pending(fs))
		fs->ev.changed(fs->ctx);
}

/* --- telling --- */

static struct file *find_marked(struct follow *f)
{
	struct file *file;

	DL_FOREACH (f->files, file)
		if (file->marked)
			return file;
	return NULL;
}

bool follows_pending(const struct follows *fs)
{
	struct follow *f;

	DL_FOREACH (fs->list, f)
		if (wants_sync(f) || find_marked(f))
			return true;
	return false;
}

/* Instead of its content, as long as there is no room. */
static void ignore(const struct follow *f, const struct file *file, struct broker_content *now)
{
	mem_closep(&now->fd);
	*now = (struct broker_content){.state = LINK_FILE_REFUSED, .fd = -1, .digest = 1};
	err_set(&now->why, EUSERS,
	    "%s/%s is ignored, and maybe others: there are %u files already (twice --max-pods)",
	    f->path, file->name, f->max_files);
}

/* The one that is ignored is the next to be told; then another one may be ignored. */
static void forget_file(struct follow *f, struct file *file)
{
	struct file *next;

	f->nfiles -= !file->ignored;
	DL_DELETE(f->files, file);
	free(file);
	if (!f->overfull)
		return;
	DL_FOREACH (f->files, next)
		if (next->ignored)
			break;
	if (next) {
		next->ignored = false;
		f->nfiles++;
	}
	f->overfull = false;
	mark_all(f);
}

/* True: the worker does not know it yet. */
static bool tell(struct follow *f, struct file *file, struct link_packet *p, int *fd)
{
	bool directory = f->what == LINK_FOLLOW_MANIFESTS;
	struct broker_place at = {.dir = f->top,
	    .sub = *f->sub ? f->sub : NULL,
	    .name = file->name,
	    .secret = f->what == LINK_FOLLOW_KEY};
	struct broker_content now;
	bool news;

	file->marked = false;
	broker_file_read(&at, &now);
	if (file->ignored && now.state != LINK_FILE_REMOVED)
		ignore(f, file, &now);
	news =
	    file->told ? now.digest != file->digest : !directory || now.state != LINK_FILE_REMOVED;
	if (news) {
		file->told = true;
		file->digest = now.digest;
		p->state = now.state;
		*fd = take_fd(now.fd);
		if (directory)
			snprintf(p->name, sizeof(p->name), "%s", file->name);
		snprintf(p->why, sizeof(p->why), "%s", now.why.msg);
	}
	mem_closep(&now.fd);
	if (directory && now.state == LINK_FILE_REMOVED)
		forget_file(f, file);
	return news;
}

bool follows_next(struct follows *fs, struct link_packet *p, int *fd)
{
	struct follow *f;
	struct file *file = NULL;

	*fd = -1;
	DL_FOREACH (fs->list, f)
		if ((file = find_marked(f)) || wants_sync(f))
			break;
	if (!f)
		return false;
	DL_DELETE(fs->list, f); /* the others come first next time */
	DL_APPEND(fs->list, f);
	*p = (struct link_packet){.id = f->id, .what = LINK_FILE};
	if (file) {
		p->arg = running(f, file->name);
		return tell(f, file, p, fd);
	}
	f->synced = true;
	p->state = LINK_FILE_SYNCED;
	return true;
}

/* --- life --- */

static void follow_free(struct follows *fs, struct follow *f)
{
	struct file *file, *tmp;

	DL_DELETE(fs->list, f);
	drop_watch(fs, f->wd);
	for (unsigned i = 0; i < f->ways.n; i++)
		drop_watch(fs, f->ways.at[i].wd);
	ways_clear(&f->ways);
	DL_FOREACH_SAFE (f->files, file, tmp)
		free(file);
	free(f->path);
	free(f->top);
	free(f);
}

/* Whose follows are counted together. */
enum group { OF_A_POD, OF_THE_KUBELET, OF_THE_NODE };

static enum group group_of(unsigned kind)
{
	if (follows_is_of_pod(kind))
		return OF_A_POD;
	return kind == LINK_FOLLOW_KUBELET_POD ? OF_THE_KUBELET : OF_THE_NODE;
}

bool follows_is_of_pod(unsigned kind)
{
	return kind == LINK_FOLLOW_TOKEN || kind == LINK_FOLLOW_KEY || kind == LINK_FOLLOW_CHAIN;
}

static int check_count(const struct follows *fs, const struct link_request *r, struct err *e)
{
	const struct follow *f;
	static const int max[] = {[OF_A_POD] = LINK_FOLLOWS_PER_POD_MAX,
	    [OF_THE_KUBELET] = LINK_FOLLOWS_KUBELET_MAX,
	    [OF_THE_NODE] = NODE_FOLLOWS_MAX};
	enum group group = group_of(r->kind);
	int n = 0;

	DL_FOREACH (fs->list, f) {
		if (f->id == r->id)
			return err_set(e, EEXIST, "this id is followed already");
		if (group_of(f->what) == group &&
		    (group != OF_A_POD || uuid_equal(&f->pod, &r->uid)))
			n++;
	}
	return n < max[group] ? 0 : err_set(e, ENOSPC, "%d files are followed already", n);
}

/* A file whose path is a flag's. */
static int locate_flag(
    const struct broker_options *o, const struct link_request *r, struct follow *f, struct err *e)
{
	const bool crl = r->kind == LINK_FOLLOW_CRL;
	const char *file = r->arg >= LINK_PLANES_MAX ? NULL
			   : crl                     ? o->crl_files[r->arg]
						     : o->root_files[r->arg];
	const char *slash;

	if (!file)
		return err_set(e, ENOENT, "there is no --%s-file for control plane %u",
		    crl ? "crl" : "root", (unsigned)r->arg);
	slash = strrchr(file, '/');
	f->top = mem_printf("%.*s", slash == file ? 1 : (int)(slash - file), file);
	mark(f, slash + 1);
	return 0;
}

/* Beside its manifest, in a directory of its own. */
static int locate_beside(const struct broker_options *o, const struct link_request *r,
    struct follow *f, const char *name, struct err *e)
{
	if (!o->manifests)
		return err_set(e, ENOENT, "there are no manifests, and no %s beside one", name);
	f->top = mem_printf("%s", o->manifests);
	uuid_format(&r->uid, f->sub);
	mark(f, name);
	return 0;
}

static int locate_kubelet_pod(
    const struct broker_options *o, const struct link_request *r, struct follow *f, struct err *e)
{
	char uid[UUID_TEXT_SIZE];

	if (!o->kubelet_root)
		return err_set(e, EOPNOTSUPP, "agentd runs without --kubelet-root");
	f->top = mem_printf("%s/pods", o->kubelet_root);
	uuid_format(&r->uid, uid);
	mark(f, uid);
	return 0;
}

/* The directory of the follow, and its file, marked; all manifests are found later. */
static int locate(
    const struct broker_options *o, const struct link_request *r, struct follow *f, struct err *e)
{
	switch (f->what) {
	case LINK_FOLLOW_TOKEN:
		return locate_beside(o, r, f, "token", e);
	case LINK_FOLLOW_KEY:
		return locate_beside(o, r, f, "key.pem", e);
	case LINK_FOLLOW_CHAIN:
		return locate_beside(o, r, f, "cert-chain.pem", e);
	case LINK_FOLLOW_KUBELET_POD:
		return locate_kubelet_pod(o, r, f, e);
	case LINK_FOLLOW_MANIFESTS:
		f->top = mem_printf("%s", o->manifests ? o->manifests : "");
		return 0;
	default:
		return locate_flag(o, r, f, e);
	}
}

static bool is_awaited(const struct follows *fs, const char *name)
{
	struct uuid pod;

	return is_uid(name, &pod) && fs->ev.awaited(fs->ctx, &pod);
}

/* Otherwise their order stays. */
static void put_awaited_first(const struct follows *fs, struct follow *f)
{
	struct file *file, *next, *awaited = NULL, *others = NULL;

	DL_FOREACH_SAFE (f->files, file, next) {
		DL_DELETE(f->files, file);
		if (is_awaited(fs, file->name))
			DL_APPEND(awaited, file);
		else
			DL_APPEND(others, file);
	}
	DL_CONCAT(awaited, others);
	f->files = awaited;
}

static int begin(struct follows *fs, struct follow *f, const struct link_request *r, struct err *e)
{
	if (locate(fs->options, r, f, e))
		return -1;
	f->path = mem_printf("%s%s%s", f->top, *f->sub ? "/" : "", f->sub);
	if (!is_nowhere(f) && arm(fs, f, e))
		return -1;
	mark_all(f);
	if (f->what == LINK_FOLLOW_MANIFESTS)
		put_awaited_first(fs, f);
	return 0;
}

int follows_add(struct follows *fs, const struct link_request *r, struct err *e)
{
	if (r->kind >= LINK_FOLLOWED_END)
		return err_set(e, EINVAL, "there is nothing of kind %u to follow", r->kind);
	if (check_count(fs, r, e))
		return -1;
	struct follow *f = mem_zalloc(sizeof(*f));
	f->of = fs;
	f->id = r->id;
	f->what = (enum link_followed)r->kind;
	f->pod = r->uid;
	f->wd = -1;
	/* Pods beyond the limit are refused one by one, each with its reason; those that run are
	 * not, though the limit sank. */
	f->max_files = r->kind == LINK_FOLLOW_MANIFESTS ? 2 * fs->options->max_pods : 1;
	DL_APPEND(fs->list, f);
	if (begin(fs, f, r, e)) {
		follow_free(fs, f);
		return -1;
	}
	fs->ev.changed(fs->ctx);
	return 0;
}

void follows_remove(struct follows *fs, uint32_t id)
{
	struct follow *f, *tmp;

	DL_FOREACH_SAFE (fs->list, f, tmp)
		if (f->id == id)
			follow_free(fs, f);
}

void follows_remove_pod(struct follows *fs, const struct uuid *pod)
{
	struct follow *f, *tmp;

	DL_FOREACH_SAFE (fs->list, f, tmp)
		if (follows_is_of_pod(f->what) && uuid_equal(&f->pod, pod))
			follow_free(fs, f);
}

struct follows *follows_new(int epoll, const struct broker_options *o,
    const struct follows_events *ev, void *ctx, struct err *e)
{
	int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	if (fd < 0) {
		err_sys(e, "inotify_init1");
		return NULL;
	}
	struct follows *fs = mem_zalloc(sizeof(*fs));
	fs->options = o;
	fs->epoll = epoll;
	fs->ev = *ev;
	fs->ctx = ctx;
	fs->watch = (struct broker_watch){.fd = fd, .ready = on_inotify, .ctx = fs};
	if (broker_watch_start(epoll, &fs->watch, EPOLLIN)) {
		err_sys(e, "epoll");
		follows_free(&fs);
	}
	return fs;
}

void follows_clear(struct follows *fs)
{
	while (fs->list)
		follow_free(fs, fs->list);
}

void follows_free(struct follows **fs)
{
	if (!*fs)
		return;
	follows_clear(*fs);
	broker_watch_end((*fs)->epoll, &(*fs)->watch);
	close((*fs)->watch.fd);
	free(*fs);
	*fs = NULL;
}
