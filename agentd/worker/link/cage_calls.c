/* cage_calls.c - a table, and the few lines that make a classic BPF program of it.
 *
 * By hand, because it is smaller and says more than libseccomp would: a rule there cannot be "these
 * values, any other one an errno" (only positive matches, one comparison per argument), and without
 * such rules nothing is left of the library but the jumps.
 *
 * The order is architecture -> number -> arguments.  Only the low 32 bits of an argument are looked
 * at: each one below is an int or a set of flags of which the kernel itself looks at no more. Calls
 * of the x32 ABI carry a bit in their number and so equal nothing in the table.
 *
 * Names without an #ifdef exist on x86-64 and arm64.
 */
#include "cage_calls.h"
#include "common/err.h"
#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef __has_feature /* clang's */
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "the worker's system calls are known for x86-64 and arm64 only"
#endif

/* clang-format off */
static const int allowed[] = {
	/* sockets */
	__NR_accept4, __NR_bind, __NR_connect, __NR_getpeername, __NR_getsockname, __NR_getsockopt,
	__NR_recvfrom, __NR_recvmsg, __NR_sendmmsg, __NR_sendmsg, __NR_sendto, __NR_shutdown,
	/* descriptors */
	__NR_close, __NR_dup, __NR_fcntl, __NR_fstat, __NR_getdents64, __NR_lseek,
	__NR_memfd_create, __NR_newfstatat, __NR_pidfd_open, __NR_pipe2, __NR_pread64, __NR_read,
	__NR_readv, __NR_write, __NR_writev,
	/* waiting */
	__NR_epoll_create1, __NR_epoll_ctl, __NR_epoll_pwait, __NR_eventfd2, __NR_ppoll,
	__NR_signalfd4, __NR_timerfd_create, __NR_timerfd_settime,
#ifdef __NR_epoll_wait
	__NR_epoll_wait, __NR_poll,
#endif
#ifdef __NR_epoll_pwait2
	__NR_epoll_pwait2, /* newer libevents */
#endif
	/* threads and memory */
	__NR_brk, __NR_exit, __NR_exit_group, __NR_futex, __NR_madvise, __NR_mlock, __NR_mremap,
	__NR_munlock, __NR_munmap, __NR_restart_syscall, __NR_rseq, __NR_rt_sigaction,
	__NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_sched_getaffinity, __NR_sched_getparam,
	__NR_sched_getscheduler, __NR_sched_yield, __NR_set_robust_list,
	/* time, chance, who and where am I */
	__NR_clock_getres, __NR_clock_gettime, __NR_clock_nanosleep, __NR_getegid, __NR_geteuid,
	__NR_getgid, __NR_getpid, __NR_getrandom, __NR_gettid, __NR_gettimeofday, __NR_getuid,
	__NR_nanosleep, __NR_sysinfo, __NR_uname,
#ifdef SANITIZED /* LeakSanitizer stops all threads by ptrace, and looks at them */
	__NR_clone, __NR_getppid, __NR_getrlimit, __NR_kill, __NR_personality, __NR_prctl,
	__NR_process_vm_readv, __NR_ptrace, __NR_readlinkat, __NR_sched_setaffinity,
	__NR_sigaltstack, __NR_tgkill, __NR_wait4,
#ifdef __NR_open
	__NR_getdents, __NR_open, __NR_readlink, __NR_stat,
#endif
#endif
};
/* clang-format on */

enum { VALUES_MAX = 4, CONDITIONS_MAX = 3, INSTRUCTIONS_MAX = 512 };

enum test { END, ONE_OF, WITHOUT };

struct condition {
	enum test test;
	unsigned arg;
	uint32_t values[VALUES_MAX]; /* WITHOUT: none of the bits of the first one */
	unsigned nvalues;
	uint32_t ignored; /* bits */
};

struct call {
	int nr;
	uint32_t otherwise; /* what the filter answers when a condition does not hold */
	struct condition conditions[CONDITIONS_MAX];
};

#define KILL SECCOMP_RET_KILL_PROCESS
#define ERRNO(code) (SECCOMP_RET_ERRNO | (code))
#define COUNT(...) (sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define IS_ONE_OF(arg_, ...)                                                                       \
	{                                                                                          \
		ONE_OF, (arg_), {__VA_ARGS__}, COUNT(__VA_ARGS__), 0                               \
	}
#define IS_WITHOUT(arg_, bits)                                                                     \
	{                                                                                          \
		WITHOUT, (arg_), {(bits)}, 1, 0                                                    \
	}
#define NEVER                                                                                      \
	{                                                                                          \
		ONE_OF, 0, {0}, 0, 0                                                               \
	}

/* linux/pidfd.h of 6.13: Debian 12 has older headers.  The first size of the structure. */
#define PIDFD_GET_INFO_SIZE_0 _IOC(_IOC_READ | _IOC_WRITE, 0xFF, 11, 64)

enum {
	THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
		 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
	WRITING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC,
};

static const struct call conditional[] = {
    /* The flags are behind a pointer here; glibc then takes clone. */
    {__NR_clone3, ERRNO(ENOSYS), {NEVER}},
    {__NR_mmap, KILL, {IS_WITHOUT(2, PROT_EXEC)}},
    {__NR_mprotect, KILL, {IS_WITHOUT(2, PROT_EXEC)}},
    {__NR_openat, ERRNO(EACCES), {IS_WITHOUT(2, WRITING)}},
    /* isatty() of stdio asks too. */
    {__NR_ioctl, ERRNO(ENOTTY), {IS_ONE_OF(1, PIDFD_GET_INFO_SIZE_0, FIONREAD, FIONBIO)}},
    /* Unix sockets come from the broker.  Protocols that Landlock's ports do not cover (MPTCP,
     * SCTP) stay out, and ICMP. */
    {__NR_socket, ERRNO(EAFNOSUPPORT),
	{IS_ONE_OF(0, AF_INET, AF_INET6),
	    {ONE_OF, 1, {SOCK_STREAM, SOCK_DGRAM}, 2, SOCK_CLOEXEC | SOCK_NONBLOCK},
	    IS_ONE_OF(2, 0, IPPROTO_TCP, IPPROTO_UDP)}},
    /* Our own limits may be read.  (A pointer whose lower half is 0 would set one; up to its hard
     * limit, which is nothing won.) */
    {__NR_prlimit64, KILL, {IS_ONE_OF(0, 0), IS_ONE_OF(2, 0)}},
    {__NR_setsockopt, ERRNO(ENOPROTOOPT),
	{IS_ONE_OF(1, SOL_SOCKET, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP)}},
#ifndef SANITIZED
    {__NR_clone, KILL, {IS_ONE_OF(0, THREAD)}},
    {__NR_prctl, KILL, {IS_ONE_OF(0, PR_SET_NAME)}},
#endif
};

/* --- the program --- */

struct program {
	struct sock_filter at[INSTRUCTIONS_MAX];
	unsigned n;
};

static void add(struct program *p, unsigned code, uint32_t k, unsigned if_true, unsigned if_false)
{
	if (p->n < INSTRUCTIONS_MAX)
		p->at[p->n] =
		    (struct sock_filter){(uint16_t)code, (uint8_t)if_true, (uint8_t)if_false, k};
	p->n++; /* too many are found at the end */
}

static void load(struct program *p, size_t offset)
{
	add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(struct program *p, uint32_t what)
{
	add(p, BPF_RET | BPF_K, what, 0, 0);
}

static void check(struct program *p, const struct condition *c, uint32_t otherwise)
{
	load(p, offsetof(struct seccomp_data, args) + c->arg * sizeof(uint64_t));
	if (c->ignored)
		add(p, BPF_ALU | BPF_AND | BPF_K, ~c->ignored, 0, 0);
	if (c->test == WITHOUT)
		add(p, BPF_JMP | BPF_JSET | BPF_K, c->values[0], 0, 1);
	else /* a value that fits leads behind the answer */
		for (unsigned i = 0; i < c->nvalues; i++)
			add(p, BPF_JMP | BPF_JEQ | BPF_K, c->values[i], c->nvalues - i, 0);
	answer(p, otherwise);
}

static void add_call(struct program *p, const struct call *c)
{
	unsigned start = p->n;

	add(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)c->nr, 0, 0);
	for (unsigned i = 0; i < CONDITIONS_MAX && c->conditions[i].test != END; i++)
		check(p, &c->conditions[i], c->otherwise);
	answer(p, SECCOMP_RET_ALLOW);
	if (start < INSTRUCTIONS_MAX)
		p->at[start].jf = (uint8_t)(p->n - start - 1);
}

static void build(struct program *p)
{
	p->n = 0;
	load(p, offsetof(struct seccomp_data, arch));
	add(p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	answer(p, KILL);
	load(p, offsetof(struct seccomp_data, nr));
	for (unsigned i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		add_call(p, &(struct call){.nr = allowed[i]});
	for (unsigned i = 0; i < sizeof(conditional) / sizeof(conditional[0]); i++)
		add_call(p, &conditional[i]);
#ifndef SANITIZED
	/* How abort() ends: the broker is to see SIGABRT, and not another cause. */
	add_call(p, &(struct call){__NR_tgkill, KILL, {IS_ONE_OF(0, (uint32_t)getpid())}});
#endif
	answer(p, KILL);
}

int cage_calls_lock(struct err *e)
{
	struct program p;

	build(&p);
	if (p.n > INSTRUCTIONS_MAX)
		return err_set(e, E2BIG, "seccomp: the filter needs %u instructions", p.n);
	struct sock_fprog prog = {.len = (unsigned short)p.n, .filter = p.at};
	long rc = syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
	if (rc > 0)
		return err_set(e, EBUSY, "seccomp: thread %ld has a filter of its own", rc);
	if (rc < 0 && (errno == ENOSYS || errno == EINVAL))
		return err_set(e, ERR_UNAVAILABLE, "the kernel has no seccomp filters");
	return rc < 0 ? err_sys(e, "seccomp") : 0;
}
