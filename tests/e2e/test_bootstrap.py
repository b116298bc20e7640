"""What a pod asks of its Envoy's bootstrap, with a real Envoy: it takes all of it, and does it."""
import concurrent.futures
import contextlib
import http.server
import json
import queue
import re
import socket
import ssl
import threading
from pathlib import Path

import grpc
import pytest

from . import clients, mesh
from .pod import ADMIN, STATUS, run_validate

SECURE, MERGED = 15091, 15092
ZIPKIN, SERVICES = 9411, 9000
REGEXES = Path(__file__).parents[1] / 'unit/mesh/regex_test.c'
CONFIG = {
    'envoyMetricsService': {'address': 'metrics.example:15000', 'tlsSettings': {'mode': 'ISTIO_MUTUAL', 'subjectAltNames': ['a']},
                            'tcpKeepalive': {'probes': 3, 'time': '10s', 'interval': '5s'}},
    'envoyAccessLogService': {'address': 'als.example:9000', 'tlsSettings': {
        'mode': 'MUTUAL', 'clientCertificate': '/c.pem', 'privateKey': '/k.pem', 'caCertificates': '/r.pem'}},
    'statsdUdpAddress': '$(HOST_IP):8125',
    'runtimeValues': {'re2.max_program_size.error_level': '4096', 'envoy.reloadable_features.fixed_heap_use_allocated': ''},
    'connectionSettings': {'globalDownstreamConnectionLimit': 1234},
    'tracingServiceName': 'CANONICAL_NAME_ONLY',
}
TRACERS = [{'zipkin': {'address': 'zipkin.example:9411'}, 'tlsSettings': {'mode': 'SIMPLE', 'sni': 'zipkin'}},
           {'datadog': {'address': '$(HOST_IP):8126'}}]
OVERRIDE = {'statsConfig': {'statsMatcher': {'inclusionList': {'patterns': [{'prefix': 'runtime'}]}}},
            'static_resources': {'clusters': [{'name': 'mine', 'connectTimeout': '2s', 'type': 'STATIC'}]},
            'watchdog': None}
LRS = {'apiType': 'GRPC', 'transportApiVersion': 'V3', 'grpcServices': [{'envoyGrpc': {'clusterName': 'xds-grpc'}}]}
ENV = {'HOST_IP': '127.0.0.1', 'ENVOY_SECURE_METRICS_PORT': str(SECURE), 'ENVOY_SECURE_MERGED_METRICS_PORT': str(MERGED),
       'ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL': 'true',
       'METRICS_LOCALHOST_ACCESS_ONLY': 'true', 'ISTIO_BOOTSTRAP_OVERRIDE': json.dumps(OVERRIDE)}


def regexes():
    """What the unit test calls good; a C text is nearly a JSON text."""
    part = re.search(r'good\[\] = \{(.*?)\n\};', REGEXES.read_text(), re.DOTALL).group(1)
    return [json.loads(text) for text in re.findall(r'"(?:\\.|[^"\\])*"', part)]


def config(**more):
    return json.dumps({**CONFIG, 'proxyStatsMatcher': {'inclusionRegexps': [r for r in regexes() if r]}, **more})


def page_of(node, pod):
    return next(p for p in node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid)


def test_envoy_takes_everything(node):
    pods = [node.pod(next(iter(t)), env={**ENV, 'PROXY_CONFIG': config(tracing=t), 'ISTIO_META_LOAD_STATS_CONFIG_JSON': json.dumps(LRS)})
            for t in TRACERS]
    bad = node.pod('bad', env={'ISTIO_BOOTSTRAP_OVERRIDE': '{"admin": {"address": {}}}'})
    node.agentd.start()
    for pod in pods:
        pod.wait_served()
        status, said = run_validate(pod)
        assert status == 0 and 'OK' in said and 'envoy bug' not in said, said
        shown = page_of(node, pod)
        assert not shown['ignored'] and not shown['unsupported']
        assert shown['sends_to']['statsd'] == '127.0.0.1:8125'
        # agentctl prints the file, in which no secret is
        text = json.dumps(node.agentd.ctl('bootstrap', pod.label))
        assert json.loads(text) == pod.bootstrap()
        assert not any(secret in text for secret in ('PRIVATE KEY', *pod.tokens))
    assert 'ISTIO_BOOTSTRAP_OVERRIDE: "admin" refused' in page_of(node, bad)['why_not']


def said_to(pod, port, tls=None, first=b''):
    """The status of /metrics there, as another host would see it."""
    with pod.netns.inside():
        sock = socket.create_connection((pod.ip, port), 60)
    with (tls.wrap_socket(sock) if tls else sock) as s:
        s.sendall(first + b'GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n')
        return int(s.recv(4096).split()[1])


def test_envoy_does_it(node, tmp_path):
    pod = node.pod('a', env={**ENV, 'PROXY_CONFIG': config()}, annotations={'sidecar.istio.io/statsFlushInterval': '100ms'})
    node.istiod.set(pod.id, clusters=[], listeners=[])
    node.agentd.start()
    with pod.netns.inside():
        statsd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    statsd.bind(('127.0.0.1', 8125))
    statsd.settimeout(60)
    pod.start_envoy().wait_ready()
    assert b'envoy.' in statsd.recv(65536)
    statsd.close()
    runtime = pod.netns.json(ADMIN, '/runtime')['entries']
    assert runtime['re2.max_program_size.error_level']['final_value'] == '4096'
    assert 'envoy.reloadable_features.fixed_heap_use_allocated' not in runtime
    clusters = pod.netns.json(ADMIN, '/clusters?format=json')['cluster_statuses']
    assert {'mine', 'xds-grpc', 'envoy_accesslog_service'} <= {c['name'] for c in clusters}
    # metrics: by TLS for whoever has a certificate of the mesh, in plain text for the pod itself
    secret = pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])['default']
    for name in ('chain', 'key'):
        (tmp_path / name).write_text(secret[name])
    stranger = ssl._create_unverified_context()
    known = ssl._create_unverified_context()
    known.load_cert_chain(tmp_path / 'chain', tmp_path / 'key')
    assert said_to(pod, MERGED, known) == 200 and said_to(pod, SECURE, known) == 404
    with pytest.raises((ssl.SSLError, ConnectionError)):
        said_to(pod, MERGED, stranger)
    with pytest.raises(ConnectionRefusedError):
        said_to(pod, 15090)
    assert pod.netns.http(15090, '/stats/prometheus', host='127.0.0.1')[0] == 200
    # 15021 may be told for whom a balancer asks
    assert said_to(pod, STATUS, first=b'PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n') == 404
    assert said_to(pod, STATUS) == 404


class Zipkin(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = b''
        while size := int(self.rfile.readline(), 16):  # chunked, as Envoy sends it
            body += self.rfile.read(size + len('\r\n'))
        self.rfile.readline()
        self.server.spans.put((self.path, json.loads(body)))
        self.send_response(202)
        self.send_header('content-length', '0')
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def collectors(pod):
    """In the pod: what a tracer is sent, and the first message of each stream to a service, by the service's name."""
    told, handlers = {}, {}
    for service, method in (('metrics.v3.MetricsService', 'StreamMetrics'), ('accesslog.v3.AccessLogService', 'StreamAccessLogs')):
        first = told[service] = queue.Queue()
        take = grpc.stream_unary_rpc_method_handler(lambda stream, _, to=first: [to.put(m) for m in stream] and b'')
        handlers[service] = grpc.method_handlers_generic_handler(f'envoy.service.{service}', {method: take})
    services = grpc.server(concurrent.futures.ThreadPoolExecutor(4), tuple(handlers.values()))
    with pod.netns.inside():
        zipkin = http.server.ThreadingHTTPServer(('127.0.0.1', ZIPKIN), Zipkin)
        services.add_insecure_port(f'127.0.0.1:{SERVICES}')
    zipkin.spans = told['zipkin'] = queue.Queue()
    threading.Thread(target=zipkin.serve_forever, daemon=True).start()
    services.start()
    try:
        yield told
    finally:
        services.stop(None)
        zipkin.shutdown()
        zipkin.server_close()


def test_collectors_are_told_by_whom(node):
    """Spans, statistics and access logs arrive, with the pod's own cluster and the node id that the injection template adds."""
    services = {'address': f'$(HOST_IP):{SERVICES}'}
    asked = {'tracing': {'zipkin': {'address': f'$(HOST_IP):{ZIPKIN}'}}, 'envoyMetricsService': services, 'envoyAccessLogService': services}
    pod = node.pod('web', env={'HOST_IP': '127.0.0.1', 'PROXY_CONFIG': json.dumps(asked)},
                   annotations={'sidecar.istio.io/statsFlushInterval': '100ms'})
    node.istiod.set(pod.id, **mesh.watched())
    node.agentd.start()
    pod.start_app()
    with collectors(pod) as told:
        node_id = f'sidecar~{pod.ip}~web.demo~demo.svc.cluster.local'
        pod.start_envoy('--config-yaml', json.dumps({'node': {'id': node_id, 'metadata': {'INSTANCE_IPS': pod.ip}}})).wait_ready()
        for _ in range(5):  # Envoy sends as many spans at once
            assert pod.netns.http(mesh.INBOUND, '/hello')[0] == 200
        path, spans = told['zipkin'].get(timeout=60)
        assert path == '/api/v2/spans' and {s['localEndpoint']['serviceName'] for s in spans} == {pod.bootstrap()['node']['cluster']}
        assert {(len(s['traceId']), s['tags']['http.status_code']) for s in spans} == {(32, '200')}
        for service in 'metrics.v3.MetricsService', 'accesslog.v3.AccessLogService':
            assert node_id.encode() in told[service].get(timeout=60), service
