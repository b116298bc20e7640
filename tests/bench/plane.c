/* plane.c - a control plane that only pushes, as fast as grpc core can: `plane CERTIFICATE KEY`.
 *
 * tests/istiod is Python, which would be most of what is measured.  This one prints its port and,
 * on every ADS stream: a request -> a name "bytes:SIZE:..." is answered by a response of SIZE bytes
 * (the resources of one size are made once and never copied), "each:SIZE:..." by one of each type
 * that a change of the mesh brings, CDS and LDS by an empty one, the rest and every ACK by nothing.
 * Other methods are UNIMPLEMENTED.  One thread; it ends when its input does.
 */
#include "base/pbwire.h"
#include "common/mem.h"

#include <event2/buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define ADS "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
#define TYPE_CDS "type.googleapis.com/envoy.config.cluster.v3.Cluster"
#define TYPE_LDS "type.googleapis.com/envoy.config.listener.v3.Listener"

#define TYPE_EDS "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
#define TYPE_RDS "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

enum { RESOURCE = 1000, TEXT = 256, WAITING_MAX = 8 };
enum { NAMES = 3, TYPE = 4, NONCE = 5 };

static grpc_completion_queue *cq;
static grpc_server *server;

struct stream;
struct tag {
	void (*done)(struct stream *s, bool ok);
	struct stream *stream;
};

struct stream {
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array metadata;
	struct tag asked, greeted, read, written, ended;
	grpc_byte_buffer *in, *out;
	int cancelled;
	unsigned nonce;
	/* Asked for before the last one was known to be written. */
	struct {
		char type[TEXT];
		size_t size;
	} next[WAITING_MAX];
	size_t nnext;
};

static void start(
    struct stream *s, struct tag *t, const grpc_op *op, void (*done)(struct stream *, bool))
{
	*t = (struct tag){done, s};
	if (grpc_call_start_batch(s->call, op, 1, t, NULL) != GRPC_CALL_OK)
		abort();
}

/* --- a response --- */

static grpc_slice resources_of(const char *type, size_t size)
{
	struct evbuffer *b = evbuffer_new(), *any = evbuffer_new();
	char value[RESOURCE] = {1};

	pbwire_put_bytes(any, 1, type, strlen(type));
	pbwire_put_bytes(any, 2, value, sizeof(value));
	size_t len = evbuffer_get_length(any);
	while (evbuffer_get_length(b) < size)
		pbwire_put_bytes(b, 2, evbuffer_pullup(any, -1), len);
	grpc_slice made =
	    grpc_slice_from_copied_buffer((char *)evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
	evbuffer_free(any);
	return made;
}

static grpc_slice texts(const char *type, unsigned nonce)
{
	struct evbuffer *b = evbuffer_new();
	char text[20];

	int n = snprintf(text, sizeof(text), "n%u", nonce);
	pbwire_put_bytes(b, 1, "v1", 2);
	pbwire_put_bytes(b, TYPE, type, strlen(type));
	pbwire_put_bytes(b, NONCE, text, (size_t)n);
	grpc_slice made =
	    grpc_slice_from_copied_buffer((char *)evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
	return made;
}

static void push(struct stream *s, const char *type, size_t size);

static void on_written(struct stream *s, bool ok)
{
	grpc_byte_buffer_destroy(take(s->out));
	if (!ok || !s->nnext)
		return;
	push(s, s->next[0].type, s->next[0].size);
	memmove(&s->next[0], &s->next[1], --s->nnext * sizeof(s->next[0]));
}

static void push(struct stream *s, const char *type, size_t size)
{
	static grpc_slice resources;
	static size_t made;

	if (s->out) { /* the client may have read it and asked again before we hear of it */
		if (s->nnext == WAITING_MAX)
			abort();
		snprintf(s->next[s->nnext].type, TEXT, "%s", type);
		s->next[s->nnext++].size = size;
		return;
	}
	if (size && size != made) {
		grpc_slice_unref(resources);
		resources = resources_of(type, size);
		made = size;
	}
	grpc_slice parts[] = {texts(type, ++s->nonce), resources};
	s->out = grpc_raw_byte_buffer_create(parts, size ? 2 : 1);
	grpc_slice_unref(parts[0]);
	grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = s->out};
	start(s, &s->written, &op, on_written);
}

/* --- a request --- */

struct request {
	char type[TEXT], name[TEXT], nonce[TEXT];
};

static void read_request(struct request *r, const grpc_slice *bytes)
{
	struct iovec iov = {(void *)GRPC_SLICE_START_PTR(*bytes), GRPC_SLICE_LENGTH(*bytes)};
	struct pbwire reader;
	struct pbwire_field f;

	pbwire_init(&reader, &iov, 1);
	while (pbwire_next(&reader, &f) == 1) {
		char *to = f.number == TYPE ? r->type : f.number == NAMES ? r->name : r->nonce;

		if (f.number == TYPE || f.number == NAMES || f.number == NONCE)
			pbwire_string(f.bytes, to, TEXT);
	}
}

/* In istiod's order. */
static void push_each(struct stream *s, size_t size)
{
	static const char *const types[] = {TYPE_CDS, TYPE_EDS, TYPE_LDS, TYPE_RDS};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		push(s, types[i], size);
}

static void answer(struct stream *s, const grpc_slice *bytes)
{
	struct request r = {"", "", ""};

	read_request(&r, bytes);
	if (!strncmp(r.name, "bytes:", 6))
		push(s, r.type, strtoul(r.name + 6, NULL, 10));
	else if (!strncmp(r.name, "each:", 5))
		push_each(s, strtoul(r.name + 5, NULL, 10));
	else if (!*r.nonce && (!strcmp(r.type, TYPE_CDS) || !strcmp(r.type, TYPE_LDS)))
		push(s, r.type, 0);
}

static void on_request(struct stream *s, bool ok);

static void read_next(struct stream *s)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &s->in};

	start(s, &s->read, &op, on_request);
}

static void on_request(struct stream *s, bool ok)
{
	grpc_byte_buffer_reader reader;

	if (!ok || !s->in)
		return;
	grpc_byte_buffer_reader_init(&reader, s->in);
	grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
	answer(s, &all);
	grpc_slice_unref(all);
	grpc_byte_buffer_reader_destroy(&reader);
	grpc_byte_buffer_destroy(take(s->in));
	read_next(s);
}

/* --- a call --- */

static void on_greeted(struct stream *s, bool ok)
{
	(void)s, (void)ok;
}

/* A stream's few bytes are left to the end of the process. */
static void on_ended(struct stream *s, bool ok)
{
	(void)s, (void)ok;
}

static void on_call(struct stream *s, bool ok);

static void wait_for_call(void)
{
	struct stream *s = mem_zalloc(sizeof(*s));

	grpc_call_details_init(&s->details);
	grpc_metadata_array_init(&s->metadata);
	s->asked = (struct tag){on_call, s};
	grpc_server_request_call(server, &s->call, &s->details, &s->metadata, cq, cq, &s->asked);
}

static void on_call(struct stream *s, bool ok)
{
	grpc_op greet = {.op = GRPC_OP_SEND_INITIAL_METADATA};
	grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
	    .data.recv_close_on_server.cancelled = &s->cancelled};

	if (!ok)
		return;
	wait_for_call();
	if (grpc_slice_str_cmp(s->details.method, ADS) != 0) {
		grpc_call_cancel_with_status(s->call, GRPC_STATUS_UNIMPLEMENTED, "only ADS", NULL);
		grpc_call_unref(s->call);
		return;
	}
	start(s, &s->ended, &close, on_ended);
	start(s, &s->greeted, &greet, on_greeted);
	read_next(s);
}

static void *exit_with_input(void *unused)
{
	while (getchar() != EOF)
		;
	_exit(0);
	return unused;
}

static char *read_file(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = mem_zalloc(1 << 16);

	if (!f || !fread(text, 1, (1 << 16) - 1, f)) {
		fprintf(stderr, "plane: %s cannot be read\n", path);
		exit(1);
	}
	fclose(f);
	return text;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	grpc_ssl_pem_key_cert_pair pair = {
	    .cert_chain = read_file(argv[1]), .private_key = read_file(argv[2])};
	pthread_t end;

	grpc_init();
	cq = grpc_completion_queue_create_for_next(NULL);
	server = grpc_server_create(NULL, NULL);
	grpc_server_register_completion_queue(server, cq, NULL);
	grpc_server_credentials *creds =
	    grpc_ssl_server_credentials_create(NULL, &pair, 1, 0, NULL);
	int port = grpc_server_add_http2_port(server, "127.0.0.1:0", creds);

	grpc_server_start(server);
	printf("{\"port\": %d}\n", port);
	fflush(stdout);
	pthread_create(&end, NULL, exit_with_input, NULL);
	wait_for_call();
	for (;;) {
		grpc_event e =
		    grpc_completion_queue_next(cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
		struct tag *t = e.tag;

		if (e.type == GRPC_OP_COMPLETE)
			t->done(t->stream, e.success);
	}
}
