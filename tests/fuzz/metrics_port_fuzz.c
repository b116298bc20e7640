/* metrics_port_fuzz.c - any bytes on the metrics port, in two parts (where they are cut, the first
 * byte says), into the real server on the real loop.
 *
 * Whatever came in: there is one answer at most, it is well-formed, of a known status and
 * printable; a page was only made for a GET of its very path; and the connection is gone.
 * LINK: tests/unit/open_fds.c
 */
#include "base/http/public.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/err.h"
#include "tests/unit/open_fds.h"
#include "worker/admin/metrics_port.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SENT_MAX = 2 * PAGE_REQUEST_MAX };

static struct loop *l;
static struct metrics_port *port;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_len = sizeof(address);
static unsigned healths;

static struct {
	int fd;
	struct loop_fd readable;
	const char *rest;
	size_t rest_len, got;
	char answer[16 * 1024];
} client;

static void must(bool held)
{
	if (!held)
		abort();
}

static void on_before(void *ctx)
{
	metric_set(ctx, "name=\"x\"", 1);
}

static const char *on_health(void *ctx)
{
	(void)ctx;
	return healths++ & 1 ? "starting" : NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct err e;

	(void)argc;
	(void)argv;
	/* Nothing but the family: the kernel picks an abstract name. */
	must(!bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) && !listen(fd, 4));
	must(!getsockname(fd, (struct sockaddr *)&address, &address_len));
	must((l = loop_new(&e)) != NULL);
	port = metrics_port_new(l, fd,
	    &(struct metrics_port_rig){
		on_before, on_health, metric_gauge("fuzz_metric", "Of the fuzzer.")});
	return 0;
}

/* --- a connection --- */

static void on_rest(void *ctx)
{
	(void)ctx;
	(void)send(client.fd, client.rest, client.rest_len, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(client.fd, SHUT_WR);
}

static void on_readable(void *ctx)
{
	size_t room = sizeof(client.answer) - client.got;
	ssize_t n = recv(client.fd, client.answer + client.got, room, MSG_DONTWAIT);

	(void)ctx;
	if (n <= 0)
		return loop_stop(l);
	client.got += (size_t)n;
	must(client.got < sizeof(client.answer));
}

static void stop(void *ctx)
{
	(void)ctx;
	loop_stop(l);
}

static void talk(const char *bytes, size_t size, size_t cut)
{
	client.got = 0;
	client.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(!connect(client.fd, (struct sockaddr *)&address, address_len));
	if (cut)
		must(send(client.fd, bytes, cut, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)cut);
	client.rest = bytes + cut;
	client.rest_len = size - cut;
	loop_post(l, on_rest, NULL);
	loop_fd_watch(l, &client.readable, client.fd, LOOP_READ, on_readable, NULL);
	loop_run(l);
	loop_fd_stop(&client.readable);
	close(client.fd);
	/* The server sees our end in the next turn. */
	struct loop_timer soon = {0};
	loop_timer_in(l, &soon, 0, stop, NULL);
	loop_run(l);
}

/* --- the answer --- */

static void check_page(const char *body, size_t n, const char *data, size_t size)
{
	static const char metrics[] = "# HELP fuzz_metric ";
	const bool is_metrics = n > sizeof(metrics) && !memcmp(body, metrics, sizeof(metrics) - 1);
	const char *target = is_metrics ? "GET /metrics" : "GET /healthz";

	must(is_metrics || !memcmp(body, "ok\n", n));
	must(size > 12 && !memcmp(data, target, 12) && (data[12] == ' ' || data[12] == '?'));
}

/* No body, but the length of one; whatever is no request gets the body of its refusal. */
static bool is_head_alone(int status, const char *data, size_t size)
{
	return size > 5 && !memcmp(data, "HEAD ", 5) &&
	       (status == 200 || status == 404 || status == 503);
}

static void check_head(const char *length, size_t body, int status, const char *data, size_t size)
{
	must(length && strtoul(length + 18, NULL, 10) > 0 && body == 0);
	must(status != 200 || (size > 13 && (!memcmp(data, "HEAD /metrics", 13) ||
						!memcmp(data, "HEAD /healthz", 13))));
}

static void check_answer(const char *data, size_t size)
{
	const char *end = client.answer + client.got;
	const char *body = memmem(client.answer, client.got, "\r\n\r\n", 4), *length;
	int status = 0;

	if (!client.got)
		return;
	must(body && sscanf(client.answer, "HTTP/1.1 %d ", &status) == 1);
	must(status == 200 || status == 400 || status == 404 || status == 405 || status == 431 ||
	     status == 503);
	body += 4;
	length = memmem(client.answer, (size_t)(body - client.answer), "\r\nContent-Length: ", 18);
	if (is_head_alone(status, data, size))
		return check_head(length, (size_t)(end - body), status, data, size);
	must(length && strtoul(length + 18, NULL, 10) == (size_t)(end - body) && end > body);
	for (const char *c = client.answer; c < end; c++)
		must((*c >= ' ' && *c <= '~') || *c == '\n' || *c == '\r');
	if (status == 200)
		check_page(body, (size_t)(end - body), data, size);
	must(memmem(data, size, "\r\n\r\n", 4) || status == 431);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const int before = open_fds();
	const char *bytes = (const char *)data + 1;

	if (!size)
		return 0;
	size = size - 1 < SENT_MAX ? size - 1 : SENT_MAX;
	talk(bytes, size, data[0] < size ? data[0] : size);
	check_answer(bytes, size);
	must(open_fds() == before);
	return 0;
}
