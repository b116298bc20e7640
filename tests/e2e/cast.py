"""Sockets of any user at one place: who listens, who dials, what each end saw.

Runs in a place's own process (netns.submit), as root; a socket belongs to the user who made it, so one process can
play them all.  Listeners of one name live in a child of it and go with the next `serve` of that name.
"""
import contextlib
import errno
import json
import os
import selectors
import signal
import socket
import struct
import time

from . import bpfmap, names, sockets
from .run import PATIENCE_S

'user'.encode('idna')  # connect() wants it, and who is no root here may not read Python's own files
_PKTINFO, _RECVPKTINFO = socket.IPV6_PKTINFO, socket.IPV6_RECVPKTINFO
_children = {}


@contextlib.contextmanager
def user(uid, gid):
    """Real and effective ids (BPF looks at the one, iptables at the other); root comes back."""
    os.setgroups([])
    os.setresgid(gid, gid, 0)
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


@contextlib.contextmanager
def moved(there, home):
    """This process lives in another cgroup for the while."""
    (there / 'cgroup.procs').write_text('0')
    try:
        yield
    finally:
        (home / 'cgroup.procs').write_text('0')


# --- who listens ---
def _listen(kind, port):
    s = socket.socket(socket.AF_INET6, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(('::', port))
    if kind == socket.SOCK_STREAM:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
        s.listen(1024)
    else:
        s.setsockopt(socket.IPPROTO_IPV6, _RECVPKTINFO, 1)
    return s


def _greet(listener, told):
    connection, peer = listener.accept()
    with connection:
        connection.settimeout(PATIENCE_S)
        said = b''
        while chunk := connection.recv(4096):
            said += chunk
        if told['who'] == 'envoy':
            told = {**told, 'original': sockets.original(connection, connection.getsockname()[0])}
        connection.sendall(json.dumps({**told, 'said': said.decode(), 'peer': sockets.plain(peer[0])}).encode())


def _answer(s, told):
    """From the address that was asked."""
    said, ancillary, _, peer = s.recvmsg(2048, socket.CMSG_SPACE(20))
    asked = next(data[:16] for _, kind, data in ancillary if kind == _PKTINFO)
    reply = json.dumps({**told, 'said': said.decode()}).encode() if len(said) < 12 else names.answer(said, told['who'])
    s.sendmsg([reply], [(socket.IPPROTO_IPV6, _PKTINFO, struct.pack('=16si', asked, 0))], 0, peer)


def _resolve(listener, told):
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(PATIENCE_S)
        names.over_tcp(connection, told['who'])


def _serve(name, uid, gid, tcp, udp, mark, resolver):
    with user(uid, gid):
        made = [(_listen(socket.SOCK_STREAM, p), _resolve if resolver else _greet, p) for p in tcp]
        made += [(_listen(socket.SOCK_DGRAM, p), _answer, p) for p in udp]
    if mark:
        bpfmap.mark_dns(*mark, [s for s, _, _ in made])
    selector = selectors.DefaultSelector()
    for s, how, port in made:
        selector.register(s, selectors.EVENT_READ, (how, {'who': name, 'port': port}))
    yield
    while True:
        for key, _ in selector.select():
            with contextlib.suppress(OSError):
                key.data[0](key.fileobj, key.data[1])


def serve(name, uid, gid, tcp=(), udp=(), mark=None, resolver=False):
    """In place of the listeners of that name; `envoy` also tells original destinations (of connections that came
    straight, iptables' conntrack knows one and eBPF none).  `mark` (bpffs, index): as the pod's DNS proxy.
    `resolver`: TCP speaks DNS (UDP does if it is asked).
    """
    stop(name)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.closerange(3, writer)
        try:
            for _ in _serve(name, uid, gid, tcp, udp, mark, resolver):
                os.write(writer, b'.')
        except OSError as e:
            os.write(writer, str(e).encode())
        os._exit(1)
    os.close(writer)
    _children[name] = pid
    with os.fdopen(reader, 'rb') as f:
        if (said := f.read(1)) != b'.':
            raise OSError((said + f.read()).decode())


def stop(name):
    if pid := _children.pop(name, None):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def listened():
    """{(tcp or udp, port)} of this network namespace: what listens, and datagram sockets that anybody can ask."""
    found = set()
    for kind, state in ('tcp', '0A'), ('tcp6', '0A'), ('udp', '07'), ('udp6', '07'):
        with open(f'/proc/thread-self/net/{kind}') as f:
            fields = [line.split() for line in f][1:]
        found |= {(kind[:3], int(x[1].rpartition(':')[2], 16)) for x in fields if x[3] == state}
    return found


_held = []


def hold(path):
    """A connection that stays as long as this process."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    _held.append(s)


# --- who dials ---
def family_of(address):
    return socket.AF_INET6 if ':' in address else socket.AF_INET


def ends(s):
    """As the dialler's own end shows them."""
    name, port = s.getpeername()[:2]
    return {'peername': sockets.plain(name), 'peerport': port, 'sockname': sockets.plain(s.getsockname()[0])}


def finish(s):
    """What both ends saw of this connection; the listener speaks when it was told all."""
    shown = ends(s)
    s.shutdown(socket.SHUT_WR)
    data = b''
    while chunk := s.recv(4096):
        data += chunk
    if not data:
        return 'EOF'
    return {**json.loads(data), **shown}


def _dial_tcp(s, to, port):
    s.connect((to, port))
    return finish(s)


def _ask(s, to, port):
    s.sendto(b'?', (to, port))
    data, (source, source_port, *_) = s.recvfrom(2048)
    return {**json.loads(data), 'source': sockets.plain(source), 'source_port': source_port}


def _ask_connected(s, to, port):
    s.connect((to, port))
    s.send(b'?')
    data, (source, source_port, *_) = s.recvfrom(2048)
    return {**json.loads(data), **ends(s), 'source': sockets.plain(source), 'source_port': source_port}


_HOW = {'tcp': (socket.SOCK_STREAM, _dial_tcp), 'udp': (socket.SOCK_DGRAM, _ask),
        'connected udp': (socket.SOCK_DGRAM, _ask_connected)}


def error_name(e):
    return errno.errorcode.get(e.errno, 'timeout') if isinstance(e, OSError) else repr(e)


def _one(how, to, port, source, patience_s):
    kind, dial = _HOW[how.removeprefix('mapped ')]
    if how.startswith('mapped '):
        to, source = f'::ffff:{to}', source and f'::ffff:{source}'
    try:
        with socket.socket(family_of(to), kind) as s:
            s.settimeout(patience_s)
            if source:
                s.bind((source, 0))
            return dial(s, to, port)
    except (OSError, ValueError) as e:
        return error_name(e)


def dial_on(name, row, told):
    """dial() of this row again and again until stop(name): a line in the file `told` says who answered."""
    pid = os.fork()
    if pid == 0:
        with open(told, 'a', buffering=1, encoding='ascii') as f:
            while True:
                time.sleep(0.01)  # others need the machine, too
                seen, = dial([row])
                f.write(f'{seen["who"] if isinstance(seen, dict) else seen}\n')
    _children[name] = pid


def dial(rows, patience_s=PATIENCE_S):
    """For each (how, uid, gid, to, port, source): what was seen, or the name of the error.  `mapped`: IPv4 by an IPv6
    socket."""
    results = []
    for how, uid, gid, to, port, source in rows:
        with user(uid, gid):
            results.append(_one(how, to, port, source, patience_s))
    return results
