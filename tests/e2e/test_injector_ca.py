"""agentd-injector's own certificate: admissions go on through rotation, loss and damage of what is kept in the cluster.

The API server is a stand-in (kube_api.py); as a client of the webhook it trusts what the caBundle says at that moment, keeps
connections, and repeats what was answered with 503 and Retry-After, and nothing else.
"""
import contextlib
import http.client
import itertools
import os
import signal
import ssl
import subprocess
import threading
import time

import pytest

from .conftest import measured
from .injector import NAME, Injector
from .kube_api import SECRET, SECRET_PATH, WEBHOOK, WEBHOOK_PATH, Answer, KubeApi, certificate
from .run import wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
PER_STEP = 900 if SOAK else 10
HOUR = 3600


class Replica(Injector):
    """Its certificate is of the CA in the API server's Secret."""

    def __init__(self, directory, api, look_ms=100 if SOAK else 30, **kw):
        super().__init__(directory, **kw)
        self._look_ms = look_ms
        self.api, self.kube_dir, self.env = api, api.dir, {'KUBERNETES_SERVICE_HOST': '127.0.0.1', 'KUBERNETES_SERVICE_PORT': str(api.port)}

    def argv(self):
        plain = super().argv()
        at = plain.index('--tls-cert')
        return [*plain[:at], '--server-name', NAME, '--secret', SECRET, '--webhook', WEBHOOK, '--kube-dir', self.kube_dir, '--look-ms', str(self._look_ms),
                *self._flags]

    def launch(self):
        with open(self.log, 'ab') as out:
            self._popen = subprocess.Popen(self.argv(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                                           env={**os.environ, **self.env})

    def launched(self):
        self.launch()
        wait_for('the log', lambda: 'listens at' in self.said())
        return self

    def bundle(self):
        return self.api.bundles()[0]

    def page(self, path):
        """As the kubelet asks: whoever it is."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with contextlib.closing(http.client.HTTPSConnection('127.0.0.1', self.port, timeout=60, context=context)) as c:
            c.request('GET', path)
            r = c.getresponse()
            return r.status, r.read().decode()

    def is_ready(self):
        assert self._popen.poll() is None, self.said()
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.page('/readyz')[0] == 200
        return False

    def metrics(self):
        lines = [x for x in self.page('/metrics')[1].splitlines() if not x.startswith('#')]
        return {name: float(value) for name, _, value in (x.rpartition(' ') for x in lines)}

    def looks(self):
        return sum(v for k, v in self.metrics().items() if k.startswith('agentd_injector_ca_looks_total'))

    def look(self):
        """Two whole looks from now on."""
        before = self.looks()
        wait_for('two looks', lambda: self.looks() >= before + 2)

    def end(self):
        try:
            assert 'PRIVATE' not in self.said() and 'a-token-of' not in self.said()
            self.remove()
        finally:
            if self._popen:
                self.kill()

    def kill(self):
        self._popen.send_signal(signal.SIGKILL)
        self._popen.wait(60)


class Admissions:
    """An API server that asks without a pause."""

    def __init__(self, api):
        self.api, self.done, self.failed, self.endpoints = api, 0, [], []
        self._connections, self._turn, self._stop, self._lock = {}, itertools.count(), False, threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._stop:
            with self._lock:
                turn = next(self._turn)
                bundle = self.api.bundles()[turn % 2]
                if self.endpoints and bundle:
                    self._admit(turn, bundle)

    def _admit(self, turn, bundle):
        try:
            for attempt in range(60):
                r = self.endpoints[(turn // 2 + attempt) % len(self.endpoints)]
                c = self._connections.pop((r.port, bundle), None) or r.connect(bundle)
                status, _, headers = r.post({'apiVersion': 'admission.k8s.io/v1', 'kind': 'AdmissionReview', 'request': {
                    'uid': str(turn), 'kind': {'group': '', 'version': 'v1', 'kind': 'Pod'}, 'operation': 'CREATE', 'namespace': 'demo', 'object': {
                        'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'p'}, 'spec': {'containers': [{'name': 'a', 'image': 'a'}]}}}}, c)
                if headers.get('Connection') != 'close' and turn % 5:
                    self._connections[r.port, bundle] = c
                else:
                    c.close()
                if status == 200:
                    self.done += 1
                    return
                assert status == 503 and headers['Retry-After'] == '1', status
                time.sleep(1)
            raise AssertionError('503 all the time')
        except (OSError, http.client.HTTPException, AssertionError) as e:
            self.failed.append(f'{turn}: {e!r}')

    def serve(self, *replicas, kill=()):
        """These are the Service's endpoints now.  An admission that is under way when a replica is killed fails, whatever we do."""
        with self._lock:
            for r in kill:
                r.kill()
            self.endpoints = list(replicas)
            for c in self._connections.values():
                c.close()
            self._connections.clear()

    def some(self, n=PER_STEP):
        before = self.done
        wait_for('admissions', lambda: self.failed or self.done >= before + n, 600 if SOAK else 120)
        assert not self.failed, self.failed

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop = True
        self._thread.join(30)


@pytest.fixture(name='api')
def fixture_api(this_run, request):
    api = KubeApi(this_run[0] / f'api-{request.node.name}')
    yield api
    api.stop()
    assert set(api.asked) <= {('GET', SECRET_PATH), ('PUT', SECRET_PATH), ('GET', WEBHOOK_PATH), ('PATCH', WEBHOOK_PATH)}


@pytest.fixture(name='make')
def fixture_make(this_run, api, request):
    numbers = itertools.count()
    with contextlib.ExitStack() as at_the_end:  # the others go, too, when one has something to complain of
        def make(**kw):
            r = Replica(this_run[0] / f'{request.node.name}{next(numbers)}', api, **kw)
            at_the_end.callback(r.end)
            return r
        yield make


def now():
    return int(time.time())


def test_admissions_go_on(api, make):
    """Rotation in all states, Secret emptied and deleted, caBundles emptied, a replica killed, all replaced one by one."""
    replicas = [make().start(), make().start()]
    first = api.data()['ca.crt']
    with Admissions(api) as load:
        load.serve(*replicas)
        load.some()

        def step(what, until, **change):
            api.edit({k.replace('_', '.'): v for k, v in change.items()})
            wait_for(what, lambda: until(api.data()), 20)
            for r in replicas:
                r.look()
            load.some()

        step('the announcement', lambda d: 'next.since' in d, ca_since=now() - 31 * 24 * HOUR)
        second = api.data()['next.crt']
        assert all(set(b.split('\n\n')) and first in b and second in b for b in api.bundles())
        assert replicas[0].metrics()['agentd_injector_ca_state{state="announcing"}'] == 1
        step('the next CA to sign', lambda d: d['ca.crt'] == second, next_since=now() - HOUR)
        assert api.data()['old.crt'] == first and 'next.key' not in api.data()
        for r in replicas:
            with contextlib.closing(r.connect(second)):
                pass  # a leaf of the new one
        assert all(first in b for b in api.bundles())

        api.empty_secret()
        wait_for('what was there', lambda: api.data().get('old.crt') == first)
        load.some()
        load.serve(replicas[0], kill=[replicas[1]])
        load.some()
        replicas[1] = make().start()
        load.serve(*replicas)
        load.some()

        step('the end of the old one', lambda d: 'old.crt' not in d, ca_since=now() - 26 * HOUR)
        wait_for('caBundles without it', lambda: api.bundles() == [second, second])
        load.some()

        with api.lock:
            gone, api.secret = api.secret, None
        for r in replicas:
            r.look()
        load.some()
        assert '404' in replicas[0].said()
        with api.lock:
            api.secret = gone
        api.empty_secret()
        wait_for('what was there', lambda: api.data().get('ca.crt') == second)

        for i in range(2):  # an API server that has it trusts nobody meanwhile; those of the other webhook go on
            api.set_bundle(i, '')
            load.some()
            wait_for('the caBundle', lambda: api.bundles() == [second, second])
            load.some()

        for i, old in enumerate(replicas):
            replicas[i] = make().start()
            load.serve(*replicas, old)
            old.send(signal.SIGTERM)
            wait_for('the signal', lambda old=old: 'ending in' in old.said())
            load.some(25)  # in less than the 15 s that are left to it
            load.serve(*replicas)
            load.some()
            old.send(signal.SIGTERM)
            assert old.wait() == 0
        load.some()
    assert not load.failed and load.done >= 12 * PER_STEP
    measured.append(f'{load.done} admissions, {len(load.failed)} failed')


def test_emptied_bundles_are_put_back(api, make):
    replicas = [make().start(), make().start()]
    ca = api.data()['ca.crt']
    for i in range(2):
        api.set_bundle(i, '')
        wait_for('it', lambda: api.bundles() == [ca, ca])
        api.set_bundle(i, 'a comment\n' + ca)
        wait_for('it', lambda: api.bundles() == [ca, ca])
    other, _ = certificate('127.0.0.2')
    api.set_bundle(1, other)
    wait_for('it', lambda: set(api.bundles()) == {ca, other + ca})  # a stranger stays for a day: it may be somebody's
    api.edit({'ca.since': now() - 26 * HOUR})
    wait_for('its end', lambda: api.bundles() == [ca, ca])
    for r in replicas:
        r.look()
        assert r.metrics()['agentd_injector_ca_trusted'] == 1


def test_who_does_not_trust_it_is_heard(api, make):
    """An API server whose caBundle is empty tries, and fails, once: the injector need not wait for its next look."""
    r = make(look_ms=10 ** 6).start()
    ca = api.data()['ca.crt']
    asked = len(api.asked)

    def try_in_vain():
        with contextlib.suppress(ssl.SSLError), contextlib.closing(r.connect(certificate('127.0.0.1')[0])):
            raise AssertionError('it was trusted')
        return api.bundles() == [ca, ca]
    for _ in range(5):
        r.page('/readyz')  # this one asks nothing
    assert len(api.asked) == asked
    api.set_bundle(1, '')
    wait_for('it', try_in_vain)
    began, asked = time.monotonic(), len(api.asked)
    for _ in range(50):
        try_in_vain()
    assert len(api.asked) <= asked + 8 * (1 + time.monotonic() - began), 'at most one look a second'


def test_ready_is_what_was_seen(api, make):
    """Not ready before each caBundle is seen to hold the CA, and not ready any more when it cannot be put back."""
    api.rights.discard(('PATCH', WEBHOOK_PATH))
    r = make().launched()
    wait_for('the reason', lambda: 'caBundle cannot be written: the API server says 403' in r.said())
    status, why = r.page('/readyz')
    assert status == 503 and 'caBundle cannot be written' in why and r.metrics()['agentd_injector_ca_trusted'] == 0
    assert r.metrics()['agentd_injector_ready'] == 0
    api.rights.add(('PATCH', WEBHOOK_PATH))
    wait_for('it', r.is_ready)
    assert 'as they should be' in r.said()
    api.rights.discard(('PATCH', WEBHOOK_PATH))
    api.set_bundle(1, '')
    wait_for('its end', lambda: not r.is_ready())
    assert r.metrics()['agentd_injector_ca_trusted'] == 0


def test_a_replica_that_may_not(api, make):
    """Each right is missed by name; what was seen last goes on."""
    r = make().start()
    for right, why in ((('GET', SECRET_PATH), f'{SECRET_PATH}: the API server says 403'), (('GET', WEBHOOK_PATH), f'{WEBHOOK_PATH}: the API'),
                       (('PUT', SECRET_PATH), 'the Secret cannot be written')):
        api.rights.discard(right)
        api.edit({'ca.since': None})
        wait_for(why, lambda why=why: why in r.said())
        assert r.is_ready()
        api.rights.add(right)
        wait_for('better days', lambda: 'ca.since' in api.data())
    assert r.metrics()['agentd_injector_ca_looks_total{result="failed"}'] >= 3


def test_no_api_server_that_answers(api, make):
    """Whatever it says instead: it is said, what was seen last holds, and afterwards all is well."""
    r = make().start()

    def answer(status, body):
        def fault(_):
            raise Answer(status, body)
        return fault

    def hang_up(_):
        raise ConnectionAbortedError
    garbage = b'{"kind":"Secret","metadata":{"resourceVersion":7}}'
    for fault, why in ((answer(500, 'etcd is away'), '500: etcd is away'), (answer(200, b'[' * 100000), 'is no Secret'),
                       (answer(200, garbage), 'is no Secret'), (answer(200, b'x' * (5 << 20)), 'no whole answer'),
                       (answer(2000, 'no status'), 'no whole answer'), (hang_up, 'no whole answer'),
                       (answer(429, 'slow down'), '429: slow down')):
        seen = len(r.said())
        api.fault = fault
        wait_for(why, lambda why=why, seen=seen: why in r.said()[seen:])
        assert r.is_ready()
        api.fault = None
        wait_for('better days', lambda seen=seen: 'as they should be' in r.said()[seen:])


def test_who_the_api_server_is(api, make, tmp_path):
    """Its name and its CA are checked, the token is read anew."""
    r = make().start()
    api.tokens.add('another')
    (api.dir / 'new').write_text('another')
    (api.dir / 'new').rename(api.dir / 'token')
    r.look()
    api.tokens = {'another'}
    r.look()
    assert r.is_ready() and '401' not in r.said()
    api.tokens = set()
    wait_for('the reason', lambda: "401: it does not take the pod's token" in r.said())
    api.tokens = {'another'}
    wait_for('better days', lambda: r.said().rstrip().endswith('as they should be"'))
    cert, _ = certificate('127.0.0.1')
    ca = (api.dir / 'ca.crt').read_text()
    seen = len(r.said())
    (api.dir / 'ca.crt').write_text(cert)
    wait_for('the reason', lambda: 'certificate' in r.said()[seen:])
    (api.dir / 'ca.crt').write_text(ca)
    wait_for('better days', lambda: 'as they should be' in r.said()[seen:])
    other = make()
    other.env['KUBERNETES_SERVICE_HOST'] = '127.0.0.2'
    other.launched()
    wait_for('the reason', lambda: 'the API server at 127.0.0.2' in other.said())
    assert not other.is_ready()
    other = make()
    other.env['KUBERNETES_SERVICE_HOST'] = 'localhost'
    other.launched()
    wait_for('the reason', lambda: 'ostname mismatch' in other.said())
    other = make()
    other.env['KUBERNETES_SERVICE_HOST'] = ''
    other.launch()
    assert other.wait() == 1 and 'is this a pod?' in other.said()
    other = make()
    other.kube_dir = tmp_path
    other.launch()
    assert other.wait() == 1 and 'namespace: No such file' in other.said()


def test_broken_secrets_are_mended(api, make):
    r = make().start()
    api.edit({'ca.key': 'x', 'note': 'of somebody else'})
    wait_for('the reason', lambda: 'the Secret makes no sense: ca.crt: no private key' in r.said())
    wait_for('what was there', lambda: 'PRIVATE KEY' in api.data()['ca.key'])
    assert api.data()['note'] == 'of somebody else' and r.is_ready()
    with api.lock:
        api.secret['immutable'] = True
    seen = len(r.said())
    api.empty_secret()
    wait_for('the reason', lambda: 'immutable' in r.said()[seen:])
    assert r.is_ready()


def test_a_clock_that_is_hours_away(api, make):
    api.ahead_s = -7 * HOUR
    r = make().launched()
    wait_for('the reason', lambda: "s ahead of the API server's" in r.said())
    assert not r.is_ready() and not api.data()
    api.ahead_s = 5 * HOUR
    wait_for('it', r.is_ready)
