"""A pod's attributes, as istiod's injector writes them, in the real agentd: nothing of them is refused, nothing in vain."""
import pytest

from tests.e2e.conftest import make_node, node, this_run  # noqa: F401  pylint: disable=unused-import
from tests.e2e.run import wait_for

from .test_injection import PODS, attributes_of, fixture_istiod  # noqa: F401  pylint: disable=unused-import


def test_agentd_serves_injected_pods(node, istiod):  # noqa: F811  pylint: disable=redefined-outer-name
    node.agentd.plane |= {'address': 'istiod.istio-system.svc:15012', 'trust_domain': 'cluster.local'}
    for name, spec in PODS.items():
        node.pod(name, sa='web', env=attributes_of(istiod.inject(spec)))
    node.agentd.start()
    for pod in node.pods:
        pod.wait_served()
        [said] = node.agentd.ctl('pods', pod.name)['pods']
        assert said['ready'], said
        # Of proxyMetadata the template makes keys of their own; what redirection reads is no metadata.
        in_vain = set(said.get('ignored', ())) - {'PROXY_CONFIG.proxyMetadata.SECRET_TTL', 'ISTIO_META_DNS_CAPTURE'}
        assert (in_vain, said.get('unsupported', [])) == (set(), []), said
    metadata = node.pods[3].bootstrap()['node']['metadata']
    assert metadata['WORKLOAD_NAME'] == 'web' and metadata['ISTIO_VERSION'] == '1.29.1'
    assert metadata['LABELS']['security.istio.io/tlsMode'] == 'istio'


def test_a_pod_of_another_mesh_is_refused(node, istiod):  # noqa: F811  pylint: disable=redefined-outer-name
    """The test above can fail."""
    pod = node.pod('web', env=attributes_of(istiod.inject(PODS['plain'])))
    node.agentd.start()  # its control plane has another address
    wait_for('the refusal', lambda: 'CA_ADDR' in str(node.agentd.ctl('pods', pod.name)) + str(node.agentd.ctl('status')))
    with pytest.raises(FileNotFoundError):
        pod.bootstrap()
