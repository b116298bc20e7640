"""What is left to who takes the worker over, found out by trying and not by reading the filter.

cage_probe.c is the worker of a real broker: it tries each system call's number, each option, flag, family and bit, and
some deeds, thousands in all.  What was not refused is compared with what is written down here; docs/SECURITY.md says
what it is worth to an intruder.
"""
import ctypes
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from .node import BUILD
from .run import TOP

# Those whose arguments decide (tried below) are not here: with -1 everywhere they are refused, and so is futex.
CALLS = set('''
    accept4 bind connect getpeername getsockname getsockopt ioctl recvfrom recvmsg sendmmsg sendmsg sendto setsockopt shutdown
    socket
    close dup fcntl fstat getdents64 lseek memfd_create newfstatat openat pidfd_open pipe2 pread64 read readv write writev
    epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd2 poll ppoll signalfd4 timerfd_create timerfd_settime
    brk exit exit_group madvise mlock mremap munlock munmap restart_syscall rseq rt_sigaction rt_sigprocmask
    rt_sigreturn sched_getaffinity sched_getparam sched_getscheduler sched_yield set_robust_list
    clock_getres clock_gettime clock_nanosleep getegid geteuid getgid getpid getrandom gettid gettimeofday getuid nanosleep
    sysinfo uname
'''.split())
# uretprobe, uprobe: no filter is asked (Linux 6.11), and they refuse all but the kernel's own code.
UNFILTERED = {'335', '336'}
BITS = [1 << bit for bit in range(32)]
SENDING = {socket.MSG_DONTWAIT, socket.MSG_NOSIGNAL, socket.MSG_MORE, socket.MSG_EOR}
TCP_INQ, IP_RECVERR, IPV6_RECVERR, PROT_EXEC = 36, 11, 25, 4
PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME = 3, 15, 16
FIONREAD, FIONBIO, PIDFD_GET_INFO = 0x541b, 0x5421, 0xc040ff0b
OPENS_REFUSED = {os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_TMPFILE & ~os.O_DIRECTORY}  # the last by the kernel
ALLOWED = {
    'socket': {(family, kind, protocol) for family in (socket.AF_INET, socket.AF_INET6)
               for kind, protocol in ((socket.SOCK_STREAM, 0), (socket.SOCK_STREAM, socket.IPPROTO_TCP),
                                      (socket.SOCK_DGRAM, 0), (socket.SOCK_DGRAM, socket.IPPROTO_UDP))},
    'setsockopt': {(level, option) for level, options in {
        socket.SOL_SOCKET: (socket.SO_REUSEADDR, socket.SO_REUSEPORT, socket.SO_KEEPALIVE, socket.SO_RCVBUF,
                            socket.SO_SNDBUF, socket.SO_RCVLOWAT),
        socket.IPPROTO_TCP: (socket.TCP_NODELAY, socket.TCP_USER_TIMEOUT, TCP_INQ),
        socket.IPPROTO_IP: (IP_RECVERR,),
        socket.IPPROTO_IPV6: (socket.IPV6_V6ONLY, IPV6_RECVERR),
    }.items() for option in options},
    'sendto': {(flag,) for flag in SENDING},
    'sendmsg': {(flag,) for flag in SENDING},
    'sendmmsg': {(flag,) for flag in SENDING},
    'ioctl': {(FIONREAD,), (FIONBIO,), (PIDFD_GET_INFO,)},
    'openat': {(flag,) for flag in BITS if flag not in OPENS_REFUSED},
    'mmap': {(prot,) for prot in BITS if prot != PROT_EXEC},
    'mprotect': {(prot,) for prot in BITS if prot != PROT_EXEC},
    'prctl': {(PR_GET_DUMPABLE,), (PR_SET_NAME,), (PR_GET_NAME,)},
}
# signal-broker: the kernel stores whom a descriptor's signals are for, and does not send them: the broker lives.
DEEDS = set('''
    connect-allowed udp bind-tcp-free bind-udp
    stat stat-of-root stat-of-shadow open-path open-path-of-shadow pidfd-of-1
    open-etc open-self list-self-fd open-random
    signal-broker
'''.split())


def landlock():
    create_ruleset, version = 444, 1
    return ctypes.CDLL(None).syscall(create_ruleset, None, 0, version)


def numbers():
    """Each system call's number, as this machine's headers have it."""
    header = Path('/usr/include', f'{os.uname().machine}-linux-gnu', 'asm/unistd_64.h').read_text()
    return {n: name for name, n in re.findall(r'^#define __NR_(\w+) (\d+)$', header, re.M)}


@pytest.fixture
def listener():
    with socket.create_server(('127.0.0.1', 0)) as allowed, socket.create_server(('127.0.0.1', 0)) as other:
        yield allowed, other


def probed(node, line):
    """What the probe said, as the worker of a broker that has nothing else to do."""
    folder, a = node.dir / 'probe', node.agentd
    folder.mkdir()
    shutil.copy(BUILD / 'release' / 'agentd', folder)
    subprocess.run(['cc', '-D_GNU_SOURCE', '-O1', '-iquote', TOP / 'agentd', '-o', folder / 'agentd-worker',
                    TOP / 'tests/e2e/cage_probe.c', *(TOP / 'agentd/worker/link').glob('cage*.c'),
                    *(TOP / 'agentd/common' / f'{name}.c' for name in ('err', 'log', 'mem', 'seccomp'))], check=True)
    (folder / 'agentd.yaml').write_text(line)
    done = subprocess.run([folder / 'agentd', '--run', a.run, '--manifests', a.manifests, '--config', folder / 'agentd.yaml',
                           '--root-file', f'0={a.root_file}'], text=True, capture_output=True, timeout=120, check=False)
    # The broker lives to the end, whatever was sent to it, and its status is the probe's.
    assert 'all tried' in done.stdout and done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines() if ' ' in line]


@pytest.mark.skipif(os.uname().machine != 'x86_64', reason='the numbers of system calls are those of x86-64')
@pytest.mark.skipif(landlock() < 6, reason="this kernel's Landlock has no scopes (Linux 6.12): other deeds are possible")
def test_nothing_more_is_possible_than_what_is_written_down(make_node, listener):
    node = make_node(mode='release')
    allowed, other = (s.getsockname()[1] for s in listener)
    readable = node.dir / 'readable'
    readable.write_text('x')
    readable.chmod(0o644)
    said = probed(node, f'{allowed} {other} {readable}\n')
    names = numbers()
    found = {what: {tuple(map(int, rest)) for w, *rest in said if w == what} for what in ALLOWED}
    found['call'] = {names.get(n, n) for what, n, *_ in said if what == 'call' and n not in UNFILTERED}
    found['deed'] = {n for what, n, *_ in said if what == 'deed'}
    expected = {**ALLOWED, 'call': CALLS, 'deed': DEEDS}
    assert not {what: more for what in expected if (more := found[what] - expected[what])}, 'more is possible'
    assert not {what: less for what in expected if (less := expected[what] - found[what])}, 'less is possible: write it down'
    assert {what for what, *_ in said} == {*expected, 'all'}
