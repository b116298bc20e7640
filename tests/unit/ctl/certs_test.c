/* certs_test.c - the table, names of service accounts, why there is no certificate.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/command.c agentd/ctl/envoy_lists.c agentd/ctl/list.c agentd/ctl/show.c agentd/ctl/table.c agentd/ctl/certs.c agentd/ctl/envoy_certs.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"
#include "common/mem.h"
#include "ctl/envoy_admin.h"
#include "ctl/request.h"
#include <time.h>

#define CERT(ns, sa, subscribers, why)                                                             \
	"{\"spiffe_id\":\"spiffe://td/ns/" ns "/sa/" sa "\",\"key_type\":\"P-256\",\"serial\":"    \
	"\"0a1b\",\"not_after\":\"T1\",\"renew_at\":\"T0\",\"subscribers\":[" subscribers          \
	"],\"why_not\":\"" why "\"}"
#define CERTS(list) "{\"certificates\":[" list "]}"

static void certificates_are_a_table(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(CERTS(CERT("demo", "web", "\"demo/a\",\"demo/b\"", "") "," CERT(
			  "demo", "db", "", "CSR refused")),
	    0);
	p = run_command(&ctl_certs, NULL, false);
	assert_string_equal(canned_request(), "GET /certs");
	assert_string_equal(line(p, 0), "ACCOUNT   EXPIRES  RENEWAL  CHAIN  ROOT  PODS  PROBLEM");
	assert_string_equal(line(p, 1), "demo/web  T1       T0       -      -     2     ");
	assert_string_equal(
	    line(p, 2), "demo/db   T1       T0       -      -     0     CSR refused");
	assert_int_equal(p->status, CTL_PROBLEM);
}

static int status_of(const char *json, const char *name)
{
	int text, as_json;

	canned_answer(json, 0);
	text = run_command(&ctl_certs, name, false)->status;
	as_json = run_command(&ctl_certs, name, true)->status;
	assert_int_equal(text, as_json);
	return text;
}

static void the_exit_status_says_whether_all_is_well(void **state)
{
	(void)state;
	assert_int_equal(status_of(CERTS(""), NULL), CTL_OK);
	assert_int_equal(status_of(CERTS(CERT("demo", "web", "", "")), NULL), CTL_OK);
	assert_int_equal(status_of("{}", NULL), CTL_PROBLEM);
	/* Of two keys of one service account, one that works does not hide the other. */
	assert_int_equal(
	    status_of(
		CERTS(CERT("demo", "web", "", "failed") "," CERT("demo", "web", "", "")), "web"),
	    CTL_PROBLEM);
	/* Somebody else's problem. */
	assert_int_equal(
	    status_of(
		CERTS(CERT("demo", "web", "", "") "," CERT("demo", "db", "", "failed")), "web"),
	    CTL_OK);
}

static unsigned shown(const char *name)
{
	const char *at = run_command(&ctl_certs, name, false)->out;
	unsigned n = 0;

	while ((at = strstr(at, "spiffe_id:"))) {
		n++;
		at++;
	}
	return n;
}

static void a_service_account_has_three_names(void **state)
{
	(void)state;
	canned_answer(CERTS(CERT("demo", "web", "", "") "," CERT("demo", "web-2", "", "") "," CERT(
			  "prod", "web", "", "")),
	    0);
	assert_int_equal(shown("web"), 2);
	assert_int_equal(shown("prod/web"), 1);
	assert_int_equal(shown("spiffe://td/ns/demo/sa/web"), 1);
	assert_int_equal(shown("emo/web"), 0);
	assert_int_equal(shown("eb"), 0);
	assert_non_null(strstr(run_command(&ctl_certs, "no", false)->err, "no: no such name"));
}

static void write_time(char out[32], time_t in)
{
	const time_t at = time(NULL) + in;
	struct tm tm;

	assert_int_not_equal(strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm)), 0);
}

/* A hundred pods of an account with a long name: 80 columns all the same, and the exact times for
 * who names it. */
static void a_certificate_needs_80_columns(void **state)
{
	char leaf[32], renewal[32], chain[32], root[32];
	json_t *pods = json_array(), *all;
	auto_free char *text = NULL;
	const struct printed *p;

	(void)state;
	for (int i = 0; i < 100; i++)
		json_array_append_new(pods, json_sprintf("demo/web-%03d", i));
	write_time(leaf, 23 * 3600 + 60);
	write_time(renewal, 90 * 60 + 30);
	write_time(chain, 89 * 86400 + 60);
	write_time(root, -5);
	all = json_pack("{s:[{s:s, s:s, s:s, s:s, s:s, s:s, s:o}]}", "certificates", "spiffe_id",
	    "spiffe://cluster.local/ns/bookinfo/sa/bookinfo-productpage", "key_type", "EC P-256",
	    "not_after", leaf, "renew_at", renewal, "chain_not_after", chain, "root_not_after",
	    root, "subscribers", pods);
	text = json_dumps(all, 0);
	canned_answer(text, 0);
	p = run_command(&ctl_certs, NULL, false);
	assert_string_equal(line(p, 1), "bookinfo/bookinfo-productpage  23h      90min    89d "
					"   over  100   ");
	assert_true(strlen(line(p, 0)) <= 80 && strlen(line(p, 1)) <= 80);
	p = run_command(&ctl_certs, "bookinfo-productpage", false);
	assert_non_null(strstr(p->out, leaf));
	assert_non_null(strstr(p->out, "demo/web-099"));
	json_decref(all);
}

/* --- --envoy: what Envoy has, of files, too --- */

char *ctl_envoy_admin(const struct ctl *c, const char *page, size_t *len, int *status)
{
	return canned_text(c, page, len, status);
}

static const struct printed *files_of(const char *pod, bool json)
{
	static const struct ctl_given files[] = {{"envoy", ""}, {NULL, NULL}};

	return run_asked(ctl_certs.run,
	    (struct ctl){
		.words = {pod}, .options = files, .json = json, .output = json ? "json" : NULL});
}

static char *from_file(const char *path, const char *serial, int from_h, int to_h)
{
	char from[32], to[32];

	write_time(from, from_h * 3600 + 60);
	write_time(to, to_h * 3600 + 60);
	return mem_printf("{\"subject_alt_names\":[{\"uri\":\"%s\"}],\"serial_number\":\"%s\","
			  "\"valid_from\":\"%s\","
			  "\"expiration_time\":\"%s\"}",
	    path, serial, from, to);
}

static void a_file_that_envoy_did_not_see_ends(void **state)
{
	auto_free char *good = from_file("spiffe1", "1", -50, 50);
	auto_free char *soon = from_file("spiffe2", "2", -90, 11);
	auto_free char *over = from_file("spiffe3", "3", -90, -1);
	auto_free char *well = mem_printf("{\"certificates\":[{\"cert_chain\":[%s]},"
					  "{\"cert_chain\":[%s],\"ca_cert\":[]}]}",
	    good, good);
	auto_free char *bad = mem_printf("{\"certificates\":[{\"cert_chain\":[%s,%s],"
					 "\"ca_cert\":[%s]}]}",
	    good, soon, over);
	const struct printed *p;

	(void)state;
	canned_answer(well, 0);
	p = files_of("web", false);
	assert_string_equal(canned_request(), "ENVOY /certs");
	assert_int_equal(p->status, CTL_OK);
	assert_string_equal(line(p, 0), "KIND   NAME     SERIAL  EXPIRES  PROBLEM");
	assert_string_equal(line(p, 1), "chain  spiffe1  1       2d       ");
	assert_string_equal(line(p, 2), "");
	canned_answer(bad, 0);
	p = files_of("web", false);
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_non_null(strstr(line(p, 2), "it ends soon: Envoy has not seen a new one"));
	assert_non_null(strstr(line(p, 3), "it has ended: Envoy has not seen a new one"));
	assert_int_equal(files_of("web", true)->status, CTL_PROBLEM);
	assert_int_equal(files_of(NULL, false)->status, CTL_USAGE);
	canned_answer(NULL, CTL_UNREACHABLE);
	assert_int_equal(files_of("web", false)->status, CTL_UNREACHABLE);
}

static void strange_pages_are_survived(void **state)
{
	static const char *const pages[] = {"{}", "{\"certificates\":7}",
	    "{\"certificates\":[1,{\"cert_chain\":{},\"ca_cert\":[null,{\"subject_alt_names\":5},"
	    "{\"serial_number\":\"/"
	    "a\\u001b[2J\",\"expiration_time\":\"soon\",\"valid_from\":1}]}]}"};

	(void)state;
	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++) {
		const struct printed *p;

		canned_answer(pages[i], 0);
		p = files_of("web", false);
		assert_int_equal(p->status, CTL_OK);
		assert_null(strchr(p->out, '\033'));
		(void)files_of("web", true);
	}
}

static void strange_answers_are_survived(void **state)
{
	static const char *const answers[] = {"{}", "{\"certificates\":7}",
	    "{\"certificates\":[null,1,\"x\",[],{}]}",
	    "{\"certificates\":[{\"spiffe_id\":\"/sa//ns/\",\"subscribers\":[1,null,\"a\",{}]}]}",
	    "{\"certificates\":[{\"spiffe_id\":\"/ns/\",\"subscribers\":\"a\",\"why_not\":5}]}",
	    "{\"certificates\":[{\"spiffe_id\":\"/ns/demo/sa/web-0\",\"serial\":12}]}",
	    "{\"certificates\":[{\"spiffe_id\":\"/ns/sa/x\"}]}", NULL};

	(void)state;
	survive_strange_answers(&ctl_certs, answers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(certificates_are_a_table),
	    cmocka_unit_test(the_exit_status_says_whether_all_is_well),
	    cmocka_unit_test(a_service_account_has_three_names),
	    cmocka_unit_test(a_certificate_needs_80_columns),
	    cmocka_unit_test(a_file_that_envoy_did_not_see_ends),
	    cmocka_unit_test(strange_pages_are_survived),
	    cmocka_unit_test(strange_answers_are_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
