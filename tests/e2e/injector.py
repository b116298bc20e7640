"""agentd-injector as a process, with its files where a kubelet would mount them, and a client like an API server's."""
import base64
import datetime
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .netns import free_port
from .run import TOP, wait_for

MODE = os.environ.get('AGENTD_MODE', 'asan')
BUILD = Path(os.environ.get('AGENTD_BUILD', TOP / 'build'))
NAME = 'agentd-injector.agentd-system.svc'
VALUES = {'global': {'hub': 'h.io/istio', 'tag': '1.29.1'}}
POD = {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'generateName': 'web-', 'labels': {'app': 'web'}},
       'spec': {'containers': [{'name': 'app', 'image': 'app'}]}}


def make_certificate(name=NAME, days=1):
    """(chain, key) in PEM, self-signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, 'agentd-injector')])
    now = datetime.datetime.now(datetime.timezone.utc)
    cert = (x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
            .add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256()))
    return (cert.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


class Mounted:
    """A directory as the kubelet keeps a ConfigMap or a Secret: all files change at once, by ..data."""

    def __init__(self, path, files):
        self.path, self._turns = path, itertools.count()
        path.mkdir()
        self.put(files)

    def put(self, files):
        turn = self.path / f'..turn{next(self._turns)}'
        turn.mkdir()
        for name, content in files.items():
            (turn / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f'..data/{name}')
        (self.path / '..new').symlink_to(turn.name)
        os.rename(self.path / '..new', self.path / '..data')


def review(pod=None, uid='u', **request):
    request = {'uid': uid, 'kind': {'group': '', 'version': 'v1', 'kind': 'Pod'}, 'operation': 'CREATE', 'namespace': 'demo',
               'object': POD if pod is None else pod, **request}
    return {'apiVersion': 'admission.k8s.io/v1', 'kind': 'AdmissionReview', 'request': request}


class Injector:
    def __init__(self, directory, mode=MODE, config=None, flags=()):
        self.dir, self._mode, self._flags = directory, mode, flags
        directory.mkdir()
        self.config = Mounted(directory / 'config', {'config': config or {'values': VALUES}})
        self.tls = Mounted(directory / 'tls', dict(zip(('tls.crt', 'tls.key'), make_certificate())))
        self.port = free_port()
        self.log = directory / 'log'
        self._popen = None

    def argv(self):
        return [BUILD / self._mode / 'agentd-injector', '--listen', f'127.0.0.1:{self.port}', '--config', self.config.path / 'config',
                '--tls-cert', self.tls.path / 'tls.crt', '--tls-key', self.tls.path / 'tls.key', '--server-name', NAME, *self._flags]

    def launch(self):
        with open(self.log, 'ab') as out:
            self._popen = subprocess.Popen(self.argv(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)

    def start(self):
        self.launch()
        wait_for('the injector to be ready', self.is_ready)
        return self

    @property
    def pid(self):
        return self._popen.pid

    def is_ready(self):
        assert self._popen.poll() is None, self.said()
        return self.get('/readyz')[0] == 200

    def said(self):
        return self.log.read_text(errors='replace')

    def send(self, number):
        self._popen.send_signal(number)

    def wait(self):
        return self._popen.wait(60)

    def end_at_once(self):
        """The second signal does not wait."""
        self.send(signal.SIGTERM)
        wait_for('the first signal', lambda: 'ending in' in self.said())
        self.send(signal.SIGTERM)
        assert self.wait() == 0, self.said()

    def remove(self):
        """No sanitizer has complained."""
        if self._popen and self._popen.poll() is None:
            self.end_at_once()
        assert 'Sanitizer' not in self.said() and 'runtime error' not in self.said(), self.said()
        shutil.rmtree(self.dir)

    def bundle(self):
        return (self.tls.path / 'tls.crt').read_text()

    def connect(self, bundle=None, client=None):
        """As an API server does: HTTP/1.1, the service's name, its bundle; `client`: a file with its certificate and key."""
        context = ssl.create_default_context(cadata=bundle or self.bundle())
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python does since 3.13
        context.set_alpn_protocols(['http/1.1'])
        if client:
            context.load_cert_chain(client)
        c = http.client.HTTPSConnection('127.0.0.1', self.port, timeout=60, context=context)
        c.sock = context.wrap_socket(socket.create_connection(('127.0.0.1', self.port), 60), server_hostname=NAME)
        return c

    def get(self, path, connection=None):
        c = connection or self.connect()
        c.request('GET', path)
        r = c.getresponse()
        return r.status, r.read().decode()

    def post(self, body, connection=None):
        """(status, text, headers)."""
        c = connection or self.connect()
        c.request('POST', '/inject?timeout=5s', body if isinstance(body, bytes) else json.dumps(body),
                  {'Content-Type': 'application/json'})
        r = c.getresponse()
        return r.status, r.read().decode(), r.headers

    def admit(self, pod=None, connection=None, **request):
        """What an API server would see of it: the response."""
        status, text, _ = self.post(review(pod, **request), connection)
        assert status == 200, text
        answer = json.loads(text)
        assert answer['apiVersion'] == 'admission.k8s.io/v1' and answer['kind'] == 'AdmissionReview'
        return answer['response']

    def patch(self, *args, **kw):
        return json.loads(base64.b64decode(self.admit(*args, **kw)['patch']))

    def image(self):
        """Of Envoy, in a pod that is asked about."""
        return next(o['value'][0]['image'] for o in self.patch() if o['path'] == '/spec/initContainers')

    def metrics(self):
        lines = [x for x in self.get('/metrics')[1].splitlines() if not x.startswith('#')]
        return {name: float(value) for name, _, value in (x.rpartition(' ') for x in lines)}

    def memory_kib(self, what='VmRSS'):
        text = Path(f'/proc/{self.pid}/status').read_text()
        return int(next(x for x in text.splitlines() if x.startswith(what)).split()[1])
