"""A strict pod that cannot be redirected is closed, or is said to be open."""
import pytest

from . import sockets
from .run import wait_for
from .test_redirect import APP, Bystander, serve
from .test_redirect_life import probing


def one(node, pod):
    return node.agentd.ctl('redirect', pod.uid)['redirect'][0]


def why_not(node, pod):
    """Once it is refused."""
    return wait_for('a refusal', lambda: 'waits for' not in one(node, pod)['why_not'] and one(node, pod)['why_not'])


def beside(node):
    peer = Bystander(node)
    node.pods.append(peer)
    serve(peer, 0, 80)
    return peer


def shown(node, pod):
    status, text = node.agentd.ctl_text('redirect', pod.uid)
    return status, text, node.agentd.metric('agentd_redirect_open', f'pod="{pod.name}"')


@pytest.mark.parametrize('allow, wanted, manifest, said', [
    ('strict', {'istio_local_outbound_ports_exclude': '9999'}, None, 'traffic is not redirected'),  # by the broker
    ('permissive,exclusions', {'nonsense': '1'}, None, 'pod refused'),  # by the worker
    ('strict', {}, 'nonsense', 'manifest refused'),  # nobody can tell what it asks for: the node's list can
])
def test_a_refused_strict_pod_is_closed(capturing, allow, wanted, manifest, said):
    node = capturing()
    node.agentd.flags += ['--redirect-allow', allow]
    node.agentd.start()
    peer = beside(node)
    pod = node.pod('pod', manifest=False, redirect=wanted)
    pod.write_token()
    if manifest:
        pod.write_manifest_text(manifest)
    else:
        pod.write_manifest()
    wait_for('the refusal', lambda: said in node.agentd.log.read_text())
    wait_for('the gate', lambda: 'the strict pod is shut' in node.agentd.log.read_text())
    if 'traffic' in said:
        status, text, is_open = shown(node, pod)
        assert status == 1 and 'OPEN' not in text and is_open == 0, text
    serve(pod, APP, 8080)
    node.agentd.kill()  # and so it stays
    with probing(pod, peer) as probe:
        counts = probe.end()
    assert counts['dialled'] >= 300 and counts['answered'] == {}, counts
    assert pod.call(sockets.dial, peer.ip, 80, APP, APP) == 'ConnectionRefusedError'
    node.agentd.start()


def test_an_open_strict_pod_is_said_to_be_open(capturing):
    """Its cgroup is not named, so nobody can close it; then it is."""
    node = capturing()
    node.agentd.start()
    pod = node.pod('pod', manifest=False)
    pod.write_token()
    name = node.agentd.manifests / pod.uid / 'cgroup'
    text = name.read_text()
    name.unlink()
    pod.write_manifest()
    assert 'names the pod' in why_not(node, pod)
    status, said, is_open = shown(node, pod)
    assert status == 1 and 'strict, OPEN: no <uid>/cgroup' in said and is_open == 1, said
    name.write_text(text)
    pod.write_manifest(labels={'now': 'named'})
    wait_for('the rules', lambda: one(node, pod)['in_force'])
    status, said, is_open = shown(node, pod)
    assert status == 0 and 'OPEN' not in said and is_open == 0, said
