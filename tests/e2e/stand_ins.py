"""Stand-ins for the Envoys of many pods, each a process in its pod's own cgroup and network namespace.

StandIns is what a test has; `python3 -m tests.e2e.stand_ins FILE` is what it runs: one process that makes the others.
"""
import asyncio
import ctypes
import json
import os
import socket
import sys
from pathlib import Path

from .crowd import StandIn
from .mesh import INBOUND_CAPTURE, OUTBOUND_CAPTURE
from .run import Process
from .scene import ENVOY

_CLONE_NEWNET = 0x40000000


class StandIns:
    def __init__(self, node, pods):
        self._file = node.dir / 'stand-ins.json'
        self._file.write_text(json.dumps([
            {'name': p.name, 'mount': str(p.mount), 'netns': p.netns.path, 'cgroup': str(p.cgroup.path)} for p in pods]))
        self.process = Process([sys.executable, '-m', 'tests.e2e.stand_ins', self._file], node.dir / 'stand-ins.log',
                               node.cgroup('stand-ins'))


class Here:
    """In place of crowd.Namespaces: the process is in the only one."""

    def new(self):
        return None

    def socket(self, _ns):
        made = socket.socket(socket.AF_UNIX)
        made.setblocking(False)
        return made


def _listen():
    """Where Envoy does, and as its user: else the broker looks for what may have listened before it, of each pod."""
    os.setresgid(ENVOY, ENVOY, 0)
    os.setresuid(ENVOY, ENVOY, 0)
    made = [socket.create_server(at, backlog=8) for at in (('127.0.0.1', OUTBOUND_CAPTURE), ('0.0.0.0', INBOUND_CAPTURE))]
    os.setresuid(0, 0, 0)
    os.setresgid(0, 0, 0)
    return made


def _be(pod):
    Path(pod['cgroup'], 'cgroup.procs').write_text('0')
    with open(pod['netns']) as ns:
        if ctypes.CDLL(None, use_errno=True).setns(ns.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), 'setns')
    _sockets = _listen()
    asyncio.run(StandIn(pod, Here()).run())


def main(file):
    for pod in json.loads(Path(file).read_text()):
        if os.fork() == 0:
            _be(pod)
            os._exit(1)
    os.wait()


if __name__ == '__main__':
    main(sys.argv[1])
