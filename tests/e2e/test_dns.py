"""A pod's DNS: names of istiod's are answered by agentd, all others by the pod's own resolver, whether agentd lives or not."""
import json
import os
import shutil
import sys

import pytest

from . import cast, mesh, names
from .pod import HERE
from .run import Process, wait_for
from .scene import APP, ENVOY
from .test_redirect import Bystander

MESH, HEADLESS, WILD = 'web.demo.svc.cluster.local', 'db.demo.svc.cluster.local', '*.shop.example'
ADDRESS, ADDRESS6 = '240.240.0.7', '2001:2::7'
BOTH = sorted([ADDRESS, ADDRESS6])
TABLE = {MESH: {'ips': [ADDRESS, ADDRESS6], 'registry': 'Kubernetes', 'shortname': 'web', 'namespace': 'demo'},
         HEADLESS: {'ips': [f'10.9.{n // 250}.{n % 250 + 1}' for n in range(300)], 'registry': 'Kubernetes',
                    'shortname': 'db', 'namespace': 'demo'},
         WILD: ['240.240.0.9']}
FOREIGN = 'example.org'
ELSEWHERE = names.ANSWERS['peer'][0]
KILLS = 8 if os.environ.get('AGENTD_SOAK') else 3  # the next worker waits twice as long each time
RESOLVER, RESOLVER6 = '10.77.0.1', 'fd77::53'


class Resolver:
    """The name server of the pods' network."""

    def __init__(self, node):
        self.host = Bystander(node)
        self.ip, self.ip6 = self.host.ip, RESOLVER6
        self.host.netns.ip('addr', 'add', f'{RESOLVER6}/64', 'dev', 'eth0', 'nodad')
        self._count = node.dir / 'resolver.json'
        Process(self.host.netns.command(sys.executable, HERE / 'lookups.py', 'resolver', self._count, self.ip, self.ip6),
                node.dir / 'resolver.log', self.host.cgroup)
        wait_for('the resolver', self._count.exists)

    def asked(self):
        return sum(json.loads(self._count.read_text()).values())


class Pod:
    """With an Envoy, and a resolv.conf of its own."""

    def __init__(self, node, resolver, **redirect):
        self.node, self.resolver = node, resolver
        self.pod = node.pod('pod', redirect=redirect)
        self.pod.netns.ip('addr', 'add', 'fd77::7/64', 'dev', 'eth0', 'nodad')
        node.istiod.set(self.pod.id, names=TABLE, **mesh.captured_plain())
        self._runs = 0

    def ready(self, captured=True):
        self.pod.start_envoy()
        self.pod.wait_ready()
        if captured:
            wait_for('the DNS proxy', lambda: self.dns()['answers'] and self.dns()['names'] > 0)
        return self

    def dns(self):
        return self.node.agentd.ctl('pods', self.pod.label)['pods'][0]['dns']

    def start(self, *argv, uid=APP, server=None):
        """In the pod, with its resolv.conf."""
        self._runs += 1
        conf = self.pod.dir / f'resolv{self._runs}.conf'
        conf.write_text(f'search demo.svc.cluster.local svc.cluster.local\nnameserver {server or self.resolver.ip}\n')
        return Process(self.pod.netns.command(
            'unshare', '--mount', '--propagation', 'private', 'sh', '-c', 'mount --bind "$0" /etc/resolv.conf && exec "$@"',
            conf, 'setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', *argv),
            self.pod.dir / f'run{self._runs}.log', self.pod.cgroup)

    def run(self, *argv, **kw):
        self.start(*argv, **kw).wait(30)
        return (self.pod.dir / f'run{self._runs}.log').read_text()

    def look_up(self, name, **kw):
        for file in 'lookups.py', 'names.py':  # ours may be in a home, where nobody else reads
            shutil.copy(HERE / file, self.pod.dir)
        return json.loads(self.run(sys.executable, self.pod.dir / 'lookups.py', 'one', name, **kw))

    def dig(self, *argv, **kw):
        return self.run('dig', '+short', '+tries=1', '+time=3', *argv, **kw).split()


@pytest.fixture
def node(capturing):
    return capturing()


def start(node, captured=True, upstream=True, **redirect):
    resolver = Resolver(node)
    if upstream:
        node.agentd.settings['dns_upstream'] = resolver.ip
    node.agentd.start()
    return Pod(node, resolver, **{'redirect_dns': 'true', **redirect}).ready(captured)


def test_who_answers(node):
    pod = start(node)
    for name in (MESH, 'web.demo.svc', 'web.demo', 'web'):
        assert pod.look_up(name) == BOTH, name
    for name in (FOREIGN, 'else.demo.svc.cluster.local'):
        assert ELSEWHERE in pod.look_up(name), name
    assert pod.look_up('any.shop.example') == ['240.240.0.9']
    for how in [], ['+tcp'], [f'@{RESOLVER6}'], [f'@{RESOLVER6}', '+tcp'], ['@192.0.2.1'], ['@127.0.0.53']:
        assert pod.dig(*how, MESH) == [ADDRESS], how
        assert pod.dig(*how, MESH, 'AAAA') == [ADDRESS6], how
        assert pod.dig(*how, FOREIGN) == [ELSEWHERE], how
        assert pod.dig(*how, 'any.shop.example', 'AAAA') == [], how
    # Too many for a datagram: the rest comes by TCP, or in a larger one.
    assert len(pod.dig(HEADLESS, '+bufsize=512')) == len(pod.dig(HEADLESS, '+bufsize=8192')) == 300
    # What comes to an address that is not loopback is nobody's query.
    for how in [], ['+tcp']:
        assert 'no servers' in pod.run('dig', '+tries=1', '+time=1', *how, '-p', '15053', f'@{pod.pod.ip}', MESH), how
    # Envoy's own questions go to the resolver.
    assert pod.dig(MESH, uid=ENVOY) == [ELSEWHERE]
    n = pod.dns()
    assert n['failed'] == n['malformed'] == 0 and n['local'] > 20 and n['forwarded'] >= 6
    assert node.agentd.metric('istio_agent_dns_requests_total') == n['requests']
    found, = node.agentd.ctl('dns', 'pod', 'Web')['dns']
    assert found['resolved'] == {'name': 'web.', 'found': True, 'alias': '', 'addresses': [ADDRESS, ADDRESS6]}
    status, text = node.agentd.ctl_text('dns')
    assert status == 0 and 'agentd' in text.splitlines()[1]


def test_nobody_is_left_without_an_answer(node):
    """The worker is killed, and comes back; agentd ends, or is killed, and stays away."""
    pod = start(node)
    asked = pod.resolver.asked
    counts = pod.pod.dir / 'lookups.json'
    load = pod.start(sys.executable, HERE / 'lookups.py', 'load', MESH, counts, uid=0)

    def seen():
        return json.loads(counts.read_text())

    def more(n):
        goal = (seen()['ok'] if counts.exists() else 0) + n
        wait_for('lookups', lambda: counts.exists() and seen()['ok'] >= goal)

    def nobody_was_lost():
        before = seen()['each']
        wait_for('every lookup that was under way', lambda: all(map(int.__lt__, before, seen()['each'])))
        assert seen()['lost'] == 0, 'whoever asked the one that went is told to ask again'

    def quiet():
        before = asked()
        more(10)
        return asked() == before
    more(50)
    assert asked() == 0 and seen()['seen'] == [BOTH]
    for n in range(KILLS):
        os.kill(node.agentd.worker_pid(), 9)
        wait_for('the resolver to be asked', lambda before=asked(): asked() > before)
        wait_for(f'worker {n}', lambda: serves(pod))
        more(50)
    nobody_was_lost()
    for end in node.agentd.stop, node.agentd.kill:
        end()
        if end == node.agentd.stop:
            nobody_was_lost()
        before = asked()
        more(20)
        assert asked() >= before + 20
        node.agentd.start()
        wait_for('DNS to be captured again', lambda: serves(pod))
        wait_for('nobody to ask the resolver', quiet)
    load.kill()
    assert seen()['failed'] == 0, seen()


def serves(pod):
    try:
        return pod.dns()['answers'] and pod.dns()['names'] > 0
    except (ValueError, LookupError, OSError):
        return False


def test_only_servers_that_are_named(node):
    resolver = Resolver(node)
    node.agentd.start()
    pod = Pod(node, resolver, redirect_dns='true', dns_servers=resolver.ip).ready()
    assert pod.dig(MESH) == [ADDRESS]
    assert pod.dig(FOREIGN) == [ELSEWHERE]
    assert pod.dig(f'@{RESOLVER6}', MESH) == [ELSEWHERE]
    assert pod.dns()['servers'] == [resolver.ip]


def test_who_is_not_captured(node):
    """Without a resolver to go on to, or without asking for it, nothing is made."""
    pod = start(node, captured=False, upstream=False)
    assert pod.dig(MESH) == [ELSEWHERE]
    assert 'dns_upstream' in pod.dns()['why_not'] and not pod.dns()['answers']
    assert not node.istiod.journal('request', type='type.googleapis.com/istio.networking.nds.v1.NameTable')


@pytest.mark.parametrize('udp', [[15053], []])
def test_somebody_else_has_the_port(node, udp):
    """A program of the pod listens on 15053: nobody believes it, and nobody takes the port from it."""
    resolver = Resolver(node)
    node.agentd.settings['dns_upstream'] = resolver.ip
    node.agentd.start()
    pod = Pod(node, resolver, redirect_dns='true')
    pod.pod.call(cast.serve, 'dns', APP, APP, [15053], udp, None, True)
    pod.ready(captured=False)
    wait_for('the reason', lambda: 'in use' in pod.dns()['why_not'])
    for how in [], ['+tcp'], [f'@{RESOLVER6}']:
        assert pod.dig(*how, MESH) == [ELSEWHERE], how
    assert node.agentd.ctl_text('dns')[0] == 1
