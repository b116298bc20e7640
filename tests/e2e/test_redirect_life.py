"""Redirection over a pod's life: before its Envoy, without it, after it; and what is left (ebpf-redirect.md 10)."""
import contextlib
import ipaddress
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from . import bpfmap, clients, dialers, ends, mesh, sockets
from .netns import Netns
from .pod import HERE, Load
from .run import TOP, Cgroup, Process, sh, wait_for
from .test_redirect import APP, ENVOY, Bystander, captured_pair, live, serve

SOAK = bool(os.environ.get('AGENTD_SOAK'))
SOON_S = 40  # before the audit, which comes after a minute, would tell it
SPREAD6 = '::127.15.1.0/121'  # where captured dials of IPv6 end
# A map of the programs, the size of its keys: all that a pod may leave.
MAPS = {'pods': 8, 'pods_by_index': 4, 'ports': 12, 'cidrs': 24, 'tuples': 32, 'self_calls': 40, 'listeners': 8,
        'baselines': 4}


def rows(node, *maps):
    """What is in the maps of redirection, without those that are empty."""
    counts = {}
    for name in maps or MAPS:
        with bpfmap.Map(f'{bpfmap.pins(node.dir / "bpf")}/map_{name}', MAPS[name]) as m:
            counts[name] = sum(1 for _ in m.items())
    return {name: n for name, n in counts.items() if n}


def pod_rows(node):
    with bpfmap.Map(f'{bpfmap.pins(node.dir / "bpf")}/map_pods', 8) as m:
        return sorted(key for key, _ in m.items())


def pinned_pods(node):
    return [p.name for p in Path(bpfmap.pins(node.dir / 'bpf'), 'pods').iterdir()]


@pytest.fixture
def scene(capturing):
    """A node, a strict pod that is served and not live, and a host beside it."""
    node = capturing()
    node.agentd.start()
    pod = node.pod('pod').wait_served()
    peer = Bystander(node)
    node.pods.append(peer)
    return node, pod, peer


# --- many connections ---

def destinations():
    v4 = [(f'192.0.2.{i}', 80 + i % 3) for i in range(1, 49)]
    return v4 + [(f'2001:db8::{i:x}', 443) for i in range(1, 25)]


def with_routes(pod):
    """So that what is dialled has a way, which is never gone."""
    pod.netns.ip('addr', 'add', 'fd77::1/64', 'dev', 'eth0', 'nodad')
    pod.netns.ip('route', 'add', 'default', 'dev', 'eth0')
    pod.netns.ip('-6', 'route', 'add', 'default', 'dev', 'eth0')


def test_every_original_destination_is_right(scene):
    node, pod, _ = scene
    count = 200_000 if SOAK else 2_000
    with_routes(pod)
    serve(pod, ENVOY, 15001)
    live(pod)
    result = pod.call(dialers.many, destinations(), count, 200)
    assert result == {'right': count, 'wrong': [], 'errors': {}, 'held': 0}
    assert rows(node, 'tuples', 'self_calls') == {}


@pytest.mark.parametrize('v6', [False, True])
def test_more_connections_than_ports(scene, v6):
    """One address would have 2000 ports; a pod may dial more than that at a time."""
    node, pod, _ = scene
    with_routes(pod)
    sh(*pod.netns.command('sysctl', '-qw', 'net.ipv4.ip_local_port_range=20000 21999'))
    serve(pod, ENVOY, 15001)
    live(pod)
    result = pod.call(dialers.many, [d for d in destinations() if (':' in d[0]) == v6], 3000, 200, True)
    assert result == {'right': 3000, 'wrong': [], 'errors': {}, 'held': 3000}
    assert rows(node, 'tuples') == {}


def test_the_app_ends_first(scene):
    """And Envoy a little later: no end of its waits for a last word that Linux loses (ebpf-redirect.md 13)."""
    _, pod, _ = scene
    with_routes(pod)
    pod.netns.ip('addr', 'add', 'fd77::101/128', 'dev', 'eth0', 'nodad')
    live(pod)
    for source in None, 'fd77::1', 'fd77::101', '::1':
        peers, left = pod.call(ends.app_ends_first, source)
        assert left == 0 and peers <= ({source} if source else {'fd77::1', 'fd77::101'})


@pytest.mark.timeout(7200 if SOAK else 600)
def test_dials_of_ipv6_in_a_row(scene):
    """From each port many times: none waits for an earlier one."""
    _, pod, _ = scene
    with_routes(pod)
    live(pod)
    for _ in range(5 if SOAK else 1):
        count = 60_000 if SOAK else 600
        assert pod.submit(ends.in_a_row, count).result(3600) == count


def test_no_captured_dial_of_ipv6_leaves_the_pod(scene):
    """Those addresses are a route of the pod's: where it is not, they would be looked for outside, and here is a host that has
    them.  Without it, in another sandbox of the pod's, and by a socket of one device it is ::1."""
    node, pod, peer = scene
    with_routes(pod)
    sandbox = SimpleNamespace(netns=Netns(f'{pod.netns.name}.2'), tokens=[])
    sandbox.remove = sandbox.netns.remove
    node.pods.append(sandbox)
    node.network.plug(sandbox.netns)
    peer.netns.ip('addr', 'add', 'fd77::2/64', 'dev', 'eth0', 'nodad')
    sandbox.netns.ip('addr', 'add', 'fd77::9/64', 'dev', 'eth0', 'nodad')
    for netns in pod.netns, sandbox.netns:
        netns.ip('-6', 'route', 'replace', 'default', 'via', 'fd77::2')
    serve(pod, ENVOY, 15001)
    serve(peer, 0, 15001, 80)
    inbound = serve(pod, ENVOY, 15006)
    live(pod)
    peer.netns.ip('-6', 'route', 'add', SPREAD6, 'via', 'fd77::1')
    assert [peer.call(sockets.dial, to, 8080)['port'] for to in ('fd77::1', '::127.15.1.7')] == [15006] * 2
    inbound.stop()  # while it listens another sandbox is none
    peer.netns.ip('-6', 'route', 'del', SPREAD6)
    peer.netns.ip('-6', 'route', 'add', 'local', SPREAD6, 'dev', 'lo')
    dial = sockets.dial, '2001:db8::7', 80

    def local():
        return pod.call(*dial)['local']
    assert ipaddress.ip_address(local()) in ipaddress.ip_network(SPREAD6)
    assert pod.call(dialers.sent_to, *dial[1:], 'eth0') == '::1'
    assert sandbox.netns.submit(pod.cgroup, *dial, APP, APP, 'fd77::9').result(60) == 'ConnectionRefusedError'
    pod.netns.ip('-6', 'route', 'del', 'local', SPREAD6)
    wait_for('it to be missed', lambda: local() == '::1')
    assert pod.call(*dial)['original'] == '[2001:db8::7]:80'


# --- without an Envoy ---

def test_an_envoy_that_is_absent(scene):
    node, pod, peer = scene
    serve(pod, APP, 8080)
    live(pod)
    ports = range(30000, 30050)
    assert pod.call(dialers.refused, peer.ip, 80, ports) == {'ConnectionRefusedError': 50}
    assert peer.call(sockets.dial, pod.ip, 8080) == 'ConnectionRefusedError'  # a reset, as with iptables
    explained = node.agentd.ctl_text('redirect', 'explain', '--pod', pod.label, peer.ip, f'{pod.ip}:8080')
    assert explained == (0, 'inbound: dropped: Envoy does not listen\n')
    assert rows(node, 'tuples') == {}
    serve(pod, ENVOY, 15001)
    told = pod.call(dialers.originals, '127.0.0.1', 15001, ports)
    assert f'{peer.ip}:80' not in told, told
    assert sum(told.values()) == 50


class Probe:
    """Dials at the pod's app all the time."""

    def __init__(self, pod, peer):
        self._stop = pod.dir / f'stop-{time.monotonic_ns()}'
        self._dialled = self._stop.with_suffix('.dialled')
        self._future = peer.netns.submit(peer.cgroup, dialers.probe, pod.ip, 8080, self._stop)
        wait_for('the first dials', self._dialled.exists)

    def more(self, fifties=6):
        """Wait for so many more dials."""
        goal = self._dialled.stat().st_size + fifties
        wait_for('more dials', lambda: self._dialled.stat().st_size >= goal)

    def answered(self, port):
        """Wait for an answer of that listener: one that is 0.1 s late is not heard."""
        wait_for(f'an answer of {port}', self._stop.with_suffix(f'.{port}').exists)

    def end(self):
        """The counts."""
        self._stop.touch()
        return self._future.result(60)


@contextlib.contextmanager
def probing(pod, peer):
    probe = Probe(pod, peer)
    try:
        probe.more()
        yield probe
    finally:
        probe.end()


def start_late(pod, probe, *plain):
    """The app first, the first word of the Envoy next, its listener last; both processes."""
    app = serve(pod, APP, 8080)
    probe.more()
    for port in plain:
        probe.answered(port)
    live(pod)
    probe.more()
    envoy = serve(pod, ENVOY, 15006)
    probe.more()
    probe.answered(15006)
    return app, envoy


def test_no_plain_text_before_the_envoy_of_a_strict_pod(scene):
    _, pod, peer = scene
    for _ in range(20 if SOAK else 1):
        with probing(pod, peer) as probe:
            started = start_late(pod, probe)
            counts = probe.end()
        assert counts['dialled'] > 1000
        assert counts['answered'].get(8080, 0) == 0, counts
        assert counts['answered'][15006] > 0, counts
        for process in started:
            process.kill()


def test_plain_text_reaches_a_permissive_pod_until_it_is_live(capturing):
    node = capturing()
    node.agentd.start()
    pod = node.pod('pod', redirect={'policy': 'permissive'}).wait_served()
    peer = Bystander(node)
    node.pods.append(peer)
    with probing(pod, peer) as probe:
        start_late(pod, probe, 8080)
        counts = probe.end()
    assert counts['answered'].get(8080, 0) > 0, counts  # so the prober sees what there is to be seen
    assert counts['answered'][15006] > 0, counts
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006


def test_a_socket_of_somebody_elses_is_not_behind_the_gate(scene):
    """Made outside of the pod's cgroup, as by systemd for a service that it hands it to: as docs/ENVIRONMENT.md says."""
    _, pod, peer = scene
    outside = SimpleNamespace(netns=pod.netns, cgroup=peer.cgroup, dir=pod.dir)
    listener = serve(outside, APP, 8080)
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 8080
    serve(pod, ENVOY, 15006)
    live(pod)
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006
    listener.kill()


def test_a_strict_pod_stays_closed_while_agentd_is_away(scene):
    node, pod, peer = scene
    node.agentd.kill()
    with probing(pod, peer) as probe:
        serve(pod, APP, 8080)
        serve(pod, ENVOY, 15006)
        probe.more(10)
        counts = probe.end()
    assert counts['answered'] == {}, counts
    node.agentd.start()
    live(pod)
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006


def test_what_is_steered_is_said_to_be_after_a_restart(scene):
    """Its Envoy has no reason to say a word, but what arrives goes to it all the time."""
    node, pod, peer = scene

    def shown():
        return node.agentd.ctl('redirect')['redirect'][0]
    serve(pod, ENVOY, 15006)
    live(pod)
    wait_for('the pod to be live', lambda: shown()['inbound'])
    node.agentd.kill()
    node.agentd.start()
    wait_for('the rules', lambda: shown()['in_force'])
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006
    assert wait_for('the word of the broker', lambda: shown()['inbound'])


def test_a_new_sandbox_stays_closed_while_agentd_is_away(scene):
    """Another network namespace under the same cgroup: nothing steers there, and nobody is told of it."""
    node, pod, peer = scene
    fill(pod, peer)
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006
    node.agentd.kill()
    pod.renew_sandbox()
    serve(pod, APP, 8080)
    serve(pod, ENVOY, 15001, 15006)
    assert peer.call(sockets.dropped, pod.ip, 8080)
    with_routes(pod)
    assert pod.call(sockets.dial, '192.0.2.1', 80)['port'] == 15001
    node.agentd.start()
    pod.wait_served()
    assert peer.call(sockets.dropped, pod.ip, 8080)
    live(pod)  # the old namespace is no more: a link tells
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006


# --- a real Envoy comes and goes ---

def test_an_envoy_that_restarts_and_a_listener_that_changes(capturing):
    node = capturing()
    node.agentd.start()
    client, server = captured_pair(node)
    peer = Bystander(node)
    node.pods.append(peer)

    def answers():
        return client.call(clients.get_json, f'http://{server.ip}:{mesh.APP}/')[0] == 200
    wait_for('the first answer', answers)
    server.envoy.kill()
    assert peer.call(sockets.dial, server.ip, mesh.APP) == 'ConnectionRefusedError'
    server.start_envoy().wait_ready()
    wait_for('an answer of the Envoy that started anew', answers)
    resources = mesh.captured_server([client])
    for listener in resources['listeners']:
        listener['per_connection_buffer_limit_bytes'] = 65536
    node.istiod.set(server.id, **resources)
    wait_for('the changed listener', lambda: '65536' in server.netns.http(15000, '/config_dump')[1])
    for _ in range(20):
        assert answers()
    assert peer.call(sockets.dial, server.ip, mesh.APP) != 'ConnectionRefusedError'


def shown(node, pod):
    return [x for x in node.agentd.ctl('redirect')['redirect'] if x['pod'] == pod.label]


def problem(node, pod):
    return ' '.join(x['why_not'] for x in shown(node, pod))


def in_force(node, pod):
    return [x['in_force'] for x in shown(node, pod)] == [True]


def test_only_envoys_listener_is_given_what_arrives(scene):
    """Another one of its user's, at another address, neither takes its place nor leaves a hole."""
    node, pod, peer = scene
    serve(pod, ENVOY, 15001, '::/15006')
    live(pod)
    envoy = peer.call(sockets.dial, pod.ip, 8080)['pid']
    for address in '127.0.0.1', '::1', pod.ip:
        other = serve(pod, ENVOY, f'{address}/15006')
        assert peer.call(sockets.dial, pod.ip, 8080)['pid'] == envoy, address
        other.kill()
        assert peer.call(sockets.dial, pod.ip, 8080)['pid'] == envoy, address
    assert not problem(node, pod)


def test_a_listener_that_goes_is_missed_at_once(scene):
    """One of several: another takes its place.  The last one: the pages say it, until there is one again."""
    node, pod, peer = scene

    def answers():
        return peer.call(sockets.dial, pod.ip, 8080) != 'ConnectionRefusedError'
    first = serve(pod, ENVOY, 15001, '::/15006')
    live(pod)
    assert answers()
    second = serve(pod, ENVOY, '::/15006')
    first.kill()
    wait_for('the other one of the group', answers, SOON_S)
    assert not problem(node, pod)
    for _ in range(2):
        second.kill()
        # A client a second is enough.
        wait_for('the pages to tell', lambda: not answers() and 'does not listen on port 15006' in problem(node, pod), SOON_S)
        assert node.agentd.ctl_text('redirect')[0] == node.agentd.ctl_text('status')[0] == 1
        assert not answers()
        second = serve(pod, ENVOY, '::/15006')
        wait_for('the pages to be content', lambda: not problem(node, pod), SOON_S)
        assert answers()


# --- another uid ---

@pytest.mark.parametrize('first', ['the new one comes', 'the old one goes'])
def test_a_pod_that_is_renamed_stays_captured(scene, first):
    """The same cgroup under another uid, as tools that manage machines do it: no dial goes past the Envoy."""
    node, pod, peer = scene
    serve(pod, ENVOY, 15001, '::/15006')
    serve(peer, 0, 80)
    live(pod)
    stop = pod.dir / 'stop'
    future = pod.submit(dialers.probe, peer.ip, 80, stop)
    wait_for('the first dials', stop.with_suffix('.dialled').exists)

    def dials():
        return stop.with_suffix('.dialled').stat().st_size

    def more():
        goal = dials() + 6
        wait_for('more dials', lambda: dials() >= goal)
    old = pod.manifest_file
    if first == 'the old one goes':
        old.unlink()
    pod.uid = str(uuid.uuid4())
    pod.write_token()
    pod.write_manifest()
    if first == 'the new one comes':
        wait_for('the refusal', lambda: 'the cgroup is that of pod' in problem(node, pod))
        more()
        old.unlink()
    wait_for('the new one to be captured', lambda: in_force(node, pod) and pinned_pods(node) == [pod.uid])
    more()
    wait_for('101 answers', lambda: stop.with_suffix('.15001').stat().st_size > 2)
    stop.touch()
    counts = future.result(60)
    assert counts['answered'].get(80, 0) == 0 and counts['answered'][15001] > 100, counts
    assert pinned_pods(node) == [pod.uid]


# --- the end of a pod ---

def fill(pod, peer):
    envoy = serve(pod, ENVOY, 15001, 15006)
    live(pod)
    assert pod.call(sockets.dial, peer.ip, 80)['port'] == 15001
    return envoy


def test_a_pod_leaves_nothing(scene):
    node, pod, peer = scene
    fill(pod, peer)
    assert 'listeners' in rows(node) and pinned_pods(node) == [pod.uid]
    pod.remove_manifest()
    pod.remove()
    node.pods.remove(pod)
    wait_for('the maps to be empty', lambda: rows(node) == {})
    wait_for('the pins to go', lambda: pinned_pods(node) == [])


def test_a_pod_that_goes_while_agentd_is_away_leaves_nothing(scene):
    node, pod, peer = scene
    fill(pod, peer)
    node.agentd.kill()
    pod.remove_manifest()
    pod.remove()
    node.pods.remove(pod)
    assert pinned_pods(node) == [pod.uid]
    node.agentd.start()
    wait_for('the maps to be empty', lambda: rows(node) == {})
    wait_for('the pins to go', lambda: pinned_pods(node) == [])


# --- cgroups ---

def dial_in(pod, cgroup, to, port):
    """By a process of its own in that cgroup and the pod's network namespace."""
    program = f'import json; from tests.e2e import sockets; print(json.dumps(sockets.dial({to!r}, {port})))'
    argv = pod.netns.command(sys.executable, '-c', program)
    r = subprocess.run(['/bin/sh', '-c', 'echo 0 >"$0" && exec "$@"', cgroup.path / 'cgroup.procs', *argv],
                       cwd=TOP, text=True, capture_output=True, timeout=60, check=True)
    return json.loads(r.stdout)


def test_a_cgroup_that_appears_late_goes_and_comes_back(capturing):
    node = capturing()
    node.agentd.start()
    pod = node.pod('pod', manifest=False)
    pod.write_token()
    name = f'{pod.cgroup.below_root()}/late'
    (node.agentd.manifests / pod.uid / 'cgroup').write_text(name + '\n')
    pod.write_manifest()
    wait_for('the sockets', lambda: (pod.mount / 'XDS').exists() and (pod.mount / 'socket').exists())
    wait_for('the pod to say what is missing', lambda: 'cgroup' in json.dumps(node.agentd.ctl('redirect')))
    assert not (pod.mount / 'envoy-rev.json').exists(), 'who starts a strict pod waits for this file'
    late = Cgroup(name)
    pod.wait_served()
    with_routes(pod)

    def captured():
        serve(SimpleNamespace(netns=pod.netns, dir=pod.dir, cgroup=late), ENVOY, 15001)
        return dial_in(pod, late, '192.0.2.1', 80)['original'] == '192.0.2.1:80'
    assert captured()
    before = pod_rows(node)
    late.remove()
    late = Cgroup(name)
    wait_for('the new cgroup to be written', lambda: pod_rows(node) not in ([], before))
    assert captured()
    assert rows(node, 'pods') == {'pods': 1}
    late.remove()


def test_a_cgroup_made_anew_while_nobody_looks(scene):
    """In comes nothing.  What it dials goes out as it is, until the broker has heard of the cgroup: so a service whose
    processes come and go belongs into a slice that stays, and that is named for the pod."""
    node, pod, peer = scene
    serve(peer, 0, 80)
    fill(pod, peer)
    os.kill(node.agentd.process.pid, signal.SIGSTOP)
    name = pod.cgroup.below_root()
    pod.cgroup.remove()
    pod.cgroup = Cgroup(name)
    serve(pod, APP, 8080)
    assert peer.call(sockets.dial, pod.ip, 8080) == 'ConnectionRefusedError'  # its namespace is still steered
    assert dial_in(pod, pod.cgroup, peer.ip, 80)['port'] == 80
    os.kill(node.agentd.process.pid, signal.SIGCONT)
    wait_for('the new cgroup to be captured', lambda: dial_in(pod, pod.cgroup, peer.ip, 80) == 'ConnectionRefusedError')
    assert peer.call(sockets.dropped, pod.ip, 8080)


def test_cgroups_that_are_no_pods_are_refused(capturing):
    node = capturing()
    node.agentd.start()
    good = node.pod('good').wait_served()

    def why_not(pod):
        return [p for p in node.agentd.ctl('pods')['pods'] if p['uid'] == pod.uid]
    for name, cgroup, why in (('twin', good.cgroup.below_root(), 'the cgroup is that of pod'),
                              ('above', node.cgroup_name, 'not below that of all pods'),
                              ('agentd', node.agentd.cgroup.below_root(), 'agentd itself')):
        pod = node.pod(name, manifest=False)
        pod.write_token()
        (node.agentd.manifests / pod.uid / 'cgroup').write_text(cgroup + '\n')
        pod.write_manifest()
        wait_for(f'{name} to be refused', lambda p=pod, w=why: w in json.dumps(why_not(p)))
        assert not (pod.mount / 'envoy-rev.json').exists()
    assert rows(node, 'pods') == {'pods': 1}


# --- changes of a pod that lives ---

def test_rules_and_addresses_change_while_it_lives(scene):
    node, pod, peer = scene
    serve(peer, 0, 80)
    envoy = fill(pod, peer)
    index = bpfmap.pod_index(node.dir / 'bpf', pod.uid)
    pod.write_manifest(redirect={'istio_local_outbound_ports_exclude': '80'})
    wait_for('the excluded port', lambda: pod.call(sockets.dial, peer.ip, 80)['port'] == 80)
    pod.write_manifest(redirect={})
    wait_for('it again', lambda: pod.call(sockets.dial, peer.ip, 80)['port'] == 15001)
    assert bpfmap.pod_index(node.dir / 'bpf', pod.uid) == index
    serve(pod, APP, 8080)
    with_routes(pod)
    assert pod.call(sockets.dial, '10.99.9.9', 8080)['port'] == 15001
    pod.netns.ip('addr', 'add', '10.99.9.9/32', 'dev', 'eth0')
    wait_for('the new address', lambda: pod.call(sockets.dial, '10.99.9.9', 8080)['port'] == 8080)
    pod.write_manifest(redirect={'mode': 'none'})
    wait_for('the end of redirection', lambda: rows(node) == {})
    assert pod.call(sockets.dial, peer.ip, 80)['original'] is None
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 8080
    pod.write_manifest(redirect={})
    wait_for('redirection again', lambda: rows(node, 'pods') == {'pods': 1})
    live(pod)
    assert envoy.running()  # it listened before the rules came back
    assert pod.call(sockets.dial, peer.ip, 80)['original'] == f'{peer.ip}:80'
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006


def carried(pod):
    """Connections that the pod's Envoy dialled on, outbound and inbound."""
    clusters = pod.netns.http(15000, '/clusters')[1]
    return [sum(map(int, re.findall(rf'^{name}::[0-9.:]+::cx_total::(\d+)', clusters, re.M))) for name in ('passthrough', 'app')]


def test_an_envoy_that_listened_before_its_rules(capturing):
    """Redirection begins under load, and no request fails; each of its workers is found, and it is not started again."""
    node = capturing()
    node.agentd.start()
    pod, peer = node.pod('pod', redirect={'mode': 'none'}), Bystander(node)
    node.pods.append(peer)
    node.istiod.set(pod.id, **mesh.captured_plain())
    pod.start_app(8080, '0.0.0.0')
    web = Process(peer.netns.command(sys.executable, HERE / 'app.py', 'serve', '0.0.0.0', 80), peer.dir / 'web.log',
                  peer.cgroup)
    argv = pod.wait_served().envoy_argv()
    argv[argv.index('--concurrency') + 1] = 4
    pod.envoy = Process(argv, pod.dir / 'envoy.log', pod.cgroup, env={'PATH': os.environ['PATH']})
    pod.wait_ready()
    wait_for('the listeners', lambda: pod.netns.http(15000, '/listeners')[1].count('virtual') == 2)
    wait_for('the other app', lambda: pod.call(clients.get_json, f'http://{peer.ip}:80/')[0] == 200)
    assert carried(pod) == [0, 0]
    loads = pod.load(80, peer.ip), Load(peer, f'http://{pod.ip}:8080/')
    pod.write_manifest(redirect={})
    wait_for('the first connections by Envoy', lambda: min(carried(pod)) > 0)
    for load in loads:
        load.more(200)
    before = carried(pod)
    for _ in range(24):
        assert pod.call(clients.get_json, f'http://{peer.ip}:80/')[0] == 200
        assert peer.call(clients.get_json, f'http://{pod.ip}:8080/')[0] == 200
    assert all(now - was >= 24 for now, was in zip(carried(pod), before))
    for load in loads:
        counts = load.stop()
        assert counts['failed'] == 0, counts
    assert pod.envoy.running()
    web.kill()


# --- others ---

def test_who_is_no_pod_is_left_alone(scene):
    node, pod, peer = scene
    fill(pod, peer)
    plain = node.pod('plain', redirect={'mode': 'none'}).wait_served()
    serve(plain, APP, 8080)
    serve(peer, 0, 80)
    for who in plain, peer:
        seen = who.call(sockets.dial, peer.ip if who is plain else plain.ip, 80 if who is plain else 8080)
        assert seen['original'] is None and seen['peer'] == seen['sockname'] == who.ip, seen
    # A process in the pod's network namespace, but in no pod's cgroup: out as it is, in by the pod's rules.
    seen = dial_in(pod, peer.cgroup, peer.ip, 80)
    assert seen['port'] == 80 and seen['original'] is None


# One that translates a service's address, as Cilium does, at a cgroup above ours.
FOREIGN = """
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
SEC("cgroup/connect4")
int foreign(struct bpf_sock_addr *ctx)
{
	if (ctx->user_ip4 == bpf_htonl(0xc0000263))
		ctx->user_ip4 = bpf_htonl(PEER);
	return 1;
}
char LICENSE[] SEC("license") = "GPL";
"""


@contextlib.contextmanager
def foreign_program(node, peer):
    source, program = node.dir / 'foreign.c', node.dir / 'foreign.o'
    pin = node.dir / 'bpf' / 'foreign'
    above = Cgroup.__new__(Cgroup)
    above.path = node._cgroup.path.parent
    source.write_text(FOREIGN)
    address = struct.unpack('!I', bytes(map(int, peer.ip.split('.'))))[0]
    sh('clang', '-target', 'bpf', '-O2', '-g', f'-DPEER={address}', f'-I/usr/include/{os.uname().machine}-linux-gnu',
       '-c', source, '-o', program)
    sh('bpftool', 'prog', 'load', program, pin)
    sh('bpftool', 'cgroup', 'attach', above.path, 'connect4', 'pinned', pin, 'multi')
    try:
        yield
    finally:
        sh('bpftool', 'cgroup', 'detach', above.path, 'connect4', 'pinned', pin)
        pin.unlink()


def test_a_foreign_program_at_an_ancestor(scene):
    node, pod, peer = scene
    fill(pod, peer)
    with_routes(pod)
    serve(peer, 0, 80)
    with foreign_program(node, peer):
        seen = pod.call(sockets.dial, '192.0.2.99', 80)  # ours comes first: Envoy hears of the service
        assert (seen['port'], seen['original']) == (15001, '192.0.2.99:80')
        seen = pod.call(sockets.dial, '192.0.2.99', 80, ENVOY, ENVOY)  # Envoy's own is translated
        assert (seen['port'], seen['local']) == (80, peer.ip)


# --- rights ---

def granted():
    """The capabilities of the unit, by number."""
    unit = (TOP / 'systemd' / 'agentd.service').read_text()
    header = Path('/usr/include/linux/capability.h').read_text()
    numbers = dict(re.findall(r'#define (CAP_\w+)\s+(\d+)', header))
    return [numbers[name] for name in re.search(r'^CapabilityBoundingSet=(.*)', unit, re.M)[1].split()]


def bounded(capabilities):
    return ['setpriv', '--bounding-set', ','.join(['-all', *(f'+cap_{n}' for n in capabilities)])]


def test_the_units_capabilities_are_enough(capturing):
    node = capturing()
    node.agentd.around = bounded(granted())
    node.agentd.start()
    status = Path(f'/proc/{node.agentd.process.pid}/status').read_text()
    assert int(re.search(r'CapBnd:\s*(\w+)', status)[1], 16) == sum(1 << int(n) for n in granted())
    pod = node.pod('pod').wait_served()
    peer = Bystander(node)
    node.pods.append(peer)
    fill(pod, peer)
    assert peer.call(sockets.dial, pod.ip, 8080)['port'] == 15006
    node.agentd.kill()
    node.agentd.start()  # adopts
    assert pod.call(sockets.dial, peer.ip, 80)['port'] == 15001


@pytest.mark.parametrize('missing', ['39', '38'])  # BPF, PERFMON
def test_without_one_of_them_pods_are_told_so(capturing, missing):
    node = capturing()
    node.agentd.around = bounded([n for n in granted() if n not in (missing, '21')])  # nor SYS_ADMIN, which is both
    node.agentd.start()
    assert 'no pod\'s traffic can be redirected' in node.agentd.process.tail(100)
    pod = node.pod('pod')
    wait_for('the pod to be refused', lambda: any(
        p['redirect']['why_not'] and not p['redirect']['in_force'] for p in node.agentd.ctl('pods', pod.label)['pods']))
    assert not (pod.mount / 'envoy-rev.json').exists()
