"""The least HTTP/2 that a gRPC client needs, over a socket that is given: thousands of them cost nothing.

grpc's own channels connect in threads of theirs, which live in the wrong network namespace; and a client
that stops reading at the socket, as a stopped Envoy does, cannot be made of them.
"""
import asyncio
import struct

_DATA, _HEADERS, _RST, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW_SIZE = 4
WINDOW = 16 << 20  # Envoy's


def _frame(kind, flags, stream, payload=b''):
    return struct.pack('>I', len(payload))[1:] + struct.pack('>BBI', kind, flags, stream) + payload


def _literal(name, value):
    """A header that stays out of the table."""
    return b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value


def _headers(method):
    post, http = b'\x83', b'\x86'  # of the static table
    rest = ((b':path', method.encode()), (b':authority', b'envoy'), (b'te', b'trailers'),
            (b'content-type', b'application/grpc'))
    return post + http + b''.join(_literal(n, v) for n, v in rest)


class Connection:
    """`message(stream, bytes)` and `ended(stream)` are called as things come; streams are numbers."""

    def __init__(self, reader, writer, message, ended):
        self._reader, self._writer = reader, writer
        self._message, self._ended = message, ended
        self._next, self._parts = 1, {}
        self.reading = asyncio.Event()
        self.reading.set()
        self.pause_s = 0  # after each frame

    @classmethod
    async def over(cls, sock, message, ended):
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=1 << 16)
        made = cls(reader, writer, message, ended)
        writer.write(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + _frame(
            _SETTINGS, 0, 0, struct.pack('>HI', _INITIAL_WINDOW_SIZE, WINDOW)) + _frame(
                _WINDOW, 0, 0, struct.pack('>I', WINDOW)))
        return made

    def open(self, method):
        stream, self._next = self._next, self._next + 2
        self._parts[stream] = bytearray()
        self._writer.write(_frame(_HEADERS, _END_HEADERS, stream, _headers(method)))
        return stream

    def send(self, stream, message):
        """Requests are small: the windows that agentd gives are not kept account of."""
        data = struct.pack('>BI', 0, len(message)) + message
        for at in range(0, len(data), 1 << 14):
            self._writer.write(_frame(_DATA, 0, stream, data[at:at + (1 << 14)]))

    async def run(self):
        """Until the other side hangs up."""
        try:
            while True:
                await self.reading.wait()
                head = await self._reader.readexactly(9)
                size, = struct.unpack('>I', b'\0' + head[:3])
                kind, flags, stream = struct.unpack('>BBI', head[3:])
                self._take(kind, flags, stream & 0x7fffffff, await self._reader.readexactly(size))
                if self.pause_s:
                    await asyncio.sleep(self.pause_s)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.close()

    def close(self):
        self._writer.close()

    def _take(self, kind, flags, stream, payload):
        if kind == _DATA and payload:
            grant = struct.pack('>I', len(payload))
            self._writer.write(_frame(_WINDOW, 0, 0, grant) + _frame(_WINDOW, 0, stream, grant))
            self._data(stream, payload)
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            self._writer.write(_frame(kind, _ACK, 0, payload if kind == _PING else b''))
        if kind == _RST or kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            if self._parts.pop(stream, None) is not None:
                self._ended(stream)

    def _data(self, stream, payload):
        parts = self._parts.get(stream)
        if parts is None:
            return
        parts += payload
        while len(parts) >= 5 and len(parts) >= 5 + (size := struct.unpack('>I', parts[1:5])[0]):
            self._message(stream, bytes(parts[5:5 + size]))
            del parts[:5 + size]
