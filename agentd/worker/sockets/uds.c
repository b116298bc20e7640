/* uds.c - see uds.h.
 *
 * two sockets asked for -> both there: `listening` -> a connection: who made it (attest.h)?  Has
 * the broker proven this network namespace with this cgroup before, and are the addresses known? ->
 * yes: served.  Otherwise the broker is asked whose it is (it alone may look inside, and it alone
 * knows the host's namespace and other pods') -> it answers with cookie, cgroup and addresses: they
 * are told, and the connection is served -> or it refuses: closed -> the process that made it
 * exits: closed.
 *
 * The cookie of an accepted unix socket is the connecting socket's (decisions.md 4).  The broker is
 * asked each time about a connection that could not be proven, or of which the kernel does not show
 * enough (cookies before 5.14, cgroups before 6.13).  The broker decides whether a pod's namespace
 * may be replaced (a rebooted node), so its last word counts.
 *
 * An Envoy may start before its pod has an address, and an address may change under a live pod:
 * each configuration stream is a connection of its own and rare, so each asks the broker; for
 * secrets that is done only until the first address was told.
 *
 * Strangers, which reach the socket through the host's file system, have half of the waiting places
 * and none of the pod's allowance; a namespace that the broker refused is not asked about again for
 * a second.
 */
#include "uds.h"
#include "attest.h"
#include "base/accept.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "rpc/server.h"
#include "rpc/sink.h"
#include "worker/link/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

LOG_SCOPE("uds");

/* Connections that wait for the broker; Envoy makes two or three. */
enum { WAITING_MAX = 16, STRANGERS_MAX = WAITING_MAX / 2 };

/* Namespaces that were refused, and for how long that holds: a pod's new sandbox may be early. */
enum { REFUSED_MAX = 8, REFUSED_MS = 1000 };

/* Refusals that are shown, newest last. */
enum { SHOWN_MAX = 4 };

enum reason { NETNS, CGROUP, EXITED, UNPROVEN, LIMIT, BROKER, REASONS };
static const char *const reasons[REASONS] = {
    [NETNS] = "netns",       /* another one than the pod's */
    [CGROUP] = "cgroup",     /* outside of the pod's */
    [EXITED] = "exited",     /* before it could be looked at */
    [UNPROVEN] = "unproven", /* nobody can look, and `attest: require` */
    [LIMIT] = "limit",
    [BROKER] = "broker", /* it could not look */
};

struct refusal {
	int64_t at_s;
	enum reason reason;
	char why[ERR_MSG_SIZE];
};

/* A connection that the broker is asked about. */
struct visitor {
	struct uds *uds;
	int fd;
	struct attest_peer peer;
	bool ours;                /* as far as we see; admitted already */
	struct link_call *asking; /* NULL: nobody is here */
};

struct socket {
	struct uds *uds;
	struct link_call *asking;
	int fd; /* listening, and nobody accepts yet; or -1 */
	struct accept *accept;
};

struct refused_netns {
	uint64_t cookie; /* 0: none */
	int64_t until_ms;
	char why[ERR_MSG_SIZE];
};

struct uds {
	struct loop *loop;
	struct link *link;
	struct uuid pod;
	char *subject;
	struct rpc_server *to;
	struct uds_events ev;
	void *ctx;
	struct socket sockets[LINK_LISTENER_END];
	struct visitor visitors[WAITING_MAX];
	struct attest *attest;
	struct refused_netns *refused_netns; /* REFUSED_MAX of them, a ring; NULL: none yet */
	unsigned nrefused_netns;
	uint64_t netns_cookie; /* 0: not known */
	bool wait;
	char
	    unproven[LINK_WHY_SIZE]; /* why the last one that was asked about could not be proven */
	bool addressed;              /* the last look at it found an address */
	uint64_t accepted, refused[REASONS];
	struct refusal *shown; /* SHOWN_MAX of them, a ring; NULL: none yet */
	unsigned nshown;
	struct metric *metric;
	struct log_budget log;
};

static void count_refused(const struct uds *u, enum reason reason, unsigned n)
{
	char label[32];

	metric_labels(label, sizeof(label), "reason", reasons[reason], NULL);
	metric_add(u->metric, label, n);
}

/* One line for each new reason, not for each connection: a pod can make as many as it likes. */
static void note_refusal(struct uds *u, enum reason reason, const char *why)
{
	if (!u->shown)
		u->shown = mem_zalloc(SHOWN_MAX * sizeof(*u->shown));
	const struct refusal *last = &u->shown[(u->nshown + SHOWN_MAX - 1) % SHOWN_MAX];
	struct refusal *r = &u->shown[u->nshown++ % SHOWN_MAX];

	if (strcmp(last->why, why) != 0)
		log_warn_limited(&u->log, u->subject, "connection refused: %s", why);
	*r = (struct refusal){.at_s = loop_now_ms(u->loop) / 1000, .reason = reason};
	snprintf(r->why, sizeof(r->why), "%s", why);
	u->refused[reason]++;
	count_refused(u, reason, 1);
}

static void refuse(
    struct uds *u, int fd, struct attest_peer *peer, enum reason reason, const char *why)
{
	note_refusal(u, reason, why);
	attest_peer_clear(peer);
	sink_close(fd);
}

static void serve(struct uds *u, int fd, struct attest_peer *peer)
{
	u->accepted++;
	attest_watch(u->attest, peer, rpc_server_adopt(u->to, fd));
	attest_peer_clear(peer);
	u->ev.came(u->ctx, NULL);
}

static unsigned connections_of(const struct uds *u)
{
	unsigned n = rpc_server_connections(u->to);

	for (size_t i = 0; i < WAITING_MAX; i++)
		n += u->visitors[i].asking && u->visitors[i].ours;
	return n;
}

static bool admit(struct uds *u, int fd, struct attest_peer *peer)
{
	const char *why_not = u->ev.admit(u->ctx, fd, connections_of(u));

	if (why_not)
		refuse(u, fd, peer, LIMIT, why_not);
	return !why_not;
}

/* --- namespaces that are not the pod's --- */

static void remember_netns(struct uds *u, uint64_t cookie, const char *why)
{
	if (!u->refused_netns)
		u->refused_netns = mem_zalloc(REFUSED_MAX * sizeof(*u->refused_netns));
	struct refused_netns *r = &u->refused_netns[u->nrefused_netns++ % REFUSED_MAX];

	*r = (struct refused_netns){cookie, loop_uptime_ms(u->loop) + REFUSED_MS, ""};
	snprintf(r->why, sizeof(r->why), "%s", why);
}

/* NULL: it was not refused lately. */
static const char *why_refused(const struct uds *u, uint64_t cookie)
{
	int64_t now = loop_uptime_ms(u->loop);

	for (unsigned i = 0; u->refused_netns && i < REFUSED_MAX; i++) {
		const struct refused_netns *r = &u->refused_netns[i];

		if (cookie && r->cookie == cookie && r->until_ms > now)
			return r->why;
	}
	return NULL;
}

/* --- the broker --- */

static enum reason reason_of(const struct err *e)
{
	switch (e->code) {
	case EPERM:
	case ENONET:
		return NETNS;
	case EACCES:
		return CGROUP;
	case ESRCH:
		return EXITED;
	case ENODATA:
		return UNPROVEN;
	default:
		return BROKER;
	}
}

static void tell_addresses(struct uds *u, const struct link_peer *n)
{
	char text[LINK_ADDRESSES_MAX][INET6_ADDRSTRLEN];
	const char *ips[LINK_ADDRESSES_MAX];
	size_t count = 0;

	for (size_t i = 0; i < n->naddresses && count < LINK_ADDRESSES_MAX; i++) {
		const struct link_address *a = &n->addresses[i];

		if (!inet_ntop(a->family, a->bytes, text[count], sizeof(text[count])))
			continue;
		ips[count] = text[count];
		count++;
	}
	u->addressed = count > 0;
	if (u->addressed)
		u->ev.addresses(u->ctx, ips, count);
}

/* Admitted all the same (`attest: prefer`), and flagged. */
static void flag(struct uds *u, const char *why)
{
	if (*why && strcmp(u->unproven, why) != 0)
		log_warn_limited(&u->log, u->subject, "connections are not proven: %s", why);
	snprintf(u->unproven, sizeof(u->unproven), "%s", why);
}

static const char exited[] = "the peer has exited";

static void on_peer_known(void *ctx, const struct err *e, const struct link_peer *n)
{
	struct visitor *v = ctx;
	struct uds *u = v->uds;

	if (e) {
		if (reason_of(e) == NETNS)
			remember_netns(u, v->peer.cookie, e->msg);
		refuse(u, v->fd, &v->peer, reason_of(e), e->msg);
		if (e->code == ENONET && !u->netns_cookie)
			u->ev.came(u->ctx, e);
		return;
	}
	if (!v->ours && !admit(u, v->fd, &v->peer))
		return;
	if (!attest_is_alive(&v->peer)) {
		refuse(u, v->fd, &v->peer, EXITED, exited);
		return;
	}
	if (u->netns_cookie != n->cookie)
		log_info(u->subject, "network namespace %" PRIu64, n->cookie);
	u->netns_cookie = n->cookie;
	attest_learn(u->attest, n->cookie, n->cgroup_id);
	flag(u, n->unknown);
	tell_addresses(u, n);
	serve(u, v->fd, &v->peer);
}

static void ask_broker(struct uds *u, int fd, struct attest_peer *peer, bool ours)
{
	for (size_t i = ours ? 0 : WAITING_MAX - STRANGERS_MAX; i < WAITING_MAX; i++) {
		struct visitor *v = &u->visitors[i];

		if (v->asking)
			continue;
		v->uds = u;
		v->fd = fd;
		v->peer = *peer;
		v->ours = ours;
		link_peer_of(u->link, &v->asking, &u->pod, fd, on_peer_known, v);
		return;
	}
	refuse(u, fd, peer, LIMIT, "too many connections wait for their check");
}

/* Proven before, with nothing to be learned from another look at it. */
static bool needs_no_look(const struct socket *s, const struct attest_peer *peer)
{
	const struct uds *u = s->uds;

	return u->addressed && s != &u->sockets[LINK_LISTEN_XDS] && attest_knows(u->attest, peer);
}

static void on_accepted(void *ctx, int fd)
{
	struct socket *s = ctx;
	struct uds *u = s->uds;
	struct attest_peer peer = {.pidfd = -1};
	const char *why_not;

	if (!attest_look(&peer, fd)) {
		refuse(u, fd, &peer, EXITED, exited);
		return;
	}
	/* Where cookies are not shown everybody is taken for the pod. */
	bool ours = !peer.cookie || peer.cookie == u->netns_cookie;

	why_not = ours ? NULL : why_refused(u, peer.cookie);
	if (why_not)
		refuse(u, fd, &peer, NETNS, why_not);
	else if (ours && !admit(u, fd, &peer))
		accept_pause(s->accept); /* its next ones cost others nothing meanwhile */
	else if (needs_no_look(s, &peer))
		serve(u, fd, &peer);
	else
		ask_broker(u, fd, &peer, ours);
}

void uds_stop(struct uds *u)
{
	for (size_t i = 0; i < LINK_LISTENER_END; i++) {
		link_call_cancel(&u->sockets[i].asking);
		accept_free(&u->sockets[i].accept);
		mem_closep(&u->sockets[i].fd);
	}
}

static void listen_on(struct socket *s, int fd)
{
	struct uds *u = s->uds;

	accept_free(&s->accept);
	mem_closep(&s->fd);
	if (u->wait)
		s->fd = fd;
	else
		s->accept = accept_new(u->loop, fd, on_accepted, s);
}

void uds_accept(struct uds *u)
{
	u->wait = false;
	for (size_t i = 0; i < LINK_LISTENER_END; i++)
		if (u->sockets[i].fd >= 0)
			listen_on(&u->sockets[i], take_fd(u->sockets[i].fd));
}

static bool is_there(const struct socket *s)
{
	return s->accept || s->fd >= 0;
}

static void on_listening(void *ctx, const struct err *e, int fd)
{
	struct socket *s = ctx;
	struct uds *u = s->uds;

	if (e) {
		uds_stop(u);
		u->ev.listening(u->ctx, e);
		return;
	}
	listen_on(s, fd);
	for (size_t i = 0; i < LINK_LISTENER_END; i++)
		if (!is_there(&u->sockets[i]))
			return;
	u->ev.listening(u->ctx, NULL);
}

/* Ours was shut down.  While we wait for one, what we wait for is a healthy one. */
static void on_relisten(void *ctx, enum link_listener kind, int fd)
{
	struct uds *u = ctx;
	struct socket *s = &u->sockets[kind];

	if (is_there(s))
		listen_on(s, fd);
	else
		close(fd);
}

struct uds *uds_new(
    struct loop *l, const struct uds_rig *rig, const struct uds_events *ev, void *ctx)
{
	struct uds *u = mem_zalloc(sizeof(*u));

	u->loop = l;
	u->link = rig->link;
	u->pod = rig->pod;
	u->subject = mem_strdup(rig->subject);
	u->to = rig->to;
	u->wait = rig->wait;
	u->ev = *ev;
	u->ctx = ctx;
	u->attest = attest_new(l);
	u->metric = metric_counter(
	    "agentd_connections_refused_total", "Connections to pods' sockets that were refused.");
	for (unsigned i = 0; i < REASONS; i++)
		count_refused(u, (enum reason)i, 0);
	link_on_relisten(u->link, &u->pod, on_relisten, u);
	for (int i = 0; i < LINK_LISTENER_END; i++) {
		u->sockets[i].uds = u;
		u->sockets[i].fd = -1;
		link_listen(u->link, &u->sockets[i].asking, &u->pod, (enum link_listener)i,
		    on_listening, &u->sockets[i]);
	}
	return u;
}

void uds_free(struct uds **uds)
{
	struct uds *u = take(*uds);

	if (!u)
		return;
	link_on_relisten(u->link, &u->pod, NULL, NULL);
	uds_stop(u);
	for (size_t i = 0; i < WAITING_MAX; i++) {
		if (!u->visitors[i].asking)
			continue;
		link_call_cancel(&u->visitors[i].asking);
		attest_peer_clear(&u->visitors[i].peer);
		sink_close(u->visitors[i].fd);
	}
	attest_free(&u->attest);
	free(u->refused_netns);
	free(u->shown);
	free(u->subject);
	free(u);
}

/* As text: they are names, and have 64 bits. */
static json_t *name_of(uint64_t id)
{
	char text[24] = "";

	if (id)
		snprintf(text, sizeof(text), "%" PRIu64, id);
	return json_string(text);
}

static json_t *dump_attested(const struct uds *u)
{
	json_t *cgroups = json_array();
	uint64_t id;

	for (unsigned i = 0; (id = attest_cgroup(u->attest, i)) != 0; i++)
		json_array_append_new(cgroups, name_of(id));
	return json_pack("{s:o, s:o, s:s, s:i}", "netns_cookie", name_of(u->netns_cookie),
	    "cgroup_ids", cgroups, "unproven", u->unproven, "watched",
	    (int)attest_watched(u->attest));
}

static json_t *dump_refused_by(const struct uds *u)
{
	json_t *o = json_object();

	for (int i = 0; i < REASONS; i++)
		if (u->refused[i])
			json_object_set_new(o, reasons[i], json_integer((json_int_t)u->refused[i]));
	return o;
}

static json_t *dump_refusals(const struct uds *u)
{
	unsigned n = u->nshown > SHOWN_MAX ? u->nshown - SHOWN_MAX : 0;
	json_t *all = json_array();

	for (; n < u->nshown; n++) {
		const struct refusal *r = &u->shown[n % SHOWN_MAX];

		json_array_append_new(all, json_pack("{s:I, s:s, s:s}", "at", (json_int_t)r->at_s,
					       "reason", reasons[r->reason], "why", r->why));
	}
	return all;
}

json_t *uds_dump(const struct uds *u)
{
	json_int_t refused = 0;
	int waiting = 0;

	for (size_t i = 0; i < WAITING_MAX; i++)
		waiting += u->visitors[i].asking != NULL;
	for (int i = 0; i < REASONS; i++)
		refused += (json_int_t)u->refused[i];
	return json_pack("{s:I, s:I, s:i, s:o, s:o, s:o}", "accepted", (json_int_t)u->accepted,
	    "refused", refused, "waiting", waiting, "attested", dump_attested(u), "refused_by",
	    dump_refused_by(u), "refusals", dump_refusals(u));
}
