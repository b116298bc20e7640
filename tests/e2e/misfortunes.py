"""What may happen to a node, and how it ends again: each misfortune is a context of a World.

`part` is what it spoils: two of one part are not there at a time, one of ALONE never beside another one.  `hurts` is
the beginning of what a client no longer gets (World.missing); None: it has to go on getting everything.  `said`: the
status of the node is 1 while it lasts.
"""
import contextlib
import functools
import os
import signal

from cryptography import x509

from tests.istiod.ca import Authority, now, pem

from . import clients, mesh
from .run import sh, wait_for
from .test_revocation import DAMAGED, crls_of

ALONE = 'worker'
ASK_S = 2
FOR_EVER = 1_000_000
TEXT = 'not any more'
CODES = 'PERMISSION_DENIED', 'UNAUTHENTICATED', 'INVALID_ARGUMENT', 'UNKNOWN', 'INTERNAL', 'RESOURCE_EXHAUSTED', 'UNAVAILABLE'


def fresh_stream(path):
    """'answered', or how it ended."""
    clients.TIMEOUT_S = ASK_S
    return clients.ads(path, [clients.listener_request([b''])])[0]


class World:
    """A node, a client and a server with Envoys, a pod that has streams of its own, and one to lose."""

    def __init__(self, node):
        self.node, self.agentd, self.istiod = node, node.agentd, node.istiod
        self.root = self.agentd.dir / 'root.pem'
        self.root.write_text(self.istiod.root_file.read_text())
        self.agentd.root_file = self.root
        self.authority = Authority.kept(self.istiod.dir / 'ca' / 'a.pem')
        self.crl = self.agentd.dir / 'crl.pem'
        self.agentd.flags = ['--crl-file', f'0={self.crl}']
        self.agentd.plane |= {'pod_opens_per_second': 20, 'pod_opens_burst': 20, 'hold_empty_push_s': 2}
        self.server, self.client = (node.pod(name, sa=f'{name}-sa') for name in ('server', 'client'))
        self.other, self.spare = node.pod('other', sa='client-sa'), node.pod('spare')
        self.pods = [self.server, self.client, self.other, self.spare]  # those that agentd is to serve
        self.left = []  # with the next step
        self._marks = self._newcomers = 0
        resources = mesh.client(self.server, requests_per_connection=1)
        self.resources = {self.client: resources, self.other: resources, self.server: mesh.server([self.client])}
        for pod, kinds in self.resources.items():
            self.istiod.set(pod.id, **kinds)

    def start(self):
        self.agentd.start()
        self.server.start_app(mesh.APP)
        for pod in (self.server, self.client):
            pod.start_envoy()
        for pod in (self.server, self.client):
            pod.wait_ready()
        return self

    def mark(self):
        """Something new that each Envoy is to have."""
        self._marks += 1
        self.istiod.set('all', clusters=[mesh._cluster(f'mark-{self._marks}', '127.0.0.1', 1)])

    def send(self, pod, **kinds):
        self.resources[pod] = {**self.resources[pod], **kinds}
        self.istiod.set(pod.id, **kinds)

    @contextlib.contextmanager
    def newcomer(self, sa=None):
        """A pod of a new account; it is there until what its misfortune spoiled was looked at."""
        self._newcomers += 1
        pod = self.node.pod(f'new-{self._newcomers}', sa=sa)
        self.pods.append(pod)
        pod.wait_served()
        yield pod
        self.left.append(pod)

    def let_go(self):
        while self.left:
            pod = self.left.pop()
            self.pods.remove(pod)
            pod.remove_manifest()

    # What a client gets
    @staticmethod
    def ask_secrets(pod):
        """A function that says what was wrong with the answer; pods ask at the same time."""
        future = pod.submit(clients.fetch_secrets, pod.mount / 'socket', ['default', 'ROOTCA'], ASK_S)
        return lambda: _why_useless(future.result(300))

    def _config(self, pod):
        listeners = pod.netns.json(15000, '/listeners?format=json', timeout=ASK_S).get('listener_statuses', ())
        clusters = pod.netns.json(15000, '/clusters?format=json', timeout=ASK_S).get('cluster_statuses', ())
        sent = self.resources[pod]
        lacks = {r['name'] for r in sent['listeners']} - {s['name'] for s in listeners}
        lacks |= ({r['name'] for r in sent['clusters']} | {f'mark-{self._marks}'}) - {s['name'] for s in clusters}
        return ', '.join(sorted(lacks))

    def _answer(self):
        status, _ = self.client.netns.http(mesh.OUTBOUND, timeout=ASK_S)
        return '' if status == 200 else str(status)

    def _ask_stream(self):
        future = self.other.submit(fresh_stream, self.other.mount / 'XDS')
        return lambda: '' if (ended := future.result(300)) == 'answered' else ended

    def missing(self):
        """{what: why}: each thing that a client asks for now and does not get."""
        asked = {f'secrets of {pod.name}': self.ask_secrets(pod) for pod in self.pods}
        asked |= {'stream': self._ask_stream(), 'request': self._answer}
        asked |= {f'config of {pod.name}': functools.partial(self._config, pod) for pod in self.pods if pod.envoy}
        answers = {what: _ask(ask) for what, ask in asked.items()}
        return {what: why for what, why in answers.items() if why}


def _why_useless(secrets):
    if 'code' in secrets:
        return secrets['code']
    leaf = x509.load_pem_x509_certificate(secrets['default']['chain'].encode())
    return '' if leaf.not_valid_after_utc > now() and secrets['ROOTCA']['root'] else 'over'


def _ask(ask):
    try:
        return ask()
    except (OSError, ValueError, LookupError) as e:
        return f'{type(e).__name__}: {e}'


class Misfortune:
    def __init__(self, begin, part, hurts, said):
        self.begin, self.name, self.part, self.hurts, self.said = begin, begin.__name__, part, hurts, said

    def unseen(self, missing, status):
        is_felt = not self.hurts or any(what.startswith(self.hurts) for what in missing)
        return [*([] if is_felt else [f'nobody feels {self.name}']),
                *([] if status or not self.said else [f'status does not say {self.name}'])]

    def goes_with(self, others):
        parts = {o.part for o in others}
        return self.part not in parts and ALONE not in parts and (self.part != ALONE or not others)


ALL = []


def misfortune(part, hurts, said=True):
    def add(function):
        ALL.append(Misfortune(contextlib.contextmanager(function), part, hurts, said))
        return function
    return add


# --- the control plane ---
@misfortune('streams', 'stream')
def refused_streams(w, dice):
    w.istiod.order('fail', what='ads', count=FOR_EVER, code=(code := dice.choice(CODES)), text=TEXT)
    w.istiod.order('goaway', grace=0)
    yield
    w.istiod.order('fail', what='ads', count=0, code=code)


@misfortune('streams', 'stream')
def held_streams(w, _dice):
    w.istiod.order('pause', what='ads')
    w.istiod.order('goaway', grace=0)
    yield
    w.istiod.order('resume', what='ads')


@misfortune('streams', 'stream')
def control_plane_away(w, dice):
    w.istiod.order('listen', on=dice.choice(('nothing', 'silence', 'mute')))
    yield
    w.istiod.order('listen', on='grpc')


@misfortune('streams', 'stream')
def control_plane_of_another_root(w, dice):
    w.istiod.order('listen', on='grpc', **dice.choice(({'authority': 'stranger'}, {'name': 'else.example'}, {'days': -1})))
    yield
    w.istiod.order('listen', on='grpc')


@misfortune('csr', 'secrets of new')
def refused_requests(w, dice):
    w.istiod.order('fail', what='csr', count=FOR_EVER, code=(code := dice.choice(CODES)), text=TEXT)
    with w.newcomer():
        yield
        w.istiod.order('fail', what='csr', count=0, code=code)


@misfortune('csr', 'secrets of new')
def bad_certificates(w, dice):
    w.istiod.order('bad-certificates', of={'*': dice.choice(('other-account', 'other-key', 'expired', 'wrong-chain', 'nothing'))})
    with w.newcomer():
        yield
        w.istiod.order('bad-certificates', of={})


@misfortune('csr', 'secrets of new')
def pending_requests(w, _dice):
    w.istiod.order('pause', what='csr')
    with w.newcomer():
        yield
        w.istiod.order('resume', what='csr')


@misfortune('csr', 'secrets of new')
def a_certificate_that_ends(w, _dice):
    w.istiod.order('ttl', seconds=6)
    with w.newcomer() as pod:
        with contextlib.suppress(TimeoutError):  # the control plane may be away
            wait_for('its certificate', lambda: not w.ask_secrets(pod)(), 10)
        w.istiod.order('fail', what='csr', count=FOR_EVER, code='UNAVAILABLE', text=TEXT)
        yield
        w.istiod.order('ttl', seconds=0)
        w.istiod.order('fail', what='csr', count=0, code='UNAVAILABLE')


@misfortune('listeners', 'config of client')
def refused_listeners(w, _dice):
    before = w.resources[w.client]['listeners']
    w.send(w.client, listeners=[*before, mesh.BROKEN_LISTENER])
    yield
    w.send(w.client, listeners=before)


# --- the pods' files ---
@misfortune('token', 'secrets of client')
def useless_token(w, dice):
    w.client.write_token(**dice.choice(({'audience': 'else'}, {'ttl': -10}, {'sa': 'else'}, {'text': 'no token'})))
    yield
    w.client.write_token()


@misfortune('token', 'secrets of client')
def no_token(w, _dice):
    w.client.remove_token()
    yield
    w.client.write_token()


@misfortune('manifest', None, said=False)
def no_manifest(w, _dice):
    """Of a pod without an Envoy: one that runs would go on with the directory that is gone."""
    w.spare.remove_manifest()
    w.pods.remove(w.spare)
    wait_for('agentd to let it go', lambda: w.spare.uid not in {p['uid'] for p in w.agentd.ctl('pods')['pods']})
    yield
    w.pods.append(w.spare)
    w.spare.write_manifest()


@misfortune('manifest', None)
def useless_manifest(w, dice):
    good = w.spare.manifest_file.read_text()
    w.spare.write_manifest_text(dice.choice(('', 'uid: [', good.replace(w.spare.uid, 'no-uid'))))
    yield
    w.spare.write_manifest_text(good)


# --- the node's files ---
@misfortune('root', 'stream')
def useless_roots(w, dice):
    """Of another CA, or one that has ended; written in place."""
    good = w.root.read_text()
    w.root.write_text(pem(dice.choice((Authority.new('stranger').root, w.authority.root_before()))))
    w.istiod.order('goaway', grace=0)
    yield
    w.root.write_text(good)


@misfortune('root', None)
def damaged_roots(w, dice):
    good = w.root.read_text()
    w.root.write_text(dice.choice(('', 'garbage\n', DAMAGED)))
    w.istiod.order('goaway', grace=0)
    yield
    w.root.write_text(good)


@misfortune('crl', 'request')
def ended_list(w, _dice):
    w.crl.write_text(crls_of(w.authority, ends_in_s=-1))
    yield
    w.crl.unlink()


@misfortune('crl', 'request')
def list_that_ends(w, _dice):
    w.crl.write_text(crls_of(w.authority, ends_in_s=3))
    yield
    w.crl.unlink()


@misfortune('crl', None)
def useless_list(w, dice):
    w.crl.write_text(dice.choice(('garbage\n', crls_of(Authority.new('stranger')))))
    yield
    w.crl.unlink()


@misfortune('disk', None)
def full_state(w, _dice):
    filler = w.agentd.run / 'state' / 'filler'
    with open(filler, 'wb', buffering=0) as f, contextlib.suppress(OSError):
        while True:
            f.write(bytes(1 << 16))
    with w.newcomer():
        yield
        filler.unlink()


@misfortune('disk', None)
def read_only_state(w, _dice):
    sh('mount', '-o', 'remount,ro', w.agentd.run / 'state')
    with w.newcomer():
        yield
        sh('mount', '-o', 'remount,rw', w.agentd.run / 'state')


# --- agentd itself ---
@misfortune(ALONE, None, said=False)  # the broker starts another one
def stopped_worker(w, _dice):
    pid = w.agentd.worker_pid()
    os.kill(pid, signal.SIGSTOP)
    yield
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@misfortune(ALONE, None, said=False)
def killed_worker(w, _dice):
    os.kill(w.agentd.worker_pid(), signal.SIGKILL)
    yield
