"""A revocation list of the node, given to real Envoys with ROOTCA."""
import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from tests.istiod.ca import Authority, now

from . import mesh
from .conftest import start_pair
from .run import wait_for


def put_crl(file, authority, *serials):
    builder = (x509.CertificateRevocationListBuilder().issuer_name(authority.root.subject)
               .last_update(now() - datetime.timedelta(minutes=1)).next_update(now() + datetime.timedelta(days=1)))
    for serial in serials:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now()).build())
    new = file.with_suffix('.new')
    new.write_bytes(builder.sign(authority.key, hashes.SHA256()).public_bytes(Encoding.PEM))
    new.rename(file)


def test_a_revoked_certificate_is_refused(node):
    crl = node.agentd.dir / 'crl.pem'
    node.agentd.flags = ['--crl-file', f'0={crl}']
    client, server = start_pair(node)
    authority = Authority.kept(node.istiod.dir / 'ca' / 'a.pem')

    def answer():
        return client.netns.http(mesh.OUTBOUND)[0]
    put_crl(crl, authority)
    wait_for('the list in force', lambda: node.agentd.ctl('status')['control_planes'][0]['crl']['present'])
    wait_for('connections that pass it', lambda: answer() == 200)
    # The client's, by the server's Envoy.
    put_crl(crl, authority, int(next(iter(client.envoy_serials()[0])), 16))
    wait_for('the refusal', lambda: answer() == 503)
    crl.write_text('garbage')  # changes nothing
    wait_for('the reason', lambda: node.agentd.ctl('status')['control_planes'][0]['crl']['why_not'])
    status, text = node.agentd.ctl_text('status')
    assert status == 1 and 'problem: revocation list' in text and 'revocation list in force' in text
    assert answer() == 503
    crl.unlink()
    wait_for('the end of the list', lambda: answer() == 200)
    assert node.agentd.ctl_text('status')[0] == 0
