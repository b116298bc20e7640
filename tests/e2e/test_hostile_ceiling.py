"""security-rules.md G6: a worker in an attacker's hands, on a node that allows `strict` alone: what is captured stays captured.

The broker is the real one, and so are the programs; the worker is the test (hostile.py).  Plain sockets stand for the
pod's app, its Envoy and a host beside them.  Whoever answers says which of them it is.
"""
import collections
import contextlib
import errno
import fcntl
import os
import random
import select
import socket
import uuid

import pytest

from . import cast
from .hostile import LINK, NFDS, REDIRECT, SEALS, Broker, Rules, memfd
from .run import kill_all, wait_for
from .test_hostile_worker import kubelet, mounts, volume_of  # noqa: F401
from .test_redirect import APP, ENVOY, Bystander

PORTS = 53, 80, 1024, 8080, 9999
LATER = 8443  # of an app that does not listen yet
REQUESTS = 1_000_000 if os.environ.get('AGENTD_SOAK') else 100_000
ALL = REDIRECT['REDIRECT_OUTBOUND_ALL'] | REDIRECT['REDIRECT_INBOUND_ALL'] | REDIRECT['REDIRECT_DNS']


def row(kind, number):
    return REDIRECT[f'REDIRECT_PORT_{kind}'], number


def without(flag):
    return ALL & ~REDIRECT[f'REDIRECT_{flag}_ALL']


# Rules by which the pod would go past its Envoy, or somebody be asked in Envoy's or the app's place.
HOSTILE = {
    "the app's uid": {'proxy_uid': APP}, "the app's gid": {'proxy_gid': APP}, "root's uid": {'proxy_uid': 0},
    'its uid in another user namespace': {'proxy_uid': 65536 + APP},
    'nothing outbound': {'flags': without('OUTBOUND')}, 'nothing inbound': {'flags': without('INBOUND')},
    'one inbound port': {'flags': without('INBOUND'), 'rows': [row('INBOUND_INCLUDE', 443)]},
    'one group': {'flags': ALL | REDIRECT['REDIRECT_GROUPS_INCLUDE'], 'rows': [row('GROUP', 7)]},
    "all but the app's group": {'rows': [row('GROUP', APP)]}, 'no interface': {'interfaces': [b'eth0']},
    'no address': {'cidrs': [(0, REDIRECT['REDIRECT_CIDR_EXCLUDE'])]},
    'all addresses are its own': {'cidrs': [(0, REDIRECT['REDIRECT_CIDR_LOCAL'])]},
    'permissive': {'strict': 0}, 'another version': {'version': 77}, 'DNS at any port': {'dns_port': 0},
    **{f'{kind} {p}': {'rows': [row(kind, p)]} for p in (*PORTS, LATER, 15000, 15001, 15004, 15006, 15053)
       for kind in ('OUTBOUND_EXCLUDE', 'INBOUND_EXCLUDE')},
    **{f'{key} {p}': {key: p} for p in (*PORTS, LATER, 15000, 15004, 15020, 15021, 15090)
       for key in ('outbound_port', 'inbound_port', 'tunnel_port', 'dns_port')},
    **{f'{key} is another one': {key: p} for key, p in
       (('dns_port', 15001), ('dns_port', 15006), ('outbound_port', 15053), ('inbound_port', 15053))},
}


class Captured:
    """A pod, an app behind an Envoy; and a host beside it."""

    def __init__(self, node, **kw):
        self.node, self.pod, self.peer = node, node.pod('pod', **kw), Bystander(node)
        node.pods.append(self.peer)
        self.pod.write_token()  # and beside it where its cgroup is
        self.pod.call(cast.serve, 'app', 0, 0, PORTS)
        self.pod.call(cast.serve, 'envoy', ENVOY, ENVOY, [15001, 15006])
        self.peer.call(cast.serve, 'peer', 0, 0, PORTS)
        self.listened = self.pod.call(cast.listened)

    def begin(self, s):
        """As a worker of ours would, until its Envoy was there."""
        s.works('POD_ADD', self.pod.uid)
        assert self.set(s) == 0
        path = str(self.node.dir / 'envoy')
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            self.pod.call(cast.hold, path)
            connection, _ = listener.accept()
        with connection:
            s.works('PEER_OF', self.pod.uid, fds=[connection.fileno()])
        s.works('READY')
        self.check('its own rules')
        self.pod.call(cast.dial_on, 'out', ('tcp', APP, APP, self.peer.ip, 80, None), self.told('out'))
        self.peer.call(cast.dial_on, 'in', ('tcp', APP, APP, self.pod.ip, 80, None), self.told('in'))

    def told(self, name):
        return str(self.node.dir / f'dialled-{name}')

    def set(self, s, seals=SEALS, **changes):
        """Why it is refused; 0: it is in force."""
        fd = Rules(**changes).memfd(seals)
        packet, _ = s.ask('REDIRECT_SET', self.pod.uid, fds=[fd])
        os.close(fd)
        if not packet.code:
            told, counters = s.receive_of('REDIRECTED')
            assert told.id == packet.id and not told.code, told.why
            os.close(counters)
        return packet.code

    def check(self, what):
        """What the app dials goes to Envoy, what arrives for it too; nobody else is there to be asked."""
        rows = [('tcp', APP, APP, self.peer.ip, port, None) for port in PORTS]
        answers = self.pod.call(cast.dial, rows)
        answers += self.peer.call(cast.dial, [(*x[:3], self.pod.ip, *x[4:]) for x in rows])
        assert [x['who'] if isinstance(x, dict) else x for x in answers] == ['envoy'] * 2 * len(PORTS), what
        assert self.pod.call(cast.listened) - self.listened <= {('tcp', 15053), ('udp', 15053)}, what

    def check_all(self):
        """Of what was dialled meanwhile."""
        def who_answered(name):
            with open(self.told(name), encoding='ascii') as f:
                return collections.Counter(f.read().split())
        for name, place in ('out', self.pod), ('in', self.peer):
            wait_for('enough dials', lambda n=name: who_answered(n)['envoy'] > 10)
            place.call(cast.stop, name)
            who = who_answered(name)
            assert not who['peer'] + who['app'], (name, who)


def strict(node, *flags):
    """A worker's session on such a node."""
    node.capture()
    return Broker(node, *node.agentd.flags, '--redirect-allow', 'strict', '--max-pods', '4', *flags).one_session()


@pytest.fixture
def captured(node):
    """A pod of root's, and whose worker one is."""
    with strict(node) as s:
        scene = Captured(node)
        scene.begin(s)
        yield scene, s


def listens(s, pod):
    """The ports of the DNS proxy's sockets."""
    ports = set()
    for kind in 'UDP', 'TCP':
        with socket.socket(fileno=s.works('LISTEN', pod.uid, kind=LINK[f'LINK_LISTEN_DNS_{kind}'])) as listener:
            ports.add(listener.getsockname()[1])
    return ports


def test_no_request_lets_a_captured_pod_go(captured):
    scene, s = captured
    for n, (what, changes) in enumerate(HOSTILE.items()):
        assert scene.set(s, **changes) in (errno.EPERM, errno.EINVAL), what
        assert s.refused('REDIRECT_DEL', scene.pod.uid) == errno.EBUSY
        assert s.refused('POD_REMOVE', scene.pod.uid) == errno.EBUSY
        assert listens(s, scene.pod) == {15053}, what
        if n % 8 == 0:
            scene.check(what)
    # Memory that is changed behind the broker's back.
    for seal in fcntl.F_SEAL_WRITE, fcntl.F_SEAL_GROW, fcntl.F_SEAL_SHRINK:
        assert scene.set(s, seals=SEALS & ~seal) == errno.EINVAL
    scene.check('unsealed')
    scene.check_all()


def test_a_pod_whose_volume_was_taken_down(node, kubelet):
    """A kubelet's pod, which has its own copy of the mount: it goes when its processes have gone."""
    with strict(node, '--kubelet-root', kubelet) as s:
        scene = Captured(node, manifest=False)
        scene.begin(s)
        uid, volume = scene.pod.uid, volume_of(kubelet, scene.pod.uid)
        s.works('PUBLISH', uid, volume=b'mesh')
        for mounted in True, False:
            if not mounted:
                s.works('UNPUBLISH', uid, volume=b'mesh')
            assert bool(mounts(kubelet)) == mounted
            for op in 'REDIRECT_DEL', 'POD_REMOVE':
                assert s.refused(op, uid) == errno.EBUSY
            scene.check(f'mounted: {mounted}')
        kill_all(scene.pod.cgroup.path)
        s.works('REDIRECT_DEL', uid)
        s.works('POD_REMOVE', uid)
        assert volume.exists()


def test_no_socket_gets_a_port_of_the_apps(captured):
    scene, s = captured
    for kind in 'UDP', 'TCP':
        for family in socket.AF_INET, socket.AF_INET6:
            fd = s.works('DIAL', scene.pod.uid, kind=LINK[f'LINK_DIAL_{kind}'], arg=family)
            with socket.socket(fileno=fd) as mine, pytest.raises(OSError):
                mine.bind(('', LATER))


def odd_rules(r):
    """Good ones with some bytes changed, mostly in front."""
    data = bytearray(bytes(Rules()))
    for _ in range(r.randrange(1, 4)):
        data[r.randrange(60) if r.random() < 0.9 else r.randrange(len(data))] = r.choice((0, 1, r.randrange(256)))
    return Rules.from_buffer_copy(data).memfd()


@contextlib.contextmanager
def descriptors(r):
    fds = [memfd(), memfd(seals=0), os.open('/dev/null', os.O_RDONLY), os.open('/proc/self/ns/net', os.O_RDONLY),
           *(x.detach() for x in socket.socketpair()), *(odd_rules(r) for _ in range(200))]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def random_request(r, s, scene, fds):
    """READY and SERVED have their turn, and end a worker that says them out of it.  What is to be answered."""
    op = r.choice([name for name in NFDS if name not in ('READY', 'SERVED')])
    uid = r.choice((scene.pod.uid, scene.pod.uid, scene.pod.uid, scene.others[0], scene.others[1]))
    sent = s.send(op, uid, kind=r.choice((0, 1, 2, 3, 4, 0xffff)), fds=r.sample(fds, NFDS[op]),
                  arg=r.choice((0, 1, socket.AF_INET, socket.AF_INET6, r.randrange(1 << 32))),
                  state_id=bytes([r.randrange(4)]), volume=r.choice((b'', b'mesh', b'../mesh')))
    return set() if op == 'PONG' else {sent}


def take(s, asked):
    """The next packet: that request is answered.  What comes with it is closed."""
    packet, fd = s.hear() or (None, None)
    if fd is not None:
        os.close(fd)
    if packet and packet.what == LINK['LINK_REPLY']:
        asked.discard(packet.id)


def exchange(r, s, scene, fds):
    """Fifty requests.  What comes meanwhile is read: who only sends is not listened to, and killed for silence."""
    asked = set()
    for _ in range(50):
        asked |= random_request(r, s, scene, fds)
        while select.select([s.socket], [], [], 0)[0]:
            take(s, asked)
    while asked:
        take(s, asked)


def test_random_requests(captured):
    scene, s = captured
    seed = random.randrange(1 << 32)
    r = random.Random(seed)
    scene.others = [str(uuid.uuid4()) for _ in range(2)]
    with descriptors(r) as fds:
        for n in range(0, REQUESTS, 50):
            exchange(r, s, scene, fds)
            if n % (REQUESTS // 20) == 0:
                scene.check(f'seed {seed}, after {n} requests')
    assert not scene.node.agentd.complaints()
    assert s.refused('REDIRECT_DEL', scene.pod.uid) == errno.EBUSY, f'seed {seed}'
    scene.check(f'seed {seed}')
    scene.check_all()
