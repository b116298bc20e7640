"""The kubelet is let in to a pod's probe ports, and nobody else is (ebpf/probes.bpf.h).

The node's own network namespace is this file's; its kubelet is any process of root's there, outside of `kubepods`.
"""
import contextlib
import os
import time
from pathlib import Path

import pytest

from . import bpfmap, clients, probers
from .run import sh, wait_for
from .strangers import Place
from .test_redirect import APP, ENVOY, EXCLUDED, Bystander, serve
from .test_redirect_tools import Trace

PROBE, OTHER, IN = 8080, 8081, 15006
NODE, NODE6, POD6 = '10.77.200.1', 'fd77::200', 'fd77::1'
SOAK = os.environ.get('AGENTD_SOAK')
RULE = "the kubelet's probe"
DIALS, MANY, FEW = (100000, 1000, 1000) if SOAK else (1000, 200, 50)


class Probed:
    """A node with a kubelet, a pod with a probe port, and those who are not the kubelet."""

    def __init__(self, node, stack, tree=True):
        self.node, self._stack = node, stack
        kubepods = f'{node.cgroup_name}/kubepods'
        node.agentd.flags += ['--kubepods', kubepods]
        self.tree = node.cgroup('kubepods') if tree else None
        node.network.plug_node(f'{NODE}/16', f'{NODE6}/64')
        node.agentd.start()
        self.kubelet = self.place('kubelet')
        if tree:
            self.host_pod = self.place('kubepods/pod1')

    def place(self, cgroup, namespace=None):
        return self._stack.enter_context(Place(self.node.cgroup(cgroup), namespace))

    def pod(self, policy='strict', ports=PROBE, **redirect):
        pod = self.node.pod('pod', redirect={'policy': policy, 'probe_ports': str(ports), **redirect}).wait_served()
        pod.netns.ip('addr', 'add', f'{POD6}/64', 'dev', 'eth0', 'nodad')
        # The app is at the pod's addresses alone: what reaches it came as it was dialled.
        serve(pod, APP, *(f'{address}/{port}' for address in (pod.ip, POD6) for port in (PROBE, OTHER)), EXCLUDED)
        return pod

    def noted(self):
        """How many are; the last one's other end closes a moment later."""
        with contextlib.suppress(TimeoutError):
            wait_for('the last one to close', lambda: not self._noted())
        return self._noted()

    def _noted(self):
        with bpfmap.Map(f'{bpfmap.pins(self.node.bpffs)}/map_probes', 40) as m:
            return len(list(m.items()))

    def shown(self, pod):
        [found] = [p for p in self.node.agentd.ctl('redirect')['redirect'] if p['uid'] == pod.uid]  # ValueError: not yet
        return found

    def let_in(self, pod):
        return self.shown(pod)['counters'].get(RULE, 0)


def live(pod):
    serve(pod, ENVOY, 15001, IN)
    pod.call(clients.fetch_secrets, pod.mount / 'socket', ['default'])


@pytest.fixture
def probed(capturing):
    with contextlib.ExitStack() as stack:
        yield lambda **kw: Probed(capturing(), stack, **kw)


@pytest.mark.parametrize('policy', ['strict', 'permissive'])
def test_the_kubelet_alone(probed, policy):
    p = probed()
    pod = p.pod(policy)
    other = Bystander(p.node)
    p.node.pods.append(other)
    for address in pod.ip, POD6:  # no Envoy yet
        assert p.kubelet.call(probers.dials, address, PROBE, 3) == {str(PROBE): 3}
        stranger = p.host_pod.call(probers.dials, address, PROBE, 1, 0, None, 0.3 if policy == 'strict' else probers.PATIENCE_S)
        assert stranger == ({'TimeoutError': 1} if policy == 'strict' else {str(PROBE): 1})
    live(pod)
    assert other.call(probers.dials, pod.ip, PROBE, FEW) == {str(IN): FEW}, 'root of another network namespace'
    for address in pod.ip, POD6:
        assert p.kubelet.call(probers.dials, address, PROBE, 50) == {str(PROBE): 50}
        for name, dials in {'a port that is not in the list': (p.kubelet, OTHER, 0), 'another user': (p.kubelet, PROBE, 1000),
                            'a pod with hostNetwork': (p.host_pod, PROBE, 0)}.items():
            place, port, uid = dials
            assert place.call(probers.dials, address, port, FEW, uid) == {str(IN): FEW}, (name, address)
    assert p.kubelet.call(probers.alternate, pod.ip, PROBE, 20) == {str(PROBE): 20}
    assert p.noted() == 0
    # Each of the 120 when it was dialled, and of no other.
    assert p.let_in(pod) == 120
    assert p.node.agentd.metric('agentd_redirect_connections_total', 'rule="probe"', 'verdict="passed"') == 120
    for args, expected in (('--probe', NODE, PROBE), RULE), (('--probe', NODE, OTHER), 'inbound'), ((NODE, PROBE), 'inbound'):
        *words, port = args
        told = p.node.agentd.ctl('redirect', 'explain', '--pod', pod.uid, *words, f'{pod.ip}:{port}')
        assert told['rule'] == expected, args
    with Trace(pod, pod.label) as trace:
        def traced():
            p.kubelet.call(probers.dials, pod.ip, PROBE)
            return f'-> tcp {pod.ip}:{PROBE}  passed: {RULE}' in trace.text()
        wait_for('a decision', traced)


def test_who_only_looks_like_it(probed):
    """All in the node's network, by root: the app is for the kubelet's own connections."""
    p = probed()
    pod = p.pod()
    live(pod)
    for address in pod.ip, POD6:
        left = p.kubelet.call(probers.ports_used, address, PROBE, MANY)
        assert None not in left
        assert p.host_pod.call(probers.from_ports, address, PROBE, left) == {str(IN): MANY}, 'ports that it just closed'
        assert p.kubelet.call(probers.dialled_again, address, PROBE, FEW, 1000) == {str(IN): FEW}, 'a socket of its'
    forward(p, pod)
    sh(*pod.netns.command('sysctl', '-qw', 'net.ipv4.tcp_syncookies=2'))
    for address in pod.ip, POD6:
        assert p.kubelet.call(probers.dials, address, PROBE, 100) == {str(PROBE): 100}
        assert p.host_pod.call(probers.dials, address, PROBE, 1000) == {str(IN): 1000}
    assert p.noted() == 0


def forward(p, pod):
    """Of a client whose way to the pod leads over the node, which gives it the node's own address."""
    client = Bystander(p.node, 'client')
    p.node.pods.append(client)
    sh('ip', 'link', 'add', 'fwd0', 'type', 'veth', 'peer', 'name', 'fwd0', 'netns', client.netns.name)
    sh('ip', 'addr', 'add', '10.99.0.1/24', 'dev', 'fwd0')
    sh('ip', 'link', 'set', 'fwd0', 'up')
    client.netns.ip('link', 'set', 'eth0', 'down')
    client.netns.ip('addr', 'add', '10.99.0.2/24', 'dev', 'fwd0')
    client.netns.ip('link', 'set', 'fwd0', 'up')
    client.netns.ip('route', 'add', 'default', 'via', '10.99.0.1')
    sh('sysctl', '-qw', 'net.ipv4.ip_forward=1')
    sh('iptables', '-t', 'nat', '-A', 'POSTROUTING', '-o', 'node0', '-j', 'MASQUERADE')
    # Below those that the kernel gives to others of this namespace: the control plane listens on one.
    theirs, own = range(20000, 20000 + FEW * 2), range(30000, 30000 + FEW * 2)
    with Place(client.cgroup, client.netns.path) as place:
        for i in range(0, FEW * 2, 20):
            assert place.call(probers.from_ports, pod.ip, PROBE, theirs[i:i + 20]) == {str(IN): 20}
            assert p.kubelet.call(probers.from_ports, pod.ip, PROBE, own[i:i + 20]) == {str(PROBE): 20}
    # The node's NAT gives it another port where somebody else's connection has this one: it is not known then (LIMITS.md).
    assert p.kubelet.call(probers.from_ports, pod.ip, PROBE, theirs[-5:]) == {str(IN): 5}
    sh('iptables', '-t', 'nat', '-F')


def test_nobody_of_agentd_is_needed(probed):
    """Both are dead, and the kubelet is started anew meanwhile: its cgroup is another one."""
    p = probed()
    pod = p.pod()
    live(pod)
    p.node.agentd.kill()
    end = time.monotonic() + (600 if SOAK else 0)
    while True:
        for place in p.kubelet, p.place(f'kubelet{time.monotonic_ns()}'):
            assert place.call(probers.dials, pod.ip, PROBE, 300) == {str(PROBE): 300}
        assert p.host_pod.call(probers.dials, pod.ip, PROBE, 300) == {str(IN): 300}
        if time.monotonic() >= end:
            break
    assert p.noted() == 0
    p.node.agentd.start()
    assert p.kubelet.call(probers.dials, pod.ip, PROBE, 50) == {str(PROBE): 50}
    assert p.host_pod.call(probers.dials, pod.ip, PROBE, 50) == {str(IN): 50}
    wait_for('agentd to count them', lambda: p.let_in(pod) >= 650)


def test_without_a_tree_nobody_is(probed):
    """Who is no pod cannot be told then; it can as soon as the tree is there and the pod is looked at."""
    p = probed(tree=False)
    pod = p.pod()
    live(pod)
    assert p.kubelet.call(probers.dials, pod.ip, PROBE, 20) == {str(IN): 20}
    assert 'there is no kubepods tree' in p.node.agentd.log.read_text()
    ask = ('redirect', 'explain', '--pod', pod.uid, '--probe', NODE, f'{pod.ip}:{PROBE}')
    status, text = p.node.agentd.ctl_text(*ask)
    assert status and 'there is no kubepods tree' in text
    p.tree = p.node.cgroup('kubepods')
    pod.write_manifest(annotations={'again': '1'})
    wait_for('the kubelet to be let in', lambda: p.kubelet.call(probers.dials, pod.ip, PROBE) == {str(PROBE): 1})
    assert p.node.agentd.ctl(*ask)['rule'] == RULE


def test_ports_come_and_go(probed):
    """A pod's own list counts, whatever others have."""
    p = probed()
    pod = p.pod(ports='')
    live(pod)
    assert p.kubelet.call(probers.dials, pod.ip, PROBE, 20) == {str(IN): 20}
    link = Path(bpfmap.pins(p.node.bpffs), 'link_redirect_probe_sockops')
    assert not link.exists(), 'a node without probe ports pays nothing'
    p.node.pod('other', redirect={'probe_ports': str(PROBE)}).wait_served()
    wait_for('the programs for probes', link.exists)
    for ports, expected in ('8080,8081', PROBE), ('8081', IN), ('', IN):
        pod.write_manifest(redirect={'probe_ports': ports}, annotations={'ports': ports})
        shown = [int(x) for x in ports.split(',') if x]
        wait_for('the list', lambda w=shown: p.shown(pod)['probe_ports'] == w)
        wait_for('the ports', lambda e=expected: p.kubelet.call(probers.dials, pod.ip, PROBE) == {str(e): 1})


def test_nothing_is_left(probed):
    p = probed()
    pod = p.pod()
    live(pod)
    for address in (pod.ip, POD6) * (DIALS // 1000):
        assert p.kubelet.call(probers.dials, address, PROBE, 500) == {str(PROBE): 500}
    assert p.noted() == 0
    assert p.let_in(pod) == DIALS
