"""The node of a stream's first request: read as istiod reads it, and kept as the bytes that came."""
import hashlib
import ipaddress

from envoy.config.core.v3 import base_pb2
from google.protobuf.internal.decoder import _DecodeVarint
from google.protobuf.json_format import MessageToDict

TYPES = ('sidecar', 'router', 'waypoint', 'ztunnel')
# Types that istiod decodes metadata into (istio-agent.md 0.16, 8.3); others may be anything.
STRINGS = ('NAME', 'NAMESPACE', 'SERVICE_ACCOUNT', 'CLUSTER_ID', 'MESH_ID', 'NODE_NAME', 'INSTANCE_IPS',
           'ISTIO_VERSION', 'WORKLOAD_NAME', 'NETWORK', 'INTERCEPTION_MODE', 'POD_PORTS', 'DNS_CAPTURE',
           'DNS_AUTO_ALLOCATE', 'GENERATOR', 'ENABLE_HBONE', 'AUTO_REGISTER_GROUP', 'WORKLOAD_ENTRY')
NUMBERS = ('ENVOY_STATUS_PORT', 'ENVOY_PROMETHEUS_PORT')
OBJECTS = ('LABELS', 'STATIC_LABELS', 'ANNOTATIONS', 'PROXY_CONFIG', 'PLATFORM_METADATA')


class BadNode(Exception):
    """The text of an INVALID_ARGUMENT."""


class NotYours(Exception):
    """The text of a PERMISSION_DENIED."""


def fields(data):
    """(number, payload or value, the field's whole bytes) of each top-level field of a message."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _DecodeVarint(data, at)
        wire, value = tag & 7, None
        if wire == 0:
            value, at = _DecodeVarint(data, at)
        elif wire == 2:
            size, at = _DecodeVarint(data, at)
            value, at = data[at:at + size], at + size
        else:
            at += {1: 8, 5: 4}[wire]
        yield tag >> 3, value, data[start:at]


def raw_node(request_bytes, number):
    """The node as it was sent: `number` is its field in the request (SotW 2, delta 1)."""
    return b''.join(v for n, v, _ in fields(request_bytes) if n == number and isinstance(v, bytes))


def describe(raw):
    """For the journal: id and metadata exactly as they came, and a digest of all that is neither."""
    ids, metadata, rest = [], [], b''
    for number, value, whole in fields(raw):
        if number == 1:
            ids.append(value)
        elif number == 3:
            metadata.append(value)
        else:
            rest += whole
    node = base_pb2.Node.FromString(raw)
    locality = '/'.join(p for p in (node.locality.region, node.locality.zone, node.locality.sub_zone) if p)
    return {'id': node.id, 'metadata': MessageToDict(node.metadata), 'locality': locality,
            'id_hex': [v.hex() for v in ids], 'metadata_hex': [v.hex() for v in metadata],
            'rest_sha256': hashlib.sha256(rest).hexdigest(), 'rest_size': len(rest)}


def _valid_ips(text):
    try:
        return [str(ipaddress.ip_address(ip)) for ip in text.split(',') if ip]
    except ValueError:
        return []  # one bad element: the whole list counts for nothing


def _check_types(metadata):
    for keys, kind, name in ((STRINGS, str, 'string'), (NUMBERS, (int, float), 'int'),
                             (OBJECTS, dict, 'map')):
        for key in keys:
            if key in metadata and not isinstance(metadata[key], kind):
                raise BadNode(f'failed to unmarshal node metadata ({metadata}): '
                              f'json: cannot unmarshal into Go struct field {key} of type {name}')
    for value in metadata.get('LABELS', {}).values():
        if not isinstance(value, str):
            raise BadNode(f'failed to unmarshal node metadata ({metadata}): '
                          'json: cannot unmarshal into Go struct field LABELS of type string')


def check(node, who):
    """istio-agent.md 13.3, 13.4.  `node` is what describe() made, `who` the token's claims."""
    if not node['id']:
        raise BadNode('missing node information')
    parts = node['id'].split('~')
    if len(parts) != 4:
        raise BadNode(f'missing parts in the service node {node["id"]!r}')
    if parts[0] not in TYPES:
        raise BadNode(f'invalid node type (valid types: {", ".join(TYPES)} in the service node '
                      f'{node["id"]!r}')
    metadata = node['metadata']
    _check_types(metadata)
    if not _valid_ips(metadata.get('INSTANCE_IPS', '')) and not _valid_ips(parts[1]):
        raise BadNode('no valid IP address in the service node id or metadata')
    domain = parts[3].split('.')
    ns = metadata.get('NAMESPACE') or (domain[0] if len(domain) > 1 else '')
    sa = metadata.get('SERVICE_ACCOUNT', '')
    token_ns, token_sa = who['namespace'], who['serviceaccount']['name']
    if ns != token_ns or (sa and sa != token_sa):
        raise NotYours('authorization failed: no identities '
                       f'([spiffe://cluster.local/ns/{token_ns}/sa/{token_sa}]) matched {ns}/{sa}')
