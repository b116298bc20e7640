"""A worker in an attacker's hands gets from the broker what the table of requests allows, and nothing else.

The broker is the real one; its worker hands the test its socket (hostile.py).  Each request is judged by its answer
*and* by what it did: to the files around, to descriptors, to the broker.
"""
import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import stat
import subprocess
import uuid
from pathlib import Path

import pytest

from .hostile import MIB, LINK, SEALS, Broker, Gone, Request, memfd, snapshot
from .run import PATIENCE_S, wait_for

ODD = (0xffff, 0xfffffffe, 77)


@contextlib.contextmanager
def closing(*fds):
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


@contextlib.contextmanager
def unchanged(node):
    """Outside the run directory nothing changes; inside, nothing but what is named so (pods, state, ...)."""
    around = [node.agentd.manifests, node.istiod.dir / 'ca', node.dir / 'hostile']
    before = snapshot(*around)
    yield
    assert snapshot(*around) == before
    names = {p.name for p in node.agentd.run.iterdir()}
    assert names <= {'admin.sock', 'csi.sock', 'pods', 'state', 'lock', 'handover'}, names
    assert all(uuid.UUID(p.name) for p in (node.agentd.run / 'pods').iterdir())


def peer(netns, kind=socket.SOCK_STREAM):
    """Both ends of a unix connection made in that network namespace."""
    with netns.inside():
        return socket.socketpair(socket.AF_UNIX, kind)


def test_a_stranger_is_no_pod(node):
    """Nothing is had for a pod that was not added, nor for more pods than there may be."""
    broker, uid = Broker(node, '--max-pods', '2'), str(uuid.uuid4())
    pod = node.pod('one')
    with broker.one_session() as s, unchanged(node), closing(memfd()) as fds:
        for op, kw in {'LISTEN': {}, 'WRITE': {'fds': fds}, 'PEER_OF': {'fds': fds},
                       'FOLLOW': {'kind': LINK['LINK_FOLLOW_TOKEN']}}.items():
            assert s.refused(op, uid, **kw) == errno.ENOENT
            assert s.refused(op, pod.uid, **kw) == errno.ENOENT
        assert not list((node.agentd.run / 'pods').iterdir())
        s.works('POD_ADD', uid)
        s.works('POD_ADD', uid)
        s.works('POD_ADD', pod.uid)
        assert s.refused('POD_ADD', str(uuid.uuid4())) == errno.EUSERS
        assert {p.name for p in (node.agentd.run / 'pods').iterdir()} == {uid, pod.uid}


def test_odd_numbers_are_refused(node):
    broker, uid = Broker(node), str(uuid.uuid4())
    with broker.one_session() as s, unchanged(node), closing(memfd()) as fds:
        s.works('POD_ADD', uid)
        for n in ODD:
            kind = n & 0xffff
            assert s.refused('LISTEN', uid, kind=kind)
            assert s.refused('WRITE', uid, kind=kind, fds=fds)
            assert s.refused('FOLLOW', uid, kind=kind)
            assert s.refused('FOLLOW', kind=LINK['LINK_FOLLOW_ROOT'], arg=n)
            assert s.refused('FOLLOW', kind=LINK['LINK_FOLLOW_CRL'], arg=n)
            s.works('UNFOLLOW', arg=n)
            assert s.refused('DIAL', uid, kind=kind, arg=socket.AF_INET)
            assert s.refused('DIAL', uid, kind=LINK['LINK_DIAL_UDP'], arg=n)
            assert s.refused('STATE_PUT', kind=kind, fds=fds)
            assert s.refused('STATE_DEL', kind=kind)
            assert s.refused('STATE_LIST', kind=kind)
        # Another control plane's root, which the node does not have.
        assert s.refused('FOLLOW', kind=LINK['LINK_FOLLOW_ROOT'], arg=1)
        # A pod whose network namespace nobody has seen yet, and one that is not redirected.
        for kind in 'UDP', 'TCP':
            assert s.refused('DIAL', uid, kind=LINK[f'LINK_DIAL_{kind}'], arg=socket.AF_INET) == errno.ENOTCONN
            assert s.refused('LISTEN', uid, kind=LINK[f'LINK_LISTEN_DNS_{kind}']) == errno.EOPNOTSUPP
        # More follows than a pod can need.
        answers = [s.ask('FOLLOW', uid, kind=LINK['LINK_FOLLOW_TOKEN'])[0].code for _ in range(20)]
        assert 0 < answers.count(0) <= LINK['LINK_FOLLOWS_PER_POD_MAX']
        mount = node.agentd.run / 'pods' / uid / 'mount'
        assert not list(mount.iterdir())


def test_only_sealed_memory_is_written(node):
    """WRITE and STATE_PUT take bytes that nobody can change any more, and not too many."""
    broker, uid = Broker(node), str(uuid.uuid4())
    bad = {
        'unsealed': memfd(seals=0), 'may shrink': memfd(seals=SEALS & ~fcntl.F_SEAL_SHRINK),
        'may grow': memfd(seals=SEALS & ~fcntl.F_SEAL_GROW), 'may change': memfd(seals=SEALS & ~fcntl.F_SEAL_WRITE),
        'large': memfd(MIB + 1), 'a file': os.open('/etc/passwd', os.O_RDONLY), 'a directory': os.open('/', os.O_RDONLY),
        'a device': os.open('/dev/zero', os.O_RDONLY), 'a socket': socket.socket(socket.AF_UNIX).detach(),
        'a pipe': os.pipe()[0], 'a path': os.open('/etc/shadow', os.O_PATH),
    }
    with broker.one_session() as s, unchanged(node), closing(*bad.values()):
        s.works('POD_ADD', uid)
        mount = node.agentd.run / 'pods' / uid / 'mount'
        for name, fd in bad.items():
            assert s.refused('WRITE', uid, fds=[fd]), name
            assert s.refused('STATE_PUT', fds=[fd], state_id=b'x'), name
            assert not list(mount.iterdir()), name
        assert not s.works('STATE_LIST')
        assert not [p for p, _ in s.pushed if p.what == LINK['LINK_STATE']]
        with closing(memfd(MIB)) as good:
            s.works('WRITE', uid, fds=good)
            written, = mount.iterdir()
            assert written.stat().st_size == MIB and stat.S_ISREG(written.lstat().st_mode)


def test_the_states_quota_holds(node):
    """64 MiB for all, each entry under a name that the broker makes."""
    broker = Broker(node)
    with broker.one_session() as s, unchanged(node), closing(memfd(MIB)) as fds:
        codes = [s.ask('STATE_PUT', fds=fds, state_id=bytes([i]) + b'/../../x\0')[0].code for i in range(80)]
        assert 32 <= codes.count(0) <= 64 and set(codes[64:]) <= {errno.ENOSPC, errno.EDQUOT}
        kept = [p for p in (node.agentd.run / 'state').rglob('*') if p.is_file()]
        assert len(kept) == codes.count(0)
        assert all(p.parent.name == 'cert' and len(p.name) == 64 and int(p.name, 16) for p in kept)
        # And the other kind, which is descriptors of the broker: it does not run out of them.
        codes = [s.ask('STATE_PUT', fds=fds, kind=LINK['LINK_STATE_CERT_IN_MEMORY'],
                       state_id=i.to_bytes(4, 'big'))[0].code for i in range(200)]
        assert codes.count(0) <= 64
        s.works('POD_ADD', str(uuid.uuid4()))


def test_who_is_no_peer_of_the_pod(node):
    """A netns is learned from a unix connection made in it, never the host's, never another pod's."""
    one, two = node.pod('one'), node.pod('two')
    broker = Broker(node)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(node.dir / 'listening'))
    listening.listen()
    tcp = socket.create_server(('127.0.0.1', 0))
    strangers = [
        listening, tcp, socket.create_connection(tcp.getsockname()), socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        *peer(one.netns, socket.SOCK_DGRAM), *peer(one.netns, socket.SOCK_SEQPACKET), *socket.socketpair()]
    with broker.one_session() as s, unchanged(node):
        for pod in (one, two):
            s.works('POD_ADD', pod.uid)
        files = [os.open('/dev/null', os.O_RDONLY), os.open(one.netns.path, os.O_RDONLY),
                 os.pidfd_open(os.getpid()), os.open('/', os.O_RDONLY)]
        with closing(*files):
            for fd in [*(x.fileno() for x in strangers), *files]:
                assert s.refused('PEER_OF', one.uid, fds=[fd])
        # Once it is another pod's it is nobody else's, whoever asks.
        # Whether a peer without a process in the pod's cgroup is one depends on the policy; the netns does not.
        with contextlib.ExitStack() as stack:
            ends = [stack.enter_context(x) for pod in (one, two) for x in peer(pod.netns)]
            got = {}
            for asked in (one, two, one):
                for i, end in enumerate(ends):
                    packet, fd = s.ask('PEER_OF', asked.uid, fds=[end.fileno()])
                    assert fd is None
                    if not packet.code:
                        got.setdefault(packet.netns_cookie, set()).add((asked.uid, i // 2))
            assert all(len({uid for uid, _ in who}) == 1 for who in got.values()), got
    for x in strangers:
        x.close()


def mounts(below):
    """Mount point -> (root, options), of what is mounted below."""
    fields = [line.split() for line in Path('/proc/self/mountinfo').read_text().splitlines()]
    return {f[4]: (f[3], f[5]) for f in fields if f[4].startswith(str(below))}


def volume_of(kubelet, uid, name='mesh'):
    path = kubelet / 'pods' / uid / 'volumes/kubernetes.io~csi' / name
    path.mkdir(mode=0o750, parents=True)
    (path / 'vol_data.json').write_text('{}')
    return path


@pytest.fixture
def kubelet(node):
    """A kubelet's directory, and one beside it in which nothing may happen; both without mounts at the end."""
    root, outside = node.dir / 'kubelet', node.dir / 'outside'
    (root / 'plugins_registry').mkdir(parents=True)
    (root / 'pods').mkdir()
    (outside / 'mount').mkdir(parents=True)
    before = snapshot(outside)
    yield root
    assert not mounts(outside) and snapshot(outside) == before
    for point in mounts(root):
        subprocess.run(['umount', '-l', point], check=True)


def test_only_the_pods_volume_is_mounted(node, kubelet):
    """PUBLISH leads from a pod's own directory to that pod's own volume, whatever is asked."""
    broker, one, two = Broker(node, '--kubelet-root', kubelet), str(uuid.uuid4()), str(uuid.uuid4())
    outside = node.dir / 'outside'
    with broker.one_session() as s, unchanged(node):
        s.works('POD_ADD', one)
        volume = volume_of(kubelet, one)
        volume_of(kubelet, two)
        for name in (b'', b'.', b'..', b'../mesh', b'mesh/', b'/', b'a/../mesh', b'-', b'MESH', b'm.', b'x' * 64):
            assert s.refused('PUBLISH', one, volume=name) == errno.EINVAL
            assert s.refused('UNPUBLISH', one, volume=name) == errno.EINVAL
        assert s.refused('PUBLISH', one, volume=b'other') == errno.ENOENT
        assert s.refused('PUBLISH', two, volume=b'mesh') == errno.ENOENT  # it was not added
        for _ in range(20):
            s.works('PUBLISH', one, volume=b'mesh')
        (point, (root, options)), = mounts(kubelet).items()
        assert point == str(volume / 'mount') and root == '/mount'  # of the pod's own file system
        assert options.startswith('ro,nosuid,nodev,noexec')
        assert s.refused('POD_REMOVE', one) == errno.EBUSY
        s.works('UNPUBLISH', two, volume=b'mesh')
        assert list(mounts(kubelet)) == [point]
        s.works('UNPUBLISH', one, volume=b'mesh')
        assert not mounts(kubelet) and not (volume / 'mount').exists()
        # Theirs is never touched.
        (volume / 'mount').mkdir()
        subprocess.run(['mount', '-t', 'tmpfs', 'theirs', volume / 'mount'], check=True)
        assert s.refused('PUBLISH', one, volume=b'mesh') == errno.EBUSY
        assert s.refused('UNPUBLISH', one, volume=b'mesh') == errno.EBUSY
        assert list(mounts(kubelet)) == [point]
        # Nor is a link followed.
        linked = volume_of(kubelet, one, 'linked')
        (linked / 'mount').symlink_to(outside / 'mount')
        assert s.refused('PUBLISH', one, volume=b'linked')
        assert s.refused('UNPUBLISH', one, volume=b'linked')
        linked.rename(kubelet / 'aside')
        linked.symlink_to(outside)
        assert s.refused('PUBLISH', one, volume=b'linked')
        assert s.refused('UNPUBLISH', one, volume=b'linked')


def test_the_list_of_volumes_tells_no_more(node, kubelet):
    """vol_data.json of the kubelet's volumes and no other file; nothing is answered before its end."""
    broker, uid = Broker(node, '--kubelet-root', kubelet), str(uuid.uuid4())
    with broker.one_session() as s, unchanged(node):
        for name, target in {'real': None, 'shadow': '/etc/shadow', 'token': node.agentd.root_file}.items():
            data = volume_of(kubelet, uid, name) / 'vol_data.json'
            if target:
                data.unlink()
                data.symlink_to(target)
        listed = s.send('VOLUMES')
        s.works('POD_ADD', uid)
        found = {p.name: fd for p, fd in s.pushed if p.what == LINK['LINK_VOLUME'] and p.id == listed}
        assert set(found) == {b'real', b'shadow', b'token'}
        assert found[b'shadow'] is None and found[b'token'] is None
        assert os.pread(found[b'real'], 100, 0) == b'{}'
        assert fcntl.fcntl(found[b'real'], fcntl.F_GET_SEALS) & SEALS == SEALS


def test_a_caller_is_no_argument(node, kubelet):
    """Whoever is at the other end of what is sent is looked at; what is no connection has none."""
    broker = Broker(node, '--kubelet-root', kubelet)
    with broker.one_session() as s, unchanged(node):
        with socket.socketpair()[0] as mine, closing(memfd(), os.open('/', os.O_PATH)) as others:
            s.works('CALLER', fds=[mine.fileno()])  # this test is root, and in no pod
            for fd in others:
                assert s.refused('CALLER', fds=[fd]) == errno.EINVAL


def link_of(kubelet):
    entry, = (kubelet / 'plugins_registry').iterdir()
    return entry


def test_csi_sock_is_not_the_workers_to_close(node, kubelet):
    broker = Broker(node, '--kubelet-root', kubelet)
    with broker.one_session() as s, unchanged(node):
        s.receive_of('NODE_LISTENER')
        csi = s.receive_of('NODE_LISTENER')[1]
        s.works('READY')
        assert connects(link_of(kubelet))
        with socket.socket(fileno=csi) as listener:
            listener.shutdown(socket.SHUT_RDWR)
        assert s.killed()
        with contextlib.closing(broker.session()):
            wait_for('csi.sock to be served again', lambda: connects(link_of(kubelet)))


def test_without_a_kubelet_there_are_no_volumes(node):
    broker, uid = Broker(node), str(uuid.uuid4())
    with broker.one_session() as s, unchanged(node):
        s.works('POD_ADD', uid)
        for op in ('PUBLISH', 'UNPUBLISH', 'VOLUMES'):
            assert s.refused(op, uid, volume=b'mesh') == errno.EOPNOTSUPP


VIOLATIONS = {
    'operation 0': {'op': 0}, 'an operation behind the last': {'op': LINK['LINK_OP_END']},
    'operation 65535': {'op': 0xffff}, 'no id': {'op': 'POD_ADD', 'request_id': 0},
    'short': {'op': 'POD_ADD', 'size': ctypes.sizeof(Request) - 1},
    'long': {'op': 'POD_ADD', 'size': ctypes.sizeof(Request) + 1}, 'one byte': {'op': 'POD_ADD', 'size': 1},
    'huge': {'op': 'POD_ADD', 'size': 60000}, 'an fd too many': {'op': 'POD_ADD', 'nfds': 1},
    'two fds': {'op': 'WRITE', 'nfds': 2}, 'a hundred fds': {'op': 'WRITE', 'nfds': 100}, 'no fd': {'op': 'WRITE', 'nfds': 0},
}


@pytest.mark.parametrize('name', VIOLATIONS)
def test_a_broken_packet_is_the_end(node, name):
    broken = {**VIOLATIONS[name]}
    broker, uid = Broker(node), str(uuid.uuid4())
    with broker.one_session() as s, unchanged(node), closing(*[memfd() for _ in range(broken.pop('nfds', 0))]) as fds:
        s.works('POD_ADD', uid)
        s.send(broken.pop('op'), uid, fds=fds, **broken)
        with contextlib.suppress(Gone):
            s.send('POD_ADD', str(uuid.uuid4()))  # nothing behind it is looked at
        assert s.killed()
        broker.wait_log('broke the protocol')
        assert {p.name for p in (node.agentd.run / 'pods').iterdir()} == {uid}


def test_what_it_gets_is_what_it_asked_for(node):
    """Descriptors of the broker: a listener in the pod's directory, bytes that cannot be changed."""
    pod = node.pod('one')
    broker = Broker(node)
    with broker.one_session() as s, unchanged(node):
        s.works('POD_ADD', pod.uid)
        for kind in (LINK['LINK_LISTEN_SDS'], LINK['LINK_LISTEN_XDS']):
            with socket.socket(fileno=s.works('LISTEN', pod.uid, kind=kind)) as listener:
                assert listener.family == socket.AF_UNIX
                assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        assert s.works('FOLLOW', pod.uid, kind=LINK['LINK_FOLLOW_TOKEN']) is None
        assert s.works('FOLLOW', kind=LINK['LINK_FOLLOW_ROOT']) is None
        for _ in range(2):
            packet, fd = s.receive_of('FILE')
            assert packet.state == LINK['LINK_FILE_CONTENT'] and fd is not None
            assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS == SEALS
            with pytest.raises(OSError):
                os.write(fd, b'x')
            os.close(fd)
        # Of a pod without a token there is none.
        other = str(uuid.uuid4())
        s.works('POD_ADD', other)
        assert s.works('FOLLOW', other, kind=LINK['LINK_FOLLOW_TOKEN']) is None
        packet, fd = s.receive_of('FILE')
        assert packet.state == LINK['LINK_FILE_REMOVED'] and fd is None


def connects(path):
    with socket.socket(socket.AF_UNIX) as c:
        c.connect(str(path))
        return True


def test_a_listener_that_was_shut_down_is_made_anew(node):
    """The worker shares the sockets' descriptions: what it does to them must not last."""
    uid, broker = str(uuid.uuid4()), Broker(node)
    path = node.agentd.run / 'pods' / uid / 'mount' / 'socket'
    with broker.one_session() as s, unchanged(node):
        s.works('POD_ADD', uid)
        with socket.socket(fileno=s.works('LISTEN', uid)) as listener:
            assert connects(path)
            listener.shutdown(socket.SHUT_RDWR)
        wait_for('the socket to be served again', lambda: connects(path))
        # The worker is told, with a copy of the new one.
        packet, fd = s.receive_of('LISTENER')
        assert bytes(packet.uid) == uuid.UUID(uid).bytes and packet.kind == LINK['LINK_LISTEN_SDS']
        with socket.socket(fileno=fd) as listener:
            assert listener.getsockname() == str(path.parent.parent / '.socket.new')


def test_who_goes_on_shutting_down_is_replaced(node):
    """admin.sock is root's: to shut it down, or pods' sockets without end, is an attack.  Another worker gets new ones."""
    uid, broker = str(uuid.uuid4()), Broker(node)
    with broker.one_session() as s, unchanged(node):
        admin = s.receive_of('NODE_LISTENER')[1]
        s.works('READY')
        with socket.socket(fileno=admin) as listener:
            listener.shutdown(socket.SHUT_RDWR)
        assert s.killed()
        with contextlib.closing(broker.session()) as second:
            wait_for('admin.sock to be served again', lambda: connects(node.agentd.run / 'admin.sock'))
            second.works('POD_ADD', uid)
            fd = second.works('LISTEN', uid)
            second.works('READY')
            renewed = 0
            with contextlib.suppress(Gone):
                while renewed < 1000:
                    with socket.socket(fileno=fd) as listener:
                        listener.shutdown(socket.SHUT_RDWR)
                    fd = second.receive_of('LISTENER')[1]
                    renewed += 1
            assert 0 < renewed < 1000
            assert second.killed()
        assert connects(node.agentd.run / 'pods' / uid / 'mount' / 'socket')
        broker.session().close()


def test_who_never_reads_costs_nothing(node):
    """Requests stay in the socket, the broker neither spins nor grows, and nothing is lost."""
    broker, uid = Broker(node, mode='release'), str(uuid.uuid4())
    with broker.one_session() as s, unchanged(node), closing(memfd()) as fds:
        s.works('POD_ADD', uid)
        (_, memory), descriptors = broker.stat(), broker.descriptors()
        s.socket.setblocking(False)
        sent = []
        with contextlib.suppress(BlockingIOError):
            while len(sent) < 100_000:
                sent.append(s.send('WRITE', uid, fds=fds))
        assert 10 < len(sent) < 100_000
        s.socket.settimeout(PATIENCE_S)
        # It stands still: no CPU between two looks.  (A broker that spins uses all of it.)
        wait_for('the broker to stand still', lambda: broker.stat()[0] == (wait_a_moment(), broker.stat()[0])[1])
        assert broker.stat()[1] < memory + 4096 and broker.descriptors() <= descriptors + 1
        for request_id in sent:
            packet, fd = s.receive()
            assert (packet.what, packet.id, packet.code, fd) == (LINK['LINK_REPLY'], request_id, 0, None)
        s.works('POD_ADD', uid)
        assert broker.descriptors() == descriptors


def wait_a_moment():
    with socket.socketpair()[0] as s:
        s.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            s.recv(1)


def test_the_broker_keeps_nothing_of_what_is_gone(node):
    broker, times = Broker(node, mode='release'), 5000 if os.environ.get('AGENTD_SOAK') else 500
    with broker.one_session() as s, unchanged(node), closing(memfd()) as fds:
        def cycle():
            uid = str(uuid.uuid4())
            s.works('POD_ADD', uid)
            for kind in (0, 1):
                os.close(s.works('LISTEN', uid, kind=kind))
                s.works('WRITE', uid, kind=kind, fds=fds)
            s.works('FOLLOW', uid, kind=LINK['LINK_FOLLOW_TOKEN'])
            s.works('STATE_PUT', fds=fds, state_id=b'same')
            s.refused('PEER_OF', uid, fds=fds)
            s.works('POD_REMOVE', uid)
        for _ in range(100):
            cycle()
        (_, memory), descriptors = broker.stat(), broker.descriptors()
        for _ in range(times):
            cycle()
        assert broker.descriptors() == descriptors and broker.stat()[1] <= memory + 512
        assert not list((node.agentd.run / 'pods').iterdir())
