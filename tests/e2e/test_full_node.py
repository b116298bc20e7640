"""A node full of pods: everything at once, with istiod's own limits on.  Full counts when AGENTD_SOAK=1."""
import os
import time

import pytest

from . import mesh
from .conftest import measured
from .crowd import CLUSTER, Crowd
from .run import wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
PODS, ACCOUNTS = (250, 20) if SOAK else (60, 10)
OUTAGES_S = (0, 20) if SOAK else (1,)
LIMIT = 35  # istiod's on four cores, in stream opens per second
STUCK, SLOTS = (40, 35) if SOAK else (6, 4)


class Since:
    """What the control plane's journal holds from here on."""

    def __init__(self, node):
        self._istiod = node.istiod
        self._before = len(node.istiod.journal())

    def records(self, event, **match):
        return [r for r in self._istiod.journal()[self._before:] if r['event'] == event
                and all(r.get(k) == v for k, v in match.items())]

    def pods(self):
        """Those whose stream was opened and accepted."""
        return {r['id'].split('~')[2] for r in self.records('node')}

    def refused(self):
        return self.records('refused', code='RESOURCE_EXHAUSTED')

    def stalled_s(self):
        """For how long istiod stood still: what came meanwhile came at once."""
        return sum(r['seconds'] for r in self.records('stalled'))

    def connections(self):
        return {r['peer'] for r in self.records('open') + self.records('csr-asked')}


@pytest.fixture
def crowd(node):
    node.istiod.set('all', clusters=[mesh._cluster('one', '127.0.0.1', 1)], listeners=[])
    node.istiod.order('limiter', per_second=LIMIT)
    node.agentd.plane['unread_stream_s'] = 1
    made = Crowd(node, PODS, ACCOUNTS)
    node.agentd.start()
    yield made
    made.stop()


def too_many(records, per_second=20, burst=5, slack_s=2):
    """Opens that came before the bucket (its defaults) had room for them, by the journal's clock, which stands still
    while a busy machine does something else; unpaced, all of them would come at once."""
    return [n for n, r in enumerate(records, 1) if n > burst + per_second * (r['time'] - records[0]['time'] + slack_s)]


def change(node, n):
    """Something that everybody is to hear."""
    node.istiod.set('all', clusters=[mesh._cluster(f'after-{n}', '127.0.0.1', 1)])


def wait_told(crowd, node, n, names=None):
    before = {name: c['ads'].get(CLUSTER, 0) for name, c in crowd.counts().items()}
    change(node, n)
    names = names or before.keys()

    def missing():
        counts = crowd.counts()
        return [name for name in names if counts[name]['ads'].get(CLUSTER, 0) <= before[name]]
    wait_for(f'change {n} to arrive', lambda: not missing())


def test_all_pods_at_once(crowd, node):
    seen = Since(node)
    crowd.start().wait_served()
    # agentd may have asked before this test looked.
    assert len(node.istiod.journal('csr-asked')) == len(node.istiod.issued()) == ACCOUNTS
    assert len(seen.connections()) <= 2
    assert len(seen.refused()) <= PODS * 5 // 100 + 20 * seen.stalled_s()
    assert len(seen.records('open')) == PODS + len(seen.refused())


@pytest.mark.parametrize('away_s', OUTAGES_S)
def test_istiod_goes_and_comes_back(crowd, node, away_s):
    crowd.start().wait_served()
    secrets = {name: c['sds'] for name, c in crowd.counts().items()}
    seen = Since(node)
    node.istiod.order('listen', on='nothing')
    time.sleep(away_s)
    assert not seen.records('open')
    node.istiod.order('listen', on='grpc')
    wait_for('all streams', lambda: len(seen.pods()) == PODS)
    wait_told(crowd, node, 1)
    # Held, not tried: each pod opened once, and istiod's limit was not met.
    assert len(seen.refused()) <= PODS * 5 // 100 + 20 * seen.stalled_s()
    opens = seen.records('open')
    assert len(opens) == PODS + len(seen.refused()) and not too_many(opens, slack_s=2 + seen.stalled_s())
    measured.append(f'{PODS} streams were back in {opens[-1]["time"] - opens[0]["time"]:.1f} s after {away_s} s without '
                    'istiod, at 20 a second')
    assert len(seen.connections()) <= 2
    # Certificates had nothing to do with it.
    assert not seen.records('csr-asked')
    assert {name: c['sds'] for name, c in crowd.counts().items()} == secrets


def test_goaway_moves_the_streams(crowd, node):
    crowd.start().wait_served()
    old = Since(node)
    node.istiod.order('goaway', grace=60)
    wait_for('all streams to have moved', lambda: len(old.pods()) == PODS)
    wait_told(crowd, node, 1)
    assert len(old.refused()) <= 20 * old.stalled_s() and len(old.records('open')) == PODS + len(old.refused())
    assert len(old.connections()) <= 2
    assert not old.records('csr-asked')


def test_stuck_envoys_do_not_stop_the_others(crowd, node):
    node.istiod.order('slots', count=SLOTS)
    crowd.start().wait_served()
    stuck, others = ([p['name'] for p in crowd.pods[a:b]] for a, b in ((0, STUCK), (STUCK, None)))
    crowd.stuck(*stuck)
    for n in range(6):
        for name in stuck:  # 2 MB for each of those who do not read
            node.istiod.set(f'demo.{name}', clusters=[
                mesh._cluster(f'{n}-{i}-' + 'x' * 100_000, '127.0.0.1', 1) for i in range(20)])
        wait_told(crowd, node, n, others)

    def said():
        return {x['pod'] for x in node.agentd.ctl('xds')['xds'] if 'unread' in x['ads']['why_not']}
    wait_for('agentctl to say why', lambda: said() == {f'demo/{name}' for name in stuck})
    crowd.stuck()
    before = {name: crowd.counts()[name]['opened'] for name in stuck}
    wait_for('the stuck ones to be back', lambda: all(crowd.counts()[n]['opened'] > b for n, b in before.items()))
    wait_told(crowd, node, 9)
