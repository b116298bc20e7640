/* uds_test.c - real sockets, a scripted broker: who is served, and after what.
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/unit/worker/metrics_rig.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/pidfd.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/sockets/uds.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

enum { WAITING_MAX = 16, PEERS_MAX = 32 };

struct world {
	struct loop *loop;
	struct rpc *rpc;
	struct rpc_server *server;
	struct link *link;
	struct uuid pod;
	struct uds *uds;
	char dir[32];
	int peers[PEERS_MAX];
	unsigned npeers;
	uint64_t cookie, cgroup; /* of our own network namespace, and cgroup */
	int told;                /* listening events */
	char why[ERR_MSG_SIZE];
	bool free_when_told;
	char ips[256];
	int ips_told;
	unsigned served_before_ips;
};

static void on_listening(void *ctx, const struct err *e)
{
	struct world *w = ctx;

	w->told++;
	snprintf(w->why, sizeof(w->why), "%s", e ? e->msg : "");
	if (w->free_when_told)
		uds_free(&w->uds);
}

static void on_addresses(void *ctx, const char *const *ips, size_t n)
{
	struct world *w = ctx;

	w->ips_told++;
	w->ips[0] = '\0';
	for (size_t i = 0; i < n; i++)
		sprintf(w->ips + strlen(w->ips), "%s ", ips[i]);
	w->served_before_ips = fake_rpc_adopted(w->server);
}

static void on_incoming(void *ctx, struct rpc_stream *s, const char *method)
{
	(void)ctx, (void)s, (void)method;
}

static uint64_t own_cookie(void)
{
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len);
	return cookie;
}

/* Needs Linux 6.13, as these tests do; tests/unit/priv has the older ways. */
static uint64_t own_cgroup(void)
{
	auto_close int self = pidfd_of_number(getpid());
	uint64_t id = 0;

	assert_int_equal(pidfd_cgroup(self, &id), 0);
	return id;
}

static unsigned admits;

static const char *admit(void *ctx, int fd, unsigned connections)
{
	(void)ctx;
	assert_true(fd >= 0);
	admits++;
	return connections < 32 ? NULL : "the pod has too many connections";
}

static unsigned came, kept_away;

static void on_came(void *ctx, const struct err *why)
{
	(void)ctx;
	came += !why;
	kept_away += why && strstr(why->msg, "refused");
}

static int setup_with(void **state, bool wait)
{
	static const struct rpc_server_options options = {.max_message = 1, .max_streams = 1};
	static const struct uds_events events = {admit, on_listening, on_addresses, on_came};
	struct world *w = mem_zalloc(sizeof(*w));

	strcpy(w->dir, "/tmp/uds_test.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->cookie = own_cookie();
	w->cgroup = own_cgroup();
	w->loop = fake_loop();
	w->rpc = rpc_new(w->loop);
	w->server = rpc_server_new(w->rpc, &options, on_incoming, w);
	w->link = fake_link();
	uuid_parse(&w->pod, "11111111-1111-1111-1111-111111111111");
	w->uds = uds_new(
	    w->loop, &(struct uds_rig){w->link, w->pod, "demo/web-0", w->server, wait}, &events, w);
	*state = w;
	return 0;
}

static int setup(void **state)
{
	return setup_with(state, false);
}

static int setup_waiting(void **state)
{
	return setup_with(state, true);
}

static int teardown(void **state)
{
	struct world *w = *state;
	char path[64];

	uds_free(&w->uds);
	for (unsigned i = 0; i < w->npeers; i++)
		close(w->peers[i]);
	for (int kind = 0; kind < LINK_LISTENER_END; kind++) {
		snprintf(path, sizeof(path), "%s/%d", w->dir, kind);
		unlink(path);
	}
	rmdir(w->dir);
	assert_int_equal(fake_link_live(w->link), 0);
	link_free(&w->link);
	rpc_server_free(&w->server);
	rpc_free(&w->rpc);
	fake_loop_end(&w->loop);
	metrics_clear();
	free(w);
	return 0;
}

static struct sockaddr_un address_of(const struct world *w, int kind)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/%d", w->dir, kind);
	return a;
}

/* The broker hands over one socket. */
static void hand_over(struct world *w, int kind)
{
	struct sockaddr_un a = address_of(w, kind);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 64), 0);
	fake_link_listening(w->link, &w->pod, (enum link_listener)kind, fd, NULL);
}

static void listen_on_both(struct world *w)
{
	hand_over(w, LINK_LISTEN_SDS);
	hand_over(w, LINK_LISTEN_XDS);
	assert_int_equal(w->told, 1);
}

static int connect_to(struct world *w, int kind)
{
	struct sockaddr_un a = address_of(w, kind);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(w->npeers < PEERS_MAX);
	w->peers[w->npeers++] = fd;
	return connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 ? fd : -1;
}

/* A connection from here, accepted. */
static int visit_at(struct world *w, int kind)
{
	int fd = connect_to(w, kind);

	assert_true(fd >= 0);
	fake_loop_advance(w->loop, 0);
	return fd;
}

static int visit(struct world *w)
{
	return visit_at(w, LINK_LISTEN_SDS);
}

static void broker_says(struct world *w, uint64_t cookie, const char *ip4, const char *ip6)
{
	struct link_address a[2] = {{.family = AF_INET}, {.family = AF_INET6}};
	struct link_peer n = {.cookie = cookie, .cgroup_id = w->cgroup, .addresses = a};

	if (ip4)
		inet_pton(AF_INET, ip4, a[n.naddresses++].bytes);
	if (ip6) {
		a[n.naddresses].family = AF_INET6;
		inet_pton(AF_INET6, ip6, a[n.naddresses++].bytes);
	}
	fake_link_peer(w->link, &w->pod, &n, NULL);
}

static bool is_closed(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

static void assert_dump(const struct world *w, const char *expect)
{
	json_t *dump = uds_dump(w->uds);
	auto_free char *text = json_dumps(dump, JSON_SORT_KEYS);

	json_decref(dump);
	assert_string_equal(text, expect);
}

static void listening_is_told_when_both_sockets_are_there(void **state)
{
	struct world *w = *state;

	assert_int_equal(fake_link_waiting(w->link, LINK_LISTEN), 2);
	hand_over(w, LINK_LISTEN_XDS);
	assert_int_equal(w->told, 0);
	hand_over(w, LINK_LISTEN_SDS);
	assert_int_equal(w->told, 1);
	assert_string_equal(w->why, "");
}

static int again_at(struct world *w, int kind)
{
	struct sockaddr_un a = address_of(w, kind);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	unlink(a.sun_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 64), 0);
	fake_link_relisten(w->link, &w->pod, (enum link_listener)kind, fd);
	return fd;
}

/* They are in the backlog, and lose nothing but time. */
static void connections_may_have_to_wait(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	int fd = visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 0);
	assert_false(is_closed(fd));
	uds_accept(w->uds);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	assert_int_equal(fake_rpc_adopted(w->server), 1);
	visit(w);
	assert_int_equal(fake_rpc_adopted(w->server), 2);
}

/* A socket that was shut down meanwhile waits as well as the one before. */
static void a_new_socket_has_to_wait_too(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	again_at(w, LINK_LISTEN_SDS);
	visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 0);
	uds_accept(w->uds);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
}

/* Those that wait are closed once: their numbers may be another pod's by then. */
static void what_is_stopped_is_closed_once(void **state)
{
	struct world *w = *state;
	int numbers[2] = {dup(0), dup(0)}; /* the lowest that are free */

	close(numbers[0]);
	close(numbers[1]);
	listen_on_both(w);
	uds_stop(w->uds);
	assert_int_equal(dup(0), numbers[0]);
	assert_int_equal(dup(0), numbers[1]);
	uds_stop(w->uds);
	assert_int_equal(close(numbers[0]), 0);
	assert_int_equal(close(numbers[1]), 0);
}

static void one_socket_is_not_enough(void **state)
{
	struct world *w = *state;

	hand_over(w, LINK_LISTEN_SDS);
	fake_link_listening(w->link, &w->pod, LINK_LISTEN_XDS, -1, "no space left");
	assert_int_equal(w->told, 1);
	assert_non_null(strstr(w->why, "no space left"));
	assert_int_equal(connect_to(w, LINK_LISTEN_SDS), -1); /* the other one is closed */
}

static void a_failure_cancels_the_other_request(void **state)
{
	struct world *w = *state;

	fake_link_listening(w->link, &w->pod, LINK_LISTEN_SDS, -1, "denied");
	assert_int_equal(w->told, 1);
	assert_int_equal(fake_link_waiting(w->link, LINK_LISTEN), 0);
}

static void the_owner_may_leave_when_told(void **state)
{
	struct world *w = *state;

	w->free_when_told = true;
	listen_on_both(w);
	assert_null(w->uds);
}

static void the_first_connection_is_looked_at_then_served(void **state)
{
	struct world *w = *state;
	char expect[256];

	listen_on_both(w);
	visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	assert_int_equal(fake_rpc_adopted(w->server), 0);
	broker_says(w, w->cookie, "10.0.0.7", "fd00::7");
	assert_string_equal(w->ips, "10.0.0.7 fd00::7 ");
	assert_int_equal(w->served_before_ips, 0);
	assert_int_equal(fake_rpc_adopted(w->server), 1);
	/* The next ones show the same cookie. */
	visit(w);
	visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 0);
	assert_int_equal(fake_rpc_adopted(w->server), 3);
	snprintf(expect, sizeof(expect),
	    "{\"accepted\": 3, \"attested\": {\"cgroup_ids\": [\"%llu\"], \"netns_cookie\": "
	    "\"%llu\", \"unproven\": \"\", \"watched\": 3}, \"refusals\": [], \"refused\": 0, "
	    "\"refused_by\": {}, \"waiting\": 0}",
	    (unsigned long long)w->cgroup, (unsigned long long)w->cookie);
	assert_dump(w, expect);
}

static void a_refused_connection_is_closed(void **state)
{
	struct world *w = *state;
	int fd;

	listen_on_both(w);
	fd = visit(w);
	fake_link_peer(w->link, &w->pod, NULL, "the host's network namespace");
	assert_true(is_closed(fd));
	assert_int_equal(fake_rpc_adopted(w->server), 0);
	assert_string_equal(w->ips, "");
	/* That is not asked again at once; but nothing was learned for good. */
	assert_true(is_closed(visit(w)));
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 0);
	fake_loop_advance(w->loop, 1001);
	visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	assert_int_equal(fake_rpc_adopted(w->server), 1);
	uds_free(&w->uds);
}

static void a_netns_without_addresses_is_served_too(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, NULL, NULL);
	assert_int_equal(w->ips_told, 0);
	assert_int_equal(fake_rpc_adopted(w->server), 1);
	/* Looked at again, on either socket, until there is one. */
	visit_at(w, LINK_LISTEN_XDS);
	broker_says(w, w->cookie, NULL, NULL);
	visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	assert_string_equal(w->ips, "10.0.0.7 ");
	assert_int_equal(w->served_before_ips, 2);
	visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 0);
	assert_int_equal(fake_rpc_adopted(w->server), 4);
}

/* A configuration stream must not begin with yesterday's address. */
static void each_connection_to_xds_reads_the_addresses(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	visit_at(w, LINK_LISTEN_XDS);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	broker_says(w, w->cookie, "10.0.0.8", NULL);
	assert_string_equal(w->ips, "10.0.0.8 ");
	assert_int_equal(w->served_before_ips, 1);
	assert_int_equal(fake_rpc_adopted(w->server), 2);
}

/* Kernels below 5.14 have no cookie. */
static void without_a_cookie_the_broker_is_asked_each_time(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	for (unsigned i = 1; i <= 3; i++) {
		visit(w);
		assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
		broker_says(w, 0, "10.0.0.7", NULL);
		assert_int_equal(fake_rpc_adopted(w->server), i);
	}
}

struct stranger {
	struct world *world;
	int fd, rc;
};

/* A thread of its own network namespace: what `unshare -n` in the pod would be. */
static void *connect_from_elsewhere(void *arg)
{
	struct stranger *s = arg;

	s->fd = -1;
	s->rc = unshare(CLONE_NEWNET);
	if (s->rc == 0)
		s->fd = connect_to(s->world, LINK_LISTEN_XDS);
	return NULL;
}

static int visit_from_elsewhere(struct world *w)
{
	struct stranger s = {.world = w};
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, connect_from_elsewhere, &s), 0);
	pthread_join(t, NULL);
	if (s.rc != 0)
		skip(); /* not root */
	assert_true(s.fd >= 0);
	fake_loop_advance(w->loop, 0);
	return s.fd;
}

static void another_netns_is_the_brokers_to_judge(void **state)
{
	struct world *w = *state;
	int fd;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	fd = visit_from_elsewhere(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	fake_link_peer(w->link, &w->pod, NULL, "another network namespace");
	assert_true(is_closed(fd));
	visit(w); /* the known one is still known */
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 0);
	assert_int_equal(fake_rpc_adopted(w->server), 2);
	/* After a reboot of the node the broker takes a new one; then the old one is the stranger.
	 */
	visit_from_elsewhere(w);
	broker_says(w, w->cookie + 1000, "10.0.0.8", NULL);
	assert_string_equal(w->ips, "10.0.0.8 ");
	assert_int_equal(fake_rpc_adopted(w->server), 3);
	visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	fake_link_peer(w->link, &w->pod, NULL, "another network namespace");
	assert_int_equal(fake_rpc_adopted(w->server), 3);
}

/* --- who it is --- */

/* i#61211: the namespace alone is not the pod. */
static void another_cgroup_is_the_brokers_to_judge(void **state)
{
	struct world *w = *state;
	uint64_t mine = w->cgroup;
	int fd;

	listen_on_both(w);
	visit(w);
	w->cgroup = mine + 1;
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	w->cgroup = mine;
	fd = visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	fake_link_stranger(w->link, &w->pod, EACCES, "not in the pod's cgroup");
	assert_true(is_closed(fd));
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	visit(w); /* two cgroups are known now */
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 0);
	assert_int_equal(fake_rpc_adopted(w->server), 3);
}

/* What was proven in the namespace before says nothing of the one that took its place. */
static void a_new_namespace_forgets_the_cgroups(void **state)
{
	struct world *w = *state;
	uint64_t mine = w->cgroup, cookies[] = {w->cookie, w->cookie, w->cookie + 1, w->cookie};
	uint64_t cgroups[] = {mine + 1, mine, mine + 2, mine + 3};

	listen_on_both(w);
	for (int i = 0; i < 4; i++) {
		visit_at(w, LINK_LISTEN_XDS);
		w->cgroup = cgroups[i];
		broker_says(w, cookies[i], "10.0.0.7", NULL);
	}
	visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	fake_link_stranger(w->link, &w->pod, EACCES, "elsewhere");
}

static void assert_dump_has(const struct world *w, const char *part)
{
	json_t *dump = uds_dump(w->uds);
	auto_free char *text = json_dumps(dump, JSON_SORT_KEYS);

	json_decref(dump);
	if (!strstr(text, part))
		fail_msg("%s lacks %s", text, part);
}

/* `attest: prefer`; the reason is shown until somebody can be proven. */
static void what_cannot_be_known_is_flagged_and_asked_about_again(void **state)
{
	struct world *w = *state;
	struct link_address a = {.family = AF_INET, .bytes = {10, 0, 0, 7}};
	struct link_peer n = {
	    .cookie = w->cookie, .naddresses = 1, .addresses = &a, .unknown = "no cgroup is named"};

	listen_on_both(w);
	for (unsigned i = 1; i <= 3; i++) {
		visit(w);
		assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
		fake_link_peer(w->link, &w->pod, &n, NULL);
		assert_int_equal(fake_rpc_adopted(w->server), i);
	}
	assert_dump_has(w, "\"cgroup_ids\": []");
	assert_dump_has(w, "\"unproven\": \"no cgroup is named\"");
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	assert_dump_has(w, "\"unproven\": \"\"");
}

static void refusals_are_counted_by_reason(void **state)
{
	static const struct {
		int code;
		const char *reason;
	} cases[] = {{EACCES, "cgroup"}, {ESRCH, "exited"}, {ENODATA, "unproven"},
	    {EMFILE, "broker"}, {EPERM, "netns"}};
	struct world *w = *state;
	char expect[96];

	listen_on_both(w);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int fd = visit(w);

		fake_link_stranger(w->link, &w->pod, cases[i].code, cases[i].reason);
		assert_true(is_closed(fd));
	}
	assert_dump_has(w,
	    "\"refused\": 5, \"refused_by\": {\"broker\": 1, \"cgroup\": 1, \"exited\": 1, "
	    "\"netns\": 1, \"unproven\": 1}");
	/* The last four. */
	assert_dump_has(w,
	    "\"refusals\": [{\"at\": 1700000000, \"reason\": \"exited\", \"why\": \"exited\"}, ");
	assert_dump_has(w, "\"reason\": \"netns\", \"why\": \"netns\"}], \"refused\"");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(expect, sizeof(expect),
		    "agentd_connections_refused_total{reason=\"%s\"} 1\n", cases[i].reason);
		assert_metric(expect);
	}
}

/* But a pod that is served has only a process that is lost. */
static void a_pod_in_the_nodes_own_namespace_is_named(void **state)
{
	struct world *w = *state;

	came = kept_away = 0;
	listen_on_both(w);
	visit(w);
	fake_link_stranger(w->link, &w->pod, ENONET, "refused: hostNetwork");
	assert_int_equal(kept_away, 1);
	assert_dump_has(w, "\"netns\": 1");
	fake_loop_advance(w->loop, 1000);
	visit(w);
	broker_says(w, w->cookie, NULL, NULL);
	assert_int_equal(came, 1);
	visit_at(w, LINK_LISTEN_XDS);
	fake_link_stranger(w->link, &w->pod, ENONET, "refused: hostNetwork");
	assert_int_equal(kept_away, 1);
}

/* --- as long as its process lives --- */

struct child {
	pid_t pid;
	int conn; /* a copy of its connection, as somebody has it who was given it */
};

/* A process that connects and waits to be released. */
static struct child child_connects(struct world *w)
{
	struct child c = {.conn = socket(AF_UNIX, SOCK_STREAM, 0)};
	struct sockaddr_un a = address_of(w, LINK_LISTEN_SDS);
	int done[2];
	char byte;

	assert_int_equal(pipe(done), 0);
	c.pid = fork();
	if (c.pid == 0) {
		if (connect(c.conn, (struct sockaddr *)&a, sizeof(a)) ||
		    write(done[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(done[0], &byte, 1), 1);
	close(done[0]);
	close(done[1]);
	return c;
}

static void child_ends(struct child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
}

/* We hold the same connection all the time (threats-and-faults.md T4). */
static void a_connection_ends_with_its_process(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	struct child c = child_connects(w);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_rpc_adopted(w->server), 2);
	assert_false(fake_rpc_closed(w->server, 1));
	child_ends(&c);
	fake_loop_advance(w->loop, 0);
	assert_true(fake_rpc_closed(w->server, 1));
	assert_false(fake_rpc_closed(w->server, 0));
	assert_dump_has(w, "\"watched\": 1}");
	close(c.conn);
}

/* In the backlog, and while the broker looks. */
static void a_process_that_is_gone_is_not_served(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	struct child c = child_connects(w);
	child_ends(&c);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 0);
	assert_dump_has(w, "\"refused_by\": {\"exited\": 1}");
	close(c.conn);

	c = child_connects(w);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	child_ends(&c);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	assert_int_equal(fake_rpc_adopted(w->server), 0);
	assert_dump_has(w, "\"refused_by\": {\"exited\": 2}");
	close(c.conn);
}

/* Nobody collects connections that were closed: the next one does. */
static void closed_connections_hold_no_process(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	for (unsigned i = 0; i < 20; i++) {
		visit(w);
		fake_rpc_hang_up(w->server, i);
	}
	visit(w);
	assert_dump_has(w, "\"watched\": 2}");
}

static void few_connections_wait_for_the_broker(void **state)
{
	struct world *w = *state;
	int fd;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, NULL, NULL);
	for (int i = 0; i < WAITING_MAX; i++)
		visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), WAITING_MAX);
	fd = visit(w);
	assert_true(is_closed(fd));
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), WAITING_MAX);
	for (int i = 0; i < WAITING_MAX; i++)
		broker_says(w, w->cookie, "10.0.0.7", NULL);
	assert_int_equal(fake_rpc_adopted(w->server), 1 + WAITING_MAX);
}

/* Half of the waiting places, and of the pod's allowance none; the pod comes in meanwhile. */
static void strangers_use_up_nothing_of_the_pods(void **state)
{
	struct world *w = *state;
	unsigned admitted;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	admitted = admits;
	for (int i = 0; i < WAITING_MAX / 2; i++)
		assert_false(is_closed(visit_from_elsewhere(w)));
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), WAITING_MAX / 2);
	assert_true(is_closed(visit_from_elsewhere(w)));
	assert_int_equal(admits, admitted);
	fake_rpc_connections(w->server, 30);
	visit_at(w, LINK_LISTEN_XDS);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), WAITING_MAX / 2 + 1);
	visit(w); /* the 32nd: the one that waits counts, the strangers do not */
	assert_int_equal(admits, admitted + 2);
	assert_int_equal(fake_rpc_adopted(w->server), 2);
	/* One of them was the pod after all: now it is counted. */
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	assert_int_equal(admits, admitted + 3);
}

/* Those that wait count, else 16 more would be let in. */
static void few_connections_are_open_at_a_time(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	fake_rpc_connections(w->server, 31);
	visit(w);
	assert_int_equal(fake_rpc_adopted(w->server), 2);
	fake_rpc_connections(w->server, 32);
	assert_true(is_closed(visit(w)));
	assert_true(is_closed(visit_at(w, LINK_LISTEN_XDS)));
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 0);
	fake_loop_advance(w->loop, 100);
	fake_rpc_connections(w->server, 31);
	visit_at(w, LINK_LISTEN_XDS);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	assert_true(is_closed(visit(w)));
	assert_int_equal(fake_rpc_adopted(w->server), 2);
	fake_loop_advance(w->loop, 100);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	visit(w); /* the fake counts none of these */
	assert_int_equal(fake_rpc_adopted(w->server), 4);
}

/* A refusal costs the worker as much as a connection: there are ten a second for each socket,
 * however many come.  The others wait in the backlog. */
static void who_comes_too_often_waits(void **state)
{
	struct world *w = *state;
	int next;
	unsigned admitted;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	fake_rpc_connections(w->server, 32);
	assert_true(is_closed(visit(w)));
	admitted = admits;
	next = visit(w);
	for (int i = 0; i < 20; i++)
		visit(w);
	assert_int_equal(admits, admitted);
	assert_false(is_closed(next));
	fake_loop_advance(w->loop, 100);
	assert_int_equal(admits, admitted + 1);
	assert_true(is_closed(next));
	fake_rpc_connections(w->server, 2);
	fake_loop_advance(w->loop, 100);
	assert_int_equal(admits, admitted + 21);
	assert_int_equal(fake_rpc_adopted(w->server), 21);
}

static void what_waits_is_closed_at_the_end(void **state)
{
	struct world *w = *state;
	int a, b;

	listen_on_both(w);
	a = visit(w);
	b = visit(w);
	uds_free(&w->uds);
	assert_true(is_closed(a));
	assert_true(is_closed(b));
}

static void a_new_socket_takes_the_place_of_a_dead_one(void **state)
{
	struct world *w = *state;

	listen_on_both(w);
	visit(w);
	broker_says(w, w->cookie, "10.0.0.7", NULL);
	again_at(w, LINK_LISTEN_SDS);
	visit(w);
	assert_int_equal(fake_rpc_adopted(w->server), 2);
	visit_at(w, LINK_LISTEN_XDS); /* the other one goes on */
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
	assert_int_equal(w->told, 1);
}

/* The answer that is still to come carries a healthy one. */
static void a_new_socket_before_the_first_is_not_needed(void **state)
{
	struct world *w = *state;
	int fd = again_at(w, LINK_LISTEN_SDS);

	assert_int_equal(fcntl(fd, F_GETFD), -1);
	unlink(address_of(w, LINK_LISTEN_SDS).sun_path);
	listen_on_both(w);
	visit(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PEER_OF), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(listening_is_told_when_both_sockets_are_there),
	    cmocka_unit_test_setup_teardown(connections_may_have_to_wait, setup_waiting, teardown),
	    cmocka_unit_test_setup_teardown(a_new_socket_has_to_wait_too, setup_waiting, teardown),
	    cmocka_unit_test_setup_teardown(
		what_is_stopped_is_closed_once, setup_waiting, teardown),
	    TEST(one_socket_is_not_enough),
	    TEST(a_failure_cancels_the_other_request),
	    TEST(the_owner_may_leave_when_told),
	    TEST(the_first_connection_is_looked_at_then_served),
	    TEST(a_refused_connection_is_closed),
	    TEST(a_netns_without_addresses_is_served_too),
	    TEST(each_connection_to_xds_reads_the_addresses),
	    TEST(without_a_cookie_the_broker_is_asked_each_time),
	    TEST(another_netns_is_the_brokers_to_judge),
	    TEST(another_cgroup_is_the_brokers_to_judge),
	    TEST(a_new_namespace_forgets_the_cgroups),
	    TEST(what_cannot_be_known_is_flagged_and_asked_about_again),
	    TEST(refusals_are_counted_by_reason),
	    TEST(a_pod_in_the_nodes_own_namespace_is_named),
	    TEST(a_connection_ends_with_its_process),
	    TEST(a_process_that_is_gone_is_not_served),
	    TEST(closed_connections_hold_no_process),
	    TEST(few_connections_wait_for_the_broker),
	    TEST(strangers_use_up_nothing_of_the_pods),
	    TEST(few_connections_are_open_at_a_time),
	    TEST(who_comes_too_often_waits),
	    TEST(what_waits_is_closed_at_the_end),
	    TEST(a_new_socket_takes_the_place_of_a_dead_one),
	    TEST(a_new_socket_before_the_first_is_not_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
