/* pod_sockets_test.c - the sockets of a pod's DNS proxy from one worker to the next, and sockets to
 * dial from; in a network namespace of the test's own.
 * LINK: tests/unit/broker/rig.c */
#include "broker/base/loop.h"
#include "broker/netns/pod_sockets.h"
#include "common/err.h"
#include "common/mem.h"
#include "tests/unit/broker/rig.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

enum { PORT = 15053 };

static struct world {
	struct broker_fdstore *kept;
	struct netns_home home;
	struct pod_sockets_rig rig;
	struct pod_sockets d;
	int epoll, netns, empty; /* the pod's, and another one */
	bool unmarkable;
	char log[256]; /* "+udp -udp ..." */
	uint8_t in[512];
	ssize_t size;
} w;

static int type_of(int fd)
{
	int type;
	socklen_t size = sizeof(type);

	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size), 0);
	return type;
}

static int mark(void *ctx, const struct uuid *pod, int socket, bool answered, struct err *why)
{
	(void)ctx;
	assert_true(uuid_equal(pod, &rig_pod));
	strcat(w.log, answered ? " +" : " -");
	strcat(w.log, type_of(socket) == SOCK_DGRAM ? "udp" : "tcp");
	return answered && w.unmarkable ? err_set(why, ENOENT, "no mark") : 0;
}

static void logged(const char *what)
{
	assert_string_equal(w.log, what);
	*w.log = '\0';
}

static void enter(int netns)
{
	assert_int_equal(setns(netns, CLONE_NEWNET), 0);
}

static int new_netns(void)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	struct sockaddr_in *a = (struct sockaddr_in *)&r.ifr_addr;
	int fd, s;

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(ioctl(s, SIOCSIFFLAGS, &r), 0);
	strcpy(r.ifr_name, "lo:1"); /* an address of the pod's own */
	*a = (struct sockaddr_in){.sin_family = AF_INET};
	inet_pton(AF_INET, "10.0.0.7", &a->sin_addr);
	assert_int_equal(ioctl(s, SIOCSIFADDR, &r), 0);
	close(s);
	fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	enter(w.home.fd);
	return fd;
}

static int setup(void **state)
{
	struct err why;

	(void)state;
	memset(&w, 0, sizeof(w));
	w.kept = broker_fdstore_new();
	assert_int_equal(netns_home_open(&w.home, w.kept, &why), 0);
	w.epoll = broker_loop_new();
	w.netns = new_netns();
	w.empty = new_netns();
	w.rig = (struct pod_sockets_rig){w.epoll, &w.home, mark, NULL};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pod_sockets_end(&w.d);
	close(w.netns);
	close(w.empty);
	close(w.epoll);
	netns_home_close(&w.home);
	broker_fdstore_free(&w.kept);
	return 0;
}

static int listen_at(unsigned kind, struct err *why)
{
	const struct pod_sockets_place at = {&rig_pod, w.netns, PORT};

	return pod_sockets_listen(&w.d, &w.rig, &at, kind, why);
}

static int make(unsigned kind)
{
	struct err why = {0};
	int fd = listen_at(kind, &why);

	if (fd < 0)
		fail_msg("%s", why.msg);
	return fd;
}

static void refused(unsigned kind, int code)
{
	struct err why = {0};

	assert_int_equal(listen_at(kind, &why), -1);
	assert_int_equal(why.code, code);
}

/* From inside the pod. */
static int dial(int type, const char *address)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct timeval timeout = {.tv_usec = 200000};
	int fd, rc;

	inet_pton(AF_INET, address, &a.sin_addr);
	enter(w.netns);
	fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	rc = connect(fd, (struct sockaddr *)&a, sizeof(a));
	enter(w.home.fd);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	if (!rc)
		return fd;
	close(fd);
	return -1;
}

static const uint8_t question[] =
    "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x00\x00\x01\x00\x01";
enum { QUESTION = sizeof(question) - 1 };

static void ask(int fd)
{
	assert_int_equal(send(fd, question, QUESTION, 0), QUESTION);
}

static void turns(void)
{
	for (int i = 0; i < 4; i++)
		broker_loop_turn(w.epoll, 0);
}

static bool refused_query(int fd)
{
	w.size = recv(fd, w.in, sizeof(w.in), MSG_DONTWAIT);
	if (w.size < 0)
		return false;
	assert_int_equal(w.size, QUESTION);
	assert_memory_equal(w.in, "\x12\x34\x81\x02", 4); /* "server failure" */
	assert_memory_equal(w.in + 4, question + 4, QUESTION - 4);
	return true;
}

/* --- */

static void in_the_pods_network_and_marked(void **state)
{
	struct sockaddr_in6 a;
	socklen_t size = sizeof(a);
	int udp = make(LINK_LISTEN_DNS_UDP), tcp = make(LINK_LISTEN_DNS_TCP), fd;

	(void)state;
	logged(" +udp +tcp");
	assert_int_equal(getsockname(udp, (struct sockaddr *)&a, &size), 0);
	assert_int_equal(ntohs(a.sin6_port), PORT);
	assert_true(fcntl(udp, F_GETFL) & fcntl(tcp, F_GETFL) & O_NONBLOCK);
	assert_true((fd = dial(SOCK_STREAM, "127.0.53.1")) >= 0);
	close(fd);
	fd = dial(SOCK_DGRAM, "127.0.53.4");
	ask(fd);
	assert_int_equal(recv(udp, w.in, sizeof(w.in), 0), QUESTION);
	turns();
	assert_false(refused_query(fd)); /* it is the worker's to answer */
	close(fd);
}

static void one_that_cannot_be_marked(void **state)
{
	(void)state;
	make(LINK_LISTEN_DNS_TCP);
	w.unmarkable = true;
	refused(LINK_LISTEN_DNS_UDP, ENOENT);
	assert_int_equal(w.d.tcp.state, POD_SOCKET_NONE);
	w.unmarkable = false;
	make(LINK_LISTEN_DNS_UDP); /* nothing was left there */
}

/* Somebody in the pod was there first. */
static void a_port_that_is_taken(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int fd;

	(void)state;
	enter(w.netns);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	enter(w.home.fd);
	refused(LINK_LISTEN_DNS_UDP, EADDRINUSE);
	logged("");
	make(LINK_LISTEN_DNS_TCP);
	close(fd);
	make(LINK_LISTEN_DNS_UDP);
}

/* Of two that are served together one cannot be had: the other's mark would lead to nobody. */
static void one_without_the_other(void **state)
{
	const struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int taken, worker, fd;

	(void)state;
	enter(w.netns);
	taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(taken, (const struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(taken, 1), 0);
	enter(w.home.fd);
	worker = fcntl(make(LINK_LISTEN_DNS_UDP), F_DUPFD_CLOEXEC, 0);
	refused(LINK_LISTEN_DNS_TCP, EADDRINUSE);
	logged(" +udp -udp");
	close(worker); /* as it does when it is told */
	fd = dial(SOCK_DGRAM, "127.0.53.1");
	ask(fd);
	assert_int_equal(recv(fd, w.in, sizeof(w.in), 0), -1);
	assert_int_equal(errno, ECONNREFUSED);
	close(fd);
	close(taken);
}

static void when_the_worker_is_gone(void **state)
{
	int waiting, later, elsewhere, worker;

	(void)state;
	worker = fcntl(make(LINK_LISTEN_DNS_UDP), F_DUPFD_CLOEXEC, 0); /* its copy */
	make(LINK_LISTEN_DNS_TCP);
	waiting = dial(SOCK_DGRAM, "127.0.53.2");
	later = dial(SOCK_DGRAM, "127.0.53.1");
	elsewhere = dial(SOCK_DGRAM, "10.0.0.7");
	ask(waiting);
	*w.log = '\0';
	assert_int_equal(recv(worker, w.in, 1, MSG_PEEK), 1); /* it was about to answer */
	assert_true(pod_sockets_detach(&w.d));
	close(worker);
	logged(" -tcp -udp");
	turns();
	assert_true(
	    refused_query(waiting)); /* from the address it asked, or it would not hear it */
	ask(later);
	ask(elsewhere);
	assert_int_equal(send(later, "short", 5, 0), 5);
	turns();
	assert_true(refused_query(later));
	assert_false(refused_query(later));
	assert_false(refused_query(elsewhere));
	assert_int_equal(dial(SOCK_STREAM, "127.0.53.1"), -1);
	pod_sockets_detach(&w.d); /* again: nothing */
	logged("");
	/* The next one: what an earlier one might have died of is not for it. */
	ask(waiting);
	int udp = make(LINK_LISTEN_DNS_UDP);
	logged(" +udp");
	assert_true(refused_query(waiting));
	assert_int_equal(recv(udp, w.in, sizeof(w.in), MSG_DONTWAIT), -1);
	ask(later);
	turns();
	assert_int_equal(recv(udp, w.in, sizeof(w.in), 0), QUESTION);
	close(waiting);
	close(later);
	close(elsewhere);
}

/* What answers an answer would do so for ever. */
static void no_answer_to_answers(void **state)
{
	uint8_t answer[QUESTION];
	int fd;

	(void)state;
	make(LINK_LISTEN_DNS_UDP);
	fd = dial(SOCK_DGRAM, "127.0.53.2");
	pod_sockets_detach(&w.d);
	memcpy(answer, question, QUESTION);
	answer[2] |= 0x80;
	assert_int_equal(send(fd, answer, QUESTION, 0), QUESTION);
	turns();
	assert_false(refused_query(fd));
	close(fd);
}

/* The same worker asks again: its old socket, which it may have spoilt, is nobody's. */
static void asked_for_again(void **state)
{
	int worker = fcntl(make(LINK_LISTEN_DNS_TCP), F_DUPFD_CLOEXEC, 0), fd;

	(void)state;
	shutdown(worker, SHUT_RDWR);
	close(worker);
	make(LINK_LISTEN_DNS_TCP);
	logged(" +tcp -tcp +tcp");
	assert_true((fd = dial(SOCK_STREAM, "127.0.53.1")) >= 0);
	close(fd);
}

static void given_up(void **state)
{
	int fd;

	(void)state;
	make(LINK_LISTEN_DNS_UDP);
	make(LINK_LISTEN_DNS_TCP);
	*w.log = '\0';
	fd = dial(SOCK_DGRAM, "127.0.53.2");
	ask(fd);
	pod_sockets_end(&w.d);
	logged(" -udp -tcp");
	assert_true(refused_query(fd)); /* not lost with the socket */
	assert_int_equal(send(fd, question, QUESTION, 0), QUESTION);
	assert_int_equal(recv(fd, w.in, sizeof(w.in), 0), -1);
	assert_int_equal(errno, ECONNREFUSED);
	pod_sockets_end(&w.d);
	pod_sockets_sweep(&w.d);
	close(fd);
	/* What the next worker did not ask for until it was ready. */
	make(LINK_LISTEN_DNS_UDP);
	pod_sockets_sweep(&w.d);
	*w.log = '\0';
	pod_sockets_detach(&w.d);
	logged(" -udp");
	pod_sockets_sweep(&w.d);
	assert_int_equal(w.d.udp.state, POD_SOCKET_NONE);
	assert_false(pod_sockets_detach(&w.d));
	assert_int_equal(dial(SOCK_STREAM, "127.0.53.1"), -1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(in_the_pods_network_and_marked),
	    TEST(one_that_cannot_be_marked),
	    TEST(a_port_that_is_taken),
	    TEST(one_without_the_other),
	    TEST(when_the_worker_is_gone),
	    TEST(no_answer_to_answers),
	    TEST(asked_for_again),
	    TEST(given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
