"""Between two Envoys of a node what they write goes from socket to socket, and as TCP would carry it (ebpf-redirect.md 12)."""
import itertools

import pytest

from . import bpfmap, clients, lanes, mesh
from .run import sh, wait_for
from .test_accelerate import BYTES, CONNECTIONS, LONG, SOAK, go_on, left, maker, say, shown
from .test_accelerate import counts as counts_of
from .test_redirect import captured_pair

ALLOW = 'permissive,exclusions,accelerate-no-fionread,accelerate-node'


def counts(node):
    """Connections, bytes from socket to socket, bytes by TCP: between Envoys."""
    return counts_of(node, between=True)


def homes(node):
    with bpfmap.Map(f'{bpfmap.pins(node.dir / "bpf")}/map_homes', 16, 4) as m:
        return len(list(m.items()))


def between(node, pod):
    row = {r['pod']: r for r in node.agentd.ctl('redirect')['redirect']}[pod.label]
    if not row['in_force']:
        raise LookupError('the broker has not answered yet')  # for wait_for()
    return row['accelerate'] == 'node' and row['accelerated'] and row['between']


@pytest.fixture
def make(capturing):
    return maker(capturing, ALLOW)


def furnished(node, name, mode, **redirect):
    """IPv4 only: each pod of the test has one address."""
    pod = node.pod(name, redirect={'accelerate': mode, **redirect})
    pod.wait_served()
    sh(*pod.netns.command('sysctl', '-qw', 'net.ipv4.tcp_fastopen=3', 'net.ipv4.ip_unprivileged_port_start=0'))
    pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])
    return pod


def acquaint(one, other, envoy=True):
    """`one` has both ends of its connections to `other`."""
    folder = other.dir / 'handed'
    folder.mkdir()
    other.call(lanes.hand_over, str(folder), envoy)
    one.call(lanes.meet, other.ip, folder)


def two(node, mode, name):
    pods = [furnished(node, f'{name}-{n}', mode) for n in range(2)]
    acquaint(*pods)
    if mode == 'node':
        wait_for('both', lambda: all(between(node, p) for p in pods))
    return pods


def test_stories(make):
    """Two pairs of pods tell the same; the one's bytes went from socket to socket, the other's did not."""
    node = make()
    fast, plain = (two(node, mode, name)[0] for mode, name in (('node', 'fast'), ('off', 'plain')))
    assert homes(node) == 2
    different = {}
    for way, names in lanes.STORIES_BETWEEN.items():
        for name in sorted(names):
            told = [f.result(120) for f in [pod.submit(lanes.tell, name, way) for pod in (fast, plain)]]
            if told[0] != told[1]:
                different[name, way] = told
    assert not different, '\n'.join(f'{at}: accelerated {a}, without {b}' for at, (a, b) in different.items())
    met, given, _ = counts(node)
    assert met > 2 * lanes.MANY and given > 4 << 20
    assert shown(node, 'between') == counts(node)
    # What is different, and stays so (docs/LIMITS.md).
    told = [[pod.call(f, 'there') for f in (lanes.urgent, lanes.unread_end)] for pod in (fast, plain)]
    assert told == [[b'ab!cd', b''], [b'abcd', 'ECONNRESET']]
    assert not left(node)


def talk(node, pod, name):
    """How many bytes of a connection that is kept went which way."""
    before = counts(node)
    assert pod.call(lanes.talk_on, name)
    return [b - a for a, b in zip(before, counts(node))][1:]


def met(node, pod):
    """Connections that two ends were seen of, of one that is new."""
    before = counts(node)[0]
    assert pod.call(lanes.tell, 'peeks', 'there') == [b'hel', b'hello', b'helloworld']
    return counts(node)[0] - before


def test_both_pods_must_ask(make):
    node = make()
    one, other = two(node, 'node', 'pod')
    assert met(node, one) == 1
    other.write_manifest(redirect={'accelerate': 'loopback'})
    wait_for('the other to be without', lambda: not between(node, other))
    assert homes(node) == 1 and met(node, one) == 0
    other.write_manifest(redirect={'accelerate': 'node'})
    wait_for('it again', lambda: between(node, other))
    assert met(node, one) == 1
    one.write_manifest(redirect={'accelerate': 'off'})
    wait_for('the one to be without', lambda: homes(node) == 1)
    assert met(node, one) == 0 and not left(node)


def test_only_envoys(make):
    """An app that goes past its Envoy may read as it likes: its connection is as without."""
    node = make()
    other = furnished(node, 'other', 'node')
    one = furnished(node, 'one', 'node', istio_service_exclude_cidr=f'{other.ip}/32')
    acquaint(one, other)
    wait_for('both', lambda: all(between(node, p) for p in (one, other)))
    assert met(node, one) == 1
    before = counts(node)
    assert one.call(lanes.tell, 'apps_habits', 'past') == (7, b'spliced', False, b'6', b'12345')
    assert one.call(lanes.tell, 'streams', 'past') == [True, True]
    assert counts(node)[:2] == before[:2] and not left(node)


def test_an_address_of_two_pods_is_nobodys(make):
    """Whoever takes another pod's address gets nothing of it, and stops what is past the packets."""
    node = make()
    one, other = two(node, 'node', 'pod')
    third = furnished(node, 'third', 'off')
    assert met(node, one) == 1
    third.netns.ip('addr', 'flush', 'dev', 'eth0')
    third.netns.ip('addr', 'add', f'{other.ip}/32', 'dev', 'eth0')
    wait_for('nobody to have it', lambda: homes(node) == 1)
    assert met(node, one) == 0
    third.remove_manifest()
    wait_for('the other to have it again', lambda: homes(node) == 2)
    assert met(node, one) == 1


def test_ceiling(make):
    """Without the word no network policy is passed, whatever a pod or the worker says."""
    node = make(allow='permissive,exclusions,accelerate-no-fionread')
    pod = node.pod('pod', annotations={'agentd.node.mesh/redirectAccelerate': 'node'})
    wait_for('the refusal', lambda: 'accelerate-node (--redirect-allow)' in node.agentd.log.read_text())
    row, = node.agentd.ctl('redirect')['redirect']
    assert row['accelerate'] == 'node' and not row['accelerated'] and not row['between']
    pod.write_manifest(annotations={'agentd.node.mesh/redirectAccelerate': 'loopback'})
    wait_for('what is allowed', lambda: node.agentd.ctl('redirect')['redirect'][0]['accelerated'])


def test_mode_changes_and_agentd_with_it(make):
    """A connection goes on as it began; new ones go as the pod says now; whoever is there or not."""
    node = make(redirect_accelerate='node')
    one, other = two(node, 'node', 'pod')
    one.call(lanes.keep, 'fast', 'there')
    for step in 'off', 'kill', 'loopback', 'kill', 'node', 'kill', 'without':
        if step == 'kill':
            node.agentd.kill()
            assert talk(node, one, 'fast') == [2 * lanes.WORDS, 0], 'with nobody there'
            node.agentd.start()
        elif step == 'without':  # a broker that accelerates nothing
            node.agentd.stop()
            node.agentd.flags[node.agentd.flags.index(ALLOW)] = 'permissive,exclusions,accelerate-no-fionread'
            node.agentd.start()
            wait_for('the rows to go', lambda: homes(node) == 0)
        else:
            other.write_manifest(redirect={'accelerate': step})
            wanted = step
            wait_for(step, lambda wanted=wanted: between(node, other) == (wanted == 'node'))
        assert talk(node, one, 'fast') == [2 * lanes.WORDS, 0], 'as it began'
        assert one.call(lanes.tell, 'streams', 'there') == [True, True]
        assert met(node, one) == (wanted == 'node' and step != 'without')
    one.call(lanes.let_go, 'fast')
    assert not left(node)


@LONG
def test_every_kind_whatever_happens_to_agentd(make):
    """Bytes and connections of all kinds, while agentd dies, comes back, and turns acceleration on and off."""
    node = make()
    one, other = two(node, 'node', 'pod')
    soaking = one.submit(lanes.soak, 1, BYTES, CONNECTIONS, ('there', 'back'))
    modes = itertools.cycle(('off', 'node', 'loopback'))

    def another_mode():
        mode = next(modes)
        other.write_manifest(redirect={'accelerate': mode})
        return mode

    def in_force_again(mode):
        wait_for(mode, lambda: between(node, one) and between(node, other) == (mode == 'node'))
    turns = go_on(node, [soaking], another_mode, in_force_again)
    say(turns, [soaking.result()], counts(node))
    wait_for('the maps to be empty', lambda: not left(node))  # of connections that ended while it was off the next audit sweeps


@LONG
def test_real_envoys(make):
    """Over mTLS, whatever happens to agentd: no request fails."""
    node = make(redirect_accelerate='node')
    client, server = captured_pair(node)
    node.istiod.set(client.id, **mesh.captured_client(server, requests_per_connection=10))
    wait_for('the first answer', lambda: client.call(clients.get_json, f'http://{server.ip}:{mesh.APP}/')[0] == 200)
    wait_for('acceleration', lambda: all(between(node, p) for p in (client, server)))
    before = counts(node)
    load = client.load(mesh.APP, server.ip)
    for n in range(200 if SOAK else 3):
        load.more(20)
        node.agentd.kill()
        load.more(20)
        node.agentd.settings['redirect_accelerate'] = ('off', 'node', 'loopback')[n % 3]
        node.agentd.start()
    load.more(50)
    said = load.stop()
    assert said['failed'] == 0, said
    after = counts(node)
    assert after[0] > before[0] and after[1] > before[1]
    for envoy in client, server:
        envoy.envoy.kill()
    wait_for('the maps to be empty', lambda: not left(node))


def test_through_real_envoys(make):
    """Plain TCP from app to app: streams, readers that are stuck, half-closed ends; an Envoy that is killed."""
    node = make(redirect_accelerate='node')
    one, other = (node.pod(name) for name in ('one', 'other'))
    for pod in one, other:
        node.istiod.set(pod.id, **mesh.captured_plain())
        pod.start_envoy()
    for pod in one, other:
        pod.wait_ready()
    acquaint(one, other, envoy=False)
    wait_for('acceleration', lambda: all(between(node, p) for p in (one, other)))
    before = counts(node)
    for name, wanted in (('streams', [True, True]), ('edge', True), ('unread_before_more', 'same'), ('many', 'same')):
        assert one.call(lanes.tell, name, 'through') == wanted, name
    assert one.call(lanes.tell, 'stuck', 'through')[2:] == (True, b'')
    assert one.call(lanes.tell, 'half_closed', 'through')[:2] == [(b'a', b''), (60000, b'', 'EPIPE')]
    after = counts(node)
    assert after[0] - before[0] > lanes.MANY and after[1] > before[1]  # how many bytes, only the scheduler knows

    def begun():
        return counts(node)[1] > after[1] + (1 << 20)
    cut = one.submit(lanes.cut, 'through')
    wait_for('a stream', begun)
    other.envoy.kill()
    prefix, arrived, told = cut.result(60)
    assert prefix and arrived and told in ('EPIPE', 'ECONNRESET')
    one.envoy.kill()
    wait_for('the maps to be empty', lambda: not left(node))
