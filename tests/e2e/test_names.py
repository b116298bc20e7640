"""Names that istiod told stay what they are, whoever is away: every kind of resolver, through upgrades and deaths.

The pods' own resolver is a cluster's: it has the cluster's names, and denies those that only istiod has.
"""
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from .conftest import measured
from .node import Agentd
from .pod import HERE
from .run import Process, sh, wait_for
from .scene import APP
from .stand_ins import StandIns
from .test_dns import FOREIGN
from .test_redirect import Bystander

SOAK = os.environ.get('AGENTD_SOAK')
PODS, UPGRADES, DEATHS, HAND_OVERS, PAUSE_MS = (150, 50, 50, 20, 500) if SOAK else (7, 1, 1, 1, 50)
ABSENT_S, PATIENCE_MS = (600, 5000) if SOAK else (0, 300)
LONG = pytest.mark.timeout(3600 if SOAK else 600)
GO = shutil.which('go') or shutil.which('/usr/local/go/bin/go')

OURS, CLUSTER, WILD = 'api.partner.example', 'web.demo.svc.cluster.local', 'any.shop.example'
ISTIODS = {OURS: '240.240.0.5', CLUSTER: '10.96.0.7', WILD: '240.240.0.9'}
TABLE = {OURS: [ISTIODS[OURS]], '*.shop.example': [ISTIODS[WILD]],
         CLUSTER: {'ips': [ISTIODS[CLUSTER]], 'registry': 'Kubernetes', 'shortname': 'web', 'namespace': 'demo'}}
ELSEWHERE = {CLUSTER: ISTIODS[CLUSTER], FOREIGN: '198.18.0.2'}
ASKED = [f'{name}={address}' for name, address in ISTIODS.items()] + [f'-{FOREIGN}={ELSEWHERE[FOREIGN]}']

NO_SUMS = 'refused', 'in_a_row', 'longest_ms'


@pytest.fixture(scope='module')
def askers(tmp_path_factory):
    """How a process of each kind is started."""
    made = tmp_path_factory.mktemp('askers')
    made.chmod(0o755)
    made.parent.chmod(0o755)
    made.parent.parent.chmod(0o755)
    sh('gcc', '-O1', '-DWITH_ARES', '-o', made / 'asker', HERE / 'asker.c', '-lcares')
    sh('musl-gcc', '-O1', '-static', '-o', made / 'asker-musl', HERE / 'asker.c')
    kinds = {how: [made / 'asker', how] for how in ('connected', 'unconnected', 'tcp', 'ares')}
    kinds |= {'glibc': [made / 'asker', 'libc'], 'musl': [made / 'asker-musl', 'libc']}
    if GO:
        sh(GO, 'build', '-o', made / 'asker-go', HERE / 'asker.go', timeout=300,
           env={**os.environ, 'CGO_ENABLED': '0', 'GO111MODULE': 'off'})
        kinds['go'] = [made / 'asker-go']
    return kinds


class Asker:
    """One resolver of a pod, asking for ever."""

    def __init__(self, pod, conf, kind, argv):
        self.pod, self.kind, self._counts = pod, kind, pod.dir / f'{kind}.json'
        self._counts.write_text('{}')
        self._counts.chmod(0o666)
        pod.dir.chmod(0o755)
        self.process = Process(pod.netns.command(
            'unshare', '--mount', '--propagation', 'private', 'sh', '-c', 'mount --bind "$0" /etc/resolv.conf && exec "$@"',
            conf, 'setpriv', f'--reuid={APP}', f'--regid={APP}', '--clear-groups', *argv, self._counts, PAUSE_MS, *ASKED),
            pod.dir / f'{kind}.log', pod.cgroup, env={**os.environ, 'PATIENCE_MS': str(PATIENCE_MS)})

    def counts(self):
        return json.loads(self._counts.read_text() or '{}')

    def asked(self):
        return sum(v for k, v in self.counts().items() if k not in NO_SUMS)

    def forget(self):
        self.process.send(signal.SIGUSR1)


class World:
    """A node with pods that ask; each has one kind of resolver, but for a few pods in CI, which have all."""

    def __init__(self, node, askers, pods):
        self.node = node
        self.host = Bystander(node)
        self._resolver = node.dir / 'resolver.json'
        Process(self.host.netns.command(sys.executable, HERE / 'lookups.py', 'cluster', self._resolver, self.host.ip,
                                        *(f'{k}={v}' for k, v in ELSEWHERE.items())), node.dir / 'resolver.log', self.host.cgroup)
        node.agentd.settings['dns_upstream'] = self.host.ip
        node.agentd.settings['log_level'] = 'info'
        node.agentd.start()
        self.pods = [node.pod(f'p{n}', sa=f'sa-{n % 10}', redirect={'redirect_dns': 'true'}) for n in range(pods)]
        for pod in self.pods:
            node.istiod.set(pod.id, names=TABLE)
        for pod in self.pods:
            pod.wait_served()
        self._stand_ins = StandIns(node, self.pods)
        self.wait_told(stale=False)
        conf = node.dir / 'resolv.conf'
        conf.write_text(f'nameserver {self.host.ip}\noptions timeout:{max(1, PATIENCE_MS // 1000)}\n')
        kinds = sorted(askers.items())
        self.askers = [Asker(pod, conf, *kinds[n % len(kinds)]) for n, pod in enumerate(self.pods)]
        self.more(len(ASKED))

    def dns(self):
        return [p['dns'] for p in self.node.agentd.ctl('pods')['pods']]

    def wait_told(self, stale):
        def told():
            found = self.dns()
            return len(found) == len(self.pods) and all(
                d['answers'] and d['names'] > 0 and (stale or not d['stale']) for d in found)
        wait_for('all pods to have their names', told, 300)

    def mark(self):
        """How long the log is."""
        return self.node.agentd, self.node.agentd.log.stat().st_size

    def wait_answers(self, since):
        """All pods' DNS is answered again, by the log: a page of so many pods would keep the worker from it."""
        agentd, size = since

        def answers():
            time.sleep(0.1)
            with open(self.node.agentd.log, encoding='utf-8', errors='replace') as f:
                f.seek(size if self.node.agentd is agentd else 0)
                return f.read().count("agentd answers this pod's DNS queries") >= len(self.pods)
        wait_for('all pods to be answered', answers, 300)

    def more(self, n):
        """Of each asker; what was under way is answered, too."""
        goal = [a.asked() + n for a in self.askers]
        wait_for('more lookups', lambda: all(a.asked() >= g for a, g in zip(self.askers, goal)), 300)

    def right(self):
        """Each asker gets all names right, one after the other."""
        wait_for('right answers', lambda: all(a.counts()['in_a_row'] > len(ASKED) for a in self.askers), 300)

    def sums(self):
        """Of each kind."""
        out = {}
        for a in self.askers:
            into = out.setdefault(a.kind, {})
            for k, v in a.counts().items():
                into[k] = into.get(k, 0) + v
        return out

    def waits_ms(self):
        """The longest wait of each pod since forget()."""
        return sorted(a.counts()['longest_ms'] for a in self.askers)

    def forget(self):
        for a in self.askers:
            a.forget()

    def nothing_was_wrong(self, when):
        wrong = {f'{a.pod.name} {a.kind}': a.process.tail() for a in self.askers if a.counts()['wrong']}
        assert not wrong, f'{when}: {wrong}'


@pytest.fixture
def world(capturing, askers):
    return World(capturing(), askers, PODS)


class Phase:
    """What the lookups of one kind of event came to."""

    def __init__(self, world, what):
        self._world, self._what, self._waits, self._times = world, what, [], 0
        self._before = world.sums()

    def once(self, act):
        self._world.forget()
        self._world.more(1)
        since = self._world.mark()
        act()
        self._world.wait_answers(since)
        self._world.more(1)
        self._waits += self._world.waits_ms()
        self._times += 1
        self._world.nothing_was_wrong(f'{self._what} {self._times}')

    def since(self, kind):
        return {k: n - self._before[kind].get(k, 0) for k, n in self._world.sums()[kind].items() if k not in NO_SUMS}

    def say(self):
        if self._times:
            waits = sorted(self._waits)
            measured.append(f'{self._what}, {self._times} times, {PODS} pods: the longest wait of each pod at each: median '
                            f'{waits[len(waits) // 2]} ms, 99 % {waits[len(waits) * 99 // 100]} ms, the last {waits[-1]} ms')
        for kind in sorted(self._before):
            n = self.since(kind)
            measured.append(f'{self._what}, {kind}: known names {n["right"]} right, {n["wrong"]} wrong, {n["none"]} without an '
                            f'answer; others {n["foreign_right"]} right, {n["foreign_none"]} without')


def memory(node):
    """Of the worker: private bytes of it alone."""
    pid = node.agentd.worker_pid()
    rollup = Path(f'/proc/{pid}/smaps_rollup').read_text()
    return int(re.search(r'^Pss:\s+(\d+)', rollup, re.M)[1])


def beside(node):
    """Another agentd takes over."""
    old, name = node.agentd, f'agentd.{len(list(node.dir.glob("agentd*")))}'
    node.agentd = new = Agentd(node.dir / name, node.cgroup(name), node.istiod)
    new.run, new.manifests, new.settings = old.run, old.manifests, old.settings
    new.flags = [*(flag for flag in old.flags if flag != '--take-over'), '--take-over']
    new.start()
    assert old.process.wait() == 0


def upgrade(node):
    node.agentd.process.send(signal.SIGUSR2)


def death(node):
    os.kill(node.agentd.worker_pid(), signal.SIGKILL)


def say_memory(node):
    measured.append(f'{PODS} pods with one table: the worker has {memory(node)} KiB; names in the state: '
                    f'{sorted(f.stat().st_size for f in (node.agentd.run / "state").rglob("*names*/*"))} bytes')


def replaced(world, what, replace, times):
    phase = Phase(world, what)
    for _ in range(times):
        phase.once(lambda: replace(world.node))
    world.right()
    phase.say()


def upgraded(world):
    say_memory(world.node)
    replaced(world, 'upgrade', upgrade, UPGRADES)


def worker_died(world):
    replaced(world, 'death of the worker', death, DEATHS)


def handed_over(world):
    replaced(world, 'hand-over', beside, HAND_OVERS)


def nobody_there(world):
    node, phase = world.node, Phase(world, f'agentd absent for {ABSENT_S} s')
    node.agentd.kill()
    time.sleep(ABSENT_S)
    world.more(len(ASKED))
    for kind in {'glibc', 'musl', 'go', 'ares', 'unconnected'} & set(world.sums()):  # one question may have died with agentd
        wait_for(f'{kind}: other names to have their resolver', lambda kind=kind: phase.since(kind)['foreign_right'])
    world.nothing_was_wrong('nobody there')
    phase.say()
    phase = Phase(world, 'agentd is back')
    since = world.mark()
    node.agentd.start()
    world.wait_answers(since)
    world.right()
    world.nothing_was_wrong('agentd is back')
    phase.say()


ALL = [upgraded, worker_died, handed_over, nobody_there]


@LONG
@pytest.mark.parametrize('events', [[one] for one in ALL] if SOAK else [ALL], ids=lambda e: '-'.join(f.__name__ for f in e))
def test_no_name_is_denied(world, events):
    """No known name is ever wrong, and then all are right, of every kind of resolver."""
    for event in events:
        event(world)
    world.node.agentd.keep_answers()
