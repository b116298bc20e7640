/* requests.c - the worker's requests: a function for each row of border/ops.h.
 *
 * a packet has the shape of its row -> the row's pod was added -> its function fills the reply, or
 * says why not.
 */
#include "requests.h"
#include "broker/base/fdstore.h"
#include "broker/base/state.h"
#include "broker/kubelet/pod_source.h"
#include "broker/kubelet/volume.h"
#include "broker/pods/bound.h"
#include "broker/pods/kubelet_caller.h"
#include "broker/pods/pods.h"
#include "broker/redirect/live.h"
#include "broker/redirect/traffic.h"
#include "broker_internal.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "follow.h"
#include "node.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

LOG_SCOPE("broker");

/* One request while it is answered. */
struct request {
	const struct link_request *r;
	struct broker_pod *pod;
	int fd; /* the worker's */
	struct link_packet *reply;
	int reply_fd; /* the broker's */
	int given_fd; /* the same, but ours no longer */
	struct err *why;
};

static int do_pod_add(struct broker *b, struct request *q)
{
	const struct uuid *uid = &q->r->uid;

	if (pods_add(b->pods, uid, redirect_traffic_gone(b->traffic, uid), q->why))
		return -1;
	q->reply->arg = pods_wait_s(pods_known(b->pods, uid));
	if (!pod_is_late(pods_known(b->pods, uid)))
		return 0;
	return err_set(q->why, ESTALE,
	    "its volume was made again while its containers ran, and its Envoy still has the "
	    "previous one: delete the pod (kubectl delete pod)");
}

/* Also of a pod that only an earlier worker added: it may have died before it kept it. */
static int do_pod_remove(struct broker *b, struct request *q)
{
	const char *bound = pod_bound_by(b->options, &q->r->uid);

	if (bound)
		return err_set(q->why, EBUSY, "%s", bound);
	follows_remove_pod(b->follows, &q->r->uid);
	requests_kept_remove_pod(b->certificates, &q->r->uid);
	redirect_traffic_remove(b->traffic, &q->r->uid);
	return pods_remove(b->pods, &q->r->uid, q->why);
}

static int do_listen(struct broker *b, struct request *q)
{
	q->reply_fd = pod_sockets_is_kind(q->r->kind)
			  ? redirect_traffic_listen(b->traffic, q->pod, q->r->kind, q->why)
			  : pod_listen(q->pod, q->r->kind, q->why);
	return q->reply_fd < 0 ? -1 : 0;
}

static int do_peer_of(struct broker *b, struct request *q)
{
	const struct pods_connection c = {q->fd, q->r->arg == LINK_ATTEST_REQUIRE,
	    pod_source_is_manifest(b->options, &q->r->uid)};
	const enum pods_peer peer = pods_peer(b->pods, q->pod, c, q->reply, q->why);

	if (peer == PODS_PEER_IS) {
		pod_came(q->pod);
		redirect_live_learned(q->pod);
	}
	if (peer == PODS_PEER_OF_HOST)
		redirect_live_of_host(q->pod);
	return peer == PODS_PEER_IS ? 0 : -1;
}

static int do_write(struct broker *b, struct request *q)
{
	(void)b;
	return pod_write(q->pod, q->r->kind, q->fd, q->why);
}

static int do_follow(struct broker *b, struct request *q)
{
	const bool kept = q->r->kind == LINK_FOLLOW_KEPT;

	if ((kept || follows_is_of_pod(q->r->kind)) && !pods_find(b->pods, &q->r->uid, q->why))
		return -1;
	if (kept)
		return requests_kept_add(b->certificates, q->r, q->why);
	return follows_add(b->follows, q->r, q->why);
}

/* POD_REMOVE may have ended it before: not an error. */
static int do_unfollow(struct broker *b, struct request *q)
{
	follows_remove(b->follows, q->r->arg);
	requests_kept_remove(b->certificates, q->r->arg);
	return 0;
}

static int do_state_put(struct broker *b, struct request *q)
{
	return broker_state_put(b->states, q->r, q->fd, q->why);
}

static int do_state_del(struct broker *b, struct request *q)
{
	if (b->holds_back)
		return err_set(q->why, EBUSY, "the agentd before this one may take it back");
	return broker_state_del(b->states, q->r, q->why);
}

/* Its reply comes after the entries. */
static int do_state_list(struct broker *b, struct request *q)
{
	return broker_state_list(b->states, q->r, q->why);
}

static int do_redirect_set(struct broker *b, struct request *q)
{
	if (!redirect_traffic_set(b->traffic, q->pod, q->r, q->fd, q->why))
		return 0;
	q->reply->arg = redirect_traffic_is_closed(b->traffic, q->pod);
	return -1;
}

static int do_redirect_del(struct broker *b, struct request *q)
{
	return redirect_traffic_end(b->traffic, &q->r->uid, q->why);
}

static int do_redirect_shut(struct broker *b, struct request *q)
{
	return redirect_traffic_shut(b->traffic, &q->r->uid, q->why);
}

static int do_redirect_counters(struct broker *b, struct request *q)
{
	q->reply_fd = redirect_traffic_counters(b->traffic, q->why);
	return q->reply_fd < 0 ? -1 : 0;
}

static int do_redirect_explain(struct broker *b, struct request *q)
{
	return redirect_traffic_explain(b->traffic, q->r, q->fd, q->reply, q->why);
}

static int do_redirect_trace(struct broker *b, struct request *q)
{
	q->given_fd = redirect_traffic_trace(b->traffic, q->r, q->why);
	return q->given_fd < 0 ? -1 : 0;
}

static int do_redirect_names(struct broker *b, struct request *q)
{
	return redirect_traffic_names(b->traffic, q->fd, q->why);
}

static int do_caller(struct broker *b, struct request *q)
{
	(void)b;
	return kubelet_caller_check(q->fd, q->why);
}

static int do_publish(struct broker *b, struct request *q)
{
	return kubelet_volume_publish(b->options, q->r, q->why);
}

static int do_unpublish(struct broker *b, struct request *q)
{
	return kubelet_volume_unpublish(b->options, q->r, q->why);
}

/* Its reply comes after the volumes. */
static int do_volumes(struct broker *b, struct request *q)
{
	return volume_list_list(&b->volumes, q->r, q->why);
}

static int do_csi_registered(struct broker *b, struct request *q)
{
	return requests_node_registered(b->node, q->r->arg, q->why);
}

/* Health is asked of machines alone, and never of Envoy's admin. */
static int check_loopback(const struct broker *b, struct request *q)
{
	const unsigned port = q->r->arg >> LINK_DIAL_PORT_SHIFT;

	if (!pod_source_is_manifest(b->options, &q->r->uid))
		return err_set(q->why, EPERM, "the pod has no manifest");
	if (pod_source_is_admin(b->options, &q->r->uid, port))
		return err_set(
		    q->why, EACCES, "port %u is the admin port of the pod's Envoy", port);
	return 0;
}

static int do_dial(struct broker *b, struct request *q)
{
	if (q->r->kind == LINK_DIAL_LOOPBACK && check_loopback(b, q))
		return -1;
	q->given_fd = pod_dial(q->pod, q->r, q->why);
	return q->given_fd < 0 ? -1 : 0;
}

/* What nobody claimed goes now: the worker has added all there is. */
void requests_sweep(struct broker *b)
{
	size_t n;

	pods_sweep(b->pods);
	redirect_traffic_sweep(b->traffic);
	if ((n = broker_fdstore_sweep(b->kept)))
		log_info(NULL, "%zu kept descriptors belong to no pod: closed", n);
}

static int do_ready(struct broker *b, struct request *q)
{
	(void)q;
	if (b->ready) {
		broker_broke(b, "it was ready twice");
		return 0;
	}
	b->ready = true;
	if (!b->holds_back)
		requests_sweep(b);
	if (b->ev.ready)
		b->ev.ready(b->ctx);
	return 0;
}

/* Lines of printable characters, whatever the worker wrote. */
static int read_lines(int fd, char out[LINK_SERVED_SIZE], struct err *e)
{
	ssize_t n = pread(fd, out, LINK_SERVED_SIZE - 1, 0);

	if (n < 0)
		return err_sys(e, "read what is lost");
	out[n] = '\0';
	for (char *c = out; *c; c++)
		if (*c != '\n' && (*c < ' ' || *c > '~'))
			*c = '?';
	return 0;
}

static int do_served(struct broker *b, struct request *q)
{
	char lines[LINK_SERVED_SIZE];

	if (!b->ready || b->served) {
		broker_broke(b, "it says out of turn what is served");
		return 0;
	}
	if (read_lines(q->fd, lines, q->why))
		return -1;
	b->served = !q->r->arg;
	if (b->ev.served)
		b->ev.served(b->ctx, q->r->arg, lines);
	return 0;
}

/* That it came is all it says. */
static int do_pong(struct broker *b, struct request *q)
{
	(void)b;
	(void)q;
	return 0;
}

/* Errors are said at any level: they are what a worker that was taken over cannot hide. */
static int do_log(struct broker *b, struct request *q)
{
	(void)b;
	if (q->r->kind >= LINK_LOG_END || q->r->arg > LOG_DEBUG)
		return err_set(
		    q->why, EINVAL, "no log has format %u and level %u", q->r->kind, q->r->arg);
	log_init(q->r->kind == LINK_LOG_JSON);
	log_set_level((enum log_level)q->r->arg);
	log_release();
	return 0;
}

static int do_identity_put(struct broker *b, struct request *q)
{
	return requests_identity_put(b->identities, q->r, q->fd, q->why);
}

static int do_holds(struct broker *b, struct request *q)
{
	(void)b;
	pods_hold(q->pod, q->r->arg);
	return 0;
}

static int (*const acts[LINK_OP_END])(struct broker *b, struct request *q) = {
    [LINK_POD_ADD] = do_pod_add,
    [LINK_POD_REMOVE] = do_pod_remove,
    [LINK_LISTEN] = do_listen,
    [LINK_PEER_OF] = do_peer_of,
    [LINK_WRITE] = do_write,
    [LINK_FOLLOW] = do_follow,
    [LINK_UNFOLLOW] = do_unfollow,
    [LINK_READY] = do_ready,
    [LINK_SERVED] = do_served,
    [LINK_PONG] = do_pong,
    [LINK_STATE_PUT] = do_state_put,
    [LINK_STATE_DEL] = do_state_del,
    [LINK_STATE_LIST] = do_state_list,
    [LINK_REDIRECT_SET] = do_redirect_set,
    [LINK_REDIRECT_DEL] = do_redirect_del,
    [LINK_REDIRECT_COUNTERS] = do_redirect_counters,
    [LINK_REDIRECT_EXPLAIN] = do_redirect_explain,
    [LINK_REDIRECT_TRACE] = do_redirect_trace,
    [LINK_CALLER] = do_caller,
    [LINK_PUBLISH] = do_publish,
    [LINK_UNPUBLISH] = do_unpublish,
    [LINK_VOLUMES] = do_volumes,
    [LINK_DIAL] = do_dial,
    [LINK_CSI_REGISTERED] = do_csi_registered,
    [LINK_LOG] = do_log,
    [LINK_HOLDS] = do_holds,
    [LINK_REDIRECT_NAMES] = do_redirect_names,
    [LINK_REDIRECT_SHUT] = do_redirect_shut,
    [LINK_IDENTITY_PUT] = do_identity_put,
};

int requests_check(const struct broker_request *in, struct err *e)
{
	const struct link_op_row *row = ops_row(in->r.op);

	if (!row || !acts[in->r.op])
		return err_set(e, EPROTO, "there is no operation %u", in->r.op);
	if (in->nfds != row->nfds && !(in->lost_fd && row->nfds))
		return err_set(e, EPROTO, "operation %u with %d fds", in->r.op, in->nfds);
	if (in->r.id == 0)
		return err_set(e, EPROTO, "a request without an id");
	return 0;
}

/* Nothing else is looked at: the server of a file may never answer. */
static bool is_harmless(int fd)
{
	int domain = -1, type = -1;
	socklen_t len = sizeof(int);

	if (fcntl(fd, F_GET_SEALS) >= 0)
		return true;
	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) && domain == AF_UNIX &&
	       !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM;
}

static int act(struct broker *b, const struct broker_request *in, struct request *q)
{
	if (in->lost_fd)
		return err_set(q->why, EMFILE, "the broker is out of file descriptors");
	if (in->fd >= 0 && !is_harmless(in->fd))
		return err_set(
		    q->why, EINVAL, "the descriptor is no memfd, nor a stream of a unix socket");
	if (ops_row(in->r.op)->whose == LINK_ADDED_POD &&
	    !(q->pod = pods_find(b->pods, &in->r.uid, q->why)))
		return -1;
	return acts[in->r.op](b, q);
}

/* With a yes; else its end answers, or nothing does. */
static bool is_answered_here(unsigned op)
{
	const enum link_answer how = ops_row(op)->answer;

	return how != LINK_DEFERRED && how != LINK_LISTED && how != LINK_SILENT;
}

void requests_answer(struct broker *b, const struct broker_request *in)
{
	struct link_packet reply = {.id = in->r.id, .what = LINK_REPLY};
	struct err why = {.code = 0};
	struct request q = {.r = &in->r,
	    .fd = in->fd,
	    .reply = &reply,
	    .reply_fd = -1,
	    .given_fd = -1,
	    .why = &why};

	if (act(b, in, &q)) {
		reply = (struct link_packet){.id = in->r.id,
		    .what = LINK_REPLY,
		    .arg = reply.arg,
		    .code = why.code ? why.code : EIO};
		snprintf(reply.why, sizeof(reply.why), "%s", why.msg);
		q.reply_fd = -1;
	} else if (!is_answered_here(in->r.op)) {
		return;
	}
	broker_reply(b, &reply, q.given_fd >= 0 ? q.given_fd : q.reply_fd);
	mem_closep(&q.given_fd);
}
