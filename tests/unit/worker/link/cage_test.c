/* cage_test.c - children that enter the cage, and what becomes of each thing they try there.
 *
 * Under a sanitizer its own calls are allowed beside the worker's (ptrace for the leak checker,
 * ...): rows marked so are tried in the release build only; `make unit` runs both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/log.h"
#include "worker/link/cage.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __has_feature /* clang's */
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define TRACEABLE true /* the leak checker needs it */
#define SANITIZED true
#else
#define TRACEABLE false
#define SANITIZED __has_feature(thread_sanitizer)
#endif

enum {
	NOBODY = 64001,
	KILLED = 1000, /* by SIGSYS; other fates are 0 or an errno */
	ABORTED,
	ELSE,
	X32 = 0x40000000,
	MPTCP = 262,
};

/* Made by root before a child goes in; what it tries finds its things here. */
static struct {
	char dir[32], readable[64], secret[64];
	int listener[2]; /* TCP on loopback, only the first one's port is allowed */
	uint16_t port[2];
	int abstract, unix_client;
	struct sockaddr_un abstract_address;
	socklen_t abstract_size;
	int pidfd, ask, told;
} world;

static int try_call(long rc)
{
	return rc < 0 ? errno : 0;
}

/* --- what is tried --- */

#define TRY(name, ...)                                                                             \
	static int name(void)                                                                      \
	{                                                                                          \
		return try_call(__VA_ARGS__);                                                      \
	}

TRY(do_bpf, syscall(SYS_bpf, 0, NULL, 0))
TRY(do_mount, mount("none", "/mnt", "tmpfs", 0, NULL))
TRY(do_setns, setns(world.pidfd, CLONE_NEWNET))
TRY(do_ptrace, syscall(SYS_ptrace, 0, 0, 0, 0))
TRY(do_execve, execl("/bin/true", "true", NULL))
TRY(do_execveat, syscall(SYS_execveat, world.pidfd, "", NULL, NULL, AT_EMPTY_PATH))
TRY(do_fork, syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))
TRY(do_clone_newuser, syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0))
TRY(do_unshare, unshare(CLONE_NEWUSER))
TRY(do_prctl, prctl(PR_SET_DUMPABLE, 1))
TRY(do_io_uring, syscall(SYS_io_uring_setup, 1, NULL))
TRY(do_kill, kill(getppid(), 0))
TRY(do_pidfd_signal, syscall(SYS_pidfd_send_signal, world.pidfd, 0, NULL, 0))
TRY(do_pidfd_getfd, syscall(SYS_pidfd_getfd, world.pidfd, 0, 0))
TRY(do_read_memory, syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0))
TRY(do_tgkill, syscall(SYS_tgkill, 1, 1, 0))
TRY(do_timerslack, prctl(PR_GET_TIMERSLACK))
TRY(do_mempolicy, syscall(SYS_get_mempolicy, NULL, NULL, 0, 0, 0))
TRY(do_setattr, syscall(SYS_sched_setattr, 0, NULL, 0))
TRY(do_priority, syscall(SYS_setpriority, 0, 0, 1))
TRY(do_statx, syscall(SYS_statx, -1, "", 0, 0, NULL))
TRY(do_openat2, syscall(SYS_openat2, -1, "", NULL, 0))
TRY(do_listen, listen(world.listener[0], 1))
TRY(do_socketpair, socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){0}))
TRY(do_chmod, chmod(world.readable, 0777))
TRY(do_unlink, unlink(world.readable))
TRY(do_rename, rename(world.readable, world.secret))
TRY(do_userfaultfd, syscall(SYS_userfaultfd, 0))
TRY(do_perf, syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0))
TRY(do_add_key, syscall(SYS_add_key, "user", "a", "b", 1, 0))
TRY(do_setuid, syscall(SYS_setuid, 0))
TRY(do_setrlimit, setrlimit(RLIMIT_NOFILE, &(struct rlimit){1, 1}))
TRY(do_prlimit, syscall(SYS_prlimit64, 1, RLIMIT_CORE, NULL, NULL))
TRY(do_getrlimit, getrlimit(RLIMIT_NOFILE, &(struct rlimit){0}))
TRY(do_by_handle, syscall(SYS_open_by_handle_at, 0, NULL, 0))
TRY(do_landlock, syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION))
#ifdef __x86_64__
TRY(do_x32, syscall(X32 | SYS_getpid))
/* getpid() of the 32-bit ABI, whose numbers are others'. */
static int do_ia32(void)
{
	int rc = 20;

	__asm__ volatile("int $0x80" : "+a"(rc) : : "memory");
	return 0;
}
#endif
TRY(do_clone3, syscall(SYS_clone3, NULL, 0))
TRY(do_unix, socket(AF_UNIX, SOCK_STREAM, 0))
TRY(do_vsock, socket(AF_VSOCK, SOCK_STREAM, 0))
TRY(do_netlink, socket(AF_NETLINK, SOCK_DGRAM, 0))
TRY(do_packet, socket(AF_PACKET, SOCK_RAW, 0))
TRY(do_raw, socket(AF_INET, SOCK_RAW, IPPROTO_ICMP))
TRY(do_ping, socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP))
TRY(do_mptcp, socket(AF_INET, SOCK_STREAM, MPTCP))
TRY(do_sctp, socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP))
TRY(do_netfilter, setsockopt(world.listener[0], SOL_RAW, 64, "", 0))
TRY(do_linger, setsockopt(world.listener[0], SOL_SOCKET, SO_LINGER, &(struct linger){1, 9},
		   sizeof(struct linger)))
TRY(do_nodelay, setsockopt(world.listener[0], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)))
TRY(do_tiocsti, ioctl(0, TIOCSTI, "x"))
TRY(do_open_passwd_for_writing, open("/etc/passwd", O_RDWR))
TRY(do_open_shadow, open("/etc/shadow", O_RDONLY))
TRY(do_open_secret, open(world.secret, O_RDONLY))
TRY(do_open_in_tmp, open(world.readable, O_RDONLY))
TRY(do_open_program, open("/bin/true", O_RDONLY))
TRY(do_list_etc, open("/etc", O_RDONLY | O_DIRECTORY))
TRY(do_open_net, open("/proc/self/net/tcp", O_RDONLY))
TRY(do_open_another, open("/proc/1/status", O_RDONLY))
TRY(do_create, open("/tmp/cage_test.made", O_WRONLY | O_CREAT, 0600))
TRY(do_tmpfile, open("/tmp", O_TMPFILE | O_RDWR, 0600))
TRY(do_append, open(world.readable, O_WRONLY | O_APPEND))
TRY(do_truncate, open(world.readable, O_RDONLY | O_TRUNC))
TRY(do_abstract,
    connect(world.unix_client, (struct sockaddr *)&world.abstract_address, world.abstract_size))

static int map(int prot)
{
	return mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? errno : 0;
}

static int do_map_exec(void)
{
	return map(PROT_READ | PROT_EXEC);
}

static int do_protect_exec(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return try_call(mprotect(p, 4096, PROT_READ | PROT_EXEC));
}

static int connect_tcp(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	    .sin_port = htons(port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? errno : try_call(connect(fd, (struct sockaddr *)&a, sizeof(a)));
}

static int do_connect_istiod(void)
{
	return connect_tcp(world.port[0]);
}

static int do_connect_elsewhere(void)
{
	return connect_tcp(world.port[1]);
}

static int do_bind(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(34567)};

	return try_call(bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof(a)));
}

/* Where Landlock would let it, too: the flag is what is refused. */
static int do_fastopen(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	    .sin_port = htons(world.port[0]),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return try_call(sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&a, sizeof(a)));
}

static int do_dns(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	    .sin_port = htons(53),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_UDP);

	if (fd < 0)
		return errno;
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	return try_call(sendto(fd, "x", 1, 0, (struct sockaddr *)&a, sizeof(a)));
}

static int do_resolve(void)
{
	struct addrinfo *found, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	int rc = getaddrinfo("localhost", "443", &hints, &found);

	if (!rc)
		freeaddrinfo(found);
	return rc ? ELSE : 0;
}

/* Its rule is one of the directory: a rename does not take the resolver's file away. */
static int do_replaced_resolv_conf(void)
{
	char byte = 0;

	if (write(world.ask, &byte, 1) != 1 || read(world.told, &byte, 1) != 1)
		return ELSE;
	return try_call(open("/etc/resolv.conf", O_RDONLY));
}

static void *in_thread(void *arg)
{
	return pthread_setname_np(pthread_self(), "caged") ? NULL : arg;
}

static int do_thread(void)
{
	pthread_t t;
	void *result;

	if (pthread_create(&t, NULL, in_thread, &world) || pthread_join(t, &result))
		return ELSE;
	return result == &world ? 0 : ELSE;
}

/* Landlock is of the thread that took it on, and of those it makes. */
static void *open_in_thread(void *arg)
{
	*(int *)arg = do_open_in_tmp();
	return NULL;
}

static int do_open_in_tmp_by_thread(void)
{
	pthread_t t;
	int result = ELSE;

	if (pthread_create(&t, NULL, open_in_thread, &result) || pthread_join(t, NULL))
		return ELSE;
	return result;
}

static void *unshare_in_thread(void *arg)
{
	do_unshare();
	return arg;
}

static int do_unshare_by_thread(void)
{
	pthread_t t;

	return pthread_create(&t, NULL, unshare_in_thread, NULL) || pthread_join(t, NULL);
}

static int do_loop(void)
{
	struct epoll_event event = {.events = EPOLLIN}, got;
	struct itimerspec soon = {.it_value.tv_nsec = 1};
	int epoll = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, 0);
	int wake = eventfd(1, EFD_CLOEXEC);

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, wake, &event) ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) ||
	    timerfd_settime(timer, 0, &soon, NULL))
		return errno;
	return try_call(epoll_wait(epoll, &got, 1, 1000));
}

static int do_memory(void)
{
	int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (write(fd, "x", 1) != 1 || fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE))
		return errno;
	return map(PROT_READ | PROT_WRITE);
}

static int do_random(void)
{
	char byte;
	int fd = open("/dev/urandom", O_RDONLY);

	return fd < 0 || getrandom(&byte, 1, 0) != 1 ? ELSE : 0;
}

static int do_own_status(void)
{
	return open("/proc/self/statm", O_RDONLY) < 0 ||
	       open("/proc/self/fd", O_RDONLY | O_DIRECTORY) < 0;
}

/* ENOTTY too is what a kernel before 6.13 says, but that one is not asked with this number. */
static int do_pidfd_info(void)
{
	uint64_t info[8] = {1};
	int rc = ioctl(world.pidfd, _IOC(_IOC_READ | _IOC_WRITE, 0xFF, 11, 64), info);

	return rc && errno != ENOTTY && errno != EINVAL /* Linux 6.9 to 6.12 */ ? errno : 0;
}

static int do_abort(void)
{
	abort();
}

struct trial {
	const char *name;
	int (*act)(void);
	int fate;
	int landlock;    /* the ABI level that it takes; with less it is not tried */
	bool sanitizers; /* may do it */
};

static const struct trial trials[] = {
    {"bpf", do_bpf, KILLED, 0, false},
    {"mount", do_mount, KILLED, 0, false},
    {"setns", do_setns, KILLED, 0, false},
    {"ptrace", do_ptrace, KILLED, 0, true},
    {"execve", do_execve, KILLED, 0, false},
    {"execveat", do_execveat, KILLED, 0, false},
    {"fork", do_fork, KILLED, 0, true},
    {"clone(NEWUSER)", do_clone_newuser, KILLED, 0, true},
    {"unshare", do_unshare, KILLED, 0, false},
    {"unshare by a thread", do_unshare_by_thread, KILLED, 0, false},
    {"prctl(DUMPABLE)", do_prctl, ENOSYS, 0, true},
    {"io_uring", do_io_uring, KILLED, 0, false},
    {"kill", do_kill, KILLED, 0, true},
    {"pidfd_send_signal", do_pidfd_signal, KILLED, 0, false},
    {"pidfd_getfd", do_pidfd_getfd, KILLED, 0, false},
    {"process_vm_readv", do_read_memory, KILLED, 0, true},
    {"tgkill of another", do_tgkill, KILLED, 0, true},
    {"listen", do_listen, KILLED, 0, false},
    {"socketpair", do_socketpair, ENOSYS, 0, false},
    {"chmod", do_chmod, ENOSYS, 0, false},
    {"unlink", do_unlink, ENOSYS, 0, false},
    {"rename", do_rename, ENOSYS, 0, false},
    {"userfaultfd", do_userfaultfd, KILLED, 0, false},
    {"perf_event_open", do_perf, KILLED, 0, false},
    {"add_key", do_add_key, KILLED, 0, false},
    {"setuid", do_setuid, KILLED, 0, false},
    {"setrlimit", do_setrlimit, ENOSYS, 0, false},
    {"prlimit of another", do_prlimit, ENOSYS, 0, false},
    {"open_by_handle_at", do_by_handle, KILLED, 0, false},
    {"landlock_create_ruleset", do_landlock, ENOSYS, 0, false},
    {"mmap(EXEC)", do_map_exec, KILLED, 0, false},
    {"mprotect(EXEC)", do_protect_exec, KILLED, 0, false},
#ifdef __x86_64__
    {"x32", do_x32, KILLED, 0, false},
    {"ia32", do_ia32, KILLED, 0, false},
#endif
    {"clone3", do_clone3, ENOSYS, 0, false},
    /* What a library's next release may ask or name. */
    {"prctl(GET_TIMERSLACK)", do_timerslack, ENOSYS, 0, true},
    {"get_mempolicy", do_mempolicy, ENOSYS, 0, false},
    {"sched_setattr", do_setattr, ENOSYS, 0, false},
    {"setpriority", do_priority, ENOSYS, 0, false},
    {"statx", do_statx, ENOSYS, 0, false},
    {"openat2", do_openat2, ENOSYS, 0, false},
    {"AF_UNIX", do_unix, EAFNOSUPPORT, 0, false},
    {"AF_VSOCK", do_vsock, EAFNOSUPPORT, 0, false},
    {"AF_NETLINK", do_netlink, EAFNOSUPPORT, 0, false},
    {"AF_PACKET", do_packet, EAFNOSUPPORT, 0, false},
    {"raw socket", do_raw, EAFNOSUPPORT, 0, false},
    {"ping socket", do_ping, EAFNOSUPPORT, 0, false},
    {"MPTCP", do_mptcp, EAFNOSUPPORT, 0, false},
    {"SCTP", do_sctp, EAFNOSUPPORT, 0, false},
    {"setsockopt of netfilter", do_netfilter, ENOPROTOOPT, 0, false},
    {"SO_LINGER", do_linger, ENOPROTOOPT, 0, false},
    {"sendto(FASTOPEN)", do_fastopen, EOPNOTSUPP, 0, false},
    {"ioctl(TIOCSTI)", do_tiocsti, ENOTTY, 0, false},
    {"open for writing", do_open_passwd_for_writing, EACCES, 0, false},
    {"create", do_create, EACCES, 0, false},
    {"O_TMPFILE", do_tmpfile, EACCES, 0, false},
    {"append", do_append, EACCES, 0, false},
    {"truncate", do_truncate, EACCES, 0, false},
    {"/etc/shadow", do_open_shadow, EACCES, 0, false},
    {"a file of root", do_open_secret, EACCES, 0, false},
    {"a file in /tmp", do_open_in_tmp, EACCES, 1, true},
    {"the same by a thread", do_open_in_tmp_by_thread, EACCES, 1, true},
    {"a program", do_open_program, EACCES, 1, true},
    {"list /etc", do_list_etc, EACCES, 1, true},
    {"/proc of another", do_open_another, EACCES, 1, true},
    {"the node's connections", do_open_net, EACCES, 1, true},
    {"connect elsewhere", do_connect_elsewhere, EACCES, 4, false},
    {"bind to a port", do_bind, EACCES, 4, false},
    {"connect to an abstract socket", do_abstract, EPERM, 6, false},

    {"connect to istiod", do_connect_istiod, 0, 0, false},
    {"TCP_NODELAY", do_nodelay, 0, 0, false},
    {"UDP", do_dns, 0, 0, false},
    {"getaddrinfo", do_resolve, 0, 0, false},
    {"replaced resolv.conf", do_replaced_resolv_conf, 0, 0, false},
    {"thread", do_thread, 0, 0, false},
    {"epoll, timerfd, eventfd", do_loop, 0, 0, false},
    {"memfd", do_memory, 0, 0, false},
    {"random", do_random, 0, 0, false},
    {"getrlimit", do_getrlimit, 0, 0, false},
    {"/proc/self", do_own_status, 0, 0, false},
    {"PIDFD_GET_INFO", do_pidfd_info, 0, 0, false},
    {"abort", do_abort, ABORTED, 0, false},
};

/* --- the children --- */

/* As broker/life/worker.c does it. */
static void drop_privileges(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY) || syscall(SYS_capset, &header, none) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		_exit(255);
}

static void quiet(void)
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, STDERR_FILENO);
}

static void child(const struct trial *t)
{
	struct err e;

	quiet();
	cage_hide_memory();
	drop_privileges();
	if (cage_enter(world.port, 1, &e))
		_exit(254);
	int rc = t->act();
	_exit(rc == ELSE ? 253 : rc);
}

static int fate_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	assert_false(WCOREDUMP(status));
	return WTERMSIG(status) == SIGSYS ? KILLED : WTERMSIG(status) == SIGABRT ? ABORTED : ELSE;
}

static int landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? 0 : (int)abi;
}

static void each_thing_has_its_fate(void **state)
{
	int abi = landlock_abi(), wrong = 0;

	(void)state;
	if (geteuid() != 0)
		skip();
	for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
		const struct trial *t = &trials[i];
		if (t->landlock > abi || (SANITIZED && t->sanitizers))
			continue;
		pid_t pid = fork();
		if (pid == 0)
			child(t);
		int fate = fate_of(pid);
		if (fate != t->fate) {
			print_error("%s: %d instead of %d\n", t->name, fate, t->fate);
			wrong++;
		}
	}
	assert_int_equal(wrong, 0);
}

/* --- what the broker should have done --- */

static void keep_caps(void)
{
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static void keep_root(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	setgroups(0, NULL);
	syscall(SYS_capset, &header, none);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static void become_nobody(size_t ngroups)
{
	if (setgroups(ngroups, (gid_t[]){0}) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		_exit(255);
}

static void keep_groups(void)
{
	become_nobody(1);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static void keep_new_privs(void)
{
	become_nobody(0);
}

static void a_worker_with_privileges_does_not_run(void **state)
{
	static void (*const how[])(void) = {keep_caps, keep_root, keep_groups, keep_new_privs};

	(void)state;
	if (geteuid() != 0)
		skip();
	for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct err e = {0};
			how[i]();
			int rc = cage_enter(NULL, 0, &e);
			_exit(rc == -1 && !cage_state().entered ? e.code : 0);
		}
		assert_int_equal(fate_of(pid), EPERM);
	}
}

/* No debugger of the same user, no core handler. */
static void memory_is_hidden(void **state)
{
	(void)state;
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit core;
		cage_hide_memory();
		getrlimit(RLIMIT_CORE, &core);
		_exit(prctl(PR_GET_DUMPABLE) == TRACEABLE && core.rlim_max == 0 ? 0 : 1);
	}
	assert_int_equal(fate_of(pid), 0);
}

static void it_says_what_it_is(void **state)
{
	char expected[64];

	(void)state;
	assert_string_equal(cage_describe(), "none");
	if (geteuid() != 0)
		skip();
	snprintf(expected, sizeof(expected),
	    landlock_abi() ? "seccomp, landlock %d" : "seccomp, no landlock", landlock_abi());
	pid_t pid = fork();
	if (pid == 0) {
		struct err e;
		drop_privileges();
		_exit(cage_enter(NULL, 0, &e) || strcmp(cage_describe(), expected) != 0);
	}
	assert_int_equal(fate_of(pid), 0);
}

/* --- the world --- */

static void listen_tcp(int i)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(a);

	world.listener[i] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(world.listener[i], (struct sockaddr *)&a, size), 0);
	assert_int_equal(listen(world.listener[i], 64), 0);
	assert_int_equal(getsockname(world.listener[i], (struct sockaddr *)&a, &size), 0);
	world.port[i] = ntohs(a.sin_port);
}

static void make_file(char *path, size_t size, const char *name, mode_t mode)
{
	snprintf(path, size, "%s/%s", world.dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
	assert_true(fd >= 0);
	close(fd);
}

static void listen_abstract(void)
{
	struct sockaddr_un *a = &world.abstract_address;

	a->sun_family = AF_UNIX;
	int n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "cage_test.%d", (int)getpid());
	world.abstract_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	world.abstract = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(world.abstract, (struct sockaddr *)a, world.abstract_size), 0);
	assert_int_equal(listen(world.abstract, 1), 0);
	world.unix_client = socket(AF_UNIX, SOCK_STREAM, 0);
}

static void write_etc(const char *name, const char *text, mode_t mode)
{
	char path[64];

	snprintf(path, sizeof(path), "/etc/%s", name);
	int fd = open(path, O_WRONLY | O_CREAT, mode);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		abort();
	close(fd);
}

/* An /etc of our own, and a root who replaces the file when asked. */
static void make_etc(void)
{
	int ask[2], told[2];
	char byte;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/etc", "tmpfs", 0, "mode=755"))
		abort();
	write_etc("resolv.conf", "nameserver 127.0.0.1\n", 0644);
	write_etc("hosts", "127.0.0.1 localhost\n", 0644);
	write_etc("passwd", "", 0644);
	write_etc("shadow", "", 0600);
	if (pipe(ask) || pipe(told))
		abort();
	world.ask = ask[1];
	world.told = told[0];
	if (fork() != 0)
		return;
	close(ask[1]);
	while (read(ask[0], &byte, 1) == 1) {
		write_etc("new", "nameserver 127.0.0.2\n", 0644);
		(void)!rename("/etc/new", "/etc/resolv.conf");
		(void)!write(told[1], &byte, 1);
	}
	_exit(0);
}

static int make_world(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	umask(022);
	strcpy(world.dir, "/tmp/cage_testXXXXXX");
	assert_non_null(mkdtemp(world.dir));
	chmod(world.dir, 0755);
	make_file(world.readable, sizeof(world.readable), "readable", 0644);
	make_file(world.secret, sizeof(world.secret), "secret", 0600);
	listen_tcp(0);
	listen_tcp(1);
	listen_abstract();
	make_etc();
	world.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	return 0;
}

static int end_world(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	unlink(world.readable);
	unlink(world.secret);
	rmdir(world.dir);
	close(world.ask); /* and the one who renames ends */
	wait(NULL);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_thing_has_its_fate),
	    cmocka_unit_test(a_worker_with_privileges_does_not_run),
	    cmocka_unit_test(memory_is_hidden),
	    cmocka_unit_test(it_says_what_it_is),
	};

	return cmocka_run_group_tests(tests, make_world, end_world);
}
