"""While istiod refuses, nobody is faster than the rules allow: counted at the control plane, by its own clock.

What is allowed is computed with the shortest waits there may be, and with SLACK_S for a control plane that
notes late what came early.  The buckets are wide open here: the waits alone must do it.
"""
import collections
import os
import time

import pytest

from . import mesh
from .crowd import Crowd
from .run import PATIENCE_S, wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
WATCH_S, SLACK_S = 60 if SOAK else 6, 2
ATTEMPTS = (0, .1, .2, .4, .8)  # of one CSR, +-10 % (istio-agent.md 4.3)
MORE_CSR_CODES = [('INTERNAL', ATTEMPTS), ('INVALID_ARGUMENT', (0,))] if SOAK else []
MORE_STREAM_CODES = ['RESOURCE_EXHAUSTED', 'INTERNAL'] if SOAK else []


def allowed(seconds, first_s, longest_s, spread, attempts=(0,), growth=2):
    """How many tries may have come by then: attempts, a pause, attempts, a longer pause, ..."""
    at, pause, n = 0, first_s, 0
    while True:
        for wait in attempts:
            at += wait * (1 - spread)
            if at > seconds:
                return n
            n += 1
        at += pause * (1 - spread)
        pause = min(pause * growth, longest_s)


def too_fast(records, whose, **rule):
    """Whoever came too often at some time, and how often."""
    first, count, found = {}, {}, {}
    for r in records:
        who = whose(r)
        since = r['time'] - first.setdefault(who, r['time'])
        count[who] = count.get(who, 0) + 1
        if count[who] > allowed(since + SLACK_S, **rule):
            found[who] = (count[who], since)
    return found


@pytest.fixture
def wide(node):
    node.agentd.plane.update(opens_per_second=1000, opens_burst=1000, pod_opens_per_second=1000, pod_opens_burst=1000)
    node.agentd.settings['csr_per_second'] = 100
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    return node


def watch(node, event, whose, among):
    """Its records, over WATCH_S seconds from the first one on, and until each of so many has tried three times."""
    def enough():
        records = node.istiod.journal(event)
        each = collections.Counter(map(whose, records)).values()
        return len(each) == among and min(each) >= 3 and time.time() - records[0]['time'] > WATCH_S and records
    return wait_for(f'{event} of {among}', enough, WATCH_S + PATIENCE_S)


def account(record):
    return record['identity']


def pod(record):
    return record['token_pod']['name']


@pytest.mark.parametrize(('code', 'attempts'), [
    ('UNAVAILABLE', ATTEMPTS), ('PERMISSION_DENIED', (0,)), *MORE_CSR_CODES])
def test_a_ca_that_refuses(wide, code, attempts):
    node = wide
    node.istiod.order('fail', what='csr', count=100_000, code=code, text='not now')
    crowd = Crowd(node, 4, 2)
    node.agentd.start()
    crowd.start()
    wait_for('a refusal', lambda: node.istiod.journal('csr', code=code))
    late = Crowd(node, 2, 2, 'late')  # who comes and asks changes nothing
    late.start()
    records = watch(node, 'csr-asked', account, 2)
    assert not too_fast(records, account, first_s=.5, longest_s=60, spread=.1, attempts=attempts)
    wait_for('both to say why', lambda: node.agentd.ctl_text('certs')[1].count('not now') == 2)
    assert node.agentd.ctl_text('certs')[0] == 1 and 'not now' in node.agentd.log.read_text()
    # Nobody helps.
    node.istiod.order('fail', what='csr', count=0, code=code)
    for some in (crowd, late):
        some.wait_served()
    assert len(node.istiod.issued()) == 2
    for some in (crowd, late):
        some.stop()


@pytest.mark.parametrize('code', ['UNAVAILABLE', 'PERMISSION_DENIED', *MORE_STREAM_CODES])
def test_an_istiod_that_refuses_streams(wide, code):
    node = wide
    node.istiod.order('fail', what='ads', count=100_000, code=code, text='not now')
    crowd = Crowd(node, 3, 1)
    node.agentd.start()
    crowd.start()
    records = watch(node, 'open', pod, 3)
    assert not too_fast(records, pod, first_s=.5, longest_s=30, spread=.2)
    status, text = node.agentd.ctl_text('xds')
    assert status == 1 and text.count('not now') == 3 and 'not now' in node.agentd.log.read_text()
    node.istiod.order('fail', what='ads', count=0, code=code)
    crowd.wait_served()
    crowd.stop()


def test_an_istiod_that_nobody_can_connect_to(wide):
    node = wide
    node.istiod.order('listen', on='tls1.1')
    crowd = Crowd(node, 3, 2)
    node.agentd.start()
    crowd.start()
    # Two connections, whoever waits for them (rpc_channel.c).
    knocks = watch(node, 'knock', lambda r: 'anybody', 1)
    most = 2 * allowed(knocks[-1]['time'] - knocks[0]['time'] + SLACK_S, first_s=.2, longest_s=2, spread=.2, growth=1.6)
    assert len(knocks) <= most
    # CSRs and streams both say what they wait for.
    reason = 'cannot connect to 127.0.0.1'
    assert [c['why_not'] for c in node.agentd.ctl('certs')['certificates']
            if not c['why_not'].startswith(f'waiting for istiod: {reason}')] == []
    for command in ('certs', 'xds', 'status'):
        status, text = node.agentd.ctl_text(command)
        assert status == 1 and reason in text, text
    assert node.agentd.log.read_text().count(f'msg="{reason}') <= 2  # one line, not one for each attempt
    node.istiod.order('listen', on='grpc')
    crowd.wait_served()
    assert len(node.istiod.issued()) == 2
    crowd.stop()


def test_a_wrong_answer_is_not_asked_for_again_at_once(wide):
    """Issued is issued (istiod's work was done): the pause between two certificates, 5 minutes by default."""
    node = wide
    node.agentd.settings.update(certificate_reissue_min_s=3600, certificate_linger_s=0)
    node.istiod.order('bad-certificates', of={'*': 'other-key'})
    crowd = Crowd(node, 2, 1)
    node.agentd.start()
    crowd.start()
    wait_for('agentctl to say why', lambda: 'answer of istiod' in node.agentd.ctl_text('certs')[1])
    late = Crowd(node, 1, 1, 'late')
    late.start()
    late.wait_for('its configuration', lambda c: c['ads'])
    wait_for('it to ask for its certificate', lambda: len(node.agentd.ctl('certs')['certificates'][0]['subscribers']) == 3)
    other = Crowd(node, 2, 2, 'other')  # the second one is of another account, which may ask
    other.start()
    asked = wait_for('the other account to be asked for', lambda: node.istiod.journal('csr-asked')[1:])
    assert [r['identity'].rpartition('/')[2] for r in asked] == ['sa-1']
    for some in (crowd, late, other):
        some.stop()
