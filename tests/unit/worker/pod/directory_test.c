/* directory_test.c - asked for until it is there; what the broker notes of it is passed on.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/unit/worker/pod/row_rig.c tests/unit/worker/metrics_rig.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "row_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/pod/rows.h"
#include "worker/pods/pod.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct {
	int directory, progress, away;
	unsigned lost;
} told;

/* --- in place of pod_services.c's --- */

void pod_tell_directory(struct pod_context *c)
{
	(void)c;
	told.directory++;
}

void pod_tell_lost(struct pod_context *c, unsigned files)
{
	(void)c;
	told.lost = files;
}

void pod_tell_progress(struct pod_context *c)
{
	(void)c;
	told.progress++;
}

void pod_set_away(struct pod *p, const struct err *why)
{
	(void)p;
	assert_int_equal(why->code, ESTALE);
	told.away++;
}

/* --- the tests --- */

static struct agent_shared shared;
static struct pod pod = {.spec.uid = {{1}}, .spec.label = "demo/web"};
static struct pod_context context = {.shared = &shared, .pod = &pod};
static const struct pod_service *const row = &pod_directory_service;
static void *d;

static int setup(void **state)
{
	(void)state;
	memset(&told, 0, sizeof(told));
	shared = (struct agent_shared){.loop = fake_loop(), .link = fake_link()};
	d = row_start(row, &context);
	return 0;
}

/* Nothing is left: no call, no watch, no timer. */
static int teardown(void **state)
{
	(void)state;
	row_stop(row, &d);
	link_free(&shared.link);
	metrics_clear();
	assert_int_equal(fake_loop_live(shared.loop), 0);
	fake_loop_end(&shared.loop);
	return 0;
}

/* NULL: it says none. */
static enum pod_progress progress(int code, const char *why)
{
	const struct err *e = NULL;
	enum pod_progress p = row->progress(d, &e);

	assert_int_equal(e != NULL, why != NULL);
	if (e) {
		assert_string_equal(e->msg, why);
		assert_int_equal(e->code, code);
	}
	return p;
}

static void everything_begins_when_it_is_there(void **state)
{
	(void)state;
	assert_int_equal(progress(0, NULL), POD_BEGINS);
	fake_link_added(shared.link, &pod.spec.uid, NULL);
	assert_int_equal(told.directory, 1);
	assert_int_equal(told.progress, 1);
	assert_int_equal(progress(0, NULL), POD_FINE);
}

/* Who starts a pod waits while the disk is broken. */
static void it_is_asked_for_until_it_is_there(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(fake_link_waiting(shared.link, LINK_POD_ADD), 1);
		fake_link_added(shared.link, &pod.spec.uid, "mkdir: no room");
		assert_int_equal(progress(ERR_UNAVAILABLE, "mkdir: no room"), POD_HELD);
		assert_int_equal(fake_link_waiting(shared.link, LINK_POD_ADD), 0);
		fake_loop_advance(shared.loop, 10 * 1000); /* 8 s and a fifth, at most */
	}
	assert_int_equal(told.directory, 0);
	fake_link_added(shared.link, &pod.spec.uid, NULL);
	assert_int_equal(told.directory, 1);
	assert_int_equal(progress(0, NULL), POD_FINE);
	fake_loop_advance(shared.loop, 3600 * 1000);
	assert_int_equal(fake_link_waiting(shared.link, LINK_POD_ADD), 0);
}

/* But not for room on the node: that may take for ever. */
static void a_full_node_refuses(void **state)
{
	(void)state;
	fake_link_refuse_with(shared.link, EUSERS);
	fake_link_added(shared.link, &pod.spec.uid, "there are 2 pods already");
	assert_int_equal(progress(EUSERS, "there are 2 pods already"), POD_HELD);
	fake_loop_advance(shared.loop, 1000);
	assert_int_equal(fake_link_waiting(shared.link, LINK_POD_ADD), 1); /* all the same */
}

/* Made under a pod that runs: served all the same, and what keeps its Envoy away is told. */
static void made_anew_it_is_there(void **state)
{
	(void)state;
	fake_link_refuse_with(shared.link, ESTALE);
	fake_link_added(shared.link, &pod.spec.uid, "made anew");
	assert_int_equal(told.away, 1);
	assert_int_equal(told.directory, 1);
	assert_int_equal(progress(0, NULL), POD_FINE);
	fake_loop_advance(shared.loop, 3600 * 1000);
	assert_int_equal(fake_link_waiting(shared.link, LINK_POD_ADD), 0);
}

static void notes_are_passed_on(void **state)
{
	const struct err e = {EROFS, "cannot be made again"};

	(void)state;
	fake_link_added(shared.link, &pod.spec.uid, NULL);
	fake_link_note_pod(shared.link, &pod.spec.uid,
	    &(struct link_pod_note){.lost = 1U << LINK_FILE_ROOT, .restored = 7, .why = &e});
	assert_int_equal(told.lost, 1U << LINK_FILE_ROOT);
	assert_int_equal(told.progress, 2);
	assert_int_equal(progress(EROFS, e.msg), POD_DEGRADED); /* it runs */
	assert_metric("agentd_pod_files_restored_total 7\n");
	told.lost = 0;
	fake_link_note_pod(shared.link, &pod.spec.uid, &(struct link_pod_note){.restored = 8});
	assert_int_equal(told.lost, 0);
	assert_int_equal(progress(0, NULL), POD_FINE);
}

static void ended_while_it_waits(void **state)
{
	(void)state;
	fake_link_added(shared.link, &pod.spec.uid, "no room");
	row_stop(row, &d);
	fake_loop_advance(shared.loop, 3600 * 1000);
	assert_int_equal(fake_link_waiting(shared.link, LINK_POD_ADD), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(everything_begins_when_it_is_there),
	    TEST(it_is_asked_for_until_it_is_there),
	    TEST(a_full_node_refuses),
	    TEST(made_anew_it_is_there),
	    TEST(notes_are_passed_on),
	    TEST(ended_while_it_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
