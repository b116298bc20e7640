"""Other network namespaces: made with ip(8), entered by one thread, or by a process of its own.

A test file has a namespace of its own, too (own()): its control planes and agentds share 127.0.0.1 with nobody.
"""
import contextlib
import ctypes
import http.client
import itertools
import json
import multiprocessing
import os
import signal
import socket
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .run import sh

_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000
# Processes of pods are forked from one that has imported what they need: by themselves that takes each of them 0.3 s of a core.
FORKS = multiprocessing.get_context('forkserver')
FORKS.set_forkserver_preload(['tests.e2e.clients', 'tests.istiod.server', 'tests.kubelet.server'])
_libc = ctypes.CDLL(None, use_errno=True)
_ports = itertools.count(20000)


def _setns(fd, kind=_CLONE_NEWNET):
    if _libc.setns(fd, kind):
        raise OSError(ctypes.get_errno(), 'setns')


def free_port():
    """Of 127.0.0.1, for who listens there later: below those that the kernel gives to clients meanwhile."""
    for port in _ports:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(('127.0.0.1', port))
            return port


@contextlib.contextmanager
def own():
    """This thread, and whatever it starts, for the block: in a new namespace that has lo and nothing else.

    It goes with the last process in it.  Mounts, cgroups and all else stay what they are."""
    with open('/proc/thread-self/ns/net') as home:
        if _libc.unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), 'unshare')
        try:
            sh('ip', 'link', 'set', 'lo', 'up')
            yield
        finally:
            _setns(home.fileno())


def here():
    """The caller's namespace, for a process of FORKS: by itself that one is in the namespace where the first of them was forked.

    Good as long as the caller stays in it."""
    return f'/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net'


def _enter(path, procs):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that ends this one
    Path(procs).write_text('0')
    with open(path) as ns:
        _setns(ns.fileno())


def enter_mounts(path):
    """This process, which has no second thread, for good; its directory stays the one of that name."""
    here = os.getcwd()
    with open(path) as ns:
        _setns(ns.fileno(), _CLONE_NEWNS)
    os.chdir(here)


@contextlib.contextmanager
def inside(path):
    """This thread, for the block; a socket made here stays inside for ever."""
    with open('/proc/thread-self/ns/net') as home, open(path) as there:
        _setns(there.fileno())
        try:
            yield
        finally:
            _setns(home.fileno())


class Netns:
    def __init__(self, name):
        self.name = name
        self.path = f'/run/netns/{name}'
        self._pool = None
        sh('ip', 'netns', 'add', name)
        self.ip('link', 'set', 'lo', 'up')
        with self.inside():  # an address of IPv6 is there at once, not when nobody has answered for a second or two
            Path('/proc/sys/net/ipv6/conf/default/accept_dad').write_text('0')

    def command(self, *argv):
        """argv that runs inside; not ip(8)'s own way, which remounts / and /sys: impossible in a chroot."""
        return ['nsenter', f'--net={self.path}', *map(str, argv)]

    def ip(self, *argv):
        sh(*self.command('ip', *argv))

    def inside(self):
        return inside(self.path)

    def http(self, port, path='/', method='GET', host='127.0.0.1', timeout=60):
        """(status, body text) of one request made from inside."""
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
        with self.inside():
            connection.sock = socket.create_connection((host, port), timeout)
        with contextlib.closing(connection):
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def json(self, port, path='/', **kw):
        status, body = self.http(port, path, **kw)
        if status != 200:
            raise ValueError(f'{path}: {status} {body[:200]}')
        return json.loads(body)

    def submit(self, cgroup, function, *args):
        """A future of function(*args) in a process that lives inside (kept for the next one): for grpc."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, FORKS, _enter, (self.path, cgroup.path / 'cgroup.procs'))
        return self._pool.submit(function, *args)

    def remove(self):
        if self._pool:
            self._pool.shutdown()
        if os.path.exists(self.path):
            sh('ip', 'netns', 'del', self.name)


class Network:
    """A bridge in a namespace of its own; each pod has one cable to it."""

    def __init__(self, name):
        self.netns = Netns(f'{name}.br')
        self._pods, self._node = 0, False
        self.netns.ip('link', 'add', 'br0', 'type', 'bridge')
        self.netns.ip('link', 'set', 'br0', 'up')

    def plug(self, netns):
        """A cable and an address for a pod's namespace; the address."""
        self._pods += 1
        port, address = f'p{self._pods}', f'10.77.0.{self._pods}'
        self.netns.ip('link', 'add', port, 'type', 'veth',
                      'peer', 'name', 'eth0', 'netns', netns.name)
        self.netns.ip('link', 'set', port, 'master', 'br0', 'up')
        netns.ip('addr', 'add', f'{address}/16', 'dev', 'eth0')
        netns.ip('link', 'set', 'eth0', 'up')
        return address

    def plug_node(self, *addresses):
        """A cable to the node's own namespace, which is this process's."""
        self.netns.ip('link', 'add', 'node0', 'type', 'veth', 'peer', 'name', 'node0', 'netns', str(os.getpid()))
        self._node = True
        self.netns.ip('link', 'set', 'node0', 'master', 'br0', 'up')
        for address in addresses:
            sh('ip', 'addr', 'add', address, 'dev', 'node0', *(['nodad'] if ':' in address else []))
        sh('ip', 'link', 'set', 'node0', 'up')

    def remove(self):
        if self._node:
            sh('ip', 'link', 'del', 'node0')  # with its namespace the cable would go, too, but later
        self.netns.remove()
