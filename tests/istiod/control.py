"""How a test steers the control plane: one JSON object a line over the unix socket DIR/control.sock.

    {"do": "ca", "issuer": "b", "roots": ["a", "b"]}   issue with b, announce a and b
    {"do": "trust-domain", "name": "new.example"}      of certificates from now on
    {"do": "cluster-ids", "names": ["new", "old"]}     of clients that are served, as its clusterAliases
    {"do": "ttl", "seconds": 20}                       life of every certificate (0: what is asked for)
    {"do": "bad-certificates", "of": {"ACCOUNT": "other-key"}}   spoil their answers (bad_answers.py), "*": all
    {"do": "pause", "what": "csr"}                     hold CSRs ("ads": stream opens) until "resume"
    {"do": "slow", "what": "csr", "seconds": 2}        let each of them take so long
    {"do": "fail", "what": "csr", "count": 2, "code": "UNAVAILABLE", "text": "..."}
    {"do": "ready", "on": false}                       streams are refused as by an istiod that still starts
    {"do": "limiter", "per_second": 35}                of stream opens, as istiod's (0: none)
    {"do": "slots", "count": 4}                        pushes at a time, as PILOT_PUSH_THROTTLE (0: any number)
    {"do": "empty", "on": true}                        push nothing of what the files say
    {"do": "goaway", "grace": 10}                      to all connections; their streams last so long
    {"do": "revoke", "serials": ["1f"]}                client certificates that are refused (--client-certificates)
    {"do": "group", "namespace": "demo", "name": "web", "template": {...}}   a WorkloadGroup (registration.py)
    {"do": "group-gone", "namespace": "demo", "name": "web"}                 and its entries
    {"do": "entry", "namespace": "demo", "name": "db", "annotations": {...}} a WorkloadEntry of an operator's
    {"do": "grace", "seconds": 10}                     from a node's last stream to the end of its entry
    {"do": "listen", "on": "nothing"}                  listener.py: who has the port, and how it greets
"""
import asyncio
import json
import socket
from pathlib import Path

import grpc

from . import bad_answers
from .gate import Limiter, Slots


class Control:
    def __init__(self, server):
        self._server = server
        self._gate = server.gate
        self.ttl_s = 0
        self._bad_certificates = {}  # service account -> kind

    def bad_certificate(self, account):
        return self._bad_certificates.get(account, self._bad_certificates.get('*'))

    async def _do(self, do, **order):
        match do:
            case 'ca':
                self._server.ca.use(**order)
                if self._server.doorman:
                    self._server.doorman.follow()
                self._server.journal.write('ca', **order)
            case 'trust-domain':
                self._server.ca.trust_domain = str(order['name'])
            case 'cluster-ids':
                self._server.cluster_ids = list(order['names'])
            case 'ttl':
                self.ttl_s = int(order['seconds'])
            case 'bad-certificates':
                self._bad_certificates = {a: bad_answers.known(kind) for a, kind in order['of'].items()}
            case 'empty':
                self._server.resources.empty = bool(order['on'])
                self._server.push()
            case 'goaway':
                await self._server.listener.goaway(float(order['grace']))
            case 'revoke':
                self._server.doorman.revoked = set(order['serials'])
            case 'group':
                self._server.registration.group(**order)
            case 'group-gone':
                self._server.registration.group_gone(**order)
            case 'entry':
                self._server.registration.entry(**order)
            case 'grace':
                self._server.registration.grace_s = float(order['seconds'])
            case 'listen':
                await self._server.listener.be(**order)
            case _:
                self._do_at_gate(do, order)

    def _do_at_gate(self, do, order):
        gate, what = self._gate, order.get('what')
        match do:
            case 'pause':
                gate.open[what].clear()
            case 'resume':
                gate.open[what].set()
            case 'slow':
                gate.slow_s[what] = float(order['seconds'])
            case 'fail':
                failure = grpc.StatusCode[order['code']], order.get('text', 'told to fail')
                gate.failures[what] = [failure] * int(order['count'])
            case 'ready':
                gate.ready = bool(order['on'])
            case 'limiter':
                gate.limiter = Limiter(order['per_second']) if order['per_second'] else None
            case 'slots':
                gate.slots = Slots(int(order['count']))
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
                    await self._do(**json.loads(line))
                    answer = {'ok': True}
                except (ValueError, KeyError, TypeError, OSError) as e:
                    answer = {'ok': False, 'why': f'{type(e).__name__}: {e}'}
                writer.write(json.dumps(answer).encode() + b'\n')
                await writer.drain()
        finally:
            writer.close()


def order(directory, **what):
    """Send one order and wait until it is carried out."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(str(Path(directory) / 'control.sock'))
        s.sendall(json.dumps(what).encode() + b'\n')
        answer = json.loads(s.makefile().readline() or '{"why": "no answer"}')
    if not answer.get('ok'):
        raise RuntimeError(f'control plane: {answer.get("why")}')
