"""A strict pod whose cgroup comes late: its publish is held, and whatever becomes of that, nothing is left of it."""
import json
import os
import signal
from pathlib import Path

import pytest

from .csi import CsiNode
from .run import wait_for

ANNOTATIONS, MODE = 'ISTIO_METAJSON_ANNOTATIONS', 'agentd.node.mesh/redirect'


@pytest.fixture
def capturing(make_node):
    """Whose agentd redirects, strictly."""
    return lambda **kw: make_node(kind=CsiNode, **kw).capture()


def held(node, pod):
    """Asked, heard by agentd, and not answered by it; the kubelet may have given the first call up."""
    wait_for('the publish call', lambda: node.kubelet.journal('NodePublishVolume-asked', uid=pod.uid))
    wait_for('agentd to know the pod', lambda: pod.uid in {p['uid'] for p in node.agentd.ctl('pods')['pods']})
    return not [r for r in node.kubelet.journal('NodePublishVolume', uid=pod.uid) if r['code'] != 'DEADLINE_EXCEEDED']


def test_a_publish_is_held_for_the_cgroup(capturing):
    node = capturing(kubelet={'publish_deadline_s': 120}).start()  # a real one's: the first call is the one that is answered
    node.kubelet.network(False)
    pod = node.csi_pod('late')
    free = node.csi_pod('free', attributes={ANNOTATIONS: json.dumps({MODE: 'none'})})
    wait_for('the other pod not to wait', lambda: node.kubelet.published(free))
    wait_for('both certificates', lambda: len(node.istiod.issued()) == 2)
    assert held(node, pod) and node.mounts() == [str(free.target)]
    node.kubelet.network(True)
    pod.wait_running()
    free.wait_running()
    call, = node.kubelet.journal('NodePublishVolume', uid=pod.uid)[:1]
    assert call['code'] == 'OK' and len(node.mounts()) == 2


def test_a_held_publish_outlives_the_kubelets_patience(capturing):
    """The same call again while the first is still held: both are one, and there is one mount."""
    node = capturing(kubelet={'publish_deadline_s': 1.5}).start()
    node.kubelet.network(False)
    pod = node.csi_pod('late')
    wait_for('two calls given up', lambda: len(node.kubelet.published(pod, 'DEADLINE_EXCEEDED')) >= 2)
    assert not node.mounts()
    node.kubelet.network(True)
    pod.wait_running()
    assert node.mounts() == [str(pod.target)]
    pod.delete()
    node.wait_gone([pod])
    wait_for('nothing to be left', lambda: node.clean() is True)


def test_a_call_that_was_given_up_mounts_nothing(capturing):
    """The kubelet dies while it waits, then the cgroup comes: nobody would ever unmount it, until somebody asks again."""
    node = capturing().start()
    node.kubelet.network(False)
    pod = node.csi_pod('late')
    assert held(node, pod)
    cgroup = Path(pod.state()['cgroup'])
    node.kubelet.process.kill()
    wait_for('agentd to hear of it', lambda: not node.agentd.ctl('pods', pod.uid)['pods'][0]['volume']['waiting_calls'])
    cgroup.mkdir(parents=True)
    wait_for('its traffic to be redirected', lambda: 'traffic is redirected' in node.agentd.log.read_text())
    node.agentd.ctl('redirect')  # broker and worker answer after it
    assert not node.mounts()
    node.kubelet.network(True)
    node.kubelet.start()
    pod.wait_running()
    assert node.mounts() == [str(pod.target)]


@pytest.mark.parametrize('what', ['killed', 'replaced'])
def test_agentd_goes_while_a_publish_is_held(capturing, what):
    node = capturing().start()
    node.kubelet.network(False)
    pod = node.csi_pod('late')
    assert held(node, pod)
    state = node.seen(node.agentd.run) / 'state'
    wait_for('its certificate to be kept', lambda: any(p.is_file() for p in state.rglob('*')))
    if what == 'replaced':
        node.roll_out()
    else:
        node.agentd.kill()
        node.agentd.start()
    node.kubelet.network(True)
    pod.wait_running()
    assert node.mounts() == [str(pod.target)] and len(node.istiod.issued()) == 1
    # Neither is final: the kubelet asks again, and would unpublish if the pod went.  Which of them a killed
    # agentd leaves is a matter of how far its connection was.
    assert any(node.kubelet.published(pod, code) for code in ('CANCELLED', 'UNAVAILABLE'))


@pytest.mark.parametrize('force', [False, True])
def test_a_pod_goes_while_its_publish_is_held(capturing, force):
    """Unpublish comes after the deadline.  Whatever was begun before mounts nothing after it."""
    node = capturing(kubelet={'publish_deadline_s': 1.5}).start()
    node.kubelet.network(False)
    pod = node.csi_pod('late')
    assert held(node, pod)
    pod.force_delete() if force else pod.delete()
    node.wait_gone([pod])
    assert node.kubelet.journal('NodeUnpublishVolume', uid=pod.uid, code='OK')
    node.kubelet.network(True)
    node.agentd.ctl('redirect')  # broker and worker answer after it
    wait_for('nothing to be left', lambda: node.clean() is True)


@pytest.mark.parametrize('who', ['worker', 'broker'])
def test_a_pod_goes_before_its_publish_is_asked_again(capturing, who):
    """Who hears of the unpublish never heard of the pod, whose directory and sockets its predecessor made."""
    node = capturing(kubelet={'back_off_s': 5}).start()
    node.kubelet.network(False)
    pod = node.csi_pod('late')
    assert held(node, pod)
    if who == 'worker':
        worker = node.agentd.worker_pid()
        os.kill(worker, signal.SIGKILL)
        wait_for('another worker', lambda: node.agentd.worker_pid() not in (None, worker))
    else:
        node.agentd.kill()
        node.agentd.start()
    pod.delete()
    node.wait_gone([pod])
    assert not node.kubelet.published(pod, 'OK')
    wait_for('nothing to be left', lambda: node.clean() is True)


if os.environ.get('AGENTD_SOAK'):
    def test_a_publish_is_not_held_for_ever(capturing):
        """100 s, so that the kubelet (120 s) hears why from agentd, and `kubectl describe pod` shows it."""
        node = capturing(kubelet={'publish_deadline_s': 120}).start()
        node.kubelet.network(False)
        pod = node.csi_pod('late')
        call = wait_for('an answer', lambda: node.kubelet.published(pod, 'UNAVAILABLE'), 115)[0]
        assert 98 < call['time'] - call['began'] < 110 and 'cgroup' in call['text']
        node.kubelet.network(True)
        pod.wait_running()
        assert node.mounts() == [str(pod.target)]
