/* cage_probe.c - in agentd-worker's place: tries everything from inside the cage, and prints what
 * was not refused.
 *
 * The real broker starts it.  Its configuration is a line: a TCP port that the cage allows, one
 * that it does not, and a file that everybody may read.  Each try that could end the process is one
 * of a child, which enters the cage first.  A line is WHAT and numbers;
 * test_cage_probe.py has the list of those that are expected.
 *
 *   calls     each number, its arguments -1: a descriptor or pointer that nothing is behind
 *   arguments each family, option, flag, bit: with no descriptor EBADF means that the filter let it
 *             pass, so nothing is done
 *   deeds     what an intruder would want, with real sockets and files
 */
#include "border/protocol.h"
#include "common/err.h"
#include "worker/link/cage.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CALLS = 512, /* there are 470 */
	FAMILIES = 64,
	OPTIONS = 128,
	BITS = 32,
	KILLED = 256, /* other fates are an errno, 0: done */
	OTHERWISE,
};

static struct {
	unsigned short allowed, other;
	char readable[64];
} world;

/* --- one try, in a child --- */

struct attempt {
	long (*act)(long a, long b);
	long a, b;
};

static void enter_cage(void)
{
	struct err e;

	cage_hide_memory();
	if (!cage_enter(&world.allowed, 1, &e))
		return;
	printf("no cage: %s\n", e.msg);
	fflush(stdout);
	_exit(99);
}

static int fate_of(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return OTHERWISE;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	return WTERMSIG(status) == SIGSYS ? KILLED : OTHERWISE;
}

static int fate(struct attempt t)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		enter_cage();
		_exit(t.act(t.a, t.b) < 0 ? errno : 0);
	}
	return fate_of(pid);
}

/* --- system calls by number --- */

static long call(long nr, long ignored)
{
	(void)ignored;
	return syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L);
}

static void try_calls(void)
{
	for (int nr = 0; nr < CALLS; nr++) {
		int f = fate((struct attempt){call, nr, 0});
		if (f != KILLED && f != ENOSYS)
			printf("call %d\n", nr);
	}
}

/* --- arguments: those that get an errno, in one child --- */

static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_RDM, SOCK_SEQPACKET, SOCK_DCCP};
static const int protocols[] = {0, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_DCCP,
    IPPROTO_ICMPV6, IPPROTO_SCTP, IPPROTO_UDPLITE, IPPROTO_RAW, 262 /* MPTCP */};
static const int levels[] = {SOL_IP, SOL_SOCKET, IPPROTO_TCP, IPPROTO_UDP, SOL_IPV6, SOL_ICMPV6,
    SOL_RAW, SOL_PACKET, 270 /* netlink */, 282 /* TLS */, 283 /* XDP */, 284 /* MPTCP */,
    286 /* SMC */};
#define N(list) (sizeof(list) / sizeof((list)[0]))

static void try_sockets(int family)
{
	for (unsigned t = 0; t < N(types); t++)
		for (unsigned p = 0; p < N(protocols); p++) {
			int fd = socket(family, types[t] | SOCK_CLOEXEC, protocols[p]);
			if (fd < 0)
				continue;
			printf("socket %d %d %d\n", family, types[t], protocols[p]);
			close(fd);
		}
}

static void try_options(void)
{
	for (unsigned l = 0; l < N(levels); l++)
		for (int option = 0; option < OPTIONS; option++)
			if (setsockopt(-1, levels[l], option, NULL, 0) && errno == EBADF)
				printf("setsockopt %d %d\n", levels[l], option);
}

static void try_send(unsigned flag)
{
	if (sendto(-1, "x", 1, (int)flag, NULL, 0) < 0 && errno == EBADF)
		printf("sendto %u\n", flag);
	if (sendmsg(-1, NULL, (int)flag) < 0 && errno == EBADF)
		printf("sendmsg %u\n", flag);
	if (sendmmsg(-1, NULL, 1, (int)flag) < 0 && errno == EBADF)
		printf("sendmmsg %u\n", flag);
}

/* Numbers as terminals, files, sockets, descriptors of processes and namespaces have them. */
static void try_ioctls(void)
{
	static const unsigned types_of[] = {
	    0, 'T', 'X', 'f', 'v', 0x12, 0x89, 0x8b, 0xb7, 0xff, 0x94, 0x99};
	static const unsigned ways[] = {0, 1, 2, 3};
	static const unsigned sizes[] = {0, 4, 8, 64, 96};

	for (unsigned t = 0; t < N(types_of); t++)
		for (unsigned nr = 0; nr < 256; nr++)
			for (unsigned w = 0; w < N(ways); w++)
				for (unsigned s = 0; s < N(sizes); s++) {
					unsigned n = _IOC(ways[w], types_of[t], nr, sizes[s]);
					if (syscall(SYS_ioctl, -1, n, 0) && errno == EBADF)
						printf("ioctl %u\n", n);
				}
}

static void try_opens(unsigned flag)
{
	if (syscall(SYS_openat, -1, "x", flag, 0) < 0 && errno == EBADF)
		printf("openat %u\n", flag);
}

static long arguments(long a, long b)
{
	(void)a, (void)b;
	for (int f = 0; f < FAMILIES; f++)
		try_sockets(f);
	try_options();
	for (unsigned bit = 0; bit < BITS; bit++) {
		try_send(1u << bit);
		try_opens(1u << bit);
	}
	try_ioctls();
	fflush(stdout);
	return 0;
}

/* --- arguments: those that cost the life --- */

static long do_prctl(long option, long ignored)
{
	(void)ignored;
	return prctl((int)option, -1L, -1L, -1L, -1L);
}

static long do_clone(long flags, long ignored)
{
	(void)ignored;
	return syscall(SYS_clone, flags, -1L, -1L, -1L, -1L); /* a stack that nothing can use */
}

static long do_mmap(long prot, long ignored)
{
	(void)ignored;
	return mmap(NULL, 4096, (int)prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1
											     : 0;
}

static long do_mprotect(long prot, long ignored)
{
	void *p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)ignored;
	return mprotect(p, 4096, (int)prot);
}

static void try_bits(const char *what, long (*act)(long, long))
{
	for (unsigned bit = 0; bit < BITS; bit++)
		if (fate((struct attempt){act, (long)(1ul << bit), 0}) != KILLED)
			printf("%s %lu\n", what, 1ul << bit);
}

static void try_prctls(void)
{
	for (long option = 0; option < OPTIONS; option++) {
		int f = fate((struct attempt){do_prctl, option, 0});
		if (f != KILLED && f != ENOSYS)
			printf("prctl %ld\n", option);
	}
}

/* --- deeds --- */

static struct sockaddr_in at(long port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
	    .sin_port = htons((uint16_t)port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static long dial(long port, long ignored)
{
	struct sockaddr_in a = at(port);

	(void)ignored;
	return connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof(a));
}

/* The same address, as IPv6 says it. */
static long dial_mapped(long port, long ignored)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};

	(void)ignored;
	inet_pton(AF_INET6, "::ffff:127.0.0.1", &a.sin6_addr);
	return connect(socket(AF_INET6, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof(a));
}

static long dial_sendto(long port, long flags)
{
	struct sockaddr_in a = at(port);

	return sendto(
	    socket(AF_INET, SOCK_STREAM, 0), "x", 1, (int)flags, (struct sockaddr *)&a, sizeof(a));
}

static long dial_message(long port, bool many)
{
	struct sockaddr_in a = at(port);
	struct iovec iov = {.iov_base = "x", .iov_len = 1};
	struct mmsghdr m = {
	    .msg_hdr = {
		.msg_name = &a, .msg_namelen = sizeof(a), .msg_iov = &iov, .msg_iovlen = 1}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return many ? sendmmsg(fd, &m, 1, MSG_FASTOPEN) : sendmsg(fd, &m.msg_hdr, MSG_FASTOPEN);
}

static long dial_sendmsg(long port, long ignored)
{
	(void)ignored;
	return dial_message(port, false);
}

static long dial_sendmmsg(long port, long ignored)
{
	(void)ignored;
	return dial_message(port, true);
}

/* By connect(), which then waits for the first byte. */
static long dial_later(long port, long ignored)
{
	struct sockaddr_in a = at(port);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)ignored;
	if (setsockopt(fd, IPPROTO_TCP, 30 /* TCP_FASTOPEN_CONNECT */, &one, sizeof(one)) ||
	    connect(fd, (struct sockaddr *)&a, sizeof(a)))
		return -1;
	return write(fd, "x", 1);
}

/* An allowed connection that is led elsewhere. */
static long dial_again(long port, long ignored)
{
	struct sockaddr_in a = at(world.allowed), b = at(port);
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)ignored;
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) || connect(fd, &none, sizeof(none)))
		return -1;
	return connect(fd, (struct sockaddr *)&b, sizeof(b));
}

static long linger(long ignored, long too)
{
	struct linger l = {1, 3600};

	(void)ignored, (void)too;
	return setsockopt(socket(AF_INET, SOCK_STREAM, 0), SOL_SOCKET, SO_LINGER, &l, sizeof(l));
}

static long take_port(long port, long type)
{
	struct sockaddr_in a = at(port);

	return bind(socket(AF_INET, (int)type, 0), (struct sockaddr *)&a, sizeof(a));
}

static long udp(long port, long ignored)
{
	struct sockaddr_in a = at(port);

	(void)ignored;
	return sendto(socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, (struct sockaddr *)&a, sizeof(a));
}

/* The kernel stores whom a descriptor's signals are for, and asks who may when there is one. */
static long signal_by_descriptor(long pid, long ignored)
{
	struct sockaddr_in a = at(0);
	socklen_t size = sizeof(a);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	(void)ignored;
	if (bind(fd, (struct sockaddr *)&a, size) ||
	    getsockname(fd, (struct sockaddr *)&a, &size) || fcntl(fd, F_SETOWN, (int)pid) ||
	    fcntl(fd, F_SETSIG, SIGKILL) || fcntl(fd, F_SETFL, O_ASYNC))
		return -1;
	return sendto(fd, "x", 1, 0, (struct sockaddr *)&a, size);
}

static long look(long path, long ignored)
{
	struct stat st;

	(void)ignored;
	return stat((const char *)path, &st);
}

static long do_open(long path, long flags)
{
	return open((const char *)path, (int)flags);
}

/* Through a descriptor for nothing but its place. */
static long open_by_place(long path, long ignored)
{
	char again[64];
	int fd = open((const char *)path, O_PATH);

	(void)ignored;
	snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
	return fd < 0 ? fd : open(again, O_RDONLY);
}

static long process(long pid, long ignored)
{
	(void)ignored;
	return syscall(SYS_pidfd_open, pid, 0);
}

struct deed {
	const char *name;
	struct attempt try;
};

static void do_deeds(void)
{
	long yes = world.allowed, no = world.other, path = (long)world.readable;
	const struct deed deeds[] = {
	    {"connect-allowed", {dial, yes, 0}},
	    {"connect", {dial, no, 0}},
	    {"connect-mapped", {dial_mapped, no, 0}},
	    {"connect-again", {dial_again, no, 0}},
	    {"sendto-fastopen", {dial_sendto, no, MSG_FASTOPEN}},
	    {"sendto-fastopen-allowed", {dial_sendto, yes, MSG_FASTOPEN}},
	    {"sendmsg-fastopen", {dial_sendmsg, no, 0}},
	    {"sendmmsg-fastopen", {dial_sendmmsg, no, 0}},
	    {"connect-fastopen", {dial_later, no, 0}},
	    {"linger", {linger, 0, 0}},
	    {"bind-tcp-free", {take_port, 0, SOCK_STREAM}},
	    {"bind-tcp", {take_port, 34567, SOCK_STREAM}},
	    {"bind-udp", {take_port, 0, SOCK_DGRAM}},
	    {"bind-udp-low", {take_port, 67, SOCK_DGRAM}},
	    {"udp", {udp, no, 0}},
	    {"signal-broker", {signal_by_descriptor, getppid(), 0}},
	    {"pidfd-of-1", {process, 1, 0}},
	    {"stat", {look, path, 0}},
	    {"stat-of-root", {look, (long)"/root", 0}},
	    {"stat-of-shadow", {look, (long)"/etc/shadow", 0}},
	    {"open", {do_open, path, O_RDONLY}},
	    {"open-path", {do_open, path, O_PATH}},
	    {"open-path-of-shadow", {do_open, (long)"/etc/shadow", O_PATH}},
	    {"open-by-place", {open_by_place, path, 0}},
	    {"open-etc", {do_open, (long)"/etc/passwd", O_RDONLY}},
	    {"list-etc", {do_open, (long)"/etc", O_RDONLY | O_DIRECTORY}},
	    {"list-root", {do_open, (long)"/", O_RDONLY | O_DIRECTORY}},
	    {"open-shadow", {do_open, (long)"/etc/shadow", O_RDONLY}},
	    {"open-program", {do_open, (long)"/bin/sh", O_RDONLY}},
	    {"open-proc-1", {do_open, (long)"/proc/1/cmdline", O_RDONLY}},
	    {"open-proc-net", {do_open, (long)"/proc/net/tcp", O_RDONLY}},
	    {"open-proc-sys", {do_open, (long)"/proc/sys/kernel/hostname", O_RDONLY}},
	    {"open-self", {do_open, (long)"/proc/self/statm", O_RDONLY}},
	    {"list-self-fd", {do_open, (long)"/proc/self/fd", O_RDONLY | O_DIRECTORY}},
	    {"open-self-status", {do_open, (long)"/proc/self/status", O_RDONLY}},
	    {"open-self-mem", {do_open, (long)"/proc/self/mem", O_RDONLY}},
	    {"open-cgroups", {do_open, (long)"/sys/fs/cgroup/cgroup.procs", O_RDONLY}},
	    {"open-null", {do_open, (long)"/dev/null", O_RDONLY}},
	    {"open-random", {do_open, (long)"/dev/urandom", O_RDONLY}},
	    {"open-dev", {do_open, (long)"/dev/kmsg", O_RDONLY}},
	};

	for (unsigned i = 0; i < N(deeds); i++)
		if (fate(deeds[i].try) == 0)
			printf("deed %s\n", deeds[i].name);
}

int main(void)
{
	char line[128] = "";

	if (read(LINK_CONFIG_FD, line, sizeof(line) - 1) <= 0 ||
	    sscanf(line, "%hu %hu %63s", &world.allowed, &world.other, world.readable) != 3)
		return 3;
	try_calls();
	if (fate((struct attempt){arguments, 0, 0}))
		printf("arguments: died\n");
	try_bits("clone", do_clone);
	try_bits("mmap", do_mmap);
	try_bits("mprotect", do_mprotect);
	try_prctls();
	do_deeds();
	printf("all tried\n");
	return 0;
}
