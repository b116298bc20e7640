/* volume_test.c - what the worker asks about the kubelet's volumes, as the broker gets it.
 *
 * LINK: tests/fake/loop.c tests/unit/broker/rig.c tests/unit/worker/link/world.c tests/unit/open_fds.c
 */
#include "tests/unit/open_fds.h"
#include "worker/link/volume.h"
#include "world.h"

static struct {
	unsigned found, ended;
	bool mounted, directory, cancels, frees;
	int code, end_code;
	char name[64], data[32];
} seen;

static void on_found(void *ctx, const struct link_volume *v)
{
	struct world *w = ctx;

	if (!v->name) {
		assert_null(w->slot); /* R3 */
		seen.ended++;
		seen.end_code = v->e ? v->e->code : 0;
		return;
	}
	seen.found++;
	assert_true(uuid_equal(&v->pod, &rig_pod));
	seen.mounted = v->mounted;
	seen.directory = v->directory;
	seen.code = v->e ? v->e->code : 0;
	snprintf(seen.name, sizeof(seen.name), "%s", v->name);
	snprintf(seen.data, sizeof(seen.data), "%s", v->vol_data ? v->vol_data : "");
	assert_int_equal(v->vol_data ? strlen(v->vol_data) : 0, v->size);
	if (seen.cancels)
		link_call_cancel(&w->slot);
	if (seen.frees)
		link_free(&w->p);
}

static uint32_t start_list(struct world *w)
{
	memset(&seen, 0, sizeof(seen));
	link_volume_list(w->p, &w->slot, on_found, w);
	return heard(w, LINK_VOLUMES, NULL).id;
}

static void tell_volume(struct world *w, uint32_t call, unsigned state, const char *data)
{
	struct link_packet p = {.what = LINK_VOLUME,
	    .id = call,
	    .uid = rig_pod,
	    .state = state,
	    .name = "mesh",
	    .code = data ? 0 : ELOOP,
	    .why = "vol_data.json is a symbolic link"};
	int fd = data ? rig_memfd(data, strlen(data), RIG_SEALS) : -1;

	say(w, p, fd);
	if (fd >= 0)
		close(fd);
	turn(w);
}

static void test_a_list_is_told_volume_by_volume(void **state)
{
	struct world *w = *state;
	int before = open_fds();
	uint32_t call = start_list(w);

	tell_volume(w, call, LINK_VOLUME_MOUNTED | LINK_VOLUME_DIRECTORY, "{}");
	assert_true(seen.mounted && seen.directory);
	assert_string_equal(seen.name, "mesh");
	assert_string_equal(seen.data, "{}");
	assert_int_equal(seen.code, 0);
	tell_volume(w, call, LINK_VOLUME_DIRECTORY, NULL);
	assert_true(!seen.mounted && seen.directory);
	assert_int_equal(seen.code, ELOOP);
	tell_volume(w, call + 1, 0, "nobody's");
	assert_int_equal(seen.found, 2);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = call}, -1);
	turn(w);
	assert_int_equal(seen.ended, 1);
	assert_int_equal(seen.end_code, 0);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = start_list(w), .code = EIO}, -1);
	turn(w);
	assert_int_equal(seen.end_code, EIO);
	assert_int_equal(open_fds(), before);
}

/* R5, and what is still under way then. */
static void test_a_list_may_be_ended_inside_its_callback(void **state)
{
	struct world *w = *state;
	int before = open_fds();
	uint32_t call = start_list(w);

	seen.cancels = true;
	tell_volume(w, call, 0, "one");
	tell_volume(w, call, 0, "two");
	say(w, (struct link_packet){.what = LINK_REPLY, .id = call}, -1);
	turn(w);
	assert_int_equal(seen.found, 1);
	assert_int_equal(seen.ended, 0);
	assert_int_equal(open_fds(), before);
	call = start_list(w);
	seen.frees = true;
	tell_volume(w, call, 0, "one");
	assert_null(w->p);
	assert_null(w->slot);
}

static void expect_answered(struct world *w, uint32_t id, int code)
{
	w->done = 0;
	say(w, (struct link_packet){.what = LINK_REPLY, .id = id, .code = code, .why = "why"}, -1);
	turn(w);
	assert_int_equal(w->done, 1);
	assert_int_equal(w->failed, code != 0);
	if (code)
		assert_int_equal(w->e.code, code);
}

static void test_a_volume_is_named(void **state)
{
	struct world *w = *state;

	link_publish(w->p, &w->slot, &rig_pod, "mesh", on_done, w);
	struct link_request q = heard(w, LINK_PUBLISH, NULL);
	assert_true(uuid_equal(&q.uid, &rig_pod));
	assert_string_equal(q.volume, "mesh");
	expect_answered(w, q.id, 0);
	link_unpublish(w->p, &w->slot, &rig_pod, "mesh", on_done, w);
	q = heard(w, LINK_UNPUBLISH, NULL);
	assert_true(uuid_equal(&q.uid, &rig_pod));
	assert_string_equal(q.volume, "mesh");
	expect_answered(w, q.id, EBUSY);
}

/* Cut it would be another volume: the broker refuses the empty one. */
static void test_a_long_name_is_not_cut(void **state)
{
	static const struct {
		size_t size, sent;
	} names[] = {{63, 63}, {64, 0}, {253, 0}};
	struct world *w = *state;
	char name[256];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		snprintf(name, sizeof(name), "%0*d", (int)names[i].size, 0);
		link_publish(w->p, &w->slot, &rig_pod, name, on_done, w);
		struct link_request q = heard(w, LINK_PUBLISH, NULL);
		assert_int_equal(strlen(q.volume), names[i].sent);
		expect_answered(w, q.id, EINVAL);
	}
}

static void test_a_caller_is_shown_by_its_connection(void **state)
{
	struct world *w = *state;
	struct stat a, b;
	int pair[2], fd;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	link_caller(w->p, &w->slot, pair[0], on_done, w);
	struct link_request q = heard(w, LINK_CALLER, &fd);
	assert_true(!fstat(fd, &a) && !fstat(pair[0], &b));
	assert_int_equal(a.st_ino, b.st_ino);
	expect_answered(w, q.id, EPERM);
	close(fd);
	close(pair[0]);
	close(pair[1]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static unsigned notes, restorations;
static bool is_registered;

static void on_noted(void *ctx, bool registered, unsigned restored)
{
	(void)ctx;
	notes++;
	is_registered = registered;
	restorations = restored;
}

/* The broker greets with it; the kubelet's volumes are looked at later. */
static void test_a_note_waits_until_somebody_listens(void **state)
{
	struct world *w = *state;

	notes = 0;
	say(w, (struct link_packet){.what = LINK_CSI_NOTE, .kind = 1, .arg = 2}, -1);
	turn(w);
	link_on_csi(w->p, on_noted, NULL);
	assert_int_equal(notes, 0); /* R2 */
	turn(w);
	assert_int_equal(notes, 1);
	assert_true(is_registered);
	assert_int_equal(restorations, 2);
	say(w, (struct link_packet){.what = LINK_CSI_NOTE, .arg = 3}, -1);
	turn(w);
	assert_int_equal(notes, 2);
	assert_false(is_registered);
	link_on_csi(w->p, on_noted, NULL);
	link_on_csi(w->p, NULL, NULL);
	turn(w);
	assert_int_equal(notes, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_a_list_is_told_volume_by_volume),
	    TEST(test_a_list_may_be_ended_inside_its_callback),
	    TEST(test_a_volume_is_named),
	    TEST(test_a_long_name_is_not_cut),
	    TEST(test_a_caller_is_shown_by_its_connection),
	    TEST(test_a_note_waits_until_somebody_listens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
