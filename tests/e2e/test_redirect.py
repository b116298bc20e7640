"""Traffic redirection by eBPF: programs talk by address, and both Envoys carry what they say."""
import sys
import time

import pytest

from . import clients, mesh, sockets
from .netns import Netns
from .pod import HERE
from .run import Process, sh, wait_for


def captured_pair(node):
    server, client = (node.pod(n) for n in ('server', 'client'))
    node.istiod.set(client.id, **mesh.captured_client(server))
    node.istiod.set(server.id, **mesh.captured_server([client]))
    server.start_app(mesh.APP, '0.0.0.0')
    for pod in (server, client):
        pod.start_envoy()
    for pod in (server, client):
        pod.wait_ready()
    return client, server


def test_two_programs_talk_by_address(capturing):
    node = capturing()
    node.agentd.start()
    client, server = captured_pair(node)

    def answer():
        status, content = client.call(clients.get_json, f'http://{server.ip}:{mesh.APP}/hello')
        return status == 200 and content
    assert f'URI={mesh.spiffe(client.ns, client.sa)}' in wait_for('the first answer', answer)['xfcc']


# --- decisions, without an Envoy: plain sockets of its user in its place ---
ENVOY, APP = 1337, 1000
EXCLUDED = 9999


class Bystander:
    """Another host of the pods' network, outside of every pod."""

    def __init__(self, node, name='peer'):
        self.netns, self.cgroup, self.dir = Netns(f'{node.name}.{name}'), node.cgroup(name), node.dir
        self.ip = node.network.plug(self.netns)
        self.tokens = []

    def call(self, function, *args):
        return self.netns.submit(self.cgroup, function, *args).result(60)

    def remove(self):
        self.cgroup.remove()
        self.netns.remove()


def serve(place, uid, *ports):
    log = place.dir / f'serve-{uid}-{time.monotonic_ns()}.log'  # what an earlier one said is no sign
    process = Process(place.netns.command(sys.executable, HERE / 'sockets.py', 'serve', uid, *ports), log, place.cgroup)
    wait_for('sockets to be served', lambda: 'serving' in log.read_text())
    return process


@pytest.fixture
def table(capturing):
    """A pod with sockets of an Envoy and an app, and a host beside it; both families."""
    node = capturing()
    node.agentd.start()
    pod = node.pod('pod', redirect={'istio_local_outbound_ports_exclude': str(EXCLUDED)}).wait_served()
    peer = Bystander(node)
    node.pods.append(peer)
    pod.ip6, peer.ip6 = 'fd77::1', 'fd77::2'
    for place in (pod, peer):
        place.netns.ip('addr', 'add', f'{place.ip6}/64', 'dev', 'eth0', 'nodad')
        sh(*place.netns.command('sysctl', '-qw', 'net.ipv4.ip_unprivileged_port_start=0'))
    serve(pod, ENVOY, 15001, 15006, 15021, 15090, 15002)
    serve(pod, APP, 8080, EXCLUDED, 15020, 15008, 53)
    serve(peer, 0, 80, EXCLUDED, 53)
    return pod, peer


def live(pod):
    """The first word of an Envoy: from it the broker knows the pod's network namespace."""
    wait_for('its secret', pod.is_served)


def outbound(pod, peer, v6):
    """uid, gid, to, port, from, where it ends: the table of istio-agent.md 11.9, without DNS."""
    own, other = (pod.ip6, peer.ip6) if v6 else (pod.ip, peer.ip)
    rows = [(APP, APP, other, 80, None, 15001), (APP, APP, other, EXCLUDED, None, EXCLUDED), (0, 0, other, 80, None, 15001),
            (APP, APP, other, 53, None, 15001), (APP, APP, own, 8080, None, 8080),
            (ENVOY, ENVOY, other, 80, None, 80), (ENVOY, ENVOY, own, 8080, None, 15006),
            (ENVOY, ENVOY, own, 15020, None, 15006), (ENVOY, ENVOY, own, 15008, None, 15008),
            (ENVOY, ENVOY, own, 53, None, 15006), (ENVOY, APP, other, 80, None, 80), (APP, ENVOY, other, 80, None, 80),
            (ENVOY, APP, own, 8080, None, 15006), (APP, ENVOY, own, 8080, None, 8080)]
    if not v6:
        rows += [(APP, APP, '127.0.0.1', 8080, None, 8080), (APP, APP, '127.0.0.9', 8080, None, 8080),
                 (ENVOY, ENVOY, '127.0.0.1', 8080, None, 8080), (ENVOY, ENVOY, '127.0.0.9', 8080, None, 15006),
                 (APP, APP, own, 8080, '127.0.0.6', 8080), (ENVOY, ENVOY, own, 8080, '127.0.0.6', 8080),
                 (ENVOY, ENVOY, '127.0.0.6', 15002, '127.0.0.1', 15006)]  # what istio-validation asks
    return rows


@pytest.mark.parametrize('v6', [False, True])
def test_verdicts(table, v6):
    pod, peer = table
    own, other = (pod.ip6, peer.ip6) if v6 else (pod.ip, peer.ip)
    assert peer.call(sockets.dropped, own, 8080), 'strict: closed until the Envoy is there'
    assert peer.call(sockets.dial, own, 15020)['port'] == 15020
    live(pod)
    for uid, gid, to, port, source, expected in outbound(pod, peer, v6):
        seen = pod.call(sockets.dial, to, port, uid, gid, source)
        assert isinstance(seen, dict) and seen['port'] == expected, (uid, gid, to, port, source, seen)
        assert seen['peername'] == to  # the program sees what it dialled
        if expected in (15001, 15006):
            assert seen['original'] == (f'[{to}]:{port}' if v6 else f'{to}:{port}')
        if expected == 15001:
            assert seen['sockname'] == seen['peer'] == own  # and so does Envoy
    for port, expected in ((8080, 15006), (53, 15006), (15001, 15006), (4242, 15006), (15008, 15008), (15020, 15020),
                           (15021, 15021), (15090, 15090)):
        seen = peer.call(sockets.dial, own, port)
        assert seen['port'] == expected and seen['peer'] == other, (port, seen)
        if expected == 15006:
            assert seen['original'] == (f'[{own}]:{port}' if v6 else f'{own}:{port}')
