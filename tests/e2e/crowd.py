"""Stand-ins for the Envoys of many pods, in one process: each in a network namespace of its own.

Crowd is what a test has; `python3 -m tests.e2e.crowd DIR` is what it runs.  A stand-in speaks as Envoy does:
one ADS stream (clusters, listeners), two SDS streams (default, ROOTCA), an ACK for each answer, the node in
the first request, and back-off between streams.  DIR/pods.json says who they are, DIR/orders.json which of
them stop reading, read slowly or go again and again, DIR/counts.json what they have got.
"""
import asyncio
import collections
import ctypes
import json
import os
import random
import socket
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2

from .h2 import Connection
from .run import Process, wait_for

_CLONE_NEWNET = 0x40000000
_TYPE = 'type.googleapis.com/envoy.'
CLUSTER, LISTENER = f'{_TYPE}config.cluster.v3.Cluster', f'{_TYPE}config.listener.v3.Listener'
SECRET = f'{_TYPE}extensions.transport_sockets.tls.v3.Secret'
ADS = '/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources'
SDS = '/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets'
BACKOFF_S, BACKOFF_MAX_S, REPORT_S = 0.5, 30, 0.1
SLOW_S = 0.005  # after each frame: 3 MB take a second


def _write(path, what):
    new = path.with_suffix('.new')
    new.write_text(json.dumps(what))
    new.rename(path)


class Crowd:
    """`count` pods of `accounts` service accounts, manifests (with these fields) and tokens; their stand-ins run from start() on."""

    def __init__(self, node, count, accounts, name='crowd', first_account=0, **fields):
        self._node, self._dir, self._fields = node, node.dir / name, fields
        self._dir.mkdir()
        self._cgroup = node.cgroup(name)
        self.pods = [self._pod(f'{name}-{n}', f'sa-{first_account + n % accounts}') for n in range(count)]
        self._process = None

    def _pod(self, name, sa):
        uid = str(uuid.uuid4())
        folder = self._node.agentd.manifests / uid
        folder.mkdir(mode=0o700)
        (folder / 'token').write_text(self._node.istiod.tokens.issue('demo', sa, name, uid) + '\n')
        manifest = folder.with_suffix('.yaml.new')
        manifest.write_text(yaml.safe_dump(
            {'uid': uid, 'name': name, 'namespace': 'demo', 'service_account': sa, **self._fields}))
        manifest.rename(folder.with_suffix('.yaml'))
        return {'uid': uid, 'name': name, 'sa': sa, 'mount': str(self._node.agentd.run / 'pods' / uid / 'mount')}

    def start(self):
        _write(self._dir / 'pods.json', self.pods)
        self.stuck()
        self._process = Process([sys.executable, '-m', 'tests.e2e.crowd', self._dir], self._dir / 'log',
                                self._cgroup)
        return self

    def stuck(self, *names, slow=(), dying=()):
        """From now on these do not read what comes on their ADS stream; or read it slowly; or hang up every 0.1 s."""
        _write(self._dir / 'orders.json', {'stuck': names, 'slow': slow, 'dying': dying})

    def counts(self):
        """Pod name -> {stuck, opened, ended, ads: {type: answers}, versions: {type: last}, sds: {name: answers}}."""
        if not self._process.running():
            raise RuntimeError(f'the stand-ins ended:\n{self._process.tail()}')
        return json.loads((self._dir / 'counts.json').read_text())

    def wait_for(self, what, condition, names=None):
        """Until it holds for the counts of each (of these)."""
        def missing():
            counts = self.counts()
            return [n for n in names or counts if not condition(counts[n])]
        try:
            wait_for(what, lambda: not missing())
        except TimeoutError as e:
            some = {n: self.counts()[n] for n in missing()[:3]}
            raise TimeoutError(f'{e}: missing at {len(missing())}, so {some}') from e

    def wait_served(self, names=None):
        self.wait_for('everybody to have all', lambda c: {'default', 'ROOTCA'} <= c['sds'].keys()
                      and {CLUSTER, LISTENER} <= c['ads'].keys(), names)

    def stop(self):
        if self._process:
            self._process.stop()


class Namespaces:
    """A thread that makes network namespaces, and sockets in them, which stay there for ever."""

    def __init__(self):
        self._thread = ThreadPoolExecutor(1)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def _call(self, function, *args):
        if getattr(self._libc, function)(*args):
            raise OSError(ctypes.get_errno(), function)

    def _make(self):
        self._call('unshare', _CLONE_NEWNET)
        return os.open('/proc/thread-self/ns/net', os.O_RDONLY | os.O_CLOEXEC)

    def _socket(self, ns):
        self._call('setns', ns, _CLONE_NEWNET)
        made = socket.socket(socket.AF_UNIX)
        made.setblocking(False)
        return made

    def new(self):
        return self._thread.submit(self._make).result()

    def socket(self, ns):
        return self._thread.submit(self._socket, ns).result()


class StandIn:
    def __init__(self, pod, namespaces):
        self.name, self.mount = pod['name'], Path(pod['mount'])
        self._node = base_pb2.Node(id=f'sidecar~~{pod["name"]}.demo~demo.svc.cluster.local')
        self._namespaces, self._ns = namespaces, namespaces.new()
        self.stuck, self.slow, self._ads = False, False, None
        self.counts = {'stuck': False, 'opened': 0, 'ended': 0, 'ads': collections.Counter(), 'versions': {},
                       'sds': collections.Counter()}

    async def run(self):
        await asyncio.gather(self._for_ever('socket', self._start_sds), self._for_ever('XDS', self._start_ads))

    def hold(self, stuck, slow=False):
        self.stuck, self.slow = stuck, slow
        self.counts['stuck'] = stuck
        if self._ads:
            (self._ads.reading.clear if stuck else self._ads.reading.set)()
            self._ads.pause_s = SLOW_S if slow else 0

    def die(self):
        if self._ads:
            self._ads.close()

    async def _for_ever(self, socket_name, start):
        failures = 0
        while True:
            talk = Talk(self, SDS if socket_name == 'socket' else ADS)
            try:
                sock = self._namespaces.socket(self._ns)
                await asyncio.get_running_loop().sock_connect(sock, str(self.mount / socket_name))
                await talk.over(sock, start)
            except OSError:
                pass
            failures = 0 if talk.answered else failures + 1
            await asyncio.sleep(random.uniform(0, min(BACKOFF_S * 2 ** failures, BACKOFF_MAX_S)))

    def _start_sds(self, talk):
        for name in ('default', 'ROOTCA'):
            talk.ask(talk.open(), SECRET, [name], node=self._node)

    def _start_ads(self, talk):
        self._ads = talk.connection
        self.hold(self.stuck, self.slow)
        self.counts['opened'] += 1
        stream = talk.open()
        talk.ask(stream, CLUSTER, node=self._node)
        talk.ask(stream, LISTENER)


class Talk:
    """One connection.  It is over when one of its streams is."""

    def __init__(self, stand_in, method):
        self._counts, self._method = stand_in.counts, method
        self._names = {}
        self.connection, self.answered = None, False

    async def over(self, sock, start):
        self.connection = await Connection.over(sock, self._message, self._ended)
        start(self)
        await self.connection.run()

    def open(self):
        return self.connection.open(self._method)

    def ask(self, stream, kind, names=(), **fields):
        self._names[stream] = names
        request = discovery_pb2.DiscoveryRequest(type_url=kind, resource_names=names, **fields)
        self.connection.send(stream, request.SerializeToString())

    def _message(self, stream, data):
        response = discovery_pb2.DiscoveryResponse.FromString(data)
        kind, self.answered = response.type_url, True
        if self._method == SDS:
            self._counts['sds'][self._names[stream][0]] += 1
        else:
            self._counts['ads'][kind] += 1
            self._counts['versions'][kind] = response.version_info
        self.ask(stream, kind, self._names[stream], version_info=response.version_info,
                 response_nonce=response.nonce)

    def _ended(self, _stream):
        self._counts['ended'] += self._method == ADS
        self.connection.close()


async def _report(directory, stand_ins):
    while True:
        orders = json.loads((directory / 'orders.json').read_text())
        for s in stand_ins:
            how = s.name in orders['stuck'], s.name in orders['slow']
            if how != (s.stuck, s.slow):
                s.hold(*how)
            if s.name in orders['dying']:
                s.die()
        _write(directory / 'counts.json', {s.name: s.counts for s in stand_ins})
        await asyncio.sleep(REPORT_S)


async def _main(directory):
    namespaces = Namespaces()
    stand_ins = [StandIn(p, namespaces) for p in json.loads((directory / 'pods.json').read_text())]
    await asyncio.gather(_report(directory, stand_ins), *(s.run() for s in stand_ins))


if __name__ == '__main__':
    asyncio.run(_main(Path(sys.argv[1])))
