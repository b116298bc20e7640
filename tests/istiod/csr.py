"""IstioCertificateService: the names come from the token, the CSR gives the key (istio-agent.md 4.5)."""
import base64
import re

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from google.protobuf.json_format import MessageToDict

from . import bad_answers
from .gate import Refusal
from .messages import CertificateRequest, CertificateResponse
from .tokens import Refused

SERVICE = 'istio.v1.auth.IstioCertificateService'
DEFAULT_TTL_S = 24 * 3600
MAX_TTL_S = 90 * 24 * 3600
_PEM = re.compile(r'-----BEGIN ([^-]+)-----\n(.*?)-----END \1-----', re.S)


class BadRequest(Exception):
    pass


def key_type(public_key):
    if isinstance(public_key, ec.EllipticCurvePublicKey):
        return f'EC {public_key.curve.name}'
    return f'RSA {public_key.key_size}' if isinstance(public_key, rsa.RSAPublicKey) else 'other'


def read_csr(text):
    """The first PEM block, whatever it calls itself; what follows is ignored (istiod-live.md 5)."""
    block = _PEM.search(text)
    if not block:
        raise BadRequest('certificate signing request is not properly encoded')
    try:
        csr = x509.load_der_x509_csr(base64.b64decode(''.join(block[2].split()), validate=True))
        public_key = csr.public_key()
    except (ValueError, UnsupportedAlgorithm) as e:
        raise BadRequest('failed to parse X.509 certificate signing request') from e
    if not csr.is_signature_valid:
        raise BadRequest('x509: ECDSA verification failure' if isinstance(public_key, ec.EllipticCurvePublicKey)
                         else 'crypto/rsa: verification error')
    return csr


def read_ttl(asked):
    """Nothing, a negative and an absurd value give the default (istiod-live.md 5)."""
    if asked <= 0 or asked > 2**63 // 10**9:
        return DEFAULT_TTL_S
    if asked > MAX_TTL_S:
        raise BadRequest(f'requested TTL {asked // 3600}h0m0s is greater than the max allowed '
                         f'TTL {MAX_TTL_S // 3600}h0m0s')
    return asked


class CertificateService:
    def __init__(self, server):
        self._server = server

    def handler(self):
        method = grpc.unary_unary_rpc_method_handler(
            self.create, CertificateRequest.FromString, CertificateResponse.SerializeToString)
        return grpc.method_handlers_generic_handler(SERVICE, {'CreateCertificate': method})

    async def create(self, request, context):
        control, journal, ca = self._server.control, self._server.journal, self._server.ca
        peer, who = self._server.who(context)
        seen = {'peer': peer, 'asked_ttl': request.validity_duration,
                'metadata': MessageToDict(request.metadata)}

        async def refuse(code, text, why):
            journal.write('csr', **seen, code=code.name, why=why)
            await context.abort(code, text)

        if isinstance(who, Refused):
            await refuse(grpc.StatusCode.UNAUTHENTICATED, 'request authenticate failure', str(who))
        identity = f'ns/{who["namespace"]}/sa/{who["serviceaccount"]["name"]}'
        seen.update(identity=identity, pod=who.get('pod'), by=who.get('by', 'token'))
        journal.write('csr-asked', **seen)
        try:
            await self._server.gate.pass_('csr')
        except Refusal as e:
            await refuse(e.code, e.text, 'told to fail')
        asked_for = seen['metadata'].get('ImpersonatedIdentity')
        if isinstance(asked_for, str) and asked_for:  # no trusted node account here
            await refuse(grpc.StatusCode.UNAUTHENTICATED,
                         'request impersonation authentication failure', 'impersonation')
        try:
            csr = read_csr(request.csr)
            ttl = control.ttl_s or read_ttl(request.validity_duration)
        except BadRequest as e:
            await refuse(grpc.StatusCode.INVALID_ARGUMENT, f'CSR signing error ({e})', str(e))
        if kind := control.bad_certificate(who['serviceaccount']['name']):
            journal.write('csr', **seen, code='BAD', kind=kind)
            uri = f'spiffe://{ca.trust_domain}/{identity}'
            return CertificateResponse(cert_chain=bad_answers.make(kind, ca, csr.public_key(), uri, ttl))
        with_cn = bool(csr.subject.get_attributes_for_oid(NameOID.COMMON_NAME))
        uri = f'spiffe://{ca.trust_domain}/{identity}'
        chain, leaf = ca.issue(csr.public_key(), uri, ttl, with_cn)
        journal.write('csr', **seen, code='OK', key_type=key_type(csr.public_key()), spiffe_id=uri,
                      serial=f'{leaf.serial_number:x}', issuer=ca.issuer_name, roots=ca.root_names,
                      not_after=leaf.not_valid_after_utc.timestamp())
        return CertificateResponse(cert_chain=chain)
