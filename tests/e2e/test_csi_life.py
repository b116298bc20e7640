"""A node full of CSI pods through all that can happen to it; two of them talk all the time, through their Envoys.

250 pods under AGENTD_SOAK=1, 25 else.  Each has a client of its sockets in its container.
"""
import json
import os
import sys
import time

import pytest

from . import mesh
from .conftest import measured
from .csi import CsiNode
from .pod import HERE
from .run import wait_for
from .test_csi import csi_pair

SOAK = bool(os.environ.get('AGENTD_SOAK'))
PODS, ACCOUNTS, KILLS, ROLLOUTS = (250, 20, 20, 10) if SOAK else (25, 5, 2, 2)
PUBLISHES, ONCE, PAUSE_S = (10000, 6, 3) if SOAK else (200, 6, 0.5)
# The steady state republishes at sync_s..1.5 sync_s; a token is renewed with a fifth of its life left.
KUBELET = {'sync_s': 10, 'token_ttl_s': 90, 'scale': 0.2} if SOAK else {'sync_s': 0.8, 'token_ttl_s': 12}
LONG = pytest.mark.timeout(3600 if SOAK else 600)


class Story:
    def __init__(self, node):
        self.node, self.kubelet, self.load = node, node.kubelet, None
        self.pair, self.pods, self._count, self.counts = [], [], 0, []

    def create(self, count):
        """As many at once."""
        made = []
        for _ in range(count):
            self._count += 1
            counts = self.node.dir / f'client.{self._count}.json'
            pod = self.node.csi_pod(f'pod-{self._count}', sa=f'sa-{self._count % ACCOUNTS}', containers=[
                {'argv': ['env', f'HAMMER_PAUSE_S={PAUSE_S}', sys.executable, str(HERE / 'hammer.py'), str(counts),
                          '/mnt/socket', '/mnt/XDS']}],
                qos=('besteffort', 'burstable', 'guaranteed')[self._count % 3])
            self.counts.append(counts)
            made.append(pod)
        for pod in made:
            pod.wait_running()
        wait_for('each of their clients to be served', lambda: all(c.exists() for c in self.counts))
        self.pods += made
        return made

    def forget(self, pods, force=False):
        for pod in pods:
            pod.force_delete() if force else pod.delete()
            self.pods.remove(pod)
        self.node.wait_gone(pods)

    def accounts(self):
        return {p.sa for p in self.node.pods}

    def check(self):
        """Exactly what the pods need, and nothing else."""
        node, uids = self.node, sorted(p.uid for p in (*self.pair, *self.pods))
        wait_for('agentd to serve all', lambda: uids == sorted(
            p['uid'] for p in node.agentd.ctl('pods')['pods'] if p['ready']))

        def exact():
            left = node.left_behind()
            return (left['mounts'] == sorted(str(p.target) for p in (*self.pair, *self.pods))
                    and [left[k] for k in ('volumes', 'directories')] == [uids] * 2
                    and len(left['spec']) == len(left['cgroups']) == len(uids) >= len(left['pod'])
                    and {p.volume()['state'] for p in (*self.pair, *self.pods)} <= {'mounted'})
        wait_for('exactly that', exact)

    def everybody_publishes(self):
        """From now on, once more."""
        since = time.time()

        def missing():
            done = {r['uid'] for r in self.kubelet.journal('NodePublishVolume', code='OK') if r['began'] > since}
            time.sleep(PAUSE_S / 2)  # the journal is long
            return {p.uid for p in (*self.pair, *self.pods)} - done
        wait_for('everybody to be published again', lambda: not missing())


def fds(node):
    """How many descriptors broker and worker have."""
    return {name: len(os.listdir(f'/proc/{pid}/fd')) for name, pid in (
        ('broker', node.agentd.process.pid), ('worker', node.agentd.worker_pid()))}


def settle(node, before):
    """But for what is opened once: a second connection to istiod, say."""
    try:
        wait_for('as few descriptors as before', lambda: all(n <= before[name] + ONCE for name, n in fds(node).items()))
    except TimeoutError as e:
        raise AssertionError(f'{before} became {fds(node)}') from e


@pytest.fixture
def story(make_node):
    node = make_node(kind=CsiNode, kubelet=KUBELET, mode='release').start()
    node.agentd.plane.update(opens_per_second=1000, opens_burst=1000)
    told = Story(node)
    told.pair = csi_pair(node)
    wait_for('the first answer', lambda: told.pair[0].netns.http(mesh.OUTBOUND)[0] == 200)
    told.load = told.pair[0].load(mesh.OUTBOUND)
    return told


def nobody_was_refused(story):
    """By any socket, as long as its pod was there."""
    counts = [json.loads(file.read_text()) for file in story.counts]
    assert all(c['ok'] and not c['refused'] and not c['late'] and not c['reset'] for c in counts), counts
    measured.append(f'{sum(c["ok"] for c in counts)} connections of {len(counts)} pods')


def nothing_failed(story):
    """No request of the two; no certificate too many."""
    story.load.more(30)
    counts = story.load.stop()
    assert counts['failed'] == 0, counts
    assert len(story.node.istiod.issued()) == len(story.accounts())
    assert not story.node.istiod.journal('refused')
    measured.append(f'{counts["ok"]} requests, {len(story.kubelet.journal("NodePublishVolume"))} publish calls')


@LONG
def test_pods_come_and_go(story):
    """Created all at once, deleted, deleted by force, with tokens that change meanwhile."""
    node, start = story.node, time.monotonic()
    story.create(1)
    story.forget(story.pods[:])
    before = fds(node)
    story.create(PODS)
    story.check()
    story.forget(story.pods[:PODS // 3])
    story.forget(story.pods[:PODS // 5], force=True)
    story.check()
    story.everybody_publishes()
    time.sleep(max(0, start + KUBELET['token_ttl_s'] * 1.1 - time.monotonic()))
    story.check()
    assert {r['code'] for r in story.kubelet.journal('NodePublishVolume')} == {'OK'}
    assert {r['code'] for r in story.kubelet.journal('NodeUnpublishVolume')} == {'OK'}
    story.forget(story.pods[:])
    settle(node, before)
    story.check()
    nobody_was_refused(story)
    nothing_failed(story)


@LONG
def test_kubelet_and_agentd_come_back(story):
    """Each is killed, alone and together, and replaced, while pods come and go."""
    node = story.node
    story.create(PODS)
    mounted = set(node.mount_ids())
    for n in range(KILLS):
        story.kubelet.restart()
        story.everybody_publishes()
        node.agentd.kill()
        gone, story.pods = story.pods[:2], story.pods[2:]
        gone[0].delete()
        gone[1].force_delete()
        if n % 2:
            story.kubelet.restart()
        node.agentd.start()
        node.wait_gone(gone)
        story.create(2)
        story.everybody_publishes()
        story.check()
    for _ in range(ROLLOUTS):
        node.roll_out()
        story.create(1)
        story.everybody_publishes()
        story.check()
    # Who was there all the time has the mount it had: a container would not see another one.
    stayed = {str(p.target) for p in (*story.pair, *story.pods)} & {point for point, _ in mounted}
    assert len(stayed) == PODS + 2 - 2 * KILLS
    assert {m for m in mounted if m[0] in stayed} == {m for m in node.mount_ids() if m[0] in stayed}
    story.forget(story.pods[:])
    story.check()
    nothing_failed(story)


@LONG
def test_the_node_is_booted_again(make_node):
    """The same uids; mounts, state and sandboxes are gone, the kubelet's directories are not."""
    node = make_node(kind=CsiNode, kubelet=KUBELET, mode='release').start()
    story = Story(node)
    story.create(PODS)
    deleted, forced = story.pods[:2]
    node.reboot()
    story.pods = story.pods[2:]
    deleted.delete()
    forced.force_delete()
    node.start()
    for pod in story.pods:
        pod.wait_running()
    node.wait_gone([deleted, forced])
    story.everybody_publishes()
    story.check()
    assert len(node.istiod.issued()) <= 2 * ACCOUNTS  # what was on the tmpfs is gone
    story.forget(story.pods[:])
    wait_for('nothing to be left', lambda: node.clean() is True)


@LONG
def test_many_publishes_leave_one_mount(make_node):
    node = make_node(kind=CsiNode).start()
    pod = node.csi_pod('web').wait_running()
    before, mounted = fds(node), node.mount_ids()
    for _ in range(PUBLISHES // 200):
        assert {r['code'] for r in node.call(*[pod.publish() for _ in range(200)], parallel=16)} == {'OK'}
    assert node.mount_ids() == mounted and node.mounts() == [str(pod.target)]
    settle(node, before)
    assert len(node.istiod.issued()) == 1
    pod.delete()
    node.wait_gone([pod])
    wait_for('nothing to be left', lambda: node.clean() is True)
