/* ctl.c - connect to <run>/admin.sock, one request, run the loop until it is answered. */
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

/* Take the body of an answer that was not 200 as the reason. */
static json_t *parse(const struct answer *a, int *status)
{
	json_t *value;

	if (a->status != 200) {
		fprintf(stderr, "agentctl: %s%s", a->status ? a->body : "agentd did not answer",
		    a->status ? "" : "\n");
		*status = a->status ? CTL_PROBLEM : CTL_UNREACHABLE;
		return NULL;
	}
	value = json_loads(a->body, JSON_DECODE_ANY, NULL);
	if (!value) {
		fprintf(stderr, "agentctl: the answer is not JSON: another version of agentd?\n");
		*status = CTL_PROBLEM;
	}
	return value;
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
	value = parse(&a, status);
	loop_free(&a.loop);
	free(a.body);
	return value;
}

const char *ctl_string(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s ? s : "";
}

void ctl_print_json(const json_t *value)
{
	json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY);
	putchar('\n');
}

static void print_scalar(const json_t *v)
{
	auto_free char *text = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY);

	printf("%s\n", text ? text : json_string_value(v));
}

static bool is_leaf(const json_t *v)
{
	return !(json_is_object(v) && json_object_size(v)) &&
	       !(json_is_array(v) && json_array_size(v));
}

void ctl_print_tree(const json_t *value, int indent)
{
	const char *key;
	json_t *v;
	size_t i;

	if (json_is_array(value)) {
		json_array_foreach (value, i, v) {
			printf("%*s- ", indent, "");
			if (is_leaf(v)) {
				print_scalar(v);
				continue;
			}
			putchar('\n');
			ctl_print_tree(v, indent + 2);
		}
		return;
	}
	json_object_foreach ((json_t *)value, key, v) {
		printf("%*s%s: ", indent, "", key);
		if (is_leaf(v)) {
			print_scalar(v);
			continue;
		}
		putchar('\n');
		ctl_print_tree(v, indent + 2);
	}
}
