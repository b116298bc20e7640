/* admin_fuzz.c - any bytes on the admin socket, into the real server on the real loop; or, when the
 * first byte is odd, any text as log levels.
 *
 * The rest of the first byte says where the bytes are cut in two.  Whatever came in: the answers
 * are well-formed HTTP of known statuses and printable, a page was only made for a GET of its path,
 * levels were only changed by a POST of /logging, and the connection is gone.
 * LINK: tests/unit/open_fds.c
 */
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "tests/unit/open_fds.h"
#include "worker/admin/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

LOG_SCOPE("fuzz");

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SENT_MAX = 100 * 1024, ANSWERS_MAX = 4 << 20 };

static struct loop *l;
static struct admin *admin;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_len = sizeof(address);
static unsigned pages_made;

struct client {
	int fd;
	struct loop_fd readable;
	const char *rest;
	size_t rest_len, got;
	char *answers;
};

static void must(bool held)
{
	if (!held)
		abort();
}

static void serve_page(void *ctx, struct http_request *req)
{
	(void)ctx;
	pages_made++;
	admin_reply_json(req, json_pack("{s:s}", "page", "made"));
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
	admin = admin_new(l, fd);
	admin_serve(admin, "/page", serve_page, NULL);
	return 0;
}

/* --- log levels ----------------------------------------------------------------------------------
 */

static void add_level(void *ctx, const char *scope, const char *level)
{
	json_object_set_new(ctx, scope, json_string(level));
}

static json_t *levels(void)
{
	json_t *all = json_object();

	log_each_scope(add_level, all);
	return all;
}

/* What a setting of an accepted text says of all scopes (general) or of its own. */
static void expect_setting(json_t *all, const char *setting, bool general)
{
	const char *colon = strchr(setting, ':'), *level = colon ? colon + 1 : setting, *key;
	auto_free char *scope =
	    mem_printf("%.*s", colon ? (int)(colon - setting) : 1, colon ? setting : "*");
	bool is_general = !strcmp(scope, "*") || !strcmp(scope, "default");
	json_t *v;

	must(!strcmp(level, "error") || !strcmp(level, "warn") || !strcmp(level, "info") ||
	     !strcmp(level, "debug"));
	must(is_general || json_object_get(all, scope));
	if (is_general != general)
		return;
	json_object_foreach (all, key, v)
		if (general || !strcmp(key, scope))
			json_string_set(v, level);
}

static void expect(json_t *all, const char *spec, bool general)
{
	auto_free char *copy = mem_strdup(spec);
	char *rest = copy, *setting;

	while ((setting = strsep(&rest, ",")))
		expect_setting(all, setting, general);
}

static void try_levels(const uint8_t *data, size_t size)
{
	auto_free char *spec = mem_zalloc(size + 1);
	json_t *expected = levels(), *now;
	struct err e = {0};

	memcpy(spec, data, size);
	if (!log_set_levels(spec, &e)) {
		expect(expected, spec, true);
		expect(expected, spec, false);
	} else {
		must(e.code == ERR_INVALID && *e.msg);
	}
	for (const char *s = e.msg; *s; s++)
		must(*s >= ' ' && *s <= '~');
	now = levels();
	must(json_equal(now, expected));
	json_decref(now);
	json_decref(expected);
}

/* --- answers -------------------------------------------------------------------------------------
 */

static bool is_known_status(int status)
{
	static const int known[] = {100, 200, 400, 404, 405, 413, 417, 500, 501};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (status == known[i])
			return true;
	return geteuid() != 0 && status == 403;
}

/* One answer at `at`; the next one behind it. */
static const char *check_answer(const char *at, const char *end)
{
	const char *body = memmem(at, (size_t)(end - at), "\r\n\r\n", 4), *length;
	int status = 0;
	size_t n;

	/* The version is the client's, whatever it said. */
	must(body && sscanf(at, "HTTP/%*d.%*d %d ", &status) == 1);
	must(is_known_status(status));
	body += 4;
	if (status == 100)
		return body;
	length = memmem(at, (size_t)(body - at), "\r\nContent-Length: ", 18);
	n = length ? strtoul(length + 18, NULL, 10) : (size_t)(end - body);
	must(n <= (size_t)(end - body));
	for (size_t i = 0; i < n; i++)
		must((body[i] >= ' ' && body[i] <= '~') || body[i] == '\n');
	return body + n;
}

/* --- a connection --------------------------------------------------------------------------------
 */

static void send_all(struct client *c, const char *bytes, size_t n)
{
	must(send(c->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n || errno == EPIPE);
}

static void on_rest(void *ctx)
{
	struct client *c = ctx;

	send_all(c, c->rest, c->rest_len);
	shutdown(c->fd, SHUT_WR);
}

static void on_readable(void *ctx)
{
	struct client *c = ctx;
	ssize_t n = recv(c->fd, c->answers + c->got, ANSWERS_MAX - c->got, MSG_DONTWAIT);

	if (n <= 0)
		return loop_stop(l);
	c->got += (size_t)n;
	must(c->got < ANSWERS_MAX);
}

static void talk(struct client *c, const char *bytes, size_t size, size_t cut)
{
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(!connect(c->fd, (struct sockaddr *)&address, address_len));
	send_all(c, bytes, cut);
	c->rest = bytes + cut;
	c->rest_len = size - cut;
	loop_post(l, on_rest, c);
	loop_fd_watch(l, &c->readable, c->fd, LOOP_READ, on_readable, c);
	loop_run(l);
	loop_fd_stop(&c->readable);
	close(c->fd);
}

static void try_requests(const uint8_t *data, size_t size, size_t cut)
{
	static char answers[ANSWERS_MAX];
	struct client c = {.answers = answers};
	json_t *before = levels(), *after;

	pages_made = 0;
	talk(&c, (const char *)data, size, cut < size ? cut : size);
	for (const char *at = answers, *end = answers + c.got; at < end;)
		at = check_answer(at, end);
	must(!pages_made || memmem(data, size, "GET /page", 9));
	after = levels();
	must(json_equal(before, after) || memmem(data, size, "POST /logging?", 14));
	json_decref(before);
	json_decref(after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int before = open_fds();

	if (!size)
		return 0;
	log_set_levels("error", NULL);
	if (data[0] & 1)
		try_levels(data + 1, size - 1);
	else
		try_requests(
		    data + 1, size - 1 < SENT_MAX ? size - 1 : SENT_MAX, data[0] / 2u * 2u);
	must(open_fds() == before);
	return 0;
}
