/* csi_socket_test.c - a real socket, a broker that knows the kubelet: who is served.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/link.c tests/fake/link_volume.c
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "tests/fake/link.h"
#include "tests/fake/link_volume.h"
#include "tests/fake/loop.h"
#include "tests/fake/rpc.h"
#include "worker/kubelet/csi_socket.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

static struct loop *loop;
static struct rpc *rpc;
static struct rpc_server *server;
static struct link *to_broker;
static struct csi_socket *s;
static struct sockaddr_un address;
static socklen_t address_len;

static int setup(void **state)
{
	static const struct rpc_server_options options = {.max_message = 1, .max_streams = 1};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	address = (struct sockaddr_un){.sun_family = AF_UNIX};
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(fd, 16), 0);
	address_len = sizeof(address);
	getsockname(fd, (struct sockaddr *)&address, &address_len);
	loop = fake_loop();
	rpc = rpc_new(loop);
	server = rpc_server_new(rpc, &options, NULL, NULL);
	to_broker = fake_link();
	s = csi_socket_new(loop, to_broker, fd, server);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	csi_socket_free(&s);
	csi_socket_free(&s);
	rpc_server_free(&server);
	rpc_free(&rpc);
	link_free(&to_broker); /* fails if a call was left */
	metrics_clear();
	fake_loop_advance(loop, 0);
	assert_int_equal(fake_loop_live(loop), 0);
	fake_loop_end(&loop);
	return 0;
}

static int dial(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, address_len), 0);
	fake_loop_advance(loop, 0);
	return fd;
}

static bool closed(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

static json_int_t number(const char *key)
{
	json_t *o = csi_socket_dump(s);
	json_int_t n = json_integer_value(json_object_get(o, key));

	json_decref(o);
	return n;
}

static void test_the_kubelet(void **state)
{
	auto_close int a = dial(), b = dial();

	(void)state;
	assert_int_equal(fake_link_waiting(to_broker, LINK_CALLER), 2);
	assert_int_equal(fake_rpc_adopted(server), 0);
	fake_link_called(to_broker, 0, NULL);
	assert_int_equal(fake_rpc_adopted(server), 1);
	fake_link_called(to_broker, 0, NULL);
	assert_int_equal(fake_rpc_adopted(server), 2);
	assert_int_equal(number("accepted"), 2);
	assert_true(a >= 0 && b >= 0);
}

static void test_another(void **state)
{
	auto_close int fd = dial();
	json_t *o;

	(void)state;
	assert_false(closed(fd));
	fake_link_called(to_broker, EPERM, "it is a process of a pod");
	assert_true(closed(fd));
	assert_int_equal(fake_rpc_adopted(server), 0);
	assert_int_equal(number("refused"), 1);
	o = csi_socket_dump(s);
	assert_string_equal(
	    json_string_value(json_object_get(o, "last_refusal")), "it is a process of a pod");
	json_decref(o);
}

static void test_too_many(void **state)
{
	auto_close int fd = -1;

	(void)state;
	fake_rpc_connections(server, 1023);
	auto_close int last = dial();
	assert_int_equal(fake_link_waiting(to_broker, LINK_CALLER), 1);
	fd = dial();
	assert_true(closed(fd));
	assert_int_equal(fake_link_waiting(to_broker, LINK_CALLER), 1);
	assert_false(closed(last));
	assert_int_equal(number("refused"), 1);
}

/* Who comes after that waits in the backlog; who came is still asked about. */
static void test_stop(void **state)
{
	auto_close int a = dial(), b = -1;

	(void)state;
	csi_socket_stop(s);
	fake_link_called(to_broker, 0, NULL);
	assert_int_equal(fake_rpc_adopted(server), 1);
	b = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(
	    connect(b, (struct sockaddr *)&address, address_len), -1); /* no copy here */
	assert_true(a >= 0);
}

static void test_end(void **state)
{
	auto_close int fd = dial();

	(void)state;
	csi_socket_free(&s);
	assert_true(closed(fd));
	assert_int_equal(fake_link_waiting(to_broker, LINK_CALLER), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_the_kubelet),
	    TEST(test_another),
	    TEST(test_too_many),
	    TEST(test_stop),
	    TEST(test_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
