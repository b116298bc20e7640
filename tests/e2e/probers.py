"""Who dials a pod from the node: the kubelet, and those who are not.  They run in a `strangers.Place`."""
import collections
import contextlib
import ctypes
import http.client
import json
import os
import socket

PATIENCE_S = 60  # of who will be answered, on however slow a machine


def _read(s):
    data = b''
    while chunk := s.recv(4096):
        data += chunk
    return json.loads(data)


def _dial(to, port, source_port, timeout_s):
    with socket.socket(socket.AF_INET6 if ':' in to else socket.AF_INET) as s:
        s.settimeout(timeout_s)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if source_port:
            s.bind(('', source_port))
        try:
            s.connect((to, port))
            return _read(s)['port'], s.getsockname()[1]
        except (OSError, ValueError) as e:
            return type(e).__name__, None


def _many(to, port, count, source_port, timeout_s):
    return dict(collections.Counter(str(_dial(to, port, source_port, timeout_s)[0]) for _ in range(count)))


def dials(to, port, count=1, uid=0, source_port=None, timeout_s=PATIENCE_S):
    """Whose listeners answered how many: {'8080': 3}, or the errors; as that user."""
    if not uid:
        return _many(to, port, count, source_port, timeout_s)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.write(writer, json.dumps(_many(to, port, count, source_port, timeout_s)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        told = json.loads(f.read())
    os.waitpid(pid, 0)
    return told


def ports_used(to, port, count):
    """The source ports of dials that are over."""
    return [_dial(to, port, None, PATIENCE_S)[1] for _ in range(count)]


def from_ports(to, port, sources):
    """Who answers dials from these ports."""
    return dict(collections.Counter(str(_dial(to, port, source, PATIENCE_S)[0]) for source in sources))


def alternate(to, port, count):
    """A dial of each family of sockets: AF_INET, and AF_INET6 with the IPv4 address in it."""
    told = collections.Counter()
    for i in range(count):
        with socket.socket(socket.AF_INET6 if i % 2 else socket.AF_INET) as s, contextlib.suppress(OSError):
            s.settimeout(PATIENCE_S)
            s.connect((f'::ffff:{to}' if i % 2 else to, port))
            told[str(_read(s)['port'])] += 1
    return dict(told)


def dialled_again(to, port, count, uid):
    """Who answers another user's dials, each by a socket that root dialled there before."""
    libc, told = ctypes.CDLL(None, use_errno=True), collections.Counter()
    for _ in range(count):
        with socket.socket(socket.AF_INET6 if ':' in to else socket.AF_INET) as s:
            s.settimeout(PATIENCE_S)
            s.connect((to, port))
            _read(s)
            if libc.connect(s.fileno(), bytes(16), 16):  # AF_UNSPEC: a new socket again
                raise OSError(ctypes.get_errno(), 'connect')
            os.setresuid(uid, uid, 0)
            try:
                s.connect((to, port))
                told[str(_read(s)['port'])] += 1
            finally:
                os.setresuid(0, 0, 0)
    return dict(told)


def peers(to, port, count):
    """Whom the app of probed.py saw, by each of these requests: {'10.77.200.1': 3}, or the errors."""
    def ask():
        with contextlib.closing(http.client.HTTPConnection(to, port, timeout=PATIENCE_S)) as connection:
            connection.request('GET', '/ok')
            return json.loads(connection.getresponse().read()[2:])['peer']

    def told():
        try:
            return ask()
        except (OSError, ValueError, http.client.HTTPException) as e:
            return type(e).__name__
    return dict(collections.Counter(told() for _ in range(count)))
