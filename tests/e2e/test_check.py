"""Never "all is well" when it is not: agentd --check, --check --connect, agentctl status, the metric, the exit status."""
import ctypes
import datetime
import os
import re
import socket
import struct
import subprocess

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from tests.istiod.ca import Authority, pem

from .run import wait_for
from .test_revocation import SOAK, crls_of

DAY = datetime.timedelta(days=1)


def root_of(days):
    """A stranger's root certificate that ends in so many days."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.timezone.utc)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, 'stranger')])
    return pem(x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
               .not_valid_before(now - 9 * DAY).not_valid_after(now + days * DAY)
               .add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256()))


class Check:
    """agentd --check beside no agentd that runs."""

    def __init__(self, node):
        self.agentd, self.root, self.preexec = node.agentd, node.istiod.root_file, None
        self.plane = dict(node.agentd.plane)
        self.config = node.agentd.dir / 'check.yaml'

    def run(self, *flags):
        """(exit status, {row: (outcome, text)})"""
        a = self.agentd
        self.config.write_text(yaml.safe_dump({'control_planes': [self.plane]}))
        root = ['--root-file', f'0={self.root}'] if self.root else []
        r = subprocess.run([*a.program('agentd'), '--check', '--run', a.run, '--manifests', a.manifests, '--config', self.config,
                            *root, *flags], text=True, capture_output=True, timeout=60, check=False, env=a.environment(),
                           preexec_fn=self.preexec)
        assert 'Sanitizer' not in r.stderr, r.stderr
        return r.returncode, {' '.join(n.split()): (o, t) for o, n, t in re.findall(
            r'^(ok|note|PROBLEM) +(.{22}) (.*)$', r.stdout, re.M)}


@pytest.fixture(name='node')
def fixture_node(make_node):
    return make_node(mode='release')


@pytest.fixture
def check(node):
    return Check(node)


def test_roots_are_read(check):
    code, rows = check.run()
    assert code == 0 and rows['a first call'] == ('ok', 'grpc works in the cage'), rows
    assert rows['roots of istiod'][0] == 'ok' and rows['roots of istiod'][1].startswith('1 certificate, the first expires at 20')
    good = check.root
    check.root = None
    code, rows = check.run()
    assert code == 1 and rows['roots of istiod'] == (
        'PROBLEM', 'none: name the control plane\'s by --root-file 0=FILE, or "root: SYSTEM"')
    check.root = check.config.with_name('root.pem')
    for text, why in {'': 'no certificate in it', 'garbage': 'no certificate in it',
                      good.read_text()[:-60]: 'no certificate in it: block 1 is left out: not a PEM certificate'}.items():
        check.root.write_text(text)
        code, rows = check.run()
        assert code == 1 and rows['roots of istiod'][0] == rows['worker'][0] == 'PROBLEM'
        assert rows['roots of istiod'][1].startswith(f'--root-file 0: {why}'), rows
    check.root.write_text(root_of(-1))
    code, rows = check.run()
    assert code == 1 and re.match('expired at .*: fetch', rows['roots of istiod'][1])
    check.root.write_text(root_of(-1) + good.read_text())
    code, rows = check.run()
    assert code == 0 and rows['roots of istiod'][0] == 'note' and rows['roots of istiod'][1].startswith('2 certificates, ')
    check.root.unlink()
    code, rows = check.run()
    assert code == 1 and rows['root file 0'][0] == 'PROBLEM' and 'roots of istiod' not in rows


def key_of(certificate):
    public = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def test_the_good_certificates_of_a_bundle_count(check):
    one, two = root_of(30), root_of(30)
    trusted = subprocess.run(['openssl', 'x509', '-trustout'], input=two, text=True, capture_output=True, check=True).stdout
    damaged = '-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUdamagedBlock\n-----END CERTIFICATE-----\n'
    check.root = check.config.with_name('bundle.pem')
    bundles = [(one + damaged + two, 2, 'block 2 is left out: not a PEM certificate'),
               (one + trusted, 1, 'block 2 is left out: TRUSTED CERTIFICATE'),
               (key_of(two) + one, 1, 'block 1 is left out: PUBLIC KEY'),
               (one + damaged, 1, 'block 2 is left out: not a PEM certificate'),
               (damaged + one, 1, 'block 1 is left out: not a PEM certificate')]
    for text, n, left_out in bundles if SOAK else bundles[:1]:  # unit tests have all of them
        check.root.write_text(text)
        code, rows = check.run()
        outcome, said = rows['roots of istiod']
        assert (code, outcome) == (0, 'note') and left_out in said, rows
        assert said.startswith(f'{n} certificate{"s" if n > 1 else ""}, ')
        assert ('2 roots have one name, other keys and no key identifier' in said) == (n == 2)
    check.root.write_text(damaged)
    code, rows = check.run()
    assert code == 1 and rows['roots of istiod'][0] == 'PROBLEM' and 'no certificate in it: block 1' in rows['roots of istiod'][1]


def test_a_revocation_list_is_tried(check, node):
    authority = Authority.kept(node.istiod.dir / 'ca' / 'a.pem')
    crl = check.config.with_name('crl.pem')

    def said(text):
        crl.write_text(text)
        code, rows = check.run('--crl-file', f'0={crl}')
        assert code == (rows['CRL of istiod'][0] == 'PROBLEM')
        return rows['CRL of istiod']
    assert said(crls_of(authority))[0] == 'ok'
    bad = {crls_of(authority, ends_in_s=-1): 'it ended at 20',
           crls_of(Authority.new('other')): 'it has no list of the CA', 'garbage': 'no revocation list in it'}
    for text, why in list(bad.items())[:3 if SOAK else 1]:
        outcome, text = said(text)
        assert outcome == 'PROBLEM' and why in text
    if not SOAK:
        return
    assert said(crls_of(authority, ends_in_s=10))[0] == 'note'  # soon
    unfit = Authority.new('unfit', crl_sign=False)
    check.root = check.config.with_name('unfit.pem')
    check.root.write_text(pem(unfit.root))
    assert 'lacks cRLSign' in said(crls_of(unfit))[1]
    check.plane['root'], check.root = 'SYSTEM', None
    assert said(crls_of(authority)) == ('note', 'not tried: the roots of istiod are not known')


def test_connect_goes_as_far_as_the_name(check, node):
    host, _, port = check.plane['address'].rpartition(':')
    row = 'control plane istiod'
    code, rows = check.run('--connect')
    assert code == 0 and rows[row] == ('ok', f'{host}:{port} is {node.istiod.server_name}'), rows

    def problem():
        code, rows = check.run('--connect')
        assert code == 1 and rows[row][0] == rows['worker'][0] == 'PROBLEM', rows
        return rows[row][1]

    check.plane['server_name'] = 'another.example'
    assert 'another.example' in problem()
    check.plane = {**node.agentd.plane, 'address': f'nowhere.invalid:{port}'}
    assert re.search('nowhere.invalid|DNS', problem())
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        check.plane['address'] = '{}:{}'.format(*s.getsockname())
        assert 'Connection refused' in problem()
    check.plane = dict(node.agentd.plane)
    check.root = check.config.with_name('root.pem')
    check.root.write_text(root_of(1))
    assert re.search('(?i)handshake|certificate', problem())


def refuse_threads():
    """A kernel, or a library, with which a caged worker cannot make its threads: that alone kills it."""
    clone3, clone, thread, allow, kill = 435, 56, 0x10000, 0x7fff0000, 0x80000000
    lines = [(0x20, 0, 0, 0), (0x15, 0, 1, clone3), (0x06, 0, 0, 0x00050000 | 38), (0x15, 0, 3, clone), (0x20, 0, 0, 16),
             (0x45, 0, 1, thread), (0x06, 0, 0, kill), (0x06, 0, 0, allow)]
    code = b''.join(struct.pack('HBBI', *line) for line in lines)
    keep = ctypes.create_string_buffer(code, len(code))
    program = struct.pack('HxxxxxxP', len(lines), ctypes.addressof(keep))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), 'seccomp')


@pytest.mark.skipif(os.uname().machine != 'x86_64', reason='the numbers of system calls are those of x86-64')
def test_a_worker_that_cannot_live_is_no_ok(check):
    check.preexec = refuse_threads
    code, rows = check.run()
    assert code == 1 and 'a first call' not in rows, rows
    assert rows['worker'] == ('PROBLEM', 'its check failed (signal 31 (a forbidden system call))')


def connected(node):
    return node.agentd.metric('agentd_control_plane_connected', 'control_plane="istiod"')


def test_it_connects_without_a_pod(node):
    node.agentd.start()
    wait_for('the connection', lambda: connected(node) == 1)
    assert node.agentd.ctl_text('status')[0] == 0
    assert 0 < node.agentd.metric('agentd_root_expiry_seconds') < 20 * 365 * 86400
    node.istiod.process.stop()
    wait_for('its loss', lambda: node.agentd.ctl_text('status')[0] == 1)
    assert connected(node) == 0
    code, text = node.agentd.ctl_text('status')
    assert re.search('problem: cannot connect to .* Connection refused', text) and 'never' not in text
    node.istiod.start()
    wait_for('its return', lambda: node.agentd.ctl_text('status')[0] == 0)
    assert connected(node) == 1


def test_words_of_redirect_allow(check):
    _, rows = check.run('--redirect', '--redirect-allow', 'strict')
    assert '--redirect-allow' not in rows
    code, rows = check.run('--redirect', '--redirect-allow', 'accelerate-node')
    assert code == 1 and rows['--redirect-allow'][0] == 'PROBLEM' and 'is gone' in rows['--redirect-allow'][1]


def test_never_connected_says_why(node):
    node.istiod.process.stop()
    node.agentd.start()
    said = wait_for('the reason', lambda: re.search(
        'problem: never connected: cannot connect to .* Connection refused', node.agentd.ctl_text('status')[1]))
    assert said and node.agentd.ctl_text('status')[0] == 1 and connected(node) == 0
    assert node.agentd.ctl('status')['control_planes'][0]['connected'] is False
    assert node.agentd.ctl_text('ready')[0] == 0  # an update goes on all the same


def test_wrong_configuration_is_2(node):
    """systemd's units start it again after any other status."""
    a = node.agentd
    for wrong in (['--config', '/nonexistent.yaml'], ['--config', a.dir], ['--worker-user', 'root'], ['--csr-per-second', '0'],
                  ['--redirect', '--redirect-allow', 'all'], ['--connect'], ['--root-file', '99=/x']):
        r = subprocess.run([*a.program('agentd'), '--run', a.run, '--manifests', a.manifests, *wrong], text=True,
                           capture_output=True, timeout=60, check=False, env=a.environment())
        assert r.returncode == 2, (wrong, r.stderr)
