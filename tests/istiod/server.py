"""The process: TLS on one port for both services, files polled, orders taken."""
import asyncio
import json
import signal
import time
from pathlib import Path

from .ads import DiscoveryService
from .ca import CA
from .control import Control
from .csr import CertificateService
from .doorman import Doorman
from .gate import Gate
from .journal import Journal
from .listener import Listener
from .registration import Registration
from .resources import Resources
from .tokens import Refused, Tokens

POLL_S = 0.1


class Server:
    def __init__(self, directory, cluster_id='Kubernetes', intermediate=False, trust_domain='cluster.local', name=None,
                 client_certificates=False):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.cluster_ids = [cluster_id]
        self.journal = Journal(directory)
        self.tokens = Tokens(directory)
        self.ca = CA(directory, intermediate, trust_domain, name)
        self.resources = Resources(directory, self.journal)
        self.resources_version = 1
        self.registration = Registration(directory, self.journal)
        self.gate = Gate()
        self.control = Control(self)
        self.doorman = Doorman(self.ca, self.journal) if client_certificates else None
        self.listener = Listener(self.ca, (DiscoveryService(self).handler(), CertificateService(self).handler()),
                                 self.journal, self.doorman)
        self.streams = set()

    def who(self, context):
        """(address, claims) of a call: the certificate comes before the token.  Claims: those of a token, or tokens.Refused."""
        peer, identity = self.doorman.client(context.peer()) if self.doorman else (context.peer(), None)
        if identity:
            _, ns, _, sa = identity.split('/')
            return peer, {'namespace': ns, 'serviceaccount': {'name': sa}, 'by': 'certificate'}
        try:
            return peer, self.tokens.check(context.invocation_metadata(), self.cluster_ids)
        except Refused as e:
            return peer, e

    async def _poll(self):
        while True:
            began = time.monotonic()
            await asyncio.sleep(POLL_S)
            if (late := time.monotonic() - began - POLL_S) > 0.5:
                self.journal.write('stalled', seconds=late)
            self.look()

    def look(self):
        """At the files, now: what was written before a stream began is known to it."""
        if self.resources.poll():
            self.push()

    def push(self):
        """Every stream looks for what it has not sent yet."""
        self.resources_version += 1
        for stream in list(self.streams):
            stream.changed()

    async def run(self, address):
        await self.listener.start(address)
        control = await self.control.serve(self.directory)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        poll = asyncio.create_task(self._poll())
        print(json.dumps({'listening': self.listener.address}), flush=True)
        await stop.wait()
        poll.cancel()
        control.close()
        await self.listener.close()
