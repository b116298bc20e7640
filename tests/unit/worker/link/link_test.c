/* link_test.c - the worker's end: greeting, calls, the end; and once a real broker.
 *
 * LINK: tests/fake/loop.c tests/unit/broker/rig.c tests/unit/worker/link/world.c tests/unit/open_fds.c
 */
#include "common/err.h"
#include "common/log.h"
#include "tests/unit/open_fds.h"
#include "worker/link/calls.h"
#include "worker/link/ready.h"
#include "world.h"
#include <sys/resource.h>

/* --- greeting --- */

static void expect_no_greeting(
    const struct link_packet *packets, int n, bool with_fd, const char *why)
{
	struct world w = {.l = fake_loop()};
	struct err e = {0};
	int fd, before = open_fds();

	connect_peer(&w, &fd);
	for (int i = 0; i < n; i++)
		say(&w, packets[i], i && with_fd ? 0 : -1);
	shutdown(w.peer, SHUT_WR);
	assert_null(link_new(w.l, fd, on_lost, &w, &e));
	if (!strstr(e.msg, why))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, why);
	close(w.peer);
	fake_loop_end(&w.l);
	assert_int_equal(open_fds(), before);
}

static void test_greeting_is_checked(void **state)
{
	struct link_packet other = hello;

	(void)state;
	other.arg = LINK_VERSION + 1;
	expect_no_greeting(NULL, 0, false, "went away");
	expect_no_greeting(&other, 1, false, "of different releases");
	expect_no_greeting(&admin, 1, false, "of different releases");
	expect_no_greeting((struct link_packet[]){hello}, 1, false, "went away");
	expect_no_greeting(
	    (struct link_packet[]){hello, admin}, 2, false, "did not send a listener");
	expect_no_greeting(
	    (struct link_packet[]){hello, hello}, 2, true, "did not send a listener");
	other = admin;
	other.kind = LINK_NODE_LISTENER_END;
	expect_no_greeting(
	    (struct link_packet[]){hello, other}, 2, true, "did not send a listener");
}

static void test_no_socket_is_an_error(void **state)
{
	struct loop *l = fake_loop();
	struct err e = {0};

	(void)state;
	assert_null(link_new(l, open("/dev/null", O_RDONLY | O_CLOEXEC), on_lost, NULL, &e));
	assert_non_null(strstr(e.msg, "greeting of the broker"));
	fake_loop_end(&l);
}

static void test_a_listener_is_taken_once(void **state)
{
	struct world *w = *state;
	int fd = link_take_listener(w->p, LINK_NODE_ADMIN);

	assert_true(fd >= 0);
	assert_int_equal(link_take_listener(w->p, LINK_NODE_ADMIN), -1);
	close(fd);
}

/* --- calls --- */

static void test_done_runs_once_with_an_empty_slot(void **state)
{
	struct world *w = *state;

	link_pod_add(w->p, &w->slot, &rig_pod, on_added, w);
	assert_int_equal(w->done, 0); /* R2 */
	assert_non_null(w->slot);
	struct link_request q = heard(w, LINK_POD_ADD, NULL);
	assert_true(uuid_equal(&q.uid, &rig_pod));
	assert_int_not_equal(q.id, 0);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, -1);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, -1); /* nobody's */
	turn(w);
	assert_int_equal(w->done, 1);
	assert_false(w->failed);
}

/* The broker keeps what a pod holds, and says how long its connections have to wait for it. */
static void test_what_pods_hold(void **state)
{
	struct world *w = *state;

	link_pod_holds(w->p, &w->slot, &rig_pod, 3000 * 1024 + 1023, on_done, w);
	struct link_request q = heard(w, LINK_HOLDS, NULL);
	assert_true(uuid_equal(&q.uid, &rig_pod));
	assert_int_equal(q.arg, 3000);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, -1);
	turn(w);
	link_pod_add(w->p, &w->slot, &rig_pod, on_added, w);
	q = heard(w, LINK_POD_ADD, NULL);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id, .arg = 20}, -1);
	turn(w);
	assert_int_equal(w->wait_s, 20);
	link_pod_add(w->p, &w->slot, &rig_pod, on_added, w);
	q = heard(w, LINK_POD_ADD, NULL);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id, .arg = 20, .code = 1}, -1);
	turn(w);
	assert_true(w->failed);
	assert_int_equal(w->wait_s, 0);
}

static void test_a_callback_may_use_the_slot_again(void **state)
{
	struct world *w = *state;

	w->again = true;
	link_pod_add(w->p, &w->slot, &rig_pod, on_added, w);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = heard(w, LINK_POD_ADD, NULL).id}, -1);
	turn(w);
	assert_int_equal(w->done, 1);
	assert_non_null(w->slot);
	struct link_request q = heard(w, LINK_POD_ADD, NULL);
	assert_true(uuid_equal(&q.uid, &rig_other));
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, -1);
	turn(w);
	assert_int_equal(w->done, 2);
}

static void test_a_refusal_carries_the_brokers_words(void **state)
{
	struct world *w = *state;
	struct probe probe;

	link_listen(w->p, &w->slot, &rig_pod, LINK_LISTEN_XDS, on_listening, w);
	struct link_request q = heard(w, LINK_LISTEN, NULL);
	assert_int_equal(q.kind, LINK_LISTEN_XDS);
	send_probe(w,
	    (struct link_packet){
		.what = LINK_REPLY, .id = q.id, .code = ENOSPC, .why = "no room in it"},
	    &probe);
	turn(w);
	assert_true(w->failed);
	assert_int_equal(w->e.code, ENOSPC);
	assert_string_equal(w->e.msg, "no room in it");
	assert_int_equal(w->fd, -1);
	assert_true(probe_is_closed(&probe));
}

static void test_listen_hands_the_socket_over(void **state)
{
	struct world *w = *state;
	struct probe probe;

	link_listen(w->p, &w->slot, &rig_pod, LINK_LISTEN_SDS, on_listening, w);
	send_probe(w,
	    (struct link_packet){.what = LINK_REPLY, .id = heard(w, LINK_LISTEN, NULL).id}, &probe);
	turn(w);
	assert_int_equal(w->done, 1);
	assert_true(w->fd >= 0);
	assert_true(fcntl(w->fd, F_GETFD) & FD_CLOEXEC);
	close(w->fd);
	assert_true(probe_is_closed(&probe));
}

static void test_dial_hands_a_socket_over(void **state)
{
	struct world *w = *state;
	struct probe probe;

	link_dial(w->p, &w->slot, &rig_pod,
	    (struct link_socket){.kind = LINK_DIAL_TCP, .family = AF_INET6}, on_listening, w);
	struct link_request q = heard(w, LINK_DIAL, NULL);
	assert_int_equal(q.kind, LINK_DIAL_TCP);
	assert_int_equal(q.arg, AF_INET6);
	assert_true(uuid_equal(&q.uid, &rig_pod));
	send_probe(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, &probe);
	turn(w);
	assert_int_equal(w->done, 1);
	assert_true(w->fd >= 0);
	close(w->fd);
	assert_true(probe_is_closed(&probe));
}

/* A broker that says yes but sends no socket: an error, never fd -1 as success. */
static void test_listen_without_a_socket_fails(void **state)
{
	struct world *w = *state;

	link_listen(w->p, &w->slot, &rig_pod, LINK_LISTEN_SDS, on_listening, w);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = heard(w, LINK_LISTEN, NULL).id}, -1);
	turn(w);
	assert_true(w->failed);
}

static void test_a_late_answers_fd_is_closed(void **state)
{
	struct world *w = *state;
	struct probe probe;

	link_listen(w->p, &w->slot, &rig_pod, LINK_LISTEN_SDS, on_listening, w);
	uint32_t id = heard(w, LINK_LISTEN, NULL).id;
	link_call_cancel(&w->slot);
	assert_null(w->slot);
	link_call_cancel(&w->slot); /* R4 */
	send_probe(w, (struct link_packet){.what = LINK_REPLY, .id = id}, &probe);
	turn(w);
	assert_int_equal(w->done, 0);
	assert_true(probe_is_closed(&probe));
}

/* Fds nobody expects: on an answer without, on a packet of an unknown kind, on an unknown id. */
static void test_surplus_fds_are_closed(void **state)
{
	struct world *w = *state;
	struct probe a, b, c;

	link_pod_add(w->p, &w->slot, &rig_pod, on_added, w);
	uint32_t id = heard(w, LINK_POD_ADD, NULL).id;
	send_probe(w, (struct link_packet){.what = 77}, &b);
	send_probe(w, (struct link_packet){.what = LINK_FILE, .id = 4711}, &c);
	send_probe(w, (struct link_packet){.what = LINK_REPLY, .id = id}, &a);
	turn(w);
	assert_int_equal(w->done, 1);
	assert_true(probe_is_closed(&a) && probe_is_closed(&b) && probe_is_closed(&c));
}

/* `attest: require` goes with each question. */
static void test_attestation_may_be_required(void **state)
{
	struct world *w = *state;
	struct link_packet p = {.what = LINK_REPLY, .why = "no cgroup is named"};
	struct probe probe;
	int mine = probe_new(&probe), sent;

	link_require_attestation(w->p);
	link_peer_of(w->p, &w->slot, &rig_pod, mine, on_netns, w);
	struct link_request asked = heard(w, LINK_PEER_OF, &sent);
	assert_int_equal(asked.arg, LINK_ATTEST_REQUIRE);
	p.id = asked.id;
	say(w, p, -1);
	turn(w);
	assert_int_equal(w->cgroup_id, 0);
	assert_string_equal(w->unknown, "no cgroup is named");
	close(mine);
	close(sent);
	assert_true(probe_is_closed(&probe));
}

static void test_netns_answer(void **state)
{
	struct world *w = *state;
	struct link_packet p = {.what = LINK_REPLY,
	    .netns_cookie = 0x123456789abc,
	    .cgroup_id = 77,
	    .why = "not said of one that is known",
	    .naddresses = 2,
	    .addresses = {{AF_INET, {10, 1, 2, 3}}, {AF_INET6, {0xfd}}}};
	struct probe probe;
	int mine = probe_new(&probe), sent;

	link_peer_of(w->p, &w->slot, &rig_pod, mine, on_netns, w);
	struct link_request asked = heard(w, LINK_PEER_OF, &sent);
	assert_int_equal(asked.arg, LINK_ATTEST_PREFER);
	p.id = asked.id;
	assert_int_not_equal(fcntl(mine, F_GETFD), -1); /* still the caller's */
	say(w, p, -1);
	turn(w);
	assert_int_equal(w->cookie, 0x123456789abc);
	assert_int_equal(w->cgroup_id, 77);
	assert_string_equal(w->unknown, "");
	assert_int_equal(w->naddresses, 2);
	assert_int_equal(w->first_byte, 10);
	close(mine);
	close(sent);

	p.naddresses = 4000000000u; /* never read beyond the packet */
	link_peer_of(w->p, &w->slot, &rig_pod, 0, on_netns, w);
	p.id = heard(w, LINK_PEER_OF, &sent).id;
	close(sent);
	say(w, p, -1);
	turn(w);
	assert_int_equal(w->naddresses, LINK_ADDRESSES_MAX);
	close(probe.read_end);
}

/* Nobody waits, and nobody repeats it. */
static void ask_anything(struct world *w)
{
	const struct link_request q = {.op = LINK_POD_REMOVE, .uid = rig_pod};

	link_ask(w->p, NULL, &q, -1, NULL, NULL);
}

static void test_write_sends_sealed_bytes(void **state)
{
	struct world *w = *state;
	char got[16] = "";
	int fd;

	link_write(w->p, &w->slot, &rig_pod, &(struct link_written){LINK_FILE_ROOT, "a\0b", 3},
	    on_done, w);
	struct link_request q = heard(w, LINK_WRITE, &fd);
	assert_int_equal(q.kind, LINK_FILE_ROOT);
	assert_int_equal(pread(fd, got, sizeof(got), 0), 3);
	assert_memory_equal(got, "a\0b", 3);
	assert_int_equal(fcntl(fd, F_GET_SEALS) & RIG_SEALS, RIG_SEALS);
	close(fd);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id, .code = EIO, .why = "broken"},
	    -1);
	turn(w);
	assert_int_equal(w->done, 1);
	assert_int_equal(w->e.code, EIO);
	assert_string_equal(w->e.msg, "broken");
	link_write(w->p, &w->slot, &rig_pod, &(struct link_written){LINK_FILE_BOOTSTRAP, "", 0},
	    on_done, w);
	q = heard(w, LINK_WRITE, &fd);
	close(fd);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, -1);
	turn(w);
	assert_int_equal(w->done, 2);
	assert_false(w->failed);
}

static void on_pod_noted(void *ctx, const struct link_pod_note *n)
{
	struct world *w = ctx;

	w->changed++;
	w->size = n->lost;
	w->naddresses = n->restored;
	note(w, n->why);
}

static void test_notes_of_a_pod_go_to_its_owner(void **state)
{
	struct world *w = *state;
	struct link_packet p = {.what = LINK_POD_NOTE,
	    .uid = rig_pod,
	    .arg = 2,
	    .state = 7,
	    .code = EROFS,
	    .why = "no"};

	link_on_pod(w->p, &rig_pod, on_pod_noted, w);
	say(w, p, -1);
	turn(w);
	assert_int_equal(w->changed, 1);
	assert_int_equal(w->size, 2);
	assert_int_equal(w->naddresses, 7);
	assert_int_equal(w->e.code, EROFS);
	p.code = 0;
	say(w, p, -1);
	turn(w);
	assert_false(w->failed);
	p.uid = rig_other;
	say(w, p, -1);
	link_on_pod(w->p, &rig_pod, NULL, NULL);
	p.uid = rig_pod;
	say(w, p, -1);
	turn(w);
	turn(w);
	assert_int_equal(w->changed, 2);
}

/* --- until it is done --- */

static void refuse_with(struct world *w, const struct link_request *q, int code, const char *why)
{
	struct link_packet p = {.what = LINK_REPLY, .id = q->id, .code = code};

	snprintf(p.why, sizeof(p.why), "%s", why);
	say(w, p, -1);
	turn(w);
}

static void refuse(struct world *w, const struct link_request *q)
{
	refuse_with(w, q, EIO, "broken");
}

/* The pod is still there: it mends itself, and is a problem only if it does not. */
static void test_what_will_be_over_soon_is_no_problem(void **state)
{
	struct world *w = *state;
	struct link_request q;
	struct err why;

	link_pod_remove(w->p, &rig_pod);
	q = heard(w, LINK_POD_REMOVE, NULL);
	refuse_with(w, &q, EBUSY, "its manifest is there");
	assert_int_equal(link_insists(w->p, &why), 0);
	fake_loop_advance(w->l, 9999);
	assert_int_equal(link_insists(w->p, &why), 0);
	fake_loop_advance(w->l, 1);
	assert_int_equal(link_insists(w->p, &why), 1);
	assert_string_equal(why.msg, "remove the pod's directory: its manifest is there");
	q = heard(w, LINK_POD_REMOVE, NULL); /* asked again meanwhile */
	refuse_with(w, &q, EIO, "broken");
	assert_int_equal(link_insists(w->p, &why), 1);
	fake_loop_advance(w->l, 5000);
	q = heard(w, LINK_POD_REMOVE, NULL);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, -1);
	turn(w);
	assert_int_equal(link_insists(w->p, &why), 0);
}

static void test_nobody_waits_so_it_is_repeated(void **state)
{
	struct world *w = *state;
	struct link_request q;
	struct err why;

	link_pod_remove(w->p, &rig_pod);
	link_pod_remove(w->p, &rig_pod); /* the same */
	for (int i = 0; i < 10; i++) {
		q = heard(w, LINK_POD_REMOVE, NULL);
		assert_int_equal(link_insists(w->p, &why), i > 0);
		refuse(w, &q);
		assert_int_equal(link_insists(w->p, &why), 1);
		assert_string_equal(why.msg, "remove the pod's directory: broken");
		assert_int_equal(recv(w->peer, &q, sizeof(q), MSG_DONTWAIT), -1);
		fake_loop_advance(w->l, 10 * 1000); /* 8 s and a fifth, at most */
	}
	q = heard(w, LINK_POD_REMOVE, NULL);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id}, -1);
	turn(w);
	assert_int_equal(link_insists(w->p, &why), 0);
	fake_loop_advance(w->l, 3600 * 1000);
	assert_int_equal(recv(w->peer, &q, sizeof(q), MSG_DONTWAIT), -1);
}

/* A pod that is back must not lose its directory, nor an entry that was put its content. */
static void test_what_takes_its_place_ends_it(void **state)
{
	static const uint8_t id[LINK_STATE_ID_SIZE] = {1}, another[LINK_STATE_ID_SIZE] = {2};
	const struct link_kept k = {.kind = LINK_STATE_POD, .id = id, .data = "x", .size = 1};
	struct world *w = *state;
	struct link_request q;
	struct err why;
	int fd;

	link_pod_remove(w->p, &rig_pod);
	q = heard(w, LINK_POD_REMOVE, NULL);
	refuse(w, &q);
	link_pod_add(w->p, &w->slot, &rig_pod, on_added, w);
	heard(w, LINK_POD_ADD, NULL);
	link_state_del(w->p, LINK_STATE_POD, id);
	q = heard(w, LINK_STATE_DEL, NULL);
	refuse(w, &q);
	link_state_del(w->p, LINK_STATE_POD, another);
	q = heard(w, LINK_STATE_DEL, NULL);
	refuse(w, &q);
	link_call_cancel(&w->slot);
	link_state_put(w->p, &w->slot, &k, on_done, w);
	heard(w, LINK_STATE_PUT, &fd);
	close(fd);
	assert_int_equal(link_insists(w->p, &why), 1); /* the other entry */
	fake_loop_advance(w->l, 3600 * 1000);
	q = heard(w, LINK_STATE_DEL, NULL);
	assert_int_equal(q.state_id[0], 2);
	assert_int_equal(recv(w->peer, &q, sizeof(q), MSG_DONTWAIT), -1);
}

static void removal_is(struct world *w, int code)
{
	struct link_request q = heard(w, LINK_POD_REMOVE, NULL);

	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id, .code = code, .why = "it runs"},
	    -1);
	turn(w);
}

static bool is_asked(struct world *w)
{
	struct broker_request in;
	struct err why;

	return broker_io_receive(w->peer, &in, &why) == BROKER_GOT_REQUEST;
}

/* A kubelet may unpublish before the pod's last process is gone. */
static void test_a_removal_is_asked_for_again(void **state)
{
	struct world *w = *state;
	struct err why;

	link_pod_remove(w->p, &rig_pod);
	for (int i = 0; i < 3; i++) {
		removal_is(w, EBUSY);
		assert_false(is_asked(w));
		fake_loop_advance(w->l, 36000);
	}
	removal_is(w, 0);
	fake_loop_advance(w->l, 100000);
	assert_false(is_asked(w));
	link_pod_remove(w->p, &rig_pod);
	removal_is(w, ENOTEMPTY); /* it would be the same again */
	assert_int_equal(link_insists(w->p, &why), 0);
	fake_loop_advance(w->l, 100000);
	assert_false(is_asked(w));
}

/* What is asked for again must not end the pod's next life. */
static void test_who_is_added_again_is_not_removed(void **state)
{
	struct world *w = *state;

	link_pod_remove(w->p, &rig_pod);
	removal_is(w, EBUSY);
	fake_loop_advance(w->l, 36000);
	link_pod_add(w->p, &w->slot, &rig_pod, on_added, w);
	removal_is(w, EBUSY); /* it was on its way */
	heard(w, LINK_POD_ADD, NULL);
	fake_loop_advance(w->l, 100000);
	assert_false(is_asked(w));
}

/* --- the end --- */

static void test_lost_is_told_once(void **state)
{
	struct world *w = *state;

	link_pod_add(w->p, &w->slot, &rig_pod, on_added, w);
	shutdown(w->peer, SHUT_RDWR);
	turn(w);
	turn(w);
	assert_int_equal(w->lost, 1);
	assert_int_equal(w->done, 0);
	struct link_call *more = NULL;
	link_pod_add(w->p, &more, &rig_other, on_added, w); /* goes nowhere */
	turn(w);
	link_call_cancel(&more);
	assert_int_equal(w->lost, 1);
}

static void test_a_malformed_packet_is_the_end(void **state)
{
	struct world *w = *state;
	struct probe probe;
	int fd = probe_new(&probe);
	struct rig r = {.fd = w->peer};

	rig_send(&r, "short", 5, &fd, 1);
	close(fd);
	turn(w);
	assert_int_equal(w->lost, 1);
	assert_true(probe_is_closed(&probe));
}

/* The room for one fd has padding that holds a second: the kernel calls nothing cut. */
static void test_a_packet_with_two_fds_is_the_end(void **state)
{
	struct world *w = *state;
	struct probe probe;
	int fd = probe_new(&probe), twice[] = {fd, fd};
	struct link_packet p = {.what = LINK_REPLY, .id = 1};
	struct rig r = {.fd = w->peer};

	rig_send(&r, &p, sizeof(p), twice, 2);
	close(fd);
	turn(w);
	assert_int_equal(w->lost, 1);
	assert_true(probe_is_closed(&probe));
}

/* What does not fit waits in order, its fd with it. */
static void test_requests_wait_while_the_socket_is_full(void **state)
{
	struct world *w = *state;
	struct probe probe;
	int fd = probe_new(&probe), got, n = 0;
	struct broker_request in = {0};
	struct err why;

	for (int i = 0; i < 2000; i++)
		ask_anything(w);
	for (; n < 10; n++) /* there is room again, but others came first */
		heard(w, LINK_POD_REMOVE, NULL);
	link_peer_of(w->p, &w->slot, &rig_pod, fd, on_netns, w);
	close(fd);
	link_write(w->p, &w->slot, &rig_pod, &(struct link_written){LINK_FILE_ROOT, "last", 4},
	    on_done, w);
	while (n < 2000) {
		while (broker_io_receive(w->peer, &in, &why) == BROKER_GOT_REQUEST &&
		       in.r.op == LINK_POD_REMOVE)
			n++;
		turn(w);
	}
	assert_int_equal(n, 2000);
	if (in.r.op != LINK_PEER_OF)
		assert_int_equal(broker_io_receive(w->peer, &in, &why), BROKER_GOT_REQUEST);
	assert_int_equal(in.r.op, LINK_PEER_OF);
	close(in.fd);
	assert_true(probe_is_closed(&probe));
	heard(w, LINK_WRITE, &got);
	close(got);
}

/* Without its fd the request would break the protocol, and the broker would kill us. */
static void test_full_and_out_of_descriptors_is_told(void **state)
{
	struct world *w = *state;
	struct rlimit files;
	struct probe probe;
	int fd = probe_new(&probe);

	for (int i = 0; i < 2000; i++)
		ask_anything(w);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){3, files.rlim_max}), 0);
	link_peer_of(w->p, &w->slot, &rig_pod, fd, on_netns, w);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	close(fd);
	assert_int_equal(w->done, 0); /* R2 */
	turn(w);
	assert_int_equal(w->done, 1);
	assert_int_equal(w->e.code, EMFILE);
	for (int n = 0; n < 2000; turn(w)) {
		struct broker_request in;
		struct err why;
		while (broker_io_receive(w->peer, &in, &why) == BROKER_GOT_REQUEST) {
			assert_int_equal(in.r.op, LINK_POD_REMOVE);
			n++;
		}
	}
	turn(w);
	char byte;
	assert_int_equal(recv(w->peer, &byte, 1, MSG_DONTWAIT), -1);
	assert_true(probe_is_closed(&probe));
}

static void test_free_closes_what_still_waits(void **state)
{
	struct world *w = *state;
	struct probe probe;
	int fd = probe_new(&probe);

	for (int i = 0; i < 2000; i++)
		ask_anything(w);
	link_peer_of(w->p, &w->slot, &rig_pod, fd, on_netns, w);
	close(fd);
	link_free(&w->p);
	assert_null(w->slot);
	assert_true(probe_is_closed(&probe));
}

static void on_relisten(void *ctx, enum link_listener kind, int fd)
{
	struct world *w = ctx;

	assert_int_equal(kind, LINK_LISTEN_XDS);
	w->done++;
	w->fd = fd;
}

static void test_ready_and_pong_are_said(void **state)
{
	struct world *w = *state;

	link_ready(w->p);
	assert_int_not_equal(heard(w, LINK_READY, NULL).id, 0);
	link_served(w->p, 3, "a/b: ads: refused\n");
	char text[32] = "";
	int fd;
	assert_int_equal(heard(w, LINK_SERVED, &fd).arg, 3);
	assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), 18);
	assert_string_equal(text, "a/b: ads: refused\n");
	close(fd);
	say(w, (struct link_packet){.what = LINK_PING, .arg = 77}, -1);
	turn(w);
	struct link_request pong = heard(w, LINK_PONG, NULL);
	assert_int_equal(pong.arg, 77);
	assert_int_not_equal(pong.id, 0);
	say(w, (struct link_packet){.id = pong.id, .what = LINK_REPLY}, -1); /* nobody waits */
	turn(w);
	assert_int_equal(w->lost, 0);
}

static void on_added_and_free(void *ctx, const struct err *e, unsigned wait_s)
{
	struct world *w = ctx;

	(void)e, (void)wait_s;
	if (++w->done == 3)
		link_free(&w->p);
}

/* What pods want of the loop: something in each turn. */
struct work {
	struct loop_fd watch;
	int ends[2], turns, pings, last_turn;
};

static void on_work(void *ctx)
{
	struct work *k = ctx;
	char byte;

	k->turns++;
	assert_int_equal(read(k->ends[0], &byte, 1), 1);
}

static void on_pinged(void *ctx, const struct link_packet *ping)
{
	struct work *k = ctx;

	(void)ping;
	k->pings++;
	k->last_turn = k->turns;
}

/* A turn is long when pods have much to say.  A ping behind answers waits for one, not for each;
 * and pods wait for a bounded number of packets. */
static void test_a_turn_takes_what_is_there(void **state)
{
	enum { ANSWERS = 25, MANY = 80, TURNS = 100 };
	struct world *w = *state;
	struct work k = {0};

	assert_int_equal(pipe2(k.ends, O_CLOEXEC), 0);
	assert_int_equal(write(k.ends[1], (char[TURNS]){0}, TURNS), TURNS);
	loop_fd_watch(w->l, &k.watch, k.ends[0], LOOP_READ, on_work, &k);
	link_on_ping(w->p, on_pinged, &k);
	for (int i = 0; i < ANSWERS; i++)
		say(w, (struct link_packet){.what = LINK_REPLY, .id = 7000}, -1);
	say(w, (struct link_packet){.what = LINK_PING}, -1);
	turn(w);
	assert_int_equal(k.pings, 1);
	assert_in_range(k.last_turn, 0, 1);

	assert_int_equal(write(k.ends[1], (char[TURNS]){0}, TURNS), TURNS);
	const int before = k.turns;
	for (int i = 0; i < MANY; i++)
		say(w, (struct link_packet){.what = LINK_PING}, -1);
	turn(w);
	assert_int_equal(k.pings, 1 + MANY);
	assert_true(k.last_turn - before > 1);
	loop_fd_stop(&k.watch);
	close(k.ends[0]);
	close(k.ends[1]);
}

/* A callback frees the link while more packets are there. */
static void test_freed_between_packets(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 5; i++) {
		link_pod_add(w->p, NULL, &rig_pod, on_added_and_free, w);
		say(w,
		    (struct link_packet){.what = LINK_REPLY, .id = heard(w, LINK_POD_ADD, NULL).id},
		    -1);
	}
	turn(w);
	assert_int_equal(w->done, 3);
	assert_null(w->p);
}

/* What the scope "broker" has here. */
static void test_the_log_is_told(void **state)
{
	struct world *w = *state;
	struct link_request r;
	struct err e;

	log_init(true);
	assert_int_equal(log_set_levels("default:warn,broker:debug", &e), 0);
	link_log(w->p);
	r = heard(w, LINK_LOG, NULL);
	assert_true(r.kind == LINK_LOG_JSON && r.arg == LOG_DEBUG);
	log_init(false);
	assert_int_equal(log_set_levels("info", &e), 0);
	link_log(w->p);
	r = heard(w, LINK_LOG, NULL);
	assert_true(r.kind == LINK_LOG_LOGFMT && r.arg == LOG_INFO);
}

static void test_a_new_listener_goes_to_its_pod(void **state)
{
	struct link_packet p = {.what = LINK_LISTENER, .kind = LINK_LISTEN_XDS, .uid = rig_pod};
	struct world *w = *state;
	struct probe probe;

	send_probe(w, p, &probe);
	turn(w);
	assert_true(probe_is_closed(&probe)); /* nobody is there */
	link_on_relisten(w->p, &rig_pod, on_relisten, NULL);
	link_on_relisten(w->p, &rig_pod, on_relisten, w); /* the last one counts */
	send_probe(w, p, &probe);
	turn(w);
	assert_int_equal(w->done, 1);
	close(w->fd);
	assert_true(probe_is_closed(&probe));
	p.kind = LINK_LISTENER_END;
	send_probe(w, p, &probe);
	turn(w);
	assert_true(probe_is_closed(&probe));
	p.kind = LINK_LISTEN_XDS;
	say(w, p, -1); /* without the socket */
	p.uid = rig_other;
	send_probe(w, p, &probe);
	turn(w);
	assert_true(probe_is_closed(&probe));
	link_on_relisten(w->p, &rig_pod, NULL, NULL);
	p.uid = rig_pod;
	send_probe(w, p, &probe);
	turn(w);
	assert_true(probe_is_closed(&probe));
	assert_int_equal(w->done, 1);
	link_on_relisten(w->p, &rig_pod, on_relisten, w); /* freed with the rest */
	w->fd = -1;
}

/* --- with a real broker --- */

struct both {
	struct rig *rig;
	struct world w;
};

static void run_both(struct both *b)
{
	for (int i = 0; i < RIG_TURNS; i++) {
		broker_turn(b->rig->b, 0);
		fake_loop_advance(b->w.l, 0);
	}
}

static void test_the_story_of_a_pod(void **state)
{
	struct both b = {.rig = *state, .w = {.fd = -1}};
	struct err e = {0};

	b.w.l = fake_loop();
	close(b.rig->fd);
	int fd = rig_attach(b.rig);
	b.w.p = link_new(b.w.l, fd, on_lost, &b.w, &e);
	if (!b.w.p)
		fail_msg("%s", e.msg);

	link_listen(b.w.p, &b.w.slot, &rig_pod, LINK_LISTEN_SDS, on_listening, &b.w);
	run_both(&b);
	assert_true(b.w.failed && strstr(b.w.e.msg, "not added"));
	link_pod_add(b.w.p, &b.w.slot, &rig_pod, on_added, &b.w);
	run_both(&b);
	assert_false(b.w.failed);
	link_listen(b.w.p, &b.w.slot, &rig_pod, LINK_LISTEN_SDS, on_listening, &b.w);
	run_both(&b);
	int c = rig_connect(rig_mount(b.rig, "socket")), a = accept(b.w.fd, NULL, NULL);
	assert_true(c >= 0 && a >= 0);
	link_peer_of(b.w.p, &b.w.slot, &rig_pod, a, on_netns, &b.w);
	run_both(&b);
	assert_true(b.w.failed && strstr(b.w.e.msg, "own network namespace"));
	link_write(b.w.p, &b.w.slot, &rig_pod, &(struct link_written){LINK_FILE_BOOTSTRAP, "{}", 2},
	    on_done, &b.w);
	b.w.follow = link_follow(b.w.p, LINK_FOLLOW_TOKEN, &rig_pod, 0, on_changed, &b.w);
	run_both(&b);
	assert_int_equal(access(rig_mount(b.rig, "envoy-rev.json"), R_OK), 0);
	assert_true(b.w.gone && b.w.e.code == ENOENT);
	rig_shell("mkdir -p %s", rig_at(b.rig, "pods.d/%s", rig_pod_text));
	rig_file(rig_at(b.rig, "pods.d/%s/token", rig_pod_text), "jwt");
	run_both(&b);
	assert_string_equal(b.w.data, "jwt");
	link_unfollow(&b.w.follow);
	link_pod_remove(b.w.p, &rig_pod);
	run_both(&b);
	assert_int_equal(access(rig_mount(b.rig, ""), F_OK), -1);
	assert_int_equal(broker_turn(b.rig->b, 0), BROKER_SERVING); /* no rule was broken */
	close(a);
	close(c);
	close(b.w.fd);
	broker_free(&b.rig->b);
	fake_loop_advance(b.w.l, 0);
	assert_int_equal(b.w.lost, 1);
	link_free(&b.w.p);
	fake_loop_end(&b.w.l);
	b.rig->fd = -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    cmocka_unit_test(test_greeting_is_checked),
	    cmocka_unit_test(test_no_socket_is_an_error),
	    T(test_a_listener_is_taken_once),
	    T(test_done_runs_once_with_an_empty_slot),
	    T(test_a_callback_may_use_the_slot_again),
	    T(test_what_pods_hold),
	    T(test_a_refusal_carries_the_brokers_words),
	    T(test_listen_hands_the_socket_over),
	    T(test_dial_hands_a_socket_over),
	    T(test_listen_without_a_socket_fails),
	    T(test_a_late_answers_fd_is_closed),
	    T(test_surplus_fds_are_closed),
	    T(test_netns_answer),
	    T(test_attestation_may_be_required),
	    T(test_write_sends_sealed_bytes),
	    T(test_nobody_waits_so_it_is_repeated),
	    T(test_what_will_be_over_soon_is_no_problem),
	    T(test_what_takes_its_place_ends_it),
	    T(test_notes_of_a_pod_go_to_its_owner),
	    T(test_a_removal_is_asked_for_again),
	    T(test_who_is_added_again_is_not_removed),
	    T(test_lost_is_told_once),
	    T(test_a_malformed_packet_is_the_end),
	    T(test_a_packet_with_two_fds_is_the_end),
	    T(test_requests_wait_while_the_socket_is_full),
	    T(test_full_and_out_of_descriptors_is_told),
	    T(test_free_closes_what_still_waits),
	    T(test_ready_and_pong_are_said),
	    T(test_a_turn_takes_what_is_there),
	    T(test_freed_between_packets),
	    T(test_the_log_is_told),
	    T(test_a_new_listener_goes_to_its_pod),
	    cmocka_unit_test_setup_teardown(test_the_story_of_a_pod, rig_setup, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
