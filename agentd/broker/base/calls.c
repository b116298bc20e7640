/* calls.c - what libc and libbpf call for us, what loaders and resolvers of names call, and what
 * the worker calls before its own, narrower list (worker/link/cage_calls.c). */
#include "calls.h"
#include "common/err.h"
#include "common/seccomp.h"
#include <asm/unistd.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* clang-format off */
#define CALL(name) {#name, __NR_##name},
#ifdef __x86_64__
#define OLD(name) CALL(name) /* newer architectures have its successor alone */
#else
#define OLD(name) {#name, -1},
#endif

static const struct broker_call list[] = {
	/* sockets; `socket` itself is below, by its family */
	CALL(sendmsg) CALL(sendto) CALL(sendmmsg) CALL(recvfrom) CALL(recvmsg) CALL(accept4)
	CALL(bind) CALL(connect) CALL(getpeername) CALL(getsockname) CALL(getsockopt) CALL(listen)
	CALL(setsockopt) CALL(shutdown) CALL(socket) CALL(socketpair)
	/* descriptors */
	CALL(ioctl) CALL(close) CALL(close_range) CALL(dup) OLD(dup2) CALL(dup3) CALL(fcntl)
	CALL(flock) CALL(lseek) CALL(memfd_create) OLD(pipe) CALL(pipe2) CALL(pread64)
	CALL(pwrite64) CALL(read) CALL(readv) CALL(write) CALL(writev) CALL(eventfd2)
	CALL(signalfd4) CALL(timerfd_create) CALL(timerfd_settime) CALL(inotify_init1)
	CALL(inotify_add_watch) CALL(inotify_rm_watch) CALL(epoll_create1) CALL(epoll_ctl)
	CALL(epoll_pwait) CALL(epoll_pwait2) OLD(epoll_wait) OLD(poll) CALL(ppoll) OLD(select)
	CALL(pselect6) CALL(pidfd_open)
	/* files */
	OLD(access) CALL(faccessat) CALL(faccessat2) CALL(fchmod)
	OLD(mkdir) CALL(mkdirat) OLD(open) CALL(openat) CALL(openat2) CALL(open_by_handle_at)
	CALL(name_to_handle_at) OLD(readlink) CALL(readlinkat) OLD(rename) CALL(renameat)
	CALL(renameat2) OLD(rmdir) OLD(symlink) CALL(symlinkat) OLD(unlink) CALL(unlinkat)
	CALL(ftruncate) CALL(fsync) CALL(umask) OLD(getdents) CALL(getdents64) CALL(getcwd) OLD(stat) OLD(lstat)
	CALL(lgetxattr) CALL(fstat) CALL(newfstatat) CALL(statx) CALL(statfs) CALL(fstatfs)
	/* mounts, namespaces, eBPF */
	CALL(fsopen) CALL(fsconfig) CALL(fsmount) CALL(move_mount) CALL(open_tree)
	CALL(mount_setattr) CALL(mount) CALL(umount2) CALL(setns) CALL(bpf)
	/* processes */
	CALL(clone) CALL(clone3) OLD(fork) OLD(vfork) CALL(execve) CALL(execveat) CALL(exit)
	CALL(exit_group) CALL(kill) CALL(tgkill) CALL(wait4) CALL(waitid) CALL(getpid)
	CALL(getppid) CALL(gettid) OLD(getpgrp) CALL(getpgid) CALL(getsid) CALL(setsid)
	CALL(prctl) OLD(arch_prctl) CALL(set_tid_address) CALL(set_robust_list) CALL(rseq)
	CALL(prlimit64) CALL(getrlimit) CALL(setrlimit) CALL(getrusage) CALL(capget) CALL(capset)
	CALL(getuid) CALL(geteuid) CALL(getgid) CALL(getegid) CALL(getresuid) CALL(getresgid)
	CALL(getgroups) CALL(setgroups) CALL(setresuid) CALL(setresgid) CALL(seccomp)
	CALL(landlock_create_ruleset) CALL(landlock_add_rule) CALL(landlock_restrict_self)
	CALL(rt_sigaction) CALL(rt_sigpending) CALL(rt_sigprocmask) CALL(rt_sigreturn)
	CALL(rt_sigsuspend) CALL(rt_sigtimedwait) CALL(sigaltstack) CALL(restart_syscall)
	CALL(sched_getaffinity) CALL(sched_getparam) CALL(sched_getscheduler) CALL(sched_yield)
	/* memory */
	CALL(brk) CALL(futex) CALL(madvise) CALL(membarrier) CALL(mlock) CALL(mlock2) CALL(mmap)
	CALL(mprotect) CALL(mremap) CALL(munlock) CALL(munmap)
	/* time, chance, where am I */
	CALL(clock_getres) CALL(clock_gettime) CALL(clock_nanosleep) CALL(getcpu) CALL(getrandom)
	OLD(alarm) CALL(gettimeofday) CALL(nanosleep) CALL(setitimer) CALL(sysinfo) OLD(time) CALL(uname)
};
/* clang-format on */

#ifdef SECCOMP_SANITIZED
static const int of_sanitizers[] = {
    __NR_personality, __NR_process_vm_readv, __NR_ptrace, __NR_sched_setaffinity};
#else
static const int of_sanitizers[] = {-1};
#endif

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EPERM_IF_NOT SECCOMP_ERRNO(EPERM)

/* Those of the namespaces that a process is put into, and no room for another user. */
#define NAMESPACES                                                                                 \
	(CLONE_NEWCGROUP | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID |              \
	    CLONE_NEWUSER | CLONE_NEWUTS)

static const struct seccomp_call bounded[] = {
    {__NR_socket, SECCOMP_ERRNO(EAFNOSUPPORT),
	{SECCOMP_IS_ONE_OF(0, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)}},
    {__NR_setns, EPERM_IF_NOT, {SECCOMP_IS_ONE_OF(1, CLONE_NEWNET)}},
    {__NR_clone, EPERM_IF_NOT, {SECCOMP_IS_WITHOUT(0, NAMESPACES)}},
    /* The flags are behind a pointer here; libc then takes clone. */
    {__NR_clone3, SECCOMP_ERRNO(ENOSYS), {SECCOMP_NEVER}},
};

size_t broker_calls_list(const struct broker_call **out)
{
	*out = list;
	return COUNT(list);
}

/* An address where nothing can be: a kernel that is asked says anything but EPERM.  Runtimes'
 * profiles allow this call, so none of them is taken for ours. */
static bool is_bounded(void)
{
	return syscall(__NR_shmdt, 1) < 0 && errno == EPERM;
}

int broker_calls_bound(struct err *e)
{
	int allowed[COUNT(list) + COUNT(of_sanitizers)];
	size_t n = 0;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return err_sys(e, "no_new_privs");
	if (is_bounded())
		return 0;
	for (size_t i = 0; i < COUNT(list); i++)
		allowed[n++] = list[i].nr;
	for (size_t i = 0; i < COUNT(of_sanitizers); i++)
		allowed[n++] = of_sanitizers[i];
	return seccomp_install(&(struct seccomp_rules){.calls = bounded,
				   .ncalls = COUNT(bounded),
				   .allowed = allowed,
				   .nallowed = n,
				   .otherwise = EPERM_IF_NOT,
				   .foreign = EPERM_IF_NOT},
	    e);
}
