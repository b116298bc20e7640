"""What agentctl makes of pods, at work: the real agentd takes each volume, an Envoy starts by the container's own command line."""
import pytest

from tests.e2e.injected import InjectedPod

from .test_agentd import IN_VAIN
from .test_engine import Engine
from .test_injection import Istiod, pod
from .workloads import CASES


@pytest.fixture(name='engine')
def fixture_engine(node, tmp_path):
    Istiod(tmp_path, more=[f'--set=global.caAddress={node.istiod.address}'])
    return Engine(tmp_path, mesh={'defaultConfig': {'discoveryAddress': node.istiod.address}})


def test_agentd_takes_all_that_is_made(node, engine):
    cases = {name: p for name, p in CASES.items() if p['kind'] == 'Pod'}
    results = {n: r for n, r in zip(cases, engine.run(cases.values())) if any('csi' in v for v in r['spec'].get('volumes', ()))}
    assert len(results) > 60
    pods = [InjectedPod(node, name.lower(), r) for name, r in results.items()]
    node.start()
    for p in pods:
        said = p.said_when_running()
        assert not [i for i in set(said.get('ignored', ())) - IN_VAIN - {'TRUST_DOMAIN', 'ISTIO_META_MESH_ID'} if 'proxyMetadata' not in i], said
        assert not said.get('unsupported'), said


def test_its_envoy_starts_and_is_ready(node, engine):
    web = InjectedPod(node, 'web', engine.run([pod()])[0])
    node.istiod.set(web.id, clusters=[], listeners=[])
    node.start()
    web.start_ready()
