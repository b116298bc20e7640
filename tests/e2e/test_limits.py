"""threats-and-faults.md T8, T9, T37: one pod does its worst, and everybody else is served.  Full counts when AGENTD_SOAK=1."""
import contextlib
import json
import os
import shutil
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from . import attacker, clients, mesh, strangers
from .conftest import measured, start_pair
from .crowd import CLUSTER, Crowd
from .node import MODE
from .run import PATIENCE_S, wait_for
from .strangers import Place

SOAK = bool(os.environ.get('AGENTD_SOAK'))
PODS, ATTACK_S = (247, 10) if SOAK else (30, 1)
CYCLES, ATTACKERS, XDS_MIB = (10_000, 50, 200) if SOAK else (300, 10, 0)
SILENT_S = 2
# 32 MiB (pod_memory_mib), 16 MiB of streams (pod_requests_burst), and what malloc keeps between them.
# AddressSanitizer keeps what is freed (256 MiB), and makes each thing larger.
GROWTH_MIB = 64 if MODE == 'release' else 1024
EACH_MIB = 16 if MODE == 'release' else 256  # of many attackers at once


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
    """Until its limit is met everybody is asked; what the attacker met."""
    pid, stop = node.agentd.worker_pid(), node.dir / f'{name}.stop'
    path = pod.mount / ('XDS' if name == 'no_window' else 'socket')
    pod.call(attacker.attack, 'garbage', path, 0)  # its process is started
    quiet_s = ask_everybody(node, crowd, f'{name}-before')

    def met():
        hits = hits_of(pages(node)[pod.uid])
        return MET[name] in hits and hits
    with ThreadPoolExecutor(1) as pool:
        end = time.monotonic() + ATTACK_S
        going = pool.submit(pod.call, attacker.attack, name, path, 2 * PATIENCE_S if name in MET else ATTACK_S, stop)
        try:
            time.sleep(ATTACK_S / 4)
            took_s = ask_everybody(node, crowd, name)
            hits = wait_for(f'{name} to meet {MET[name]}', met) if name in MET else {}
            time.sleep(max(0, end - time.monotonic()))
        finally:
            stop.touch()
        counts = going.result(2 * PATIENCE_S)
    measured.append(f'{name}: {counts}; others told in {took_s:.2f} s ({quiet_s:.2f} s before); '
                    f'RSS {memory_mib(pid, "VmRSS")} MiB; {hits}')


# What each must have met; the rest ends in grpc core itself.
MET = {'large_message': 'message', 'silent': 'silent_connection', 'byte_by_byte': 'silent_connection',
       'message_flood': 'requests', 'stream_flood': 'streams',
       **dict.fromkeys(('header_bomb', 'endless_continuation', 'references', 'small_references'), 'headers'),
       **dict.fromkeys(('reset_flood', 'ping_flood', 'ping_flood_unread', 'settings_flood', 'empty_data'), 'frames')}


def test_one_pod_does_its_worst(town):
    node, crowd, bad, client = town
    load = client.load(mesh.OUTBOUND)
    pid = node.agentd.worker_pid()
    before_fds, before_mib = fds(pid), memory_mib(pid, 'VmRSS')
    before_hits = {uid: hits_of(p) for uid, p in pages(node).items()}
    ended = {name: c['ended'] for name, c in crowd.counts().items()}
    for name, pod in bad.items():
        attack(node, crowd, pod, name)
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
    assert {uid: h for uid, p in pages(node).items() if uid not in attackers and (h := hits_of(p)) != before_hits[uid]} == {}
    # Besides the channel that a client, back to good manners, may keep, and the pidfd of its process.
    wait_for('the fds to be closed', lambda: fds(pid) <= before_fds + 3 * len(bad))
    wait_for('the streams to be gone', lambda: not [
        p['name'] for p in pages(node).values() if p['uid'] in attackers
        and in_use(p, 'streams') + max(0, in_use(p, 'connections') - 1)])


def test_few_fds(node):
    """At the end of the fds who is there stays, who comes is refused politely, and it passes by itself."""
    node.agentd.settings.update(pod_connections=256, pod_silent_s=600, pod_requests_burst=1000)
    node.agentd.around = ['prlimit', '--nofile=512:512']
    greedy, other = node.pod('greedy'), node.pod('other')
    node.agentd.start()
    for pod in (greedy, other):
        pod.wait_served()
    pid = node.agentd.worker_pid()
    greedy.call(attacker.attack, 'garbage', greedy.mount / 'socket', 0)
    enough = node.dir / 'enough'
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(greedy.call, attacker.attack, 'hoard', greedy.mount / 'socket', 3 * PATIENCE_S, enough)
        wait_for('the fds to be short', lambda: hits_of(pages(node)[greedy.uid]).get('node_fds'))

        def rests():
            before = cpu_s(pid)
            time.sleep(1)
            return cpu_s(pid) - before < 0.5
        wait_for('nothing to spin', rests)
        assert fds(pid) < 512
        assert node.agentd.ctl('status')
        enough.touch()
        going.result(PATIENCE_S)
    assert 'default' in other.call(clients.fetch_secrets, other.mount / 'socket', ['default'])


def test_many_do_their_worst(node):
    """The sum is what each may have, once: nobody's memory stays, and who behaves is served."""
    names = ('huge_message', 'reset_flood', 'header_bomb', 'no_window', 'empty_data')
    bad = [node.pod(f'bad-{n}') for n in range(ATTACKERS)]
    good = node.pod('good')
    node.agentd.settings.update(log_level='info')
    node.agentd.start()
    for pod in (*bad, good):
        pod.wait_served()
        pod.call(attacker.attack, 'garbage', pod.mount / 'socket', 0)
    pid = node.agentd.worker_pid()
    before_mib = memory_mib(pid, 'VmRSS')
    going = [p.submit(attacker.attack, names[n % len(names)], p.mount / 'socket', 3) for n, p in enumerate(bad)]
    for _ in range(5):
        assert 'default' in good.call(clients.fetch_secrets, good.mount / 'socket', ['default'])
    for g in going:
        g.result(120)
    grown = memory_mib(pid, 'VmHWM') - before_mib
    measured.append(f'{ATTACKERS} attackers at once: {grown} MiB more at the peak, '
                    f'{memory_mib(pid, "VmRSS") - before_mib} MiB afterwards')
    assert grown < ATTACKERS * EACH_MIB
    assert node.agentd.worker_pid() == pid
    assert hits_of(pages(node)[good.uid]) == {}


def test_strangers_use_up_nothing_of_the_pods(node):
    """threats-and-faults.md T37: another pod that reaches the socket, as by a hostPath, connects without a pause."""
    victim, other = node.pod('victim'), node.pod('other')
    node.agentd.start()
    for pod in (victim, other):
        pod.wait_served()
    path = victim.mount / 'socket'
    with ThreadPoolExecutor(3) as pool, contextlib.ExitStack() as places:
        going = [pool.submit(places.enter_context(Place(other.cgroup, other.netns.path)).call,
                             strangers.refused, path, 500) for _ in range(3)]
        while not all(g.done() for g in going):
            assert 'default' in victim.call(clients.fetch_secrets, path, ['default'])
        assert [g.result() for g in going] == [0, 0, 0]
    page = pages(node)[victim.uid]
    assert hits_of(page) == {}
    assert sum(page['sockets']['refused_by'].values()) == 1500


@contextlib.contextmanager
def memory_limit(node, mib):
    """Of agentd, where the kernel lets us (either version of cgroups); whether it does."""
    v1 = Path('/sys/fs/cgroup/memory')
    if (node.agentd.cgroup.path / 'memory.max').exists():
        (node.agentd.cgroup.path / 'memory.max').write_text(str(mib << 20))
        yield True
    elif (v1 / 'memory.limit_in_bytes').exists() and os.access(v1, os.W_OK):
        made = v1 / f'{node.name}.memory'
        made.mkdir()
        (made / 'memory.limit_in_bytes').write_text(str(mib << 20))
        for pid in node.agentd.cgroup.pids():
            with contextlib.suppress(ProcessLookupError):  # a child of the broker's, which has closed its descriptor
                (made / 'cgroup.procs').write_text(str(pid))

        def left():  # a worker may be born meanwhile
            for pid in (made / 'cgroup.procs').read_text().split():
                (v1 / 'cgroup.procs').write_text(pid)
            made.rmdir()
            return True
        try:
            yield True
        finally:
            wait_for('the limit to hold nobody', left)
    else:
        yield False


if SOAK:  # the control plane of the tests takes a minute for it
    def test_a_pod_with_far_too_much_configuration(make_node):
        """It does not get it, nobody else feels it, and agentd lives, within a limit of its memory, too.

        The release build: a sanitizer takes more than the limit by itself."""
        node = make_node(mode='release')
        large, other = node.pod('large'), node.pod('other')
        node.istiod.set(large.id, clusters=[
            mesh._cluster(f'large-{i}', '127.0.0.1', 1, alt_stat_name='x' * (XDS_MIB << 18)) for i in range(4)])
        node.agentd.start()
        for pod in (large, other):
            pod.wait_served()
        pid = node.agentd.worker_pid()
        before_mib = memory_mib(pid, 'VmRSS')
        ask = attacker.request(CLUSTER.removeprefix('type.googleapis.com/envoy.'))
        with memory_limit(node, 512):
            going = large.submit(clients.ads, large.mount / 'XDS', [ask])
            wait_for('istiod to be refused', lambda: 'larger than max' in json.dumps(node.agentd.ctl('xds')))
            assert other.call(clients.ads, other.mount / 'XDS', [ask]) == ['answered']
            for pod in (other, large):
                assert 'default' in pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])
            peak_mib = memory_mib(pid, 'VmHWM') - before_mib
            large.remove_manifest()
            assert going.result(120) != ['answered']
        measured.append(f'{XDS_MIB} MiB of XDS: {peak_mib} MiB more at the peak')
        assert node.agentd.worker_pid() == pid
        # grpc 1.51 judges a message when it is whole.
        assert peak_mib < XDS_MIB + GROWTH_MIB


class Ledger:
    """What agentd's two processes hold."""

    def __init__(self, node):
        self.pids = [node.agentd.process.pid, node.agentd.worker_pid()]  # not those that the broker has for a moment
        self.mib = {p: memory_mib(p, 'VmRSS') for p in self.pids}
        self.fds = {p: fds(p) for p in self.pids}
        self.threads = {p: len(os.listdir(f'/proc/{p}/task')) for p in self.pids}


def come_and_go(node, n, of=75):
    """n pods, some at a time: each gets its sockets, and is removed."""
    for _ in range(0, n, of):
        uids = [str(uuid.uuid4()) for _ in range(of)]
        for i, uid in enumerate(uids):
            folder = node.agentd.manifests / uid
            folder.mkdir(mode=0o700)
            (folder / 'token').write_text(node.istiod.tokens.issue('demo', 'churn', f'churn-{i}', uid) + '\n')
            new = folder.with_suffix('.new')
            new.write_text(f'{{uid: {uid}, name: churn-{i}, namespace: demo, service_account: churn}}')
            new.rename(folder.with_suffix('.yaml'))
        mounts = [node.agentd.run / 'pods' / uid / 'mount' for uid in uids]
        wait_for('the sockets', lambda m=mounts: all((d / 'XDS').exists() and (d / 'socket').exists() for d in m))
        for uid in uids:
            (node.agentd.manifests / f'{uid}.yaml').unlink()
            shutil.rmtree(node.agentd.manifests / uid)
        wait_for('them to be gone', lambda m=mounts: not any(d.parent.exists() for d in m))


def test_nothing_piles_up(make_node):
    """Pods come and go, connections come and go; in the end they take no more than before.

    The release build: a sanitizer keeps what was freed."""
    node = make_node(mode='release')
    node.agentd.settings.update(log_level='info', pod_requests_per_second=10_000, pod_requests_burst=100_000,
                                pods_requests_per_second=1_000_000)
    steady = node.pod('steady')
    node.agentd.start()
    steady.wait_served()
    path = steady.mount / 'socket'

    def half(n):
        come_and_go(node, n)
        assert steady.call(attacker.reconnects, path, n) == n
        wait_for('the connections to be closed', lambda: in_use(pages(node)[steady.uid], 'connections') == 0)
    half(75)  # what is made once is there
    first = Ledger(node)
    half(CYCLES // 2)
    middle = Ledger(node)
    half(CYCLES // 2)

    def as_few():
        """grpc's pool takes another thread when all of them are busy, up to some number; the pidfd of the last
        connection stays until the next one comes."""
        now = Ledger(node)
        return now if all(now.threads[p] <= middle.threads[p] + 4 and now.fds[p] <= middle.fds[p] + 1
                          for p in now.pids) else None
    last = wait_for(f'no more threads and descriptors than {middle.threads}, {middle.fds}', as_few)
    ledgers = first, middle, last
    measured.append(f'{CYCLES} pods, {CYCLES} reconnects: RSS {[sum(l.mib.values()) for l in ledgers]} MiB, '
                    f'fds {[sum(l.fds.values()) for l in ledgers]}')
    # Freed memory goes back when it is quiet for long enough, which may be before any of the three looks.
    assert all(last.mib[p] - max(first.mib[p], middle.mib[p]) <= 2 for p in last.pids)
