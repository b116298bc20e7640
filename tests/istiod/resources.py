"""DIR/resources/{all,NAMESPACE.POD}/{clusters,endpoints,listeners,routes,extensions,names,anchors}.{json,yaml}, watched.

Each file is a list of Envoy resources in protobuf's JSON form, but `names`, which is an object
{host name: [address, ...]} or {host name: {ips, registry, shortname, namespace}}, and `anchors` (PCDS), a
list of certificates in PEM.  A file that cannot be read leaves what was there before in force.
"""
import hashlib
import importlib
import json
from pathlib import Path

import yaml
from google.protobuf import any_pb2
from google.protobuf.json_format import ParseDict, ParseError

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2

from .messages import NameTable, ProxyConfig

PREFIX = 'type.googleapis.com/'
# What an Any inside a resource may hold: importing a module is what makes its messages known.
for _module in ('udpa.type.v1.typed_struct', 'xds.type.v3.typed_struct'):
    importlib.import_module(f'{_module}_pb2')
for _module in ('config.bootstrap.v3.bootstrap', 'extensions.filters.http.router.v3.router',
                'extensions.filters.network.http_connection_manager.v3.http_connection_manager',
                'extensions.filters.network.tcp_proxy.v3.tcp_proxy',
                'extensions.filters.listener.original_dst.v3.original_dst',
                'extensions.filters.listener.tls_inspector.v3.tls_inspector',
                'extensions.transport_sockets.tls.v3.tls',
                'extensions.upstreams.http.v3.http_protocol_options',
                'extensions.access_loggers.stream.v3.stream',
                'extensions.access_loggers.grpc.v3.als',
                'extensions.filters.http.rbac.v3.rbac',
                'extensions.filters.http.wasm.v3.wasm',
                'extensions.filters.network.wasm.v3.wasm'):
    importlib.import_module(f'envoy.{_module}_pb2')


class Kind:
    def __init__(self, stem, message, name_field, wildcard, removes=True):
        self.stem, self.message, self.name_field, self.wildcard = stem, message, name_field, wildcard
        self.removes = removes  # delta says which are gone
        self.type_url = PREFIX + message.DESCRIPTOR.full_name


# In the order in which istiod pushes.
KINDS = (
    Kind('clusters', cluster_pb2.Cluster, 'name', True),
    Kind('endpoints', endpoint_pb2.ClusterLoadAssignment, 'cluster_name', False),
    Kind('listeners', listener_pb2.Listener, 'name', True),
    Kind('routes', route_pb2.RouteConfiguration, 'name', False),
    Kind('extensions', extension_pb2.TypedExtensionConfig, 'name', False, removes=False),
    Kind('names', NameTable, None, True),
    Kind('anchors', ProxyConfig, None, True),
)
BY_URL = {k.type_url: k for k in KINDS}


class Resource:
    def __init__(self, kind, message):
        self.name = getattr(message, kind.name_field) if kind.name_field else ''
        data = message.SerializeToString(deterministic=True)
        self.any = any_pb2.Any(type_url=kind.type_url, value=data)
        self.version = hashlib.sha256(data).hexdigest()[:12]


def _messages(kind, content):
    if kind.message is NameTable:
        return [ParseDict({'table': {host: info if isinstance(info, dict) else {'ips': info}
                                     for host, info in content.items()}}, NameTable())]
    if kind.message is ProxyConfig:
        return [ProxyConfig(ca_certificates_pem=content)]
    return [ParseDict(item, kind.message()) for item in content]


class Resources:
    def __init__(self, directory, journal):
        self.directory = Path(directory) / 'resources'
        self.directory.mkdir(parents=True, exist_ok=True)
        self._journal = journal
        self.empty = False  # as an istiod that has just been started and knows nothing yet
        self._seen = {}   # path -> what stat said
        self._loaded = {}  # path -> [Resource]
        self.poll()

    def _files(self):
        for kind in KINDS:
            for suffix in ('json', 'yaml'):
                for path in self.directory.glob(f'*/{kind.stem}.{suffix}'):
                    yield kind, path

    def poll(self):
        """Read what has changed; true if anything did."""
        now, changed = {}, False
        for kind, path in self._files():
            try:
                st = path.stat()
            except FileNotFoundError:
                continue
            now[path] = (st.st_mtime_ns, st.st_size, st.st_ino)
            if self._seen.get(path) != now[path]:
                changed |= self._read(kind, path)
        for path in self._seen.keys() - now.keys():
            changed |= self._loaded.pop(path, None) is not None
        self._seen = now
        return changed

    def _read(self, kind, path):
        try:
            text = path.read_text()
            content = json.loads(text) if path.suffix == '.json' else yaml.safe_load(text)
            self._loaded[path] = [Resource(kind, m) for m in _messages(kind, content or [])]
        except (OSError, ValueError, TypeError, AttributeError, ParseError, yaml.YAMLError) as e:
            self._journal.write('bad-file', file=str(path), why=str(e))
            return False
        return True

    def get(self, pod, kind):
        """{name: Resource} for the pod "ns.name"; its own win over `all`."""
        found = {}
        if self.empty:
            return found
        for folder in ('all', pod):
            for suffix in ('json', 'yaml'):
                for r in self._loaded.get(self.directory / folder / f'{kind.stem}.{suffix}', ()):
                    found[r.name] = r
        return found
