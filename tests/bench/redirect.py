"""What redirection costs: nothing, istio's iptables rules, and eBPF, in alternating rounds of one run.

    [ROUNDS=N] make bench-redirect, or python3 -m tests.bench.redirect [WHAT...]
    WHAT: conntrack paths programs pods others kubelet (default: all)

    direct:           app ----------------------------> app
    iptables, eBPF:   app -> Envoy ------> Envoy -> app        all of it plain TCP, real Envoys, one worker each

Each way has two pods of its own: network namespaces, cgroups.  CPU is what the kernel counts for the cgroups of
both (apps and Envoys), for each operation.  Nothing passes or fails here; goals stand beside what was found.
"""
import contextlib
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time

from tests.e2e import iptables, mesh
from tests.e2e import run as e2e
from tests.e2e.netns import Netns, own
from tests.e2e.node import Node
from tests.e2e.run import Cgroup, Process

from .table import attempt, machine
from .tools import CALLS, DIAL, SETUP, build, row, run

PORT, SECONDS, TURNS, ROUNDS = 9000, 0.5, 3, int(os.environ.get('ROUNDS', '7'))
WAYS = DIRECT, IPTABLES, EBPF = 'direct', 'iptables', 'eBPF'
# What it is called -> how dial.c is told, the goal for CPU, of iptables'.
KINDS = {'short connections, 16 at a time': (('short', 16, 64), 0.90),
         'short connections, one at a time': (('short', 1, 64), 0.90),
         'requests on 16 kept connections': (('keep', 16, 64), 0.92),
         'answers of 1 MiB on 4 kept connections': (('keep', 4, 1 << 20), None)}
POD_COUNTS = 1, 50, 250


# --- three ways from one program to another ---

class Way:
    """A client's pod and a server's."""

    def __init__(self, node, name):
        self.name, self.node = name, node
        label = name.lower()
        fields = {'manifest': False} if name == DIRECT else {'redirect': {'mode': 'ebpf' if name == EBPF else 'none'}}
        above = 'mesh/' if name == EBPF else ''
        self.client, self.server = (node.pod(f'{label}-{side}', above=above, **fields) for side in ('client', 'server'))
        self.pods = self.client, self.server
        for pod in self.pods:
            # Ends of short connections wait for a minute: there must be enough ports, for every way.
            e2e.sh(*pod.netns.command('sysctl', '-qw', 'net.ipv4.tcp_tw_reuse=1',
                                      'net.ipv4.ip_local_port_range=10000 60999'))
            if name == IPTABLES:
                iptables.apply(pod.netns, {})
        self._listening = Process(self.server.netns.command(DIAL, 'serve', PORT), self.server.dir / 'dial.log',
                                  self.server.cgroup)

    def start_envoys(self):
        for pod in self.pods:
            self.node.istiod.set(pod.id, **mesh.captured_plain())
            pod.start_envoy()

    def wait(self):
        for pod in self.pods:
            if pod.envoy:
                pod.wait_ready()
        e2e.wait_for('the first answer', lambda: self.dial(('short', 1, 64), 0.1)['n'] > 0)

    def dial(self, how, seconds=SECONDS):
        kind, parallel, size = how
        log = self.client.dir / 'asked.log'
        log.unlink(missing_ok=True)
        process = Process(self.client.netns.command(DIAL, kind, self.server.ip, PORT, parallel, size, seconds), log,
                          self.client.cgroup)
        if process.wait(60):
            raise ValueError(f'{self.name}: {log.read_text()}')
        return json.loads(log.read_text())

    def cpu_us(self):
        lines = [(pod.cgroup.path / 'cpu.stat').read_text().split() for pod in self.pods]
        return sum(int(words[words.index('usage_usec') + 1]) for words in lines)

    def measure(self, how):
        before = self.cpu_us()
        return {**self.dial(how), 'cpu': self.cpu_us() - before}

    def carried(self):
        """Connections that either Envoy made, to where the one that came in was meant to go."""
        def of(pod, cluster):
            clusters = pod.netns.json(15000, '/clusters?format=json')['cluster_statuses']
            hosts = [h for c in clusters if c['name'] == cluster for h in c.get('host_statuses', [])]
            return sum(int(s.get('value', 0)) for h in hosts for s in h['stats'] if s['name'] == 'cx_total')
        return of(self.client, 'passthrough'), of(self.server, 'app')

    def tracked(self):
        """Entries of conntrack in both pods' network namespaces."""
        return sum(int(run(*pod.netns.command('cat', '/proc/sys/net/netfilter/nf_conntrack_count')).stdout)
                   for pod in self.pods)


@contextlib.contextmanager
def ways_of(made):
    node = Node(*made, mode='release')
    node.agentd.settings.update(log_level='info')
    node.cgroup('mesh')
    node.capture('mesh')
    node.cgroup('kubepods')
    node.agentd.flags += ['--kubepods', f'{node.cgroup_name}/kubepods']
    try:
        node.agentd.start()
        ways = {name: Way(node, name) for name in WAYS}
        for name in IPTABLES, EBPF:
            ways[name].start_envoys()
        for way in ways.values():
            way.wait()
        yield node, ways
    finally:
        node.remove()


def prove(ways):
    """Both Envoys carry every connection, or the figures are of something else."""
    for name in IPTABLES, EBPF:
        before = ways[name].carried()
        n = ways[name].dial(('short', 4, 64), 0.2)['n']
        gained = [a - b for a, b in zip(ways[name].carried(), before)]
        if min(gained) < n:
            raise RuntimeError(f'{name}: {n} connections dialled, the Envoys carried {gained}')


def one_round(ways, how):
    """Turns are short, so that whatever else the machine does meets all ways alike."""
    turns = {name: [] for name in WAYS}
    for turn in range(TURNS):
        for i in range(len(WAYS)):
            name = WAYS[(turn + i) % len(WAYS)]
            turns[name].append(ways[name].measure(how))

    def whole(found):
        sums = {what: sum(f[what] for f in found) for what in ('n', 'seconds', 'cpu', 'failed')}
        return {'rate': sums['n'] / sums['seconds'], 'cpu': sums['cpu'] / sums['n'], 'failed': sums['failed'],
                **{p: statistics.median(f[p] for f in found) for p in ('p50', 'p99')}}
    return {name: whole(found) for name, found in turns.items()}


def spread(ratios):
    return f'{min(ratios):.2f}-{max(ratios):.2f}'


def paths(_node, ways):
    prove(ways)
    found = {kind: [] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind, (how, _) in KINDS.items():
            found[kind].append(one_round(ways, how))
    for kind, (_, goal) in KINDS.items():
        row(kind, *WAYS, 'eBPF/iptables', 'rounds', 'goal')
        for what, label in (('rate', 'a second'), ('cpu', 'CPU us of each'), ('p50', 'p50 us'), ('p99', 'p99 us')):
            ratios = [f[EBPF][what] / f[IPTABLES][what] for f in found[kind]]
            row(f'  {label}', *(f'{statistics.median(f[w][what] for f in found[kind]):,.0f}' for w in WAYS),
                f'{statistics.median(ratios):.2f}', spread(ratios), f'{goal:.2f}' if goal and what == 'cpu' else '')
        if failed := sum(f[w]['failed'] for w in WAYS for f in found[kind]):
            row('  operations that failed', failed)


# --- the programs' own time, and what is left behind ---

@contextlib.contextmanager
def counted():
    """The kernel times every run of a program, until the descriptor is closed, however we end."""
    number = {'x86_64': 321, 'aarch64': 280}[platform.machine()]
    fd = ctypes.CDLL(None, use_errno=True).syscall(number, 32, ctypes.create_string_buffer(8), 8)  # BPF_ENABLE_STATS
    if fd < 0:
        raise OSError(ctypes.get_errno(), 'BPF_ENABLE_STATS')
    try:
        yield
    finally:
        os.close(fd)


def bpftool(*argv):
    return json.loads(run('bpftool', '-j', *argv).stdout)


def pinned_programs(bpffs):
    """{id: what bpftool says of it}, of all links that are pinned."""
    links = [p for p in (bpffs / 'agentd').rglob('*') if p.is_file() and not p.name.startswith('map_')]
    ids = {bpftool('link', 'show', 'pinned', p)['prog_id'] for p in links}
    return {p['id']: p for p in bpftool('prog', 'show') if p['id'] in ids}


def programs(node, ways):
    n, before = {}, {}
    with counted():
        ways[EBPF].dial(('short', 4, 64), 0.2)
        before = pinned_programs(node.bpffs)
        n = ways[EBPF].dial(('short', 4, 64))['n']
        after = pinned_programs(node.bpffs)
    sums = {}
    for number, p in after.items():
        runs, ns = sums.get(p['name'], (0, 0))
        was = before.get(number, {})
        sums[p['name']] = (runs + p.get('run_cnt', 0) - was.get('run_cnt', 0),
                           ns + p.get('run_time_ns', 0) - was.get('run_time_ns', 0))
    row('eBPF programs, each connection through both pods', 'runs', 'ns', 'ns a run')
    for name, (runs, ns) in sorted(sums.items(), key=lambda s: -s[1][1]):
        if runs / n > 0.01:
            row(f'  {name}', f'{runs / n:.1f}', f'{ns / n:,.0f}', f'{ns / runs:.0f}')
    row('  all', f'{sum(s[0] for s in sums.values()) / n:.1f}', f'{sum(s[1] for s in sums.values()) / n:,.0f}')


def conntrack(_node, ways):
    """First of all: later the ports of earlier connections come again, and their entries with them."""
    before = {name: ways[name].tracked() for name in WAYS}
    dialled = {name: ways[name].dial(('short', 4, 64))['n'] for name in WAYS}
    row('conntrack entries of 100 connections', *WAYS, '', '', 'goal')
    row('', *(f'{(ways[w].tracked() - before[w]) / dialled[w] * 100:.0f}' for w in WAYS), '', '', 0)


# --- what a pod takes ---

def kernel_bytes(bpffs):
    maps = sum(bpftool('map', 'show', 'pinned', p)['bytes_memlock'] for p in bpffs.rglob('map_*'))
    return maps + sum(p['bytes_memlock'] for p in pinned_programs(bpffs).values())


def iptables_ms(name, times=10):
    """Both families; and what is nsenter(1)'s and the fork's of that."""
    took, entering = [], []
    for i in range(times):
        netns = Netns(f'{name}.{i}')
        try:
            start = time.monotonic()
            iptables.apply(netns, {})
            middle = time.monotonic()
            for _ in range(2):
                e2e.sh(*netns.command('true'))
            took.append((middle - start) * 1e3)
            entering.append((time.monotonic() - middle) * 1e3)
        finally:
            netns.remove()
    return statistics.median(took), statistics.median(entering)


def pods(node, _ways):
    """setup.c in place of an agentd: its broker's module, alone."""
    bpffs, manifests, cgroup = node.dir / 'bpf-of-setup', node.dir / 'pods-of-setup', node.cgroup('setup')
    for d in bpffs, manifests:
        d.mkdir()
    e2e.sh('mount', '-t', 'bpf', 'bpf', bpffs)
    try:
        with subprocess.Popen([SETUP, bpffs, manifests, cgroup.below_root()], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, bufsize=1) as setup:
            start, empty, steps = json.loads(setup.stdout.readline()), kernel_bytes(bpffs), []
            for count, before in zip(POD_COUNTS, (0, *POD_COUNTS)):
                setup.stdin.write(f'{count - before}\n')
                steps.append({**json.loads(setup.stdout.readline()), 'kernel': kernel_bytes(bpffs)})
            removed, _ = setup.communicate()
    finally:
        e2e.sh('umount', bpffs)
    took, entering = iptables_ms(node.name)
    row('a pod more, when there are', *POD_COUNTS, 'p99, of 200', 'goal')
    both = [(s['set'][0] + s['live'][0]) / 1e3 for s in steps]
    for what, label in (('set', 'asked for to in force outbound, ms'),
                        ('live', 'its namespace known to in force inbound, ms')):
        row(f'  {label}', *(f'{s[what][0] / 1e3:.2f}' for s in steps), f'{steps[-1][what][1] / 1e3:.2f}')
    row('  both, ms', *(f'{b:.2f}' for b in both), '', '1')
    row('  removed, ms', '', '', *(f'{t / 1e3:.2f}' for t in json.loads(removed)['remove']))
    row('  memory of the kernel, KiB for each', *(f'{(s["kernel"] - empty) / s["pods"] / 1024:.1f}' for s in steps))
    row('  memory of the broker, KiB for each', *(
        f'{(s["rss_kib"] - start["rss_kib"]) / s["pods"]:.1f}' for s in steps))
    row('once: load and attach ms; kernel, broker KiB', f'{start["start"] / 1e3:.0f}', f'{empty / 1024:,.0f}',
        f'{start["rss_kib"]:,}')
    row('iptables-restore, both families, ms; of that nsenter', f'{took:.1f}', f'{entering:.1f}')


# --- pods outside the mesh ---

def others(node, _ways):
    """Beside the mesh's pods, below the programs; and the same as deep in the tree, but not below them."""
    below, outside = ((node.cgroup(top).path if top == 'plain' else e2e.cgroup_root() / node.cgroup_name / top)
                      / 'burstable/other/app' for top in ('mesh', 'plain'))
    for path in below, outside:
        path.mkdir(parents=True)
    netns = Netns(f'{node.name}.other')
    try:
        found = json.loads(run(*netns.command(CALLS, outside, below), timeout=120).stdout)
    finally:
        netns.remove()
    row('a process of no pod of the mesh', 'outside, ns', 'below, ns', 'ratio', 'half of them', 'goal')
    for call, f in found.items():
        goal = {'TCP connect()': '1.02', 'getsockopt()': '1.00'}.get(call, '')
        row(f'  {call}', *(f'{ns:,.0f}' for ns in f['ns']), f'{f["ratio"][0]:.3f}',
            '{1:.3f}-{2:.3f}'.format(*f['ratio']), goal)


# --- the kubelet's probes, and who is below their programs without being it ---

def probe_us(node, cgroup, to):
    """Of one connection, with a request and an answer, from the node."""
    log = node.dir / 'probes.log'
    log.unlink(missing_ok=True)
    if Process([DIAL, 'short', to, PORT, 1, 64, SECONDS], log, cgroup).wait(60):
        raise ValueError(log.read_text())
    found = json.loads(log.read_text())
    return found['seconds'] / found['n'] * 1e6


def kubelet(node, ways):
    """Last of all: from the first pod with probe ports on, its programs are above every process of the node."""
    free, below = Cgroup(f'{node.cgroup_name}-free'), node.cgroup('plain-below')
    netns = Netns(f'{node.name}.other')
    node.network.plug_node('10.77.200.1/16')
    e2e.sh('sysctl', '-qw', 'net.ipv4.tcp_tw_reuse=1', 'net.ipv4.ip_local_port_range=10000 60999')
    try:
        pod = node.pod('probed', above='mesh/', redirect={'mode': 'ebpf', 'probe_ports': str(PORT)})
        Process(pod.netns.command(DIAL, 'serve', PORT), pod.dir / 'dial.log', pod.cgroup)
        node.istiod.set(pod.id, **mesh.captured_plain())
        pod.start_envoy()
        pod.wait_ready()
        prober, found = node.cgroup('kubelet'), {pod.ip: [], ways[DIRECT].server.ip: []}
        for turn in range(ROUNDS * TURNS):
            for to in list(found)[::1 if turn % 2 else -1]:
                found[to].append(probe_us(node, prober, to))
        ratios = [a / b for a, b in zip(*found.values())]
        row("a kubelet's probe, one at a time", 'direct', 'let in', 'ratio', 'turns', 'goal')
        row('  us', *(f'{statistics.median(us):,.1f}' for us in reversed(found.values())),
            f'{statistics.median(ratios):.2f}', spread(ratios), '1.10')
        calls = json.loads(run(*netns.command(CALLS, free.path, below.path), timeout=120).stdout)
    finally:
        netns.remove()
        free.remove()
    row("root, below the probes' programs", 'outside, ns', 'below, ns', 'ratio', 'half of them', 'goal')
    for call, f in calls.items():
        row(f'  {call}', *(f'{ns:,.0f}' for ns in f['ns']), f'{f["ratio"][0]:.3f}',
            '{1:.3f}-{2:.3f}'.format(*f['ratio']), '1.02' if call == 'TCP connect()' else '')


PARTS = {f.__name__: f for f in (conntrack, paths, programs, pods, others, kubelet)}


def main():
    what = sys.argv[1:] or list(PARTS)
    if unknown := set(what) - set(PARTS):
        sys.exit(f'{__doc__}\nunknown: {" ".join(unknown)}')
    if os.geteuid() != 0:
        sys.exit('root is needed: network namespaces, cgroups, eBPF')
    load_before, start = os.getloadavg()[0], time.monotonic()
    build()
    with e2e.run() as made, own(), ways_of(made) as (node, ways):
        for name in what:
            attempt(name, PARTS[name], node, ways)
    machine(load_before, start)


if __name__ == '__main__':
    main()
