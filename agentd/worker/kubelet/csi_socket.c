/* csi_socket.c
 *
 * a connection -> the broker is asked who made it -> the kubelet: the server has it; anybody else:
 * closed, counted, and said once for each new reason.
 */
#include "csi_socket.h"
#include "base/accept.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "rpc/server.h"
#include "worker/link/volume.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("csi");

/* The kubelet makes three connections for each volume, and hundreds of volumes at once. */
enum { CONNECTIONS_MAX = 1024 };

struct visitor {
	struct csi_socket *socket;
	int fd;
	struct link_call *asking;
	struct visitor *prev, *next;
};

struct csi_socket {
	struct link *link;
	struct rpc_server *to;
	struct accept *accept;
	struct visitor *visitors;
	unsigned waiting;
	uint64_t accepted, refused;
	char last_why[ERR_MSG_SIZE];
	struct metric *metric;
	struct log_budget log;
};

static const char *reason_of(const struct err *e)
{
	switch (e->code) {
	case EPERM:
		return "caller";
	case EACCES:
		return "not_root";
	case ESRCH:
		return "exited";
	default:
		return "broker";
	}
}

static void count(const struct csi_socket *s, const char *reason, unsigned n)
{
	char label[48];

	metric_labels(label, sizeof(label), "reason", reason, NULL);
	metric_add(s->metric, label, n);
}

static void refuse(struct csi_socket *s, int fd, const char *reason, const char *why)
{
	if (strcmp(s->last_why, why) != 0)
		log_warn_limited(&s->log, NULL, "connection to the CSI socket refused: %s", why);
	snprintf(s->last_why, sizeof(s->last_why), "%s", why);
	s->refused++;
	count(s, reason, 1);
	close(fd);
}

/* Its connection is the caller's. */
static int visitor_free(struct visitor *v)
{
	int fd = v->fd;

	link_call_cancel(&v->asking);
	DL_DELETE(v->socket->visitors, v);
	v->socket->waiting--;
	free(v);
	return fd;
}

static void on_known(void *ctx, const struct err *e)
{
	struct visitor *v = ctx;
	struct csi_socket *s = v->socket;
	int fd = visitor_free(v);

	if (e) {
		refuse(s, fd, reason_of(e), e->msg);
		return;
	}
	s->accepted++;
	rpc_server_adopt(s->to, fd);
}

static void on_accepted(void *ctx, int fd)
{
	struct csi_socket *s = ctx;
	struct visitor *v;

	if (s->waiting + rpc_server_connections(s->to) >= CONNECTIONS_MAX) {
		refuse(s, fd, "limit", "too many connections");
		return;
	}
	v = mem_zalloc(sizeof(*v));
	v->socket = s;
	v->fd = fd;
	s->waiting++;
	DL_APPEND(s->visitors, v);
	link_caller(s->link, &v->asking, fd, on_known, v);
}

struct csi_socket *csi_socket_new(
    struct loop *l, struct link *p, int listen_fd, struct rpc_server *to)
{
	static const char *const reasons[] = {"caller", "not_root", "exited", "broker", "limit"};
	struct csi_socket *s = mem_zalloc(sizeof(*s));

	s->link = p;
	s->to = to;
	s->metric = metric_counter("agentd_csi_connections_refused_total",
	    "Connections to the CSI socket that are not the kubelet's.");
	for (unsigned i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		count(s, reasons[i], 0);
	s->accept = accept_new(l, listen_fd, on_accepted, s);
	return s;
}

void csi_socket_stop(struct csi_socket *s)
{
	accept_free(&s->accept);
}

void csi_socket_free(struct csi_socket **socket)
{
	struct csi_socket *s = take(*socket);
	struct visitor *v, *next;

	if (!s)
		return;
	csi_socket_stop(s);
	DL_FOREACH_SAFE (s->visitors, v, next)
		close(visitor_free(v));
	free(s);
}

json_t *csi_socket_dump(const struct csi_socket *s)
{
	return json_pack("{s:I, s:I, s:s}", "accepted", (json_int_t)s->accepted, "refused",
	    (json_int_t)s->refused, "last_refusal", s->last_why);
}
