"""The port: who has it and how it greets.

    nothing   nobody listens; live connections are closed
    silence   connections are accepted, and never a byte is said
    mute      TLS as it should be, and never a byte in it (of both the journal has who left by himself)
    tls1.1    TLS as it was before 1.2, and nothing behind it (of all three the journal has each knock)
    grpc      the control plane.  `age` and `grace`: seconds until a connection gets GOAWAY, and until it is
              closed then; `streams`: at most so many on a connection; `authority`: a root of its own
              instead of the CA's; `name`: of another server; `days`: negative: an expired certificate
"""
import asyncio
import contextlib
import socket
import ssl

import grpc

_KEPT_ALIVE = []  # asyncio keeps weak references to tasks only


def _handshake(client, context):
    with contextlib.suppress(OSError), context.wrap_socket(client, server_side=True):
        pass


async def _greet(listening, context, journal):
    """In a thread, for asyncio's own TLS hangs up without the alert that says why."""
    loop = asyncio.get_running_loop()
    while True:
        client, _ = await loop.sock_accept(listening)
        journal.write('knock')
        client.settimeout(5)
        await loop.run_in_executor(None, _handshake, client, context)


class Listener:
    def __init__(self, ca, handlers, journal, doorman=None):
        """`doorman`: who asks for client certificates; None: nobody does."""
        self._ca, self._handlers, self._journal, self._doorman = ca, handlers, journal, doorman
        self._server = None
        self._end = None
        self.address = None

    async def start(self, address):
        self.address = address
        await self.be('grpc')

    async def be(self, on, **how):
        """All connections of before are closed first."""
        if self._end:
            await self._end()
        self._server, self._end = None, None
        await {'nothing': self._nothing, 'silence': self._silence, 'mute': self._mute, 'tls1.1': self._old_tls,
               'grpc': self._grpc}[on](**how)

    async def goaway(self, grace):
        """The connections of now are left with this much time; new ones find a server that is the same."""
        old, end = self._server, asyncio.create_task(self._server.stop(grace))
        _KEPT_ALIVE.append(end)
        await asyncio.sleep(0)  # the port is free once stop() has begun
        while self._server is old:
            try:
                await self._grpc()
            except RuntimeError:
                await asyncio.sleep(0.02)

    async def close(self):
        if self._end:
            await self._end()

    async def _nothing(self):
        pass

    async def _silence(self, tls=None):
        silent, ended = set(), False

        async def say_nothing(reader, writer):
            self._journal.write('knock')
            silent.add(writer)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            if not ended:
                self._journal.write('left')
            writer.close()
        host, _, port = self.address.rpartition(':')
        server = await asyncio.start_server(say_nothing, host, int(port), reuse_address=True, ssl=tls)

        async def end():
            nonlocal ended
            ended = True
            server.close()
            for writer in silent:
                writer.close()
        self._end = end

    async def _mute(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(['h2'])
        self._ca.load_server_pair(context)
        await self._silence(context)

    async def _old_tls(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers('ALL:@SECLEVEL=0')
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        self._ca.load_server_pair(context)

        host, _, port = self.address.rpartition(':')
        listening = socket.create_server((host, int(port)))
        listening.setblocking(False)
        greeting = asyncio.create_task(_greet(listening, context, self._journal))

        async def end():
            greeting.cancel()
            listening.close()
        self._end = end

    def _credentials(self):
        """Follows the CA's rotation.  Two handshakes at once that both bring grpc a pair break it: only a new one is told."""
        def pair():
            return self._ca.server_key, self._ca.server_chain
        told = [pair()]

        def changed():
            if pair() == told[0]:
                return None
            told[0] = pair()
            return grpc.ssl_server_certificate_configuration([told[0]])
        return grpc.dynamic_ssl_server_credentials(grpc.ssl_server_certificate_configuration([told[0]]), changed)

    async def _grpc(self, age=0, grace=10, streams=0, **certificate):
        self._ca.make_server_certificate(**certificate)
        # A second server on the port would get half of the connections: so_reuseport is off.
        options = [('grpc.so_reuseport', 0), ('grpc.max_receive_message_length', 4 << 20)]
        if age:
            options += [('grpc.max_connection_age_ms', int(age * 1000)),
                        ('grpc.max_connection_age_grace_ms', int(grace * 1000))]
        if streams:
            options += [('grpc.max_concurrent_streams', streams)]
        server = grpc.aio.server(options=options)
        server.add_generic_rpc_handlers(self._handlers)
        if self._doorman:
            port = server.add_insecure_port('127.0.0.1:0')
            await server.start()
            self.address = await self._doorman.lead_to(port, self.address)
        else:
            port = server.add_secure_port(self.address, self._credentials())
            await server.start()
            self.address = f'{self.address.rpartition(":")[0]}:{port}'

        async def end():
            if self._doorman:
                await self._doorman.close()
            await server.stop(0)
        self._server, self._end = server, end
