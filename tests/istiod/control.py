"""How a test steers the control plane: one JSON object a line over the unix socket DIR/control.sock.

    {"do": "ca", "issuer": "b", "roots": ["a", "b"]}   issue with b, announce a and b
    {"do": "ttl", "seconds": 20}                       life of every certificate (0: what is asked for)
    {"do": "pause", "what": "csr"}                     hold CSRs ("ads": stream opens) until "resume"
    {"do": "fail", "what": "csr", "count": 2, "code": "UNAVAILABLE", "text": "..."}
"""
import asyncio
import json
import socket
from pathlib import Path

import grpc


class Control:
    def __init__(self, server):
        self._server = server
        self._open = {'csr': asyncio.Event(), 'ads': asyncio.Event()}
        self._fail = {'csr': [], 'ads': []}
        for event in self._open.values():
            event.set()
        self.ttl_s = 0

    async def gate(self, what, refuse):
        """Where every CSR and every stream passes: held while paused, refused if told so."""
        await self._open[what].wait()
        if self._fail[what]:
            code, text = self._fail[what].pop()
            await refuse(code, text, 'told to fail')

    def _do(self, order):
        what = order.get('what')
        match order['do']:
            case 'ca':
                self._server.ca.use(order['issuer'], order['roots'])
                self._server.journal.write('ca', issuer=order['issuer'], roots=order['roots'])
            case 'ttl':
                self.ttl_s = int(order['seconds'])
            case 'pause':
                self._open[what].clear()
            case 'resume':
                self._open[what].set()
            case 'fail':
                failure = grpc.StatusCode[order['code']], order.get('text', 'told to fail')
                self._fail[what] = [failure] * int(order['count'])
            case unknown:
                raise ValueError(f'cannot do {unknown!r}')

    async def serve(self, directory):
        path = Path(directory) / 'control.sock'
        path.unlink(missing_ok=True)
        return await asyncio.start_unix_server(self._client, path)

    async def _client(self, reader, writer):
        try:
            while line := await reader.readline():
                try:
                    self._do(json.loads(line))
                    answer = {'ok': True}
                except (ValueError, KeyError, TypeError) as e:
                    answer = {'ok': False, 'why': f'{type(e).__name__}: {e}'}
                writer.write(json.dumps(answer).encode() + b'\n')
                await writer.drain()
        finally:
            writer.close()


def order(directory, **what):
    """Send one order and wait until it is carried out."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(str(Path(directory) / 'control.sock'))
        s.sendall(json.dumps(what).encode() + b'\n')
        answer = json.loads(s.makefile().readline() or '{"why": "no answer"}')
    if not answer.get('ok'):
        raise RuntimeError(f'control plane: {answer.get("why")}')
