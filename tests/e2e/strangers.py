"""Who may not connect: processes of any network namespace, cgroup and uid, without grpc.

`Place` is where a process lives; what it runs there is one of the functions below.
"""
import contextlib
import ctypes
import multiprocessing
import os
import signal
import socket
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from . import netns

HELLO = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes(3) + b'\4' + bytes(5)  # preface, empty SETTINGS
PATIENCE_S = 60
_CLONE3 = 435
_kept = []


class Place:
    """A process in a cgroup, in a network namespace (a path; None: the caller's), kept for several calls."""

    def __init__(self, cgroup, namespace=None):
        self._pool = ProcessPoolExecutor(1, netns.FORKS, netns._enter,
                                         (namespace or netns.here(), cgroup.path / 'cgroup.procs'))
        self.call(os.getpid)  # it is there before the caller goes elsewhere

    def call(self, function, *args):
        return self._pool.submit(function, *args).result(300)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pool.shutdown()


def _connect(path):
    """By a short name, from inside its directory: what is above may be root's."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(PATIENCE_S)
    s.connect(Path(path).name)
    return s


def drain(s):
    """All bytes until the other end is gone."""
    got = b''
    with contextlib.suppress(ConnectionError):
        while more := s.recv(4096):
            got += more
    return got


def _attempt(path):
    with _connect(path) as s:
        with contextlib.suppress(ConnectionError):
            s.sendall(HELLO)
        return len(drain(s))


def refused(path, times=1):
    """How many bytes came in `times` connections that were ended by the other side (else: TimeoutError)."""
    os.chdir(Path(path).parent)
    return sum(_attempt(path) for _ in range(times))


def served(path):
    """Whether the server says hello."""
    os.chdir(Path(path).parent)
    with _connect(path) as s:
        try:
            s.sendall(HELLO)
            return bool(s.recv(9))
        except ConnectionError:
            return False


def _in_child(prepare, function, *args):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        prepare()
        theirs.send(function(*args))
        os._exit(0)
    theirs.close()
    os.waitpid(pid, 0)
    return ours.recv()


def as_uid(uid, function, path):
    """In a child that is nobody but `uid`; it is in the directory already, which it could not enter."""
    def become():
        os.chdir(Path(path).parent)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.chdir = lambda _: None
    return _in_child(become, function, path)


def unshared(function, path):
    """In a child that made a network namespace of its own, as a pod's process can."""
    def unshare():
        if netns._libc.unshare(netns._CLONE_NEWNET):
            os._exit(1)
    return _in_child(unshare, function, path)


def hand_over(path, to, age_s):
    """A child of that age connects, is served, gives the connection to who listens at `to`, and exits when told."""
    os.chdir(Path(path).parent)
    pid = os.fork()
    if pid == 0:
        time.sleep(age_s)
        with _connect(path) as s, socket.socket(socket.AF_UNIX) as receiver:
            s.sendall(HELLO)
            s.recv(9)
            receiver.connect(to)
            socket.send_fds(receiver, [b'x'], [s.fileno()])
            receiver.recv(1)
        os._exit(0)
    return pid


def reap(pid):
    return os.waitpid(pid, 0)[1]


def _fork_as(number):
    """clone3(set_tid); 0: any number."""
    if not number:
        return os.fork()

    class Args(ctypes.Structure):
        _fields_ = [(n, ctypes.c_uint64) for n in (
            'flags', 'pidfd', 'child_tid', 'parent_tid', 'exit_signal', 'stack', 'stack_size', 'tls', 'set_tid',
            'set_tid_size', 'cgroup')]
    tid = ctypes.c_int(number)
    args = Args(exit_signal=signal.SIGCHLD, set_tid=ctypes.addressof(tid), set_tid_size=1)
    pid = netns._libc.syscall(_CLONE3, ctypes.byref(args), ctypes.sizeof(args))
    if pid < 0:
        raise OSError(ctypes.get_errno(), 'clone3')
    return pid


def connect_and_die(path):
    """A connection of a process which is dead then; it is kept here.  The process' number."""
    os.chdir(Path(path).parent)
    s = socket.socket(socket.AF_UNIX)
    pid = os.fork()
    if pid == 0:
        s.connect(Path(path).name)
        s.sendall(HELLO)
        os._exit(0)
    os.waitpid(pid, 0)
    _kept.append(s)
    return pid


def what_came():
    """How many bytes on the kept connections, when the other side has ended them."""
    got = 0
    while _kept:
        with _kept.pop() as s:
            s.settimeout(PATIENCE_S)
            got += len(drain(s))
    return got


def impostor(number):
    """A process with this number that lives until it is killed."""
    pid = _fork_as(number)
    if pid == 0:
        signal.pause()
        os._exit(0)
    return pid


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
