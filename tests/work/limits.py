"""The limits of docs/LIMITS.md as inputs: for each what reads it (a fuzz target), how much it lets in, and of whom; and texts of that size.

A shape is a text that is repeated: what looks back, or compares each item with all, takes four times as much for twice as many.
"""
from typing import NamedTuple

from . import cases

KIB, MIB = 1024, 1 << 20

TEXTS = {name: text.encode('latin-1') for name, text in cases.CLASSES.items()}
JSONS = {'ones': b'1,', 'empty maps': b'{},', 'empty texts': b'"",', 'deep': b'[', 'maps in maps': b'{"a":', 'a long text': b'a', 'escapes': rb'\u00e9',
         'one key': b'"a":1,', 'keys': None}
YAMLS = {'maps': b'a: {b: 1}\n', 'depth': b'[', 'a text': b'a' * 60, 'dashes': b'- ', 'quotes': b'"', 'colons': b'? ', 'comments': b'#',
         'lines': b'\n', 'folded': b'>\n a\n', 'escapes': b'"\\x41" ', 'items': b'- a: 1\n', 'documents': b'--- {}\n'}
WIRES = {'empty fields': b'\x0a\x00', 'a byte each': b'\x12\x01a', 'nested': b'\x0a\x02\x12\x00', 'numbers': b'\x08\x01', 'endless numbers': b'\xff',
         'fields of any': b'\x22\x04\x12\x02aa', 'names': b'\x1a\x03a.b', 'zeroes': b'\0'}
LONG = {'names': b'\x1a\x13outbound|80||a.b.ns', 'nothing': b'\x0a' + b'\x80\x20' + b'a' * 4096}
KEYS_OF = b'"k%06d":1,'


def repeated(text, n):
    return text * (n // len(text))


def json_of(shape):
    """n -> a text that is JSON, or would be."""
    name, text = shape
    if name == 'keys':
        return lambda n: b'{' + b''.join(KEYS_OF % i for i in range(n // 12)) + b'"z":1}'
    if name == 'one key':
        return lambda n: b'{' + repeated(text, n) + b'"z":1}'
    if name in ('a long text', 'escapes'):
        return lambda n: b'{"a":"' + repeated(text, n) + b'"}'
    if name in ('deep', 'maps in maps'):
        return lambda n: repeated(text, n)
    return lambda n: b'{"a":[' + repeated(text, n) + b'1]}'


class Limit(NamedTuple):
    name: str
    who: str  # 'stranger', 'owner', 'operator', 'operator, of manifests'; istiod is the operator's
    target: str
    most: int  # bytes
    shapes: dict  # {name: n -> bytes}
    reads: int = 1  # how often the target reads it, with its laws

    def inputs(self, n):
        return [(f'{self.name}: {shape}', make(n)) for shape, make in self.shapes.items()]


def texts(before=b'', behind=b'', of=None):
    return {name: lambda n, text=text: before + repeated(text, n) + behind for name, text in (of or TEXTS).items()}


def jsons(before=b'', behind=b''):
    return {name: lambda n, make=json_of((name, text)): before + make(n) + behind for name, text in JSONS.items()}


def yamls(before=b'', behind=b''):
    return texts(before, behind, YAMLS)


def wires(before=b''):
    return texts(before, of=WIRES)


QUERY = b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x04demo\x00\x00\x01\x00\x01'


def answers(n):
    """A resolver's answer to it, with as many addresses."""
    answer = QUERY[:2] + b'\x81\x80' + QUERY[4:6] + (n // 16).to_bytes(2, 'big') + QUERY[8:] + (b'\xc0\x0c\0\1\0\1\0\0\0\x1e\0\4\1\2\3\4') * (n // 16)
    return len(QUERY).to_bytes(2, 'big') + QUERY + answer


def field(number, payload):
    size = bytearray()
    rest = len(payload)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *size, rest]) + payload


def attributes(n):
    """A NodePublishVolumeRequest of the kubelet's with as many attributes as fit, and the rest in one value."""
    context = b''.join(field(8, field(1, b'env.K%d' % i) + field(2, b'v')) for i in range(min(256, n // 20)))
    return field(1, b'csi-1') + field(4, b'/var/lib/kubelet/pods/6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11/volumes/kubernetes.io~csi/mesh/mount') + \
        context + field(8, field(1, b'labels') + field(2, b'a="b"\n' * ((n - len(context)) // 6)))


def names(n):
    """A NameTable: a service of one address each."""
    return b'\0\0' + b''.join(field(1, field(1, b's%d.ns1.svc.cluster.local' % i) + field(2, field(1, b'10.0.%d.%d' % (i >> 8 & 255, i & 255))))
                              for i in range(n // 48))


def names_of_one(n):
    return b'\0\0' + b''.join(field(1, field(1, b's.ns1.svc.cluster.local') + field(2, field(1, b'10.0.0.1'))) for _ in range(n // 44))


def addresses_of_one(n):
    return b'\0\0' + field(1, field(1, b's.ns1.svc.cluster.local') + field(2, b''.join(field(1, b'10.0.%d.%d' % (i >> 8 & 255, i & 255))
                                                                                      for i in range(n // 12))))


def manifest(env):
    return b'uid: 6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11\nname: web\nnamespace: demo\nserviceAccount: web\nenv:\n' + env


def variables(n):
    """As many variables as there may be, 1 KiB of value each."""
    return manifest(b''.join(b'  ISTIO_META_K%d: "%s"\n' % (i, b'v' * 1000) for i in range(n // 1024)))


def header_block(fields):
    """One HEADERS frame of a stream, of at most 16 KiB."""
    def make(n):
        block = repeated(fields, n)
        return len(block).to_bytes(3, 'big') + b'\1\4\0\0\0\1' + block
    return make


def frames(frame):
    return lambda n: repeated(frame, n)


def probers(n):
    one = b'"/app-health/a%d/livez":{"httpGet":{"path":"/%s","port":8080}}'
    size = max(1, n // 64 - 70)
    return b'{' + b','.join(one % (i, b'a' * min(size, 1900)) for i in range(64)) + b'}'


def rules(key, item):
    return lambda n: b'mode=ebpf\na' + key + b'=' + repeated(item, n) + item.strip(b',')


def pem(n):
    """As many blocks as fit, of no certificate."""
    return repeated(b'-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n', n)


def content(text):
    """Of a followed file, as crl_fuzz has it: 64 KiB each."""
    return lambda n: b''.join(b'\0' + len(piece).to_bytes(2, 'little') + piece for piece in (
        repeated(text, min(65000, n - at)) for at in range(0, n, 65000)))


OF_A_POD = b'a' * 4000  # as real ones have


def pods(n):
    """A list of pods, each of another owner."""
    one = b'{"kind":"Pod","metadata":{"name":"p%06d","namespace":"d","annotations":{"a":"%s"}},"spec":{"containers":[{"name":"a"}]}},'
    items = b''.join(one % (i, OF_A_POD) for i in range(n // (115 + len(OF_A_POD))))
    return b'{"kind":"List","items":[' + items[:-1] + b']}'


def manifests(n):
    one = b'---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d, annotations: {a: "%s"}}\nspec: {containers: [{name: a}]}\n'
    return b''.join(one % (i, OF_A_POD) for i in range(n // (105 + len(OF_A_POD))))


def dump(entry):
    return lambda n: b'{"configs":[{"dynamic_listeners":[' + repeated(entry + b',', n) + entry + b']}]}'


LIMITS = [
    # whoever reaches a port of the node or of a pod
    Limit('the metrics port, a request', 'stranger', 'metrics_port', 8 * KIB, texts(b'\0GET /metrics', b'\r\n\r\n')),
    Limit('the metrics port, headers', 'stranger', 'metrics_port', 8 * KIB, texts(b'\0GET /metrics HTTP/1.1\r\n', b'\r\n\r\n', {
        'small ones': b'a:\r\n', 'folded': b'a: b\r\n c\r\n', 'all the same': b'Host: a\r\n', 'lengths': b'Content-Length: 1\r\n'})),
    Limit('a resolver\'s answer', 'stranger', 'dns_message', 65000, {'addresses': answers}),
    # a pod, or its owner
    Limit('a query', 'owner', 'dns_message', 4 * KIB, texts(of={
        'labels': b'\1a', 'pointers': b'\xc0\x0c', 'records': b'\0\0\1\0\1\0\0\0\0\0\0'}, before=b'\x0f\xff' + QUERY[:12])),
    Limit('queries by TCP', 'owner', 'dns_stream', 32 * KIB, {
        'empty ones': lambda n: b'\xff\0' + repeated(b'\0\0', n), 'a byte each': lambda n: b'\xff\4' + repeated(b'\0\1a', n),
        'in pieces': lambda n: b'\x3f\0' + repeated(b'\1\0' + b'a' * 256, n), 'with pauses': lambda n: b'\xff\1' + repeated(b'\0\1a', n)}),
    Limit('headers of a stream', 'owner', 'frames', 16 * KIB, {name: header_block(text) for name, text in {
        'references': b'\xbe', 'empty fields': b'\0\0\0', 'table sizes': b'\x20', 'long numbers': b'\x7f\x80\x80\x80\x01\0', 'indexed': b'\x40\1a\1b'}.items()}),
    Limit('frames', 'owner', 'frames', 32 * KIB, {name: frames(frame) for name, frame in {
        'pings': b'\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0', 'settings': b'\0\0\0\4\0\0\0\0\0', 'empty data': b'\0\0\0\0\0\0\0\0\1',
        'resets': b'\0\0\4\3\0\0\0\0\1\0\0\0\0', 'headers': b'\0\0\1\1\4\0\0\0\1\x82', 'continuations': b'\0\0\0\x09\0\0\0\0\1'}.items()}),
    Limit('a message on ADS', 'owner', 'ads_request', 4 * MIB, texts(b'\0', of=LONG), 2),
    Limit('the same, delta', 'owner', 'ads_request', 4 * MIB, texts(b'\1', of=LONG), 2),
    Limit('its 200,000 fields', 'owner', 'ads_request', 400 * 1000, wires(b'\0'), 2),
    Limit('a message on SDS', 'owner', 'sds_request', 60 * KIB, {
        name: lambda n, text=text: b'\0' + len(repeated(text, n)).to_bytes(2, 'big') + repeated(text, n) for name, text in WIRES.items()}),
    Limit('what the kubelet passes on', 'owner', 'csi_request', MIB, {**wires(), 'attributes': attributes}),
    Limit('variables', 'owner', 'manifest', 256 * KIB, {'of 1 KiB': variables}),
    Limit('a ProxyConfig', 'owner', 'probe', 64 * KIB, yamls()),
    Limit('probers', 'owner', 'targets', 64 * KIB, {**jsons(), '64 of them': probers}),
    Limit('a bootstrap override', 'owner', 'override', 64 * KIB, jsons()),
    Limit('expressions of statistics', 'owner', 'regex', 64 * KIB, texts(of={**TEXTS, 'repeats': b'a{9}', 'groups': b'(a|', 'stars of stars': b'(a*)*',
                                                                           'classes': b'[a-z]', 'alternatives': b'a|', 'parentheses': b'('})),
    Limit('excluded ports', 'owner', 'redirect', 64 * KIB, {'ports': rules(b'traffic.sidecar.istio.io/excludeOutboundPorts', b'1,')}),
    Limit('excluded ranges', 'owner', 'redirect', 64 * KIB, {
        'ranges': rules(b'traffic.sidecar.istio.io/excludeOutboundIPRanges', b'::/0,'),
        'flattened': lambda n: b'istio_service_cidr=' + repeated(b'10.0.0.0/8,', n // 2) + b'::/0\nistio_service_exclude_cidr=' +
                               repeated(b'10.1.0.0/16,', n // 2) + b'::/1'}),
    Limit('a token', 'owner', 'token', 16 * KIB, {**texts(), **jsons()}),
    Limit('a list of nftables', 'owner', 'broker_nft', 32 * KIB, texts(of={'empty': b'\x10\0\0\0\3\x0a\0\0\0\0\0\0\0\0\0\0', 'zeroes': b'\0'})),
    Limit('a list of addresses', 'owner', 'broker_netlink', 32 * KIB, texts(b'\0', of={
        'addresses': b'\x20\0\0\0\x14\0\0\0\0\0\0\0\0\0\0\0\2\x08\0\0\1\0\0\0\x08\0\1\0\x0a\0\0\1', 'zeroes': b'\0'})),
    Limit('an app\'s answer about its health', 'owner', 'http_client', 8 * KIB, texts(b'\xff\1HTTP/1.1 200 OK\r\n', b'\r\n\r\n', {
        **TEXTS, 'small headers': b'a:\r\n'})),
    # istiod, and files of root's
    Limit('a table of names', 'operator', 'dns_table', 16 * MIB, {'names': names, 'one name': names_of_one, 'addresses of one': addresses_of_one}, 2),
    Limit('its 200,000 entries', 'operator', 'dns_table', 400 * 1000, wires(b'\0\0'), 2),
    Limit('an answer of the CA', 'operator', 'ca_response', 256 * KIB, wires(b'\0')),
    Limit('trust anchors', 'operator', 'pcds', MIB, wires()),
    Limit('a root file', 'operator', 'roots', MIB, {'blocks': lambda n: b'\3' + pem(n), **texts(b'\3')}),
    Limit('a revocation list', 'operator', 'crl', 60 * KIB, {'blocks': content(b'-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n'),
                                                           'begins': content(b'-----BEGIN X509 CRL-----\n'), 'lines': content(b'\n')}),
    Limit('a manifest', 'operator', 'manifest', MIB, {**yamls(), 'of a pod': yamls(manifest(b'  A: '))['a text']}),
    Limit('agentd.yaml', 'operator', 'config', MIB, yamls()),
    Limit('wishes of the mesh', 'operator', 'inject_config', MIB, yamls(), 2),
    Limit('manifests to be injected', 'operator, of manifests', 'inject_stream', 60 * MIB, yamls(), 5),
    Limit('pods in manifests', 'operator, of manifests', 'inject_stream', 60 * MIB, {'of 4 KiB': manifests}, 5),
    Limit('an object of a cluster', 'operator', 'preflight', 3 * MIB, jsons(), 3),
    Limit('pods in a list', 'operator, of manifests', 'preflight', 60 * MIB, {'of 4 KiB': pods}),
    Limit('an Envoy\'s dump', 'operator', 'json_walk', 256 * MIB, {**jsons(), **texts()}, 3),
    Limit('names of a dump', 'operator', 'ctl_answer', 256 * MIB, {
        name: lambda n, make=dump(entry): b'\x04\x0c' + make(n) for name, entry in {'empty': b'{}', 'names': b'{"name":"a"}'}.items()}, 2),
]


def sized(limit, largest):
    """[(case, half, whole)]: as much as it lets in, or as is asked for, and half of that."""
    n = min(limit.most, largest)
    return [(case, half, whole) for (case, half), (_, whole) in zip(limit.inputs(n // 2), limit.inputs(n))]


def targets(*who):
    """{target: limits}"""
    found = {}
    for limit in LIMITS:
        if limit.who in who:
            found.setdefault(limit.target, []).append(limit)
    return found
