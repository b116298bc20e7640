"""A machine's readinessProbe: what its app is, istiod is told; on change, and again on each new stream."""
import json
import os
import sys

import pytest

from . import mesh
from .identity import prepared
from .pod import HERE
from .replacing import kill_worker
from .run import Process, wait_for

HTTP, TLS, GRPC = 8080, 9443, 9000
QUICK = {'periodSeconds': 1, 'timeoutSeconds': 20}


@pytest.fixture
def node(make_node):
    node = prepared(make_node())
    node.istiod.order('group', namespace='demo', name='vm')
    return node


def machine(node, name, probe, **env):
    return node.pod(name, env={'PROXY_CONFIG': json.dumps({'readinessProbe': {**QUICK, **probe}}),
                               'ISTIO_META_AUTO_REGISTER_GROUP': 'vm', **env})


def told(pod, how=None):
    """What istiod heard of its entry, in order: [('healthy' or 'unhealthy', the message)]."""
    return [(e['how'], e['entry']['conditions']['Healthy']['message']) for e in pod.node.istiod.journal('entry')
            if e['how'] in ('healthy', 'unhealthy') and e['name'] == f'vm-{pod.ip}' and how in (None, e['how'])]


def wait_told(pod, how, times=1, why=''):
    wait_for(f'istiod to be told {how} {times} times', lambda: len(told(pod, how)) >= times)
    assert told(pod)[-1][0] == how and why in told(pod)[-1][1], told(pod)


def shown(pod):
    return next(p for p in pod.node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid).get('health')


def test_an_app_that_comes_and_goes(node):
    pod = machine(node, 'vm', {'httpGet': {'port': HTTP, 'path': '/x'}})
    node.agentd.start()
    node.istiod.set(pod.id, **mesh.server([pod]))
    pod.start_envoy()
    wait_told(pod, 'unhealthy')
    entry = node.istiod.journal('entry', how='created')[0]['entry']
    assert entry['annotations']['proxy.istio.io/health-checks-enabled'] == 'true'
    pod.start_app(HTTP, '0.0.0.0')
    wait_told(pod, 'healthy')
    assert shown(pod)['state'] == 'healthy' and node.agentd.metric('agentd_workload_healthy', 'pod="vm"') == 1
    so_far = len(told(pod, 'unhealthy'))
    pod.app.kill()
    wait_told(pod, 'unhealthy', so_far + 1, why='the app answers with status 500')
    status, text = node.agentd.ctl_text('pods', pod.label)
    assert 'health         unhealthy: the app answers with status 500' in text and status == 0
    assert node.agentd.metric('agentd_workload_healthy', 'pod="vm"') == 0

    for replace in kill_worker, restart:  # the state is told again
        so_far = len(told(pod, 'unhealthy'))
        replace(node)
        wait_told(pod, 'unhealthy', so_far + 1)
    assert len(told(pod, 'healthy')) == 1
    so_far = len(told(pod, 'unhealthy'))
    node.istiod.order('goaway', grace=10)  # another stream of the same worker
    wait_told(pod, 'unhealthy', so_far + 1)
    pod.start_app(HTTP, '0.0.0.0')
    wait_told(pod, 'healthy', 2)


def restart(node):
    node.agentd.kill()
    node.agentd.start()


def test_every_way_to_ask(node):
    """The app of probed.py: what is well, what is not, and what never ends."""
    ways = {'redirect': {'httpGet': {'port': HTTP, 'path': '/moved'}},
            'endless': {'httpGet': {'port': HTTP, 'path': '/endless'}}, 'https': {'httpGet': {'port': TLS, 'path': '/ok', 'scheme': 'HTTPS'}},
            'tcp': {'tcpSocket': {'port': HTTP}}, 'grpc': {'grpc': {'port': GRPC}}}
    bad = {
           'http-slow': ({'httpGet': {'port': HTTP, 'path': '/slow'}, 'timeoutSeconds': 1}, ''),
           'tcp-nobody': ({'tcpSocket': {'port': 4}}, ''),
           'grpc-bad': ({'grpc': {'port': GRPC, 'service': 'sick'}}, '')}
    good = {name: machine(node, name, way) for name, way in ways.items()}
    sick = {name: machine(node, name, way) for name, (way, _) in bad.items()}
    node.agentd.start()
    apps = []
    for pod in (*good.values(), *sick.values()):
        apps.append(Process(pod.netns.command(sys.executable, HERE / 'probed.py', pod.dir), pod.dir / 'app.log', pod.cgroup))
        pod.start_envoy()
    for pod in good.values():
        wait_told(pod, 'healthy')
    for name, pod in sick.items():
        wait_told(pod, 'unhealthy')
        wait_for(f'the reason of {name}', lambda pod=pod, why=bad[name][1]: shown(pod)['state'] == 'unhealthy' and why in shown(pod)['why'])
        assert not told(pod, 'healthy')


def test_an_envoy_that_is_not_ready(node):
    """It has no listeners yet; the app alone makes no healthy machine."""
    pod = machine(node, 'vm', {'tcpSocket': {'port': HTTP}})
    node.agentd.start()
    pod.start_app(HTTP, '0.0.0.0')
    node.istiod.set(pod.id, listeners=[mesh.BROKEN_LISTENER], clusters=mesh.PLAIN_SERVER['clusters'])
    pod.start_envoy()
    wait_for('the reason', lambda: 'Envoy is not ready: status 503' in shown(pod)['why'])
    assert shown(pod)['state'] == 'unhealthy' and not told(pod, 'healthy')
    node.istiod.set(pod.id, listeners=[])
    wait_told(pod, 'healthy')


def test_what_is_refused_by_name(node):
    pod = node.pod('vm', env={'PROXY_CONFIG': json.dumps({'readinessProbe': {'exec': {'command': ['true']}}})})
    node.agentd.start()

    def why():
        return next(p for p in node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)['why_not']
    wait_for('the refusal', lambda: 'readinessProbe.exec' in why() and 'httpGet' in why())
    pod.write_manifest(env={'PROXY_CONFIG': json.dumps({'readinessProbe': {'httpGet': {'port': 80, 'host': 'metadata'}}})})
    wait_for('the other', lambda: "the machine's own address" in why())


@pytest.mark.skipif(not os.environ.get('AGENTD_SOAK'), reason='AGENTD_SOAK')
def test_fifty_probes(node):
    pods = [machine(node, f'vm{n}', {'tcpSocket': {'port': HTTP}}) for n in range(50)]
    node.agentd.start()
    for pod in pods:
        pod.start_envoy()
    for pod in pods:
        wait_told(pod, 'unhealthy')
