"""AggregatedDiscoveryService: one object per stream, fed by the client's requests and by changed files.

Semantics are istiod's (istio-agent.md 13.4, 13.5): clusters, listeners and names are wildcard types, a
stale nonce is ignored, a refused push is not sent again until something changes.
"""
import asyncio
import itertools

import grpc
from envoy.service.discovery.v3 import discovery_pb2 as pb

from . import nodes
from .gate import Refusal
from .registration import Failed
from .resources import BY_URL, KINDS
from .tokens import Refused

SERVICE = 'envoy.service.discovery.v3.AggregatedDiscoveryService'
HEALTH = 'type.googleapis.com/istio.v1.HealthInformation'
_CHANGED, _END = object(), object()


class Subscription:
    def __init__(self, kind):
        self.kind = kind
        self.names = set()
        self.wildcard = False
        self.nonce = None
        self.sent = {}  # name -> version


class Stream:
    """What both flavours share.  Subclasses say how a request is read and a push is written."""
    NODE_FIELD = None
    REQUEST = None

    def __init__(self, server, context):
        self.server, self.context = server, context
        self.id = server.journal.new_stream()
        self.subscriptions = {}
        self.registered = None  # the entry of its node
        self.events = asyncio.Queue()
        self._pushes = itertools.count(1)

    def note(self, event, **fields):
        self.server.journal.write(event, stream=self.id, **fields)

    async def refuse(self, code, text, why):
        self.note('refused', code=code.name, why=why)
        await self.context.abort(code, text)

    async def run(self, requests):
        peer, who = self.server.who(self.context)
        seen = {'peer': peer, 'method': type(self).__name__}
        gate, why = self.server.gate, ''
        if isinstance(who, Refused):
            who, why = None, str(who)
        else:
            seen.update(identity=f'ns/{who["namespace"]}/sa/{who["serviceaccount"]["name"]}', token_pod=who.get('pod'),
                        by=who.get('by', 'token'))
        self.note('open', **seen)
        try:
            await gate.admit(isinstance(self, Delta))
            if not who:
                await self.refuse(grpc.StatusCode.UNAUTHENTICATED, 'authentication failure', why)
            await gate.pass_('ads')
        except Refusal as e:
            await self.refuse(e.code, e.text, e.text)
        reader = asyncio.create_task(self._read(requests))
        self.server.look()
        self.server.streams.add(self)
        try:
            await self._serve(who)
        finally:
            self.server.streams.discard(self)
            self.server.registration.disconnect(self)
            reader.cancel()
            self.note('close')

    async def _read(self, requests):
        try:
            async for data in requests:
                self.events.put_nowait(data)
        finally:
            self.events.put_nowait(_END)

    async def _serve(self, who):
        pod = None
        while (event := await self.events.get()) is not _END:
            if event is _CHANGED:
                await self._push_all(pod)
                continue
            request = self.REQUEST.FromString(event)
            if request.type_url == HEALTH:
                if pod:  # as the first request it is ignored
                    self._note_request(request)
                    self.server.registration.health(self, request.error_detail.message if request.HasField('error_detail') else None)
                continue
            if pod is None:
                pod = await self._first(event, who)
            kind = BY_URL.get(request.type_url)
            self._note_request(request)
            if kind:
                await self.on_request(kind, request, self.server.resources.get(pod, kind))

    async def _first(self, data, who):
        """Checks the node and returns the pod it names as "ns.name"."""
        node = nodes.describe(nodes.raw_node(data, self.NODE_FIELD))
        self.note('node', **node)
        try:
            nodes.check(node, who)
        except nodes.BadNode as e:
            await self.refuse(grpc.StatusCode.INVALID_ARGUMENT, str(e), str(e))
        except nodes.NotYours as e:
            await self.refuse(grpc.StatusCode.PERMISSION_DENIED, str(e), str(e))
        try:
            self.server.registration.connect(self, node, who)
        except Failed as e:
            await self.refuse(e.code, e.text, e.text)
        name, _, ns = node['id'].split('~')[2].rpartition('.')
        return f'{ns}.{name}'

    def _note_request(self, request):
        kind = 'nack' if request.HasField('error_detail') else 'ack' if request.response_nonce else 'ask'
        self.note('request', type=request.type_url, nonce=request.response_nonce, kind=kind,
                  error=request.error_detail.message, error_code=request.error_detail.code,
                  has_node=request.HasField('node'), names=self.names_asked(request))

    def changed(self):
        self.events.put_nowait(_CHANGED)

    async def _push_all(self, pod):
        for kind in KINDS:
            sub = self.subscriptions.get(kind.type_url)
            if sub and pod:
                await self.on_change(sub, self.server.resources.get(pod, kind))

    async def send(self, sub, response, names):
        sub.nonce = response.nonce = f'{self.id}-{next(self._pushes)}'
        async with self.server.gate.slots.one():
            self.note('push', type=sub.kind.type_url, nonce=sub.nonce, names=names)
            await self.context.write(response.SerializeToString())


class Sotw(Stream):
    NODE_FIELD = 2
    REQUEST = pb.DiscoveryRequest

    @staticmethod
    def names_asked(request):
        return list(request.resource_names)

    async def on_request(self, kind, request, there):
        sub = self.subscriptions.get(kind.type_url)
        names = set(request.resource_names)
        if sub and request.response_nonce:
            if request.response_nonce != sub.nonce or request.HasField('error_detail'):
                return
            added, sub.names = names - sub.names, names
            if not added:
                return
        else:
            sub = self.subscriptions[kind.type_url] = Subscription(kind)
            sub.names = names
        await self._push(sub, there)

    async def on_change(self, sub, there):
        wanted = self._wanted(sub, there)
        if sub.sent != {name: r.version for name, r in wanted.items()}:
            await self._push(sub, there)

    @staticmethod
    def _wanted(sub, there):
        return there if sub.kind.wildcard else {n: r for n, r in there.items() if n in sub.names}

    async def _push(self, sub, there):
        if not sub.kind.wildcard and not sub.names:
            return
        wanted = self._wanted(sub, there)
        sub.sent = {name: r.version for name, r in wanted.items()}
        response = pb.DiscoveryResponse(
            type_url=sub.kind.type_url, version_info=f'v{self.server.resources_version}',
            resources=[r.any for r in wanted.values()])
        await self.send(sub, response, sorted(wanted))


class Delta(Stream):
    NODE_FIELD = 1
    REQUEST = pb.DeltaDiscoveryRequest

    @staticmethod
    def names_asked(request):
        return list(request.resource_names_subscribe)

    async def on_request(self, kind, request, there):
        sub = self.subscriptions.get(kind.type_url)
        asked = set(request.resource_names_subscribe)
        first = sub is None
        if first:
            sub = self.subscriptions[kind.type_url] = Subscription(kind)
            sub.wildcard = kind.wildcard and not asked
            sub.sent = dict(request.initial_resource_versions)
        if '*' in asked:
            sub.wildcard = True
        sub.names |= asked - {'*'}
        for name in request.resource_names_unsubscribe:
            sub.names.discard(name)
            sub.sent.pop(name, None)
        for name in asked:  # asked for again: answered again
            if not first:
                sub.sent.pop(name, None)
        if first or asked:
            await self._push(sub, there, always=True, missing=asked - there.keys() - {'*'})

    async def on_change(self, sub, there):
        await self._push(sub, there, always=False, missing=set())

    async def _push(self, sub, there, always, missing):
        wanted = there if sub.wildcard else {n: r for n, r in there.items() if n in sub.names}
        new = {n: r for n, r in wanted.items() if sub.sent.get(n) != r.version}
        gone = (sub.sent.keys() - wanted.keys()) | missing if sub.kind.removes else ()
        if not (new or gone or always):
            return
        sub.sent = {n: r.version for n, r in wanted.items()}
        response = pb.DeltaDiscoveryResponse(
            type_url=sub.kind.type_url, system_version_info=f'v{self.server.resources_version}',
            removed_resources=sorted(gone),
            resources=[pb.Resource(name=n, version=r.version, resource=r.any) for n, r in new.items()])
        await self.send(sub, response, sorted(new))


class DiscoveryService:
    def __init__(self, server):
        self._server = server

    def handler(self):
        def method(flavour):
            async def serve(requests, context):
                await flavour(self._server, context).run(requests)
            return grpc.stream_stream_rpc_method_handler(serve)
        return grpc.method_handlers_generic_handler(SERVICE, {
            'StreamAggregatedResources': method(Sotw), 'DeltaAggregatedResources': method(Delta)})
