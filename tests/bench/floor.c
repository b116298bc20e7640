/* floor.c - what grpc core costs a relay that does nothing else: `floor SOCKET HOST:PORT ROOTS`.
 *
 * One thread: ADS streams of a unix socket are opened again over TLS, and each message goes on as
 * it came.  A read is armed all the time, on both sides; nothing is looked at, counted or bounded.
 * An SDS stream is answered once, with something.  grpc's settings are the agent's, and all pods
 * have one server.  An agent cannot cost less on this grpc.  A line of its input: freed memory goes
 * back to the kernel.  It ends when its input does.
 */
#include "base/pbwire.h"
#include "common/mem.h"

#include <event2/buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ADS "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"

#define TYPE_SDS "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

enum {
	MAX_MESSAGE = 64 << 20,
	ROOTS_MAX = 1 << 16,
	POD_CHUNK = 8 << 10,
	PLANE_CHUNK = 1 << 20,
	SECRET = 2000
};
enum { VERSION = 1, RESOURCES = 2, TYPE = 4, NONCE = 5 }; /* of a DiscoveryResponse */

struct half;
struct tag {
	void (*done)(struct half *h, bool ok);
	struct half *half;
};
struct half { /* of a relayed stream */
	struct half *other;
	grpc_call *call;
	grpc_byte_buffer *message;
	struct tag read, written, rest;
	bool answered; /* of an SDS stream */
};
struct pair {
	struct half down, up;
	grpc_call_details details;
	grpc_metadata_array asked, headers, trailers;
	grpc_status_code status;
	grpc_slice why;
	int cancelled;
};

static grpc_completion_queue *cq;
static grpc_server *server;
static grpc_channel *channel;

static void start(
    struct half *h, struct tag *t, const grpc_op *op, void (*done)(struct half *, bool))
{
	*t = (struct tag){done, h};
	if (grpc_call_start_batch(h->call, op, 1, t, NULL) != GRPC_CALL_OK)
		abort();
}

static void on_done(struct half *h, bool ok)
{
	(void)h, (void)ok;
}

static void on_message(struct half *h, bool ok);

static void read_next(struct half *h)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &h->message};

	start(h, &h->read, &op, on_message);
}

static void on_written(struct half *to, bool ok)
{
	if (ok)
		read_next(to->other);
}

static void on_message(struct half *h, bool ok)
{
	grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = h->message};

	if (!ok || !h->message)
		return;
	start(h->other, &h->other->written, &op, on_written);
	grpc_byte_buffer_destroy(take(h->message));
}

/* --- an SDS stream --- */

static grpc_byte_buffer *secret(void)
{
	struct evbuffer *b = evbuffer_new();
	char bytes[SECRET] = {1};

	pbwire_put_bytes(b, VERSION, "1", 1);
	pbwire_put_bytes(b, RESOURCES, bytes, sizeof(bytes));
	pbwire_put_bytes(b, TYPE, TYPE_SDS, strlen(TYPE_SDS));
	pbwire_put_bytes(b, NONCE, "1", 1);
	grpc_slice made =
	    grpc_slice_from_copied_buffer((char *)evbuffer_pullup(b, -1), evbuffer_get_length(b));
	grpc_byte_buffer *out = grpc_raw_byte_buffer_create(&made, 1);

	grpc_slice_unref(made);
	evbuffer_free(b);
	return out;
}

static void on_asked(struct half *h, bool ok)
{
	grpc_op read = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &h->message};

	if (!ok || !h->message)
		return;
	grpc_byte_buffer_destroy(take(h->message));
	if (!h->answered) {
		grpc_byte_buffer *out = secret();
		grpc_op send = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = out};

		h->answered = true;
		start(h, &h->written, &send, on_done);
		grpc_byte_buffer_destroy(out);
	}
	start(h, &h->read, &read, on_asked);
}

/* --- calls --- */

static void *tag_of(struct half *h, void (*done)(struct half *, bool))
{
	struct tag *t = mem_zalloc(sizeof(*t));

	*t = (struct tag){done, h};
	return t;
}

static void start_alone(struct half *h, const grpc_op *op)
{
	if (grpc_call_start_batch(h->call, op, 1, tag_of(h, on_done), NULL) != GRPC_CALL_OK)
		abort();
}

static void open_up(struct pair *p)
{
	p->up.call = grpc_channel_create_call(channel, NULL, 0, cq,
	    grpc_slice_from_static_string(ADS), NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	start_alone(&p->up, &(grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA});
	start_alone(&p->up, &(grpc_op){.op = GRPC_OP_RECV_INITIAL_METADATA,
				.data.recv_initial_metadata.recv_initial_metadata = &p->headers});
	start_alone(
	    &p->up, &(grpc_op){.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
			.data.recv_status_on_client = {&p->trailers, &p->status, &p->why, NULL}});
}

static void on_call(struct half *down, bool ok);

/* A stream's few bytes are left to the end of the process. */
static void wait_for_call(void)
{
	struct pair *p = mem_zalloc(sizeof(*p));

	p->down.other = &p->up;
	p->up.other = &p->down;
	grpc_call_details_init(&p->details);
	grpc_metadata_array_init(&p->asked);
	grpc_metadata_array_init(&p->headers);
	grpc_metadata_array_init(&p->trailers);
	grpc_server_request_call(
	    server, &p->down.call, &p->details, &p->asked, cq, cq, tag_of(&p->down, on_call));
}

static void on_call(struct half *down, bool ok)
{
	struct pair *p = (struct pair *)down;
	const bool relayed = ok && grpc_slice_str_cmp(p->details.method, ADS) == 0;

	if (!ok)
		return;
	wait_for_call();
	grpc_call_details_destroy(&p->details);
	grpc_metadata_array_destroy(&p->asked);
	if (relayed)
		open_up(p);
	start_alone(down, &(grpc_op){.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
			      .data.recv_close_on_server.cancelled = &p->cancelled});
	start_alone(down, &(grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA});
	if (relayed) {
		read_next(&p->down);
		read_next(&p->up);
	} else {
		grpc_op op = {
		    .op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &down->message};

		start(down, &down->read, &op, on_asked);
	}
}

static void *follow_input(void *unused)
{
	while (getchar() != EOF)
		malloc_trim(0);
	_exit(0);
	return unused;
}

/* They are copied by whoever gets them. */
static grpc_channel_args *args(int read_chunk)
{
	static grpc_arg list[] = {
	    {GRPC_ARG_INTEGER, GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, {.integer = 0}},
	    {GRPC_ARG_INTEGER, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, {.integer = MAX_MESSAGE}},
	    {GRPC_ARG_INTEGER, GRPC_ARG_HTTP2_BDP_PROBE, {.integer = 0}},
	    {GRPC_ARG_INTEGER, GRPC_ARG_ENABLE_RETRIES, {.integer = 0}},
	    {GRPC_ARG_INTEGER, GRPC_ARG_ENABLE_CHANNELZ, {.integer = 0}},
	    {GRPC_ARG_INTEGER, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, {.integer = 1}},
	    {GRPC_ARG_STRING, GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
		{.string = "istiod.istio-system.svc"}},
	};
	static grpc_channel_args all = {sizeof(list) / sizeof(list[0]), list};

	list[0].value.integer = read_chunk;
	return &all;
}

static void serve(const char *path)
{
	auto_free char *at = mem_printf("unix:%s", path);

	server = grpc_server_create(args(POD_CHUNK), NULL);
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
	char roots[ROOTS_MAX] = "";
	FILE *f = argc == 4 ? fopen(argv[3], "r") : NULL;
	pthread_t end;

	if (!f || !fread(roots, 1, sizeof(roots) - 1, f))
		return 2;
	mallopt(M_ARENA_MAX, 2);
	setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", 0);
	grpc_init();
	cq = grpc_completion_queue_create_for_next(NULL);
	channel = grpc_channel_create(
	    argv[2], grpc_ssl_credentials_create(roots, NULL, NULL, NULL), args(PLANE_CHUNK));
	serve(argv[1]);
	pthread_create(&end, NULL, follow_input, NULL);
	for (;;) {
		grpc_event e =
		    grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
		struct tag *t = e.tag;

		if (e.type == GRPC_OP_COMPLETE)
			t->done(t->half, e.success);
	}
}
