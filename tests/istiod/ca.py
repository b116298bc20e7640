"""The certificate authorities: roots by name, one of them issuing, and the server's own certificate.

DIR/ca/root-cert.pem always holds the roots in force; it is what a client's node trusts.
"""
import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER_NAME = 'istiod.istio-system.svc'
BACKDATE = datetime.timedelta(minutes=2)
_YEARS = datetime.timedelta(days=3650)


def now():
    return datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)


def pem(certificate):
    return certificate.public_bytes(Encoding.PEM).decode()


def key_pem(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _builder(subject, issuer, public_key, start, end):
    return (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
            .serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(end))


def _usage(ca):
    return x509.KeyUsage(
        digital_signature=not ca, key_encipherment=not ca, key_cert_sign=ca, crl_sign=ca,
        content_commitment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False)


class Authority:
    """One root, with an intermediate below it if wanted."""

    def __init__(self, name, intermediate):
        self.root, key = self._make(f'root {name}', None, None)
        self.intermediates = []
        self.certificate, self.key = self.root, key
        if intermediate:
            self.certificate, self.key = self._make(f'intermediate {name}', self.root, key)
            self.intermediates = [self.certificate]

    @staticmethod
    def _make(cn, parent, parent_key):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'agentd tests'),
                             x509.NameAttribute(NameOID.COMMON_NAME, cn)])
        made = (_builder(subject, parent.subject if parent else subject, key.public_key(),
                         now() - BACKDATE, now() + _YEARS)
                .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
                .add_extension(_usage(ca=True), critical=True)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
                .sign(parent_key or key, hashes.SHA256()))
        return made, key

    def sign(self, public_key, names, ttl, cn=None):
        """A leaf for `names` (general names), valid from two minutes ago until `ttl` from now."""
        end = min(now() + ttl, self.certificate.not_valid_after_utc)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)] if cn else [])
        return (_builder(subject, self.certificate.subject, public_key, now() - BACKDATE, end)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .add_extension(_usage(ca=False), critical=True)
                .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH,
                                                      ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
                .add_extension(x509.SubjectAlternativeName(names), critical=not cn)
                .sign(self.key, hashes.SHA256()))


class CA:
    def __init__(self, directory, intermediate=False, trust_domain='cluster.local'):
        self.directory = Path(directory) / 'ca'
        self.directory.mkdir(parents=True, exist_ok=True)
        self.trust_domain = trust_domain
        self._intermediate = intermediate
        self._authorities = {}
        self.use(issuer='a', roots=['a'])

    def use(self, issuer, roots):
        """Issue with `issuer` from now on and announce `roots`; authorities are made when first named."""
        for name in [issuer, *roots]:
            if name not in self._authorities:
                self._authorities[name] = Authority(name, self._intermediate)
        self.issuer_name, self.root_names = issuer, list(roots)
        self._issuer = self._authorities[issuer]
        self.roots_pem = ''.join(pem(self._authorities[r].root) for r in roots)
        self._make_server_certificate()
        new = self.directory / 'root-cert.pem.new'
        new.write_text(self.roots_pem)
        new.rename(self.directory / 'root-cert.pem')

    def _make_server_certificate(self):
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(SERVER_NAME), x509.DNSName('localhost'),
                 x509.IPAddress(ipaddress.ip_address('127.0.0.1'))]
        leaf = self._issuer.sign(key.public_key(), names, datetime.timedelta(days=30))
        self.server_key = key_pem(key).encode()
        self.server_chain = ''.join(map(pem, [leaf, *self._issuer.intermediates])).encode()

    def issue(self, public_key, spiffe_id, ttl_s, with_cn):
        """The answer's elements (leaf, intermediates, all roots as one) and the leaf."""
        leaf = self._issuer.sign(public_key, [x509.UniformResourceIdentifier(spiffe_id)],
                                 datetime.timedelta(seconds=ttl_s), spiffe_id if with_cn else None)
        return [pem(leaf), *map(pem, self._issuer.intermediates), self.roots_pem], leaf
