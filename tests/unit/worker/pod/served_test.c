/* served_test.c - what a pod had before, what it lacks now, and when that is said.  The rows of the
 * table, the pods and what they have are the test's.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c
 */
#include "common/err.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "worker/link/link.h"
#include "worker/pod/served.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ADS, CERT, ROWS, PODS = 2 };

static const struct pod_service ads = {.name = "ads"}, cert = {.name = "cert"};
static const struct pod_service *const rows[] = {&ads, &cert, NULL};

static struct {
	struct loop *l;
	struct link *link;
	struct pod_served *s;
	struct pod pods[PODS];
	enum pod_has has[PODS][ROWS];
	const char *why;
	bool restored;
} w;

/* --- in place of the neighbours --- */

struct pod *pod_first(const struct pod_registry *r)
{
	(void)r;
	return &w.pods[0];
}

const char *pod_why_not(const struct pod *p)
{
	return p->state.msg;
}

enum pod_has pod_services_has(const struct pod_services *s, size_t row, const char **why)
{
	const enum pod_has *of = (const void *)s;

	*why = of[row] == POD_LACKS ? w.why : "";
	return of[row];
}

/* --- */

static void on_restored(void *ctx)
{
	(void)ctx;
	w.restored = true;
}

/* A worker begins; what is kept stays. */
static void begin(bool anyway)
{
	pod_served_free(&w.s);
	w.s = pod_served_new(&(struct pod_served_of){w.l, w.link, rows, anyway});
	pod_served_restore(w.s, on_restored, NULL);
	fake_link_listed(w.link, LINK_STATE_SERVED, NULL);
	assert_true(w.restored);
	pod_served_begin(w.s, (struct pod_registry *)&w);
}

static void set(int pod, enum pod_has of_ads, enum pod_has of_cert)
{
	w.has[pod][ADS] = of_ads;
	w.has[pod][CERT] = of_cert;
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	w.l = fake_loop();
	w.link = fake_link();
	w.why = "refused";
	for (int i = 0; i < PODS; i++) {
		memset(&w.pods[i].spec.uid, i + 1, sizeof(w.pods[i].spec.uid));
		snprintf(w.pods[i].spec.label, sizeof(w.pods[i].spec.label), "demo/%d", i);
		w.pods[i].services = (struct pod_services *)w.has[i];
		w.pods[i].next = i + 1 < PODS ? &w.pods[i + 1] : NULL;
		set(i, POD_HAS, POD_HAS);
	}
	begin(false);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pod_served_free(&w.s);
	link_free(&w.link);
	fake_loop_end(&w.l);
	return 0;
}

/* What the broker heard last. */
static void assert_said(unsigned lost, const char *words)
{
	const char *why;

	assert_int_equal(fake_link_lost(w.link, &why), lost);
	assert_string_equal(why, words);
}

static void assert_kept(int pod, const char *names)
{
	struct link_kept k = {.id = NULL};

	for (int i = fake_link_kept(w.link, LINK_STATE_SERVED); i-- > 0;) {
		k = fake_link_kept_at(w.link, LINK_STATE_SERVED, i);
		if (!memcmp(k.id, w.pods[pod].spec.uid.bytes, sizeof(w.pods[pod].spec.uid.bytes)))
			break;
	}
	assert_int_equal(k.size, strlen(names));
	assert_memory_equal(k.data, names, k.size);
}

static void the_first_worker_is_in_charge_at_once(void **state)
{
	(void)state;
	assert_said(0, "");
	assert_true(pod_served_is_in_charge(w.s));
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_SERVED), PODS);
	assert_kept(0, "ads cert ");
}

static void what_was_had_and_is_not_there_is_lost(void **state)
{
	(void)state;
	set(0, POD_LACKS, POD_HAS);
	set(1, POD_WAITS, POD_WAITS);
	begin(false);
	assert_said(2, "demo/0: ads: refused\ndemo/1: ads: it is not there yet\n");
	assert_false(pod_served_is_in_charge(w.s));
	set(1, POD_HAS, POD_HAS);
	fake_loop_advance(w.l, 60000);
	assert_said(1, "demo/0: ads: refused\n");
	assert_kept(0, "ads cert "); /* the one before may give it again */
	set(0, POD_HAS, POD_HAS);
	fake_loop_advance(w.l, 100);
	assert_said(0, "");
	assert_true(pod_served_is_in_charge(w.s));
}

/* The reason goes before what is only open. */
static void the_gravest_is_named(void **state)
{
	json_t *lost;

	(void)state;
	set(0, POD_AWAY, POD_LACKS);
	begin(false);
	assert_said(1, "demo/0: cert: refused\n");
	lost = pod_served_lost(w.s);
	assert_int_equal(json_array_size(lost), 1);
	assert_string_equal(
	    json_string_value(json_object_get(json_array_get(lost, 0), "service")), "cert");
	json_decref(lost);
}

static void a_refused_pod_has_lost_all(void **state)
{
	(void)state;
	w.pods[1].services = NULL;
	err_set(&w.pods[1].state, ERR_INVALID, "ISTIO_META_CLUSTER_ID refused");
	begin(false);
	assert_said(1, "demo/1: ads: ISTIO_META_CLUSTER_ID refused\n");
}

/* An Envoy that does not come back is its own; one that comes and is refused is not. */
static void an_envoy_that_is_away(void **state)
{
	(void)state;
	set(0, POD_AWAY, POD_HAS);
	begin(false);
	assert_said(1, "demo/0: ads: its Envoy is not back yet\n");
	fake_loop_advance(w.l, 3900);
	assert_false(pod_served_is_in_charge(w.s));
	fake_loop_advance(w.l, 200);
	assert_said(0, "");
	assert_kept(0, "ads cert "); /* it may come later */
	set(0, POD_LACKS, POD_HAS);
	fake_loop_advance(w.l, 5000);
	assert_kept(0, "cert ");
	begin(false);
	assert_said(0, ""); /* it had none before this worker */
}

static void what_was_never_there_is_not_lost(void **state)
{
	(void)state;
	set(0, POD_LACKS, POD_HAS);
	fake_loop_advance(w.l, 5000);
	assert_kept(0, "cert ");
	set(1, POD_ASKS_NOT, POD_HAS);
	begin(false);
	assert_said(0, "");
}

static void ready_anyway(void **state)
{
	json_t *lost;

	(void)state;
	set(0, POD_LACKS, POD_HAS);
	begin(true);
	assert_said(0, "demo/0: ads: refused\n");
	assert_true(pod_served_is_in_charge(w.s));
	fake_loop_advance(w.l, 5000);
	lost = pod_served_lost(w.s); /* and still says so */
	assert_int_equal(json_array_size(lost), 1);
	json_decref(lost);
	set(0, POD_HAS, POD_HAS);
	fake_loop_advance(w.l, 5000);
	set(0, POD_LACKS, POD_HAS); /* later losses are for others to tell */
	fake_loop_advance(w.l, 5000);
	lost = pod_served_lost(w.s);
	assert_int_equal(json_array_size(lost), 0);
	json_decref(lost);
}

/* It is known first what is lost, if that does not take long. */
static void ready_anyway_after_a_look(void **state)
{
	(void)state;
	set(0, POD_WAITS, POD_HAS);
	begin(true);
	assert_said(1, "demo/0: ads: it is not there yet\n");
	set(0, POD_LACKS, POD_HAS);
	fake_loop_advance(w.l, 50);
	assert_said(0, "demo/0: ads: refused\n");
	set(0, POD_WAITS, POD_HAS);
	fake_loop_advance(w.l, 5000);
	begin(true);
	assert_said(0, ""); /* the one before had lost it */
	set(1, POD_WAITS, POD_HAS);
	begin(true);
	fake_loop_advance(w.l, 3900);
	assert_false(pod_served_is_in_charge(w.s));
	fake_loop_advance(w.l, 200);
	assert_true(pod_served_is_in_charge(w.s));
}

static void the_end_keeps_what_is_there_now(void **state)
{
	(void)state;
	set(0, POD_LACKS, POD_LACKS);
	pod_served_look(w.s);
	assert_kept(0, "");
}

static void who_goes_is_forgotten(void **state)
{
	(void)state;
	w.pods[0].next = NULL;
	pod_served_forget(w.s, &w.pods[1].spec.uid);
	pod_served_forget(w.s, &w.pods[1].spec.uid);
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_SERVED), 1);
	w.pods[0].next = &w.pods[1];
	pod_served_look(w.s);
	w.pods[0].next = NULL; /* while no worker ran */
	begin(false);
	assert_said(0, "");
	assert_int_equal(fake_link_kept(w.link, LINK_STATE_SERVED), 1);
}

/* Another release's: what it calls otherwise is nothing of ours. */
static void words_that_nobody_knows(void **state)
{
	static const char text[] = "cert quic  ads";
	uint8_t id[LINK_STATE_ID_SIZE] = {0};

	(void)state;
	memcpy(id, w.pods[0].spec.uid.bytes, sizeof(w.pods[0].spec.uid.bytes));
	const struct link_kept k = {
	    .kind = LINK_STATE_SERVED, .id = id, .data = text, .size = strlen(text)};
	link_state_del(w.link, k.kind, k.id);
	fake_link_keep(w.link, &k);
	set(0, POD_LACKS, POD_HAS);
	begin(false);
	assert_said(1, "demo/0: ads: refused\n");
}

static void what_could_not_be_kept_is_kept_later(void **state)
{
	(void)state;
	fake_link_ask_served(w.link);
	set(0, POD_LACKS, POD_HAS);
	fake_loop_advance(w.l, 5000);
	fake_link_put(w.link, "no room");
	assert_kept(0, "ads cert ");
	fake_loop_advance(w.l, 5000);
	fake_link_put(w.link, NULL);
	assert_kept(0, "cert ");
	fake_loop_advance(w.l, 60000); /* nothing more is asked */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(the_first_worker_is_in_charge_at_once),
	    T(what_was_had_and_is_not_there_is_lost),
	    T(the_gravest_is_named),
	    T(a_refused_pod_has_lost_all),
	    T(an_envoy_that_is_away),
	    T(what_was_never_there_is_not_lost),
	    T(ready_anyway),
	    T(ready_anyway_after_a_look),
	    T(the_end_keeps_what_is_there_now),
	    T(who_goes_is_forgotten),
	    T(words_that_nobody_knows),
	    T(what_could_not_be_kept_is_kept_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
