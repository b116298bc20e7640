"""Machines that register: istiod makes their WorkloadEntry, keeps it while their stream is there, and says why not.

The control plane's WorkloadGroups and WorkloadEntries are those of bare-metal-identity.md 4 (tests/istiod/registration.py).
"""
import json
import os

import pytest

from . import mesh
from .conftest import measured
from .identity import prepared
from .replacing import hand_over, kill_worker, upgrade
from .run import wait_for

SOAK = os.environ.get('AGENTD_SOAK')
RESTARTS, HAND_OVERS, GOAWAYS = (50, 20, 20) if SOAK else (2, 1, 2)
GROUP = {'namespace': 'demo', 'name': 'web', 'annotations': {'note': 'of the group'}, 'labels': {'tier': 'group', 'app': 'group'},
         'template': {'labels': {'tier': 'template', 'of': 'template', 'app': 'template'}, 'serviceAccount': 'server-sa',
                      'ports': {'http': 8080}, 'weight': 3}}
MACHINE = {'identity': 'certificate', 'locality': 'r1/z1', 'labels': {'app': 'web', 'istio-locality': 'other'},
           'env': {'ISTIO_META_AUTO_REGISTER_GROUP': 'web', 'ISTIO_META_NETWORK': 'net1'}}


@pytest.fixture
def node(make_node):
    return prepared(make_node(istiod_options=('--client-certificates',)))


def entries(node, how):
    return node.istiod.journal('entry', how=how)


def shown(pod):
    return next(p for p in pod.node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)


def wait_registered(pod):
    wait_for(f'{pod.label} to be registered', lambda: shown(pod).get('registration', {}).get('registered'))


def away_s(node, name):
    """For how long an entry was without a stream, each time."""
    times = {how: [e['time'] for e in entries(node, how) if e['name'] == name] for how in ('connected', 'disconnected')}
    return [next((c for c in times['connected'] if c > d), d) - d for d in times['disconnected']]


def test_an_entry_outlives_whatever_agentd_does(node):
    """Our restart, an upgrade, a hand-over, a GOAWAY: back within the grace, and a peer's requests go on."""
    node.istiod.order('group', **GROUP)
    server, client = node.pod('server', sa='server-sa', **MACHINE), node.pod('client', sa='client-sa')
    node.istiod.set(client.id, **mesh.client(server))
    node.istiod.set(server.id, **mesh.server([client]))
    node.agentd.start()
    server.start_app(mesh.APP)
    for pod in (server, client):
        pod.start_envoy()
    server.wait_ready()
    client.wait_ready()
    wait_for('the first answer', lambda: client.netns.http(mesh.OUTBOUND)[0] == 200)
    wait_registered(server)
    entry = entries(node, 'created')[0]['entry']
    assert entry['name'] == f'web-{server.ip}-net1'
    assert entry['spec'] == {
        'address': server.ip, 'ports': {'http': 8080}, 'serviceAccount': 'server-sa', 'weight': 3, 'network': 'net1',
        'locality': 'r1/z1', 'labels': {'app': 'web', 'tier': 'group', 'of': 'template'}}
    assert set(entry['annotations']) == {'note', 'istio.io/autoRegistrationGroup'}
    status, text = node.agentd.ctl_text('pods', server.label)
    assert f'group web, entry {entry["name"]}: registered' in text and status == 0

    load = client.load(mesh.OUTBOUND)
    node.istiod.order('grace', seconds=60)  # an Envoy whose socket nobody listened at comes again after up to half a minute
    for n in range(RESTARTS):
        opened = len(entries(node, 'connected'))
        if n % 2:
            kill_worker(node)
        else:
            node.agentd.kill()
            node.agentd.start()
        wait_for('its stream', lambda opened=opened: len(entries(node, 'connected')) > opened)
        wait_registered(server)
    node.istiod.order('grace', seconds=10)
    for replace in [upgrade, hand_over] * HAND_OVERS:
        opened = len(entries(node, 'connected'))
        replace(node)
        wait_for('its stream', lambda opened=opened: len(entries(node, 'connected')) > opened)
    for _ in range(GOAWAYS):
        wait_registered(server)
        opened = len(entries(node, 'connected'))
        node.istiod.order('goaway', grace=10)
        wait_for('its stream', lambda opened=opened: len(entries(node, 'connected')) > opened)
    load.more(20)
    counts = load.stop()
    measured.append(f'registration: away {max(away_s(node, entry["name"])):.2f} s at most in {RESTARTS} restarts, {HAND_OVERS} upgrades, '
                    f'{HAND_OVERS} hand-overs, {GOAWAYS} GOAWAYs; {counts["ok"]} requests, {counts["failed"]} failed')
    assert counts['failed'] == 0
    assert not entries(node, 'deleted') and len(entries(node, 'created')) == 1


def problem(pod):
    return shown(pod)['problems'].get('registration', '')


def refused(pod, said, to_do):
    wait_for(said, lambda: said in problem(pod) and to_do in problem(pod))
    status, text = pod.node.agentd.ctl_text('pods')
    assert status == 1 and said in text
    assert not shown(pod)['registration']['registered'] and not shown(pod)['ready']


def test_what_istiod_refuses_is_told_in_its_words(node):
    pod = node.pod('vm', env={'ISTIO_META_AUTO_REGISTER_GROUP': 'late'})
    db = node.pod('db', env={'ISTIO_META_WORKLOAD_ENTRY': 'db-1'})
    foreign = node.pod('web', env={'ISTIO_METAJSON_X': json.dumps({'AUTO_REGISTER_GROUP': 'late'})})
    node.agentd.start()
    for p in (pod, db, foreign):
        p.start_envoy()
    refused(pod, 'cannot find WorkloadGroup demo/late', 'create the group')
    refused(db, 'however WorkloadEntry demo/db-1 is not found', 'create the entry')
    node.istiod.order('group', namespace='demo', name='late', template={'serviceAccount': 'other'})
    refused(pod, 'service account mismatch: "vm" vs "other"', 'manifest\'s service_account')
    node.istiod.order('group', namespace='demo', name='late')
    node.istiod.order('entry', namespace='demo', name='db-1')
    for p in (pod, db):
        wait_registered(p)
        assert not problem(p)
    assert [e['name'] for e in entries(node, 'created')] == [f'late-{pod.ip}']
    assert 'registration' not in shown(foreign)


def test_a_group_that_goes_and_comes(node):
    pod = node.pod('vm', env={'ISTIO_META_AUTO_REGISTER_GROUP': 'web'})
    node.istiod.order('grace', seconds=0.2)
    node.istiod.order('group', namespace='demo', name='web')
    node.agentd.start()
    pod.start_envoy()
    wait_registered(pod)
    node.istiod.order('group-gone', namespace='demo', name='web')
    assert len(entries(node, 'deleted')) == 1
    node.istiod.order('group', namespace='demo', name='web')  # its stream is still there
    assert len(entries(node, 'created')) == 2
    node.agentd.kill()  # for longer than the grace
    wait_for('the end of the entry', lambda: len(entries(node, 'deleted')) == 2)
    node.agentd.start()
    wait_for('a new one', lambda: len(entries(node, 'created')) == 3)
    pod.envoy.kill()
    wait_for('its end', lambda: len(entries(node, 'deleted')) == 3)
    assert not shown(pod)['registration']['registered']


def registered_at(pod, address):
    def is_there():
        registration = shown(pod).get('registration', {})
        return registration.get('registered') and registration['entry'] == f'web-{address}-net1'
    wait_for(f'{pod.label} to be registered at {address}', is_there)
    return 'behind NAT' in pod.node.agentd.ctl_text('pods', pod.label)[1]


def test_the_address_of_a_machine(node):
    """Where its network leads out, not a container engine's bridge that was there first; or what its owner says, also behind NAT."""
    node.istiod.order('group', **GROUP)
    seen, said = node.pod('seen', sa='server-sa', **MACHINE), node.pod('said', sa='server-sa', **{**MACHINE, 'env': {**MACHINE['env'], 'INSTANCE_IP': '192.0.2.9'}})
    for pod in seen, said:
        pod.netns.ip('link', 'del', 'eth0')
        pod.netns.ip('link', 'add', 'docker0', 'type', 'bridge')
        pod.netns.ip('addr', 'add', '172.17.0.1/16', 'dev', 'docker0')
        pod.netns.ip('link', 'set', 'docker0', 'up')
        pod.ip = node.network.plug(pod.netns)
    node.agentd.start()
    for pod in seen, said:
        pod.start_envoy()
    assert not registered_at(seen, seen.ip)
    assert registered_at(said, '192.0.2.9')
    said.write_manifest(env={**MACHINE['env'], 'ISTIO_SVC_IP': said.ip})
    assert not registered_at(said, said.ip)
