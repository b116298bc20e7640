"""One pod of a real kubelet: its sidecar, its pages, and its volume in other hands than the kubelet's."""
import datetime
import json
import sys

import pytest

from tests.e2e.run import TOP

from . import apps
from .cluster import DRIVER
from .waiting import wait_for

pytestmark = [pytest.mark.usefixtures('well'), pytest.mark.on('container')]
POD = 'small'
# A sidecar as containers had it before Kubernetes 1.29.  With so little time no preStop hook may sleep for longer.
ANNOTATIONS = {**apps.MESHED, 'sidecar.istio.io/nativeSidecar': 'false', f'{DRIVER}/redirectPolcy': 'strict'}


@pytest.fixture(scope='module')
def small(mesh):
    """It has 3 s to end."""
    thing = apps.pod(POD, apps.SERVE, annotations=ANNOTATIONS)
    mesh.apply(thing)
    mesh.ready(POD)
    yield mesh
    mesh.delete(thing)


def ask_here(mesh, words):
    """agentctl on the node: where a pod is not ready its exit status is 1, and kubectl would not show what it says."""
    return mesh.node.run('sh', '-c', f'{TOP}/build/release/agentctl --run /run/agentd {words} || echo "exit status $?"')


def page(mesh):
    said = ask_here(mesh, f'pods demo/{POD} -o json').removesuffix('exit status 1\n')
    found, = json.loads(said)['pods']
    return found


def target(mesh):
    uid = mesh.get('pod', POD)['metadata']['uid']
    return f'/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi/agentd/mount'


def test_a_classic_sidecar_with_little_time_is_taken_and_served(small):
    thing = small.get('pod', POD)['spec']
    assert thing['terminationGracePeriodSeconds'] == 3 and 'istio-proxy' in [c['name'] for c in thing['containers']]
    wait_for('an answer from the mesh', lambda: small.ask(f'pod/{POD}'))


def test_envoy_has_the_pods_own_address(small):
    """From its start: istiod, spans and access logs know it by that."""
    address = small.get('pod', POD)['status']['podIP']
    said = small.exec(POD, 'istio-proxy', 'pilot-agent', 'request', 'GET', 'server_info')
    node = json.loads(said[said.index('{'):])['node']
    assert node['id'].split('~')[1] == address
    assert address in node['metadata']['INSTANCE_IPS'].split(',')


def test_a_misspelt_annotation_is_listed(small):
    assert [x for x in page(small)['ignored'] if 'redirectPolcy (nearest: agentd.node.mesh/redirectPolicy)' in x]


def test_a_check_takes_the_running_agentds_own_flags(small):
    said = small.exec('ds/agentd', 'agentd', 'agentd', '--check', namespace='agentd-system')
    assert "the kubelet's cgroup" in said and 'PROBLEM' not in said


def test_a_tokens_life_is_the_charts_value(small):
    """The kubelet asks for what the CSIDriver says, and the token says until when it is valid."""
    request, = small.get('csidriver', DRIVER, None)['spec']['tokenRequests']
    began = datetime.datetime.fromisoformat(small.get('pod', POD)['metadata']['creationTimestamp']).timestamp()
    assert abs(page(small)['token']['expires'] - began - request['expirationSeconds']) < 60


def test_the_registration_is_a_metric(small):
    said = small.node.run('curl', '-s', '--unix-socket', '/run/agentd/admin.sock', 'http://agentd/metrics')
    assert 'agentd_csi_registered 1' in said.splitlines()


def test_what_is_not_the_published_pair_is_refused(small):
    """Root of the node calls the driver as the kubelet does.  The volume stays, and so does its directory."""
    mount, own = target(small), page(small)
    calls = [('NodeUnpublishVolume', {'volume_id': own['volume']['id'], 'target_path': f'{mount}/../mount'}, 30),
             ('NodeUnpublishVolume', {'volume_id': 'csi-another', 'target_path': mount}, 30)]
    said = json.loads(small.node.run(sys.executable, '-m', 'tests.kubelet', 'call', '/run/agentd/csi.sock', '--parallel', 1,
                                     '--uid', 0, input=json.dumps(calls)))
    assert [(a['code'], a['details']) for a in said] == [
        ('INVALID_ARGUMENT', 'target_path: must be absolute, without ".", ".." and empty parts'),
        ('INVALID_ARGUMENT', 'another volume_id is published at target_path')]
    assert mount in small.left_of([own['uid']])
    assert page(small)['ready'] and page(small)['uid'] == own['uid'] and small.ask(f'pod/{POD}')


def test_a_volume_that_was_made_anew_is_named_until_the_pod_is(small):
    """Somebody removed its directory while agentd was away: Envoy has the one of before."""
    mount, uid = target(small), small.get('pod', POD)['metadata']['uid']
    with small.agentd_away():
        small.node.run('umount', mount)
        small.node.run('rm', '-r', f'/run/agentd/pods/{uid}')
    why = wait_for('it to be said', lambda: page(small)['why_not'])
    assert why.startswith('its volume was made again') and 'kubectl delete pod' in why
    said = ask_here(small, 'status')
    assert 'not ready; agentctl pods shows why' in said and said.endswith('exit status 1\n')
    small.delete(apps.pod(POD))
    assert wait_for('all to be well', small.well)
    small.apply(apps.pod(POD, apps.SERVE, annotations=ANNOTATIONS))
    small.ready(POD)
    wait_for('an answer to the next one', lambda: small.ask(f'pod/{POD}'))
