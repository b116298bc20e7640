"""Stand-in for Kubernetes' API server: one Secret and one MutatingWebhookConfiguration, each with the API's own rules of writing.

As measured with a real one (contract injection.md 7): an update with another resourceVersion than the object's is 409, a JSON patch
whose `test` fails 422; what the account has no right to is 403; all that was asked is in `asked`.
"""
import base64
import copy
import email.utils
import http.server
import ipaddress
import json
import ssl
import threading
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
import datetime

TOKEN = 'a-token-of-the-pod'
SECRET, WEBHOOK, NAMESPACE = 'agentd-injector-ca', 'agentd-injector', 'agentd-system'
SECRET_PATH = f'/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}'
WEBHOOK_PATH = f'/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK}'
RIGHTS = {('GET', SECRET_PATH), ('PUT', SECRET_PATH), ('GET', WEBHOOK_PATH), ('PATCH', WEBHOOK_PATH)}


def certificate(address):
    """(certificate, key) in PEM: the server's own, and its own CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, 'kube-apiserver')])
    now = datetime.datetime.now(datetime.timezone.utc)
    cert = (x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
            .add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256()))
    return (cert.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode())


def text(data):
    """A Secret's data as text."""
    return {k: base64.b64decode(v).decode() for k, v in (data or {}).items()}


class Answer(Exception):
    """What is no success."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(time.time() + self.server.api.ahead_s, usegmt=True)

    def _answer(self, status, value):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _serve(self):
        api = self.server.api
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        try:
            with api.lock:
                if api.fault:
                    api.fault(self)
                value = api.do(self.command, self.path, self.headers, body)
        except Answer as e:
            status, words = e.args
            self._answer(status, words if isinstance(words, bytes) else {'kind': 'Status', 'status': 'Failure', 'code': status, 'message': words})
        except ConnectionAbortedError:
            self.close_connection = True
        else:
            self._answer(200, value)

    do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = _serve


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api, context):
        self.api, self._context = api, context
        super().__init__(('127.0.0.1', 0), Handler)

    def finish_request(self, request, client_address):
        request.settimeout(60)
        with self._context.wrap_socket(request, server_side=True) as s:
            super().finish_request(s, client_address)

    def handle_error(self, request, client_address):
        """A client that hangs up."""


class KubeApi:
    def __init__(self, directory, webhooks=2):
        self.dir, self.lock, self.asked, self.rights, self.fault, self.ahead_s = directory, threading.RLock(), [], set(RIGHTS), None, 0
        self.tokens = {TOKEN}
        self._version = 100
        self.secret = self._made('v1', 'Secret', SECRET, {'type': 'Opaque'})
        self.webhook = self._made('admissionregistration.k8s.io/v1', 'MutatingWebhookConfiguration', WEBHOOK, {
            'webhooks': [{'name': f'w{i}.agentd.node.mesh', 'clientConfig': {'service': {'name': 'agentd-injector', 'namespace': NAMESPACE}}}
                         for i in range(webhooks)]})
        directory.mkdir()
        for name in ('cert', 'key'):
            (directory / name).touch()
        cert, key = certificate('127.0.0.1')
        (directory / 'server.pem').write_text(cert + key)
        for name, content in {'token': TOKEN, 'ca.crt': cert, 'namespace': NAMESPACE}.items():
            (directory / name).write_text(content)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / 'server.pem')
        self._server = Server(self, context)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def _made(self, version, kind, name, more):
        self._version += 1
        return {'apiVersion': version, 'kind': kind, 'metadata': {'name': name, 'resourceVersion': str(self._version), 'labels': {'a': 'b'}}, **more}

    # --- as a person with kubectl ---

    def edit(self, change):
        """Of the Secret's data as text; None removes a key."""
        with self.lock:
            data = text(self.secret.get('data'))
            data.update(change)
            self.secret['data'] = {k: base64.b64encode(str(v).encode()).decode() for k, v in data.items() if v is not None}
            self._changed(self.secret)

    def empty_secret(self):
        with self.lock:
            self.secret.pop('data', None)
            self._changed(self.secret)

    def set_bundle(self, i, pem):
        with self.lock:
            self.webhook['webhooks'][i]['clientConfig']['caBundle'] = base64.b64encode(pem.encode()).decode()
            self._changed(self.webhook)

    def data(self):
        with self.lock:
            return text(self.secret and self.secret.get('data'))

    def bundles(self):
        with self.lock:
            return [base64.b64decode(w['clientConfig'].get('caBundle', '')).decode() for w in self.webhook['webhooks']]

    def _changed(self, thing):
        self._version += 1
        thing['metadata']['resourceVersion'] = str(self._version)

    # --- requests ---

    def do(self, verb, path, headers, body):
        self.asked.append((verb, path))
        if headers.get('Authorization') not in {f'Bearer {token}' for token in self.tokens}:
            raise Answer(401, 'Unauthorized')
        if (verb, path) not in self.rights:
            raise Answer(403, f'User "agentd-injector" cannot {verb} {path}')
        thing = self.secret if path == SECRET_PATH else self.webhook
        if thing is None:
            raise Answer(404, f'"{path.rpartition("/")[2]}" not found')
        if verb == 'PUT':
            self._update(thing, json.loads(body))
        if verb == 'PATCH':
            if headers.get('Content-Type') != 'application/json-patch+json':
                raise Answer(415, 'the body of the request was in an unknown format')
            self._patch(thing, json.loads(body))
        return thing

    def _update(self, thing, new):
        if (new['kind'], new['metadata']['name']) != (thing['kind'], thing['metadata']['name']):
            raise Answer(400, 'the name of the object does not match the name on the URL')
        if new['metadata']['resourceVersion'] != thing['metadata']['resourceVersion']:
            raise Answer(409, 'Operation cannot be fulfilled: the object has been modified')
        if thing.get('immutable'):
            raise Answer(422, 'data: Forbidden: field is immutable when `immutable` is set')
        assert {k: v for k, v in new.items() if k != 'data'} == {k: v for k, v in thing.items() if k != 'data'}, 'only data is ours'
        assert all(base64.b64decode(v, validate=True) is not None for v in new['data'].values())
        if new != thing:
            thing.clear()
            thing.update(new)
            self._changed(thing)

    def _patch(self, thing, operations):
        new = copy.deepcopy(thing)
        for o in operations:
            *parents, last = o['path'].strip('/').split('/')
            at = new
            for key in parents:
                at = at[int(key)] if isinstance(at, list) else at[key]
            if o['op'] == 'test' and at.get(last) != o['value']:
                raise Answer(422, f'the server rejected our request due to an error in our request: testing path {o["path"]} failed')
            if o['op'] == 'add':
                at[last] = o['value']
        if new != thing:
            thing.clear()
            thing.update(new)
            self._changed(thing)
