"""TLS as istiod has it, in front of grpc: a client certificate is verified if one is given.

Python's grpc either demands one or asks for none.  So connections end here, and their bytes go on to a plain port
of grpc's, whose calls are known by the address they come from (bare-metal-identity.md 3).
"""
import asyncio
import contextlib
import ssl

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID

BOTH = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}


class Refused(Exception):
    """What istiod says in its log, and nowhere else."""


def identity(der):
    """'ns/NS/sa/SA' of a verified certificate."""
    extensions = {e.oid: e.value for e in x509.load_der_x509_certificate(der).extensions}
    if usage := extensions.get(ExtensionOID.EXTENDED_KEY_USAGE):
        if not BOTH <= set(usage):
            raise Refused('certificate specifies an incompatible key usage')
    names = extensions.get(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, ())
    uris = [n.value for n in names if isinstance(n, x509.UniformResourceIdentifier)]
    if len(uris) != 1:
        raise Refused(f'does not contain 1 URI type SAN, detected {len(uris)}')
    return uris[0].split('/', 3)[3]


class Doorman:
    def __init__(self, ca, journal):
        self._ca, self._journal = ca, journal
        self._to = None  # grpc's port
        self._server, self._tls = None, None
        self._known = {}  # address of our connection to grpc: (the client's address, its identity or None)
        self._open = set()
        self.revoked = set()  # serial numbers, in hex

    def follow(self):
        """What the CA has now, for the handshakes to come."""
        self._ca.load_server_pair(self._tls)
        self._tls.load_verify_locations(cadata=self._ca.roots_pem)

    def _context(self):
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.set_alpn_protocols(['h2'])
        self._tls.verify_mode = ssl.CERT_OPTIONAL
        self.follow()
        return self._tls

    async def lead_to(self, port, address):
        """From now on new connections go to this port; returns where they come in."""
        self._to = port
        if not self._server:
            host, _, mine = address.rpartition(':')
            self._server = await asyncio.start_server(
                self._serve, host, int(mine), reuse_address=True, ssl=self._context(), ssl_shutdown_timeout=1)
            address = f'{host}:{self._server.sockets[0].getsockname()[1]}'
        return address

    async def close(self):
        server, self._server = self._server, None
        if server:
            server.close()
        for writer in self._open:
            writer.transport.abort()

    def _who(self, tls):
        der = tls.getpeercert(True)
        if not der:
            return None
        serial = f'{x509.load_der_x509_certificate(der).serial_number:x}'
        self._journal.write('certificate', serial=serial)
        if serial in self.revoked:
            raise Refused('certificate is revoked')
        return identity(der)

    async def _serve(self, reader, writer):
        try:
            who = self._who(writer.get_extra_info('ssl_object'))
        except Refused as e:
            self._journal.write('handshake', refused=str(e))
            writer.transport.abort()
            return
        to = await asyncio.open_connection('127.0.0.1', self._to)
        mine = to[1].get_extra_info('sockname')[1]
        client = writer.get_extra_info('peername')
        self._known[f'ipv4:127.0.0.1:{mine}'] = f'ipv4:{client[0]}:{client[1]}', who
        self._open |= {writer, to[1]}
        try:
            await asyncio.gather(_pump(reader, to[1]), _pump(to[0], writer))
        finally:
            for end in (writer, to[1]):
                end.close()
                self._open.discard(end)

    def client(self, peer):
        """(the client's address, its identity or None) of a call from `peer`."""
        return self._known.get(peer, (peer, None))


async def _pump(reader, writer):
    with contextlib.suppress(OSError):  # also TLS's
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()
