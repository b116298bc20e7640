"""A Python program as a process of a test, forked from one that has imported it (netns.FORKS): by itself each control plane
and each kubelet would import for half a second of a core.
"""
import os
import signal
import subprocess
from pathlib import Path

from . import netns
from .run import Process


class Forked(Process):
    """function(*args) in a process of its own, as Process has a program; in the caller's network namespace, in which the
    caller stays until it has begun, or in the one with the path `at`; and in the mount namespace with the path `mounts`."""

    def __init__(self, function, args, log, cgroup, at=None, mounts=None):
        self.log = Path(log)
        self._popen = _Child(_run, (function, args, str(log), at or netns.here(), cgroup.path / 'cgroup.procs', mounts))
        self.pid = self._popen.pid


class _Child:
    """What Process wants of a Popen."""

    def __init__(self, function, args):
        self._process = netns.FORKS.Process(target=function, args=args, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired('a forked process', timeout)
        return self._process.exitcode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _run(function, args, log, at, procs, mounts):
    os.setsid()
    to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(to, 1)
    os.dup2(to, 2)
    netns._enter(at, procs)
    if mounts:
        netns.enter_mounts(mounts)
    function(*args)
