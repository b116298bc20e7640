"""What a stock istiod refuses, told directly and through agentd; and Envoys that do not read."""
import os
import signal

import pytest

from tests.e2e import test_istiod_itself as itself
from tests.e2e.pod import ADMIN
from tests.e2e.run import wait_for

from .conftest import start
from .test_life import outside
from .test_twins import fetch
from .world import SERVICE, World


@pytest.fixture
def stock(make_node):
    """istiod alone, as the rows of the development control plane's own test want it."""
    world = make_node(kind=World, env={'PILOT_MAX_REQUESTS_PER_SECOND': '1000'})
    istiod = world.istiod.wait_ready()
    istiod.address = '127.0.0.1:15012'
    return istiod


def test_tokens_as_the_stand_in_judges_them(stock):
    itself.judge_tokens(stock)


@pytest.mark.parametrize('delta', [False, True], ids=['sotw', 'delta'])
def test_nodes_as_the_stand_in_judges_them(stock, delta):
    itself.judge_nodes(stock, delta, but=('ztunnel', 'agentgateway'))


def test_csrs_as_the_stand_in_judges_them(stock):
    itself.judge_csrs(stock)


def test_a_node_that_claims_to_be_another(world):
    ours, theirs = world.pod('ours'), world.sidecar('theirs')
    start(ours, theirs)
    wanted = {f'type.googleapis.com/envoy.config.{kind}': [] for kind in ('cluster.v3.Cluster', 'listener.v3.Listener')}
    metadata = {'NAMESPACE': 'demo', 'SERVICE_ACCOUNT': 'ours', 'INSTANCE_IPS': ours.ip, 'CLUSTER_ID': 'Kubernetes'}

    def got(name, ip, by=ours, **other):
        node = {'id': f'sidecar~{ip}~{name}.demo~demo.svc.cluster.local', 'metadata': {**metadata, **other}}
        return wait_for(f'all that {name} gets', lambda: all((raw := by.call(fetch, by.xds, node, wanted)).values()) and raw)
    own = got('ours', ours.ip)
    assert got('theirs', theirs.ip, by=theirs, SERVICE_ACCOUNT='theirs', INSTANCE_IPS=theirs.ip) != own
    assert got('theirs', theirs.ip, SERVICE_ACCOUNT='theirs', INSTANCE_IPS=theirs.ip, namespace='other') == own
    assert got('theirs', theirs.ip, LABELS={'app': 'theirs'}, CLUSTER_ID='else', GENERATOR='grpc') == own


def test_a_token_that_ends(world):
    ours, theirs = world.pod('ours'), world.sidecar('theirs').redirect()
    ours.write_token(ttl=25)  # it must see its Envoy's start
    start(ours, theirs)
    load = ours.load(SERVICE, theirs.vip)

    wait_for('the end of its token', lambda: not world.agentd.ctl('pods', ours.label)['pods'][0]['token']['valid'])
    assert world.istiod.synced(ours)  # a stream that is open is not looked at again
    world.istiod.process.kill()
    world.istiod.start().wait_ready()
    wait_for('the reason', lambda: 'token' in ads(world, ours)['why_not'])
    load.more(50)
    ours.write_token()
    wait_for('its stream', lambda: world.istiod.synced(ours))
    load.more(50)
    assert load.stop()['failed'] == 0


def ads(world, pod):
    return {x['pod']: x['ads'] for x in world.agentd.ctl('xds')['xds']}[pod.label]


MANY, PUSHES = 1500, 12


def test_a_stuck_reader_at_the_only_push_slot(make_node):
    """istiod holds the slot until a push is written; agentd ends a stream that is not read."""
    world = make_node(kind=World, env={'PILOT_PUSH_THROTTLE': '1'})
    world.agentd.settings |= {'pod_queued_mib': 1}
    world.agentd.plane['unread_stream_s'] = 2
    world.start()
    stuck, theirs = world.pod('stuck'), world.sidecar('theirs')
    start(stuck, theirs)
    os.kill(stuck.envoy.pid, signal.SIGSTOP)
    for n in range(PUSHES):
        world.istiod.configure('many', *(outside(f'{n}-{i}') for i in range(MANY)))
        wait_for(f'push {n} at the other', lambda n=n: f'{n}-{MANY - 1}.example' in theirs.netns.http(ADMIN, '/clusters')[1], 150)
    wait_for('the stream to end', lambda: ads(world, stuck)['unread'] > 0)
    os.kill(stuck.envoy.pid, signal.SIGCONT)
    wait_for('the newest', lambda: f'{PUSHES - 1}-{MANY - 1}.example' in stuck.netns.http(ADMIN, '/clusters')[1])
    wait_for('all ACKed', lambda: world.istiod.synced(stuck))
