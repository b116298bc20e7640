"""agentd-injector asked by kube-apiserver's own dispatcher: who is asked, in which order, what a user sees, what fails never.

The patches are applied by the API server's own library (evanphx/json-patch) to its own Pods.
"""
import base64
import json
import os
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tests.e2e.injector import NAME, VALUES, Injector, make_certificate
from tests.e2e.run import wait_for

from .chart import BUILD, validate
from .test_engine import Engine, some_pod
from .workloads import CASES, REFUSED

DISPATCH = BUILD / 'gobin' / 'dispatch'
CONFIG = {'values': VALUES}
SOAK = bool(os.environ.get('AGENTD_SOAK'))
NAMESPACES = {'demo': {'agentd.node.mesh/injection': 'enabled', 'istio-injection': 'enabled'}, 'plain': {},
              'kube-system': {'agentd.node.mesh/injection': 'enabled'}}
POD = {'metadata': {'generateName': 'web-', 'labels': {'app': 'web'}}, 'spec': {'containers': [{'name': 'app', 'image': 'app'}]}}


def webhook(name, bundle, selectors, service=NAME, path='/inject', **more):
    name_of, namespace, _ = service.split('.')
    return {'name': name, 'sideEffects': 'None', 'admissionReviewVersions': ['v1'], 'failurePolicy': 'Fail', 'timeoutSeconds': 5,
            'matchPolicy': 'Equivalent', 'reinvocationPolicy': 'Never',
            'rules': [{'operations': ['CREATE'], 'apiGroups': [''], 'apiVersions': ['v1'], 'resources': ['pods'], 'scope': '*'}],
            'clientConfig': {'service': {'name': name_of, 'namespace': namespace, 'path': path, 'port': 443},
                             'caBundle': base64.b64encode(bundle.encode()).decode()}, **selectors, **more}


# As the chart's selectors `own`, and istiod's.
OURS = {'namespaceSelector': {'matchLabels': {'agentd.node.mesh/injection': 'enabled'}},
        'objectSelector': {'matchExpressions': [{'key': 'sidecar.istio.io/inject', 'operator': 'NotIn', 'values': ['false']}]}}
ISTIOS = {'namespaceSelector': {'matchLabels': {'istio-injection': 'enabled'}}, 'objectSelector': OURS['objectSelector']}


def configuration(name, *webhooks):
    return {'apiVersion': 'admissionregistration.k8s.io/v1', 'kind': 'MutatingWebhookConfiguration', 'metadata': {'name': name},
            'webhooks': webhooks}


def ours(injector, **more):
    return configuration('agentd-injector', webhook('pods.injector.agentd.node.mesh', injector.bundle(), OURS, **more))


class Api:
    """The dispatcher, told what there is."""

    def __init__(self, directory, injector, *configurations, **istios):
        self._world = directory / 'world.json'
        self._world.write_text(json.dumps({'configurations': configurations, 'namespaces': NAMESPACES,
                                           'services': {'agentd-system/agentd-injector': injector if isinstance(injector, str)
                                                        else f'127.0.0.1:{injector.port}',
                                                        **{f'istio-system/{k}': f'127.0.0.1:{v.port}' for k, v in istios.items()}}}))

    def argv(self, *args):
        return [DISPATCH, '-world', self._world, *map(str, args)]

    def ask(self, *questions, args=()):
        text = ''.join(json.dumps({'namespace': 'demo', 'pod': POD, **q}) + '\n' for q in questions)
        r = subprocess.run(self.argv(*args), input=text, text=True, capture_output=True, timeout=600, check=False)
        assert r.returncode == 0, r.stderr
        return [json.loads(line) for line in r.stdout.splitlines()]


@pytest.fixture(name='made', scope='module')
def fixture_made(tmp_path_factory):
    directory = tmp_path_factory.mktemp('webhook')
    injector = Injector(directory / 'injector', mode='release', config=CONFIG).start()
    yield directory, injector
    injector.remove()


@pytest.fixture(name='make')
def fixture_make(tmp_path):
    made = []

    def make(name, **agentd):
        made.append(Injector(tmp_path / name, mode='release', config={**CONFIG, 'agentd': agentd}).start())
        return made[-1]
    yield make
    for injector in made:
        injector.remove()


def pods(cases):
    return {name: c for name, c in cases.items() if c['kind'] == 'Pod'}


def taken(made, cases):
    """Those that are not refused: each patch, applied by the API server's library, makes what agentctl makes of the same Pod."""
    directory, injector = made
    (directory / 'values').write_text(json.dumps(VALUES))
    # As an API server shows them: with the zero values of its types.
    shown = [a['pod'] for a in Api(directory, injector).ask(*({'pod': p} for p in cases))]
    placed = [{'apiVersion': 'v1', 'kind': 'Pod', **p, 'metadata': {**p['metadata'], 'namespace': 'demo'}} for p in shown]
    answers = list(zip(placed, Api(directory, injector, ours(injector)).ask(*({'pod': p} for p in placed))))
    assert all('denied the request' in a['error'] for _, a in answers if 'error' in a)
    answers = [(p, a['pod']) for p, a in answers if 'error' not in a]
    theirs = Api(directory, injector).ask(*({'pod': p} for p in Engine(directory).run([p for p, _ in answers])))
    for (p, mine), b in zip(answers, theirs):
        assert (mine['metadata'], mine['spec']) == (b['pod']['metadata'], b['pod']['spec']), p
    return [mine for _, mine in answers]


def test_the_same_as_agentctl(made):
    cases = pods(CASES)
    assert len(cases) >= 50
    mine = taken(made, cases.values())
    assert len(mine) == len(cases) and sum('volumes' in p['spec'] for p in mine) >= 50


@settings(max_examples=20 if SOAK else 2, deadline=None, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(cases=st.lists(some_pod(), min_size=15, max_size=25))
def test_any_pod(made, cases):
    assert len(taken(made, cases)) > len(cases) // 3


def test_refusals_are_in_words(made):
    directory, injector = made
    api = Api(directory, injector, ours(injector))
    cases = pods(REFUSED)
    for name, a in zip(cases, api.ask(*({'pod': p} for p in cases.values()))):
        assert a['error'].startswith('admission webhook "pods.injector.agentd.node.mesh" denied the request: '), (name, a)
        assert a['code'] == 400


def test_what_is_no_question_is_said_to_the_user(made):
    """A Status is shown, other text is not."""
    directory, injector = made
    large = {**POD, 'spec': {'containers': [{'name': 'app', 'env': [{'name': f'E{n}', 'value': 'v'} for n in range(10000)]}]}}
    answer = Api(directory, injector, ours(injector)).ask({'pod': large})[0]
    assert answer['error'].endswith('failed to call webhook: JSON: more than 30000 values') and answer['code'] == 500


def test_who_is_asked(made):
    directory, injector = made
    api = Api(directory, injector, ours(injector))
    off = {**POD, 'metadata': {**POD['metadata'], 'labels': {'sidecar.istio.io/inject': 'false'}}}
    asked = lambda a: 'volumes' in a['pod']['spec']  # noqa: E731
    answers = api.ask({}, {'namespace': 'plain'}, {'namespace': 'kube-system'}, {'pod': off}, {'dryRun': True}, {'update': True})
    assert [asked(a) for a in answers] == [True, False, False, False, True, False]
    assert all('error' not in a for a in answers)
    assert 'name' not in answers[0]['pod']['metadata'], 'it has none yet'


def test_istiod_is_kept_away(make, tmp_path):
    """Its configuration's name sorts behind ours, and the label that we add is in its selector."""
    hiding, stand_in = make('hiding', hideFromIstiod=True), make('istiod')
    # Its certificate has our service's name, so a call of it fails: that it was tried is enough.
    theirs = webhook('sidecar-injector.istio.io', stand_in.bundle(), ISTIOS, 'istiod.istio-system.svc')
    for name, asked in ('agentd-injector', False), ('zz-injector', True):
        both = {**ours(hiding), 'metadata': {'name': name}}, configuration('istio-sidecar-injector', theirs)
        answer = Api(tmp_path, hiding, *both, istiod=stand_in).ask({})[0]
        assert ('sidecar-injector.istio.io' in answer.get('error', '')) == asked, answer
        assert asked or answer['pod']['metadata']['labels']['sidecar.istio.io/inject'] == 'false'


def test_what_is_there_is_valid(made):
    directory, injector = made
    answer = Api(directory, injector, ours(injector)).ask({'pod': {**POD, 'metadata': {'name': 'web', 'namespace': 'demo'}}})[0]
    pod = {'apiVersion': 'v1', 'kind': 'Pod', **answer['pod']}
    pod.pop('status', None)
    pod['metadata'].pop('creationTimestamp', None)
    validate(pod, '1.36')


def changing(injector, done, pair):
    """Its files, one after the other."""
    for n in range(1000):
        injector.config.put({'config': {'values': {**VALUES, 'note': str(n)}}})
        if n == 3:
            injector.tls.put(dict(zip(('tls.crt', 'tls.key'), pair)))
        if done.wait(0.05):
            return


def test_none_fails_while_files_change(make, tmp_path):
    """Certificate and configuration: each admission is answered, and no connection closes under one."""
    injector, done, pair = make('busy'), threading.Event(), make_certificate()
    only_old = Api(tmp_path, injector, ours(injector))
    both = webhook('pods.injector.agentd.node.mesh', injector.bundle() + pair[0].decode(), OURS)
    (tmp_path / 'both').mkdir()
    api = Api(tmp_path / 'both', injector, configuration('agentd-injector', both))
    times = 10000 if SOAK else 1500
    with ThreadPoolExecutor() as pool:
        change = pool.submit(changing, injector, done, pair)
        try:
            [result] = api.ask({}, args=['-times', times, '-parallel', 8])
        finally:
            done.set()
        change.result()
    assert result['failed'] == 0, result
    assert injector.metrics()['agentd_injector_admissions_total{result="injected"}'] == times
    assert 'certificate signed by unknown authority' in only_old.ask({})[0]['error']


@pytest.mark.skipif(not SOAK, reason='AGENTD_SOAK=1: it takes five minutes')
@pytest.mark.timeout(600)
@pytest.mark.parametrize('pause', ['1s', '30s', '60s', '89s', '91s', '95s'])
def test_none_fails_after_a_pause(made, tmp_path, pause):
    """Whoever closes an idle connection first: the API server does so after 90 s."""
    [result] = Api(tmp_path, made[1], ours(made[1])).ask({}, args=['-times', 24, '-parallel', 8, '-pause', pause])
    assert result['failed'] == 0, result


class Endpoints:
    """As an endpoint controller: who is ready has connections, a moment after it said so."""

    def __init__(self, path, *injectors):
        self.path, self._there = path, list(injectors)
        self._write()

    def _write(self):
        new = self.path.with_suffix('.new')
        new.write_text(''.join(f'127.0.0.1:{i.port}\n' for i in self._there))
        new.rename(self.path)

    def add(self, injector):
        self._there.append(injector)
        self._write()

    def remove(self, injector):
        self._there.remove(injector)
        self._write()


@pytest.mark.skipif(not SOAK, reason='AGENTD_SOAK=1: each of them ends in 15 s')
@pytest.mark.timeout(600)
def test_none_fails_while_replicas_are_replaced(make, tmp_path):
    old = make('a'), make('b')
    pair = {name: (old[0].tls.path / name).read_bytes() for name in ('tls.crt', 'tls.key')}
    old[1].tls.put(pair)
    wait_for('the same certificate', lambda: old[1].get('/readyz', old[1].connect(old[0].bundle()))[0] == 200)
    endpoints = Endpoints(tmp_path / 'endpoints', *old)
    api = Api(tmp_path, f'@{endpoints.path}', ours(old[0]))
    with subprocess.Popen(api.argv('-times', 10000, '-parallel', 8, '-pause', '35ms'), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as asking:
        asking.stdin.write(json.dumps({'namespace': 'demo', 'pod': POD}) + '\n')
        asking.stdin.close()
        for n, leaving in enumerate(old):
            new = make(f'new{n}')
            new.tls.put(pair)
            wait_for('the same certificate', lambda c=new: c.get('/readyz', c.connect(old[0].bundle()))[0] == 200)
            endpoints.add(new)
            leaving.send(signal.SIGTERM)
            wait_for('it to be unready', lambda c=leaving: c.get('/readyz')[0] == 503)
            endpoints.remove(leaving)
            assert leaving.wait() == 0
        assert asking.poll() is None, 'they were asked for as long as it took'
        result = json.loads(asking.stdout.read())
    assert result['failed'] == 0, result


def test_none_fails_while_it_ends(make, tmp_path):
    """SIGTERM under load: who is still sent here is answered, on connections old and new."""
    injector = make('ending')
    api = Api(tmp_path, injector, ours(injector))
    with subprocess.Popen(api.argv('-times', 400, '-parallel', 4), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as asking:
        asking.stdin.write(json.dumps({'namespace': 'demo', 'pod': POD}) + '\n')
        asking.stdin.close()
        wait_for('the first ones', lambda: injector.metrics()['agentd_injector_admissions_total{result="injected"}'] > 50)
        injector.send(signal.SIGTERM)
        result = json.loads(asking.stdout.read())
    assert result['failed'] == 0, result

