/* calls.c - what system calls cost in one cgroup, and in another: calls CGROUP OTHER [CALL]
 *
 * Both are directories of cgroup v2.  The program moves between them every few milliseconds, so
 * that whatever else the machine does meets both; each batch makes its sockets anew, as a socket
 * belongs to the cgroup it was made in.  Prints JSON: call -> nanoseconds in either, and the ratio
 * other / first of neighbouring batches: median, lowest and highest quarter.  A batch of connect()
 * counts by its median: on a busy machine the mean is of who else ran.
 */
#include "times.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAIRS = 200, CONNECT_PAIRS = 1000, PARTS = 1000000 };

static struct sockaddr_in here = {.sin_family = AF_INET};
static const struct sockaddr *to = (const struct sockaddr *)&here;
static int listener, stream, datagram;

static void check(int rc, const char *what)
{
	if (rc < 0)
		die(what);
}

static void enter(const char *cgroup)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1)
		die(path);
	close(fd);
}

static int64_t connect_tcp(void)
{
	int s = socket(AF_INET, SOCK_STREAM, 0), accepted;
	int64_t start = now_ns(CLOCK_MONOTONIC), took;

	check(connect(s, to, sizeof(here)), "connect");
	took = now_ns(CLOCK_MONOTONIC) - start;
	accepted = accept(listener, NULL, NULL);
	/* Reset: no TIME_WAIT fills the ports. */
	setsockopt(s, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
	close(s);
	close(accepted);
	return took;
}

static void whole_connection(void)
{
	connect_tcp();
}

static void connect_udp(void)
{
	check(connect(datagram, to, sizeof(here)), "connect of UDP");
}

static void send_and_receive(void)
{
	char byte = 0;
	struct sockaddr_in from;
	socklen_t size = sizeof(from);

	check((int)sendto(datagram, &byte, 1, 0, to, sizeof(here)), "sendto");
	check((int)recvfrom(datagram, &byte, 1, 0, (struct sockaddr *)&from, &size), "recvfrom");
}

static void socket_close(void)
{
	close(socket(AF_INET, SOCK_STREAM, 0));
}

static void bind_close(void)
{
	const struct sockaddr_in any = {.sin_family = AF_INET};
	int s = socket(AF_INET, SOCK_STREAM, 0);

	check(bind(s, (const struct sockaddr *)&any, sizeof(any)), "bind");
	close(s);
}

static void getsockopt_type(void)
{
	int type;

	check(getsockopt(stream, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof(type)}),
	    "getsockopt");
}

static void getpeername_tcp(void)
{
	struct sockaddr_in peer;

	check(getpeername(stream, (struct sockaddr *)&peer, &(socklen_t){sizeof(peer)}),
	    "getpeername");
}

static const struct call {
	const char *name;
	void (*act)(void);
	int times;
} calls[] = {
    {"TCP connect()", NULL, 100},
    {"TCP connect, accept, close", whole_connection, 100},
    {"UDP connect()", connect_udp, 4000},
    {"UDP sendto and recvfrom", send_and_receive, 1000},
    {"socket, close", socket_close, 1000},
    {"socket, bind, close", bind_close, 500},
    {"getsockopt()", getsockopt_type, 8000},
    {"getpeername()", getpeername_tcp, 8000},
};

static void open_sockets(void)
{
	stream = socket(AF_INET, SOCK_STREAM, 0);
	datagram = socket(AF_INET, SOCK_DGRAM, 0);
	check(connect(stream, to, sizeof(here)), "connect");
	close(accept(listener, NULL, NULL));
	check(bind(datagram, to, sizeof(here)), "bind"); /* what is sent there comes back */
}

/* Picoseconds, as below. */
static int64_t connects(int times)
{
	struct times took = {0};
	int64_t median;

	for (int i = 0; i < times; i++)
		times_note(&took, connect_tcp());
	median = times_part(&took, 0.5);
	free(took.ns);
	return median * 1000;
}

/* Picoseconds of one call. */
static int64_t batch(const struct call *c, const char *cgroup)
{
	int64_t start, ps;

	enter(cgroup);
	open_sockets();
	start = now_ns(CLOCK_MONOTONIC);
	for (int i = 0; c->act && i < c->times; i++)
		c->act();
	ps = c->act ? (now_ns(CLOCK_MONOTONIC) - start) * 1000 / c->times : connects(c->times);
	close(stream);
	close(datagram);
	return ps;
}

static void compare_places(const struct call *c, const char *const place[2], const char *before)
{
	struct times took[2] = {{0}}, ratios = {0}; /* ratios in millionths */

	for (int i = 0; i < (c->act ? PAIRS : CONNECT_PAIRS); i++) {
		int64_t ps[2];

		for (int k = 0; k < 2; k++) {
			int at = (i + k) & 1; /* each is first as often as the other */
			ps[at] = batch(c, place[at]);
			times_note(&took[at], ps[at]);
		}
		times_note(&ratios, ps[1] * PARTS / ps[0]);
	}
	printf("%s\"%s\": {\"ns\": [%.1f, %.1f], \"ratio\": [%.4f, %.4f, %.4f]}", before, c->name,
	    (double)times_part(&took[0], 0.5) / 1e3, (double)times_part(&took[1], 0.5) / 1e3,
	    (double)times_part(&ratios, 0.5) / PARTS, (double)times_part(&ratios, 0.25) / PARTS,
	    (double)times_part(&ratios, 0.75) / PARTS);
	free(took[0].ns);
	free(took[1].ns);
	free(ratios.ns);
}

int main(int argc, char **argv)
{
	const size_t n = sizeof(calls) / sizeof(*calls);
	const char *before = "";

	if (argc != 3 && argc != 4)
		die("calls CGROUP OTHER [CALL]");
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	check(bind(listener, to, sizeof(here)), "bind");
	check(listen(listener, 128), "listen");
	check(getsockname(listener, (struct sockaddr *)&here, &(socklen_t){sizeof(here)}), "port");
	printf("{");
	for (size_t i = 0; i < n; i++) {
		if (argc == 4 && strcmp(argv[3], calls[i].name) != 0)
			continue;
		compare_places(&calls[i], (const char *const[]){argv[1], argv[2]}, before);
		before = ", ";
	}
	printf("}\n");
	close(listener);
	return 0;
}
