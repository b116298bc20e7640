"""What istio-iptables would make of a manifest's `redirect:`, mode REDIRECT: input of iptables-restore.

The rules and their order are those of istio-agent.md 11.3 and 11.5; a key that is not given has the value that
injection gives it, as in agentd/mesh/traffic.c.
"""
import os
import socket
import struct

from .run import sh

_DEFAULTS = {
    'envoy_port': '15001', 'inbound_capture_port': '15006', 'inbound_tunnel_port': '15008', 'dns_port': '15053',
    'istio_inbound_ports': '*', 'istio_local_exclude_ports': '', 'istio_service_cidr': '*',
    'istio_service_exclude_cidr': '', 'istio_outbound_ports': '', 'istio_local_outbound_ports_exclude': '',
    'istio_exclude_interfaces': '', 'outbound_owner_groups': '*', 'outbound_owner_groups_exclude': '',
    'redirect_dns': 'false', 'dns_servers': '', 'policy': ''}
_ALWAYS_EXCLUDED = '15090', '15021', '15020'
_LOOPBACK = {False: '127.0.0.1/32', True: '::1/128'}
_PASSTHROUGH = {False: '127.0.0.6/32', True: '::6/128'}
_PROXY = 1337


def _items(text):
    return [item for item in text.split(',') if item]


class _Rules:
    def __init__(self, redirect, v6):
        if unknown := redirect.keys() - _DEFAULTS:
            raise ValueError(f'no such keys: {unknown}')
        self._c = {**_DEFAULTS, **redirect}
        self._v6 = v6
        self._dns = self._c['redirect_dns'] == 'true'
        # Without a server of either family it is all of them: capture-all-dns.
        self._servers = [('-d', s) for s in self._of_family('dns_servers')] if self._c['dns_servers'] else [()]
        self.nat, self.raw = [], []

    def _of_family(self, key):
        return [c for c in _items(self._c[key]) if (':' in c) == self._v6]

    def _add(self, chain, *rule, table=None):
        (self.nat if table is None else table).append(f'-A {chain} {" ".join(rule)}')

    def _includes_loopback(self):
        """Of either family: then nothing that stays in the pod is left alone for that reason."""
        return any(c.startswith('127.') or c.split('/')[0] == '::1' for c in _items(self._c['istio_service_cidr']))

    def interfaces(self):
        for name in _items(self._c['istio_exclude_interfaces']):
            self._add('PREROUTING', '-i', name, '-j RETURN')
            self._add('OUTPUT', '-o', name, '-j RETURN')

    def inbound(self):
        self._add('ISTIO_INBOUND', '-p tcp --dport', self._c['inbound_tunnel_port'], '-j RETURN')
        self._add('ISTIO_REDIRECT', '-p tcp -j REDIRECT --to-ports', self._c['envoy_port'])
        self._add('ISTIO_IN_REDIRECT', '-p tcp -j REDIRECT --to-ports', self._c['inbound_capture_port'])
        ports = self._c['istio_inbound_ports']
        if not ports:
            return
        self._add('PREROUTING', '-p tcp -j ISTIO_INBOUND')
        if ports == '*':
            for port in [*_items(self._c['istio_local_exclude_ports']), *_ALWAYS_EXCLUDED]:
                self._add('ISTIO_INBOUND', '-p tcp --dport', port, '-j RETURN')
            self._add('ISTIO_INBOUND', '-p tcp -j ISTIO_IN_REDIRECT')
        else:
            for port in _items(ports):
                self._add('ISTIO_INBOUND', '-p tcp --dport', port, '-j ISTIO_IN_REDIRECT')

    def _owner(self, owner, not_to_itself):
        """Rules 3 and 4: what the proxy may dial, known by its uid or by its gid."""
        self._add('ISTIO_OUTPUT', '-o lo ! -d', _LOOPBACK[self._v6], '-p tcp', not_to_itself, '-m owner', owner,
                  '-j ISTIO_IN_REDIRECT')
        if not self._includes_loopback():
            self._add('ISTIO_OUTPUT', '-o lo', '-p tcp ! --dport 53' if self._dns else '', '-m owner !', owner,
                      '-j RETURN')
        self._add('ISTIO_OUTPUT', '-m owner', owner, '-j RETURN')

    def _groups(self):
        groups = self._c['outbound_owner_groups']
        if groups == '*':
            for group in _items(self._c['outbound_owner_groups_exclude']):
                self._add('ISTIO_OUTPUT', '-m owner --gid-owner', group, '-j RETURN')
        else:
            self._add('ISTIO_OUTPUT', *(f'-m owner ! --gid-owner {g}' for g in _items(groups)), '-j RETURN')

    def outbound(self):
        c, tunnel = self._c, self._c['inbound_tunnel_port']
        self._add('OUTPUT', '-j ISTIO_OUTPUT')
        for port in _items(c['istio_local_outbound_ports_exclude']):
            for protocol in 'tcp', 'udp':
                self._add('ISTIO_OUTPUT', '-p', protocol, '--dport', port, '-j RETURN')
        self._add('ISTIO_OUTPUT', '-o lo -s', _PASSTHROUGH[self._v6], '-j RETURN')
        self._owner(f'--uid-owner {_PROXY}',
                    f'-m multiport ! --dports 53,{tunnel}' if self._dns else f'! --dport {tunnel}')
        self._owner(f'--gid-owner {_PROXY}', f'! --dport {tunnel}')
        self._groups()
        if self._dns and self._servers:
            self._add('ISTIO_OUTPUT', '-j ISTIO_OUTPUT_DNS')
        self._add('ISTIO_OUTPUT', '-d', _LOOPBACK[self._v6], '-j RETURN')
        for cidr in self._of_family('istio_service_exclude_cidr'):
            self._add('ISTIO_OUTPUT', '-d', cidr, '-j RETURN')
        for port in _items(c['istio_outbound_ports']):
            self._add('ISTIO_OUTPUT', '-p tcp --dport', port, '-j ISTIO_REDIRECT')
        if c['istio_service_cidr'] == '*':
            self._add('ISTIO_OUTPUT', '-j ISTIO_REDIRECT')
        else:
            for cidr in self._of_family('istio_service_cidr'):
                self._add('ISTIO_OUTPUT', '-d', cidr, '-j ISTIO_REDIRECT')

    def dns(self):
        if not self._dns:
            return
        for protocol in 'tcp', 'udp':
            for server in self._servers:
                self._add('ISTIO_OUTPUT_DNS', '-p', protocol, '--dport 53', *server, '-j REDIRECT --to-ports',
                          self._c['dns_port'])
        self._add('OUTPUT', '-j ISTIO_OUTPUT_DNS', table=self.raw)
        for owner in f'--uid-owner {_PROXY}', f'--gid-owner {_PROXY}':
            for ports, zone in ('--dport 53', 1), (f'--sport {self._c["dns_port"]}', 2):
                self._add('ISTIO_OUTPUT_DNS', '-p udp', ports, '-m owner', owner, f'-j CT --zone {zone}',
                          table=self.raw)
        if self._servers:
            self._add('PREROUTING', '-j ISTIO_INBOUND', table=self.raw)
        for server in self._servers:
            self._add('ISTIO_OUTPUT_DNS', '-p udp --dport 53', *server, '-j CT --zone 2', table=self.raw)
            answers = ('-s', server[1]) if server else ()
            self._add('ISTIO_INBOUND', '-p udp --sport 53', *answers, '-j CT --zone 1', table=self.raw)


_CHAINS = 'ISTIO_INBOUND', 'ISTIO_REDIRECT', 'ISTIO_IN_REDIRECT', 'ISTIO_OUTPUT', 'ISTIO_OUTPUT_DNS'


def restore_input(redirect, v6):
    rules = _Rules(redirect, v6)
    for part in rules.interfaces, rules.inbound, rules.outbound, rules.dns:
        part()
    chains = [f':{chain} - [0:0]' for chain in _CHAINS]
    return '\n'.join(['*nat', *chains, *rules.nat, 'COMMIT', '*raw', *chains, *rules.raw, 'COMMIT', ''])


def _forget_flows(netns):
    """Else a socket that gets the port of an earlier one gets its translation too (`conntrack -F`)."""
    with netns.inside(), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as s:
        s.send(struct.pack('=IHHIIBBH', 20, 1 << 8 | 2, 1 | 4, 1, 0, 0, 0, 0))
        error = struct.unpack_from('=16xi', s.recv(4096))[0]
    if error:
        raise OSError(-error, os.strerror(-error))


def apply(netns, redirect):
    """In place of what there was; both families."""
    for v6, program in (False, 'iptables-nft-restore'), (True, 'ip6tables-nft-restore'):
        sh(*netns.command(program), input=restore_input(redirect, v6))
    _forget_flows(netns)
