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
from .test_dns import FOREIGN, kill_worker, upgrade
from .test_redirect import Bystander

SOAK = os.environ.get('AGENTD_SOAK')
PODS, UPGRADES, DEATHS, HAND_OVERS, PAUSE_MS = (150, 50, 50, 20, 200) if SOAK else (8, 2, 2, 1, 50)
ABSENT_S, PATIENCE_S = (600, 5) if SOAK else (0, 1)
LONG = pytest.mark.timeout(3600 if SOAK else 240)
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
            pod.dir / f'{kind}.log', pod.cgroup, env={**os.environ, 'PATIENCE_MS': str(PATIENCE_S * 1000)})

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
        conf.write_text(f'nameserver {self.host.ip}\noptions timeout:{PATIENCE_S}\n')
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
        wait_for('all pods to have their names', told, 120)

    def wait_ready(self):
        wait_for('all pods to be served', lambda: all(d['answers'] and d['names'] > 0 for d in self.dns()), 120)

    def more(self, n):
        """Of each asker; what was under way is answered, too."""
        goal = [a.asked() + n for a in self.askers]
        wait_for('more lookups', lambda: all(a.asked() >= g for a, g in zip(self.askers, goal)), 240)

    def right(self):
        """Each asker gets all names right, one after the other."""
        wait_for('right answers', lambda: all(a.counts()['in_a_row'] > len(ASKED) for a in self.askers), 120)

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
        act()
        self._world.wait_ready()
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


@LONG
def test_no_name_is_denied(world):
    """Upgrades, deaths of the worker, hand-overs, and nobody there at all: no known name is wrong, and then all is right."""
    node = world.node
    measured.append(f'{PODS} pods with one table: the worker has {memory(node)} KiB, the state '
                    f'{len(list((node.agentd.run / "state").rglob("*names*")))} files of names')
    for what, replace, times in (('upgrade', upgrade, UPGRADES), ('death of the worker', kill_worker, DEATHS),
                                 ('hand-over', beside, HAND_OVERS)):
        phase = Phase(world, what)
        for _ in range(times):
            phase.once(lambda replace=replace: replace(node))
        world.right()
        phase.say()
    phase = Phase(world, f'agentd absent for {ABSENT_S} s')
    node.agentd.kill()
    time.sleep(ABSENT_S)
    world.more(len(ASKED))
    world.nothing_was_wrong('nobody there')
    phase.say()
    for kind in {'glibc', 'musl', 'go', 'ares', 'unconnected'} & set(world.sums()):
        assert phase.since(kind)['foreign_right'], f'{kind}: other names have their resolver'
    phase = Phase(world, 'agentd is back')
    node.agentd.start()
    world.wait_ready()
    world.right()
    world.nothing_was_wrong('agentd is back')
    phase.say()
    node.agentd.keep_answers()
