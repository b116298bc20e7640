"""What the driver refuses: callers that are not the kubelet, requests that no kubelet makes, tokens of others.

Nothing of it leaves a mount, a directory or a secret in a log; and a pod that is there is not disturbed.
"""
import collections
import json
import os
import sys

import jwt
import pytest

from ..istiod.tokens import ALGORITHM
from . import run
from .conftest import measured
from .csi import VOLUME, CsiNode, tokens
from .run import Process, wait_for

CONTEXT = 'csi.storage.k8s.io/'


@pytest.fixture
def node(make_node):
    return make_node(kind=CsiNode)


@pytest.fixture
def pod(node):
    """Running, its volume mounted; the kubelet is gone, so that only the test makes calls."""
    node.start()
    made = node.csi_pod('web').wait_running()
    node.kubelet.process.kill()
    return made


def ghost(node, name, **kw):
    """A pod whose kubelet's directory is there, and which no kubelet knows."""
    made = node.csi_pod(name, created=False, **kw)
    made.target.parent.mkdir(parents=True)
    return made


def changed(pod, target=None, without=(), **context):
    """The kubelet's call with other keys of its own."""
    method, fields = pod.publish()
    known = {**fields['volume_context'], **{CONTEXT + k.replace('_', '.', 1): v for k, v in context.items()}}
    fields['volume_context'] = {k: v for k, v in known.items() if k.removeprefix(CONTEXT) not in without}
    return method, {**fields, **({'target_path': str(target)} if target else {})}


def forged(node, pod):
    """Name -> call.  Everything is right but one thing."""
    elsewhere, volumes = node.dir / 'elsewhere', pod.target.parent.parent
    block = {'block': {}, 'access_mode': {'mode': 1}}
    pods = volumes.parent.parent.parent
    return {
        'another uid': changed(pod, pod_uid='6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11'),
        'no uid': changed(pod, pod_uid=''),
        'no pod info': changed(pod, without=('pod.uid', 'pod.name', 'pod.namespace', 'serviceAccount.name')),
        'a namespace that is none': changed(pod, pod_namespace='Demo/../kube-system'),
        'an account that is none': changed(pod, serviceAccount_name='web\nadmin'),
        'a name that is too long': changed(pod, pod_name='x' * 254),
        'not ephemeral': changed(pod, without=('ephemeral',)),
        'a block device': pod.publish(volume_capability=block),
        'no volume id': pod.publish(volume_id=''),
        'a volume id that is too long': pod.publish(volume_id='x' * 300),
        'a target elsewhere': changed(pod, elsewhere / 'mount'),
        'a target in another plugin\'s place': changed(pod, str(pod.target).replace('~csi', '~projected')),
        'dots in the target': changed(pod, f'{pods}/../../../etc/pods/{pod.uid}/volumes/kubernetes.io~csi/../../x/mount'),
        'dots for a volume': changed(pod, volumes / '..' / 'mount'),
        'a volume of 64 characters': changed(pod, volumes / ('v' * 64) / 'mount'),
        'a volume of 253 characters': changed(pod, volumes / ('v' * 253) / 'mount'),
        'a volume with a slash': changed(pod, f'{volumes}/a/b/mount')}


def test_forged_requests(node, pod):
    other = ghost(node, 'other')
    cases = forged(node, other)
    found = {name: a['code'] for name, a in zip(cases, node.call(*cases.values()), strict=True)}
    assert found == {name: 'INVALID_ARGUMENT' for name in cases}
    assert node.mounts() == [str(pod.target)] and not (node.seen(node.agentd.run) / 'pods' / other.uid).exists()
    for ports, why in ('8080,15021', 'has 15021, must be ports'), ('0', 'must be ports'), (','.join(map(str, range(1, 66))), 'more than 64'):
        method, fields = other.publish()
        fields['volume_context'].update({'AGENTD_PROBE_PORTS': ports, 'ISTIO_METAJSON_ANNOTATIONS': '{"agentd.node.mesh/redirect": "ebpf"}'})
        answer, = node.call((method, fields))
        assert answer['code'] == 'INVALID_ARGUMENT' and 'AGENTD_PROBE_PORTS' in str(answer) and why in str(answer), answer
    # Long names are names: the pod's own, with nothing wrong.
    long = ghost(node, 'x' * 253, sa='y' * 253)
    assert [a['code'] for a in node.call(long.publish())] == ['OK']


TCP, READY = {'tcpSocket': {'port': 8080}}, '/app-health/app/readyz'
PORTS = '1 to 65535 but 15000 15001 15004 15006 15008 15020 15021 15053 15090'
PROBERS = {json.dumps(probers): words for probers, words in (
    ({'/app-health/app/ready': TCP}, '/app-health/NAME/{livez,readyz,startupz}'), ({'/quitquitquit': TCP}, '/app-health/NAME/{livez,readyz,startupz}'),
    ({READY: {**TCP, 'grpc': {'port': 8080}}}, 'exactly one of httpGet, tcpSocket, grpc'), ({READY: {}}, 'exactly one of httpGet, tcpSocket, grpc'),
    *(({READY: {'tcpSocket': {'port': port}}}, PORTS) for port in (0, 65536, 'http', *map(int, PORTS.split(' but ')[1].split()))),
    ({READY: {'tcpSocket': {'port': 16021}}}, "Envoy's own"),
    ({READY: {'httpGet': {'port': 80, 'path': '/a\r\nHost: b'}}}, 'printable ASCII without spaces'),
    ({f'/app-health/app{i}/readyz': TCP for i in range(65)}, 'more than 64'))}
SCRAPES = {json.dumps(scrape): words for scrape, words in (
    ({'port': '9090', 'targets': [{'port': '9090'}] * 9}, 'more than 8'), ({'port': '15020'}, PORTS), ({'port': '16021'}, "Envoy's own"),
    ({'port': '9090', 'path': 'metrics'}, 'a path that begins with /'), ({'targets': [{'port': '1', 'path': '/a\nb'}]}, 'printable ASCII'),
    ({'port': 'http'}, PORTS), ({'port': 9090}, PORTS))}


def test_probes_and_metrics_that_are_refused(node, pod):
    """With their key, and what would be allowed."""
    other = ghost(node, 'other')
    app = json.dumps([{'containerPort': 8080}, {'containerPort': 15020}])
    cases = [*(('ISTIO_KUBE_APP_PROBERS', *row) for row in PROBERS.items()), *(('ISTIO_PROMETHEUS_ANNOTATIONS', *row) for row in SCRAPES.items()),
             ('ISTIO_META_POD_PORTS', app, 'PROXY_CONFIG.statusPort')]
    calls = [other.publish() for _ in cases]
    for (key, value, _), (_, fields) in zip(cases, calls, strict=True):
        fields['volume_context'].update({key: value, 'ENVOY_STATUS_PORT': '16021'})
    for (key, value, words), answer in zip(cases, node.call(*calls), strict=True):
        assert answer['code'] == 'INVALID_ARGUMENT' and key in str(answer) and words in str(answer), (key, value, answer)
    assert node.mounts() == [str(pod.target)]


FOREIGN = 'of another pod', 'of another account', 'of another namespace', 'expired', 'for somebody else'


def bad_tokens(node, pod):
    """Name -> text; the others than FOREIGN are no tokens that could be used at all."""
    issue = node.istiod.tokens.issue
    claims = jwt.decode(pod.token(), options={'verify_signature': False})
    endless = {k: v for k, v in claims.items() if k != 'exp'}
    key = node.istiod.tokens._key
    return {
        'of another pod': issue('demo', pod.sa, 'else', '6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11'),
        'of another account': issue('demo', 'admin', pod.name, pod.uid),
        'of another namespace': issue('kube-system', pod.sa, pod.name, pod.uid),
        'expired': issue('demo', pod.sa, pod.name, pod.uid, ttl=-60),
        'for somebody else': issue('demo', pod.sa, pod.name, pod.uid, audience='vault'),
        'without end': jwt.encode(endless, key, algorithm=ALGORITHM),
        'unsigned': jwt.encode(claims, None, algorithm='none'),
        'no token': 'x', 'nothing': '', 'far too long': 'x.' * 20000}


def test_foreign_tokens(node, pod):
    """By either field; and the pod's own token in the other field does not help."""
    other = ghost(node, 'other')
    bad = bad_tokens(node, other)
    other.tokens += [t for t in bad.values() if len(t) > 1]
    for field in 'secrets', 'volume_context':
        calls = []
        for text in bad.values():
            method, fields = other.publish()
            if field == 'volume_context':
                fields['secrets'] = {}
            fields[field] = {**fields[field], **tokens(text)}
            calls.append((method, fields))
        found = {name: a['code'] for name, a in zip(bad, node.call(*calls), strict=True)}
        assert found == {name: 'PERMISSION_DENIED' if name in FOREIGN else 'INVALID_ARGUMENT' for name in bad}
    assert node.mounts() == [str(pod.target)]
    assert len(node.istiod.journal('csr-asked')) == 1  # of the pod that is there


def test_a_forged_token_of_the_pod_loses_against_the_kubelets(node, pod):
    """Its owner can write this attribute when tokens come in `secrets` (kubelet-csi.md 3b)."""
    other = ghost(node, 'other')
    method, fields = other.publish()
    fields['volume_context'].update(tokens(node.istiod.tokens.issue('demo', 'admin', 'x', other.uid)))
    assert [a['code'] for a in node.call((method, fields))] == ['OK']
    wait_for('its certificate', lambda: node.istiod.issued(identity='ns/demo/sa/other'))


def test_a_bad_token_does_not_end_a_pod(node, pod):
    """Republish of what is mounted is always OK; the token that was good goes on to be used."""
    method, fields = pod.publish()
    fields['secrets'] = tokens(bad_tokens(node, pod)['of another account'])
    assert [a['code'] for a in node.call((method, fields))] == ['OK']
    assert node.mounts() == [str(pod.target)]
    pod.node.kubelet.start()
    pod.sandbox()
    assert pod.is_served()


def test_a_second_volume_of_a_pod(node, pod):
    target = pod.target.parent.parent / 'second' / 'mount'
    target.parent.mkdir()
    answer, = node.call(pod.publish(target_path=str(target), volume_id='csi-second'))
    assert answer['code'] == 'FAILED_PRECONDITION' and VOLUME in answer['details']
    assert node.mounts() == [str(pod.target)]
    answer, = node.call(('NodeUnpublishVolume', {'volume_id': 'csi-second', 'target_path': str(target)}))
    assert answer['code'] == 'OK'
    assert node.mounts() == [str(pod.target)] and (pod.mount / 'socket').exists()


def test_only_the_kubelet_is_answered(node, pod):
    """Not another user, and not root in a container of a pod, whatever of the host it has mounted."""
    container = node.kubelet.tree / 'besteffort' / f'pod{pod.uid}' / 'tools'
    container.mkdir()
    inside = ('/bin/sh', '-c', 'echo 0 >"$0" && exec "$@"', container / 'cgroup.procs')
    calls = [pod.publish(), ('NodeUnpublishVolume', {'volume_id': 'x', 'target_path': str(pod.target)}), ('NodeGetInfo', {})]
    for how in {'around': inside}, {'uid': 1000}:
        assert {a['code'] for a in node.call(*calls, **how)} == {'UNAVAILABLE'}
    assert node.mounts() == [str(pod.target)]
    assert [a['code'] for a in node.call(calls[2])] == ['OK']
    assert 'kubepods' in node.agentd.log.read_text()


RACES = 5000 if os.environ.get('AGENTD_SOAK') else 300  # more answers than a pipe holds


def test_links_on_the_way_to_the_target(node, pod):
    """Each directory of the path in turn is a symbolic link, to a place where a mount would be noticed."""
    trap = node.kubelet.root / 'trap'
    for n, depth in enumerate(('pods', 'uid', 'volumes', 'plugin', 'volume', 'target')):
        other = ghost(node, f'other-{n}')
        place = [other.target, *other.target.parents][5 - n]
        if depth == 'pods':
            continue  # all pods would be moved
        there = trap / str(n) / other.target.relative_to(place)
        there.mkdir(parents=True)
        run.sh('rm', '-rf', place)
        place.symlink_to(trap / str(n))
        answer, = node.call(other.publish())
        assert answer['code'] not in ('OK', 'UNAVAILABLE'), depth
    assert node.mounts() == [str(pod.target)]


# Exchanges two names for ever.
RACER = """import ctypes, sys
rename = ctypes.CDLL(None).renameat2
while True:
    rename(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2)
"""


def test_a_race_on_the_target(node, pod):
    """Somebody swaps the volume's directory for a link all the time."""
    other, trap = ghost(node, 'other'), node.kubelet.root / 'trap'
    (trap / 'mount').mkdir(parents=True)
    link = other.target.parent.with_name('link')
    link.symlink_to(trap)
    method, fields = other.publish()
    gone = 'NodeUnpublishVolume', {k: fields[k] for k in ('volume_id', 'target_path')}
    racer = Process(node.inside(sys.executable, '-c', RACER, link, other.target.parent), node.dir / 'racer.log',
                    node.cgroup('racer'))
    seen, calls = set(), node.begin(*[(method, fields), gone] * RACES)
    while calls.running():
        seen.update(node.mounts())
    codes = collections.Counter(a['code'] for a in calls.finish()[::2])
    racer.kill()
    measured.append(f'publish in a race, {RACES} times: {dict(codes)}')
    assert len(codes) > 1 and 'UNAVAILABLE' not in codes, codes
    assert seen <= {str(pod.target), str(other.target), str(link / 'mount')}, seen
