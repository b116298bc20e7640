"""Pods of a kubelet: one CSI volume is all that they need, and what goes wrong is said where people look."""
import json
import os
import shutil
import stat
import time

import pytest

from . import clients, mesh
from .csi import CsiNode, entries
from .run import sh, wait_for
from .test_redirect_tools import speak_from_the_host


@pytest.fixture
def node(make_node):
    return make_node(kind=CsiNode)


@pytest.fixture
def capturing(make_node):
    """Whose agentd redirects."""
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
    wait_for('nothing to be left', lambda: node.clean() is True)


@pytest.mark.parametrize('driver,qos', [('cgroupfs', 'burstable'), ('systemd', 'guaranteed')])
def test_its_traffic_is_redirected(capturing, driver, qos):
    node = capturing(kubelet={'driver': driver}).start()
    client, server = csi_pair(node, mesh.captured_client, mesh.captured_server, '0.0.0.0')

    def answer():
        status, content = client.call(clients.get_json, f'http://{server.ip}:{mesh.APP}/hello')
        return status == 200 and content
    assert f'URI={mesh.spiffe(client.ns, client.sa)}' in wait_for('the first answer', answer)['xfcc']


def test_only_its_own_containers_are_served(node):
    """The pod's cgroup is found by its uid: nobody has to name it, and what cannot be proven is refused."""
    node.agentd.settings['attest'] = 'require'
    node.start()
    one, two = (node.csi_pod(name, qos=qos).sandbox() for name, qos in (('one', 'burstable'), ('two', 'guaranteed')))
    for pod, other in ((one, two), (two, one)):
        assert pod.is_served()
        assert 'code' in other.call(clients.fetch_secrets, pod.mount / 'socket', ['default'], 10)
    assert {p['sockets']['attested']['unproven'] for p in node.agentd.ctl('pods')['pods']} == {''}


def test_labels_annotations_and_environment_come_by_attributes(node):
    ports = '[\n    {"name": "http", "containerPort": 8080}\n]'  # as Istio's injector writes it
    pod = node.csi_pod('web', attributes={
        'ISTIO_METAJSON_LABELS': json.dumps({'app': 'shop'}), 'ISTIO_META_WORKLOAD_NAME': 'shop-v1', 'UNHEARD_OF': '1',
        'ISTIO_META_POD_PORTS': ports, 'PROXY_CONFIG': 'tracing: {zipkin: , sampling: 0.1}\nholdApplicationUntilProxyStarts: yes',
        'csi.storage.k8s.io/pod.labels': '{"app": "forged"}'})
    node.start()
    pod.wait_running()
    metadata = pod.bootstrap()['node']['metadata']
    assert metadata['LABELS']['app'] == 'shop' and metadata['WORKLOAD_NAME'] == 'shop-v1'
    assert metadata['POD_PORTS'] == ports and metadata['PROXY_CONFIG']['tracing'] == {'sampling': 0.1}
    assert metadata['PROXY_CONFIG']['holdApplicationUntilProxyStarts'] is True
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
    refused, = node.agentd.ctl('status')['waiting_volumes']
    assert refused['uid'] == pod.uid and refused['pod'] == pod.label and 'ISTIO_META_CLUSTER_ID' in refused['problem']
    assert [node.agentd.ctl_text(page)[0] for page in ('status', 'pods')] == [1, 1]
    pod.delete()
    node.wait_gone([pod])
    wait_for('nothing to be said of it', lambda: node.agentd.ctl_text('status')[0] == 0)
    wait_for('nothing to be left', lambda: node.clean() is True)


def test_tokens_come_with_publish_calls(make_node):
    """A new one every few seconds, by either field; streams and certificate requests carry the last one."""
    nodes = [make_node(kind=CsiNode, kubelet={'sync_s': 0.3, 'token_ttl_s': 6, 'tokens_in_secrets': on}).start()
             for on in (True, False)]
    pods = [node.csi_pod('web').wait_running() for node in nodes]
    environments = [pod.bootstrap() for pod in pods]

    def over():
        return [node.agentd.ctl('pods')['pods'][0]['token']['expires'] for node in nodes]
    first = max(over())
    wait_for('tokens that live longer', lambda: min(over()) > first)
    wait_for('the first ones to be over', lambda: time.time() > first)
    assert [pod.bootstrap() for pod in pods] == environments
    for node, pod in zip(nodes, pods, strict=True):
        assert node.mounts() == [str(pod.target)]
        node.istiod.set(pod.id, listeners=[])
        pod.sandbox()
        # A kubelet that stood still for a second is late with a token of six: agentd then waits for the next one.
        wait_for('a stream', lambda pod=pod: pod.call(
            clients.ads, pod.mount / 'XDS', [clients.listener_request([b''])]) == ['answered'])
        assert pod.is_served()
        assert not node.istiod.journal('refused')
        assert len(node.istiod.issued()) == 1
        assert {r['code'] for r in node.kubelet.journal('NodePublishVolume')} == {'OK'}


def test_a_mount_that_somebody_took_away_comes_back(make_node):
    """With the kubelet's next publish of a pod that runs, which is every minute or so."""
    node = make_node(kind=CsiNode, kubelet={'sync_s': 0.3}).start()
    pod = node.csi_pod('web').wait_running()
    sh(*node.inside('umount', pod.target))
    wait_for('it to be mounted again', lambda: node.mounts() == [str(pod.target)])
    assert len(node.istiod.issued()) == 1
    assert {r['code'] for r in node.kubelet.journal('NodePublishVolume')} == {'OK'}


def test_a_volume_that_the_kubelet_took_down_under_a_running_pod(make_node):
    """Its directory stays as long as its processes run, so its Envoy finds it again."""
    node = make_node(kind=CsiNode, kubelet={'sync_s': 0.3}).start()
    pod = node.csi_pod('web').sandbox()
    directory = os.stat(pod.mount).st_ino
    gone = {k: v for k, v in pod.publish()[1].items() if k in ('volume_id', 'target_path')}
    assert node.call(('NodeUnpublishVolume', gone))[0]['code'] == 'OK'
    wait_for('it to be mounted again', lambda: node.mounts() == [str(pod.target)])
    wait_for('peace', lambda: node.agentd.ctl_text('status')[0] == 0)
    assert os.stat(pod.mount).st_ino == directory
    assert pod.is_served()


def test_a_volume_that_was_made_anew_under_a_running_pod(make_node):
    """Somebody removed its directory: its Envoy has the one of before.  That is said until one comes that has the new one."""
    node = make_node(kind=CsiNode, kubelet={'sync_s': 0.3}).start()
    pod = node.csi_pod('web').sandbox()
    held = pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])
    assert 'default' in held and node.agentd.ctl_text('status')[0] == 0

    def shown():
        of = {p['uid']: p for p in node.agentd.ctl('pods')['pods']}
        return of.get(pod.uid, {})
    node.agentd.kill()
    sh(*node.inside('umount', pod.target))
    shutil.rmtree(pod.mount.parent)
    node.agentd.start()
    why = wait_for('it to be said', lambda: shown().get('why_not', '').startswith('its volume was made again') and shown()['why_not'])
    assert 'kubectl delete pod' in why and not shown()['ready']
    assert node.agentd.ctl_text('status')[0] == 1
    node.agentd.kill()
    node.agentd.start()
    wait_for('the next agentd to say it, too', lambda: shown().get('why_not') == why)
    assert pod.is_served()
    wait_for('peace', lambda: shown()['ready'] and node.agentd.ctl_text('status')[0] == 0)
    node.agentd.kill()
    node.agentd.start()
    wait_for('it to be forgotten', lambda: shown().get('ready'))


def test_a_pod_with_host_network_is_named(node):
    """agentd redirects nothing here; it serves nobody from the node's own namespace all the same."""
    node.start()
    pod = node.csi_pod('web').sandbox()
    assert node.agentd.ctl_text('pods')[0] == 0
    speak_from_the_host(pod)

    def shown():
        p, = node.agentd.ctl('pods')['pods']
        return p['ready'], p['why_not']
    wait_for('it to be said', lambda: shown() == (False, "its processes are in the node's own network namespace: agentd "
                                                         'serves no pod with hostNetwork'))
    assert [node.agentd.ctl_text(page)[0] for page in ('status', 'pods')] == [1, 1]
    assert pod.is_served()
    assert shown() == (True, '')
    speak_from_the_host(pod)  # one process that is lost: the pod is served
    assert shown() == (True, '')


def test_the_first_certificate_is_waited_for_but_not_for_ever(node):
    """A control plane that does not answer costs a new pod publish_wait_ms, and no more."""
    node.start()
    node.istiod.order('pause', what='csr')
    pod = node.csi_pod('web').wait_running()
    call, = node.kubelet.published(pod)[:1]
    assert call['time'] - call['began'] >= 2
    assert not node.istiod.issued()  # published without
    assert pod.bootstrap() and pod.mount.is_dir()
    node.istiod.order('resume', what='csr')
    pod.sandbox()
    assert pod.is_served()
    # One that is there is not waited for: the kubelet would give the call up before.
    node.agentd.kill()
    node.agentd.settings['publish_wait_ms'] = 60_000
    node.agentd.start()
    other = node.csi_pod('quick', sa='web').wait_running()
    assert node.kubelet.published(other) and not node.kubelet.published(other, 'DEADLINE_EXCEEDED')
    assert len(node.istiod.issued()) == 1


def test_the_way_to_the_driver_comes_back(node):
    """Somebody removes the entry, then the socket, then puts another one in its place: a kubelet finds agentd all the same."""
    node.start()
    def replaced():
        entry, = entries(node)
        entry.unlink()
        entry.symlink_to('/nowhere')

    for n, spoil in enumerate((lambda: entries(node)[0].unlink(), (node.agentd.run / 'csi.sock').unlink, replaced), 2):
        spoil()
        wait_for('the entry', lambda: [stat.S_ISSOCK(e.stat().st_mode) for e in entries(node) if e.exists()] == [True])
        node.kubelet.restart().wait_registered()
        wait_for('another registration', lambda: len(node.kubelet.journal('registered')) >= n)
        node.csi_pod(f'web-{n}').wait_running()
