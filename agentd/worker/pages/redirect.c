/* redirect.c
 *
 * explain: question -> broker, which runs the programs' own rules on their maps -> verdict, by
 * name.
 * trace: the broker gives a pipe -> records -> a line each -> the client goes away: the pipe is
 * closed, which ends it at the broker; or the pipe ends first, and the stream with it.
 */
#include "redirect.h"
#include "base/loop.h"
#include "border/rules.h"
#include "common/err.h"
#include "common/mem.h"
#include "ebpf/rules_types.h"
#include "mesh/traffic.h"
#include "worker/link/redirect.h"
#include "worker/pods/pod.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

enum { ASKING_MAX = 32, PER_TURN = 64, TCP = 6, UDP = 17 };

/* One request under way. */
struct asking {
	struct pages_redirect *pages;
	struct http_later *answer;
	struct link_call *call;
	struct redirect_question question;
	int pipe; /* of a trace; -1: none yet */
	struct loop_fd readable;
	unsigned lost; /* lines the peer was too slow for */
	struct asking *prev, *next;
};

struct pages_redirect {
	struct loop *loop;
	struct link *link;
	struct pod_registry *pods;
	struct asking *list;
};

/* --- one request --- */

static void asking_end(struct asking *a)
{
	link_call_cancel(&a->call);
	loop_fd_stop(&a->readable);
	mem_closep(&a->pipe);
	http_later_end(&a->answer);
	DL_DELETE(a->pages->list, a);
	free(a);
}

static void on_gone(void *ctx)
{
	asking_end(ctx);
}

/* NULL: answered, there are too many. */
static struct asking *asking_new(struct pages_redirect *p, struct http_request *req)
{
	struct asking *a;
	int n;

	DL_COUNT(p->list, a, n);
	if (n >= ASKING_MAX) {
		http_reply(req, 503, "text/plain", NULL);
		return NULL;
	}
	a = mem_zalloc(sizeof(*a));
	a->pages = p;
	a->pipe = -1;
	http_defer(req, &a->answer, on_gone, a);
	DL_APPEND(p->list, a);
	return a;
}

static void refuse(struct asking *a, int status, const char *why)
{
	admin_later_text(&a->answer, status, why);
	asking_end(a);
}

/* --- explain --- */

static bool read_number(const char *text, unsigned long max, uint32_t *out)
{
	char *end;
	unsigned long n;

	if (!text || *text < '0' || *text > '9')
		return false;
	n = strtoul(text, &end, 10);
	*out = (uint32_t)n;
	return !*end && n <= max;
}

static bool read_address(const char *text, struct redirect_address *out)
{
	struct in_addr v4;

	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, text, &v4) == 1) {
		out->word[2] = htonl(0xffff);
		out->word[3] = v4.s_addr;
		return true;
	}
	return inet_pton(AF_INET6, text, out) == 1;
}

/* "10.0.0.1:80", "[fd00::1]:80" */
static bool read_target(const char *text, struct redirect_address *address, uint16_t *port)
{
	char host[INET6_ADDRSTRLEN + 2];
	const char *colon = text ? strrchr(text, ':') : NULL;
	size_t n = colon ? (size_t)(colon - text) : 0;
	bool bracketed = n > 2 && text[0] == '[' && text[n - 1] == ']';
	uint32_t number;

	if (!n || n >= sizeof(host) || !read_number(colon + 1, 65535, &number))
		return false;
	snprintf(host, sizeof(host), "%.*s", (int)(bracketed ? n - 2 : n), text + bracketed);
	*port = (uint16_t)number;
	return read_address(host, address) && bracketed == !!strchr(host, ':');
}

/* NULL: it is complete. */
static const char *read_question(struct http_request *req, struct redirect_question *q)
{
	const char *from = http_query(req, "from"), *protocol = http_query(req, "protocol");
	const char *uid = http_query(req, "uid"), *gid = http_query(req, "gid");

	if (!read_target(http_query(req, "to"), &q->flow.address, &q->flow.port))
		return "the destination must be like 10.0.0.1:80 or [fd00::1]:80";
	if ((uid && !read_number(uid, UINT32_MAX, &q->flow.uid)) ||
	    (gid && !read_number(gid, UINT32_MAX, &q->flow.gid)))
		return "uid and gid must be numbers";
	if (protocol && strcmp(protocol, "tcp") != 0 && strcmp(protocol, "udp") != 0)
		return "the protocol must be tcp or udp";
	q->flow.protocol = protocol && *protocol == 'u' ? UDP : TCP;
	q->inbound = from != NULL;
	q->probe = http_query(req, "probe") != NULL;
	if (from && !read_address(from, &q->arrival.source))
		return "the source must be an address";
	q->arrival.address = q->flow.address;
	q->arrival.port = q->flow.port;
	return NULL;
}

static const char *fate_of(unsigned verdict)
{
	if (traffic_verdict_redirects(verdict))
		return "redirected";
	return traffic_verdict_drops(verdict) ? "dropped" : "passed";
}

static void on_explained(void *ctx, const struct err *e, unsigned answer)
{
	struct asking *a = ctx;
	unsigned verdict = answer & ~(unsigned)REDIRECT_ANSWER_INBOUND;

	if (e)
		return refuse(a, 409, e->msg);
	if (verdict >= REDIRECT_VERDICTS)
		return refuse(a, 500, "the broker knows more verdicts than this worker");
	admin_later_json(
	    &a->answer, json_pack("{s:s, s:s, s:s}", "direction",
			    answer & REDIRECT_ANSWER_INBOUND ? "inbound" : "outbound", "verdict",
			    fate_of(verdict), "rule", traffic_verdict_name(verdict)));
	asking_end(a);
}

static struct pod *pod_of(const struct pages_redirect *p, const char *uid)
{
	struct uuid id;

	return uid && uuid_parse(&id, uid) ? pod_find(p->pods, &id) : NULL;
}

static void serve_explain(void *ctx, struct http_request *req)
{
	struct pages_redirect *p = ctx;
	struct asking *a = asking_new(p, req);
	const struct pod *pod = pod_of(p, http_query(req, "pod"));
	const char *wrong;

	if (!a)
		return;
	if (!pod)
		return refuse(a, 404, "there is no such pod");
	wrong = read_question(req, &a->question);
	if (wrong)
		return refuse(a, 400, wrong);
	link_redirect_explain(p->link, &a->call, &pod->spec.uid, &a->question, on_explained, a);
}

/* --- trace --- */

static void print_address(const struct redirect_address *a, char out[INET6_ADDRSTRLEN])
{
	if (!a->word[0] && !a->word[1] && a->word[2] == htonl(0xffff))
		inet_ntop(AF_INET, &a->word[3], out, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, a, out, INET6_ADDRSTRLEN);
}

static void add_line(struct asking *a, struct evbuffer *out, const struct link_trace *t)
{
	const struct pod *pod = pod_find(a->pages->pods, &t->pod);
	unsigned verdict = t->trace.verdict;
	char to[INET6_ADDRSTRLEN], from[INET6_ADDRSTRLEN];
	json_t *o;

	if (!pod || verdict >= REDIRECT_VERDICTS)
		return;
	print_address(&t->trace.address, to);
	print_address(&t->trace.source, from);
	o = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:i, s:s, s:I}", "time_ns",
	    (json_int_t)t->trace.time_ns, "pod", pod->spec.label, "verdict", fate_of(verdict),
	    "rule", traffic_verdict_name(verdict), "protocol",
	    t->trace.protocol == UDP ? "udp" : "tcp", "to", to, "port", (int)t->trace.port,
	    "direction", t->trace.inbound ? "inbound" : "outbound", "lost",
	    (json_int_t)t->lost + (json_int_t)a->lost);
	if (t->trace.inbound) {
		json_object_set_new(o, "from", json_string(from));
	} else {
		json_object_set_new(o, "uid", json_integer(t->trace.uid));
		json_object_set_new(o, "gid", json_integer(t->trace.gid));
	}
	auto_free char *text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	evbuffer_add_printf(out, "%s\n", text);
}

/* A line each; those the peer has no room for are counted, and told with the next one. */
static void on_records(void *ctx)
{
	struct asking *a = ctx;
	struct evbuffer *out = evbuffer_new();
	struct link_trace t;
	ssize_t n = 0;

	for (int i = 0; i < PER_TURN; i++) {
		n = read(a->pipe, &t, sizeof(t));
		if (n != sizeof(t))
			break;
		add_line(a, out, &t);
		a->lost = http_later_send(a->answer, out) ? 0 : a->lost + t.lost + 1;
	}
	evbuffer_free(out);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		asking_end(a);
}

static void on_pipe(void *ctx, const struct err *e, int fd)
{
	struct asking *a = ctx;

	if (e)
		return refuse(a, 409, e->msg);
	a->pipe = fd;
	http_later_begin(a->answer, 200, "application/json");
	loop_fd_watch(a->pages->loop, &a->readable, fd, LOOP_READ, on_records, a);
}

static void serve_trace(void *ctx, struct http_request *req)
{
	struct pages_redirect *p = ctx;
	struct asking *a = asking_new(p, req);
	const char *uid = http_query(req, "pod");
	const struct pod *pod = pod_of(p, uid);

	if (!a)
		return;
	if (uid && !pod)
		return refuse(a, 404, "there is no such pod");
	link_redirect_trace(p->link, &a->call, pod ? &pod->spec.uid : NULL, on_pipe, a);
}

/* --- life --- */

struct pages_redirect *pages_redirect_new(
    struct loop *l, struct link *link, struct pod_registry *pods, struct admin *a)
{
	struct pages_redirect *p = mem_zalloc(sizeof(*p));

	p->loop = l;
	p->link = link;
	p->pods = pods;
	admin_serve(a, "/redirect/explain", serve_explain, p);
	admin_serve(a, "/redirect/trace", serve_trace, p);
	return p;
}

void pages_redirect_free(struct pages_redirect **pp)
{
	struct pages_redirect *p = take(*pp);
	struct asking *a, *tmp;

	if (!p)
		return;
	DL_FOREACH_SAFE (p->list, a, tmp)
		asking_end(a);
	free(p);
}
