"""What istiod's injector makes of a pod, at work: its volume published by a kubelet and the real agentd, its Envoy started
by its own command line, ready, drained."""
import json

import pytest

from tests.e2e.injected import InjectedPod
from tests.e2e.pod import ADMIN, STATUS
from tests.e2e.run import wait_for

from .test_injection import PODS, Istiod, pod

# Of proxyMetadata the template makes keys of their own; what redirection reads is no metadata.
IN_VAIN = {'PROXY_CONFIG.proxyMetadata.SECRET_TTL', 'ISTIO_META_DNS_CAPTURE'}


@pytest.fixture(name='istiod')
def fixture_istiod(node, tmp_path):
    return Istiod(tmp_path, more=[f'--set=global.caAddress={node.istiod.address}'])


def test_agentd_takes_all_that_is_injected(node, istiod):
    pods = [InjectedPod(node, name, istiod.inject(spec)) for name, spec in PODS.items()]
    node.start()
    for p in pods:
        said = p.said_when_running()
        assert (set(said.get('ignored', ())) - IN_VAIN - {'TRUST_DOMAIN', 'ISTIO_META_MESH_ID'}, said.get('unsupported', [])) == (set(), [])
    metadata = pods[list(PODS).index('annotated')].bootstrap()['node']['metadata']
    assert metadata['WORKLOAD_NAME'] == 'web' and metadata['ISTIO_VERSION'] == '1.29.1'
    assert metadata['LABELS']['security.istio.io/tlsMode'] == 'istio'
    assert metadata['ANNOTATIONS']['traffic.sidecar.istio.io/excludeOutboundPorts'] == '3306'


def test_its_envoy_starts_is_ready_and_drains(node, istiod):
    web = InjectedPod(node, 'web', istiod.inject(pod()))
    node.istiod.set(web.id, clusters=[], listeners=[])
    node.start()
    web.start_ready()
    own = json.loads(web.netns.http(ADMIN, '/server_info')[1])['node']
    assert own['id'] == f'sidecar~{web.ip}~{web.name}.{web.ns}~{web.ns}.svc.cluster.local' and own['metadata']['INSTANCE_IPS'] == web.ip
    assert web.bootstrap()['node']['id'] == own['id']  # which the next Envoy finds there
    assert own['metadata']['NAME'] == web.name  # the rest is the bootstrap's
    *program, port, method, path = web.proxy['lifecycle']['preStop']['exec']['command']
    assert program == ['/usr/local/bin/pilot-agent', 'request']  # it asks localhost
    assert web.netns.http(int(port.removeprefix('--debug-port=')), f'/{path}', method=method) == (200, 'OK')
    assert web.netns.http(STATUS, '/healthz/ready', host=web.ip)[0] == 200  # to drain is not to be unready
    assert web.envoy.stop() == 0


def test_a_pod_of_another_mesh_does_not_start(node, tmp_path):
    web = InjectedPod(node, 'web', Istiod(tmp_path).inject(pod()))  # of an istiod that this node does not know
    node.start()
    wait_for('the refusal', lambda: node.kubelet.published(web, 'INVALID_ARGUMENT'))
    assert 'CA_ADDR' in str(node.kubelet.published(web, 'INVALID_ARGUMENT')[0]) and web.state()['phase'] != 'running'
