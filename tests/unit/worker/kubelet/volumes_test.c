/* volumes_test.c - what an earlier worker kept and what the kubelet has: which pods come
 * back.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/fake/link_volume.c tests/unit/worker/kubelet/csi_rig.c
 * LINK: tests/unit/worker/token_rig.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "csi_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/link_volume.h"
#include "tests/fake/loop.h"
#include "tests/unit/worker/token_rig.h"
#include "worker/kubelet/volumes.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define DATA                                                                                       \
	"{\"attachmentID\":\"\",\"driverName\":\"agentd.node.mesh\",\"nodeName\":\"n\","           \
	"\"specVolID\":\"mesh\",\"volumeHandle\":\"csi-1234\",\"volumeLifecycleMode\":"            \
	"\"Ephemeral\"}"

struct world {
	struct loop *loop;
	struct link *link;
	struct pod_registry *pods;
	struct csi_volumes *volumes;
	struct kubelet_volumes *k;
	struct uuid uid;
	int added, done;
	bool free_when_done;
};

static void on_added(void *ctx, struct pod *p)
{
	(void)p;
	((struct world *)ctx)->added++;
}

static void on_removed(void *ctx, struct pod *p)
{
	(void)ctx, (void)p;
	fail();
}

static void on_done(void *ctx)
{
	struct world *w = ctx;

	w->done++;
	if (w->free_when_done)
		kubelet_volumes_free(&w->k);
}

static int setup(void **state)
{
	static const struct pod_observer observer = {.added = on_added, .removed = on_removed};
	static struct world w;

	w = (struct world){.loop = fake_loop(), .link = fake_link(), .free_when_done = true};
	w.pods = pod_registry_new(&observer, &w);
	w.volumes = csi_volumes_new(&(struct csi_volumes_options){w.loop, w.link, w.pods, 0});
	w.k = kubelet_volumes_restore(w.link, w.volumes, on_done, &w);
	uuid_parse(&w.uid, RIG_UID);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	kubelet_volumes_free(&w->k);
	csi_volumes_free(&w->volumes);
	pod_registry_free(&w->pods);
	link_free(&w->link);
	metrics_clear();
	assert_int_equal(fake_loop_live(w->loop), 0);
	fake_loop_end(&w->loop);
	return 0;
}

static void keep_text(struct world *w, const struct uuid *pod, const char *text)
{
	uint8_t id[CSI_KEPT_ID_SIZE];

	csi_kept_id(pod, id);
	fake_link_keep(
	    w->link, &(struct link_kept){
			 .kind = LINK_STATE_POD, .id = id, .data = text, .size = strlen(text)});
}

static char *kept_text(void)
{
	auto_free char *token = rig_token(RIG_UID, "demo", "web", 1900000000);
	struct csi_publish p = {.volume_id = "csi-1234", .token = token};
	size_t size;
	char *text;

	uuid_parse(&p.target.pod, RIG_UID);
	strcpy(p.target.volume, "mesh");
	strcpy(p.spec.ns, "demo");
	strcpy(p.spec.name, "web-0");
	strcpy(p.spec.sa, "web");
	p.spec.env =
	    json_pack("{s:s, s:s}", "A", "1", "ISTIO_METAJSON_LABELS", "{\"app\":\"web\"}");
	text = csi_kept_write(&p, &size);
	assert_int_equal(strlen(text), size);
	json_decref(p.spec.env);
	return text;
}

static struct link_volume volume(const struct world *w, bool mounted, const char *data)
{
	return (struct link_volume){.pod = w->uid,
	    .name = "mesh",
	    .mounted = mounted,
	    .directory = true,
	    .vol_data = data,
	    .size = data ? strlen(data) : 0};
}

static void restore(struct world *w, const struct link_volume *v, size_t n)
{
	fake_link_listed(w->link, LINK_STATE_POD, NULL);
	assert_int_equal(w->done, 0);
	fake_link_volumes(w->link, v, n, NULL);
	assert_int_equal(w->done, 1);
}

static const char *state_of(struct world *w)
{
	static char text[32];
	json_t *o = csi_volume_dump(w->volumes, &w->uid);

	strcpy(text, o ? json_string_value(json_object_get(o, "state")) : "none");
	json_decref(o);
	return text;
}

static void test_adopted(void **state)
{
	struct world *w = *state;
	auto_free char *text = kept_text();
	struct link_volume v = volume(w, true, DATA);
	struct pod *p;

	v.redirected = true;
	keep_text(w, &w->uid, text);
	restore(w, &v, 1);
	assert_int_equal(w->added, 1);
	p = pod_find(w->pods, &w->uid);
	assert_string_equal(p->spec.label, "demo/web-0");
	assert_string_equal(p->spec.sa, "web");
	assert_string_equal(json_string_value(json_object_get(p->spec.env, "A")), "1");
	assert_string_equal(json_string_value(json_object_get(p->spec.labels, "app")), "web");
	assert_non_null(p->spec.token);
	assert_true(p->spec.running && p->spec.redirected);
	assert_string_equal(state_of(w), "published");
	assert_int_equal(fake_link_kept(w->link, LINK_STATE_POD), 1);
}

/* The last worker died before the mount: the kubelet's next try ends it. */
static void test_directory_alone(void **state)
{
	struct world *w = *state;
	auto_free char *text = kept_text();
	struct link_volume v = volume(w, false, DATA);

	keep_text(w, &w->uid, text);
	restore(w, &v, 1);
	assert_int_equal(w->added, 1);
	assert_string_equal(state_of(w), "starting");
}

/* It was deleted while nobody looked. */
static void test_gone(void **state)
{
	struct world *w = *state;
	auto_free char *text = kept_text();

	keep_text(w, &w->uid, text);
	restore(w, NULL, 0);
	assert_int_equal(w->added, 0);
	assert_int_equal(fake_link_kept(w->link, LINK_STATE_POD), 0);
	assert_string_equal(state_of(w), "none");
}

static void test_mount_alone(void **state)
{
	struct world *w = *state;
	struct link_volume v = volume(w, true, NULL);
	json_t *waiting;

	restore(w, &v, 1);
	assert_int_equal(w->added, 0);
	assert_string_equal(state_of(w), "waiting");
	waiting = csi_volumes_waiting(w->volumes);
	assert_int_equal(json_array_size(waiting), 1);
	json_decref(waiting);
}

/* Another driver's, with a name that is the same; and files that say nothing. */
static void test_not_ours(void **state)
{
	static const char *const data[] = {NULL, "", "x", "[]", "{}", "{\"driverName\":\"other\"}",
	    "{\"driverName\":\"other\",\"specVolID\":\"mesh\",\"volumeHandle\":\"csi-1234\"}",
	    "{\"driverName\":\"agentd.node.mesh\"}",
	    "{\"driverName\":\"agentd.node.mesh\",\"specVolID\":\"other\",\"volumeHandle\":\"x\"}"};
	enum { N = sizeof(data) / sizeof(*data) };
	struct world *w = *state;
	auto_free char *text = kept_text();
	struct link_volume v[N];

	keep_text(w, &w->uid, text);
	for (unsigned i = 0; i < N; i++)
		v[i] = volume(w, false, data[i]);
	restore(w, v, N);
	assert_int_equal(w->added, 0);
	assert_int_equal(fake_link_kept(w->link, LINK_STATE_POD), 0);
}

/* Each is said, deleted, and harms nobody. */
static void test_damaged(void **state)
{
	struct world *w = *state;
	auto_free char *text = kept_text();
	struct link_volume v = volume(w, true, DATA);
	static const char *const bad[] = {"", "{}", "x", "{\"version\":0}", "{\"version\":1}"};
	struct uuid other = {{9}};

	for (unsigned char i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		keep_text(w, &(struct uuid){{i}}, bad[i]);
	keep_text(w, &other, text); /* a good one, under another's name */
	keep_text(w, &w->uid, text);
	restore(w, &v, 1);
	assert_int_equal(w->added, 1);
	assert_int_equal(fake_link_kept(w->link, LINK_STATE_POD), 1);
	assert_memory_equal(fake_link_kept_at(w->link, LINK_STATE_POD, 0).id, w->uid.bytes, 16);
}

/* Cut anywhere: it is none. */
static void test_cut(void **state)
{
	auto_free char *text = kept_text();
	struct csi_publish p;
	struct err e;

	(void)state;
	for (size_t n = 0; n < strlen(text); n++)
		assert_int_equal(csi_kept_read(&p, text, n, &e), -1);
	assert_int_equal(csi_kept_read(&p, text, strlen(text), &e), 0);
	csi_publish_clear(&p);
}

static void test_newer(void **state)
{
	struct world *w = *state;
	auto_free char *text = kept_text();
	struct link_volume v = volume(w, true, DATA);
	char *version = strstr(text, "\"version\":1");

	version[strlen("\"version\":")] = '2';
	keep_text(w, &w->uid, text);
	restore(w, &v, 1);
	assert_int_equal(w->added, 0);
	assert_string_equal(state_of(w), "waiting");
	assert_int_equal(fake_link_kept(w->link, LINK_STATE_POD), 1);
}

/* The broker cannot tell what is there: no pod loses its services for that. */
static void test_no_list(void **state)
{
	struct world *w = *state;
	auto_free char *text = kept_text();

	keep_text(w, &w->uid, text);
	fake_link_listed(w->link, LINK_STATE_POD, NULL);
	fake_link_volumes(w->link, NULL, 0, "the directory cannot be read");
	assert_int_equal(w->done, 1);
	assert_int_equal(w->added, 1);
	assert_string_equal(state_of(w), "starting"); /* the next publish mounts, or finds it so */
	assert_int_equal(fake_link_kept(w->link, LINK_STATE_POD), 1);
}

/* A manifest has the uid, or its names are none: who is mounted is still to be unmounted. */
static void test_no_pod(void **state)
{
	struct world *w = *state;
	auto_free char *text = kept_text();
	struct link_volume v = volume(w, true, DATA);

	memcpy(strstr(text, "\"demo\""), "\"DEMO\"", strlen("\"demo\""));
	keep_text(w, &w->uid, text);
	restore(w, &v, 1);
	assert_int_equal(w->added, 0);
	assert_string_equal(state_of(w), "waiting");
}

static void test_no_state(void **state)
{
	struct world *w = *state;
	struct link_volume v = volume(w, true, DATA);

	fake_link_listed(w->link, LINK_STATE_POD, "an error");
	fake_link_volumes(w->link, &v, 1, NULL);
	assert_string_equal(state_of(w), "waiting");
}

/* Two for one pod: of an older release, or by hand. */
static void test_second_volume(void **state)
{
	struct world *w = *state;
	auto_free char *text = kept_text();
	struct link_volume v[2] = {volume(w, true, DATA), volume(w, true, DATA)};

	v[1].name = "other";
	keep_text(w, &w->uid, text);
	restore(w, v, 2);
	assert_int_equal(w->added, 1);
	assert_string_equal(state_of(w), "published");
}

static void test_end_in_the_middle(void **state)
{
	struct world *w = *state;
	auto_free char *text = kept_text();

	keep_text(w, &w->uid, text);
	fake_link_listed(w->link, LINK_STATE_POD, NULL);
	kubelet_volumes_free(&w->k);
	assert_int_equal(fake_link_waiting(w->link, LINK_VOLUMES), 0);
	assert_int_equal(w->done, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_adopted),
	    TEST(test_directory_alone),
	    TEST(test_gone),
	    TEST(test_mount_alone),
	    TEST(test_not_ours),
	    TEST(test_damaged),
	    cmocka_unit_test(test_cut),
	    TEST(test_newer),
	    TEST(test_no_list),
	    TEST(test_no_state),
	    TEST(test_no_pod),
	    TEST(test_second_volume),
	    TEST(test_end_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
