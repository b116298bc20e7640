/* ctl.c - connect to <run>/admin.sock, one request, run the loop until it is answered; what the
 * answer holds is made printable unless it is printed as JSON.
 */
#include "ctl.h"
#include "../base/err.h"
#include "../base/http.h"
#include "../base/loop.h"
#include "../base/mem.h"
#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

struct answer {
	struct loop *loop;
	int status;
	char *body; /* NUL-terminated */
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

/* Everything a string may hold is text of pods and peers in the end; none of it steers a terminal.
 */
static json_t *printable_string(const char *s)
{
	size_t size = strlen(s) + 1;
	auto_free char *copy = mem_zalloc(size);

	return json_string(err_printable(copy, (unsigned)size, s, (unsigned)size - 1));
}

static json_t *printable(json_t *v)
{
	json_t *copy, *inner;
	const char *key;
	size_t i;

	if (json_is_string(v))
		return printable_string(json_string_value(v));
	if (!json_is_array(v) && !json_is_object(v))
		return json_incref(v);
	copy = json_is_array(v) ? json_array() : json_object();
	json_array_foreach (v, i, inner)
		json_array_append_new(copy, printable(inner));
	json_object_foreach (v, key, inner) {
		json_t *name = printable_string(key);

		json_object_set_new(copy, json_string_value(name), printable(inner));
		json_decref(name);
	}
	return copy;
}

/* An answer that is not 200 says the reason in one line of text. */
static void print_refusal(const struct answer *a)
{
	json_t *line;

	a->body[strcspn(a->body, "\n")] = '\0';
	line = printable_string(a->body);
	if (!a->status)
		fprintf(stderr, "agentctl: agentd did not answer\n");
	else if (*a->body)
		fprintf(stderr, "agentctl: %s\n", json_string_value(line));
	else
		fprintf(stderr, "agentctl: agentd answered with status %d\n", a->status);
	json_decref(line);
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
		fprintf(
		    stderr, "agentctl: the answer is no JSON object: another version of agentd?\n");
		*status = CTL_PROBLEM;
		json_decref(value);
		return NULL;
	}
	if (c->json)
		return value; /* JSON escapes what is not printable */
	safe = printable(value);
	json_decref(value);
	return safe;
}

json_t *ctl_request(const struct ctl *c, const char *method, const char *target, int *status)
{
	struct answer a = {0};
	struct http_get *get = NULL;
	struct err e;
	json_t *value = NULL;
	int fd = connect_admin(c);

	*status = CTL_UNREACHABLE;
	if (fd < 0)
		return NULL;
	a.loop = loop_new(&e);
	if (!a.loop) {
		fprintf(stderr, "agentctl: %s\n", e.msg);
		close(fd);
		return NULL;
	}
	*status = CTL_OK;
	http_get(a.loop, &get, fd, method, target, on_answer, &a);
	loop_run(a.loop);
	value = parse(c, &a, status);
	loop_free(&a.loop);
	free(a.body);
	return value;
}
