/* sockets.c - lets Envoy in.
 *
 * directory -> the broker is asked for the sockets -> they listen; or they cannot be made: asked
 * for again, ever more rarely -> a connection is admitted, shows the pod's addresses, and is the
 * server's.  A pod whose connections held much when a worker was killed is accepted from later.
 */
#include "base/back_off.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "rows.h"
#include "server.h"
#include "worker/pods/pod.h"
#include "worker/sockets/uds.h"
#include <errno.h>
#include <string.h>

LOG_SCOPE("pod");

struct pod_sockets {
	struct pod_context *context;
	struct uds *uds; /* NULL until there is a directory */
	bool listening;
	struct back_off again;
	struct err why;  /* code 0: none */
	int64_t until_s; /* wall clock; 0: nobody waits */
	struct loop_timer waiting;
};

static const struct err of_waiting = {
    EAGAIN, "its connections wait: they held much when the last worker was killed"};

static void ask(void *ctx);

/* ERR_UNAVAILABLE: who starts the pod waits for the next try. */
static void refused(struct pod_sockets *s, const struct err *e)
{
	const struct pod_context *c = s->context;

	if (strcmp(s->why.msg, e->msg) != 0)
		log_error(c->pod->spec.label, "no sockets (tried again until they can be made): %s",
		    e->msg);
	s->why = *e;
	s->why.code = ERR_UNAVAILABLE;
	back_off_start(c->shared->loop, &s->again, ask, s);
}

static void on_listening(void *ctx, const struct err *e)
{
	struct pod_sockets *s = ctx;

	s->listening = !e;
	if (e)
		refused(s, e);
	else
		s->why = (struct err){.code = 0};
	pod_tell_progress(s->context);
}

static void on_wait_over(void *ctx)
{
	struct pod_sockets *s = ctx;

	s->until_s = 0;
	uds_accept(s->uds);
	pod_tell_progress(s->context);
}

static void wait_first(struct pod_sockets *s)
{
	struct loop *l = s->context->shared->loop;

	s->until_s = loop_now_ms(l) / 1000 + s->context->wait_s;
	loop_timer_in(l, &s->waiting, (int64_t)s->context->wait_s * 1000, on_wait_over, s);
}

static enum pod_progress progress(void *ctx, const struct err **why)
{
	const struct pod_sockets *s = ctx;

	if (s->why.code) {
		*why = &s->why;
		return POD_HELD;
	}
	if (s->uds && !s->listening)
		return POD_BEGINS;
	if (!s->until_s)
		return POD_FINE;
	*why = &of_waiting;
	return POD_DEGRADED;
}

static const char *admit(void *ctx, int fd, unsigned connections)
{
	const struct pod_sockets *s = ctx;

	return pod_server_admit(s->context->server, fd, connections);
}

static void on_addresses(void *ctx, const char *const *ips, size_t n)
{
	const struct pod_sockets *s = ctx;

	pod_tell_addresses(s->context, ips, n);
}

static void on_came(void *ctx, const struct err *why)
{
	const struct pod_sockets *s = ctx;

	pod_set_away(s->context->pod, why);
}

static void ask(void *ctx)
{
	static const struct uds_events events = {admit, on_listening, on_addresses, on_came};
	struct pod_sockets *s = ctx;
	const struct pod_context *c = s->context;

	uds_free(&s->uds);
	s->uds = uds_new(c->shared->loop,
	    &(struct uds_rig){c->shared->link, c->pod->spec.uid, c->pod->spec.label,
		pod_server_rpc(c->server), .wait = s->until_s > 0},
	    &events, s);
}

static void on_directory(void *ctx)
{
	struct pod_sockets *s = ctx;

	if (s->context->wait_s)
		wait_first(s);
	ask(s);
}

static void stop_accepting(void *ctx)
{
	struct pod_sockets *s = ctx;

	back_off_stop(&s->again);
	if (s->uds)
		uds_stop(s->uds);
}

static void stop(void *ctx)
{
	struct pod_sockets *s = ctx;

	back_off_stop(&s->again);
	loop_timer_stop(&s->waiting);
	uds_free(&s->uds);
}

static void dump(void *ctx, json_t *o)
{
	const struct pod_sockets *s = ctx;

	if (!s->uds)
		return;
	json_t *sockets = uds_dump(s->uds);

	json_object_set_new(sockets, "waits_until", json_integer(s->until_s));
	json_object_set_new(o, "sockets", sockets);
}

static unsigned count_waiting(void *ctx)
{
	const struct pod_sockets *s = ctx;

	return s->until_s > 0;
}

const struct pod_service pod_sockets_service = {
    .name = "sockets",
    .size = sizeof(struct pod_sockets),
    .stop = stop,
    .stop_accepting = stop_accepting,
    .progress = progress,
    .directory = on_directory,
    .dump = dump,
    .gauge = "agentd_pods_waiting",
    .gauge_help = "Pods whose connections wait: they held much when a worker was killed.",
    .count = count_waiting,
};
