/* guard_test.c - frames through recvmsg(): what they cost, and the end of who cannot pay.
 * LINK: tests/fake/clock.c tests/unit/lingering.c */
#include "rpc/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "rpc/portion.h"
#include "rpc/share.h"
#include "tests/fake/clock.h"
#include "tests/unit/lingering.h"

enum { LEAST = 50, DATA = 0, HEADERS = 1, RST_STREAM = 3, PING = 6, WINDOW_UPDATE = 8 };
enum { CONTINUATION = 9, END_STREAM = 1, END_HEADERS = 4, PADDED = 8, PRIORITY = 32 };
enum { BLOCK_SIZE = 20000, STREAMS = 3, KIB = 1024 };

static struct rpc_guard *guard;
static int pair[2];
static uint32_t stream; /* the last one */

/* The bucket gets 10,000 costs a second: nothing, while the clock stands still. */
static void begin_with(const struct rpc_guard_options *o)
{
	struct stat st;

	fake_clock_stop();
	stream = 0;
	guard = rpc_guard_new(o);
	assert_int_equal(
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(fstat(pair[1], &st), 0);
	rpc_guard_add(guard, pair[1], st.st_ino);
}

static void begin(void)
{
	begin_with(&(struct rpc_guard_options){1, 1, BLOCK_SIZE, 0, 0});
}

static void end(void)
{
	rpc_guard_free(&guard);
	close(pair[0]);
	close(pair[1]);
}

/* As grpc has it polled. */
static int poller_new(void)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = pair[1]};
	int poller = epoll_create1(EPOLL_CLOEXEC);

	assert_true(poller >= 0);
	assert_int_equal(epoll_ctl(poller, EPOLL_CTL_ADD, pair[1], &event), 0);
	return poller;
}

static unsigned broken(struct rpc_guard *g, enum rpc_rule rule)
{
	struct rpc_guard_news n;
	unsigned all = 0;

	rpc_guard_news(g, &n);
	for (unsigned i = 0; i < RPC_RULE_END; i++)
		all += n.broken[i];
	assert_int_equal(all, n.broken[rule]);
	return n.broken[rule];
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

static size_t head(uint8_t *to, unsigned type, unsigned flags, uint32_t id, size_t size)
{
	const uint8_t bytes[9] = {(uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size,
	    (uint8_t)type, (uint8_t)flags, (uint8_t)(id >> 24), (uint8_t)(id >> 16),
	    (uint8_t)(id >> 8), (uint8_t)id};

	memcpy(to, bytes, sizeof(bytes));
	return sizeof(bytes);
}

/* One field; where that is too short as many as there are bytes. */
static void block(uint8_t *to, size_t size)
{
	memset(to, 0x82, size);
	if (size < 200)
		return;
	to[0] = 0x0f; /* a literal, its name's index is 15 */
	to[1] = 0;
	to[2] = 0x7f; /* the value's length: 127 and more */
	size -= 6 + 127;
	to[3] = (uint8_t)(size | 0x80);
	to[4] = (uint8_t)(size >> 7 | 0x80);
	to[5] = (uint8_t)(size >> 14);
}

static size_t frame(uint8_t *to, unsigned type, size_t size)
{
	size_t n;

	if (type == HEADERS)
		stream += 2;
	n = head(to, type, type == HEADERS ? END_HEADERS : 0, stream - 1, size);
	memset(to + n, 0, size);
	if (type == HEADERS)
		block(to + n, size);
	return n + size;
}

/* How many of these until the end, `most` at most and `chunk` bytes at a time. */
static unsigned frames(unsigned most, unsigned type, size_t size, size_t chunk)
{
	uint8_t bytes[17000];

	for (unsigned i = 0; i < most; i++) {
		size_t n = frame(bytes, type, size);

		for (size_t at = 0; at < n; at += chunk) {
			size_t part = n - at < chunk ? n - at : chunk;

			put(bytes + at, part);
			if (read_in(part) == 0)
				return i;
		}
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
	assert_int_equal(broken(guard, RPC_RULE_FRAMES), 1);
	assert_int_equal(broken(guard, RPC_RULE_FRAMES), 0);
	end();
}

/* Each read costs 1, each frame by its kind and size, each field of headers 1, also when it comes
 * in pieces. */
static void test_costs(void **state)
{
	(void)state;
	assert_costs(HEADERS, 32, 41, 1 + 102 + 32);
	assert_costs(HEADERS, 32, 5, 9 + 102 + 32);
	assert_costs(HEADERS, 16000, 16009, 1 + 1100 + 1);
	assert_costs(PING, 8, 17, 1 + 10);
	assert_costs(PING, 8, 1, 17 + 10);
	assert_costs(DATA, 0, 9, 1 + 10);
	assert_costs(DATA, 16384, 16393, 1 + 26);
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
	assert_int_equal(broken(guard, RPC_RULE_FRAMES), 1);
	end();
}

/* Beyond its share a pod pays from what all pods have; another one's share is its own. */
static void test_the_share(void **state)
{
	struct rpc_guard *greedy;

	(void)state;
	share_set(20);
	begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, 0, 0});
	assert_in_range(frames_until_end(PING, 8, 17), (SHARE_BURST + 20) * 200 / 11 - 2,
	    (SHARE_BURST + 20) * 200 / 11);
	assert_int_equal(broken(guard, RPC_RULE_SHARE), 1);
	greedy = guard;
	close(pair[0]);
	close(pair[1]);
	begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, 0, 0});
	assert_in_range(frames_until_end(PING, 8, 17), SHARE_BURST * 200 / 11 - 2,
	    (SHARE_BURST + 1) * 200 / 11);
	assert_int_equal(broken(guard, RPC_RULE_SHARE), 1);
	rpc_guard_free(&greedy);
	end();
	share_set(0);
}

/* A share pays for the largest message; where messages may be larger, bytes cost less. */
static void test_the_largest_message(void **state)
{
	(void)state;
	share_set(1);
	begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, 0, 0});
	preface();
	assert_int_equal(frames(4 * 64, DATA, 16384, 16393), 4 * 64);
	assert_int_equal(broken(guard, RPC_RULE_SHARE), 0);
	end();
	share_set(0);
	begin_with(&(struct rpc_guard_options){1, 1, BLOCK_SIZE, 0, 64 * KIB * KIB});
	assert_in_range(frames_until_end(DATA, 16384, 16393), LEAST * 200 / 3 - 2, LEAST * 200 / 3);
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
	while (n < 19000)
		n += frame(bytes + n, PING, 8);
	put(bytes, n);
	put(bytes, 10);
	assert_int_equal(read_in(n), 0);
	fake_clock_pass_ms(20); /* the bucket has enough for the rest */
	assert_int_equal(read_in(10), 0);
	assert_int_equal(broken(guard, RPC_RULE_FRAMES), 1);
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
	assert_int_equal(broken(first, RPC_RULE_FRAMES), 2);
	assert_int_equal(broken(guard, RPC_RULE_FRAMES), 0);
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
	assert_int_equal(broken(guard, RPC_RULE_FRAMES), 0);
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
	assert_false(rpc_guard_sees(guard, pair[1]));
	close(poller_new());
	assert_true(rpc_guard_sees(guard, pair[1]));
	shutdown(pair[0], SHUT_WR);
	assert_int_equal(read_in(10), 0);
	assert_int_equal(broken(guard, RPC_RULE_FRAMES), 0);
	end();
	begin();
	rpc_guard_free(&guard);
	guard = rpc_guard_new(&(struct rpc_guard_options){0, 0, BLOCK_SIZE, 0, 0});
	fstat(pair[1], &st);
	rpc_guard_add(guard, pair[1], st.st_ino);
	assert_int_equal(frames_until_end(HEADERS, 16000, 16009), 100000);
	assert_true(rpc_guard_sees(guard, pair[1]));
	end();
}

/* --- portions --- */

static int first_reported(int poller)
{
	struct epoll_event event = {.data.fd = -1};

	return epoll_wait(poller, &event, 1, 0) > 0 ? event.data.fd : -1;
}

static size_t read_until_nothing(void)
{
	size_t all = 0;
	ssize_t n;

	while ((n = read_in(8 * KIB)) > 0)
		all += (size_t)n;
	assert_int_equal(n, -1);
	assert_int_equal(errno, EAGAIN);
	return all;
}

static void put_data(size_t size)
{
	static uint8_t bytes[100 * KIB];

	put(bytes, head(bytes, DATA, 0, 1, size) + size);
}

/* Who sends more than a portion is reported again, behind who came meanwhile. */
static void test_a_portion_at_a_time(void **state)
{
	(void)state;
	begin_with(&(struct rpc_guard_options){1, 1000, BLOCK_SIZE, 0, 0});
	int poller = poller_new();
	struct epoll_event other = {.events = EPOLLIN, .data.fd = pair[0]};

	preface();
	assert_int_equal(epoll_ctl(poller, EPOLL_CTL_ADD, pair[0], &other), 0);
	put_data(80 * KIB - 9);
	assert_int_equal(first_reported(poller), pair[1]);
	assert_int_equal(send(pair[1], "", 1, 0), 1); /* something for the other end, too */
	assert_int_equal(read_until_nothing(), RPC_PORTION);
	assert_int_equal(first_reported(poller), pair[0]);
	assert_int_equal(first_reported(poller), pair[1]);
	assert_int_equal(read_until_nothing(), RPC_PORTION);
	read_until_nothing();
	assert_int_equal(read_until_nothing(), 0);
	put_data(8 * KIB - 9);
	assert_int_equal(read_until_nothing(), 8 * KIB);
	put_data(RPC_PORTION - 9); /* a portion begins where nothing was left */
	assert_int_equal(read_until_nothing(), RPC_PORTION);
	close(poller);
	end();
}

/* Nobody would report it again. */
static void test_without_a_poller_all_at_once(void **state)
{
	(void)state;
	begin_with(&(struct rpc_guard_options){1, 1000, BLOCK_SIZE, 0, 0});
	preface();
	put_data(80 * KIB - 9);
	assert_int_equal(read_until_nothing(), 80 * KIB);
	close(poller_new());
	put_data(80 * KIB - 9);
	assert_int_equal(read_until_nothing(), 80 * KIB);
	end();
}

/* --- header blocks --- */

/* What the rule says of these frames, read as one or byte by byte: both must agree. */
static enum rpc_rule rule_of(const uint8_t *bytes, size_t n)
{
	enum rpc_rule rules[2];

	for (unsigned i = 0; i < 2; i++) {
		struct rpc_guard_news news;

		begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, STREAMS, 0});
		preface();
		put(bytes, n);
		for (size_t at = 0; at < n; at += i ? 1 : n)
			if (!read_in(i ? 1 : n))
				break;
		rpc_guard_news(guard, &news);
		rules[i] = 0;
		while (rules[i] < RPC_RULE_END && !news.broken[rules[i]])
			rules[i]++;
		end();
	}
	assert_int_equal(rules[0], rules[1]);
	return rules[0];
}

static enum rpc_rule rule_of_block(const void *payload, size_t n, unsigned flags)
{
	uint8_t bytes[512];
	size_t at = head(bytes, HEADERS, flags, 1, n);

	memcpy(bytes + at, payload, n);
	return rule_of(bytes, at + n);
}

/* `first` bytes in HEADERS, the rest in CONTINUATIONs of a tenth. */
static enum rpc_rule rule_of_size(size_t size, size_t first)
{
	static uint8_t payload[30000], bytes[31000];
	size_t n = head(bytes, HEADERS, first == size ? END_HEADERS : 0, 1, first), at = first;

	block(payload, size);
	memcpy(bytes + n, payload, first);
	n += first;
	while (at < size) {
		size_t part = size - at < size / 10 ? size - at : size / 10;

		n += head(bytes + n, CONTINUATION, at + part == size ? END_HEADERS : 0, 1, part);
		memcpy(bytes + n, payload + at, part);
		n += part;
		at += part;
	}
	return rule_of(bytes, n);
}

/* grpc asks so for errors when the kernel tells of one; a unix socket has none. */
static void test_a_look_for_errors_ends_nothing(void **state)
{
	struct msghdr none = {.msg_iovlen = 0};

	(void)state;
	begin();
	preface();
	put("\0\0\0\4\0\0\0\0\0", 9); /* SETTINGS */
	assert_int_equal(recvmsg(pair[1], &none, MSG_ERRQUEUE), 0);
	assert_int_equal(read_in(9), 9);
	end();
}

/* Neither the read, nor the end that grpc then makes of it, waits for what came along: an hour. */
static void test_descriptors_end_a_connection(void **state)
{
	int peer;

	(void)state;
	alarm(60);
	begin();
	preface();
	put("\0\0\0\4\0\0\0\0\0", 9); /* SETTINGS: behind it is the descriptor */
	lingering_give(pair[0], &peer);
	assert_int_equal(read_in(100), 0);
	assert_int_equal(broken(guard, RPC_RULE_RIGHTS), 1);
	assert_int_equal(read_in(100), 0);
	assert_int_equal(send(pair[0], "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(broken(guard, RPC_RULE_RIGHTS), 0);
	end();
	close(peer);
	alarm(0);
}

/* Nobody has read: the pod came and went. */
static void test_descriptors_that_nobody_read(void **state)
{
	int peer;

	(void)state;
	alarm(60);
	begin();
	lingering_give(pair[0], &peer);
	end();
	close(peer);
	alarm(0);
}

/* In whatever pieces it comes, and is taken. */
static void test_a_look_takes_nothing(void **state)
{
	(void)state;
	begin();
	preface();
	for (size_t n = 1; n < 60; n++) {
		uint8_t bytes[100] = {0, 0, 60, 4};

		put(bytes, 9);
		put(bytes + 9, 60);
		assert_int_equal(read_in(9 + n), 9 + n);
		assert_int_equal(read_in(1000), 60 - n);
	}
	end();
}

static void test_a_block_has_a_size(void **state)
{
	(void)state;
	assert_int_equal(rule_of_size(BLOCK_SIZE, BLOCK_SIZE), RPC_RULE_END);
	assert_int_equal(rule_of_size(BLOCK_SIZE, 1000), RPC_RULE_END);
	assert_int_equal(rule_of_size(BLOCK_SIZE + 1, BLOCK_SIZE + 1), RPC_RULE_BLOCK_SIZE);
	assert_int_equal(rule_of_size(BLOCK_SIZE + 1, 1000), RPC_RULE_BLOCK_SIZE);
}

static void test_a_block_has_so_many_fields(void **state)
{
	/* Each kind of field, 5 in all: indexed, indexed beyond 127, the table's size, a literal
	 * with a name of the table, and one with a name of its own. */
	static const uint8_t kinds[] = {0x82, 0xff, 0x80, 0x01, 0x3f, 0x05, 0x41, 0x03, 'a', 'b',
	    'c', 0x00, 0x81, 0x12, 0x02, 'd', 'e'};
	uint8_t payload[RPC_GUARD_FIELDS / 5 * sizeof(kinds) + 1];

	(void)state;
	for (size_t i = 0; i < RPC_GUARD_FIELDS / 5; i++)
		memcpy(payload + i * sizeof(kinds), kinds, sizeof(kinds));
	payload[sizeof(payload) - 1] = 0x82;
	assert_int_equal(rule_of_block(payload, sizeof(payload) - 1, END_HEADERS), RPC_RULE_END);
	assert_int_equal(
	    rule_of_block(payload, sizeof(payload), END_HEADERS), RPC_RULE_BLOCK_FIELDS);
}

static enum rpc_rule rule_of_two(unsigned first, unsigned flags, unsigned then, uint32_t id)
{
	uint8_t bytes[64];
	size_t n = head(bytes, first, flags, 1, 1);

	bytes[n++] = 0x82;
	n += head(bytes + n, then, END_HEADERS, id, 1);
	bytes[n++] = 0x82;
	return rule_of(bytes, n);
}

static void test_the_shape_of_a_block(void **state)
{
	(void)state;
	assert_int_equal(rule_of_block("\x82\x83", 2, END_HEADERS), RPC_RULE_END);
	assert_int_equal(rule_of_block("", 0, END_HEADERS), RPC_RULE_END);
	assert_int_equal(
	    rule_of_block("\0\0\0\0\xff\x82", 6, END_HEADERS | PRIORITY), RPC_RULE_END);
	assert_int_equal(rule_of_block("\x82\x83", 2, END_HEADERS | PADDED), RPC_RULE_BLOCK_SHAPE);
	assert_int_equal(rule_of_block("\0\0\0", 3, END_HEADERS | PRIORITY), RPC_RULE_BLOCK_SHAPE);
	assert_int_equal(rule_of_block("\x41\x02z", 3, END_HEADERS), RPC_RULE_BLOCK_SHAPE);
	assert_int_equal(rule_of_block("\x41", 1, END_HEADERS), RPC_RULE_BLOCK_SHAPE);
	assert_int_equal(
	    rule_of_block("\xff\x80\x80\x80\x80\x80\x80", 7, END_HEADERS), RPC_RULE_BLOCK_SHAPE);
	assert_int_equal(rule_of_two(HEADERS, 0, CONTINUATION, 1), RPC_RULE_END);
	assert_int_equal(rule_of_two(HEADERS, 0, CONTINUATION, 3), RPC_RULE_BLOCK_SHAPE);
	assert_int_equal(rule_of_two(HEADERS, 0, HEADERS, 3), RPC_RULE_BLOCK_SHAPE);
	assert_int_equal(rule_of_two(HEADERS, 0, DATA, 1), RPC_RULE_BLOCK_SHAPE);
	assert_int_equal(rule_of_two(HEADERS, END_HEADERS, CONTINUATION, 1), RPC_RULE_BLOCK_SHAPE);
	assert_int_equal(rule_of_two(PING, 0, CONTINUATION, 1), RPC_RULE_BLOCK_SHAPE);
}

/* --- memory --- */

/* The server's answer, as grpc writes it. */
static void answer(unsigned type, unsigned flags, uint32_t id)
{
	uint8_t bytes[32], read[32];
	size_t n = head(bytes, type, flags, id, 4);
	struct iovec iov = {bytes, n + 4};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	memset(bytes + n, 0, 4);
	assert_int_equal(sendmsg(pair[1], &msg, 0), n + 4);
	assert_int_equal(recv(pair[0], read, sizeof(read), 0), n + 4);
}

static ssize_t send_frame(unsigned type, unsigned flags, uint32_t id, size_t size)
{
	static uint8_t bytes[20000];
	size_t n = head(bytes, type, flags, id, size);

	memset(bytes + n, 0x82, size);
	put(bytes, n + size);
	return read_in(n + size);
}

/* Both ends may end a stream; then its number, and what it held, are free. */
static void test_streams_are_counted(void **state)
{
	(void)state;
	begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, STREAMS, 0});
	preface();
	assert_true(send_frame(HEADERS, END_HEADERS, 1, 4) > 0);
	assert_true(send_frame(HEADERS, END_HEADERS, 3, 4) > 0);
	assert_true(send_frame(HEADERS, END_HEADERS, 5, 4) > 0);
	assert_true(send_frame(HEADERS, END_HEADERS | END_STREAM, 5, 4) > 0); /* trailers */
	answer(HEADERS, END_HEADERS, 1);
	answer(DATA, 0, 1);
	answer(HEADERS, END_HEADERS | END_STREAM, 1);
	assert_true(send_frame(HEADERS, END_HEADERS, 7, 4) > 0);
	answer(RST_STREAM, 0, 5);
	assert_true(send_frame(HEADERS, END_HEADERS, 9, 4) > 0);
	assert_true(send_frame(RST_STREAM, 0, 3, 4) > 0);
	assert_true(send_frame(HEADERS, END_HEADERS, 11, 4) > 0);
	assert_int_equal(send_frame(HEADERS, END_HEADERS, 13, 4), 0);
	assert_int_equal(broken(guard, RPC_RULE_STREAMS), 1);
	end();
}

/* More than the socket holds, and the first stream's end: on its way until somebody reads. */
static void *write_an_end(void *unused)
{
	static uint8_t bytes[1 << 20];
	size_t n = head(bytes, DATA, END_STREAM, 1, sizeof(bytes) - 9);
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	assert_int_equal(n, 9);
	assert_int_equal(sendmsg(pair[1], &msg, 0), sizeof(bytes));
	return unused;
}

static void read_all_of(size_t n)
{
	static uint8_t bytes[1 << 20];

	while (n > 0) {
		ssize_t came = recv(pair[0], bytes, n, 0);

		assert_true(came > 0);
		n -= (size_t)came;
	}
}

/* Who was told of an end opens the next one at once, which may come before the write returns. */
static void test_streams_while_one_ends(void **state)
{
	pthread_t writer;

	(void)state;
	begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, STREAMS, 0});
	preface();
	fcntl(pair[0], F_SETFL, 0);
	fcntl(pair[1], F_SETFL, 0);
	for (uint32_t id = 1; id <= 5; id += 2)
		assert_true(send_frame(HEADERS, END_HEADERS, id, 4) > 0);
	assert_int_equal(pthread_create(&writer, NULL, write_an_end, NULL), 0);
	read_all_of(1); /* he is at it */
	assert_true(send_frame(HEADERS, END_HEADERS, 7, 4) > 0);
	read_all_of((1 << 20) - 1);
	pthread_join(writer, NULL);
	assert_int_equal(send_frame(HEADERS, END_HEADERS, 9, 4), 0);
	assert_int_equal(broken(guard, RPC_RULE_STREAMS), 1);
	end();
}

/* Who does not read has no more streams for it. */
static void test_streams_while_nobody_reads(void **state)
{
	static uint8_t bytes[1 << 20];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	(void)state;
	begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, STREAMS, 0});
	preface();
	for (uint32_t id = 1; id <= 5; id += 2)
		assert_true(send_frame(HEADERS, END_HEADERS, id, 4) > 0);
	head(bytes, DATA, 0, 1, sizeof(bytes) - 9);
	assert_true(sendmsg(pair[1], &msg, 0) > 0);
	assert_int_equal(sendmsg(pair[1], &msg, 0), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(send_frame(HEADERS, END_HEADERS, 7, 4), 0);
	assert_int_equal(broken(guard, RPC_RULE_STREAMS), 1);
	end();
}

/* A connection, a stream, a field, a byte of headers and of messages: each has its weight. */
static void test_what_is_held(void **state)
{
	const int64_t idle = 16 * KIB, stream_is = 32 * KIB + 10 * (256 + 2);
	struct stat st;

	(void)state;
	begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, STREAMS, 0});
	assert_int_equal(fstat(pair[1], &st), 0);
	preface();
	assert_int_equal(rpc_guard_held(guard), idle);
	send_frame(HEADERS, END_HEADERS, 1, 10);
	rpc_guard_heard(guard, pair[1], st.st_ino);
	assert_int_equal(rpc_guard_held(guard), idle + stream_is);
	send_frame(DATA, 0, 1, 10000);
	send_frame(DATA, 0, 3, 10000); /* there is no such stream */
	assert_int_equal(rpc_guard_held(guard), idle + stream_is + 10000);
	rpc_guard_took(guard, pair[1], st.st_ino, 6000);
	rpc_guard_took(guard, pair[1], st.st_ino + 1, 6000); /* another connection */
	assert_int_equal(rpc_guard_held(guard), idle + stream_is + 4000);
	rpc_guard_charge(guard, 500);
	assert_int_equal(rpc_guard_held(guard), idle + stream_is + 4500);
	answer(RST_STREAM, 0, 1);
	rpc_guard_took(guard, pair[1], st.st_ino, -6000);
	assert_int_equal(rpc_guard_held(guard), idle + 500);
	rpc_guard_charge(guard, -500);
	close(pair[0]);
	assert_int_equal(read_in(10), 0);
	assert_int_equal(rpc_guard_held(guard), 0);
	rpc_guard_free(&guard);
	close(pair[1]);
}

/* grpc keeps a call that was reset until it can tell somebody: so does the account.  One that was
 * heard of leaves nothing. */
static void test_what_clients_leave_behind(void **state)
{
	const int64_t idle = 16 * KIB, open = 32 * KIB + 10 * (256 + 2), left = 32 * KIB;
	struct rpc_guard_news n;
	struct stat st;

	(void)state;
	begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, 9, 0});
	assert_int_equal(fstat(pair[1], &st), 0);
	preface();
	assert_false(rpc_guard_news(guard, &n));
	send_frame(HEADERS, END_HEADERS, 1, 10);
	rpc_guard_heard(guard, pair[1], st.st_ino);
	send_frame(RST_STREAM, 0, 1, 4);
	assert_int_equal(rpc_guard_held(guard), idle);
	assert_false(rpc_guard_news(guard, &n));
	send_frame(HEADERS, END_HEADERS, 3, 10);
	send_frame(HEADERS, END_HEADERS, 5, 10);
	send_frame(RST_STREAM, 0, 3, 4);
	assert_int_equal(rpc_guard_held(guard), idle + left + open);
	assert_true(rpc_guard_news(guard, &n));
	assert_true(n.left_behind);
	close(pair[0]);
	assert_int_equal(read_in(10), 0);
	assert_int_equal(rpc_guard_held(guard), 2 * left);
	rpc_guard_calm(guard);
	assert_int_equal(rpc_guard_held(guard), 0);
	rpc_guard_free(&guard);
	close(pair[1]);
}

/* Nobody resets what was just opened: ten times the cost of a call. */
static void test_a_reset_costs(void **state)
{
	unsigned n = 0;

	(void)state;
	begin();
	preface();
	while (n < 1000 && send_frame(HEADERS, END_HEADERS, 2 * n + 1, 1) > 0 &&
	       send_frame(RST_STREAM, 0, 2 * n + 1, 4) > 0)
		n++;
	assert_in_range(n, LEAST * 200 / 1113 - 1, LEAST * 200 / 1113);
	assert_int_equal(broken(guard, RPC_RULE_FRAMES), 1);
	end();
}

/* The one that holds most loses its connections and has to wait; nobody else notices. */
static void test_the_edge_of_the_budget(void **state)
{
	struct rpc_guard *small;
	struct stat st;
	uint8_t bytes[64];
	int other[2];

	(void)state;
	rpc_guard_budget(50 * KIB, 28 * KIB);
	begin_with(&(struct rpc_guard_options){1000000, 1000000, BLOCK_SIZE, STREAMS, 0});
	small = guard;
	memcpy(other, pair, sizeof(pair));
	preface();
	send_frame(HEADERS, END_HEADERS, 1, 4);
	begin_with(&(struct rpc_guard_options){1, 1, BLOCK_SIZE, STREAMS, 0});
	preface();
	send_frame(HEADERS, END_HEADERS, 1, 4);
	assert_true(send_frame(DATA, 0, 1, 16000) > 0);
	assert_int_equal(broken(guard, RPC_RULE_MEMORY), 0);
	assert_int_equal(send_frame(DATA, 0, 1, 16000), 0);
	assert_int_equal(broken(guard, RPC_RULE_MEMORY), 1);
	assert_int_equal(rpc_guard_held(guard), 0);
	assert_int_equal(recv(pair[0], bytes, 1, 0), 0);
	/* It comes again: it may not yet. */
	assert_int_equal(
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(fstat(pair[1], &st), 0);
	rpc_guard_add(guard, pair[1], st.st_ino);
	put("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
	assert_int_equal(read_in(24), 0);
	assert_int_equal(broken(guard, RPC_RULE_FRAMES), 1);
	/* The other one is as it was. */
	memcpy(pair, other, sizeof(pair));
	assert_true(send_frame(DATA, 0, 1, 100) > 0);
	assert_int_equal(broken(small, RPC_RULE_MEMORY), 0);
	rpc_guard_budget(0, 0);
	rpc_guard_free(&small);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_costs),
	    cmocka_unit_test(test_the_bucket_is_filled),
	    cmocka_unit_test(test_the_share),
	    cmocka_unit_test(test_the_largest_message),
	    cmocka_unit_test(test_a_burst_in_one_read),
	    cmocka_unit_test(test_who_pays),
	    cmocka_unit_test(test_a_number_used_again),
	    cmocka_unit_test(test_otherwise_untouched),
	    cmocka_unit_test(test_a_look_for_errors_ends_nothing),
	    cmocka_unit_test(test_descriptors_end_a_connection),
	    cmocka_unit_test(test_descriptors_that_nobody_read),
	    cmocka_unit_test(test_a_look_takes_nothing),
	    cmocka_unit_test(test_a_portion_at_a_time),
	    cmocka_unit_test(test_without_a_poller_all_at_once),
	    cmocka_unit_test(test_a_block_has_a_size),
	    cmocka_unit_test(test_a_block_has_so_many_fields),
	    cmocka_unit_test(test_the_shape_of_a_block),
	    cmocka_unit_test(test_streams_are_counted),
	    cmocka_unit_test(test_streams_while_one_ends),
	    cmocka_unit_test(test_streams_while_nobody_reads),
	    cmocka_unit_test(test_what_is_held),
	    cmocka_unit_test(test_what_clients_leave_behind),
	    cmocka_unit_test(test_a_reset_costs),
	    cmocka_unit_test(test_the_edge_of_the_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
