/* dial_test.c - sockets of a pod's network namespace, and how many of them; time stands still.
 * LINK: tests/fake/clock.c tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/netns/dial.h"
#include "tests/fake/clock.h"
#include "tests/unit/broker/bpf.h"
#include <linux/sockios.h>
#include <sys/ioctl.h>

static struct broker_fdstore *kept;
static struct netns_home home;
static int netns;

static int setup(void **state)
{
	struct err e;

	(void)state;
	fake_clock_stop();
	kept = broker_fdstore_new();
	netns = place_netns("ip link set lo up");
	return netns_home_open(&home, kept, &e);
}

static int teardown(void **state)
{
	(void)state;
	close(netns);
	netns_home_close(&home);
	broker_fdstore_free(&kept);
	return 0;
}

static int dial(struct netns_dial *d, int in, unsigned kind, unsigned family, int code)
{
	const struct link_request r = {.kind = (uint16_t)kind, .arg = family};
	struct err why = {0};
	int fd = netns_dial(d, &home, in, &r, &why);

	assert_int_equal(why.code, code);
	assert_int_equal(fd < 0, code != 0);
	return fd;
}

static int option(int fd, int name)
{
	int value;
	socklen_t size = sizeof(value);

	assert_int_equal(getsockopt(fd, SOL_SOCKET, name, &value, &size), 0);
	return value;
}

static ino_t netns_of_socket(int fd)
{
	int of = ioctl(fd, SIOCGSKNS);
	struct stat st;

	assert_int_equal(fstat(of, &st), 0);
	close(of);
	return st.st_ino;
}

static void test_of_the_pods_network(void **state)
{
	static const unsigned families[] = {AF_INET, AF_INET6};
	struct netns_dial d = {0};
	struct stat pods;

	(void)state;
	assert_int_equal(fstat(netns, &pods), 0);
	for (int i = 0; i < 2; i++)
		for (unsigned kind = 0; kind <= LINK_DIAL_TCP; kind++) {
			int fd = dial(&d, netns, kind, families[i], 0);

			assert_int_equal(option(fd, SO_DOMAIN), families[i]);
			assert_int_equal(
			    option(fd, SO_TYPE), kind == LINK_DIAL_UDP ? SOCK_DGRAM : SOCK_STREAM);
			assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
			assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
			assert_int_equal(netns_of_socket(fd), pods.st_ino);
			close(fd);
		}
}

/* A taken-over worker would answer in the app's place. */
static void test_its_port_is_its_own_for_good(void **state)
{
	static const sa_family_t families[] = {AF_INET, AF_INET6};
	struct netns_dial d = {0};

	(void)state;
	for (int i = 0; i < 2; i++)
		for (unsigned kind = 0; kind <= LINK_DIAL_TCP; kind++) {
			const struct sockaddr none = {.sa_family = AF_UNSPEC};
			struct sockaddr_in6 app = {
			    .sin6_family = families[i], .sin6_port = htons(8080)};
			const struct sockaddr *a = (const struct sockaddr *)&app;
			int fd = dial(&d, netns, kind, families[i], 0);

			assert_int_equal(bind(fd, a, sizeof(app)), -1);
			assert_int_equal(errno, EINVAL);
			connect(fd, a, sizeof(app));
			connect(fd, &none, sizeof(none)); /* forgets a port of the kernel's */
			assert_int_equal(bind(fd, a, sizeof(app)), -1);
			assert_int_equal(errno, EINVAL);
			close(fd);
		}
}

static unsigned at_port(unsigned family, unsigned port)
{
	return family | port << LINK_DIAL_PORT_SHIFT;
}

/* A listener on the loopback of that namespace; its port. */
static int listen_there(unsigned family, unsigned *port)
{
	struct sockaddr_in6 a = {.sin6_family = (sa_family_t)family};
	socklen_t size = sizeof(a);
	struct netns_dial d = {0};
	int fd = dial(&d, netns, LINK_DIAL_TCP, family, 0);

	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
	*port = ntohs(a.sin6_port);
	return fd;
}

/* It is connected to the pod's own loopback, and its port is its own for good. */
static void test_of_the_loopback(void **state)
{
	static const unsigned families[] = {AF_INET, AF_INET6};
	struct netns_dial d = {0};

	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct sockaddr none = {.sa_family = AF_UNSPEC};
		struct sockaddr_in6 app = {.sin6_family = (sa_family_t)families[i]};
		unsigned port;
		int there = listen_there(families[i], &port), in;
		int fd = dial(&d, netns, LINK_DIAL_LOOPBACK, at_port(families[i], port), 0);

		in = accept(there, NULL, NULL);
		assert_true(in >= 0);
		assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
		assert_int_equal(write(fd, "x", 1), 1);
		connect(fd, &none, sizeof(none));
		assert_int_equal(bind(fd, (const struct sockaddr *)&app, sizeof(app)), -1);
		close(in);
		close(fd);
		close(there);
	}
}

/* What is refused is not counted either. */
static void test_what_is_no_socket(void **state)
{
	struct netns_dial d = {0};

	(void)state;
	dial(&d, -1, LINK_DIAL_UDP, AF_INET, ENOTCONN);
	dial(&d, netns, LINK_DIAL_END, AF_INET, EINVAL);
	dial(&d, netns, LINK_DIAL_UDP, AF_UNIX, EINVAL);
	dial(&d, netns, LINK_DIAL_TCP, at_port(AF_INET, 15020), EINVAL);
	dial(&d, netns, LINK_DIAL_LOOPBACK, at_port(AF_UNIX, 15020), EINVAL);
	dial(&d, netns, LINK_DIAL_LOOPBACK, AF_INET, EACCES);
	dial(&d, netns, LINK_DIAL_LOOPBACK, at_port(AF_INET, 1023), EACCES);
	dial(&d, netns, LINK_DIAL_LOOPBACK, at_port(AF_INET6, 15000), EACCES); /* Envoy's admin */
	dial(&d, netns, LINK_DIAL_UDP, AF_PACKET, EINVAL);
	dial(&d, netns, LINK_DIAL_UDP, 0xffffffff, EINVAL);
	assert_int_equal(d.full_ms, 0);
}

/* 64 at once, 50 a second; another pod has its own. */
static void test_not_too_many_of_them(void **state)
{
	struct netns_dial d = {0}, other = {0};

	(void)state;
	for (int i = 0; i < NETNS_DIAL_MAX; i++)
		close(dial(&d, netns, LINK_DIAL_UDP, AF_INET, 0));
	dial(&d, netns, LINK_DIAL_UDP, AF_INET, EAGAIN);
	close(dial(&other, netns, LINK_DIAL_UDP, AF_INET, 0));
	fake_clock_pass_ms(100);
	for (int i = 0; i < NETNS_DIAL_PER_SECOND / 10; i++)
		close(dial(&d, netns, LINK_DIAL_UDP, AF_INET, 0));
	dial(&d, netns, LINK_DIAL_UDP, AF_INET, EAGAIN);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_of_the_pods_network),
	    TEST(test_its_port_is_its_own_for_good),
	    TEST(test_of_the_loopback),
	    TEST(test_what_is_no_socket),
	    TEST(test_not_too_many_of_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
