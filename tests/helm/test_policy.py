"""injector.mode policy by the API server's own plug-ins: the engine's result, or a refusal by name."""
import json
import os
import subprocess

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from .chart import helm, render, validate
from .same import defaults, differences, probe_ports, scalars, texts
from .test_engine import Engine, some_pod
from .test_admission import POLICY
from .test_injection import pod
from .workloads import CASES, REFUSED, S, owned

VALUES = {'global': {'hub': 'registry.istio.io/release', 'tag': '1.29.1'}}
NAMESPACES = {'demo': {'kubernetes.io/metadata.name': 'demo', 'agentd.node.mesh/injection': 'enabled'},
              'plain': {'kubernetes.io/metadata.name': 'plain'},
              'kube-system': {'kubernetes.io/metadata.name': 'kube-system', 'agentd.node.mesh/injection': 'enabled'}}
OWN = 'agentd.node.mesh/inject'


class Policies:
    """The chart's policies, and the engine that is told the same."""

    def __init__(self, directory, values=None, mesh=None, more=(), leave_out=(), **agentd):
        values = values or VALUES
        file = directory / 'values.json'
        file.write_text(json.dumps({'injector': {'mode': 'policy', 'values': values, **({'meshConfig': mesh} if mesh else {})}}))
        self.objects = render('1.36', f'--values={file}', *more)
        kinds = {'mutating': 'MutatingAdmissionPolicy', 'mutatingBindings': 'MutatingAdmissionPolicyBinding',
                 'validating': 'ValidatingAdmissionPolicy', 'validatingBindings': 'ValidatingAdmissionPolicyBinding'}
        self.chain = directory / 'chain.json'
        self.chain.write_text(json.dumps({'namespaces': NAMESPACES, **{
            k: [o for (kind, _), o in self.objects.items() if kind == v and kind not in leave_out] for k, v in kinds.items()}}))
        (directory / 'values').write_text(json.dumps(values))
        self.engine = Engine(directory, mesh, **{'hideFromIstiod': True, **agentd})

    def ask(self, *pods):
        r = subprocess.run([POLICY, '-chain', self.chain], input='\n'.join(map(json.dumps, pods)), text=True, capture_output=True, timeout=120, check=False)
        assert r.returncode == 0, r.stderr
        return [json.loads(line) for line in r.stdout.splitlines()]

    def compare(self, pods):
        """Those that are taken, each as the engine makes it of the pod as an API server shows it; and what is said of the others."""
        shown = {n: in_namespace({'apiVersion': 'v1', 'kind': 'Pod', **a['pod']}, 'demo')
                 for n, a in zip(pods, self.ask(*(in_namespace(p, 'plain') for p in pods.values())))}
        answers = dict(zip(shown, self.ask(*shown.values())))
        taken = {n: a['pod'] for n, a in answers.items() if 'error' not in a}
        made = self.engine.run([shown[n] for n in taken]) if taken else []
        ours = self.ask(*(in_namespace(p, 'plain') for p in made))  # as an API server shows them, too
        for (name, theirs), mine in zip(taken.items(), ours):
            assert not differences(plainly(theirs), plainly(in_namespace(mine['pod'], 'demo'))), name
        return taken, {n: a['error'] for n, a in answers.items() if 'error' in a}


def in_namespace(p, ns):
    return {**p, 'metadata': {**p['metadata'], 'namespace': ns}}


def plainly(p):
    """All of it; JSON in texts by what it says."""
    p = json.loads(json.dumps(p))
    for rule in defaults, probe_ports, texts, scalars:
        rule(p)
    return {'metadata': p['metadata'], 'spec': p['spec']}


@pytest.fixture(name='policies', scope='module')
def fixture_policies(tmp_path_factory):
    return Policies(tmp_path_factory.mktemp('policies'))


ALL = {n: p for n, p in CASES.items() if p['kind'] == 'Pod'}
SCRAPED = {'prometheus.io/scrape': 'true', 'prometheus.io/port': '9091', 'prometheus.io/path': '/a"b"'}
MORE = {
    'scraped-plainly': pod(SCRAPED), 'not-merged-plainly': pod({**SCRAPED, 'prometheus.istio.io/merge-metrics': 'F'}),
    'scraped-there': pod({**SCRAPED, 'prometheus.io/port': '15020'}),
    'no-name': {**pod(), 'metadata': {'generateName': 'bare-', 'namespace': 'demo'}},
    'cut-to-63': {**pod(), 'metadata': {'name': 'n' * 62 + '-x', 'namespace': 'demo'}},
    'short-hash': owned('ReplicaSet', 'web5', **{'pod-template-hash': '5'}),
    'many': pod({f'istio.io/n{n}': 'v\t"\\\n' * 9 for n in range(40)}, {f'l{n}': 'v' for n in range(60)},
                containers=[{'name': f'c{n}', 'image': 'x', 'ports': [{'containerPort': 1000 + n, 'hostIP': '10.0.0.1', 'hostPort': 7}],
                             'livenessProbe': {'tcpSocket': {'port': 1000 + n}}} for n in range(19)]),
    **{f'limit-{v}': pod({S + 'proxyCPULimit': v}) for v in ('1', '1001m', '0.1', '2.50', '0', '3m')},
    'no-type': pod({S + 'proxyImageType': ''}), 'no-port': pod({'status.sidecar.istio.io/port': '00'}),
    'unicode': pod({'istio.io/x': 'é\u2028\U0001f600\x7f', 'note': '\x7f€'}),
}
CANNOT = {  # of CASES: what is said
    **dict.fromkeys(('annotated', 'hold', 'image-in-config', 'concurrency-0', 'drain', 'flush', 'metadata', 'interception-none', 'in-json'),
                    'a policy cannot do annotation proxy.istio.io/config'),
    **dict.fromkeys(('custom', 'own-resources', 'own-args', 'own-env', 'own-image'), "a policy cannot do the pod's own container istio-proxy"),
    **dict.fromkeys(('scraped', 'scraped-in-dots', 'not-merged'), 'a policy reads prometheus.io/scrape, path and port in this spelling alone'),
    **dict.fromkeys(('classic', 'hold-classic'), 'a policy cannot do annotation sidecar.istio.io/nativeSidecar: false'),
    **dict.fromkeys(('probed-init', 'probed-off'), 'a policy cannot do annotation agentd.node.mesh/redirect: istio-cni or istio-init'),
    'interfaces': 'annotation traffic.sidecar.istio.io/excludeInterfaces', 'stats': 'annotation sidecar.istio.io/statsInclusionPrefixes',
    'targets': 'annotation prometheus.istio.io/scrape-targets', 'user-volume': 'annotation sidecar.istio.io/userVolume',
    'user-list': 'annotation sidecar.istio.io/userVolume',
}


def test_it_is_what_the_engine_makes(policies):
    taken, refused = policies.compare({**ALL, **MORE})
    assert set(refused) == set(CANNOT)
    for name, said in CANNOT.items():
        assert f'denied request: agentd: {said}' in refused[name].replace('a policy cannot do annotation', 'annotation') or said in refused[name]
        assert refused[name].endswith(': use injector.mode webhook, or agentctl inject')
    injected = {n: {'apiVersion': 'v1', 'kind': 'Pod', **p} for n, p in taken.items() if any('csi' in v for v in p['spec'].get('volumes', ()))}
    assert len(injected) > 55
    for name, p in injected.items():
        p.pop('status')
        validate(p, '1.36')
    back = policies.engine.run(injected.values(), verb='uninject')
    shown = policies.ask(*(in_namespace(p, 'plain') for n, p in {**ALL, **MORE}.items() if n in injected))
    for name, mine, before in zip(injected, back, shown):
        assert plainly(mine) == plainly(in_namespace(before['pod'], 'demo')), name


def test_what_is_refused(policies):
    """Whatever the engine refuses; by these policies, or by the one of the nodes."""
    more = {'label': pod(labels={S + 'inject': 'true'}), 'bell': pod({'note': 'a\x07'}), 'again': pod({S + 'status': '{}'}),
            'probed': pod({'status.sidecar.istio.io/port': '8080'}), 'exponent': pod({S + 'proxyCPULimit': '2e3'})}
    said = dict(zip({**REFUSED, **more}, policies.ask(*REFUSED.values(), *more.values())))
    assert all('denied request: ' in a['error'] for a in said.values()), said
    for name, words in {'template': 'requested template not found; have agentd', 'volume': 'the pod has a volume "agentd" already: rename it',
                        'cpu': "invalid value for annotation 'sidecar.istio.io/proxyCPU': must be a quantity", 'label': 'remove the label',
                        'sandbox': 'runtimeClassName kata-qemu is a sandbox', 'again': 'injected by another injector',
                        'bell': 'a policy cannot do control characters in annotations', 'probed': 'is a port that the app is probed at',
                        'port': 'redirect: traffic.sidecar.istio.io/excludeInboundPorts'}.items():
        assert words in said[name]['error'], said[name]


@pytest.mark.parametrize('ns,labels,asked', [
    ('demo', {}, True), ('demo', {OWN: 'false'}, False), ('demo', {S + 'inject': 'false'}, False), ('plain', {}, False), ('plain', {OWN: 'true'}, True),
    ('kube-system', {OWN: 'true'}, False)], ids=str)
def test_who_is_asked(policies, ns, labels, asked):
    [a] = policies.ask(in_namespace(pod(labels=labels), ns))
    assert ('volumes' in a['pod']['spec']) == asked


def test_what_is_injected_already_stays(policies):
    [made] = policies.engine.run([pod()])
    [a], [b] = policies.ask(made), policies.ask(in_namespace(made, 'plain'))
    assert plainly(a['pod']) == plainly(in_namespace(b['pod'], 'demo'))


def test_a_policy_that_is_not_there_is_said(tmp_path):
    [a] = Policies(tmp_path, leave_out=['MutatingAdmissionPolicyBinding']).ask(pod())
    assert a['error'].endswith('agentd: not injected: is there MutatingAdmissionPolicy agentd-injector.agentd with its bindings?')


MESHES = {
    'mesh': ({'global': {'hub': 'h', 'tag': '1.29.1-debug', 'variant': 'distroless', 'network': 'n3', 'logAsJson': True, 'meshID': 'm', 'caAddress': 'istiod-canary.istio-system.svc:15012',
                         'multiCluster': {'clusterName': 'c2'}, 'imagePullSecrets': ['mine', 'theirs'], 'imagePullPolicy': 'Always',
                         'proxy': {'resources': {'limits': {'cpu': 1.5, 'memory': None}, 'requests': None}, 'logLevel': 'info', 'includeIPRanges': '10.0.0.0/8',
                                   'readinessPeriodSeconds': 2, 'startupProbe': {'failureThreshold': 9},
                                   'lifecycle': {'preStop': {'exec': {'command': ['x', "it's"]}}}}},
              'revision': 'canary'},
             {'trustDomain': 'td.example', 'enablePrometheusMerge': False,
              'defaultConfig': {'statusPort': 16021, 'drainDuration': '7s', 'fileFlushInterval': '2s', 'fileFlushMinSizeKb': 64, 'concurrency': 4,
                                'discoveryAddress': 'istiod-canary.istio-system.svc:15012', 'image': {'imageType': 'debug'}, 'serviceCluster': 'istio-proxy',
                                'proxyMetadata': {'ISTIO_META_X': 'true', 'ISTIO_META_OWNER': 'mine'}}}),
    'image': ({'global': {'tag': '1', 'proxy': {'image': 'r.io/own:1.2.3', 'includeInboundPorts': '*'}}}, {'defaultConfig': {'concurrency': 0}}),
}


@pytest.mark.parametrize('mesh', MESHES)
def test_other_meshes(tmp_path, mesh):
    values, config = MESHES[mesh]
    p = Policies(tmp_path, values, config, ['--set=ipFamily=ipv6,clusterDomain=k8s.example,injection.network=n9'], ipFamily='ipv6', clusterDomain='k8s.example',
                 network='n9')
    taken, _ = p.compare({n: p for n, p in {**ALL, **MORE}.items() if n not in CANNOT})
    assert len(taken) > 60


def test_injected_annotations_win(tmp_path):
    [a] = Policies(tmp_path, {**VALUES, 'sidecarInjectorWebhook': {'injectedAnnotations': {'a': 'b "c"', 'istio.io/rev': 'x'}}}).ask(pod())
    assert {'a': 'b "c"', 'istio.io/rev': 'x', 'prometheus.io/scrape': 'true'}.items() <= a['pod']['metadata']['annotations'].items()


@settings(max_examples=20 if os.environ.get('AGENTD_SOAK') else 2, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
          suppress_health_check=list(HealthCheck))
@given(pods=st.lists(some_pod(own=False), min_size=15, max_size=25))
def test_any_pod(policies, pods):
    """Taken as the engine makes it, or refused in words."""
    taken, refused = policies.compare(dict(enumerate(pods)))
    assert len(taken) > len(pods) // 25
    assert all('denied request: ' in e and 'resulted in error' not in e for e in refused.values()), refused


@pytest.mark.parametrize('value,said', [
    ('injector.native=false', 'injector.native false'), ('redirect.mode=istio-cni', 'redirect.mode'), ('redirect.mode=istio-init', 'redirect.mode'),
    ('injector.values.sidecarInjectorWebhook.neverInjectSelector[0].matchLabels.a=b', 'neverInjectSelector'),
    ('injector.values.global.proxy.autoInject=disabled', 'autoInject'), ('injector.meshConfig.defaultConfig.drainDuration=1.5s', 'drainDuration'),
    ('injector.meshConfig.defaultConfig.drain_duration=5s', 'snake_case'), ('injector.values.global.hub=', 'global.hub')])
def test_what_the_chart_refuses(value, said):
    r = helm('template', '--kube-version=1.36.0', f'--set=injector.mode=policy,injector.values.global.hub=h,injector.values.global.tag=1,{value}', check=False)
    assert r.returncode and said in r.stderr, r.stderr


def test_where_it_can_be():
    mode = '--set=injector.mode=policy,injector.values.global.hub=h,injector.values.global.tag=1'
    assert 'Kubernetes 1.36' in helm('template', '--kube-version=1.35.0', mode, check=False).stderr
    for version in ('1.36', '1.37'):
        for (kind, name), o in render(version, mode).items():
            if 'injector' in name:
                assert 'AdmissionPolicy' in kind, 'nothing runs, and nothing has a right'
                validate(o, version)
