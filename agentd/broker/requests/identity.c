/* identity.c - is it a manifest's pod, small, the only one of its pod, and not one of many? -> a
 * child writes it -> its word is the answer.
 */
#include "identity.h"
#include "broker/base/disk.h"
#include "broker/base/loop.h"
#include "broker/kubelet/pod_source.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SIZE_MAX_KIB = 64, A_SECOND_MAX = 4, AT_ONCE_MAX = 4 };

struct writing {
	struct requests_identity *all;
	struct broker_watch watch; /* the child's pipe; fd -1: free, or done */
	struct uuid pod;
	time_t since;
	uint32_t request; /* 0: nobody waits for the answer */
	bool done;        /* `how` is to be told */
	struct err how;
};

struct requests_identity {
	int epoll;
	const struct broker_options *options;
	struct requests_identity_events ev;
	void *ctx;
	time_t second; /* in which so many were */
	unsigned begun;
	struct writing writings[AT_ONCE_MAX];
};

void requests_identity_name(const struct uuid *pod, char out[REQUESTS_IDENTITY_NAME])
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(pod, uid);
	snprintf(out, REQUESTS_IDENTITY_NAME, "%s.pem", uid);
}

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* --- what a child says --- */

static void hang_up(struct writing *w)
{
	broker_watch_end(w->all->epoll, &w->watch);
	mem_closep(&w->watch.fd);
}

static void on_child(void *ctx, uint32_t events)
{
	struct writing *w = ctx;

	(void)events;
	if (read(w->watch.fd, &w->how, sizeof(w->how)) != sizeof(w->how))
		err_set(&w->how, EIO, "the process that wrote it was killed");
	hang_up(w);
	w->done = w->request;
	if (w->done)
		w->all->ev.changed(w->all->ctx);
	if (!w->how.code)
		w->all->ev.written(w->all->ctx, &w->pod);
}

bool requests_identity_pending(const struct requests_identity *r)
{
	for (const struct writing *w = r->writings; w < r->writings + AT_ONCE_MAX; w++)
		if (w->done)
			return true;
	return false;
}

void requests_identity_next(struct requests_identity *r, struct link_packet *p)
{
	for (struct writing *w = r->writings; w < r->writings + AT_ONCE_MAX; w++) {
		if (!w->done)
			continue;
		*p =
		    (struct link_packet){.id = w->request, .what = LINK_REPLY, .code = w->how.code};
		if (p->code)
			snprintf(p->why, sizeof(p->why), "%s", w->how.msg);
		w->done = false;
		return;
	}
}

long requests_identity_waits_s(const struct requests_identity *r)
{
	const time_t now = now_s();
	time_t longest = 0;

	for (const struct writing *w = r->writings; w < r->writings + AT_ONCE_MAX; w++)
		if (w->watch.fd >= 0 && now - w->since > longest)
			longest = now - w->since;
	return longest >= DISK_SLOW_S ? longest : 0;
}

/* --- what the worker asks --- */

/* A child costs more than its request (security-rules.md G5). */
static int take_turn(struct requests_identity *r, struct err *e)
{
	const time_t now = now_s();

	if (now != r->second)
		r->begun = 0;
	r->second = now;
	if (r->begun == A_SECOND_MAX)
		return err_set(
		    e, EAGAIN, "%d certificates were written in this second", A_SECOND_MAX);
	r->begun++;
	return 0;
}

/* NULL: later.  Two of one pod could overtake each other. */
static struct writing *find_room(struct requests_identity *r, const struct uuid *pod, struct err *e)
{
	struct writing *room = NULL;

	for (struct writing *w = r->writings; w < r->writings + AT_ONCE_MAX; w++) {
		const bool busy = w->watch.fd >= 0 || w->done;

		if (busy && uuid_equal(&w->pod, pod)) {
			err_set(e, EAGAIN, "its certificate is being written");
			return NULL;
		}
		if (!busy)
			room = w;
	}
	if (!room)
		err_set(e, EAGAIN, "%d certificates are being written", AT_ONCE_MAX);
	return room;
}

static int start(struct writing *w, int memfd, struct err *e)
{
	char name[REQUESTS_IDENTITY_NAME];

	requests_identity_name(&w->pod, name);
	w->watch.fd = disk_write(
	    &(struct broker_place){.dir = w->all->options->identity_dir, .name = name}, memfd, e);
	if (w->watch.fd < 0)
		return -1;
	if (!broker_watch_start(w->all->epoll, &w->watch, EPOLLIN))
		return 0;
	err_sys(e, "epoll");
	mem_closep(&w->watch.fd);
	return -1;
}

int requests_identity_put(
    struct requests_identity *r, const struct link_request *q, int memfd, struct err *e)
{
	struct writing *w;
	struct stat st;

	if (!pod_source_is_manifest(r->options, &q->uid))
		return err_set(e, EPERM, "the pod has no manifest");
	if (broker_file_check_memfd(memfd, e))
		return -1;
	if (fstat(memfd, &st) || st.st_size == 0 || st.st_size > SIZE_MAX_KIB << 10)
		return err_set(e, EFBIG, "it is empty, or larger than %d KiB", SIZE_MAX_KIB);
	if (!(w = find_room(r, &q->uid, e)) || take_turn(r, e))
		return -1;
	w->pod = q->uid;
	w->request = q->id;
	w->since = now_s();
	return start(w, memfd, e);
}

/* --- life --- */

struct requests_identity *requests_identity_new(
    int epoll, const struct broker_options *o, const struct requests_identity_events *ev, void *ctx)
{
	struct requests_identity *r = mem_zalloc(sizeof(*r));

	r->epoll = epoll;
	r->options = o;
	r->ev = *ev;
	r->ctx = ctx;
	for (struct writing *w = r->writings; w < r->writings + AT_ONCE_MAX; w++) {
		w->all = r;
		w->watch = (struct broker_watch){.fd = -1, .ready = on_child, .ctx = w};
	}
	return r;
}

void requests_identity_detach(struct requests_identity *r)
{
	for (struct writing *w = r->writings; w < r->writings + AT_ONCE_MAX; w++) {
		w->request = 0;
		w->done = false;
	}
}

void requests_identity_free(struct requests_identity **rp)
{
	struct requests_identity *r = take(*rp);

	if (!r)
		return;
	for (struct writing *w = r->writings; w < r->writings + AT_ONCE_MAX; w++)
		if (w->watch.fd >= 0)
			hang_up(w);
	free(r);
}
