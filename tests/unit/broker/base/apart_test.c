/* apart_test.c - descriptors whose close(2) lasts for an hour, wherever a worker or a pod can put
 * them.  Who waits for one is ended by SIGALRM.
 * LINK: tests/unit/broker/rig.c tests/unit/lingering.c */
#include "broker/base/apart.h"
#include "tests/unit/broker/rig.h"
#include "tests/unit/lingering.h"
#include <signal.h>
#include <time.h>

enum { PATIENCE_S = 60 };

/* What the main program does on SIGCHLD: at the end no child is left. */
static void children_end(void)
{
	pid_t pid;

	while ((pid = waitpid(-1, NULL, 0)) > 0)
		assert_true(apart_reaped(pid));
}

static int begin(void **state)
{
	alarm(PATIENCE_S);
	return rig_setup(state);
}

static int end(void **state)
{
	int rc = rig_teardown(state);

	children_end();
	alarm(0);
	return rc;
}

static void send_with(struct rig *r, enum link_op op, const int *fds, int n)
{
	const struct link_request q = {.id = 1, .op = (uint16_t)op, .uid = rig_pod};

	rig_send(r, &q, sizeof(q), fds, n);
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

static enum broker_turned turns(struct rig *r)
{
	enum broker_turned s = BROKER_SERVING;

	for (int i = 0; i < 8 && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	return s;
}

static void test_where_memory_is_wanted(void **state)
{
	struct rig *r = *state;
	int peer, fd = lingering_new(&peer);

	rig_add(r);
	rig_refused(r, (struct rig_ask){LINK_WRITE, LINK_FILE_BOOTSTRAP, 0, &rig_pod, fd}, EINVAL,
	    "no memfd");
	close(peer); /* this copy of ours is not to wait either */
	close(fd);
	fd = lingering_new(&peer);
	send_with(r, LINK_WRITE, &fd, 1);
	assert_int_equal(turns(r), BROKER_SERVING);
	close(peer);
}

static void test_where_none_is_wanted(void **state)
{
	struct rig *r = *state;
	int peers[64], fds[64];

	for (int i = 0; i < 64; i++)
		fds[i] = lingering_new(&peers[i]);
	send_with(r, LINK_UNFOLLOW, fds, 64);
	assert_int_equal(turns(r), BROKER_WORKER_BROKE);
	for (int i = 0; i < 64; i++)
		close(peers[i]);
}

/* It leaves before anybody reads what it sent. */
static void test_in_the_workers_last_words(void **state)
{
	struct rig *r = *state;
	int peer, fd = lingering_new(&peer);

	rig_send(r, "x", 1, NULL, 0); /* breaks the protocol: nothing after it is read */
	send_with(r, LINK_WRITE, &fd, 1);
	assert_int_equal(turns(r), BROKER_WORKER_BROKE);
	rig_stop(r);
	rig_start(r);
	close(peer);
}

static void test_inside_of_a_stream(void **state)
{
	struct rig *r = *state;
	int peer, fd = lingering_new(&peer), pair[2];

	rig_add(r);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(lingering_send(pair[0], fd), 1);
	close(fd);
	send_with(r, LINK_CALLER, &pair[1], 1);
	assert_int_equal(turns(r), BROKER_SERVING);
	close(pair[0]);
	close(peer);
}

/* By a pod: nobody has accepted it yet when the pod goes.  From Linux 6.16 on it is refused. */
static void test_in_a_backlog(void **state)
{
	struct rig *r = *state;
	int peer, fd = lingering_new(&peer);

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	int c = rig_connect(rig_mount(r, "socket"));
	ssize_t n = lingering_send(c, fd);
	const int none = 0;
	bool refused = !setsockopt(c, SOL_SOCKET, 83 /* SO_PASSRIGHTS */, &none, sizeof(none));
	assert_int_equal(n, refused ? -1 : 1);
	close(c);
	if (n < 0)
		close(peer);
	close(fd);
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	if (n > 0)
		close(peer);
}

/* An older agentd made the listener. */
static void test_in_a_kept_backlog(void **state)
{
	struct broker_fdstore *k = broker_fdstore_new();
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int peer, fd = lingering_new(&peer), l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	alarm(PATIENCE_S);
	snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "apart_test.%d", getpid());
	assert_int_equal(bind(l, (struct sockaddr *)&at, sizeof(at)) | listen(l, 1), 0);
	int c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(c, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(lingering_send(c, fd), 1);
	close(c);
	close(fd);
	broker_fdstore_found(k, "left.sds", l);
	assert_int_equal(broker_fdstore_sweep(k), 1);
	broker_fdstore_free(&k);
	children_end(); /* the signal ends its sleep */
	close(peer);
	alarm(0);
}

/* More than can be closed is said to who serves the worker; what is memory needs nobody. */
static void test_there_is_a_limit(void **state)
{
	int sent = 0, peers[400];

	(void)state;
	alarm(PATIENCE_S);
	for (int i = 0; i < 1000; i++)
		assert_true(apart_close(memfd_create("m", MFD_CLOEXEC)));
	assert_true(apart_close(-1));
	assert_int_equal(waitpid(-1, NULL, 0), -1);
	while (sent < 400 && apart_close(lingering_new(&peers[sent++])))
		;
	assert_int_equal(sent, 257);
	int unknown = 0;
	for (pid_t pid; (pid = waitpid(-1, NULL, 0)) > 0;)
		unknown += !apart_reaped(pid);
	assert_int_equal(unknown, 1);
	assert_false(apart_reaped(0));
	while (sent)
		close(peers[--sent]);
	int last = dup(STDERR_FILENO);
	assert_true(apart_close(last));
	children_end();
	assert_int_equal(fcntl(last, F_GETFD), -1); /* closed for us as well */
	alarm(0);
}

/* On a starved machine children end late: a worker that sends descriptors is read later, too. */
static void test_who_is_ahead_of_it_waits(void **state)
{
	struct rig *r = *state;
	int n = 0, fd = dup(STDERR_FILENO);

	rig_add(r);
	for (; !apart_is_busy(); n++)
		rig_refused(r, (struct rig_ask){LINK_WRITE, LINK_FILE_BOOTSTRAP, 0, &rig_pod, fd},
		    EINVAL, "no memfd");
	assert_int_equal(n, 128);
	rig_request(r, (struct rig_ask){LINK_WRITE, LINK_FILE_BOOTSTRAP, 0, &rig_pod, fd});
	close(fd);
	rig_quiet(r);
	children_end();
	broker_reaped(r->b);
	struct link_packet p = rig_expect(r, LINK_REPLY, NULL);
	assert_non_null(strstr(p.why, "no memfd"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
	    T(test_where_memory_is_wanted),
	    T(test_where_none_is_wanted),
	    T(test_in_the_workers_last_words),
	    T(test_inside_of_a_stream),
	    T(test_in_a_backlog),
	    cmocka_unit_test(test_in_a_kept_backlog),
	    T(test_who_is_ahead_of_it_waits),
	    cmocka_unit_test(test_there_is_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
