/* server_test.c - a pod's secrets, on scripted streams.
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/secrets.c tests/fake/x509.c tests/unit/worker/sds/shown.c tests/unit/worker/ads/envoy.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "shown.h"
#include "tests/fake/loop.h"
#include "tests/fake/secrets.h"
#include "tests/unit/worker/ads/envoy.h"
#include "worker/crypto/cert.h"
#include "worker/crypto/revocation.h"
#include "worker/sds/server.h"

#define SERVICE "/envoy.service.secret.v3.SecretDiscoveryService/"
#define NODE .node_id = "sidecar~10.0.0.1~a.b~c", .type = TYPE_SECRET

struct world {
	struct loop *loop;
	struct rpc *rpc;
	struct rpc_server *server;
	struct sds_server *sds;
};

static void on_incoming(void *ctx, struct rpc_stream *s, const char *method)
{
	struct world *w = ctx;

	sds_server_incoming(w->sds, s, method);
}

static int setup(void **state)
{
	static const struct rpc_server_options options = {.max_message = 1 << 20, .max_streams = 9};
	struct world *w = mem_zalloc(sizeof(*w));

	w->loop = fake_loop();
	w->rpc = rpc_new(w->loop);
	w->server = rpc_server_new(w->rpc, &options, on_incoming, w);
	w->sds = sds_server_new(w->loop, "demo/web-0");
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	sds_server_free(&w->sds);
	rpc_server_free(&w->server);
	assert_int_equal(fake_rpc_live(w->rpc), 0);
	rpc_free(&w->rpc);
	fake_loop_end(&w->loop);
	free(w);
	return 0;
}

static int64_t life_s; /* of the next certificate; 0: for ever */

/* A certificate is as good as its texts here. */
static void set_cert(struct world *w, const char *serial, const char *root)
{
	struct cert *c = mem_zalloc(sizeof(*c));

	c->refs = 1;
	snprintf(c->leaf.serial, sizeof(c->leaf.serial), "%s", serial);
	c->leaf.not_after = life_s ? loop_now_ms(w->loop) / 1000 + life_s : INT64_MAX;
	auto_free char *key = mem_printf("KEY-%s", serial);
	c->key_pem = secret_dup(key);
	c->chain_pem = mem_printf("CHAIN-%s", serial);
	c->root_pem = mem_strdup(root);
	sds_server_set_cert(w->sds, c, NULL);
	cert_unref(&c);
	fake_loop_advance(w->loop, 0);
}

static struct revocation *list_of(const char *text)
{
	struct err e;

	return revocation_read(text, strlen(text), &e);
}

static struct rpc_stream *call(struct world *w, const char *method)
{
	struct rpc_stream *s = fake_rpc_call(w->server, method);

	fake_loop_advance(w->loop, 0);
	return s;
}

#define ASK(w, stream, flavour, ...)                                                               \
	do {                                                                                       \
		SAY(stream, flavour, __VA_ARGS__);                                                 \
		fake_loop_advance((w)->loop, 0);                                                   \
	} while (0)
#define SOTW(w, stream, ...) ASK(w, stream, DISCOVERY_SOTW, __VA_ARGS__)
#define DELTA(w, stream, ...) ASK(w, stream, DISCOVERY_DELTA, __VA_ARGS__)

static char nonce[64]; /* of the answer that was shown last */

static const char *answer(const struct rpc_stream *s, unsigned i, enum discovery_flavour f)
{
	size_t len;
	const void *bytes = fake_rpc_sent_bytes(s, i, &len);
	const struct shown *shown = shown_response(bytes, len, f);

	strcpy(nonce, shown->nonce);
	return shown->text;
}

/* The n-th answer is the last one so far, and says this. */
static void assert_answers(
    const struct rpc_stream *s, enum discovery_flavour f, unsigned n, const char *text)
{
	assert_int_equal(fake_rpc_sent(s), n);
	if (n > 0)
		assert_string_equal(answer(s, n - 1, f), text);
}
#define ASSERT_SOTW(s, n, text) assert_answers(s, DISCOVERY_SOTW, n, text)
#define ASSERT_DELTA(s, n, text) assert_answers(s, DISCOVERY_DELTA, n, text)

static void assert_count(const struct world *w, const char *key, int n)
{
	json_t *dump = sds_server_dump(w->sds);

	assert_int_equal(json_integer_value(json_object_get(dump, key)), n);
	json_decref(dump);
}

static void assert_dump_text(const struct world *w, const char *key, const char *text)
{
	json_t *dump = sds_server_dump(w->sds);

	assert_string_equal(json_string_value(json_object_get(dump, key)), text);
	json_decref(dump);
}

/* ---- state of the world ---- */

static void a_certificate_and_its_root_are_served(void **state)
{
	struct world *w = *state;
	struct rpc_stream *a = call(w, SERVICE "StreamSecrets"),
			  *b = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	SOTW(w, a, NODE, .names = {"default"});
	SOTW(w, b, NODE, .names = {"ROOTCA"});
	ASSERT_SOTW(a, 1, " default=CHAIN-s1+KEY-s1");
	ASSERT_SOTW(b, 1, " ROOTCA=ROOT");
}

static void a_request_waits_for_the_certificate(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	sds_server_set_cert(w->sds, NULL, "no token");
	SOTW(w, s, NODE, .names = {"default", "ROOTCA"});
	ASSERT_SOTW(s, 0, "");
	assert_false(fake_rpc_ended(s));
	assert_dump_text(w, "why_not", "no token");
	set_cert(w, "s1", "ROOT");
	ASSERT_SOTW(s, 1, " default=CHAIN-s1+KEY-s1 ROOTCA=ROOT");
	assert_dump_text(w, "why_not", "");
}

static void the_first_request_must_have_a_node(void **state)
{
	struct world *w = *state;
	static const char *const of[] = {"StreamSecrets", "DeltaSecrets", "FetchSecrets"};

	for (int i = 0; i < 3; i++) {
		char method[128];
		struct rpc_stream *s;

		snprintf(method, sizeof(method), SERVICE "%s", of[i]);
		s = call(w, method);
		ASK(w, s, i == 1 ? DISCOVERY_DELTA : DISCOVERY_SOTW, .type = TYPE_SECRET,
		    .names = {"default"});
		assert_int_equal(fake_rpc_status(s), RPC_INVALID_ARGUMENT);
		assert_string_equal(fake_rpc_why(s), "missing node information");
	}
}

static void an_ack_is_not_answered(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default"});
	ASSERT_SOTW(s, 1, " default=CHAIN-s1+KEY-s1");
	SOTW(w, s, .type = TYPE_SECRET, .nonce = nonce, .version = "s1", .names = {"default"});
	ASSERT_SOTW(s, 1, " default=CHAIN-s1+KEY-s1");
	assert_count(w, "acks", 1);
	SOTW(w, s, .nonce = nonce, .names = {"default"}); /* the same once more: counted once */
	assert_count(w, "acks", 1);
	assert_count(w, "pushes", 1);
}

static void only_added_names_are_answered(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default"});
	answer(s, 0, DISCOVERY_SOTW);
	SOTW(w, s, .nonce = nonce, .names = {"default", "ROOTCA"});
	ASSERT_SOTW(s, 2, " ROOTCA=ROOT");
}

static void a_removed_name_is_not_pushed_any_more(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default", "ROOTCA"});
	answer(s, 0, DISCOVERY_SOTW);
	SOTW(w, s, .nonce = nonce, .names = {"ROOTCA"});
	assert_int_equal(fake_rpc_sent(s), 1);
	set_cert(w, "s2", "ROOT");
	assert_int_equal(fake_rpc_sent(s), 1);
	set_cert(w, "s3", "ROOT2");
	ASSERT_SOTW(s, 2, " ROOTCA=ROOT2");
	SOTW(w, s, .nonce = nonce); /* no names: unsubscribed from all */
	set_cert(w, "s4", "ROOT3");
	assert_int_equal(fake_rpc_sent(s), 2);
	assert_false(fake_rpc_ended(s));
}

/* It says what Envoy made of an earlier response, and nothing about names. */
static void a_stale_nonce_asks_for_nothing(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");
	char old[64];

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default"});
	answer(s, 0, DISCOVERY_SOTW);
	strcpy(old, nonce);
	set_cert(w, "s2", "ROOT");
	ASSERT_SOTW(s, 2, " default=CHAIN-s2+KEY-s2");
	SOTW(w, s, .nonce = old, .names = {"default", "ROOTCA"}, .nack = "of the old one");
	assert_int_equal(fake_rpc_sent(s), 2);
	assert_count(w, "nacks", 1);
	SOTW(w, s, .nonce = nonce, .names = {"default", "ROOTCA"});
	ASSERT_SOTW(s, 3, " ROOTCA=ROOT");
}

/* Two pushes may be on their way; Envoy answers both, or the last one for both. */
static void each_push_is_counted_as_acked(void **state)
{
	static const char *const roots[] = {"ROOT1", "ROOT2", "ROOT3"};
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");
	char nonces[3][64];

	SOTW(w, s, NODE, .names = {"ROOTCA"});
	for (unsigned i = 0; i < 3; i++) {
		set_cert(w, "s1", roots[i]);
		answer(s, i, DISCOVERY_SOTW);
		strcpy(nonces[i], nonce);
	}
	SOTW(w, s, .nonce = nonces[0], .names = {"ROOTCA"});
	assert_count(w, "acks", 1);
	SOTW(w, s, .nonce = nonces[2], .names = {"ROOTCA"});
	SOTW(w, s, .nonce = nonces[1], .names = {"ROOTCA"});
	assert_count(w, "acks", 3);
	assert_count(w, "pushes", 3);
}

/* After agentd came back Envoy may still name what the old one said (grpc-core.md 5). */
static void an_old_nonce_on_a_new_stream_is_answered(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default"}, .nonce = "of another life", .version = "s1");
	ASSERT_SOTW(s, 1, " default=CHAIN-s1+KEY-s1");
	SOTW(w, s, NODE, .names = {"default"}, .version = "s1"); /* no nonce: asked anew */
	ASSERT_SOTW(s, 2, " default=CHAIN-s1+KEY-s1");
}

static void a_first_request_sent_twice_before_the_certificate_is_answered_once(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	SOTW(w, s, NODE, .names = {"default"});
	SOTW(w, s, NODE, .names = {"default", "ROOTCA"});
	set_cert(w, "s1", "ROOT");
	ASSERT_SOTW(s, 1, " default=CHAIN-s1+KEY-s1 ROOTCA=ROOT");
}

static void a_renewal_goes_to_the_streams_it_concerns(void **state)
{
	struct world *w = *state;
	struct rpc_stream *a = call(w, SERVICE "StreamSecrets"),
			  *b = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	SOTW(w, a, NODE, .names = {"default"});
	SOTW(w, b, NODE, .names = {"ROOTCA"});
	set_cert(w, "s2", "ROOT");
	ASSERT_SOTW(a, 2, " default=CHAIN-s2+KEY-s2");
	ASSERT_SOTW(b, 1, " ROOTCA=ROOT"); /* silent */
	set_cert(w, "s3", "ROOT ROOT2");
	ASSERT_SOTW(a, 3, " default=CHAIN-s3+KEY-s3");
	ASSERT_SOTW(b, 2, " ROOTCA=ROOT ROOT2");
	set_cert(w, "s3", "ROOT ROOT2"); /* told the same again */
	assert_int_equal(fake_rpc_sent(a), 3);
	assert_int_equal(fake_rpc_sent(b), 2);
}

static void a_nack_of_the_first_one_is_kept_and_not_answered(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default"});
	answer(s, 0, DISCOVERY_SOTW);
	SOTW(w, s, .nonce = nonce, .names = {"default"}, .nack = "KEY_VALUES_MISMATCH\x1b[2J");
	assert_int_equal(fake_rpc_sent(s), 1);
	assert_count(w, "nacks", 1);
	assert_count(w, "acks", 0);
	assert_dump_text(w, "last_nack", "KEY_VALUES_MISMATCH?[2J");
	set_cert(w, "s2", "ROOT"); /* but the next certificate goes out */
	ASSERT_SOTW(s, 2, " default=CHAIN-s2+KEY-s2");
	SOTW(w, s, .nonce = nonce, .names = {"default"});
	assert_count(w, "acks", 1);
}

static void is_served(const struct world *w, enum served expected, const char *why)
{
	struct err e = {0};

	assert_int_equal(sds_server_served(w->sds, &e), expected);
	assert_string_equal(e.msg, why);
}

/* Envoy asks for each secret on a stream of its own, and nothing of its words is shown. */
static void a_nack_of_one_stream_outlives_an_ack_of_another(void **state)
{
	static const char refused[] = "its Envoy refused the last secrets: agentctl xds shows why";
	struct world *w = *state;
	struct rpc_stream *a = call(w, SERVICE "StreamSecrets"),
			  *b = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	SOTW(w, a, NODE, .names = {"default"});
	answer(a, 0, DISCOVERY_SOTW);
	SOTW(w, a, .nonce = nonce, .names = {"default"}, .nack = "bad");
	is_served(w, SERVED_NO, refused);
	SOTW(w, b, NODE, .names = {"ROOTCA"});
	answer(b, 0, DISCOVERY_SOTW);
	SOTW(w, b, .nonce = nonce, .names = {"ROOTCA"});
	is_served(w, SERVED_NO, refused);
	set_cert(w, "s2", "ROOT");
	answer(a, 1, DISCOVERY_SOTW);
	SOTW(w, a, .nonce = nonce, .names = {"default"});
	is_served(w, SERVED_YES, "");
}

static void secrets_that_are_never_answered(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	SOTW(w, s, NODE, .names = {"default"});
	fake_loop_advance(w->loop, 70000); /* there is none: nothing was sent */
	set_cert(w, "s1", "ROOT");
	fake_loop_advance(w->loop, 59000);
	is_served(w, SERVED_YES, "");
	fake_loop_advance(w->loop, 1000);
	is_served(w, SERVED_NO, "its Envoy has not answered the last secrets for 60 s");
	fake_rpc_end(s, RPC_CANCELLED, "");
	fake_loop_advance(w->loop, 0);
	is_served(w, SERVED_YES, "");
}

/* Envoy keeps what it refused, and with it refuses what names it. */
static void after_a_nack_the_last_good_one_is_sent_again(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets"), *later;

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default"});
	answer(s, 0, DISCOVERY_SOTW);
	SOTW(w, s, .nonce = nonce, .names = {"default"});
	set_cert(w, "s2", "ROOT");
	ASSERT_SOTW(s, 2, " default=CHAIN-s2+KEY-s2");
	SOTW(w, s, .nonce = nonce, .names = {"default"}, .nack = "bad key");
	assert_dump_text(w, "refusal",
	    "Envoy refused a secret: bad key; until it takes one it refuses each listener and "
	    "cluster that names it");
	ASSERT_SOTW(s, 3, " default=CHAIN-s1+KEY-s1");
	SOTW(w, s, .nonce = nonce, .names = {"default"});
	assert_int_equal(fake_rpc_sent(s), 3); /* it is not tried again and again */
	assert_count(w, "acks", 2);
	assert_dump_text(w, "refusal", "Envoy refused a secret: bad key; it has the one before");
	later = call(w, SERVICE "StreamSecrets"); /* another Envoy may take it */
	SOTW(w, later, NODE, .names = {"default"});
	ASSERT_SOTW(later, 1, " default=CHAIN-s2+KEY-s2");
	set_cert(w, "s3", "ROOT");
	ASSERT_SOTW(s, 4, " default=CHAIN-s3+KEY-s3");
	SOTW(w, s, .nonce = nonce, .names = {"default"});
	assert_dump_text(w, "refusal", "");
}

static void after_a_nack_of_roots_the_last_good_ones_are_sent_again(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "DeltaSecrets");
	struct revocation *good = list_of("CRL1"), *bad = list_of("CRL2");

	sds_server_set_trust(w->sds, "BOTH", good);
	set_cert(w, "s1", "ROOT");
	DELTA(w, s, NODE, .names = {"default", "ROOTCA"});
	answer(s, 0, DISCOVERY_DELTA);
	DELTA(w, s, .nonce = nonce);
	sds_server_set_trust(w->sds, NULL, bad);
	fake_loop_advance(w->loop, 0);
	assert_non_null(strstr(answer(s, 1, DISCOVERY_DELTA), " ROOTCA=ROOT-CRL2\n@"));
	DELTA(w, s, .nonce = nonce, .nack = "bad list");
	assert_int_equal(fake_rpc_sent(s), 3);
	assert_non_null(strstr(answer(s, 2, DISCOVERY_DELTA), " ROOTCA=BOTH-CRL1\n@"));
	/* Of a pod that may not have them any more nothing is sent again. */
	DELTA(w, s, .nonce = nonce);
	sds_server_set_cert(w->sds, NULL, "its token has expired");
	DELTA(w, s, .names = {"ROOTCA"});
	assert_int_equal(fake_rpc_sent(s), 3);
	revocation_unref(&good);
	revocation_unref(&bad);
}

static void pushes_merge_while_one_is_under_way(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	fake_rpc_stall(s, true);
	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default", "ROOTCA"});
	assert_int_equal(fake_rpc_sent(s), 1);
	set_cert(w, "s2", "ROOT");
	set_cert(w, "s3", "ROOT2");
	set_cert(w, "s4", "ROOT");
	assert_int_equal(fake_rpc_sent(s), 1);
	fake_rpc_stall(s, false);
	fake_loop_advance(w->loop, 0);
	/* The newest, and not the root: it is again what was sent. */
	ASSERT_SOTW(s, 2, " default=CHAIN-s4+KEY-s4");
}

static void a_certificate_that_is_gone_is_not_revoked(void **state)
{
	struct world *w = *state;
	struct rpc_stream *a = call(w, SERVICE "StreamSecrets"), *b;

	set_cert(w, "s1", "ROOT");
	SOTW(w, a, NODE, .names = {"default"});
	sds_server_set_cert(w->sds, NULL, "expired");
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_rpc_sent(a), 1);
	assert_false(fake_rpc_ended(a));
	b = call(w, SERVICE "StreamSecrets");
	SOTW(w, b, NODE, .names = {"default"});
	ASSERT_SOTW(b, 0, "");
	set_cert(w, "s1", "ROOT"); /* the same is back: only the new stream lacks it */
	assert_int_equal(fake_rpc_sent(a), 1);
	ASSERT_SOTW(b, 1, " default=CHAIN-s1+KEY-s1");
}

/* ---- names ---- */

static void a_plain_name_is_the_certificate_under_that_name(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"my-cert"});
	ASSERT_SOTW(s, 1, " my-cert=CHAIN-s1+KEY-s1");
}

/* One answer, before there is any certificate; Envoy watches the files itself. */
static void files_are_answered_as_file_names(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	SOTW(w, s, NODE, .names = {"file-cert:/c/cert.pem~/c/key..pem", "file-root:/c/..r/ca.pem"});
	ASSERT_SOTW(s, 1,
	    " file-cert:/c/cert.pem~/c/key..pem=file:/c/cert.pem+file:/c/key..pem"
	    " file-root:/c/..r/ca.pem=file:/c/..r/ca.pem");
	set_cert(w, "s1", "ROOT");
	assert_int_equal(fake_rpc_sent(s), 1);
}

static void shell(const char *directory, const char *what)
{
	auto_free char *command = mem_printf("cd %s && %s", directory, what);

	assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void looks(struct world *w, unsigned n)
{
	for (; n; n--)
		fake_loop_advance(w->loop, 2000);
}

/* However they are rotated, once they are at rest; each push says another name of the same file. */
static void files_are_followed(void **state)
{
	static const char *const ways[] = {"printf 22 >v1/cert", /* in place */
	    "printf 1 >v1/new && mv v1/new v1/key",
	    "ln -sfn v2 current",                    /* a directory link on the way */
	    "printf 1 >v3/new && mv v3/new v3/cert", /* a link's target, in another directory */
	    "printf 22 >v3/cert"};
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");
	char dir[] = "/tmp/agentd-sds.XXXXXX", before[4096] = "";

	assert_non_null(mkdtemp(dir));
	shell(dir, "mkdir v1 v2 v3 && ln -s v1 current && ln -s ../v3/cert v2/cert && "
		   "for f in v1/cert v1/key v2/key v3/cert; do printf 1 >$f; done");
	auto_free char *directories = mem_printf("/nowhere,%s/", dir);
	auto_free char *pair = mem_printf("file-cert:%s/current/cert~%s/current/key", dir, dir);
	auto_free char *none = mem_printf("file-root:%s/none", dir);
	auto_free char *key = mem_printf("%s/current/key", dir);

	sds_server_follow(w->sds, directories);
	SOTW(w, s, NODE, .names = {pair, none, "file-root:/elsewhere/ca"});
	looks(w, 3);
	assert_int_equal(fake_rpc_sent(s), 1);
	assert_non_null(strstr(answer(s, 0, DISCOVERY_SOTW), "=file:/elsewhere/ca"));
	for (unsigned i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		(void)snprintf(before, sizeof(before), "%s", answer(s, i, DISCOVERY_SOTW));
		SOTW(w, s, .nonce = nonce, .names = {pair, none, "file-root:/elsewhere/ca"});
		shell(dir, ways[i]);
		looks(w, 1);
		assert_int_equal(fake_rpc_sent(s), i + 1); /* its other file may still come */
		looks(w, 1);
		assert_int_equal(fake_rpc_sent(s), i + 2);
		assert_string_not_equal(answer(s, i + 1, DISCOVERY_SOTW), before);
		assert_non_null(strstr(answer(s, i + 1, DISCOVERY_SOTW), key));
		assert_null(strstr(answer(s, i + 1, DISCOVERY_SOTW), "elsewhere"));
	}
	shell(dir, "rm -r *"); /* Envoy keeps what it has */
	looks(w, 3);
	assert_int_equal(fake_rpc_sent(s), 1 + sizeof(ways) / sizeof(*ways));
	assert_int_equal(rmdir(dir), 0);
}

/* Which ones are bad: names_test.c. */
static void a_bad_name_ends_the_stream(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");
	char too_long[DISCOVERY_NAME_SIZE + 1];

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default", "sds://x"});
	assert_int_equal(fake_rpc_status(s), RPC_INVALID_ARGUMENT);
	assert_int_equal(fake_rpc_sent(s), 0);
	assert_dump_text(w, "last_refusal", fake_rpc_why(s));
	memset(too_long, 'x', sizeof(too_long) - 1);
	too_long[sizeof(too_long) - 1] = '\0';
	s = call(w, SERVICE "StreamSecrets");
	SOTW(w, s, NODE, .names = {"default", too_long});
	assert_int_equal(fake_rpc_status(s), RPC_INVALID_ARGUMENT);
}

/* The pod chooses the text, and so could fill the node's log. */
static void refusals_are_few_lines_in_the_log(void **state)
{
	struct world *w = *state;
	int real = dup(STDERR_FILENO), lines = 0;
	FILE *log = tmpfile();

	dup2(fileno(log), STDERR_FILENO);
	for (int i = 0; i < 40; i++) {
		struct rpc_stream *s = call(w, SERVICE "StreamSecrets");
		char name[32];

		snprintf(name, sizeof(name), "x://%d", i);
		SOTW(w, s, NODE, .names = {name});
	}
	dup2(real, STDERR_FILENO);
	close(real);
	rewind(log);
	for (int c; (c = fgetc(log)) != EOF;)
		lines += c == '\n';
	(void)fclose(log);
	assert_int_equal(lines, 10);
}

static void ask_for(struct world *w, struct rpc_stream *s, int count, bool distinct)
{
	struct evbuffer *b = say_bytes(DISCOVERY_SOTW, &(struct say){NODE});
	char name[32];

	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "n%d", distinct ? i : 0);
		pbwire_put_bytes(b, 3, name, strlen(name));
	}
	fake_rpc_push(s, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
	fake_loop_advance(w->loop, 0);
}

static void a_stream_has_at_most_64_names(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	set_cert(w, "s1", "ROOT");
	ask_for(w, s, 64, true);
	assert_int_equal(fake_rpc_sent(s), 1);
	s = call(w, SERVICE "StreamSecrets");
	ask_for(w, s, 65, true);
	assert_int_equal(fake_rpc_status(s), RPC_INVALID_ARGUMENT);
	s = call(w, SERVICE "StreamSecrets");
	ask_for(w, s, 192, false);
	ASSERT_SOTW(s, 1, " n0=CHAIN-s1+KEY-s1");
	s = call(w, SERVICE "StreamSecrets");
	ask_for(w, s, 193, false); /* each of them would be looked for */
	assert_int_equal(fake_rpc_status(s), RPC_INVALID_ARGUMENT);
}

static void only_secrets_are_served(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	SOTW(w, s, .node_id = "n", .type = TYPE_CLUSTER, .names = {"default"});
	assert_int_equal(fake_rpc_status(s), RPC_INVALID_ARGUMENT);
}

static void garbage_ends_the_stream(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	fake_rpc_push(s, "\x12\xff", 2);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_rpc_status(s), RPC_INVALID_ARGUMENT);
}

/* ---- delta ---- */

static void delta_serves_what_is_subscribed_to(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "DeltaSecrets");

	DELTA(w, s, NODE, .names = {"default"});
	ASSERT_DELTA(s, 0, "");
	set_cert(w, "s1", "ROOT");
	ASSERT_DELTA(s, 1, " default=CHAIN-s1+KEY-s1@s1");
	DELTA(w, s, .nonce = nonce);
	assert_count(w, "acks", 1);
	DELTA(w, s, .names = {"file-root:/r"});
	ASSERT_DELTA(s, 2, " file-root:/r=file:/r@file");
	DELTA(w, s, .nonce = nonce, .nack = "no such file");
	assert_count(w, "nacks", 1);
	set_cert(w, "s2", "ROOT");
	ASSERT_DELTA(s, 3, " default=CHAIN-s2+KEY-s2@s2");
	DELTA(w, s, .drop = {"default", "never subscribed"});
	set_cert(w, "s3", "ROOT");
	assert_int_equal(fake_rpc_sent(s), 3);
}

/* In delta a nonce only says which response is acknowledged; what is asked for always counts. */
static void delta_takes_names_with_a_stale_nonce(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "DeltaSecrets");

	set_cert(w, "s1", "ROOT");
	DELTA(w, s, NODE, .names = {"default"});
	DELTA(w, s, .nonce = "stale", .names = {"my-cert"});
	ASSERT_DELTA(s, 2, " my-cert=CHAIN-s1+KEY-s1@s1");
	assert_count(w, "acks", 0);
}

static void delta_sends_again_what_is_subscribed_to_again(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "DeltaSecrets");

	set_cert(w, "s1", "ROOT");
	DELTA(w, s, NODE, .names = {"default"});
	DELTA(w, s, .names = {"default"});
	ASSERT_DELTA(s, 2, " default=CHAIN-s1+KEY-s1@s1");
}

static void delta_does_not_send_what_the_client_has(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "DeltaSecrets");

	set_cert(w, "s2", "ROOT");
	DELTA(w, s, NODE, .names = {"default", "old"},
	    .have = {"default", "s2", "old", "s1", "unasked", "s2"});
	ASSERT_DELTA(s, 1, " old=CHAIN-s2+KEY-s2@s2");
	set_cert(w, "s3", "ROOT");
	ASSERT_DELTA(s, 2, " default=CHAIN-s3+KEY-s3@s3 old=CHAIN-s3+KEY-s3@s3");
	/* Only the beginning of a stream can tell what an earlier one brought. */
	DELTA(w, s, .names = {"default"}, .have = {"default", "s3"});
	ASSERT_DELTA(s, 3, " default=CHAIN-s3+KEY-s3@s3");
}

/* The version of ROOTCA is that of its bytes: the same again in the next agentd. */
static void a_roots_version_survives_a_restart(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "DeltaSecrets");
	char version[64];

	set_cert(w, "s1", "ROOT");
	DELTA(w, s, NODE, .names = {"ROOTCA"});
	strcpy(version, strchr(answer(s, 0, DISCOVERY_DELTA), '@') + 1);
	assert_int_equal(strlen(version), 16);
	fake_rpc_end(s, RPC_CANCELLED, "");
	fake_loop_advance(w->loop, 0);
	sds_server_free(&w->sds);
	w->sds = sds_server_new(w->loop, "demo/web-0");
	set_cert(w, "s2", "ROOT");
	s = call(w, SERVICE "DeltaSecrets");
	DELTA(w, s, NODE, .names = {"ROOTCA"}, .have = {"ROOTCA", version});
	assert_int_equal(fake_rpc_sent(s), 0);
	set_cert(w, "s2", "ROOT2");
	assert_int_equal(fake_rpc_sent(s), 1);
}

/* ---- trust ---- */

static void a_revocation_list_comes_and_goes(void **state)
{
	struct world *w = *state;
	struct rpc_stream *root = call(w, SERVICE "StreamSecrets");
	struct rpc_stream *other = call(w, SERVICE "StreamSecrets");
	struct revocation *crl = list_of("CRL1"), *crl2 = list_of("CRL2");

	SOTW(w, root, NODE, .names = {"ROOTCA"});
	SOTW(w, other, NODE, .names = {"default", "file-root:/r"});
	sds_server_set_trust(w->sds, NULL, crl);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_rpc_sent(root), 0); /* a list without roots is of no use */
	set_cert(w, "s1", "ROOT");
	ASSERT_SOTW(root, 1, " ROOTCA=ROOT-CRL1\n");
	sds_server_set_trust(w->sds, NULL, crl);
	sds_server_set_trust(w->sds, NULL, crl2);
	fake_loop_advance(w->loop, 0);
	ASSERT_SOTW(root, 2, " ROOTCA=ROOT-CRL2\n");
	sds_server_set_trust(w->sds, NULL, NULL);
	fake_loop_advance(w->loop, 0);
	ASSERT_SOTW(root, 3, " ROOTCA=ROOT");
	/* Nobody else: neither keys nor the roots of files. */
	assert_int_equal(fake_rpc_sent(other), 2);
	ASSERT_SOTW(other, 2, " default=CHAIN-s1+KEY-s1");
	revocation_unref(&crl);
	revocation_unref(&crl2);
}

static void roots_may_be_others_than_the_certificates(void **state)
{
	struct world *w = *state;
	struct rpc_stream *root = call(w, SERVICE "StreamSecrets");
	static const char both[] = "ROOT+ANCHOR";
	struct revocation *list = list_of("CRL");

	SOTW(w, root, NODE, .names = {"ROOTCA"});
	set_cert(w, "s1", "ROOT");
	sds_server_set_trust(w->sds, both, NULL);
	fake_loop_advance(w->loop, 0);
	ASSERT_SOTW(root, 2, " ROOTCA=ROOT+ANCHOR");
	set_cert(w, "s2", "ROOT2"); /* not its own any more */
	assert_int_equal(fake_rpc_sent(root), 2);
	sds_server_set_trust(w->sds, both, list);
	fake_loop_advance(w->loop, 0);
	ASSERT_SOTW(root, 3, " ROOTCA=ROOT+ANCHOR-CRL\n");
	sds_server_set_trust(w->sds, NULL, NULL);
	fake_loop_advance(w->loop, 0);
	ASSERT_SOTW(root, 4, " ROOTCA=ROOT2");
	revocation_unref(&list);
}

/* The machine wakes up, and a request comes before we are told that the certificate is over. */
static void an_expired_certificate_is_not_served(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets"), *late;

	life_s = 3600;
	SOTW(w, s, NODE, .names = {"default"});
	set_cert(w, "s1", "ROOT");
	ASSERT_SOTW(s, 1, " default=CHAIN-s1+KEY-s1");
	fake_loop_wall_step(w->loop, 3599 * 1000);
	late = call(w, SERVICE "StreamSecrets");
	SOTW(w, late, NODE, .names = {"default"});
	assert_int_equal(fake_rpc_sent(late), 1);
	fake_loop_wall_step(w->loop, 1000);
	late = call(w, SERVICE "StreamSecrets");
	SOTW(w, late, NODE, .names = {"default"});
	assert_int_equal(fake_rpc_sent(late), 0);
	set_cert(w, "s2", "ROOT");
	ASSERT_SOTW(late, 1, " default=CHAIN-s2+KEY-s2");
	life_s = 0;
}

/* ---- fetch ---- */

static void fetch_waits_and_answers_once(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "FetchSecrets");

	SOTW(w, s, NODE, .names = {"file-root:/r", "default"});
	fake_rpc_half_close(s);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_rpc_sent(s), 0); /* not the file alone */
	set_cert(w, "s1", "ROOT");
	ASSERT_SOTW(s, 1, " file-root:/r=file:/r default=CHAIN-s1+KEY-s1");
	assert_int_equal(fake_rpc_status(s), RPC_OK);
	set_cert(w, "s2", "ROOT");
	assert_int_equal(fake_rpc_sent(s), 1);
}

static void fetch_without_a_request_is_refused(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "FetchSecrets");

	fake_rpc_half_close(s);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_rpc_status(s), RPC_INVALID_ARGUMENT);
}

/* ---- streams ---- */

static void other_methods_are_not_taken(void **state)
{
	struct world *w = *state;
	static const char *const not_ours[] = {SERVICE, SERVICE "StreamSecretsX", "StreamSecrets",
	    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"};

	for (size_t i = 0; i < sizeof(not_ours) / sizeof(*not_ours); i++)
		assert_int_equal(fake_rpc_status(call(w, not_ours[i])), RPC_UNIMPLEMENTED);
}

static void streams_end_with_their_client(void **state)
{
	struct world *w = *state;
	struct rpc_stream *a = call(w, SERVICE "StreamSecrets"),
			  *b = call(w, SERVICE "DeltaSecrets");
	json_t *dump;

	set_cert(w, "s1", "ROOT");
	SOTW(w, a, NODE, .names = {"default"});
	DELTA(w, b, NODE, .names = {"default"});
	fake_rpc_half_close(a);
	fake_rpc_end(b, RPC_CANCELLED, "gone");
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_rpc_status(a), RPC_OK);
	set_cert(w, "s2", "ROOT");
	assert_int_equal(fake_rpc_sent(a) + fake_rpc_sent(b), 2);
	dump = sds_server_dump(w->sds);
	assert_int_equal(json_array_size(json_object_get(dump, "streams")), 0);
	json_decref(dump);
}

static void the_end_of_the_server_ends_its_streams(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");

	SOTW(w, s, NODE, .names = {"default"});
	sds_server_free(&w->sds);
	assert_int_equal(fake_rpc_status(s), RPC_UNAVAILABLE);
}

/* Which pod it is is which object it is: nothing is shared. */
static void two_pods_never_mix(void **state)
{
	struct world *w = *state, *other;
	struct rpc_stream *a, *b;

	setup((void **)&other);
	a = call(w, SERVICE "StreamSecrets");
	b = call(other, SERVICE "StreamSecrets");
	SOTW(w, a, NODE, .names = {"default"});
	SOTW(other, b, NODE, .names = {"default"});
	set_cert(w, "s1", "ROOT");
	ASSERT_SOTW(a, 1, " default=CHAIN-s1+KEY-s1");
	ASSERT_SOTW(b, 0, "");
	set_cert(other, "t1", "ROOT");
	ASSERT_SOTW(a, 1, " default=CHAIN-s1+KEY-s1");
	ASSERT_SOTW(b, 1, " default=CHAIN-t1+KEY-t1");
	teardown((void **)&other);
}

static void the_dump_shows_names_and_versions_but_no_key(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = call(w, SERVICE "StreamSecrets");
	json_t *dump;
	auto_free char *text = NULL;

	set_cert(w, "s1", "ROOT");
	SOTW(w, s, NODE, .names = {"default"});
	dump = sds_server_dump(w->sds);
	text = json_dumps(dump, JSON_SORT_KEYS);
	json_decref(dump);
	assert_string_equal(text,
	    "{\"acks\": 0, \"last_nack\": \"\", \"last_refusal\": \"\", \"nacks\": 0, "
	    "\"pushes\": 1, \"refusal\": \"\", \"refused\": false, \"streams\": [{\"method\": "
	    "\"StreamSecrets\", "
	    "\"names\": "
	    "[{\"name\": \"default\", \"version\": \"s1\"}]}], \"why_not\": \"\"}");
}

/* Those that are made to put a response together; what rpc has is not ours to wipe. */
static void copies_of_the_key_are_wiped(void **state)
{
	struct world *w = *state;
	static const char *const of[] = {"StreamSecrets", "DeltaSecrets", "FetchSecrets"};

	if (!secrets_watched())
		skip();
	set_cert(w, "SECRET", "ROOT");
	for (int i = 0; i < 3; i++) {
		char method[128];
		struct rpc_stream *s;

		snprintf(method, sizeof(method), SERVICE "%s", of[i]);
		s = call(w, method);
		secrets_watch();
		ASK(w, s, i == 1 ? DISCOVERY_DELTA : DISCOVERY_SOTW, NODE, .names = {"default"});
		assert_int_equal(fake_rpc_sent(s), 1);
		assert_int_equal(secrets_freed(), i == 2); /* the version that a fetch forgets */
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_certificate_and_its_root_are_served),
	    TEST(a_request_waits_for_the_certificate),
	    TEST(the_first_request_must_have_a_node),
	    TEST(an_ack_is_not_answered),
	    TEST(only_added_names_are_answered),
	    TEST(a_removed_name_is_not_pushed_any_more),
	    TEST(a_stale_nonce_asks_for_nothing),
	    TEST(each_push_is_counted_as_acked),
	    TEST(an_old_nonce_on_a_new_stream_is_answered),
	    TEST(a_first_request_sent_twice_before_the_certificate_is_answered_once),
	    TEST(a_renewal_goes_to_the_streams_it_concerns),
	    TEST(a_nack_of_one_stream_outlives_an_ack_of_another),
	    TEST(secrets_that_are_never_answered),
	    TEST(a_nack_of_the_first_one_is_kept_and_not_answered),
	    TEST(after_a_nack_the_last_good_one_is_sent_again),
	    TEST(after_a_nack_of_roots_the_last_good_ones_are_sent_again),
	    TEST(pushes_merge_while_one_is_under_way),
	    TEST(a_certificate_that_is_gone_is_not_revoked),
	    TEST(a_plain_name_is_the_certificate_under_that_name),
	    TEST(files_are_answered_as_file_names),
	    TEST(files_are_followed),
	    TEST(a_bad_name_ends_the_stream),
	    TEST(a_stream_has_at_most_64_names),
	    TEST(only_secrets_are_served),
	    TEST(garbage_ends_the_stream),
	    TEST(delta_serves_what_is_subscribed_to),
	    TEST(delta_takes_names_with_a_stale_nonce),
	    TEST(delta_sends_again_what_is_subscribed_to_again),
	    TEST(delta_does_not_send_what_the_client_has),
	    TEST(a_roots_version_survives_a_restart),
	    TEST(a_revocation_list_comes_and_goes),
	    TEST(roots_may_be_others_than_the_certificates),
	    TEST(an_expired_certificate_is_not_served),
	    TEST(fetch_waits_and_answers_once),
	    TEST(refusals_are_few_lines_in_the_log),
	    TEST(fetch_without_a_request_is_refused),
	    TEST(other_methods_are_not_taken),
	    TEST(streams_end_with_their_client),
	    TEST(the_end_of_the_server_ends_its_streams),
	    TEST(two_pods_never_mix),
	    TEST(copies_of_the_key_are_wiped),
	    TEST(the_dump_shows_names_and_versions_but_no_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
