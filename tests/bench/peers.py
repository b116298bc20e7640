"""agentd beside pilot-agent and the SPIRE agent: the same client, the same work, in turns, in one run.

    [ROUNDS=N] make bench-peers, or python3 -m tests.bench.peers

peer.py says how each is started.  What one of them cannot do is a dash; one that is not there says so.  Nothing passes or fails.
"""
import contextlib
import os
import statistics
import time

from tests.e2e import netns
from tests.e2e import run as e2e

from . import agent, traffic
from .peer import Agentd, PilotAgent, Pod, Proxyless, Spire
from .table import attempt, machine
from .tools import ANSWER, SIZES, Piped, Processes, load, row

ROUNDS = int(os.environ.get('ROUNDS', '5'))
KINDS = Agentd, PilotAgent, Proxyless, Spire
COUNTS, FURTHER = (0, 1, 10, 50), (250, 1000)
SETTLE_S, IDLE_S, SECONDS, CONNECTIONS, SECRET_BYTES = 5, 30, 1, 100, 2500
SIZES_RELAYED = '100 KiB', '3 MB'


def of_all(peers, measure):
    """{name: what `measure` finds, or None where there is no such thing}."""
    return {name: measure(p) if p else None for name, p in peers.items()}


def line(label, found, form='{:,.0f}'):
    row(label, *('-' if v is None else form.format(v) for v in found.values()))


def rounds(label, found, form='{:,.0f}'):
    """Of each round; the median, and below it the lowest and the highest."""
    line(label, {k: statistics.median(v) if v else None for k, v in found.items()}, form)
    row('    lowest-highest round', *(f'{form.format(min(v))}-{form.format(max(v))}' if v else '-' for v in found.values()))


def memory(peers):
    for count in COUNTS:
        for p in filter(None, peers.values()):
            p.hold(count)
        time.sleep(SETTLE_S)
        line(f'PSS with {count} pods, MiB', of_all(peers, lambda p: p.processes().memory_kib() / 1024), '{:.1f}')
    line('  processes', of_all(peers, lambda p: len(p.processes().pids)))
    line('  certificates signed', of_all(peers, lambda p: p.signed()))
    line('  connections to the control plane', of_all(peers, lambda p: p.connections()))


def idle(peers):
    """All of them in the same time."""
    def now():
        return of_all(peers, lambda p: (p.processes().cpu_s() * 1e3, p.processes().switches()))
    before = now()
    time.sleep(IDLE_S)
    after = now()
    row(f'  idle, for a minute (seen: {IDLE_S} s)')
    for n, what in enumerate(('CPU ms', 'threads woken')):
        line(f'    {what}', {k: after[k] and (after[k][n] - before[k][n]) * 60 / IDLE_S for k in peers})


def _with_secrets(peers):
    return {k: p for k, p in peers.items() if p and 'SDS' in p.sockets}


def arrivals(peers):
    found = {k: [] for k in peers}
    for _ in range(ROUNDS):
        for name, p in _with_secrets(peers).items():
            found[name].append(p.arrives())
    rounds('a pod comes: ms to its first secret', found)


def _fetch(way, streams):
    pod, processes = way
    cpu = processes.cpu_s()
    one = load('sds', pod.sds, streams, SECONDS, enter=pod.enter)
    return {**one, 'rate': one['n'] / one['seconds'], 'cpu_us': (processes.cpu_s() - cpu) / one['n'] * 1e6}


def _turns(ways, measure):
    """{name: [what `measure` found in each round]}; nothing for who cannot."""
    found = {k: [] for k in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            if way:
                found[name].append(measure(way))
    return found


def _of(found, key, unit=1.0):
    return {k: [f[key] * unit for f in v] for k, v in found.items()}


def _beside(found, other):
    """Each round's, divided by the other's in the same round."""
    return {k: [a / b for a, b in zip(v, found[other])] for k, v in found.items()}


def fetches(peers, directory):
    """`grpc alone` is answer.c."""
    able = _with_secrets(peers)
    ways = {k: (able[k].asked(), able[k].processes()) if k in able else None for k in peers}
    with contextlib.ExitStack() as stack:
        alone = Piped(ANSWER, directory / 'answer', SECRET_BYTES)
        stack.callback(alone.stop)
        ways['grpc alone'] = Pod(directory / 'answer'), Processes([alone.pid])
        row('', *ways)
        firsts = _turns(ways, lambda way: load('first', way[0].sds, CONNECTIONS, enter=way[0].enter))
        for what in 'p50', 'p99':
            rounds(f'first secret of a new connection: {what} ms', _of(firsts, what, 1e-3), '{:.2f}')
        for streams in traffic.STREAMS:
            found = _turns(ways, lambda way, n=streams: _fetch(way, n))
            row(f'fetches of a cached secret, {streams} at a time')
            for what, key, unit, form in (('p50 ms', 'p50', 1e-3, '{:.2f}'), ('p99 ms', 'p99', 1e-3, '{:.2f}'),
                                          ('a second', 'rate', 1, '{:,.0f}'), ('CPU us of each', 'cpu_us', 1, '{:.0f}')):
                rounds(f'  {what}', _of(found, key, unit), form)
            if found.get(PilotAgent.name):
                rounds("  CPU / pilot-agent's", _beside(_of(found, 'cpu_us'), PilotAgent.name), '{:.2f}')


def _restart(p):
    signed = p.signed()
    took, cpu = p.restarted()
    time.sleep(SETTLE_S)
    return {'s until all pods have everything': took, 'CPU s meanwhile': cpu, 'certificates signed again': p.signed() - signed}


def restarts(peers):
    found = _turns(peers, _restart)
    row(f'all killed at once, and started, {COUNTS[-1]} pods')
    for what, form in ('s until all pods have everything', '{:.2f}'), ('CPU s meanwhile', '{:.2f}'), ('certificates signed again', '{:.0f}'):
        rounds(f'  {what}', _of(found, what), form)


def beside(made):
    """All at once on this machine, each with its own control plane."""
    with contextlib.ExitStack() as stack:
        peers = {}
        for kind in KINDS:
            try:
                peers[kind.name] = stack.enter_context(kind(made))
            except (RuntimeError, OSError) as e:
                peers[kind.name] = None
                row(f'{kind.name}: {e}')
        row('', *peers)
        row('sockets of a pod', *(k.sockets for k in KINDS))
        for measure in memory, idle, arrivals, restarts:
            attempt(measure.__name__, measure, peers)
        attempt('fetches', fetches, peers, made[0])


def further(made):
    with Agentd(made) as p:
        for count in FURTHER:
            p.hold(count)
            time.sleep(SETTLE_S)
            row(f'agentd with {count} pods: PSS MiB, connections', f'{p.processes().memory_kib() / 1024:.1f}', p.connections())


def relays(made):
    """Pushes of plane.c: straight, and through each."""
    with agent.relaying(made) as (node, plane, pod), PilotAgent(made, plane.address, plane.root) as theirs:
        ways = {'direct': (f'tls:{plane.address}', Processes([]), None), Agentd.name: (pod.mount / 'XDS', agent.both(node), pod.netns.path),
                PilotAgent.name: (theirs.add(1)[0].ads, theirs.processes(), None)}
        row('ADS pushes, one after another', *ways)
        for size in SIZES_RELAYED:
            found = _turns(ways, lambda way, what=(SIZES[size], traffic.PUSHES[size]): traffic.relayed(*way, *what))
            rounds(f'  {size}: p50 ms', _of(found, 'p50', 1e-3), '{:.2f}')
            rounds('    / direct', _beside(_of(found, 'p50'), 'direct'), '{:.2f}')
            rounds('    CPU s for a GB', {**_of(found, 'cpu_gb'), 'direct': []}, '{:.1f}')


def main():
    load_before, began = os.getloadavg()[0], time.monotonic()
    with e2e.run() as made, netns.own():
        for measure in beside, further, relays:
            attempt(measure.__name__, measure, made)
    machine(load_before, began)


if __name__ == '__main__':
    main()
