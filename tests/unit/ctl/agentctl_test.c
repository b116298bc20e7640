/* agentctl_test.c - the program itself, against a server in a child process that says what the
 * test wants.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/buffer.h>
#include <jansson.h>

#include "base/http/http.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/version.h"
#include "ctl/commands.h"

static char dir[32], program[4096];
static pid_t server;

static int setup(void **state)
{
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	(void)state;
	assert_true(n > 0);
	program[n] = '\0';
	for (int i = 0; i < 4; i++) /* <out>/tests/unit/ctl/agentctl_test */
		*strrchr(program, '/') = '\0';
	strcat(program, "/agentctl");
	strcpy(dir, "/tmp/agentctl_test.XXXXXX");
	assert_non_null(mkdtemp(dir));
	return 0;
}

static int teardown(void **state)
{
	auto_free char *path = mem_printf("%s/admin.sock", dir);

	(void)state;
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
		server = 0;
	}
	unlink(path);
	rmdir(dir);
	return 0;
}

/* ---- the server ---- */

static int answer_status;
static const char *answer;

static void on_request(void *ctx, struct http_request *req)
{
	struct evbuffer *body = evbuffer_new();

	(void)ctx;
	if (!answer_status)
		_exit(0); /* the connection ends without a word */
	evbuffer_add(body, answer, strlen(answer));
	http_reply(req, answer_status, "application/json", body);
	evbuffer_free(body);
}

static int listen_at(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s/admin.sock", dir);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 16), 0);
	return fd;
}

/* To every request; status 0: the server dies of it. */
static void serve(int status, const char *text)
{
	struct err e;
	struct loop *l;
	int fd;

	teardown(NULL);
	assert_int_equal(mkdir(dir, 0700), 0);
	fd = listen_at();
	server = fork();
	if (server) {
		close(fd);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	answer_status = status;
	answer = text;
	l = loop_new(&e);
	if (!l || !http_server_new(l, fd, on_request, NULL))
		_exit(1);
	loop_run(l);
	_exit(0);
}

/* ---- the program ---- */

static char out[64 * 1024], err[8 * 1024];

static void read_back(int fd, char *text, size_t size)
{
	ssize_t n = pread(fd, text, size - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	close(fd);
}

static int temporary(void)
{
	char path[] = "/tmp/agentctl_test.XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);

	assert_true(fd >= 0);
	unlink(path);
	return fd;
}

/* Exit status of agentctl --run <dir> ARGS; -1: it did not end by itself within 60 s. */
static int run_to(int stdout_fd, const char *const *args)
{
	const char *argv[16] = {program, "--run", dir};
	int status, said = temporary();
	pid_t pid;

	for (int i = 0; args[i]; i++)
		argv[3 + i] = args[i];
	pid = fork();
	if (pid == 0) {
		alarm(60);
		dup2(stdout_fd, STDOUT_FILENO);
		dup2(said, STDERR_FILENO);
		execv(program, (char **)argv);
		_exit(99);
	}
	waitpid(pid, &status, 0);
	read_back(said, err, sizeof(err));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int run_args(const char *const *args)
{
	int to = temporary(), status = run_to(to, args);

	read_back(to, out, sizeof(out));
	return status;
}
#define run(...) run_args((const char *const[]){__VA_ARGS__, NULL})

/* ---- usage ---- */

static void help_and_version_are_no_error(void **state)
{
	char own[100];

	(void)state;
	assert_int_equal(run("--help"), 0);
	assert_memory_equal(out, "usage: agentctl ", 16);
	assert_string_equal(err, "");
	assert_int_equal(run("--version"), 0);
	snprintf(own, sizeof(own), "agentctl %s\n", version_text);
	assert_string_equal(out, own);
}

/* Of one command: its words, its options, its verbs; agentd is not asked. */
static void each_command_has_its_help(void **state)
{
	static const struct {
		const char *args[4], *says;
	} cases[] = {
	    {{"pods", "--help"}, "usage: agentctl pods [POD]\n"},
	    {{"-h", "status"}, "usage: agentctl status\n"},
	    {{"version", "-h"}, "usage: agentctl version [--deps]\n"},
	    {{"version", "-h"}, "  --deps        also the libraries"},
	    {{"redirect", "-h"}, "usage: agentctl redirect [POD]\n"},
	    {{"redirect", "-h"}, "usage: agentctl redirect trace [POD]\n"},
	    {{"redirect", "explain", "-h"}, "usage: agentctl redirect explain --pod POD "},
	    {{"redirect", "explain", "-h"}, "  --uid N       of the dialling process"},
	    {{"bogus", "--help"}, "usage: agentctl [--run DIR] NOUN"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(run_args(cases[i].args), 0);
		assert_non_null(strstr(out, cases[i].says));
		assert_string_equal(err, "");
	}
}

/* A bash in which the node has one pod. */
static bool completes_pods(const char *noun)
{
	auto_free char *command = mem_printf(
	    "bash -c 'eval \"$(\"$0\" completion)\"; agentctl() { printf \"POD\\ndemo/web\\n\"; }; "
	    "COMP_WORDS=(agentctl %s d); COMP_CWORD=2; _agentctl; "
	    "[ \"${COMPREPLY[*]}\" = demo/web ]' '%s'",
	    noun, program);

	return !system(command); /* NOLINT(cert-env33-c) */
}

static void each_command_that_takes_a_pod_completes_it(void **state)
{
	static const char *const takes[] = {
	    "pods", "certs", "xds", "bootstrap", "config-dump", "redirect", "dns"};
	static const char *const others[] = {"status", "manifest", "preflight"};

	(void)state;
	for (size_t i = 0; i < sizeof(takes) / sizeof(takes[0]); i++)
		if (!completes_pods(takes[i]))
			fail_msg("%s", takes[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (completes_pods(others[i]))
			fail_msg("%s", others[i]);
}

/* Wherever they stand, and the last one of a name counts. */
static void options_reach_their_command(void **state)
{
	(void)state;
	serve(200, "{\"agentd\":\"9\",\"libraries\":{\"openssl\":\"3\"},"
		   "\"redirect\":[{\"pod\":\"n/p\",\"uid\":\"u\"}],\"verdict\":\"passed\"}");
	assert_int_equal(run("version"), 0);
	assert_null(strstr(out, "openssl"));
	assert_int_equal(run("--deps", "version"), 0);
	assert_non_null(strstr(out, "openssl"));
	assert_int_equal(run("redirect", "explain", "1.1.1.1:1", "--pod", "none", "--uid=1",
			     "--gid", "1", "--pod", "p"),
	    0);
	assert_string_equal(out, ": passed: \n");
}

static unsigned lines_of(const char *text)
{
	unsigned n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void wrong_usage_is_2_and_says_what(void **state)
{
	static const struct {
		const char *args[7], *says;
	} cases[] = {
	    {{"pots"}, "no such noun: pots; nearest: pods"},
	    {{""}, "no such noun: "},
	    {{"-w"}, "usage: "}, /* no noun at all */
	    {{"pods", "a", "b"}, "unexpected argument: b"},
	    {{"status", "a"}, "unexpected argument: a"},
	    {{"pods", "-o", "xml"}, "-o takes json or yaml, not xml"},
	    {{"pods", "--color"}, "--color"},
	    {{"log", "a b"}, "not a level"},
	    {{"log", "a b", "-w"}, "not a level"},
	    {{"dns", "a", "b", "c"}, "unexpected argument: c"},
	    {{"dns", "a", "b/c"}, "usage: agentctl dns"},
	    {{"redirect", "a", "b"}, "unexpected argument: b"},
	    {{"redirect", "trace", "a", "b"}, "unexpected argument: b"},
	    {{"redirect", "explain"}, "usage: agentctl redirect explain"},
	    {{"redirect", "explain", "a", "b", "c"}, "unexpected argument: c"},
	    {{"redirect", "explain", "--pod=p", "--uid=1", "--gid=1"},
		"usage: agentctl redirect explain"},
	    {{"redirect", "trace", "--udp"}, "--udp belongs to redirect explain"},
	    {{"redirect", "--uid", "1"}, "usage: agentctl redirect explain"},
	    {{"pods", "--uid", "1"}, "--uid belongs to redirect explain"},
	    {{"status", "--deps"}, "--deps belongs to version"},
	    {{"status", "-f", "x"}, "--file belongs to inject"},
	    {{"inject"}, "inject needs -f FILE"},
	    {{"uninject"}, "uninject needs -f FILE"},
	    {{"uninject", "-f", "x", "--check"}, "--check belongs to inject"},
	    {{"inject", "-f", "x", "-w"}, "inject runs once"},
	    {{"preflight"}, "preflight needs -f FILE"},
	    {{"preflight", "-f", "x", "-w"}, "preflight runs once"},
	    {{"preflight", "-f", "x", "--check"}, "--check belongs to inject"},
	    {{"inject", "-f", "x", "--native", "1"}, "--native takes true or false, not 1"},
	    {{"inject", "-f", "x", "--config", "c", "--mesh=m"},
		"--config, or --values and --mesh"},
	};

	(void)state;
	serve(200, "{}");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(run_args(cases[i].args), 2);
		assert_non_null(strstr(err, cases[i].says));
		assert_string_equal(out, "");
		/* A slip costs a line or two, and not the whole help. */
		if (strcmp(cases[i].args[0], "-w") != 0)
			assert_true(lines_of(err) <= 4);
	}
}

/* ---- manifests ---- */

static char *write_temporary(const char *name, const char *text)
{
	char *path = mem_printf("%s/%s", dir, name);
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
	fclose(f);
	return path;
}

#define PILOT_POD(more)                                                                            \
	"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"p\",\"namespace\":"      \
	"\"d\",\"annotations\":{\"sidecar.istio.io/status\":"                                      \
	"\"{\\\"containers\\\":[\\\"istio-proxy\\\"]}\"}},\"spec\":{" more                         \
	"\"containers\":[{\"name\":\"a\"},{\"name\":\"istio-proxy\"}]}}"

/* A table or JSON; the exit status says whether one cannot move. */
static void pods_are_looked_at(void **state)
{
	auto_free char *one = write_temporary("good", PILOT_POD(""));
	auto_free char *other = write_temporary("bad", PILOT_POD("\"runtimeClassName\":\"kata\","));
	auto_free char *cut = write_temporary("cut", "{\"items\":[");

	(void)state;
	assert_int_equal(run("preflight", "-f", one), 0);
	assert_non_null(strstr(out, "Pod d/p   1     moves"));
	assert_non_null(strstr(out, "\n0 cannot move, 0 change, 1 move as they are, 0 moved"));
	assert_int_equal(run("preflight", "-f", other), 1);
	assert_non_null(strstr(out, "Pod d/p   1     cannot   runtimeClassName kata"));
	assert_int_equal(run("preflight", "-f", other, "-o", "json"), 1);
	assert_non_null(strstr(out, "\"verdict\": \"cannot\""));
	assert_int_equal(run("preflight", "-f", cut), 1);
	assert_non_null(strstr(err, "cut: object 1: the input ends inside of it"));
	assert_int_equal(run("preflight", "-f", "/nowhere"), 1);
	assert_non_null(strstr(err, "/nowhere: No such file"));
	unlink(one);
	unlink(other);
	unlink(cut);
}

#define A_POD                                                                                      \
	"apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  - name: a\n"     \
	"    command: ['0777', yes]\n"

/* The configuration is whole or in two parts; the way there and back. */
static void manifests_are_injected(void **state)
{
	auto_free char *pod = write_temporary("pod", A_POD);
	auto_free char *whole = write_temporary("whole",
	    "values: {global: {hub: h, tag: 1.2.3}}\nagentd: {redirectMode: none, native: true}\n");
	auto_free char *values =
	    write_temporary("values", "{\"global\":{\"hub\":\"h\",\"tag\":1}}");
	auto_free char *mesh = write_temporary("mesh", "trustDomain: td\n");
	auto_free char *to = mem_printf("%s/to", dir);

	(void)state;
	assert_int_equal(run("inject", "-f", pod, "--config", whole, "-o", to), 0);
	assert_string_equal(out, "");
	assert_int_equal(run("inject", "-f", to, "--config", whole), 0);
	assert_non_null(
	    strstr(out, "  initContainers:\n  - name: istio-proxy\n    image: h/proxyv2:1.2.3\n"));
	assert_non_null(strstr(out, "command: ['0777', yes]\n"));
	assert_int_equal(run("uninject", "-f", to), 0);
	assert_string_equal(out, A_POD);
	assert_int_equal(
	    run("inject", "-f", pod, "--values", values, "--mesh", mesh, "--native", "false"), 0);
	assert_non_null(strstr(out, "  - name: istio-proxy\n    image: h/proxyv2:1\n"));
	assert_non_null(strstr(out, "TRUST_DOMAIN: td\n"));
	assert_null(strstr(out, "initContainers:\n"));
	assert_int_equal(run("inject", "--check", "-f", pod, "--config", whole), 0);
	assert_non_null(strstr(out, "Pod \"p\"  yes       by default"));
	unlink(to);
	unlink(pod);
	unlink(whole);
	unlink(values);
	unlink(mesh);
}

static void what_is_refused_writes_nothing(void **state)
{
	auto_free char *bad = write_temporary("bad",
	    A_POD "---\n" A_POD "  hostNetwork: true\n---\n" A_POD "  runtimeClassName: kata\n");
	auto_free char *config =
	    write_temporary("config", "{values: {global: {hub: h, tag: 't'}}}\n");
	auto_free char *wrong = write_temporary("wrong", "valus: {}\n");
	auto_free char *to = mem_printf("%s/to", dir);

	(void)state;
	assert_int_equal(run("inject", "-f", bad, "--config", config, "-o", to), 1);
	assert_non_null(strstr(err, "document at line 20: Pod \"p\": runtimeClassName kata"));
	assert_int_equal(access(to, F_OK), -1);
	assert_int_equal(run("inject", "--check", "-f", bad, "--config", config), 1);
	assert_non_null(strstr(out, "refused"));
	assert_non_null(strstr(out, "Pod \"p\"  no        hostNetwork"));
	assert_int_equal(run("inject", "--check", "-f", bad, "--config", config, "-o", "json"), 1);
	assert_non_null(strstr(out, "\"refused\": \"runtimeClassName kata"));
	assert_int_equal(run("inject", "-f", bad, "--config", wrong), 1);
	assert_non_null(strstr(err, "no such key \"valus\""));
	assert_int_equal(run("inject", "-f", to), 1);
	assert_non_null(strstr(err, "No such file"));
	assert_int_equal(run("inject", "-f", bad), 1);
	assert_non_null(strstr(err, "global.hub and global.tag"));
	assert_int_equal(run("inject", "-f", bad, "--values", dir), 1);
	assert_non_null(strstr(err, "Is a directory"));
	unlink(bad);
	unlink(config);
	unlink(wrong);
}

static void what_is_passed_over_is_said(void **state)
{
	auto_free char *pod = write_temporary("pod", A_POD "  hostNetwork: true # so\n");

	(void)state;
	assert_int_equal(run("inject", "-f", pod), 0);
	assert_string_equal(out, A_POD "  hostNetwork: true # so\n");
	assert_string_equal(
	    err, "===> Skipping injection because Pod \"p\" has host networking enabled\n");
	unlink(pod);
}

/* ---- agentd cannot be reached ---- */

static void no_socket_is_3_with_a_hint(void **state)
{
	(void)state;
	for (int watch = 0; watch < 2; watch++) { /* there is nothing to watch */
		assert_int_equal(watch ? run("pods", "-w") : run("pods"), 3);
		assert_non_null(strstr(err, dir));
		assert_non_null(strstr(err, "No such file or directory"));
		assert_non_null(strstr(err, "is agentd running, with this --run directory?"));
		assert_string_equal(out, "");
	}
}

static void a_socket_nobody_listens_on_is_3(void **state)
{
	(void)state;
	close(listen_at());
	assert_int_equal(run("status", "-o", "json"), 3);
	assert_non_null(strstr(err, "(is agentd running?)"));
}

static void a_path_too_long_for_a_socket_is_3(void **state)
{
	char path[200];

	(void)state;
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(run("--run", path, "pods"), 3);
	assert_non_null(strstr(err, "too long"));
}

static void a_server_that_hangs_up_is_3(void **state)
{
	(void)state;
	serve(0, "");
	assert_int_equal(run("pods"), 3);
	assert_string_equal(err,
	    "agentctl: agentd did not answer: is its worker stopped? A silent one is "
	    "replaced soon\n");
}

/* ---- answers ---- */

static void a_refusal_is_1_with_its_reason(void **state)
{
	(void)state;
	serve(403, "only root may use this socket\n");
	assert_int_equal(run("pods"), 1);
	assert_string_equal(err, "agentctl: only root may use this socket\n");
	serve(400, "a\x1b[2Jb");
	assert_int_equal(run("log", "x:debug"), 1);
	assert_string_equal(err, "agentctl: a?[2Jb\n");
	serve(500, "");
	assert_int_equal(run("pods"), 1);
	assert_string_equal(err, "agentctl: agentd answered with status 500\n");
}

static void what_is_no_object_is_1(void **state)
{
	auto_free char *deep = mem_zalloc(100001);
	const char *const answers[] = {"", "x", "[1]", "3", "{\"a\":", "{\"a\":\"\xff\"}", deep};

	(void)state;
	memset(deep, '[', 100000);
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		serve(200, answers[i]);
		assert_int_equal(run("pods"), 1);
		assert_non_null(strstr(err, "not a JSON object"));
		assert_string_equal(out, "");
	}
}

/* A NACK is what some Envoy, or who took its place, made up; so is the name of a key. */
#define EVIL "\\u001b[2J\\u0007\\u009b31m\\r\\n\\u007f\\u202e"
#define HOSTILE                                                                                    \
	"{\"pods\":[{\"uid\":\"" EVIL "\",\"name\":\"p\",\"namespace\":\"n\",\"why_not\":\"" EVIL  \
	"\",\"ignored\":{\"" EVIL "\":[\"" EVIL "\"]}}],"                                          \
	"\"waiting_volumes\":[{\"uid\":\"u\",\"volume\":\"" EVIL "\",\"problem\":\"" EVIL "\"}],"  \
	"\"refused_manifests\":[{\"file\":\"" EVIL "\",\"why\":\"" EVIL "\"}],"                    \
	"\"certificates\":[{\"spiffe_id\":\"" EVIL "\",\"subscribers\":[\"" EVIL "\"]}],"          \
	"\"redirect\":[{\"pod\":\"n/p\",\"why_not\":\"" EVIL "\"}],"                               \
	"\"xds\":[{\"pod\":\"n/p\",\"ads\":{\"types\":{\"" EVIL "\":{\"version\":\"" EVIL          \
	"\",\"refused\":true,\"last_nack\":\"" EVIL "\"}}}}],"                                     \
	"\"control_planes\":[{\"name\":\"" EVIL "\",\"why_not\":\"" EVIL "\"}],\"" EVIL            \
	"\":\"" EVIL "\"}"

static void assert_printable(const char *text)
{
	for (const char *p = text; *p; p++)
		if (*p != '\n')
			assert_in_range((unsigned char)*p, ' ', '~');
}

static void nothing_of_a_pod_steers_the_terminal(void **state)
{
	static const char *const commands[][3] = {
	    {"pods"}, {"pods", "p"}, {"certs"}, {"xds"}, {"status"}, {"log"}, {"redirect"}};

	(void)state;
	serve(200, HOSTILE);
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		assert_in_range(run_args(commands[i]), 0, 1);
		assert_string_equal(err, "");
		assert_non_null(strstr(out, i == 5 ? "??????" : "?[2J?"));
		assert_printable(out);
	}
}

static void json_escapes_what_steers_a_terminal(void **state)
{
	json_t *v, *w = json_loads(HOSTILE, 0, NULL);

	(void)state;
	serve(200, HOSTILE);
	assert_int_equal(run("pods", "-o", "json"), 1);
	assert_null(strchr(out, '\x1b'));
	assert_null(strstr(out, "\xc2")); /* U+009B, which some terminals take for ESC [ */
	v = json_loads(out, 0, NULL);
	assert_non_null(v);
	assert_true(json_equal(v, w));
	json_decref(v);
	json_decref(w);
}

/* What was mounted before a restart that lost the rest; and a token that was not taken. */
static void a_volume_that_waits_is_a_problem(void **state)
{
	(void)state;
	serve(200, "{\"pods\":[],\"waiting_volumes\":[{\"uid\":\"6f1c\",\"volume\":\"mesh\","
		   "\"problem\":\"waits for the kubelet's next publish\"}]}");
	assert_int_equal(run("pods"), 1);
	assert_non_null(
	    strstr(out, "volume mesh of pod 6f1c: waits for the kubelet's next publish\n"));
	serve(200, "{\"pods\":[{\"name\":\"web\",\"namespace\":\"demo\",\"ready\":true,"
		   "\"volume\":{\"problem\":\"token: expired\"}}],\"waiting_volumes\":[]}");
	assert_int_equal(run("pods"), 1);
	assert_non_null(strstr(out, "token: expired"));
}

/* ---- output ---- */

static void an_output_that_fails_is_1(void **state)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), pipes[2];
	static const char *const once[] = {"log", NULL}, *const watch[] = {"log", "-w", NULL};

	(void)state;
	serve(200, "{\"xds\":\"info\"}");
	assert_int_equal(run_to(full, once), 1);
	assert_non_null(strstr(err, "No space left on device"));
	close(full);
	/* agentctl -w | head -1 */
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	close(pipes[0]);
	assert_int_equal(run_to(pipes[1], watch), 1);
	assert_non_null(strstr(err, "Broken pipe"));
	close(pipes[1]);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- a pod's bootstrap: its file, whether or not agentd runs ---- */

#define POD_UID "12345678-1234-1234-1234-123456789abc"

static const char *const folders[] = {"pods", "pods/" POD_UID, "pods/" POD_UID "/mount"};

static void write_bootstrap(const char *text)
{
	auto_free char *path = mem_printf("%s/%s/envoy-rev.json", dir, folders[2]);
	FILE *f;

	for (unsigned i = 0; i < 3; i++) {
		auto_free char *folder = mem_printf("%s/%s", dir, folders[i]);

		(void)mkdir(folder, 0700);
	}
	f = fopen(path, "we");
	assert_non_null(f);
	(void)fputs(text, f);
	(void)fclose(f);
}

static void remove_bootstrap(void)
{
	auto_free char *path = mem_printf("%s/%s/envoy-rev.json", dir, folders[2]);

	(void)unlink(path);
	for (unsigned i = 3; i-- > 0;) {
		auto_free char *folder = mem_printf("%s/%s", dir, folders[i]);

		(void)rmdir(folder);
	}
}

static void a_bootstrap_is_what_the_file_says(void **state)
{
	(void)state;
	write_bootstrap("{\"node\": {\"id\": \"\\u001b[2J\xc2\x9b\"}}");
	assert_int_equal(run("bootstrap", POD_UID), 0); /* agentd is not asked */
	assert_non_null(strstr(out, "\"id\": \"\\u001B[2J\\u009B\""));
	assert_int_equal(run("bootstrap", POD_UID, "-o", "yaml"), 0);
	assert_null(strchr(out, '\033'));
	remove_bootstrap();
	assert_int_equal(run("bootstrap", POD_UID), 1);
	assert_non_null(strstr(err, "agentctl pods says why"));
	assert_int_equal(run("bootstrap", "web"), 3);
}

static void a_bootstrap_is_found_by_name(void **state)
{
	(void)state;
	serve(200, "{\"pods\":[{\"namespace\":\"demo\",\"name\":\"web\",\"uid\":\"" POD_UID "\"},"
		   "{\"namespace\":\"demo\",\"name\":\"two\",\"uid\":\"a\"},"
		   "{\"namespace\":\"demo\",\"name\":\"two\",\"uid\":\"b\"}]}");
	write_bootstrap("{\"admin\": 1}");
	assert_int_equal(run("bootstrap", "demo/web"), 0);
	assert_string_equal(out, "{\n  \"admin\": 1\n}\n");
	assert_int_equal(run("bootstrap", "web", "-o", "json"), 0);
	assert_int_equal(run("bootstrap", "two"), 1);
	assert_non_null(strstr(err, "2 pods have this name"));
	assert_int_equal(run("bootstrap", "three"), 4);
	assert_int_equal(run("bootstrap"), 2);
	write_bootstrap("no JSON");
	assert_int_equal(run("bootstrap", "web"), 1);
	assert_non_null(strstr(err, "not a bootstrap"));
	remove_bootstrap();
}

/* ---- what its Envoy has: with a real one in tests/e2e/test_agentctl.py ---- */

static void a_config_dump_needs_an_envoy_that_was_proven(void **state)
{
	(void)state;
	serve(200, "{\"pods\":[{\"namespace\":\"demo\",\"name\":\"web\",\"uid\":\"" POD_UID
		   "\",\"sockets\":{\"attested\":{\"netns_cookie\":\"\"}}}]}");
	assert_int_equal(run("config-dump", "other"), 4);
	assert_int_equal(run("config-dump", "web"), 1);
	assert_non_null(strstr(err, "agentctl pods says why"));
	write_bootstrap("{\"admin\": 1}");
	assert_int_equal(run("config-dump", POD_UID), 1);
	assert_non_null(strstr(err, "no Envoy of web has connected yet"));
	remove_bootstrap();
	serve(200, "{\"pods\":[{\"namespace\":\"demo\",\"name\":\"web\",\"uid\":\"" POD_UID
		   "\",\"sockets\":{\"attested\":{\"netns_cookie\":\"18446744073709551615\"}}}]}");
	write_bootstrap("{\"admin\": 1}");
	assert_int_equal(run("config-dump", "web"), 1);
	assert_non_null(strstr(err, "no process of this node is in the network of web"));
	remove_bootstrap();
}

/* ---- each command, and names of all that it reads ---- */

#define RAW "\x1b[2J\x07\xc2\x9b\x7f"
#define EVIL_POD                                                                                   \
	"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"" EVIL                   \
	"\",\"namespace\":\"" EVIL "\",\"annotations\":{\"sidecar.istio.io/status\":"              \
	"\"{\\\"containers\\\":[\\\"istio-proxy\\\"]}\"}},\"spec\":{\"runtimeClassName\":\"" EVIL  \
	"\",\"hostNetwork\":true,\"containers\":[{\"name\":\"a\"},{\"name\":\"istio-proxy\"}]}}"

static const struct {
	const char *command, *args[10]; /* of commands.h; words */
} each[] = {
    {"status", {"status"}},
    {"alive", {"alive"}},
    {"ready", {"ready"}},
    {"pods", {"pods"}},
    {"pods", {"pods", "p"}},
    {"certs", {"certs"}},
    {"certs", {"certs", RAW}},
    {"xds", {"xds"}},
    {"xds", {"xds", "p", "--names"}},
    {"bootstrap", {"bootstrap", POD_UID}},
    {"config_dump", {"config-dump", "p"}},
    {"redirect", {"redirect"}},
    {"redirect_explain", {"redirect", "explain", "--pod", "p", "1.2.3.4:80"}},
    {"redirect_trace", {"redirect", "trace"}},
    {"dns", {"dns"}},
    {"dns", {"dns", "p", "web"}},
    {"manifest", {"manifest", "--from", RAW}},
    {"log", {"log"}},
    {"log", {"log", RAW}},
    {"bug_report", {"bug-report", "/nowhere/" RAW}},
    {"completion", {"completion"}},
    {"inject", {"inject", "-f", "DIR/pod", "--check", "--config", "DIR/config"}},
    {"inject", {"inject", "-f", "DIR/skipped", "--config", "DIR/config", "-o", "DIR/to"}},
    {"uninject", {"uninject", "-f", RAW}},
    {"preflight", {"preflight", "-f", "DIR/pod"}},
    {"version", {"version", "--deps"}},
};

/* With all that it prints looked at. */
static void run_one(const char *const *args, const char *format)
{
	const char *all[16] = {NULL};
	char *made[16] = {NULL};
	int n = 0;

	for (; args[n]; n++) {
		made[n] = strncmp(args[n], "DIR/", 4) ? mem_strdup(args[n])
						      : mem_printf("%s/%s", dir, args[n] + 4);
		all[n] = made[n];
	}
	if (format && !all[7]) {
		all[n] = "-o";
		all[n + 1] = format;
	}
	assert_in_range(run_args(all), 0, 4);
	assert_true(*out || *err || all[7]);
	for (const char *p = out; *p; p++)
		assert_true((*p >= ' ' && *p <= '~') || *p == '\n' || *p == '\t');
	assert_printable(err);
	for (n = 0; made[n]; n++)
		free(made[n]);
}

static void no_command_prints_what_steers_a_terminal(void **state)
{
	static const char *const formats[] = {NULL, "json", "yaml"};

	(void)state;
	serve(200, HOSTILE);
	auto_free char *pod = write_temporary("pod", EVIL_POD);
	auto_free char *skipped = write_temporary("skipped", EVIL_POD);
	auto_free char *config =
	    write_temporary("config", "{values: {global: {hub: h, tag: 't'}}}\n");
	auto_free char *to = mem_printf("%s/to", dir);
	write_bootstrap("{\"node\": {\"id\": \"" EVIL "\xc2\x9b\"}}");
	for (size_t i = 0; i < sizeof(each) / sizeof(*each); i++)
		for (size_t k = 0; k < sizeof(formats) / sizeof(*formats); k++)
			run_one(each[i].args, formats[k]);
	remove_bootstrap();
	unlink(pod);
	unlink(skipped);
	unlink(config);
	unlink(to);
}

/* A new one is looked at, too. */
static void each_command_was_looked_at(void **state)
{
#define NAME(name) #name,
	static const char *const names[] = {CTL_COMMANDS(NAME)};
#undef NAME

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		bool there = false;

		for (size_t k = 0; k < sizeof(each) / sizeof(*each); k++)
			there |= !strcmp(each[k].command, names[i]);
		if (!there)
			fail_msg("%s: not in the table above", names[i]);
	}
}

/* What has to be the same bytes is. */
static void what_is_injected_is_not_changed(void **state)
{
	static const char text[] = "# \xc3\xa9 \xf0\x9f\x98\x80\nkind: ConfigMap\n";
	auto_free char *file = write_temporary("file", text);

	(void)state;
	assert_int_equal(run("uninject", "-f", file), 0);
	assert_string_equal(out, text);
	unlink(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    test(help_and_version_are_no_error),
	    test(each_command_has_its_help),
	    test(each_command_that_takes_a_pod_completes_it),
	    test(options_reach_their_command),
	    test(wrong_usage_is_2_and_says_what),
	    test(manifests_are_injected),
	    test(pods_are_looked_at),
	    test(what_is_refused_writes_nothing),
	    test(what_is_passed_over_is_said),
	    test(no_socket_is_3_with_a_hint),
	    test(a_socket_nobody_listens_on_is_3),
	    test(a_path_too_long_for_a_socket_is_3),
	    test(a_server_that_hangs_up_is_3),
	    test(a_refusal_is_1_with_its_reason),
	    test(what_is_no_object_is_1),
	    test(nothing_of_a_pod_steers_the_terminal),
	    test(json_escapes_what_steers_a_terminal),
	    test(a_volume_that_waits_is_a_problem),
	    test(an_output_that_fails_is_1),
	    test(a_bootstrap_is_what_the_file_says),
	    test(a_bootstrap_is_found_by_name),
	    test(a_config_dump_needs_an_envoy_that_was_proven),
	    test(no_command_prints_what_steers_a_terminal),
	    test(each_command_was_looked_at),
	    test(what_is_injected_is_not_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
