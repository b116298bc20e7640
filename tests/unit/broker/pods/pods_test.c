/* pods_test.c - the table of pods, by a real broker: what is swept when a worker is ready, what is
 * adopted of a dead broker, and how often a worker may break what it serves.
 * LINK: tests/unit/broker/rig.c */
#include "common/err.h"
#include "tests/unit/broker/rig.h"

static bool has_directory(struct rig *r, const char *uid)
{
	return !access(rig_at(r, "run/pods/%s", uid), F_OK);
}

static const char other_text[] = "09080700-0000-0000-0000-000000000000",
		  third_text[] = "11111111-1111-1111-1111-111111111111";

static void test_ready_sweeps_what_was_not_added(void **state)
{
	struct rig *r = *state;

	rig_shell("mkdir -p %s %s %s", rig_at(r, "pods.d"),
	    rig_at(r, "run/pods/%s/mount", third_text),
	    rig_at(r, "run/pods/README")); /* an earlier broker's, and somebody's */
	rig_file(rig_at(r, "run/pods/%s/mount/XDS", third_text), "");
	rig_add(r);
	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_other});
	close(rig_listen(r, &rig_other, LINK_LISTEN_SDS));
	rig_next_worker(r);
	rig_add(r);
	assert_true(has_directory(r, other_text) && has_directory(r, third_text));
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_true(has_directory(r, rig_pod_text) && has_directory(r, "README"));
	assert_false(has_directory(r, other_text) || has_directory(r, third_text));
	rig_refused(r, (struct rig_ask){LINK_LISTEN, LINK_LISTEN_SDS, 0, &rig_other, 0}, ENOENT,
	    "not added");
}

/* A manifest that is refused now belongs to a running pod all the same; without the directory of
 * the manifests nobody can say anything. */
static void test_ready_leaves_what_has_a_manifest(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	rig_next_worker(r);
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_true(has_directory(r, rig_pod_text));
	rig_next_worker(r);
	rig_shell("mkdir -p %s", rig_at(r, "pods.d"));
	rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), "?");
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_true(has_directory(r, rig_pod_text));
	int c = rig_connect(rig_mount(r, "socket"));
	assert_true(c >= 0);
	close(c);
	rig_next_worker(r);
	unlink(rig_at(r, "pods.d/%s.yaml", rig_pod_text));
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_false(has_directory(r, rig_pod_text));
}

/* The next broker on the run directory of a dead one: same directories, sockets renamed over. */
static void test_directories_of_a_dead_broker_are_adopted(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	ino_t dir = rig_stat(rig_mount(r, "")).st_ino,
	      sock = rig_stat(rig_mount(r, "socket")).st_ino;
	rig_stop(r);
	assert_int_equal(rig_connect(rig_mount(r, "socket")), -1);
	assert_int_equal(errno, ECONNREFUSED);
	rig_file(rig_mount(r, ".socket.new"), "it died while it made one");
	rig_start(r);
	rig_add(r);
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	assert_int_equal(rig_stat(rig_mount(r, "")).st_ino, dir); /* it is mounted into a pod */
	assert_int_not_equal(rig_stat(rig_mount(r, "socket")).st_ino, sock);
	assert_true(rig_reaches(rig_mount(r, "socket"), l));
	close(l);
}

/* It shuts a listener down: no worker of ours does that at all. */
static void test_a_worker_that_keeps_breaking_a_socket_is_killed(void **state)
{
	struct rig *r = *state;
	enum broker_turned s = BROKER_SERVING;
	int told;

	rig_add(r);
	told = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	for (int i = 0; i < 32; i++) {
		shutdown(told, SHUT_RDWR);
		close(told);
		rig_expect(r, LINK_LISTENER, &told);
	}
	shutdown(told, SHUT_RDWR);
	close(told);
	for (int i = 0; i < RIG_TURNS && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_WORKER_BROKE);
	close(rig_connect(rig_mount(r, "socket"))); /* for the next one */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_ready_sweeps_what_was_not_added),
	    T(test_ready_leaves_what_has_a_manifest),
	    T(test_directories_of_a_dead_broker_are_adopted),
	    T(test_a_worker_that_keeps_breaking_a_socket_is_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
