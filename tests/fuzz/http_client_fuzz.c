/* http_client_fuzz.c - any bytes as an answer: what a pod's app says to a question about its
 * health, and what agentctl is answered.
 *
 * First byte: where the bytes are cut; second: the status alone, or an answer without an end.
 * Whatever comes: there is one end; a body is there if a status is, and is a piece of what came;
 * and all of it is the same wherever the bytes are cut.
 */
#include "base/http/http.h"
#include "base/loop.h"
#include "common/err.h"

#include <event2/buffer.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STATUS_ALONE = 1, WITHOUT_END = 2, SENT_MAX = 32 * 1024, LEAST = 200, MOST = 999 };

static struct loop *l;

struct talk {
	int fd; /* the server's end */
	const uint8_t *rest;
	size_t rest_len;
	bool sent;
	unsigned ends;
	int status;
	struct evbuffer *body; /* all parts of it */
};

static void must(bool held)
{
	if (!held)
		abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct err e;

	(void)argc, (void)argv;
	must((l = loop_new(&e)) != NULL);
	return 0;
}

static void on_part(void *ctx, struct evbuffer *in)
{
	struct talk *t = ctx;

	evbuffer_add_buffer(t->body, in);
}

static void on_done(void *ctx, int status, struct evbuffer *body)
{
	struct talk *t = ctx;

	must(!body == !status);
	t->ends++;
	t->status = status;
	if (body)
		evbuffer_add_buffer(t->body, body);
	if (t->sent)
		loop_stop(l);
}

static void on_rest(void *ctx)
{
	struct talk *t = ctx;

	(void)send(t->fd, t->rest, t->rest_len, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(t->fd, SHUT_WR);
	t->sent = true;
	if (t->ends)
		loop_stop(l);
}

/* A turn later: what was sent before has been read by then. */
static void on_turn(void *ctx)
{
	loop_post(l, on_rest, ctx);
}

static void talk(struct talk *t, const uint8_t *bytes, size_t size, size_t cut, unsigned bits)
{
	struct http_get *get = NULL;
	int pair[2];

	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	*t = (struct talk){
	    .fd = pair[0], .rest = bytes + cut, .rest_len = size - cut, .body = evbuffer_new()};
	must(send(t->fd, bytes, cut, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)cut);
	http_get(l, &get,
	    (struct http_ask){
		.fd = pair[1], .method = "GET", .target = "/", .status_only = bits & STATUS_ALONE},
	    on_done, t);
	if (bits & WITHOUT_END)
		http_follow(get, on_part);
	loop_post(l, on_turn, t);
	loop_run(l);
	must(!get && t->ends == 1);
	close(t->fd);
}

static void check_status(const struct talk *t, const uint8_t *bytes, size_t size)
{
	must(t->status >= LEAST && t->status <= MOST);
	must(size > 12 && !memcmp(bytes, "HTTP/1.", 7));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct talk whole, cut;
	const uint8_t *body;
	size_t len;

	if (size < 2)
		return 0;
	size = size - 2 < SENT_MAX ? size - 2 : SENT_MAX;
	talk(&whole, data + 2, size, size, data[1]);
	talk(&cut, data + 2, size, data[0] < size ? data[0] : size, data[1]);
	len = evbuffer_get_length(whole.body);
	body = evbuffer_pullup(whole.body, -1);
	must(cut.status == whole.status && evbuffer_get_length(cut.body) == len);
	must(!len || !memcmp(evbuffer_pullup(cut.body, -1), body, len));
	must(!len || memmem(data + 2, size, body, len));
	if (whole.status)
		check_status(&whole, data + 2, size);
	must(!(data[1] & STATUS_ALONE) || !len || data[1] & WITHOUT_END);
	evbuffer_free(whole.body);
	evbuffer_free(cut.body);
	return 0;
}
