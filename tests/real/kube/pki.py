"""Keys, certificates and kubeconfigs of a cluster, in one folder."""
import datetime
import ipaddress
import json

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=30)
# Who talks to the API server: the user, and its group.
USERS = {'admin': ('admin', 'system:masters'),
         'controller-manager': ('system:kube-controller-manager', None),
         'scheduler': ('system:kube-scheduler', None),
         'kubelet': ('system:node:node', 'system:nodes')}


def _name(user, group=None):
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL,
                             serialization.NoEncryption())


class Pki:
    def __init__(self, folder, server, names):
        """`names` and addresses are the API server's; its users find it at `server`."""
        self.folder = folder
        folder.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._ca = self._sign(_name('kubernetes'), self._key.public_key(),
                              x509.BasicConstraints(ca=True, path_length=None))
        self.ca = self._write('ca.crt', self._ca.public_bytes(serialization.Encoding.PEM))
        self._pair('apiserver', _name('kube-apiserver'), x509.SubjectAlternativeName([_general(n) for n in names]))
        self._write('accounts.key', _pem(rsa.generate_private_key(65537, 2048)))
        for user, subject in USERS.items():
            self._pair(user, _name(*subject))
            self._write(f'{user}.conf', json.dumps(self._kubeconfig(user, server)).encode())

    def path(self, name):
        return self.folder / name

    def _write(self, name, data):
        self.path(name).write_bytes(data)
        return self.path(name)

    def _sign(self, subject, public, *extensions):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (x509.CertificateBuilder().subject_name(subject).issuer_name(_name('kubernetes')).public_key(public)
                   .serial_number(x509.random_serial_number())
                   .not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + LIFE))
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())

    def _pair(self, name, subject, *extensions):
        key = ec.generate_private_key(ec.SECP256R1())
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        cert = self._sign(subject, key.public_key(), both, *extensions)
        self._write(f'{name}.key', _pem(key))
        self._write(f'{name}.crt', cert.public_bytes(serialization.Encoding.PEM))

    def _kubeconfig(self, user, server):
        return {'apiVersion': 'v1', 'kind': 'Config', 'current-context': 'it',
                'clusters': [{'name': 'it', 'cluster': {'server': server, 'certificate-authority': str(self.ca)}}],
                'users': [{'name': 'it', 'user': {'client-certificate': str(self.path(f'{user}.crt')),
                                                  'client-key': str(self.path(f'{user}.key'))}}],
                'contexts': [{'name': 'it', 'context': {'cluster': 'it', 'user': 'it'}}]}


def _general(name):
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
