"""What one pod can learn or pretend through its sockets: nothing that is not its own."""
import ctypes
import hashlib
import json
import os
import random
from pathlib import Path

from cryptography import x509
from envoy.config.core.v3 import base_pb2
from google.protobuf.internal import encoder

from . import clients, mesh
from .conftest import start_pair
from .netns import Netns
from .run import wait_for

PR_SET_DUMPABLE, CLONE_NEWUSER = 4, 0x10000000


def sans(chain):
    leaf = x509.load_pem_x509_certificates(chain.encode())[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def two_pods(node):
    """Pods of two service accounts without Envoys; the control plane has something for each."""
    one, two = pods = [node.pod('one'), node.pod('two')]
    for pod in pods:
        node.istiod.set(pod.id, listeners=[])
    node.agentd.start()
    for pod in pods:
        pod.wait_served()
    return one, two


def test_root_of_a_pod_is_not_root_of_the_node(node):
    """It was given the path of admin.sock, and is uid 0."""
    one, _ = two_pods(node)
    admin = node.agentd.run / 'admin.sock'
    assert clients.ask_admin(admin, '/healthz') == (200, 'ok\n')
    for page in '/healthz', '/metrics', '/status', '/pods', '/logging':
        status, text = one.call(clients.ask_admin, admin, page)
        assert status == 403 and 'network namespace' in text and len(text) < 200


def _as_root_of_its_own(fd, out):
    os.setgroups([])
    os.setresgid(1000, 1000, 1000)
    os.setresuid(1000, 1000, 1000)
    libc = ctypes.CDLL(None)
    if libc.prctl(PR_SET_DUMPABLE, 1) or libc.unshare(CLONE_NEWUSER):
        os._exit(1)
    Path('/proc/self/uid_map').write_text('0 1000 1')
    os.write(out, json.dumps([os.getuid(), *clients.ask_admin(f'/proc/self/fd/{fd}', '/status')]).encode())


def test_root_of_a_user_namespace_is_not_root_of_the_node(node):
    """It has the node's network namespace, and a socket that everybody may connect to."""
    node.agentd.start()
    admin = node.agentd.run / 'admin.sock'
    admin.chmod(0o666)
    fd, (reader, writer) = os.open(admin, os.O_PATH), os.pipe()
    if not (pid := os.fork()):
        try:
            _as_root_of_its_own(fd, writer)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding='utf-8') as told:
        uid, status, text = json.loads(told.read())
    os.close(fd)
    os.waitpid(pid, 0)
    assert (uid, status) == (0, 403) and text == 'only root may use this socket\n'


def test_each_socket_gives_its_own_pods_secret(node):
    keys = set()
    for pod in two_pods(node):
        # `default` and any other plain name are the pod's own, whatever the name or the node says.
        names = ['default', 'ROOTCA', 'spiffe-of-somebody-else']
        for ask in (clients.fetch_secrets, clients.stream_secrets):
            got = pod.call(ask, pod.mount / 'socket', names)
            assert set(got) == set(names)
            assert sans(got['default']['chain']) == [mesh.spiffe('demo', pod.sa)]
            assert got['spiffe-of-somebody-else'] == got['default']
            assert got['ROOTCA']['root'] == node.istiod.root_file.read_text() and not got['ROOTCA']['key']
        keys.add(got['default']['key'])
    assert len(keys) == 2
    body = {line for key in keys for line in key.splitlines() if not line.startswith('-')}
    assert not node.leaks(body)


def test_a_restarted_sandbox_is_the_same_pod(node):
    """A rebooted node: same uid and cgroup, another network namespace; who comes beside it is refused as before."""
    one, two = two_pods(node)
    assert one.is_served()
    one.netns.remove()  # with the only process of its cgroup
    one.wait_emptied()
    one.netns = Netns(one.netns.name)
    one.ip = node.network.plug(one.netns)
    assert one.is_served()
    assert 'code' in two.call(clients.fetch_secrets, one.mount / 'socket', ['default'], 10)


def test_another_pods_socket_and_the_hosts_way_are_closed(node):
    one, two = two_pods(node)
    # From the host's network namespace, before and after the pod's own is known.
    before = from_host(one)
    assert 'code' in before, before
    assert one.is_served()
    for got in (from_host(one), two.call(clients.fetch_secrets, one.mount / 'socket', ['default'], 10)):
        assert 'code' in got, got
    assert one.is_served()
    sockets = next(p for p in node.agentd.ctl('pods')['pods'] if p['uid'] == one.uid)['sockets']
    assert sockets['refused_by']['netns'] >= 3 and sockets['refusals'][-1]['why']


def from_host(pod):
    return clients.on_the_host(clients.fetch_secrets, pod.mount / 'socket', ['default'], 10)


def test_a_stream_carries_its_own_pods_token(node):
    client, server = start_pair(node)
    for _ in range(2):
        node.agentd.kill()
        node.agentd.start()
        wait_for('both connected', lambda: [x['ads']['connected'] for x in node.agentd.ctl('xds')['xds']] == [True, True])
    streams = {}
    for record in node.istiod.journal():
        if record['event'] in ('open', 'node'):
            streams.setdefault(record['stream'], {}).update(record)
    assert len(streams) >= 6
    for s in streams.values():
        pod = {p.uid: p for p in (client, server)}[s['token_pod']['uid']]
        assert s['id'].split('~')[2] == f'{pod.name}.{pod.ns}'
        assert s['metadata']['SERVICE_ACCOUNT'] == pod.sa and s['identity'] == f'ns/{pod.ns}/sa/{pod.sa}'
    assert not node.istiod.journal('refused')


def test_a_second_stream_ends_the_first(node):
    one, _ = two_pods(node)
    request = clients.listener_request([b''])
    assert one.call(clients.displaced, one.mount / 'XDS', request) == 'OK'


def _varint_field(number, value):
    return encoder.TagBytes(number, 0) + encoder._VarintBytes(value)


class Mutation:
    """A node as no Envoy would send it; the wire is kept legal, for both ends have to read it."""

    def __init__(self, rng, envoys, foreign):
        self.rng = rng
        parts = [self.other(envoys) for _ in range(rng.randrange(4))]
        parts += [self.id(foreign) for _ in range(rng.choice([0, 1, 1, 2]))]
        parts += [self.metadata(foreign) for _ in range(rng.choice([0, 1, 1, 3]))]
        rng.shuffle(parts)
        self.rest = b''.join(data for mine, data in parts if not mine)
        wire = [data for _, data in parts]
        cut = rng.randrange(len(wire) + 1) if rng.random() < 0.2 else len(wire)
        # The field `node` itself may come in two pieces, which are one message.
        self.pieces = [b''.join(wire[:cut]), b''.join(wire[cut:])] if cut < len(wire) else [b''.join(wire)]

    def other(self, envoys):
        rng = self.rng
        return False, rng.choice([
            lambda: envoys,
            lambda: clients._field(2, rng.randbytes(rng.randrange(20)).hex().encode()),
            lambda: clients._field(4, base_pb2.Locality(region='r', zone=str(rng.random())).SerializeToString()),
            lambda: clients._field(6, b'envoy'),
            lambda: clients._field(9, base_pb2.Extension(name='x' * rng.randrange(300)).SerializeToString()),
            lambda: clients._field(10, b'a.feature'),
            # Fields that nobody knows, of all wire types.
            lambda: clients._field(rng.randrange(100, 5000), rng.randbytes(rng.randrange(200))),
            lambda: _varint_field(rng.randrange(100, 5000), rng.getrandbits(63)),
            lambda: encoder.TagBytes(777, 1) + rng.randbytes(8),
            lambda: encoder.TagBytes(778, 5) + rng.randbytes(4),
        ])()

    def id(self, foreign):
        return True, clients._field(1, self.rng.choice([
            foreign['id'], '', 'sidecar~~~', 'ztunnel~1.2.3.4~a.b~c', 'x' * 5000, foreign['id'] + '~']).encode())

    def metadata(self, foreign):
        node = base_pb2.Node()
        values = {**foreign['metadata'], 'LABELS': {'app': 'else'}, 'x' * self.rng.randrange(1, 100): self.rng.random()}
        keys = self.rng.sample(sorted(values), self.rng.randrange(len(values) + 1))
        node.metadata.update({k: values[k] for k in keys})
        payload = node.metadata.SerializeToString()
        if keys and self.rng.random() < 0.3:  # an entry can be on the wire twice
            node.metadata.update({keys[0]: 'again'})
            payload += node.metadata.SerializeToString()
        return True, clients._field(3, payload)


def test_istiod_sees_the_node_that_agentd_rendered(node, count=1000):
    node.agentd.plane.update(opens_per_second=1000, pod_opens_per_second=1000, pod_opens_burst=1000)
    node.agentd.settings.update(pod_requests_per_second=10000, pod_requests_burst=100000, pods_requests_per_second=1000000)
    one, two = two_pods(node)
    assert one.call(clients.ads, one.mount / 'XDS', [clients.listener_request([b''])]) == ['answered']
    assert two.call(clients.ads, two.mount / 'XDS', [clients.listener_request([b''])]) == ['answered']
    rendered, foreign = one.bootstrap()['node'], two.bootstrap()['node']
    assert rendered['id'] == f'sidecar~{one.ip}~one.demo~demo.svc.cluster.local'
    assert rendered['metadata']['INSTANCE_IPS'] == one.ip
    envoys = b''.join(clients._field(9, base_pb2.Extension(name=f'envoy.{i}').SerializeToString()) for i in range(500))

    rng = random.Random(1)
    for delta in (False, True):
        mutations = [Mutation(rng, envoys, foreign) for _ in range(count // 2)]
        seen_before = len(node.istiod.journal('node'))
        requests = [clients.listener_request(m.pieces, delta) for m in mutations]
        ended = one.call(clients.ads, one.mount / 'XDS', requests, delta)
        assert set(ended) == {'answered'}
        seen = node.istiod.journal('node')[seen_before:]
        assert len(seen) == len(mutations)
        for mutation, at_istiod in zip(mutations, seen):
            assert at_istiod['id_hex'] == [rendered['id'].encode().hex()]
            assert at_istiod['metadata'] == rendered['metadata']
            assert len(at_istiod['metadata_hex']) == 1
            assert at_istiod['rest_sha256'] == hashlib.sha256(mutation.rest).hexdigest()
        assert len({tuple(s['metadata_hex']) for s in seen}) == 1
