"""A Kubernetes API for istiod and istioctl: objects in memory, lists, watches, TokenReview, tokens, port-forward.

    python -m tests.real.istiod.kube --listen 127.0.0.1:6443 --dir DIR    DIR has the token issuer's key

PUT /stall, {"on": true}: no question is answered until it is off; watches and reviews go on.
It has no controllers, no admission and no authorization: what is put into it is what they read.
"""
import argparse
import contextlib
import copy
import json
import re
import socket
import threading
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.e2e.netns import inside
from tests.e2e.pod import ADMIN
from tests.istiod.tokens import AUDIENCE, Refused, Tokens

from .forward import Forward

# group/version: {plural: (kind, namespaced)}.
_OWN, _ALL = True, False
RESOURCES = {
    'v1': {'namespaces': ('Namespace', _ALL), 'nodes': ('Node', _ALL), 'pods': ('Pod', _OWN), 'services': ('Service', _OWN),
           'endpoints': ('Endpoints', _OWN), 'configmaps': ('ConfigMap', _OWN), 'secrets': ('Secret', _OWN),
           'serviceaccounts': ('ServiceAccount', _OWN), 'events': ('Event', _OWN)},
    'apps/v1': {'deployments': ('Deployment', _OWN), 'daemonsets': ('DaemonSet', _OWN), 'replicasets': ('ReplicaSet', _OWN),
                'statefulsets': ('StatefulSet', _OWN)},
    'batch/v1': {'jobs': ('Job', _OWN), 'cronjobs': ('CronJob', _OWN)},
    'discovery.k8s.io/v1': {'endpointslices': ('EndpointSlice', _OWN)},
    'coordination.k8s.io/v1': {'leases': ('Lease', _OWN)},
    'networking.k8s.io/v1': {'ingresses': ('Ingress', _OWN), 'ingressclasses': ('IngressClass', _ALL)},
    'admissionregistration.k8s.io/v1': {
        'mutatingwebhookconfigurations': ('MutatingWebhookConfiguration', _ALL),
        'validatingwebhookconfigurations': ('ValidatingWebhookConfiguration', _ALL)},
    'apiextensions.k8s.io/v1': {'customresourcedefinitions': ('CustomResourceDefinition', _ALL)},
    'security.istio.io/v1': {'peerauthentications': ('PeerAuthentication', _OWN),
                             'authorizationpolicies': ('AuthorizationPolicy', _OWN),
                             'requestauthentications': ('RequestAuthentication', _OWN)},
    'networking.istio.io/v1': {'destinationrules': ('DestinationRule', _OWN), 'virtualservices': ('VirtualService', _OWN),
                               'serviceentries': ('ServiceEntry', _OWN), 'sidecars': ('Sidecar', _OWN),
                               'gateways': ('Gateway', _OWN), 'workloadentries': ('WorkloadEntry', _OWN),
                               'workloadgroups': ('WorkloadGroup', _OWN)},
    'networking.istio.io/v1alpha3': {'envoyfilters': ('EnvoyFilter', _OWN)},
    'telemetry.istio.io/v1': {'telemetries': ('Telemetry', _OWN)},
}
NETNS = 'test/netns'  # an annotation of pods: the path of theirs
_PARTIAL = 'meta.k8s.io/v1'


class Failure(Exception):
    """What the client is told: the reason is Kubernetes' word for the code."""

    def __init__(self, code, reason, text):
        super().__init__(text)
        self.status = {'apiVersion': 'v1', 'kind': 'Status', 'status': 'Failure', 'code': code, 'reason': reason, 'message': text}


def _not_found(what):
    return Failure(404, 'NotFound', f'{what} not found')


def _at(obj, path):
    for step in path.split('.'):
        obj = obj.get(step, {}) if isinstance(obj, dict) else {}
    return obj or ''


def _requirement(text):
    """One term of a selector, as a question to a function that finds a value by its name."""
    if m := re.fullmatch(r'([^\s!=]+)\s+(not)?in\s*\(([^)]*)\)', text):
        values = [v.strip() for v in m[3].split(',')]
        return lambda get: (get(m[1]) in values) != bool(m[2])
    if m := re.fullmatch(r'([^!=]+)(!?=)=?(.*)', text):
        return lambda get: (get(m[1]) == m[3]) == (m[2] == '=')
    return lambda get: bool(get(text.lstrip('!'))) != text.startswith('!')


def _selector(query):
    """Whether an object is one of those that a request asks for."""
    terms = {which: [_requirement(t) for t in re.split(r',(?![^(]*\))', query.get(which, '')) if t]
             for which in ('labelSelector', 'fieldSelector')}

    def matches(obj):
        labels = obj['metadata'].get('labels') or {}
        return (all(t(lambda key: labels.get(key, '')) for t in terms['labelSelector'])
                and all(t(lambda key: _at(obj, key)) for t in terms['fieldSelector']))
    return matches


def _merge(into, patch):
    """RFC 7396, which is enough of a server-side apply for one who applies all of what is his."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            into[key] = _merge(dict(into.get(key) or {}), value)
        else:
            into[key] = value
    return into


def _replacing(request, body, old):
    """What a PUT makes of an object: its status is written by itself, and by nothing else."""
    if request.sub == 'status':
        version = body['metadata'].get('resourceVersion')
        return {**old, 'status': body.get('status', {}), 'metadata': {**old['metadata'], 'resourceVersion': version}}
    return {**body, 'status': old['status']} if 'status' in old else body


class Store:
    """The objects and all that happened to them; a version is a place in that history."""

    def __init__(self):
        self._objects = {}  # (group/version, plural, namespace, name) -> object
        self._history = []  # (kind of event, key, object)
        self._changed = threading.Condition()

    def list(self, kind, namespace, matches):
        """The objects, and the version at which that is all."""
        with self._changed:
            return [o for key, o in sorted(self._objects.items())
                    if key[:2] == kind and namespace in ('', key[2]) and matches(o)], len(self._history)

    def get(self, key):
        with self._changed:
            if key not in self._objects:
                raise _not_found(f'{key[1]} "{key[3]}"')
            return self._objects[key]

    def put(self, key, change, must=None):
        """`change` makes the new object of the old one or of {}.  `must`: there ('old') or not ('new')."""
        with self._changed:
            old = self._objects.get(key)
            if must == 'old' and not old:
                raise _not_found(f'{key[1]} "{key[3]}"')
            if must == 'new' and old:
                raise Failure(409, 'AlreadyExists', f'{key[1]} "{key[3]}" already exists')
            new = change(copy.deepcopy(old or {}))
            meta = new.setdefault('metadata', {})
            version = meta.get('resourceVersion')
            if must == 'old' and version and version != old['metadata']['resourceVersion']:
                raise Failure(409, 'Conflict', f'{key[1]} "{key[3]}" has been modified')
            meta.setdefault('uid', str(uuid.uuid4()))
            meta.setdefault('creationTimestamp', '2026-01-01T00:00:00Z')
            meta['resourceVersion'] = str(len(self._history) + 1)
            self._objects[key] = new
            self._log('MODIFIED' if old else 'ADDED', key, new)
            return new

    def delete(self, key):
        with self._changed:
            gone = self._objects.pop(key, None)
            if not gone:
                raise _not_found(f'{key[1]} "{key[3]}"')
            gone = {**gone, 'metadata': {**gone['metadata'], 'resourceVersion': str(len(self._history) + 1)}}
            self._log('DELETED', key, gone)
            return gone

    def _log(self, event, key, obj):
        self._history.append((event, key, obj))
        self._changed.notify_all()

    def after(self, version, kind, namespace, patience_s):
        """What happened to such objects since, after a wait if nothing did; and the version now."""
        with self._changed:
            if version >= len(self._history):
                self._changed.wait(patience_s)
            new, now = self._history[version:], len(self._history)
        return [(e, o) for e, key, o in new if key[:2] == kind and namespace in ('', key[2])], now


class Request:
    """A path and its query, read: which resource, where, which one."""

    def __init__(self, target):
        url = urllib.parse.urlsplit(target)
        self.path, self.query = url.path, dict(urllib.parse.parse_qsl(url.query))
        m = re.fullmatch(r'/(?:api/(v1)|apis/([^/]+/[^/]+))(?:/namespaces/([^/]+)(?=/[^/]))?/([^/]+)(?:/([^/]+))?(?:/([^/]+))?', url.path)
        self.resource = None
        if m:
            self.group, self.namespace = m[1] or m[2], m[3] or ''
            self.plural, self.name, self.sub = m[4], m[5] or '', m[6] or ''
            if self.namespace and self.plural in ('finalize', 'status') and self.group == 'v1':  # of the namespace itself
                self.plural, self.name, self.namespace, self.sub = 'namespaces', self.namespace, '', self.plural
            self.resource = RESOURCES.get(self.group, {}).get(self.plural)
            self.kind = self.group, self.plural
            self.key = *self.kind, self.namespace, self.name


def token_review(tokens, review):
    """As the API server answers: who it is, or that it is nobody."""
    try:
        who = tokens.check([('authorization', f'Bearer {review["spec"]["token"]}')], '')
    except Refused as e:
        return {**review, 'status': {'authenticated': False, 'error': str(e)}}
    ns, sa = who['namespace'], who['serviceaccount']
    return {**review, 'status': {'authenticated': True, 'audiences': review['spec'].get('audiences', [AUDIENCE]), 'user': {
        'username': f'system:serviceaccount:{ns}:{sa["name"]}', 'uid': sa['uid'],
        'groups': ['system:serviceaccounts', f'system:serviceaccounts:{ns}', 'system:authenticated'],
        'extra': {f'authentication.kubernetes.io/pod-{k}': [v] for k, v in who.get('pod', {}).items()}}}}


def token_request(tokens, ns, sa, request):
    """A token of no pod, as istioctl has it made for itself."""
    token = tokens.issue(ns, sa, None, None, audience=request['spec']['audiences'][0])
    return {**request, 'status': {'token': token, 'expirationTimestamp': '2099-01-01T00:00:00Z'}}


def discovery(path):
    """What there is, for clients that ask before they look."""
    if path == '/version':
        return {'major': '1', 'minor': '36', 'gitVersion': 'v1.36.2', 'platform': 'linux/amd64'}
    if path == '/api':
        return {'kind': 'APIVersions', 'versions': ['v1']}
    if path == '/apis':
        versions = [{'groupVersion': gv, 'version': gv.split('/')[1]} for gv in RESOURCES if '/' in gv]
        return {'apiVersion': 'v1', 'kind': 'APIGroupList', 'groups': [
            {'name': v['groupVersion'].split('/')[0], 'versions': [v], 'preferredVersion': v} for v in versions]}
    group = path.removeprefix('/apis/').removeprefix('/api/')
    if group not in RESOURCES:
        raise _not_found(path)
    return {'apiVersion': 'v1', 'kind': 'APIResourceList', 'groupVersion': group, 'resources': [
        {'name': plural, 'singularName': kind.lower(), 'kind': kind, 'namespaced': own,
         'verbs': ['create', 'delete', 'get', 'list', 'patch', 'update', 'watch']}
        for plural, (kind, own) in RESOURCES[group].items()]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    wbufsize = -1
    store, tokens, answers = Store(), None, threading.Event()

    def _answer(self, code, content):
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header('content-type', 'application/json')
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _do(self, method):
        body = self.rfile.read(int(self.headers.get('content-length') or 0))
        try:
            self._answer(*method(Request(self.path), json.loads(body) if body else {}))
        except Failure as e:
            self._answer(e.status['code'], e.status)

    def do_GET(self):
        self._do(self._get)

    def do_POST(self):
        if self.headers.get('upgrade', '').startswith('SPDY') and (request := Request(self.path)).sub == 'portforward':
            return self._forward(self.store.get(request.key)['metadata']['annotations'][NETNS])
        self._do(self._post)

    def do_PUT(self):
        self._do(self._stall if self.path == '/stall' else lambda r, body: (200, self._put(r, lambda old: self._as(r, _replacing(r, body, old), old), 'old')))

    def do_PATCH(self):
        must = None if 'apply' in self.headers['content-type'] else 'old'
        self._do(lambda r, body: (200, self._put(r, lambda old: self._as(r, _merge(old, body), old), must)))

    def do_DELETE(self):
        self._do(lambda r, _: (200, self.store.delete(self._known(r).key)))

    def _stall(self, _, body):
        (self.answers.clear if body['on'] else self.answers.set)()
        return 200, body

    @staticmethod
    def _known(request):
        if not request.resource:
            raise _not_found(request.path)
        return request

    @staticmethod
    def _as(request, body, old):
        meta = {**body.get('metadata', {}), 'name': request.name}
        if request.namespace:
            meta['namespace'] = request.namespace
        for kept in 'uid', 'creationTimestamp':
            if kept in old.get('metadata', {}):
                meta[kept] = old['metadata'][kept]
        return {**body, 'apiVersion': request.group, 'kind': request.resource[0], 'metadata': meta}

    def _put(self, request, change, must):
        return self.store.put(self._known(request).key, change, must)

    def _post(self, request, body):
        if request.path.endswith('/tokenreviews'):
            return 201, token_review(self.tokens, body)
        if request.path.endswith('accessreviews'):
            return 201, {**body, 'status': {'allowed': True}}
        if self._known(request).sub == 'token':
            return 201, token_request(self.tokens, request.namespace, request.name, body)
        if request.sub:
            raise _not_found(request.path)
        request.name = body['metadata'].get('name') or body['metadata']['generateName'] + uuid.uuid4().hex[:5]
        request.key = *request.key[:3], request.name
        return 201, self._put(request, lambda old: self._as(request, body, old), 'new')

    def _get(self, request, _):
        self.answers.wait()
        if not request.resource:
            return 200, discovery(request.path)
        if request.sub not in ('', 'status'):
            raise _not_found(request.path)
        if request.name:
            return 200, self._shown(self.store.get(request.key))
        matches = _selector(request.query)
        if request.query.get('watch') in ('true', '1'):
            return self._watch(request, matches)
        items, version = self.store.list(request.kind, request.namespace, matches)
        kind = 'PartialObjectMetadata' if self._partial() else request.resource[0]
        return 200, {'apiVersion': _PARTIAL if self._partial() else request.group, 'kind': f'{kind}List',
                     'metadata': {'resourceVersion': str(version)}, 'items': [self._shown(o) for o in items]}

    def _forward(self, netns):
        """To the port that istioctl forwards: Envoy's."""
        self.send_response(101)
        for name, value in ('connection', 'Upgrade'), ('upgrade', 'SPDY/3.1'), ('x-stream-protocol-version', 'portforward.k8s.io'):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

        def dial():
            with inside(netns):
                return socket.create_connection(('127.0.0.1', ADMIN), 10)
        Forward(self.rfile, self.wfile, dial).run()
        self.close_connection = True

    def _partial(self):
        return 'as=PartialObjectMetadata' in self.headers.get('accept', '').split(',')[0]

    def _shown(self, obj):
        if not self._partial():
            return obj
        return {'apiVersion': _PARTIAL, 'kind': 'PartialObjectMetadata', 'metadata': obj['metadata']}

    def _watch(self, request, matches):
        """Events until the client leaves, or for as long as it wants."""
        self.send_response(200)
        self.send_header('content-type', 'application/json')
        self.send_header('transfer-encoding', 'chunked')
        self.end_headers()
        version = int(request.query.get('resourceVersion') or 0)
        if request.query.get('sendInitialEvents') == 'true':
            items, version = self.store.list(request.kind, request.namespace, matches)
            for obj in items:
                self._event('ADDED', self._shown(obj))
            end = {'resourceVersion': str(version), 'annotations': {'k8s.io/initial-events-end': 'true'}}
            self._event('BOOKMARK', self._shown({'apiVersion': request.group, 'kind': request.resource[0], 'metadata': end}))
        while True:
            events, version = self.store.after(version, request.kind, request.namespace, 30)
            for event, obj in events:
                if matches(obj):
                    self._event(event, self._shown(obj))
            mark = {'apiVersion': request.group, 'kind': request.resource[0], 'metadata': {'resourceVersion': str(version)}}
            if not events:
                self._event('BOOKMARK', self._shown(mark))

    def _event(self, kind, obj):
        line = json.dumps({'type': kind, 'object': obj}).encode() + b'\n'
        self.wfile.write(b'%x\r\n%s\r\n' % (len(line), line))
        self.wfile.flush()

    def handle(self):
        with contextlib.suppress(OSError):  # it left
            super().handle()

    def finish(self):
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, *_):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--listen', required=True)
    parser.add_argument('--dir', required=True)
    args = parser.parse_args()
    host, _, port = args.listen.rpartition(':')
    Handler.tokens = Tokens(args.dir)
    Handler.answers.set()
    ThreadingHTTPServer.daemon_threads = True
    server = ThreadingHTTPServer((host, int(port)), Handler)
    print(json.dumps({'listening': args.listen}), flush=True)
    server.serve_forever()


if __name__ == '__main__':
    main()
