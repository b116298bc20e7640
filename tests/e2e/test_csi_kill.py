"""agentd may die at any system call of a publish and of an unpublish: the kubelet's next try ends well.

strace delivers SIGKILL at the Nth call after it was attached, to the broker (the worker ends with it) or to the
worker (the broker starts another).  Every N under AGENTD_SOAK=1, a sample else.
"""
import os
import subprocess
import time

import pytest

from .conftest import measured
from .csi import CsiNode
from .run import wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
STEPS = 1 if SOAK else 7  # every so many
FAST = {'scale': 0.03, 'sync_s': 3600, 'back_off_s': 0.05}


class Tracer:
    """Kills `pid` at its Nth system call from now on; N = 0: only counts them."""

    def __init__(self, node, pid, n):
        self._log = node.dir / 'strace.txt'
        self._log.unlink(missing_ok=True)
        inject = ['-e', f'inject=all:signal=KILL:when={n}'] if n else []
        self._process = subprocess.Popen(['strace', '-q', '-f', '-o', str(self._log), *inject, '-p', str(pid)],
                                         stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for('strace', lambda: 'TracerPid:\t0' not in open(f'/proc/{pid}/status', encoding='utf-8').read())

    def end(self):
        """How many calls there were; whether the process was killed."""
        self._process.terminate()
        self._process.wait()
        lines = self._log.read_text(errors='replace').splitlines()
        return len(lines), any('killed by SIGKILL' in line for line in lines)


class Victim:
    def __init__(self, node, who):
        self.node, self.who, self.pods = node, who, 0

    def pid(self):
        return self.node.agentd.process.pid if self.who == 'broker' else wait_for('a worker', self.node.agentd.worker_pid)

    def back(self):
        """Another agentd, if this one is dead."""
        agentd = self.node.agentd
        if not agentd.process.running():
            agentd.process.wait()
            wait_for('the worker to follow its broker', lambda: not agentd.cgroup.pids())
            agentd.start()

    def step(self, at, n):
        """A pod's life with a death at the Nth call of its publish or unpublish; (calls, killed)."""
        self.pods += 1
        pod = self.node.csi_pod(f'{self.who}-{at}-{self.pods}', sa='one', created=at == 'unpublish')
        if at == 'unpublish':
            pod.wait_running()
        tracer = Tracer(self.node, self.pid(), n)
        (pod.delete if at == 'unpublish' else pod.create)()

        def through():
            self.back()
            return pod.state()['phase'] == 'running' if at == 'publish' else pod.uid not in self.node.kubelet.state()['pods']
        wait_for(f'{at} to end well after a death at call {n}', through)
        found = tracer.end()
        self.back()
        if at == 'publish':
            assert self.node.mounts() == [str(pod.target)], n
            pod.delete()
            self.node.wait_gone([pod])
        wait_for('nothing to be left', lambda: self.node.clean() is True, 10)
        return found


@pytest.mark.timeout(3600 if SOAK else 240)
@pytest.mark.parametrize('at', ['publish', 'unpublish'])
@pytest.mark.parametrize('who', ['broker', 'worker'])
def test_a_death_at_any_call(make_node, who, at):
    node = make_node(kind=CsiNode, kubelet=FAST, mode='release').start()
    victim = Victim(node, who)
    victim.step(at, 0)
    calls, _ = victim.step(at, 0)
    killed = 0
    for n in range(1, calls + 1, STEPS if SOAK else max(1, calls // STEPS)):
        killed += victim.step(at, n)[1]
    assert killed >= (calls * 3 // 4 if SOAK else 3), (calls, killed)
    assert len(node.istiod.issued()) == 1
    measured.append(f'{killed} deaths of the {who} in {calls} calls of one {at}')
