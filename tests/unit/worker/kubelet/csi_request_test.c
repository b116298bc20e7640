/* csi_request_test.c - what of the kubelet's words is taken, and what is refused with which reason.
 *
 * LINK: tests/unit/worker/kubelet/csi_rig.c tests/fake/secrets.c tests/unit/worker/token_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "csi_rig.h"
#include "pluginregistration/api.pb-c.h"
#include "tests/fake/secrets.h"
#include "tests/unit/worker/token_rig.h"
#include "worker/kubelet/csi_request.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { NOW = 1700000000 };

static int setup(void **state)
{
	static struct csi_ask a;

	csi_ask_init(&a);
	*state = &a;
	return 0;
}

static int teardown(void **state)
{
	csi_ask_clear(*state);
	return 0;
}

/* In pieces, as a message comes. */
static int read_bytes(struct csi_publish *p, uint8_t *bytes, size_t size, struct err *e)
{
	const struct iovec iov[] = {{bytes, size / 3}, {bytes + size / 3, size - size / 3}};

	return csi_publish_read(p, iov, 2, e);
}

static int read_ask(const struct csi_ask *a, struct csi_publish *p, struct err *e)
{
	size_t size;
	auto_free uint8_t *bytes = csi_ask_pack(a, &size);
	int rc = read_bytes(p, bytes, size, e);

	explicit_bzero(bytes, size);
	return rc;
}

static void refused(const struct csi_ask *a, const char *why)
{
	struct csi_publish p;
	struct err e;

	assert_int_equal(read_ask(a, &p, &e), -1);
	assert_int_equal(e.code, ERR_INVALID);
	if (!strstr(e.msg, why))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
	assert_null(p.token);
	assert_null(p.spec.env);
}

static void taken(const struct csi_ask *a, struct csi_publish *p)
{
	struct err e;

	if (read_ask(a, p, &e))
		fail_msg("%s", e.msg);
}

static void test_what_is_taken(void **state)
{
	struct csi_ask *a = *state;
	struct csi_publish p;
	char uid[UUID_TEXT_SIZE];
	struct err e;

	csi_ask_say(a, "ISTIO_META_X", "1");
	csi_ask_say(a, RIG_KEY "pod.labels", "{\"app\":\"forged\"}");
	csi_ask_say(a, "ISTIO_METAJSON_LABELS", "{\"app\":\"web\"}");
	csi_ask_say(a, "ISTIO_METAJSON_ANNOTATIONS", "{\"a/b\":\"c\"}");
	taken(a, &p);
	uuid_format(&p.target.pod, uid);
	assert_string_equal(uid, RIG_UID);
	assert_true(uuid_equal(&p.target.pod, &p.spec.uid));
	assert_string_equal(p.target.volume, "mesh");
	assert_string_equal(p.volume_id, "csi-1234");
	assert_string_equal(p.spec.ns, "demo");
	assert_string_equal(p.spec.name, "web-0");
	assert_string_equal(p.spec.sa, "web");
	assert_int_equal(json_object_size(p.spec.env), 3); /* none of the kubelet's keys */
	assert_string_equal(json_string_value(json_object_get(p.spec.env, "ISTIO_META_X")), "1");
	assert_string_equal(json_string_value(json_object_get(p.spec.labels, "app")), "web");
	assert_string_equal(json_string_value(json_object_get(p.spec.annotations, "a/b")), "c");
	assert_int_equal(csi_token_check(&p, NOW, &e), 0);
	csi_publish_clear(&p);
}

static void test_what_must_be_there(void **state)
{
	static const char *const keys[] = {
	    "pod.uid", "pod.name", "pod.namespace", "serviceAccount.name", "ephemeral"};
	struct csi_ask *a = *state;

	for (unsigned i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		auto_free char *key = mem_printf(RIG_KEY "%s", keys[i]);
		auto_free char *was =
		    mem_strdup(json_string_value(json_object_get(a->context, key)));

		csi_ask_say(a, key, NULL);
		refused(a, keys[i]);
		csi_ask_say(a, key, was);
	}
	a->volume_id = NULL;
	refused(a, "volume_id");
	a->volume_id = "csi-1234";
	a->target_path = NULL;
	refused(a, "target_path");
	a->target_path = RIG_TARGET;
	a->no_capability = true;
	refused(a, "volume_capability");
	a->no_capability = false;
	a->block = true;
	refused(a, "block");
}

static void test_only_inline_volumes(void **state)
{
	struct csi_ask *a = *state;

	csi_ask_say(a, RIG_KEY "ephemeral", "false");
	refused(a, "PersistentVolume");
}

static void test_target_paths(void **state)
{
#define POD "/pods/" RIG_UID
#define CSI "/volumes/kubernetes.io~csi/"
	static const char *const bad[] = {"/", "/mount", "mesh", POD, POD CSI, POD CSI "mesh",
	    POD CSI "mesh/", POD CSI "mesh/mount/", POD CSI "mesh/mount/..",
	    POD CSI "../mesh/mount", POD CSI "../mount", POD CSI "me.sh/mount",
	    POD CSI "Mesh/mount", POD CSI "/mount", POD CSI "mesh/target",
	    POD "/volumes/kubernetes.io~projected/mesh/mount",
	    "/pods/6F1C2A54-0F0E-4A6B-9A8E-0D8F6F8D2B11" CSI "mesh/mount",
	    "/pods/../" RIG_UID CSI "mesh/mount", "/pods/" RIG_UID "x" CSI "mesh/mount",
	    /* that end as they should, and lead elsewhere */
	    "/pods/x/.." POD CSI "mesh/mount", "/.." POD CSI "mesh/mount",
	    "/./" POD CSI "mesh/mount", "/" POD CSI "mesh/mount", "k" POD CSI "mesh/mount"};
	static const char *const good[] = {POD CSI "mesh/mount", RIG_TARGET,
	    "/pods/x/pods/" RIG_UID CSI "mesh/mount", /* the last one is the pod's */
	    POD CSI "pods/mount"};
	struct csi_ask *a = *state;
	struct csi_publish p;
	char name[300];

	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		a->target_path = bad[i];
		refused(a, "target_path");
	}
	for (unsigned i = 0; i < sizeof(good) / sizeof(*good); i++) {
		a->target_path = good[i];
		taken(a, &p);
		csi_publish_clear(&p);
	}
	for (unsigned n = 63; n <= 253; n += 95) {
		auto_free char *path = NULL;

		memset(name, 'x', n);
		name[n] = '\0';
		a->target_path = path = mem_printf(POD CSI "%s/mount", name);
		if (n > 63) {
			refused(a, "target_path");
		} else {
			taken(a, &p);
			assert_string_equal(p.target.volume, name);
			csi_publish_clear(&p);
		}
	}
	a->target_path = "/pods/7f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11" CSI "mesh/mount";
	refused(a, "not the pod of target_path");
}

static void test_names(void **state)
{
	static const char *const bad[] = {"", "Web", "web/0", "../web", "web\n", "w b"};
	static const char *const keys[] = {"pod.name", "pod.namespace", "serviceAccount.name"};
	struct csi_ask *a = *state;

	for (unsigned k = 0; k < 3; k++) {
		auto_free char *key = mem_printf(RIG_KEY "%s", keys[k]);
		auto_free char *was =
		    mem_strdup(json_string_value(json_object_get(a->context, key)));

		for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
			csi_ask_say(a, key, bad[i]);
			refused(a, keys[k]);
		}
		csi_ask_say(a, key, was);
	}
	csi_ask_say(a, RIG_KEY "pod.uid", "../../etc");
	refused(a, "pod.uid");
}

static void test_bounds(void **state)
{
	struct csi_ask *a = *state;
	struct csi_publish p;
	char long_id[200], key[16];

	memset(long_id, 'x', sizeof(long_id));
	long_id[129] = '\0';
	a->volume_id = long_id;
	refused(a, "128");
	long_id[128] = '\0';
	taken(a, &p);
	csi_publish_clear(&p);
	for (unsigned i = 0; i < 256 + 16 - 5; i++) {
		snprintf(key, sizeof(key), "K%u", i);
		csi_ask_say(a, key, "v");
	}
	taken(a, &p);
	csi_publish_clear(&p);
	csi_ask_say(a, "one more", "v");
	refused(a, "256");
}

static void test_no_message(void **state)
{
	static const char *const bad[] = {"\x0a", "\x0a\xff", "\x42\x05zzzzz", "\x2a\x02zz", "\x0b",
	    "\x08\x01", "\x42\x04\x0a\x02\xff\xfe"};
	struct csi_publish p;
	struct err e;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		auto_free char *bytes = mem_strdup(bad[i]);

		assert_int_equal(read_bytes(&p, (uint8_t *)bytes, strlen(bytes), &e), -1);
		assert_int_equal(e.code, ERR_INVALID);
	}
}

/* Where it comes from, and what becomes of what is none. */
static void test_tokens(void **state)
{
	struct csi_ask *a = *state;
	struct csi_publish p;
	auto_free char *foreign = rig_token(RIG_UID, "demo", "admin", 1900000000);
	auto_free char *forged = csi_rig_tokens("istio-ca", foreign);
	auto_free char *elsewhere = csi_rig_tokens("vault", foreign);
	static const char *const none[] = {"", "x", "[]", "{\"istio-ca\":1}",
	    "{\"istio-ca\":{\"token\":7}}", "{\"istio-ca\":\"x\"}"};
	struct err e;

	/* `secrets` wins over what a pod may have written. */
	csi_ask_say(a, RIG_TOKENS, forged);
	taken(a, &p);
	assert_int_equal(csi_token_check(&p, NOW, &e), 0);
	csi_publish_clear(&p);

	json_object_clear(a->secrets);
	taken(a, &p);
	assert_int_equal(csi_token_check(&p, NOW, &e), -1);
	assert_int_equal(e.code, ERR_DENIED);
	assert_non_null(strstr(e.msg, "service account"));
	csi_publish_clear(&p);

	csi_ask_say(a, RIG_TOKENS, elsewhere);
	taken(a, &p);
	assert_int_equal(csi_token_check(&p, NOW, &e), -1);
	assert_int_equal(e.code, ERR_PRECONDITION);
	assert_non_null(strstr(e.msg, "tokenRequests"));
	csi_publish_clear(&p);
	for (unsigned i = 0; i < sizeof(none) / sizeof(*none); i++) {
		csi_ask_say(a, RIG_TOKENS, none[i]);
		taken(a, &p);
		assert_null(p.token);
		csi_publish_clear(&p);
	}
	csi_ask_token(a, "web", NOW);
	taken(a, &p);
	assert_int_equal(csi_token_check(&p, NOW - 1, &e), 0);
	assert_int_equal(csi_token_check(&p, NOW, &e), -1);
	assert_int_equal(e.code, ERR_DENIED);
	csi_publish_clear(&p);
	csi_ask_say(a, RIG_TOKENS, NULL);
	json_object_set_new(
	    a->secrets, RIG_TOKENS, json_string("{\"istio-ca\":{\"token\":\"a.b.c\"}}"));
	taken(a, &p);
	assert_int_equal(csi_token_check(&p, NOW, &e), -1);
	assert_int_equal(e.code, ERR_INVALID);
	csi_publish_clear(&p);
}

/* Only root may hand in a token that names no pod, and the kubelet's are not root's files. */
static void test_a_token_of_no_pod(void **state)
{
	struct csi_ask *a = *state;
	struct csi_publish p;
	auto_free char *unbound = rig_token(NULL, "demo", "web", 1900000000);
	auto_free char *tokens = csi_rig_tokens("istio-ca", unbound);
	struct err e;

	json_object_set_new(a->secrets, RIG_TOKENS, json_string(tokens));
	taken(a, &p);
	assert_int_equal(csi_token_check(&p, NOW, &e), -1);
	assert_int_equal(e.code, ERR_DENIED);
	assert_string_equal(e.msg, "token: it names no pod");
	csi_publish_clear(&p);
}

/* Also when the request is refused. */
static void test_tokens_are_wiped(void **state)
{
	struct csi_ask *a = *state;
	struct csi_publish p;
	size_t size;
	auto_free uint8_t *bytes = csi_ask_pack(a, &size);
	struct err e;

	json_set_alloc_funcs(malloc, mem_wipe_free_block);
	secrets_watch();
	assert_int_equal(read_bytes(&p, bytes, size, &e), 0);
	csi_publish_clear(&p);
	assert_int_equal(read_bytes(&p, bytes, size - 1, &e), -1);
	assert_int_equal(secrets_freed(), 0);
	json_set_alloc_funcs(malloc, free);
	explicit_bzero(bytes, size);
}

static int read_unpublish(const struct csi_ask *a, struct csi_unpublish *u, struct err *e)
{
	size_t size;
	auto_free uint8_t *bytes = csi_ask_pack_unpublish(a, &size);
	const struct iovec iov = {bytes, size};

	return csi_unpublish_read(u, &iov, 1, e);
}

static void test_unpublish(void **state)
{
	struct csi_ask *a = *state;
	struct csi_unpublish u;
	struct err e;

	assert_int_equal(read_unpublish(a, &u, &e), 0);
	assert_true(u.ours);
	assert_string_equal(u.target.volume, "mesh");
	a->target_path = "/tmp/anything";
	assert_int_equal(read_unpublish(a, &u, &e), 0);
	assert_false(u.ours);
	a->target_path = "/var/lib/kubelet/pods/x/../../pods/" RIG_UID CSI "mesh/mount";
	assert_int_equal(read_unpublish(a, &u, &e), -1);
	assert_int_equal(e.code, ERR_INVALID);
	assert_string_equal(
	    e.msg, "target_path: must be absolute, without \".\", \"..\" and empty parts");
	a->target_path = RIG_TARGET;
	a->volume_id = NULL;
	assert_int_equal(read_unpublish(a, &u, &e), -1);
	assert_non_null(strstr(e.msg, "volume_id"));
	a->volume_id = "x";
	a->target_path = NULL;
	assert_int_equal(read_unpublish(a, &u, &e), -1);
	assert_non_null(strstr(e.msg, "target_path"));
	assert_int_equal(e.code, ERR_INVALID);
}

static int read_registration(bool registered, const char *why, struct err *e)
{
	Pluginregistration__RegistrationStatus s = PLUGINREGISTRATION__REGISTRATION_STATUS__INIT;
	uint8_t bytes[400];
	struct iovec iov = {bytes, 0};

	s.plugin_registered = registered;
	s.error = (char *)why;
	iov.iov_len = pluginregistration__registration_status__pack(&s, bytes);
	return csi_registration_read(&iov, 1, e);
}

static void test_registration(void **state)
{
	char many[300];
	struct err e;

	(void)state;
	assert_int_equal(read_registration(true, "", &e), 0);
	assert_int_equal(read_registration(false, "taken\nby another", &e), -1);
	assert_string_equal(e.msg, "taken?by another");
	assert_int_equal(read_registration(false, "", &e), -1);
	assert_true(*e.msg);
	memset(many, 'y', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	assert_int_equal(read_registration(false, many, &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_what_is_taken, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_what_must_be_there, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_only_inline_volumes, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_target_paths, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_names, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_no_message, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_tokens, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_a_token_of_no_pod, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_tokens_are_wiped, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_unpublish, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_registration, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
