"""Who holds the worker's heap: every block that is alive, by the functions that asked for it (owners.c).

    python3 -m tests.bench.owners [PODS]     also prints the stacks that hold most
"""
import bisect
import collections
import contextlib
import re
import struct
import sys
import time
from pathlib import Path

from . import agent
from .tools import BIN, TOP, Held, row, run

BASE, MORE = 10, 120  # what the process has once is there with the first ten
WORKER = BIN / 'owners/agentd-worker'
DEPTH, STACKS = 30, 1 << 14  # of owners.c
ENTRY = struct.Struct(f'<qq{DEPTH}Q')


class Symbols:
    def __init__(self):
        found = sorted((int(at, 16), name) for at, kind, name in
                       (line.split() for line in run('nm', '--defined-only', WORKER).stdout.splitlines()) if kind in 'tTwWbBdD')
        self._at, self._names = [a for a, _ in found], [n for _, n in found]
        self.address = {n: a for a, n in found}

    def name(self, at):
        return self._names[i - 1] if (i := bisect.bisect_right(self._at, at)) else '?'


def _base(pid):
    """Where the worker's own file lies; it is one that may be anywhere."""
    lines = Path(f'/proc/{pid}/maps').read_text().splitlines()
    return min(int(line.split('-')[0], 16) for line in lines if line.endswith('/agentd-worker'))


def read(pid, symbols):
    """Stack of functions, innermost first -> (blocks, bytes) that are alive."""
    base, found = _base(pid), collections.Counter()
    blocks = collections.Counter()
    with open(f'/proc/{pid}/mem', 'rb') as f:
        f.seek(base + symbols.address['owners_stacks'])
        for n, size, *frames in ENTRY.iter_unpack(f.read(STACKS * ENTRY.size)):
            if frames[0] and n:
                stack = tuple(symbols.name(at - base) for at in frames if at)
                found[stack] += size
                blocks[stack] += n
    return found, blocks


def measure(made, more=MORE):
    """Stack -> (KiB, blocks) for each pod that came after the first ones."""
    run('make', '-s', WORKER.relative_to(TOP))
    symbols = Symbols()
    with agent.node_of(made, 'release/tests/bench/owners') as node, contextlib.ExitStack() as stack:
        node.agentd.start()
        held = Held()
        stack.callback(held.stop)
        seen = []
        for before, count in (0, BASE), (BASE, more):
            held.add(agent.crowd_of(node, count, before))
            time.sleep(agent.SETTLE_S)
            seen.append(read(node.agentd.worker_pid(), symbols))
    (before, nbefore), (after, nafter) = seen
    return {s: ((after[s] - before[s]) / 1024 / more, (nafter[s] - nbefore[s]) / more) for s in after}


def main():
    with agent.e2e.run() as made:
        found = measure(made, *map(int, sys.argv[1:]))
    for stack, (kib, n) in sorted(found.items(), key=lambda i: -i[1][0])[:150]:
        print(f'{kib:8.2f} KiB {n:7.2f} blocks  ' + ' '.join(re.sub(r'^(_ZN?K?)', '', s)[:70] for s in stack[:14]))
    row('all', f'{sum(k for k, _ in found.values()):.1f}', f'{sum(n for _, n in found.values()):.0f}')


if __name__ == '__main__':
    main()
