"""Pods of a kubelet: one CSI volume is all that they need, and what goes wrong is said where people look."""
import json
import time
from pathlib import Path

import pytest

from . import clients, mesh
from .csi import CsiNode
from .run import wait_for

ANNOTATIONS = 'ISTIO_METAJSON_ANNOTATIONS'
MODE = 'agentd.node.mesh/redirect'


@pytest.fixture
def node(make_node):
    return make_node(kind=CsiNode)


@pytest.fixture
def capturing(make_node):
    """Whose agentd redirects, strictly: a pod is held until its cgroup is there."""
    return lambda **kw: make_node(kind=CsiNode, **kw).capture()


def csi_pair(node, client_mesh=mesh.client, server_mesh=mesh.server, host='127.0.0.1'):
    """As a Deployment has them; Envoys that start from what was published."""
    server, client = (node.csi_pod(name, sa=f'{name}-sa') for name in ('server', 'client'))
    for pod in (server, client):
        pod.sandbox()
    node.istiod.set(client.id, **client_mesh(server))
    node.istiod.set(server.id, **server_mesh([client]))
    server.start_app(mesh.APP, host)
    for pod in (server, client):
        pod.start_envoy()
    for pod in (server, client):
        pod.wait_ready()
    return client, server


def test_a_meshed_pod_by_one_volume(node):
    """And nothing else: no capability, no init container, no API."""
    node.start()
    client, server = csi_pair(node)
    wait_for('the first answer', lambda: client.netns.http(mesh.OUTBOUND)[0] == 200)
    status, body = client.netns.http(mesh.OUTBOUND)
    assert status == 200 and f'URI={mesh.spiffe(client.ns, client.sa)}' in json.loads(body)['xfcc']
    assert node.mounts() == sorted(str(p.target) for p in (client, server))
    options = {line.split()[4]: line.split()[5].split(',') for line in
               open(f'/proc/{node.holder.pid}/mountinfo', encoding='utf-8')}[str(server.target)]
    assert {'ro', 'nosuid', 'nodev', 'noexec'} <= set(options)
    for pod in (client, server):
        pod.delete()
    node.wait_gone([client, server])
    assert node.clean() is True


@pytest.mark.parametrize('driver,qos', [('cgroupfs', 'burstable'), ('systemd', 'guaranteed')])
def test_its_traffic_is_redirected(capturing, driver, qos):
    node = capturing(kubelet={'driver': driver}).start()
    client, server = csi_pair(node, mesh.captured_client, mesh.captured_server, '0.0.0.0')

    def answer():
        status, content = client.call(clients.get_json, f'http://{server.ip}:{mesh.APP}/hello')
        return status == 200 and content
    assert f'URI={mesh.spiffe(client.ns, client.sa)}' in wait_for('the first answer', answer)['xfcc']


def test_labels_annotations_and_environment_come_by_attributes(node):
    pod = node.csi_pod('web', attributes={
        'ISTIO_METAJSON_LABELS': json.dumps({'app': 'shop'}), 'ISTIO_META_WORKLOAD_NAME': 'shop-v1', 'UNHEARD_OF': '1',
        'csi.storage.k8s.io/pod.labels': '{"app": "forged"}'})
    node.start()
    pod.wait_running()
    metadata = pod.bootstrap()['node']['metadata']
    assert metadata['LABELS']['app'] == 'shop' and metadata['WORKLOAD_NAME'] == 'shop-v1'
    assert 'forged' not in json.dumps(metadata)


def test_the_user_reads_what_is_wrong(node):
    """`kubectl describe pod` shows the text of the error; the pod waits, and is let in when it is mended elsewhere."""
    pod = node.csi_pod('web', attributes={'ISTIO_META_CLUSTER_ID': 'elsewhere'})
    node.start()

    def event():
        return [r for r in node.kubelet.journal('event', uid=pod.uid) if r['code'] == 'INVALID_ARGUMENT']
    wait_for('the event', event)
    assert 'ISTIO_META_CLUSTER_ID' in event()[0]['text'] and 'Kubernetes' in event()[0]['text']
    assert pod.state()['phase'] == 'cgroup' and not node.mounts()
    pod.delete()
    node.wait_gone([pod])
    assert node.clean() is True


def test_tokens_come_with_publish_calls(make_node):
    """A new one every few seconds, by either field; streams and certificate requests carry the last one."""
    nodes = [make_node(kind=CsiNode, kubelet={'sync_s': 0.3, 'token_ttl_s': 6, 'tokens_in_secrets': on}).start()
             for on in (True, False)]
    pods = [node.csi_pod('web').wait_running() for node in nodes]
    environments = [pod.bootstrap() for pod in pods]
    time.sleep(7)  # the first ones are over
    assert [pod.bootstrap() for pod in pods] == environments
    for node, pod in zip(nodes, pods, strict=True):
        assert node.mounts() == [str(pod.target)]
        node.istiod.set(pod.id, listeners=[])
        pod.sandbox()
        assert pod.call(clients.ads, pod.mount / 'XDS', [clients.listener_request([b''])]) == ['answered']
        assert 'default' in pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])
        assert not node.istiod.journal('refused')
        assert len(node.istiod.issued()) == 1
        assert {r['code'] for r in node.kubelet.journal('NodePublishVolume')} == {'OK'}


def test_the_first_certificate_is_waited_for_but_not_for_ever(node):
    """A control plane that does not answer costs a new pod publish_wait_ms, and no more."""
    node.start()
    node.istiod.order('pause', what='csr')
    pod = node.csi_pod('web').wait_running()
    call, = node.kubelet.published(pod)[:1]
    assert 2 <= call['time'] - call['began'] < 6
    assert pod.bootstrap() and pod.mount.is_dir()
    node.istiod.order('resume', what='csr')
    pod.sandbox()
    assert 'default' in pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])
    other = node.csi_pod('quick', sa='web').wait_running()
    call, = node.kubelet.published(other)[:1]
    assert call['time'] - call['began'] < 1.5


# --- a strict pod whose cgroup comes late ---


def held(node, pod):
    """Asked, and not answered."""
    return wait_for('the publish call', lambda: node.kubelet.journal('NodePublishVolume-asked', uid=pod.uid)) \
        and not node.kubelet.journal('NodePublishVolume', uid=pod.uid)


def test_a_publish_is_held_for_the_cgroup(capturing):
    node = capturing().start()
    node.kubelet.network(False)
    pod = node.csi_pod('late')
    free = node.csi_pod('free', attributes={ANNOTATIONS: json.dumps({MODE: 'none'})})
    wait_for('the other pod not to wait', lambda: node.kubelet.published(free))
    time.sleep(2.5)  # longer than for a certificate
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
    assert node.clean() is True


def test_a_call_that_was_given_up_mounts_nothing(capturing):
    """The kubelet dies while it waits, then the cgroup comes: nobody would ever unmount it, until somebody asks again."""
    node = capturing().start()
    node.kubelet.network(False)
    pod = node.csi_pod('late')
    assert held(node, pod)
    cgroup = Path(pod.state()['cgroup'])
    node.kubelet.process.kill()
    cgroup.mkdir(parents=True)
    wait_for('its traffic to be redirected', lambda: 'traffic is redirected' in node.agentd.log.read_text())
    time.sleep(0.5)
    assert not node.mounts()
    node.kubelet.network(True)
    node.kubelet.start()
    pod.wait_running()
    assert node.mounts() == [str(pod.target)]


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
    time.sleep(0.5)
    assert node.clean() is True
