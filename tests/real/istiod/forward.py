"""Kubernetes' port-forward: SPDY/3.1 on a connection that was upgraded, for one port of one pod.

A client opens two streams for each of its connections, ends the first one at once (it is for the server's errors) and
speaks on the second.  So a stream leads to the port from its first byte on; headers are not read.
"""
import contextlib
import struct
import threading
import zlib

_CONTROL = 1 << 31
_VERSION = 3 << 16
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 1


class Forward:
    def __init__(self, rfile, wfile, dial):
        self._from, self._to, self._dial = rfile, wfile, dial
        self._lock = threading.Lock()
        self._headers = zlib.compressobj()
        self._sockets = {}  # stream -> the connection it leads to

    def _send(self, word, flags, payload):
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._to.write(struct.pack('>II', word, flags << 24 | len(payload)) + payload)
            self._to.flush()

    def run(self):
        """Until the client leaves."""
        try:
            while len(head := self._from.read(8)) == 8:
                word, rest = struct.unpack('>II', head)
                payload = self._from.read(rest & 0xffffff)
                if word & _CONTROL:
                    if self._control(word & 0xffff, payload) == _GOAWAY:
                        break
                else:
                    self._data(word, payload, rest >> 24 & _FIN)
        finally:
            for s in self._sockets.values():
                s.close()

    def _control(self, kind, payload):
        if kind == _SYN_STREAM:
            block = self._headers.compress(struct.pack('>I', 0)) + self._headers.flush(zlib.Z_SYNC_FLUSH)
            self._send(_CONTROL | _VERSION | _SYN_REPLY, 0, payload[:4] + block)
        elif kind == _PING:
            self._send(_CONTROL | _VERSION | _PING, 0, payload)
        return kind

    def _data(self, stream, payload, last):
        if payload and stream not in self._sockets:
            self._sockets[stream] = self._dial()
            threading.Thread(target=self._answers, args=(stream,), daemon=True).start()
        there = self._sockets.get(stream)
        if there and payload:
            there.sendall(payload)
        if last and not there:
            self._send(stream, _FIN, b'')  # no errors

    def _answers(self, stream):
        with contextlib.suppress(OSError):
            while data := self._sockets[stream].recv(1 << 16):
                self._send(stream, 0, data)
        self._send(stream, _FIN, b'')
