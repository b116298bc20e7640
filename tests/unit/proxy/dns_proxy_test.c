/* dns_proxy_test.c - queries by UDP and TCP, the table, and resolvers that answer, fail, lie or say
 * nothing.
 *
 * Sockets are real, in a network namespace of the test's own: 127.0.0.0/8 and ::1 are all there is.
 *
 * LINK: tests/fake/loop.c tests/fake/priv.c
 */
#include "../../../agentd/base/err.h"
#include "../../../agentd/base/mem.h"
#include "../../../agentd/proxy/dns_proxy.h"
#include "../../fake/loop.h"
#include "../../fake/priv.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include <cmocka.h>

enum { PORT = 15053, SIZE = 2048 };
static const struct uuid pod = {{1}};

static struct world {
	struct loop *l;
	struct priv *priv;
	struct dns_server servers[2];
	struct dns_upstream_options o;
	struct dns_proxy *p;
	int client;              /* UDP, to 127.0.53.2 */
	int resolver[2];         /* UDP, at 127.0.1.1 and 127.0.1.2 */
	struct sockaddr_in from; /* of what a resolver was asked last */
	uint8_t in[65536];
	size_t size;
} w;

/* --- the world --- */

static struct sockaddr_in at(const char *address, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET, address, &a.sin_addr), 1);
	return a;
}

static int socket_at(int type, const char *address, uint16_t port)
{
	const struct sockaddr_in a = at(address, port);
	int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* As the broker makes them. */
static int proxy_socket(int type)
{
	const struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
	int fd = socket(AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1, off = 0;

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
	assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 64), 0);
	return fd;
}

static int dial(int type, const char *address, uint16_t port)
{
	const struct sockaddr_in a = at(address, port);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static void own_network(void)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd;

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &r), 0);
	/* An address of the pod's own. */
	strcpy(r.ifr_name, "lo:1");
	*(struct sockaddr_in *)&r.ifr_addr = at("10.0.0.7", 0);
	assert_int_equal(ioctl(fd, SIOCSIFADDR, &r), 0);
	close(fd);
}

static void turn(void)
{
	fake_loop_advance(w.l, 0);
}

static void serve(void)
{
	dns_proxy_serve(w.p, proxy_socket(SOCK_DGRAM), proxy_socket(SOCK_STREAM));
}

static int setup(void **state)
{
	static bool once;

	(void)state;
	if (!once)
		own_network();
	once = true;
	memset(&w, 0, sizeof(w));
	w.l = fake_loop();
	w.priv = fake_priv();
	for (int i = 0; i < 2; i++) {
		char address[] = "127.0.1.1";
		address[8] += (char)i;
		w.servers[i].family = AF_INET;
		inet_pton(AF_INET, address, w.servers[i].address.bytes);
		w.resolver[i] = socket_at(SOCK_DGRAM, address, 53);
	}
	w.o = (struct dns_upstream_options){.loop = w.l,
	    .priv = w.priv,
	    .pod = &pod,
	    .servers = w.servers,
	    .nservers = 1,
	    .timeout_ms = 5000};
	w.p = dns_proxy_new(&w.o, "demo/pod");
	serve();
	w.client = dial(SOCK_DGRAM, "127.0.53.2", PORT);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(w.client);
	for (int i = 0; i < 2; i++)
		if (w.resolver[i] >= 0)
			close(w.resolver[i]);
	dns_proxy_free(&w.p);
	fake_loop_end(&w.l);
	priv_free(&w.priv);
	return 0;
}

/* A table of one name. */
static void know(const char *host, const char *ip)
{
	const struct dns_zone z = {"ns1", "cluster.local"};
	uint8_t b[256];
	size_t h = strlen(host), i = strlen(ip), n = 0;
	struct iovec iov = {.iov_base = b};
	struct pbwire r;
	struct err e;

	b[n++] = 0x0a;
	b[n++] = (uint8_t)(2 + h + 2 + 2 + i);
	b[n++] = 0x0a;
	b[n++] = (uint8_t)h;
	memcpy(b + n, host, h);
	n += h;
	b[n++] = 0x12;
	b[n++] = (uint8_t)(2 + i);
	b[n++] = 0x0a;
	b[n++] = (uint8_t)i;
	memcpy(b + n, ip, i);
	iov.iov_len = n + i;
	pbwire_init(&r, &iov, 1);
	dns_proxy_set_table(w.p, dns_table_new(r, &z, &e));
	assert_int_equal(dns_table_names(dns_proxy_table(w.p)), 1);
}

/* --- messages --- */

static size_t question(uint8_t *out, uint16_t id, const char *name, uint16_t type)
{
	size_t n = DNS_HEADER_SIZE;

	memset(out, 0, n);
	dns_set_id(out, id);
	out[2] = 1;
	out[5] = 1;
	while (*name) {
		size_t label = strcspn(name, ".");
		out[n++] = (uint8_t)label;
		memcpy(out + n, name, label);
		n += label;
		name += label + (name[label] == '.');
	}
	memcpy(out + n, "\0\0\0\0\1", 5);
	out[n + 2] = (uint8_t)type;
	return n + 5;
}

static void ask(uint16_t id, const char *name, uint16_t type)
{
	uint8_t q[SIZE];
	size_t n = question(q, id, name, type);

	assert_int_equal(send(w.client, q, n, 0), n);
	turn();
}

/* The lane that the proxy wants is given to it, as a socket of the pod's. */
static void give_lane(void)
{
	assert_int_equal(fake_priv_dials(w.priv, PRIV_DIAL_UDP), AF_INET);
	fake_priv_dialled(w.priv, PRIV_DIAL_UDP,
	    socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), NULL);
	turn();
}

static void give_lanes(void)
{
	while (fake_priv_dials(w.priv, PRIV_DIAL_UDP))
		give_lane();
}

static bool receive(int fd)
{
	ssize_t n = recv(fd, w.in, sizeof(w.in), MSG_DONTWAIT);

	if (n >= 0)
		w.size = (size_t)n;
	return n >= 0;
}

/* Was this resolver asked? */
static bool asked(int which)
{
	socklen_t size = sizeof(w.from);
	ssize_t n = recvfrom(
	    w.resolver[which], w.in, sizeof(w.in), MSG_DONTWAIT, (struct sockaddr *)&w.from, &size);

	if (n >= 0)
		w.size = (size_t)n;
	return n >= 0;
}

static void answer_by(int fd, int code)
{
	w.in[2] |= 0x80;
	w.in[3] = (uint8_t)code;
	assert_int_equal(
	    sendto(fd, w.in, w.size, 0, (struct sockaddr *)&w.from, sizeof(w.from)), w.size);
	turn();
}

static void answer(int which, int code)
{
	answer_by(w.resolver[which], code);
}

static void answered(uint16_t id, int code)
{
	assert_true(receive(w.client));
	assert_int_equal(dns_id(w.in), id);
	assert_int_equal(w.in[3] & 0xf, code);
}

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
	assert_int_equal(fake_priv_live(w.priv), 0);
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

/* --- by the resolvers --- */

static void others_are_answered_by_the_resolver(void **state)
{
	(void)state;
	ask(77, "other.example", DNS_A); /* without a table, too */
	give_lane();
	assert_true(asked(0));
	answer(0, DNS_NOERROR);
	answered(77, DNS_NOERROR);
	assert_int_equal(dns_proxy_counts(w.p).upstream.asked, 1);
	ask(77, "other.example", DNS_A);
	give_lanes();
	assert_true(asked(0));
	answer(0, 3);
	answered(77, 3);
}

static void who_guesses_is_not_believed(void **state)
{
	uint8_t good[SIZE];
	size_t size;
	int stranger = socket_at(SOCK_DGRAM, "127.0.1.9", 53);

	(void)state;
	ask(1, "other.example", DNS_A);
	give_lane();
	assert_true(asked(0));
	memcpy(good, w.in, size = w.size);
	answer_by(stranger, DNS_NOERROR); /* the right words from elsewhere */
	assert_false(receive(w.client));
	for (int i = 1; i < 2000; i++) { /* many ids from the right place */
		memcpy(w.in, good, size);
		dns_set_id(w.in, (uint16_t)(dns_id(good) + i));
		answer(0, DNS_NOERROR);
	}
	memcpy(w.in, good, size);
	w.in[13] ^= 1; /* another question */
	answer(0, DNS_NOERROR);
	assert_false(receive(w.client));
	assert_int_equal(dns_proxy_counts(w.p).upstream.foreign, 2000);
	memcpy(w.in, good, size);
	answer(0, DNS_NOERROR);
	answered(1, DNS_NOERROR);
	close(stranger);
}

static void a_resolver_that_says_nothing(void **state)
{
	(void)state;
	ask(1, "other.example", DNS_A);
	give_lane();
	assert_true(asked(0));
	fake_loop_advance(w.l, 4999);
	assert_false(receive(w.client));
	fake_loop_advance(w.l, 1);
	answered(1, DNS_SERVFAIL);
	assert_int_equal(dns_proxy_counts(w.p).upstream.failed, 1);
	answer(0, DNS_NOERROR); /* too late */
	assert_false(receive(w.client));
}

static void a_resolver_that_is_not_there(void **state)
{
	(void)state;
	close(w.resolver[0]);
	w.resolver[0] = -1;
	ask(1, "other.example", DNS_A);
	give_lane();
	answered(1, DNS_SERVFAIL);
	/* Nor can a socket be had. */
	ask(2, "other.example", DNS_A);
	while (fake_priv_dials(w.priv, PRIV_DIAL_UDP))
		fake_priv_dialled(w.priv, PRIV_DIAL_UDP, -1, "not now");
	turn();
	answered(2, DNS_SERVFAIL);
}

/* Of two, in an order that is another one each time. */
static void the_next_resolver_is_asked(void **state)
{
	bool first[2] = {false, false};

	(void)state;
	dns_proxy_rest(w.p);
	w.o.nservers = 2;
	serve();
	for (int i = 0; i < 64 && !(first[0] && first[1]); i++) {
		ask((uint16_t)i, "other.example", DNS_A);
		give_lanes();
		int one = asked(0) ? 0 : 1;
		if (one == 1)
			assert_true(asked(1));
		first[one] = true;
		assert_false(asked(!one));
		if (i % 2) { /* it fails, or says nothing for a second */
			fake_loop_advance(w.l, 1000);
		} else {
			answer(one, DNS_SERVFAIL);
		}
		give_lanes();
		assert_true(asked(!one));
		answer(!one, DNS_NOERROR);
		answered((uint16_t)i, DNS_NOERROR);
	}
	assert_true(first[0] && first[1]);
}

static void a_long_answer_by_udp_is_cut(void **state)
{
	(void)state;
	ask(1, "other.example", DNS_A);
	give_lane();
	assert_true(asked(0));
	memset(w.in + w.size, 0, 1000 - w.size);
	w.size = 1000;
	answer(0, DNS_NOERROR);
	answered(1, DNS_NOERROR);
	assert_int_equal(w.in[2] & 2, 2);
	assert_int_equal(w.size, DNS_HEADER_SIZE + 15 + 4);
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
	assert_int_equal(fake_priv_dials(w.priv, PRIV_DIAL_TCP), AF_INET);
	fake_priv_dialled(w.priv, PRIV_DIAL_TCP,
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
	fake_priv_dialled(w.priv, PRIV_DIAL_TCP,
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
	assert_int_equal(fake_priv_live(w.priv), 0);
	assert_int_equal(dns_proxy_counts(w.p).upstream.asked, 2);
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
	    TEST(others_are_answered_by_the_resolver),
	    TEST(who_guesses_is_not_believed),
	    TEST(a_resolver_that_says_nothing),
	    TEST(a_resolver_that_is_not_there),
	    TEST(the_next_resolver_is_asked),
	    TEST(a_long_answer_by_udp_is_cut),
	    TEST(by_tcp),
	    TEST(silent_connections_end),
	    TEST(too_many_connections),
	    TEST(who_asks_too_much_waits),
	    TEST(too_many_questions_under_way),
	    TEST(another_table),
	    TEST(rest_and_serve_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
