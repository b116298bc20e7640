/* csi_volume.c
 *
 * publish -> the pod is added -> its source hears how far it is (soon, never inside) -> refused: so
 * is the call, and the pod goes; not yet: the call waits; it may start: the first certificate, or
 * not in time -> kept -> is anybody still waiting? -> mounted -> answered.  Again: its token, kept
 * again.  unpublish -> whoever waits for a mount is aborted -> unmounted -> the pod goes -> what
 * was kept goes -> answered.  The broker answers in order, so an unpublish overtakes nothing.  If
 * it fails the next publish is not answered before the broker has looked, and mounted what is gone.
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "csi_volume_internal.h"
#include "mesh/refusal.h"
#include "worker/link/volume.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

LOG_SCOPE("csi");

/* The kubelet gives a call up after 120 s (kubelet-csi.md 6).  The state of all pods and
 * certificates is 64 MiB (security-rules.md 6), and a pod's owner may write 256 KiB. */
enum { HOLD_MS = 100 * 1000, KEPT_MAX = 128 << 10 };

/* It tries again after 2 min 2 s at most (kubelet-csi.md 3e). */
enum { ABANDONED_MS = 20 * 60 * 1000 };

static void on_soon(void *ctx);

/* --- the table --- */

struct csi_volume *csi_volume_find(const struct csi_volumes *all, const struct uuid *pod)
{
	struct csi_volume *v;

	HASH_FIND(hh, all->volumes, pod, sizeof(*pod), v);
	return v;
}

struct pod *csi_volume_pod(const struct csi_volume *v)
{
	return pod_find(v->all->o.pods, &v->target.pod);
}

static const char *awaited_start(void *ctx)
{
	const struct pod *p = csi_volume_pod(ctx);

	return p && p->state.code ? p->state.msg : "the pod's services are still being started";
}

static const char *awaited_end(void *ctx)
{
	(void)ctx;
	return "the volume is still being unmounted";
}

static struct csi_volume *volume_new(
    struct csi_volumes *all, const struct csi_target *t, const char *id)
{
	struct csi_volume *v = mem_zalloc(sizeof(*v));

	v->all = all;
	v->target = *t;
	v->publishing = (struct csi_waiting){NULL, awaited_start, v};
	v->unpublishing = (struct csi_waiting){NULL, awaited_end, v};
	snprintf(v->volume_id, sizeof(v->volume_id), "%s", id);
	HASH_ADD(hh, all->volumes, target.pod, sizeof(v->target.pod), v);
	return v;
}

static void stop_work(struct csi_volume *v)
{
	loop_timer_stop(&v->soon);
	loop_timer_stop(&v->certificate);
	loop_timer_stop(&v->abandoned);
	back_off_stop(&v->keep_again);
	link_call_cancel(&v->keeping);
	link_call_cancel(&v->mounting);
}

static void volume_free(struct csi_volume *v)
{
	stop_work(v);
	/* The analyzer does not see that uthash frees its table with the last element only. */
	HASH_DEL(v->all->volumes, v); /* NOLINT(clang-analyzer-unix.Malloc) */
	free(v);
}

/* --- keeping --- */

static void on_kept(void *ctx, const struct err *e);

static void forget(struct csi_volume *v)
{
	uint8_t id[CSI_KEPT_ID_SIZE];

	csi_kept_id(&v->target.pod, id);
	link_state_del(v->all->o.link, LINK_STATE_POD, id);
}

/* Once for each reason. */
static void note_unkept(struct csi_volume *v, const struct err *e)
{
	struct err why = *e;

	err_wrap(&why, "the pod is not kept over a restart of agentd");
	if (strcmp(v->why_unkept.msg, why.msg) != 0)
		log_warn(csi_volume_pod(v)->spec.label, "%s", why.msg);
	v->why_unkept = why;
}

/* One at a time; a newer token waits for its turn.  False: it will not be kept. */
static bool keep(struct csi_volume *v)
{
	static const struct err too_large = {EFBIG, "its volumeAttributes are too large"};
	const struct pod *p = csi_volume_pod(v);
	struct csi_publish all = {.target = v->target, .spec = p->spec, .token = p->spec.token};
	uint8_t id[CSI_KEPT_ID_SIZE];
	struct link_kept k = {.kind = LINK_STATE_POD, .id = id};
	char *text;

	v->unkept = v->keeping != NULL;
	if (v->keeping)
		return true;
	back_off_stop(&v->keep_again);
	memcpy(all.volume_id, v->volume_id, sizeof(all.volume_id));
	csi_kept_id(&v->target.pod, id);
	k.data = text = csi_kept_write(&all, &k.size);
	if (k.size <= KEPT_MAX)
		link_state_put(v->all->o.link, &v->keeping, &k, on_kept, v);
	else
		note_unkept(v, &too_large);
	mem_wipe_free(text);
	return v->keeping != NULL;
}

/* --- an end --- */

/* Who is no pod to us may be one to the broker: a worker before us added it, and died before it was
 * kept. */
static void remove_pod(struct csi_volume *v)
{
	if (csi_volume_pod(v))
		pod_remove(v->all->o.pods, &v->all->source, &v->target.pod);
	else
		link_pod_remove(v->all->o.link, &v->target.pod);
	forget(v);
}

/* For good: the kubelet forgets a volume that was refused and will not unpublish it. */
static void fail(struct csi_volume *v, enum rpc_status status, const char *why)
{
	struct csi_waiting *w = &v->publishing;
	char text[ERR_MSG_SIZE];

	snprintf(text, sizeof(text), "%s", why); /* it may be the pod's */
	if (w->calls)
		csi_refused_add(&v->all->refused,
		    &(struct csi_publish){.target = v->target, .spec = csi_volume_pod(v)->spec},
		    text);
	remove_pod(v);
	csi_refuse_all(w, status, text);
	volume_free(v);
}

static void count_published(struct csi_volume *v)
{
	struct csi_volumes *all = v->all;
	int64_t ms = loop_uptime_ms(all->o.loop) - v->since_ms;

	metric_observe(all->metrics.seconds, "", (double)ms / 1000);
}

static void on_mounted(void *ctx, const struct err *e)
{
	struct csi_volume *v = ctx;

	if (e) {
		log_error(csi_volume_pod(v)->spec.label, "volume %s not mounted: %s",
		    v->target.volume, e->msg);
		fail(v, RPC_INTERNAL, e->msg);
		return;
	}
	v->state = PUBLISHED;
	count_published(v);
	log_info(csi_volume_pod(v)->spec.label, "volume %s published", v->target.volume);
	csi_answer_all(&v->publishing);
}

/* Given up meanwhile: the kubelet may have unpublished already, and would not do it again
 * (kubelet-csi.md 6). */
static void mount_if_wanted(struct csi_volume *v)
{
	if (!v->publishing.calls) {
		v->state = STARTING;
		return;
	}
	v->state = MOUNTING;
	v->mounted = true;
	link_publish(v->all->o.link, &v->mounting, &v->target.pod, v->target.volume, on_mounted, v);
}

static void keep_again(void *ctx)
{
	keep(ctx);
}

/* Without it a next worker waits for the kubelet's next publish: no reason not to start a pod. */
static void on_kept(void *ctx, const struct err *e)
{
	struct csi_volume *v = ctx;

	if (e) {
		note_unkept(v, e);
		back_off_start(v->all->o.loop, &v->keep_again, keep_again, v);
	} else {
		v->why_unkept = (struct err){.code = 0};
		back_off_succeeded(&v->keep_again);
	}
	if (v->unkept)
		keep(v);
	if (v->state == STORING)
		mount_if_wanted(v);
}

/* --- a beginning --- */

static void on_late(void *ctx)
{
	struct csi_volume *v = ctx;

	v->late = true;
	on_soon(v);
}

static bool waits_for_certificate(struct csi_volume *v, const struct pod *p)
{
	int64_t ms = v->all->o.publish_wait_ms;

	if (p->certified || v->late || ms == 0)
		return false;
	if (!v->certificate.armed)
		loop_timer_in(v->all->o.loop, &v->certificate, ms, on_late, v);
	return true;
}

static void on_soon(void *ctx)
{
	struct csi_volume *v = ctx;
	const struct pod *p = csi_volume_pod(v);

	if (v->state != STARTING || !p->told)
		return;
	if (!p->may_start) {
		if (p->state.code != ERR_UNAVAILABLE)
			fail(v, csi_status_of(&p->state), p->state.msg);
		return;
	}
	if (!v->publishing.calls || waits_for_certificate(v, p))
		return;
	loop_timer_stop(&v->certificate);
	v->state = STORING;
	if (!keep(v))
		mount_if_wanted(v);
}

/* The kubelet forgets what was refused for good, and what it gave up before we took the call. */
static void on_abandoned(void *ctx)
{
	struct csi_volume *v = ctx;

	if (v->state != STARTING || v->mounted || v->publishing.calls)
		return;
	log_warn(csi_volume_pod(v)->spec.label,
	    "volume %s: the kubelet asks for it no longer, and never had it", v->target.volume);
	fail(v, RPC_UNAVAILABLE, "");
}

/* The observer may be in the midst of anything. */
static void on_progress(void *ctx, struct pod *p)
{
	struct csi_volumes *all = ctx;
	struct csi_volume *v = csi_volume_find(all, &p->spec.uid);

	if (v)
		loop_timer_in(all->o.loop, &v->soon, 0, on_soon, v);
}

static int64_t now_s(const struct csi_volumes *all)
{
	return loop_now_ms(all->o.loop) / 1000;
}

/* `running`: an earlier worker published it. */
static int add_pod(
    struct csi_volumes *all, const struct csi_publish *p, bool running, struct err *e)
{
	struct pod_spec spec = p->spec;

	spec.token = p->token;
	spec.running = running;
	return pod_add(all->o.pods, &all->source, &spec, e);
}

static int check_identity(const struct pod *p, const struct pod_spec *spec, struct err *e)
{
	if (!strcmp(p->spec.ns, spec->ns) && !strcmp(p->spec.name, spec->name) &&
	    !strcmp(p->spec.sa, spec->sa))
		return 0;
	return err_set(e, ERR_DENIED, "this uid is the pod %s of service account %s", p->spec.label,
	    p->spec.sa);
}

/* --- publish --- */

static void take_token(struct csi_volume *v, struct pod *p, const struct csi_publish *q)
{
	bool same = p->spec.token && !strcmp(p->spec.token, q->token);

	if (!json_equal(p->spec.env, q->spec.env))
		log_warn_limited(&v->all->log, p->spec.label,
		    "its volumeAttributes are others than before: not taken");
	if (same)
		return;
	pod_set_token(p, q->token);
	if (v->state == PUBLISHED || v->state == UNKNOWN)
		keep(v);
}

static int republish(struct csi_volume *v, const struct csi_publish *q, struct err *e)
{
	struct pod *p = csi_volume_pod(v);

	if (csi_token_check(q, now_s(v->all), e))
		return -1;
	if (p) {
		take_token(v, p, q);
		return 0;
	}
	if (add_pod(v->all, q, v->mounted, e))
		return -1;
	memcpy(v->volume_id, q->volume_id, sizeof(v->volume_id));
	keep(v);
	return 0;
}

static void on_looked_at(void *ctx, const struct err *e)
{
	struct csi_volume *v = ctx;

	if (!e)
		return;
	v->problem = *e;
	log_warn_limited(&v->all->log, csi_volume_pod(v)->spec.label,
	    "volume %s is not mounted any more, and cannot be: %s", v->target.volume, e->msg);
}

/* Who unmounted it, and why, nobody tells: the broker looks, and mounts what is gone. */
static void look_at_mount(struct csi_volume *v)
{
	if (!v->mounting && csi_volume_pod(v))
		link_publish(v->all->o.link, &v->mounting, &v->target.pod, v->target.volume,
		    on_looked_at, v);
}

static void renew(struct csi_volume *v, const struct csi_publish *q)
{
	v->last_ms = loop_uptime_ms(v->all->o.loop);
	v->problem = (struct err){.code = 0};
	v->writable = !q->readonly;
	if (republish(v, q, &v->problem))
		log_warn_limited(&v->all->log, q->spec.name,
		    "volume %s stays as it is, with the token it had: %s", v->target.volume,
		    v->problem.msg);
}

/* A final error would make older kubelets take down a volume that is in use. */
static void publish_again(struct csi_volume *v, struct csi_call *c, const struct csi_publish *q)
{
	renew(v, q);
	look_at_mount(v);
	csi_answer(c, "", 0);
}

/* Still not known: nobody is told that it is there, and nothing that might be in use goes. */
static void on_found_out(void *ctx, const struct err *e)
{
	struct csi_volume *v = ctx;

	if (e) {
		on_looked_at(v, e);
		csi_refuse_all(&v->publishing, RPC_INTERNAL, e->msg);
		return;
	}
	v->state = PUBLISHED;
	csi_answer_all(&v->publishing);
}

static void find_out(struct csi_volume *v, struct csi_call *c, const struct csi_publish *q)
{
	renew(v, q);
	if (!csi_volume_pod(v)) {
		csi_refuse(c, csi_status_of(&v->problem), v->problem.msg);
		return;
	}
	csi_wait(&v->publishing, c, HOLD_MS);
	if (!v->mounting)
		link_publish(v->all->o.link, &v->mounting, &v->target.pod, v->target.volume,
		    on_found_out, v);
}

/* Our mount is read-only in any case, and the containers' own mounts of it need not be. */
static int check_first(const struct csi_volumes *all, const struct csi_publish *q, struct err *e)
{
	if (!q->readonly)
		return err_set(e, ERR_INVALID, "%s", REFUSAL_WRITABLE);
	return csi_token_check(q, now_s(all), e);
}

static void publish_first(struct csi_volumes *all, struct csi_call *c, const struct csi_publish *q)
{
	struct csi_volume *v = csi_volume_find(all, &q->target.pod);
	struct err e;
	int rc = check_first(all, q, &e);

	csi_refused_drop(&all->refused, &q->target.pod);
	if (!rc && v) {
		take_token(v, csi_volume_pod(v), q);
	} else if (!rc) {
		v = volume_new(all, &q->target, q->volume_id);
		v->since_ms = loop_uptime_ms(all->o.loop);
		rc = add_pod(all, q, false, &e);
		if (rc)
			volume_free(v);
	}
	if (rc) {
		csi_refused_add(&all->refused, q, e.msg);
		csi_refuse(c, csi_status_of(&e), e.msg);
		return;
	}
	v->last_ms = loop_uptime_ms(all->o.loop);
	csi_wait(&v->publishing, c, HOLD_MS);
	loop_timer_in(all->o.loop, &v->soon, 0, on_soon, v);
	loop_timer_in(all->o.loop, &v->abandoned, ABANDONED_MS, on_abandoned, v);
}

static int check_volume(struct csi_volume *v, const struct csi_publish *q, struct err *e)
{
	const struct pod *p = csi_volume_pod(v);

	if (strcmp(v->target.volume, q->target.volume) != 0 ||
	    (*v->volume_id && strcmp(v->volume_id, q->volume_id) != 0))
		return err_set(e, ERR_PRECONDITION,
		    "the pod has a volume of " CSI_DRIVER_NAME
		    " already, %s: mount that one wherever it is needed",
		    v->target.volume);
	return p ? check_identity(p, &q->spec, e) : 0;
}

void csi_volumes_publish(struct csi_volumes *all, struct csi_call *c, const struct csi_publish *q)
{
	struct csi_volume *v = csi_volume_find(all, &q->target.pod);
	struct err e;

	csi_volumes_heard(all);
	if (v && check_volume(v, q, &e)) {
		csi_refuse(c, csi_status_of(&e), e.msg);
	} else if (v && v->state == UNPUBLISHING) {
		csi_refuse(c, RPC_ABORTED, "the volume is being unpublished");
	} else if (v && v->state == PUBLISHED) {
		publish_again(v, c, q);
	} else if (v && v->state == UNKNOWN) {
		find_out(v, c, q);
	} else {
		publish_first(all, c, q);
	}
}

/* --- unpublish --- */

static void on_unmounted(void *ctx, const struct err *e)
{
	struct csi_volume *v = ctx;
	const struct pod *p = csi_volume_pod(v);

	if (e) {
		log_error(p ? p->spec.label : NULL, "volume %s not unmounted: %s", v->target.volume,
		    e->msg);
		csi_refuse_all(&v->unpublishing, RPC_INTERNAL, e->msg);
		v->problem = *e;
		v->state = v->mounted ? UNKNOWN : STARTING;
		if (!p && !v->mounted)
			volume_free(v);
		return;
	}
	remove_pod(v);
	csi_answer_all(&v->unpublishing);
	volume_free(v);
}

static void unmount(struct csi_volume *v)
{
	csi_refuse_all(&v->publishing, RPC_ABORTED, "the volume is being unpublished");
	stop_work(v);
	v->state = UNPUBLISHING;
	link_unpublish(
	    v->all->o.link, &v->mounting, &v->target.pod, v->target.volume, on_unmounted, v);
}

void csi_volumes_unpublish(
    struct csi_volumes *all, struct csi_call *c, const struct csi_unpublish *u)
{
	struct csi_volume *v = u->ours ? csi_volume_find(all, &u->target.pod) : NULL;

	/* Another volume than the pod's one was never mounted. */
	if (!u->ours || (v && strcmp(v->target.volume, u->target.volume) != 0)) {
		csi_answer(c, "", 0);
		return;
	}
	/* Nor is it to be taken for gone: OK would have the kubelet remove what is in use. */
	if (v && *v->volume_id && strcmp(v->volume_id, u->volume_id) != 0) {
		csi_refuse(
		    c, RPC_INVALID_ARGUMENT, "another volume_id is published at target_path");
		return;
	}
	csi_refused_drop(&all->refused, &u->target.pod);
	if (!v)
		v = volume_new(all, &u->target, u->volume_id);
	csi_wait(&v->unpublishing, c, HOLD_MS);
	if (v->state != UNPUBLISHING)
		unmount(v);
}

/* --- what was there --- */

int csi_volumes_adopt(struct csi_volumes *all, const struct csi_target *t,
    const struct csi_publish *kept, bool mounted, struct err *e)
{
	struct csi_volume *v;

	if (csi_volume_find(all, &t->pod))
		return err_set(e, EEXIST, "the pod has another volume of " CSI_DRIVER_NAME);
	v = volume_new(all, t, kept ? kept->volume_id : "");
	v->mounted = mounted;
	v->state = mounted ? PUBLISHED : STARTING;
	v->since_ms = loop_uptime_ms(all->o.loop);
	if (!kept || !add_pod(all, kept, true, e))
		return 0;
	if (!mounted)
		volume_free(v);
	return -1;
}

void csi_volumes_synced(struct csi_volumes *all)
{
	csi_volumes_heard(all);
	pod_registry_synced(all->o.pods, &all->source);
}

struct csi_volumes *csi_volumes_new(const struct csi_volumes_options *o)
{
	struct csi_volumes *all = mem_zalloc(sizeof(*all));

	all->o = *o;
	all->refused = (struct csi_refusals){.loop = o->loop, .link = o->link};
	all->source = (struct pod_source){.name = "csi", .progress = on_progress, .ctx = all};
	all->metrics.volumes = metric_gauge("agentd_volumes", "CSI volumes of this node's pods.");
	all->metrics.forgotten = metric_gauge("agentd_volumes_forgotten",
	    "Volumes that the kubelet has not asked for again for 5 minutes.");
	all->metrics.seconds = metric_histogram(
	    "agentd_publish_seconds", "Time from a volume's first publish to its mount.");
	metric_add(all->metrics.seconds, "", 0);
	all->metrics.alarm = metric_gauge(
	    "agentd_csi_alarm", "1: the kubelet does not do what it should, see the log.");
	pod_source_add(o->pods, &all->source);
	return all;
}

void csi_volumes_free(struct csi_volumes **volumes)
{
	struct csi_volumes *all = take(*volumes);
	struct csi_volume *v, *next;

	if (!all)
		return;
	loop_timer_stop(&all->silence);
	HASH_ITER (hh, all->volumes, v, next)
		volume_free(v);
	csi_refused_clear(&all->refused);
	free(all);
}
