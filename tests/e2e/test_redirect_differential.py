"""agentd's eBPF against istio's iptables: the same sockets under the same rules see the same."""
import itertools
import os
import random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from . import cast, scene
from .run import PATIENCE_S
from .scene import (APP, ENVOY, FAR, FAR6, OWN, OWN2, OWN26, OWN6, OWN_B, OWN_B6, PEER, PEER6, PEER_B, PEER_B6, SERVICE,
                    SERVICE6)

SOAK = bool(os.environ.get('AGENTD_SOAK'))
LOCALHOST, LOCAL9, LOOP = '127.0.0.1', '127.0.0.9', '127.1.2.3'


@pytest.fixture
def sides(capturing):
    node = capturing()
    node.agentd.start()
    return scene.Captured(node), scene.Iptables(node)


def both(sides, who, rows, patience_s=PATIENCE_S):
    """What each side saw of each row."""
    futures = [getattr(side, who).submit(cast.dial, rows, patience_s) for side in sides]
    return list(zip(rows, *(f.result(300) for f in futures)))


# --- the fixed part: istio-agent.md 11.9 ---
def known(v6):
    """Row without its source, and the listener's port, without and with DNS; 0 is the one that was dialled."""
    own, peer = (OWN6, PEER6) if v6 else (OWN, PEER)
    localhost = '::1' if v6 else LOCALHOST
    app, envoy, by_uid, by_gid = (APP, APP), (ENVOY, ENVOY), (ENVOY, APP), (APP, ENVOY)
    rows = [
        ('tcp', app, peer, 80, 15001, 15001), ('tcp', app, peer, 9999, 0, 0),
        ('tcp', app, localhost, 8080, 0, 0), ('tcp', app, own, 8080, 0, 0),
        ('tcp', app, localhost, 53, 0, 15053), ('tcp', app, peer, 53, 15001, 15053),
        *((how, app, to, 53, 0, 15053) for how in ('udp', 'connected udp') for to in (peer, localhost, own)),
        ('tcp', envoy, peer, 80, 0, 0), ('tcp', envoy, peer, 53, 0, 0), ('udp', envoy, peer, 53, 0, 0),
        ('tcp', envoy, own, 8080, 15006, 15006), ('tcp', envoy, own, 15020, 15006, 15006),
        ('tcp', envoy, own, 15008, 0, 0), ('tcp', envoy, own, 53, 15006, 0), ('tcp', envoy, localhost, 8080, 0, 0),
        ('tcp', by_uid, peer, 80, 0, 0), ('tcp', by_gid, peer, 80, 0, 0), ('udp', by_gid, peer, 53, 0, 0),
        ('tcp', by_uid, own, 8080, 15006, 15006), ('tcp', by_gid, own, 8080, 0, 0),
        ('tcp', by_gid, own, 53, 0, 15006)]
    if not v6:
        rows += [('tcp', app, LOCAL9, 8080, 0, 0), ('tcp', envoy, LOCAL9, 8080, 15006, 15006)]
    return rows


@pytest.mark.parametrize('v6', [False, True])
@pytest.mark.parametrize('dns', [False, True])
def test_table(sides, v6, dns):
    redirect = {'istio_local_outbound_ports_exclude': '9999', 'redirect_dns': str(dns).lower()}
    for side in sides:
        side.configure(redirect)
    own, passthrough = (OWN6, '::6') if v6 else (OWN, '127.0.0.6')
    table = [((how, *user, to, port, None), expected[dns] or port) for how, user, to, port, *expected in known(v6)]
    table += [(('tcp', *user, own, 8080, passthrough), 8080) for user in ((APP, APP), (ENVOY, ENVOY))]
    if not v6:
        table += [(('tcp', ENVOY, ENVOY, '127.0.0.6', 15002, LOCALHOST), 15006)]
    check(sides, 'pod', table)
    check(sides, 'peer', [(('tcp', 0, 0, own, port, None), 15006) for port in (8080, 53, 15001)])
    check(sides, 'peer', [(('tcp', 0, 0, own, port, None), port) for port in (15008, 15020, 15021, 15090)])


def check(sides, who, table):
    for (_, expected), (row, *seen) in zip(table, both(sides, who, [row for row, _ in table])):
        assert [isinstance(s, dict) and s['port'] for s in seen] == [expected, expected], (row, expected, seen)


def test_the_default_routes_device(sides):
    """What leaves by it is excluded with it; what stays in the pod is not, istio-validation's question among it."""
    for side in sides:
        side.configure({'istio_exclude_interfaces': 'eth0', 'istio_service_cidr': '127.0.0.0/8'})
    check(sides, 'pod', [(('tcp', user, user, to, port, source), expected) for user, to, port, source, expected in (
        (ENVOY, '127.0.0.6', 15002, LOCALHOST, 15006), (ENVOY, LOCAL9, 8080, None, 15006), (ENVOY, OWN, 8080, None, 15006),
        (ENVOY, OWN6, 8080, None, 15006), (APP, LOCAL9, 8080, None, 15001), (APP, LOCALHOST, 8080, None, 8080),
        (APP, OWN, 8080, None, 8080), (APP, FAR, 80, None, 80), (APP, FAR6, 80, None, 80), (APP, PEER, 80, None, 80))])
    check(sides, 'peer', [(('tcp', 0, 0, own, 8080, None), 8080) for own in (OWN, OWN6)])


# --- the rest: any configuration, any socket ---
USERS = (APP, APP), (0, 0), (ENVOY, ENVOY), (ENVOY, APP), (APP, ENVOY), (APP, 2002)
OWNS4, OWNS6 = (OWN, OWN2, OWN_B), (OWN6, OWN26, OWN_B6)
ADDRESSES4 = *OWNS4, PEER, PEER_B, SERVICE, FAR, LOCALHOST, LOCAL9, LOOP, '127.0.0.6', '0.0.0.0'
ADDRESSES6 = *OWNS6, PEER6, PEER_B6, SERVICE6, FAR6, '::1', '::6', '::'
PORTS = 53, 80, 8080, 9999, 15001, 15006, 15008, 15020, 15053, 15090, 16008
HOW = 'tcp', 'udp', 'connected udp', 'mapped tcp', 'mapped udp', 'mapped connected udp'


def is_local(address):
    return address in (*OWNS4, *OWNS6, '::1', '::6', '::') or address.startswith(('127.', '0.'))


def sources(to):
    """Those that the kernel has a way from; None is the one it chooses."""
    own, local = ((OWN26, OWN6), ('::1', '::6')) if ':' in to else ((OWN2, OWN), (LOCALHOST, '127.0.0.6'))
    return None, None, *own, *(local if is_local(to) else ())


def rows(users, addresses, sources_of):
    """Of UDP only what is answered, for otherwise a socket waits."""
    return [(how, *user, to, port, source) for how, user, to, port in itertools.product(HOW, users, addresses, PORTS)
            if ('tcp' in how or port in scene.EVERYWHERE) and not ('mapped' in how and ':' in to)
            for source in sources_of(to)]


ROWS = rows(USERS, ADDRESSES4 + ADDRESSES6, sources)
ARRIVALS = rows([(0, 0)], OWNS4 + OWNS6, lambda to: (None, SERVICE6 if ':' in to else SERVICE))


def comma(items, **kw):
    return st.lists(st.sampled_from(items), unique=True, **kw).map(','.join)


ranges = comma(['0.0.0.0/0', '10.0.0.0/8', '10.96.0.0/12', '10.96.0.0/24', f'{SERVICE}/32', f'{PEER}/32', f'{OWN}/32',
                f'{OWN2}/32', '10.77.0.0/16', '192.0.0.0/8', f'{FAR}/32', '::/0', 'fd00::/8', 'fd96::/16',
                f'{SERVICE6}/128', f'{PEER6}/128', f'{OWN6}/128', 'fd77::/64', '2001:db8::/32', f'{FAR6}/128'],
               max_size=6)
ports = comma([str(p) for p in PORTS], max_size=4)
groups = comma([str(g) for _, g in USERS], max_size=3)
loopbacks = st.sampled_from(['', '', '', '127.1.2.3/32', '127.0.0.0/8', '127.0.0.1/32', '::1/128'])


def either(*strategies):
    return st.one_of(*(st.just(s) if isinstance(s, str) else s for s in strategies))


@st.composite
def configurations(draw):
    c = {'istio_inbound_ports': draw(either('*', ports)), 'istio_local_exclude_ports': draw(ports),
         'istio_service_exclude_cidr': draw(ranges), 'istio_outbound_ports': draw(ports),
         'istio_local_outbound_ports_exclude': draw(ports), 'outbound_owner_groups': draw(either('*', '*', groups)),
         'envoy_port': draw(st.sampled_from(['15001', '15001', '16001'])),
         'inbound_capture_port': draw(st.sampled_from(['15006', '15006', '16006'])),
         'inbound_tunnel_port': draw(st.sampled_from(['15008', '16008'])),
         'dns_port': draw(st.sampled_from(['15053', '15053', '16053']))}
    included = ','.join(filter(None, (draw(ranges), draw(loopbacks))))
    c['istio_service_cidr'] = draw(st.sampled_from(['*', included]))
    c['istio_exclude_interfaces'] = draw(st.sampled_from(['', '', '', 'eth1', 'none0,eth1', 'eth0']))
    if c['outbound_owner_groups'] == '*':
        c['outbound_owner_groups_exclude'] = draw(groups)
    c['redirect_dns'] = draw(st.sampled_from(['true', 'false']))
    if c['redirect_dns'] == 'true':
        c['dns_servers'] = draw(comma([PEER, SERVICE, LOCALHOST, LOCAL9, OWN, PEER6, SERVICE6, '::1'], max_size=3))
    return c


def comparable(row, seen):
    """A captured dial comes from the pod's first address, also of a pod with two cables: the programs know no routes."""
    if isinstance(seen, str) or row[3] not in (PEER_B, PEER_B6) or row[5]:
        return seen
    return {k: v for k, v in seen.items() if k not in ('sockname', 'peer')}


def differences(sides, dials, arrivals):
    for who, some in (('pod', dials), ('peer', arrivals)):
        for row, ebpf, iptables in both(sides, who, some, 1):  # a few are answered by nobody
            if 'timeout' in (ebpf, iptables) and ebpf != iptables:
                (_, ebpf, iptables), = both(sides, who, [row])
            if comparable(row, ebpf) != comparable(row, iptables):
                yield f'{who} {row}: eBPF {ebpf}, iptables {iptables}'


def test_any_configuration(sides):
    @settings(max_examples=400 if SOAK else 15, deadline=None, derandomize=not SOAK, database=None,
              suppress_health_check=list(HealthCheck))
    @given(configurations(), st.integers(0, 1 << 30))
    def same(redirect, seed):
        for side in sides:
            side.configure(redirect)
        some = random.Random(seed)
        found = list(differences(sides, some.sample(ROWS, 1500), some.sample(ARRIVALS, 60)))
        assert not found, '\n'.join([str(redirect), *found])
    same()
