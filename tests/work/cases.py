"""The largest inputs that the limits of docs/LIMITS.md let in, and those that cost most of them: a name, and bytes for a program here."""
import json

HEADERS = 60 * 1024  # Envoy's, all together
ITEMS = 1000  # of each list (inject/inject.h)
CLASSES = {'spaces': ' ', 'tabs': '\t', 'commas': ',', 'semicolons': ';', 'digits': '1', 'dots': '.', 'letters': 'a', 'equals': '=', 'colons': ':',
           'questions': '?', 'stars': '*', 'percents': '%', 'forms': 'a,', 'parameters': ';q=1', 'space and comma': ' ,', 'digit and dot': '1.',
           'ports': ':1', 'no UTF-8': '\xff', 'versions': 'version=', 'letter and space': 'a '}
READ = {'metrics': (':path', ':method', 'accept', 'user-agent', 'x-prometheus-scrape-timeout-seconds', 'content-length', '<content-type',
                    '<content-encoding', '<content-length'),
        'http': (':path', ':authority', 'content-length', 'x'), 'ready': (':path',), 'drain_wait': (':method',), 'grpc': ('user-agent',)}


def of_headers(size=HEADERS):
    """For each header that status.lua reads a request for each kind of character, with others around them: what looks back does so then."""
    for serve, names in READ.items():
        for name in names:
            prefix = '/stats/prometheus' if name == ':path' else 'x'
            yield f'{serve}: {name}', '\0'.join(f'serve: {serve}\n{name}: {prefix}{text * (size // len(text))}x\n'
                                               for text in CLASSES.values()).encode('latin-1')


def review(pod):
    return json.dumps({'apiVersion': 'admission.k8s.io/v1', 'kind': 'AdmissionReview', 'request': {
        'uid': 'u', 'operation': 'CREATE', 'kind': {'group': '', 'version': 'v1', 'kind': 'Pod'}, 'namespace': 'demo', 'object': pod}},
        separators=(',', ':')).encode()


def pod(spec=None, annotations=None, containers=None, **more):
    return {'metadata': {'name': 'p', 'annotations': annotations or {}},
            'spec': {'containers': containers or [{'name': 'app'}], **(spec or {})}, **more}


def own(**lists):
    return [{'name': 'app'}, {'name': 'istio-proxy', **lists}]


POD = 512 * 1024


def many(item, size):
    """As many items as fit."""
    each = len(json.dumps(item(100000), separators=(',', ':'))) + 1
    return [item(i) for i in range(size // each)]


def compact(o):
    return json.dumps(o, separators=(',', ':'))


def status(**parts):
    return compact({'initContainers': None, 'containers': ['istio-proxy'], 'undo': {}, **parts})


def of_pods(limit, size):
    """`limit`: of items in a list; None: as many as fit into the size."""
    def some(item, part=1):
        return many(item, size // part)[:limit]
    env = some(lambda i: {'name': f'{i}'})
    long_names = [{'name': 'x' * 400 + str(i)} for i in range(limit or 1200)]
    yield 'an own env', pod(containers=own(env=env))
    yield 'an own env, all the same', pod(containers=own(env=[{'name': 'a'} for _ in env]))
    yield 'an own env of maps', pod(containers=own(env=some(lambda i: {'name': {'a': i}})))
    yield 'own mounts', pod(containers=own(volumeMounts=some(lambda i: {'mountPath': f'/{i}'})))
    yield 'own ports', pod(containers=own(ports=some(lambda i: {'containerPort': i})))
    yield 'own ports, of ours and not', pod(containers=own(ports=some(lambda i: {'containerPort': i % 2 * 15090})))
    yield 'own args', pod(containers=own(args=some(lambda i: str(i))))
    yield 'an own env of long names', pod(containers=own(env=long_names))
    yield 'containers', pod(containers=some(lambda i: {'name': f'{i}'}))
    yield 'containers of long names', pod(containers=long_names)
    yield 'init containers', pod({'initContainers': some(lambda i: {'name': f'{i}'})})
    yield 'volumes', pod({'volumes': some(lambda i: {'name': f'{i}'})})
    half = some(lambda i: {'name': f'{i}'}, 2)
    names = [v['name'] for v in half]
    yield 'volumes that a status names', pod({'volumes': half}, {'sidecar.istio.io/status': status(volumes=names[::-1])})
    yield 'every second of them', pod({'volumes': half}, {'sidecar.istio.io/status': status(volumes=names[::2])})
    yield 'containers that a status names', pod(
        {'initContainers': half}, {'sidecar.istio.io/status': status(initContainers=names[::2])})
    wanted = {f'u{i}': {} for i in range(min(limit or 20000, size // 25))}
    yield 'a status of values', pod(None, {'sidecar.istio.io/status': status(x=[1] * (size // 2 // 2 - 200))})
    yield 'volumes of an annotation', pod({'volumes': half}, {'sidecar.istio.io/userVolume': compact(wanted)})
    yield 'mounts of an annotation', pod(None, {'sidecar.istio.io/userVolumeMount': compact(wanted)})
    yield 'image pull secrets', pod({'imagePullSecrets': some(lambda i: {'name': f'{i}'})})
    yield 'ports of an app', pod(containers=[{'name': 'app', 'ports': some(lambda i: {'name': 'a', 'containerPort': i}),
                                              'livenessProbe': {'httpGet': {'port': 'b'}}}])
    probe = {'tcpSocket': {'port': 1}}

    def probed(i):
        return {'name': f'{i}', **{kind: {'tcpSocket': {'port': 5 * i % 60000 + k}}
                                   for k, kind in enumerate(('livenessProbe', 'readinessProbe', 'startupProbe'))}}
    yield 'probes', pod(containers=some(probed))
    yield 'labels', {'metadata': {'labels': {str(i): '' for i in range(size // 17)}}, 'spec': {'containers': [{'name': 'app', 'livenessProbe': probe}]}}
    yield 'annotations', pod(None, {f'istio.io/{i}': '' for i in range(size // 37)})
    yield 'scrape targets', pod(None, {'prometheus.istio.io/scrape-targets': '1,' * (size // 5)})
    yield 'excluded ports', pod(None, {'traffic.sidecar.istio.io/excludeOutboundPorts': '1,' * (size // 8)})
    yield 'excluded ranges', pod(None, {'traffic.sidecar.istio.io/excludeOutboundIPRanges': '::/0,' * (size // 20)})
    for name, text in {'maps': 'a: {b: 1}\n', 'depth': '[', 'keys': None, 'a text': 'a' * 60, 'dashes': '- ', 'quotes': '"', 'colons': '? ',
                       'comments': '#', 'lines': '\n', 'folded': '>\n a\n', 'escapes': '"\\x41" '}.items():
        big = ''.join(f'k{i}: 1\n' for i in range(25000)) if text is None else text * (65536 // len(text))
        yield f'a ProxyConfig of {name}', pod(None, {'proxy.istio.io/config': big[:65536]})
    yield 'proxy metadata', pod(None, {'proxy.istio.io/config': 'proxyMetadata:\n' + ''.join(f'  k{i}: "1"\n' for i in range(4000))})
    yield 'values', pod({'x': [1] * min(29900, size // 2)})
    yield 'depth', pod({'x': json.loads('[' * 50 + ']' * 50)})
    yield 'a long text', pod({'x': 'a' * size})


# Those that once took the square of their size, and those that take most.
WORST = ('an own env', 'every second of them', 'volumes of an annotation', 'probes', 'values')


def reviews(limit=None, size=POD, only=None):
    for name, p in of_pods(limit, size):
        if not only or name in only:
            yield name, review(p)
