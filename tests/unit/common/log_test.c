/* log_test.c - what arrives on fd 2.  It is a datagram socket here: one write is one datagram, so a
 * line in two writes would be seen.
 */
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"

LOG_SCOPE("sds");
static struct log_scope twin = {.name = "sds", .level = LOG_INFO};
static struct log_scope xds = {.name = "xds", .level = LOG_INFO};

static int captured = -1;
static int real_stderr = -1;
static char line[4096];

static int capture(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
	real_stderr = dup(STDERR_FILENO);
	dup2(pair[0], STDERR_FILENO);
	close(pair[0]);
	captured = pair[1];
	unsetenv("JOURNAL_STREAM");
	log_init(false);
	return log_set_levels("info", &(struct err){0});
}

static int release(void **state)
{
	(void)state;
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(captured);
	return 0;
}

/* The next line, without its end; NULL if nothing was written. */
static const char *next_line(void)
{
	ssize_t n = recv(captured, line, sizeof(line) - 1, MSG_DONTWAIT);

	if (n <= 0)
		return NULL;
	assert_int_equal(line[n - 1], '\n');
	line[n - 1] = '\0';
	assert_null(strchr(line, '\n'));
	return line;
}

static bool matches(const char *text, const char *pattern)
{
	regex_t re;

	assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
	bool yes = text && regexec(&re, text, 0, NULL, 0) == 0;
	regfree(&re);
	if (!yes)
		print_error("got: %s\n", text ? text : "(nothing)");
	return yes;
}

static void test_logfmt_line(void **state)
{
	(void)state;
	log_warn("demo/web-0", "NACK of %s: %s", "default", "why");
	assert_true(matches(next_line(),
	    "^time=20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z level=warn "
	    "scope=sds subject=demo/web-0 msg=\"NACK of default: why\"$"));
	assert_null(next_line());
	log_info(NULL, "ready");
	assert_true(matches(next_line(), "Z level=info scope=sds msg=ready$"));
	log_info(NULL, "%s", "");
	assert_true(matches(next_line(), "msg=\"\"$"));
}

static void test_quoting_and_escapes(void **state)
{
	(void)state;
	log_info("a=b", "x\n\"\\\x1b[2J\xff\xc0\xaf\t\xc3\xa9\x7f");
	assert_non_null(next_line());
	assert_non_null(strstr(line, "subject=\"a=b\""));
	assert_non_null(
	    strstr(line, "msg=\"x\\n\\\"\\\\\\u001b[2J\\xff\\xc0\\xaf\\u0009\xc3\xa9\\u007f\""));
	/* Right-to-left override and a C1 control: printable for a careless check. */
	log_info(NULL, "\xe2\x80\xae\xc2\x9b");
	assert_non_null(strstr(next_line(), "msg=\"\\u202e\\u009b\""));
	/* Surrogates, above U+10FFFF, cut short at the end. */
	log_info(NULL, "\xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82");
	assert_non_null(
	    strstr(next_line(), "msg=\"\\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xe2\\x82\""));
	log_info(NULL, "\xf0\x9f\x90\xa7"); /* a whole one needs no quotes */
	assert_non_null(strstr(next_line(), "msg=\xf0\x9f\x90\xa7"));
}

static const char *member(json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static void test_json_line(void **state)
{
	(void)state;
	log_init(true);
	log_error("demo/web-0", "a \"quoted\"\nline \xff");
	json_t *o = json_loads(next_line(), JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(o);
	assert_int_equal(json_object_size(o), 5);
	assert_string_equal(member(o, "level"), "error");
	assert_string_equal(member(o, "scope"), "sds");
	assert_string_equal(member(o, "subject"), "demo/web-0");
	assert_string_equal(member(o, "msg"), "a \"quoted\"\nline \xef\xbf\xbd");
	assert_true(matches(member(o, "time"), "^20.*Z$"));
	json_decref(o);
}

/* jansson refuses invalid UTF-8, broken escapes and cut objects. */
static void test_json_is_valid_whatever_comes(void **state)
{
	unsigned seed = 1;

	(void)state;
	log_init(true);
	for (int round = 0; round < 3000; round++) {
		char noise[2600];
		size_t n = (size_t)rand_r(&seed) % sizeof(noise);
		for (size_t i = 0; i < n; i++)
			noise[i] = (char)(rand_r(&seed) % 8 ? 128 + rand_r(&seed) % 128
							    : 1 + rand_r(&seed) % 127);
		noise[n ? n - 1 : 0] = '\0';
		log_info(round % 2 ? noise : NULL, "%s", noise);
		json_t *o = json_loads(next_line(), JSON_REJECT_DUPLICATES, NULL);
		assert_non_null(o);
		json_decref(o);
	}
}

static void check_cut(bool json)
{
	/* With every length near the limit the cut falls on each byte of an escape and a character.
	 */
	for (int n = 1900; n < 2100; n++) {
		char big[2200];
		for (int i = 0; i < n; i++)
			big[i] = i % 5 == 0   ? '\n'
				 : i % 5 == 1 ? '\x01'
				 : i % 5 == 2 ? '\xc3'
				 : i % 5 == 3 ? '\xa9'
					      : '"';
		big[n] = '\0';
		log_info(json ? NULL : "s", "%s", big + n % 5);
		assert_non_null(next_line());
		assert_true(strlen(line) + 1 <= 2048);
		assert_true(strlen(line) + 1 > 2030);
		assert_int_equal(line[strlen(line) - 1], json ? '}' : '"');
		json_t *o = json ? json_loads(line, 0, NULL) : json_null();
		assert_non_null(o);
		json_decref(o);
	}
}

static void test_lines_are_cut(void **state)
{
	(void)state;
	check_cut(false);
	log_init(true);
	check_cut(true);
}

/* Nothing after the cut: a line never looks whole with a piece missing in the middle. */
static void test_the_cut_is_the_end(void **state)
{
	(void)state;
	for (int n = 1900; n < 2048; n++) {
		char big[2200];
		memset(big, 'a', sizeof(big));
		strcpy(big + n, "\xc3\xa9z");
		log_info(NULL, "%s", big);
		assert_non_null(next_line());
		assert_true(!strchr(line, 'z') || strstr(line, "\xc3\xa9z"));
	}
}

/* A subject that fills the line leaves no room for a message, and the line is whole still. */
static void test_endless_subject(void **state)
{
	char big[5000];

	(void)state;
	memset(big, 's', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	log_info(big, "m");
	assert_non_null(next_line());
	assert_true(strlen(line) + 1 <= 2048);
	assert_true(matches(line, " subject=s+ msg=m$"));
	log_init(true);
	log_info(big, "m");
	json_t *o = json_loads(next_line(), 0, NULL);
	assert_string_equal(member(o, "msg"), "m");
	json_decref(o);
}

static void test_journald_priority(void **state)
{
	(void)state;
	setenv("JOURNAL_STREAM", "8:1234", 1);
	log_init(false);
	log_error(NULL, "m");
	assert_true(matches(next_line(), "^<3>time=.* level=error"));
	log_warn(NULL, "m");
	assert_true(matches(next_line(), "^<4>time="));
	log_info(NULL, "m");
	assert_true(matches(next_line(), "^<6>time="));
	log_init(true); /* the collector reads JSON, not the journal */
	log_info(NULL, "m");
	assert_true(matches(next_line(), "^\\{\"time\""));
	unsetenv("JOURNAL_STREAM");
}

static void add_scope(void *ctx, const char *scope, const char *level)
{
	strcat(strcat(strcat(strcat(ctx, scope), ":"), level), " ");
}

static const char *levels(void)
{
	static char all[256];

	all[0] = '\0';
	log_each_scope(add_scope, all);
	return all;
}

static void test_levels(void **state)
{
	struct err e;

	(void)state;
	assert_string_equal(levels(), "sds:info xds:info "); /* sorted, a shared name once */
	log_debug(NULL, "not yet");
	assert_null(next_line());
	assert_int_equal(log_set_levels("sds:debug", &e), 0);
	assert_string_equal(levels(), "sds:debug xds:info ");
	assert_int_equal(twin.level, LOG_DEBUG); /* both of the name */
	log_debug(NULL, "now");
	assert_non_null(next_line());
	/* "default" is the general case wherever it stands. */
	assert_int_equal(log_set_levels("xds:error,default:warn", &e), 0);
	assert_string_equal(levels(), "sds:warn xds:error ");
	assert_int_equal(log_set_levels("*:debug", &e), 0);
	assert_string_equal(levels(), "sds:debug xds:debug ");
	assert_int_equal(log_set_levels("error", &e), 0);
	assert_string_equal(levels(), "sds:error xds:error ");
	log_warn(NULL, "too low");
	assert_null(next_line());
}

static void test_bad_levels_change_nothing(void **state)
{
	static const char *const bad[] = {"sds:debug,nope:info", "sds:debug,xds:loud", "sds:debug,",
	    ",debug", "", "sds", "sds:", ":debug", "debug,sds", "sds:debug xds:debug", "SDS:debug",
	    "sds:DEBUG", "sds:debug:x", "sdsx:debug", "sd:debug",
	    "0123456789012345678901234567890123456789:debug"};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		if (log_set_levels(bad[i], &e) != -1)
			fail_msg("accepted: %s", bad[i]);
		assert_int_equal(e.code, ERR_INVALID);
		assert_string_equal(levels(), "sds:info xds:info ");
	}
	log_set_levels("nope:info", &e);
	assert_string_equal(e.msg, "unknown log scope \"nope\"; known: default sds xds");
	log_set_levels("sds:lo\nud", &e);
	assert_string_equal(e.msg, "unknown log level \"lo?ud\"; known: error warn info debug");
}

static void test_scopes_of_another_program(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(log_set_own_levels("default:warn,nope:debug,sds:debug", &e), 0);
	assert_string_equal(levels(), "sds:debug xds:warn ");
	assert_int_equal(log_set_own_levels("nope:loud", &e), -1);
	assert_int_equal(log_set_own_levels(":info", &e), -1);
	log_set_level(LOG_ERROR);
	assert_string_equal(levels(), "sds:error xds:error ");
}

/* As the format and the levels are when they are let go, with their own times, in order. */
static void test_held_lines(void **state)
{
	(void)state;
	log_hold();
	log_info("demo/web-0", "first %d", 1);
	log_warn(NULL, "second");
	assert_null(next_line());
	log_init(true);
	log_release();
	assert_true(matches(
	    next_line(), "^\\{\"time\":\"20.*\"subject\":\"demo/web-0\",\"msg\":\"first 1\""));
	assert_true(matches(next_line(), "\"level\":\"warn\".*\"second\""));
	log_release();
	assert_null(next_line());
	log_info(NULL, "third");
	assert_non_null(next_line());
	log_hold();
	log_info(NULL, "unwanted");
	log_warn(NULL, "wanted");
	log_set_level(LOG_WARN);
	log_release();
	assert_true(matches(next_line(), "\"wanted\""));
	assert_null(next_line());
}

/* None is lost: they are as many as there is room for, then they go. */
static void test_held_lines_are_bounded(void **state)
{
	int lines = 0;

	(void)state;
	log_hold();
	for (int i = 0; i < 64; i++)
		log_info(NULL, "line");
	assert_null(next_line());
	log_info(NULL, "the last");
	while (next_line() && !strstr(line, "the last"))
		lines++;
	assert_int_equal(lines, 64);
	log_info(NULL, "not held");
	assert_non_null(next_line());
}

/* A child that ends by _exit() would take its own line with it, and say its parent's twice. */
static void test_a_child_holds_nothing(void **state)
{
	(void)state;
	log_hold();
	log_info(NULL, "the parent");
	pid_t pid = fork();
	if (pid == 0) {
		log_info(NULL, "the child");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(matches(next_line(), "the child"));
	assert_null(next_line());
	log_release();
	assert_true(matches(next_line(), "the parent"));
}

static void test_errno_survives(void **state)
{
	(void)state;
	close(STDERR_FILENO); /* the write fails */
	errno = ENOTTY;
	log_info(NULL, "x: %m");
	assert_int_equal(errno, ENOTTY);
}

/* Each of its texts may be new: what is counted is lines, per minute. */
static void test_budget(void **state)
{
	struct log_budget b = {0}, fresh = {0};
	unsigned hidden;
	int lines = 0;

	(void)state;
	for (int i = 0; i < 10; i++)
		assert_true(log_budget_take(&b, 1000 + i, &hidden));
	assert_false(log_budget_take(&b, 1010, &hidden));
	assert_false(log_budget_take(&b, 1059, &hidden));
	assert_true(log_budget_take(&b, 1060, &hidden));
	assert_int_equal(hidden, 2);
	for (int i = 0; i < 9; i++)
		assert_true(log_budget_take(&b, 1060, &hidden));
	assert_int_equal(hidden, 0);
	assert_false(log_budget_take(&b, 1119, &hidden));
	for (int i = 0; i < 12; i++)
		log_warn_limited(&fresh, "demo/web-0", "refused: %d", i);
	while (next_line())
		lines++;
	assert_int_equal(lines, 10);
	fresh.since_s -= 60;
	log_warn_limited(&fresh, "demo/web-0", "refused again");
	assert_true(matches(next_line(), "2 lines suppressed"));
	assert_true(matches(next_line(), "refused again"));
}

static void *write_lines(void *ctx)
{
	for (int i = 0; i < 500; i++)
		log_info(ctx, "line of %s", (const char *)ctx);
	return NULL;
}

/* For ThreadSanitizer: lines and levels from several threads at once. */
static void test_threads(void **state)
{
	pthread_t writers[3];
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	struct err e;

	(void)state;
	dup2(null, STDERR_FILENO);
	close(null);
	for (int i = 0; i < 3; i++)
		pthread_create(&writers[i], NULL, write_lines, "thread");
	for (int i = 0; i < 500; i++)
		assert_int_equal(log_set_levels(i % 2 ? "error" : "sds:debug", &e), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(writers[i], NULL);
}

/* --- a reader that stands still --- */

static int wait_for_ever(int pair[2])
{
	alarm(60); /* the test ends by SIGALRM, should a line wait */
	dup2(pair[1], STDERR_FILENO);
	close(pair[1]);
	return pair[0];
}

/* Nothing more fits; what it was filled with is one line. */
static void fill(int fd)
{
	char page[4096];
	int flags = fcntl(fd, F_GETFL);

	memset(page, '.', sizeof(page));
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	for (size_t n = sizeof(page); n; n /= 2)
		while (write(fd, page, n) > 0)
			;
	fcntl(fd, F_SETFL, flags);
}

static char *drain(int fd)
{
	static char all[1 << 20];
	size_t len = 0;
	ssize_t n;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while ((n = read(fd, all + len, sizeof(all) - 1 - len)) > 0)
		len += (size_t)n;
	all[len] = '\0';
	return all;
}

static void check_nobody_reads(int pair[2])
{
	const uint64_t before = log_dropped();
	int reader = wait_for_ever(pair);

	log_info(NULL, "there is room");
	fill(STDERR_FILENO);
	log_info(NULL, "lost");
	log_error("demo/web-0", "lost, too");
	assert_int_equal(log_dropped() - before, 2);
	assert_null(strstr(drain(reader), "lost"));
	fill(STDERR_FILENO);
	assert_int_equal(log_unsaid(), 2);
	drain(reader);
	log_info(NULL, "there is room again");
	assert_int_equal(log_unsaid(), 0);
	assert_int_equal(log_dropped() - before, 2);
	assert_true(matches(drain(reader),
	    "^time=[^ ]+ level=warn scope=sds msg=\"2 lines were dropped: nobody read this log\"\n"
	    "time=[^ ]+ level=info scope=sds msg=\"there is room again\"\n$"));
	fill(STDERR_FILENO);
	log_info(NULL, "lost");
	drain(reader);
	assert_int_equal(log_unsaid(), 0); /* said without another line */
	assert_non_null(strstr(drain(reader), "scope=log msg=\"1 line was dropped"));
	log_info(NULL, "said once");
	assert_null(strstr(drain(reader), "dropped"));
	close(reader);
	alarm(0);
}

static void test_a_full_pipe_waits_for_nobody(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	check_nobody_reads(pair);
}

static void test_a_full_stream_waits_for_nobody(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	check_nobody_reads(pair);
}

/* The description that others write to as well stays as it was. */
static void test_an_inherited_pipe_becomes_our_own(void **state)
{
	int pair[2];

	(void)state;
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	int theirs = dup(pair[1]);
	int reader = wait_for_ever(pair);
	log_detach();
	assert_false(fcntl(theirs, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK);
	assert_int_equal(fcntl(STDERR_FILENO, F_GETFD), 0);
	log_info(NULL, "heard");
	assert_non_null(strstr(drain(reader), "msg=heard"));
	close(theirs);
	close(reader);
	alarm(0);
}

/* Its offset is shared: an own description would write over what is there. */
static void test_a_file_stays_what_it_is(void **state)
{
	char text[256] = "";
	int file = memfd_create("log", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(write(file, "before\n", 7), 7);
	dup2(file, STDERR_FILENO);
	log_detach();
	log_info(NULL, "after");
	assert_true(pread(file, text, sizeof(text) - 1, 0) > 7);
	assert_true(matches(text, "^before\ntime=.*msg=after\n$"));
	close(file);
}

enum { WRITERS = 4, LINES_EACH = 500 };
static const char whole[] = "msg=\"whole, or not there at all: the end\"\n";

static void *write_whole_lines(void *unused)
{
	for (int i = 0; i < LINES_EACH; i++)
		log_info(unused, "whole, or not there at all: the end");
	return NULL;
}

/* Room that one of them saw may be taken by another one. */
static void test_many_writers_and_little_room(void **state)
{
	const uint64_t before = log_dropped();
	pthread_t writers[WRITERS];
	unsigned heard = 0;
	int pair[2];

	(void)state;
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	assert_true(fcntl(pair[1], F_SETPIPE_SZ, 4096) > 0);
	int reader = wait_for_ever(pair);
	log_detach();
	for (int i = 0; i < WRITERS; i++)
		pthread_create(&writers[i], NULL, write_whole_lines, NULL);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	for (char *all = drain(reader), *end; *all; all = end, heard++) {
		end = strchr(all, '\n') + 1;
		assert_true(end - all > (long)sizeof(whole));
		assert_memory_equal(end - strlen(whole), whole, strlen(whole));
	}
	assert_true(heard > 0);
	assert_int_equal(heard + log_dropped() - before, WRITERS * LINES_EACH);
	close(reader);
	alarm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_logfmt_line, capture, release),
	    cmocka_unit_test_setup_teardown(test_quoting_and_escapes, capture, release),
	    cmocka_unit_test_setup_teardown(test_json_line, capture, release),
	    cmocka_unit_test_setup_teardown(test_json_is_valid_whatever_comes, capture, release),
	    cmocka_unit_test_setup_teardown(test_lines_are_cut, capture, release),
	    cmocka_unit_test_setup_teardown(test_the_cut_is_the_end, capture, release),
	    cmocka_unit_test_setup_teardown(test_endless_subject, capture, release),
	    cmocka_unit_test_setup_teardown(test_journald_priority, capture, release),
	    cmocka_unit_test_setup_teardown(test_levels, capture, release),
	    cmocka_unit_test_setup_teardown(test_bad_levels_change_nothing, capture, release),
	    cmocka_unit_test_setup_teardown(test_scopes_of_another_program, capture, release),
	    cmocka_unit_test_setup_teardown(test_held_lines, capture, release),
	    cmocka_unit_test_setup_teardown(test_held_lines_are_bounded, capture, release),
	    cmocka_unit_test_setup_teardown(test_a_child_holds_nothing, capture, release),
	    cmocka_unit_test_setup_teardown(test_budget, capture, release),
	    cmocka_unit_test_setup_teardown(test_errno_survives, capture, release),
	    cmocka_unit_test_setup_teardown(test_a_full_pipe_waits_for_nobody, capture, release),
	    cmocka_unit_test_setup_teardown(test_a_full_stream_waits_for_nobody, capture, release),
	    cmocka_unit_test_setup_teardown(
		test_an_inherited_pipe_becomes_our_own, capture, release),
	    cmocka_unit_test_setup_teardown(test_a_file_stays_what_it_is, capture, release),
	    cmocka_unit_test_setup_teardown(test_many_writers_and_little_room, capture, release),
	    cmocka_unit_test_setup_teardown(test_threads, capture, release),
	};

	log_scope_register(&twin);
	log_scope_register(&xds);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
