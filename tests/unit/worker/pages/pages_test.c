/* pages_test.c - the whole worker with fakes at its edges: what a stranger on the metrics
 * port sees of it, from its beginning to its end.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/fake/link_redirect.c tests/fake/x509.c tests/fake/link_volume.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/mem.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "worker/agent.h"
#include "worker/config/config.h"

#define UID_A "6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11"
static const char settings[] = "control_planes:\n"
			       "  - name: istiod\n"
			       "    address: 127.0.0.1:15012\n";

struct world {
	struct loop *loop;
	struct config config;
	struct agent *agent;
	struct link *link;
	struct sockaddr_un port; /* to http_public a connection is a connection */
	socklen_t port_size;
	int kept; /* the broker's copy */
};

static void begin(struct world *w)
{
	char *argv[] = {"agentd-worker", NULL};
	struct err e = {0};

	memset(w, 0, sizeof(*w));
	w->loop = fake_loop();
	w->port_size = sizeof(w->port);
	w->port.sun_family = AF_UNIX;
	w->kept = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(w->kept, (struct sockaddr *)&w->port, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(w->kept, 4), 0);
	getsockname(w->kept, (struct sockaddr *)&w->port, &w->port_size);
	assert_int_equal(
	    config_load(&w->config,
		&(struct config_file){"agentd.yaml", settings, strlen(settings)}, 1, argv, &e),
	    0);
	fake_link_node_listener(LINK_NODE_METRICS, dup(w->kept));
	w->agent = agent_new(w->loop, &w->config, -1, &e);
	assert_non_null(w->agent);
	w->link = fake_link_last();
}

static void end(struct world *w)
{
	agent_free(&w->agent);
	config_clear(&w->config);
	fake_loop_advance(w->loop, 0);
	fake_loop_end(&w->loop);
	close(w->kept);
}

/* What is stored of an earlier worker was read: there are pages from now on. */
static void restored(struct world *w)
{
	fake_link_root(w->link, 0, "ROOT of istiod");
	fake_link_listed(w->link, LINK_STATE_CERT, NULL);
	fake_link_listed(w->link, LINK_STATE_CERT_IN_MEMORY, NULL);
	fake_link_listed(w->link, LINK_STATE_SERVED, NULL);
	fake_link_listed(w->link, LINK_STATE_NAMES, NULL);
	fake_loop_advance(w->loop, 0);
}

static int ask(const struct world *w, const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(connect(fd, (const struct sockaddr *)&w->port, w->port_size), 0);
	assert_true(dprintf(fd, "GET %s HTTP/1.1\r\n\r\n", path) > 0);
	return fd;
}

/* "" as long as there is no answer. */
static const char *answer(struct world *w, int fd)
{
	static char text[65536];
	size_t n = 0;
	ssize_t rc;

	for (int i = 0; i < 8; i++) {
		fake_loop_advance(w->loop, 0);
		while ((rc = recv(fd, text + n, sizeof(text) - n - 1, 0)) > 0)
			n += (size_t)rc;
	}
	text[n] = '\0';
	return text;
}

static void expect(struct world *w, const char *path, const char *status, const char *line)
{
	int fd = ask(w, path);
	const char *text = answer(w, fd);

	if (strncmp(text, status, strlen(status)) != 0 || !strstr(text, line))
		fail_msg("%s: %s", path, text);
	close(fd);
}

static void it_is_healthy_when_all_pods_of_before_are_told(void **state)
{
	struct world w;
	struct uuid uid;
	int early;

	(void)state;
	begin(&w);
	early = ask(&w, "/healthz");
	assert_string_equal(answer(&w, early), ""); /* waits */
	restored(&w);
	assert_int_equal(strncmp(answer(&w, early), "HTTP/1.1 503 ", 13), 0);
	close(early);
	fake_link_manifest(w.link, UID_A ".yaml",
	    "uid: " UID_A "\nname: web-0\nnamespace: demo\nservice_account: web\n");
	fake_link_synced(w.link);
	fake_loop_advance(w.loop, 0);
	expect(&w, "/healthz", "HTTP/1.1 503 ", "\nstarting: some previous pods");
	expect(&w, "/metrics", "HTTP/1.1 200 ", "\nagentd_pods{state=\"not_ready\"} 1\n");
	uuid_parse(&uid, UID_A);
	fake_link_added(w.link, &uid, "No space left on device"); /* not served, and told so */
	fake_loop_advance(w.loop, 0);
	expect(&w, "/healthz", "HTTP/1.1 200 ", "\nok\n");
	fake_loop_advance(w.loop, 8500);
	expect(&w, "/healthz", "HTTP/1.1 503 ", "\nthe broker has not answered for 8 s\n");
	expect(&w, "/metrics", "HTTP/1.1 200 ", "\nagentd_broker_silent_seconds 8\n");
	fake_link_ping(w.link, &(struct link_packet){.state = 12});
	fake_loop_advance(w.loop, 1000);
	expect(&w, "/healthz", "HTTP/1.1 200 ", "\nok\n");
	expect(
	    &w, "/metrics", "HTTP/1.1 200 ", "\nagentd_log_dropped_total{program=\"agentd\"} 12\n");
	end(&w);
}

static void pushes_are_told_as_they_are(void **state)
{
	const struct rpc_flow f = {.held = 5, .waiting = 7, .streams = 2, .unseen = 3};
	struct world w;

	(void)state;
	begin(&w);
	restored(&w);
	expect(&w, "/metrics", "HTTP/1.1 200 ",
	    "\nagentd_push_memory_bytes{state=\"bound\"} 67108864\n");
	expect(&w, "/metrics", "HTTP/1.1 200 ", "\nagentd_push_waiting_streams 0\n");
	expect(&w, "/metrics", "HTTP/1.1 200 ", "\nagentd_push_unbounded_streams_total 0\n");
	fake_rpc_flow(fake_rpc_last(), &f);
	fake_loop_advance(w.loop, 1000);
	expect(&w, "/metrics", "HTTP/1.1 200 ", "\nagentd_push_memory_bytes{state=\"held\"} 5\n");
	expect(
	    &w, "/metrics", "HTTP/1.1 200 ", "\nagentd_push_memory_bytes{state=\"waiting\"} 7\n");
	expect(&w, "/metrics", "HTTP/1.1 200 ", "\nagentd_push_waiting_streams 2\n");
	expect(&w, "/metrics", "HTTP/1.1 200 ", "\nagentd_push_unbounded_streams_total 3\n");
	end(&w);
}

static void an_ending_worker_leaves_scrapes_to_the_next(void **state)
{
	struct world w;
	int there, late;

	(void)state;
	begin(&w);
	restored(&w);
	fake_link_synced(w.link);
	there = ask(&w, "/metrics");
	fake_loop_advance(w.loop, 0);
	agent_stop_accepting(w.agent);
	late = ask(&w, "/metrics");
	assert_non_null(strstr(answer(&w, there), "\nagentd_build_info{"));
	assert_string_equal(answer(&w, late), "");
	agent_free(&w.agent);
	assert_int_equal(recv(late, &(char){0}, 1, 0), -1); /* still open */
	close(there);
	close(late);
	end(&w);
}

static void one_that_ends_before_it_has_pages(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	agent_stop_accepting(w.agent);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_is_healthy_when_all_pods_of_before_are_told),
	    cmocka_unit_test(pushes_are_told_as_they_are),
	    cmocka_unit_test(an_ending_worker_leaves_scrapes_to_the_next),
	    cmocka_unit_test(one_that_ends_before_it_has_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
