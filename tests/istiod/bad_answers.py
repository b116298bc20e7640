"""CSR answers that no client may take (threats-and-faults.md T24): each spoils one thing of a good one.

A kind is a function of a Case and gives the answer's elements: leaf, intermediates, roots.
"""
import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from .ca import BACKDATE, Authority, now, pem

HOUR = datetime.timedelta(hours=1)
_KINDS = {}


class Case:
    def __init__(self, ca, public_key, spiffe_id, ttl_s):
        self.ca, self.public_key, self.spiffe_id = ca, public_key, spiffe_id
        self.ttl = datetime.timedelta(seconds=ttl_s)

    def answer(self, leaf, authority=None):
        return [leaf if isinstance(leaf, str) else pem(leaf),
                *map(pem, (authority or self.ca.issuer).intermediates), self.ca.roots_pem]

    def signed(self, names=None, public_key=None, start=None, end=None, ca=False, authority=None, more=()):
        """A leaf as good as istiod's but for what is said; `more` extensions."""
        authority = authority or self.ca.issuer
        names = [x509.UniformResourceIdentifier(self.spiffe_id)] if names is None else names
        made = (x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(authority.certificate.subject)
                .public_key(public_key or self.public_key).serial_number(x509.random_serial_number())
                .not_valid_before(start or now() - BACKDATE).not_valid_after(end or now() + self.ttl)
                .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True))
        for extension in more:
            made = made.add_extension(extension, critical=False)
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=True)
        return made.sign(authority.key, hashes.SHA256())


def _bad(kind):
    def add(function):
        _KINDS[kind] = function
        return function
    return add


def known(kind):
    if kind not in _KINDS:
        raise ValueError(f'no such bad certificate: {kind!r}; there are {", ".join(_KINDS)}')
    return kind


def kinds():
    return list(_KINDS)


def make(kind, ca, public_key, spiffe_id, ttl_s):
    return _KINDS[kind](Case(ca, public_key, spiffe_id, ttl_s))


def _names(kind, names):
    """A leaf with these names: functions of the right one."""
    _KINDS[kind] = lambda c: c.answer(c.signed([name(c.spiffe_id) for name in names]))


def _uri(change):
    return lambda spiffe_id: x509.UniformResourceIdentifier(change(spiffe_id))


_names('no-san', [])
_names('other-account', [_uri(lambda s: s + 'x')])
_names('other-namespace', [_uri(lambda s: s.replace('/ns/', '/ns/x'))])
_names('two-uris', [_uri(lambda s: s), _uri(lambda s: s + 'x')])
_names('dns-too', [_uri(lambda s: s), lambda _: x509.DNSName('istiod.istio-system.svc')])
_names('dns-only', [lambda _: x509.DNSName('web.demo.svc')])
_names('nul-in-san', [_uri(lambda s: s + '\0x')])
_names('upper-case', [_uri(str.upper)])
_names('trailing-slash', [_uri(lambda s: s + '/')])


@_bad('other-key')
def _(c):
    return c.answer(c.signed(public_key=ec.generate_private_key(ec.SECP256R1()).public_key()))


@_bad('ca-true')
def _(c):
    return c.answer(c.signed(ca=True))


@_bad('no-digital-signature')
def _(c):
    """OpenSSL takes it, Envoy does not; nor the next one."""
    usage = dict.fromkeys(('digital_signature', 'content_commitment', 'data_encipherment', 'key_agreement', 'key_cert_sign',
                           'crl_sign', 'encipher_only', 'decipher_only'), False)
    return c.answer(c.signed(more=[x509.KeyUsage(key_encipherment=True, **usage)]))


@_bad('must-staple')
def _(c):
    return c.answer(c.signed(more=[x509.TLSFeature([x509.TLSFeatureType.status_request])]))


@_bad('expired')
def _(c):
    return c.answer(c.signed(start=now() - 2 * HOUR, end=now() - HOUR))


@_bad('not-yet')
def _(c):
    return c.answer(c.signed(start=now() + HOUR, end=now() + 2 * HOUR))


@_bad('ten-years')
def _(c):
    return c.answer(c.signed(end=now() + 3650 * 24 * HOUR))


@_bad('wrong-chain')
def _(c):
    """Signed by a root that the answer does not announce."""
    return c.answer(c.signed(authority=Authority.new('stranger')))


@_bad('same-name-other-root')
def _(c):
    """As above, but its issuer bears the name of ours."""
    return c.answer(c.signed(authority=Authority.new(c.ca.issuer_name)))


@_bad('intermediate-missing')
def _(c):
    below = Authority.new(c.ca.issuer_name, intermediate=True)
    return c.answer(c.signed(authority=below))


@_bad('damaged-signature')
def _(c):
    good = c.signed().public_bytes(Encoding.DER)
    return c.answer(pem(x509.load_der_x509_certificate(good[:-1] + bytes([good[-1] ^ 1]))))


@_bad('leaf-alone')
def _(c):
    return c.answer(c.signed())[:1]


@_bad('nothing')
def _(_c):
    return []


@_bad('empty-elements')
def _(_c):
    return ['', '']


@_bad('no-pem')
def _(c):
    return c.answer('this is no certificate\n')


@_bad('roots-no-pem')
def _(c):
    return [*c.answer(c.signed())[:-1], 'nor is this\n']


@_bad('two-leaves')
def _(c):
    return c.answer(pem(c.signed()) + pem(c.signed()))


@_bad('many-elements')
def _(c):
    leaf = pem(c.signed())
    return [leaf] * 100 + [c.ca.roots_pem]


@_bad('key-in-answer')
def _(c):
    """PEM of another kind in front of the leaf."""
    return c.answer('-----BEGIN NOTHING-----\nAAAA\n-----END NOTHING-----\n' + c.ca.roots_pem)
