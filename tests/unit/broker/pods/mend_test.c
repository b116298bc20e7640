/* mend_test.c - what somebody removed of a pod's directory, put back by a real broker.
 * LINK: tests/unit/broker/rig.c */
#include "common/err.h"
#include "tests/unit/broker/rig.h"

static void put_file(struct rig *r, unsigned kind, const char *text)
{
	int fd = rig_memfd(text, strlen(text), RIG_SEALS);

	rig_do(r, (struct rig_ask){.op = LINK_WRITE, .kind = kind, .pod = &rig_pod, .fd = fd});
	close(fd);
}

/* The next thing that the broker says unasked; it looks a tenth of a second after a notice. */
static struct link_packet said(struct rig *r, enum link_what what, int *fd)
{
	struct link_packet p = {.what = 0};

	*fd = -1;
	for (int i = 0; i < 300 && !rig_receive(r, MSG_DONTWAIT, &p, fd); i++)
		assert_int_equal(broker_turn(r->b, 100), BROKER_SERVING);
	assert_int_equal(p.what, what);
	return p;
}

static void test_a_socket_that_was_removed_is_put_back(void **state)
{
	struct rig *r = *state;
	struct link_packet p;
	int fd;

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	close(rig_listen(r, &rig_pod, LINK_LISTEN_XDS));
	assert_int_equal(unlink(rig_mount(r, "XDS")), 0);
	p = said(r, LINK_LISTENER, &fd);
	assert_int_equal(p.kind, LINK_LISTEN_XDS);
	assert_true(uuid_equal(&p.uid, &rig_pod));
	close(rig_connect(rig_mount(r, "XDS")));
	close(fd);
	p = said(r, LINK_POD_NOTE, &fd);
	assert_int_equal(p.arg, 0);
	assert_int_equal(p.state, 1);
	rig_quiet(r); /* once, and the other one is as it was */
}

static void test_files_that_were_removed_are_asked_for(void **state)
{
	struct rig *r = *state;
	struct link_packet p;
	int fd;

	rig_add(r);
	put_file(r, LINK_FILE_BOOTSTRAP, "{}");
	assert_int_equal(unlink(rig_mount(r, "envoy-rev.json")), 0);
	p = said(r, LINK_POD_NOTE, &fd);
	assert_int_equal(p.arg, 1U << LINK_FILE_BOOTSTRAP); /* the other one was never written */
	assert_int_equal(p.state, 1);
	assert_int_equal(p.code, 0);
	rig_quiet(r);
	put_file(r, LINK_FILE_BOOTSTRAP, "{}");
	put_file(r, LINK_FILE_ROOT, "root");
	assert_int_equal(unlink(rig_mount(r, "root-cert.pem")), 0);
	p = said(r, LINK_POD_NOTE, &fd);
	assert_int_equal(p.arg, 1U << LINK_FILE_ROOT);
	assert_int_equal(p.state, 2);
}

static void test_a_directory_that_was_removed_is_made_again(void **state)
{
	struct rig *r = *state;
	struct link_packet p;
	int fd;

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	put_file(r, LINK_FILE_BOOTSTRAP, "{}");
	for (int i = 1; i <= 2; i++) { /* what was made again is watched again */
		rig_shell("rm -rf %s",
		    i == 1 ? rig_at(r, "run/pods/%s", rig_pod_text) : rig_at(r, "run/pods"));
		p = said(r, LINK_LISTENER, &fd);
		close(fd);
		p = said(r, LINK_POD_NOTE, &fd);
		assert_int_equal(p.arg, 1U << LINK_FILE_BOOTSTRAP);
		assert_int_equal(p.state, 4 * i); /* two directories, a socket, a file */
		assert_int_equal(rig_mode(rig_at(r, "run/pods")), 0700);
		assert_int_equal(rig_mode(rig_at(r, "run/pods/%s", rig_pod_text)), 0700);
		assert_int_equal(rig_mode(rig_mount(r, "")), 0755);
		close(rig_connect(rig_mount(r, "socket")));
		put_file(r, LINK_FILE_BOOTSTRAP, "{}");
	}
}

/* It is said why, once, until it can be. */
static void test_what_cannot_be_put_back_is_said(void **state)
{
	struct rig *r = *state;
	struct link_packet p;
	int fd;

	rig_shell("mount --bind %s/pods %s/pods", r->run, r->run);
	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	assert_int_equal(unlink(rig_mount(r, "socket")), 0);
	rig_shell("mount -o remount,bind,ro %s/pods", r->run);
	p = said(r, LINK_POD_NOTE, &fd);
	assert_int_equal(p.code, EROFS);
	assert_non_null(strstr(p.why, "socket"));
	rig_shell("mount -o remount,bind,rw %s/pods", r->run);
	p = said(r, LINK_LISTENER, &fd);
	close(fd);
	p = said(r, LINK_POD_NOTE, &fd);
	assert_int_equal(p.code, 0);
	close(rig_connect(rig_mount(r, "socket")));
	rig_shell("umount -l %s/pods", r->run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_a_socket_that_was_removed_is_put_back),
	    T(test_files_that_were_removed_are_asked_for),
	    T(test_a_directory_that_was_removed_is_made_again),
	    T(test_what_cannot_be_put_back_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
