/* status_test.c - what is shown, and what is a problem.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/show.c agentd/ctl/status.c agentd/ctl/alive.c agentd/ctl/command.c
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "canned.h"

#define CAGE ",\"cage\":\"seccomp, landlock 7\",\"confined\":true"
#define STATUS(ready, planes, refused)                                                             \
	"{\"version\":\"0.1.0\",\"uptime_s\":61,\"node_name\":\"n1\",\"pods\":2,\"pods_"           \
	"ready\":" ready ",\"control_planes\":[" planes "],\"refused_manifests\":[" refused        \
	"]" CAGE "}"
#define SILENT "the broker has not answered for 7 s"
#define UNKNOWN "{\"registered\":false,\"why_not\":\"it has not registered\"}"
#define UNSERVED(name, served)                                                                     \
	"{\"namespace\":\"demo\",\"name\":\"" name "\",\"served\":\"" served                       \
	"\",\"why\":\"istiod: UNKNOWN: no\"}"
#define PLANE(why)                                                                                 \
	"{\"name\":\"main\",\"address\":\"istiod:15012\",\"connections\":[{\"state\":\"READY\"},"  \
	"{\"state\":\"IDLE\"}],\"why_not\":\"" why "\"}"

static void status_is_text(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(STATUS("2", PLANE(""), ""), 0);
	p = run_command(&ctl_status, NULL, false);
	assert_string_equal(canned_request(), "GET /status");
	assert_int_equal(p->status, CTL_OK);
	assert_string_equal(p->out, "agentd         0.1.0 on n1, up 61 s\n"
				    "cage           seccomp, landlock 7\n"
				    "pods           2, 2 ready\n"
				    "control plane  main at istiod:15012: READY IDLE\n");
}

/* No exit status comes of a warning. */
static void lists_and_warnings_are_shown(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer(
	    STATUS("2",
		"{\"name\":\"main\",\"address\":\"istiod:15012\",\"why_not\":\"\",\"crl\":{"
		"\"present\":true,\"ends\":\"2027-01-01T00:00:00Z\",\"why_not\":\"\"},"
		"\"warnings\":[\"block 2 is left out\",\"it ends soon\"]}",
		""),
	    0);
	p = run_command(&ctl_status, NULL, false);
	assert_int_equal(p->status, CTL_OK);
	assert_non_null(strstr(p->out, "  revocation list in force until 2027-01-01T00:00:00Z\n"
				       "  warning: block 2 is left out\n"
				       "  warning: it ends soon\n"));
}

/* Each with its reason, and for -o json as well. */
static void every_problem_is_told(void **state)
{
	static const struct {
		const char *json, *says;
	} cases[] = {
	    {STATUS("1", PLANE(""), ""), "2, 1 ready\n  problem: 1 not ready"},
	    {"{\"pods\":0,\"pods_ready\":0,\"kubelet\":" UNKNOWN CAGE "}",
		"kubelet        not registered\n  problem: it has not registered\n"},
	    {"{\"pods\":0,\"pods_ready\":0,\"broker\":{\"answers\":false,\"why_not\":\"" SILENT
	     "\"}" CAGE "}",
		"broker         silent\n  problem: " SILENT "\n"},
	    {"{\"pods\":0,\"pods_ready\":0,\"problems\":[\"nobody reads the log\"]" CAGE "}",
		"  problem: nobody reads the log\n"},
	    {"{\"pods\":3,\"pods_ready\":3,\"unserved\":[" UNSERVED("web", "no") "," UNSERVED(
		 "db", "held") "]" CAGE "}",
		"pods           3, 3 ready, 2 not served\n"
		"  problem: demo/web is not served: istiod: UNKNOWN: no\n"
		"  problem: demo/db is held: istiod: UNKNOWN: no\n"},
	    {"{\"pods\":9,\"pods_ready\":9,\"unserved\":[1,2,3,4,5,6,7]" CAGE "}",
		"  problem: 2 more; agentctl pods shows why\n"},
	    {STATUS("2", PLANE("no root"), ""), "  problem: no root\n"},
	    {STATUS("2", "{\"crl\":{\"present\":false,\"why_not\":\"of another CA\"}}", ""),
		"  problem: of another CA\n"},
	    {STATUS("2", PLANE("no root") "," PLANE(""), ""), "  problem: no root\n"},
	    {STATUS("2", "", "{\"file\":\"a.yaml\",\"why\":\"line 1\"}"),
		"refused        a.yaml: line 1\n"},
	    {"{\"pods\":0,\"pods_ready\":0,\"problems\":[\"1 request to the broker\"]" CAGE "}",
		"  problem: 1 request to the broker\n"},
	    {"{\"pods\":0,\"pods_ready\":0,\"waiting_volumes\":[{\"uid\":\"u\",\"pod\":\"n/p\","
	     "\"volume\":\"mesh\",\"problem\":\"too many\"}]" CAGE "}",
		"refused        volume mesh of n/p: too many\n"},
	    {"{\"pods\":1,\"pods_ready\":1,\"lost\":[{\"pod\":\"n/"
	     "p\",\"service\":\"ads\",\"why\":\"refused\"}]" CAGE "}",
		"  problem: n/p had its ads before this agentd's start: refused\n"},
	    {"{\"pods\":0,\"pods_ready\":0,\"cage\":\"none\",\"confined\":false}",
		"cage           none\n  problem: the worker is NOT confined"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		canned_answer(cases[i].json, 0);
		const struct printed *p = run_command(&ctl_status, NULL, false);

		assert_int_equal(p->status, CTL_PROBLEM);
		assert_non_null(strstr(p->out, cases[i].says));
		assert_int_equal(run_command(&ctl_status, NULL, true)->status, CTL_PROBLEM);
	}
}

/* No problem, and no line when nothing is on its way. */
static void pushes_that_are_under_way_are_shown(void **state)
{
	static const char under_way[] =
	    "pushes         20 of 64 MiB on their way to Envoys, 3 wait\n";
#define PUSHES(held, streams)                                                                      \
	"{\"pods\":0,\"pods_ready\":0,\"pushes\":{\"bound\":67108864,\"held\":" held               \
	",\"waiting\":0,\"streams\":" streams "}" CAGE "}"
	const struct printed *p;

	(void)state;
	canned_answer(PUSHES("20971520", "3"), 0);
	p = run_command(&ctl_status, NULL, false);
	assert_int_equal(p->status, CTL_OK);
	assert_non_null(strstr(p->out, under_way));
	canned_answer(PUSHES("1000", "0"), 0);
	assert_null(strstr(run_command(&ctl_status, NULL, false)->out, "pushes"));
}

static void json_is_what_agentd_said(void **state)
{
	json_t *v, *w = json_loads(STATUS("2", PLANE(""), ""), 0, NULL);
	const struct printed *p;

	(void)state;
	canned_answer(STATUS("2", PLANE(""), ""), 0);
	p = run_command(&ctl_status, NULL, true);
	assert_int_equal(p->status, CTL_OK);
	v = json_loads(p->out, 0, NULL);
	assert_true(json_equal(v, w));
	json_decref(v);
	json_decref(w);
}

static void strange_answers_are_survived(void **state)
{
	static const char *const answers[] = {"{}", "{\"pods\":\"two\",\"control_planes\":3}",
	    "{\"control_planes\":[null,1,[],{}],\"refused_manifests\":[1,{\"why\":[]}]}",
	    "{\"control_planes\":[{\"connections\":[1,null,{\"state\":2}]}]}",
	    "{\"control_planes\":[{\"connections\":{},\"why_not\":[]}],\"version\":4}", NULL};

	(void)state;
	survive_strange_answers(&ctl_status, answers);
}

static void no_answer_is_passed_on(void **state)
{
	(void)state;
	canned_answer(NULL, CTL_UNREACHABLE);
	assert_int_equal(run_command(&ctl_status, NULL, false)->status, CTL_UNREACHABLE);
}

static void a_probe_asks_one_thing(void **state)
{
	static const struct {
		const char *json;
		int status;
	} cases[] = {{"{\"settled\":true,\"pods\":2,\"pods_ready\":1}", CTL_OK},
	    {"{\"settled\":true,\"kubelet\":" UNKNOWN "}", CTL_PROBLEM},
	    {"{\"settled\":true,\"kubelet\":{\"registered\":true}}", CTL_OK},
	    {"{\"settled\":true,\"kubelet\":null}", CTL_OK},
	    {"{\"settled\":true,\"in_charge\":true,\"lost\":[{}]}", CTL_OK},
	    {"{\"settled\":true,\"in_charge\":false,\"lost\":[{\"pod\":\"n/p\"}]}", CTL_PROBLEM},
	    {"{\"settled\":false,\"pods\":2,\"pods_ready\":2}", CTL_PROBLEM}, {"{}", CTL_PROBLEM}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		canned_answer(cases[i].json, 0);
		assert_int_equal(run_command(&ctl_ready, NULL, false)->status, cases[i].status);
		assert_int_equal(run_command(&ctl_ready, NULL, true)->status, cases[i].status);
	}
	canned_answer(NULL, CTL_UNREACHABLE);
	assert_int_equal(run_command(&ctl_ready, NULL, false)->status, CTL_UNREACHABLE);
}

/* --- at an agentd's own socket --- */

static const char own[] = "/tmp/ctl-alive-test";

/* One who answers `packet`; NULL: nobody does.  The socket is there in any case. */
static pid_t agentd_says(const char *packet)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(at.sun_path, own);
	unlink(own);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)) | listen(fd, 4), 0);
	pid_t pid = fork();
	for (int n = 0; pid == 0 && packet && n < 2; n++) {
		int conn = accept(fd, NULL, NULL);
		(void)send(conn, packet, strlen(packet), MSG_NOSIGNAL);
		close(conn);
	}
	if (pid == 0) {
		while (!packet)
			pause();
		_exit(0);
	}
	close(fd);
	return pid;
}

static void each_agentd_answers_for_itself(void **state)
{
	static const char ready[] = "{\"settled\":true,\"in_charge\":false,\"kubelet\":null}";
	static const struct {
		const char *says, *prints;
		int alive, ready;
	} cases[] = {{"starting\n", "not ready", CTL_PROBLEM, CTL_PROBLEM},
	    {"starting\na/b: cert: it is not there yet\n", "a/b: cert", CTL_PROBLEM, CTL_PROBLEM},
	    {"ready\n", "ready", CTL_OK, CTL_OK},
	    {"not ready\na/b: ads: \033[1mrefused\n", "a/b: ads: ?[1mrefused", CTL_OK, CTL_PROBLEM},
	    {"over\nanother agentd takes over", "ready: another agentd", CTL_OK, CTL_OK},
	    {"", "", CTL_UNREACHABLE, CTL_UNREACHABLE},
	    {"ready", "", CTL_UNREACHABLE, CTL_UNREACHABLE},
	    {"anything\n", "", CTL_UNREACHABLE, CTL_UNREACHABLE},
	    {NULL, "", CTL_UNREACHABLE, CTL_UNREACHABLE}};
	const struct ctl_given of[] = {{"of", own}, {NULL, NULL}};
	const struct ctl asked = {.options = of};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		pid_t pid = agentd_says(cases[i].says);
		canned_answer(ready, 0);
		assert_int_equal(run_asked(ctl_alive.run, asked)->status, cases[i].alive);
		const struct printed *p = run_asked(ctl_ready.run, asked);
		assert_int_equal(p->status, cases[i].ready);
		assert_non_null(strstr(p->out, cases[i].prints));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	unlink(own);
	assert_int_equal(run_asked(ctl_alive.run, asked)->status, CTL_UNREACHABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(status_is_text),
	    cmocka_unit_test(lists_and_warnings_are_shown),
	    cmocka_unit_test(every_problem_is_told),
	    cmocka_unit_test(pushes_that_are_under_way_are_shown),
	    cmocka_unit_test(json_is_what_agentd_said),
	    cmocka_unit_test(strange_answers_are_survived),
	    cmocka_unit_test(no_answer_is_passed_on),
	    cmocka_unit_test(a_probe_asks_one_thing),
	    cmocka_unit_test(each_agentd_answers_for_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
