/* proxy_test.c - queries by UDP and TCP: answered from the table, or passed on; limits.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/unit/worker/dns/dns_world.c
 */
#include "dns_world.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* --- by the table --- */

static void names_of_istiods_are_answered_here(void **state)
{
	(void)state;
	know("web.example", "240.0.0.1");
	ask(7, "WEB.example", DNS_A);
	answered(7, DNS_NOERROR); /* on a connected socket: so it came from the address asked */
	assert_memory_equal(w.in + w.size - 4, "\xf0\x00\x00\x01", 4);
	ask(8, "web.example", DNS_AAAA);
	answered(8, DNS_NOERROR);
	assert_int_equal(w.in[7], 0);
	assert_int_equal(fake_link_live(w.link), 0);
	/* Other records of a name that is known, and other names: not here. */
	ask(9, "web.example", 16);
	ask(10, "other.example", DNS_A);
	assert_false(receive(w.client));
	assert_int_equal(dns_proxy_counts(w.p).local, 2);
	assert_int_equal(dns_proxy_counts(w.p).forwarded, 2);
}

static void over_ipv6(void **state)
{
	const struct sockaddr_in6 a = {
	    .sin6_family = AF_INET6, .sin6_port = htons(PORT), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	uint8_t q[SIZE];
	size_t n = question(q, 3, "web.example", DNS_A);
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	(void)state;
	know("web.example", "240.0.0.1");
	assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(send(fd, q, n, 0), n);
	turn();
	assert_true(receive(fd));
	assert_int_equal(dns_id(w.in), 3);
	close(fd);
}

static void who_does_not_ask_at_loopback_is_not_heard(void **state)
{
	(void)state;
	know("web.example", "240.0.0.1");
	close(w.client);
	w.client = dial(SOCK_DGRAM, "10.0.0.7", PORT);
	ask(1, "web.example", DNS_A);
	assert_false(receive(w.client));
	int fd = dial(SOCK_STREAM, "10.0.0.7", PORT);
	turn();
	assert_int_equal(recv(fd, w.in, 1, MSG_DONTWAIT), 0);
	close(fd);
	assert_int_equal(dns_proxy_counts(w.p).dropped, 2);
	assert_int_equal(dns_proxy_counts(w.p).requests, 0);
}

static void what_is_no_question(void **state)
{
	uint8_t q[SIZE];
	size_t n = question(q, 5, "web.example", DNS_A);

	(void)state;
	send(w.client, q, 5, 0);
	q[2] = 0x81;
	send(w.client, q, n, 0);
	turn();
	assert_false(receive(w.client));
	q[2] = 0x29;
	send(w.client, q, n, 0);
	turn();
	answered(5, DNS_NOTIMP);
	assert_int_equal(dns_proxy_counts(w.p).malformed, 3);
}

/* --- a worker dies --- */

/* A turn of another process, which is killed when it sends something. */
static void turn_of_one_who_dies(void)
{
	struct sock_filter at[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number */
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(at) / sizeof(*at), at};
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
			turn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSYS);
}

static void who_dies_leaves_the_question(void **state)
{
	uint8_t q[SIZE];

	(void)state;
	know("web.example", "240.0.0.1");
	send(w.client, q, question(q, 7, "web.example", DNS_A), 0);
	send(w.client, q, question(q, 8, "web.example", DNS_A), 0);
	turn_of_one_who_dies();
	assert_false(receive(w.client));
	turn();
	answered(7, DNS_NOERROR);
	answered(8, DNS_NOERROR);
	assert_false(receive(w.client));
}

/* It is with the resolvers: nobody else is to ask them. */
static void what_was_passed_on_is_not_there_any_more(void **state)
{
	uint8_t q[SIZE];

	(void)state;
	know("web.example", "240.0.0.1");
	send(w.client, q, question(q, 7, "other.example", DNS_A), 0);
	send(w.client, q, question(q, 8, "web.example", DNS_A), 0);
	turn_of_one_who_dies();
	turn();
	answered(8, DNS_NOERROR);
	assert_int_equal(dns_proxy_counts(w.p).forwarded, 0);
}

/* --- by TCP --- */

static int resolver_tcp(void)
{
	int fd = socket_at(SOCK_STREAM, "127.0.1.1", 53), on = 1;

	assert_int_equal(listen(fd, 8), 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void send_framed(int fd, const uint8_t *data, size_t size)
{
	const uint8_t head[2] = {(uint8_t)(size >> 8), (uint8_t)size};

	assert_int_equal(send(fd, head, 1, 0), 1); /* in pieces */
	turn();
	assert_int_equal(send(fd, head + 1, 1, 0), 1);
	assert_int_equal(send(fd, data, size, 0), size);
	turn();
}

static void receive_framed(int fd)
{
	uint8_t head[2];

	turn();
	assert_int_equal(recv(fd, head, 2, MSG_DONTWAIT), 2);
	w.size = (size_t)head[0] << 8 | head[1];
	assert_int_equal(recv(fd, w.in, w.size, MSG_DONTWAIT), w.size);
}

static void by_tcp(void **state)
{
	uint8_t q[SIZE];
	int client = dial(SOCK_STREAM, "127.0.53.1", PORT), resolver = resolver_tcp(), up;

	(void)state;
	know("web.example", "240.0.0.1");
	send_framed(client, q, question(q, 1, "web.example", DNS_A));
	receive_framed(client);
	assert_int_equal(dns_id(w.in), 1);
	send_framed(client, q, question(q, 2, "other.example", DNS_A));
	assert_int_equal(fake_link_dials(w.link, LINK_DIAL_TCP), AF_INET);
	fake_link_dialled(w.link, LINK_DIAL_TCP,
	    socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), NULL);
	up = accept(resolver, NULL, NULL);
	receive_framed(up);
	w.in[2] |= 0x80;
	memcpy(q, w.in, w.size);
	memset(q + w.size, 0, 1000 - w.size);
	send_framed(up, q, 1000);
	receive_framed(client);
	assert_int_equal(dns_id(w.in), 2);
	assert_int_equal(w.size, 1000); /* by TCP nothing is cut */
	/* The resolver leaves before it answers. */
	close(up);
	send_framed(client, q, question(q, 3, "other.example", DNS_A));
	fake_link_dialled(w.link, LINK_DIAL_TCP,
	    socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), NULL);
	up = accept(resolver, NULL, NULL);
	close(up);
	receive_framed(client);
	assert_int_equal(w.in[3] & 0xf, DNS_SERVFAIL);
	close(client);
	close(resolver);
}

static void silent_connections_end(void **state)
{
	int client = dial(SOCK_STREAM, "127.0.53.1", PORT);

	(void)state;
	turn();
	fake_loop_advance(w.l, DNS_IDLE_MS - 1);
	assert_int_equal(recv(client, w.in, 1, MSG_DONTWAIT), -1);
	fake_loop_advance(w.l, 1);
	assert_int_equal(recv(client, w.in, 1, MSG_DONTWAIT), 0);
	close(client);
}

static void too_many_connections(void **state)
{
	int clients[DNS_CONNECTIONS_MAX + 1];

	(void)state;
	for (int i = 0; i <= DNS_CONNECTIONS_MAX; i++) {
		clients[i] = dial(SOCK_STREAM, "127.0.53.1", PORT);
		turn();
	}
	assert_int_equal(recv(clients[DNS_CONNECTIONS_MAX], w.in, 1, MSG_DONTWAIT), 0);
	assert_int_equal(recv(clients[0], w.in, 1, MSG_DONTWAIT), -1);
	for (int i = 0; i <= DNS_CONNECTIONS_MAX; i++)
		close(clients[i]);
	turn();
	clients[0] = dial(SOCK_STREAM, "127.0.53.1", PORT);
	turn();
	assert_int_equal(recv(clients[0], w.in, 1, MSG_DONTWAIT), -1);
	close(clients[0]);
}

/* --- too much --- */

static void who_asks_too_much_waits(void **state)
{
	unsigned n = 0, more = 0;

	(void)state;
	know("web.example", "240.0.0.1");
	for (int i = 0; i < 300; i++)
		ask(1, "web.example", DNS_A);
	while (receive(w.client))
		n++;
	assert_in_range(n, DNS_PER_SECOND / 10, DNS_PER_SECOND / 10 + 32);
	fake_loop_advance(w.l, 100);
	while (receive(w.client))
		more++;
	assert_int_equal(n + more, 300); /* nothing was lost */
	assert_int_equal(dns_proxy_counts(w.p).delayed, 1);
}

/* What it takes to read one is the measure, not how many there are. */
static void long_questions(void **state)
{
	uint8_t q[DNS_QUERY_MAX + 1] = {0};
	size_t n = question(q, 1, "other.example", DNS_A);

	(void)state;
	for (size_t at = n; at + 11 <= DNS_QUERY_MAX; at += 11)
		q[at + 2] = 16; /* an empty record of the root's */
	q[10] = (DNS_QUERY_MAX - n) / 11 >> 8;
	q[11] = (uint8_t)((DNS_QUERY_MAX - n) / 11);
	send(w.client, q, sizeof(q), 0);
	turn();
	answered(1, DNS_FORMERR);
	for (int i = 0; i < 40; i++) {
		send(w.client, q, DNS_QUERY_MAX, 0);
		turn();
	}
	assert_int_equal(dns_proxy_counts(w.p).delayed, 1);
	assert_in_range(dns_proxy_counts(w.p).forwarded, 20, 25);
}

static void too_many_questions_under_way(void **state)
{
	unsigned failed = 0;

	(void)state;
	for (int i = 0; i < DNS_ASKS_MAX + 10; i++) {
		ask((uint16_t)i, "other.example", DNS_A);
		if (i % 100 == 99)
			fake_loop_advance(w.l, 100);
		while (receive(w.client))
			failed++;
	}
	assert_int_equal(failed, 10);
	assert_int_equal(dns_proxy_counts(w.p).dropped, 10);
}

static void another_table(void **state)
{
	(void)state;
	know("web.example", "240.0.0.1");
	know("web.example", "240.0.0.2");
	ask(7, "web.example", DNS_A);
	answered(7, DNS_NOERROR);
	assert_memory_equal(w.in + w.size - 4, "\xf0\x00\x00\x02", 4);
}

/* At rest nothing is left but the counts; then it serves again. */
static void rest_and_serve_again(void **state)
{
	int client = dial(SOCK_STREAM, "127.0.53.1", PORT);

	(void)state;
	ask(1, "other.example", DNS_A);
	give_lane();
	ask(2, "other.example", DNS_A);
	dns_proxy_rest(w.p);
	assert_int_equal(fake_loop_live(w.l), 0);
	assert_int_equal(fake_link_live(w.link), 0);
	assert_int_equal(dns_proxy_counts(w.p).upstream.asked, 2);
	answered(1, DNS_SERVFAIL); /* to be asked anew, at once */
	answered(2, DNS_SERVFAIL);
	serve();
	know("web.example", "240.0.0.1");
	send(w.client, "", 0, 0); /* takes the refusal */
	receive(w.client);
	ask(3, "web.example", DNS_A);
	answered(3, DNS_NOERROR);
	close(client);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(names_of_istiods_are_answered_here),
	    TEST(over_ipv6),
	    TEST(who_does_not_ask_at_loopback_is_not_heard),
	    TEST(what_is_no_question),
	    TEST(who_dies_leaves_the_question),
	    TEST(what_was_passed_on_is_not_there_any_more),
	    TEST(by_tcp),
	    TEST(silent_connections_end),
	    TEST(too_many_connections),
	    TEST(who_asks_too_much_waits),
	    TEST(long_questions),
	    TEST(too_many_questions_under_way),
	    TEST(another_table),
	    TEST(rest_and_serve_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
