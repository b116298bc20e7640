"""The process: TLS on one port for both services, files polled, orders taken."""
import asyncio
import json
import signal
from pathlib import Path

import grpc

from .ads import DiscoveryService
from .ca import CA
from .control import Control
from .csr import CertificateService
from .journal import Journal
from .resources import Resources
from .tokens import Tokens

POLL_S = 0.1


class Server:
    def __init__(self, directory, cluster_id='Kubernetes', intermediate=False, trust_domain='cluster.local'):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.cluster_id = cluster_id
        self.journal = Journal(directory)
        self.tokens = Tokens(directory)
        self.ca = CA(directory, intermediate, trust_domain)
        self.resources = Resources(directory, self.journal)
        self.resources_version = 1
        self.control = Control(self)
        self.streams = set()

    def _credentials(self):
        """Read anew at each handshake, so that the server follows the CA's rotation."""
        def configuration():
            return grpc.ssl_server_certificate_configuration([(self.ca.server_key, self.ca.server_chain)])
        return grpc.dynamic_ssl_server_credentials(configuration(), configuration)

    async def _poll(self):
        while True:
            await asyncio.sleep(POLL_S)
            if self.resources.poll():
                self.resources_version += 1
                for stream in list(self.streams):
                    stream.changed()

    async def run(self, address):
        # A second server on the port would get half of the connections: so_reuseport is off.
        server = grpc.aio.server(options=[('grpc.so_reuseport', 0),
                                          ('grpc.max_receive_message_length', 4 << 20)])
        server.add_generic_rpc_handlers((DiscoveryService(self).handler(),
                                         CertificateService(self).handler()))
        port = server.add_secure_port(address, self._credentials())
        await server.start()
        control = await self.control.serve(self.directory)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        poll = asyncio.create_task(self._poll())
        print(json.dumps({'listening': f'{address.rpartition(":")[0]}:{port}'}), flush=True)
        await stop.wait()
        poll.cancel()
        control.close()
        await server.stop(0.1)
