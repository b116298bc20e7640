/* wait_test.c - one thread sleeps for libevent and for grpc, and hears of both.
 *
 * LINK: tests/unit/rpc/rpc_rig.c */
#include "rpc_rig.h"

#include "rpc/rpc_internal.h"
#include "rpc/wait.h"

#include <event2/event.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static void prepare_echo(struct side *s)
{
	s->on_message = echo;
}

static void count(void *ctx)
{
	++*(unsigned *)ctx;
}

/* Both ends of a stream are up, and all that it takes was done. */
static void begin(struct rig *r)
{
	rig_begin(r);
	r->s.prepare = prepare_echo;
	rig_open(r, &r->client);
	rpc_send(r->client.stream, "one", 3);
	WAIT(r, r->client.messages == 1);
	rig_settle(r, 20);
}

/* --- what ends the sleep --- */

static void *write_later(void *ctx)
{
	usleep(20 * 1000); /* it sleeps by now; if not, nothing is missed */
	eventfd_write(*(int *)ctx, 1);
	return NULL;
}

static void test_a_descriptor_of_the_loop(void **state)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct loop_fd watch = {.loop = NULL};
	unsigned ready = 0;
	pthread_t writer;
	struct rig r;

	(void)state;
	begin(&r);
	loop_fd_watch(r.loop, &watch, fd, LOOP_READ, count, &ready);
	pthread_create(&writer, NULL, write_later, &fd);
	WAIT(&r, ready == 1);
	pthread_join(writer, NULL);
	loop_fd_stop(&watch);
	close(fd);
	rig_end(&r);
}

static void test_a_timer_and_a_post(void **state)
{
	struct loop_timer timer = {.loop = NULL};
	unsigned fired = 0, posted = 0;
	struct rig r;

	(void)state;
	begin(&r);
	loop_timer_in(r.loop, &timer, 30, count, &fired);
	WAIT(&r, fired == 1);
	loop_post(r.loop, count, &posted);
	WAIT(&r, posted == 1);
	rig_end(&r);
}

/* News of guard.c and tap.c, on another thread of grpc's and on ours. */
static void test_who_is_told_has_a_turn(void **state)
{
	pthread_t writer;
	struct rig r;

	(void)state;
	begin(&r);
	uint64_t wakes = r.rpc->wakes;

	pthread_create(&writer, NULL, write_later, &r.rpc->wait.wake_fd);
	WAIT(&r, r.rpc->wakes == wakes + 1);
	pthread_join(writer, NULL);
	rpc_wait_tell(r.rpc->wait.wake_fd);
	rig_turn(&r);
	assert_int_equal(r.rpc->wakes, wakes + 2);
	rig_spin(&r, 5);
	assert_int_equal(r.rpc->wakes, wakes + 2); /* once each */
	rig_end(&r);
}

/* In place of grpc: it begins with an event that is left of the wait before, whose bytes are read
 * and told before it asks the kernel. */
struct reader {
	struct rpc_wait wait;
	int set;
	unsigned stirred, woken;
};

static void read_and_sleep(struct rpc_wait *w, int ms)
{
	struct reader *g = tag_owner(w, struct reader, wait);
	struct epoll_event event;

	(void)ms;
	rpc_wait_tell(w->wake_fd);
	assert_int_equal(epoll_wait(g->set, &event, 1, -1), 0);
}

static void stirred(struct rpc_wait *w)
{
	tag_owner(w, struct reader, wait)->stirred++;
}

static void on_reader_woken(void *ctx)
{
	struct reader *g = ctx;

	g->wait.due = false;
	g->woken++;
}

static void test_who_was_told_before_does_not_sleep(void **state)
{
	struct reader g = {.set = epoll_create1(EPOLL_CLOEXEC),
	    .wait = {.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
		.sleep = read_and_sleep,
		.stir = stirred}};
	struct loop_fd watch = {.loop = NULL};
	struct err e;
	struct loop *l = loop_new(&e);

	(void)state;
	rpc_wait_begin(&g.wait);
	loop_fd_watch(l, &watch, g.wait.wake_fd, LOOP_READ, on_reader_woken, &g);
	alarm(60); /* it would sleep for ever */
	event_base_loop(loop_base(l), EVLOOP_ONCE);
	alarm(0);
	assert_int_equal(g.woken, 1);
	assert_int_equal(g.stirred, 1);
	loop_fd_stop(&watch);
	rpc_wait_end(&g.wait);
	loop_free(&l);
	close(g.wait.wake_fd);
	close(g.set);
}

/* Ended by grpc's own thread of timers. */
static void test_a_deadline_of_grpc(void **state)
{
	struct side c = {.stream = NULL};
	struct rig r;

	(void)state;
	begin(&r);
	r.s.prepare = NULL;
	rig_open_call(&r, &c, &(struct rpc_call){.method = "/test.Echo/Talk", .deadline_ms = 30});
	WAIT(&r, c.closes == 1);
	assert_int_equal(c.status, RPC_DEADLINE_EXCEEDED);
	rig_end(&r);
}

/* --- nobody starves --- */

static void again(struct side *s, const struct rpc_msg *m)
{
	rpc_forward(s->stream, m);
}

static void test_both_go_on(void **state)
{
	enum { MANY = 200 };
	int always = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	struct loop_fd watch = {.loop = NULL};
	struct loop_timer timer = {.loop = NULL};
	unsigned ready = 0, fired = 0;
	struct rig r;

	(void)state;
	begin(&r);
	r.client.on_message = again; /* there and back without end */
	rpc_send(r.client.stream, "x", 1);
	loop_fd_watch(r.loop, &watch, always, LOOP_READ, count, &ready);
	loop_timer_in(r.loop, &timer, 1, count, &fired);
	WAIT(&r, r.client.messages > MANY && ready > MANY && fired);
	/* A round of one is not many of the other. */
	unsigned before = ready, messages = r.client.messages;

	rig_spin(&r, MANY);
	assert_true(ready - before > MANY / 2);
	assert_true(r.client.messages - messages > MANY / 10);
	loop_fd_stop(&watch);
	close(always);
	rig_end(&r);
}

/* --- others --- */

/* Sets that are neither libevent's nor grpc's are the kernel's. */
static void test_other_sets(void **state)
{
	int set = epoll_create1(EPOLL_CLOEXEC), fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	struct rig r;

	(void)state;
	begin(&r);
	assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
	assert_int_equal(epoll_wait(set, &event, 1, 0), 0);
	eventfd_write(fd, 1);
	assert_int_equal(epoll_wait(set, &event, 1, -1), 1);
	assert_int_equal(event.data.fd, fd);
	close(fd);
	close(set);
	rig_end(&r);
}

/* A loop lives on without its runtime, and with the next one. */
static void test_one_runtime_after_another(void **state)
{
	struct loop_timer timer = {.loop = NULL};
	unsigned fired = 0;
	struct rig r;
	struct err e;

	(void)state;
	r.loop = loop_new(&e);
	for (unsigned i = 1; i <= 3; i++) {
		r.rpc = rpc_new(r.loop);
		rpc_free(&r.rpc);
		loop_timer_in(r.loop, &timer, 1, count, &fired);
		WAIT(&r, fired == i);
	}
	loop_free(&r.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_descriptor_of_the_loop),
	    cmocka_unit_test(test_a_timer_and_a_post),
	    cmocka_unit_test(test_who_is_told_has_a_turn),
	    cmocka_unit_test(test_who_was_told_before_does_not_sleep),
	    cmocka_unit_test(test_a_deadline_of_grpc),
	    cmocka_unit_test(test_both_go_on),
	    cmocka_unit_test(test_other_sets),
	    cmocka_unit_test(test_one_runtime_after_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
