/* envoy_admin.c - agentd knows the cookie of the pod's network namespace, which the broker has
 * proven
 * -> the process on this node that lives in it -> agentctl enters it, with its caller's right alone
 * -> Envoy's admin port, as the bootstrap has it.
 *
 * By evhttp itself: Envoy answers in chunks, and with more than base/http's client takes (16 MiB).
 */
#include "envoy_admin.h"
#include "base/json_walk.h"
#include "common/err.h"
#include "common/mem.h"
#include "memory.h"
#include "one_pod.h"
#include "show.h"
#include <dirent.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

enum { ANSWER_SIZE_MAX = 256 << 20, SILENT_S = 20, SPACES_MAX = 4096, ADMIN_PORT = 15000 };
static const size_t MEMORY_MAX = (size_t)4 * ANSWER_SIZE_MAX;

/* --- the namespace --- */

/* Those that were looked at, by inode: most processes share theirs with another one. */
struct seen {
	ino_t inodes[SPACES_MAX];
	unsigned n;
};

static bool is_new(struct seen *seen, ino_t inode)
{
	for (unsigned i = 0; i < seen->n; i++)
		if (seen->inodes[i] == inode)
			return false;
	if (seen->n < SPACES_MAX)
		seen->inodes[seen->n++] = inode;
	return true;
}

/* Of the namespace that we are in; 0: this kernel has none. */
static uint64_t cookie_here(void)
{
	auto_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	return fd < 0 || getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) ? 0 : cookie;
}

/* True: we are in it.  A process that has gone meanwhile has none. */
static bool enter_of(const char *pid, uint64_t cookie, struct seen *seen)
{
	auto_free char *path = mem_printf("/proc/%s/ns/net", pid);
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !is_new(seen, st.st_ino))
		return false;
	return !setns(fd, CLONE_NEWNET) && cookie_here() == cookie;
}

static bool enter(uint64_t cookie)
{
	auto_free struct seen *seen = mem_zalloc(sizeof(*seen));
	DIR *proc = opendir("/proc");
	const struct dirent *at;
	bool found = false;

	while (proc && !found && (at = readdir(proc)))
		if (at->d_name[0] >= '1' && at->d_name[0] <= '9')
			found = enter_of(at->d_name, cookie, seen);
	if (proc)
		closedir(proc);
	return found;
}

static uint64_t cookie_of(const json_t *pod)
{
	const json_t *attested = json_object_get(json_object_get(pod, "sockets"), "attested");

	return strtoull(ctl_string(attested, "netns_cookie"), NULL, 10);
}

static int enter_pod(const json_t *pod, struct err *e)
{
	const uint64_t cookie = cookie_of(pod);

	if (cookie && enter(cookie))
		return 0;
	if (!cookie_here())
		return err_set(e, ERR_UNAVAILABLE,
		    "this kernel does not say which network is the pod's (Linux 5.14 does)");
	if (!cookie)
		return err_set(e, ERR_UNAVAILABLE, "no Envoy of %s has connected yet",
		    ctl_string(pod, "name"));
	return err_set(e, ERR_UNAVAILABLE,
	    "no process of this node is in the network of %s: has it ended? "
	    "In a container this needs the node's pids (hostPID) and CAP_SYS_ADMIN",
	    ctl_string(pod, "name"));
}

/* --- the question --- */

struct question {
	struct event_base *base;
	int status; /* 0: none */
	bool too_long;
	char *answer;
	size_t len;
};

static void on_answer(struct evhttp_request *r, void *ctx)
{
	struct question *q = ctx;
	struct evbuffer *body = r ? evhttp_request_get_input_buffer(r) : NULL;
	const size_t len = body ? evbuffer_get_length(body) : 0;

	q->status = r ? evhttp_request_get_response_code(r) : 0;
	q->answer = mem_zalloc(len + 1);
	q->len = len;
	if (len)
		evbuffer_remove(body, q->answer, len);
	event_base_loopbreak(q->base);
}

static void on_error(enum evhttp_request_error error, void *ctx)
{
	struct question *q = ctx;

	q->too_long = error == EVREQ_HTTP_DATA_TOO_LONG;
}

static void ask(struct question *q, const char *page, const char *host, uint16_t port)
{
	struct evhttp_connection *c = evhttp_connection_base_new(q->base, NULL, host, port);
	struct evhttp_request *r = evhttp_request_new(on_answer, q);

	evhttp_request_set_error_cb(r, on_error);
	evhttp_connection_set_timeout(c, SILENT_S);
	evhttp_connection_set_max_body_size(c, ANSWER_SIZE_MAX);
	evhttp_add_header(evhttp_request_get_output_headers(r), "Host", "localhost");
	evhttp_add_header(evhttp_request_get_output_headers(r), "Connection", "close");
	if (!evhttp_make_request(c, r, EVHTTP_REQ_GET, page))
		event_base_dispatch(q->base);
	evhttp_connection_free(c);
}

static char *refuse(struct question *q, uint16_t port, struct err *e)
{
	if (q->too_long)
		err_set(e, ERR_PROTOCOL, "port %u of the pod: what answers sent more than %d MiB",
		    port, ANSWER_SIZE_MAX >> 20);
	else if (q->status)
		err_set(e, ERR_PROTOCOL, "port %u of the pod: status %d, and not Envoy's answer",
		    port, q->status);
	else
		err_set(e, ERR_UNAVAILABLE,
		    "port %u of the pod: no whole answer: does its Envoy run?", port);
	free(q->answer);
	return NULL;
}

/* The caller's; NULL: `e` says why. */
static char *ask_envoy(const json_t *bootstrap, const char *page, size_t *len, struct err *e)
{
	const json_t *at = json_object_get(
	    json_object_get(json_object_get(bootstrap, "admin"), "address"), "socket_address");
	const char *host = ctl_string(at, "address");
	const json_int_t said = json_integer_value(json_object_get(at, "port_value"));
	const uint16_t port = said > 0 && said <= UINT16_MAX ? (uint16_t)said : ADMIN_PORT;
	struct question q = {.base = event_base_new()};

	ask(&q, page, *host ? host : "127.0.0.1", port);
	event_base_free(q.base);
	if (q.status != 200 || !json_walk_is_object(q.answer, q.len))
		return refuse(&q, port, e);
	*len = q.len;
	return q.answer;
}

bool ctl_envoy_is_known(const json_t *pod)
{
	return cookie_of(pod) != 0;
}

/* There and back: who is in the pod's network gets no answer of agentd. */
char *ctl_envoy_page(
    const struct ctl *c, const json_t *pod, const char *page, size_t *len, struct err *e)
{
	auto_close int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	json_t *bootstrap = ctl_bootstrap_of(c, ctl_string(pod, "uid"), e);
	char *answer = NULL;

	ctl_memory_bound(MEMORY_MAX, "what listens on the pod's admin port answers with too much");
	if (bootstrap && !enter_pod(pod, e))
		answer = ask_envoy(bootstrap, page, len, e);
	if (home >= 0)
		(void)setns(home, CLONE_NEWNET);
	json_decref(bootstrap);
	return answer;
}

char *ctl_envoy_admin(const struct ctl *c, const char *page, size_t *len, int *status)
{
	json_t *pod = ctl_one_pod(c, c->words[0], status);
	char *answer;
	struct err e;

	if (!pod)
		return NULL;
	answer = ctl_envoy_page(c, pod, page, len, &e);
	if (!answer)
		fprintf(stderr, "agentctl: %s\n", e.msg);
	*status = answer ? CTL_OK : CTL_PROBLEM;
	json_decref(pod);
	return answer;
}
