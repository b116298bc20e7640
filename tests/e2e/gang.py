"""Many hostile pods: each a process in a network namespace and a cgroup of its own, which runs one attack of attacker.py.

Gang is what a test has; `python3 -m tests.e2e.gang DIR ATTACK SECONDS [SHARE]` is what it runs.
"""
import ctypes
import json
import os
import sys
import time
from pathlib import Path

from . import attacker
from .crowd import Crowd
from .run import Process

_CLONE_NEWNET = 0x40000000


class Gang(Crowd):
    """`count` pods; their manifests are there from the start."""

    def __init__(self, node, count, name='gang'):
        super().__init__(node, count, count, name)
        for n, pod in enumerate(self.pods):
            cgroup = self._cgroup.path / str(n)
            cgroup.mkdir()
            pod['cgroup'] = str(cgroup / 'cgroup.procs')
            (node.agentd.manifests / pod['uid'] / 'cgroup').write_text(f'{self._cgroup.below_root()}/{n}\n')
        (self._dir / 'pods.json').write_text(json.dumps(self.pods))
        self.uids = {p['uid'] for p in self.pods}

    def are_there(self):
        return all((Path(p['mount']) / name).exists() for p in self.pods for name in ('XDS', 'socket'))

    def start(self, attack, seconds, share=1):
        """All of them at once; the process, which ends with them.  `burn` takes its share of a core, and is no attack."""
        for file in self._dir.glob('began.*'):
            file.unlink()
        return Process([sys.executable, '-m', 'tests.e2e.gang', self._dir, attack, seconds, share],
                       self._dir / 'log', self._cgroup)

    def began(self):
        """How many of them."""
        return len(list(self._dir.glob('began.*')))

    def remove(self):
        for pod in self.pods:
            (self._node.agentd.manifests / f'{pod["uid"]}.yaml').unlink()

    def counts(self):
        """Of those that are through: the sums."""
        each = [json.loads(f.read_text()) for f in self._dir.glob('counts.*.json')]
        return {k: sum(c[k] for c in each) for k in each[0]} if each else {}


def burn(seconds, share):
    """No attack: that much of a core, elsewhere."""
    start, used = time.monotonic(), time.process_time()
    while (now := time.monotonic() - start) < seconds:
        if time.process_time() - used > share * now:
            time.sleep(0.002)
    return {}


def _one(directory, n, attack, pod, seconds, share):
    Path(pod['cgroup']).write_text('0')
    mount = Path(pod['mount'])
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), 'unshare')
    (directory / f'began.{n}').touch()
    socket = mount / ('XDS' if attack == 'no_window' else 'socket')
    used = time.process_time()
    counts = burn(seconds, share) if attack == 'burn' else attacker.attack(attack, socket, seconds)
    counts['cpu_s'] = round(time.process_time() - used, 2)
    (directory / f'counts.{n}.json').write_text(json.dumps(counts))


def _main(directory, attack, seconds, share):
    children = []
    for n, pod in enumerate(json.loads((directory / 'pods.json').read_text())):
        pid = os.fork()
        if pid == 0:
            _one(directory, n, attack, pod, seconds, share)
            os._exit(0)
        children.append(pid)
    sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))


if __name__ == '__main__':
    _main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
