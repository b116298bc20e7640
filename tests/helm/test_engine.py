"""agentctl inject beside istiod's own injector: the same pods, native and classic."""
import json
import os
import subprocess

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tests.e2e.injected import attributes_of

from .chart import BUILD, KUBERNETES, validate
from .same import BY_INTENT, OF_OTHERS, SPELLING, differences, documented, normal
from .test_injection import Istiod, pod
from .workloads import CASES, REFUSED, workload

AGENTCTL = BUILD / 'release' / 'agentctl'


class Engine:
    """agentctl, told what istiod is told."""

    def __init__(self, directory, mesh=None, **agentd):
        values = json.loads((directory / 'values').read_text())
        self._config = directory / 'engine.json'
        self._config.write_text(json.dumps({'values': values, 'meshConfig': mesh, 'agentd': agentd}))

    def call(self, text, *args, verb='inject', check=True):
        config = [] if verb == 'uninject' else ['--config', self._config]
        r = subprocess.run([AGENTCTL, verb, '-f', '-', *config, *args], input=text, text=True, capture_output=True, timeout=60, check=False)
        assert not check or r.returncode == 0, r.stderr
        return r

    def run(self, objects, native=True, verb='inject'):
        text = '---\n'.join(json.dumps(o) + '\n' for o in objects)
        args = [] if verb == 'uninject' else ['--native', str(native).lower()]
        out = self.call(text, *args, verb=verb).stdout
        return [json.loads(doc) for doc in out.split('---\n')]


@pytest.fixture(name='both', scope='module')
def fixture_both(tmp_path_factory):
    directory = tmp_path_factory.mktemp('engine')
    istiod = Istiod(directory)
    return istiod, Engine(directory)


@pytest.fixture(name='results', scope='module', params=[True, False], ids=['native', 'classic'])
def fixture_results(both, request):
    istiod, engine = both
    theirs = istiod.run(*CASES.values(), native=request.param)
    return request.param, dict(zip(CASES, theirs)), dict(zip(CASES, engine.run(CASES.values(), request.param)))


@pytest.mark.parametrize('name', CASES)
def test_the_same_pod(results, name):
    _, theirs, ours = results
    assert 'error' not in theirs[name], theirs[name]
    assert not differences(normal(ours[name]), normal(theirs[name]['pod']))


def test_there_are_enough():
    assert len(CASES) >= 50


MESH = {'trustDomain': 'td.example', 'enablePrometheusMerge': False, 'inboundTrafficPolicy': {'mode': 'LOCALHOST'},
        'defaultConfig': {'discoveryAddress': 'istiod.istio-system.svc:15012', 'statusPort': 16021, 'drainDuration': '7s', 'concurrency': 4,
                          'holdApplicationUntilProxyStarts': True, 'image': {'imageType': 'distroless'}, 'interceptionMode': 'REDIRECT',
                          'proxyMetadata': {'ISTIO_META_MESH': 'a', 'ISTIO_META_X': 'b'}}}


def mesh_file(directory, mesh):
    file = directory / 'mesh.yaml'
    file.write_text(json.dumps(mesh))
    return file


def test_each_rule_is_needed(both, tmp_path):
    """Without it some pod differs: nothing stands in the list that is not so any more."""
    istiod, engine = both
    pairs = [(mine, theirs['pod']) for native in (True, False)
             for mine, theirs in zip(engine.run(CASES.values(), native), istiod.run(*CASES.values(), native=native))]
    of_mesh, flags = Istiod(tmp_path), ['-mesh', mesh_file(tmp_path, MESH)]
    pairs.append((Engine(tmp_path, MESH).run([pod()])[0], of_mesh.run(pod(), flags=flags)[0]['pod']))
    idle = [rule for rule in BY_INTENT | SPELLING if not any(differences(normal(a, rule), normal(b, rule)) for a, b in pairs)]
    assert not idle
    assert documented() == set(BY_INTENT) | OF_OTHERS


NAME = 'service.istio.io/canonical-name'


def test_a_pod_without_name_and_owner(both):
    istiod, engine = both
    nobody = {**pod(), 'metadata': {'generateName': 'bare-', 'namespace': 'demo', 'annotations': pod()['metadata']['annotations']}}
    [mine], theirs = engine.run([nobody]), istiod.inject(nobody)
    assert mine['metadata']['labels'][NAME] == 'bare' and not theirs['metadata']['labels'].get(NAME)
    differ = [d.partition(':')[0] for d in differences(normal(mine), normal(theirs))]
    assert differ == [f'.metadata.labels.{NAME}', f'.spec.volumes[0].csi.volumeAttributes.ISTIO_METAJSON_LABELS.{NAME}']


def test_control_characters(both):
    """In an annotation that a pod shows to its Envoy; others are no matter."""
    istiod, engine = both
    said = {'istio.io/x': 'a\x07\x01\x1b"\n{{ .Values }}\x7f\u2028', 'note': '\x01'}
    [theirs], [mine] = istiod.run(pod(said)), engine.run([pod(said)])
    assert 'invalid JSON document' in theirs['error']
    assert json.loads(attributes_of(mine)['ISTIO_METAJSON_ANNOTATIONS'])['istio.io/x'] == said['istio.io/x']
    assert engine.run([mine]) == [mine] and engine.run([mine], verb='uninject') == [pod(said)]
    quoted = pod({'istio.io/x': '"\n\t\\{{ .Values }}', '{{ a }}/b': '{{ fail "x" }}'})
    assert not differences(normal(engine.run([quoted])[0]), normal(istiod.inject(quoted)))


def test_a_cron_job(both):
    """Its pods are what the pod template says: there we look, and write."""
    istiod, engine = both
    job = workload('Job', 'batch/v1')
    cron = {'apiVersion': 'batch/v1', 'kind': 'CronJob', 'metadata': job['metadata'],
            'spec': {'schedule': '* * * * *', 'jobTemplate': {'metadata': {'annotations': {'a': 'b'}}, 'spec': job['spec']}}}
    [mine], theirs = engine.run([cron]), istiod.inject(cron)
    mine, theirs = (c['spec']['jobTemplate'] for c in (mine, theirs))
    assert mine['metadata'] == {'annotations': {'a': 'b'}} and 'sidecar.istio.io/status' in theirs['metadata']['annotations']
    written = mine['spec']['template']['metadata']
    assert written['labels']['security.istio.io/tlsMode'] == 'istio' and 'sidecar.istio.io/status' in written['annotations']
    assert 'security.istio.io/tlsMode' not in theirs['spec']['template']['metadata']['labels']


def test_asked_again(both):
    """A pod's changes to its own istio-proxy: istiod forgets them."""
    istiod, engine = both
    [once], theirs = engine.run([CASES['own-resources']]), istiod.inject(CASES['own-resources'])
    assert engine.run([once]) == [once]
    assert differences(normal(istiod.inject(theirs)), normal(theirs)) and differences(normal(istiod.inject(once)), normal(once))


# Of what the engine refuses; `template` is one that istiod's chart has, and agentd has not.
TAKEN_BY_ISTIOD = {'TPROXY', 'out', 'plane', 'template', 'threads', 'virt', 'volume'}


def test_refused_here_alone(both):
    istiod, _ = both
    assert {name for name, theirs in zip(REFUSED, istiod.run(*REFUSED.values())) if 'error' not in theirs} == TAKEN_BY_ISTIOD


@pytest.mark.parametrize('name', CASES)
def test_the_result_is_valid(results, name):
    native, _, ours = results
    for version in KUBERNETES[1:] if native else KUBERNETES:
        validate(ours[name], version)


def test_twice_is_once_and_none_is_none(both, results):
    native, _, ours = results
    _, engine = both
    for name, again in zip(ours, engine.run(ours.values(), native)):
        assert again == ours[name], name
    for name, back in zip(ours, engine.run(ours.values(), verb='uninject')):
        assert back == CASES[name], name


@pytest.mark.parametrize('name', REFUSED)
def test_what_is_refused(both, name):
    _, engine = both
    r = engine.call(json.dumps(REFUSED[name]), check=False)
    assert r.returncode == 1 and not r.stdout and 'Pod "demo/' in r.stderr, r


# What istiod's chart is given beside, what ours is, and the same for the engine.
SETUPS = {
    'istio-cni': (['istio-cni'], [], {'redirectMode': 'istio-cni'}),
    'everything': (['everything'], [], {'network': 'net1', 'ipFamily': 'ipv6', 'clusterDomain': 'k8s.example'}),
    'revision': ([], ['--set=revision=canary', '--set=global.meshID=m', '--set=global.multiCluster.clusterName=c2',
                      '--set=global.proxy.excludeIPRanges=10.0.0.0/8', '--set=global.network=n3', '--set-string=global.proxy.excludeOutboundPorts=1',
                      '--set=global.imagePullSecrets={mine,theirs}', '--set=global.variant=distroless', '--set=global.logAsJson=true'], {}),
    'proxy': ([], ['--set-json=global.proxy.resources={"limits":{"cpu":null},"requests":null}', '--set=global.proxy.logLevel=info',
                   '--set=global.proxy.holdApplicationUntilProxyStarts=true', '--set=global.proxy.startupProbe.failureThreshold=9',
                   '--set=global.proxy.readinessPeriodSeconds=2', '--set=global.imagePullPolicy=Always',
                   '--set-json=global.proxy.lifecycle={"preStop":{"exec":{"command":["x"]}}}'], {}),
}


@pytest.mark.parametrize('native', [True, False], ids=['native', 'classic'])
@pytest.mark.parametrize('setup', SETUPS)
def test_the_same_pod_of_other_meshes(tmp_path, setup, native):
    values, more, agentd = SETUPS[setup]
    istiod = Istiod(tmp_path, values=values, more=more)
    ours = Engine(tmp_path, **agentd).run(CASES.values(), native)
    for name, mine, theirs in zip(CASES, ours, istiod.run(*CASES.values(), native=native)):
        assert not differences(normal(mine), normal(theirs['pod'])), name


@pytest.mark.parametrize('native', [True, False], ids=['native', 'classic'])
@pytest.mark.parametrize('merge', [False, True], ids=['apart', 'merged'])
def test_the_same_pod_by_the_mesh_configuration(tmp_path, native, merge):
    mesh = {**MESH, 'enablePrometheusMerge': merge}
    file = mesh_file(tmp_path, mesh)
    istiod, engine = Istiod(tmp_path), Engine(tmp_path, mesh)
    taken = {n: p for n, p in CASES.items() if engine.call(json.dumps(p), check=False).returncode == 0}
    assert len(taken) > 75
    theirs = istiod.run(*taken.values(), native=native, flags=['-mesh', file])
    for name, mine, other in zip(taken, engine.run(taken.values(), native), theirs):
        assert not differences(normal(mine), normal(other['pod'])), name


def test_istiod_may_take_over(both, results):
    """Where its webhook sees a pod of ours that asks for its template, the result is its own."""
    native, theirs, ours = results
    istiod, _ = both
    names = [n for n in CASES if 'overrides' not in json.dumps(ours[n]) and 'rewrite' not in json.dumps(CASES[n])]
    assert len(names) > 60
    for name, again in zip(names, istiod.run(*(ours[n] for n in names), native=native)):
        assert 'error' not in again, (name, again)
        assert not differences(normal(again['pod']), normal(theirs[name]['pod'])), name


# --- generated ---

WORD = st.text('abcxyz', min_size=1, max_size=6)
PORT = st.integers(1, 65535)
ANNOTATIONS = {
    'sidecar.istio.io/proxyCPU': st.sampled_from(['10m', '2', '1.5']), 'sidecar.istio.io/proxyCPULimit': st.sampled_from(['99m', '1001m', '3']),
    'sidecar.istio.io/logLevel': WORD, 'sidecar.istio.io/nativeSidecar': st.sampled_from(['true', 'false']),
    'sidecar.istio.io/proxyImage': WORD.map(lambda w: f'r.io/{w}:1.2.3'), 'istio.io/rev': WORD, 'note': st.text('a"\n{}:\\ ', max_size=9),
    'prometheus.io/port': PORT.map(str), 'prometheus.io/scrape': st.sampled_from(['true', 'false', 'maybe']), 'prometheus_io_path': WORD,
    'prometheus.istio.io/merge-metrics': st.sampled_from(['true', 'false']), 'agentd.node.mesh/redirect': st.sampled_from(['ebpf', 'istio-init']),
    'traffic.sidecar.istio.io/excludeInboundPorts': PORT.map(str), 'traffic.sidecar.istio.io/excludeOutboundIPRanges': st.just('10.0.0.0/8'),
    'status.sidecar.istio.io/port': st.sampled_from(['15020', '16020', '0']), 'kubectl.kubernetes.io/default-container': WORD,
    'proxy.istio.io/config': st.fixed_dictionaries({}, optional={
        'concurrency': st.integers(0, 9), 'drainDuration': st.integers(1, 99).map('{}s'.format), 'holdApplicationUntilProxyStarts': st.booleans(),
        'proxyMetadata': st.dictionaries(WORD.map(lambda w: 'ISTIO_META_' + w.upper()), WORD, max_size=2)}).map(json.dumps)}
LABELS = {k: WORD for k in ('app', 'version', 'app.kubernetes.io/name', 'app.kubernetes.io/version', 'topology.istio.io/network',
                            'service.istio.io/canonical-name', 'service.istio.io/workload-name', 'security.istio.io/tlsMode')}
HANDLER = st.one_of(st.fixed_dictionaries({'httpGet': st.fixed_dictionaries({'port': PORT, 'path': st.just('/p')})}),
                    st.fixed_dictionaries({'tcpSocket': st.fixed_dictionaries({'port': PORT})}))
PROBE = st.one_of(HANDLER, st.fixed_dictionaries({'grpc': st.fixed_dictionaries({'port': PORT})}))
CONTAINER = st.fixed_dictionaries({'name': WORD, 'image': WORD}, optional={
    'ports': st.lists(st.fixed_dictionaries({'containerPort': PORT.filter(lambda p: p != 15020)}, optional={'name': WORD}), max_size=2),
    'readinessProbe': PROBE, 'livenessProbe': PROBE, 'startupProbe': PROBE,
    'lifecycle': st.fixed_dictionaries({}, optional={'preStop': HANDLER, 'postStart': HANDLER})})
OWN = st.fixed_dictionaries({'name': st.just('istio-proxy'), 'image': st.sampled_from(['auto', 'r.io/own:1'])}, optional={
    'env': st.lists(st.fixed_dictionaries({'name': WORD, 'value': WORD}), max_size=2, unique_by=lambda e: e['name']), 'args': st.lists(WORD, max_size=2),
    'resources': st.just({'limits': {'memory': '1Gi'}})})


@st.composite
def some_pod(draw, own=True):
    containers = draw(st.lists(CONTAINER, min_size=1, max_size=4, unique_by=lambda c: c['name']))
    cut = draw(st.integers(1, len(containers)))
    if own and draw(st.integers(0, 3)) == 0:
        containers.insert(draw(st.integers(0, cut)), draw(OWN))
        cut += 1
    p = pod(draw(st.fixed_dictionaries({}, optional=ANNOTATIONS)), draw(st.fixed_dictionaries({}, optional=LABELS)), initContainers=containers[cut:])
    p['spec']['containers'] = containers[:cut]
    if not containers[cut:]:
        del p['spec']['initContainers']
    return p


ROUNDS = 40 if os.environ.get('AGENTD_SOAK') else 4


@pytest.mark.parametrize('native', [True, False], ids=['native', 'classic'])
@settings(max_examples=ROUNDS, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example])
@given(pods=st.lists(some_pod(), min_size=25, max_size=50))
def test_any_pod(both, native, pods):
    """What a node refuses, istiod takes: only then they differ."""
    istiod, engine = both
    taken = [p for p in pods if engine.call(json.dumps(p), check=False).returncode == 0]
    assert len(taken) > len(pods) // 3
    ours = engine.run(taken, native)
    for before, mine, theirs in zip(taken, ours, istiod.run(*taken, native=native)):
        assert not differences(normal(mine), normal(theirs['pod'])), before
    assert engine.run(ours, native) == ours
    assert engine.run(ours, verb='uninject') == taken
