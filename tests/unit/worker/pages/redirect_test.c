/* redirect_test.c - what agentctl redirect asks of the broker: the real server, loop and sockets, a
 * broker that answers when the test says so.  The peer must be root, so without root it is skipped.
 *
 * LINK: tests/fake/link.c tests/fake/link_redirect.c
 */
#include "base/loop.h"
#include "common/err.h"
#include "common/mem.h"
#include "tests/fake/link.h"
#include "tests/fake/link_redirect.h"
#include "worker/pages/redirect.h"
#include "worker/pods/pod.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define POD "01000000-0000-0000-0000-000000000000"
static const struct uuid pod = {{1}};

static struct loop *l;
static struct link *to_broker;
static struct pod_registry *pods;
static struct admin *admin;
static struct pages_redirect *pages;
static struct sockaddr_un address;
static socklen_t address_len;
static struct loop_timer poll;

static struct client {
	struct http_get *get;
	int status; /* -1: not answered */
	char text[16384];
} client;

static void on_pod(void *ctx, struct pod *p)
{
	(void)ctx;
	(void)p;
}

static int setup(void **state)
{
	static struct pod_source source = {.name = "test"};
	static const struct pod_observer observer = {on_pod, on_pod, on_pod, on_pod, NULL};
	struct pod_spec spec = {.uid = pod, .ns = "demo", .name = "web", .sa = "web"};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct err e;

	(void)state;
	if (geteuid() != 0)
		skip();
	address = (struct sockaddr_un){.sun_family = AF_UNIX};
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(fd, 64), 0);
	address_len = sizeof(address);
	getsockname(fd, (struct sockaddr *)&address, &address_len);
	l = loop_new(&e);
	to_broker = fake_link();
	pods = pod_registry_new(&observer, NULL);
	pod_source_add(pods, &source);
	assert_int_equal(pod_add(pods, &source, &spec, &e), 0);
	admin = admin_new(l, fd);
	pages = pages_redirect_new(l, to_broker, pods, admin);
	client = (struct client){.status = -1};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	http_get_cancel(&client.get);
	pages_redirect_free(&pages);
	admin_free(&admin);
	pod_registry_free(&pods);
	link_free(&to_broker);
	loop_timer_stop(&poll);
	loop_free(&l);
	return 0;
}

/* --- the client --- */

static void on_answer(void *ctx, int status, struct evbuffer *body)
{
	struct client *c = ctx;
	size_t n = strlen(c->text);

	c->status = status;
	if (body)
		c->text[n + (size_t)evbuffer_remove(body, c->text + n, sizeof(c->text) - 1 - n)] =
		    '\0';
}

static void on_part(void *ctx, struct evbuffer *in)
{
	on_answer(ctx, -1, in);
}

static void ask(struct client *c, const char *target, bool follow)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*c = (struct client){.status = -1};
	assert_int_equal(connect(fd, (struct sockaddr *)&address, address_len), 0);
	http_get(l, &c->get, (struct http_ask){.fd = fd, .method = "GET", .target = target},
	    on_answer, c);
	if (follow)
		http_follow(c->get, on_part);
}

static bool (*awaited)(void);

static void on_poll(void *ctx)
{
	(void)ctx;
	if (awaited())
		loop_stop(l);
	else
		loop_timer_in(l, &poll, 1, on_poll, NULL);
}

/* Runs the loop until `that` is so; for ever, if it never is. */
static void await(bool (*that)(void))
{
	awaited = that;
	loop_timer_in(l, &poll, 0, on_poll, NULL);
	loop_run(l);
}

static bool is_answered(void)
{
	return client.status != -1;
}

static bool is_explaining(void)
{
	return fake_link_waiting(to_broker, LINK_REDIRECT_EXPLAIN) || is_answered();
}

static bool is_tracing(void)
{
	return fake_link_waiting(to_broker, LINK_REDIRECT_TRACE) || is_answered();
}

/* --- explain --- */

static void test_wrong_questions(void **state)
{
	static const struct {
		const char *query;
		int status;
	} cases[] = {
	    {"", 404},
	    {"?pod=x&to=1.2.3.4:80", 404},
	    {"?pod=02000000-0000-0000-0000-000000000000&to=1.2.3.4:80", 404},
	    {"?pod=" POD, 400},
	    {"?pod=" POD "&to=", 400},
	    {"?pod=" POD "&to=1.2.3.4", 400},
	    {"?pod=" POD "&to=1.2.3.4:", 400},
	    {"?pod=" POD "&to=1.2.3.4:65536", 400},
	    {"?pod=" POD "&to=1.2.3.4:-1", 400},
	    {"?pod=" POD "&to=1.2.3.4:99999999999999999999", 400},
	    {"?pod=" POD "&to=fd00::1:80", 400},
	    {"?pod=" POD "&to=[1.2.3.4]:80", 400},
	    {"?pod=" POD "&to=[]:80", 400},
	    {"?pod=" POD "&to=[:80", 400},
	    {"?pod=" POD "&to=host:80", 400},
	    {"?pod=" POD "&to=1.2.3.4:80&uid=root", 400},
	    {"?pod=" POD "&to=1.2.3.4:80&uid=4294967296", 400},
	    {"?pod=" POD "&to=1.2.3.4:80&gid=", 400},
	    {"?pod=" POD "&to=1.2.3.4:80&protocol=sctp", 400},
	    {"?pod=" POD "&to=1.2.3.4:80&from=1.2.3", 400},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		auto_free char *target = mem_printf("/redirect/explain%s", cases[i].query);

		ask(&client, target, false);
		await(is_explaining);
		if (client.status != cases[i].status)
			fail_msg("%s: %d", target, client.status);
		assert_true(strlen(client.text) > 5); /* it says why */
	}
}

static void test_a_dial(void **state)
{
	const struct redirect_question *q = fake_redirect_question();

	(void)state;
	ask(&client, "/redirect/explain?pod=" POD "&to=[fd00::1]:443&uid=7&gid=8&protocol=udp",
	    false);
	await(is_explaining);
	assert_int_equal(q->inbound, 0);
	assert_int_equal(q->flow.address.word[0], htonl(0xfd000000));
	assert_int_equal(q->flow.address.word[3], htonl(1));
	assert_int_equal(q->flow.port, 443);
	assert_int_equal(q->flow.uid, 7);
	assert_int_equal(q->flow.gid, 8);
	assert_int_equal(q->flow.protocol, 17);
	fake_redirect_explained(to_broker, REDIRECT_PASS_NOT_TCP, NULL);
	await(is_answered);
	assert_int_equal(client.status, 200);
	assert_non_null(strstr(client.text, "\"direction\": \"outbound\""));
	assert_non_null(strstr(client.text, "\"verdict\": \"passed\""));
	assert_non_null(strstr(client.text, "\"rule\": \"not TCP\""));
}

static void test_an_arrival(void **state)
{
	const struct redirect_question *q = fake_redirect_question();

	(void)state;
	ask(&client, "/redirect/explain?pod=" POD "&to=10.0.0.1:80&from=10.0.0.2", false);
	await(is_explaining);
	assert_int_equal(q->inbound, 1);
	assert_int_equal(q->arrival.source.word[2], htonl(0xffff));
	assert_int_equal(q->arrival.source.word[3], htonl(0x0a000002));
	assert_int_equal(q->arrival.address.word[3], htonl(0x0a000001));
	assert_int_equal(q->arrival.port, 80);
	fake_redirect_explained(to_broker, REDIRECT_DROP_GATE | REDIRECT_ANSWER_INBOUND, NULL);
	await(is_answered);
	assert_non_null(strstr(client.text, "\"direction\": \"inbound\""));
	assert_non_null(strstr(client.text, "\"verdict\": \"dropped\""));
}

static void test_the_broker_does_not_explain(void **state)
{
	(void)state;
	ask(&client, "/redirect/explain?pod=" POD "&to=10.0.0.1:80", false);
	await(is_explaining);
	fake_redirect_explained(to_broker, 0, "this pod's traffic is not redirected by eBPF");
	await(is_answered);
	assert_int_equal(client.status, 409);
	assert_string_equal(client.text, "this pod's traffic is not redirected by eBPF\n");
	ask(&client, "/redirect/explain?pod=" POD "&to=10.0.0.1:80", false);
	await(is_explaining);
	fake_redirect_explained(to_broker, REDIRECT_VERDICTS, NULL);
	await(is_answered);
	assert_int_equal(client.status, 500);
}

static bool nothing_waits(void)
{
	return !fake_link_waiting(to_broker, LINK_REDIRECT_EXPLAIN) &&
	       !fake_link_waiting(to_broker, LINK_REDIRECT_TRACE);
}

static void test_the_client_goes_first(void **state)
{
	(void)state;
	ask(&client, "/redirect/explain?pod=" POD "&to=10.0.0.1:80", false);
	await(is_explaining);
	http_get_cancel(&client.get);
	await(nothing_waits);
}

static void test_too_many_questions(void **state)
{
	static struct client many[32];

	(void)state;
	for (int i = 0; i < 32; i++)
		ask(&many[i], "/redirect/trace", true);
	await(is_tracing);
	while (fake_link_waiting(to_broker, LINK_REDIRECT_TRACE) < 32)
		await(is_tracing);
	ask(&client, "/redirect/trace", false);
	await(is_answered);
	assert_int_equal(client.status, 503);
	for (int i = 0; i < 32; i++)
		http_get_cancel(&many[i].get);
	await(nothing_waits);
}

/* --- trace --- */

static int ends[2];

static void begin_trace(const char *target)
{
	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	ask(&client, target, true);
	await(is_tracing);
	fake_redirect_traced(to_broker, ends[0], NULL);
}

static struct link_trace record(unsigned verdict)
{
	struct link_trace t = {.pod = pod,
	    .trace = {.verdict = verdict, .uid = 7, .gid = 8, .port = 80, .protocol = 6}};

	t.trace.address.word[2] = htonl(0xffff);
	t.trace.address.word[3] = htonl(0x0a000001);
	return t;
}

static void say(const struct link_trace *t)
{
	assert_int_equal(write(ends[1], t, sizeof(*t)), sizeof(*t));
}

static bool has_three_lines(void)
{
	const char *at = client.text;
	int n = 0;

	for (; (at = strchr(at, '\n')); at++)
		n++;
	return n >= 3;
}

static void test_lines(void **state)
{
	struct link_trace t = record(REDIRECT_TO_OUTBOUND);
	char *line = client.text;

	(void)state;
	begin_trace("/redirect/trace?pod=" POD);
	say(&t);
	t.pod = (struct uuid){{9}}; /* gone meanwhile: no line */
	say(&t);
	t = record(REDIRECT_VERDICTS); /* of a newer broker: no line */
	say(&t);
	t = record(REDIRECT_DROP_GATE);
	t.trace.inbound = 1;
	t.trace.source.word[3] = htonl(1);
	t.lost = 3;
	say(&t);
	t = record(REDIRECT_PASS_NOT_TCP);
	t.trace.protocol = 17;
	say(&t);
	await(has_three_lines);
	line = strtok(client.text, "\n");
	assert_non_null(strstr(line, "\"pod\":\"demo/web\",\"verdict\":\"redirected\""));
	assert_non_null(strstr(line, "\"to\":\"10.0.0.1\",\"port\":80"));
	assert_non_null(strstr(line, "\"direction\":\"outbound\",\"lost\":0,\"uid\":7,\"gid\":8"));
	line = strtok(NULL, "\n");
	assert_non_null(strstr(line, "\"verdict\":\"dropped\""));
	assert_non_null(strstr(line, "\"direction\":\"inbound\",\"lost\":3,\"from\":\"::1\""));
	line = strtok(NULL, "\n");
	assert_non_null(strstr(line, "\"protocol\":\"udp\""));
	close(ends[1]);
}

static void test_the_trace_ends(void **state)
{
	(void)state;
	begin_trace("/redirect/trace");
	close(ends[1]);
	await(is_answered);
	assert_int_equal(client.status, 200);
	assert_string_equal(client.text, "");
}

static bool is_pipe_closed(void)
{
	struct link_trace t = record(0);

	return write(ends[1], &t, sizeof(t)) < 0 && errno == EPIPE;
}

static void test_the_reader_goes(void **state)
{
	struct link_trace t = record(REDIRECT_TO_OUTBOUND);

	(void)state;
	begin_trace("/redirect/trace");
	say(&t);
	say(&t);
	say(&t);
	await(has_three_lines);
	http_get_cancel(&client.get);
	await(is_pipe_closed);
	close(ends[1]);
}

static void test_no_trace(void **state)
{
	(void)state;
	ask(&client, "/redirect/trace?pod=x", true);
	await(is_tracing);
	assert_int_equal(client.status, 404);
	ask(&client, "/redirect/trace", true);
	await(is_tracing);
	fake_redirect_traced(to_broker, -1, "4 traces run already");
	await(is_answered);
	assert_int_equal(client.status, 409);
	assert_string_equal(client.text, "4 traces run already\n");
}

/* With a question and a trace under way. */
static void test_the_end(void **state)
{
	static struct client other;

	(void)state;
	begin_trace("/redirect/trace");
	ask(&other, "/redirect/explain?pod=" POD "&to=10.0.0.1:80", false);
	await(is_explaining);
	pages_redirect_free(&pages);
	assert_true(is_pipe_closed());
	assert_true(nothing_waits());
	http_get_cancel(&other.get);
	close(ends[1]);
}

#define PAGES_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {PAGES_TEST(test_wrong_questions),
	    PAGES_TEST(test_a_dial), PAGES_TEST(test_an_arrival),
	    PAGES_TEST(test_the_broker_does_not_explain), PAGES_TEST(test_the_client_goes_first),
	    PAGES_TEST(test_too_many_questions), PAGES_TEST(test_lines),
	    PAGES_TEST(test_the_trace_ends), PAGES_TEST(test_the_reader_goes),
	    PAGES_TEST(test_no_trace), PAGES_TEST(test_the_end)};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
