"""T8, T9, T37: one pod does its worst, and everybody else is served.  Full counts when AGENTD_SOAK=1."""
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from . import attacker, clients, mesh
from .conftest import measured, start_pair
from .crowd import CLUSTER, Crowd
from .node import MODE
from .run import wait_for

SOAK = bool(os.environ.get('AGENTD_SOAK'))
PODS, ATTACK_S = (247, 10) if SOAK else (30, 1)
SILENT_S = 1
# 32 MiB (pod_memory_mib), and what a flood of calls leaves behind until its connection is ended.
# AddressSanitizer keeps what is freed (256 MiB), and makes each thing larger.
GROWTH_MIB = 256 if MODE == 'release' else 1024


def memory_mib(pid, what):
    with open(f'/proc/{pid}/status', encoding='ascii') as f:
        return next(int(line.split()[1]) for line in f if line.startswith(what)) >> 10


def fds(pid):
    return len(os.listdir(f'/proc/{pid}/fd'))


def hits_of(page):
    return {x['name']: x['hits'] for x in page['limits'] if x['hits']}


def pages(node):
    return {p['uid']: p for p in node.agentd.ctl('pods')['pods']}


def ask_everybody(node, crowd, n):
    """Each of them hears of a change: as many answers as pods."""
    before = {name: c['ads'].get(CLUSTER, 0) for name, c in crowd.counts().items()}
    start = time.monotonic()
    node.istiod.set('all', clusters=[mesh._cluster(f'after-{n}', '127.0.0.1', 1)])
    wait_for(f'change {n} to arrive', lambda: all(
        c['ads'].get(CLUSTER, 0) > before[name] for name, c in crowd.counts().items()))
    return time.monotonic() - start


@pytest.fixture
def town(node):
    """A real pair of Envoys, many stand-ins, and one pod that is an attacker's."""
    node.istiod.order('limiter', per_second=200)
    node.agentd.settings.update(pod_silent_s=SILENT_S, log_level='info')
    node.agentd.plane.update(opens_per_second=200, opens_burst=200, unread_stream_s=2)
    crowd = Crowd(node, PODS, 5)
    bad = node.pod('bad')
    node.istiod.set(bad.id, clusters=[mesh._cluster(f'{i}-' + 'x' * 100_000, '127.0.0.1', 1) for i in range(11)])
    client, _server = start_pair(node)
    bad.wait_served()
    crowd.start().wait_served()
    yield node, crowd, bad, client
    crowd.stop()


def test_one_pod_does_its_worst(town):
    node, crowd, bad, client = town
    load = client.load(mesh.OUTBOUND)
    pid = node.agentd.worker_pid()
    bad.call(attacker.attack, 'garbage', bad.mount / 'socket', 0.05)  # its process is started
    before_fds, before_mib = fds(pid), memory_mib(pid, 'VmRSS')
    ended = {name: c['ended'] for name, c in crowd.counts().items()}
    quiet_s = ask_everybody(node, crowd, 'quiet')
    with ThreadPoolExecutor(1) as pool:
        for name in os.environ.get('AGENTD_ATTACKS', ','.join(attacker.ATTACKS)).split(','):
            path = bad.mount / ('XDS' if name == 'no_window' else 'socket')
            going = pool.submit(bad.call, attacker.attack, name, path, ATTACK_S)
            time.sleep(ATTACK_S / 4)
            took_s = ask_everybody(node, crowd, name)
            measured.append(f'{name}: {going.result(120)}; others told in {took_s:.2f} s ({quiet_s:.2f} s in '
                            f'quiet); RSS {memory_mib(pid, "VmRSS")} MiB; hits {hits_of(pages(node)[bad.uid])}')
    grown = memory_mib(pid, 'VmHWM') - before_mib
    hits = hits_of(pages(node)[bad.uid])
    measured.append(f'the worker grew by {grown} MiB at most')
    # Nobody but the attacker lost anything.
    assert node.agentd.worker_pid() == pid
    assert {name: c['ended'] for name, c in crowd.counts().items()} == ended
    answered = load.stop()
    assert answered['ok'] and not answered['failed'], answered
    assert {uid: hits_of(p) for uid, p in pages(node).items() if uid != bad.uid and hits_of(p)} == {}
    assert grown < GROWTH_MIB
    assert {'connections', 'requests', 'requests_burst', 'silent_connection', 'message'} <= hits.keys()
    # What it held is given back, and it is served like anybody as soon as it behaves.
    wait_for('the fds to be closed', lambda: fds(pid) <= before_fds + 2)
    wait_for('the attacker to be served', lambda: 'default' in bad.call(
        clients.fetch_secrets, bad.mount / 'socket', ['default'], 10))
