"""What an agent does with requests and pushes, whoever it is: a socket and its processes are all that is known."""
from .tools import SIZES, calls_during, load, median, row

ROUNDS, SECONDS, STREAMS = 3, 2, (1, 10, 100)
CHANGE, CHANGES = 10 << 10, 1000
PUSHES = {'1 KiB': 2000, '100 KiB': 500, '3 MB': 40, '20 MB': 8}


def fetches(socket, processes, netns):
    """Rounds of all stream counts, so that what else the machine does meets each of them."""
    found = {n: [] for n in STREAMS}
    load('sds', socket, 10, 0.5, netns=netns)
    for _ in range(ROUNDS):
        for n in STREAMS:
            before = processes.cpu_s()
            one = load('sds', socket, n, SECONDS, netns=netns)
            found[n].append({**one, 'rate': one['n'] / one['seconds'], 'cpu_ms': (processes.cpu_s() - before) / one['n'] * 1e3})
    row('SDS fetches of a cached secret, streams at a time', *STREAMS)
    row('  p50 ms', *(f'{median(found[n], "p50") / 1e3:.2f}' for n in STREAMS))
    row('  p99 ms', *(f'{median(found[n], "p99") / 1e3:.2f}' for n in STREAMS))
    row('  fetches/s', *(f'{median(found[n], "rate"):,.0f}' for n in STREAMS))
    row('  fetches/s, lowest and highest round',
        *(f'{min(f["rate"] for f in found[n]) / 1e3:.1f}-{max(f["rate"] for f in found[n]) / 1e3:.1f} k' for n in STREAMS))
    row('  CPU ms for a fetch', *(f'{median(found[n], "cpu_ms"):.3f}' for n in STREAMS))
    if failed := sum(f['failed'] for n in STREAMS for f in found[n]):
        row('  fetches that failed', failed)


def connections(socket, netns):
    one = load('first', socket, 300, netns=netns)
    row('first secret of a new connection: p50, p99 ms', f'{one["p50"] / 1e3:.2f}', f'{one["p99"] / 1e3:.2f}')


def relayed(socket, processes, netns, size, count):
    """Pushes through an agent, one after another; with its CPU for a GB, and by how much it grew."""
    before, cpu = processes.rss_kib(), processes.cpu_s()
    processes.forget_peak()
    found = load('ads', socket, size, count, netns=netns)
    total = size * (count + 1)  # the first push is not timed, but it costs
    return {**found, 'cpu_gb': (processes.cpu_s() - cpu) / total * 1e9,
            'grown': max(0, processes.peak_kib() - before) * 1024}


def relay(ways, direct):
    """A, B, C, A, B ...: the same client to the control plane, and through each of `ways`: name -> (socket, processes,
    network namespace)."""
    straight, through = {s: [] for s in SIZES}, {w: {s: [] for s in SIZES} for w in ways}
    for _ in range(ROUNDS):
        for name, size in SIZES.items():
            straight[name].append(load('ads', direct, size, PUSHES[name]))
            for way, (socket, processes, netns) in ways.items():
                through[way][name].append(relayed(socket, processes, netns, size, PUSHES[name]))
    row('ADS pushes, one after another, of', *SIZES)
    row('  direct (TLS to the control plane): p50 ms', *(f'{median(straight[s], "p50") / 1e3:.2f}' for s in SIZES))
    for way, found in through.items():
        row(f'  through {way}: p50 ms', *(f'{median(found[s], "p50") / 1e3:.2f}' for s in SIZES))
        row('  ratio', *(f'{median(found[s], "p50") / median(straight[s], "p50"):.2f}' for s in SIZES))
        row('  ratio, lowest and highest round', *(
            '{:.2f}-{:.2f}'.format(*sorted(t['p50'] / d['p50'] for t, d in zip(found[s], straight[s]))[::ROUNDS - 1])
            for s in SIZES))
        row('  MB/s', *(f'{size / median(found[s], "p50"):,.0f}' for s, size in SIZES.items()))
        row('  its CPU seconds for a GB', *(f'{median(found[s], "cpu_gb"):.2f}' for s in SIZES))
        grown = {s: max(t['grown'] for t in found[s]) for s in SIZES}
        row('  growth of RSS, most in any round, KiB', *(f'{grown[s] / 1024:,.0f}' for s in SIZES))
        row('  the same / size', *(f'{grown[s] / size:.2f}' if size > 1e6 else '' for s, size in SIZES.items()))


def changes(ways, direct):
    """A change of the mesh is four pushes at once, each ACKed.  `ways`: name -> (socket, processes, network namespace).
    Beside the times are counts, which do not depend on what else the machine does."""
    found = {name: [] for name in ('direct', *ways)}
    for _ in range(ROUNDS):
        found['direct'].append(load('each', direct, CHANGE, CHANGES))
        for name, (socket, processes, netns) in ways.items():
            before = processes.switches()
            one = calls_during(processes.pids, 'each', socket, CHANGE, CHANGES, netns=netns)
            found[name].append({**one, 'wakes': processes.switches() - before})
    row(f'changes of the mesh, four pushes of {CHANGE >> 10} KiB', *found)
    for what in ('p50', 'p99'):
        row(f'  until all came: {what} ms', *(f'{median(f, what) / 1e3:.2f}' for f in found.values()))
    row('  p50 beside direct, ms', '', *(f'{(median(found[n], "p50") - median(found["direct"], "p50")) / 1e3:+.2f}' for n in ways))
    for what, of in (('calls', 'system calls'), ('wakes', 'threads woken')):
        row(f'  {of}, for a change', '', *(f'{median(found[n], what) / (CHANGES + 1):.1f}' for n in ways))
