"""Python straight at the control plane, as a node agent's upstream side: many calls on one connection."""
import contextlib
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.json_format import ParseDict

from tests.istiod.ca import SERVER_NAME
from tests.istiod.csr import SERVICE as CSR_SERVICE
from tests.istiod.messages import CertificateRequest, CertificateResponse

from . import clients

TIMEOUT_S = 60


@contextlib.contextmanager
def channel(address, root_file):
    credentials = grpc.ssl_channel_credentials(root_file.read_bytes())
    # Without probes the window of a stream stays 64 KiB until somebody reads.
    options = [('grpc.ssl_target_name_override', SERVER_NAME), ('grpc.http2.bdp_probe', 0)]
    with grpc.secure_channel(address, credentials, options) as made:
        yield made


def bearer(token, clusterid='Kubernetes', scheme='Bearer'):
    return [('authorization', f'{scheme} {token}'), ('clusterid', clusterid)]


class Stream:
    """An ADS stream whose requests are said one by one."""

    def __init__(self, made, headers, delta=False):
        kinds = discovery_pb2.DeltaDiscoveryRequest, discovery_pb2.DeltaDiscoveryResponse
        if not delta:
            kinds = discovery_pb2.DiscoveryRequest, discovery_pb2.DiscoveryResponse
        self.kind = kinds[0]
        self._said = queue.Queue()
        self.call = made.stream_stream(
            clients._ads_method(delta), lambda m: m.SerializeToString(), kinds[1].FromString)(
                iter(self._said.get, None), metadata=headers, timeout=TIMEOUT_S)

    def ask(self, node=None, kind=clients.LISTENER, **fields):
        self._said.put(ParseDict({'node': node, 'typeUrl': kind, **fields}, self.kind()))

    def end(self):
        self._said.put(None)
        self.call.cancel()

    def verdict(self):
        """'OK' at the first answer, or (code, text)."""
        try:
            next(self.call)
            return 'OK'
        except StopIteration:
            return 'ended'
        except grpc.RpcError as e:
            return e.code().name, e.details()
        finally:
            self.end()


def streams(address, root_file, cases):
    """The verdict on each (delta, node, headers); all are opened at once."""
    with channel(address, root_file) as made:
        opened = []
        for delta, node, headers in cases:
            opened.append(Stream(made, headers, delta))
            opened[-1].ask(node)
        # Each by a thread: where streams are capped, any of them may be the one that is let in first.
        with ThreadPoolExecutor(len(opened)) as threads:
            return list(threads.map(Stream.verdict, opened))


def sign(address, root_file, cases):
    """The answer to each (headers, csr, ttl, metadata): the chain, or (code, text)."""
    results = []
    with channel(address, root_file) as made:
        call = made.unary_unary(f'/{CSR_SERVICE}/CreateCertificate', CertificateRequest.SerializeToString,
                                CertificateResponse.FromString)
        for headers, csr, ttl, metadata in cases:
            request = CertificateRequest(csr=csr, validity_duration=ttl)
            request.metadata.update(metadata)
            try:
                results.append(list(call(request, metadata=headers, timeout=TIMEOUT_S).cert_chain))
            except grpc.RpcError as e:
                results.append((e.code().name, e.details()))
    return results


def goaway_and_after(address, root_file, node, headers, again):
    """A stream that is open while `again` runs; then whether it still answers, and whether a new one does."""
    with channel(address, root_file) as made:
        first = Stream(made, headers)
        first.ask(node)
        next(first.call)
        left = threading.Event()
        made.subscribe(lambda state: state == grpc.ChannelConnectivity.READY or left.set())
        again()
        left.wait(60)  # a call of before that may be cancelled with the connection
        first.ask(kind=clients.LISTENER.replace('listener.v3.Listener', 'cluster.v3.Cluster'))
        second = Stream(made, headers)
        second.ask(node)
        return first.verdict(), second.verdict()


def stuck(address, root_file, node, headers, readers, wait):
    """One stream that reads nothing, then `readers` that do: how many of them are answered while `wait` waits."""
    answered = []
    with channel(address, root_file) as made, channel(address, root_file) as other:
        silent = Stream(made, headers)
        silent.ask(node)
        wait()
        rest = [Stream(other, headers) for _ in range(readers)]

        def read(stream):
            stream.ask(node)
            answered.append(stream.verdict())
        threads = [threading.Thread(target=read, args=(s,), daemon=True) for s in rest]
        for t in threads:
            t.start()
        for t in threads:
            t.join(1)
        seen = answered.count('OK')
        silent.end()
        for t in threads:
            t.join()
    return seen, answered.count('OK')
