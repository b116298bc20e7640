/* identity_test.c - keys that outlive a reboot: in place in full or not at all, of manifests' pods,
 * few, small, and nobody's to read.
 *
 * LINK: tests/unit/broker/rig.c tests/fake/apart.c
 */
#include "common/mem.h"
#include "common/protocol.h"
#include "tests/unit/broker/rig.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>

static void manifest(struct rig *r)
{
	rig_shell("mkdir -p %s", r->manifests);
	rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), "uid: x\n");
}

static void keep(struct rig *r, const char *text, int code, const char *why)
{
	int fd = rig_memfd(text, strlen(text), RIG_SEALS);
	struct rig_ask a = {.op = LINK_IDENTITY_PUT, .pod = &rig_pod, .fd = fd};

	if (why)
		rig_refused(r, a, code, why);
	else
		rig_do(r, a);
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

	manifest(r);
	rig_add(r);
	id = rig_request(
	    r, (struct rig_ask){.op = LINK_FOLLOW, .kind = LINK_FOLLOW_KEPT, .pod = &rig_pod});
	rig_expect(r, LINK_REPLY, NULL);
	rig_expect_state(r, id, "", LINK_FILE_REMOVED, "not there");
	keep(r, "one", 0, NULL);
	is_kept(r, "one");
	rig_expect_content(r, id, "", "one");
	rig_file(rig_at(r, "lib/identity/.%s.pem.new", rig_pod_text), "left over by a death");
	keep(r, "two", 0, NULL);
	is_kept(r, "two");
	rig_expect_content(r, id, "", "two");
	assert_int_equal(access(rig_at(r, "lib/identity/.%s.pem.new", rig_pod_text), F_OK), -1);
	rig_do(r, (struct rig_ask){.op = LINK_UNFOLLOW, .arg = id});
}

static void test_identities_are_of_manifests_and_small(void **state)
{
	struct rig *r = *state;
	auto_free char *large = mem_zalloc((64 << 10) + 2);

	rig_add(r);
	keep(r, "one", EPERM, "no manifest");
	manifest(r);
	memset(large, 'x', (64 << 10) + 1);
	keep(r, large, EFBIG, "larger than 64 KiB");
	keep(r, "", EFBIG, "empty");
	rig_shell("mkdir -p %s && chmod 777 %s", r->identities, r->identities);
	keep(r, "one", EPERM, "not root's alone");
}

/* The disk is waited for each time. */
static void test_identities_are_written_at_a_pace(void **state)
{
	struct rig *r = *state;
	int fd = rig_memfd("one", 3, RIG_SEALS), refused = 0;
	struct link_packet p;

	manifest(r);
	rig_add(r);
	for (int i = 0; i < 16; i++) {
		p = rig_ask(
		    r, (struct rig_ask){.op = LINK_IDENTITY_PUT, .pod = &rig_pod, .fd = fd}, NULL);
		refused += p.code == EAGAIN;
	}
	assert_true(refused >= 16 - 2 * 4); /* within two seconds */
	is_kept(r, "one");
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
	    T(test_identities_are_written_at_a_pace),
	    T(test_a_readable_key_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
