"""istiod goes, comes back, grows old and changes its root, under traffic of both kinds of pod: no request fails."""
import base64
import os

import pytest

from tests.e2e.pod import ADMIN
from tests.e2e.run import wait_for
from tests.istiod.ca import pem

from .conftest import start
from .world import SERVICE, World


class Traffic:
    """A pod of ours and one with pilot-agent that ask each other without pause."""

    def __init__(self, world, **env):
        self.world = world
        self.ours, self.theirs = world.pod('ours', env=env), world.sidecar('theirs', env=env).redirect()
        self.pods = start(self.ours, self.theirs)
        self.loads = [a.load(SERVICE, b.vip) for a, b in ((self.ours, self.theirs), (self.theirs, self.ours))]

    def more(self, n=50):
        for load in self.loads:
            load.more(n)

    def synced(self):
        for pod in self.pods:
            wait_for(f'{pod.label} to have ACKed all', lambda p=pod: self.world.istiod.synced(p))

    def stop(self):
        """No request failed, no push was refused."""
        counts = [load.stop() for load in self.loads]
        assert not any(c['failed'] for c in counts), counts
        for kind, of in self.ads()['types'].items():
            assert of['nacked'] == 0, kind
        wait_for('all secrets to be ACKed', lambda: (sds := self.xds()['sds'])['pushes'] == sds['acks'])

    def xds(self):
        return {x['pod']: x for x in self.world.agentd.ctl('xds')['xds']}[self.ours.label]

    def ads(self):
        return self.xds()['ads']

    def knows(self, name):
        """Both Envoys have this cluster."""
        for pod in self.pods:
            wait_for(f'{name} at {pod.label}', lambda p=pod: name in p.netns.http(ADMIN, '/clusters')[1])


def outside(name):
    """Something that is new to all pods."""
    return {'apiVersion': 'networking.istio.io/v1', 'kind': 'ServiceEntry', 'metadata': {'name': name, 'namespace': 'demo'}, 'spec': {
        'hosts': [f'{name}.example'], 'location': 'MESH_EXTERNAL', 'resolution': 'STATIC',
        'ports': [{'number': 80, 'name': 'http', 'protocol': 'HTTP'}], 'endpoints': [{'address': '192.0.2.7'}]}}


def test_outage(world):
    traffic = Traffic(world)
    istiod = world.istiod
    istiod.process.kill()
    wait_for('agentd to say so', lambda: not traffic.ads()['connected'])
    wait_for('its status to say so', lambda: world.agentd.ctl_text('status')[0] == 1)
    istiod.configure('new', outside('while-away'))
    os.kill(world.agentd.worker_pid(), 9)
    wait_for('the next worker', lambda: traffic.ads()['why_not'])
    traffic.more(200)

    istiod.api.stall(True)  # half-ready: it runs, and knows nothing yet
    istiod.start()
    wait_for('istiod to run', lambda: istiod.said('Starting Istiod Server'))
    traffic.more(100)
    assert not traffic.ads()['connected']
    istiod.api.stall(False)
    istiod.wait_ready()
    traffic.synced()
    traffic.knows('while-away.example')
    wait_for('agentd to be content', lambda: world.agentd.ctl_text('status')[0] == 0)
    traffic.more(50)
    traffic.stop()


def test_goaway_by_age(make_node):
    world = make_node(kind=World, flags=['--keepaliveMaxServerConnectionAge', '5s']).start()
    traffic = Traffic(world)
    for n in range(3):
        wait_for('another stream', lambda n=n: traffic.ads()['opened'] >= n + 2)
        world.istiod.configure(f'new-{n}', outside(f'after-{n}'))
        traffic.knows(f'after-{n}.example')
    traffic.more()
    traffic.stop()
    assert world.agentd.metric('agentd_certificates_cached') == 1


def test_root_rotation(make_node):
    world = make_node(kind=World, env={'ISTIO_MULTIROOT_MESH': 'true'}).start()
    traffic = Traffic(world, SECRET_TTL='12s')
    a, b = (world.istiod.authority(name) for name in 'ab')
    for issuer, roots in ('a', 'ab'), ('b', 'ab'), ('b', 'b'):
        world.istiod.use_authority(issuer, roots)
        traffic.theirs.write_root()
        numbers = {f'{world.istiod.authority(r).root.serial_number:x}' for r in roots}
        for pod in traffic.pods:
            wait_for(f'{pod.label} to trust {roots}', lambda p=pod, n=numbers: p.envoy_serials()[1] == n)
            wait_for(f'{pod.label} to have a certificate of {issuer}', lambda p=pod, i=issuer: issued_by(p, world.istiod.authority(i)))
    assert pem(a.root) not in world.istiod.root_file.read_text()
    assert pem(b.root) in world.istiod.root_file.read_text()
    wait_for('agentd to be content', lambda: world.agentd.ctl_text('status')[0] == 0)
    traffic.more()
    traffic.stop()


def issued_by(pod, authority):
    """Its chain has that intermediate."""
    secrets = pod.netns.json(ADMIN, '/config_dump?resource=dynamic_active_secrets')['configs']
    chain = next(s['secret']['tls_certificate']['certificate_chain'] for s in secrets if s['name'] == 'default')
    return pem(authority.certificate).encode() in base64.b64decode(chain['inline_bytes'])


@pytest.mark.parametrize('signal', [15, 9], ids=['orderly', 'killed'])
def test_restart(world, signal):
    traffic = Traffic(world)
    world.istiod.process.send(signal)
    world.istiod.process.wait(60)
    world.istiod.start().wait_ready()
    traffic.synced()
    world.istiod.configure('new', outside('after'))
    traffic.knows('after.example')
    traffic.more()
    traffic.stop()
