/* metrics_listener_test.c - the port for scrapes: which addresses, and who has its socket when.
 * LINK: tests/unit/broker/rig.c */
#include "broker/base/endpoint.h"
#include "broker/netns/metrics_listener.h"
#include "common/err.h"
#include "tests/unit/broker/rig.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <time.h>

static char address[64];

/* Nobody's at this moment; the test has its network to itself. */
static in_port_t free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t size = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
	close(fd);
	return a.sin_port;
}

static void set_address(struct rig *r, const char *host, in_port_t port)
{
	snprintf(address, sizeof(address), "%s:%d", host, ntohs(port));
	r->o.metrics = address;
}

static in_port_t port_of(const struct rig *r)
{
	return htons((uint16_t)atoi(strrchr(r->o.metrics, ':') + 1));
}

/* A socket of its own; -1: refused. */
static int dial(in_port_t port)
{
	struct sockaddr_in a = {
	    .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!connect(fd, (struct sockaddr *)&a, sizeof(a)))
		return fd;
	assert_int_equal(errno, ECONNREFUSED);
	close(fd);
	return -1;
}

static ino_t socket_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

/* What the next worker has as its port. */
static int next_worker(struct rig *r)
{
	int fd = -1;

	close(r->fd);
	rig_attach(r);
	assert_int_equal(rig_expect(r, LINK_HELLO, NULL).kind, 2);
	assert_int_equal(rig_expect(r, LINK_NODE_LISTENER, &fd).kind, LINK_NODE_ADMIN);
	close(fd);
	assert_int_equal(rig_expect(r, LINK_NODE_LISTENER, &fd).kind, LINK_NODE_METRICS);
	return fd;
}

/* What waits there is answered by who has the listener. */
static void expect_accepted(int listener, int waiting)
{
	char c;
	int a = accept(listener, NULL, NULL);

	assert_true(a >= 0 && waiting >= 0);
	assert_int_equal(write(a, "x", 1), 1);
	assert_int_equal(read(waiting, &c, 1), 1);
	close(a);
	close(waiting);
}

static int setup(void **state)
{
	struct rig *r;

	rig_setup(state);
	r = *state;
	rig_stop(r);
	set_address(r, "127.0.0.1", free_port());
	rig_start(r);
	return 0;
}

/* --- the address --- */

static void a_port_that_is_taken_is_said(void **state)
{
	struct rig *r = *state;
	struct err e = {0};

	assert_int_equal(metrics_listener_try(r->o.metrics, &e), -1);
	assert_int_equal(e.code, EADDRINUSE);
	assert_non_null(strstr(e.msg, address));
	assert_int_equal(metrics_listener_try("192.0.2.1:15091", &e), -1);
	assert_int_equal(e.code, EADDRNOTAVAIL);
	set_address(r, "[::]", free_port());
	assert_int_equal(metrics_listener_try(r->o.metrics, &e), 0);
}

static void a_broker_without_its_port_does_not_start(void **state)
{
	struct rig *r = *state;
	struct err e = {0};
	int there = next_worker(r);

	rig_stop(r); /* but somebody listens on */
	assert_null(rig_broker(r, &e));
	assert_non_null(strstr(e.msg, address));
	assert_non_null(strstr(e.msg, strerror(EADDRINUSE)));
	close(there);
	broker_fdstore_free(&r->kept);
	rig_start(r);
}

/* --- workers --- */

static void a_scrape_waits_for_the_next_worker(void **state)
{
	struct rig *r = *state;
	int first = next_worker(r), waiting = dial(port_of(r));
	ino_t socket = socket_of(first);

	assert_true(fcntl(first, F_GETFL) & O_NONBLOCK);
	close(first);
	int second = next_worker(r);
	assert_int_equal(socket_of(second), socket);
	expect_accepted(second, waiting);
	close(second);
}

static void both_families_reach_it(void **state)
{
	struct rig *r = *state;

	rig_stop(r);
	set_address(r, "[::]", free_port());
	rig_start(r);
	int fd = next_worker(r);
	expect_accepted(fd, dial(port_of(r)));
	close(fd);
}

static void expect_broken(struct rig *r)
{
	enum broker_turned s = BROKER_SERVING;

	for (int i = 0; i < RIG_TURNS && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_WORKER_BROKE);
}

static void a_worker_that_shuts_it_down_is_killed(void **state)
{
	struct rig *r = *state;

	for (int how = SHUT_RD; how <= SHUT_RDWR; how += SHUT_RDWR - SHUT_RD) {
		int dead = next_worker(r);
		assert_int_equal(shutdown(dead, how), 0);
		expect_broken(r);
		int fresh = next_worker(r); /* while the other may still have its copy */
		assert_int_not_equal(socket_of(dead), socket_of(fresh));
		expect_accepted(fresh, dial(port_of(r)));
		close(dead);
		close(fresh);
	}
}

/* Pods are served all the same. */
static void a_port_that_is_lost_later_costs_metrics_only(void **state)
{
	struct rig *r = *state;
	struct sockaddr_in a = {.sin_family = AF_INET,
	    .sin_port = port_of(r),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int dead = next_worker(r), one = 1, fd;

	shutdown(dead, SHUT_RDWR);
	expect_broken(r);
	close(dead);
	int thief = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(thief, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(thief, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(thief, 1), 0);
	close(r->fd);
	rig_attach(r);
	assert_int_equal(rig_expect(r, LINK_HELLO, NULL).kind, 1);
	rig_expect(r, LINK_NODE_LISTENER, &fd);
	close(fd);
	rig_add(r);
	close(thief);
	close(next_worker(r));
}

/* Who has the port goes after so many of the broker's naps. */
static int other = -1, naps;

int usleep(useconds_t us)
{
	if (other >= 0 && !naps--) {
		close(other);
		other = -1;
	}
	return nanosleep(&(struct timespec){0, us * 1000L}, NULL);
}

/* It shut ours down to have the port, failed, and takes a moment to be gone: longer than the next
 * worker needs to be there. */
static void who_failed_to_take_over_is_waited_for(void **state)
{
	struct rig *r = *state;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = port_of(r)};
	int old = next_worker(r), one = 1;

	shutdown(old, SHUT_RDWR);
	close(old);
	naps = 15;
	other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(other, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(other, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(other, 1), 0);
	int fd = next_worker(r);
	assert_int_equal(other, -1);
	expect_accepted(fd, dial(port_of(r)));
	close(fd);
}

/* --- the next broker --- */

static void find_metrics(void *ctx, const char *name, int fd)
{
	if (!strcmp(name, "metrics"))
		*(ino_t *)ctx = socket_of(fd);
}

/* All it has of the one before is this descriptor, which that one keeps. */
static void next_broker(struct rig *r, int found)
{
	struct broker_fdstore *next = broker_fdstore_new();
	ino_t kept = 0;

	broker_fdstore_each(r->kept, BROKER_FDSTORE, find_metrics, &kept);
	assert_int_equal(kept, socket_of(found));

	broker_fdstore_found(next, "metrics", found);
	rig_stop(r);
	r->kept = next;
	rig_start(r);
}

static void the_next_broker_has_the_same_socket(void **state)
{
	struct rig *r = *state;
	int kept = next_worker(r), waiting = dial(port_of(r));
	ino_t socket = socket_of(kept);

	next_broker(r, kept);
	int fd = next_worker(r);
	assert_int_equal(socket_of(fd), socket);
	expect_accepted(fd, waiting);
	close(fd);
}

/* The same port at another address: who else has the old socket must not be in the way. */
static void another_address_is_another_socket(void **state)
{
	static const char *const hosts[] = {"0.0.0.0", "127.0.0.1", "[::]", "127.0.0.1"};
	struct rig *r = *state;

	for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
		in_port_t port = port_of(r);
		int kept = next_worker(r), sharer = dup(kept);
		ino_t socket = socket_of(kept);
		set_address(r, hosts[i], port);
		next_broker(r, kept);
		int fd = next_worker(r);
		assert_int_not_equal(socket_of(fd), socket);
		expect_accepted(fd, dial(port));
		assert_int_equal(accept(sharer, NULL, NULL), -1);
		assert_int_equal(errno, EINVAL); /* listens no more */
		close(fd);
		close(sharer);
	}
}

static void on_put(void *ctx, const char *name, int fd)
{
	(void)fd;
	*(int *)ctx += !strcmp(name, "metrics");
}

static void on_drop(void *ctx, const char *name)
{
	*(int *)ctx -= !strcmp(name, "metrics");
}

/* It would have both, and the next broker find either. */
static void systemd_has_one_of_them(void **state)
{
	struct rig *r = *state;
	struct broker_fdstore *next = broker_fdstore_new();
	static int copies = 1; /* told of what is dropped in the teardown, too */
	int old = next_worker(r);

	set_address(r, "0.0.0.0", port_of(r));
	broker_fdstore_found(next, "metrics", old);
	rig_stop(r);
	r->kept = next;
	broker_fdstore_mirror(next, &(struct broker_fdstore_sink){on_put, on_drop, &copies});
	rig_start(r);
	assert_int_equal(copies, 1);
}

static int listener_elsewhere(in_port_t port)
{
	struct sockaddr_in a = {
	    .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rig_shell("ip link set lo up");
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(setns(home, CLONE_NEWNET), 0);
	close(home);
	return fd;
}

static int not_listening(in_port_t port)
{
	struct sockaddr_in a = {
	    .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void what_is_something_else_is_not_taken(void **state)
{
	struct rig *r = *state;
	int udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int file = open("/dev/null", O_RDONLY | O_CLOEXEC);

	rig_stop(r);
	const int others[] = {udp, file, listener_elsewhere(port_of(r)), not_listening(port_of(r))};
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		struct stat st;
		assert_int_equal(fstat(others[i], &st), 0);
		r->kept = broker_fdstore_new();
		broker_fdstore_found(r->kept, "metrics", others[i]);
		rig_start(r);
		int fd = next_worker(r);
		assert_int_not_equal(socket_of(fd), st.st_ino);
		expect_accepted(fd, dial(port_of(r)));
		close(fd);
		rig_stop(r);
	}
	rig_start(r);
}

/* Without the flag it is of no use: it goes with the sweep. */
static void a_broker_without_the_flag_closes_it(void **state)
{
	struct rig *r = *state;
	in_port_t port = port_of(r);
	int kept = next_worker(r);

	r->o.metrics = NULL;
	next_broker(r, kept);
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_int_equal(dial(port), -1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
	const struct CMUnitTest tests[] = {
	    T(a_port_that_is_taken_is_said),
	    T(a_broker_without_its_port_does_not_start),
	    T(a_scrape_waits_for_the_next_worker),
	    T(both_families_reach_it),
	    T(a_worker_that_shuts_it_down_is_killed),
	    T(a_port_that_is_lost_later_costs_metrics_only),
	    T(who_failed_to_take_over_is_waited_for),
	    T(the_next_broker_has_the_same_socket),
	    T(another_address_is_another_socket),
	    T(systemd_has_one_of_them),
	    T(what_is_something_else_is_not_taken),
	    T(a_broker_without_the_flag_closes_it),
	};

	if (unshare(CLONE_NEWNET) || system("ip link set lo up")) /* NOLINT(cert-env33-c) */
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
