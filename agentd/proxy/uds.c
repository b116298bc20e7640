/* uds.c - see uds.h.
 *
 * two sockets asked for -> both there: `listening` -> a connection: does it come from the network
 * namespace we know, and are its addresses known? -> yes: served.  Otherwise the broker is asked
 * whose it is (it alone may look inside, and it alone knows the host's namespace and other pods')
 * -> it answers with the cookie and the addresses: they are told, and the connection is served ->
 * or it refuses: closed.
 *
 * The cookie of an accepted unix socket is the connecting socket's (architecture decision 4).  A
 * kernel older than 5.14 has none: then the broker is asked about each connection.  Whether a pod's
 * namespace may be replaced (a rebooted node) is for the broker to decide, so its last word counts.
 *
 * An Envoy may start before its pod has an address, and an address may change under a live pod:
 * each configuration stream is a connection of its own and rare, so each asks the broker; for
 * secrets that is done only until the first address was told.
 */
#include "uds.h"
#include "../base/accept.h"
#include "../base/err.h"
#include "../base/log.h"
#include "../base/mem.h"
#include "../base/rpc_server.h"
#include "../priv/priv.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

LOG_SCOPE("uds");

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* Connections that wait for the broker; Envoy makes two or three. */
enum { WAITING_MAX = 16 };
/* Open and waiting ones (architecture decision 11): a pod shall not take the worker's fds. */
enum { CONNECTIONS_MAX = 32 };

/* A connection that the broker is asked about. */
struct visitor {
	struct uds *uds;
	int fd;
	struct priv_call *asking; /* NULL: nobody is here */
};

struct socket {
	struct uds *uds;
	struct priv_call *asking;
	struct accept *accept;
};

struct uds {
	struct loop *loop;
	struct priv *priv;
	struct uuid pod;
	char *subject;
	struct rpc_server *to;
	struct uds_events ev;
	void *ctx;
	struct socket sockets[PRIV_LISTENER_END];
	struct visitor visitors[WAITING_MAX];
	uint64_t netns_cookie; /* 0: not known */
	bool addressed;        /* the last look at it found an address */
	uint64_t accepted, refused;
	char last_refusal[ERR_MSG_SIZE];
	struct log_budget log;
};

static void serve(struct uds *u, int fd)
{
	u->accepted++;
	rpc_server_adopt(u->to, fd);
}

/* One line for each new reason, not for each connection: a pod can make as many as it likes. */
static void refuse(struct uds *u, int fd, const char *why)
{
	u->refused++;
	if (strcmp(u->last_refusal, why) != 0)
		log_warn_limited(&u->log, u->subject, "connection refused: %s", why);
	snprintf(u->last_refusal, sizeof(u->last_refusal), "%s", why);
	close(fd);
}

static void tell_addresses(struct uds *u, const struct priv_peer *n)
{
	char text[PRIV_ADDRESSES_MAX][INET6_ADDRSTRLEN];
	const char *ips[PRIV_ADDRESSES_MAX];
	size_t count = 0;

	for (size_t i = 0; i < n->naddresses && count < PRIV_ADDRESSES_MAX; i++) {
		const struct priv_address *a = &n->addresses[i];

		if (!inet_ntop(a->family, a->bytes, text[count], sizeof(text[count])))
			continue;
		ips[count] = text[count];
		count++;
	}
	u->addressed = count > 0;
	if (u->addressed)
		u->ev.addresses(u->ctx, ips, count);
}

static void on_netns(void *ctx, const struct err *e, const struct priv_peer *n)
{
	struct visitor *v = ctx;
	struct uds *u = v->uds;

	if (e) {
		refuse(u, v->fd, e->msg);
		return;
	}
	if (u->netns_cookie != n->cookie)
		log_info(u->subject, "network namespace %" PRIu64, n->cookie);
	u->netns_cookie = n->cookie;
	tell_addresses(u, n);
	serve(u, v->fd);
}

static unsigned connections_of(const struct uds *u)
{
	unsigned n = rpc_server_connections(u->to);

	for (size_t i = 0; i < WAITING_MAX; i++)
		n += u->visitors[i].asking != NULL;
	return n;
}

static void ask_broker(struct uds *u, int fd)
{
	for (size_t i = 0; i < WAITING_MAX; i++) {
		struct visitor *v = &u->visitors[i];

		if (v->asking)
			continue;
		v->uds = u;
		v->fd = fd;
		priv_peer_of(u->priv, &v->asking, &u->pod, fd, on_netns, v);
		return;
	}
	refuse(u, fd, "too many connections wait to be looked at");
}

/* Of the namespace that is known, with nothing to be learned from another look at it. */
static bool needs_no_look(const struct socket *s, int fd)
{
	const struct uds *u = s->uds;
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	return u->addressed && s != &u->sockets[PRIV_LISTEN_XDS] &&
	       getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) == 0 &&
	       cookie == u->netns_cookie;
}

static void on_accepted(void *ctx, int fd)
{
	struct socket *s = ctx;
	struct uds *u = s->uds;

	if (connections_of(u) >= CONNECTIONS_MAX)
		refuse(u, fd, "the pod has too many connections");
	else if (needs_no_look(s, fd))
		serve(u, fd);
	else
		ask_broker(u, fd);
}

void uds_stop(struct uds *u)
{
	for (size_t i = 0; i < PRIV_LISTENER_END; i++) {
		priv_call_cancel(&u->sockets[i].asking);
		accept_free(&u->sockets[i].accept);
	}
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
	s->accept = accept_new(u->loop, fd, on_accepted, s);
	for (size_t i = 0; i < PRIV_LISTENER_END; i++)
		if (!u->sockets[i].accept)
			return;
	u->ev.listening(u->ctx, NULL);
}

/* Ours was shut down.  While we wait for one, what we wait for is a healthy one. */
static void on_relisten(void *ctx, enum priv_listener kind, int fd)
{
	struct uds *u = ctx;
	struct socket *s = &u->sockets[kind];

	if (!s->accept) {
		close(fd);
		return;
	}
	accept_free(&s->accept);
	s->accept = accept_new(u->loop, fd, on_accepted, s);
}

struct uds *uds_new(struct loop *l, struct priv *p, const struct uuid *pod, const char *subject,
    struct rpc_server *to, const struct uds_events *ev, void *ctx)
{
	struct uds *u = mem_zalloc(sizeof(*u));

	u->loop = l;
	u->priv = p;
	u->pod = *pod;
	u->subject = mem_strdup(subject);
	u->to = to;
	u->ev = *ev;
	u->ctx = ctx;
	priv_on_relisten(p, pod, on_relisten, u);
	for (int i = 0; i < PRIV_LISTENER_END; i++) {
		u->sockets[i].uds = u;
		priv_listen(p, &u->sockets[i].asking, pod, (enum priv_listener)i, on_listening,
		    &u->sockets[i]);
	}
	return u;
}

void uds_free(struct uds **uds)
{
	struct uds *u = take(*uds);

	if (!u)
		return;
	priv_on_relisten(u->priv, &u->pod, NULL, NULL);
	uds_stop(u);
	for (size_t i = 0; i < WAITING_MAX; i++) {
		if (!u->visitors[i].asking)
			continue;
		priv_call_cancel(&u->visitors[i].asking);
		close(u->visitors[i].fd);
	}
	free(u->subject);
	free(u);
}

json_t *uds_dump(const struct uds *u)
{
	char cookie[24] = "";
	int waiting = 0;

	for (size_t i = 0; i < WAITING_MAX; i++)
		waiting += u->visitors[i].asking != NULL;

	/* As text: it is a name, and has 64 bits. */
	if (u->netns_cookie)
		snprintf(cookie, sizeof(cookie), "%" PRIu64, u->netns_cookie);
	return json_pack("{s:I, s:I, s:i, s:s, s:s}", "accepted", (json_int_t)u->accepted,
	    "refused", (json_int_t)u->refused, "waiting", waiting, "netns_cookie", cookie,
	    "last_refusal", u->last_refusal);
}
