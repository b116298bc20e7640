"""A pod's DNS: names of istiod's are answered by agentd, all others by the pod's own resolver, whether agentd lives or not."""
import json
import os
import shutil
import sys

import pytest

from . import cast, mesh, names
from .pod import HERE
from .replacing import hand_over, kill_any_worker, kill_worker, upgrade
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
        self.start(*argv, **kw).wait()
        return (self.pod.dir / f'run{self._runs}.log').read_text()

    def look_up(self, name, **kw):
        for file in 'lookups.py', 'names.py':  # ours may be in a home, where nobody else reads
            shutil.copy(HERE / file, self.pod.dir)
        return json.loads(self.run(sys.executable, self.pod.dir / 'lookups.py', 'one', name, **kw))

    def dig(self, *argv, **kw):
        return self.run('dig', '+short', '+tries=1', '+time=20', *argv, **kw).split()


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


class Load:
    """Lookups without pause by glibc, and by a resolver that keeps its socket connected."""

    def __init__(self, pod):
        self._counts = {how: pod.pod.dir / f'{how}.json' for how in ('load', 'connected')}
        for file in 'lookups.py', 'names.py':
            shutil.copy(HERE / file, pod.pod.dir)
        program = pod.pod.dir / 'lookups.py'
        self._runs = [pod.start(sys.executable, program, 'load', MESH, self._counts['load'], uid=0),
                      pod.start(sys.executable, program, 'connected', MESH, pod.resolver.ip, self._counts['connected'], uid=0)]
        wait_for('the first lookups', lambda: all(path.exists() for path in self._counts.values()))

    def seen(self, how='load'):
        return json.loads(self._counts[how].read_text())

    def more(self, n, *kinds):
        """Of each kind."""
        goal = {how: self.seen(how)['ok'] + n for how in kinds or self._counts}
        wait_for('lookups', lambda: all(self.seen(how)['ok'] >= goal[how] for how in goal))

    def nobody_was_lost(self):
        before = self.seen()['each']
        wait_for('every lookup that was under way', lambda: all(map(int.__lt__, before, self.seen()['each'])))
        assert self.seen()['lost'] == 0, 'whoever asked the one that went is told to ask again'

    def stop(self):
        for run in self._runs:
            run.kill()
        assert self.seen()['failed'] == 0, self.seen()


def test_a_name_of_istiods_outlives_the_worker(node):
    """Between two workers nobody asks the pod's resolver, which denies the name; and no socket is refused."""
    pod = start(node)
    load = Load(pod)
    load.more(50)
    for replace in [kill_worker] * KILLS + [upgrade, upgrade, hand_over, hand_over]:
        replace(node)
        load.more(50)
        wait_for('the pod to be served', lambda: serves(pod))
        assert pod.resolver.asked() == 0, replace.__name__
    load.nobody_was_lost()
    load.stop()
    # Of a pair of questions, the one that came to the old socket may have been refused.
    assert all(set(found) <= set(BOTH) for found in load.seen()['seen']), load.seen()
    assert load.seen('connected')['wrong'] == load.seen('connected')['refused'] == 0, load.seen('connected')


def test_the_next_worker_does_not_wait_for_istiod(node):
    """It answers what istiod told the last one, says so, and takes what istiod tells then."""
    pod = start(node)
    node.istiod.process.kill()
    for replace in kill_worker, node.agentd.kill:
        if replace is kill_worker:
            replace(node)
        else:
            replace()
            node.agentd.start()
        wait_for('the pod to be served', lambda: serves(pod))
        assert pod.look_up(MESH) == BOTH
        assert pod.dns()['stale'] and '(stale)' in node.agentd.ctl_text('dns')[1]
        assert node.agentd.metric('agentd_dns_stale_pods') == 1
    assert pod.resolver.asked() == 0
    node.istiod.start()
    wait_for('istiod\'s own word', lambda: not pod.dns()['stale'])
    assert node.agentd.metric('agentd_dns_stale_pods') == 0


def test_nobody_is_left_without_an_answer(node):
    """agentd ends, or is killed, and stays away; or its worker does not come back."""
    pod = start(node)
    load = Load(pod)
    asked = pod.resolver.asked

    def quiet():
        before = asked()
        load.more(10, 'load')
        return asked() == before
    load.more(50)
    for end in node.agentd.stop, node.agentd.kill:
        end()
        if end == node.agentd.stop:
            load.nobody_was_lost()
        before = asked()
        load.more(20, 'load')
        assert asked() >= before + 20
        node.agentd.start()
        wait_for('DNS to be captured again', lambda: serves(pod))
        wait_for('nobody to ask the resolver', quiet)
    before = asked()
    wait_for('the resolver to be asked', lambda: kill_any_worker(node) or asked() > before + 20)
    load.stop()


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
