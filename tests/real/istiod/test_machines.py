"""Machines at a stock istiod: the files of istioctl, registration by istiod's own code, health that stops traffic."""
import os

import pytest
import yaml

from tests.e2e import clients, direct, test_istiod_itself
from tests.e2e.pod import HERE
from tests.e2e.run import wait_for
from tests.istiod.registration import make_entry

from .conftest import start
from .istiod import NEWEST
from .machines import Machines, healthy, seen, wait_health
from .world import APP, SERVICE

PROBED = 8090  # what is asked is not what serves, so that only istiod can stop the traffic
GROUP = {'metadata': {'labels': {'app': 'vm', 'tier': 'group'}, 'annotations': {'note': 'of the group'}},
         'template': {'serviceAccount': 'vm', 'ports': {'http': APP}, 'weight': 3, 'labels': {'of': 'template'}},
         'probe': {'periodSeconds': 1, 'httpGet': {'port': PROBED}}}
# Its files of a run; with AGENTD_FIXTURES=write the test writes them.  The end-to-end tests make a machine of them.
KEPT = HERE / 'istioctl'
OWN = 'istio-token', 'root-cert.pem', 'hosts'  # of each run


@pytest.fixture
def mesh(make_node):
    """Its agentd is not started."""
    world = make_node(kind=Machines, env={'PILOT_WORKLOAD_ENTRY_GRACE_PERIOD': '3s'})
    world.istiod.wait_ready()
    return world


def made_of(group, node):
    """As the development control plane would; what is healthy is no part of it."""
    entry = make_entry(group, node)
    del entry['conditions']
    return entry


def test_a_machine_from_istioctl_to_its_traffic(mesh):
    machine, group = mesh.machine('vm'), mesh.group('vm', **GROUP)
    mesh.installed(machine, mesh.istioctl('vm', mesh.dir / 'vm'))
    client, name = mesh.pod('client'), f'vm-{machine.ip}'
    mesh.agentd.start()
    served = machine.start_app(APP, '0.0.0.0')
    machine.start_envoy()
    start(client)

    def answer(status):
        wait_for(f'{status} for a peer', lambda: client.call(clients.get_json, f'http://{machine.vip}:{SERVICE}/')[0] == status)

    def told(status):
        return wait_health(mesh, name, status)[2]

    told('False')
    expected = made_of(group, {**machine.bootstrap()['node'], 'locality': ''})
    assert wait_for('its entry', lambda: (e := mesh.entries().get(name)) and seen(e)) == expected
    answer(503)
    probed = machine.start_app(PROBED, '0.0.0.0')
    told('True')
    answer(200)

    probed.kill()
    before = told('False')
    answer(503)
    assert served.running()
    mesh.agentd.kill()
    mesh.agentd.start()
    wait_for('the state to be told again', lambda: (h := healthy(mesh.entries().get(name))) and h[2] > before)
    told('False')
    answer(503)

    mesh.agentd.kill()  # for longer than the grace
    wait_for('the end of the entry', lambda: not mesh.entries())
    mesh.agentd.start()
    told('False')
    machine.start_app(PROBED, '0.0.0.0')
    told('True')
    answer(200)


def test_the_files_of_istioctl_are_the_kept_ones(mesh):
    """So that what the end-to-end tests begin with is what istioctl writes."""
    mesh.group('vm', **GROUP)
    made = mesh.istioctl('vm', mesh.dir / 'vm')
    files = {f.name: f.read_text() for f in made.iterdir() if f.name not in OWN}
    if os.environ.get('AGENTD_FIXTURES') == 'write':
        KEPT.mkdir(exist_ok=True)
        for kept, text in files.items():
            (KEPT / kept).write_text(text)
    if mesh.istiod.version == NEWEST:
        assert files == {f.name: f.read_text() for f in KEPT.iterdir()}
    assert (made / 'hosts').read_text() == f'{mesh.address} istiod.istio-system.svc\n'
    assert (made / 'root-cert.pem').read_text() == mesh.istiod.root_file.read_text()


def node(ip='10.1.2.3', **metadata):
    made = test_istiod_itself.node(INSTANCE_IPS=ip, AUTO_REGISTER_GROUP='vm', drop=['LABELS'], **metadata)
    return {**made, 'id': f'sidecar~{ip.split(",")[0]}~cli-0.demo~demo.svc.cluster.local'}


PLACE = {'region': 'r1', 'zone': 'z1'}
TEMPLATE = {'serviceAccount': 'cli', 'labels': {'of': 'template', 'app': 'template'}, 'ports': {'http': 80}, 'weight': 7}
# (spec of the group, node); without a template istiod ends by a nil pointer, which Kubernetes' admission keeps from it.
REGISTERED = [
    ({'template': {}}, node()),
    ({'template': {}}, node('fd00::1:2')),
    ({'template': TEMPLATE}, node('10.1.2.4,10.1.2.5', NETWORK='net1')),
    ({'template': TEMPLATE, 'metadata': {'labels': {'app': 'group', 'tier': 'group'}, 'annotations': {'note': 'x'}}}, node('10.1.2.6')),
    ({'template': TEMPLATE}, node('10.1.2.7', LABELS={'app': 'node', 'istio-locality': 'a.b'})),
    ({'template': {**TEMPLATE, 'network': 'net2', 'locality': 'r9/z9'}}, node('10.1.2.8')),
    ({'template': {**TEMPLATE, 'locality': 'r9/z9'}}, {**node('10.1.2.9', NETWORK='net3'), 'locality': PLACE}),
    ({'template': TEMPLATE}, {**node('10.1.2.10'), 'locality': {**PLACE, 'subZone': 's1'}}),
    ({'template': TEMPLATE}, node('10.1.2.11', PROXY_CONFIG={'readinessProbe': {'tcpSocket': {'port': 80}}})),
    ({'template': TEMPLATE}, node('10.1.2.12', NETWORK='n' * 300)),
]
NO_GROUP = ('FAILED_PRECONDITION', 'cannot find WorkloadGroup demo/vm')
REFUSED = [
    (None, node(), NO_GROUP),
    ({'template': {'serviceAccount': 'other'}}, node(), ('UNKNOWN', 'service account mismatch: "cli" vs "other"')),
    ({}, test_istiod_itself.node(WORKLOAD_ENTRY='db'), ('UNKNOWN', 'however WorkloadEntry demo/db is not found')),
]


def ask(mesh, asked):
    """What istiod says to a stream of this node."""
    istiod = mesh.istiod
    return clients.on_the_host(direct.streams, '127.0.0.1:15012', istiod.root_file, [(True, asked, test_istiod_itself.good(istiod))])[0]


def flat(asked):
    """The node as istiod's stand-in has read it."""
    place = asked.get('locality', {})
    return {**asked, 'locality': '/'.join(place[k] for k in ('region', 'zone', 'subZone') if k in place)}


def test_entries_as_the_stand_in_makes_them(mesh):
    for n, (spec, of) in enumerate(REGISTERED):
        group = mesh.group(f'vm{n}', **spec)
        asked = {**of, 'metadata': {**of['metadata'], 'AUTO_REGISTER_GROUP': group['name']}}
        wait_for('istiod to know the group', lambda a=asked: ask(mesh, a) == 'OK')
        expected = made_of(group, flat(asked))

        def made():
            return next((seen(e) for name, e in mesh.entries().items() if name == expected['name']), None)
        wait_for(f'its entry {expected["name"]}', made)
        assert made() == expected
        wait_for('its end', lambda: not mesh.entries())


def test_refusals_as_the_stand_in_says_them(mesh):
    for spec, asked, expected in REFUSED:
        if spec is not None:
            mesh.group('vm', **spec)
        verdict = wait_for(f'{expected}', lambda a=asked, e=expected: (v := ask(mesh, a)) and test_istiod_itself.agrees(v, e) and v)
        assert verdict[0] == expected[0]
    assert not mesh.entries()
    mesh.group('vm', template={'serviceAccount': 'cli'})  # better late
    wait_for('a stream that is taken', lambda: ask(mesh, node()) == 'OK')
    wait_for('its entry', mesh.entries)
