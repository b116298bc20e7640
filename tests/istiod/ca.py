"""The certificate authorities: roots by name, one of them issuing, and the server's own certificate.

DIR/ca/root-cert.pem always holds the roots in force; it is what a client's node trusts.  A control
plane that is started again in the same directory goes on with the authorities it had.  A root NAME
that has a file DIR/ca/NAME.block is announced as that text, whatever it is.
"""
import datetime
import ipaddress
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding, NoEncryption, PrivateFormat, load_pem_private_key)
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


def _usage(ca, crl_sign=True):
    return x509.KeyUsage(
        digital_signature=not ca, key_encipherment=not ca, key_cert_sign=ca, crl_sign=ca and crl_sign,
        content_commitment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False)


class Authority:
    """One root, with an intermediate below it if wanted.  `certificate` and `key` are what signs."""

    def __init__(self, chain, key, root_key=None):
        self.root, self.certificate, self.key = chain[0], chain[-1], key
        self.intermediates = chain[1:]
        self.root_key = root_key or key  # that of an intermediate's root is not kept

    @classmethod
    def new(cls, name, intermediate=False, crl_sign=True):
        root, root_key = cls._make(f'root {name}', None, None, crl_sign)
        if not intermediate:
            return cls([root], root_key)
        below, key = cls._make(f'intermediate {name}', root, root_key, crl_sign)
        return cls([root, below], key, root_key)

    def root_before(self):
        """With the root's name and key; it has ended."""
        root = self.root
        builder = _builder(root.subject, root.subject, root.public_key(), now() - 2 * BACKDATE, now() - BACKDATE)
        for extension in root.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        return builder.sign(self.root_key, hashes.SHA256())

    @classmethod
    def kept(cls, path):
        text = path.read_bytes()
        return cls(x509.load_pem_x509_certificates(text), load_pem_private_key(text, None))

    def keep(self, path):
        path.touch(0o600)
        path.write_text(''.join(map(pem, [self.root, *self.intermediates])) + key_pem(self.key))

    @staticmethod
    def _make(cn, parent, parent_key, crl_sign):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'agentd tests'),
                             x509.NameAttribute(NameOID.COMMON_NAME, cn)])
        made = (_builder(subject, parent.subject if parent else subject, key.public_key(),
                         now() - BACKDATE, now() + _YEARS)
                .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
                .add_extension(_usage(True, crl_sign), critical=True)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
                .sign(parent_key or key, hashes.SHA256()))
        return made, key

    def sign(self, public_key, names, ttl, cn=None):
        """A leaf for `names` (general names), valid from two minutes ago until `ttl` from now."""
        end = min(now() + ttl, self.certificate.not_valid_after_utc)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cn)] if cn else [])
        start = min(now() - BACKDATE, end - BACKDATE)
        above = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())  # strict verifiers want it
        return (_builder(subject, self.certificate.subject, public_key, start, end)
                .add_extension(above, critical=False)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .add_extension(_usage(ca=False), critical=True)
                .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH,
                                                      ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
                .add_extension(x509.SubjectAlternativeName(names), critical=not cn)
                .sign(self.key, hashes.SHA256()))


class CA:
    def __init__(self, directory, intermediate=False, trust_domain='cluster.local', name=None):
        self.directory = Path(directory) / 'ca'
        self.directory.mkdir(parents=True, exist_ok=True)
        self.trust_domain = trust_domain
        self._names = [SERVER_NAME, name] if name else [SERVER_NAME]
        self._intermediate = intermediate
        self._authorities = {}
        self._state = self.directory / 'state.json'
        self.use(**(json.loads(self._state.read_text()) if self._state.exists() else
                    {'issuer': 'a', 'roots': ['a']}))

    def _authority(self, name):
        if name not in self._authorities:
            path = self.directory / f'{name}.pem'
            if not path.exists():
                Authority.new(name, self._intermediate).keep(path)
            self._authorities[name] = Authority.kept(path)
        return self._authorities[name]

    def _root_text(self, name):
        block = self.directory / f'{name}.block'
        return block.read_text() if block.exists() else pem(self._authority(name).root)

    def use(self, issuer, roots):
        """Issue with `issuer` from now on and announce `roots`; authorities are made when first named."""
        self.issuer_name, self.root_names = issuer, list(roots)
        self.issuer = self._authority(issuer)
        self.roots_pem = ''.join(map(self._root_text, roots))
        self.make_server_certificate()
        new = self.directory / 'root-cert.pem.new'
        new.write_text(self.roots_pem)
        new.rename(self.directory / 'root-cert.pem')
        self._state.write_text(json.dumps({'issuer': issuer, 'roots': roots}))

    def make_server_certificate(self, authority=None, name=None, days=30):
        """`authority`: a root of its own that nobody announces, instead of the issuing one; `name`: instead of ours."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [*map(x509.DNSName, [name] if name else self._names), x509.DNSName('localhost'),
                 x509.IPAddress(ipaddress.ip_address('127.0.0.1'))]
        issuer = self._authority(authority) if authority else self.issuer
        leaf = issuer.sign(key.public_key(), names, datetime.timedelta(days=days))
        self.server_key = key_pem(key).encode()
        self.server_chain = ''.join(map(pem, [leaf, *issuer.intermediates])).encode()

    def load_server_pair(self, context):
        """For Python's own TLS, which reads files only."""
        pair = self.directory / 'server.pem'
        pair.touch(0o600)
        pair.write_bytes(self.server_key + self.server_chain)
        context.load_cert_chain(pair)

    def issue(self, public_key, spiffe_id, ttl_s, with_cn):
        """The answer's elements (leaf, intermediates, all roots as one) and the leaf."""
        leaf = self.issuer.sign(public_key, [x509.UniformResourceIdentifier(spiffe_id)],
                                 datetime.timedelta(seconds=ttl_s), spiffe_id if with_cn else None)
        return [pem(leaf), *map(pem, self.issuer.intermediates), self.roots_pem], leaf
