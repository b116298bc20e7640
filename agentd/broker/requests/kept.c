/* kept.c - followed, or written -> marked -> a child reads it -> what it says is told, if it is
 * news.
 *
 * A mark that comes while a child reads stays: that child may have seen what was there earlier.
 */
#include "kept.h"
#include "broker/base/disk.h"
#include "broker/base/loop.h"
#include "common/err.h"
#include "common/mem.h"
#include "identity.h"
#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <utlist.h>

enum { AT_ONCE_MAX = 4, LOOK_AGAIN_MS = 1000 };

struct file;

/* A child. */
struct reading {
	struct requests_kept *all;
	struct broker_watch watch; /* its answer; fd -1: there is none */
	time_t since;
	struct file *file; /* NULL: nobody follows it any more */
};

struct file {
	uint32_t id; /* of the LINK_FOLLOW */
	struct uuid pod;
	bool marked;        /* to be read */
	struct reading *by; /* NULL: nobody reads it */
	time_t since;       /* when it was marked */
	bool told, news;    /* once; `now` is to be told */
	struct broker_content now;
	struct file *prev, *next;
};

struct requests_kept {
	int epoll;
	const struct broker_options *options;
	void (*changed)(void *ctx);
	void *ctx;
	struct broker_timer late;
	struct file *files; /* the one that was told last is at the end */
	struct reading readings[AT_ONCE_MAX];
};

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* --- what is told --- */

static void set(struct requests_kept *k, struct file *f, struct broker_content *now)
{
	if (f->told && now->digest == f->now.digest) {
		mem_closep(&now->fd);
		return;
	}
	mem_closep(&f->now.fd);
	f->now = *now;
	f->told = f->news = true;
	k->changed(k->ctx);
}

static void set_unread(struct requests_kept *k, struct file *f, const struct err *why)
{
	struct broker_content c = {
	    .state = LINK_FILE_REFUSED, .fd = -1, .digest = (uint64_t)why->code, .why = *why};

	set(k, f, &c);
}

bool requests_kept_pending(const struct requests_kept *k)
{
	const struct file *f = NULL;

	DL_FOREACH (k->files, f)
		if (f->news)
			return true;
	return false;
}

void requests_kept_next(struct requests_kept *k, struct link_packet *p, int *fd)
{
	struct file *f = NULL;

	DL_FOREACH (k->files, f)
		if (f->news)
			break;
	DL_DELETE(k->files, f);
	DL_APPEND(k->files, f);
	f->news = false;
	*p = (struct link_packet){.id = f->id, .what = LINK_FILE, .state = f->now.state};
	*fd = take_fd(f->now.fd);
	snprintf(p->why, sizeof(p->why), "%s", f->now.why.msg);
}

/* --- children --- */

static struct reading *find_room(struct requests_kept *k)
{
	for (struct reading *r = k->readings; r < k->readings + AT_ONCE_MAX; r++)
		if (r->watch.fd < 0)
			return r;
	return NULL;
}

static int start(struct reading *r, struct file *f, struct err *e)
{
	char name[REQUESTS_IDENTITY_NAME];

	requests_identity_name(&f->pod, name);
	r->watch.fd = disk_read(
	    &(struct broker_place){
		.dir = r->all->options->identity_dir, .name = name, .secret = true},
	    e);
	if (r->watch.fd < 0)
		return -1;
	if (broker_watch_start(r->all->epoll, &r->watch, EPOLLIN)) {
		err_sys(e, "epoll");
		mem_closep(&r->watch.fd);
		return -1;
	}
	r->since = now_s();
	r->file = f;
	f->by = r;
	return 0;
}

static void read_marked(struct requests_kept *k)
{
	struct file *f = NULL;
	struct reading *r;
	struct err why;

	DL_FOREACH (k->files, f) {
		if (!f->marked || f->by)
			continue;
		if (!(r = find_room(k)))
			return;
		f->marked = false;
		if (start(r, f, &why))
			set_unread(k, f, &why);
	}
}

static void hang_up(struct reading *r)
{
	broker_watch_end(r->all->epoll, &r->watch);
	mem_closep(&r->watch.fd);
}

static void on_child(void *ctx, uint32_t events)
{
	struct reading *r = ctx;
	struct broker_content now;

	(void)events;
	disk_take(r->watch.fd, &now);
	hang_up(r);
	if (r->file) {
		r->file->by = NULL;
		set(r->all, r->file, &now);
	} else {
		mem_closep(&now.fd);
	}
	read_marked(r->all);
}

/* Whoever waits for a first answer goes on without it. */
static void on_late(void *ctx)
{
	struct requests_kept *k = ctx;
	const time_t now = now_s();
	struct err why;
	struct file *f = NULL;

	DL_FOREACH (k->files, f) {
		if (f->told)
			continue;
		if (now - f->since < DISK_SLOW_S) {
			broker_timer_set(&k->late, LOOK_AGAIN_MS);
			continue;
		}
		err_set(
		    &why, ETIMEDOUT, "the disk of %s does not answer", k->options->identity_dir);
		set_unread(k, f, &why);
	}
}

static void mark(struct requests_kept *k, struct file *f)
{
	f->marked = true;
	f->since = now_s();
	if (!f->told && !broker_timer_is_set(&k->late))
		broker_timer_set(&k->late, DISK_SLOW_MS);
	read_marked(k);
}

long requests_kept_waits_s(const struct requests_kept *k)
{
	const time_t now = now_s();
	time_t longest = 0;

	for (const struct reading *r = k->readings; r < k->readings + AT_ONCE_MAX; r++)
		if (r->watch.fd >= 0 && now - r->since > longest)
			longest = now - r->since;
	return longest >= DISK_SLOW_S ? longest : 0;
}

/* --- what the worker asks --- */

static struct file *find(struct requests_kept *k, const struct uuid *pod)
{
	struct file *f = NULL;

	DL_FOREACH (k->files, f)
		if (uuid_equal(&f->pod, pod))
			break;
	return f;
}

int requests_kept_add(struct requests_kept *k, const struct link_request *r, struct err *e)
{
	struct file *f = NULL;

	if (!k->options->manifests)
		return err_set(e, ENOENT, "there are no manifests, and no certificates of one");
	if (find(k, &r->uid))
		return err_set(e, EEXIST, "the pod's certificate is followed already");
	f = mem_zalloc(sizeof(*f));
	f->id = r->id;
	f->pod = r->uid;
	f->now.fd = -1;
	DL_APPEND(k->files, f);
	mark(k, f);
	return 0;
}

void requests_kept_written(struct requests_kept *k, const struct uuid *pod)
{
	struct file *f = find(k, pod);

	if (f)
		mark(k, f);
}

static void file_free(struct requests_kept *k, struct file *f)
{
	DL_DELETE(k->files, f);
	if (f->by)
		f->by->file = NULL;
	mem_closep(&f->now.fd);
	free(f);
}

void requests_kept_remove(struct requests_kept *k, uint32_t id)
{
	struct file *f, *tmp;

	DL_FOREACH_SAFE (k->files, f, tmp)
		if (f->id == id)
			file_free(k, f);
}

void requests_kept_remove_pod(struct requests_kept *k, const struct uuid *pod)
{
	struct file *f = find(k, pod);

	if (f)
		file_free(k, f);
}

void requests_kept_clear(struct requests_kept *k)
{
	while (k->files)
		file_free(k, k->files);
}

/* --- life --- */

struct requests_kept *requests_kept_new(
    int epoll, const struct broker_options *o, void (*changed)(void *ctx), void *ctx)
{
	struct requests_kept *k = mem_zalloc(sizeof(*k));

	*k = (struct requests_kept){
	    .epoll = epoll, .options = o, .changed = changed, .ctx = ctx, .late.watch.fd = -1};
	for (struct reading *r = k->readings; r < k->readings + AT_ONCE_MAX; r++) {
		r->all = k;
		r->watch = (struct broker_watch){.fd = -1, .ready = on_child, .ctx = r};
	}
	if (broker_timer_open(&k->late, epoll, on_late, k))
		requests_kept_free(&k);
	return k;
}

void requests_kept_free(struct requests_kept **kp)
{
	struct requests_kept *k = take(*kp);

	if (!k)
		return;
	requests_kept_clear(k);
	for (struct reading *r = k->readings; r < k->readings + AT_ONCE_MAX; r++)
		if (r->watch.fd >= 0)
			hang_up(r);
	broker_timer_close(&k->late);
	free(k);
}
