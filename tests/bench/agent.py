"""agentd on a node of its own: what it needs for its pods, and what the first secret takes."""
import contextlib
import statistics
import time
from pathlib import Path

from tests.e2e import run as e2e
from tests.e2e.crowd import Crowd
from tests.e2e.node import Node

from . import traffic
from .tools import Held, Plane, Processes, load, row

POD_COUNTS = (0, 10, 50, 250)
IDLE_S, SETTLE_S, FIRST_PODS = 20, 4, 10  # SETTLE_S: freed memory goes back within 2 s of a burst


@contextlib.contextmanager
def node_of(made):
    """Its log as in production, and the pace as high as it goes: what waits for its turn costs nothing."""
    node = Node(*made, mode='release')
    node.agentd.settings.update(log_level='info', csr_per_second=100)
    node.agentd.plane.update(opens_per_second=1000, opens_burst=1000)
    try:
        yield node
    finally:
        node.remove()


def both(node):
    return Processes([node.agentd.process.pid, node.agentd.worker_pid()])


def memory(made):
    """Each pod has an account of its own, 1 ADS and 2 SDS streams, and requests as large as Envoy's."""
    pss, worker = [], []
    with node_of(made) as node, contextlib.ExitStack() as stack:
        node.agentd.start()
        held = Held()
        stack.callback(held.stop)
        for before, count in zip((0, *POD_COUNTS), POD_COUNTS):
            pods = Crowd(node, count - before, count - before, f'to-{count}').pods if count else []
            pairs = [(Path(p['mount']) / 'socket', Path(p['mount']) / 'XDS') for p in pods]
            e2e.wait_for('the sockets', lambda ps=pairs: all(s.exists() for p in ps for s in p))
            if pairs:
                held.add(pairs)
            time.sleep(SETTLE_S)
            pss.append(both(node).memory_kib())
            worker.append(Processes([node.agentd.worker_pid()]).memory_kib())
        row('pods, 1 ADS and 2 SDS streams each', *POD_COUNTS)
        row('  PSS of agentd and its worker, KiB', *(f'{p:,}' for p in pss))
        row('  of that the worker', *(f'{p:,}' for p in worker))
        row('  KiB for each pod since the first column', '', *(
            f'{(p - pss[0]) / c:.0f}' for p, c in zip(pss[1:], POD_COUNTS[1:])))
        row('  KiB for each pod since the column before', '', *(
            f'{(p - q) / (c - d):.0f}' for p, q, c, d in zip(pss[1:], pss, POD_COUNTS[1:], POD_COUNTS)))
        idle(both(node))


def idle(processes):
    time.sleep(SETTLE_S)
    cpu, switches, ticks = processes.cpu_s(), processes.switches(), processes.ticks()
    time.sleep(IDLE_S)
    scale = 60 / IDLE_S
    row(f'idle with {POD_COUNTS[-1]} pods, for a minute (seen: {IDLE_S} s)')
    row('  CPU ms; ticks of 10 ms; share of a core', f'{(processes.cpu_s() - cpu) * scale * 1e3:.0f}',
        f'{(processes.ticks() - ticks) * scale:.0f}', f'{(processes.cpu_s() - cpu) / IDLE_S:.3%}')
    row('  voluntary context switches', f'{(processes.switches() - switches) * scale:.0f}')


def _first(node, name, sa):
    """Milliseconds from the manifest's appearance to the pod's first secret."""
    pod = node.pod(name, sa=sa, manifest=False)
    pod.write_token()
    start = time.time()
    pod.write_manifest()
    return (load('first', pod.mount / 'socket', 1, netns=pod.netns.path)['first_at'] - start) * 1e3


def secrets(made):
    with node_of(made) as node:
        node.agentd.start()
        fresh = [_first(node, f'fresh-{i}', f'sa-{i}') for i in range(FIRST_PODS)]
        cached = [_first(node, f'cached-{i}', 'sa-0') for i in range(FIRST_PODS)]
        asked = {r['identity']: r['time'] for r in node.istiod.journal('csr-asked')}
        own = [(r['time'] - asked[r['identity']]) * 1e3 for r in node.istiod.issued()]
        row('manifest appears to first secret', 'cached', 'new account', 'signing alone')
        row('  median ms', *(f'{statistics.median(times):.1f}' for times in (cached, fresh, own)))
        pod = node.pods[0]
        traffic.connections(pod.mount / 'socket', pod.netns.path)
        traffic.fetches(pod.mount / 'socket', both(node), pod.netns.path)


def relay(made):
    with node_of(made) as node, contextlib.ExitStack() as stack:
        plane = Plane(node.dir / 'plane')
        stack.callback(plane.stop)
        node.agentd.root_file = plane.root
        node.agentd.plane.update(address=plane.address, root=str(plane.root))
        node.agentd.start()
        pod = node.pod('web')
        pod.wait_served()
        traffic.relay(pod.mount / 'XDS', f'tls:{plane.address}', both(node), pod.netns.path)
