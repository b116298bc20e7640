/* rpc_tls_test.c - the TLS side of a channel: whom it believes.
 *
 * LINK: tests/unit/rpc/rpc_rig.c tests/unit/rpc/tls_rig.c */
#include "rpc_rig.h"
#include "tls_rig.h"

#include "common/mem.h"

#include <grpc/support/alloc.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <sys/socket.h>

static char *ca_pem, *other_ca_pem, *cert_pem, *key_pem;

#define CA(name)                                                                                   \
	"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "            \
	"-subj /CN=test -keyout " name ".key -out " name ".pem"

static int make_certificates(void **state)
{
	(void)state;
	tls_rig_folder();
	tls_rig_run(CA("ca"));
	tls_rig_run(CA("other"));
	tls_rig_run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
		    "-subj /CN=server -keyout key.pem -out csr && "
		    "printf 'subjectAltName=DNS:" NAME "' >ext && openssl x509 -req -in csr "
		    "-CA ca.pem -CAkey ca.key -days 2 -extfile ext -out cert.pem");
	ca_pem = tls_rig_read("ca.pem");
	other_ca_pem = tls_rig_read("other.pem");
	cert_pem = tls_rig_read("cert.pem");
	key_pem = tls_rig_read("key.pem");
	/* What the system trusts, for the channel that is given no roots; read once, at first use.
	 */
	auto_free char *path = tls_rig_path("ca.pem");

	setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", path, 1);
	return 0;
}

static int remove_certificates(void **state)
{
	(void)state;
	free(ca_pem);
	free(other_ca_pem);
	free(cert_pem);
	free(key_pem);
	return tls_rig_remove_folder();
}

/* --- the server --- */

struct tls_server {
	struct tls_rig tls;
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array metadata;
	char seen[256]; /* headers of the last call; read after its answer came */
};

static void request_next(struct tls_server *s)
{
	grpc_call_details_init(&s->details);
	grpc_metadata_array_init(&s->metadata);
	grpc_server_request_call(
	    s->tls.grpc, &s->call, &s->details, &s->metadata, s->tls.cq, s->tls.cq, &s->call);
}

static void note_headers(struct tls_server *s)
{
	size_t at = 0;

	for (size_t i = 0; i < s->metadata.count; i++) {
		char *k = grpc_slice_to_c_string(s->metadata.metadata[i].key);
		char *v = grpc_slice_to_c_string(s->metadata.metadata[i].value);

		if (strcmp(k, "user-agent") != 0)
			at += (size_t)snprintf(s->seen + at, sizeof(s->seen) - at, "%s=%s;", k, v);
		gpr_free(k);
		gpr_free(v);
	}
}

static void answer(struct tls_server *s)
{
	grpc_op ops[] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
	    {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
		.data.send_status_from_server = {.status = GRPC_STATUS_OK}}};

	note_headers(s);
	grpc_call_start_batch(s->call, ops, 2, s, NULL);
}

static void on_event(void *ctx, const grpc_event *ev)
{
	struct tls_server *s = ctx;

	if (ev->tag == &s->call && ev->success) {
		answer(s);
		return;
	}
	if (ev->tag == s)
		grpc_call_unref(s->call);
	grpc_call_details_destroy(&s->details);
	grpc_metadata_array_destroy(&s->metadata);
	if (ev->tag == s)
		request_next(s);
}

static void tls_begin(struct tls_server *s, struct loop *l)
{
	*s = (struct tls_server){0};
	tls_rig_listen(&s->tls, cert_pem, key_pem);
	request_next(s);
	tls_rig_serve(&s->tls, l, on_event, s);
}

static void tls_end(struct tls_server *s)
{
	tls_rig_stop(&s->tls);
	tls_rig_free(&s->tls);
}

/* --- the channel --- */

static void on_changed(void *ctx, enum rpc_channel_state s)
{
	struct rig *r = ctx;

	if (r->nchanges < CHANGES_MAX)
		r->changes[r->nchanges++] = s;
}

static void connect_tls(struct rig *r, int port, const char *roots, const char *name)
{
	auto_free char *target = mem_printf("127.0.0.1:%d", port);
	struct rpc_channel_options o = {.target = target, .roots_pem = roots, .server_name = name};

	rpc_channel_free(&r->channel);
	side_reset(&r->client);
	r->nchanges = 0;
	r->channel = rpc_channel_new(r->rpc, &o, on_changed, r);
}

/* One call's status, over a channel that believes `roots` and expects `name`. */
static int call_status(struct rig *r, int port, const char *roots, const char *name)
{
	struct rpc_header h[] = {
	    {"authorization", "Bearer abc", true}, {"clusterid", "Kubernetes", false}};
	struct rpc_call call = {.method = "/x/Y", .headers = h, .nheaders = 2};

	connect_tls(r, port, roots, name);
	rig_open_call(r, &r->client, &call);
	memset(h, 0, sizeof(h)); /* they were copied */
	WAIT(r, r->client.closes == 1);
	return r->client.status;
}

static void test_right_root_and_name(void **state)
{
	(void)state;
	struct rig r;
	struct tls_server s;

	rig_begin(&r);
	tls_begin(&s, r.loop);
	assert_int_equal(call_status(&r, s.tls.port, ca_pem, NAME), RPC_OK);
	assert_non_null(strstr(s.seen, "authorization=Bearer abc;"));
	assert_non_null(strstr(s.seen, "clusterid=Kubernetes;"));
	WAIT(&r, r.nchanges > 0 && r.changes[r.nchanges - 1] == RPC_READY);
	tls_end(&s);
	rig_end(&r);
}

static void test_wrong_root(void **state)
{
	(void)state;
	struct rig r;
	struct tls_server s;

	rig_begin(&r);
	tls_begin(&s, r.loop);
	assert_int_equal(call_status(&r, s.tls.port, other_ca_pem, NAME), RPC_UNAVAILABLE);
	print_message("%s\n", r.client.why);
	assert_string_equal(s.seen, ""); /* the token did not get there */
	WAIT(&r, r.nchanges > 0 && r.changes[r.nchanges - 1] == RPC_TRANSIENT_FAILURE);
	tls_end(&s);
	rig_end(&r);
}

static void test_wrong_name(void **state)
{
	(void)state;
	struct rig r;
	struct tls_server s;

	rig_begin(&r);
	tls_begin(&s, r.loop);
	assert_int_equal(call_status(&r, s.tls.port, ca_pem, "istiod.evil.svc"), RPC_UNAVAILABLE);
	print_message("%s\n", r.client.why);
	assert_int_equal(
	    call_status(&r, s.tls.port, ca_pem, NULL), RPC_UNAVAILABLE); /* 127.0.0.1 */
	assert_string_equal(s.seen, "");
	tls_end(&s);
	rig_end(&r);
}

/* No roots given: those of the system, which for this process is a file with our CA. */
static void test_system_roots(void **state)
{
	(void)state;
	struct rig r;
	struct tls_server s;

	rig_begin(&r);
	tls_begin(&s, r.loop);
	assert_int_equal(call_status(&r, s.tls.port, NULL, NAME), RPC_OK);
	tls_end(&s);
	rig_end(&r);
}

/* Never usable, and says so. */
static void test_roots_that_are_none(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	assert_int_equal(call_status(&r, 1, "no certificate at all", NAME), RPC_UNAVAILABLE);
	assert_int_equal(rpc_channel_state(r.channel), RPC_TRANSIENT_FAILURE);
	rig_end(&r);
}

/* --- old TLS --- */

struct old_server {
	SSL_CTX *ctx;
	int listen_fd, port, max_version;
	bool accepted;
	char error[256];
};

/* One handshake, with whoever comes. */
static void *shake_hands(void *arg)
{
	struct old_server *s = arg;
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	SSL *ssl = SSL_new(s->ctx);

	SSL_set_fd(ssl, fd);
	s->accepted = SSL_accept(ssl) == 1;
	ERR_error_string_n(ERR_get_error(), s->error, sizeof(s->error));
	SSL_free(ssl);
	close(fd);
	return NULL;
}

static int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *outlen,
    const unsigned char *in, unsigned inlen, void *arg)
{
	(void)ssl;
	(void)in;
	(void)inlen;
	(void)arg;
	*out = (const unsigned char *)"h2";
	*outlen = 2;
	return SSL_TLSEXT_ERR_OK;
}

static void listen_tls(struct old_server *s)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	auto_free char *cert = tls_rig_path("cert.pem");
	auto_free char *key = tls_rig_path("key.pem");

	s->ctx = SSL_CTX_new(TLS_server_method());
	SSL_CTX_set_cipher_list(s->ctx, "ALL:@SECLEVEL=0");
	SSL_CTX_set_min_proto_version(s->ctx, TLS1_VERSION);
	SSL_CTX_set_max_proto_version(s->ctx, s->max_version);
	SSL_CTX_set_alpn_select_cb(s->ctx, choose_h2, NULL);
	assert_int_equal(SSL_CTX_use_certificate_file(s->ctx, cert, SSL_FILETYPE_PEM), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey_file(s->ctx, key, SSL_FILETYPE_PEM), 1);
	s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_return_code(bind(s->listen_fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_return_code(listen(s->listen_fd, 8), 0);
	getsockname(s->listen_fd, (struct sockaddr *)&a, &len);
	s->port = ntohs(a.sin_port);
}

static bool server_accepts(struct old_server *s, int max_version)
{
	struct rig r;
	pthread_t thread;

	*s = (struct old_server){.max_version = max_version};
	rig_begin(&r);
	listen_tls(s);
	pthread_create(&thread, NULL, shake_hands, s);
	call_status(&r, s->port, ca_pem, NAME); /* fails either way: no HTTP/2 there */
	pthread_join(thread, NULL);
	close(s->listen_fd);
	SSL_CTX_free(s->ctx);
	rig_end(&r);
	return s->accepted;
}

static void test_tls_below_1_2_is_not_spoken(void **state)
{
	(void)state;
	struct old_server s;

	assert_true(server_accepts(&s, TLS1_3_VERSION));
	assert_true(server_accepts(&s, TLS1_2_VERSION));
	assert_false(server_accepts(&s, TLS1_1_VERSION));
	assert_non_null(strstr(s.error, "unsupported protocol"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_right_root_and_name),
	    cmocka_unit_test(test_wrong_root),
	    cmocka_unit_test(test_wrong_name),
	    cmocka_unit_test(test_system_roots),
	    cmocka_unit_test(test_roots_that_are_none),
	    cmocka_unit_test(test_tls_below_1_2_is_not_spoken),
	};

	return cmocka_run_group_tests(tests, make_certificates, remove_certificates);
}
