/* cage_calls.c - the worker's table of system calls; common/seccomp.c makes a filter of it.
 *
 * A call that is on no list gets ENOSYS: a library that asks or names something, or is newer than
 * this code, goes on without, for an update must not end a fleet (security-rules.md G8).  Only what
 * no library of ours has a use for and an intruder has ends the process; each has its reason below.
 *
 * Names without an #ifdef exist on x86-64 and arm64.
 */
#include "cage_calls.h"
#include "common/seccomp.h"
#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* clang-format off */
static const int allowed[] = {
	/* sockets */
	__NR_accept4, __NR_bind, __NR_connect, __NR_getpeername, __NR_getsockname, __NR_getsockopt,
	__NR_recvfrom, __NR_recvmsg, __NR_shutdown,
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
#ifdef SECCOMP_SANITIZED
	__NR_clone, __NR_getppid, __NR_getrlimit, __NR_kill, __NR_personality, __NR_prctl,
	__NR_process_vm_readv, __NR_ptrace, __NR_readlinkat, __NR_sched_setaffinity,
	__NR_sigaltstack, __NR_tgkill, __NR_wait4,
#ifdef __NR_open
	__NR_getdents, __NR_open, __NR_readlink, __NR_stat,
#endif
#endif
};

#ifdef __NR_fork
#define OLD(name) __NR_##name /* newer architectures have its successor alone */
#else
#define OLD(name) -1
#endif

static const int dangerous[] = {
	/* another program, another process: the worker is one program and its threads */
	__NR_execve, __NR_execveat, OLD(fork), OLD(vfork),
	/* other processes: their memory, their descriptors, signals to them */
	__NR_kcmp, __NR_kill, __NR_pidfd_getfd, __NR_pidfd_send_signal, __NR_process_madvise,
	__NR_process_vm_readv, __NR_process_vm_writev, __NR_ptrace, __NR_rt_sigqueueinfo,
	__NR_rt_tgsigqueueinfo, __NR_tgkill, __NR_tkill,
	/* rights that were given away */
	__NR_capset, __NR_setfsgid, __NR_setfsuid, __NR_setgid, __NR_setgroups, __NR_setregid,
	__NR_setresgid, __NR_setresuid, __NR_setreuid, __NR_setuid,
	/* another view of the machine: a user namespace has all rights in it */
	__NR_chroot, __NR_fsconfig, __NR_fsmount, __NR_fsopen, __NR_fspick, __NR_mount,
	__NR_mount_setattr, __NR_move_mount, __NR_open_tree, __NR_pivot_root, __NR_setns,
	__NR_umount2, __NR_unshare,
	/* files by another way than their paths, which Landlock looks at */
	__NR_name_to_handle_at, __NR_open_by_handle_at,
	/* parts of the kernel by which processes became root before, and calls that no filter sees */
	__NR_add_key, __NR_bpf, __NR_delete_module, __NR_finit_module, __NR_init_module,
	__NR_io_uring_enter, __NR_io_uring_register, __NR_io_uring_setup, __NR_kexec_file_load,
	__NR_kexec_load, __NR_keyctl, __NR_perf_event_open, __NR_request_key, __NR_userfaultfd,
	OLD(ioperm), OLD(iopl), OLD(modify_ldt),
	/* code that was not there at the start */
	__NR_pkey_mprotect, __NR_remap_file_pages,
	/* a door to strangers: listeners come from the broker */
	__NR_listen,
};
/* clang-format on */

#define KILL SECCOMP_KILL
#define NEXT SECCOMP_NEXT
#define ERRNO(code) SECCOMP_ERRNO(code)
#define IS_ONE_OF SECCOMP_IS_ONE_OF
#define IS_WITHOUT SECCOMP_IS_WITHOUT
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* linux/pidfd.h of 6.13: Debian 12 has older headers.  The first size of the structure. */
#define PIDFD_GET_INFO_SIZE_0 _IOC(_IOC_READ | _IOC_WRITE, 0xFF, 11, 64)

enum {
	THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
		 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID,
	WRITING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC,
	SENDING = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR,
};

static const struct seccomp_call conditional[] = {
    /* MSG_FASTOPEN connects, and Landlock does not look. */
    {__NR_sendto, ERRNO(EOPNOTSUPP), {IS_WITHOUT(3, ~SENDING)}},
    {__NR_sendmsg, ERRNO(EOPNOTSUPP), {IS_WITHOUT(2, ~SENDING)}},
    {__NR_sendmmsg, ERRNO(EOPNOTSUPP), {IS_WITHOUT(3, ~SENDING)}},
    /* The flags are behind a pointer here; glibc then takes clone. */
    {__NR_clone3, ERRNO(ENOSYS), {SECCOMP_NEVER}},
    {__NR_mmap, KILL, {IS_WITHOUT(2, PROT_EXEC)}},
    {__NR_mprotect, KILL, {IS_WITHOUT(2, PROT_EXEC)}},
    {__NR_openat, ERRNO(EACCES), {IS_WITHOUT(2, WRITING)}},
    /* isatty() of stdio asks too. */
    {__NR_ioctl, ERRNO(ENOTTY), {IS_ONE_OF(1, PIDFD_GET_INFO_SIZE_0, FIONREAD, FIONBIO)}},
    /* Unix sockets come from the broker.  Protocols that Landlock's ports do not cover (MPTCP,
     * SCTP) stay out, and ICMP. */
    {__NR_socket, ERRNO(EAFNOSUPPORT),
	{IS_ONE_OF(0, AF_INET, AF_INET6),
	    {SECCOMP_ONE_OF, 1, {SOCK_STREAM, SOCK_DGRAM}, 2, SOCK_CLOEXEC | SOCK_NONBLOCK},
	    IS_ONE_OF(2, 0, IPPROTO_TCP, IPPROTO_UDP)}},
    /* Our own limits may be read.  (A pointer whose lower half is 0 would set one; up to its hard
     * limit, which is nothing won.) */
    {__NR_prlimit64, ERRNO(ENOSYS), {IS_ONE_OF(0, 0), IS_ONE_OF(2, 0)}},
    /* What grpc, c-ares, libc's resolver and we set.  SO_LINGER is not among them: the socket may
     * be the broker's, too, and its close() would wait. */
    {__NR_setsockopt, NEXT,
	{IS_ONE_OF(1, SOL_SOCKET), IS_ONE_OF(2, SO_REUSEADDR, SO_REUSEPORT, SO_KEEPALIVE, SO_RCVBUF,
				       SO_SNDBUF, SO_RCVLOWAT)}},
    {__NR_setsockopt, NEXT,
	{IS_ONE_OF(1, IPPROTO_TCP), IS_ONE_OF(2, TCP_NODELAY, TCP_USER_TIMEOUT, TCP_INQ)}},
    {__NR_setsockopt, NEXT, {IS_ONE_OF(1, IPPROTO_IP), IS_ONE_OF(2, IP_RECVERR)}},
    {__NR_setsockopt, ERRNO(ENOPROTOOPT),
	{IS_ONE_OF(1, IPPROTO_IPV6), IS_ONE_OF(2, IPV6_V6ONLY, IPV6_RECVERR)}},
#ifndef SECCOMP_SANITIZED
    {__NR_clone, KILL, {IS_ONE_OF(0, THREAD)}},
    /* libc and abseil name memory, and ask. */
    {__NR_prctl, ERRNO(ENOSYS),
	{IS_ONE_OF(0, PR_SET_NAME, PR_SET_VMA, PR_GET_DUMPABLE, PR_GET_NAME)}},
#endif
};

int cage_calls_lock(struct err *e)
{
	struct seccomp_call calls[COUNT(conditional) + 1];
	size_t n = COUNT(conditional);

	memcpy(calls, conditional, sizeof(conditional));
#ifndef SECCOMP_SANITIZED
	/* How abort() ends: the broker is to see SIGABRT, and not another cause. */
	calls[n++] = (struct seccomp_call){__NR_tgkill, KILL, {IS_ONE_OF(0, (uint32_t)getpid())}};
#endif
	return seccomp_install(&(struct seccomp_rules){.calls = calls,
				   .ncalls = n,
				   .allowed = allowed,
				   .nallowed = COUNT(allowed),
				   .killed = dangerous,
				   .nkilled = COUNT(dangerous),
				   .otherwise = ERRNO(ENOSYS),
				   .foreign = KILL},
	    e);
}
