"""What redirection costs: nothing, istio's iptables rules, and eBPF, in alternating rounds of one run.

    [ROUNDS=N] make bench-redirect, or python3 -m tests.bench.redirect [WHAT...]
    WHAT: conntrack paths timewait programs pods broker others kubelet (default: all)

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

from .arrivals import arrivals
from .pod import Envoy
from .table import attempt, machine
from .tools import CALLS, DIAL, NOTHING, SETUP, Piped, Processes, build, row, run

PORT, PORTS, SECONDS, TURNS, ROUNDS = 9000, 64, 0.5, 3, int(os.environ.get('ROUNDS', '7'))
WAYS = DIRECT, IPTABLES, EBPF = 'direct', 'iptables', 'eBPF'
# What it is called -> how dial.c is told, the goal for CPU, of iptables'.
KINDS = {'short connections, 16 at a time': (('short', 16, 64), 0.90),
         'short connections, one at a time': (('short', 1, 64), 0.90),
         'requests on 16 kept connections': (('keep', 16, 64), 0.92),
         'answers of 16 KiB on 16 kept connections': (('keep', 16, 1 << 14), None),
         'answers of 1 MiB on 4 kept connections': (('keep', 4, 1 << 20), 0.90)}
POD_COUNTS = 1, 50, 250
EPHEMERAL = 32768, 60999  # as kernels come; connect() looks among every other port first
USED_UP = 0, 7_500, 15_000  # connections


# --- three ways from one program to another ---

class Way:
    """A client's pod and a server's."""

    def __init__(self, node, name):
        self.name, self.node = name, node
        label = name.lower()
        redirect = {'mode': 'ebpf' if name == EBPF else 'none'}
        fields = {'manifest': False} if name == DIRECT else {'redirect': redirect}
        above = 'mesh/' if name == EBPF else ''
        self.client, self.server = (node.pod(f'{label}-{side}', above=above, **fields) for side in ('client', 'server'))
        self.pods, self._turns = (self.client, self.server), 0
        for pod in self.pods:
            if name == IPTABLES:
                iptables.apply(pod.netns, {})
        self.ports(10000, 60999)
        self._listening = Process(self.server.netns.command(DIAL, 'serve', PORT, PORTS), self.server.dir / 'dial.log',
                                  self.server.cgroup)

    def ports(self, first, last):
        """That both pods dial from."""
        for pod in self.pods:
            e2e.sh(*pod.netns.command('sysctl', '-qw', f'net.ipv4.ip_local_port_range={first} {last}'))

    def next_port(self):
        """Of the server: an end of a short connection waits for a minute, and a dial to the same place looks for a port
        among them.  So nobody dials where somebody has dialled in the last minute."""
        self._turns += 1
        return PORT + self._turns % PORTS

    def start_envoys(self):
        for pod in self.pods:
            self.node.istiod.set(pod.id, **mesh.captured_plain())
            pod.start_envoy()

    def wait(self):
        for pod in self.pods:
            if pod.envoy:
                pod.wait_ready()
        e2e.wait_for('the first answer', lambda: self.dial(('short', 1, 64), 0.1)['n'] > 0)

    def dial(self, how, seconds=SECONDS, port=None, most=()):
        kind, parallel, size = how
        log = self.client.dir / 'asked.log'
        log.unlink(missing_ok=True)
        process = Process(self.client.netns.command(DIAL, kind, self.server.ip, port or self.next_port(), parallel, size,
                                                    seconds, *most), log,
                          self.client.cgroup)
        if process.wait(60):
            raise ValueError(f'{self.name}: {log.read_text()}')
        return json.loads(log.read_text())

    def cpu_us(self):
        lines = [(pod.cgroup.path / 'cpu.stat').read_text().split() for pod in self.pods]
        return sum(int(words[words.index('usage_usec') + 1]) for words in lines)

    def segments(self):
        """Of TCP, that left in both pods' network namespaces."""
        def of(pod):
            names, values = (line.split() for line in run(*pod.netns.command('grep', '^Tcp:', '/proc/net/snmp')).stdout.splitlines())
            return int(values[names.index('OutSegs')])
        return sum(of(pod) for pod in self.pods)

    def measure(self, how, **kw):
        cpu, segments = self.cpu_us(), self.segments()
        return {**self.dial(how, **kw), 'cpu': self.cpu_us() - cpu, 'segments': self.segments() - segments}

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
        sums = {what: sum(f[what] for f in found) for what in ('n', 'seconds', 'cpu', 'segments', 'failed')}
        return {'rate': sums['n'] / sums['seconds'], 'cpu': sums['cpu'] / sums['n'], 'segments': sums['segments'] / sums['n'],
                'failed': sums['failed'],
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
                f'{statistics.median(ratios):.2f}', spread(ratios), f'{goal:.2f}' if what == 'cpu' and goal else '')
        row('  TCP segments of each', *(f'{statistics.median(f[w]["segments"] for f in found[kind]):,.2f}' for w in WAYS))
        if failed := sum(f[w]['failed'] for w in WAYS for f in found[kind]):
            row('  operations that failed', failed)


def timewait(_node, ways):
    """One client, one server, one port, and the kernel's own settings: what a connection takes when there were thousands
    within the minute."""
    one, crowd, found = ('short', 1, 64), ('short', 16, 64), {name: [] for name in WAYS}
    for name, way in ways.items():
        way.ports(*EPHEMERAL)
        port, before = way.next_port(), 0
        for most in USED_UP:
            if most > before:
                before += way.dial(crowd, 25, port, [most - before])['n']
            found[name].append({**way.measure(one, port=port), 'before': before})
            before += found[name][-1]['n']
        way.ports(10000, 60999)
    row('short connections to one address and port', *WAYS, 'eBPF/iptables')
    for i, most in enumerate(USED_UP):
        f = {w: found[w][i] for w in WAYS}
        cpu = {w: f[w]['cpu'] / max(f[w]['n'], 1) for w in WAYS}
        row(f'  after (of {most:,} within a minute)' if most else '  at first', *(f'{f[w]["before"]:,}' for w in WAYS))
        row('    a second', *(f'{f[w]["n"] / f[w]["seconds"]:,.0f}' for w in WAYS))
        row('    CPU us of each', *(f'{cpu[w]:,.0f}' if f[w]['n'] else 'no port' for w in WAYS),
            f'{cpu[EBPF] / cpu[IPTABLES]:.2f}' if f[IPTABLES]['n'] else '')


def broker(node, _ways):
    arrivals(node)


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

PROBE = PORT + 1  # of one pod only: dials of PORT are other processes'


def from_node(node, cgroup, to, port):
    """Connections, with a request and an answer each, one at a time."""
    log = node.dir / 'probes.log'
    log.unlink(missing_ok=True)
    if Process([DIAL, 'short', to, port, 1, 64, SECONDS], log, cgroup).wait(60):
        raise ValueError(log.read_text())
    return json.loads(log.read_text())


def probes_own_time(node, dial):
    """Of the programs that let the kubelet in: name -> runs and nanoseconds of each connection."""
    with counted():
        before = pinned_programs(node.bpffs)
        n = dial()['n']
        after = pinned_programs(node.bpffs)
    return {p['name']: [(p.get(what, 0) - before[number].get(what, 0)) / n for what in ('run_cnt', 'run_time_ns')]
            for number, p in after.items() if p['name'].startswith('kernel_can')}


def probed_pod(node):
    pod = node.pod('probed', above='mesh/', redirect={'mode': 'ebpf', 'probe_ports': str(PROBE)})
    Process(pod.netns.command(DIAL, 'serve', PROBE, 1), pod.dir / 'dial.log', pod.cgroup)
    node.istiod.set(pod.id, **mesh.captured_plain())
    pod.start_envoy()
    pod.wait_ready()
    return pod


def kubelet(node, ways):
    """Last of all: from the first pod with probe ports on, its programs are above every process of the node."""
    free, idle = (Cgroup(f'{node.cgroup_name}-{name}') for name in ('free', 'nothing'))
    below, prober = node.cgroup('below'), node.cgroup('kubelet')
    netns = Netns(f'{node.name}.calls')
    node.network.plug_node('10.77.200.1/16')
    e2e.sh('sysctl', '-qw', 'net.ipv4.tcp_tw_reuse=1', 'net.ipv4.ip_local_port_range=10000 60999')
    try:
        pod = probed_pod(node)
        to = {'direct': (free, ways[DIRECT].server.ip, PORT), 'let in': (prober, pod.ip, PROBE)}
        found = {name: [] for name in to}
        others, cpu_s, probes = Processes([Envoy(pod).pid, *node.agentd.cgroup.pids()]), 0, 0
        for turn in range(ROUNDS * TURNS):
            for name in list(to)[::1 if turn % 2 else -1]:
                before = others.cpu_s()
                told = from_node(node, *to[name])
                found[name].append(told['p50'])
                if name == 'let in':
                    cpu_s, probes = cpu_s + others.cpu_s() - before, probes + told['n']
        ratios = [a / b for a, b in zip(found['let in'], found['direct'])]
        row("a kubelet's probe, one at a time", *to, 'ratio', 'turns', 'goal')
        row('  p50 us', *(f'{statistics.median(us):,.0f}' for us in found.values()), f'{statistics.median(ratios):.2f}',
            spread(ratios), '1.10')
        row('  CPU of its Envoy and of agentd, us a probe', f'{cpu_s * 1e6 / probes:.3f}', '', '', '', '0')
        row('its programs, a connection', 'runs', 'ns', 'ns a run')
        for who, dialled in (('the kubelet', to['let in']), ('other root', (below, *to['direct'][1:]))):
            for name, (runs, ns) in probes_own_time(node, lambda d=dialled: from_node(node, *d)).items():
                if runs > 0.01:
                    row(f'  {who}: {name}', f'{runs:.1f}', f'{ns:,.0f}', f'{ns / runs:.0f}')
        calls = json.loads(run(*netns.command(CALLS, free.path, below.path), timeout=300).stdout)
        nothing = Piped(NOTHING, idle.path)
        floor = json.loads(run(*netns.command(CALLS, free.path, idle.path, 'TCP connect()'), timeout=300).stdout)
        nothing.stop()
    finally:
        netns.remove()
        for cgroup in free, idle:
            e2e.remove_cgroup(cgroup.path)
    row("other root, below the probes' programs", 'outside, ns', 'below, ns', 'ratio', 'half of them', 'goal')
    calls['TCP connect(), programs that do nothing'] = floor['TCP connect()']
    for call, f in calls.items():
        row(f'  {call}', *(f'{ns:,.0f}' for ns in f['ns']), f'{f["ratio"][0]:.3f}',
            '{1:.3f}-{2:.3f}'.format(*f['ratio']), '1.02' if call == 'TCP connect()' else '')


PARTS = {f.__name__: f for f in (conntrack, paths, timewait, programs, pods, broker, others, kubelet)}


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
