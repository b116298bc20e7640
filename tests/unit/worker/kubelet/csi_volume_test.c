/* csi_volume_test.c - the kubelet calls, pods start, the broker mounts; who waits for what.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/fake/link_volume.c tests/unit/worker/kubelet/csi_rig.c
 * LINK: tests/unit/worker/metrics_rig.c tests/unit/worker/token_rig.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "csi_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/link_volume.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/kubelet/csi_driver.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PUBLISH "/csi.v1.Node/NodePublishVolume"
#define UNPUBLISH "/csi.v1.Node/NodeUnpublishVolume"

enum { WAIT_MS = 2000, HOLD_MS = 100 * 1000 };

struct world {
	struct loop *loop;
	struct rpc *rpc;
	struct link *link;
	struct pod_registry *pods;
	struct csi_volumes *volumes;
	struct csi_driver *driver;
	struct csi_ask ask;
	struct uuid uid;
	struct pod *pod; /* the last that was added */
	int added, changed, tokens, removed;
	bool refuse; /* inside of `added` */
};

static void on_added(void *ctx, struct pod *p)
{
	struct world *w = ctx;
	struct err e;

	w->added++;
	w->pod = p;
	if (!w->refuse)
		return;
	err_set(&e, ERR_INVALID, "PROXY_CONFIG: refused");
	pod_set_ready(p, &e);
}

static void on_changed(void *ctx, struct pod *p)
{
	(void)p;
	((struct world *)ctx)->changed++;
}

static void on_token(void *ctx, struct pod *p)
{
	(void)p;
	((struct world *)ctx)->tokens++;
}

static void on_removed(void *ctx, struct pod *p)
{
	(void)p;
	((struct world *)ctx)->removed++;
}

static void on_registered(void *ctx, bool yes)
{
	(void)ctx, (void)yes;
}

static void begin(struct world *w)
{
	static const struct pod_observer observer = {
	    on_added, on_changed, on_token, on_removed, NULL};

	*w = (struct world){.loop = fake_loop(), .link = fake_link()};
	w->rpc = rpc_new(w->loop);
	w->pods = pod_registry_new(&observer, w);
	w->volumes =
	    csi_volumes_new(&(struct csi_volumes_options){w->loop, w->link, w->pods, WAIT_MS});
	w->driver = csi_driver_new(
	    w->loop, w->rpc, &(struct csi_driver_rig){w->volumes, "node-1", on_registered, NULL});
	csi_ask_init(&w->ask);
	uuid_parse(&w->uid, RIG_UID);
}

static int setup(void **state)
{
	static struct world w;

	begin(&w);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	csi_driver_free(&w->driver);
	csi_volumes_free(&w->volumes);
	csi_volumes_free(&w->volumes);
	pod_registry_free(&w->pods);
	rpc_free(&w->rpc);
	link_free(&w->link); /* fails if a call was left */
	csi_ask_clear(&w->ask);
	metrics_clear();
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_loop_live(w->loop), 0);
	fake_loop_end(&w->loop);
	return 0;
}

static struct rpc_stream *call(struct world *w, const char *method, uint8_t *bytes, size_t size)
{
	struct rpc_stream *s = fake_rpc_call(csi_driver_rpc(w->driver), method);

	fake_rpc_push(s, bytes, size);
	fake_rpc_half_close(s);
	fake_loop_advance(w->loop, 0);
	free(bytes);
	return s;
}

static struct rpc_stream *publish(struct world *w)
{
	size_t size;
	uint8_t *bytes = csi_ask_pack(&w->ask, &size);

	return call(w, PUBLISH, bytes, size);
}

static struct rpc_stream *unpublish(struct world *w)
{
	size_t size;
	uint8_t *bytes = csi_ask_pack_unpublish(&w->ask, &size);

	return call(w, UNPUBLISH, bytes, size);
}

static void answered(const struct rpc_stream *s, int status, const char *why)
{
	assert_true(fake_rpc_ended(s));
	assert_int_equal(fake_rpc_status(s), status);
	if (!strstr(fake_rpc_why(s), why))
		fail_msg("\"%s\" does not say \"%s\"", fake_rpc_why(s), why);
	assert_int_equal(fake_rpc_sent(s), status == RPC_OK ? 1 : 0);
}

static void ready(struct world *w)
{
	pod_set_ready(w->pod, NULL);
	pod_set_certified(w->pod);
	fake_loop_advance(w->loop, 0);
}

static void kept(struct world *w)
{
	fake_link_put(w->link, NULL);
	fake_loop_advance(w->loop, 0);
}

static void mounted(struct world *w)
{
	fake_link_published(w->link, &w->uid, "mesh", 0, NULL);
	fake_loop_advance(w->loop, 0);
}

static void unmounted(struct world *w)
{
	fake_link_unpublished(w->link, &w->uid, "mesh", 0, NULL);
	fake_loop_advance(w->loop, 0);
}

static void publish_all(struct world *w)
{
	struct rpc_stream *s = publish(w);

	ready(w);
	kept(w);
	mounted(w);
	answered(s, RPC_OK, "");
}

static const char *state_of(struct world *w)
{
	static char text[32];
	json_t *o = csi_volume_dump(w->volumes, &w->uid);

	snprintf(
	    text, sizeof(text), "%s", o ? json_string_value(json_object_get(o, "state")) : "none");
	json_decref(o);
	return text;
}

/* Each step waits for the one before it. */
static void test_from_publish_to_unpublish(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = publish(w);
	struct link_kept k;

	assert_int_equal(w->added, 1);
	assert_string_equal(w->pod->spec.label, "demo/web-0");
	assert_non_null(w->pod->spec.token);
	assert_false(w->pod->spec.running);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 0);
	assert_string_equal(state_of(w), "starting");
	ready(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 1);
	assert_int_equal(fake_link_waiting(w->link, LINK_PUBLISH), 0);
	kept(w);
	k = fake_link_kept_at(w->link, LINK_STATE_POD, 0);
	assert_memory_equal(k.id, w->uid.bytes, 16);
	assert_int_equal(fake_link_waiting(w->link, LINK_PUBLISH), 1);
	assert_false(fake_rpc_ended(s));
	mounted(w);
	answered(s, RPC_OK, "");
	assert_string_equal(state_of(w), "published");
	assert_metric("agentd_csi_calls_total{method=\"NodePublishVolume\",code=\"OK\"} 1\n");
	assert_metric("agentd_publish_seconds_count 1\n");
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_volumes{state=\"published\"} 1\n");

	s = unpublish(w);
	assert_false(fake_rpc_ended(s));
	assert_int_equal(w->removed, 0);
	assert_string_equal(state_of(w), "unpublishing");
	unmounted(w);
	answered(s, RPC_OK, "");
	assert_int_equal(w->removed, 1);
	assert_int_equal(fake_link_kept(w->link, LINK_STATE_POD), 0);
	assert_string_equal(state_of(w), "none");
}

static void test_what_is_not_there_is_unpublished(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s;

	s = unpublish(w); /* the broker may know more */
	unmounted(w);
	answered(s, RPC_OK, "");
	assert_int_equal(fake_link_removals(w->link, &w->uid), 1);
	w->ask.target_path = "/somewhere/else";
	answered(unpublish(w), RPC_OK, "");
	w->ask.target_path = NULL;
	answered(unpublish(w), RPC_INVALID_ARGUMENT, "target_path");
	w->ask.target_path = RIG_TARGET;
	w->ask.volume_id = NULL;
	answered(unpublish(w), RPC_INVALID_ARGUMENT, "volume_id");
}

/* The first certificate is waited for, but not for ever. */
static void test_certificate(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = publish(w);

	pod_set_ready(w->pod, NULL);
	fake_loop_advance(w->loop, WAIT_MS - 1);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 0);
	fake_loop_advance(w->loop, 1);
	kept(w);
	mounted(w);
	answered(s, RPC_OK, "");
	assert_metric("agentd_publish_seconds_sum 2\n");
}

static void test_certificate_is_there(void **state)
{
	struct world *w = *state;

	publish(w);
	pod_set_certified(w->pod);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 0);
	pod_set_ready(w->pod, NULL);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 1);
}

/* And nothing of it is left, for the kubelet does not come back to unpublish it. */
static void test_refused(void **state)
{
	struct world *w = *state;

	w->refuse = true;
	answered(publish(w), RPC_INVALID_ARGUMENT, "PROXY_CONFIG: refused");
	assert_int_equal(w->added, 1);
	assert_int_equal(w->removed, 1);
	assert_string_equal(state_of(w), "none");
	w->refuse = false;
	publish_all(w);
}

/* Of who is no pod for us, or not yet; and counted. */
static void test_a_refused_token_is_listed_and_counted(void **state)
{
	struct world *w = *state;

	csi_ask_token(&w->ask, "web", 1);
	publish(w);
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_volumes{state=\"refused\"} 1\n");
	csi_ask_token(&w->ask, "web", 1900000000);
	publish_all(w);
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_volumes{state=\"refused\"} 0\n");
}

/* Its containers' own mounts could be writable (kubelet-csi.md 3b). */
static void test_a_first_publish_without_readonly(void **state)
{
	struct world *w = *state;

	w->ask.writable = true;
	answered(publish(w), RPC_INVALID_ARGUMENT, "needs readOnly: true");
	assert_int_equal(w->added, 0);
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_volumes{state=\"refused\"} 1\n");
	w->ask.writable = false;
	publish_all(w);
}

/* An earlier agentd took it: the pod runs on, and status has its name. */
static void test_a_republish_without_readonly(void **state)
{
	struct world *w = *state;
	struct err why;

	publish_all(w);
	w->ask.writable = true;
	answered(publish(w), RPC_OK, "");
	assert_int_equal(csi_volumes_troubled(w->volumes, &why), 1);
	assert_non_null(strstr(why.msg, "volume mesh of demo/web-0: the volume of "));
	assert_non_null(strstr(why.msg, "needs readOnly: true"));
	w->ask.writable = false;
	answered(publish(w), RPC_OK, "");
	assert_int_equal(csi_volumes_troubled(w->volumes, &why), 0);
}

static void test_refused_later(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = publish(w), *t = publish(w);
	struct err e;

	err_set(&e, ENOSPC, "no room");
	pod_set_ready(w->pod, &e);
	fake_loop_advance(w->loop, 0);
	answered(s, RPC_INTERNAL, "no room");
	answered(t, RPC_INTERNAL, "no room");
	assert_int_equal(w->removed, 1);
}

static void not_yet(struct world *w)
{
	struct err e;

	err_set(&e, ERR_UNAVAILABLE, "redirection waits for the pod's cgroup");
	pod_set_ready(w->pod, &e);
	fake_loop_advance(w->loop, 0);
}

/* A strict pod is held for its cgroup; the kubelet is told why, and comes back. */
static void test_held(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = publish(w), *t;

	not_yet(w);
	pod_set_certified(w->pod);
	fake_loop_advance(w->loop, HOLD_MS - 1);
	assert_false(fake_rpc_ended(s));
	t = publish(w);
	fake_loop_advance(w->loop, 1);
	answered(s, RPC_UNAVAILABLE, "waits for the pod's cgroup");
	assert_false(fake_rpc_ended(t)); /* has a time of its own */
	assert_int_equal(w->removed, 0);
	fake_loop_advance(w->loop, HOLD_MS);
	answered(t, RPC_UNAVAILABLE, "cgroup");
	ready(w); /* nobody waits: nothing is mounted */
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 0);
	s = publish(w);
	assert_int_equal(w->added, 1);
	kept(w);
	mounted(w);
	answered(s, RPC_OK, "");
}

/* Its traffic is not redirected, and it is not strict: that is no reason to hold it. */
static void test_degraded(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = publish(w);
	struct err e;

	err_set(&e, ERR_UNAVAILABLE, "redirection waits for the pod's cgroup");
	pod_set_degraded(w->pod, &e);
	pod_set_certified(w->pod);
	fake_loop_advance(w->loop, 0);
	kept(w);
	mounted(w);
	answered(s, RPC_OK, "");
}

static void test_calls_join(void **state)
{
	struct world *w = *state;
	struct rpc_stream *a = publish(w), *b;

	ready(w);
	b = publish(w);
	kept(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_PUBLISH), 1);
	publish(w);
	mounted(w);
	answered(a, RPC_OK, "");
	answered(b, RPC_OK, "");
	assert_int_equal(w->added, 1);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 0);
	assert_metric("agentd_publish_seconds_count 1\n");
}

/* A call has one message; another would end what the first began. */
static void test_a_second_message(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = fake_rpc_call(csi_driver_rpc(w->driver), PUBLISH);
	size_t size;
	auto_free uint8_t *bytes = csi_ask_pack(&w->ask, &size);

	fake_rpc_push(s, bytes, size);
	fake_rpc_push(s, "nonsense", 8);
	fake_loop_advance(w->loop, 0);
	assert_false(fake_rpc_ended(s));
	ready(w);
	kept(w);
	mounted(w);
	answered(s, RPC_OK, "");
}

/* At each step: nobody wants it any more, so nothing is mounted; who comes next goes on. */
static void test_given_up(void **state)
{
	for (int step = 0; step < 3; step++) {
		struct world *w = *state;
		struct rpc_stream *s = publish(w);

		if (step >= 1)
			ready(w);
		fake_rpc_end(s, RPC_CANCELLED, "given up");
		fake_loop_advance(w->loop, 0);
		if (step == 0)
			ready(w);
		if (step >= 1)
			kept(w);
		fake_loop_advance(w->loop, 10 * HOLD_MS);
		assert_int_equal(fake_link_waiting(w->link, LINK_PUBLISH), 0);
		assert_string_equal(state_of(w), "starting");
		s = publish(w);
		kept(w);
		mounted(w);
		answered(s, RPC_OK, "");
		teardown(state);
		begin(w);
	}
}

/* Whoever gave it up does not come back, nor unpublish: it was refused its next call for good. */
static void test_abandoned(void **state)
{
	for (int step = 0; step < 2; step++) {
		struct world *w = *state;
		struct rpc_stream *s = publish(w);

		if (step == 1)
			ready(w);
		fake_rpc_end(s, RPC_CANCELLED, "given up");
		fake_loop_advance(w->loop, 0);
		if (step == 1)
			kept(w);
		csi_ask_token(&w->ask, "web", 1600000000);
		answered(publish(w), RPC_PERMISSION_DENIED, "expired");
		fake_loop_advance(w->loop, 20 * 60 * 1000 - 1);
		assert_string_equal(state_of(w), "starting");
		fake_loop_advance(w->loop, 1);
		assert_string_equal(state_of(w), "none");
		assert_int_equal(w->removed, 1);
		assert_int_equal(fake_link_kept(w->link, LINK_STATE_POD), 0);
		csi_ask_token(&w->ask, "web", 1900000000);
		publish_all(w);
		fake_loop_advance(w->loop, 60 * 60 * 1000);
		assert_string_equal(state_of(w), "published");
		teardown(state);
		begin(w);
	}
}

/* The broker does it all the same: then it is published. */
static void test_given_up_too_late(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = publish(w);

	ready(w);
	kept(w);
	fake_rpc_end(s, RPC_CANCELLED, "given up");
	fake_loop_advance(w->loop, 0);
	mounted(w);
	assert_string_equal(state_of(w), "published");
}

static void test_not_mounted(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = publish(w);

	ready(w);
	kept(w);
	fake_link_published(w->link, &w->uid, "mesh", EBUSY, "somebody's mount is there");
	fake_loop_advance(w->loop, 0);
	answered(s, RPC_INTERNAL, "somebody's mount");
	assert_int_equal(w->removed, 1);
	assert_int_equal(fake_link_kept(w->link, LINK_STATE_POD), 0);
	assert_string_equal(state_of(w), "none");
}

/* That it cannot be kept over a restart is no reason not to start a pod. */
static void test_not_kept(void **state)
{
	struct world *w = *state;
	struct rpc_stream *s = publish(w);

	ready(w);
	fake_link_put(w->link, "no space");
	mounted(w);
	answered(s, RPC_OK, "");
}

/* But it is said, and tried again, ever more rarely. */
static void test_kept_when_there_is_room(void **state)
{
	struct world *w = *state;
	struct err why;
	json_t *o;

	publish(w);
	ready(w);
	for (int i = 0; i < 10; i++) {
		fake_link_put(w->link, "no space");
		if (!i)
			mounted(w);
		assert_int_equal(csi_volumes_troubled(w->volumes, &why), 1);
		assert_non_null(strstr(why.msg, "demo/web-0: the pod is not kept"));
		fake_loop_advance(w->loop, 10 * 1000); /* 8 s and a fifth, at most */
		assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 1);
	}
	o = csi_volume_dump(w->volumes, &w->uid);
	assert_non_null(strstr(json_string_value(json_object_get(o, "problem")), "no space"));
	json_decref(o);
	kept(w);
	answered(publish(w), RPC_OK, ""); /* so long nobody asked for it */
	assert_int_equal(csi_volumes_troubled(w->volumes, &why), 0);
	fake_loop_advance(w->loop, 60 * 1000);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 0);
}

static json_t *listed(struct world *w)
{
	json_t *list = csi_volumes_waiting(w->volumes);
	json_t *one = json_incref(json_array_get(list, 0));

	json_decref(list);
	return one;
}

static void refuse_for_room(struct world *w)
{
	struct err e;

	err_set(&e, EUSERS, "there are 1 pods already (--max-pods)");
	pod_set_ready(w->pod, &e);
	fake_loop_advance(w->loop, 0);
}

/* The kubelet alone knows of a volume that was refused: for as long as it asks, it is listed. */
static void test_refused_ones_are_listed(void **state)
{
	struct world *w = *state;
	json_t *one;

	for (int i = 0; i < 2; i++) {
		struct rpc_stream *s = publish(w);

		assert_null(listed(w)); /* it is a pod now, and says itself */
		refuse_for_room(w);
		answered(s, RPC_RESOURCE_EXHAUSTED, "--max-pods");
		one = listed(w);
		assert_string_equal(json_string_value(json_object_get(one, "problem")),
		    "there are 1 pods already (--max-pods)");
		assert_string_equal(json_string_value(json_object_get(one, "pod")), "demo/web-0");
		json_decref(one);
	}
	fake_loop_advance(w->loop, 5 * 60 * 1000);
	assert_null(listed(w)); /* nobody asks any more */
	publish(w);
	refuse_for_room(w);
	unpublish(w);
	assert_null(listed(w));
	fake_link_unpublished(w->link, &w->uid, "mesh", 0, NULL);
}

/* Whose directory is gone is no pod any more; a follow that is refused says nothing of that. */
static void test_a_refused_one_goes_with_its_directory(void **state)
{
	struct world *w = *state;
	struct link_content there = {.name = ""};
	struct err e;

	there.e = &e;
	publish(w);
	refuse_for_room(w);
	for (int i = 0; i < 2; i++) {
		err_set(&e, i ? ENOSPC : EACCES, "/kubelet/pods/x is not a regular file");
		fake_link_push(w->link, LINK_FOLLOW_KUBELET_POD, &w->uid, 0, &there);
		json_decref(listed(w));
		assert_true(fake_link_follows(w->link, LINK_FOLLOW_KUBELET_POD, &w->uid, 0));
	}
	err_set(&e, ENOENT, "/kubelet/pods/x is not there");
	fake_link_push(w->link, LINK_FOLLOW_KUBELET_POD, &w->uid, 0, &there);
	assert_null(listed(w));
	assert_false(fake_link_follows(w->link, LINK_FOLLOW_KUBELET_POD, &w->uid, 0));
}

/* The room for it is everybody's. */
static void test_too_large_to_be_kept(void **state)
{
	struct world *w = *state;
	auto_free char *many = mem_zalloc(30001);
	struct rpc_stream *s;

	memset(many, '\1', 30000); /* six bytes each, as JSON */
	csi_ask_say(&w->ask, "ISTIO_META_X", many);
	s = publish(w);
	ready(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 0);
	mounted(w);
	answered(s, RPC_OK, "");
	csi_ask_token(&w->ask, "web", 1900000001);
	answered(publish(w), RPC_OK, "");
	assert_int_equal(w->tokens, 1);
}

/* Nothing was kept of it, but an earlier worker published it: its mount shows that. */
static void test_a_pod_whose_mount_is_there_runs(void **state)
{
	struct world *w = *state;
	struct csi_target t = {.volume = "mesh"};
	struct err e;

	t.pod = w->uid;
	assert_int_equal(csi_volumes_adopt(w->volumes, &t, NULL, true, &e), 0);
	publish(w);
	assert_int_equal(w->added, 1);
	assert_true(w->pod->spec.running);
	fake_link_put(w->link, NULL);
	mounted(w);
}

static void test_republish_brings_a_token(void **state)
{
	struct world *w = *state;

	publish_all(w);
	answered(publish(w), RPC_OK, "");
	assert_int_equal(w->tokens, 0);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 0);

	csi_ask_token(&w->ask, "web", 1900000001);
	answered(publish(w), RPC_OK, "");
	assert_int_equal(w->tokens, 1);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 1);
	/* Another one before that is kept: after it. */
	csi_ask_token(&w->ask, "web", 1900000002);
	answered(publish(w), RPC_OK, "");
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 1);
	kept(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 1);
	kept(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_STATE_PUT), 0);
	assert_non_null(
	    strstr(fake_link_kept_at(w->link, LINK_STATE_POD, 0).data, w->pod->spec.token));
	assert_int_equal(w->tokens, 2);
}

/* Somebody unmounted it: the kubelet hears OK, the broker looks and mounts what is gone. */
static void test_republish_looks_at_the_mount(void **state)
{
	struct world *w = *state;
	json_t *o;

	publish_all(w);
	answered(publish(w), RPC_OK, "");
	answered(publish(w), RPC_OK, "");
	assert_int_equal(fake_link_waiting(w->link, LINK_PUBLISH), 1); /* one look at a time */
	fake_link_published(w->link, &w->uid, NULL, 0, NULL);
	answered(publish(w), RPC_OK, "");
	fake_link_published(w->link, &w->uid, NULL, EBUSY, "somebody else's mount");
	o = csi_volume_dump(w->volumes, &w->uid);
	assert_non_null(strstr(json_string_value(json_object_get(o, "problem")), "somebody else"));
	json_decref(o);
}

/* Older kubelets take down what gets a final error (kubelet-csi.md 5). */
static void test_republish_with_a_bad_token(void **state)
{
	struct world *w = *state;
	auto_free char *was = NULL;
	json_t *o;

	publish_all(w);
	was = mem_strdup(w->pod->spec.token);
	csi_ask_token(&w->ask, "web", 1600000000);
	answered(publish(w), RPC_OK, "");
	json_object_clear(w->ask.secrets);
	answered(publish(w), RPC_OK, "");
	assert_string_equal(w->pod->spec.token, was);
	assert_int_equal(w->tokens, 0);
	o = csi_volume_dump(w->volumes, &w->uid);
	assert_non_null(strstr(json_string_value(json_object_get(o, "problem")), "tokenRequests"));
	json_decref(o);
	csi_ask_token(&w->ask, "web", 1900000001);
	answered(publish(w), RPC_OK, "");
	o = csi_volume_dump(w->volumes, &w->uid);
	assert_string_equal(json_string_value(json_object_get(o, "problem")), "");
	json_decref(o);
}

static void test_the_environment_stays(void **state)
{
	struct world *w = *state;

	csi_ask_say(&w->ask, "ISTIO_META_X", "1");
	publish_all(w);
	csi_ask_say(&w->ask, "ISTIO_META_X", "2");
	answered(publish(w), RPC_OK, "");
	assert_int_equal(w->changed, 0);
	assert_string_equal(
	    json_string_value(json_object_get(w->pod->spec.env, "ISTIO_META_X")), "1");
}

/* Nothing is changed by any of them. */
static void test_foreign(void **state)
{
	struct world *w = *state;

	csi_ask_token(&w->ask, "admin", 1900000000);
	answered(publish(w), RPC_PERMISSION_DENIED, "service account");
	csi_ask_token(&w->ask, "web", 1600000000);
	answered(publish(w), RPC_PERMISSION_DENIED, "expired");
	json_object_clear(w->ask.secrets);
	answered(publish(w), RPC_FAILED_PRECONDITION, "tokenRequests");
	assert_int_equal(w->added, 0);
	assert_string_equal(state_of(w), "none");

	csi_ask_token(&w->ask, "web", 1900000000);
	publish_all(w);
	csi_ask_say(&w->ask, RIG_KEY "serviceAccount.name", "admin");
	csi_ask_token(&w->ask, "admin", 1900000000);
	answered(publish(w), RPC_PERMISSION_DENIED, "demo/web-0");
	csi_ask_say(&w->ask, RIG_KEY "serviceAccount.name", "web");
	csi_ask_token(&w->ask, "web", 1900000000);
	w->ask.volume_id = "another";
	answered(publish(w), RPC_FAILED_PRECONDITION, "mesh");
	w->ask.volume_id = "csi-1234";
	w->ask.target_path = "/pods/" RIG_UID "/volumes/kubernetes.io~csi/second/mount";
	answered(publish(w), RPC_FAILED_PRECONDITION, "mesh");
	answered(unpublish(w), RPC_OK, ""); /* it was never there, and the first one stays */
	assert_string_equal(state_of(w), "published");
	assert_int_equal(w->added, 1);
	assert_int_equal(w->tokens + w->changed + w->removed, 0);
}

/* What is not exactly the published pair takes nothing down. */
static void test_unpublish_of_another_pair(void **state)
{
	struct world *w = *state;

	publish_all(w);
	w->ask.volume_id = "another";
	answered(unpublish(w), RPC_INVALID_ARGUMENT, "another volume_id");
	w->ask.volume_id = "csi-1234";
	w->ask.target_path = "/x/../pods/" RIG_UID "/volumes/kubernetes.io~csi/mesh/mount";
	answered(unpublish(w), RPC_INVALID_ARGUMENT, "target_path");
	assert_int_equal(fake_link_waiting(w->link, LINK_UNPUBLISH), 0);
	assert_string_equal(state_of(w), "published");
	assert_int_equal(w->removed, 0);
}

/* While it is held, kept or mounted: the order is the broker's. */
static void test_unpublish_ends_a_publish(void **state)
{
	for (int step = 0; step < 3; step++) {
		struct world *w = *state;
		struct rpc_stream *s = publish(w), *u;

		if (step >= 1)
			ready(w);
		if (step >= 2)
			kept(w);
		u = unpublish(w);
		answered(s, RPC_ABORTED, "unpublished");
		answered(publish(w), RPC_ABORTED, "unpublished");
		assert_int_equal(fake_link_waiting(w->link, LINK_PUBLISH), 0);
		unmounted(w);
		answered(u, RPC_OK, "");
		assert_int_equal(w->removed, 1);
		assert_string_equal(state_of(w), "none");
		fake_loop_advance(w->loop, HOLD_MS);
		publish_all(w);
		teardown(state);
		begin(w);
	}
}

static void test_unpublish_joins_and_fails(void **state)
{
	struct world *w = *state;
	struct rpc_stream *a, *b;

	publish_all(w);
	a = unpublish(w);
	b = unpublish(w);
	assert_int_equal(fake_link_waiting(w->link, LINK_UNPUBLISH), 1);
	fake_link_unpublished(w->link, &w->uid, "mesh", EBUSY, "it is busy");
	fake_loop_advance(w->loop, 0);
	answered(a, RPC_INTERNAL, "it is busy");
	answered(b, RPC_INTERNAL, "it is busy");
	assert_int_equal(w->removed, 0);
	assert_string_equal(state_of(w), "unknown");
	a = unpublish(w);
	fake_rpc_end(a, RPC_CANCELLED, "given up"); /* it goes on */
	fake_loop_advance(w->loop, 0);
	unmounted(w);
	assert_int_equal(w->removed, 1);
}

static void fail_to_unpublish(struct world *w)
{
	struct rpc_stream *u = unpublish(w);

	fake_link_unpublished(w->link, &w->uid, "mesh", EBUSY, "it is busy");
	fake_loop_advance(w->loop, 0);
	answered(u, RPC_INTERNAL, "it is busy");
}

/* Half of it may be gone: that it is there is said when the broker has seen to it, not before. */
static void test_publish_after_an_unpublish_that_failed(void **state)
{
	struct world *w = *state;
	struct rpc_stream *a, *b, *u;

	publish_all(w);
	fail_to_unpublish(w);
	csi_ask_token(&w->ask, "web", 1900000001);
	a = publish(w);
	b = publish(w);
	assert_false(fake_rpc_ended(a) || fake_rpc_ended(b));
	assert_int_equal(w->tokens, 1);
	assert_int_equal(fake_link_waiting(w->link, LINK_PUBLISH), 1);
	fake_link_published(w->link, &w->uid, "mesh", EBUSY, "somebody's mount is there");
	fake_loop_advance(w->loop, 0);
	answered(a, RPC_INTERNAL, "somebody's mount");
	answered(b, RPC_INTERNAL, "somebody's mount");
	assert_string_equal(state_of(w), "unknown");
	assert_int_equal(w->removed, 0);
	kept(w); /* with the newer token */
	a = publish(w);
	mounted(w);
	answered(a, RPC_OK, "");
	assert_string_equal(state_of(w), "published");
	/* An unpublish that comes meanwhile. */
	fail_to_unpublish(w);
	a = publish(w);
	u = unpublish(w);
	answered(a, RPC_ABORTED, "unpublished");
	unmounted(w);
	answered(u, RPC_OK, "");
	assert_int_equal(w->removed, 1);
}

static void test_the_broker_fails_for_nothing(void **state)
{
	struct world *w = *state;
	struct rpc_stream *u = unpublish(w);

	fake_link_unpublished(w->link, &w->uid, "mesh", EIO, "broken");
	fake_loop_advance(w->loop, 0);
	answered(u, RPC_INTERNAL, "broken");
	assert_string_equal(state_of(w), "none");
}

/* Tokens end when no publish comes. */
static void test_silence(void **state)
{
	struct world *w = *state;

	publish_all(w);
	fake_loop_advance(w->loop, 5 * 60 * 1000 - 1);
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_csi_alarm{alarm=\"no_republish\"} 0\n");
	answered(publish(w), RPC_OK, "");
	fake_loop_advance(w->loop, 5 * 60 * 1000 - 1);
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_csi_alarm{alarm=\"no_republish\"} 0\n");
	fake_loop_advance(w->loop, 1);
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_csi_alarm{alarm=\"no_republish\"} 1\n");
	answered(publish(w), RPC_OK, "");
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_csi_alarm{alarm=\"no_republish\"} 0\n");
}

static void is_forgotten(struct world *w, bool yes)
{
	json_t *o = csi_volume_dump(w->volumes, &w->uid);
	const char *problem = json_string_value(json_object_get(o, "problem"));
	struct err why = {0};

	assert_int_equal(!!strstr(problem, "has not asked for it for 5 min"), yes);
	assert_int_equal(csi_volumes_troubled(w->volumes, &why), yes);
	assert_int_equal(!!strstr(why.msg, "volume mesh of demo/web-0: the kubelet"), yes);
	csi_volumes_measure(w->volumes);
	assert_metric(yes ? "agentd_volumes_forgotten 1\n" : "agentd_volumes_forgotten 0\n");
	json_decref(o);
}

/* Each has a heartbeat of its own: another volume's publish is none. */
static void test_a_volume_that_the_kubelet_forgot(void **state)
{
	struct world *w = *state;
	struct rpc_stream *u;

	publish_all(w);
	fake_loop_advance(w->loop, 5 * 60 * 1000 - 1);
	is_forgotten(w, false);
	w->ask.target_path =
	    "/var/lib/kubelet/pods/" RIG_UID "/volumes/kubernetes.io~csi/second/mount";
	answered(publish(w), RPC_FAILED_PRECONDITION, "has a volume");
	w->ask.target_path = RIG_TARGET;
	fake_loop_advance(w->loop, 1);
	is_forgotten(w, true);
	assert_metric("agentd_csi_alarm{alarm=\"no_republish\"} 0\n");
	answered(publish(w), RPC_OK, "");
	is_forgotten(w, false);
	fake_loop_advance(w->loop, 5 * 60 * 1000);
	is_forgotten(w, true);
	u = unpublish(w);
	unmounted(w);
	answered(u, RPC_OK, "");
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_volumes_forgotten 0\n");
}

static void test_silence_without_volumes(void **state)
{
	struct world *w = *state;
	struct rpc_stream *u;

	publish_all(w);
	u = unpublish(w);
	unmounted(w);
	answered(u, RPC_OK, "");
	fake_loop_advance(w->loop, 60 * 60 * 1000);
	csi_volumes_measure(w->volumes);
	assert_metric("agentd_csi_alarm{alarm=\"no_republish\"} 0\n");
}

static void test_dump(void **state)
{
	struct world *w = *state;
	struct uuid other = {{1}};
	json_t *o;

	assert_null(csi_volume_dump(w->volumes, &other));
	fake_loop_advance(w->loop, 5000);
	publish_all(w);
	fake_loop_advance(w->loop, 7000);
	o = csi_volume_dump(w->volumes, &w->uid);
	assert_string_equal(json_string_value(json_object_get(o, "name")), "mesh");
	assert_string_equal(json_string_value(json_object_get(o, "id")), "csi-1234");
	assert_true(json_is_true(json_object_get(o, "published")));
	assert_int_equal(json_integer_value(json_object_get(o, "last_publish_age_s")), 7);
	assert_int_equal(json_integer_value(json_object_get(o, "waiting_calls")), 0);
	json_decref(o);
	unpublish(w);
	o = csi_volume_dump(w->volumes, &w->uid);
	assert_int_equal(json_integer_value(json_object_get(o, "waiting_calls")), 1);
	json_decref(o);
}

/* The end of agentd at any moment: calls end without a word, pods stay. */
static void test_end_in_the_middle(void **state)
{
	for (int step = 0; step < 4; step++) {
		struct world *w = *state;

		publish(w);
		if (step >= 1)
			pod_set_ready(w->pod, NULL); /* and not looked at yet */
		if (step >= 2)
			ready(w);
		if (step >= 3)
			kept(w);
		assert_int_equal(w->removed, 0);
		teardown(state);
		begin(w);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_from_publish_to_unpublish),
	    TEST(test_what_is_not_there_is_unpublished),
	    TEST(test_certificate),
	    TEST(test_certificate_is_there),
	    TEST(test_refused),
	    TEST(test_a_refused_token_is_listed_and_counted),
	    TEST(test_a_first_publish_without_readonly),
	    TEST(test_a_republish_without_readonly),
	    TEST(test_refused_later),
	    TEST(test_held),
	    TEST(test_degraded),
	    TEST(test_calls_join),
	    TEST(test_a_second_message),
	    TEST(test_given_up),
	    TEST(test_abandoned),
	    TEST(test_given_up_too_late),
	    TEST(test_not_mounted),
	    TEST(test_not_kept),
	    TEST(test_kept_when_there_is_room),
	    TEST(test_refused_ones_are_listed),
	    TEST(test_a_refused_one_goes_with_its_directory),
	    TEST(test_too_large_to_be_kept),
	    TEST(test_a_pod_whose_mount_is_there_runs),
	    TEST(test_republish_brings_a_token),
	    TEST(test_republish_looks_at_the_mount),
	    TEST(test_republish_with_a_bad_token),
	    TEST(test_the_environment_stays),
	    TEST(test_foreign),
	    TEST(test_unpublish_of_another_pair),
	    TEST(test_unpublish_ends_a_publish),
	    TEST(test_unpublish_joins_and_fails),
	    TEST(test_publish_after_an_unpublish_that_failed),
	    TEST(test_the_broker_fails_for_nothing),
	    TEST(test_silence),
	    TEST(test_a_volume_that_the_kubelet_forgot),
	    TEST(test_silence_without_volumes),
	    TEST(test_dump),
	    TEST(test_end_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
