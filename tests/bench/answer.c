/* answer.c - what grpc core costs SDS that does nothing else: `answer SOCKET BYTES`.
 *
 * Each stream of a unix socket is answered once, by the same BYTES, whatever it asks; the next
 * message is an ACK; the end is answered by an end.  One thread; nothing is looked at, counted or
 * wiped, and operations that can be are started together.  An agent cannot cost less on this grpc.
 * It ends when its input does.
 */
#include "base/pbwire.h"
#include "common/mem.h"

#include <event2/buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TYPE_SDS "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

enum { VERSION = 1, RESOURCES = 2, TYPE = 4, NONCE = 5 };

struct stream;
struct tag {
	void (*done)(struct stream *s, bool ok);
	struct stream *stream;
};
struct stream {
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array asked;
	grpc_byte_buffer *message;
	struct tag begun, step, ended;
	unsigned tags; /* under way */
	int cancelled;
};

static grpc_completion_queue *cq;
static grpc_server *server;
static grpc_byte_buffer *secret;

static grpc_byte_buffer *make_secret(size_t size)
{
	struct evbuffer *b = evbuffer_new();
	auto_free char *value = mem_zalloc(size + 1);

	pbwire_put_bytes(b, VERSION, "1", 1);
	pbwire_put_bytes(b, RESOURCES, value, size);
	pbwire_put_bytes(b, TYPE, TYPE_SDS, strlen(TYPE_SDS));
	pbwire_put_bytes(b, NONCE, "1", 1);
	grpc_slice all =
	    grpc_slice_from_copied_buffer((char *)evbuffer_pullup(b, -1), evbuffer_get_length(b));
	grpc_byte_buffer *made = grpc_raw_byte_buffer_create(&all, 1);

	grpc_slice_unref(all);
	evbuffer_free(b);
	return made;
}

static void start(struct stream *s, struct tag *t, const grpc_op *ops, size_t n)
{
	s->tags++;
	if (grpc_call_start_batch(s->call, ops, n, t, NULL) != GRPC_CALL_OK)
		abort();
}

static grpc_op receive(struct stream *s)
{
	return (grpc_op){.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &s->message};
}

/* The ACK, and again for the end. */
static void on_ack(struct stream *s, bool ok)
{
	grpc_op more = receive(s);
	grpc_op end = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
	    .data.send_status_from_server.status = GRPC_STATUS_OK};

	bool ended = !s->message;

	if (!ok)
		return;
	grpc_byte_buffer_destroy(take(s->message));
	s->step.done = ended ? NULL : on_ack;
	start(s, &s->step, ended ? &end : &more, 1);
}

static void on_request(struct stream *s, bool ok)
{
	grpc_op ops[] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
	    {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = secret}, receive(s)};

	if (!ok)
		return;
	grpc_byte_buffer_destroy(take(s->message));
	s->step.done = on_ack;
	start(s, &s->step, ops, 3);
}

static void on_call(struct stream *s, bool ok);

static void wait_for_call(void)
{
	struct stream *s = mem_zalloc(sizeof(*s));

	s->begun = (struct tag){on_call, s};
	s->step = (struct tag){on_request, s};
	s->ended = (struct tag){NULL, s};
	s->tags = 1;
	grpc_call_details_init(&s->details);
	grpc_metadata_array_init(&s->asked);
	grpc_server_request_call(server, &s->call, &s->details, &s->asked, cq, cq, &s->begun);
}

static void on_call(struct stream *s, bool ok)
{
	grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
	    .data.recv_close_on_server.cancelled = &s->cancelled};
	grpc_op first = receive(s);

	if (!ok)
		return;
	wait_for_call();
	start(s, &s->ended, &close, 1);
	start(s, &s->step, &first, 1);
}

static void unref(struct stream *s)
{
	if (--s->tags > 0 || !s->call)
		return;
	grpc_byte_buffer_destroy(s->message);
	grpc_call_details_destroy(&s->details);
	grpc_metadata_array_destroy(&s->asked);
	grpc_call_unref(s->call);
	free(s);
}

static void *exit_with_input(void *unused)
{
	while (getchar() != EOF)
		;
	_exit(0);
	return unused;
}

static void serve(const char *path)
{
	auto_free char *at = mem_printf("unix:%s", path);
	grpc_arg no_probe = {GRPC_ARG_INTEGER, GRPC_ARG_HTTP2_BDP_PROBE, {.integer = 0}};
	grpc_channel_args args = {1, &no_probe};

	server = grpc_server_create(&args, NULL);
	grpc_server_register_completion_queue(server, cq, NULL);
	if (!grpc_server_add_http2_port(server, at, grpc_insecure_server_credentials_create()))
		exit(1);
	grpc_server_start(server);
	wait_for_call();
	puts("{}");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	pthread_t end;

	if (argc != 3)
		return 2;
	grpc_init();
	cq = grpc_completion_queue_create_for_next(NULL);
	secret = make_secret(strtoul(argv[2], NULL, 10));
	serve(argv[1]);
	pthread_create(&end, NULL, exit_with_input, NULL);
	for (;;) {
		grpc_event e =
		    grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
		struct tag *t = e.tag;

		if (e.type != GRPC_OP_COMPLETE)
			continue;
		if (t->done)
			t->done(t->stream, e.success);
		unref(t->stream);
	}
}
