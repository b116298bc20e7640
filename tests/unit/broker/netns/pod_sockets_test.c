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
	struct sockaddr_in6 at = {.sin6_port = 1};
	socklen_t length = sizeof(at);

	(void)ctx;
	assert_true(uuid_equal(pod, &rig_pod));
	assert_int_equal(getsockname(socket, (struct sockaddr *)&at, &length), 0);
	if (answered)
		assert_int_equal(at.sin6_port, 0); /* not bound yet: no query finds it without */
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
	pod_sockets_begin(&w.d, &rig_pod, w.kept);
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
	logged(" +udp"); /* it went with its socket */
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
	logged(" +udp +tcp -udp");
	close(worker); /* as it does when it is told */
	fd = dial(SOCK_DGRAM, "127.0.53.1");
	ask(fd);
	assert_int_equal(recv(fd, w.in, sizeof(w.in), 0), -1);
	assert_int_equal(errno, ECONNREFUSED);
	close(fd);
	close(taken);
}

/* All but one wait for the next worker, whose socket is a new one. */
static void from_one_worker_to_the_next(void **state)
{
	int first, second, fresh, elsewhere, stream, worker, old;

	(void)state;
	worker = fcntl(old = make(LINK_LISTEN_DNS_UDP), F_DUPFD_CLOEXEC, 0); /* its copy */
	make(LINK_LISTEN_DNS_TCP);
	first = dial(SOCK_DGRAM, "127.0.53.2");
	second = dial(SOCK_DGRAM, "127.0.53.1");
	fresh = dial(SOCK_DGRAM, "127.0.53.1");
	elsewhere = dial(SOCK_DGRAM, "10.0.0.7");
	ask(first);
	*w.log = '\0';
	assert_int_equal(recv(worker, w.in, 1, MSG_PEEK), 1); /* it died of this one */
	pod_sockets_detach(&w.d);
	logged("");
	assert_false(refused_query(first)); /* it would ask again, and be refused again */
	ask(second);
	ask(elsewhere);
	turns();
	assert_false(refused_query(second));
	assert_true(pod_sockets_wait(&w.d));
	assert_true((stream = dial(SOCK_STREAM, "127.0.53.1")) >= 0);
	pod_sockets_detach(&w.d); /* again: nothing */
	assert_false(refused_query(second));

	int udp = make(LINK_LISTEN_DNS_UDP);
	logged(" +udp -udp");              /* never is there none */
	assert_true(refused_query(first)); /* from the address it asked, or it would not hear it */
	assert_false(refused_query(first));
	assert_true(refused_query(second));
	assert_false(refused_query(elsewhere));
	ask(first); /* through the socket it connected earlier */
	ask(fresh);
	assert_int_equal(recv(udp, w.in, sizeof(w.in), 0), QUESTION);
	assert_int_equal(recv(udp, w.in, sizeof(w.in), 0), QUESTION);
	assert_int_equal(recv(worker, w.in, sizeof(w.in), MSG_DONTWAIT), -1);
	int tcp = make(LINK_LISTEN_DNS_TCP);
	logged(" +tcp -tcp");
	assert_int_equal(recv(stream, w.in, 1, 0), -1); /* to be dialled anew */
	assert_int_equal(errno, ECONNRESET);
	close(stream);
	assert_true((stream = dial(SOCK_STREAM, "127.0.53.1")) >= 0);
	close(accept(tcp, NULL, NULL));
	close(worker);
	close(first);
	close(second);
	close(fresh);
	close(elsewhere);
	close(stream);
}

/* The port is not for somebody in the pod to share. */
static void nobody_else_may_have_the_port(void **state)
{
	const struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int fd, one = 1;

	(void)state;
	make(LINK_LISTEN_DNS_UDP);
	pod_sockets_detach(&w.d);
	make(LINK_LISTEN_DNS_UDP);
	enter(w.netns);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), -1);
	enter(w.home.fd);
	close(fd);
}

static void when_no_worker_comes(void **state)
{
	int waiting, later, elsewhere;

	(void)state;
	make(LINK_LISTEN_DNS_UDP);
	make(LINK_LISTEN_DNS_TCP);
	waiting = dial(SOCK_DGRAM, "127.0.53.2");
	later = dial(SOCK_DGRAM, "127.0.53.1");
	elsewhere = dial(SOCK_DGRAM, "10.0.0.7");
	*w.log = '\0';
	pod_sockets_detach(&w.d);
	ask(waiting);
	assert_true(pod_sockets_give_up(&w.d));
	logged(" -tcp -udp");
	assert_false(pod_sockets_wait(&w.d));
	turns();
	assert_true(refused_query(waiting));
	ask(later);
	ask(elsewhere);
	assert_int_equal(send(later, "short", 5, 0), 5);
	turns();
	assert_true(refused_query(later));
	assert_false(refused_query(later));
	assert_false(refused_query(elsewhere));
	assert_int_equal(dial(SOCK_STREAM, "127.0.53.1"), -1);
	assert_true(pod_sockets_give_up(&w.d)); /* again: nothing */
	logged("");
	/* One comes after all. */
	int udp = make(LINK_LISTEN_DNS_UDP);
	logged(" +udp");
	ask(later);
	turns();
	assert_int_equal(recv(udp, w.in, sizeof(w.in), 0), QUESTION);
	close(waiting);
	close(later);
	close(elsewhere);
}

/* The next broker has what this one kept, and knows nothing of marks. */
static void from_one_broker_to_the_next(void **state)
{
	struct pod_sockets next = {.rig = NULL};
	char udp[BROKER_FDSTORE_NAME], tcp[BROKER_FDSTORE_NAME], pod[UUID_TEXT_SIZE];
	int waiting, worker;

	(void)state;
	uuid_format(&rig_pod, pod);
	snprintf(udp, sizeof(udp), "%s.dns-udp", pod);
	snprintf(tcp, sizeof(tcp), "%s.dns-tcp", pod);
	worker = fcntl(make(LINK_LISTEN_DNS_UDP), F_DUPFD_CLOEXEC, 0);
	pod_sockets_detach(&w.d);
	waiting = dial(SOCK_DGRAM, "127.0.53.2");
	ask(waiting);
	close(take_fd(w.d.udp.watch.fd)); /* as execve() would leave it */
	broker_fdstore_drop(w.kept, udp);
	w.d.udp.state = POD_SOCKET_NONE;
	broker_fdstore_found(w.kept, udp, worker);
	broker_fdstore_found(w.kept, tcp, fcntl(worker, F_DUPFD_CLOEXEC, 0)); /* which it is not */
	assert_true(pod_sockets_is_kept(udp) && pod_sockets_is_kept(tcp));
	assert_false(pod_sockets_is_kept(pod) || pod_sockets_is_kept("lock"));

	pod_sockets_begin(&next, &rig_pod, w.kept);
	assert_true(pod_sockets_wait(&next));
	assert_int_equal(next.tcp.state, POD_SOCKET_NONE);
	assert_false(refused_query(waiting));
	assert_false(pod_sockets_give_up(&next)); /* it cannot unmark, so it closes */
	assert_true(refused_query(waiting));
	close(waiting);
}

/* It has taken them over, and is about to ask for new ones: until then they must stay marked. */
static void another_broker_has_them(void **state)
{
	int worker = fcntl(make(LINK_LISTEN_DNS_UDP), F_DUPFD_CLOEXEC, 0), fd;

	(void)state;
	make(LINK_LISTEN_DNS_TCP);
	pod_sockets_detach(&w.d);
	fd = dial(SOCK_DGRAM, "127.0.53.1");
	ask(fd);
	*w.log = '\0';
	pod_sockets_leave(&w.d);
	pod_sockets_give_up(&w.d);
	pod_sockets_end(&w.d);
	logged("");
	assert_false(refused_query(fd));
	assert_int_equal(recv(worker, w.in, sizeof(w.in), 0), QUESTION);
	close(worker);
	close(fd);
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
	pod_sockets_give_up(&w.d);
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
	logged(" +tcp +tcp -tcp");
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
	/* One that refuses, and a worker is ready that did not ask for it. */
	make(LINK_LISTEN_DNS_UDP);
	pod_sockets_sweep(&w.d);
	*w.log = '\0';
	pod_sockets_detach(&w.d);
	pod_sockets_sweep(&w.d); /* it may ask yet */
	logged("");
	assert_true(pod_sockets_give_up(&w.d));
	logged(" -udp");
	pod_sockets_sweep(&w.d);
	assert_int_equal(w.d.udp.state, POD_SOCKET_NONE);
	assert_false(pod_sockets_give_up(&w.d));
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
	    TEST(from_one_worker_to_the_next),
	    TEST(nobody_else_may_have_the_port),
	    TEST(when_no_worker_comes),
	    TEST(from_one_broker_to_the_next),
	    TEST(another_broker_has_them),
	    TEST(no_answer_to_answers),
	    TEST(asked_for_again),
	    TEST(given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
