/* costs.c - does one thing once inside measured(), where callgrind counts; or times it.
 *
 *   peek SIZE     what the proxy reads of an ADS response of SIZE bytes, in slices as grpc has them
 *   unpack SIZE   the same response unpacked by protobuf-c, for comparison
 *   sds           an SDS request for `default` to its answer, on a transport that is a fake
 *   attest        CPU nanoseconds, on average, of looking at a connection that is known (attest.h)
 *   key TYPE      CPU microseconds, on average, of making key and request (x509_make_request)
 */
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "common/err.h"
#include "common/mem.h"
#include "envoy/service/discovery/v3/discovery.pb-c.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "worker/ads/discovery.h"
#include "worker/crypto/cert.h"
#include "worker/sds/server.h"
#include "worker/sockets/attest.h"

enum { SLICE = 16 * 1024, RESOURCE = 1000, RUNS = 20, LOOKS = 100000 };

void measured(void (*what)(void *ctx), void *ctx); /* callgrind finds it by its name */
__attribute__((noinline)) void measured(void (*what)(void *ctx), void *ctx)
{
	what(ctx);
	__asm__ volatile("" ::: "memory"); /* no tail call: it would leave the function early */
}

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "costs: %s\n", what);
	exit(1);
}

/* --- an ADS response --- */

struct response {
	uint8_t *bytes;
	size_t size;
	struct iovec *iov;
	size_t n;
};

/* Resources of about 1,000 bytes each, as many as fit. */
static struct response make_response(size_t size)
{
	struct evbuffer *b = evbuffer_new(), *any = evbuffer_new();
	char resource[RESOURCE - 100] = {1};

	pbwire_put_bytes(any, 1, TYPE_CLUSTER, strlen(TYPE_CLUSTER));
	pbwire_put_bytes(any, 2, resource, sizeof(resource));
	size_t len = evbuffer_get_length(any);
	pbwire_put_bytes(b, 1, "2026-11-21T10:00:00Z/17", 23);
	while (evbuffer_get_length(b) + len < size)
		pbwire_put_bytes(b, 2, evbuffer_pullup(any, -1), len);
	pbwire_put_bytes(b, 4, TYPE_CLUSTER, strlen(TYPE_CLUSTER));
	pbwire_put_bytes(b, 5, "0123456789abcdef", 16);

	struct response r = {.size = evbuffer_get_length(b)};
	r.bytes = mem_dup(evbuffer_pullup(b, -1), r.size);
	r.n = (r.size + SLICE - 1) / SLICE;
	r.iov = mem_zalloc(r.n * sizeof(*r.iov));
	for (size_t i = 0; i < r.n; i++)
		r.iov[i] = (struct iovec){
		    r.bytes + i * SLICE, i + 1 < r.n ? SLICE : r.size - i * (size_t)SLICE};
	evbuffer_free(any);
	evbuffer_free(b);
	return r;
}

static void peek(void *ctx)
{
	struct response *r = ctx;
	struct discovery_response seen;
	struct pbwire reader;
	struct err e;

	pbwire_init(&reader, r->iov, r->n);
	need(!discovery_read_response(&seen, reader, &e) && seen.resources, "peek");
}

static void unpack(void *ctx)
{
	struct response *r = ctx;
	Envoy__Service__Discovery__V3__DiscoveryResponse *m =
	    envoy__service__discovery__v3__discovery_response__unpack(NULL, r->size, r->bytes);

	need(m && m->n_resources, "unpack");
	envoy__service__discovery__v3__discovery_response__free_unpacked(m, NULL);
}

/* --- a secret --- */

struct sds {
	struct loop *loop;
	struct rpc_stream *stream;
	struct sds_server *server;
	struct evbuffer *request;
};

static void on_incoming(void *ctx, struct rpc_stream *s, const char *method)
{
	struct sds *x = ctx;

	need(sds_server_incoming(x->server, s, method), "method");
}

/* Nobody reads the texts; they have the usual sizes. */
static struct cert *make_cert(void)
{
	struct cert *c = mem_zalloc(sizeof(*c));

	c->refs = 1;
	strcpy(c->leaf.serial, "01");
	c->leaf.not_after = INT64_MAX;
	c->key_pem = mem_printf("%0230d", 0);
	c->chain_pem = mem_printf("%02000d", 0);
	c->root_pem = mem_strdup("root");
	return c;
}

static void ask(void *ctx)
{
	struct sds *x = ctx;

	fake_rpc_push(x->stream, evbuffer_pullup(x->request, -1), evbuffer_get_length(x->request));
	fake_loop_advance(x->loop, 0);
}

static void measure_sds(void)
{
	static const struct rpc_server_options options = {.max_message = 1 << 20, .max_streams = 9};
	struct loop *l = fake_loop();
	struct sds x = {
	    .loop = l, .server = sds_server_new(l, "ns/pod"), .request = evbuffer_new()};
	struct rpc *rpc = rpc_new(x.loop);
	struct rpc_server *server = rpc_server_new(rpc, &options, on_incoming, &x);
	struct cert *cert = make_cert();

	sds_server_set_cert(x.server, cert, NULL);
	x.stream =
	    fake_rpc_call(server, "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets");
	fake_loop_advance(x.loop, 0);
	pbwire_put_bytes(x.request, 2, "\x0a\x01n", 3); /* node {id: "n"} */
	pbwire_put_bytes(x.request, 3, "default", strlen("default"));
	pbwire_put_bytes(x.request, 4, TYPE_SECRET, strlen(TYPE_SECRET));
	measured(ask, &x);
	need(fake_rpc_sent(x.stream) == 1, "one answer");
}

/* --- a key --- */

static void time_key(enum x509_key_type type)
{
	static const struct identity id = {"cluster.local", "ns", "sa"};
	struct x509_key_params params = {.type = type};
	clock_t sum = 0;

	for (int i = 0; i < RUNS; i++) {
		struct x509_request r;
		struct err e;
		clock_t start = clock();

		need(!x509_make_request(&r, &params, &id, &e), "key");
		sum += clock() - start;
		x509_request_clear(&r);
	}
	printf("%ld\n", (long)(sum / RUNS * (1000000 / CLOCKS_PER_SEC)));
}

/* --- a peer --- */

static void time_attest(void)
{
	struct attest *a = attest_new(fake_loop());
	struct attest_peer peer;
	int pair[2];

	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	need(attest_look(&peer, pair[0]) && peer.cgroup_id, "a peer (Linux 6.13)");
	attest_learn(a, peer.cookie, peer.cgroup_id);
	attest_peer_clear(&peer);
	clock_t start = clock();
	for (int i = 0; i < LOOKS; i++) {
		need(attest_look(&peer, pair[0]) && attest_knows(a, &peer), "known");
		attest_peer_clear(&peer);
	}
	printf("%ld\n", (long)((clock() - start) * (1000000000L / CLOCKS_PER_SEC) / LOOKS));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

	if (!strcmp(what, "sds")) {
		measure_sds();
	} else if (!strcmp(what, "attest")) {
		time_attest();
	} else if (!strcmp(what, "key")) {
		time_key((enum x509_key_type)n);
	} else {
		bool peeks = !strcmp(what, "peek");
		need(n && (peeks || !strcmp(what, "unpack")), "usage is in the head of costs.c");
		struct response r = make_response(n);
		measured(peeks ? peek : unpack, &r);
	}
	return 0;
}
