/* kept_test.c - a disk that takes its time to give a kept certificate: the broker answers others,
 * says so, and tells the content when it comes.
 *
 * A lease on a file makes whoever opens it wait, as a disk would, until it is given back
 * (fcntl(2)).
 * LINK: tests/unit/broker/rig.c tests/fake/apart.c tests/fake/clock.c
 */
#include "border/protocol.h"
#include "common/mem.h"
#include "tests/fake/clock.h"
#include "tests/unit/broker/rig.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

enum { LATE_S = 3 };

static const struct rig_ask kept = {.op = LINK_FOLLOW, .kind = LINK_FOLLOW_KEPT, .pod = &rig_pod};

/* The timer after which a disk is late, as it was set: it is not, before a test lets it. */
static struct {
	int fd;
	struct itimerspec at;
} late;

int timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *old)
{
	if (at->it_value.tv_sec == LATE_S) {
		late.fd = fd;
		late.at = *at;
		return 0;
	}
	return (int)syscall(SYS_timerfd_settime, fd, flags, at, old);
}

static void let_it_be_late(void)
{
	fake_clock_pass_ms(LATE_S * 1000);
	assert_int_equal(syscall(SYS_timerfd_settime, late.fd, 0, &late.at, NULL), 0);
}

/* The next packet, whenever it comes. */
static struct link_packet wait_packet(struct rig *r, int *fd)
{
	struct link_packet p;
	int none;

	while (!rig_next(r, &p, fd ? fd : &none))
		broker_turn(r->b, 1000);
	return p;
}

static void kill_the_child(void)
{
	char path[64];
	FILE *f;
	int pid, last = 0;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	assert_non_null(f = fopen(path, "r"));
	while (fscanf(f, "%d", &pid) == 1)
		last = pid; /* those before it have ended */
	fclose(f);
	assert_int_equal(kill(last, SIGKILL), 0);
}

static const char *path_of(const struct rig *r, const struct uuid *pod)
{
	char text[UUID_TEXT_SIZE];

	uuid_format(pod, text);
	return rig_at(r, "lib/identity/%s.pem", text);
}

/* Whoever opens the file waits, until this is closed. */
static int hold(const struct rig *r, const struct uuid *pod, const char *text)
{
	int fd;

	rig_shell("mkdir -p -m 700 %s", r->identities);
	rig_file(path_of(r, pod), text);
	assert_int_equal(chmod(path_of(r, pod), 0600), 0);
	fd = open(path_of(r, pod), O_RDWR | O_CLOEXEC);
	assert_int_equal(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
	return fd;
}

static void add(struct rig *r, const struct uuid *pod)
{
	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = pod});
}

static void expect_content(struct rig *r, uint32_t id, const char *text)
{
	char got[16] = "";
	int fd = -1;
	struct link_packet p = wait_packet(r, &fd);

	assert_int_equal(p.what, LINK_FILE);
	assert_int_equal(p.id, id);
	assert_int_equal(p.state, LINK_FILE_CONTENT);
	assert_true(pread(fd, got, sizeof(got) - 1, 0) > 0);
	close(fd);
	assert_string_equal(got, text);
}

static void test_others_are_answered_meanwhile(void **state)
{
	struct rig *r = *state;
	int disk = hold(r, &rig_pod, "one");
	struct link_packet p;

	add(r, &rig_pod);
	rig_do(r, kept);
	uint32_t id = r->id;
	rig_do(r, (struct rig_ask){.op = LINK_HOLDS, .pod = &rig_pod, .arg = 1});
	rig_refused(r, kept, EEXIST, "followed already");
	broker_ping(r->b, 1);
	assert_string_equal(rig_expect(r, LINK_PING, NULL).why, "");
	let_it_be_late();
	p = wait_packet(r, NULL);
	assert_int_equal(p.id, id);
	assert_int_equal(p.state, LINK_FILE_REFUSED);
	assert_non_null(strstr(p.why, "lib/identity does not answer"));
	broker_ping(r->b, 2);
	assert_non_null(strstr(rig_expect(r, LINK_PING, NULL).why, "has not answered for "));
	close(disk);
	expect_content(r, id, "one");
	broker_ping(r->b, 3);
	assert_string_equal(rig_expect(r, LINK_PING, NULL).why, "");
	rig_quiet(r);
}

/* A disk that hangs holds four of our children, whatever the worker asks for. */
static void test_few_are_read_at_once(void **state)
{
	struct rig *r = *state;
	struct uuid pods[5] = {{{0}}};
	uint32_t ids[5];
	int disk[5];

	for (uint8_t i = 0; i < 5; i++) {
		pods[i].bytes[0] = i + 1;
		disk[i] = hold(r, &pods[i], "x");
		add(r, &pods[i]);
		rig_do(r, (struct rig_ask){LINK_FOLLOW, LINK_FOLLOW_KEPT, 0, &pods[i], 0});
		ids[i] = r->id;
	}
	close(disk[4]);
	rig_quiet(r); /* nobody has asked for it yet */
	rig_do(r, (struct rig_ask){.op = LINK_UNFOLLOW, .arg = ids[0]});
	close(disk[0]);
	expect_content(r, ids[4], "x"); /* and not what nobody follows any more */
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &pods[1]});
	close(disk[1]);
	close(disk[2]);
	expect_content(r, ids[2], "x");
	close(disk[3]);
	expect_content(r, ids[3], "x");
	rig_quiet(r);
}

/* What a child saw may be of before the write. */
static void test_a_write_while_it_is_read(void **state)
{
	struct rig *r = *state;
	int disk = hold(r, &rig_pod, "one"), fd = rig_memfd("two", 3, RIG_SEALS);
	struct link_packet p;

	rig_shell("mkdir -p %s", r->manifests);
	rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), "uid: x\n");
	add(r, &rig_pod);
	rig_do(r, kept);
	uint32_t id = r->id;
	while (fcntl(disk, F_GETLEASE) == F_WRLCK)
		usleep(1000); /* until somebody reads it */
	uint32_t put =
	    rig_request(r, (struct rig_ask){.op = LINK_IDENTITY_PUT, .pod = &rig_pod, .fd = fd});
	p = wait_packet(r, NULL);
	assert_int_equal(p.id, put);
	assert_int_equal(p.code, 0);
	close(disk);
	expect_content(r, id, "one");
	expect_content(r, id, "two");
	rig_quiet(r);
	close(fd);
}

static void test_a_child_that_was_killed(void **state)
{
	struct rig *r = *state;
	int disk = hold(r, &rig_pod, "one");
	struct link_packet p;

	add(r, &rig_pod);
	rig_do(r, kept);
	kill_the_child();
	p = wait_packet(r, NULL);
	assert_int_equal(p.state, LINK_FILE_REFUSED);
	assert_non_null(strstr(p.why, "was killed"));
	close(disk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_others_are_answered_meanwhile),
	    T(test_few_are_read_at_once),
	    T(test_a_write_while_it_is_read),
	    T(test_a_child_that_was_killed),
	};

	signal(SIGIO, SIG_IGN); /* somebody waits for a lease */
	fake_clock_stop();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
