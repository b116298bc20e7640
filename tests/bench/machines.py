"""Machines: an identity by certificate beside one by token, its first certificate, a stream that moves, and apps that are asked."""
import contextlib
import json
import statistics
import time
from pathlib import Path

from tests.e2e import run as e2e
from tests.e2e.crowd import Crowd
from tests.e2e.identity import Identity, prepared, reboot
from tests.e2e.node import Node

from . import agent
from .tools import Held, row

IDENTITIES, STARTS, MOVES, TTL_S, PROBED, PROBED_S = 20, 5, 10, 6, 50, 30


@contextlib.contextmanager
def _node(made, log='info'):
    node = prepared(Node(*made, mode='release', istiod_options=('--client-certificates',)))
    node.agentd.settings.update(log_level=log, csr_per_second=100, certificate_scope='pod')
    node.agentd.plane.update(opens_per_second=1000, opens_burst=1000)
    try:
        yield node
    finally:
        node.remove()


def _connections(node):
    """At istiod, with a stream at least."""
    closed = {r['stream'] for r in node.istiod.journal('close')}
    return len({s['peer'] for s in node.istiod.journal('open') if s['stream'] not in closed})


def _held(made, **fields):
    """PSS with a first pod, and with IDENTITIES more; connections at the end."""
    with _node(made) as node, contextlib.ExitStack() as stack:
        node.agentd.start()
        held = Held('back')  # the stream of a machine moves to its first certificate
        stack.callback(held.stop)
        pss = []
        for count in 1, IDENTITIES:
            pods = Crowd(node, count, count, f'to-{count}', **fields).pods
            pairs = [(Path(p['mount']) / 'socket', Path(p['mount']) / 'XDS') for p in pods]
            e2e.wait_for('the sockets', lambda ps=pairs: all(s.exists() for p in ps for s in p))
            held.add(pairs)
            e2e.wait_for('certificates', lambda: all(
                i['credential'] == 'issued certificate' for i in node.agentd.ctl('certs').get('identities', ())))
            time.sleep(agent.SETTLE_S)
            pss.append(agent.both(node).memory_kib())
        return (pss[1] - pss[0]) / IDENTITIES, _connections(node)


def _firsts(made):
    """From the start to the first certificate, in s: by token, and after a reboot by the kept one."""
    token, kept = [], []
    for _ in range(STARTS):
        with _node(made) as node:
            machine, began = Identity(node, 'vm'), time.time()
            node.agentd.start()
            token.append(e2e.wait_for('a certificate', lambda m=machine: m.issued('token'))[0]['time'] - began)
            machine.wait_credential('issued certificate')
            e2e.wait_for('it to be kept', machine.kept.exists)
            machine.pod.remove_token()
            so_far = len(machine.issued('certificate'))
            began = time.time()
            reboot(node)
            kept.append(e2e.wait_for('another', lambda m=machine, n=so_far: m.issued('certificate')[n:])[0]['time'] - began)
    return token, kept


def _moves(made):
    """For how long the stream of a real Envoy was away at each renewed certificate, in ms."""
    with _node(made) as node:
        node.istiod.order('ttl', seconds=TTL_S)
        machine = Identity(node, 'vm')
        node.agentd.start()
        machine.pod.start_envoy()
        e2e.wait_for('renewals', lambda: len(machine.gaps()) >= MOVES, patience_s=10 * MOVES)
        return [g * 1000 for g in machine.gaps()]


def _probed(made):
    """ms of CPU for a question, and % of a core for PROBED machines whose real Envoys are asked each second."""
    probe = {'readinessProbe': {'periodSeconds': 1, 'tcpSocket': {'port': 8080}}}
    with _node(made, log='warn') as node:
        pods = [node.pod(f'vm{n}', env={'PROXY_CONFIG': json.dumps(probe)}) for n in range(PROBED)]
        node.agentd.start()
        for pod in pods:
            pod.start_envoy()
        for pod in pods:
            pod.wait_ready()

        def asked():
            return sum(p['health']['asked'] for p in node.agentd.ctl('pods')['pods'])
        time.sleep(agent.SETTLE_S)
        both, before = agent.both(node), asked()
        cpu, began = both.cpu_s(), time.monotonic()
        time.sleep(PROBED_S)
        cpu, took = both.cpu_s() - cpu, time.monotonic() - began
        return cpu / (asked() - before) * 1e3, cpu / took * 100, (asked() - before) / took


def machines(made):
    (token, shared), (own, alone) = _held(made), _held(made, identity='certificate')
    row('an identity, with 1 ADS and 2 SDS streams', 'by token', ' by certificate')
    row('  PSS, KiB for each', f'{token:.0f}', f'{own:.0f}')
    row(f'  connections at istiod of {IDENTITIES + 1}', shared, alone)
    firsts = _firsts(made)
    row('  start to first certificate, s: median, most', *(f'{statistics.median(f):.2f}, {max(f):.2f}' for f in firsts))
    gaps = _moves(made)
    row(f'a stream that moves, ms: median, most of {len(gaps)}', f'{statistics.median(gaps):.0f}', f'{max(gaps):.0f}')
    each, core, rate = _probed(made)
    row(f'{PROBED} machines asked each second, % of a core', f'{core:.1f}')
    row('  CPU ms for a question; questions a second', f'{each:.2f}', f'{rate:.0f}')
