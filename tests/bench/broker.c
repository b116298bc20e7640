/* broker.c - what a question to the broker takes: one after another, each answered.
 *
 * The broker's core serves in a child; the parent is the worker's end.  Prints JSON: what was asked
 * -> microseconds.  Root is needed.
 */
#include "broker/requests/broker.h"
#include "broker/base/fdstore.h"
#include "common/err.h"
#include "common/fdpass.h"
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 20000 };

static void die(const char *what)
{
	fprintf(stderr, "broker: %s\n", what);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Both ends: an idle core of a virtual machine may take 50 us to wake. */
static void stay_on_this_core(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		die("no core to stay on");
}

static void serve(const char *top, int fd)
{
	char run[64], manifests[64], identities[64];
	char *argv[] = {"agentd", run, manifests, identities, "--worker-user=1338", NULL};
	struct broker_options o;
	struct err e;

	snprintf(run, sizeof(run), "--run=%s/run", top);
	snprintf(manifests, sizeof(manifests), "--manifests=%s/pods.d", top);
	snprintf(identities, sizeof(identities), "--identity-dir=%s/identity", top);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (broker_options_parse(&o, sizeof(argv) / sizeof(argv[0]) - 1, argv, &e))
		die(e.msg);
	struct broker *b = broker_new(&o, broker_fdstore_new(), &e);
	if (!b || broker_attach(b, fd, &e))
		die(e.msg);
	while (broker_turn(b, -1) == BROKER_SERVING)
		;
	_exit(0);
}

static void receive(int sock, struct link_packet *p)
{
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {p, sizeof(*p)};
	struct msghdr m = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = control,
	    .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	int fd;

	if (recvmsg(sock, &m, MSG_CMSG_CLOEXEC) != sizeof(*p))
		die("the broker went away");
	if ((c = CMSG_FIRSTHDR(&m))) {
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		close(fd);
	}
}

static double ask(int sock, enum link_op op)
{
	static uint32_t id;
	struct link_request q = {.id = ++id, .op = (uint16_t)op, .uid = {{1}}};
	struct link_packet p;
	double start = now_us();

	if (fdpass_send(sock, &q, sizeof(q), -1))
		die("send");
	receive(sock, &p);
	if (p.what != LINK_REPLY || p.id != q.id || p.code)
		die(p.why);
	return now_us() - start;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(int sock, enum link_op op, const char *name, const char *end)
{
	static double us[TIMES];

	for (int i = 0; i < TIMES; i++)
		us[i] = ask(sock, op);
	qsort(us, TIMES, sizeof(us[0]), compare);
	printf("\"%s\": {\"p50\": %.2f, \"p99\": %.2f}%s", name, us[TIMES / 2],
	    us[TIMES * 99 / 100], end);
}

int main(void)
{
	char top[] = "/tmp/agentd-bench.XXXXXX", clean[80];
	struct link_packet p;
	int pair[2];

	stay_on_this_core();
	/* Its mounts go with it. */
	if (!mkdtemp(top) || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
		die("root is needed");
	pid_t pid = fork();
	if (pid == 0) {
		close(pair[1]);
		serve(top, pair[0]);
	}
	close(pair[0]);
	receive(pair[1], &p); /* the greeting */
	receive(pair[1], &p);
	ask(pair[1], LINK_POD_ADD);
	printf("{");
	measure(pair[1], LINK_POD_ADD, "nothing to do", ", ");
	measure(pair[1], LINK_LISTEN, "kept socket", "}\n");
	close(pair[1]);
	waitpid(pid, NULL, 0);
	snprintf(clean, sizeof(clean), "umount %s/run/state; rm -rf %s", top, top);
	return system(clean) ? 1 : 0;
}
