"""Volumes as agentctl and Prometheus see them."""
import subprocess

from .csi import CsiNode
from .run import cgroup_root, wait_for


def test_a_volume_is_shown(make_node):
    node = make_node(kind=CsiNode, kubelet={'sync_s': 600}).start()
    pod = node.csi_pod('web').wait_running()

    def volume():
        shown, = node.agentd.ctl('pods', pod.label)['pods']
        assert shown['source'] == 'csi' and shown['ready']
        return shown['volume']
    assert {k: volume()[k] for k in ('name', 'state', 'published', 'waiting_calls', 'problem')} == {
        'name': 'mesh', 'state': 'published', 'published': True, 'waiting_calls': 0, 'problem': ''}
    call, = node.kubelet.published(pod)[:1]
    assert volume()['id'].startswith('csi-') and volume()['last_publish_age_s'] < 60
    assert node.agentd.metric('agentd_volumes', 'state="published"') == 1
    assert node.agentd.metric('agentd_publish_seconds_count') == 1
    assert 0 < node.agentd.metric('agentd_publish_seconds_sum') < 60
    assert node.agentd.metric('agentd_csi_calls_total', 'method="NodePublishVolume"', 'code="OK"') >= 1
    assert node.agentd.metric('agentd_csi_alarm', 'alarm="registration"') == 0
    assert call['code'] == 'OK'


def test_check_asks_the_agentd_that_runs(make_node):
    """Without a flag it is about what runs, in its container."""
    node = make_node(kind=CsiNode).start()
    a = node.agentd

    def check(*flags):
        argv = node.inside(*a.program('agentd'), '--check', '--run', a.run, *flags)
        return subprocess.run(argv, text=True, capture_output=True, timeout=60, check=False, env=a.environment()).stdout
    text = check()
    assert f'ok       running agentd         pid {a.process.pid}: with its flags\n' in text
    assert f"ok       the kubelet's cgroup   {node.kubelet.tree.relative_to(cgroup_root())}\n" in text
    assert f'ok       kubelet                {node.kubelet.root}\n' in text
    assert 'running agentd' not in check('--redirect')
    a.kill()
    assert 'running agentd' not in check()


def test_what_was_lost_is_said(make_node):
    """A mount of a pod of which nothing was kept: the next publish brings it back, and agentctl says so until then."""
    node = make_node(kind=CsiNode, kubelet={'sync_s': 600}).start()
    pod = node.csi_pod('web').wait_running()
    node.kubelet.process.kill()
    node.agentd.kill()
    for file in (node.seen(node.agentd.run) / 'state').rglob('*'):
        if file.is_file():
            file.unlink()
    node.agentd.start()
    waiting, = wait_for('agentd to say it', lambda: node.agentd.ctl('pods')['waiting_volumes'])
    assert waiting['uid'] == pod.uid and 'next publish' in waiting['problem']
    assert node.agentd.metric('agentd_volumes', 'state="waiting"') == 1
    assert f'volume mesh of pod {pod.uid}' in node.agentd.ctl_text('pods')[1]
    node.kubelet.start()
    wait_for('the pod to be back', lambda: [p for p in node.agentd.ctl('pods')['pods'] if p['ready']])
    assert not node.agentd.ctl('pods')['waiting_volumes'] and node.mounts() == [str(pod.target)]
    pod.delete()
    node.wait_gone([pod])
    wait_for('nothing to be left', lambda: node.clean() is True)
