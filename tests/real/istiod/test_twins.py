"""One pod, first with pilot-agent and then with agentd: what its Envoy gets, and what istiod is told, is the same.

What is not the same stands here, each with its reason; more or less than that is a failure.
"""
import contextlib
import hashlib
import json
import queue

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.json_format import ParseDict

from tests.e2e.clients import ADS
from tests.e2e.pod import ADMIN
from tests.e2e.run import wait_for

from .conftest import start
from .world import OurPod

# Keys of the node's metadata.
NODE = {
    'AGENTD_VERSION': 'only ours: whom a pod is served by',
}
# Places in the bootstrap beside the node; a place covers what is below it.
BOOTSTRAP = {
    'application_log_config': "Envoy's own format of log lines is left",
    'bootstrap_extensions': 'the internal listener is for HBONE, which agentd does not ask for',
    'layered_runtime.layers.global config.static_layer': 'each release of Istio has other switches; agentd has those of the newest',
    'overload_manager': 'the same limit, which releases before 1.27 keep among the switches',
    'static_resources.clusters.xds-grpc.max_requests_per_connection': 'deprecated by Envoy: the same stands in the HTTP options',
    'static_resources.clusters.xds-grpc.typed_extension_protocol_options': 'the same',
    'static_resources.clusters.xds-grpc.upstream_connection_options': 'TCP keepalive on a unix socket does nothing',
    'static_resources.clusters.agent': 'nothing of agentd listens in the pod',
    'static_resources.listeners': 'readiness is answered by Envoy itself; statistics are not compressed; both paths are exact',
    'stats_config.stats_matcher': 'the same patterns in another order',
}
KINDS = {'Clusters': ('dynamic_active_clusters', 'cluster'), 'Listeners': ('dynamic_listeners', 'active_state.listener'),
         'Routes': ('dynamic_route_configs', 'route_config'), 'Endpoints': ('dynamic_endpoint_configs', 'endpoint_config')}
TYPES = {'Clusters': 'cluster.v3.Cluster', 'Listeners': 'listener.v3.Listener', 'Routes': 'route.v3.RouteConfiguration',
         'Endpoints': 'endpoint.v3.ClusterLoadAssignment'}


def section(dump, name):
    return next(c for c in dump['configs'] if f'.{name}ConfigDump' in c['@type'])


def held(dump, kind):
    """{name: resource} of what Envoy got by ADS."""
    rows, path = KINDS[kind]
    found = {}
    for row in section(dump, kind).get(rows, ()):
        for step in path.split('.'):
            row = row[step]
        found[row.get('name') or row['cluster_name']] = row
    return found


def named(value):
    """A list of things with names as a map; extensions by their place."""
    if isinstance(value, list) and value and all(isinstance(v, dict) and 'name' in v for v in value):
        return {v['name']: v for v in value}
    return dict(enumerate(value)) if isinstance(value, list) else value


def differences(a, b, place=''):
    """The places at which two documents differ, as deep as both have something there."""
    a, b = named(a), named(b)
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return [] if a == b else [place]
    return [d for key in sorted({*a, *b}, key=str) if a.get(key) != b.get(key)
            for d in differences(a.get(key), b.get(key), f'{place}.{key}'.lstrip('.'))]


def fetch(path, node, wanted):
    """{type: digests of the resources' bytes} that a client of this ADS socket gets; `wanted`: type -> names, none: all.

    Its Envoy, displaced, comes back and displaces us: then there is less, and the caller asks again."""
    asked, found = queue.SimpleQueue(), {url: set() for url in wanted}
    for n, (url, names) in enumerate(wanted.items()):
        asked.put(discovery_pb2.DiscoveryRequest(
            type_url=url, resource_names=names, node=ParseDict(node, base_pb2.Node()) if n == 0 else None))
    with grpc.insecure_channel(f'unix:{path}') as channel:
        stream = channel.stream_stream(f'{ADS}StreamAggregatedResources', lambda m: m.SerializeToString(),
                                       discovery_pb2.DiscoveryResponse.FromString)(iter(asked.get, None), timeout=10)
        with contextlib.suppress(grpc.RpcError):
            for answer in stream:
                found[answer.type_url] |= {hashlib.sha256(r.value).hexdigest() for r in answer.resources}
                if all(len(found[url]) >= max(1, len(names)) for url, names in wanted.items()):
                    break
        stream.cancel()
        asked.put(None)
    return {url: sorted(digests) for url, digests in found.items()}


def told(world, pod):
    """The node as istiod reads it."""
    row = next(c for c in world.istiod.debug('adsz')['clients'] if c['connectionId'].startswith(f'{pod.name}.{pod.ns}-'))
    return row['metadata'] | {'labels of the row': row.get('labels'), 'locality of the row': row.get('locality')}


def observe(world, pod):
    """What Envoy has, and what istiod knows of it."""
    dump = pod.netns.json(ADMIN, '/config_dump?include_eds')
    wanted = {f'type.googleapis.com/envoy.config.{TYPES[kind]}': sorted(held(dump, kind)) if kind in ('Routes', 'Endpoints') else []
              for kind in KINDS}
    sizes = {url: len(held(dump, kind)) for url, kind in zip(wanted, KINDS)}
    node = section(dump, 'Bootstrap')['bootstrap']['node']
    node = {k: v for k, v in node.items() if k in ('id', 'cluster', 'metadata')}

    def complete():
        raw = pod.call(fetch, pod.xds, node, wanted)
        return raw if all(len(raw.get(url, ())) == size for url, size in sizes.items()) else None
    metadata = told(world, pod)
    return dump, metadata, wait_for('all resources', complete)


def furnish(world):
    """A mesh with something of each kind."""
    world.plain('neighbour')
    meta = {'namespace': 'demo'}
    world.istiod.configure(
        'some',
        {'apiVersion': 'networking.istio.io/v1', 'kind': 'ServiceEntry', 'metadata': {'name': 'outside', **meta}, 'spec': {
            'hosts': ['outside.example'], 'location': 'MESH_EXTERNAL', 'resolution': 'STATIC',
            'ports': [{'number': 443, 'name': 'tls', 'protocol': 'TLS'}, {'number': 80, 'name': 'http', 'protocol': 'HTTP'}],
            'endpoints': [{'address': '192.0.2.7'}]}},
        {'apiVersion': 'networking.istio.io/v1', 'kind': 'VirtualService', 'metadata': {'name': 'neighbour', **meta}, 'spec': {
            'hosts': ['neighbour'], 'http': [{'timeout': '7s', 'route': [{'destination': {'host': 'neighbour', 'subset': 'one'}}]}]}},
        {'apiVersion': 'networking.istio.io/v1', 'kind': 'DestinationRule', 'metadata': {'name': 'neighbour', **meta}, 'spec': {
            'host': 'neighbour', 'subsets': [{'name': 'one', 'labels': {'app': 'neighbour'}}]}},
        {'apiVersion': 'security.istio.io/v1', 'kind': 'AuthorizationPolicy', 'metadata': {'name': 'twin', **meta}, 'spec': {
            'selector': {'matchLabels': {'app': 'twin'}}, 'action': 'ALLOW', 'rules': [{'to': [{'operation': {'methods': ['GET']}}]}]}})


def test_twins(world):
    furnish(world)
    theirs = world.sidecar('twin')
    start(theirs)
    dump, metadata, raw = observe(world, theirs)
    theirs.envoy.stop(60)
    wait_for('istiod to forget it', lambda: not world.istiod.debug('syncz'))

    ours = OurPod.instead_of(theirs)
    start(ours)
    # The first Envoy of a pod starts before agentd knows the pod's address; the next one has it in its bootstrap, too.
    first = told(world, ours)
    ours.envoy.kill()
    start(ours)
    dump_ours, metadata_ours, raw_ours = observe(world, ours)
    assert first == metadata_ours

    for kind in KINDS:
        assert held(dump_ours, kind) == held(dump, kind), kind
        assert held(dump, kind)
    assert raw_ours == raw
    assert json.dumps(sorted(s['name'] for s in section(dump_ours, 'Secrets')['dynamic_active_secrets'])) == \
        json.dumps(sorted(s['name'] for s in section(dump, 'Secrets')['dynamic_active_secrets']))

    bootstrap, bootstrap_ours = (section(d, 'Bootstrap')['bootstrap'] for d in (dump, dump_ours))
    node, node_ours = (b.pop('node') for b in (bootstrap, bootstrap_ours))
    extensions, extensions_ours = (n.pop('extensions') for n in (node, node_ours))  # Envoy's own, in no order
    assert sorted(e['name'] for e in extensions_ours) == sorted(e['name'] for e in extensions)
    assert set(differences(node_ours.pop('metadata'), node.pop('metadata'))) == set(NODE)
    assert differences(node_ours, node) in ([], ['locality'])  # not there, or there and empty
    assert set(differences(metadata_ours, metadata)) <= set(NODE)
    found = differences(bootstrap_ours, bootstrap)
    assert not [d for d in found if not any(f'{d}.'.startswith(f'{known}.') for known in BOOTSTRAP)]
