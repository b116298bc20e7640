/* guard_test.c - frames through recvmsg(): what they cost, and the end of who cannot pay.
 * LINK: tests/fake/clock.c */
#include "worker/base/rpc/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/fake/clock.h"

enum { LEAST = 50, DATA = 0, HEADERS = 1, PING = 6, WINDOW_UPDATE = 8 };

static struct rpc_guard *guard;
static int pair[2];

/* The bucket gets 10,000 costs a second: nothing, while the clock stands still. */
static void begin(void)
{
	struct stat st;

	fake_clock_stop();
	guard = rpc_guard_new(1, 1);
	assert_int_equal(
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(fstat(pair[1], &st), 0);
	rpc_guard_add(guard, pair[1], st.st_ino);
}

static void end(void)
{
	rpc_guard_free(&guard);
	close(pair[0]);
	close(pair[1]);
}

static ssize_t read_in(size_t n)
{
	static uint8_t a[30000], b[30000];
	struct iovec iov[2] = {{a, n / 3}, {b, n - n / 3}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

	return recvmsg(pair[1], &msg, 0);
}

static void put(const void *bytes, size_t n)
{
	assert_int_equal(send(pair[0], bytes, n, MSG_NOSIGNAL), n);
}

static void preface(void)
{
	put("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
	assert_int_equal(read_in(24), 24);
}

static size_t frame(uint8_t *to, unsigned type, size_t size)
{
	const uint8_t head[9] = {
	    (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size, (uint8_t)type};

	memcpy(to, head, sizeof(head));
	memset(to + sizeof(head), 0, size);
	return sizeof(head) + size;
}

/* How many of these until the end, `most` at most and `chunk` bytes at a time. */
static unsigned frames(unsigned most, unsigned type, size_t size, size_t chunk)
{
	uint8_t bytes[17000];
	size_t n = frame(bytes, type, size);

	for (unsigned i = 0; i < most; i++)
		for (size_t at = 0; at < n; at += chunk) {
			size_t part = n - at < chunk ? n - at : chunk;

			put(bytes + at, part);
			if (read_in(part) == 0)
				return i;
		}
	return most;
}

static unsigned frames_until_end(unsigned type, size_t size, size_t chunk)
{
	preface();
	return frames(100000, type, size, chunk);
}

static void assert_costs(unsigned type, size_t size, size_t chunk, unsigned cost)
{
	unsigned n;

	begin();
	n = frames_until_end(type, size, chunk);
	assert_in_range(n, LEAST * 200 / cost - 2, LEAST * 200 / cost);
	assert_int_equal(rpc_guard_floods(guard), 1);
	assert_int_equal(rpc_guard_floods(guard), 0);
	end();
}

/* Each read costs 1, each frame by its kind and size, also when it comes in pieces. */
static void test_costs(void **state)
{
	(void)state;
	assert_costs(HEADERS, 32, 41, 1 + 102);
	assert_costs(HEADERS, 32, 5, 9 + 102);
	assert_costs(HEADERS, 16000, 16009, 1 + 1100);
	assert_costs(PING, 8, 17, 1 + 10);
	assert_costs(PING, 8, 1, 17 + 10);
	assert_costs(DATA, 0, 9, 1 + 10);
	assert_costs(DATA, 16384, 16393, 1 + 5);
	assert_costs(WINDOW_UPDATE, 4, 13, 1 + 1);
}

/* 100 ms bring 1,000 costs, and more than it holds never comes. */
static void test_the_bucket_is_filled(void **state)
{
	(void)state;
	begin();
	preface();
	fake_clock_pass_ms(60 * 1000);
	assert_int_equal(frames(900, PING, 8, 17), 900); /* 9,900 of 10,000 */
	fake_clock_pass_ms(100);
	assert_in_range(frames(900, PING, 8, 17), 95, 100);
	assert_int_equal(rpc_guard_floods(guard), 1);
	end();
}

/* One read that holds far too much is not handed on in part. */
static void test_a_burst_in_one_read(void **state)
{
	uint8_t bytes[20000], more;
	size_t n = 0;

	(void)state;
	begin();
	preface();
	while (n < 18000)
		n += frame(bytes + n, HEADERS, 1);
	put(bytes, n);
	put(bytes, 10);
	assert_int_equal(read_in(n), 0);
	fake_clock_pass_ms(20); /* the bucket has enough for the rest */
	assert_int_equal(read_in(10), 0);
	assert_int_equal(rpc_guard_floods(guard), 1);
	assert_int_equal(recv(pair[0], &more, 1, 0), 0);
	assert_int_equal(send(pair[0], "x", 1, MSG_NOSIGNAL), -1);
	end();
}

/* All connections of a pod pay from one bucket; another pod's does not. */
static void test_who_pays(void **state)
{
	uint8_t bytes[24 + 16009];
	struct rpc_guard *first;
	struct stat st;

	(void)state;
	begin();
	assert_in_range(frames_until_end(HEADERS, 16000, 16009), 5, 20);
	first = guard;
	close(pair[0]);
	close(pair[1]);
	begin();
	assert_int_equal(fstat(pair[1], &st), 0);
	rpc_guard_add(first, pair[1], st.st_ino);
	frame(bytes + 24, HEADERS, 16000);
	put(bytes, sizeof(bytes));
	assert_int_equal(read_in(sizeof(bytes)), 0);
	assert_int_equal(rpc_guard_floods(first), 2);
	assert_int_equal(rpc_guard_floods(guard), 0);
	end();
	begin();
	preface();
	rpc_guard_free(&first);
	end();
}

/* The number of a guarded connection that was closed is anything's. */
static void test_a_number_used_again(void **state)
{
	uint8_t bytes[16009];
	int other[2];

	(void)state;
	begin();
	frame(bytes, HEADERS, 16000);
	assert_int_equal(
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, other), 0);
	assert_int_equal(dup3(other[1], pair[1], O_CLOEXEC), pair[1]);
	close(pair[0]);
	close(other[1]);
	pair[0] = other[0];
	for (unsigned i = 0; i < 100; i++) {
		put(bytes, sizeof(bytes));
		assert_int_equal(read_in(sizeof(bytes)), sizeof(bytes));
	}
	assert_int_equal(rpc_guard_floods(guard), 0);
	end();
}

/* What the kernel says otherwise is as it was; no rate: nobody is judged. */
static void test_otherwise_untouched(void **state)
{
	struct stat st;

	(void)state;
	begin();
	assert_int_equal(read_in(10), -1);
	assert_int_equal(errno, EAGAIN);
	assert_false(rpc_guard_sees(guard, pair[1]));
	preface();
	assert_true(rpc_guard_sees(guard, pair[1]));
	shutdown(pair[0], SHUT_WR);
	assert_int_equal(read_in(10), 0);
	assert_int_equal(rpc_guard_floods(guard), 0);
	end();
	begin();
	rpc_guard_free(&guard);
	guard = rpc_guard_new(0, 0);
	fstat(pair[1], &st);
	rpc_guard_add(guard, pair[1], st.st_ino);
	assert_int_equal(frames_until_end(HEADERS, 16000, 16009), 100000);
	assert_true(rpc_guard_sees(guard, pair[1]));
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_costs),
	    cmocka_unit_test(test_the_bucket_is_filled),
	    cmocka_unit_test(test_a_burst_in_one_read),
	    cmocka_unit_test(test_who_pays),
	    cmocka_unit_test(test_a_number_used_again),
	    cmocka_unit_test(test_otherwise_untouched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
