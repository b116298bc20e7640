/* request.c - connect to <run>/admin.sock, one request, run the loop until it is answered, or ends
 * a stream; what the answer holds is made printable unless it is printed as JSON.
 */
#include "request.h"
#include "base/http/http.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/mem.h"
#include "show.h"
#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { LINE_SIZE_MAX = 64 * 1024 };

struct answer {
	struct loop *loop;
	int status;
	char *body; /* NUL-terminated */
	const struct ctl *ctl;
	void (*print)(const struct ctl *c, const json_t *line); /* of a stream */
};

static void on_answer(void *ctx, int status, struct evbuffer *body)
{
	struct answer *a = ctx;
	size_t len = body ? evbuffer_get_length(body) : 0;

	a->status = status;
	a->body = mem_zalloc(len + 1);
	if (len)
		evbuffer_copyout(body, a->body, len);
	loop_stop(a->loop);
}

static int connect_admin(const struct ctl *c)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if ((size_t)snprintf(at.sun_path, sizeof(at.sun_path), "%s/admin.sock", c->run) >=
	    sizeof(at.sun_path)) {
		fprintf(stderr, "agentctl: --run: the path is too long for a socket\n");
		return -1;
	}
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at))) {
		const char *hint = errno == EACCES ? "run agentctl as root"
				   : errno == ENOENT
				       ? "is agentd running, with this --run directory?"
				       : "is agentd running?";

		fprintf(stderr, "agentctl: %s: %s (%s)\n", at.sun_path, strerror(errno), hint);
		return -1;
	}
	return take_fd(fd);
}

/* An answer that is not 200 says the reason in one line of text. */
static void print_refusal(const struct answer *a)
{
	json_t *line;

	a->body[strcspn(a->body, "\n")] = '\0';
	line = ctl_printable_string(a->body);
	if (!a->status)
		fprintf(stderr,
		    "agentctl: agentd did not answer: is its worker stopped? A silent one is "
		    "replaced soon\n");
	else if (*a->body)
		fprintf(stderr, "agentctl: %s\n", json_string_value(line));
	else
		fprintf(stderr, "agentctl: agentd answered with status %d\n", a->status);
	json_decref(line);
}

static void print_line(const struct answer *a, const char *text)
{
	json_t *value = json_loads(text, 0, NULL);
	json_t *safe = ctl_printable(value ? value : json_null());

	if (json_is_object(safe))
		a->print(a->ctl, safe);
	json_decref(safe);
	json_decref(value);
}

/* A line is short; one that is not would be no line of ours. */
static void on_lines(void *ctx, struct evbuffer *in)
{
	struct answer *a = ctx;
	char *line;

	while ((line = evbuffer_readln(in, NULL, EVBUFFER_EOL_LF))) {
		print_line(a, line);
		free(line);
	}
	if (evbuffer_get_length(in) > LINE_SIZE_MAX)
		evbuffer_drain(in, evbuffer_get_length(in));
	if (fflush(stdout) || ferror(stdout))
		loop_stop(a->loop);
}

static json_t *parse(const struct ctl *c, const struct answer *a, int *status)
{
	json_t *value, *safe;

	if (a->status != 200) {
		print_refusal(a);
		*status = a->status ? CTL_PROBLEM : CTL_UNREACHABLE;
		return NULL;
	}
	value = json_loads(a->body, 0, NULL);
	if (!json_is_object(value)) {
		fprintf(stderr,
		    "agentctl: the answer is not a JSON object: another version of agentd?\n");
		*status = CTL_PROBLEM;
		json_decref(value);
		return NULL;
	}
	if (c->json && !c->yaml)
		return value; /* JSON escapes what steers a terminal */
	safe = ctl_printable(value);
	json_decref(value);
	return safe;
}

/* False: the reason is on stderr. */
static bool ask(const struct ctl *c, const char *method, const char *target, struct answer *a)
{
	struct http_get *get = NULL;
	struct err e;
	int fd = connect_admin(c);

	if (fd < 0)
		return false;
	a->loop = loop_new(&e);
	if (!a->loop) {
		fprintf(stderr, "agentctl: %s\n", e.msg);
		close(fd);
		return false;
	}
	http_get(a->loop, &get, (struct http_ask){.fd = fd, .method = method, .target = target},
	    on_answer, a);
	if (a->print)
		http_follow(get, on_lines);
	loop_run(a->loop);
	http_get_cancel(&get); /* nobody reads what we print */
	loop_free(&a->loop);
	return true;
}

json_t *ctl_request(const struct ctl *c, const char *method, const char *target, int *status)
{
	struct answer a = {.ctl = c};
	json_t *value;

	*status = CTL_UNREACHABLE;
	if (!ask(c, method, target, &a))
		return NULL;
	*status = CTL_OK;
	value = parse(c, &a, status);
	free(a.body);
	return value;
}

int ctl_stream(
    const struct ctl *c, const char *target, void (*print)(const struct ctl *c, const json_t *line))
{
	struct answer a = {.ctl = c, .print = print};
	int status = CTL_OK;

	if (!ask(c, "GET", target, &a))
		return CTL_UNREACHABLE;
	if (a.body && a.status != 200) {
		print_refusal(&a);
		status = a.status ? CTL_PROBLEM : CTL_UNREACHABLE;
	}
	free(a.body);
	return status;
}
