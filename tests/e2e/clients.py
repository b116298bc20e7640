"""Python in Envoy's place (`pod.call(function, ...)` runs one in the pod), and in agentd's (sign)."""
import contextlib
import http.client
import json
import multiprocessing
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.internal import encoder

from tests.istiod.ca import SERVER_NAME
from tests.istiod.csr import SERVICE as CSR_SERVICE
from tests.istiod.messages import CertificateRequest, CertificateResponse

ADS = '/envoy.service.discovery.v3.AggregatedDiscoveryService/'
SDS = '/envoy.service.secret.v3.SecretDiscoveryService/'
LISTENER = 'type.googleapis.com/envoy.config.listener.v3.Listener'
SECRET = 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret'
TIMEOUT_S = 60


def _channel(path):
    # A connection of its own for every call, as Envoy's are.
    return grpc.insecure_channel(f'unix:{path}', options=[('grpc.use_local_subchannel_pool', 1)])


def _secret_request(names):
    return discovery_pb2.DiscoveryRequest(
        node=base_pb2.Node(id='sidecar~9.9.9.9~anything.else~else.svc.cluster.local'),
        resource_names=names, type_url=SECRET)


def _secrets(response):
    found = {}
    for resource in response.resources:
        s = secret_pb2.Secret.FromString(resource.value)
        found[s.name] = {
            'chain': s.tls_certificate.certificate_chain.inline_bytes.decode(),
            'key': s.tls_certificate.private_key.inline_bytes.decode(),
            'chain_file': s.tls_certificate.certificate_chain.filename,
            'key_file': s.tls_certificate.private_key.filename,
            'root': s.validation_context.trusted_ca.inline_bytes.decode(),
            'root_file': s.validation_context.trusted_ca.filename,
        }
    return found


def on_the_host(function, *args):
    """function(*args) in a new process of the host's network namespace."""
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        return pool.apply(function, args)


def sign(address, root_file, token, requests, scheme='Bearer', clusterid='Kubernetes'):
    """The control plane's answer to each (csr, ttl, metadata): a chain, or {code, details}."""
    credentials = grpc.ssl_channel_credentials(Path(root_file).read_bytes())
    options = [('grpc.ssl_target_name_override', SERVER_NAME)]
    results = []
    with grpc.secure_channel(address, credentials, options) as channel:
        call = channel.unary_unary(f'/{CSR_SERVICE}/CreateCertificate', CertificateRequest.SerializeToString,
                                   CertificateResponse.FromString)
        for csr, ttl, metadata in requests:
            request = CertificateRequest(csr=csr, validity_duration=ttl)
            request.metadata.update(metadata)
            try:
                answer = call(request, timeout=TIMEOUT_S,
                              metadata=[('authorization', f'{scheme} {token}'), ('clusterid', clusterid)])
                results.append(list(answer.cert_chain))
            except grpc.RpcError as e:
                results.append(_failure(e))
    return results


def _failure(e):
    return {'code': e.code().name, 'details': e.details()}


def fetch_secrets(path, names, timeout=TIMEOUT_S):
    """{name: {chain, key, root, ...}}, or {code, details}."""
    with _channel(path) as channel:
        call = channel.unary_unary(SDS + 'FetchSecrets', lambda m: m.SerializeToString(),
                                   discovery_pb2.DiscoveryResponse.FromString)
        try:
            return _secrets(call(_secret_request(names), timeout=timeout))
        except grpc.RpcError as e:
            return _failure(e)


@contextlib.contextmanager
def _stream(channel, method, request, serialize=None, parse=None):
    """A stream with one request and no end of requests, which would be the end of the stream."""
    leave = threading.Event()

    def requests():
        yield request
        leave.wait(TIMEOUT_S)
    stream = channel.stream_stream(method, serialize, parse)(requests(), timeout=TIMEOUT_S)
    try:
        yield stream
    finally:
        leave.set()
        stream.cancel()


def _end_of(stream):
    """How the stream ends, whatever else it says before."""
    try:
        for _ in stream:
            pass
        return 'OK'
    except grpc.RpcError as e:
        return f'{e.code().name} {e.details()}'


def stream_secrets(path, names):
    """The first answer on a stream: {name: {chain, ...}}, or how it ended without one."""
    with _channel(path) as channel, _stream(
            channel, SDS + 'StreamSecrets', _secret_request(names), lambda m: m.SerializeToString(),
            discovery_pb2.DiscoveryResponse.FromString) as stream:
        try:
            return _secrets(next(stream))
        except grpc.RpcError as e:
            return _failure(e)
        except StopIteration:
            return {'code': 'OK', 'details': ''}


def _field(number, payload):
    """A length-delimited field."""
    return encoder.TagBytes(number, 2) + encoder._VarintBytes(len(payload)) + payload


def listener_request(nodes, delta=False):
    """The bytes of a first LDS request whose node comes in these pieces (usually one)."""
    node, type_url = (1, 2) if delta else (2, 4)
    return b''.join(_field(node, n) for n in nodes) + _field(type_url, LISTENER.encode())


def _ads_method(delta):
    return ADS + ('DeltaAggregatedResources' if delta else 'StreamAggregatedResources')


def ads(path, requests, delta=False):
    """One ADS stream after another: 'answered' (then we leave it), or how it ended."""
    results = []
    with _channel(path) as channel:
        for request in requests:
            with _stream(channel, _ads_method(delta), request) as stream:
                try:
                    next(stream)
                    results.append('answered')
                except StopIteration:
                    results.append('OK')
                except grpc.RpcError as e:
                    results.append(f'{e.code().name} {e.details()}')
    return results


def displaced(path, request):
    """How a first ADS stream ends when a second one comes; whether the second is answered."""
    with _channel(path) as one, _channel(path) as two, _stream(one, _ads_method(False), request) as first:
        next(first)
        with _stream(two, _ads_method(False), request) as second:
            next(second)
            return _end_of(first)


def get_json(url):
    """(status, content) of one request as an ordinary program makes it."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode(errors='replace')


def ask_admin(path, target):
    """The same, of the admin socket."""
    connection = http.client.HTTPConnection('admin', timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    with contextlib.closing(connection):
        connection.request('GET', target)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors='replace')
