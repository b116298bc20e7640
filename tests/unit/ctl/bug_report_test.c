/* bug_report_test.c - secrets that somebody planted in an answer are not in the archive.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/show.c agentd/ctl/tar.c agentd/ctl/bug_report.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"
#include "common/mem.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define JWT "eyJhbGciOiJub25lIn0.eyJzdWIiOiJwbGFudGVkIn0.c2lnbmF0dXJl"
#define KEY "-----BEGIN EC PRIVATE KEY-----\\nMHcCAQEEIplanted\\n-----END EC PRIVATE KEY-----"

static char folder[] = "/tmp/reportXXXXXX", file[64];

static int setup(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(file, sizeof(file), "%s/report.tar", folder);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(file);
	return rmdir(folder);
}

/* All of its bytes; what is no text is a dot. */
static char *read_report(size_t *size)
{
	FILE *f = fopen(file, "re");
	char *text = mem_zalloc(1 << 20);

	assert_non_null(f);
	*size = fread(text, 1, (1 << 20) - 1, f);
	fclose(f);
	for (size_t i = 0; i < *size; i++)
		if (!text[i])
			text[i] = '.';
	return text;
}

static void planted_secrets_are_crossed_out(void **state)
{
	static const char *const planted[] = {
	    JWT, "eyJ", "c2lnbmF0dXJl", "planted", "PRIVATE KEY", "c2V", "hidden"};
	const struct printed *p;
	auto_free char *text = NULL;
	size_t size;
	struct stat st;

	(void)state;
	canned_answer(
	    "{\"why\":\"SECRET_TTL: \\\"" JWT "\\\" must be\",\"" JWT "\":1,"
	    "\"keys\":[\"" KEY "\",\"a" KEY "b\"],"
	    "\"bearer\":\"Bearer eyJhIjoxfQ.c2V\",\"cut\":\"-----BEGIN PRIVATE KEY-----planted\","
	    "\"path\":\"/healthz?key=hidden\",\"two\":\"GET /a?hidden HTTP, /b?x=hidden\","
	    "\"refusal\":\"A: \\\"hidden\\\" and \\\"hidden\\\" refused; allowed: 1\","
	    "\"why not\":\"C: \\\"shown\\\"\",\"last\":\"kept\"}",
	    0);
	p = run_command(&ctl_bug_report, file, false);
	assert_int_equal(p->status, CTL_OK);
	assert_string_equal(p->err, "");
	text = read_report(&size);
	for (size_t i = 0; i < sizeof(planted) / sizeof(*planted); i++)
		if (strstr(text, planted[i]))
			fail_msg("%s is there", planted[i]);
	assert_non_null(strstr(text, "SECRET_TTL: "));
	assert_non_null(strstr(text, "/healthz?"));
	assert_non_null(strstr(text, "refused; allowed: "));
	assert_non_null(strstr(text, "shown"));
	assert_non_null(strstr(text, "\"last\": \"kept\""));
	assert_non_null(strstr(text, "agentd/pods.json"));
	assert_non_null(strstr(text, "agentd/machine.txt"));
	assert_int_equal(size % 512, 0);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void what_is_there_is_not_overwritten(void **state)
{
	(void)state;
	canned_answer("{}", 0);
	assert_int_equal(run_command(&ctl_bug_report, file, false)->status, CTL_OK);
	assert_int_equal(run_command(&ctl_bug_report, file, false)->status, CTL_USAGE);
	assert_int_equal(run_command(&ctl_bug_report, "/nonexistent/x", false)->status, CTL_USAGE);
}

static void without_agentd_there_is_no_report(void **state)
{
	(void)state;
	canned_answer(NULL, CTL_UNREACHABLE);
	assert_int_equal(run_command(&ctl_bug_report, file, false)->status, CTL_UNREACHABLE);
	assert_int_equal(access(file, F_OK), -1);
}

static int forget(void **state)
{
	(void)state;
	unlink(file);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(planted_secrets_are_crossed_out, forget),
	    cmocka_unit_test_teardown(what_is_there_is_not_overwritten, forget),
	    cmocka_unit_test_teardown(without_agentd_there_is_no_report, forget),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
