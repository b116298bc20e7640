/* identity_test.c - keys that outlive a reboot: in place in full or not at all, of manifests' pods,
 * few, small, and nobody's to read.
 *
 * LINK: tests/unit/broker/rig.c tests/fake/apart.c
 */
#include "border/protocol.h"
#include "common/mem.h"
#include "tests/unit/broker/rig.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

static void manifest(struct rig *r)
{
	rig_shell("mkdir -p %s", r->manifests);
	rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), "uid: x\n");
}

/* The next packet, whenever it comes. */
static struct link_packet wait_packet(struct rig *r, int *fd)
{
	struct link_packet p;

	while (!rig_next(r, &p, fd))
		broker_turn(r->b, 1000);
	return p;
}

static struct link_packet put(struct rig *r, const char *text)
{
	int fd = rig_memfd(text, strlen(text), RIG_SEALS), none;
	uint32_t id =
	    rig_request(r, (struct rig_ask){.op = LINK_IDENTITY_PUT, .pod = &rig_pod, .fd = fd});
	struct link_packet p = wait_packet(r, &none);

	close(fd);
	assert_int_equal(p.what, LINK_REPLY);
	assert_int_equal(p.id, id);
	return p;
}

static void refuse(struct rig *r, const char *text, int code, const char *why)
{
	struct link_packet p = put(r, text);

	assert_int_equal(p.code, code);
	if (!strstr(p.why, why))
		fail_msg("\"%s\" lacks \"%s\"", p.why, why);
}

/* What follows it is told of it, before the answer or after it. */
static void keep_followed(struct rig *r, const char *text)
{
	int fd = rig_memfd(text, strlen(text), RIG_SEALS), got;
	bool replied = false, told = false;
	char content[16] = "";

	rig_request(r, (struct rig_ask){.op = LINK_IDENTITY_PUT, .pod = &rig_pod, .fd = fd});
	while (!replied || !told) {
		struct link_packet p = wait_packet(r, &got);

		assert_int_equal(p.code, 0);
		replied |= p.what == LINK_REPLY;
		told |= p.what == LINK_FILE;
		if (p.what != LINK_FILE)
			continue;
		assert_true(pread(got, content, sizeof(content) - 1, 0) > 0);
		close(got);
		assert_string_equal(content, text);
	}
	close(fd);
}

static void is_kept(struct rig *r, const char *expected)
{
	const char *path = rig_at(r, "lib/identity/%s.pem", rig_pod_text);
	char text[100] = "";
	struct stat st;
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
	fclose(f);
	assert_string_equal(text, expected);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_an_identity_is_kept_and_told(void **state)
{
	struct rig *r = *state;
	uint32_t id;
	int none;

	manifest(r);
	rig_add(r);
	id = rig_request(
	    r, (struct rig_ask){.op = LINK_FOLLOW, .kind = LINK_FOLLOW_KEPT, .pod = &rig_pod});
	rig_expect(r, LINK_REPLY, NULL);
	assert_int_equal(wait_packet(r, &none).state, LINK_FILE_REMOVED);
	keep_followed(r, "one");
	is_kept(r, "one");
	rig_file(rig_at(r, "lib/identity/.%s.pem.new", rig_pod_text), "left over by a death");
	keep_followed(r, "two");
	is_kept(r, "two");
	assert_int_equal(access(rig_at(r, "lib/identity/.%s.pem.new", rig_pod_text), F_OK), -1);
	rig_do(r, (struct rig_ask){.op = LINK_UNFOLLOW, .arg = id});
}

static void test_identities_are_of_manifests_and_small(void **state)
{
	struct rig *r = *state;
	auto_free char *large = mem_zalloc((64 << 10) + 2);

	rig_add(r);
	refuse(r, "one", EPERM, "no manifest");
	manifest(r);
	memset(large, 'x', (64 << 10) + 1);
	refuse(r, large, EFBIG, "larger than 64 KiB");
	refuse(r, "", EFBIG, "empty");
	rig_shell("mkdir -p %s && chmod 777 %s", r->identities, r->identities);
	refuse(r, "one", EPERM, "not root's alone");
}

/* A writer waits, as for a disk that hangs, until this is closed. */
static int hold_the_disk(const struct rig *r)
{
	int dir;

	rig_shell("mkdir -p -m 700 %s", r->identities);
	dir = open(r->identities, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(dir, LOCK_EX), 0);
	return dir;
}

/* Others are answered meanwhile; the answer comes when the disk has it. */
static void test_a_disk_that_takes_its_time(void **state)
{
	struct rig *r = *state;
	int fd = rig_memfd("one", 3, RIG_SEALS), dir = hold_the_disk(r);
	const struct rig_ask ask = {.op = LINK_IDENTITY_PUT, .pod = &rig_pod, .fd = fd};
	struct link_packet p;
	uint32_t id;
	int none;

	manifest(r);
	rig_add(r);
	id = rig_request(r, ask);
	rig_do(r, (struct rig_ask){.op = LINK_HOLDS, .pod = &rig_pod, .arg = 1});
	rig_refused(r, ask, EAGAIN, "being written");
	assert_int_equal(access(rig_at(r, "lib/identity/%s.pem", rig_pod_text), F_OK), -1);
	close(dir);
	p = wait_packet(r, &none);
	assert_int_equal(p.id, id);
	assert_int_equal(p.code, 0);
	is_kept(r, "one");
	close(fd);
}

/* Its worker has gone: it is done all the same, and another worker hears nothing of it. */
static void test_the_last_word_of_a_worker_is_kept(void **state)
{
	struct rig *r = *state;
	int fd = rig_memfd("one", 3, RIG_SEALS), dir = hold_the_disk(r);

	manifest(r);
	rig_add(r);
	rig_request(r, (struct rig_ask){.op = LINK_IDENTITY_PUT, .pod = &rig_pod, .fd = fd});
	close(r->fd);
	rig_attach(r);
	for (int n = rig_expect(r, LINK_HELLO, NULL).kind, of_node; n-- > 0; close(of_node))
		rig_expect(r, LINK_NODE_LISTENER, &of_node);
	rig_add(r);
	close(dir);
	while (access(rig_at(r, "lib/identity/%s.pem", rig_pod_text), F_OK))
		broker_turn(r->b, 10);
	rig_quiet(r);
	is_kept(r, "one");
	close(fd);
}

/* A child each is not for nothing: four at once. */
static void test_few_are_written_at_once(void **state)
{
	struct rig *r = *state;
	int fd = rig_memfd("one", 3, RIG_SEALS), dir = hold_the_disk(r), none;
	struct uuid pods[5] = {{{0}}};
	struct link_packet p;
	char text[UUID_TEXT_SIZE];

	rig_shell("mkdir -p %s", r->manifests);
	for (uint8_t i = 0; i < 5; i++) {
		pods[i].bytes[0] = i + 1;
		uuid_format(&pods[i], text);
		rig_file(rig_at(r, "pods.d/%s.yaml", text), "uid: x\n");
		rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &pods[i]});
		rig_request(
		    r, (struct rig_ask){.op = LINK_IDENTITY_PUT, .pod = &pods[i], .fd = fd});
	}
	p = wait_packet(r, &none);
	assert_int_equal(p.code, EAGAIN);
	close(dir);
	for (int i = 0; i < 4; i++)
		assert_int_equal(wait_packet(r, &none).code, 0);
	rig_quiet(r);
	close(fd);
}

static void test_a_readable_key_is_refused(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_add(r);
	rig_shell("mkdir -p %s/%s", r->manifests, rig_pod_text);
	rig_file(rig_at(r, "pods.d/%s/key.pem", rig_pod_text), "key");
	rig_shell("chmod 640 %s/%s/key.pem", r->manifests, rig_pod_text);
	id = rig_request(
	    r, (struct rig_ask){.op = LINK_FOLLOW, .kind = LINK_FOLLOW_KEY, .pod = &rig_pod});
	rig_expect(r, LINK_REPLY, NULL);
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "others than root can read");
	rig_shell("chmod 600 %s/%s/key.pem", r->manifests, rig_pod_text);
	rig_expect_content(r, id, "", "key");
	rig_shell(
	    "cd %s/%s && rm key.pem && ln -s /etc/hostname key.pem", r->manifests, rig_pod_text);
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "symbolic link");
	rig_shell("cd %s/%s && rm key.pem && mkdir key.pem", r->manifests, rig_pod_text);
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "not a regular file");
	rig_do(r, (struct rig_ask){.op = LINK_UNFOLLOW, .arg = id});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_an_identity_is_kept_and_told),
	    T(test_identities_are_of_manifests_and_small),
	    T(test_a_disk_that_takes_its_time),
	    T(test_the_last_word_of_a_worker_is_kept),
	    T(test_few_are_written_at_once),
	    T(test_a_readable_key_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
