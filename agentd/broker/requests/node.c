/* node.c - made at start, where a failure is agentd's -> looked at before each worker: those that
 * died are made again -> HELLO, then one packet for each.
 *
 * Pods are served without metrics, but not without the others: so only the start fails for that.
 */
#include "node.h"
#include "broker/base/listener.h"
#include "broker/kubelet/csi.h"
#include "broker/netns/metrics_listener.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

LOG_SCOPE("broker");

struct requests_node {
	struct requests_node_rig rig;
	struct broker_listener_spec admin_spec;
	struct broker_listener admin;
	struct kubelet_csi *csi; /* NULL: without --kubelet-root */
	struct metrics_listener_spec metrics_spec;
	struct metrics_listener metrics;
};

/* The worker cannot be told of another one than it was greeted with. */
static void on_admin_renewed(void *ctx, int fd)
{
	struct requests_node *n = ctx;

	(void)fd;
	n->rig.broke(n->rig.ctx, "it shut admin.sock down");
}

static void on_metrics_shut(void *ctx)
{
	struct requests_node *n = ctx;

	n->rig.broke(n->rig.ctx, "it shut the metrics port down");
}

static void describe(struct requests_node *n)
{
	const struct requests_node_rig *rig = &n->rig;

	n->admin_spec = (struct broker_listener_spec){.epoll = rig->epoll,
	    .kept = rig->kept,
	    .mode = S_IRUSR | S_IWUSR,
	    .name = "admin",
	    .renewed = on_admin_renewed,
	    .ctx = n};
	snprintf(
	    n->admin_spec.path, sizeof(n->admin_spec.path), "%s/admin.sock", rig->options->run);
	n->metrics_spec = (struct metrics_listener_spec){.epoll = rig->epoll,
	    .kept = rig->kept,
	    .home = rig->home,
	    .address = rig->options->metrics,
	    .shut = on_metrics_shut,
	    .ctx = n};
}

struct requests_node *requests_node_new(const struct requests_node_rig *rig, struct err *e)
{
	struct requests_node *n = mem_zalloc(sizeof(*n));

	n->rig = *rig;
	describe(n);
	if (broker_listener_open(&n->admin, &n->admin_spec, e) < 0 ||
	    (rig->options->kubelet_root &&
		!(n->csi = kubelet_csi_new(
		      &(struct kubelet_csi_rig){rig->epoll, rig->options, rig->kept, rig->inherited,
			  rig->renewed, rig->changed, rig->ctx},
		      e))) ||
	    (rig->options->metrics && metrics_listener_open(&n->metrics, &n->metrics_spec, e) < 0))
		requests_node_free(&n);
	return n;
}

void requests_node_free(struct requests_node **node)
{
	struct requests_node *n = take(*node);

	if (!n)
		return;
	metrics_listener_release(&n->metrics);
	kubelet_csi_free(&n->csi);
	broker_listener_release(&n->admin);
	free(n);
}

static int open_metrics(struct requests_node *n)
{
	struct err e;
	int fd;

	if (!n->rig.options->metrics)
		return -1;
	if ((fd = metrics_listener_open(&n->metrics, &n->metrics_spec, &e)) < 0)
		log_error(NULL, "metrics cannot be scraped: %s", e.msg);
	return fd;
}

int requests_node_greet(struct requests_node *n, int fd, struct err *e)
{
	int listeners[LINK_NODE_LISTENER_END] = {[LINK_NODE_CSI] = -1};
	struct link_packet p = {.what = LINK_HELLO, .arg = LINK_VERSION};

	listeners[LINK_NODE_ADMIN] = broker_listener_open(&n->admin, &n->admin_spec, e);
	if (listeners[LINK_NODE_ADMIN] < 0 ||
	    (n->csi && (listeners[LINK_NODE_CSI] = kubelet_csi_listener(n->csi, e)) < 0))
		return -1;
	listeners[LINK_NODE_METRICS] = open_metrics(n);
	for (int i = 0; i < LINK_NODE_LISTENER_END; i++)
		p.kind += listeners[i] >= 0;
	if (fdpass_send(fd, &p, sizeof(p), -1))
		return err_sys(e, "greet the worker");
	for (int i = 0; i < LINK_NODE_LISTENER_END; i++) {
		p = (struct link_packet){.what = LINK_NODE_LISTENER, .kind = (uint16_t)i};
		if (listeners[i] >= 0 && fdpass_send(fd, &p, sizeof(p), listeners[i]))
			return err_sys(e, "greet the worker");
	}
	return 0;
}

int requests_node_registered(struct requests_node *n, bool yes, struct err *e)
{
	if (!n->csi)
		return err_set(e, EOPNOTSUPP, "this agentd serves no kubelet");
	kubelet_csi_registered(n->csi, yes);
	return 0;
}

bool requests_node_pending(const struct requests_node *n)
{
	return kubelet_csi_pending(n->csi);
}

void requests_node_next(struct requests_node *n, struct link_packet *p)
{
	kubelet_csi_next(n->csi, p);
}
