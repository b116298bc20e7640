"""The chart's admission policy by the API server's own evaluator: what it refuses a node refuses, in the same words."""
import copy
import json
import subprocess

import pytest

from .chart import KUBERNETES, TOP, only, render, validate
from .test_engine import Engine
from .test_injection import Istiod, pod
from .workloads import CASES, REFUSED, T, S

POLICY = TOP / 'build' / 'gobin' / 'policy'
SERVERS = [v for v in KUBERNETES if v >= '1.30']


class Policy:
    def __init__(self, directory, version, **render_args):
        self.version, self._file = version, directory / f'policy-{version}.json'
        self._file.write_text(json.dumps(only(render(version, **render_args), 'ValidatingAdmissionPolicy')))

    def ask(self, *pods):
        r = subprocess.run([POLICY, '-policy', self._file, '-version', self.version], input='\n'.join(map(json.dumps, pods)), text=True,
                           capture_output=True, timeout=60, check=False)
        assert r.returncode == 0, r.stderr
        return [json.loads(line) for line in r.stdout.splitlines()]

    def denied(self, p):
        [r] = self.ask(p)
        assert r['matched']
        return r.get('denied', [])


@pytest.fixture(name='meshed', scope='module')
def fixture_meshed(tmp_path_factory):
    """Pods as agentctl makes them."""
    directory = tmp_path_factory.mktemp('meshed')
    Istiod(directory)
    pods = [p for p in CASES.values() if p['kind'] == 'Pod']
    return Engine(directory), [p for p in Engine(directory).run(pods) if 'agentd.node.mesh' in json.dumps(p['spec'])]


@pytest.fixture(name='policy', scope='module', params=SERVERS)
def fixture_policy(tmp_path_factory, request):
    return Policy(tmp_path_factory.mktemp('policy'), request.param)


def by_hand(annotations=(), attributes=(), **spec):
    p = pod(annotations, **spec)
    p['spec']['volumes'] = [{'name': 'agentd', 'csi': {'driver': 'agentd.node.mesh', 'readOnly': True, 'volumeAttributes': dict(attributes)}}]
    return p


def test_what_is_made_is_taken(policy, meshed):
    assert len(meshed[1]) > 60
    assert all(r == {'matched': True} for r in policy.ask(*meshed[1]))


def test_other_pods_are_not_its_business(policy):
    other = pod({S + 'interceptionMode': 'TPROXY'}, volumes=[{'name': 'x', 'csi': {'driver': 'other'}}, {'name': 'y', 'emptyDir': {}}])
    assert policy.ask(other, pod()) == [{'matched': False}] * 2


WRITABLE = 'the volume of agentd.node.mesh needs readOnly: true: without it the pod\'s containers could write in it'
WRONG = {
    'two': (by_hand(), 'the pod has another volume of agentd.node.mesh'),
    'host': (by_hand(hostNetwork=True), 'agentd: a pod with hostNetwork has no network of its own to be meshed'),
    'sandbox': (by_hand(runtimeClassName='kata'), 'runtimeClassName kata is a sandbox: sockets and cgroups of the node end at it'),
    'writable': (by_hand(), f'agentd: {WRITABLE}'), 'writable-false': (by_hand(), f'agentd: {WRITABLE}'),
    'redirect': (by_hand({'agentd.node.mesh/redirect': 'x'}), 'redirect: agentd.node.mesh/redirect is "x", must be ebpf, istio-cni, istio-init or none'),
    'policy': (by_hand({'agentd.node.mesh/redirectPolicy': 'x'}), 'redirect: agentd.node.mesh/redirectPolicy'),
    'TPROXY': (by_hand({S + 'interceptionMode': 'TPROXY'}), 'redirect: sidecar.istio.io/interceptionMode is "TPROXY", must be REDIRECT or NONE (TPROXY needs '
               'iptables: mode istio-cni or istio-init)'),
    'by-attribute': (by_hand(attributes={'ISTIO_INBOUND_INTERCEPTION_MODE': 'TPROXY'}), 'must be REDIRECT or NONE'),
    'ports': (by_hand({T + 'includeInboundPorts': '80,x'}), f'redirect: {T}includeInboundPorts is "80,x", must be ports (1 to 65535), separated by commas'),
    'big': (by_hand({T + 'excludeInboundPorts': '65536'}), f'redirect: {T}excludeInboundPorts is "65536", must be ports'),
    'zero': (by_hand({T + 'excludeOutboundPorts': '0'}), f'redirect: {T}excludeOutboundPorts is "0", must be ports'),
    'blank': (by_hand({T + 'includeOutboundPorts': '1 2'}), f'redirect: {T}includeOutboundPorts is "1 2", must be ports'),
    'spire': (by_hand(), 'agentd: the pod has a volume of csi.spiffe.io: SPIRE issues its certificate'),
    'lines': (by_hand({T + 'includeOutboundPorts': '1\n2'}), f'redirect: {T}includeOutboundPorts must be ports'),
    'range': (by_hand({T + 'excludeOutboundIPRanges': '10.0.0.0/8,10.x'}), f'redirect: {T}excludeOutboundIPRanges: "10.x" is not an address range'),
    'star': (by_hand({T + 'excludeOutboundIPRanges': '*'}), f'redirect: {T}excludeOutboundIPRanges: "*" is not an address range'),
    'by-value': (by_hand(attributes={'ISTIO_SERVICE_CIDR': 'x'}), f'redirect: {T}includeOutboundIPRanges: "x" is not an address range'),
    'virtual': (by_hand({T + 'kubevirtInterfaces': 'eth1'}), f'redirect: {T}kubevirtInterfaces must be empty'),
    'rerouted': (by_hand({'istio.io/reroute-virtual-interfaces': 'eth1'}), 'redirect: istio.io/reroute-virtual-interfaces must be empty'),
}
WRONG['spire'][0]['spec']['volumes'].append({'name': 'more', 'csi': {'driver': 'csi.spiffe.io', 'readOnly': True}})
WRONG['two'][0]['spec']['volumes'].append({'name': 'more', 'csi': {'driver': 'agentd.node.mesh', 'readOnly': True}})
del WRONG['writable'][0]['spec']['volumes'][0]['csi']['readOnly']
WRONG['writable-false'][0]['spec']['volumes'][0]['csi']['readOnly'] = False


@pytest.mark.parametrize('name', WRONG)
def test_what_is_refused(policy, name):
    wrong, words = WRONG[name]
    denied = policy.denied(wrong)
    assert len(denied) == 1 and words in denied[0], denied


@pytest.mark.parametrize('annotations', [
    {'agentd.node.mesh/redirect': 'none', T + 'includeInboundPorts': 'x'}, {S + 'interceptionMode': 'NONE', T + 'includeInboundPorts': 'x'},
    {'agentd.node.mesh/redirect': 'istio-init', S + 'interceptionMode': 'TPROXY'}, {T + 'includeInboundPorts': '80', T + 'excludeInboundPorts': 'x'},
    {T + 'includeInboundPorts': '', T + 'includeOutboundIPRanges': '10.0.0.0/8,fd00::/8,192.0.2.1,,::1'}, {T + 'includeInboundPorts': ',080,'},
    {T + 'includeOutboundPorts': ' 3306 ,  5432, ', T + 'excludeInboundPorts': ' 8080,9090 '}],
    ids=['none', 'NONE', 'iptables', 'not-looked-at', 'empty', 'zeros', 'blanks'])
def test_what_a_node_takes_is_taken(policy, annotations):
    assert not policy.denied(by_hand(annotations))


def test_the_node_agrees(policy, meshed):
    """A pod that the engine refuses by a node's reader is refused here, if CEL can tell; no other is."""
    engine, _ = meshed
    for name, (wrong, _) in WRONG.items():
        if name not in ('two', 'spire', 'writable', 'writable-false', 'by-attribute', 'by-value'):
            bare = copy.deepcopy(wrong)
            del bare['spec']['volumes']
            r = engine.call(json.dumps(bare), '--check', check=False)
            assert r.returncode == 1 or 'hostNetwork' in r.stdout, (name, r.stdout)
    told = {n for n, p in REFUSED.items() if policy.denied({**p, 'spec': {**p['spec'], 'volumes': by_hand()['spec']['volumes']}})}
    ranges = {'range'} if policy.version != '1.30' else set()  # which has no isCIDR() for a new policy
    assert told == {'TPROXY', 'mode', 'port', 'out', 'virt', 'sandbox'} | ranges


@pytest.mark.parametrize('name', ['writable', 'spire'])
def test_the_engine_says_the_same_of_a_volume(meshed, name):
    wrong = copy.deepcopy(WRONG[name][0])
    wrong['spec']['volumes'][0]['name'] = 'by-hand'  # its own name is refused, too
    r = meshed[0].call(json.dumps(wrong), '--check', check=False)
    assert r.returncode == 1 and WRONG[name][1].removeprefix('agentd: ') in r.stdout + r.stderr


def test_the_nodes_own_mode_counts(tmp_path):
    wrong = by_hand({S + 'interceptionMode': 'TPROXY'})
    assert not Policy(tmp_path, '1.36', values=['istio-cni']).denied(wrong)
    assert Policy(tmp_path, '1.36').denied(wrong)


def test_it_is_there_where_it_can_be():
    for version in KUBERNETES:
        kinds = {k for k, _ in render(version)}
        assert ('ValidatingAdmissionPolicy' in kinds) == ('ValidatingAdmissionPolicyBinding' in kinds) == (version >= '1.30')
    assert 'ValidatingAdmissionPolicy' not in {k for k, _ in render('1.36', '--set=admissionPolicy.enabled=false')}
    for version in SERVERS:
        validate(only(render(version), 'ValidatingAdmissionPolicy'), version)
        validate(only(render(version), 'ValidatingAdmissionPolicyBinding'), version)
