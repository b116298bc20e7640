/* upstream_test.c - resolvers that answer, fail, lie or say nothing, behind a DNS proxy.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/unit/worker/dns/dns_world.c
 */
#include "dns_world.h"

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

/* Ids are not counted up, and ports do not stay. */
static void ids_and_ports_change(void **state)
{
	static bool ports[65536];
	unsigned nports = 0, steps = 0;
	uint16_t last = 0;

	(void)state;
	memset(ports, 0, sizeof(ports));
	for (int i = 0; i < 4000; i++) {
		ask(1, "other.example", DNS_A);
		give_lanes();
		assert_true(asked(0));
		nports += !ports[w.from.sin_port];
		ports[w.from.sin_port] = true;
		steps += dns_id(w.in) == (uint16_t)(last + 1);
		last = dns_id(w.in);
		answer(0, DNS_NOERROR);
		answered(1, DNS_NOERROR);
		if (i % 100 == 99)
			fake_loop_advance(w.l, 100);
	}
	assert_in_range(nports, 6, 12);
	assert_true(steps < 10);
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
	while (fake_link_dials(w.link, LINK_DIAL_UDP))
		fake_link_dialled(w.link, LINK_DIAL_UDP, -1, "not now");
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

static void serve_two_at_once(void)
{
	dns_proxy_rest(w.p);
	w.o.nservers = 2;
	w.o.parallel = true;
	serve();
}

/* DNS_FORWARD_PARALLEL: both at once; the first that does not fail answers. */
static void all_resolvers_are_asked_at_once(void **state)
{
	struct sockaddr_in from;
	uint8_t first[SIZE];
	size_t size;

	(void)state;
	serve_two_at_once();
	for (int i = 0; i < 2; i++) {
		ask(7, "other.example", DNS_A);
		give_lanes();
		assert_true(asked(0));
		memcpy(first, w.in, size = w.size);
		from = w.from;
		assert_true(asked(1));
		answer(1, i ? DNS_SERVFAIL : DNS_NOERROR);
		if (!i)
			answered(7, DNS_NOERROR);
		assert_false(receive(w.client));
		memcpy(w.in, first, w.size = size);
		w.from = from;
		answer(0, DNS_NOERROR); /* the second answer of the first question is too late */
		if (i)
			answered(7, DNS_NOERROR);
		assert_false(receive(w.client));
	}
	assert_int_equal(dns_proxy_counts(w.p).upstream.asked, 2);
	assert_int_equal(dns_proxy_counts(w.p).upstream.failed, 0);
}

static void all_fail_at_once(void **state)
{
	(void)state;
	serve_two_at_once();
	ask(8, "other.example", DNS_A);
	give_lanes();
	assert_true(asked(0));
	answer(0, DNS_SERVFAIL);
	assert_false(receive(w.client));
	assert_true(asked(1));
	fake_loop_advance(w.l, 4999);
	assert_false(receive(w.client));
	fake_loop_advance(w.l, 1);
	answered(8, DNS_SERVFAIL);
	assert_int_equal(dns_proxy_counts(w.p).upstream.failed, 1);
	ask(9, "other.example", DNS_A); /* the proxy goes with questions under way */
	give_lanes();
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(others_are_answered_by_the_resolver),
	    TEST(ids_and_ports_change),
	    TEST(who_guesses_is_not_believed),
	    TEST(a_resolver_that_says_nothing),
	    TEST(a_resolver_that_is_not_there),
	    TEST(the_next_resolver_is_asked),
	    TEST(all_resolvers_are_asked_at_once),
	    TEST(all_fail_at_once),
	    TEST(a_long_answer_by_udp_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
