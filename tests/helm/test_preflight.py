"""agentctl preflight over pods that istiod's own injector made with Istio's own template."""
import copy
import json
import subprocess

import pytest

from .chart import BUILD
from .test_injection import Istiod, pod

AGENTCTL = BUILD / 'release' / 'agentctl'
TRAFFIC, SIDECAR = 'traffic.sidecar.istio.io/', 'sidecar.istio.io/'


def own(name, annotations=(), owner=None, labels=(), **spec):
    """Of Istio's own template, of a workload of that name."""
    p = copy.deepcopy(pod(annotations, labels, **spec))
    del p['metadata']['annotations']['inject.istio.io/templates']
    p['metadata']['generateName'] = f'{name}-5d4f8b9c7d-'
    p['metadata']['ownerReferences'][0].update(owner or {'name': f'{name}-5d4f8b9c7d'})
    return p


PODS = {
    'probed': (own('probed'), 'changes', 'probes: the kubelet asks the app itself'),
    'unprobed': (own('unprobed', {SIDECAR + 'rewriteAppHTTPProbers': 'false'}), 'moves', None),
    'ports': (own('ports', {SIDECAR + 'rewriteAppHTTPProbers': 'false', TRAFFIC + 'excludeOutboundPorts': '3306'}), 'moves', None),
    'tproxy': (own('tproxy', {SIDECAR + 'interceptionMode': 'TPROXY'}), 'cannot', 'TPROXY'),
    'volume': (own('volume', {SIDECAR + 'userVolume': '{"c":{"secret":{"secretName":"s"}}}',
                              SIDECAR + 'userVolumeMount': '{"c":{"mountPath":"/c"}}'}), 'changes', 'userVolumeMount: Envoy itself'),
    'listed': (own('listed', {SIDECAR + 'userVolume': '[{"name":"c","emptyDir":{}}]',
                              SIDECAR + 'userVolumeMount': '[{"name":"c","mountPath":"/c"}]'}), 'changes', 'userVolumeMount: Envoy itself'),
    'spire': (own('spire', volumes=[{'name': 's', 'csi': {'driver': 'csi.spiffe.io', 'readOnly': True}}]), 'cannot', 'csi.spiffe.io'),
    'variable': (own('variable', {'proxy.istio.io/config': 'proxyMetadata: {SECRET_TTL: 240h}'}), 'cannot', 'SECRET_TTL'),
    'words': (own('words', {SIDECAR + 'rewriteAppHTTPProbers': 'false', 'proxy.istio.io/config': 'tracing: {zipkin: , sampling: 0.1}'},
                  labels={'name': 'w'}), 'moves', None),
    'bootstrap': (own('bootstrap', {SIDECAR + 'bootstrapOverride': 'cm'}), 'changes', 'bootstrapOverride'),
    'kata': (own('kata', runtimeClassName='kata'), 'cannot', 'sandbox'),
    'custom': (own('custom', {SIDECAR + 'rewriteAppHTTPProbers': 'false'},
                   containers=[{'name': 'istio-proxy', 'image': 'auto', 'resources': {'requests': {'cpu': '7m'}}}]), 'moves', None),
    'nightly': (own('nightly', owner={'apiVersion': 'batch/v1', 'kind': 'Job', 'name': 'nightly-28412345'}), 'changes', None),
}


@pytest.fixture(name='injected', scope='module', params=[True, False], ids=['native', 'classic'])
def fixture_injected(tmp_path_factory, request):
    istiod = Istiod(tmp_path_factory.mktemp('istiod'))
    pods = [r['pod'] for r in istiod.run(*(p for p, _, _ in PODS.values()), native=request.param)]
    names = [[c['name'] for k in ('initContainers', 'containers') for c in p['spec'].get(k, ())] for p in pods]
    assert all('istio-init' in n and 'istio-proxy' in n for n in names)  # of pilot-agent
    return request.param, pods


def preflight(pods, *args):
    text = json.dumps({'apiVersion': 'v1', 'items': pods, 'kind': 'List', 'metadata': {'resourceVersion': ''}}, indent=4)
    r = subprocess.run([AGENTCTL, 'preflight', '-f', '-', '-o', 'json', *args], input=text, text=True, capture_output=True,
                       timeout=60, check=False)
    assert not r.stderr
    return r.returncode, {w['name']: w for w in json.loads(r.stdout)['workloads']}


def test_each_pod_of_istiods_injector_has_its_verdict(injected):
    native, pods = injected
    status, found = preflight(pods)
    assert status == 1 and set(found) == set(PODS)
    for name, (_, verdict, why) in PODS.items():
        said = found[name]['refused'] + found[name]['changes']
        assert found[name]['verdict'] == verdict, found[name]
        assert why is None or any(why in text for text in said), said
    assert not found['unprobed']['changes'] and not found['ports']['changes']
    assert found['nightly']['kind'] == 'CronJob'
    assert any('ends with the Job' in text for text in found['nightly']['changes']) == (not native)


def test_without_those_that_cannot_all_is_well(injected):
    _, pods = injected
    good = [p for p, (_, verdict, _) in zip(pods, PODS.values()) if verdict != 'cannot']
    assert preflight(good)[0] == 0
