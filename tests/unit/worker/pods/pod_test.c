/* pod_test.c - the registry: one identity per uid, one observer, order of events. */
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct seen {
	int added, changed, tokens, removed, settled, progress;
	struct pod *last;
	struct pod_registry *registry;
	struct pod_source manifest, csi;
	bool found_when_removed;
};

static void on_added(void *ctx, struct pod *p)
{
	struct seen *s = ctx;

	s->added++;
	s->last = p;
}

static void on_changed(void *ctx, struct pod *p)
{
	struct seen *s = ctx;

	s->changed++;
	s->last = p;
}

static void on_token(void *ctx, struct pod *p)
{
	struct seen *s = ctx;

	s->tokens++;
	s->last = p;
}

static void on_removed(void *ctx, struct pod *p)
{
	struct seen *s = ctx;

	s->removed++;
	s->found_when_removed = pod_find(s->registry, &p->spec.uid) != NULL;
}

static void on_settled(void *ctx)
{
	((struct seen *)ctx)->settled++;
}

static const struct pod_observer observer = {
    on_added, on_changed, on_token, on_removed, on_settled};

static void on_progress(void *ctx, struct pod *p)
{
	struct seen *s = ctx;

	s->progress++;
	s->last = p;
}

static struct pod_spec spec_of(unsigned char id, const char *name)
{
	struct pod_spec p = {.uid.bytes = {id}, .ns = "demo", .sa = "web"};

	(void)snprintf(p.name, sizeof(p.name), "%s", name);
	return p;
}

static void setup(struct seen *s)
{
	*s = (struct seen){
	    .manifest.name = "manifest", .csi = {.name = "csi", .progress = on_progress, .ctx = s}};
	s->registry = pod_registry_new(&observer, s);
	pod_source_add(s->registry, &s->manifest);
}

static void test_add_and_find(void **state)
{
	struct seen s;
	struct pod_spec spec = spec_of(1, "web-0");
	struct err e;

	(void)state;
	setup(&s);
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	assert_int_equal(s.added, 1);
	assert_ptr_equal(pod_find(s.registry, &spec.uid), s.last);
	assert_ptr_not_equal(s.last, &spec); /* a copy */
	assert_string_equal(s.last->spec.label, "demo/web-0");
	assert_ptr_equal(s.last->source, &s.manifest);
	assert_int_equal(s.last->spec.proxy_uid, 1337);
	assert_int_equal(s.last->spec.proxy_gid, 1337);
	assert_true(json_is_object(s.last->spec.env) && json_is_object(s.last->spec.labels) &&
		    json_is_object(s.last->spec.annotations)); /* never NULL */
	assert_false(s.last->ready);
	assert_int_not_equal(s.last->state.code, 0);
	pod_registry_free(&s.registry);
	assert_null(s.registry);
	assert_int_equal(s.removed, 0); /* the end of agentd is not the end of a pod */
	pod_registry_free(&s.registry);
}

static void test_ready(void **state)
{
	struct seen s;
	struct pod_spec spec = spec_of(1, "web-0");
	struct err e, why;

	(void)state;
	setup(&s);
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	pod_set_ready(s.last, NULL);
	assert_true(s.last->ready);
	assert_int_equal(s.last->state.code, 0);
	err_set(&why, ERR_DENIED, "because");
	pod_set_ready(s.last, &why);
	assert_false(s.last->ready);
	assert_string_equal(s.last->state.msg, "because");
	pod_registry_free(&s.registry);
}

/* A change is told once; the same announcement again is no change. */
/* Served or not, and whether its Envoy can come: two things, of which one is said. */
static void test_away(void **state)
{
	const struct err away = {.code = 1, .msg = "away"}, why = {.code = 1, .msg = "refused"};
	const struct pod_spec spec = spec_of(1, "web-0");
	struct seen s;
	struct err e;

	(void)state;
	setup(&s);
	assert_int_equal(pod_add(s.registry, &s.csi, &spec, &e), 0);
	pod_set_away(s.last, NULL);
	assert_false(s.last->ready); /* it is starting */
	pod_set_away(s.last, &away);
	pod_set_ready(s.last, NULL);
	assert_false(s.last->ready);
	assert_true(s.last->may_start);
	assert_string_equal(pod_why_not(s.last), "away");
	pod_set_degraded(s.last, &why);
	assert_string_equal(pod_why_not(s.last), "refused");
	pod_set_away(s.last, NULL);
	assert_false(s.last->ready);
	pod_set_ready(s.last, NULL);
	assert_true(s.last->ready);
	assert_string_equal(pod_why_not(s.last), "");
	pod_registry_free(&s.registry);
}

static void test_change(void **state)
{
	struct seen s;
	struct pod_spec spec = spec_of(1, "web-0");
	struct pod *p;
	struct err e;

	(void)state;
	setup(&s);
	spec.env = json_pack("{s:s}", "A", "1");
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	p = s.last;
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	assert_int_equal(s.changed, 0);
	json_decref(spec.env);
	spec.env = json_pack("{s:s}", "A", "2");
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	assert_int_equal(s.changed, 1);
	assert_ptr_equal(s.last, p);
	assert_string_equal(json_string_value(json_object_get(p->spec.env, "A")), "2");
	spec.labels = json_pack("{s:s}", "app", "web");
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	spec.annotations = json_pack("{s:s}", "x", "y");
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	spec.proxy_uid = 2000;
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	assert_int_equal(s.changed, 4);
	assert_int_equal(s.added, 1);
	json_decref(spec.env);
	json_decref(spec.labels);
	json_decref(spec.annotations);
	pod_registry_free(&s.registry);
}

/* A uid never becomes another pod (security-rules.md G4). */
static void test_identity_is_fixed(void **state)
{
	struct seen s;
	struct pod_spec spec = spec_of(1, "web-0"), other;
	struct err e;

	(void)state;
	setup(&s);
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	other = spec;
	strcpy(other.ns, "prod");
	assert_int_equal(pod_add(s.registry, &s.manifest, &other, &e), -1);
	other = spec;
	strcpy(other.name, "web-1");
	assert_int_equal(pod_add(s.registry, &s.manifest, &other, &e), -1);
	other = spec;
	strcpy(other.sa, "admin");
	assert_int_equal(pod_add(s.registry, &s.manifest, &other, &e), -1);
	assert_non_null(strstr(e.msg, "demo/web-0"));
	assert_int_equal(pod_add(s.registry, &s.csi, &spec, &e), -1);
	assert_non_null(strstr(e.msg, "manifest"));
	assert_int_equal(s.changed, 0);
	assert_string_equal(s.last->spec.sa, "web");
	pod_registry_free(&s.registry);
}

static void test_names_are_checked(void **state)
{
	static const char *const bad[] = {
	    "", "Web", "web/0", "web_0", "-web", "web-", "a..b", "web\n"};
	struct seen s;
	struct err e;

	(void)state;
	setup(&s);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct pod_spec spec = spec_of(1, bad[i]);

		assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), -1);
		spec = spec_of(1, "web-0");
		strcpy(spec.ns, bad[i]);
		assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), -1);
		spec = spec_of(1, "web-0");
		strcpy(spec.sa, bad[i]);
		assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), -1);
	}
	assert_int_equal(s.added, 0);
	assert_null(pod_first(s.registry));
	pod_registry_free(&s.registry);
}

static void test_order_and_remove(void **state)
{
	static const char *const names[] = {"c", "a", "b", "a"};
	static const unsigned char expected[] = {2, 4, 3, 1};
	struct seen s;
	struct uuid uid = {{2}}, unknown = {{9}};
	struct err e;
	unsigned i = 0;

	(void)state;
	setup(&s);
	for (unsigned char n = 0; n < 4; n++) {
		struct pod_spec spec = spec_of((unsigned char)(n + 1), names[n]);

		assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	}
	for (struct pod *p = pod_first(s.registry); p; p = p->next, i++)
		assert_int_equal(p->spec.uid.bytes[0], expected[i]);
	assert_int_equal(i, 4);
	pod_remove(s.registry, &s.manifest, &unknown);
	pod_remove(s.registry, &s.csi, &uid); /* not this source's to remove */
	assert_int_equal(s.removed, 0);
	pod_remove(s.registry, &s.manifest, &uid);
	assert_int_equal(s.removed, 1);
	assert_false(s.found_when_removed);
	assert_int_equal(pod_first(s.registry)->spec.uid.bytes[0], 4);
	pod_remove(s.registry, &s.manifest, &uid);
	assert_int_equal(s.removed, 1);
	pod_registry_free(&s.registry);
}

/* Once, when all was announced and each pod was told; a refused one counts, one that goes does not
 * matter any more. */
static void test_settled(void **state)
{
	const struct pod_spec specs[] = {spec_of(1, "a"), spec_of(2, "b"), spec_of(3, "c")};
	struct err why, e;
	struct seen s;

	(void)state;
	setup(&s);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pod_add(s.registry, &s.manifest, &specs[i], &e), 0);
	pod_set_ready(pod_find(s.registry, &specs[0].uid), NULL);
	pod_registry_synced(s.registry, &s.manifest);
	err_set(&why, ERR_DENIED, "because");
	pod_set_ready(pod_find(s.registry, &specs[1].uid), &why);
	assert_int_equal(s.settled, 0);
	pod_remove(s.registry, &s.manifest, &specs[2].uid);
	assert_int_equal(s.settled, 1);
	assert_int_equal(pod_add(s.registry, &s.manifest, &specs[2], &e), 0);
	pod_set_ready(s.last, NULL);
	pod_registry_synced(s.registry, &s.manifest);
	assert_int_equal(s.settled, 1);
	pod_registry_free(&s.registry);
}

static void test_settled_without_a_pod(void **state)
{
	struct pod_spec spec = spec_of(1, "web-0");
	struct seen s;
	struct err e;

	(void)state;
	setup(&s);
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	pod_set_ready(s.last, NULL);
	pod_remove(s.registry, &s.manifest, &spec.uid);
	assert_int_equal(s.settled, 0); /* there may be more */
	pod_registry_synced(s.registry, &s.manifest);
	assert_int_equal(s.settled, 1);
	pod_registry_free(&s.registry);
}

/* The sources do not know of each other: the last one's word ends it. */
static void test_settled_by_all_sources(void **state)
{
	struct seen s;

	(void)state;
	setup(&s);
	pod_source_add(s.registry, &s.csi);
	pod_registry_synced(s.registry, &s.manifest);
	pod_registry_synced(s.registry, &s.manifest);
	assert_int_equal(s.settled, 0);
	pod_registry_synced(s.registry, &s.csi);
	assert_int_equal(s.settled, 1);
	pod_registry_free(&s.registry);
}

/* Its source hears of each step, and what may start although not all of it is well. */
static void test_progress(void **state)
{
	struct pod_spec spec = spec_of(1, "web-0");
	struct err why, e;
	struct seen s;

	(void)state;
	setup(&s);
	pod_source_add(s.registry, &s.csi);
	assert_int_equal(pod_add(s.registry, &s.csi, &spec, &e), 0);
	assert_false(s.last->told || s.last->may_start || s.last->certified);
	err_set(&why, ERR_UNAVAILABLE, "not yet");
	pod_set_ready(s.last, &why);
	assert_true(s.last->told && !s.last->may_start && !s.last->ready);
	assert_int_equal(s.last->state.code, ERR_UNAVAILABLE);
	pod_set_degraded(s.last, &why);
	assert_true(s.last->may_start && !s.last->ready);
	assert_string_equal(s.last->state.msg, "not yet");
	pod_set_ready(s.last, NULL);
	assert_true(s.last->may_start && s.last->ready);
	assert_int_equal(s.progress, 3);
	pod_set_certified(s.last);
	assert_true(s.last->certified);
	assert_int_equal(s.progress, 4);
	pod_registry_free(&s.registry);
}

/* A new token is news, and no change of the pod. */
static void test_token(void **state)
{
	struct pod_spec spec = spec_of(1, "web-0");
	struct seen s;
	struct err e;

	(void)state;
	setup(&s);
	spec.token = (char *)"one";
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	assert_ptr_not_equal(s.last->spec.token, spec.token);
	pod_set_token(s.last, "one");
	assert_int_equal(s.tokens, 0);
	pod_set_token(s.last, "two");
	assert_int_equal(s.tokens, 1);
	assert_string_equal(s.last->spec.token, "two");
	assert_int_equal(pod_add(s.registry, &s.manifest, &spec, &e), 0);
	assert_string_equal(s.last->spec.token, "two");
	assert_int_equal(s.changed, 0);
	pod_registry_free(&s.registry);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_add_and_find),
	    cmocka_unit_test(test_ready),
	    cmocka_unit_test(test_away),
	    cmocka_unit_test(test_change),
	    cmocka_unit_test(test_identity_is_fixed),
	    cmocka_unit_test(test_names_are_checked),
	    cmocka_unit_test(test_order_and_remove),
	    cmocka_unit_test(test_settled),
	    cmocka_unit_test(test_settled_without_a_pod),
	    cmocka_unit_test(test_settled_by_all_sources),
	    cmocka_unit_test(test_progress),
	    cmocka_unit_test(test_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
