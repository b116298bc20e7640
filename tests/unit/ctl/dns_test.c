/* dns_test.c - the table, and a name in one pod.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/command.c agentd/ctl/list.c agentd/ctl/show.c agentd/ctl/table.c agentd/ctl/dns.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"

#define WEB                                                                                        \
	"{\"pod\":\"demo/web-0\",\"uid\":\"u-1\",\"captured\":true,\"answers\":true,"              \
	"\"names\":7,\"requests\":12,\"local\":9,\"forwarded\":3,\"failed\":1,\"why_not\":\"\","   \
	"\"resolved\":{\"name\":\"db.\",\"found\":true,\"alias\":\"x.\",\"addresses\":[\"1.2.3."   \
	"4\","                                                                                     \
	"\"::1\"]}}"
#define EARLY                                                                                      \
	"{\"pod\":\"demo/db-0\",\"uid\":\"u-2\",\"captured\":true,\"answers\":false,"              \
	"\"names\":-1,\"why_not\":\"not known\","                                                  \
	"\"resolved\":{\"name\":\"db.\",\"found\":false,\"alias\":\"\",\"addresses\":[]}}"
#define NONE                                                                                       \
	"{\"pod\":\"prod/web-0\",\"uid\":\"u-3\",\"captured\":false,\"answers\":false,"            \
	"\"names\":-1,\"why_not\":\"\"}"
#define PODS(list) "{\"dns\":[" list "]}"

static void all_pods_are_a_table(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(PODS(WEB "," EARLY "," NONE), 0);
	p = run_command(&ctl_dns, NULL, false);
	assert_string_equal(canned_request(), "GET /dns");
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_string_equal(line(p, 0),
	    "POD         ANSWERED BY   NAMES  REQUESTS  LOCAL  FORWARDED  "
	    "FAILED  PROBLEM");
	assert_string_equal(line(p, 1),
	    "demo/web-0  agentd        7      12        9      3          "
	    "1       ");
	assert_string_equal(line(p, 2),
	    "demo/db-0   its resolver  -      0         0      0          "
	    "0       not known");
	assert_string_equal(line(p, 3),
	    "prod/web-0  -             -      0         0      0          "
	    "0       ");
	assert_int_equal(run_command(&ctl_dns, "demo/web-0", false)->status, CTL_OK);
	assert_int_equal(run_command(&ctl_dns, "u-2", true)->status, CTL_PROBLEM);
	assert_int_equal(run_command(&ctl_dns, "nobody", false)->status, CTL_NOT_FOUND);
}

static void a_name_in_a_pod(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(PODS(WEB "," EARLY), 0);
	p = run_asked(ctl_dns.run, (struct ctl){.words = {"u-1", "db"}});
	assert_string_equal(canned_request(), "GET /dns?name=db");
	assert_int_equal(p->status, CTL_OK);
	assert_string_equal(line(p, 0), "demo/web-0: db. = x. 1.2.3.4 ::1");
	p = run_asked(ctl_dns.run, (struct ctl){.words = {"db-0", "db"}});
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_string_equal(line(p, 0),
	    "demo/db-0: db. is not one of istiod's names: the pod's resolver answers it");
	assert_int_equal(
	    run_asked(ctl_dns.run, (struct ctl){.words = {"db-0", "a&b"}})->status, CTL_USAGE);
}

static void strange_answers(void **state)
{
	static const char *const answers[] = {"{}", "{\"dns\":7}", "{\"dns\":[7]}",
	    "{\"dns\":[{\"pod\":7,\"names\":\"x\",\"resolved\":[]}]}",
	    PODS("{\"pod\":\"a\",\"resolved\":{\"found\":true,\"addresses\":[7,{}]}}"), NULL};

	(void)state;
	survive_strange_answers(&ctl_dns, answers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_pods_are_a_table),
	    cmocka_unit_test(a_name_in_a_pod),
	    cmocka_unit_test(strange_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
