"""agentd on a node of its own: what it needs for its pods, and what the first secret takes."""
import contextlib
import os
import signal
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e import attacker, mesh, run as e2e
from tests.e2e.crowd import Crowd
from tests.e2e.node import Node
from tests.e2e.test_limits import memory_limit

from . import traffic
from .tools import FLOOR, Held, Piped, Plane, Processes, load, row

POD_COUNTS = (0, 10, 50, 250)
ENVOYS, ACCOUNTS = 50, 20
IDLE_S, FIRST_PODS, KILLS = 20, 10, 5
SETTLE_S = 4  # freed memory goes back within 2 s of a burst
GREETINGS, ROUNDS = 300, 5
MIB, UNBOUND_MIB = 64, 65536  # push_memory_mib: the default, and none
PUSHES = (20, 3_000_000, MIB), (250, 3_000_000, MIB), (50, 20_000_000, MIB), (250, 3_000_000, UNBOUND_MIB)
LIMIT_MIB = 256  # of the cgroup, but where there is no bound
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + b'\0\0\0\x04\0\0\0\0\0'


@contextlib.contextmanager
def node_of(made, mode='release'):
    """Its log as in production, and the pace as high as it goes: what waits for its turn costs nothing."""
    node = Node(*made, mode=mode)
    node.agentd.settings.update(log_level='info', csr_per_second=100, pod_connections=1024,
                                pod_requests_per_second=1000000, pod_requests_burst=1000000,
                                pods_requests_per_second=10000000)
    node.agentd.plane.update(opens_per_second=1000, opens_burst=1000)
    try:
        yield node
    finally:
        node.remove()


def both(node):
    return Processes([node.agentd.process.pid, node.agentd.worker_pid()])


def crowd_of(node, count, before=0):
    """So many pods more than those before, each with an account: their (SDS socket, ADS socket), which are there."""
    pods = Crowd(node, count, count, f'crowd-{before}', first_account=before).pods
    pairs = [(Path(p['mount']) / 'socket', Path(p['mount']) / 'XDS') for p in pods]
    e2e.wait_for('the sockets', lambda: all(s.exists() for p in pairs for s in p))
    return pairs


def _each(kib):
    """Rows of a list of figures, one for each of POD_COUNTS."""
    row('  KiB for each pod since the first column', '', *(f'{(k - kib[0]) / c:.0f}' for k, c in zip(kib[1:], POD_COUNTS[1:])))
    row('  KiB for each pod since the column before', '', *(
        f'{(k - l) / (c - d):.0f}' for k, l, c, d in zip(kib[1:], kib, POD_COUNTS[1:], POD_COUNTS)))


def _floor_memory(directory):
    """The same streams of the same clients, through grpc core and nothing else."""
    with contextlib.ExitStack() as stack:
        plane = Plane(directory)
        stack.callback(plane.stop)
        floor = Piped(FLOOR, directory / 'floor', plane.address, plane.root)
        stack.callback(floor.stop)
        held = Held()
        stack.callback(held.stop)
        kib = []
        for before, count in zip((0, *POD_COUNTS), POD_COUNTS):
            if count:
                held.add([(directory / 'floor', directory / 'floor')] * (count - before))
            time.sleep(SETTLE_S)
            floor.line()
            time.sleep(1)
            kib.append(Processes([floor.pid]).memory_kib())
        row('grpc core alone, the same streams: PSS, KiB', *(f'{k:,}' for k in kib))
        _each(kib)


def memory(made):
    """Each pod has an account of its own, 1 ADS and 2 SDS streams, and requests as large as Envoy's."""
    pss, worker = [], []
    with node_of(made) as node, contextlib.ExitStack() as stack:
        node.agentd.start()
        held = Held()
        stack.callback(held.stop)
        for before, count in zip((0, *POD_COUNTS), POD_COUNTS):
            if count:
                held.add(crowd_of(node, count - before, before))
            time.sleep(SETTLE_S)
            pss.append(both(node).memory_kib())
            worker.append(Processes([node.agentd.worker_pid()]).memory_kib())
        row('pods, 1 ADS and 2 SDS streams each', *POD_COUNTS)
        row('  PSS of agentd and its worker, KiB', *(f'{p:,}' for p in pss))
        row('  of that the worker', *(f'{p:,}' for p in worker))
        _each(pss)
        idle(both(node))
        held.stop()
        _floor_memory(node.dir / 'plane')


def envoys(made):
    """Real ones, each with a TLS server, a client's cluster and the certificate that both ask for."""
    with node_of(made) as node:
        node.agentd.start()
        pods = [node.pod(f'web-{n}', sa=f'sa-{n % ACCOUNTS}') for n in range(ENVOYS)]
        for pod in pods:
            node.istiod.set(pod.id, **mesh.server(pods))
            pod.start_envoy()
        for pod in pods:
            pod.wait_ready()
        time.sleep(SETTLE_S)
        row('real Envoys; accounts', ENVOYS, ACCOUNTS)
        row('  PSS of agentd and its worker, KiB', f'{both(node).memory_kib():,}')
        row('  certificates signed', len(node.istiod.issued()))
        for pod in pods:
            pod.remove()


def idle(processes):
    time.sleep(SETTLE_S)
    cpu, switches, ticks = processes.cpu_s(), processes.switches(), processes.ticks()
    time.sleep(IDLE_S)
    scale = 60 / IDLE_S
    row(f'idle with {POD_COUNTS[-1]} pods, for a minute (seen: {IDLE_S} s)')
    row('  CPU ms; ticks of 10 ms; share of a core', f'{(processes.cpu_s() - cpu) * scale * 1e3:.0f}',
        f'{(processes.ticks() - ticks) * scale:.0f}', f'{(processes.cpu_s() - cpu) / IDLE_S:.3%}')
    row('  voluntary context switches', f'{(processes.switches() - switches) * scale:.0f}')


def _pod(node, name, sa=None):
    """Without a manifest yet, and without a cgroup: its clients here are processes of the host's."""
    pod = node.pod(name, sa=sa, manifest=False)
    pod.write_token()
    (pod.manifest_file.with_suffix('') / 'cgroup').unlink()
    return pod


def _first(node, name, sa):
    """Milliseconds from the manifest's appearance to the pod's first secret."""
    pod = _pod(node, name, sa)
    start = time.time()
    pod.write_manifest()
    return (load('first', pod.mount / 'socket', 1, netns=pod.netns.path)['first_at'] - start) * 1e3


def _first_bytes(pod):
    """When a connection that is begun now hears from the worker."""
    with pod.netns.inside():
        s = socket.socket(socket.AF_UNIX)
    with s:
        s.connect(str(pod.mount / 'socket'))
        s.sendall(PREFACE)
        if not s.recv(9):
            raise RuntimeError('accepted, then left alone')
    return time.monotonic()


def _killed(made):
    """One death in a life: a second one soon after would be waited for.  What it took, in the order of the rows."""
    with node_of(made) as node, contextlib.ExitStack() as stack:
        node.agentd.start()
        held = Held('back')
        stack.callback(held.stop)
        pairs = crowd_of(node, POD_COUNTS[-1])
        probe = _pod(node, 'probe')
        probe.write_manifest()
        held.add(pairs)
        _first_bytes(probe.wait_served())
        time.sleep(SETTLE_S)
        worker = node.agentd.worker_pid()
        before, start = Processes([worker]).memory_kib(), time.monotonic()
        os.kill(worker, signal.SIGKILL)
        first = _first_bytes(probe)
        held.wait(again=True)
        end, successor = time.monotonic(), Processes([node.agentd.worker_pid()])
        return ((first - start) * 1e3, (end - start) * 1e3, before, successor.memory_kib(), successor.peak_kib(),
                len(node.istiod.issued()) - len(node.pods) - len(pairs))


def _killed_when_one_knocks(made):
    """Nobody else does, and on a tmpfs the manifest that came first is the last to be read."""
    with node_of(made) as node:
        probe = _pod(node, 'probe')
        probe.write_manifest()
        node.agentd.start()
        crowd_of(node, POD_COUNTS[-1])
        _first_bytes(probe.wait_served())
        start = time.monotonic()
        os.kill(node.agentd.worker_pid(), signal.SIGKILL)
        return (_first_bytes(probe) - start) * 1e3


def restart(made):
    """The worker is killed; who was connected comes back at once (Envoy itself waits up to a second or more)."""
    row(f'SIGKILL of the worker, {POD_COUNTS[-1]} pods, {KILLS} times', 'median', 'lowest', 'highest')
    found = zip(*(_killed(made) for _ in range(KILLS)))
    for what, values in zip(('to the first answer on a new connection, ms', 'to the last stream and secret restored, ms',
                             'PSS of the worker before, KiB', 'PSS of the next one after, KiB',
                             'peak RSS of the next one, KiB', 'certificates signed again'), found):
        row(f'  {what}', *(f'{f(values):,.0f}' for f in (statistics.median, min, max)))
    alone = [_killed_when_one_knocks(made) for _ in range(KILLS)]
    row('  to the first answer, if one pod alone connects', *(f'{f(alone):,.0f}' for f in (statistics.median, min, max)))


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


def _greeted(path, count):
    """Microseconds from connect to the server's first bytes, median of `count` connections."""
    os.chdir(Path(path).parent)
    found = []
    for _ in range(count):
        with socket.socket(socket.AF_UNIX) as s:
            start = time.monotonic()
            s.connect(Path(path).name)
            s.sendall(PREFACE)
            if not s.recv(9):
                raise RuntimeError('refused')
            found.append((time.monotonic() - start) * 1e6)
    return statistics.median(found)


def attest(made):
    """SDS: the worker knows the pair.  XDS: the broker is asked each time, for the addresses, too."""
    with node_of(made) as node:
        node.agentd.settings.update(pod_connections=1024, pod_requests_per_second=10000, pod_requests_burst=100000,
                                    pods_requests_per_second=1000000)
        pod = node.pod('one')
        node.agentd.start()
        pod.wait_served()
        pod.call(_greeted, pod.mount / 'XDS', GREETINGS)
        known, asked = ([pod.call(_greeted, pod.mount / name, GREETINGS) for _ in range(ROUNDS)]
                        for name in ('socket', 'XDS'))
        row('connect to first byte', 'known', 'broker asked', 'ratio')
        row('  median us', f'{statistics.median(known):.0f}', f'{statistics.median(asked):.0f}',
            f'{statistics.median(asked) / statistics.median(known):.2f}')


@contextlib.contextmanager
def relaying(made):
    """A node whose control plane is plane.c: node, plane, and a pod that is served."""
    with node_of(made) as node, contextlib.ExitStack() as stack:
        plane = Plane(node.dir / 'plane')
        stack.callback(plane.stop)
        node.agentd.root_file = plane.root
        node.agentd.plane.update(address=plane.address, server_name='istiod.istio-system.svc')
        node.agentd.start()
        pod = _pod(node, 'web')
        pod.write_manifest()
        yield node, plane, pod.wait_served()


def relay(made):
    with relaying(made) as (node, plane, pod), contextlib.ExitStack() as stack:
        direct, worker = f'tls:{plane.address}', Processes([node.agentd.worker_pid()])
        floor = Piped(FLOOR, node.dir / 'floor', plane.address, plane.root)
        stack.callback(floor.stop)
        alone = node.dir / 'floor', Processes([floor.pid]), None
        traffic.relay({'the agent': (pod.mount / 'XDS', both(node), pod.netns.path), 'grpc alone': alone}, direct)
        traffic.changes({'grpc alone': alone, 'agentd': (pod.mount / 'XDS', worker, pod.netns.path)}, direct)


def push(made):
    """A mesh-wide change: each pod is pushed its configuration at once; plane.c has no limit of its own."""
    found = [_pushed(made, *p) for p in PUSHES]
    row('pods, pushed at once', *(f'{c} x {s // 10**6} MB' for c, s, _ in PUSHES))
    row('  push_memory_mib', *(m if m != UNBOUND_MIB else 'no bound' for *_, m in PUSHES))
    for i, what in enumerate(('PSS of the worker before, KiB', 'peak RSS of the worker, KiB', f'RSS {SETTLE_S} s after, KiB',
                              'seconds until all had it', 'most held (agentd_push_memory_bytes), KiB',
                              'most in the cgroup, sockets included, KiB')):
        row(f'  {what}', *(f'{f[i]:,.{1 if i == 3 else 0}f}' for f in found))


def _cgroup_peak_kib(node):
    files = node.agentd.cgroup.path / 'memory.peak', Path(f'/sys/fs/cgroup/memory/{node.name}.memory/memory.max_usage_in_bytes')
    return next((int(f.read_text()) for f in files if f.exists()), 0) / 1024


def _pushed(made, count, size, bound_mib):
    with node_of(made) as node, contextlib.ExitStack() as stack:
        plane = Plane(node.dir / 'plane')
        stack.callback(plane.stop)
        node.agentd.settings.update(push_memory_mib=bound_mib)
        node.agentd.root_file = plane.root
        node.agentd.plane.update(address=plane.address, server_name='istiod.istio-system.svc')
        node.agentd.start()
        stack.enter_context(memory_limit(node, LIMIT_MIB if bound_mib == MIB else 4096))
        held = Held('nosds')
        stack.callback(held.stop)
        held.add(crowd_of(node, count))
        time.sleep(SETTLE_S)
        worker = Processes([node.agentd.worker_pid()])
        before, start, most = worker.memory_kib(), time.monotonic(), [0]
        worker.forget_peak()
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(held.push, size)
            while not going.done():
                most.append(node.agentd.metric('agentd_push_memory_bytes', 'state="held"'))
                time.sleep(0.05)
            going.result()
        took, peak = time.monotonic() - start, worker.peak_kib()
        time.sleep(SETTLE_S)
        assert [node.agentd.worker_pid()] == worker.pids
        return before, peak, worker.rss_kib(), took, max(most) / 1024, _cgroup_peak_kib(node)


def attacked(made):
    """What the sockets of one pod are sent by an attacker, and what another pod feels of it.  The requests a
    second are not limited here (the one who measures is a pod, too): what is seen is grpc's own work."""
    with node_of(made) as node, ThreadPoolExecutor(1) as pool:
        bad, good = node.pod('bad'), _pod(node, 'good')
        good.write_manifest()
        node.agentd.start()
        for pod in (bad, good):
            pod.wait_served()

        def p99():
            return load('sds', good.mount / 'socket', 10, 1, netns=good.netns.path)['p99'] / 1e3
        bad.call(attacker.attack, 'garbage', bad.mount / 'socket', 0)
        p99()
        row('SDS fetches of one pod while another attacks: p99 ms', 'quiet', 'attacked', 'ratio')
        for name in ('huge_message', 'large_message', 'header_bomb', 'endless_continuation', 'ping_flood',
                     'settings_flood', 'empty_data', 'message_flood'):
            quiet = p99()
            going = pool.submit(bad.call, attacker.attack, name, bad.mount / 'socket', 1.5)
            time.sleep(0.2)
            during = p99()
            going.result()
            row(f'  {name}', f'{quiet:.2f}', f'{during:.2f}', f'{during / quiet:.1f}')
