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
# 32 MiB (pod_memory_mib), 16 MiB of streams (pod_requests_burst), and what malloc keeps between them.
# AddressSanitizer keeps what is freed (256 MiB), and makes each thing larger.
GROWTH_MIB = 64 if MODE == 'release' else 1024


def memory_mib(pid, what):
    with open(f'/proc/{pid}/status', encoding='ascii') as f:
        return next(int(line.split()[1]) for line in f if line.startswith(what)) >> 10


def fds(pid):
    return len(os.listdir(f'/proc/{pid}/fd'))


def cpu_s(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii') as f:
        return sum(map(int, f.read().rsplit(')', 1)[1].split()[11:13])) / os.sysconf('SC_CLK_TCK')


def hits_of(page):
    return {x['name']: x['hits'] for x in page['limits'] if x['hits']}


def in_use(page, limit):
    return next(x['in_use'] for x in page['limits'] if x['name'] == limit)


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
    """A real pair of Envoys, many stand-ins, and for each attack a pod."""
    node.istiod.order('limiter', per_second=200)
    node.agentd.settings.update(pod_silent_s=SILENT_S, log_level='info')
    node.agentd.plane.update(opens_per_second=200, opens_burst=200, unread_stream_s=2)
    crowd = Crowd(node, PODS, 5)
    bad = {name: node.pod(name.replace('_', '-')) for name in attacker.ATTACKS}
    client, _server = start_pair(node)
    node.istiod.set(bad['no_window'].id, clusters=[
        mesh._cluster(f'{i}-' + 'x' * 100_000, '127.0.0.1', 1) for i in range(11)])
    for pod in bad.values():
        pod.wait_served()
    crowd.start().wait_served()
    yield node, crowd, bad, client
    crowd.stop()


def attack(node, crowd, pod, name):
    """Meanwhile everybody is asked; what the attacker met."""
    pid = node.agentd.worker_pid()
    path = pod.mount / ('XDS' if name == 'no_window' else 'socket')
    pod.call(attacker.attack, 'garbage', path, 0)  # its process is started
    quiet_s = ask_everybody(node, crowd, f'{name}-before')
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(pod.call, attacker.attack, name, path, ATTACK_S)
        time.sleep(ATTACK_S / 4)
        took_s = ask_everybody(node, crowd, name)
        counts = going.result(120)
    hits = hits_of(pages(node)[pod.uid])
    measured.append(f'{name}: {counts}; others told in {took_s:.2f} s ({quiet_s:.2f} s before); '
                    f'RSS {memory_mib(pid, "VmRSS")} MiB; {hits}')
    return hits


# What each must have met; the rest ends in grpc core itself.
MET = {'large_message': 'message', 'silent': 'silent_connection', 'message_flood': 'requests',
       **dict.fromkeys(('reset_flood', 'stream_flood', 'header_bomb', 'endless_continuation', 'ping_flood',
                        'ping_flood_unread', 'settings_flood', 'empty_data'), 'frames')}


def test_one_pod_does_its_worst(town):
    node, crowd, bad, client = town
    load = client.load(mesh.OUTBOUND)
    pid = node.agentd.worker_pid()
    before_fds, before_mib = fds(pid), memory_mib(pid, 'VmRSS')
    ended = {name: c['ended'] for name, c in crowd.counts().items()}
    for name, pod in bad.items():
        hits = attack(node, crowd, pod, name)
        assert MET.get(name, 'nothing') in {'nothing', *hits}, (name, hits)
        # It is served like anybody as soon as it behaves.
        wait_for(f'{name} to be forgiven', lambda p=pod: 'default' in p.call(
            clients.fetch_secrets, p.mount / 'socket', ['default'], 10))
        assert memory_mib(pid, 'VmHWM') - before_mib < GROWTH_MIB, name
    # Nobody but the attackers lost anything.
    assert node.agentd.worker_pid() == pid
    assert {name: c['ended'] for name, c in crowd.counts().items()} == ended
    answered = load.stop()
    assert answered['ok'] and not answered['failed'], answered
    attackers = {p.uid for p in bad.values()}
    assert {uid: hits_of(p) for uid, p in pages(node).items() if uid not in attackers and hits_of(p)} == {}
    # Besides the channel that a client, back to good manners, may keep, and the pidfd of its process.
    wait_for('the fds to be closed', lambda: fds(pid) <= before_fds + 3 * len(bad))
    assert not [p['name'] for p in pages(node).values() if p['uid'] in attackers
                and in_use(p, 'streams') + max(0, in_use(p, 'connections') - 1)]


def test_few_fds(node):
    """R16: at the end of the fds who is there stays, who comes is refused politely, and it passes by itself."""
    node.agentd.settings.update(pod_connections=256, pod_silent_s=600, pod_requests_burst=1000)
    node.agentd.around = ['prlimit', '--nofile=512:512']
    greedy, other = node.pod('greedy'), node.pod('other')
    node.agentd.start()
    for pod in (greedy, other):
        pod.wait_served()
    pid = node.agentd.worker_pid()
    greedy.call(attacker.attack, 'garbage', greedy.mount / 'socket', 0)
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(greedy.call, attacker.attack, 'hoard', greedy.mount / 'socket', 3)
        wait_for('the fds to be short', lambda: hits_of(pages(node)[greedy.uid]).get('node_fds'))
        before = cpu_s(pid)
        time.sleep(1)
        assert cpu_s(pid) - before < 0.5  # nothing spins
        assert fds(pid) < 512
        assert node.agentd.ctl('status')
        going.result(60)
    assert 'default' in other.call(clients.fetch_secrets, other.mount / 'socket', ['default'], 30)
