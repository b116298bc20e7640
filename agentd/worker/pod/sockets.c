/* sockets.c - lets Envoy in; the last of the rows, so it says when the pod is ready.
 *
 * directory -> the broker is asked for the sockets -> they listen -> the pod may start, as far as
 * its redirection allows it -> a connection is admitted, shows the pod's addresses, and is the
 * server's.
 */
#include "redirect.h"
#include "rows.h"
#include "server.h"
#include "worker/pods/pod.h"
#include "worker/sockets/uds.h"

struct pod_sockets {
	struct pod_context *context;
	struct uds *uds; /* NULL until there is a directory */
	bool listening;
};

/* Whose traffic is not redirected (yet) may start, unless it is strict. */
static void tell_state(const struct pod_context *c)
{
	const struct err *why_not = pod_redirect_state(c->redirect);

	if (why_not && !pod_redirect_holds(c->redirect))
		pod_set_degraded(c->pod, why_not);
	else
		pod_set_ready(c->pod, why_not);
}

static void on_listening(void *ctx, const struct err *e)
{
	struct pod_sockets *s = ctx;

	s->listening = !e;
	if (e)
		pod_set_ready(s->context->pod, e);
	else
		tell_state(s->context);
}

static void on_redirected(void *ctx)
{
	const struct pod_sockets *s = ctx;

	if (s->listening)
		tell_state(s->context);
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

static void on_directory(void *ctx)
{
	static const struct uds_events events = {admit, on_listening, on_addresses};
	struct pod_sockets *s = ctx;
	const struct pod_context *c = s->context;

	s->uds = uds_new(c->shared->loop,
	    &(struct uds_rig){
		c->shared->link, c->pod->uid, c->pod->label, pod_server_rpc(c->server)},
	    &events, s);
}

static void stop_accepting(void *ctx)
{
	const struct pod_sockets *s = ctx;

	if (s->uds)
		uds_stop(s->uds);
}

static void stop(void *ctx)
{
	struct pod_sockets *s = ctx;

	uds_free(&s->uds);
}

static void dump(void *ctx, json_t *o)
{
	const struct pod_sockets *s = ctx;

	if (s->uds)
		json_object_set_new(o, "sockets", uds_dump(s->uds));
}

const struct pod_service pod_sockets_service = {
    .name = "sockets",
    .size = sizeof(struct pod_sockets),
    .stop = stop,
    .stop_accepting = stop_accepting,
    .directory = on_directory,
    .redirected = on_redirected,
    .dump = dump,
};
