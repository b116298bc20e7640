/* endpoint_test.c - which texts are an address and a port. */
#include "broker/base/endpoint.h"
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_addresses_and_what_is_none(void **state)
{
	static const struct {
		const char *text, *host;
		int port;
	} good[] = {{"127.0.0.1:15091", "127.0.0.1", 15091}, {"0.0.0.0:1", "0.0.0.0", 1},
	    {"[10.1.2.3]:65535", "10.1.2.3", 65535}, {"[::]:15091", "::", 15091},
	    {"[fd00::1]:80", "fd00::1", 80}};
	static const char *const bad[] = {"", ":", ":1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0",
	    "127.0.0.1:65536", "127.0.0.1:99999", "127.0.0.1:123456", "127.0.0.1:1x",
	    "127.0.0.1:-1", "127.0.0.1: 1", "127.0.0.1:1:2", "::1:80", "[::1]", "[::1]80",
	    "[::1:80", "[]:80", "[fe80::1%lo]:80", "localhost:80", "127.1:80",
	    "127.000000000000000000000000000000000000000000000000000.0.1:80"};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct sockaddr_storage a;
		char host[INET6_ADDRSTRLEN];
		assert_int_equal(broker_endpoint_parse(good[i].text, &a, &e), 0);
		const struct sockaddr_in *v4 = (void *)&a;
		const struct sockaddr_in6 *v6 = (void *)&a;
		inet_ntop(a.ss_family,
		    a.ss_family == AF_INET ? (void *)&v4->sin_addr : (void *)&v6->sin6_addr, host,
		    sizeof(host));
		assert_string_equal(host, good[i].host);
		assert_int_equal(
		    ntohs(a.ss_family == AF_INET ? v4->sin_port : v6->sin6_port), good[i].port);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct sockaddr_storage a;
		if (!broker_endpoint_parse(bad[i], &a, &e))
			fail_msg("\"%s\" was taken", bad[i]);
		assert_int_equal(e.code, EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_addresses_and_what_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
