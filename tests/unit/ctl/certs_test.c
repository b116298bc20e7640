/* certs_test.c - the table, names of service accounts, why there is no certificate.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/list.c agentd/ctl/show.c agentd/ctl/table.c agentd/ctl/certs.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"

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
	assert_string_equal(line(p, 0), "SPIFFE ID                   KEY    SERIAL  EXPIRES  "
					"RENEWAL  PODS           PROBLEM");
	assert_string_equal(line(p, 1), "spiffe://td/ns/demo/sa/web  P-256  0a1b    T1       "
					"T0       demo/a,demo/b  ");
	assert_string_equal(line(p, 2), "spiffe://td/ns/demo/sa/db   P-256  0a1b    T1       "
					"T0                      CSR refused");
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

static unsigned lines_for(const char *name)
{
	unsigned n = 0;
	const struct printed *p = run_command(&ctl_certs, name, false);

	while (*line(p, n))
		n++;
	return n ? n - 1 : 0; /* without the head */
}

static void a_service_account_has_three_names(void **state)
{
	(void)state;
	canned_answer(CERTS(CERT("demo", "web", "", "") "," CERT("demo", "web-2", "", "") "," CERT(
			  "prod", "web", "", "")),
	    0);
	assert_int_equal(lines_for(NULL), 3);
	assert_int_equal(lines_for("web"), 2);
	assert_int_equal(lines_for("prod/web"), 1);
	assert_int_equal(lines_for("spiffe://td/ns/demo/sa/web"), 1);
	assert_int_equal(lines_for("emo/web"), 0);
	assert_int_equal(lines_for("eb"), 0);
	assert_non_null(strstr(run_command(&ctl_certs, "no", false)->err, "no: no such name"));
}

/* 100 pods of a service account do not make a line of 3000 characters, and the cut is visible. */
static void a_long_list_of_pods_is_cut(void **state)
{
	json_t *pods = json_array(), *all;
	char *text, *cut;

	(void)state;
	for (int i = 0; i < 100; i++)
		json_array_append_new(pods, json_sprintf("demo/web-%03d", i));
	all = json_pack("{s:[{s:s, s:o}]}", "certificates", "spiffe_id", "x", "subscribers", pods);
	text = json_dumps(all, 0);
	canned_answer(text, 0);
	cut = strstr(run_command(&ctl_certs, NULL, false)->out, "demo/web-000,demo/web-001");
	assert_non_null(cut);
	assert_int_equal(strcspn(cut, " "), 199);
	assert_memory_equal(cut + 196, "...", 3);
	free(text);
	json_decref(all);
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
	    cmocka_unit_test(a_long_list_of_pods_is_cut),
	    cmocka_unit_test(strange_answers_are_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
