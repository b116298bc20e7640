"""Plain sockets of given users, and what each end of a connection saw.

sockets.py serve UID PORT...   accepts; tells each client which port, the original destination and both addresses
"""
import contextlib
import json
import os
import selectors
import socket
import struct
import sys

_ORIGINAL_DST = 80
_V6ONLY = 26


def original(connection, local):
    """As Envoy asks; None: the kernel knows of none."""
    try:
        if local.startswith('::ffff:'):
            port, address = struct.unpack('!2xH4s8x', connection.getsockopt(socket.IPPROTO_IP, _ORIGINAL_DST, 16))
            return f'{socket.inet_ntop(socket.AF_INET, address)}:{port}'
        raw = connection.getsockopt(socket.IPPROTO_IPV6, _ORIGINAL_DST, 28)
        return f'[{socket.inet_ntop(socket.AF_INET6, raw[8:24])}]:{struct.unpack("!2xH", raw[:4])[0]}'
    except OSError:
        return None


def plain(address):
    return address.removeprefix('::ffff:')


def _listen(where):
    """PORT: of all addresses; ADDRESS/PORT: and others may have it, too."""
    address, _, port = where.rpartition('/')
    s = socket.socket(socket.AF_INET if '.' in address else socket.AF_INET6)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT if address else socket.SO_REUSEADDR, 1)
    if s.family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, _V6ONLY, 0)
    s.bind((address or '::', int(port)))
    s.listen(1024)
    return s


def serve(uid, places):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    selector = selectors.DefaultSelector()
    for where in places:
        selector.register(_listen(where), selectors.EVENT_READ, int(where.rpartition('/')[2]))
    print('serving', flush=True)
    while True:
        for key, _ in selector.select():
            with contextlib.suppress(OSError):
                connection, peer = key.fileobj.accept()
                with connection:
                    local = connection.getsockname()[0]
                    connection.sendall(json.dumps({
                        'port': key.data, 'original': original(connection, local), 'peer': plain(peer[0]),
                        'local': plain(local), 'pid': os.getpid()}).encode())


def _read(s):
    data = b''
    while chunk := s.recv(4096):
        data += chunk
    return json.loads(data)


def _dial(to, port, source, timeout):
    with socket.socket(socket.AF_INET6 if ':' in to else socket.AF_INET) as s:
        s.settimeout(timeout)
        if source:
            s.bind((source, 0))
        s.connect((to, port))
        return {**_read(s), 'peername': plain(s.getpeername()[0]), 'sockname': plain(s.getsockname()[0])}


def dial(to, port, uid=1000, gid=1000, source=None, timeout=60):
    """One connection of such a user; what was accepted, or the name of the error.  Needs root, forks."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            result = _dial(to, port, source, timeout)
        except (OSError, ValueError) as e:
            result = type(e).__name__
        os.write(writer, json.dumps(result).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        result = json.loads(f.read() or '"died"')
    os.waitpid(pid, 0)
    return result


def dropped(to, port, timeout=1):
    """Nobody answers, and nobody refuses."""
    return dial(to, port, timeout=timeout) == 'TimeoutError'


if __name__ == '__main__':
    serve(int(sys.argv[2]), sys.argv[3:])
