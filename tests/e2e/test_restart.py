"""agentd may die at any moment, and may stay away: no request fails, no pod is lost, nothing is signed again.

20 kills in all, 200 of each kind under AGENTD_SOAK=1.  The asan build is killed too, in the first test; the
others use the release build, whose start takes a hundredth of the time, so that a kill can hit each part of it.
"""
import os
import random
import re
import signal
import socket
import time

import pytest

from . import mesh
from .conftest import measured, start_pair
from .hammer import CLIENTS, Hammer
from .node import READY, Said
from .pod import STATUS
from .run import wait_for
from .test_upgrade import Release, upgraded

SOAK = bool(os.environ.get('AGENTD_SOAK'))
ASAN_KILLS = (4, 2, 1) if not SOAK else (20, 20, 20)  # of the worker, the broker, both
KILLS = (3, 2, 2) if not SOAK else (200, 200, 200)
HAMMERED_KILLS = 200 if SOAK else 6
ABSENT_S = 600 if SOAK else 10
LONG = pytest.mark.timeout(3600 if SOAK else 600)


class Mortal:
    """agentd, and who starts it again, as systemd does."""

    def __init__(self, node):
        self.node, self.agentd = node, node.agentd
        seed = random.randrange(1 << 32)
        print('seed', seed)
        self.random = random.Random(seed)

    def worker(self):
        """Kills the worker; the broker replaces it (or ends with it, before it was ever ready)."""
        self.kill_worker()
        self.wait_ready()

    def kill_worker(self, number=signal.SIGKILL):
        os.kill(wait_for('a worker', self.a_worker), number)

    def a_worker(self):
        """agentd may have ended with the one that was killed before."""
        if not self.agentd.process.running():
            self.again()
        return self.agentd.worker_pid()

    def broker(self):
        self.agentd.process.kill()
        self.again()
        self.wait_ready()

    def both(self):
        self.agentd.kill()
        self.again()
        self.wait_ready()

    def again(self):
        wait_for('the worker to follow its broker', lambda: not self.agentd.cgroup.pids())
        self.agentd.start()

    def wait_ready(self):
        """Or not: at times the next kill comes while the last one is still felt."""
        if self.random.random() < 0.7:
            wait_for('all pods to be served', self.serving)
        time.sleep(self.random.random() * 0.3)

    def serving(self):
        if not self.agentd.process.running():
            self.again()
        pods = self.agentd.ctl('pods')['pods']
        return len(pods) == len(self.node.pods) and all(p['ready'] for p in pods)

    def die(self, kills):
        """That often of each, in any order."""
        acts = [act for act, n in zip((self.worker, self.broker, self.both), kills) for _ in range(n)]
        self.random.shuffle(acts)
        for act in acts:
            act()
        wait_for('all pods to be served', self.serving)


def streams(node):
    return [x['ads']['connected'] for x in node.agentd.ctl('xds')['xds']]


def nothing_was_lost(pair, load):
    client, _ = pair
    node = client.node
    wait_for('both streams', lambda: streams(node) == [True, True])
    wait_for('both Envoys to hold secrets', lambda: all(p.envoy_serials()[0] for p in pair))
    node.istiod.set('all', clusters=[mesh._cluster('after', '127.0.0.1', 1)])
    wait_for('a change', lambda: all('after::' in p.netns.http(15000, '/clusters')[1] for p in pair))
    load.more(30)
    counts = load.stop()
    assert counts['failed'] == 0, counts
    measured.append(f'{counts["ok"]} requests')
    assert sorted(p['uid'] for p in node.agentd.ctl('pods')['pods']) == sorted(p.uid for p in pair)
    assert len(node.istiod.issued()) == 2


@LONG
@pytest.mark.parametrize('mode', ['asan', 'release'])
def test_any_of_it_may_die_at_any_moment(make_node, mode):
    """Nothing is lost, and certificates come back from what was kept."""
    node = make_node(mode=mode)
    pair = start_pair(node)
    load = pair[0].load(mesh.OUTBOUND)
    Mortal(node).die(ASAN_KILLS if mode == 'asan' else KILLS)
    nothing_was_lost(pair, load)


@LONG
def test_it_may_die_while_istiod_is_down(make_node):
    """Certificates come back from what was kept; nobody needs istiod for them."""
    node = make_node(mode='release')
    pair = start_pair(node)
    load, before = pair[0].load(mesh.OUTBOUND), [p.envoy_serials() for p in pair]
    node.istiod.process.kill()
    mortal = Mortal(node)
    mortal.die((1, 1, 1) if not SOAK else KILLS)
    load.more(30)
    assert [p.envoy_serials() for p in pair] == before
    assert streams(node) == [False, False]
    node.istiod.start()
    nothing_was_lost(pair, load)
    assert [p.envoy_serials() for p in pair] == before


@LONG
def test_nobody_is_refused_while_a_worker_is_replaced(make_node):
    """The sockets are the broker's; who comes meanwhile waits in the backlog."""
    node = make_node(mode='release')
    Release(node.agentd)
    node.agentd.settings['pod_requests_per_second'] = 10000  # who is refused for that is cut off, too
    pair = start_pair(node)
    load, hammers = pair[0].load(mesh.OUTBOUND), [Hammer(p) for p in pair]
    mortal = Mortal(node)
    for n in range(1, HAMMERED_KILLS + 1):
        mortal.kill_worker()
        hammers[0].more(mortal.random.randrange(1, 40))
        if n % 4 == 0:  # a new broker knows of no deaths: it does not wait longer and longer
            upgraded(node.agentd)
    counts = [h.stop() for h in hammers]
    assert [(c['refused'], c['late']) for c in counts] == [(0, 0)] * 2, counts
    # Who was accepted and not yet answered is cut off: one for each client and kill at most.
    assert all(c['reset'] <= CLIENTS * HAMMERED_KILLS for c in counts), counts
    measured.append(f'{sum(c["ok"] for c in counts)} connections, {sum(c["reset"] for c in counts)} cut off '
                    f'in {HAMMERED_KILLS} kills')
    nothing_was_lost(pair, load)


@LONG
def test_agentd_may_stay_away(make_node):
    """Running pods need nothing of it, and are ready all the time."""
    node = make_node(mode='release')
    pair = start_pair(node)
    load = pair[0].load(mesh.OUTBOUND)
    node.agentd.kill()
    end = time.monotonic() + ABSENT_S
    while time.monotonic() < end:
        assert [p.netns.http(STATUS, '/healthz/ready', host=p.ip)[0] for p in pair] == [200, 200]
        load.more(10)
    assert load.counts()['failed'] == 0, load.counts()
    node.agentd.start()
    nothing_was_lost(pair, load)


def test_a_forbidden_call_is_no_loop(node):
    pod, mortal = node.pod('web'), Mortal(node)
    node.agentd.start()
    said = Said(node.agentd)
    mortal.kill_worker(signal.SIGSYS)
    said.wait(READY)
    mortal.kill_worker(signal.SIGSYS)
    text = said.wait('Next try in 10 s')
    assert re.search('level=error.*Next try in 10 s', text) and text.count('takes over') == 1
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(pod.mount / 'socket'))  # it waits in the backlog
        assert node.agentd.stop() == 0


def test_a_bad_configuration_is_seen_at_once(node):
    """At the first start it ends agentd; a death of the worker later changes nothing, as it is not read again."""
    node.agentd.settings['certificate_scope'] = 'galaxy'
    with pytest.raises(RuntimeError, match='galaxy|certificate_scope'):
        node.agentd.start()
    assert node.agentd.process.wait() == 2
    node.agentd.settings['certificate_scope'] = 'pod'
    mortal = Mortal(node)
    node.agentd.start()
    said = Said(node.agentd)
    (node.agentd.dir / 'agentd.yaml').write_text('?: [')
    mortal.kill_worker()
    said.wait(READY)


def test_a_worker_that_cannot_start_is_tried_again(node):
    release = Release(node.agentd)
    node.pod('web')
    mortal = Mortal(node)
    node.agentd.start()
    said = Said(node.agentd)
    (release.dir / 'agentd-worker').chmod(0)  # of the file that is open: the same release is started again
    mortal.kill_worker()
    for ms in (100, 200, 400):
        text = said.wait(f'the next worker starts in {ms} ms')
    assert text.count('the worker cannot be started: exec') >= 4
    assert node.agentd.process.running() and READY not in said.text()
    (release.dir / 'agentd-worker').chmod(0o755)
    said.wait(READY)
    wait_for('the pod to be served', mortal.serving)


def test_what_no_pod_needs_any_more_is_swept(node):
    """Removed while agentd was away: goes.  Spoilt meanwhile: its pod still runs, and keeps its directory."""
    gone, spoilt, kept = (node.pod(name) for name in ('gone', 'spoilt', 'kept'))
    node.agentd.start()
    pods = [p.wait_served().mount for p in (gone, spoilt, kept)]
    inodes = [m.stat().st_ino for m in pods[1:]]
    node.agentd.kill()
    gone.remove_manifest()
    spoilt.write_manifest_text('uid: [')
    said = Said(node.agentd)
    node.agentd.start()
    assert [m.parent.exists() for m in pods] == [False, True, True]
    assert 'it has a manifest: kept' in said.text()
    spoilt.write_manifest()
    wait_for('both to be served', lambda: sum(p['ready'] for p in node.agentd.ctl('pods')['pods']) == 2)
    assert [m.stat().st_ino for m in pods[1:]] == inodes  # what is mounted into a pod is never made anew
