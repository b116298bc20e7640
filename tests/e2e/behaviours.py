"""What programs do with sockets: each a small story, told the same wherever it runs (ebpf-redirect.md 4)."""
import ctypes
import mmap
import os
import platform
import select
import socket
import struct

from . import cast, sockets
from .run import PATIENCE_S
from .scene import APP, FAR, OWN, OWN6, PEER, PEER6, SERVICE

_libc = ctypes.CDLL(None, use_errno=True)
_FASTOPEN_CONNECT, _NO_PORT, _FREEBIND, _MPTCP = 30, 24, 15, 262
_CLOSED = 4242


def _tcp(to=PEER, port=80, bound=None, options=(), protocol=0, patience_s=PATIENCE_S):
    with socket.socket(cast.family_of(to), socket.SOCK_STREAM, protocol) as s:
        s.settimeout(patience_s)
        for option in options:
            s.setsockopt(*option)
        if bound:
            s.bind(bound)
        s.connect((to, port))
        return cast.finish(s)


def _without(seen, *names):
    return {k: v for k, v in seen.items() if k not in names}


def own_port():
    return _tcp(bound=('0.0.0.0', 23456), options=[(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)])


def _fast_open_message():
    """Without a cookie, and with it."""
    seen = []
    for _ in range(2):
        with socket.socket() as s:
            s.sendto(b'early', socket.MSG_FASTOPEN, (PEER, 80))
            s.settimeout(PATIENCE_S)
            seen.append(cast.finish(s))
    return seen


def _fast_open_connect():
    with socket.socket() as s:
        s.settimeout(PATIENCE_S)
        s.setsockopt(socket.IPPROTO_TCP, _FASTOPEN_CONNECT, 1)
        s.connect((PEER, 80))
        s.send(b'early')
        return cast.finish(s)


def _not_blocking(to=PEER):
    with socket.socket() as s:
        s.setblocking(False)
        code = s.connect_ex((to, _CLOSED))
        _, writable, _ = select.select([], [s], [], PATIENCE_S)
        error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        s.settimeout(PATIENCE_S)
        return code, bool(writable), error, error == 0 and cast.finish(s)


def _mapped(to=PEER):
    with socket.socket(socket.AF_INET6) as s:
        s.settimeout(PATIENCE_S)
        s.connect((f'::ffff:{to}', 80))
        return cast.finish(s)


def _disconnect(s):
    if _libc.connect(s.fileno(), struct.pack('=H14x', socket.AF_UNSPEC), 16):
        raise OSError(ctypes.get_errno(), 'disconnect')


def _again(first, then, same_name=True):
    """One socket for two peers.  Where eBPF bound the first dial it stays bound: no `sockname` then."""
    with socket.socket(cast.family_of(first)) as s:
        s.settimeout(PATIENCE_S)
        seen = []
        for to in first, then:
            s.connect((to, 80))
            seen.append(cast.ends(s))
            _disconnect(s)
        s.connect((then, 8080))
        seen.append(cast.finish(s))
        return seen if same_name else [_without(one, 'sockname', 'peer') for one in seen]


def _listens_after(to):
    """A socket that dialled may listen: is its client who it is?"""
    with socket.socket() as s:
        s.settimeout(PATIENCE_S)
        s.connect((to, 80))
        _disconnect(s)
        s.listen()
        with socket.create_connection((OWN, s.getsockname()[1]), PATIENCE_S) as client, s.accept()[0] as accepted:
            return accepted.getpeername() == client.getsockname()


def _connected_udp(port, to=PEER):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE_S)
        s.connect((to, port))
        s.send(b'?')
        return s.recv(2048), cast.ends(s)


def _twice():
    with socket.socket() as s:
        s.settimeout(PATIENCE_S)
        s.connect((PEER, 80))
        return s.connect_ex((PEER, 80)), s.connect_ex((SERVICE, 80)), cast.finish(s)


def _tcp_info():
    """Longer than a page: the kernel's own answer."""
    with socket.socket() as s:
        s.settimeout(PATIENCE_S)
        s.connect((PEER, 80))
        buffer, length = ctypes.create_string_buffer(65536), ctypes.c_uint(65536)
        result = _libc.getsockopt(s.fileno(), socket.IPPROTO_TCP, socket.TCP_INFO, buffer, ctypes.byref(length))
        return result, length.value, buffer.raw[0]


def _mptcp():
    """getpeername() would show the address of Envoy's listener: the programs know the subflow, not this socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, _MPTCP) as s:
        s.settimeout(PATIENCE_S)
        s.connect((PEER, 80))
        return _without(cast.finish(s), 'peername', 'peerport')


def _many(n=40):
    """At once, to as many ports as there are; each end knows its own."""
    with_ports = [(socket.socket(), port) for port in (80, 8080, 9999, _CLOSED) * (n // 4)]
    try:
        for s, port in with_ports:
            s.settimeout(PATIENCE_S)
            s.connect((SERVICE, port))
        return sorted(cast.finish(s)['original'] for s, _ in with_ports)
    finally:
        for s, _ in with_ports:
            s.close()


# --- io_uring, by hand ---
_SETUP, _ENTER = {'x86_64': (425, 426), 'aarch64': (425, 426)}[platform.machine()]
_OP_CONNECT, _ASYNC, _GETEVENTS = 16, 16, 1
_SQES = 0x10000000


def _ring_connect(flags):
    """The kernel's own worker may be the one that connects."""
    parameters = ctypes.create_string_buffer(120)
    ring = _libc.syscall(_SETUP, 2, parameters)
    if ring < 0:
        raise OSError(ctypes.get_errno(), 'io_uring_setup')
    sq_tail, sq_mask, sq_array = (struct.unpack_from('=I', parameters, 40 + 4 * i)[0] for i in (1, 2, 6))
    cq_head, cq_mask, cqes = (struct.unpack_from('=I', parameters, 80 + 4 * i)[0] for i in (0, 2, 5))
    address = ctypes.create_string_buffer(struct.pack('=H', socket.AF_INET) + struct.pack('!H', 80)
                                          + socket.inet_aton(PEER) + bytes(8), 16)
    with socket.socket() as s, mmap.mmap(ring, 4096) as rings, mmap.mmap(ring, 4096, offset=_SQES) as entries:
        entries[:64] = struct.pack('=BBHiQQIIQ', _OP_CONNECT, flags, 0, s.fileno(), 16, ctypes.addressof(address), 0, 0,
                                   7).ljust(64, b'\0')
        tail = struct.unpack_from('=I', rings, sq_tail)[0]
        struct.pack_into('=I', rings, sq_array + 4 * (tail & struct.unpack_from('=I', rings, sq_mask)[0]), 0)
        struct.pack_into('=I', rings, sq_tail, tail + 1)
        if _libc.syscall(_ENTER, ring, 1, 1, _GETEVENTS, None, 0) < 0:
            raise OSError(ctypes.get_errno(), 'io_uring_enter')
        head = struct.unpack_from('=I', rings, cq_head)[0] & struct.unpack_from('=I', rings, cq_mask)[0]
        code = struct.unpack_from('=Qi', rings, cqes + 16 * head)[1]
        os.close(ring)
        s.settimeout(PATIENCE_S)
        return code, cast.finish(s)


BEHAVIOURS = {
    'plain': _tcp,
    'plain, IPv6': lambda: _tcp(PEER6),
    'bound to the own address': lambda: _tcp(bound=(OWN, 0)),
    'bound to the own address, IPv6': lambda: _tcp(PEER6, bound=(OWN6, 0)),
    'bound to a port': lambda: _without(own_port(), 'sockname', 'peer'),
    'bound, port later': lambda: _tcp(bound=(OWN, 0), options=[(socket.IPPROTO_IP, _NO_PORT, 1)]),
    # Where it is redirected nobody answers.
    'SO_BINDTODEVICE': lambda: _tcp(options=[(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'eth0')], patience_s=5),
    'IP_FREEBIND': lambda: _tcp(options=[(socket.IPPROTO_IP, _FREEBIND, 1)]),
    'IP_FREEBIND, bound': lambda: _tcp(bound=(OWN, 0), options=[(socket.IPPROTO_IP, _FREEBIND, 1)]),
    'MSG_FASTOPEN': _fast_open_message,
    'TCP_FASTOPEN_CONNECT': _fast_open_connect,
    'not blocking, closed port': _not_blocking,
    'not blocking, closed port of its own': lambda: _not_blocking('127.0.0.1'),
    'v4-mapped': _mapped,
    'v4-mapped, loopback': lambda: _mapped('127.0.0.1'),
    'another peer after AF_UNSPEC': lambda: _again(PEER, SERVICE),
    'another peer after AF_UNSPEC, IPv6': lambda: _again(PEER6, PEER6),
    'loopback after AF_UNSPEC': lambda: _again(PEER, '127.0.0.1', same_name=False),
    'away after loopback': lambda: _again('127.0.0.1', PEER),
    'a listener after AF_UNSPEC': lambda: _listens_after(PEER),
    'connected UDP': lambda: _connected_udp(8080),
    'connected UDP, 53': lambda: _connected_udp(53),
    'connected UDP to itself': lambda: _connected_udp(53, OWN),
    'connected twice': _twice,
    '127.0.0.2': lambda: _tcp('127.0.0.2'),
    'own address': lambda: _tcp(OWN),
    'many at once': _many,
    'TCP_INFO, large': _tcp_info,
    'MPTCP': _mptcp,
    'io_uring': lambda: _ring_connect(0),
    'io_uring, async': lambda: _ring_connect(_ASYNC),
}


def all_of():
    """By name; what a socket refused is a result too."""
    seen = {}
    for name, behave in BEHAVIOURS.items():
        with cast.user(APP, APP):
            try:
                seen[name] = behave()
            except OSError as e:
                seen[name] = cast.error_name(e)
    return seen


def original_of_the_dialler():
    """SO_ORIGINAL_DST asked by the one that knows it anyway."""
    with cast.user(APP, APP), socket.create_connection((FAR, 80), PATIENCE_S) as s:
        return sockets.original(s, '::ffff:')


def dial_with_ids(real, effective):
    """Where it ends; gid and the rest are the app's."""
    with cast.user(APP, APP):
        os.seteuid(0)
        os.setresuid(real, effective, 0)
        return _tcp()['port']


def names_of_own_port():
    with cast.user(APP, APP):
        seen = own_port()
    return [seen['sockname'], seen['peer'], seen['original']]
