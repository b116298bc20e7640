/* intake_test.c - messages that come in turn, over real TLS: what may come, what waits, and that
 * nothing is lost by it.
 *
 * LINK: tests/unit/rpc/rpc_rig.c tests/unit/rpc/tls_rig.c */
#include "rpc_rig.h"
#include "tls_rig.h"

#include "common/mem.h"
#include "rpc/tap.h"

#include <grpc/support/alloc.h>
#include <stdatomic.h>

enum { MB = 1000 * 1000, MIB = 1 << 20, SIZES = 8, CALLS = 64 };

static char *cert_pem, *key_pem;

static int make_certificate(void **state)
{
	(void)state;
	tls_rig_folder();
	tls_rig_run(
	    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
	    "-subj /CN=server -addext subjectAltName=DNS:" NAME " -keyout key.pem -out cert.pem");
	cert_pem = tls_rig_read("cert.pem");
	key_pem = tls_rig_read("key.pem");
	return 0;
}

static int remove_certificate(void **state)
{
	(void)state;
	free(cert_pem);
	free(key_pem);
	return tls_rig_remove_folder();
}

/* --- the server: "/push/5,3000000" sends messages of these sizes, "/end/5" ends after them --- */

struct pushing {
	struct plane *plane;
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array metadata;
	size_t sizes[SIZES];
	unsigned n, sent;
	bool ends;
	int cancelled;
	char closed; /* a tag of its own */
};

struct plane {
	struct tls_rig tls;
	struct pushing calls[CALLS];
	unsigned ncalls; /* that were asked for; the last one is not there yet */
	atomic_uint written;
};

static void ask_for_call(struct plane *p)
{
	struct pushing *c = &p->calls[p->ncalls++];

	assert_true(p->ncalls < CALLS);
	c->plane = p;
	grpc_call_details_init(&c->details);
	grpc_metadata_array_init(&c->metadata);
	grpc_server_request_call(
	    p->tls.grpc, &c->call, &c->details, &c->metadata, p->tls.cq, p->tls.cq, c);
}

static void read_method(struct pushing *c)
{
	char *method = grpc_slice_to_c_string(c->details.method), *at = strrchr(method, '/') + 1;

	c->ends = strncmp(method, "/end/", 5) == 0;
	for (char *end; *at && c->n < SIZES; at = *end ? end + 1 : end)
		c->sizes[c->n++] = strtoul(at, &end, 10);
	gpr_free(method);
}

static void push_next(struct pushing *c)
{
	grpc_op status = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
	    .data.send_status_from_server = {.status = GRPC_STATUS_OK}};
	grpc_op send = {.op = GRPC_OP_SEND_MESSAGE};

	if (c->sent < c->n) {
		grpc_slice bytes = grpc_slice_malloc(c->sizes[c->sent++]);

		memset(GRPC_SLICE_START_PTR(bytes), 'm', GRPC_SLICE_LENGTH(bytes));
		send.data.send_message.send_message = grpc_raw_byte_buffer_create(&bytes, 1);
		grpc_slice_unref(bytes);
		grpc_call_start_batch(c->call, &send, 1, c, NULL);
		grpc_byte_buffer_destroy(send.data.send_message.send_message);
	} else if (c->ends) {
		c->ends = false;
		grpc_call_start_batch(c->call, &status, 1, c, NULL);
	}
}

static void begin_call(struct pushing *c)
{
	grpc_op greet = {.op = GRPC_OP_SEND_INITIAL_METADATA};
	grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
	    .data.recv_close_on_server.cancelled = &c->cancelled};

	ask_for_call(c->plane);
	read_method(c);
	grpc_call_start_batch(c->call, &close, 1, &c->closed, NULL);
	grpc_call_start_batch(c->call, &greet, 1, c, NULL);
}

static void on_event(void *ctx, const grpc_event *ev)
{
	struct plane *p = ctx;

	for (unsigned i = 0; i < p->ncalls; i++) {
		struct pushing *c = &p->calls[i];

		if (ev->tag != c || !ev->success)
			continue;
		if (i == p->ncalls - 1)
			begin_call(c);
		else
			push_next(c);
		return;
	}
}

static void plane_begin(struct plane *p, struct loop *l)
{
	tls_rig_listen(&p->tls, cert_pem, key_pem);
	ask_for_call(p);
	tls_rig_serve(&p->tls, l, on_event, p);
}

static void plane_end(struct plane *p)
{
	tls_rig_stop(&p->tls);
	for (unsigned i = 0; i < p->ncalls; i++) {
		grpc_call_details_destroy(&p->calls[i].details);
		grpc_metadata_array_destroy(&p->calls[i].metadata);
		if (p->calls[i].call)
			grpc_call_unref(p->calls[i].call);
	}
	tls_rig_free(&p->tls);
}

/* --- an Envoy at a unix socket, and streams to the server that are its --- */

struct world {
	struct rig rig;
	struct plane plane;
	struct rpc_channel *channel; /* to it */
	struct side up[SIZES];
	bool plane_is_gone;
};

static void begin(struct world *w, int64_t bound)
{
	memset(w, 0, sizeof(*w));
	rig_begin(&w->rig);
	plane_begin(&w->plane, w->rig.loop);
	rpc_bound(w->rig.rpc, bound);
	auto_free char *target = mem_printf("127.0.0.1:%d", w->plane.tls.port);
	struct rpc_channel_options o = {
	    .target = target, .roots_pem = cert_pem, .server_name = NAME};

	w->channel = rpc_channel_new(w->rig.rpc, &o, NULL, NULL);
	rig_open(&w->rig, &w->rig.client);
	WAIT(&w->rig, w->rig.s.ncalls == 1);
}

static void end(struct world *w)
{
	for (unsigned i = 0; i < SIZES; i++)
		side_reset(&w->up[i]);
	rpc_channel_free(&w->channel);
	side_reset(&w->rig.s.calls[0]);
	side_reset(&w->rig.client);
	rig_settle(&w->rig, 0);
	if (!w->plane_is_gone)
		plane_end(&w->plane);
	rig_end(&w->rig);
}

/* A read is under way, which takes one message. */
static void stop_reading(struct world *w)
{
	rpc_pause(w->rig.client.stream, true);
	rpc_send(w->rig.s.calls[0].stream, "x", 1);
	WAIT(&w->rig, w->rig.client.messages == 1);
	w->rig.client.messages = 0;
	w->rig.client.bytes = 0;
}

static void hand_on(struct side *s, const struct rpc_msg *m)
{
	struct rpc_stream *envoy = s->rig->s.calls[0].stream;

	if (envoy)
		rpc_forward(envoy, m);
}

static struct side *open_up(struct world *w, unsigned i, const char *method)
{
	struct err e;
	struct side *s = &w->up[i];
	const struct rpc_call call = {.method = method, .wait_for_ready = true, .in_turn = true};

	*s = (struct side){.rig = &w->rig, .on_message = hand_on};
	assert_return_code(rpc_open(w->channel, &s->stream, &call, &side_events, s, &e), 0);
	return s;
}

/* An Envoy that does not read, and `n` messages for it, of which two fit. */
static void begin_crowded(struct world *w, unsigned n)
{
	begin(w, 8 * MIB);
	stop_reading(w);
	for (unsigned i = 0; i < n; i++)
		open_up(w, i, "/push/3000000");
}

static struct rpc_flow flow(const struct world *w)
{
	return rpc_flow(w->rig.rpc);
}

/* --- what is to be seen --- */

static void all_messages_come_in_order(void **state)
{
	(void)state;
	struct world w;

	begin(&w, 8 * MIB);
	struct side *s = open_up(&w, 0, "/push/5,70000,0,3000000,1,20000000,65535");

	WAIT(&w.rig, s->messages == 7);
	assert_int_equal(s->bytes, 5 + 70000 + 3 * MB + 1 + 20 * MB + 65535);
	WAIT(&w.rig, w.rig.client.messages == 7 && flow(&w).held == 0);
	assert_int_equal(flow(&w).streams, 0);
	assert_int_equal(flow(&w).waiting, 0);
	assert_int_equal(flow(&w).unseen, 0);
	end(&w);
}

/* Two fit; the others wait, within a window, until Envoy reads; what is small does not. */
static void what_does_not_fit_waits_for_the_envoy(void **state)
{
	(void)state;
	struct world w;

	begin_crowded(&w, 4);
	WAIT(
	    &w.rig, w.up[0].messages + w.up[1].messages + w.up[2].messages + w.up[3].messages == 2);
	WAIT(&w.rig, flow(&w).streams == 2);
	assert_in_range(flow(&w).held, 6 * MB, 8 * MIB);
	assert_int_equal(flow(&w).waiting, 6 * MB);
	open_up(&w, 4, "/push/60000");
	WAIT(&w.rig, w.up[4].messages == 1);
	WAIT(&w.rig, w.rig.s.calls[0].crowds >= 1); /* told who holds it */
	assert_int_equal(flow(&w).streams, 2);
	rpc_pause(w.rig.client.stream, false);
	WAIT(&w.rig, w.rig.client.messages == 5 && flow(&w).held == 0);
	assert_int_equal(w.rig.client.bytes, 12 * MB + 60000);
	assert_int_equal(flow(&w).streams, 0);
	end(&w);
}

/* What the Envoy holds is free when it goes, and not before. */
static void an_envoy_that_goes_makes_room(void **state)
{
	(void)state;
	struct world w;

	begin_crowded(&w, 3);
	WAIT(&w.rig, flow(&w).streams == 1);
	rpc_abort(&w.rig.s.calls[0].stream);
	WAIT(&w.rig, w.up[0].messages + w.up[1].messages + w.up[2].messages == 3);
	WAIT(&w.rig, flow(&w).held == 0);
	end(&w);
}

static void who_waits_may_be_closed_by_its_owner(void **state)
{
	(void)state;
	struct world w;

	begin_crowded(&w, 4);
	WAIT(&w.rig, flow(&w).streams == 2);
	for (unsigned i = 0; i < 4; i++)
		if (!w.up[i].messages)
			rpc_close(&w.up[i].stream, RPC_CANCELLED, "");
	WAIT(&w.rig, flow(&w).streams == 0);
	assert_int_equal(flow(&w).waiting, 0);
	end(&w);
}

/* A stream that is not read hears of its end, by status, and with messages before it. */
static void an_end_is_heard(void **state)
{
	(void)state;
	struct world w;

	begin(&w, 8 * MIB);
	struct side *none = open_up(&w, 0, "/end/"), *some = open_up(&w, 1, "/end/5,100000");

	WAIT(&w.rig, none->closes == 1 && some->closes == 1);
	assert_int_equal(none->status, RPC_OK);
	assert_int_equal(some->status, RPC_OK);
	assert_int_equal(none->messages, 0);
	assert_int_equal(some->bytes, 100005);
	end(&w);
}

/* The control plane goes while messages of it wait. */
static void a_connection_that_ends_is_heard_by_who_waits(void **state)
{
	(void)state;
	struct world w;

	begin_crowded(&w, 4);
	struct side *idle = open_up(&w, 4, "/push/1");

	WAIT(&w.rig, flow(&w).streams == 2 && idle->messages == 1);
	plane_end(&w.plane);
	w.plane_is_gone = true;
	WAIT(&w.rig, idle->closes == 1);
	for (unsigned i = 0; i < 4; i++)
		WAIT(&w.rig, w.up[i].closes == 1);
	assert_int_equal(flow(&w).streams, 0);
	end(&w);
}

/* Refused when it begins, not when it is whole. */
static void a_message_that_is_too_large_is_not_received(void **state)
{
	(void)state;
	struct world w;

	begin(&w, 80LL * MIB);
	struct side *s = open_up(&w, 0, "/push/70000000");

	WAIT(&w.rig, s->closes == 1);
	assert_int_equal(s->status, RPC_RESOURCE_EXHAUSTED);
	assert_string_equal(s->why, "Received message larger than max (70000000 vs. 67108864)");
	assert_int_equal(flow(&w).held, 0);
	end(&w);
}

static void a_paused_stream_waits_for_its_owner(void **state)
{
	(void)state;
	struct world w;

	begin(&w, 8 * MIB);
	struct side *s = open_up(&w, 0, "/push/100,3000000");

	rpc_pause(s->stream, true);
	struct side *other = open_up(&w, 1, "/push/3000000");

	WAIT(&w.rig, other->messages == 1);
	rig_settle(&w.rig, 50);
	assert_int_equal(s->messages, 0);
	rpc_pause(s->stream, false);
	WAIT(&w.rig, s->messages == 2);
	end(&w);
}

/* Then nothing is bounded, and it is said; but all of it comes. */
static void a_stream_that_is_not_seen_is_read_all_the_same(void **state)
{
	(void)state;
	struct world w;

	begin(&w, 8 * MIB);
	rpc_tap_tell(-1);
	struct side *s = open_up(&w, 0, "/push/5,3000000,20000000");

	WAIT(&w.rig, s->messages == 3);
	assert_int_equal(flow(&w).unseen, 1);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_messages_come_in_order),
	    cmocka_unit_test(what_does_not_fit_waits_for_the_envoy),
	    cmocka_unit_test(an_envoy_that_goes_makes_room),
	    cmocka_unit_test(who_waits_may_be_closed_by_its_owner),
	    cmocka_unit_test(an_end_is_heard),
	    cmocka_unit_test(a_connection_that_ends_is_heard_by_who_waits),
	    cmocka_unit_test(a_message_that_is_too_large_is_not_received),
	    cmocka_unit_test(a_paused_stream_waits_for_its_owner),
	    cmocka_unit_test(a_stream_that_is_not_seen_is_read_all_the_same),
	};

	return cmocka_run_group_tests(tests, make_certificate, remove_certificate);
}
