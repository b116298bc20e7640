"""What istiod and the network do to running pods: nothing.  agentctl and the log say why; nobody needs to help.

What a running pod keeps, what is said, and the recovery are shown together; how often is asked again, by counts:

    down, killed, wrong root or name, expired, TLS 1.1  test_running_pods..., test_pace: ...nobody_can_connect_to,
                                                        test_full_node: test_istiod_goes_and_comes_back
    slow                                                test_running_pods... (a stream is held: one open)
    half-open                                           test_an_istiod_that_says_nothing
    not ready, RESOURCE_EXHAUSTED, other refusals       test_running_pods..., test_pace: ...that_refuses_streams
    limiter                                             test_full_node: test_all_pods_at_once, ..._comes_back
    GOAWAY, connection age                              test_connections_that_age, test_full_node: test_goaway...
    stream caps                                         test_an_istiod_without_room_for_streams
    empty pushes, 5,000 clusters                        test_pushes
    bad certificates                                    test_a_bad_certificate..., test_a_wrong_renewal...,
                                                        test_pace: test_a_wrong_answer...
    refused CSRs                                        test_a_refused_renewal..., test_pace: test_a_ca_that_refuses
    clients that do not read                            test_full_node: test_stuck_envoys...
    suspend, clock steps                                unit: cert_cache_clock_test, agent_test
"""
import contextlib
import os
import re
import signal

import pytest

from tests.istiod import bad_answers

from . import mesh
from .conftest import start_pair
from .crowd import CLUSTER, Crowd
from .run import wait_for


def connected(node):
    return node.agentd.ctl('status')['settled'] and all(x['ads']['connected'] for x in node.agentd.ctl('xds')['xds'])


def everything(node):
    """All that a person can read: agentctl, and then the log."""
    return ''.join(node.agentd.ctl_text(c)[1] for c in ('status', 'xds', 'certs')), node.agentd.log.read_text()


@contextlib.contextmanager
def listening(node, **how):
    node.istiod.order('listen', **how)
    yield
    node.istiod.order('listen', on='grpc')


@contextlib.contextmanager
def refusing(node, **how):
    """Every stream, from the next one on; those of now are ended."""
    node.istiod.order(**how)
    node.istiod.order('listen', on='grpc')
    yield
    node.istiod.order('ready', on=True)
    node.istiod.order('fail', what='ads', count=0, code='INTERNAL')


@contextlib.contextmanager
def killed(node):
    node.istiod.process.kill()
    yield
    node.istiod.start()


@contextlib.contextmanager
def slow(node):
    """Streams are accepted, and nothing is said on them."""
    node.istiod.order('slow', what='ads', seconds=3600)
    node.istiod.order('listen', on='grpc')
    yield
    node.istiod.order('slow', what='ads', seconds=0)
    node.istiod.order('listen', on='grpc')


def fail(code, text):
    return lambda n: refusing(n, do='fail', what='ads', count=100_000, code=code, text=text)


NOT_READY = 'server is not ready to serve discovery information'
# What is done, what agentctl says of it, and what the log says.
FAULTS = {
    'killed': (killed, 'cannot connect|refused', 'cannot connect'),
    'down': (lambda n: listening(n, on='nothing'), 'cannot connect|refused', 'cannot connect'),
    'tls 1.1': (lambda n: listening(n, on='tls1.1'), 'cannot connect', '(?i)version|alert'),
    'wrong root': (lambda n: listening(n, on='grpc', authority='stranger'), 'cannot connect', 'verify failed'),
    'wrong name': (lambda n: listening(n, on='grpc', name='elsewhere.example'), r'as \S+[.]istiod',
                   r'as \S+[.]istiod'),
    'expired': (lambda n: listening(n, on='grpc', days=-1), 'cannot connect', 'verify failed'),
    'slow': (slow, 'istiod has not answered yet', 'istiod: [A-Z]+: '),
    'not ready': (lambda n: refusing(n, do='ready', on=False), NOT_READY, NOT_READY),
    'exhausted': (fail('RESOURCE_EXHAUSTED', 'request rate limit exceeded: so'), 'rate limit exceeded',
                  'rate limit exceeded'),
    'denied': (fail('PERMISSION_DENIED', 'authorization failed: no identities'), 'authorization failed',
               'authorization failed'),
    'unauthenticated': (fail('UNAUTHENTICATED', 'authentication failure'), 'authentication failure',
                        'authentication failure'),
    'internal': (fail('INTERNAL', 'something broke'), 'something broke', 'something broke'),
}


def test_running_pods_keep_what_they_have(pair):
    client, _ = pair
    node = client.node
    load, before = client.load(mesh.OUTBOUND), [p.envoy_serials() for p in pair]
    for name, (fault, said, logged) in FAULTS.items():
        read = len(node.agentd.log.read_text())
        with fault(node):
            wait_for(f'{name}: the end of the streams', lambda: not connected(node))
            wait_for(f'{name}: agentctl to say {said}', lambda s=said: re.search(s, everything(node)[0]))
            wait_for(f'{name}: the log to say {logged}',
                     lambda w=logged, n=read: re.search(w, everything(node)[1][n:]))
            load.more(30)
        wait_for(f'{name}: both streams again', lambda: connected(node))
        assert [p.envoy_serials() for p in pair] == before, name
    # Streams had nothing to do with certificates, and what is changed now arrives.
    assert len(node.istiod.issued()) == 2
    node.istiod.set('all', clusters=[mesh._cluster('after', '127.0.0.1', 1)])
    wait_for('a change', lambda: all('after::' in p.netns.http(15000, '/clusters')[1] for p in pair))
    counts = load.stop()
    assert counts['failed'] == 0, counts


def certificates(crowd):
    return [c['sds'].get('default', 0) for c in crowd.counts().values()]


def test_a_bad_certificate_is_never_delivered(node):
    kinds = bad_answers.kinds()
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    node.istiod.order('bad-certificates', of={f'sa-{n}': kind for n, kind in enumerate(kinds)})
    crowd = Crowd(node, len(kinds) + 1, len(kinds) + 1)  # the last account gets a good one
    node.agentd.start()
    crowd.start().wait_served([crowd.pods[-1]['name']])

    def spoilt():
        return {j['kind'] for j in node.istiod.journal('csr', code='BAD')}
    wait_for('a CSR of everybody', lambda: spoilt() == set(kinds))

    def refused():
        return {c['spiffe_id'] for c in node.agentd.ctl('certs')['certificates'] if c['why_not']}
    wait_for('agentctl to say why, of each', lambda: len(refused()) == len(kinds))
    log = node.agentd.log.read_text()
    assert [kind for n, kind in enumerate(kinds) if f'sa/sa-{n} ' not in log] == []
    assert certificates(crowd) == [0] * len(kinds) + [1] and len(node.istiod.issued()) == 1
    node.istiod.order('bad-certificates', of={})
    crowd.wait_served()
    assert certificates(crowd) == [1] * (len(kinds) + 1) and len(node.istiod.issued()) == len(kinds) + 1
    crowd.stop()


WRONG = [('other-key', 'wrong-chain'), ('two-uris', 'ca-true'), ('expired', 'other-account')]


def test_a_wrong_renewal_leaves_the_certificate(node):
    node.istiod.order('ttl', seconds=100)  # renewed after 20 s: until then both Envoys must run
    pods = start_pair(node, env={'SECRET_GRACE_PERIOD_RATIO': '0.8', 'SECRET_GRACE_PERIOD_RATIO_JITTER': '0'})
    load, before = pods[0].load(mesh.OUTBOUND), [p.envoy_serials() for p in pods]
    accounts = [p.sa for p in pods]
    for kinds in WRONG:
        node.istiod.order('bad-certificates', of=dict(zip(accounts, kinds)))
        wait_for(f'{kinds}', lambda k=kinds: {j['kind'] for j in node.istiod.journal('csr', code='BAD')} >= set(k))
    wait_for('agentctl to say why', lambda: node.agentd.ctl_text('certs')[1].count('answer of istiod') == 2)
    assert node.agentd.ctl_text('certs')[0] == 1
    for p in pods:
        assert re.search(f'subject=spiffe://cluster.local/ns/demo/sa/{p.sa} msg="not renewed: answer of istiod',
                         node.agentd.log.read_text())
    assert [p.envoy_serials() for p in pods] == before and len(node.istiod.issued()) == 2
    node.istiod.order('bad-certificates', of={})
    wait_for('the renewals', lambda: all(not p.envoy_serials()[0] & b[0] for p, b in zip(pods, before)))
    counts = load.stop()
    assert counts['failed'] == 0, counts


REFUSALS = [  # istio-agent.md 4.5
    ('UNAUTHENTICATED', 'request authenticate failure'),
    ('UNAUTHENTICATED', 'request impersonation authentication failure'),
    ('INVALID_ARGUMENT', 'CSR signing error (requested TTL 2184h0m0s is greater)'),
    ('INTERNAL', 'CSR signing error (CA not ready)'),
]


def test_a_refused_renewal_leaves_the_certificate(node):
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    node.istiod.order('ttl', seconds=16)
    crowd = Crowd(node, 1, 1)
    node.agentd.start()
    wait_for('the certificate', node.istiod.issued)
    code, text = REFUSALS[0]  # before it is renewed, however long the crowd takes
    node.istiod.order('fail', what='csr', count=100_000, code=code, text=text)
    crowd.start().wait_served()
    had, issued = certificates(crowd)[0], len(node.istiod.issued())
    for code, text in REFUSALS:
        node.istiod.order('fail', what='csr', count=100_000, code=code, text=text)
        wait_for(f'agentctl to say {text}', lambda t=text: t in node.agentd.ctl_text('certs')[1])
        assert node.agentd.ctl_text('certs')[0] == 1 and text in node.agentd.log.read_text()
    assert certificates(crowd) == [had] and len(node.istiod.issued()) == issued == 1
    node.istiod.order('fail', what='csr', count=0, code=code)
    wait_for('the renewal', lambda: certificates(crowd)[0] == had + 1)
    assert [j['code'] for j in node.istiod.journal('csr')][-1] == 'OK'
    crowd.stop()


@pytest.mark.parametrize('how', ['silence', 'stopped'])
def test_an_istiod_that_says_nothing(node, how):
    """Connections are accepted, and never a byte comes: new ones, or those that are there (a stopped process)."""
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    crowd = Crowd(node, 2, 2)
    node.agentd.start()
    crowd.start().wait_served()
    if how == 'silence':
        node.istiod.order('listen', on='silence')
        wait_for('the end of the streams', lambda: not connected(node))
        assert 'not connected' in node.agentd.ctl_text('xds')[1]
        # The second, if the first try came before anybody listened again: grpc stays there until one succeeds.
        wait_for('agentctl to say so', lambda: re.search('CONNECTING|cannot connect',
                                                         node.agentd.ctl_text('status')[1]))
        node.istiod.order('listen', on='grpc')
        wait_for('all streams', lambda: connected(node))
    else:
        os.kill(node.istiod.process.pid, signal.SIGSTOP)
        late = Crowd(node, 1, 1, 'late')  # of an account whose certificate is here: it needs no istiod
        late.start().wait_for('the cached certificate', lambda c: c['sds'].get('default'))
        late.stop()
        os.kill(node.istiod.process.pid, signal.SIGCONT)
        assert all(c['ended'] == 0 for c in crowd.counts().values())
    node.istiod.set('all', clusters=[mesh._cluster('two', '127.0.0.1', 1)])
    told = 3 if how == 'silence' else 2  # a stream that is new is told everything once more
    crowd.wait_for('a change', lambda c: c['ads'][CLUSTER] >= told)
    assert certificates(crowd) == [1, 1] and len(node.istiod.issued()) == 2
    crowd.stop()


@pytest.mark.parametrize('how', ['silence', 'mute'])
def test_a_connection_that_never_becomes_ready_is_left(node, how):
    """By agentd, which dials anew: nobody hangs up on it."""
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    node.istiod.order('listen', on=how)
    crowd = Crowd(node, 2, 1)
    node.agentd.start()
    crowd.start()
    wait_for('it to leave', lambda: len(node.istiod.journal('left')) >= 2)  # as many as it has
    wait_for('it to dial anew', lambda: len(node.istiod.journal('knock')) > 2)
    wait_for('the log to say so', lambda: 'cannot connect' in node.agentd.log.read_text())
    node.istiod.order('listen', on='grpc')
    crowd.wait_served()
    crowd.stop()


def test_connections_that_age(pair):
    """GOAWAY after a second, again and again: streams move, and nobody notices."""
    node = pair[0].node
    load, before = pair[0].load(mesh.OUTBOUND), [p.envoy_serials() for p in pair]
    seen = len(node.istiod.journal())
    node.istiod.order('listen', on='grpc', age=1, grace=60)

    def opened():
        return [(r['token_pod']['name'], r['peer']) for r in node.istiod.journal()[seen:] if r['event'] == 'open']
    wait_for('each to have moved four times', lambda: all(
        sum(name == p.name for name, _ in opened()) > 4 for p in pair))
    load.more(30)
    node.istiod.order('listen', on='grpc')
    wait_for('both streams', lambda: connected(node))
    assert 'a connection ends: its streams move to another' in node.agentd.log.read_text()
    # One open for each connection that was lost; certificates have nothing to do with it.
    assert len(opened()) == len(set(opened()))
    assert [p.envoy_serials() for p in pair] == before and len(node.istiod.issued()) == 2
    node.istiod.set('all', clusters=[mesh._cluster('after', '127.0.0.1', 1)])
    wait_for('a change', lambda: all('after::' in p.netns.http(15000, '/clusters')[1] for p in pair))
    counts = load.stop()
    assert counts['failed'] == 0, counts


def test_an_istiod_without_room_for_streams(node):
    """At most so many on a connection: who is there stays, the others wait and are told so."""
    room = 3
    node.agentd.plane['connections'] = 1
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    node.istiod.order('listen', on='grpc', streams=room)
    crowd = Crowd(node, 6, 1)
    node.agentd.start()
    crowd.start()

    def served():
        return {name for name, c in crowd.counts().items() if CLUSTER in c['ads']}
    wait_for('as many as there is room for', lambda: len(served()) == room)
    first = served()

    def waiting():
        return [x for x in node.agentd.ctl('xds')['xds'] if x['ads']['why_not']]
    wait_for('the others to say so', lambda: len(waiting()) == len(crowd.pods) - room)
    assert node.agentd.ctl_text('xds')[0] == 1
    node.istiod.set('all', clusters=[mesh._cluster('two', '127.0.0.1', 1)])
    crowd.wait_for('a change', lambda c: c['ads'][CLUSTER] > 1, first)
    assert served() == first
    node.istiod.order('listen', on='grpc')
    crowd.wait_served()
    crowd.stop()
