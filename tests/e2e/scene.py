"""Two pods that are alike in all but one thing: agentd redirects the one's traffic, iptables the other's.

Each has a network of its own, so that addresses are the same too, and beside it a peer: every other address is there.
"""
from . import bpfmap, cast, clients, iptables
from .netns import Network, Netns
from .run import sh, wait_for

OWN, OWN2, PEER, SERVICE, FAR = '10.77.0.1', '10.77.1.1', '10.77.0.2', '10.96.0.10', '192.0.2.7'
OWN6, OWN26, PEER6, SERVICE6, FAR6 = 'fd77::1', 'fd77::101', 'fd77::2', 'fd96::10', '2001:db8::7'
OWN_B, PEER_B, OWN_B6, PEER_B6 = '10.88.0.1', '10.88.0.2', 'fd88::1', 'fd88::2'  # at the second cable, eth1
ENVOY, APP = 1337, 1000
EVERYWHERE = 53, 80, 8080, 9999, 15008, 15020
APP_PORTS, PEER_PORTS = (*EVERYWHERE, 16008), (*EVERYWHERE, 15001, 15006)


class Place:
    """A network namespace and a cgroup that are no pod of agentd's."""

    tokens = ()

    def __init__(self, node, name, network):
        self.node, self.cgroup, self.netns = node, node.cgroup(name), Netns(f'{node.name}.{name}')
        network.plug(self.netns)
        node.pods.append(self)

    def submit(self, function, *args):
        return self.netns.submit(self.cgroup, function, *args)

    def call(self, function, *args):
        return self.submit(function, *args).result(300)

    def remove(self):
        self.cgroup.remove()
        self.netns.remove()


class Cable:
    """A second network of a node, removed with its pods."""

    tokens = ()

    def __init__(self, node):
        self.network = Network(f'{node.name}.t')
        self.remove = self.network.remove
        node.pods.append(self)


def _furnish_pod(pod):
    ip = pod.netns.ip
    for address in f'{OWN2}/32', f'{OWN6}/64', f'{OWN26}/128':
        ip('addr', 'add', address, 'dev', 'eth0', *(['nodad'] if ':' in address else []))
    ip('addr', 'replace', '::6/128', 'dev', 'lo')
    ip('route', 'add', 'default', 'via', PEER)
    ip('-6', 'route', 'add', 'default', 'via', PEER6)
    sh(*pod.netns.command('sysctl', '-qw', 'net.ipv4.ip_unprivileged_port_start=0', 'net.ipv4.tcp_fastopen=3'))
    pod.call(cast.serve, 'app', APP, APP, APP_PORTS, APP_PORTS)
    pod.call(cast.serve, 'status', ENVOY, ENVOY, [15002, 15021, 15090])


def _furnish_peer(peer):
    ip = peer.netns.ip
    ip('addr', 'add', f'{PEER6}/64', 'dev', 'eth0', 'nodad')
    ip('route', 'add', OWN2, 'via', OWN)
    ip('-6', 'route', 'add', OWN26, 'via', OWN6)
    for everywhere in '10.96.0.0/12', '192.0.2.0/24':
        ip('route', 'add', 'local', everywhere, 'dev', 'lo')
    for everywhere in 'fd96::/16', '2001:db8::/32':
        ip('-6', 'route', 'add', 'local', everywhere, 'dev', 'lo')
    sh(*peer.netns.command('sysctl', '-qw', 'net.ipv4.tcp_fastopen=3', 'net.ipv6.ip_nonlocal_bind=1'))
    peer.call(cast.serve, 'peer', 0, 0, PEER_PORTS, PEER_PORTS)


def _second_cable(pod, peer):
    pod.netns.ip('link', 'add', 'eth1', 'type', 'veth', 'peer', 'name', 'eth1', 'netns', peer.netns.name)
    for netns, *addresses in (pod.netns, OWN_B, OWN_B6), (peer.netns, PEER_B, PEER_B6):
        for address in addresses:
            v6 = ':' in address
            netns.ip('addr', 'add', f'{address}/{64 if v6 else 16}', 'dev', 'eth1', *(['nodad'] if v6 else []))
        netns.ip('link', 'set', 'eth1', 'up')


def envoy_ports(redirect):
    return [int(redirect.get(key, usual)) for key, usual in (('envoy_port', 15001), ('inbound_capture_port', 15006))]


DNS_PORTS = (15053, 16053)  # what configurations say


class Side:
    """A pod and its peer; `mark` is what a DNS proxy of the pod needs."""

    def __init__(self, pod, peer):
        self.pod, self.peer, self.mark = pod, peer, None
        _furnish_pod(pod)
        _furnish_peer(peer)
        _second_cable(pod, peer)
        # A host of IPv6 cannot look for its neighbours before it knows its own address to be free.
        rows = [('udp', ENVOY, ENVOY, to, 9999, None) for to in (SERVICE, SERVICE6, PEER_B, PEER_B6)]
        wait_for('the cables', lambda: not any(isinstance(seen, str) for seen in pod.call(cast.dial, rows, 1)))

    def answer_names(self):
        """The DNS proxy of such a pod, for good: agentd's own, which wants these ports too, then leaves the pod alone."""
        self.pod.call(cast.serve, 'dns', ENVOY, ENVOY, DNS_PORTS, DNS_PORTS, self.mark)

    def listen(self, redirect):
        """The Envoy of such a pod."""
        self.pod.call(cast.serve, 'envoy', ENVOY, ENVOY, envoy_ports(redirect))


class Captured(Side):
    """By agentd.  The sockets of its Envoy are a later thing than the first word of its Envoy."""

    def __init__(self, node, pod=None):
        self._node = node
        super().__init__((pod or node.pod('pod')).wait_served(), Place(node, 'peer', node.network))
        self.pod.call(clients.fetch_secrets, self.pod.mount / 'socket', ['default'])
        bpffs = node.dir / 'bpf'
        self.mark = str(bpffs), bpfmap.pod_index(bpffs, self.pod.uid)
        self._serial = 0
        self.answer_names()

    def configure(self, redirect):
        """Returns when the rules are in force, as agentd's log says."""
        with open(self._node.agentd.log, errors='replace') as log:
            log.seek(0, 2)
            self._serial += 1
            self.pod.write_manifest(redirect=redirect, annotations={'serial': str(self._serial)})
            said = ''

            def in_force():
                nonlocal said
                said += log.read()
                if 'refused' in said or 'traffic is not redirected' in said:
                    raise RuntimeError(f'agentd refuses {redirect}: {said}')
                return 'traffic is redirected by eBPF' in said
            wait_for('the rules to be in force', in_force)
        self.listen(redirect)


class Iptables(Side):
    def __init__(self, node):
        network = Cable(node).network
        super().__init__(Place(node, 'pod-t', network), Place(node, 'peer-t', network))
        self.answer_names()

    def configure(self, redirect):
        iptables.apply(self.pod.netns, redirect)
        self.listen(redirect)
