"""agentd-injector: hostile questions, files that change, the cage, the end.  An API server's own client: tests/helm/test_webhook.py."""
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .injector import NAME, POD, VALUES, Injector, make_certificate, review
from .run import TOP, wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))


@pytest.fixture(name='make')
def fixture_make(this_run):
    made = []

    def make(**kw):
        made.append(Injector(this_run[0] / f'injector{len(made)}', **kw))
        return made[-1]
    yield make
    for injector in made:
        injector.remove()


@pytest.fixture(name='injector')
def fixture_injector(make):
    return make().start()


def values(**more):
    return {'values': {'global': {**VALUES['global'], **more}}}


def test_hostile_questions(injector):
    """Each is answered, with the right words, and the next one is served; the connection, too."""
    question = json.dumps(review()).encode()
    hostile = {
        b'{': 'no JSON', b'\0' * 100: 'no JSON', question[:-1]: 'no JSON', b'[' * 100000: 'deeper than 64',
        b'[' + b'{},' * 200000 + b'1]': 'more than 30000 values',
        b'{"a":' * 60 + b'1' + b'}' * 60: 'not an AdmissionReview', b'[1e999]': 'no JSON', b'[99999999999999999999]': 'too big integer',
        question.replace(b'"uid": "u"', b'"uid": "u", "uid": "v"'): 'duplicate', question.replace(b'"app"', b'"\\ud83d"'): 'Unicode',
        question.replace(b'"u"', b'7'): 'request.uid', question.replace(b'/v1"', b'/v1beta1"'): 'not an AdmissionReview',
        b'\xff\xfe' + question: 'no JSON'}
    c = injector.connect()
    for body, why in hostile.items():
        status, text, _ = injector.post(body, c)
        assert status in (400, 413) and json.loads(text)['kind'] == 'Status' and why in json.loads(text)['message'], text
    assert injector.admit(connection=c)['allowed']
    assert injector.metrics()['agentd_injector_admissions_total{result="malformed"}'] == len(hostile)


def test_what_they_cost(make):
    """One at a time is in memory, however many ask."""
    injector = make(mode='release').start()
    large = json.loads(json.dumps(POD))
    large['metadata']['annotations'] = {'a': 'x' * (255 << 10)}
    large['spec']['containers'][0]['env'] = [{'name': f'E{i}', 'value': 'v'} for i in range(5500)]
    idle = injector.memory_kib()
    for _ in range(3):
        assert injector.admit(large)['allowed']
        large_text = b'{"x":"' + b'y' * ((2 << 20) - 100) + b'"}'
        assert injector.post(large_text)[0] == 400
    assert injector.memory_kib('VmHWM') < 128 << 10
    assert idle < 10 << 10
    assert injector.memory_kib() < 64 << 10


def test_a_file_that_is_wrong_changes_nothing(injector):
    assert injector.image() == 'h.io/istio/proxyv2:1.29.1'
    current = 'agentd_injector_files_current{files="configuration"}'
    for n, wrong in enumerate((b'{', {'values': []}, {'vals': {}}, {'agentd': {'redirectMode': 'x'}}, {
            'values': {**VALUES, 'sidecarInjectorWebhook': {'neverInjectSelector': [{'matchLabel': {}}]}}}), 1):
        injector.config.put({'config': wrong})
        wait_for('the log', lambda n=n: injector.said().count('configuration: nothing is changed') == n)
        assert injector.image() == 'h.io/istio/proxyv2:1.29.1' and injector.metrics()[current] == 0
    assert r'no such key \"vals\"' in injector.said() and 'allowed: ebpf' in injector.said() and injector.is_ready()
    injector.config.put({'config': values(tag='1.30.0')})
    wait_for('the new one', lambda: injector.image() == 'h.io/istio/proxyv2:1.30.0')
    assert injector.metrics()[current] == 1


def test_a_file_that_is_written_in_place_is_seen(make, tmp_path):
    own = tmp_path / 'values.yaml'
    own.write_text('global: {hub: h, tag: "1"}\n')
    injector = make(flags=['--values', own]).start()
    assert injector.image() == 'h/proxyv2:1'
    own.write_text('global: {hub: h, tag: "2"}\n')
    wait_for('the new one', lambda: injector.image() == 'h/proxyv2:2')


def test_a_new_certificate_while_connections_are_there(injector):
    old_bundle, c = injector.bundle(), injector.connect()
    current = 'agentd_injector_files_current{files="certificate"}'
    assert injector.admit(connection=c)['allowed']
    chain, key = make_certificate()
    other = make_certificate()
    for n, (crt, secret) in enumerate([(chain, other[1]), make_certificate(days=-1), make_certificate(name='else.svc'), (b'', key)], 1):
        injector.tls.put({'tls.crt': crt, 'tls.key': secret})
        wait_for('the log', lambda n=n: injector.said().count('certificate: nothing is changed') == n)
        assert injector.get('/readyz', injector.connect(old_bundle))[0] == 200
    assert f'the certificate is not for {NAME}' in injector.said() and 'expired at' in injector.said()
    injector.tls.put({'tls.crt': chain, 'tls.key': key})
    wait_for('the new one', injector.is_ready)
    assert injector.metrics()[current] == 1
    assert injector.admit(connection=c)['allowed'], 'the old connection is there'
    with pytest.raises(ssl.SSLError):
        injector.connect(old_bundle)
    assert 'PRIVATE' not in injector.said()


def test_a_wrong_start_is_refused(make):
    injector = make(config={'values': {'sidecarInjectorWebhook': {'neverInjectSelector': {}}}})
    injector.launch()
    assert injector.wait() == 1 and 'must be a list of selectors' in injector.said()
    for flags, why in ((['--nonsense'], 'no such flag'), (['--listen', 'x:1'], 'must be ADDR:PORT'), (['x'], 'x: no such flag')):
        injector = make(flags=flags)
        injector.launch()
        assert injector.wait() in (1, 2) and why in injector.said()


@pytest.mark.parametrize('mode', ['release', 'asan'])
def test_the_cage(make, mode):
    injector = make(mode=mode).start()
    threads = [dict(x.split(':\t', 1) for x in (task / 'status').read_text().splitlines())
               for task in Path(f'/proc/{injector.pid}/task').iterdir()]
    if mode == 'release':
        assert len(threads) == 2  # the loop's, and the one for large reviews, which was there before the cage was closed
    assert all(t['Seccomp'] == '2' and t['NoNewPrivs'] == '1' for t in threads)
    injector.config.put({'config': values(tag='2')})
    wait_for('a file that is read in the cage', lambda: injector.image() == 'h.io/istio/proxyv2:2')
    large = review()['request']['object']
    large['metadata'].setdefault('annotations', {})['x'] = 'x' * (20 << 10)
    assert injector.admit(large)['allowed']


def is_lost(injector, client):
    """The handshake, by TLS 1.3 seen when something is read."""
    try:
        return not injector.post(review(), injector.connect(client=client))
    except (ssl.SSLError, ConnectionError):
        return True


def test_who_may_ask(make, tmp_path):
    """With --client-ca only those whom it made; everybody is answered that he is alive and ready."""
    mine, other, next_one = (tmp_path / name for name in ('mine', 'other', 'next'))
    for file in (mine, other, next_one):
        file.write_bytes(b''.join(make_certificate()))
    (cas := tmp_path / 'ca.crt').write_bytes(mine.read_bytes())
    injector = make(flags=['--client-ca', cas]).start()
    status, text, _ = injector.post(review())
    assert status == 403 and 'a client certificate is wanted' in json.loads(text)['message'] and injector.is_ready()
    kept = injector.connect(client=mine)
    assert injector.admit(connection=kept)['allowed']
    assert is_lost(injector, other)
    cas.write_bytes(b'none')
    wait_for('the log', lambda: 'client CA: nothing is changed' in injector.said())
    assert injector.admit(connection=injector.connect(client=mine))['allowed'] and injector.post(review())[0] == 403
    cas.write_bytes(next_one.read_bytes())
    wait_for('the next one', lambda: is_lost(injector, mine))
    assert injector.admit(connection=injector.connect(client=next_one))['allowed'] and injector.admit(connection=kept)['allowed']
    wrong = make(flags=['--client-ca', tmp_path / 'nowhere'])
    wrong.launch()
    assert wrong.wait() == 1 and 'nowhere' in wrong.said()


def test_a_thousand_strangers(make):
    """They take connections from each other; who asks is served."""
    injector = make(mode='release').start()
    server = injector.connect()
    assert injector.admit(connection=server)['allowed']
    ended = ('slow_handshake', 'connections')
    with contextlib.ExitStack() as all_of_them:
        for n in range(1200):
            s = all_of_them.enter_context(socket.socket())
            s.bind((f'127.0.0.{2 + n % 2}', 0))
            s.connect(('127.0.0.1', injector.port))
        # On a slow machine those of the beginning are too slow before the last ones come.
        wait_for('some to go', lambda: sum(injector.metrics()[f'agentd_injector_connections_ended_total{{reason="{r}"}}'] for r in ended) >= 200)
        m = injector.metrics()
        assert m['agentd_injector_connections'] <= 1000
        for _ in range(10):
            assert injector.admit(connection=server)['allowed']
            assert injector.admit()['allowed']
        assert injector.memory_kib() < 96 << 10
    wait_for('them to go', lambda: injector.metrics()['agentd_injector_connections'] <= 3)


def test_the_end_serves_who_still_comes(injector):
    """Endpoints go later than we know: unready at once, and every request has an answer until then."""
    old, idle = injector.connect(), injector.connect()
    assert injector.admit(connection=old)['allowed']
    injector.send(signal.SIGTERM)
    wait_for('the signal', lambda: 'ending in 15 s' in injector.said())
    status, why = injector.get('/readyz')
    assert status == 503 and why == 'it is ending\n'
    for c in (old, injector.connect()):
        status, _, headers = injector.post(review(), c)
        assert status == 200 and headers['Connection'] == 'close'
    if SOAK:
        assert idle.sock.recv(1) == b'', '15 s later'
        assert injector.wait() == 0


@pytest.mark.parametrize('rounds', [40 if SOAK else 1])
def test_the_end_leaves_nothing(make, rounds):
    """Connections in each state when it ends at once: LeakSanitizer finds nothing (`make` looks)."""
    question = json.dumps(review()).encode()
    head = b'POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n'
    for _ in range(rounds):
        injector = make().start()
        with contextlib.ExitStack() as all_of_them:
            for sent in b'', b'\x16\x03\x01\x02\x00\x01':  # no handshake, half a one
                s = all_of_them.enter_context(socket.create_connection(('127.0.0.1', injector.port)))
                s.sendall(sent)
            for sent in b'', b'POST /inj', head % 100000 + b'x' * 5000, head % len(question) + question:
                all_of_them.enter_context(contextlib.closing(injector.connect())).sock.sendall(sent)
            kept = all_of_them.enter_context(contextlib.closing(injector.connect()))
            assert injector.admit(connection=kept)['allowed']
            injector.config.put({'config': values(tag='2')})
            injector.end_at_once()


def test_every_metric_is_documented(injector):
    rows = dict(re.findall(r'^\| `(agentd_injector_\w+)` \| \w+ \| (.*?) \|', (TOP / 'docs/METRICS.md').read_text(), re.M))
    injector.admit()
    seen = set()
    for family in text_string_to_metric_families(injector.get('/metrics')[1]):
        name = family.name if family.name in rows else f'{family.name}_total'
        seen.add(name)
        assert {', '.join(k for k in s.labels if k != 'le') for s in family.samples} == {rows[name]}, name
    assert len(seen) >= 9


def test_it_is_quiet(make):
    """Nothing wakes it that does not concern it."""
    injector = make(mode='release').start()
    c = injector.connect()
    injector.admit(connection=c)

    def wakeups():
        text = Path(f'/proc/{injector.pid}/status').read_text()
        return int(text.partition('voluntary_ctxt_switches:')[2].split()[0])

    def asleep():
        before = wakeups()
        time.sleep(1)
        return wakeups() <= before + 1
    wait_for('a second in which nothing wakes it', asleep)
