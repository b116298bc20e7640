/* follow_test.c - followed files as the worker gets them.
 *
 * LINK: tests/fake/loop.c tests/unit/broker/rig.c tests/unit/worker/link/world.c tests/unit/open_fds.c
 */
#include "tests/unit/open_fds.h"
#include "world.h"

static uint32_t start_follow(struct world *w, enum link_followed what, link_changed changed)
{
	w->follow = link_follow(w->p, what, &rig_pod, 3, changed, w);
	struct link_request q = heard(w, LINK_FOLLOW, NULL);
	assert_int_equal(q.kind, what);
	assert_int_equal(q.arg, 3);
	assert_true(uuid_equal(&q.uid, &rig_pod));
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, -1);
	turn(w);
	assert_int_equal(w->changed, 0); /* the answer alone is no news */
	return q.id;
}

static void push(struct world *w, uint32_t id, const char *name, const char *text)
{
	struct link_packet p = {.what = LINK_FILE, .id = id, .state = LINK_FILE_CONTENT};
	int fd = rig_memfd(text, strlen(text), RIG_SEALS);

	snprintf(p.name, sizeof(p.name), "%s", name);
	say(w, p, fd);
	close(fd);
	turn(w);
}

static void test_each_state_of_a_file(void **state)
{
	struct world *w = *state;
	uint32_t id = start_follow(w, LINK_FOLLOW_MANIFESTS, on_changed);
	int before = open_fds();

	push(w, id, "a.yaml", "content");
	assert_string_equal(w->name, "a.yaml");
	assert_string_equal(w->data, "content");
	assert_int_equal(w->size, 7);
	push(w, id, "empty.yaml", "");
	assert_int_equal(w->changed, 2);
	assert_int_equal(w->size, 0);
	assert_false(w->gone);
	say(w, (struct link_packet){.what = LINK_FILE, .id = id, .state = LINK_FILE_SYNCED}, -1);
	turn(w);
	assert_true(w->synced);
	say(w,
	    (struct link_packet){.what = LINK_FILE,
		.id = id,
		.state = LINK_FILE_REMOVED,
		.name = "a.yaml",
		.why = "is not there"},
	    -1);
	turn(w);
	assert_true(w->gone && w->e.code == ENOENT);
	say(w,
	    (struct link_packet){
		.what = LINK_FILE, .id = id, .state = LINK_FILE_REFUSED, .why = "is a fifo"},
	    -1);
	turn(w);
	assert_true(w->gone && w->e.code == EACCES);
	assert_string_equal(w->e.msg, "is a fifo");
	assert_int_equal(w->changed, 5);
	assert_int_equal(open_fds(), before);
}

/* Content without an fd, or one that is no file: told as an error, not as an empty file. */
static void test_bad_content_is_an_error(void **state)
{
	struct world *w = *state;
	uint32_t id = start_follow(w, LINK_FOLLOW_ROOT, on_changed);
	struct probe probe;

	say(w, (struct link_packet){.what = LINK_FILE, .id = id, .state = LINK_FILE_CONTENT}, -1);
	turn(w);
	assert_true(w->gone);
	w->gone = false;
	send_probe(w, (struct link_packet){.what = LINK_FILE, .id = id, .state = LINK_FILE_CONTENT},
	    &probe);
	turn(w);
	assert_true(w->gone);
	assert_true(probe_is_closed(&probe));
}

/* Once, and then there is nothing to end. */
static void test_a_refused_follow_is_told(void **state)
{
	struct world *w = *state;
	char byte;

	w->follow = link_follow(w->p, LINK_FOLLOW_ROOT, NULL, 9, on_changed, w);
	uint32_t id = heard(w, LINK_FOLLOW, NULL).id;
	say(w,
	    (struct link_packet){
		.what = LINK_REPLY, .id = id, .code = ENOENT, .why = "there is no --root-file"},
	    -1);
	turn(w);
	assert_true(w->gone);
	assert_string_equal(w->e.msg, "there is no --root-file");
	push(w, id, "", "nobody's");
	assert_int_equal(w->changed, 1);
	link_unfollow(&w->follow);
	assert_int_equal(recv(w->peer, &byte, 1, MSG_DONTWAIT), -1);
}

static void test_a_follow_may_end_in_its_callback(void **state)
{
	struct world *w = *state;
	uint32_t id = start_follow(w, LINK_FOLLOW_TOKEN, on_changed_end);

	push(w, id, "", "one");
	assert_null(w->follow);
	assert_int_equal(heard(w, LINK_UNFOLLOW, NULL).arg, id);
	int before = open_fds();
	push(w, id, "", "two"); /* was under way */
	assert_int_equal(w->changed, 1);
	assert_int_equal(open_fds(), before);
}

static void test_everything_may_end_in_a_callback(void **state)
{
	struct world *w = *state;
	uint32_t id = start_follow(w, LINK_FOLLOW_TOKEN, on_changed_free);

	push(w, id, "", "one");
	assert_int_equal(w->changed, 1);
	assert_null(w->p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    T(test_each_state_of_a_file),
	    T(test_bad_content_is_an_error),
	    T(test_a_refused_follow_is_told),
	    T(test_a_follow_may_end_in_its_callback),
	    T(test_everything_may_end_in_a_callback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
