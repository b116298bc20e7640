/* loader.c - orders by a SEQPACKET pair; each is answered with a struct err.
 */
#include "loader.h"
#include "broker/base/fdstore.h"
#include "broker/netns/netns.h"
#include "common/err.h"
#include "common/mem.h"
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const struct uuid pod_uid = {.bytes = {0xa6, 1}}, peer_uid = {.bytes = {0xa6, 2}};

struct order {
	enum { SET, LIVE, REMOVE, MISTAKE } act;
	bool of_peer; /* the peer as a pod, too */
	struct redirect_rules rules;
	struct netns_watch_seen seen;
};

/* One for the whole process, as a broker has it. */
static struct broker_fdstore *kept(void)
{
	static struct broker_fdstore *k;

	return k ? k : (k = broker_fdstore_new());
}

/* --- the child --- */

/* A connection within the node's own namespace, shown as if a pod's Envoy had made it. */
static int mistake(struct err *why)
{
	struct netns_home home;
	struct netns_id id;
	int pair[2], fd;

	if (netns_home_open(&home, kept(), why) ||
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -1;
	fd = netns_of(&home, pair[0], &id, why);
	close(pair[0]);
	close(pair[1]);
	netns_home_close(&home);
	return fd < 0 ? -1 : 0;
}

static int obey(struct redirect *r, const struct world *w, const struct order *o, struct err *why)
{
	const struct uuid *uid = o->of_peer ? &peer_uid : &pod_uid;
	const struct place *at = o->of_peer ? &w->peer : &w->pod;

	switch (o->act) {
	case SET:
		return redirect_set(
		    r, uid, (struct redirect_where){at->cgroup, -1}, &o->rules, why);
	case LIVE:
		return redirect_live(r, uid, at->netns, &o->seen, why);
	case REMOVE:
		redirect_remove(r, uid);
		return 0;
	default:
		return mistake(why);
	}
}

static struct redirect *begin(const struct world *w, uint64_t caps, size_t memlock, struct err *why)
{
	static struct netns_home home;
	const struct rlimit limit = {memlock, memlock};
	const struct redirect_place at = {
	    .bpffs = w->bpffs, .cgroup = w->cgroup, .home = &home, .trees = w->trees};

	/* More than is allowed here: only 5.10 would mind. */
	if (setrlimit(RLIMIT_MEMLOCK, &limit) && errno != EPERM)
		broken("RLIMIT_MEMLOCK");
	if (netns_home_open(&home, kept(), why) || broker_caps_bound(caps, why) ||
	    broker_caps_set(caps, why))
		return NULL;
	return redirect_new(&at, why);
}

static void answer(int fd, int rc, struct err *why)
{
	if (rc && !why->code)
		why->code = EIO;
	else if (!rc)
		why->code = 0;
	if (write(fd, why, sizeof(*why)) != sizeof(*why))
		_exit(1);
}

static void run(const struct world *w, struct redirect *r, int fd)
{
	struct order *o = mem_zalloc(sizeof(*o));

	while (read(fd, o, sizeof(*o)) == sizeof(*o)) {
		struct err why = {.code = 0};
		answer(fd, obey(r, w, o, &why), &why);
	}
}

/* --- who orders --- */

static int hear(struct loader *l, struct err *why)
{
	if (read(l->fd, why, sizeof(*why)) != sizeof(*why))
		return err_set(why, EPIPE, "the loader died");
	return why->code ? -1 : 0;
}

int loader_start(
    struct loader *l, const struct world *w, uint64_t caps, size_t memlock, struct err *why)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		broken("socketpair");
	fflush(NULL);
	*l = (struct loader){.pid = fork(), .fd = pair[0], .world = w};
	if (l->pid == 0) {
		struct err mine = {.code = 0};
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		struct redirect *r = begin(w, caps, memlock, &mine);
		answer(pair[1], r ? 0 : -1, &mine);
		if (r)
			run(w, r, pair[1]);
		_exit(0);
	}
	close(pair[1]);
	if (hear(l, why) == 0)
		return 0;
	loader_end(l);
	return -1;
}

void loader_end(struct loader *l)
{
	if (l->pid <= 0)
		return;
	close(l->fd);
	evict(&l->pid);
}

static int order(struct loader *l, const struct order *o, struct err *why)
{
	if (write(l->fd, o, sizeof(*o)) != sizeof(*o))
		return err_sys(why, "the loader");
	return hear(l, why);
}

static const struct redirect_rules *rules_of(void *ctx)
{
	return ctx;
}

/* The pod's addresses and routes, as the broker sees them; that may go there, the loader not. */
static int look(const struct place *p, const struct redirect_rules *rules,
    struct netns_watch_seen *seen, struct err *why)
{
	struct netns_home home;
	struct netns_watch view = {.epoll = epoll_create1(EPOLL_CLOEXEC),
	    .home = &home,
	    .rules = rules_of,
	    .ctx = (void *)rules};
	int rc;

	if (netns_home_open(&home, kept(), why))
		return -1;
	rc = netns_watch_open(&view, p->netns, seen, why);
	netns_watch_close(&view);
	close(view.epoll);
	netns_home_close(&home);
	return rc;
}

static struct order work; /* its rules are those of the last `set` */

int loader_set(struct loader *l, const struct redirect_rules *rules, struct err *why)
{
	work.act = SET;
	work.rules = *rules;
	return order(l, &work, why);
}

int loader_live(struct loader *l, struct err *why)
{
	work.act = LIVE;
	return look(&l->world->pod, &work.rules, &work.seen, why) ? -1 : order(l, &work, why);
}

int loader_set_peer(struct loader *l, const struct redirect_rules *rules, struct err *why)
{
	int rc;

	work.of_peer = true;
	rc = loader_set(l, rules, why) || look(&l->world->peer, rules, &work.seen, why);
	work.act = LIVE;
	rc = rc || order(l, &work, why);
	work.of_peer = false;
	return rc ? -1 : 0;
}

int loader_remove_peer(struct loader *l, struct err *why)
{
	int rc;

	work.of_peer = true;
	rc = loader_remove(l, why);
	work.of_peer = false;
	return rc;
}

int loader_remove(struct loader *l, struct err *why)
{
	work.act = REMOVE;
	return order(l, &work, why);
}

int loader_mistake(struct loader *l, struct err *why)
{
	work.act = MISTAKE;
	return order(l, &work, why);
}

/* --- maps --- */

int pinned_map(const struct world *w, const char *name)
{
	char path[2 * TEXT];

	snprintf(path, sizeof(path), "%s/agentd/v%d/map_%s", w->bpffs, REDIRECT_LAYOUT, name);
	return bpf_obj_get(path);
}

int map_count(const struct world *w, const char *name)
{
	int fd = pinned_map(w, name), n = 0, rc;
	char key[128], next[128];

	if (fd < 0)
		return -1;
	for (rc = bpf_map_get_next_key(fd, NULL, next); rc == 0; n++) {
		memcpy(key, next, sizeof(key));
		rc = bpf_map_get_next_key(fd, key, next);
	}
	close(fd);
	return n;
}

uint32_t pod_index(const struct world *w)
{
	static uint32_t index; /* also after its removal */
	int fd = pinned_map(w, "pods_by_index");

	bpf_map_get_next_key(fd, NULL, &index);
	close(fd);
	return index;
}

uint64_t counter(const struct world *w, enum redirect_verdict v)
{
	struct redirect_counters c = {{0}};
	const uint32_t row = (pod_index(w) & REDIRECT_ROW_MASK) - 1;
	int fd = pinned_map(w, "counters");

	bpf_map_lookup_elem(fd, &row, &c);
	close(fd);
	return c.n[v];
}
