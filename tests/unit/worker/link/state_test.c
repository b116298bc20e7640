/* state_test.c - what the worker has kept, as the broker gets it and gives it back.
 *
 * LINK: tests/fake/loop.c tests/fake/secrets.c tests/unit/broker/rig.c tests/unit/worker/link/world.c tests/unit/open_fds.c
 */
#include "tests/fake/secrets.h"
#include "tests/unit/open_fds.h"
#include "world.h"
#include <sys/resource.h>

static const uint8_t id[LINK_STATE_ID_SIZE] = {1, 2, [31] = 3};
static const struct link_kept secret = {
    .kind = LINK_STATE_CERT_IN_MEMORY, .id = id, .data = "SECRET", .size = 6};

static struct {
	unsigned found, ended;
	bool failed, cancels, frees;
	char data[32], why[64];
} seen;

static void on_found(void *ctx, const struct link_kept *k)
{
	struct world *w = ctx;

	if (!k->data) {
		assert_null(w->slot); /* R3 */
		seen.ended++;
		seen.failed = k->e;
		snprintf(seen.why, sizeof(seen.why), "%s", k->e ? k->e->msg : "");
		return;
	}
	seen.found++;
	assert_int_equal(k->kind, LINK_STATE_CERT);
	assert_memory_equal(k->id, id, sizeof(id));
	assert_int_equal(k->data[k->size], '\0');
	snprintf(seen.data, sizeof(seen.data), "%s", k->data);
	if (seen.cancels)
		link_call_cancel(&w->slot);
	if (seen.frees)
		link_free(&w->p);
}

static uint32_t start_list(struct world *w)
{
	memset(&seen, 0, sizeof(seen));
	link_state_list(w->p, &w->slot, LINK_STATE_CERT, on_found, w);
	struct link_request q = heard(w, LINK_STATE_LIST, NULL);
	assert_int_equal(q.kind, LINK_STATE_CERT);
	return q.id;
}

static void tell_entry(struct world *w, uint32_t call, const char *text)
{
	struct link_packet p = {.what = LINK_STATE, .id = call, .kind = LINK_STATE_CERT};
	int fd = rig_memfd(text, strlen(text), RIG_SEALS);

	memcpy(p.state_id, id, sizeof(id));
	say(w, p, fd);
	close(fd);
	turn(w);
}

static void test_a_list_is_told_entry_by_entry(void **state)
{
	struct world *w = *state;
	int before = open_fds();
	uint32_t call = start_list(w);

	secrets_watch();
	tell_entry(w, call, "SECRET one");
	assert_string_equal(seen.data, "SECRET one");
	tell_entry(w, call, "");
	tell_entry(w, call + 1, "nobody's");
	assert_int_equal(seen.found, 2);
	assert_int_equal(seen.ended, 0);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = call}, -1);
	turn(w);
	assert_int_equal(seen.ended, 1);
	assert_false(seen.failed);
	assert_int_equal(open_fds(), before);
	assert_int_equal(secrets_freed(), 0);
}

static void test_a_list_may_fail(void **state)
{
	struct world *w = *state;
	uint32_t call = start_list(w);

	say(w, (struct link_packet){.what = LINK_REPLY, .id = call, .code = EIO, .why = "the disk"},
	    -1);
	turn(w);
	assert_int_equal(seen.ended, 1);
	assert_string_equal(seen.why, "the disk");
}

/* R5, and what is still under way then. */
static void test_a_list_may_be_ended_inside_its_callback(void **state)
{
	struct world *w = *state;
	int before = open_fds();
	uint32_t call = start_list(w);

	seen.cancels = true;
	tell_entry(w, call, "one");
	tell_entry(w, call, "two");
	say(w, (struct link_packet){.what = LINK_REPLY, .id = call}, -1);
	turn(w);
	assert_int_equal(seen.found, 1);
	assert_int_equal(seen.ended, 0);
	assert_int_equal(open_fds(), before);
	call = start_list(w);
	seen.frees = true;
	tell_entry(w, call, "one");
	assert_null(w->p);
	assert_null(w->slot);
}

/* Of another kind of request, or without its content. */
static void test_what_is_no_entry_is_ignored(void **state)
{
	struct world *w = *state;
	int before = open_fds();
	struct probe probe;

	link_pod_add(w->p, &w->slot, &rig_pod, on_added, w);
	uint32_t call = heard(w, LINK_POD_ADD, NULL).id;
	tell_entry(w, call, "x");
	assert_int_equal(w->done, 0);
	link_call_cancel(&w->slot);
	call = start_list(w);
	say(w, (struct link_packet){.what = LINK_STATE, .id = call}, -1);
	send_probe(w, (struct link_packet){.what = LINK_STATE, .id = call}, &probe); /* a pipe */
	turn(w);
	turn(w);
	assert_int_equal(seen.found, 0);
	assert_true(probe_is_closed(&probe));
	link_call_cancel(&w->slot);
	assert_int_equal(open_fds(), before);
}

static void test_a_put_is_sealed_and_answered(void **state)
{
	struct world *w = *state;
	char got[16] = "";
	int fd;

	secrets_watch();
	link_state_put(w->p, &w->slot, &secret, on_done, w);
	struct link_request q = heard(w, LINK_STATE_PUT, &fd);
	assert_int_equal(q.kind, LINK_STATE_CERT_IN_MEMORY);
	assert_memory_equal(q.state_id, id, sizeof(id));
	assert_int_equal(fcntl(fd, F_GET_SEALS) & RIG_SEALS, RIG_SEALS);
	assert_int_equal(pread(fd, got, sizeof(got), 0), 6);
	assert_string_equal(got, "SECRET");
	close(fd);
	say(w,
	    (struct link_packet){
		.what = LINK_REPLY, .id = q.id, .code = ENOSPC, .why = "64 MiB already"},
	    -1);
	turn(w);
	assert_true(w->done == 1 && w->failed && w->e.code == ENOSPC);
	link_state_put(w->p, &w->slot, &secret, on_done, w);
	q = heard(w, LINK_STATE_PUT, &fd);
	close(fd);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, -1);
	turn(w);
	assert_true(w->done == 2 && !w->failed);
	assert_int_equal(secrets_freed(), 0);
}

/* Out of descriptors it is an answer like another, later, and nothing is sent. */
static void test_a_put_without_descriptors_fails(void **state)
{
	struct world *w = *state;
	struct rlimit before, none;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	for (int cancel = 0; cancel < 2; cancel++) {
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
		link_state_put(w->p, &w->slot, &secret, on_done, w);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		assert_int_equal(w->done, cancel);
		if (cancel)
			link_call_cancel(&w->slot);
		turn(w);
		assert_int_equal(w->done, 1);
		assert_int_equal(w->e.code, EMFILE);
	}
	char byte;
	assert_int_equal(recv(w->peer, &byte, 1, MSG_DONTWAIT), -1);
}

static void test_a_delete_is_waited_for_by_nobody(void **state)
{
	struct world *w = *state;

	link_state_del(w->p, LINK_STATE_CERT, id);
	struct link_request q = heard(w, LINK_STATE_DEL, NULL);
	assert_int_equal(q.kind, LINK_STATE_CERT);
	assert_memory_equal(q.state_id, id, sizeof(id));
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id, .code = EROFS, .why = "x"}, -1);
	turn(w);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(test_a_list_is_told_entry_by_entry),
	    T(test_a_list_may_fail),
	    T(test_a_list_may_be_ended_inside_its_callback),
	    T(test_what_is_no_entry_is_ignored),
	    T(test_a_put_is_sealed_and_answered),
	    T(test_a_put_without_descriptors_fails),
	    T(test_a_delete_is_waited_for_by_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
