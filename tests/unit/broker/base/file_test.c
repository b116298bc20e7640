/* file_test.c - which files are read: root's own, that nobody else writes, through no link but a
 * volume's `..data`.
 * LINK: tests/unit/broker/rig.c */
#include "broker/base/file.h"
#include "tests/unit/broker/rig.h"

static char top[32], path[64], certs[64];
static uint64_t digest; /* of the last look */

static int setup(void **state)
{
	(void)state;
	strcpy(top, "/tmp/bfXXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(certs, sizeof(certs), "%s/certs", top);
	snprintf(path, sizeof(path), "%s/root.pem", certs);
	return mkdir(certs, 0700);
}

static int teardown(void **state)
{
	(void)state;
	rig_shell("rm -rf %s", top);
	return 0;
}

static void content(const char *text)
{
	struct broker_content c;
	char got[64] = "";

	broker_file_read_path(path, &c);
	if (c.state != LINK_FILE_CONTENT)
		fail_msg("%s", c.why.msg);
	assert_true(pread(c.fd, got, sizeof(got) - 1, 0) >= 0);
	assert_string_equal(got, text);
	close(c.fd);
	digest = c.digest;
}

static void refused(const char *why)
{
	struct broker_content c;

	broker_file_read_path(path, &c);
	assert_int_equal(c.state, LINK_FILE_REFUSED);
	assert_int_equal(c.fd, -1);
	if (!strstr(c.why.msg, why))
		fail_msg("\"%s\" lacks \"%s\"", c.why.msg, why);
	digest = c.digest;
}

/* The same reason is no news. */
static void refused_again(const char *why)
{
	uint64_t before = digest;

	refused(why);
	assert_int_equal(digest, before);
}

static void test_what_is_no_trustworthy_file_is_refused(void **state)
{
	char outside[64];

	(void)state;
	snprintf(outside, sizeof(outside), "%s/outside", top);
	rig_file(outside, "secret of another");
	rig_file(path, "good");
	content("good");

	assert_int_equal(chown(path, 12345, 0), 0);
	refused("belongs to uid 12345");
	assert_int_equal(chown(path, 0, 12345), 0);
	content("good");
	assert_int_equal(chmod(path, 0664), 0);
	refused("writable by others");
	assert_int_equal(chmod(path, 0602), 0);
	refused_again("writable by others");
	assert_int_equal(chmod(path, 0600), 0);
	content("good");

	assert_int_equal(unlink(path) | symlink(outside, path), 0);
	refused("symbolic link");
	assert_int_equal(unlink(path) | mkfifo(path, 0600), 0);
	refused("not a regular file");
	assert_int_equal(unlink(path) | mkdir(path, 0700), 0);
	refused_again("not a regular file");
	assert_int_equal(rmdir(path) | mknod(path, S_IFCHR | 0600, 0x0105), 0); /* /dev/zero */
	refused_again("not a regular file");
	assert_int_equal(unlink(path), 0);
	rig_file(path, "good again");
	content("good again");
}

/* `..data` may lead to a directory beside it and nowhere else; what is in it is checked as ever. */
static void test_data_link_leads_nowhere_else(void **state)
{
	(void)state;
	rig_shell("cd %s && mkdir other && echo -n theirs > other/root.pem && "
		  "ln -s ../other certs/..data && ln -s ..data/root.pem certs/root.pem",
	    top);
	refused("symbolic link");
	rig_shell("ln -sfn %s/other %s/..data", top, certs);
	refused_again("symbolic link");
	rig_shell(
	    "cd %s && mkdir ..v1 && ln -s /etc/passwd ..v1/root.pem && ln -sfn ..v1 ..data", certs);
	refused_again("symbolic link"); /* a link again */
	rig_shell("cd %s && ln -s ..v1 ..v2 && rm ..v1/root.pem && echo -n x > ..v1/root.pem && "
		  "ln -sfn ..v2 ..data",
	    certs);
	refused_again("symbolic link"); /* to a link to a directory */
	rig_shell("cd %s && ln -sfn ..v1 ..data_tmp && mv -T ..data_tmp ..data", certs);
	content("x");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(test_what_is_no_trustworthy_file_is_refused),
	    T(test_data_link_leads_nowhere_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
