/* agent_kubelet_test.c - the whole worker on a node with a kubelet, with fakes at its edges only:
 * what a publish leads to, and what a restart finds.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/fake/link_redirect.c tests/fake/link_volume.c tests/fake/x509.c tests/unit/worker/kubelet/csi_rig.c
 * LINK: tests/unit/worker/token_rig.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <event2/buffer.h>

#include "base/pbwire.h"
#include "common/err.h"
#include "common/mem.h"
#include "tests/fake/link.h"
#include "tests/fake/link_redirect.h"
#include "tests/fake/link_volume.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "tests/fake/x509.h"
#include "tests/unit/worker/kubelet/csi_rig.h"
#include "worker/agent.h"
#include "worker/config/config.h"
#include "worker/kubelet/csi_kept.h"

static const char settings[] = "control_planes:\n"
			       "  - name: istiod\n"
			       "    address: 127.0.0.1:15012\n"
			       "    server_name: istiod.istio-system.svc\n"
			       "    connections: 1\n"
			       "    opens_per_second: 1000\n"
			       "    opens_burst: 1000\n"
			       "node_name: node-1\n";

struct world {
	struct loop *loop;
	struct config config;
	struct agent *agent;
	struct link *link;
	struct rpc *rpc;
	struct csi_ask ask;
	struct uuid uid;
};

static void begin(struct world *w, const char *more)
{
	auto_free char *text = mem_printf("%s%s", settings, more);
	char *argv[] = {"agentd-worker", NULL};
	struct err e = {0};

	memset(w, 0, sizeof(*w));
	w->loop = fake_loop();
	if (config_load(
		&w->config, &(struct config_file){"agentd.yaml", text, strlen(text)}, 1, argv, &e))
		fail_msg("%s", e.msg);
	fake_link_node_listener(LINK_NODE_CSI, fake_link_listener());
	w->agent = agent_new(w->loop, &w->config, -1, &e);
	assert_non_null(w->agent);
	w->link = fake_link_last();
	w->rpc = fake_rpc_last();
	csi_ask_init(&w->ask);
	uuid_parse(&w->uid, RIG_UID);
	fake_link_root(w->link, 0, "ROOT of istiod");
	fake_link_listed(w->link, LINK_STATE_CERT, NULL);
	fake_link_listed(w->link, LINK_STATE_CERT_IN_MEMORY, NULL);
	fake_link_listed(w->link, LINK_STATE_SERVED, NULL);
	fake_link_listed(w->link, LINK_STATE_NAMES, NULL);
}

/* Nothing was kept, nothing is mounted. */
static void begin_empty(struct world *w, const char *more)
{
	begin(w, more);
	fake_link_listed(w->link, LINK_STATE_POD, NULL);
	fake_link_volumes(w->link, NULL, 0, NULL);
	fake_link_synced(w->link);
	fake_loop_advance(w->loop, 0);
}

static void end(struct world *w)
{
	agent_free(&w->agent);
	config_clear(&w->config);
	csi_ask_clear(&w->ask);
	fake_loop_advance(w->loop, 0);
	fake_loop_end(&w->loop);
}

static struct rpc_stream *call(struct world *w, const char *method, bool publish)
{
	size_t size;
	auto_free uint8_t *bytes =
	    publish ? csi_ask_pack(&w->ask, &size) : csi_ask_pack_unpublish(&w->ask, &size);
	struct rpc_stream *s = fake_rpc_call(fake_rpc_server(w->rpc, 0), method);

	fake_rpc_push(s, bytes, size);
	fake_rpc_half_close(s);
	fake_loop_advance(w->loop, 0);
	return s;
}

static struct rpc_stream *publish(struct world *w)
{
	return call(w, "/csi.v1.Node/NodePublishVolume", true);
}

static void serve(struct world *w)
{
	fake_link_added(w->link, &w->uid, NULL);
	fake_loop_advance(w->loop, 0);
	fake_link_listening(w->link, &w->uid, LINK_LISTEN_SDS, fake_link_listener(), NULL);
	fake_link_listening(w->link, &w->uid, LINK_LISTEN_XDS, fake_link_listener(), NULL);
	fake_loop_advance(w->loop, 0);
}

static char *bearer(const struct csi_ask *a)
{
	json_t *o = json_loads(json_string_value(json_object_get(a->secrets, RIG_TOKENS)), 0, NULL);
	char *text = mem_printf("Bearer %s",
	    json_string_value(json_object_get(json_object_get(o, "istio-ca"), "token")));

	json_decref(o);
	return text;
}

static void answer_csr(struct world *w)
{
	int64_t now = loop_now_ms(w->loop) / 1000;
	const struct fake_leaf leaf = {fake_x509_keys(), "abc",
	    "spiffe://cluster.local/ns/demo/sa/web", now - 120, now + 24 * 3600};
	auto_free char *pem = fake_x509_leaf(&leaf);
	struct rpc_stream *s = fake_rpc_stream(w->rpc, 0);
	struct evbuffer *b = evbuffer_new();

	pbwire_put_bytes(b, 1, pem, strlen(pem));
	pbwire_put_bytes(b, 1, "ROOT", 4);
	fake_rpc_push(s, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	fake_rpc_end(s, RPC_OK, "");
	evbuffer_free(b);
	fake_loop_advance(w->loop, 0);
}

static void mount(struct world *w)
{
	while (fake_link_waiting(w->link, LINK_STATE_PUT)) /* certificates are kept, too */
		fake_link_put(w->link, NULL);
	fake_link_published(w->link, &w->uid, "mesh", 0, NULL);
	fake_loop_advance(w->loop, 0);
}

/* With the pod's token, and its bootstrap and root before the mount. */
static void a_publish_ends_with_a_certificate(void **state)
{
	struct world w;
	auto_free char *expected = NULL;
	struct rpc_stream *s;
	size_t len;

	(void)state;
	begin_empty(&w, "");
	expected = bearer(&w.ask);
	csi_ask_say(&w.ask, "ISTIO_METAJSON_LABELS", "{\"app\":\"shop\"}");
	s = publish(&w);
	serve(&w);
	assert_false(fake_link_follows(w.link, LINK_FOLLOW_TOKEN, &w.uid, 0));
	assert_int_equal(fake_link_waiting(w.link, LINK_STATE_PUT), 0);
	fake_loop_advance(w.loop, 100);
	assert_int_equal(fake_rpc_opened(w.rpc), 1);
	assert_string_equal(fake_rpc_header(fake_rpc_stream(w.rpc, 0), "authorization"), expected);
	answer_csr(&w);
	assert_non_null(
	    strstr(fake_link_written(w.link, &w.uid, LINK_FILE_BOOTSTRAP, &len), "shop"));
	assert_non_null(fake_link_written(w.link, &w.uid, LINK_FILE_ROOT, &len));
	mount(&w);
	assert_int_equal(fake_rpc_status(s), RPC_OK);
	end(&w);
}

static void a_pod_that_is_refused_is_told_so(void **state)
{
	struct world w;
	struct rpc_stream *s;

	(void)state;
	begin_empty(&w, "");
	csi_ask_say(&w.ask, "CA_ADDR", "evil.example:15012");
	s = publish(&w);
	assert_int_equal(fake_rpc_status(s), RPC_INVALID_ARGUMENT);
	assert_non_null(strstr(fake_rpc_why(s), "CA_ADDR"));
	assert_non_null(strstr(fake_rpc_why(s), "127.0.0.1:15012"));
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 0);
	end(&w);
}

/* Its containers must not run before its rules; its bootstrap comes with them. */
static void a_strict_pod_is_held_for_its_cgroup(void **state)
{
	struct world w;
	struct rpc_stream *s;

	(void)state;
	begin_empty(&w, "redirect: ebpf\n");
	s = publish(&w);
	serve(&w);
	fake_loop_advance(w.loop, 100);
	answer_csr(&w);
	fake_loop_advance(w.loop, 60 * 1000);
	assert_false(fake_rpc_ended(s));
	assert_int_equal(fake_link_waiting(w.link, LINK_PUBLISH), 0);
	assert_int_equal(fake_link_writes(w.link, &w.uid, LINK_FILE_BOOTSTRAP), 0);
	fake_redirect_set(w.link, &w.uid, 1, NULL, NULL);
	fake_loop_advance(w.loop, 0);
	assert_int_equal(fake_link_writes(w.link, &w.uid, LINK_FILE_BOOTSTRAP), 1);
	assert_int_equal(fake_link_waiting(w.link, LINK_PUBLISH), 0); /* not before it is there */
	fake_link_wrote(w.link, &w.uid, LINK_FILE_BOOTSTRAP, NULL);
	fake_loop_advance(w.loop, 0);
	mount(&w);
	assert_int_equal(fake_rpc_status(s), RPC_OK);
	end(&w);
}

static void a_permissive_pod_is_not(void **state)
{
	struct world w;
	struct rpc_stream *s;

	(void)state;
	begin_empty(&w, "redirect: ebpf\nredirect_policy: permissive\npublish_wait_ms: 0\n");
	s = publish(&w);
	serve(&w);
	mount(&w);
	assert_int_equal(fake_rpc_status(s), RPC_OK);
	end(&w);
}

/* A new one opens what the old one did; services are not started anew. */
static void a_republish_brings_a_token(void **state)
{
	struct world w;
	auto_free char *expected = NULL;

	(void)state;
	begin_empty(&w, "publish_wait_ms: 0\n");
	csi_ask_token(&w.ask, "web", loop_now_ms(w.loop) / 1000 + 1);
	publish(&w);
	serve(&w);
	mount(&w);
	fake_loop_advance(w.loop, 5000); /* it has expired */
	csi_ask_token(&w.ask, "web", 1900000000);
	expected = bearer(&w.ask);
	assert_int_equal(fake_rpc_status(publish(&w)), RPC_OK);
	for (unsigned i = 0; i < fake_rpc_opened(w.rpc); i++)
		fake_rpc_end(fake_rpc_stream(w.rpc, i), RPC_UNAVAILABLE, "");
	fake_loop_advance(w.loop, 60 * 1000);
	assert_string_equal(
	    fake_rpc_header(fake_rpc_stream(w.rpc, fake_rpc_opened(w.rpc) - 1), "authorization"),
	    expected);
	assert_int_equal(fake_link_waiting(w.link, LINK_POD_ADD), 0);
	end(&w);
}

static void an_unpublished_pod_is_gone(void **state)
{
	struct world w;
	struct rpc_stream *s;

	(void)state;
	begin_empty(&w, "publish_wait_ms: 0\n");
	publish(&w);
	serve(&w);
	mount(&w);
	s = call(&w, "/csi.v1.Node/NodeUnpublishVolume", false);
	assert_int_equal(fake_link_removals(w.link, &w.uid), 0);
	fake_link_unpublished(w.link, &w.uid, "mesh", 0, NULL);
	fake_loop_advance(w.loop, 0);
	assert_int_equal(fake_rpc_status(s), RPC_OK);
	assert_int_equal(fake_link_removals(w.link, &w.uid), 1);
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_POD), 0);
	end(&w);
}

/* Without a word of the kubelet, and the sweep waits for it. */
static void a_restart_adopts(void **state)
{
	struct world w;
	struct link_volume v = {.name = "mesh", .mounted = true, .directory = true};
	struct link_kept kept;
	auto_free char *data = NULL;

	(void)state;
	begin_empty(&w, "publish_wait_ms: 0\n");
	publish(&w);
	serve(&w);
	mount(&w);
	kept = fake_link_kept_at(w.link, LINK_STATE_POD, 0);
	data = mem_dup(kept.data, kept.size);
	kept.data = data;
	end(&w);

	begin(&w, "");
	uint8_t id[CSI_KEPT_ID_SIZE];
	csi_kept_id(&w.uid, id);
	kept.id = id;
	v.pod = w.uid;
	fake_link_keep(w.link, &kept);
	fake_link_synced(w.link);
	fake_loop_advance(w.loop, 0);
	assert_int_equal(
	    fake_link_ready(w.link), 0); /* not before it is known which pods are published */
	fake_link_listed(w.link, LINK_STATE_POD, NULL);
	fake_link_volumes(w.link, &v, 1, NULL);
	fake_loop_advance(w.loop, 0);
	assert_int_equal(fake_link_ready(w.link), 0);
	serve(&w);
	assert_int_equal(fake_link_ready(w.link), 1);
	assert_int_equal(fake_link_waiting(w.link, LINK_PUBLISH), 0);
	fake_loop_advance(w.loop, 100);
	assert_int_equal(fake_rpc_opened(w.rpc), 1); /* its token was kept */
	end(&w);
}

static void an_end_before_all_is_known(void **state)
{
	struct world w;

	(void)state;
	begin(&w, "");
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_publish_ends_with_a_certificate),
	    cmocka_unit_test(a_pod_that_is_refused_is_told_so),
	    cmocka_unit_test(a_strict_pod_is_held_for_its_cgroup),
	    cmocka_unit_test(a_permissive_pod_is_not),
	    cmocka_unit_test(a_republish_brings_a_token),
	    cmocka_unit_test(an_unpublished_pod_is_gone),
	    cmocka_unit_test(a_restart_adopts),
	    cmocka_unit_test(an_end_before_all_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
