"""Revocation lists of the node and bundles of roots, given to real Envoys with ROOTCA.

The page has said why before the first connection fails.  All lists with all bundles when AGENTD_SOAK=1.
"""
import datetime
import os
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from tests.istiod.ca import Authority, now, pem

from . import mesh
from .conftest import start_pair
from .run import wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
DAMAGED = '-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUdamagedBlock\n-----END CERTIFICATE-----\n'


def crl_of(certificate, key, *serials, ends_in_s=86400):
    builder = (x509.CertificateRevocationListBuilder().issuer_name(certificate.subject)
               .last_update(now() - datetime.timedelta(minutes=1)).next_update(now() + datetime.timedelta(seconds=ends_in_s)))
    for serial in serials:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now()).build())
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def crls_of(authority, **how):
    """Of each CA of its chain."""
    lists = crl_of(authority.root, authority.root_key, **how)
    if authority.intermediates:
        lists += crl_of(authority.certificate, authority.key, **how)
    return lists


class Revoking:
    """A node with two pods and a file for lists; each request has a connection of its own."""

    def __init__(self, node, authority=None, roots=None):
        self.node, self.crl, self.said_before = node, node.agentd.dir / 'crl.pem', True
        node.agentd.flags = ['--crl-file', f'0={self.crl}']
        if authority:
            authority.keep(node.istiod.dir / 'ca' / 'x.pem')
            node.istiod.order('ca', issuer='x', roots=roots or ['x'])
        self.client, server = start_pair(node)
        node.istiod.set(self.client.id, **mesh.client(server, requests_per_connection=1))

    def put(self, text):
        new = self.crl.with_suffix('.new')
        new.write_text(text)
        new.rename(self.crl)

    def plane(self):
        return self.node.agentd.ctl('status')['control_planes'][0]

    def why_not(self):
        return self.plane()['crl']['why_not']

    def present(self):
        return self.plane()['crl']['present']

    def answer(self):
        """A failure without a page that says why is a false green."""
        status = self.client.netns.http(mesh.OUTBOUND)[0]
        self.said_before &= status == 200 or bool(self.why_not())
        return status

    def serves(self):
        return [self.answer() for _ in range(3)] == [200] * 3


def test_a_revoked_certificate_is_refused(node):
    r = Revoking(node)
    authority = Authority.kept(node.istiod.dir / 'ca' / 'a.pem')
    r.put(crls_of(authority))
    wait_for('the list in force', r.present)
    wait_for('connections that pass it', lambda: r.answer() == 200)
    # The client's, by the server's Envoy.
    r.put(crl_of(authority.root, authority.key, int(next(iter(r.client.envoy_serials()[0])), 16)))
    wait_for('the refusal', lambda: r.client.netns.http(mesh.OUTBOUND)[0] == 503)
    r.crl.write_text('garbage')  # changes nothing
    wait_for('the reason', r.why_not)
    status, text = node.agentd.ctl_text('status')
    assert status == 1 and 'problem: revocation list' in text and 'revocation list in force' in text
    assert r.client.netns.http(mesh.OUTBOUND)[0] == 503
    r.crl.unlink()
    wait_for('the end of the list', lambda: r.answer() == 200)
    assert node.agentd.ctl_text('status')[0] == 0


def test_a_list_that_ends_is_said_before_and_then(node):
    r = Revoking(node)
    authority = Authority.kept(node.istiod.dir / 'ca' / 'a.pem')
    agentd = node.agentd
    assert agentd.metric('agentd_crl_problem') == 0
    ends = time.time() + 4
    r.put(crls_of(authority, ends_in_s=4))
    wait_for('the warning', lambda: any('was not replaced yet' in w for w in r.plane()['warnings']))
    assert agentd.ctl_text('status')[0] == 0 and time.time() < ends and r.serves()
    assert 0 < agentd.metric('agentd_crl_expiry_seconds') < 5
    r.put(crls_of(authority, ends_in_s=-1))  # worse than what is there
    assert 'has ended; the last good list stays in force' in wait_for('the reason', r.why_not)
    wait_for('the refusal', lambda: r.answer() == 503)
    assert r.said_before
    status, text = agentd.ctl_text('status')
    assert status == 1 and 'Envoys refuse all peers' in text
    assert agentd.metric('agentd_crl_problem') == 1 and agentd.metric('agentd_crl_expiry_seconds') <= 0
    r.put(crls_of(authority))
    wait_for('a good one', lambda: r.answer() == 200)
    assert agentd.ctl_text('status')[0] == 0 and agentd.metric('agentd_crl_problem') == 0


def bundle(node, authority, kind):
    """The names of its roots, as the control plane announces them."""
    folder = node.istiod.dir / 'ca'
    (folder / 'old.block').write_text(pem(authority.root_before()))
    (folder / 'damaged.block').write_text(DAMAGED)
    return {'one': ['x'], 'renewed': ['old', 'x'], 'damaged': ['x', 'damaged', 'b']}[kind]


def lists(authority):
    """{kind: (text, is it in force, do Envoys serve, what the page says)}"""
    stranger = Authority.new('stranger', True)
    kinds = {'good': (crls_of(authority), True, True, ''),
             'ended': (crls_of(authority, ends_in_s=-1), True, False, 'has ended'),
             'of another CA': (crls_of(stranger), False, True, 'it has no list of the CA')}
    if authority.intermediates:
        kinds['of the root alone'] = crl_of(authority.root, authority.root_key), False, True, 'it has no list of the CA'
        kinds['of the intermediate alone'] = crl_of(authority.certificate, authority.key), False, True, 'it has no list of the CA'
    return kinds


@pytest.mark.parametrize('roots', ['one', 'renewed', 'damaged'] if SOAK else ['renewed'])
@pytest.mark.parametrize('intermediate', [True, False] if SOAK else [True])
def test_lists_with_bundles(make_node, intermediate, roots):
    node, authority = make_node(), Authority.new('x', intermediate)
    r = Revoking(node, authority, bundle(node, authority, roots))
    assert r.serves()
    for kind, (text, in_force, serves, why) in lists(authority).items():
        r.put(text)
        wait_for(f'{kind}: the page', lambda: r.present() == in_force and why in r.why_not())  # noqa: B023
        wait_for(f'{kind}: Envoys', lambda: (r.answer() == 200) == serves)  # noqa: B023
        assert not serves or r.serves(), kind
        assert node.agentd.ctl_text('status')[0] == bool(why), kind
        r.crl.unlink()
        wait_for(f'no list after {kind}', lambda: not r.present() and not r.why_not() and r.answer() == 200)
    assert r.said_before
    damaged = [w for w in r.plane()['warnings'] if 'block 2 is left out' in w]
    assert len(damaged) == (2 if roots == 'damaged' else 0)  # of the node's file, of the CA's answers


@pytest.mark.parametrize('roots', ['one', 'renewed', 'damaged'] if SOAK else ['damaged'])
def test_lists_by_a_ca_that_may_sign_none(make_node, roots):
    node, authority = make_node(), Authority.new('x', crl_sign=False)
    r = Revoking(node, authority, bundle(node, authority, roots))
    r.put(crls_of(authority))
    assert 'lacks cRLSign; it is not in force' in wait_for('the reason', r.why_not)
    assert r.serves() and not r.present() and r.said_before
    status, text = node.agentd.ctl_text('status')
    assert status == 1 and ('block 2 is left out' in text) == (roots == 'damaged')
