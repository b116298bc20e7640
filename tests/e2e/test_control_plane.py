"""The control plane itself, with Envoy connected to it directly: what the other tests stand on."""
import datetime
import json
import shutil

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.istiod.ca import pem
from tests.istiod.resources import BY_URL

from . import clients, mesh
from .pod import ADMIN
from .run import wait_for

API = {'sotw': ('GRPC', 'Sotw'), 'delta': ('DELTA_GRPC', 'Delta')}


def bootstrap(pod, api_type, token, **metadata):
    host, _, port = pod.node.istiod.address.rpartition(':')
    ads = {'ads': {}, 'resource_api_version': 'V3', 'initial_fetch_timeout': '0s'}
    h2 = {'envoy.extensions.upstreams.http.v3.HttpProtocolOptions': {
        '@type': 'type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions',
        'explicit_http_config': {'http2_protocol_options': {}}}}
    tls = {'name': 'envoy.transport_sockets.tls', 'typed_config': {
        '@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext',
        'sni': 'istiod.istio-system.svc',
        'common_tls_context': {'alpn_protocols': ['h2'], 'validation_context': {
            'trusted_ca': {'filename': '/etc/certs/root-cert.pem'},
            'match_typed_subject_alt_names': [
                {'san_type': 'DNS', 'matcher': {'exact': 'istiod.istio-system.svc'}}]}}}}
    cluster = mesh._cluster('xds', host, int(port), typed_extension_protocol_options=h2, transport_socket=tls)
    return {
        'node': {'id': f'sidecar~{pod.ip}~{pod.name}.{pod.ns}~{pod.ns}.svc.cluster.local', 'cluster': 'x',
                 'metadata': {'NAMESPACE': pod.ns, 'SERVICE_ACCOUNT': pod.sa, 'INSTANCE_IPS': pod.ip, **metadata}},
        'admin': {'address': mesh._socket('127.0.0.1', ADMIN)},
        'static_resources': {'clusters': [cluster]},
        'dynamic_resources': {'lds_config': ads, 'cds_config': ads, 'ads_config': {
            'api_type': api_type, 'transport_api_version': 'V3', 'set_node_on_first_message_only': True,
            'grpc_services': [{'envoy_grpc': {'cluster_name': 'xds'}, 'initial_metadata': [
                {'key': 'authorization', 'value': f'Bearer {token}'}, {'key': 'clusterid', 'value': 'Kubernetes'}]}]}},
    }


@pytest.fixture
def direct(node):
    """A pod whose Envoy talks straight to the control plane, which is moved into the pod's netns."""
    pod = node.pod('direct', manifest=False)
    node.istiod.process.stop()
    node.istiod.start(pod.netns)

    def start(api_type, token=None, **metadata):
        pod.mount.mkdir(parents=True)
        for name in ('socket', 'XDS'):
            (pod.mount / name).touch()
        shutil.copy(node.istiod.root_file, pod.certs)
        (pod.mount / 'envoy-rev.json').write_text(json.dumps(bootstrap(
            pod, api_type, pod.token() if token is None else token, **metadata)))
        return pod.start_envoy()
    pod.start_direct = start
    return pod


def requests(pod, kind):
    return {BY_URL[r['type']].stem for r in pod.node.istiod.journal('request', kind=kind)}


@pytest.mark.parametrize('flavour', API)
def test_envoy_takes_resources_and_follows_their_change(direct, flavour):
    api_type, method = API[flavour]
    istiod = direct.node.istiod
    direct.start_app(mesh.APP)
    resources = mesh.client(direct, eds=True)
    del resources['clusters'][0]['transport_socket']
    resources['endpoints'] = [dict(mesh._cluster('direct', '127.0.0.1', mesh.APP)['load_assignment'])]
    istiod.set(direct.id, **resources)
    direct.start_direct(api_type)
    assert wait_for('an answer', lambda: direct.netns.json(mesh.OUTBOUND))['path'] == '/'
    assert istiod.journal('open')[0]['method'] == method
    assert istiod.journal('open')[0]['identity'] == 'ns/demo/sa/direct'
    wait_for('all ACKs', lambda: requests(direct, 'ack') == {'clusters', 'endpoints', 'listeners'})

    istiod.set('all', clusters=[mesh._cluster('one-more', '127.0.0.1', 1)])
    wait_for('the new cluster', lambda: 'one-more::' in direct.netns.http(ADMIN, '/clusters')[1])
    istiod.set('all', clusters=[])
    wait_for('its end', lambda: 'one-more::' not in direct.netns.http(ADMIN, '/clusters')[1])
    istiod.set('all', clusters=[mesh.BROKEN_CLUSTER])
    refused = wait_for('the NACK', lambda: istiod.journal('request', kind='nack'))
    assert refused[0]['type'].endswith('.Cluster') and 'broken' in refused[0]['error']
    assert direct.netns.http(mesh.OUTBOUND)[0] == 200


def refusal(direct, api_type='GRPC', **kw):
    direct.start_direct(api_type, **kw)
    found = wait_for('the refusal', lambda: direct.node.istiod.journal('refused'))
    assert not direct.node.istiod.journal('push')
    return found[0]


def test_token_of_another_service_account_is_refused(direct):
    assert refusal(direct, token=direct.token(sa='other')) | {'time': 0, 'stream': 0} == {
        'time': 0, 'stream': 0, 'event': 'refused', 'code': 'PERMISSION_DENIED',
        'why': 'authorization failed: no identities ([spiffe://cluster.local/ns/demo/sa/other]) matched demo/direct'}


@pytest.mark.parametrize('claims', [{'ttl': -10}, {'aud': 'else'}], ids=['expired', 'audience'])
def test_bad_token_is_refused(direct, claims):
    if 'aud' in claims:
        claims = {'audience': claims['aud']}
    assert refusal(direct, token=direct.token(**claims))['code'] == 'UNAUTHENTICATED'


def test_forged_token_is_refused(direct):
    head, _, _ = direct.token().rpartition('.')
    assert 'Signature' in refusal(direct, token=f'{head}.{"A" * 342}')['why']


def test_metadata_of_a_wrong_type_is_refused(direct):
    found = refusal(direct, 'DELTA_GRPC', ENVOY_STATUS_PORT='15021')
    assert found['code'] == 'INVALID_ARGUMENT' and 'failed to unmarshal node metadata' in found['why']


def make_csr(cn=None, san='spiffe://evil.td/ns/a/sa/b'):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)] if cn else [])
    return pem(x509.CertificateSigningRequestBuilder().subject_name(name).add_extension(
        x509.SubjectAlternativeName([x509.UniformResourceIdentifier(san)]), critical=True).sign(
            ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()))


DAY = 24 * 3600
# csr, asked ttl, metadata -> life in seconds, or a code and a part of the text (istio-agent.md 4.5, istiod-live.md 5)
CSRS = [
    (make_csr(), 3600, {'CertSigner': ''}, 3600),
    (make_csr(), 0, {}, DAY),
    (make_csr(), -1, {'unknown': 1}, DAY),
    (make_csr(), 1 << 62, {}, DAY),
    (make_csr(), 1, {}, 1),
    (make_csr(cn='x'), 60, {}, 60),
    (make_csr(), 91 * DAY, {},
     ('INVALID_ARGUMENT', 'requested TTL 2184h0m0s is greater than the max allowed TTL 2160h0m0s')),
    ('', 60, {}, ('INVALID_ARGUMENT', 'not properly encoded')),
    ('-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n', 60, {},
     ('INVALID_ARGUMENT', 'failed to parse')),
    (make_csr(), 60, {'ImpersonatedIdentity': 'spiffe://cluster.local/ns/a/sa/b'},
     ('UNAUTHENTICATED', 'request impersonation authentication failure')),
]


def test_csrs(make_node):
    node = make_node(istiod_options=['--intermediate'])
    istiod = node.istiod
    token = istiod.tokens.issue('demo', 'one', 'one-1', '1')
    answers = clients.on_the_host(clients.sign, istiod.address, istiod.root_file, token, [c[:3] for c in CSRS])
    for (csr, _, _, expected), answer in zip(CSRS, answers):
        if isinstance(expected, tuple):
            assert answer['code'] == expected[0] and expected[1] in answer['details'], answer
            continue
        leaf, _, roots = (x509.load_pem_x509_certificate(a.encode()) for a in answer)
        assert pem(roots) == istiod.root_file.read_text()
        san = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        uri = 'spiffe://cluster.local/ns/demo/sa/one'
        assert san.value.get_values_for_type(x509.UniformResourceIdentifier) == [uri]
        asked_cn = x509.load_pem_x509_csr(csr.encode()).subject.rfc4514_string()
        assert leaf.subject.rfc4514_string() == (f'CN={uri}' if asked_cn else '')
        life = leaf.not_valid_after_utc - leaf.not_valid_before_utc - datetime.timedelta(minutes=2)
        assert life.total_seconds() == expected

    for wrong in ({'scheme': 'bearer'}, {'clusterid': 'else'}):
        refused = clients.on_the_host(sign_wrongly, istiod.address, istiod.root_file, token, wrong)
        assert refused == [{'code': 'UNAUTHENTICATED', 'details': 'request authenticate failure'}]


def sign_wrongly(address, root_file, token, wrong):
    return clients.sign(address, root_file, token, [(make_csr(), 60, {})], **wrong)
