"""Who gets which certificate, how often istiod is asked, and what is said when there is none."""
import base64
import re
import shutil

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tests.istiod.ca import Authority, pem

from . import clients, mesh
from .conftest import start_pair
from .run import wait_for


def fetch(pod, *names, timeout=clients.TIMEOUT_S):
    return pod.call(clients.fetch_secrets, pod.mount / 'socket', list(names or ['default']), timeout)


def stream(pod, *names):
    return pod.call(clients.stream_secrets, pod.mount / 'socket', list(names))


def serve(node, *pods):
    node.agentd.start()
    for pod in pods:
        pod.wait_served()


def wait_for_text(node, pattern, *command):
    """agentctl says it, to a person; its exit status tells that there is a problem."""
    def said():
        status, text = node.agentd.ctl_text(*command)
        return status == 1 and re.search(pattern, text)
    return wait_for(f'agentctl {" ".join(command)} to say {pattern!r}', said)


def test_two_pods_of_one_account_share_a_certificate(node):
    pods = [node.pod(name, sa='shared') for name in ('one', 'two', 'three')]
    serve(node, *pods)
    chains = {fetch(p)['default']['chain'] for p in pods}
    assert len(chains) == 1 and len(node.istiod.issued()) == 1
    assert len(node.istiod.journal('csr-asked')) == 1


@pytest.mark.parametrize(('env', 'key_type', 'header'), [
    ({'ECC_SIGNATURE_ALGORITHM': 'ECDSA', 'ECC_CURVE': 'P384'}, 'EC secp384r1', 'EC PRIVATE KEY'),
    ({'WORKLOAD_RSA_KEY_SIZE': '2048'}, 'RSA 2048', 'RSA PRIVATE KEY'),
    ({'PKCS8_KEY': 'true'}, 'EC secp256r1', 'PRIVATE KEY')], ids=['p384', 'rsa', 'pkcs8'])
def test_other_key_parameters_get_a_certificate_of_their_own(node, env, key_type, header):
    one, two = node.pod('one', sa='shared'), node.pod('two', sa='shared', env=env)
    serve(node, one, two)
    assert fetch(one)['default']['key'].startswith('-----BEGIN EC PRIVATE KEY-----')
    assert fetch(two)['default']['key'].startswith(f'-----BEGIN {header}-----')
    assert sorted(c['key_type'] for c in node.istiod.issued()) == sorted(['EC secp256r1', key_type])


def test_rsa_through_envoys(node):
    client, _ = start_pair(node, env={'ECC_SIGNATURE_ALGORITHM': ''})
    assert {c['key_type'] for c in node.istiod.issued()} == {'RSA 2048'}
    assert 'client-sa' in client.netns.json(mesh.OUTBOUND)['xfcc']


def test_an_intermediate_is_part_of_the_chain(make_node):
    node = make_node(istiod_options=['--intermediate'])
    client, _ = start_pair(node)
    assert 'client-sa' in client.netns.json(mesh.OUTBOUND)['xfcc']
    got = fetch(client, 'default', 'ROOTCA')
    assert got['default']['chain'].count('BEGIN CERTIFICATE') == 3
    assert got['ROOTCA']['root'].count('BEGIN CERTIFICATE') == 1


def test_what_is_asked_for_a_certificate(node):
    pod = node.pod('one', env={'SECRET_TTL': '2h0m0s'})
    serve(node, pod)
    fetch(pod)
    asked = node.istiod.issued()[0]
    assert asked['asked_ttl'] == 7200
    assert asked['metadata'] == {'CertSigner': ''}


def test_a_request_waits_until_the_certificate_is_there(node):
    node.istiod.order('pause', what='csr')
    pod = node.pod('one')
    serve(node, pod)
    wait_for('the CSR', lambda: node.istiod.journal('csr-asked'))
    # Nothing rather than something empty.
    assert fetch(pod, timeout=2)['code'] == 'DEADLINE_EXCEEDED'
    future = pod.submit(clients.stream_secrets, pod.mount / 'socket', ['default', 'ROOTCA'])
    wait_for('the stream', lambda: node.agentd.ctl('xds')['xds'][0]['sds']['streams'])
    assert not future.done()
    node.istiod.order('resume', what='csr')
    got = future.result(60)
    assert got['default']['chain'] and got['default']['key'] and got['ROOTCA']['root']


def test_envoys_that_wait_for_their_first_certificate(node):
    node.istiod.order('pause', what='csr')
    client, server = start_pair(node, envoys=False)
    for pod in (client, server):
        pod.start_envoy()
    wait_for('both asked', lambda: len(node.istiod.journal('csr-asked')) >= 2)
    node.istiod.order('resume', what='csr')
    wait_for('the first answer', lambda: client.netns.http(mesh.OUTBOUND)[0] == 200)


def test_failures_that_pass_are_retried(node):
    node.istiod.order('fail', what='csr', count=3, code='UNAVAILABLE')
    pod = node.pod('one')
    serve(node, pod)
    assert fetch(pod)['default']['chain']
    assert [c['code'] for c in node.istiod.journal('csr')] == ['UNAVAILABLE'] * 3 + ['OK']


def test_a_refusal_is_shown(node):
    node.istiod.order('fail', what='csr', count=1000, code='PERMISSION_DENIED', text='not for you')
    pod = node.pod('one')
    serve(node, pod)
    wait_for_text(node, 'not for you', 'certs')
    assert fetch(pod, timeout=1)['code'] == 'DEADLINE_EXCEEDED'


def test_a_life_shorter_than_the_pause_is_renewed_in_time(node):
    node.agentd.settings.update(certificate_reissue_min_s=300)
    node.istiod.order('ttl', seconds=3)
    pod = node.pod('one')
    serve(node, pod)
    wait_for('a renewal', lambda: len(node.istiod.issued()) >= 2)
    assert node.agentd.ctl_text('status')[0] == node.agentd.ctl_text('certs')[0] == 0
    node.istiod.order('fail', what='csr', count=1000, code='UNAVAILABLE', text='away')
    wait_for_text(node, r'problem: 1 certificate is over: .*/sa/one: .*away', 'status')
    node.istiod.order('fail', what='csr', count=0, code='UNAVAILABLE')
    wait_for('the next one', lambda: node.agentd.ctl_text('status')[0] == 0)


def strange_root():
    """Of version 1, but with extensions: OpenSSL takes it, BoringSSL and so Envoy does not."""
    good = Authority.new('strange').root.public_bytes(Encoding.DER)
    return pem_of_der(good.replace(b'\xa0\x03\x02\x01\x02', b'\xa0\x03\x02\x01\x00', 1))


def pem_of_der(der):
    return f'-----BEGIN CERTIFICATE-----\n{base64.encodebytes(der).decode()}-----END CERTIFICATE-----\n'


def test_after_a_refused_secret_listeners_are_taken(node):
    node.istiod.order('ttl', seconds=8)
    client, server = start_pair(node)
    (node.istiod.dir / 'ca' / 'strange.block').write_text(strange_root())
    node.istiod.order('ca', issuer='a', roots=['a', 'strange'])

    def sds():
        return {x['pod']: x['sds'] for x in node.agentd.ctl('xds')['xds']}[client.label]
    wait_for('Envoy to have the one before', lambda: sds()['refusal'].endswith('; it has the one before'))
    status, text = node.agentd.ctl_text('xds')
    assert status == 1 and 'Envoy refused a secret: ' in text
    node.istiod.set(client.id, **mesh.client(server, requests_per_connection=1))  # names both secrets, and is taken
    types = wait_for('the push', lambda: [t for t in {x['pod']: x['ads']['types'] for x in node.agentd.ctl('xds')['xds']}[
        client.label].values() if t['acked'] > 1])
    assert not any(t['refused'] for t in types) and client.netns.http(mesh.OUTBOUND)[0] == 200


@pytest.mark.parametrize('name', ['kubernetes://secret', 'sds://x', 'spiffe://cluster.local/ns/demo/sa/two'])
def test_names_with_a_scheme_end_the_stream(node, name):
    pod = node.pod('one')
    serve(node, pod)
    for got in (stream(pod, name), fetch(pod, name, timeout=clients.TIMEOUT_S)):
        assert got['code'] not in ('OK', 'DEADLINE_EXCEEDED') and name.split(':')[0] in got['details'], got


def test_files_are_named_not_read(node):
    pod = node.pod('one')
    serve(node, pod)
    pair, root = 'file-cert:/etc/certs/cert.pem~/etc/certs/key.pem', 'file-root:/etc/certs/root.pem'
    got = stream(pod, pair, root)
    assert (got[pair]['chain_file'], got[pair]['key_file']) == ('/etc/certs/cert.pem', '/etc/certs/key.pem')
    assert got[root]['root_file'] == '/etc/certs/root.pem'
    assert not any(got[n][k] for n in got for k in ('chain', 'key', 'root'))
    for bad in ('file-cert:~', 'file-cert:/a~/b~/c', 'file-cert:/etc/certs/../key~/b', 'file-root:etc/certs/root.pem'):
        assert 'code' in fetch(pod, bad, timeout=clients.TIMEOUT_S), bad


@pytest.mark.parametrize(('change', 'why'), [
    ({'server_name': 'elsewhere.istio-system.svc'}, 'elsewhere.istio-system.svc'),
    ({'address': '127.0.0.1:1'}, '127.0.0.1:1')], ids=['name', 'address'])
def test_a_wrong_control_plane_is_explained(node, change, why):
    node.agentd.plane.update(change)
    serve(node, node.pod('one'))
    wait_for_text(node, why, 'status')


def test_a_wrong_root_is_explained_and_a_right_one_taken(node):
    right = node.istiod.root_file
    node.agentd.root_file = node.agentd.dir / 'root.pem'
    pod = node.pod('one')
    node.istiod.set(pod.id, listeners=[])
    serve(node, pod)
    wait_for_text(node, 'root.pem', 'status')  # there is none

    node.agentd.root_file.write_text(pem(Authority.new('wrong').root))
    wait_for_text(node, 'verif', 'status')
    # A stream that waits while this is so does not wait for ever.
    stream = pod.submit(clients.ads, pod.mount / 'XDS', [clients.listener_request([b''])])
    wait_for('it to wait', lambda: node.agentd.ctl('pods')['pods'][0]['sockets']['accepted'])
    new = node.agentd.root_file.with_suffix('.new')
    shutil.copy(right, new)
    new.rename(node.agentd.root_file)
    assert stream.result(120) == ['answered']
    assert fetch(pod)['default']['chain']
    wait_for('all well', lambda: node.agentd.ctl_text('status')[0] == 0)


@pytest.mark.parametrize(('claims', 'why'), [
    (None, 'token'), ({'ttl': -100}, 'expired'), ({'audience': 'else'}, 'audience|aud'),
    ({'sa': 'two'}, 'two'), ({'uid': '00000000-0000-4000-8000-000000000000'}, 'pod')],
    ids=['missing', 'expired', 'audience', 'account', 'pod'])
def test_a_bad_token_is_explained_and_a_good_one_taken(node, claims, why):
    pod = node.pod('one')
    pod.remove_token() if claims is None else pod.write_token(**claims)
    node.istiod.set(pod.id, listeners=[])
    serve(node, pod)
    wait_for_text(node, why, 'pods', pod.label)
    assert fetch(pod, timeout=1)['code'] == 'DEADLINE_EXCEEDED'
    # The stream is not opened with it; the text says why, to Envoy's log too.
    ended = pod.call(clients.ads, pod.mount / 'XDS', [clients.listener_request([b''])])[0]
    assert ended != 'answered' and re.search(why, ended), ended
    assert not node.istiod.journal('open') and not node.istiod.journal('csr')
    pod.write_token()
    assert fetch(pod)['default']['chain']
    assert pod.call(clients.ads, pod.mount / 'XDS', [clients.listener_request([b''])]) == ['answered']


def test_a_cached_certificate_needs_a_token_of_ones_own(node):
    one, two = node.pod('one', sa='shared'), node.pod('two', sa='shared')
    two.write_token(ttl=-100)
    serve(node, one, two)
    assert fetch(one)['default']['chain']
    assert fetch(two, timeout=2)['code'] == 'DEADLINE_EXCEEDED'
    two.write_token()
    assert fetch(two)['default'] == fetch(one)['default']
    assert len(node.istiod.issued()) == 1
