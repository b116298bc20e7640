"""What an app writes to its own Envoy goes from socket to socket, and as TCP would carry it (ebpf-redirect.md 12)."""
import itertools
import json
import os
import struct
from concurrent.futures import wait
from pathlib import Path

import pytest

from . import bpfmap, clients, lanes, mesh
from .conftest import measured
from .replacing import upgrade
from .run import sh, wait_for
from .test_redirect import captured_pair

SOAK = bool(os.environ.get('AGENTD_SOAK'))
BYTES, CONNECTIONS, KILLS = (10 << 30, 100_000, 200) if SOAK else (1 << 22, 60, 1)  # all, all, and upgrades, of agentd
LONG = pytest.mark.timeout(7200 if SOAK else 600)
PAUSE_S = 10
# What is tried here does not need what some kernels of 6.18 tell wrongly; test_fionread does.
ALLOW = 'permissive,exclusions,accelerate-no-fionread'


def counts(node, between=False):
    """Connections, bytes from socket to socket, bytes by TCP; with nobody there, too."""
    with bpfmap.Map(f'{bpfmap.pins(node.dir / "bpf")}/map_lane_rows', 4, 64) as m:
        rows = [struct.unpack('=8Q', value[:64]) for _, value in m.items()]
    return [sum(row[n + 3 * between] for row in rows) for n in range(3)]


def shown(node, what='loopback'):
    """What agentctl redirect says of that."""
    lane = node.agentd.ctl('redirect')['lanes'][what]
    return [lane[key] for key in ('connections', 'given', 'passed')]


def left(node):
    """What is in the maps of connections."""
    found = {}
    for name in 'givers', 'takers', 'taker_places':
        with bpfmap.Map(f'{bpfmap.pins(node.dir / "bpf")}/map_{name}', 64, 8) as m:
            found[name] = len(list(m.items()))
    return {name: n for name, n in found.items() if n}


def in_force(node, pod):
    rows = {r['pod']: r for r in node.agentd.ctl('redirect')['redirect']}
    row = rows[pod.label]
    if not row['in_force']:
        raise LookupError('the broker has not answered yet')  # for wait_for()
    return row['accelerate'], row['accelerated']


def go_on(node, soaking, another_mode, in_force_again):
    """agentd is killed, or replaced by another in place, each time with another mode, until all is soaked: how often each.
    What is asked for comes without a pause; the rest of the time is the connections'."""
    turns, order = {'kill': 0, 'upgrade': 0}, itertools.cycle(('kill', 'kill', 'upgrade', 'upgrade'))
    while min(turns.values()) < KILLS or wait(soaking, PAUSE_S).not_done:
        turn = next(order)  # with two or three modes: each change of them by both
        if turn == 'kill':
            node.agentd.kill()
        mode = another_mode()
        if turn == 'kill':
            node.agentd.start()
        else:
            upgrade(node)
        in_force_again(mode)
        turns[turn] += 1
    return turns


def say(turns, soaked, seen):
    """Nothing was wrong, it was as much as was asked for, and the programs saw it."""
    assert not [wrong for wrong, _, _ in soaked if wrong]
    size, connections = (sum(s[n] for s in soaked) for n in (1, 2))
    assert size >= BYTES and connections >= CONNECTIONS
    measured.append(f'{size >> 20} MiB read as they were written, {connections} connections of all kinds, {turns["kill"]} kills and '
                    f'{turns["upgrade"]} upgrades of agentd, each to another mode; accelerated: {seen[0]} connections, '
                    f'{seen[1] >> 20} MiB from socket to socket, {seen[2] >> 20} MiB by TCP')
    assert seen[0] and seen[1]


def pinned(node, pod):
    folder = Path(bpfmap.pins(node.dir / 'bpf')) / 'pods' / pod.uid
    return {p.name for p in folder.glob('*')} & {'redirect_meet', 'redirect_setsockopt'}


def maker(capturing, usual):
    """Makes a node whose agentd runs; `allow`: its --redirect-allow."""
    def make(allow=usual, **settings):
        node = capturing(mode='release') if SOAK else capturing()
        node.agentd.flags += ['--redirect-allow', allow]
        node.agentd.settings.update(settings)
        node.agentd.start()
        return node
    return make


@pytest.fixture
def make(capturing):
    return maker(capturing, ALLOW)


def furnish(pod):
    pod.wait_served()
    pod.netns.ip('addr', 'add', 'fd77::1/64', 'dev', 'eth0', 'nodad')
    sh(*pod.netns.command('sysctl', '-qw', 'net.ipv4.tcp_fastopen=3', 'net.ipv4.ip_unprivileged_port_start=0'))
    pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])
    return pod


def fast_pod(node, name='fast'):
    pod = furnish(node.pod(name, redirect={'accelerate': 'loopback'}))
    wait_for('acceleration', lambda: in_force(node, pod) == ('loopback', True))
    return pod


def test_stories(make):
    """Both pods tell the same; the one's bytes went from socket to socket, the other's did not."""
    node = make()
    fast, plain = fast_pod(node), furnish(node.pod('plain'))
    assert in_force(node, plain) == ('off', False) and not pinned(node, plain)
    different = {}
    for way in lanes.WAYS:
        for name in lanes.STORIES:
            told = [f.result(120) for f in [pod.submit(lanes.tell, name, way) for pod in (fast, plain)]]
            if told[0] != told[1]:
                different[name, way] = told
    assert not different, '\n'.join(f'{at}: accelerated {a}, without {b}' for at, (a, b) in different.items())
    met, given, _ = counts(node)
    assert met > len(lanes.WAYS) * lanes.MANY and given > 1 << 20
    assert shown(node) == counts(node) and shown(node, 'between') == [0, 0, 0]
    assert node.agentd.metric('agentd_redirect_accelerated_connections_total', 'between="app_and_envoy"') == met
    # What is different, and stays so (docs/LIMITS.md).
    told = [[pod.call(f) for f in (lanes.refused, lanes.urgent, lanes.unread_end)] for pod in (fast, plain)]
    assert told[0] == [(1, 'ENOTSUP', 'ENOENT'), b'ab!cd', b'']
    assert told[1][1:] == [b'abcd', 'ECONNRESET'] and told[1][0][:2] == (0, None)
    assert not left(node)


def test_fionread(make):
    """A kernel that tells apps wrongly is not asked, unless the word says so; and nothing else is refused."""
    node = make(allow='accelerate')
    pod = furnish(node.pod('pod', redirect={'accelerate': 'loopback'}))
    wait_for('redirection', lambda: node.agentd.ctl('redirect')['redirect'][0]['in_force'])
    possible = 'no pod\'s traffic is accelerated' not in node.agentd.log.read_text()
    assert in_force(node, pod) == ('loopback', possible)
    assert pod.call(lanes.waiting) == 5
    if not possible:
        assert 'ioctl(FIONREAD)' in node.agentd.log.read_text() and not pinned(node, pod)


def test_ceiling(make):
    """Without the word no pod is accelerated, whatever it or the worker says."""
    node = make(allow='permissive,exclusions')
    pod = node.pod('pod', annotations={'agentd.node.mesh/redirectAccelerate': 'loopback'})
    wait_for('the refusal', lambda: 'does not allow acceleration (--redirect-allow)' in node.agentd.log.read_text())
    assert not pinned(node, pod)
    pod.write_manifest(annotations={'agentd.node.mesh/redirectAccelerate': 'yes'})
    wait_for('the other', lambda: 'off, loopback or node' in node.agentd.log.read_text())


def test_mode_changes_and_agentd_with_it(make):
    """A connection goes on as it began; new ones go as the pod says now; whoever is there or not."""
    node = make(redirect_accelerate='loopback')
    pod = furnish(node.pod('pod'))
    wait_for('acceleration', lambda: in_force(node, pod) == ('loopback', True))
    pod.call(lanes.keep, 'fast')
    for step, wanted in (('off', 'off'), ('kill', 'off'), ('loopback', 'loopback'), ('kill', 'loopback'), ('without', 'loopback')):
        if step == 'kill':
            node.agentd.kill()
            node.agentd.start()
        elif step == 'without':  # a broker that accelerates nothing
            node.agentd.stop()
            node.agentd.flags[node.agentd.flags.index(ALLOW)] = 'permissive,exclusions'
            node.agentd.start()
            wait_for('the links to go', lambda: not pinned(node, pod))
        else:
            pod.write_manifest(redirect={'accelerate': step})
            wait_for(step, lambda: in_force(node, pod) == (wanted, step != 'off'))
        before = counts(node)
        assert pod.call(lanes.talk_on, 'fast')
        after = counts(node)
        assert after[1] + after[2] - before[1] - before[2] == lanes.WORDS, 'as it began'
        assert pod.call(lanes.tell, 'streams', 'outbound') == [True, True]
        assert (counts(node)[0] > after[0]) == (wanted == 'loopback' and step != 'without')
    pod.call(lanes.let_go, 'fast')
    assert not left(node)


@LONG
def test_every_kind_whatever_happens_to_agentd(make):
    """Bytes and connections of all kinds, while agentd dies, comes back, and turns acceleration on and off."""
    node = make()
    fast = [fast_pod(node, f'fast{n}') for n in range(2)]
    soaking = [p.submit(lanes.soak, n, BYTES // 2, CONNECTIONS // 2) for n, p in enumerate(fast)]
    modes = itertools.cycle(('off', 'loopback'))

    def another_mode():
        mode = next(modes)
        for pod in fast:
            pod.write_manifest(redirect={'accelerate': mode})
        return mode

    def in_force_again(mode):
        for pod in fast:
            wait_for(mode, lambda pod=pod, mode=mode: in_force(node, pod) == (mode, mode != 'off'))
    turns = go_on(node, soaking, another_mode, in_force_again)
    say(turns, [f.result() for f in soaking], counts(node))
    wait_for('the maps to be empty', lambda: not left(node))  # of connections that ended while it was off the next audit sweeps


def test_somebody_takes_links_away(make):
    node = make()
    pod = fast_pod(node)
    folder = Path(bpfmap.pins(node.dir / 'bpf'))
    (folder / 'pods' / pod.uid / 'redirect_meet').unlink()
    (folder / 'map_takers').unlink()
    wait_for('both to be back', lambda: pinned(node, pod) == {'redirect_meet', 'redirect_setsockopt'} and
             (folder / 'map_takers').exists())
    assert pod.call(lanes.tell, 'files', 'outbound')
    assert counts(node)[1] > 0


def ids(folder, *names):
    return {json.loads(sh('bpftool', '-j', 'map', 'show', 'pinned', folder / f'map_{name}'))['id'] for name in names}


def test_uninstalled_under_way(make):
    """What is on its way arrives, however late it is read; connections end as they began, and then nothing is left."""
    node = make()
    pod = fast_pod(node)
    pod.call(lanes.keep, 'one')
    before = counts(node)[1]
    pod.call(lanes.leave_unread, 'one')
    assert counts(node)[1] - before == lanes.UNREAD * lanes.WORDS
    folder = Path(bpfmap.pins(node.dir / 'bpf'))
    lanes_maps, others = ids(folder, 'givers', 'takers'), ids(folder, 'homes', 'pods', 'ports')
    node.agentd.stop()
    sh(*node.agentd.program('agentd'), '--redirect-uninstall', '--bpffs', node.dir / 'bpf')

    def there(some):
        return some & {m['id'] for m in json.loads(sh('bpftool', '-j', 'map', 'show'))}
    wait_for('the kernel to forget what nobody uses', lambda: not there(others))
    assert there(lanes_maps) == lanes_maps
    assert pod.call(lanes.read_unread, 'one')
    assert pod.call(lanes.talk_on, 'one')
    pod.call(lanes.let_go, 'one')
    wait_for('the kernel to forget the rest', lambda: not there(lanes_maps))


@LONG
def test_real_envoys(make):
    """Through two of them, whatever happens to agentd: every byte, none twice."""
    node = make(redirect_accelerate='loopback')
    client, server = captured_pair(node)
    wait_for('the first answer', lambda: client.call(clients.get_json, f'http://{server.ip}:{mesh.APP}/')[0] == 200)
    wait_for('acceleration', lambda: all(in_force(node, p) == ('loopback', True) for p in (client, server)))
    before = counts(node)
    load = client.load(mesh.APP, server.ip)
    for n in range(200 if SOAK else 3):
        load.more(20)
        node.agentd.kill()
        load.more(20)
        node.agentd.settings['redirect_accelerate'] = 'off' if n % 2 else 'loopback'
        node.agentd.start()
    load.more(50)
    said = load.stop()
    assert said['failed'] == 0, said
    after = counts(node)
    assert after[0] > before[0] and after[1] > before[1]
    for envoy in client, server:
        envoy.envoy.kill()
    wait_for('the maps to be empty', lambda: not left(node))
