/* The whole worker with fakes at its edges only: clock, grpc, broker, keys.  What is shown here is
 * the wiring: which event leads to which, and that an end undoes its beginning.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/fake/link_redirect.c tests/fake/x509.c tests/fake/link_volume.c
 * LINK: tests/unit/worker/metrics_rig.c tests/unit/worker/token_rig.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>
#include <event2/buffer.h>

#include "base/metrics.h"
#include "base/pbwire.h"
#include "common/err.h"
#include "common/mem.h"
#include "tests/fake/link.h"
#include "tests/fake/link_redirect.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "tests/fake/x509.h"
#include "tests/unit/worker/metrics_rig.h"
#include "tests/unit/worker/token_rig.h"
#include "worker/ads/discovery.h"
#include "worker/agent.h"
#include "worker/config/config.h"

#define UID_A "6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11"
#define UID_B "6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b22"
static const char yaml_text[] = "control_planes:\n"
				"  - name: istiod\n"
				"    address: 127.0.0.1:15012\n"
				"    server_name: istiod.istio-system.svc\n"
				"    connections: 1\n"
				"    opens_per_second: 1000\n"
				"    opens_burst: 1000\n";

struct world {
	struct loop *loop;
	struct config config;
	struct agent *agent;
	struct link *link;
	struct rpc *rpc;
	struct uuid a, b;
};

static void begin_with(struct world *w, const char *settings)
{
	auto_free char *text = mem_printf("%s%s", yaml_text, settings);
	struct err e = {0};
	char *argv[] = {"agentd-worker", NULL};

	memset(w, 0, sizeof(*w));
	uuid_parse(&w->a, UID_A);
	uuid_parse(&w->b, UID_B);
	w->loop = fake_loop();
	if (config_load(
		&w->config, &(struct config_file){"agentd.yaml", text, strlen(text)}, 1, argv, &e))
		fail_msg("%s", e.msg);
	w->agent = agent_new(w->loop, &w->config, -1, &e);
	assert_non_null(w->agent);
	w->link = fake_link_last();
	w->rpc = fake_rpc_last();
	fake_link_root(w->link, 0, "ROOT of istiod");
	fake_link_listed(w->link, LINK_STATE_CERT, NULL);
	fake_link_listed(w->link, LINK_STATE_CERT_IN_MEMORY, NULL);
	fake_link_listed(w->link, LINK_STATE_SERVED, NULL);
	fake_link_listed(w->link, LINK_STATE_NAMES, NULL);
}

static void begin(struct world *w)
{
	begin_with(w, "");
}

static void end(struct world *w)
{
	agent_free(&w->agent);
	config_clear(&w->config);
	fake_loop_advance(w->loop, 0);
	fake_loop_end(&w->loop);
}

static void manifest_of(struct world *w, const char *uid, const char *name, const char *sa)
{
	auto_free char *file = mem_printf("%s.yaml", uid);
	auto_free char *text =
	    mem_printf("uid: %s\nname: %s\nnamespace: demo\nservice_account: %s\n", uid, name, sa);

	fake_link_manifest(w->link, file, text);
	fake_loop_advance(w->loop, 0);
}

static void manifest(struct world *w, const char *uid, const char *name, const char *more)
{
	auto_free char *file = mem_printf("%s.yaml", uid);
	auto_free char *text = mem_printf(
	    "uid: %s\nname: %s\nnamespace: demo\nservice_account: web\n%s", uid, name, more);

	fake_link_manifest(w->link, file, text);
	fake_loop_advance(w->loop, 0);
}

static char *token_for(const char *uid, const char *sa)
{
	return rig_token(uid, "demo", sa, 1900000000);
}

static void give_token(struct world *w, const struct uuid *pod, const char *uid, const char *sa)
{
	auto_free char *jwt = token_for(uid, sa);

	fake_link_token(w->link, pod, jwt);
	fake_loop_advance(w->loop, 0);
}

static void serve(struct world *w, const struct uuid *pod)
{
	fake_link_added(w->link, pod, NULL);
	fake_loop_advance(w->loop, 0);
	fake_link_listening(w->link, pod, LINK_LISTEN_SDS, fake_link_listener(), NULL);
	fake_link_listening(w->link, pod, LINK_LISTEN_XDS, fake_link_listener(), NULL);
	fake_loop_advance(w->loop, 0);
}

/* The request in the last opened stream, as the number of its key; asserts the caller's token. */
static struct rpc_stream *csr_of(struct world *w, unsigned i, const char *token)
{
	struct rpc_stream *s = fake_rpc_stream(w->rpc, i);
	auto_free char *bearer = mem_printf("Bearer %s", token);

	assert_non_null(s);
	assert_string_equal(
	    fake_rpc_how(s)->method, "/istio.v1.auth.IstioCertificateService/CreateCertificate");
	assert_string_equal(fake_rpc_header(s, "authorization"), bearer);
	return s;
}

static void answer_csr_as(
    struct world *w, struct rpc_stream *s, int key, const char *sa, const char *root)
{
	int64_t now = loop_now_ms(w->loop) / 1000;
	auto_free char *uri = mem_printf("spiffe://cluster.local/ns/demo/sa/%s", sa);
	auto_free char *serial = mem_printf("abc%d", key);
	const struct fake_leaf leaf = {key, serial, uri, now - 120, now + 24 * 3600};
	auto_free char *pem = fake_x509_leaf(&leaf);
	struct evbuffer *b = evbuffer_new();

	pbwire_put_bytes(b, 1, pem, strlen(pem));
	pbwire_put_bytes(b, 1, root, strlen(root));
	fake_rpc_push(s, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	fake_rpc_end(s, RPC_OK, "");
	evbuffer_free(b);
	fake_loop_advance(w->loop, 0);
}

static void answer_csr(struct world *w, struct rpc_stream *s, int key, const char *root)
{
	answer_csr_as(w, s, key, "web", root);
}

static bool holds(const void *data, size_t len, const char *text)
{
	return data && memmem(data, len, text, strlen(text)) != NULL;
}

/* Envoy's first request for one secret. */
static struct rpc_stream *ask_secret(struct world *w, unsigned server, const char *name)
{
	struct rpc_stream *s = fake_rpc_call(fake_rpc_server(w->rpc, server),
	    "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets");
	struct evbuffer *node = evbuffer_new(), *q = evbuffer_new();
	static const char type[] =
	    "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

	pbwire_put_bytes(node, 1, "envoy", 5);
	pbwire_put_bytes(q, 2, evbuffer_pullup(node, -1), evbuffer_get_length(node));
	pbwire_put_bytes(q, 3, name, strlen(name));
	pbwire_put_bytes(q, 4, type, strlen(type));
	fake_loop_advance(w->loop, 0);
	fake_rpc_push(s, evbuffer_pullup(q, -1), evbuffer_get_length(q));
	fake_loop_advance(w->loop, 0);
	evbuffer_free(node);
	evbuffer_free(q);
	return s;
}

static void a_pod_gets_directory_bootstrap_and_secret(void **state)
{
	struct world w;
	struct rpc_stream *secret;
	auto_free char *jwt = token_for(UID_A, "web");
	const void *sent;
	size_t len;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "");
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 1);
	assert_int_equal(fake_link_writes(w.link, &w.a, LINK_FILE_BOOTSTRAP), 0);
	fake_link_added(w.link, &w.a, NULL);
	fake_loop_advance(w.loop, 0);
	assert_int_equal(fake_link_writes(w.link, &w.a, LINK_FILE_BOOTSTRAP), 1);
	assert_non_null(strstr(
	    fake_link_written(w.link, &w.a, LINK_FILE_BOOTSTRAP, &len), "~web-0.demo~demo.svc."));

	/* Envoy asks before there is a certificate, or a token to get one: it waits, unanswered. */
	secret = ask_secret(&w, 0, "default");
	assert_true(fake_rpc_accepted(secret));
	fake_loop_advance(w.loop, 1000);
	assert_int_equal(fake_rpc_sent(secret), 0);
	assert_int_equal(fake_rpc_opened(w.rpc), 0);

	give_token(&w, &w.a, UID_A, "web");
	fake_loop_advance(w.loop, 100);
	assert_int_equal(fake_rpc_opened(w.rpc), 1);
	answer_csr(&w, csr_of(&w, 0, jwt), fake_x509_keys(), "ROOT one");
	assert_int_equal(fake_rpc_sent(secret), 1);
	sent = fake_rpc_sent_bytes(secret, 0, &len);
	assert_true(holds(sent, len, "SECRET KEY"));
	assert_string_equal(fake_link_written(w.link, &w.a, LINK_FILE_ROOT, &len), "ROOT one\n");
	end(&w);
}

/* At a worker's start pods wait neither for each other nor for the last manifest. */
static void manifests_directories_and_sockets_come_side_by_side(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "");
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 1);
	manifest(&w, UID_B, "web-1", ""); /* no directory was made yet */
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 2);
	assert_int_equal(fake_link_waiting(w.link, LINK_LISTEN), 0);

	serve(&w, &w.b);
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 1);
	assert_int_equal(fake_link_ready(w.link), 0); /* there are more manifests */
	assert_true(fake_rpc_accepted(ask_secret(&w, 0, "default")));
	assert_null(fake_rpc_server(w.rpc, 1));
	fake_link_synced(w.link);
	fake_loop_advance(w.loop, 0);
	serve(&w, &w.a);
	assert_true(fake_rpc_accepted(ask_secret(&w, 1, "default")));
	end(&w);
}

static void two_pods_of_one_account_share_one_csr(void **state)
{
	struct world w;
	struct rpc_stream *first, *second;
	auto_free char *jwt = token_for(UID_A, "web");

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "");
	manifest(&w, UID_B, "web-1", "");
	fake_link_added(w.link, &w.a, NULL);
	fake_link_added(w.link, &w.b, NULL);
	fake_loop_advance(w.loop, 0);
	give_token(&w, &w.a, UID_A, "web");
	first = ask_secret(&w, 0, "default");
	second = ask_secret(&w, 1, "default");
	fake_loop_advance(w.loop, 100);
	answer_csr(&w, csr_of(&w, 0, jwt), fake_x509_keys(), "ROOT one");
	assert_int_equal(fake_rpc_opened(w.rpc), 1);
	assert_int_equal(fake_rpc_sent(first), 1);

	/* The second pod has no token of its own yet: nothing for it, though the certificate is
	 * here. */
	assert_int_equal(fake_rpc_sent(second), 0);
	give_token(&w, &w.b, UID_B, "web");
	fake_loop_advance(w.loop, 100);
	assert_int_equal(fake_rpc_sent(second), 1);
	assert_int_equal(fake_rpc_opened(w.rpc), 1);
	end(&w);
}

/* A container that starts anew must not get a key for a token that is no longer good. */
static void an_expired_token_gets_no_key(void **state)
{
	struct world w;
	struct rpc_stream *before, *after;
	auto_free char *jwt = NULL;

	(void)state;
	begin(&w);
	jwt = rig_token(UID_A, "demo", "web", loop_now_ms(w.loop) / 1000 + 600);
	manifest(&w, UID_A, "web-0", "");
	fake_link_added(w.link, &w.a, NULL);
	fake_loop_advance(w.loop, 0);
	before = ask_secret(&w, 0, "default");
	fake_link_token(w.link, &w.a, jwt);
	fake_loop_advance(w.loop, 100);
	answer_csr(&w, csr_of(&w, 0, jwt), fake_x509_keys(), "ROOT one");
	fake_loop_advance(w.loop, 599 * 1000);
	assert_int_equal(fake_rpc_sent(ask_secret(&w, 0, "default")), 1);

	fake_loop_advance(w.loop, 1000);
	after = ask_secret(&w, 0, "default");
	assert_int_equal(fake_rpc_sent(after), 0);
	fake_loop_advance(w.loop, 3600 * 1000);
	assert_int_equal(fake_rpc_sent(after), 0);
	assert_int_equal(fake_rpc_sent(before), 1); /* and keeps what it has */
	assert_false(fake_rpc_ended(before));

	give_token(&w, &w.a, UID_A, "web");
	fake_loop_advance(w.loop, 100);
	assert_int_equal(fake_rpc_sent(after), 1);
	assert_int_equal(fake_rpc_sent(before), 1);
	assert_int_equal(fake_rpc_opened(w.rpc), 1);
	end(&w);
}

static void a_pod_may_have_a_certificate_of_its_own(void **state)
{
	static const char own[] = "annotations: {agentd.node.mesh/scope: pod}\n";
	struct world w;
	struct rpc_stream *secrets[2];
	auto_free char *jwt_a = token_for(UID_A, "web"), *jwt_b = token_for(UID_B, "web");
	int key;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", own);
	manifest(&w, UID_B, "web-1", own);
	fake_link_added(w.link, &w.a, NULL);
	fake_link_added(w.link, &w.b, NULL);
	fake_loop_advance(w.loop, 0);
	secrets[0] = ask_secret(&w, 0, "default");
	secrets[1] = ask_secret(&w, 1, "default");
	give_token(&w, &w.a, UID_A, "web");
	give_token(&w, &w.b, UID_B, "web");
	fake_loop_advance(w.loop, 100);
	assert_int_equal(fake_rpc_opened(w.rpc), 2);
	key = fake_x509_keys();
	answer_csr(&w, csr_of(&w, 0, jwt_a), key - 1, "ROOT one");
	assert_int_equal(fake_rpc_sent(secrets[0]), 1);
	assert_int_equal(fake_rpc_sent(secrets[1]), 0); /* not its neighbour's */
	answer_csr(&w, csr_of(&w, 1, jwt_b), key, "ROOT one");
	assert_int_equal(fake_rpc_sent(secrets[1]), 1);
	assert_int_equal(fake_rpc_sent(secrets[0]), 1);
	end(&w);
}

enum { MANY = 60 };

/* Answers all CSRs that were sent since. */
static unsigned answer_all(struct world *w, unsigned from)
{
	for (; from < fake_rpc_opened(w->rpc); from++) {
		struct rpc_stream *s = fake_rpc_stream(w->rpc, from);
		size_t len;
		auto_free char *request = mem_zalloc(4096);
		const void *sent = fake_rpc_sent_bytes(s, 0, &len);
		const char *csr;
		int key;
		char sa[64];

		memcpy(request, sent, len < 4095 ? len : 4095);
		csr = memmem(request, 4096, "CSR ", 4);
		assert_int_equal(
		    sscanf(
			csr, "CSR %d %*s spiffe://cluster.local/ns/demo/sa/%63[a-z0-9-]", &key, sa),
		    2);
		answer_csr_as(w, s, key, sa, "ROOT one");
	}
	return from;
}

/* Sixty accounts asleep for two days: renewed at the pace, and nobody gets the old one. */
static void after_a_suspend_all_are_renewed_at_the_pace(void **state)
{
	struct world w;
	struct rpc_stream *secret;
	unsigned done = 0;

	(void)state;
	begin(&w);
	for (unsigned i = 0; i < MANY; i++) {
		char uid[64], sa[16];
		struct uuid pod;

		snprintf(uid, sizeof(uid), "6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d%04u", i);
		snprintf(sa, sizeof(sa), "sa%u", i);
		uuid_parse(&pod, uid);
		manifest_of(&w, uid, sa, sa);
		fake_link_added(w.link, &pod, NULL);
		give_token(&w, &pod, uid, sa);
	}
	for (unsigned second = 0; second < 6; second++) {
		done = answer_all(&w, done);
		fake_loop_advance(w.loop, 1000);
	}
	assert_int_equal(done, MANY);
	fake_loop_advance(w.loop, 60 * 1000);
	fake_loop_wall_step(w.loop, 2LL * 24 * 3600 * 1000);
	secret = ask_secret(&w, 0, "default");
	assert_int_equal(fake_rpc_sent(secret), 0); /* not the old one */
	assert_in_range(fake_rpc_opened(w.rpc), MANY + 1, MANY + 20);
	for (unsigned second = 1; second < 5; second++) {
		done = answer_all(&w, done);
		fake_loop_advance(w.loop, 1000);
		assert_in_range(fake_rpc_opened(w.rpc), MANY, MANY + 20 + 10 * second);
	}
	done = answer_all(&w, done);
	assert_int_equal(done, 2 * MANY);
	assert_int_equal(fake_rpc_sent(secret), 1);
	fake_loop_advance(w.loop, 3600 * 1000); /* and once is enough */
	assert_int_equal(fake_rpc_opened(w.rpc), 2 * MANY);
	end(&w);
}

/* For every pod of its control plane, those that come later too. */
static void a_revocation_list_reaches_all_pods(void **state)
{
	struct world w;
	struct rpc_stream *a, *b;
	auto_free char *jwt = token_for(UID_A, "web");
	const void *sent;
	size_t len;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "");
	fake_link_added(w.link, &w.a, NULL);
	fake_loop_advance(w.loop, 0);
	a = ask_secret(&w, 0, "ROOTCA");
	give_token(&w, &w.a, UID_A, "web");
	fake_loop_advance(w.loop, 100);
	answer_csr(&w, csr_of(&w, 0, jwt), fake_x509_keys(), "ROOT one");
	sent = fake_rpc_sent_bytes(a, 0, &len);
	assert_false(holds(sent, len, "CRL"));
	fake_link_crl(w.link, 0, "CRL one");
	fake_loop_advance(w.loop, 0);
	assert_int_equal(fake_rpc_sent(a), 2);
	sent = fake_rpc_sent_bytes(a, 1, &len);
	assert_true(holds(sent, len, "ROOT one") && holds(sent, len, "CRL one"));
	manifest(&w, UID_B, "web-1", "");
	fake_link_added(w.link, &w.b, NULL);
	fake_loop_advance(w.loop, 0);
	b = ask_secret(&w, 1, "ROOTCA");
	give_token(&w, &w.b, UID_B, "web");
	fake_loop_advance(w.loop, 100);
	sent = fake_rpc_sent_bytes(b, 0, &len);
	assert_true(holds(sent, len, "ROOT one") && holds(sent, len, "CRL one"));
	fake_link_crl(w.link, 0, NULL);
	fake_loop_advance(w.loop, 0);
	sent = fake_rpc_sent_bytes(a, 2, &len);
	assert_true(holds(sent, len, "ROOT one") && !holds(sent, len, "CRL one"));
	assert_int_equal(fake_rpc_sent(b), 2);
	end(&w);
}

/* Envoy's ADS stream with its LDS request; what istiod sees of it. */
static struct rpc_stream *open_ads(struct world *w, unsigned server)
{
	struct rpc_stream *down = fake_rpc_call(fake_rpc_server(w->rpc, server),
	    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources");
	struct evbuffer *q = evbuffer_new();
	unsigned before = fake_rpc_opened(w->rpc);

	pbwire_put_bytes(q, 2, "\x0a\x01n", 3); /* node {id: "n"} */
	pbwire_put_bytes(q, 4, TYPE_LISTENER, strlen(TYPE_LISTENER));
	fake_loop_advance(w->loop, 0);
	fake_rpc_push(down, evbuffer_pullup(q, -1), evbuffer_get_length(q));
	evbuffer_free(q);
	fake_loop_advance(w->loop, 1000);
	assert_int_equal(fake_rpc_opened(w->rpc), before + 1);
	return fake_rpc_stream(w->rpc, before);
}

/* ProxyConfig with these two anchors; "": without. */
static void push_anchors(struct world *w, struct rpc_stream *ads, const char *a, const char *b)
{
	struct evbuffer *config = evbuffer_new(), *any = evbuffer_new(), *m = evbuffer_new();

	if (*a)
		pbwire_put_bytes(config, 34, a, strlen(a));
	if (*b)
		pbwire_put_bytes(config, 34, b, strlen(b));
	pbwire_put_bytes(any, 1, TYPE_PROXY_CONFIG, strlen(TYPE_PROXY_CONFIG));
	pbwire_put_bytes(any, 2, evbuffer_pullup(config, -1), evbuffer_get_length(config));
	pbwire_put_bytes(m, 2, evbuffer_pullup(any, -1), evbuffer_get_length(any));
	pbwire_put_bytes(m, 4, TYPE_PROXY_CONFIG, strlen(TYPE_PROXY_CONFIG));
	pbwire_put_bytes(m, 5, "nonce-7", 7);
	fake_rpc_push(ads, evbuffer_pullup(m, -1), evbuffer_get_length(m));
	fake_loop_advance(w->loop, 0);
	evbuffer_free(config);
	evbuffer_free(any);
	evbuffer_free(m);
}

static void trust_anchors_of_istiod_reach_the_pod(void **state)
{
	struct world w;
	struct rpc_stream *root, *ads;
	auto_free char *jwt = token_for(UID_A, "web");
	const void *sent;
	size_t len;

	(void)state;
	begin_with(&w, "pcds: true\n");
	manifest(&w, UID_A, "web-0", "");
	fake_link_added(w.link, &w.a, NULL);
	fake_loop_advance(w.loop, 0);
	root = ask_secret(&w, 0, "ROOTCA");
	give_token(&w, &w.a, UID_A, "web");
	fake_loop_advance(w.loop, 1000);
	answer_csr(&w, csr_of(&w, 0, jwt), fake_x509_keys(), "ROOT of istiod");
	ads = open_ads(&w, 0);
	sent = fake_rpc_sent_bytes(ads, 1, &len);
	assert_true(holds(sent, len, TYPE_PROXY_CONFIG)); /* right after LDS */
	push_anchors(&w, ads, "ROOT a", "");
	sent = fake_rpc_sent_bytes(ads, 2, &len);
	assert_true(holds(sent, len, "nonce-7")); /* the ACK */
	assert_int_equal(fake_rpc_sent(root), 2);
	sent = fake_rpc_sent_bytes(root, 1, &len);
	assert_true(holds(sent, len, "ROOT a\nROOT of istiod\n"));
	assert_string_equal(
	    fake_link_written(w.link, &w.a, LINK_FILE_ROOT, &len), "ROOT a\nROOT of istiod\n");

	push_anchors(&w, ads, "ROOT a", ""); /* the same is no news */
	push_anchors(&w, ads, "words", "garbage");
	assert_int_equal(fake_rpc_sent(root), 2);
	sent = fake_rpc_sent_bytes(ads, 4, &len);
	assert_true(holds(sent, len, "trust anchor 2")); /* a NACK */
	assert_int_equal(fake_link_writes(w.link, &w.a, LINK_FILE_ROOT), 2);

	push_anchors(&w, ads, "", "");
	sent = fake_rpc_sent_bytes(root, 2, &len);
	assert_true(holds(sent, len, "ROOT of istiod") && !holds(sent, len, "ROOT a"));
	assert_string_equal(
	    fake_link_written(w.link, &w.a, LINK_FILE_ROOT, &len), "ROOT of istiod\n");
	fake_loop_advance(w.loop, 3600 * 1000);
	assert_int_equal(fake_rpc_opened(w.rpc), 2); /* no CSR comes of it */
	end(&w);
}

/* What came before the first certificate is kept for it; another pod's is another's. */
static void early_anchors_wait_for_the_certificate(void **state)
{
	struct world w;
	struct rpc_stream *a, *b;
	auto_free char *jwt = token_for(UID_A, "web");
	const void *sent;
	size_t len;

	(void)state;
	begin_with(&w, "pcds: true\n");
	manifest(&w, UID_A, "web-0", "");
	manifest(&w, UID_B, "web-1", "");
	fake_link_added(w.link, &w.a, NULL);
	fake_link_added(w.link, &w.b, NULL);
	fake_loop_advance(w.loop, 0);
	a = ask_secret(&w, 0, "ROOTCA");
	b = ask_secret(&w, 1, "ROOTCA");
	give_token(&w, &w.a, UID_A, "web");
	give_token(&w, &w.b, UID_B, "web");
	fake_loop_advance(w.loop, 1000);
	push_anchors(&w, open_ads(&w, 0), "ROOT a", "");
	assert_int_equal(fake_rpc_sent(a), 0);
	answer_csr(&w, csr_of(&w, 0, jwt), fake_x509_keys(), "ROOT of istiod");
	sent = fake_rpc_sent_bytes(a, 0, &len);
	assert_true(holds(sent, len, "ROOT a\nROOT of istiod\n"));
	sent = fake_rpc_sent_bytes(b, 0, &len);
	assert_false(holds(sent, len, "ROOT a"));
	end(&w);
}

static void without_the_setting_nobody_asks_for_anchors(void **state)
{
	struct world w;
	struct rpc_stream *ads;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "env: {PROXY_CONFIG_XDS_AGENT: 'true'}\n");
	fake_link_added(w.link, &w.a, NULL);
	fake_loop_advance(w.loop, 0);
	give_token(&w, &w.a, UID_A, "web");
	fake_loop_advance(w.loop, 1000);
	ads = open_ads(&w, 0);
	assert_int_equal(fake_rpc_sent(ads), 1);
	push_anchors(&w, ads, "ROOT a", "");
	assert_int_equal(fake_rpc_sent(ads), 1);
	end(&w);
}

static void a_token_of_another_pod_or_account_opens_nothing(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "");
	fake_link_added(w.link, &w.a, NULL);
	fake_loop_advance(w.loop, 0);
	give_token(&w, &w.a, UID_B, "web");
	fake_loop_advance(w.loop, 5000);
	assert_int_equal(fake_rpc_opened(w.rpc), 0);
	give_token(&w, &w.a, UID_A, "admin");
	fake_loop_advance(w.loop, 5000);
	assert_int_equal(fake_rpc_opened(w.rpc), 0);
	give_token(&w, &w.a, UID_A, "web");
	fake_loop_advance(w.loop, 5000);
	assert_int_equal(fake_rpc_opened(w.rpc), 1);
	end(&w);
}

/* The sweep of what earlier workers left must not come before each pod had its turn. */
static void ready_is_said_once_when_each_pod_was_told(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "");
	manifest(&w, UID_B, "web-1", "env: {SECRET_TTL: 400h}\n"); /* refused: told at once */
	fake_link_synced(w.link);
	fake_link_added(w.link, &w.a, NULL);
	fake_loop_advance(w.loop, 0);
	fake_link_listening(w.link, &w.a, LINK_LISTEN_SDS, fake_link_listener(), NULL);
	assert_int_equal(fake_link_ready(w.link), 0);
	assert_int_equal(fake_link_logs(w.link), 1); /* before all else */
	fake_link_listening(w.link, &w.a, LINK_LISTEN_XDS, fake_link_listener(), NULL);
	assert_int_equal(fake_link_ready(w.link), 1);
	manifest(&w, UID_B, "web-1", "");
	serve(&w, &w.b);
	assert_int_equal(fake_link_ready(w.link), 1);
	end(&w);

	begin(&w); /* no pod at all */
	assert_int_equal(fake_link_ready(w.link), 0);
	fake_link_synced(w.link);
	assert_int_equal(fake_link_ready(w.link), 1);
	end(&w);

	begin(&w); /* a pod whose directory cannot be made */
	manifest(&w, UID_A, "web-0", "");
	fake_link_synced(w.link);
	fake_link_added(w.link, &w.a, "No space left on device");
	assert_int_equal(fake_link_ready(w.link), 1);
	end(&w);
}

static void a_refused_environment_starts_nothing(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "env: {SECRET_TTL: 400h}\n");
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 0);
	manifest(&w, UID_A, "web-0", "env: {SECRET_TTL: 2h}\n"); /* mended */
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 1);
	end(&w);
}

/* Nobody can ask for its rules. */
static void a_refused_strict_pod_is_shut(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	fake_redirect_reset();
	manifest(&w, UID_A, "web-0", "redirect: {mode: ebpf, modes: x}\n");
	assert_int_equal(fake_redirect_shuts(), 1);
	manifest(
	    &w, UID_A, "web-0", "redirect: {mode: ebpf, envoy_port: x}\nenv: {SECRET_TTL: 400h}\n");
	assert_int_equal(fake_redirect_shuts(), 2);
	manifest(&w, UID_B, "web-1", "redirect: {mode: ebpf, policy: permissive, modes: x}\n");
	manifest(&w, UID_B, "web-1", "redirect: {mode: none}\nenv: {SECRET_TTL: 400h}\n");
	assert_int_equal(fake_redirect_shuts(), 2);
	manifest(&w, UID_A, "web-0", "redirect: {mode: ebpf}\n");
	manifest(&w, UID_A, "web-0", "redirect: {mode: ebpf, modes: x}\n"); /* a change */
	assert_int_equal(fake_redirect_shuts(), 2);
	end(&w);
}

static void a_refused_change_leaves_the_pod_alone(void **state)
{
	struct world w;
	struct rpc_stream *secret;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "");
	fake_link_added(w.link, &w.a, NULL);
	fake_loop_advance(w.loop, 0);
	secret = ask_secret(&w, 0, "default");
	manifest(&w, UID_A, "web-0", "env: {SECRET_TTL: 400h}\n");
	assert_false(fake_rpc_ended(secret));
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 0);

	/* A good one restarts the services; the directory is adopted, never dropped. */
	manifest(&w, UID_A, "web-0", "labels: {app: web}\n");
	assert_true(fake_rpc_ended(secret));
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 1);
	assert_int_equal(fake_link_removals(w.link, &w.a), 0);
	end(&w);
}

static void a_removed_pod_is_undone(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "");
	manifest(&w, UID_B, "web-1", "");
	serve(&w, &w.a);
	fake_link_manifest(w.link, UID_A ".yaml", NULL);
	fake_loop_advance(w.loop, 1999);
	assert_int_equal(fake_link_removals(w.link, &w.a), 0);
	fake_loop_advance(w.loop, 1);
	assert_int_equal(fake_link_removals(w.link, &w.a), 1);
	assert_false(fake_link_follows(w.link, LINK_FOLLOW_TOKEN, &w.a, 0));
	assert_int_equal(fake_link_removals(w.link, &w.b), 0);
	end(&w);
}

static void remove_pod(struct world *w, const char *file)
{
	fake_link_manifest(w->link, file, NULL);
	fake_loop_advance(w->loop, 2000);
}

/* A StatefulSet's next pod has the name of the last one, and may be here before that is gone. */
static void metrics_go_with_the_last_pod_of_a_name(void **state)
{
#define REQUESTS "istio_agent_xds_proxy_requests{pod=\"web-0\",namespace=\"demo\"}"
	struct world w;

	(void)state;
	begin(&w);
	manifest(&w, UID_A, "web-0", "");
	serve(&w, &w.a);
	give_token(&w, &w.a, UID_A, "web");
	answer_csr(&w, fake_rpc_stream(w.rpc, 0), 1, "ROOT");
	open_ads(&w, 0);
	manifest(&w, UID_A, "web-0", "env: {ISTIO_META_X: y}\n"); /* a change keeps its counters */
	assert_metric(REQUESTS " 1\n");
	manifest(&w, UID_B, "web-0", "");
	remove_pod(&w, UID_A ".yaml");
	assert_metric(REQUESTS " 1\n");
	remove_pod(&w, UID_B ".yaml");
	assert_false(metrics_say("web-0"));
	end(&w);
}

static void every_stage_can_be_the_last(void **state)
{
	(void)state;
	for (int stage = 0; stage < 5; stage++) {
		struct world w;

		begin(&w);
		if (stage >= 1)
			manifest(&w, UID_A, "web-0", "");
		if (stage >= 2)
			serve(&w, &w.a);
		if (stage >= 3)
			give_token(&w, &w.a, UID_A, "web");
		if (stage >= 4)
			(void)ask_secret(&w, 0, "ROOTCA");
		end(&w); /* aborts if anything was left */
	}
}

static void the_broker_goes_and_the_worker_ends(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	assert_false(agent_broker_lost(w.agent));
	fake_link_lose(w.link);
	assert_true(agent_broker_lost(w.agent));
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_pod_gets_directory_bootstrap_and_secret),
	    cmocka_unit_test(manifests_directories_and_sockets_come_side_by_side),
	    cmocka_unit_test(two_pods_of_one_account_share_one_csr),
	    cmocka_unit_test(an_expired_token_gets_no_key),
	    cmocka_unit_test(a_pod_may_have_a_certificate_of_its_own),
	    cmocka_unit_test(after_a_suspend_all_are_renewed_at_the_pace),
	    cmocka_unit_test(a_revocation_list_reaches_all_pods),
	    cmocka_unit_test(trust_anchors_of_istiod_reach_the_pod),
	    cmocka_unit_test(early_anchors_wait_for_the_certificate),
	    cmocka_unit_test(without_the_setting_nobody_asks_for_anchors),
	    cmocka_unit_test(a_token_of_another_pod_or_account_opens_nothing),
	    cmocka_unit_test(ready_is_said_once_when_each_pod_was_told),
	    cmocka_unit_test(a_refused_environment_starts_nothing),
	    cmocka_unit_test(a_refused_strict_pod_is_shut),
	    cmocka_unit_test(a_refused_change_leaves_the_pod_alone),
	    cmocka_unit_test(a_removed_pod_is_undone),
	    cmocka_unit_test(metrics_go_with_the_last_pod_of_a_name),
	    cmocka_unit_test(every_stage_can_be_the_last),
	    cmocka_unit_test(the_broker_goes_and_the_worker_ends),
	};

	return !!cmocka_run_group_tests(tests, NULL, NULL);
}
