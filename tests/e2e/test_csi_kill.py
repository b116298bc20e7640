"""agentd may die at any system call of a publish and of an unpublish: the kubelet's next try ends well.

strace first shows which calls there are, then delivers SIGKILL at one of them, to the broker (the worker ends with
it) or to the worker (the broker starts another).  At every one under AGENTD_SOAK=1, at a sample else.
"""
import collections
import os
import re
import subprocess

import pytest

from .conftest import measured
from .csi import CsiNode
from .run import wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
SAMPLE = 7
FAST = {'scale': 0.03, 'sync_s': 3600, 'back_off_s': 0.05}


class Tracer:
    """Kills `pid` when it makes the Kth call NAME from now on; `at` = (NAME, K), or None: only looks."""

    def __init__(self, node, pid, at):
        self._log, self._pid = node.dir / 'strace.txt', pid
        self._log.unlink(missing_ok=True)
        inject = ['-e', f'inject={at[0]}:signal=KILL:when={at[1]}'] if at else []
        self._process = subprocess.Popen(['strace', '-q', '-f', '-o', str(self._log), *inject, '-p', str(pid)],
                                         stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for('strace', lambda: self._process.poll() is not None or self._attached(pid))

    @staticmethod
    def _attached(pid):
        with open(f'/proc/{pid}/status', encoding='utf-8') as f:
            return 'TracerPid:\t0' not in f.read()

    def end(self):
        """The calls of its main thread, as (NAME, K); whether it was killed."""
        self._process.terminate()
        self._process.wait()
        counts, calls, killed = collections.Counter(), [], False
        for line in self._log.read_text(errors='replace').splitlines():
            killed |= 'killed by SIGKILL' in line
            if m := re.match(rf'{self._pid} +(\w+)\(', line):
                counts[m[1]] += 1
                calls.append((m[1], counts[m[1]]))
        return calls, killed


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

    def step(self, at, call):
        """A pod's life with a death at that call of its publish or unpublish; (calls, killed)."""
        self.pods += 1
        pod = self.node.csi_pod(f'{self.who}-{at}-{self.pods}', sa='one', created=at == 'unpublish')
        if at == 'unpublish':
            pod.wait_running()
        tracer = Tracer(self.node, self.pid(), call)
        (pod.delete if at == 'unpublish' else pod.create)()

        def through():
            self.back()
            return pod.state()['phase'] == 'running' if at == 'publish' else pod.uid not in self.node.kubelet.state()['pods']
        wait_for(f'{at} to end well after a death at {call}', through)
        found = tracer.end()
        self.back()
        if at == 'publish':
            assert self.node.mounts() == [str(pod.target)], call
            pod.delete()
            self.node.wait_gone([pod])
        wait_for('nothing to be left', lambda: self.node.clean() is True)
        if found[1] and self.who == 'worker':  # a broker that has seen many deaths waits longer and longer
            self.node.agentd.kill()
            self.back()
        return found


def spread(calls, n):
    """All of them: first about n from the first to the last, then those beside these."""
    step = max(1, len(calls) // n)
    return [call for at in range(step) for call in calls[at::step]]


@pytest.mark.timeout(3600 if SOAK else 600)
@pytest.mark.parametrize('at', ['publish', 'unpublish'])
@pytest.mark.parametrize('who', ['broker', 'worker'])
def test_a_death_at_any_call(make_node, who, at):
    node = make_node(kind=CsiNode, kubelet=FAST, mode='release').start()
    victim = Victim(node, who)
    victim.step(at, None)
    calls, _ = victim.step(at, None)
    # Another time some come in another number: then there is no such call, and no death.
    tried = died = 0
    for call in calls if SOAK else spread(calls, SAMPLE):
        died += victim.step(at, call)[1]
        tried += 1
        if not SOAK and died == SAMPLE:
            break
    assert died >= (len(calls) * 2 // 3 if SOAK else SAMPLE), (tried, died)
    assert len(node.istiod.issued()) == 1
    measured.append(f'{died} deaths of the {who} at {tried} of the {len(calls)} calls of one {at}')
