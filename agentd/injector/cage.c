/* cage.c - the injector's table of system calls, made like the worker's: a call that is on no list
 * is ENOSYS, for an update of a library must not end it (security-rules.md G8); what only an
 * intruder has a use for ends the process.
 *
 * It reads files, accepts, and dials the API server.  It writes no file, starts no process, no
 * thread beside the one that is there already (background.h), and makes no code.
 */
#include "cage.h"
#include "common/err.h"
#include "common/log.h"
#include "common/seccomp.h"
#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

LOG_SCOPE("cage");

/* clang-format off */
static const int allowed[] = {
	/* sockets */
	__NR_accept4, __NR_bind, __NR_connect, __NR_getpeername, __NR_getsockname, __NR_getsockopt,
	__NR_recvfrom, __NR_recvmsg, __NR_sendmsg, __NR_sendto, __NR_setsockopt, __NR_shutdown,
	/* descriptors */
	__NR_close, __NR_dup, __NR_fcntl, __NR_fstat, __NR_getdents64, __NR_inotify_add_watch,
	__NR_inotify_init1, __NR_inotify_rm_watch, __NR_lseek, __NR_newfstatat, __NR_pipe2,
	__NR_pread64, __NR_read, __NR_readv, __NR_write, __NR_writev,
	/* waiting */
	__NR_epoll_create1, __NR_epoll_ctl, __NR_epoll_pwait, __NR_eventfd2, __NR_ppoll,
	__NR_timerfd_create, __NR_timerfd_settime,
#ifdef __NR_epoll_wait
	__NR_epoll_wait, __NR_poll,
#endif
#ifdef __NR_epoll_pwait2
	__NR_epoll_pwait2,
#endif
	/* memory, time, chance, and what libc and OpenSSL ask */
	__NR_brk, __NR_clock_getres, __NR_clock_gettime, __NR_clock_nanosleep, __NR_exit,
	__NR_exit_group, __NR_futex, __NR_getegid, __NR_geteuid, __NR_getgid, __NR_getpid,
	__NR_getrandom, __NR_gettid, __NR_gettimeofday, __NR_getuid, __NR_madvise, __NR_mremap,
	__NR_mlock, __NR_munlock, __NR_munmap, __NR_nanosleep, __NR_restart_syscall, __NR_rseq,
	__NR_rt_sigaction, __NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_sched_getaffinity,
	__NR_sched_yield, __NR_set_robust_list, __NR_sysinfo, __NR_uname,
#ifdef SECCOMP_SANITIZED
	__NR_tgkill,
	__NR_clone, __NR_getppid, __NR_getrlimit, __NR_kill, __NR_personality, __NR_prctl,
	__NR_prlimit64, __NR_process_vm_readv, __NR_ptrace, __NR_readlinkat,
	__NR_sched_setaffinity, __NR_sigaltstack, __NR_wait4,
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
	/* another program or process, and what belongs to one */
	__NR_execve, __NR_execveat, OLD(fork), OLD(vfork), __NR_kcmp, __NR_pidfd_getfd,
	__NR_pidfd_open, __NR_pidfd_send_signal, __NR_process_madvise, __NR_process_vm_writev,
	__NR_rt_sigqueueinfo, __NR_rt_tgsigqueueinfo, __NR_tkill,
	/* rights, and other views of the machine */
	__NR_capset, __NR_setgid, __NR_setgroups, __NR_setregid, __NR_setresgid, __NR_setresuid,
	__NR_setreuid, __NR_setuid, __NR_chroot, __NR_fsopen, __NR_mount, __NR_move_mount,
	__NR_open_tree, __NR_pivot_root, __NR_setns, __NR_umount2, __NR_unshare,
	/* parts of the kernel by which processes became root before, and calls that no filter sees */
	__NR_add_key, __NR_bpf, __NR_finit_module, __NR_init_module, __NR_io_uring_enter,
	__NR_io_uring_register, __NR_io_uring_setup, __NR_kexec_load, __NR_keyctl,
	__NR_name_to_handle_at, __NR_open_by_handle_at, __NR_perf_event_open, __NR_request_key,
	__NR_userfaultfd,
	/* another door */
	__NR_listen,
#ifndef SECCOMP_SANITIZED
	__NR_kill, __NR_process_vm_readv, __NR_ptrace,
#endif
};
/* clang-format on */

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))
#define KILL SECCOMP_KILL

enum { WRITING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC };

static const struct seccomp_call conditional[] = {
    {__NR_mmap, KILL, {SECCOMP_IS_WITHOUT(2, PROT_EXEC)}},
    {__NR_mprotect, KILL, {SECCOMP_IS_WITHOUT(2, PROT_EXEC)}},
    {__NR_openat, SECCOMP_ERRNO(EACCES), {SECCOMP_IS_WITHOUT(2, WRITING)}},
    {__NR_ioctl, SECCOMP_ERRNO(ENOTTY), {SECCOMP_IS_ONE_OF(1, FIONREAD, FIONBIO)}},
    {__NR_socket, SECCOMP_ERRNO(EAFNOSUPPORT), {SECCOMP_IS_ONE_OF(0, AF_INET, AF_INET6)}},
    {__NR_clone3, SECCOMP_ERRNO(ENOSYS), {SECCOMP_NEVER}},
#ifndef SECCOMP_SANITIZED
    {__NR_prctl, SECCOMP_ERRNO(ENOSYS), {SECCOMP_IS_ONE_OF(0, PR_SET_VMA, PR_GET_DUMPABLE)}},
#endif
};

int cage_close(struct err *e)
{
	struct seccomp_call calls[COUNT(conditional) + 1];
	struct seccomp_rules rules = {.calls = calls,
	    .ncalls = COUNT(conditional),
	    .allowed = allowed,
	    .nallowed = COUNT(allowed),
	    .killed = dangerous,
	    .nkilled = COUNT(dangerous),
	    .otherwise = SECCOMP_ERRNO(ENOSYS),
	    .foreign = KILL};

	memcpy(calls, conditional, sizeof(conditional));
#ifndef SECCOMP_SANITIZED
	/* How abort() ends. */
	calls[rules.ncalls++] =
	    (struct seccomp_call){__NR_tgkill, KILL, {SECCOMP_IS_ONE_OF(0, (uint32_t)getpid())}};
#endif
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return err_sys(e, "prctl");
	if (!seccomp_install(&rules, e))
		return 0;
	if (e->code != ERR_UNAVAILABLE)
		return -1;
	log_warn(NULL, "%s", e->msg);
	return 0;
}
